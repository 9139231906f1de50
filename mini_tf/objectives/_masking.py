"""Masking, shared by objectives that replace some input tokens: the choice of positions, and what is shown there.

Masking is dynamic in training (new at every epoch) and fixed per example in evaluation. Source: Devlin et al. 2018,
arXiv:1810.04805, section 3.1; whole-word masking: the authors' release of 2019; spans: Joshi et al. 2019,
arXiv:1907.10529, section 3.1.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from mini_tf.data.batch import Rows
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.objectives import ObjectiveSettings
from mini_tf.recipe.kind_settings import ModelSettings
from mini_tf.recipe.kinds import Rule, Rules
from mini_tf.recipe.sections import Train
from mini_tf.system.errors import DataFault

MAX_SPAN = 10
SPAN_P = 0.2  # p of the geometric distribution of span lengths; the mean is 3.8 tokens among lengths up to 10


class MaskingSettings(ObjectiveSettings):
    """Settings of every objective with masking."""

    TOKENS: ClassVar[tuple[str, ...]] = ("mask",)

    scheme: Literal["token", "whole_word", "span"] = "token"
    """Unit of masking: single tokens, whole words or spans of tokens."""
    mask_rate: float = Field(0.15, gt=0, lt=1)
    """Share of a row's tokens that are selected as targets; at least one per row."""
    final_mask_rate: float | None = Field(None, gt=0, lt=1)
    """mask_rate changes linearly to this share at the end of training, which evaluation uses, too; null: constant."""
    replace: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """Shares of the selected tokens that become [MASK], become a random token, stay unchanged."""
    min_distance: int = Field(1, ge=1, le=2**20)
    """Smallest distance in tokens between two targets of a row; fewer tokens are selected if there is no room."""

    def rules(self) -> Rules:
        yield from super().rules()
        if self.min_distance > 1 and self.scheme != "token":
            message = f"targets of the scheme {self.scheme} are neighbors; use 1, or scheme: token"
            yield Rule("min_distance", message, ("scheme",))

    def rules_with(self, model: ModelSettings, train: Train) -> Rules:
        if self.final_mask_rate is not None and train.time is not None:
            message = "needs the number of steps, which train.time does not say; use train.steps, tokens or epochs"
            yield Rule("objective.final_mask_rate", message, ("train.time",))

    @field_validator("replace")
    @classmethod
    def _shares(cls, shares: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise ValueError("the three shares must be 0 or more and sum to 1")
        return shares


class Masking:
    """The masking of rows. special, plain: ids of the vocabulary that are special tokens and that are not.

    task: the objective in words, for the DataFault if the vocabulary has no [MASK].
    """

    def __init__(self, settings: MaskingSettings, vocabulary: Vocabulary, task: str) -> None:
        if vocabulary.mask is None:
            raise DataFault(f"the tokenizer has no [MASK] token, which {task} needs")
        self.scheme, self.replace, self.mask = settings.scheme, settings.replace, vocabulary.mask
        self.mask_rate, self.min_distance = settings.mask_rate, settings.min_distance
        self.final_mask_rate = settings.mask_rate if settings.final_mask_rate is None else settings.final_mask_rate
        self.special = np.array(sorted(vocabulary.special_ids))
        self.plain = np.setdiff1d(np.arange(vocabulary.size), self.special)

    @property
    def needs_word_starts(self) -> bool:
        return self.scheme == "whole_word"

    def rows(self, rows: Rows) -> Iterator[tuple[np.ndarray, np.ndarray, np.random.Generator]]:
        """For each row: the selected positions, the ids shown there, and its generator for further draws."""
        for i, key in enumerate(rows.keys):
            rng = np.random.Generator(np.random.Philox(key=int(key)))
            selected = self._select(rows, i, rng)
            yield selected, self._replaced(rows.ids[i, selected], rng), rng

    def _select(self, rows: Rows, i: int, rng: np.random.Generator) -> np.ndarray:
        """The selected positions of row i; never padding nor special tokens."""
        candidates = ~np.isin(rows.ids[i], self.special)
        if rows.segments is not None:
            candidates &= rows.segments[i] != 0
        positions = np.flatnonzero(candidates)
        progress = 1.0 if rows.progress is None else float(rows.progress[i])
        mask_rate = self.mask_rate + progress * (self.final_mask_rate - self.mask_rate)
        n = min(len(positions), max(1, round(mask_rate * len(positions))))
        if self.scheme == "token":
            order = rng.permutation(positions)
            return np.sort(order[:n] if self.min_distance == 1 else _apart(order, self.min_distance)[:n])
        if self.scheme == "whole_word":
            assert rows.word_starts is not None
            words = np.split(positions, np.flatnonzero(_borders(positions, rows.word_starts[i])))
            return _fill(n, [words[j] for j in rng.permutation(len(words))])
        return self._spans(positions, n, rng)

    def _spans(self, positions: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        """Exactly `n` positions, in spans from random starts; the last span is cut."""
        selected: set[int] = set()
        for start in rng.permutation(len(positions)):
            # Modulo, as in the authors' code: lengths up to 10 keep their ratios.
            length = (rng.geometric(SPAN_P) - 1) % MAX_SPAN + 1
            span = positions[start : start + length]
            span = span[span - span[0] == np.arange(len(span))]  # a span does not cross a separator
            new = [position for position in span.tolist() if position not in selected]
            selected.update(new[: n - len(selected)])
            if len(selected) >= n:
                break
        return np.array(sorted(selected), dtype=np.int64)

    def _replaced(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        mask_below, random_below, _ = np.cumsum(self.replace)
        uniform, random_ids = rng.random(len(ids)), rng.choice(self.plain, len(ids))
        return np.where(uniform < mask_below, self.mask, np.where(uniform < random_below, random_ids, ids))


def _apart(order: np.ndarray, distance: int) -> np.ndarray:
    """The positions of `order`, without those closer than `distance` to one that comes earlier in it."""
    free, selected = np.ones(order.max(initial=0) + 1, dtype=bool), []
    for position in order.tolist():
        if free[position]:
            selected.append(position)
            free[max(0, position - distance + 1) : position + distance] = False
    return np.array(selected, dtype=np.int64)


def _borders(positions: np.ndarray, word_starts: np.ndarray) -> np.ndarray:
    """True where a word begins among `positions`: a word start, or a gap before the position."""
    borders: np.ndarray = word_starts[positions].copy()
    borders[1:] |= np.diff(positions) > 1
    borders[:1] = False  # np.split cuts before each border; the first position needs no cut
    return borders


def _fill(n: int, words: list[np.ndarray]) -> np.ndarray:
    """Positions of the words that fit into `n` positions, taken in order; the shortest word if none fits."""
    selected: list[np.ndarray] = []
    left = n
    for word in words:
        if len(word) <= left:
            selected.append(word)
            left -= len(word)
    if not selected and words:
        selected = [min(words, key=len)]
    return np.sort(np.concatenate(selected)) if selected else np.empty(0, np.int64)
