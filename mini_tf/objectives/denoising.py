"""Denoising: an encoder-decoder reads a corrupted text and predicts the original, or only what was replaced.

With `target: text` it is BART's pretraining (Lewis et al. 2020, arXiv:1910.13461, section 2.2). With `target: spans`
and the noise `spans` it is T5's (Raffel et al. 2020, arXiv:1910.10683, section 3.1.4): each mark of the source is a
sentinel, and the target is each sentinel with the tokens that it replaces. Each document of a row is corrupted by
itself, and ends with the separator in source and target. Special tokens stay where they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.noises import NoiseSettings, NoisyText, corrupt
from mini_tf.objectives import NATS_PER_TOKEN, Objective, ObjectiveSettings, by_settings
from mini_tf.objectives._token_loss import TokenLoss, make_batch, tokens_of
from mini_tf.recipe.kind_settings import ModelSettings
from mini_tf.recipe.kind_settings.objectives import Prediction
from mini_tf.recipe.kinds import KindOf, OneOrMore, Rule, Rules, default_kind
from mini_tf.recipe.sections import Train
from mini_tf.system.errors import DataFault

PART = "denoising"
DEFAULT_NOISE = (default_kind("noises", "infill"), default_kind("noises", "permute_sentences"))


class Settings(ObjectiveSettings):
    ALIASES = ("bart", "t5", "span_corruption")
    SUPPORTS = frozenset({"causal", "source"})
    PIPELINE = "text_infilling"
    LOSS_UNIT, METRICS = NATS_PER_TOKEN, ("accuracy",)

    noise: Annotated[tuple[Annotated[NoiseSettings, KindOf("noises")], ...], OneOrMore()] = Field(
        default_factory=lambda: tuple(make() for make in DEFAULT_NOISE)
    )
    """One noise, or a list of noises that are applied one after the other."""
    target: Literal["text", "spans"] = "text"
    """What is predicted: the original text, or the replaced spans, each after its sentinel."""
    sentinels: int = Field(100, ge=1, le=10000)
    """Sentinel tokens for target spans; further spans of a text are not replaced."""

    def rules(self) -> Rules:
        if self.target == "spans":
            for noise in self.noise:
                if noise.DELETES:
                    why = "leaves no sentinel where it removes tokens; use target: text or another noise"
                    yield "noise", f"{noise.kind} {why}"
            if not any(noise.MARKS for noise in self.noise):
                yield "noise", "replaces no spans, which target: spans predicts; add infill, mask or spans"

    def rules_with(self, model: ModelSettings, train: Train) -> Rules:
        if train.context < 2:
            yield Rule("train.context", "1 tokens cannot hold an example; use at least 2", ("objective",))

    @by_settings
    def TOKENS(self) -> tuple[str, ...]:
        return "separator", "mask", *(["sentinel"] * self.sentinels if self.target == "spans" else ())

    @by_settings
    def PREDICTS(self) -> frozenset[Prediction]:
        return frozenset({"tokens", "every_token"} if self.target == "text" else {"tokens"})

    @by_settings
    def BASELINES(self) -> tuple[str, ...]:
        return ("ngram",) if self.target == "text" else ()  # sentinels are not in the text that is counted

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Denoising":
        if vocabulary.separator is None:
            raise DataFault("the tokenizer has no separator token, which ends a target sequence")
        if vocabulary.mask is None:
            raise DataFault("the tokenizer has no [MASK] token, which denoising needs")
        if len(vocabulary.sentinels) < (n_sentinels := self.TOKENS.count("sentinel")):
            raise DataFault(
                f"the tokenizer has {len(vocabulary.sentinels)} sentinel tokens; target: spans needs {n_sentinels}"
            )
        return Denoising(self, vocabulary, vocabulary.separator, vocabulary.mask)


class Sides(NamedTuple):
    """Source and target ids of a row, and the document of each (`Rows.segments`)."""

    source: np.ndarray
    target: np.ndarray
    source_segments: np.ndarray
    target_segments: np.ndarray


class Denoising(Objective):
    added_tokens = 1  # the separator behind the text

    def __init__(self, settings: Settings, vocabulary: Vocabulary, separator: int, mask: int) -> None:
        super().__init__(settings)
        self.noise, self.separator, self.mask = settings.noise, separator, mask
        self.begin = separator if vocabulary.begin is None else vocabulary.begin
        self.sentinels = np.array(vocabulary.sentinels[: settings.TOKENS.count("sentinel")], np.int64)
        self.visible_targets = float(settings.target == "text")  # the source has what the noise leaves of it
        self.borders = np.array(sorted(vocabulary.special_ids - {vocabulary.unk}))
        self.needs_sentence_starts = any(noise.NEEDS_SENTENCES for noise in settings.noise)

    def prepare(self, rows: Rows) -> Batch:
        sides = [self._row(rows, i) for i in range(len(rows))]
        source, source_segments = _padded([(row.source, row.source_segments) for row in sides])
        target, segments = _padded([(row.target, row.target_segments) for row in sides])
        opened = np.concatenate([np.full((len(rows), 1), -1), segments[:, :-1]], axis=1) != segments
        inputs = np.where(opened, self.begin, np.roll(target, 1, axis=1))
        input_ids, labels, is_target = (torch.from_numpy(array) for array in (inputs, target, segments != 0))
        whole, source_is_whole = (bool((array == 1).all()) for array in (segments, source_segments))
        sources, _ = tokens_of(torch.from_numpy(source), None if source_is_whole else source_segments)
        return make_batch(
            replace(rows, segments=None if whole else segments), input_ids, labels, is_target, PART, sources
        )

    def task(self, model: Model) -> nn.Module:
        return TokenLoss(model, PART)

    def _row(self, rows: Rows, i: int) -> Sides:
        rng = np.random.Generator(np.random.Philox(key=int(rows.keys[i])))
        segments = np.ones_like(rows.ids[i]) if rows.segments is None else rows.segments[i]
        starts = None if rows.sentence_starts is None else rows.sentence_starts[i]
        sources, targets, numbers = list[np.ndarray](), list[np.ndarray](), list[int]()
        for number in np.unique(segments[segments != 0]).tolist():
            index = np.flatnonzero(segments == number)
            # The end token replaces the opening separator.
            index = index[int(rows.ids[i, index[0]] == self.separator) :]
            source, target = self._document(rows.ids[i, index], None if starts is None else starts[index], rng)
            sources, targets, numbers = [*sources, source], [*targets, target], [*numbers, number]
        each = [np.repeat(numbers, [len(document) for document in documents]) for documents in (sources, targets)]
        return Sides(_joined(sources), _joined(targets), *each)

    def _document(
        self, ids: np.ndarray, sentence_starts: np.ndarray | None, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Source and target ids of one document, each with the end token."""
        text = self._corrupted(ids, sentence_starts, rng)
        if len(self.sentinels):
            text = self._limited(text, len(ids))
        offsets, is_mark = text.offsets, text.marked
        source = np.append(ids, 0)[np.append(text.tokens, len(ids))[offsets[:-1]]]
        if not len(self.sentinels):
            source[is_mark] = self.mask
            return np.append(source, self.separator), np.append(ids, self.separator)
        numbered = self.sentinels[: int(is_mark.sum())]
        source[is_mark] = numbered
        spans = [text.tokens[offsets[item] : offsets[item + 1]] for item in np.flatnonzero(is_mark)]
        pairs = [
            part for sentinel, span in zip(numbered, spans, strict=True) for part in (np.array([sentinel]), ids[span])
        ]
        return np.append(source, self.separator), np.append(_joined(pairs), self.separator)

    def _corrupted(self, ids: np.ndarray, sentence_starts: np.ndarray | None, rng: np.random.Generator) -> NoisyText:
        """The document after all noises, which change only the text between special tokens."""
        parts = list[NoisyText]()
        for first, last in _runs(np.isin(ids, self.borders)):
            text = NoisyText.of(last - first, None if sentence_starts is None else sentence_starts[first:last])
            if ids[first] not in self.borders:
                text = corrupt(self.noise, text, rng)
            parts.append(replace(text, tokens=text.tokens + first))
        columns = ([getattr(part, name) for part in parts] for name in ("tokens", "lengths", "marked"))
        tokens, lengths, marked = (_joined(column) for column in columns)
        return NoisyText(tokens, lengths, marked.astype(bool))

    def _limited(self, text: NoisyText, n_tokens: int) -> NoisyText:
        """The text without the marks for which there is no sentinel, or no room in a target of `n_tokens` tokens."""
        marks = np.flatnonzero(text.marked)
        lengths = text.lengths[marks]
        fits = (np.cumsum(lengths + 1) <= n_tokens) & (np.arange(len(marks)) < len(self.sentinels))
        if fits.all():
            return text
        # Empty marks make the source longer; there may be as many as the other marks have made it shorter.
        empty = np.flatnonzero(fits & (lengths == 0))
        fits[empty[int(np.maximum(lengths - 1, 0)[fits].sum()) :]] = False
        restored = np.zeros(len(text), bool)
        restored[marks[~fits]] = True
        repeats = np.where(restored, text.lengths, 1)
        return replace(
            text,
            lengths=np.repeat(np.where(restored, 1, text.lengths), repeats),
            marked=np.repeat(text.marked & ~restored, repeats),
        )


def _runs(borders: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges [first, last) of tokens between borders; each border is a range of its own."""
    starts = np.ones(len(borders), bool)
    starts[1:] = borders[1:] | borders[:-1]
    first = np.flatnonzero(starts)
    return zip(first.tolist(), np.append(first[1:], len(borders)).tolist(), strict=True) if len(borders) else iter(())


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _padded(rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """ids and segments (B, n) of rows of different length; both are 0 at padding."""
    width = max(len(ids) for ids, _ in rows)
    padded: list[np.ndarray] = [np.stack([np.pad(row[n], (0, width - len(row[n]))) for row in rows]) for n in (0, 1)]
    return padded[0].astype(np.int64), padded[1].astype(np.int64)
