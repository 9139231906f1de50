"""Roles of self-attention heads, measured on rows of random tokens that repeat.

In a text, a head may attend to earlier occurrences of a token by chance. Each row here repeats a block of different
random tokens, so what a head finds there it finds by the token alone; the blocks have different lengths, so a fixed
distance is no induction. The rows have the separators of a text. Sources: induction heads on repeated random tokens,
Olsson et al. 2022, arXiv:2209.11895; roles by attention weights above one half, Clark et al. 2019, arXiv:1906.04341,
section 3.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

import torch
from torch import Tensor

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.inspection._capture import capture
from mini_tf.inspection._heads import ROLES, HeadIndex, measure
from mini_tf.inspection._texts import target_input, untruncated_input
from mini_tf.nn.model import Model
from mini_tf.nn.model_stack import UNITS
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.system.seeds import seed_of
from mini_tf.trained.opening import Trained

N_ROWS = 16
MAX_LENGTH = 64
"""Tokens of a row, unless the context is shorter."""
MIN_BLOCK = 5
"""Tokens of the longest block; with fewer, blocks of different lengths are too much alike."""
PATTERN, BROAD = 0.5, 0.9
"""What a score must exceed: the attention weight of a pattern, and the normalized entropy of `broad`."""
PATTERNS = tuple(name for name in ROLES if name != "broad")
"""Roles whose score is an attention weight."""


class Score(NamedTuple):
    """Mean over the rows, and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Score":
        """Of two rows or more."""
        return cls(fmean(values), stdev(values) / math.sqrt(len(values)))

    def exceeds(self, bound: float) -> bool:
        """Whether the mean is above a bound by more than two standard errors."""
        return self.mean - 2 * self.error > bound

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.error:.2f}"


Scores = Mapping[str, Score]
"""By role, without those that no row can show: a mask may hide their keys."""


def role_of(scores: Scores) -> str | None:
    """The pattern with the largest attention weight, if above its bound; else `broad`, if above its bound."""
    pattern = max((name for name in PATTERNS if name in scores), key=lambda name: scores[name].mean, default=None)
    if pattern is not None and scores[pattern].exceeds(PATTERN):
        return pattern
    return "broad" if "broad" in scores and scores["broad"].exceeds(BROAD) else None


def role_scores(trained: Trained) -> dict[HeadIndex, Scores]:
    """Scores of every self-attention head between tokens; none if the context or a vocabulary is too small."""
    model, sides = trained.model, [trained.tokenizer, trained.source_tokenizer][: 1 + trained.model.needs_source]
    rows = [
        _rows(tokenizer, _frame(trained, tokenizer, source=n == 1), model.context) for n, tokenizer in enumerate(sides)
    ]
    if any(ids is None for ids in rows):
        return {}
    repeated, *source = (Tokens(ids.to(trained.setup.device)) for ids in rows if ids is not None)
    if trained.recipe.objective.prompt_is_prefix(trained.recipe.model):
        length = repeated.ids.shape[1]
        repeated = Tokens(repeated.ids, TokenPositions(length).with_prefix(repeated.ids.new_full((N_ROWS,), length)))
    return scores_on(model, repeated, *source)


def scores_on(model: Model, own: Tokens, source: Tokens | None = None) -> dict[HeadIndex, Scores]:
    """Scores on rows of tokens, N_ROWS or any other number from two on."""
    scores: dict[HeadIndex, Scores] = {}
    for attention in capture(model, own, source).attention:
        if attention.queries != attention.keys or attention.queries in UNITS:
            continue
        ids = (own if source is None or attention.queries == "own" else source).ids.tolist()
        masks = attention.mask.expand(len(ids), -1, -1)
        rows = [
            measure(weights[:, :, attention.lead :].cpu(), mask.cpu(), row)
            for weights, mask, row in zip(attention.weights, masks, ids, strict=True)
        ]
        for head, measures in enumerate(zip(*rows, strict=True)):
            values = {
                name: [value for row in measures if (value := row["entropy" if name == "broad" else name]) is not None]
                for name in ROLES
            }
            index = HeadIndex(attention.kind, attention.layer, head)
            scores[index] = {name: Score.of(of_rows) for name, of_rows in values.items() if len(of_rows) > 1}
    return scores


def repeated_tokens(ids: Sequence[int], length: int) -> Tensor | None:
    """(N_ROWS, length): each row is a block of different random `ids`, repeated; None if blocks would be too short."""
    longest = min(length // 2, len(ids))
    if longest < MIN_BLOCK:
        return None
    lengths = range(longest // 2 + 1, longest + 1)
    rows = []
    for n in range(N_ROWS):
        order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed_of("roles", n))).tolist()
        block = [ids[i] for i in order[: lengths[n % len(lengths)]]]
        rows.append((block * length)[:length])
    return torch.tensor(rows)


def _rows(tokenizer: Tokenizer, frame: tuple[list[int], list[int]], context: int) -> Tensor | None:
    """Repeated tokens between the separators of a text."""
    before, behind = frame
    repeated = repeated_tokens(_ordinary(tokenizer), min(MAX_LENGTH, context) - len(before) - len(behind))
    return (
        None if repeated is None else torch.stack([torch.tensor([*before, *row, *behind]) for row in repeated.tolist()])
    )


def _frame(trained: Trained, tokenizer: Tokenizer, source: bool) -> tuple[list[int], list[int]]:
    """The separators before and behind a text."""
    text = tokenizer.decode(_ordinary(tokenizer)[:MAX_LENGTH])
    is_target = trained.model.needs_source and not source
    input = target_input(tokenizer, text, len(text.encode()) + 1) if is_target else untruncated_input(trained, text)
    inside = [place for place, span in enumerate(input.spans) if span is not None]
    return input.ids[: inside[0]], input.ids[inside[-1] + 1 :]


def _ordinary(tokenizer: Tokenizer) -> list[int]:
    """The ids that are no special tokens."""
    special = tokenizer.vocabulary.special_ids
    return [id for id in range(tokenizer.vocabulary.size) if id not in special]
