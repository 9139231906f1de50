"""JSON of a sample: texts and tokens unchanged, measures by name.

For an encoder-decoder keys have a prefix: source_tokens, target_tokens.
"""

from dataclasses import asdict
from typing import Any

from mini_tf.inspection.describe import describe_head, describe_query
from mini_tf.inspection.maps.attention import Head, Sample
from mini_tf.inspection.tokenized_texts import TokenizedText


def to_json(sample: Sample, full: bool, described: bool) -> dict[str, Any]:
    """One sample. Rows and columns of a matrix are `words` if present, else `tokens`.

    full: with matrices; described: with a sentence per head.
    """
    own, source = sample.texts.own, sample.texts.source
    texts = {"text": sample.text} if source is None else {"source": source.input.text, "target": own.input.text}
    tokens = _tokens(own, "") if source is None else _tokens(source, "source_") | _tokens(own, "target_")
    query = {} if sample.query is None else {"query": asdict(sample.query)}
    step = {} if sample.step is None else {"step": sample.step}
    heads = [_head(sample, head, full, described) for head in sample.heads]
    return {**texts, **step, **tokens, **query, "heads": heads}


def _tokens(text: TokenizedText, prefix: str) -> dict[str, Any]:
    words = {"words": text.words.texts, "word_of_token": text.words.of_token} if text.by_words else {}
    return {f"{prefix}{name}": value for name, value in {"tokens": text.tokens, "ids": text.input.ids, **words}.items()}


def _head(sample: Sample, head: Head, full: bool, described: bool) -> dict[str, Any]:
    scores = {name: {"score": score.mean, "error": score.error} for name, score in head.scores.items()}
    fields: dict[str, Any] = {**head.index._asdict(), **head.measures, "role": head.role, "role_scores": scores}
    if sample.query is not None:
        fields["query_weights"] = head.weights[sample.query.index].tolist()
    if described:
        fields["description"] = (
            describe_head(head, sample.unit) if sample.query is None else describe_query(head, sample)
        )
    if full:
        fields["matrix"] = head.weights.tolist()
    return fields
