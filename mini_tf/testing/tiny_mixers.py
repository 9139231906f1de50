"""A mixer on trial: tiny, in float64 and eval, on rows of 11 tokens, with weights so large that attention is far from uniform."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from mini_tf.nn import state as states
from mini_tf.nn.mixer import AttentionDims, LayerSpec, Mixer, MixerSettings
from mini_tf.nn.positional_encoding import PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.kind_settings import Direction
from mini_tf.recipe.kinds import listing, settings_of

B, L = 3, 11
DIMS = AttentionDims(d_model=12, d_memory=12, n_heads=4, n_kv_heads=2, d_k=6, d_v=4)
EXACT = {"rtol": 0, "atol": 1e-10}
Layout = Literal["plain", "padded", "packed"]
PREFIX = {"plain": 4, "padded": 4, "packed": 2}
"""Tokens of each document that see each other, where the direction is `prefix`."""
_SEGMENTS = {
    "padded": [[1] * L, [0] * 4 + [1] * 7, [1] * 9 + [0] * 2],
    "packed": [[1] * L, [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2], [1, 1, 1, 2, 2, 3, 3, 3, 3, 0, 0]],
}


class TinyMixer:
    """A mixer of these settings, with a position where one is given."""

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
        self.x = drawn(B, L, dims.d_model)

    def mix(self, x: Tensor, view: Visibility) -> Tensor:
        """Self-attention of x (B, L, D)."""
        return self.mixer(x, x, view).y  # type: ignore[no-any-return]


def fitting_positions(settings: MixerSettings) -> dict[str, PositionalEncodingSettings | None]:
    """None, and every kind of position that attaches to such a mixer, by its word."""
    found: dict[str, PositionalEncodingSettings | None] = {"none": None}
    for word in listing("positions"):
        position = settings_of("positions", word)()
        if isinstance(position, PositionalEncodingSettings) and position.APPLIES_TO & settings.POSITIONS:
            found[word] = position
    return found


def drawn(*shape: int, seed: int = 1) -> Tensor:
    """Normal numbers."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def laid_out(layout: Layout) -> TokenPositions:
    """Plain rows; or rows with padding to the left and right; or such rows that hold several documents."""
    return TokenPositions(L) if layout == "plain" else TokenPositions.packed(torch.tensor(_SEGMENTS[layout]))


def view_of(direction: Direction, token_positions: TokenPositions, prefix: int = 0) -> Visibility:
    """What tokens at `token_positions` see of each other; in the direction `prefix` the first so many of each document see each other."""
    if direction == "prefix":
        positions = token_positions.all_positions(torch.device("cpu")).expand(B, -1)
        token_positions = replace(token_positions, orders=positions.clamp(min=prefix - 1))
    return Visibility(direction != "bidirectional", token_positions, token_positions)


def tokens(y: Tensor, token_positions: TokenPositions) -> Tensor:
    """The rows of y (B, L, D) that stand for tokens, not for padding."""
    return y.flatten(0, 1) if token_positions.segments is None else y[token_positions.segments != 0]


def in_blocks(
    mixer: Mixer, x: Tensor, token_positions: TokenPositions, sizes: Sequence[int], trim: bool = False
) -> tuple[Tensor, states.State]:
    """Causal self-attention of x, block after block; the outputs (B, L, D), and the state at the end."""
    state: states.State | None = mixer.start(len(x))
    parts, first = [], 0
    for size in sizes:
        part, here = x[:, first : first + size], token_positions.slice(first, first + size)
        mixed = mixer(part, part, Visibility(True, here, here), state)
        assert mixed.state is not None, "a state went in and none came out"
        state = mixer.trim(mixed.state) if trim else mixed.state
        parts.append(mixed.y)
        first += size
    assert state is not None
    return torch.cat(parts, dim=1), state


def same(actual: Tensor, expected: Tensor, what: str, atol: float = 1e-10) -> None:
    """AssertionError that says what differs."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol, msg=lambda message: f"{what}: {message}")
