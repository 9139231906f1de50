"""What heads do, in sentences that can be read aloud."""

from collections import Counter
from collections.abc import Sequence

from mini_tf.inspection.heads import ROLES
from mini_tf.inspection.maps.attention import Head, Sample

_DOES = {
    "previous": "looks one {unit} back: {share:.2f} of its weight",
    "next": "looks one {unit} ahead: {share:.2f} of its weight",
    "self": "looks at its own {unit}: {share:.2f} of its weight",
    "first": "rests on the first {unit}: {share:.2f} of its weight, from the third {unit} on",
    "induction": "looks at what followed an earlier occurrence of the same {unit}: "
    "{share:.2f} of the weight of the {rows} rows that have one",
    "same": "looks at other occurrences of the same {unit}: {share:.2f} of the weight of the {rows} rows that have one",
}


def describe_head(head: Head, unit: str) -> str:
    """One sentence; `unit` is "token" or "word"."""
    return f"{head.place} {does(head, unit)}"


def does(head: Head, unit: str) -> str:
    """What the head does, with the numbers that say so."""
    m = head.measures
    if head.of_source and head.role == "first":
        return f"rests on the first {unit} of the source: {m['first']:.2f} of its weight"
    if head.role in _DOES:
        return _DOES[head.role].format(unit=unit, share=m[head.role], rows=m.get(f"{head.role}_rows"))
    if m["entropy"] is None:
        return f"has no choice in this text: no {unit} sees two"
    away = m.get("distance")
    far = "" if away is None else f", {away:.1f} {unit}s away"
    if head.role == "broad":
        return f"spreads its weight over all that it sees: on average entropy {m['entropy']:.2f} of 1{far}"
    return f"has no simple pattern: on average entropy {m['entropy']:.2f} of 1, largest weight {m['max']:.2f}{far}"


def describe_query(head: Head, sample: Sample, most: int = 3) -> str:
    """One sentence about where the query looks in a head: its `most` heaviest places."""
    assert sample.query is not None
    row = head.weights[sample.query.index]
    best = sorted(range(len(row)), key=lambda place: -row[place])[:most]
    columns = sample.columns(head)
    places = ", ".join(f"{columns[place]!r} ({place}) {row[place]:.2f}" for place in best if row[place] >= 0.005)
    return f"{head.place}: {sample.query.text!r} ({sample.query.index}) looks at {places or 'nothing'}"


def describe(sample: Sample) -> list[str]:
    """What there is of each role, then a sentence a head; with a query, where it looks in each."""
    if sample.query is not None:
        return [describe_query(head, sample) for head in sample.heads]
    return [overview(sample.heads), *(describe_head(head, sample.unit) for head in sample.heads)]


def overview(heads: Sequence[Head]) -> str:
    """How many heads have each role."""
    roles = Counter(head.role for head in heads)
    parts = [f"{roles[role]} {role}" for role in ROLES if roles[role]] + [f"{roles[None]} without a simple pattern"] * (roles[None] > 0)
    return f"{len(heads)} head{'s' if len(heads) > 1 else ''}: {', '.join(parts)}"
