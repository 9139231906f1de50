"""Attention heads: which ones are selected, measures of each on one text, and roles.

Rows are queries. Every mean is over the rows with at least two visible keys; with one the weight is always 1.

Roles are of self-attention, measured on rows of random tokens that repeat. In a text, a head may attend to earlier
occurrences of a token by chance. Each row here repeats a block of different random tokens, so what a head finds there
it finds by the token alone; the blocks have different lengths, so a fixed distance is no induction. The rows have the
separators of a text. Sources: induction heads on repeated random tokens, Olsson et al. 2022, arXiv:2209.11895; roles by
attention weights above one half, Clark et al. 2019, arXiv:1906.04341, section 3.
"""

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.inspection._capture import capture, normalize
from mini_tf.inspection._texts import target_input, untruncated_input
from mini_tf.nn.model import Model
from mini_tf.nn.model_stack import UNITS, ModelStack
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import UsageFault
from mini_tf.system.seeds import seed_of
from mini_tf.trained.opening import Trained


class HeadIndex(NamedTuple):
    """Index of a head: layers count the mixers of a kind from 0, heads those of a layer."""

    kind: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{kind_name(self.kind)} L{self.layer} H{self.head}"


def kind_name(kind: str) -> str:
    """Printed name of a kind of attention: decoder.self is "decoder self-attention"."""
    return f"{kind.replace('.', ' ')}-attention"


@dataclass(frozen=True)
class HeadSelection:
    """The options as given; None selects all."""

    kind: str | None = None
    layer: str | None = None
    head: str | None = None

    def select(self, heads: Iterable[HeadIndex]) -> set[HeadIndex]:
        """The selected ones of the model's heads. Raises UsageFault if an option names a missing one."""
        available = list(heads)
        kinds = sorted({index.kind for index in available})
        if self.kind is not None and self.kind not in kinds:
            raise UsageFault(f"--kind {self.kind}: the model has only {', '.join(kinds)}")
        kind_heads = [index for index in available if self.kind in (None, index.kind)]
        layers = parse_indices("--layer", self.layer, 1 + max(index.layer for index in kind_heads))
        layer_heads = [index for index in kind_heads if index.layer in layers]
        numbers = parse_indices("--head", self.head, 1 + max(index.head for index in layer_heads))
        return {index for index in layer_heads if index.head in numbers}


def parse_indices(option: str, value: str | None, count: int) -> set[int]:
    """Indices below `count` in a list such as 0,2-3,-1; None selects all. Raises UsageFault for others."""
    if value is None:
        return set(range(count))
    selected: set[int] = set()
    for part in value.split(","):
        match = re.fullmatch(r"\s*(-?[0-9]{1,6})(?:-(-?[0-9]{1,6}))?\s*", part)
        if match is None:
            head = re.fullmatch(r"L(\d+)[ .]?H(\d+)", part.strip(), re.I)
            hint = f"--layer {head[1]} --head {head[2]}" if head else None
            raise UsageFault(f"{option} {value}: must be numbers and ranges, such as 0,2-3,-1", hint=hint)
        ends = [int(end) for end in match.groups() if end is not None]
        for end in ends:
            if not -count <= end < count:
                raise UsageFault(f"{option} {value}: {end} is out of range; indices are 0 to {count - 1}")
        first, last = (ends[0] % count, ends[-1] % count)
        if last < first:
            raise UsageFault(f"{option} {value}: the range {part.strip()} is empty")
        selected |= set(range(first, last + 1))
    return selected


def stack_name(stack: ModelStack) -> str:
    """The name of a stack for --stack: encoder, decoder."""
    return stack.attention.partition(".")[0]


def select_stack(stacks: Iterable[ModelStack], name: str | None, kind: str) -> ModelStack:
    """The stack called `encoder` or `decoder`; None: the first. kind: of the model, for the message of a UsageFault."""
    named: Mapping[str, ModelStack] = {stack_name(stack): stack for stack in stacks}
    if name not in (None, *named) and len(named) == 1:
        message = f"--stack {name}: a model of kind {kind} has only one stack to show, {next(iter(named))}"
        raise UsageFault(message, hint="leave it out")
    if name is not None and name not in named:
        raise UsageFault(f"--stack {name}: must be {' or '.join(sorted(named))}")
    return named[name] if name is not None else next(iter(named.values()))


ROLES = {"previous": "P", "next": "N", "self": "S", "first": "F", "induction": "I", "same": "D", "broad": "B"}
"""Roles and their letters. A head without a role has the letter `NO_ROLE`.

Previous-token, next-token, current-token, first-token (attention sink), induction and duplicate-token head; broad
attention.
"""
NO_ROLE = "·"
_PARTIAL_ROLES = ("first", "induction", "same")
"""Roles that apply to some rows only."""
ROW_SUM_TOLERANCE = 1e-4

Measures = dict[str, float | int | None]
"""By name, in the order of `measure`; None if no row counts."""


def measure(
    weights: Float[Tensor, "H L M"], visible: Bool[Tensor, "L M"], units: Sequence[Hashable] | None
) -> list[Measures]:
    """Measures of each head on one text.

    units: the tokens (or words), equal if they are the same; None if queries and keys are different sequences, for
    which only entropy, max and first are measured.

    rows       number of rows with at least two visible keys
    entropy    normalized entropy -sum p ln p / ln n of the row p, scaled to sum 1, over n visible keys: 0 to 1
    max        largest attention weight of the row
    distance   sum p |i - j|, in tokens
    previous   attention weight on the previous token; next: on the next token; self: on the token itself
    first      attention weight on the first token, for rows from the third on (before, it is `self` or `previous`)
    induction  attention weight on tokens that follow an earlier occurrence of the row's token
    same       attention weight on other occurrences of the row's token
    row_sum    mean sum of the rows, only if they do not sum to 1

    Each attention weight is a mean over the rows with such a key; first_rows, induction_rows and same_rows count them.
    Entropy and distance are None if a row has a negative weight or sums to 0.
    """
    p, rows = weights.double(), visible.sum(dim=1) >= 2
    i, j = torch.arange(p.shape[1], device=p.device)[:, None], torch.arange(p.shape[2], device=p.device)[None]
    shares = normalize(p)
    entropy = torch.special.entr(shares).sum(dim=-1) / visible.sum(dim=1).double().log()
    measures: dict[str, Sequence[float | int | None]] = {"rows": [int(rows.sum())] * len(p)}
    measures |= {"entropy": _mean(entropy, rows), "max": _mean(p.amax(dim=-1), rows)}
    if units is not None:
        measures["distance"] = _mean((shares * (i - j).abs()).sum(dim=-1), rows)
    for name, mask in ({"first": j == 0} if units is None else _role_masks(units, i, j)).items():
        cells = visible & mask
        counted = rows & cells.any(dim=1)
        measures[name] = _mean((p * cells).sum(dim=-1), counted)
        if name in _PARTIAL_ROLES:
            measures[f"{name}_rows"] = [int(counted.sum())] * len(p)
    sums = p.sum(dim=-1)[:, visible.any(dim=1)]
    if ((sums - 1).abs() > ROW_SUM_TOLERANCE).any():
        measures["row_sum"] = [float(mean) for mean in sums.mean(dim=1)]
    return [{name: values[head] for name, values in measures.items()} for head in range(len(p))]


def _role_masks(units: Sequence[Hashable], i: Tensor, j: Tensor) -> dict[str, Tensor]:
    """The keys of each role: masks (L, L)."""
    numbers = {unit: number for number, unit in enumerate(dict.fromkeys(units))}
    codes = torch.tensor([numbers[unit] for unit in units], device=i.device)
    same = codes[:, None] == codes[None]
    follows = torch.zeros_like(same)
    follows[:, 1:] = same[:, :-1]
    return {
        "previous": j == i - 1,
        "next": j == i + 1,
        "self": j == i,
        "first": (j == 0) & (i >= 2),
        "induction": follows & (j <= i),
        "same": same & (j != i),
    }


def _mean(values: Tensor, rows: Tensor) -> list[float | None]:
    """Mean of (H, L) over the selected rows, by head; None without rows or with a NaN."""
    return [None if math.isnan(mean) else mean for mean in values[:, rows].mean(dim=1).tolist()]


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


def scores_on(model: Model, inputs: Tokens, source: Tokens | None = None) -> dict[HeadIndex, Scores]:
    """Scores on rows of tokens, N_ROWS or any other number from two on."""
    scores: dict[HeadIndex, Scores] = {}
    for attention in capture(model, inputs, source).attention:
        if attention.queries != attention.keys or attention.queries in UNITS:
            continue
        ids = (inputs if source is None or attention.queries == "input" else source).ids.tolist()
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
    if repeated is None:
        return None
    return torch.tensor([[*before, *row, *behind] for row in repeated.tolist()])


def _frame(trained: Trained, tokenizer: Tokenizer, source: bool) -> tuple[list[int], list[int]]:
    """The separators before and behind a text."""
    text = tokenizer.decode(_ordinary(tokenizer)[:MAX_LENGTH])
    is_target = trained.model.needs_source and not source
    input = target_input(tokenizer, text, len(text.encode()) + 1) if is_target else untruncated_input(trained, text)
    inside = [place for place, span in enumerate(input.spans) if span is not None]
    return input.ids[: inside[0]], input.ids[inside[-1] + 1 :]


def _ordinary(tokenizer: Tokenizer) -> list[int]:
    special = tokenizer.vocabulary.special_ids
    return [id for id in range(tokenizer.vocabulary.size) if id not in special]
