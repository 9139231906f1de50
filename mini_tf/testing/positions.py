"""The contract of positions: where they attach, what they depend on, how far they reach, and every mixer that they attach to."""

from collections.abc import Iterator

import torch

from mini_tf.nn.mixer import MixerSettings
from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.system.errors import DataFault
from mini_tf.testing import Case, attention, cases_of
from mini_tf.testing.tiny_mixers import DIMS, B, L, drawn, laid_out, same, tokens

CONTEXT = 64
FAR = 5000
"""A position that texts of positions without an end may reach."""


def cases(settings: PositionalEncodingSettings) -> list[Case]:
    """Everything that a position of these settings must do, by what it declares."""
    checks = (it_attaches_where_it_says, it_depends_on_positions_alone, it_reaches_as_far_as_it_says, every_parameter_has_a_gradient)
    turning = (turning_is_linear,) if "rotary" in settings.APPLIES_TO else ()
    return [*cases_of((*checks, *turning), settings), *_with_mixers(settings)]


def _with_mixers(settings: PositionalEncodingSettings) -> Iterator[Case]:
    for word in listing("attention"):
        mixer = settings_of("attention", word)()
        if isinstance(mixer, MixerSettings) and settings.APPLIES_TO & mixer.POSITIONS:
            yield from (Case(f"{word}-{case}", case.run) for case in attention.with_positions(mixer, {settings.kind: settings}))


def built(settings: PositionalEncodingSettings) -> PositionalEncoding:
    """The module, in float64, with random parameters."""
    torch.manual_seed(0)
    return settings.build(DIMS.d_model, DIMS.n_heads, DIMS.d_k, CONTEXT).double()


def _heads() -> torch.Tensor:
    return drawn(B, L, DIMS.n_heads, DIMS.d_k)


def _bias(position: PositionalEncoding, length: int = L) -> torch.Tensor | None:
    distance = torch.arange(length)[:, None] - torch.arange(length)[None]
    q, k = drawn(1, DIMS.n_heads, length, DIMS.d_k), drawn(1, DIMS.n_heads, length, DIMS.d_k, seed=2)
    return position.bias(distance[None], *(() if position.distance_only else (q, k)))


def it_attaches_where_it_says(settings: PositionalEncodingSettings) -> None:
    position, token_positions, x, heads = built(settings), TokenPositions(L, 3), drawn(B, L, DIMS.d_model), _heads()
    assert position.applies_to == settings.APPLIES_TO, "the module attaches elsewhere than its settings say"
    done = {
        "embed": not torch.equal(position.embed(x, token_positions), x),
        "rotary": not torch.equal(position.rotate(heads, token_positions), heads),
        "bias": _bias(position) is not None,
    }
    for place, does in done.items():
        assert does == (place in settings.APPLIES_TO), f"it {'attaches' if does else 'does not attach'} at {place!r}"


def it_depends_on_positions_alone(settings: PositionalEncodingSettings) -> None:
    """The same token at the same position of a document is the same whatever stands beside it in the row."""
    position, token_positions, x, heads = built(settings), laid_out("packed"), drawn(B, L, DIMS.d_model), _heads()
    assert token_positions.positions is not None
    assert token_positions.segments is not None
    together, turned = position.embed(x, token_positions), position.rotate(heads, token_positions)
    for t in range(L):
        for row in range(B):
            if token_positions.segments[row, t]:
                here = TokenPositions(1, int(token_positions.positions[row, t]))
                same(position.embed(x[row : row + 1, t : t + 1], here)[0, 0], together[row, t], "an embedding depends on other tokens")
                same(position.rotate(heads[row : row + 1, t : t + 1], here)[0, 0], turned[row, t], "a query depends on other tokens")
    bias = _bias(position)
    if bias is not None:
        assert bias.shape == (1, DIMS.n_heads, L, L), f"a bias is {list(bias.shape)}, but must be (1, heads, queries, keys)"
        assert bias.isfinite().all(), "a bias is not finite"
    assert tokens(together, token_positions).isfinite().all(), "an embedding is not finite"


def it_reaches_as_far_as_it_says(settings: PositionalEncodingSettings) -> None:
    position, x = built(settings), drawn(1, 1, DIMS.d_model)
    if position.max_positions is None:
        assert position.embed(x, TokenPositions(1, FAR)).isfinite().all(), f"position {FAR} has no finite embedding"
        assert position.rotate(drawn(1, 1, 2, DIMS.d_k), TokenPositions(1, FAR)).isfinite().all(), (
            f"position {FAR} turns to no finite vector"
        )
        return
    position.embed(x, TokenPositions(1, position.max_positions - 1))
    try:
        position.embed(x, TokenPositions(1, position.max_positions))
    except DataFault:
        return
    raise AssertionError(f"a token past the last of {position.max_positions} positions is not refused by a DataFault")


def turning_is_linear(settings: PositionalEncodingSettings) -> None:
    """The fast decoder makes a matrix of it; and it keeps lengths where it says so."""
    position, token_positions = built(settings), TokenPositions(L, 3)
    one, other = _heads(), drawn(B, L, DIMS.n_heads, DIMS.d_k, seed=2)
    apart = 2 * position.rotate(one, token_positions, 2) - 3 * position.rotate(other, token_positions, 2)
    same(position.rotate(2 * one - 3 * other, token_positions, 2), apart, "turning is not linear")
    if position.orthogonal:
        same(position.rotate(one, token_positions, 2).norm(dim=-1), one.norm(dim=-1), "turning changes lengths, which `orthogonal` denies")
        same(
            position.rotate(one, token_positions, 2),
            position.rotate(one, token_positions, 0),
            "queries and keys turn otherwise, which `orthogonal` denies",
        )


def every_parameter_has_a_gradient(settings: PositionalEncodingSettings) -> None:
    position = built(settings)
    length = L if position.max_positions is None else position.max_positions
    x, bias = drawn(B, length, DIMS.d_model), _bias(position, length)
    parts = [position.embed(x, TokenPositions(length)), position.rotate(_heads(), TokenPositions(L)), *(() if bias is None else (bias,))]
    total = torch.stack([(part * drawn(*part.shape, seed=3)).sum() for part in parts]).sum()
    if total.requires_grad:
        total.backward()
    for name, parameter in position.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        assert parameter.grad.any(), f"the gradient of {name} is 0"
