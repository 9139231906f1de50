"""Pictures of a sample of attention: sentences, a grid of heads, maps of heads, one query in all heads, checkpoints."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from mini_tf.drawing import terminal
from mini_tf.drawing.panel import HeadGrid, Panel, PanelGrid, QueryWeights, Scale
from mini_tf.inspection import Picture
from mini_tf.inspection._attention_maps import Head, Sample
from mini_tf.inspection._heads import BROAD, NO_ROLE, PATTERN, PATTERNS, ROLES, HeadIndex, kind_name
from mini_tf.nn.model_stack import UNITS, SequenceKind

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
    return f"{head.index}: {summarize(head, unit)}"


def summarize(head: Head, unit: str) -> str:
    """The role of a head with its score, and what the head does on this text; `unit` is "token" or "word"."""
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
    on_text = "on this text " if parts else ""
    means = f"mean normalized entropy {m['entropy']:.2f}, mean largest weight {m['max']:.2f}{mean_distance}"
    return "; ".join([*parts, f"{on_text}{means}"])


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
    roles = Counter(head.role for head in heads)
    parts = [f"{roles[role]} {role}" for role in ROLES if roles[role]]
    parts += [f"{roles[None]} without a role"] * bool(roles[None])
    return f"{len(heads)} head{'s' if len(heads) > 1 else ''}, roles on repeated random tokens: {', '.join(parts)}"


MAX_MAPS = 4
"""Maximum number of maps of selected heads in a terminal."""
NO_HEAD = "-"
MEANINGS = {
    "P": "previous token",
    "N": "next token",
    "S": "current token",
    "F": "first token (attention sink)",
    "I": "induction",
    "D": "duplicate token",
    "B": "broad attention",
    NO_ROLE: "no role",
    NO_HEAD: "no such head",
}
"""Legend of the letters in the grid."""


def pictures(sample: Sample, titled: bool, described: bool, selected: bool) -> Iterator[Picture]:
    """Sentences if `described`, else the query's weights, else maps of heads, with the grid if none are `selected`."""
    if sample.step is not None:
        yield partial(terminal.line, f"step {sample.step}")
    if titled:
        yield partial(terminal.line, sample.text)
    if described:
        yield from (partial(terminal.line, sentence, whole=True) for sentence in describe(sample))
    elif sample.query is not None:
        yield partial(terminal.query_weights, query_weights(sample))
    else:
        if not selected:
            yield partial(terminal.head_grid, grid(sample))
            yield from best_scores(sample.heads)
        shown = (sample.heads if selected else most_structured(sample.heads))[:MAX_MAPS]
        for head in shown:
            yield partial(terminal.line, "")
            yield partial(terminal.heat_map, head_map(head, sample), Scale())
        if len(shown) < len(sample.heads):
            rest = f"{len(shown)} of {len(sample.heads)} heads shown; --layer/--head for others"
            yield partial(terminal.sentence, rest)


def pictures_of_steps(samples: Sequence[Sample], texts: Sequence[str]) -> Iterator[Picture]:
    """A table of heads and steps for each text; the samples of the texts alternate."""
    for number, text in enumerate(texts):
        if len(texts) > 1:
            yield partial(terminal.line, text)
        yield partial(terminal.table, *table_of_steps(samples[number :: len(texts)]))
    yield partial(terminal.line, legend(samples), whole=True)


def grid(sample: Sample) -> HeadGrid:
    """A cell per head: its entropy on this text as color, its role as letter."""
    heads = {head.index: head for head in sample.heads}
    layers = list(dict.fromkeys(index[:2] for index in heads))
    numbers = sorted({index.head for index in heads})
    rows = [[heads.get(HeadIndex(*layer, number)) for number in numbers] for layer in layers]
    letters = [[NO_HEAD if head is None else letter(head) for head in row] for row in rows]
    values = np.array([[_entropy(head) for head in row] for row in rows])
    used = set[str]().union(*letters)
    return HeadGrid(
        "Roles of all heads on repeated random tokens, by layer (rows) and head",
        [f"L{layer} {kind}" for kind, layer in layers],
        [f"H{number}" for number in numbers],
        values,
        letters,
        {sign: meaning for sign, meaning in MEANINGS.items() if sign in used},
        Scale(label="normalized entropy on this text"),
    )


def best_scores(heads: Sequence[Head]) -> Iterator[Picture]:
    """A table of the head with the largest score for each pattern, also if it is no role; nothing without scores."""
    rows = []
    for name in PATTERNS:
        if scored := [head for head in heads if name in head.scores]:
            best = max(scored, key=partial(_score, name))
            rows.append([MEANINGS[ROLES[name]], str(best.scores[name]), str(best.index)])
    if rows:
        yield partial(terminal.line, "")
        yield partial(terminal.table, ["largest weight on random tokens", "± standard error", "head"], rows)


def letter(head: Head) -> str:
    return NO_ROLE if head.role is None else ROLES[head.role]


def head_map(head: Head, sample: Sample) -> Panel:
    role = f", {MEANINGS[letter(head)]} on random tokens {head.scores[head.role]}" if head.role else ""
    title = f"{head.index}{role}"
    return Panel(title, sample.rows(head), sample.columns(head), masked_weights(head), head_legend(head, sample))


def masked_weights(head: Head) -> np.ndarray:
    """The head's weights; NaN where a query may not attend."""
    return np.where(head.visible, head.weights, np.nan)


def head_legend(head: Head, sample: Sample) -> str:
    summary = summarize(head, sample.unit)
    return f"{summary[0].upper()}{summary[1:]}. {axes_legend(sample, [head])}"


def axes_legend(sample: Sample, heads: Sequence[Head] | None = None) -> str:
    """Legend of rows and columns of these heads, by default of all."""
    shown = sample.heads if heads is None else heads
    between = " Cross-attention: target rows, source columns." if any(head.is_cross for head in sample.heads) else ""
    rows, columns = (_units([getattr(head, side) for head in shown], sample.unit) for side in ("queries", "keys"))
    keys = "keys" if columns == sample.unit else f"keys, one per {columns}"
    return f"Rows: queries, one per {rows}. Columns: {keys}.{between}"


def _units(sequences: Sequence[SequenceKind], unit: str) -> str:
    return " or ".join(dict.fromkeys(UNITS.get(sequence, unit) for sequence in sequences)) or unit


def most_structured(heads: Sequence[Head], most: int = 3) -> list[Head]:
    """The strongest head of each role but `first` and `broad`, then the others by entropy on this text, `first` last.

    Heads that are almost even over the text come only if there are no others. Cross-attention is preferred.
    """
    heads = [head for head in heads if head.is_cross] or heads
    strongest: dict[str, Head] = {}
    for head in sorted((head for head in heads if head.role), key=lambda head: -_score(str(head.role), head)):
        if head.role in PATTERNS and head.role != "first":
            strongest.setdefault(str(head.role), head)
    by_entropy = sorted((head for head in heads if head.measures["entropy"] is not None), key=_entropy)
    uneven = [head for head in by_entropy if head.role in (None, "first") and _entropy(head) <= BROAD]
    others = sorted(uneven, key=lambda head: (head.measures.get("first") or 0.0) > PATTERN)  # sinks last
    return [*strongest.values(), *others][:most] or by_entropy[:1]


def query_weights(sample: Sample) -> QueryWeights:
    assert sample.query is not None
    index = sample.query.index
    kinds = {head.index.kind for head in sample.heads}
    is_self = all(head.queries == head.keys for head in sample.heads)
    # Keys after the last visible one are left out: in a decoder, all tokens after the query.
    end = 1 + max(index * is_self, *(int(np.flatnonzero(head.visible[index]).max(initial=0)) for head in sample.heads))
    weights = np.stack([head.weights[index, :end] for head in sample.heads])
    names = [(f"L{head.index.layer}", f"H{head.index.head}") for head in sample.heads]
    title = f"{', '.join(map(kind_name, sorted(kinds)))} of one {sample.unit}"
    tokens = sample.columns(sample.heads[0])[:end]
    return QueryWeights(title, sample.query.text, index if is_self else None, tokens, weights, names)


def table_of_steps(samples: Sequence[Sample]) -> tuple[list[str], list[list[str]]]:
    """Headers and rows: a row per head, a column per step, with entropy and letter of the role."""
    headers = ["head", *(f"step {sample.step}" for sample in samples)]
    of_heads = zip(*(sample.heads for sample in samples), strict=True)
    return headers, [[str(heads[0].index), *map(_cell, heads)] for heads in of_heads]


def legend(samples: Sequence[Sample]) -> str:
    used = {letter(head) for sample in samples for head in sample.heads}
    meanings = [f"{sign} {meaning}" for sign, meaning in MEANINGS.items() if sign in used]
    return "  ".join(["entropy on the text, role on repeated random tokens:", *meanings])


def _cell(head: Head) -> str:
    entropy = head.measures["entropy"]
    return f"{'' if entropy is None else format(entropy, '.2f')} {letter(head)}"


def _score(name: str, head: Head) -> float:
    return head.scores[name].mean


def _entropy(head: Head | None) -> float:
    entropy = None if head is None else head.measures["entropy"]
    return float("nan") if entropy is None else entropy


ENDS = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Possible upper ends of the color scale."""
SHARE = 0.99
"""Quantile of the weights that the color scale must cover."""


def plot(sample: Sample, run_and_step: str) -> PanelGrid | QueryWeights:
    """One map per head, with the pattern of its role, one row of maps per layer; `run_and_step` is for the title."""
    text = " → ".join(text.input.text for text in sample.texts.all)
    if sample.query is not None:
        of_query = query_weights(sample)
        title = f"{run_and_step}: {of_query.title}"
        return replace(of_query, title=title, text=text, notes=sample.notes, scale=scale_of([of_query.weights]))
    maps = [masked_weights(head) for head in sample.heads]
    is_masked = any(np.isnan(values).any() for values in maps)
    notes = [*sample.notes, *(["Grey: keys that a query may not attend to."] if is_masked else [])]
    if len(maps) == 1:
        [head] = sample.heads
        panel = Panel("", sample.rows(head), sample.columns(head), maps[0], sides=_sides(head))
        notes = [head_legend(head, sample), *notes]
        return PanelGrid([panel], scale_of(maps), f"{head.index}, {run_and_step}", text, notes)
    panels = [_head_panel(head, sample, values) for head, values in zip(sample.heads, maps, strict=True)]
    kinds = list(dict.fromkeys(panel.group for panel in panels))
    roles = ", roles on repeated random tokens" if any(head.role in PATTERNS for head in sample.heads) else ""
    return PanelGrid(panels, scale_of(maps), f"{', '.join(kinds)}, {run_and_step}{roles}", text, notes)


def _head_panel(head: Head, sample: Sample, values: np.ndarray) -> Panel:
    """The map of one of many heads. Broad attention is no pattern: its map shows it."""
    title = f"L{head.index.layer} H{head.index.head}" + (f" {head.role}" if head.role in PATTERNS else "")
    names = sample.rows(head), sample.columns(head)
    return Panel(title, *names, values, sides=_sides(head), group=kind_name(head.index.kind), line=head.index.layer)


def _sides(head: Head) -> tuple[str, str]:
    """Titles of the axes: query and key, and of what, where they are different sequences."""
    if head.queries == head.keys:
        return "query", "key"
    of = {"input": "target" if head.is_cross else "token", "source": "source", **UNITS}
    return f"query ({of[head.queries]})", f"key ({of[head.keys]})"


def scale_of(maps: Sequence[np.ndarray], label: str = "attention weight") -> Scale:
    """One color scale for all maps; in long texts weights are small, and maps on a scale of 0 to 1 would be blank."""
    weights = np.concatenate([values[~np.isnan(values)] for values in maps])
    most = float(np.quantile(weights, SHARE))
    high = next((end for end in ENDS if most <= end), ENDS[-1])
    return Scale(high=high, label=label, open_end=bool(weights.max() > 1.001 * high))
