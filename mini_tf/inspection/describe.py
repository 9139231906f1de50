"""Descriptions of attention heads, in sentences."""

from collections import Counter
from collections.abc import Sequence

from mini_tf.inspection.heads import ROLES
from mini_tf.inspection.maps.attention import Head, Sample
from mini_tf.nn.model_stack import UNITS

_ROLE_SUMMARIES = {
    "previous": "previous-token head, attention weight {score} on the previous token",
    "next": "next-token head, attention weight {score} on the next token",
    "self": "current-token head, attention weight {score} on the token itself",
    "first": "first-token head (attention sink), attention weight {score} on the first token",
    "induction": "induction head, attention weight {score} on the token after an earlier occurrence of the same token",
    "same": "duplicate-token head, attention weight {score} on other occurrences of the same token",
    "broad": "broad attention, normalized entropy {score}",
}
"""By role; the score is a mean over repeated random tokens, with its standard error."""


def describe_head(head: Head, unit: str) -> str:
    """A sentence about a head; `unit` is "token" or "word"."""
    return f"{head.index}: {summarize(head, unit)}"


def summarize(head: Head, unit: str) -> str:
    """The role of a head with its score, and what the head does on this text."""
    m, unit = head.measures, UNITS.get(head.keys, unit)
    parts = []
    if head.role is not None:
        parts.append(f"{_ROLE_SUMMARIES[head.role].format(score=head.scores[head.role])} (repeated random tokens)")
    elif head.scores:
        parts.append("no role")
    if m["entropy"] is None:
        return "; ".join([*parts, f"no measures, because no {unit} of this text attends to two or more"])
    distance = m.get("distance")
    mean_distance = "" if distance is None else f", mean distance {distance:.1f} {unit}s"
    on_text = "on this text " * bool(parts)
    return "; ".join(
        [
            *parts,
            f"{on_text}mean normalized entropy {m['entropy']:.2f}, mean largest weight {m['max']:.2f}{mean_distance}",
        ]
    )


def describe_query(head: Head, sample: Sample, most: int = 3) -> str:
    """A sentence about the query in a head: the `most` keys with the largest attention weights."""
    assert sample.query is not None
    row = head.weights[sample.query.index]
    best = sorted(range(len(row)), key=lambda key: -row[key])[:most]
    columns = sample.columns(head)
    keys = ", ".join(f"{columns[key]!r} ({key}) {row[key]:.2f}" for key in best if row[key] >= 0.005)
    return f"{head.index}: {sample.query.text!r} ({sample.query.index}) attends to {keys or 'nothing'}"


def describe(sample: Sample) -> list[str]:
    """The number of heads per role and a sentence per head; with a query, a sentence per head about it."""
    if sample.query is not None:
        return [describe_query(head, sample) for head in sample.heads]
    return [count_roles(sample.heads), *(describe_head(head, sample.unit) for head in sample.heads)]


def count_roles(heads: Sequence[Head]) -> str:
    """The number of heads per role, as text."""
    roles = Counter(head.role for head in heads)
    parts = [f"{roles[role]} {role}" for role in ROLES if roles[role]] + [f"{roles[None]} without a role"] * (
        roles[None] > 0
    )
    return f"{len(heads)} head{'s' if len(heads) > 1 else ''}, roles on repeated random tokens: {', '.join(parts)}"
