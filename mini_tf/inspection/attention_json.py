"""What was seen of a text as plain data for JSON: texts and tokens exactly as they are, measures by name."""

from dataclasses import asdict
from typing import Any

from mini_tf.inspection.attention import Head, Sample
from mini_tf.inspection.describe import describe_head, describe_query


def entry(sample: Sample, full: bool, described: bool) -> dict[str, Any]:
    """One sample. Rows and columns of a matrix are `words` where there are such, else `tokens`; word_of_token maps one to the other.

    full: with the matrices; described: with a sentence a head.
    """
    of_words = {} if sample.words is None else {"words": sample.words.texts, "word_of_token": sample.words.of_token}
    query = {} if sample.query is None else {"query": asdict(sample.query)}
    step = {} if sample.step is None else {"step": sample.step}
    heads = [_head(sample, head, full, described) for head in sample.heads]
    return {"text": sample.given.text, **step, "tokens": sample.tokens, "ids": sample.given.ids, **of_words, **query, "heads": heads}


def _head(sample: Sample, head: Head, full: bool, described: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {**head.place._asdict(), **head.measures, "role": head.role}
    if sample.query is not None:
        fields["query_weights"] = head.weights[sample.query.index].tolist()
    if described:
        fields["description"] = describe_head(head, sample.unit) if sample.query is None else describe_query(head, sample)
    if full:
        fields["matrix"] = head.weights.tolist()
    return fields
