"""Tiny mixers for contract tests: float64, eval mode, rows of 11 tokens, large weights for non-uniform attention.

Rows of 150 tokens, for what a mixer computes in chunks.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, TypeVar, get_args

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from mini_tf.nn import state as states
from mini_tf.nn.layers.kernels import Dropout
from mini_tf.nn.mixer import AttentionDims, LayerSpec, Mixer, MixerSettings
from mini_tf.nn.positional_encoding import PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.kind_settings import Direction
from mini_tf.recipe.kinds import listing, settings_of

B, L, LONG = 3, 11, 150
DIMS = AttentionDims(d_model=12, d_memory=12, n_heads=4, n_kv_heads=2, d_k=6, d_v=4)
EXACT = {"rtol": 0, "atol": 1e-10}
Layout = Literal["plain", "padded", "packed"]
PREFIX = {"plain": 4, "padded": 4, "packed": 2}
"""Length of each document's prefix in the direction `prefix`."""
_SEGMENTS = {
    "padded": [[1] * L, [0] * 4 + [1] * 7, [1] * 9 + [0] * 2],
    "packed": [[1] * L, [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2], [1, 1, 1, 2, 2, 3, 3, 3, 3, 0, 0]],
}


class TinyMixer:
    """A mixer of these settings, with a positional encoding if one is given."""

    def __init__(
        self,
        settings: MixerSettings,
        positions: PositionalEncodingSettings | None = None,
        attention: Literal["self", "cross"] = "self",
        dims: AttentionDims = DIMS,
    ) -> None:
        torch.manual_seed(0)
        self.settings = settings
        encoding = None if positions is None else positions.build(dims.d_model, dims.n_heads, dims.d_k, 64).double()
        self.mixer = settings.build(dims, LayerSpec(0, 1, attention, encoding, bias=True)).double().eval()
        with torch.no_grad():
            for parameter in self.mixer.parameters():
                parameter.normal_(0, 0.5)
        self.x, self.long_x = random_tensor(B, L, dims.d_model), random_tensor(2, LONG, dims.d_model)

    def mix(self, x: Tensor, mask: Visibility) -> Tensor:
        """Self-attention of x (B, L, D)."""
        return self.mixer(x, x, mask).y  # type: ignore[no-any-return]


def supported_positions(settings: MixerSettings) -> dict[str, PositionalEncodingSettings | None]:
    """The positional encodings that the mixer supports, and none, by name."""
    supported: dict[str, PositionalEncodingSettings | None] = {"none": None}
    for word in listing("positions"):
        encoding = settings_of("positions", word)()
        if isinstance(encoding, PositionalEncodingSettings) and encoding.APPLIES_TO & settings.supports:
            supported[word] = encoding
    return supported


def random_tensor(*shape: int, seed: int = 1) -> Tensor:
    """Standard normal values."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def positions_of_layout(layout: Layout) -> TokenPositions:
    """plain: no padding; padded: left and right padding; packed: padding and several documents per row."""
    return TokenPositions(L) if layout == "plain" else TokenPositions.packed(torch.tensor(_SEGMENTS[layout]))


def visibility_of(direction: Direction, token_positions: TokenPositions, prefix: int = 0, rows: int = B) -> Visibility:
    """The mask of self-attention at `token_positions`; prefix: its length in each document, for that direction.

    rows: if `token_positions` are the same in every row.
    """
    if direction == "prefix":
        positions = token_positions.all_positions(torch.device("cpu")).expand(
            rows if token_positions.segments is None else -1, -1
        )
        token_positions = replace(token_positions, orders=positions.clamp(min=prefix - 1))
    return Visibility(direction != "bidirectional", token_positions, token_positions)


LONG_PREFIX = 70


def long_positions(packed: bool) -> TokenPositions:
    """Two rows of 150 tokens: one of a document, and one with padding, of two documents if `packed`."""
    second = [0] * 20 + [1] * 60 + [2 if packed else 1] * 70
    return TokenPositions.packed(torch.tensor([[1] * LONG, second]))


Trained = TypeVar("Trained", bound=nn.Module)


def set_dropout(module: nn.Module, rate: float) -> None:
    """In every dropout layer."""
    for part in module.modules():
        if isinstance(part, Dropout):
            part.rate = rate
        elif isinstance(part, nn.Dropout):
            part.p = rate


def without_dropout(module: Trained) -> Trained:
    """In training mode, with every dropout layer at 0."""
    set_dropout(module.train(), 0.0)
    return module


def with_zero_rates(settings: MixerSettings) -> MixerSettings:
    """The settings with every key that ends in `_rate` at 0, where that is valid."""
    for key in (key for key in type(settings).model_fields if key.endswith("_rate")):
        with suppress(ValidationError):
            settings = type(settings).model_validate(settings.model_dump() | {key: 0.0})
    return settings


def non_padding(y: Tensor, token_positions: TokenPositions) -> Tensor:
    """The rows of y (B, L, D) that are no padding."""
    return y.flatten(0, 1) if token_positions.segments is None else y[token_positions.segments != 0]


def run_in_blocks(
    mixer: Mixer, x: Tensor, token_positions: TokenPositions, sizes: Sequence[int], trim: bool = False
) -> tuple[Tensor, states.State]:
    """Causal self-attention of x block by block with state: the outputs (B, L, D) and the final state."""
    state: states.State | None = mixer.start(len(x))
    outputs, first = [], 0
    for size in sizes:
        block, block_positions = x[:, first : first + size], token_positions.slice(first, first + size)
        mixed = mixer(block, block, Visibility(True, block_positions, block_positions), state)
        assert mixed.state is not None, "forward must return a state if it is given one"
        state = mixer.trim(mixed.state) if trim else mixed.state
        outputs.append(mixed.y)
        first += size
    assert state is not None
    return torch.cat(outputs, dim=1), state


def another_value(settings: MixerSettings, key: str) -> Any:
    """Another valid value of a number, a truth value or a choice."""
    value, field = getattr(settings, key), type(settings).model_fields[key]
    candidates = (
        [not value]
        if isinstance(value, bool)
        else [value + 1, value / 2 + 0.25]
        if isinstance(value, int | float)
        else []
    )
    for candidate in [*candidates, *get_args(field.annotation)]:
        with suppress(ValidationError):
            type(settings).model_validate(settings.model_dump() | {key: candidate})
            if candidate != value:
                return candidate
    raise AssertionError(f"no other value of {key} is known")


def assert_gradients(tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Of each named tensor a gradient that is finite and not 0."""
    for name, tensor in tensors:
        assert tensor.grad is not None, f"{name} must have a gradient"
        assert tensor.grad.any(), f"the gradient of {name} must not be 0"
        assert tensor.grad.isfinite().all(), f"the gradient of {name} must be finite"


def assert_same(actual: Tensor, expected: Tensor, subject: str, atol: float = 1e-10) -> None:
    """Raises AssertionError with `subject` if the tensors differ."""
    if actual.shape == expected.shape and actual.dtype == expected.dtype and (actual - expected).abs().le(atol).all():
        return  # the words of a difference take longer than the comparison
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol, msg=lambda message: f"{subject}: {message}")
