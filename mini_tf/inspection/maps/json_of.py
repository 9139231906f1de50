"""What was seen of a text as plain data for JSON: texts and tokens exactly as they are, measures by name.

Of a pair what belongs to a side is called after it: source_tokens, target_tokens.
"""

from dataclasses import asdict
from typing import Any

from mini_tf.inspection.describe import describe_head, describe_query
from mini_tf.inspection.maps.attention import Head, Sample
from mini_tf.inspection.sides import Side


def entry(sample: Sample, full: bool, described: bool) -> dict[str, Any]:
    """One sample. Rows and columns of a matrix are `words` where there are such, else `tokens`; word_of_token maps one to the other.

    full: with the matrices; described: with a sentence a head.
    """
    own, source = sample.sides.own, sample.sides.source
    texts = {"text": sample.text} if source is None else {"source": source.given.text, "target": own.given.text}
    read = _side(own, "") if source is None else _side(source, "source_") | _side(own, "target_")
    query = {} if sample.query is None else {"query": asdict(sample.query)}
    step = {} if sample.step is None else {"step": sample.step}
    heads = [_head(sample, head, full, described) for head in sample.heads]
    return {**texts, **step, **read, **query, "heads": heads}


def _side(side: Side, prefix: str) -> dict[str, Any]:
    words = {"words": side.words.texts, "word_of_token": side.words.of_token} if side.by_words else {}
    return {f"{prefix}{name}": value for name, value in {"tokens": side.tokens, "ids": side.given.ids, **words}.items()}


def _head(sample: Sample, head: Head, full: bool, described: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {**head.place._asdict(), **head.measures, "role": head.role}
    if sample.query is not None:
        fields["query_weights"] = head.weights[sample.query.index].tolist()
    if described:
        fields["description"] = describe_head(head, sample.unit) if sample.query is None else describe_query(head, sample)
    if full:
        fields["matrix"] = head.weights.tolist()
    return fields
