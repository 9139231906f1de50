"""Masked language modeling: some tokens are masked, and the model predicts them from both sides.

Of the chosen positions 80 % become [MASK], 10 % a random token, 10 % stay; only chosen positions are targets. Masks are
drawn anew whenever a row is trained on, and are fixed per example in evaluation. Source: Devlin et al. 2018,
arXiv:1810.04805, section 3.1; whole words: the authors' release of 2019; spans: Joshi et al. 2019, arXiv:1907.10529,
section 3.1.
"""

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.labels import Labels
from mini_tf.data.tokenization.tokenizer import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.objectives import Objective, ObjectiveSettings
from mini_tf.objectives._prediction import Prediction, ask
from mini_tf.system.errors import DataFault

PART = "masked"
LONGEST_SPAN = 10
SPAN_STOPS = 0.2  # a span ends after each token with this probability: mean length 3.8, maximum 10


class Settings(ObjectiveSettings):
    DIRECTIONS = frozenset({"bidirectional"})
    PIPELINE = "fill_mask"
    TOKENS: ClassVar[tuple[str, ...]] = ("mask",)
    PREDICTS_TOKENS, TOKEN_LOSS, METRICS = True, PART, ("accuracy",)

    scheme: Literal["token", "whole_word", "span"] = "token"
    """What is masked together: single tokens, all tokens of a word, or spans of tokens."""
    mask_rate: float = Field(0.15, gt=0, lt=1)
    """Share of a row's tokens that are targets; at least one per row."""
    replace: tuple[float, float, float] = (0.8, 0.1, 0.1)
    """Shares of the targets that become [MASK], become a random token, stay unchanged."""

    @field_validator("replace")
    @classmethod
    def _shares(cls, shares: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise ValueError("the three shares must be 0 or more and sum to 1")
        return shares

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Masked":
        if vocabulary.mask is None:
            raise DataFault("the tokenizer has no [MASK] token, which the objective masked needs")
        return Masked(self, vocabulary, vocabulary.mask)


class Masked(Objective):
    def __init__(self, settings: Settings, vocabulary: Vocabulary, mask: int) -> None:
        super().__init__(settings)
        self.scheme, self.mask_rate, self.replace, self.mask = settings.scheme, settings.mask_rate, settings.replace, mask
        self.whole_words = settings.scheme == "whole_word"
        self.special = np.array(sorted(vocabulary.special_ids))
        self.plain = np.setdiff1d(np.arange(vocabulary.size), self.special)

    def prepare(self, rows: Rows) -> Batch:
        ids, asked = rows.ids.copy(), np.zeros(rows.ids.shape, dtype=bool)
        for i, key in enumerate(rows.keys):
            draw = np.random.Generator(np.random.Philox(key=int(key)))
            chosen = self._choose(rows, i, draw)
            asked[i, chosen] = True
            ids[i, chosen] = self._replaced(rows.ids[i, chosen], draw)
        return ask(rows, torch.from_numpy(ids).long(), torch.from_numpy(rows.ids).long(), torch.from_numpy(asked), PART)

    def task(self, model: Model) -> nn.Module:
        return Prediction(model, PART)

    def _choose(self, rows: Rows, i: int, draw: np.random.Generator) -> np.ndarray:
        """Target positions of row i; never padding or special tokens."""
        free = ~np.isin(rows.ids[i], self.special)
        if rows.segments is not None:
            free &= rows.segments[i] != 0
        positions = np.flatnonzero(free)
        wanted = min(len(positions), max(1, round(self.mask_rate * len(positions))))
        if self.scheme == "token":
            return np.sort(draw.permutation(positions)[:wanted])
        if self.scheme == "whole_word":
            assert rows.word_starts is not None
            units = np.split(positions, np.flatnonzero(_borders(positions, rows.word_starts[i])))
            return _until(wanted, [units[j] for j in draw.permutation(len(units))])
        return self._spans(positions, wanted, draw)

    def _spans(self, positions: np.ndarray, wanted: int, draw: np.random.Generator) -> np.ndarray:
        """Spans from random positions on, until exactly `wanted` tokens are covered; the last span is cut."""
        chosen: set[int] = set()
        for start in draw.permutation(len(positions)):
            # Longer lengths are drawn again, so that lengths up to 10 keep their ratios, as in the authors' code.
            length = (draw.geometric(SPAN_STOPS) - 1) % LONGEST_SPAN + 1
            run = positions[start : start + length]
            run = run[run - run[0] == np.arange(len(run))]  # a span does not cross a separator
            fresh = [place for place in run.tolist() if place not in chosen]
            chosen.update(fresh[: wanted - len(chosen)])
            if len(chosen) >= wanted:
                break
        return np.array(sorted(chosen), dtype=np.int64)

    def _replaced(self, ids: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        masked, random, _ = np.cumsum(self.replace)
        fate, other = draw.random(len(ids)), draw.choice(self.plain, len(ids))
        return np.where(fate < masked, self.mask, np.where(fate < random, other, ids))


def _borders(positions: np.ndarray, word_starts: np.ndarray) -> np.ndarray:
    """True where a word begins among `positions`: by `word_starts`, or because the position before is not free."""
    borders: np.ndarray = word_starts[positions].copy()
    borders[1:] |= np.diff(positions) > 1
    borders[:1] = False  # np.split cuts before each border; the first position needs no cut
    return borders


def _until(wanted: int, words: list[np.ndarray]) -> np.ndarray:
    """Words in order, each that still fits, until `wanted` tokens are covered; if none fits, the shortest."""
    taken: list[np.ndarray] = []
    left = wanted
    for word in words:
        if len(word) <= left:
            taken.append(word)
            left -= len(word)
    if not taken and words:
        taken = [min(words, key=len)]
    return np.sort(np.concatenate(taken)) if taken else np.empty(0, np.int64)
