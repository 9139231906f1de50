"""Attention weights of every layer and head on a text, with measures on this text, and roles.

Texts are processed one at a time, so there is no padding. A text starts with a separator if training documents do. For
an encoder-decoder the text is the source, and the target is the decoder's input, as in training.
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mini_tf.inspection._capture import INPUT_TO_SOURCE, CapturedAttention, SequencePair, attention_kinds
from mini_tf.inspection._heads import HeadIndex, HeadSelection, Measures, Scores, measure, role_of, role_scores
from mini_tf.inspection._subjects import kept_steps
from mini_tf.inspection._texts import TokenizedText, TokenizedTexts, aggregate_by_words, capture_heads, tokenize_texts
from mini_tf.nn.model_stack import UNITS, SequenceKind
from mini_tf.system.errors import RunFault, UsageFault
from mini_tf.trained.opening import Trained, open_trained

MAX_LISTED = 40
"""Maximum number of words that a message lists."""


@dataclass(frozen=True, eq=False)
class Head:
    """Attention weights (queries, keys) of one head on one text, in float32, without columns that belong to no token.

    visible (queries, keys): True where a query may attend. measures: on this text; scores: on repeated random tokens,
    empty if not measured. queries, keys: their sequences.
    """

    index: HeadIndex
    weights: np.ndarray
    visible: np.ndarray
    measures: Measures
    scores: Scores = field(default_factory=dict)
    queries: SequenceKind = "input"
    keys: SequenceKind = "input"

    @property
    def role(self) -> str | None:
        """One of ROLES, by the scores."""
        return role_of(self.scores)

    @property
    def is_cross(self) -> bool:
        return (self.queries, self.keys) == INPUT_TO_SOURCE


@dataclass(frozen=True)
class Query:
    """The token or word of --query: its row in the maps, and its text."""

    index: int
    text: str


@dataclass(frozen=True, eq=False)
class Sample:
    """The heads on a text, or on a source and target. step: the checkpoint, None if there is only one."""

    texts: TokenizedTexts
    heads: list[Head]
    query: Query | None
    difference: float
    notes: list[str]
    step: int | None = None

    @property
    def unit(self) -> str:
        """The unit of rows and columns: "word" or "token"."""
        return "word" if self.texts.inputs.by_words else "token"

    @property
    def text(self) -> str:
        """The text, or the source."""
        return (self.texts.source or self.texts.inputs).input.text

    def rows(self, head: Head) -> list[str]:
        return self.texts.units(head.queries, head.weights.shape[0])

    def columns(self, head: Head) -> list[str]:
        return self.texts.units(head.keys, head.weights.shape[1])

    def without_weights(self) -> "Sample":
        heads = [replace(head, weights=head.weights[:0], visible=head.visible[:0]) for head in self.heads]
        return replace(self, heads=heads)


def notes_of(samples: Sequence[Sample], n_texts: int) -> list[str]:
    """Notes on the texts, each once; the samples of the texts alternate."""
    names = [f"text {number}: " if n_texts > 1 else "" for number in range(1, 1 + n_texts)]
    notes = (f"{names[n % n_texts]}{note}" for n, sample in enumerate(samples) for note in sample.notes)
    return list(dict.fromkeys(notes))


@dataclass(frozen=True)
class AttentionRequest:
    """Selection: the heads, tokens or words, and optionally a single query (a word or a token index)."""

    heads: HeadSelection = field(default_factory=HeadSelection)
    words: bool = False
    query: str | None = None


def analyze_texts(
    trained: Trained, texts: Sequence[tuple[str, str | None]], request: AttentionRequest
) -> Iterator[Sample]:
    """Every text and target; roles are measured once."""
    scores = role_scores(trained)
    for text, target in texts:
        yield analyze_attention(trained, text, request, target, scores)


def analyze_attention(
    trained: Trained,
    text: str,
    request: AttentionRequest = AttentionRequest(),
    target: str | None = None,
    scores: Mapping[HeadIndex, Scores] | None = None,
) -> Sample:
    """The heads on the first `context` tokens of a text, or of a source and its `target`. scores: of their roles.

    With a source, a query is a unit of the target and selects cross-attention, or with kind `encoder.self` a unit of
    the source. Raises UsageFault if the heads or the query do not exist.
    """
    texts = tokenize_texts(trained, text, target)
    selection, query, pair, notes = request.heads, None, None, list(texts.notes)
    by_words = request.words
    if request.query is not None:
        kinds = attention_kinds(trained.model)
        if texts.source is not None and selection.kind is None:
            cross = next((kind for kind, pair in kinds.items() if pair == INPUT_TO_SOURCE), None)
            selection = replace(selection, kind=cross)
        pair = _sequences_of_query(request.query, selection, kinds)
        query, by_words, ambiguous = _find_query(request.query, texts.of(pair[0]), request.words)
        notes += ambiguous
    texts = texts.by_words() if by_words else texts
    captured = capture_heads(trained, texts)
    # With a query, only attention between the same two sequences can be compared.
    is_any = pair is None or selection.kind is not None
    compared = [attention for attention in captured.attention if is_any or (attention.queries, attention.keys) == pair]
    indices = [
        HeadIndex(attention.kind, attention.layer, head)
        for attention in compared
        for head in range(attention.weights.shape[1])
    ]
    selected = selection.select(indices)
    heads = [head for attention in compared for head in _heads_on(attention, texts) if head.index in selected]
    heads = [replace(head, scores=(scores or {}).get(head.index, {})) for head in heads]
    order = list(dict.fromkeys(head.index.kind for head in heads))
    return Sample(
        texts, sorted(heads, key=lambda head: order.index(head.index.kind)), query, captured.difference, notes
    )


def analyze_checkpoints(
    trained: Trained, texts: Sequence[tuple[str, str | None]], request: AttentionRequest
) -> Iterator[Sample]:
    """Every text and target at every kept checkpoint, the earliest first; the model keeps the weights of the last.

    Raises RunFault if there are no checkpoints.
    """
    folder, model = trained.folder, trained.model
    steps = kept_steps(folder)
    if not steps:
        raise RunFault(f"{folder} has no checkpoint", where=[str(folder)])
    for step in reversed(steps):
        opened = open_trained(folder, step, str(trained.setup.device))
        model.load_weights(opened.model.weights())  # with a merged adapter
        yield from (replace(sample, step=step) for sample in analyze_texts(trained, texts, request))


def heads_of(
    attention: CapturedAttention, units: Sequence[Hashable] | None, of_tokens: tuple[list[int], list[int]] | None = None
) -> list[Head]:
    """The heads of one mixer on the first row of a batch.

    units: names of queries and keys, None if they are different sequences; of_tokens: for maps of words, the word index
    of each query and key token.
    """
    weights, visible = attention.weights[0, :, :, attention.lead :].float().cpu(), attention.mask[0].cpu()
    if of_tokens is not None:
        weights, visible = aggregate_by_words(weights, visible, *of_tokens)
    measures = measure(weights, visible, units)
    indices = [HeadIndex(attention.kind, attention.layer, head) for head in range(len(weights))]
    return [
        Head(index, w.numpy(), visible.numpy(), m, queries=attention.queries, keys=attention.keys)
        for index, w, m in zip(indices, weights, measures, strict=True)
    ]


def _heads_on(attention: CapturedAttention, texts: TokenizedTexts) -> list[Head]:
    pair, sizes = (attention.queries, attention.keys), attention.mask.shape[-2:]
    of_tokens = None
    if texts.inputs.by_words:  # what is no token counts as a word
        row, column = (
            list(range(n)) if sequence in UNITS else texts.of(sequence).words.of_token
            for sequence, n in zip(pair, sizes, strict=True)
        )
        of_tokens = row, column
    if pair[0] != pair[1] or pair[0] in UNITS:  # latent vectors have no order, and so no distance
        return heads_of(attention, None, of_tokens)
    text = texts.of(pair[0])
    return heads_of(attention, text.units if text.by_words else text.input.ids, of_tokens)


def _sequences_of_query(query: str, selection: HeadSelection, kinds: Mapping[str, SequencePair]) -> SequencePair:
    """Sequences of queries and keys for --query: of the selected kind, else of the first with queries of input tokens.

    Raises UsageFault if the queries are not tokens of a text.
    """
    if not kinds:
        return "input", "input"  # a model without heads, which is refused later
    sequences = kinds.get(selection.kind or "") or next((pair for pair in kinds.values() if pair[0] == "input"), None)
    if sequences is None or sequences[0] in UNITS:
        fitting = [kind for kind, (rows, _) in kinds.items() if rows not in UNITS]
        hint = f"use --kind {' or '.join(fitting)}" if fitting else None
        units = " or ".join(dict.fromkeys(UNITS[rows] for rows, _ in ([sequences] if sequences else kinds.values())))
        raise UsageFault(f"--query {query}: these heads have one query per {units}, not per token", hint=hint)
    return sequences


def _find_query(query: str, text: TokenizedText, by_words: bool) -> tuple[Query, bool, list[str]]:
    """The query's row, whether it is a word, and a note if the word is ambiguous.

    A query is a word of the text, a part of one bounded by non-letters ("self" of "self.path"), or an index. Of several
    matches the last is used, which in a decoder attends to the most tokens.
    """
    words, name = text.words, text.input.name
    whole = re.compile(rf"(?<!\w){re.escape(query)}(?!\w)")
    if matches := [index for index, word in enumerate(words.texts) if query and whole.search(word)]:
        listed = ", ".join(f"{words.texts[index]!r} ({index})" for index in matches[-MAX_LISTED:])
        more = "... " * (len(matches) > MAX_LISTED)
        note = f"{query!r} matches {len(matches)} words: {more}{listed}; the last is shown"
        return Query(matches[-1], words.texts[matches[-1]]), True, [note] if len(matches) > 1 else []
    units = words.texts if by_words else text.tokens
    if re.fullmatch(r"-?[0-9]{1,9}", query) and -len(units) <= (index := int(query)) < len(units):
        return Query(index % len(units), units[index]), by_words, []
    distinct = list(dict.fromkeys(words.texts))
    more = f" and {len(distinct) - MAX_LISTED} more" if len(distinct) > MAX_LISTED else ""
    message = f"--query {query}: no such word in the {name}; it has {', '.join(distinct[:MAX_LISTED])}{more}"
    raise UsageFault(message, hint=f"or give an index, 0 to {len(units) - 1}")
