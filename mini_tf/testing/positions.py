"""The contract of positional encodings, alone and with every mixer that supports them."""

from collections.abc import Iterator

import torch

from mini_tf.nn.mixer import MixerSettings
from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.system.errors import DataFault
from mini_tf.testing import Case, attention, cases_of
from mini_tf.testing.tiny.mixers import DIMS, B, L, assert_same, non_padding, positions_of_layout, random_tensor

CONTEXT = 64
FAR = 5000
"""A position that encodings without `max_positions` must support."""


def cases(settings: PositionalEncodingSettings) -> list[Case]:
    """All checks for a positional encoding of these settings."""
    checks = (it_applies_where_declared, it_depends_on_positions_only, max_positions_are_enforced, every_parameter_has_a_gradient)
    rotary = (rotate_is_linear,) if "rotary" in settings.APPLIES_TO else ()
    return [*cases_of((*checks, *rotary), settings), *_with_mixers(settings)]


def _with_mixers(settings: PositionalEncodingSettings) -> Iterator[Case]:
    for word in listing("attention"):
        mixer = settings_of("attention", word)()
        if isinstance(mixer, MixerSettings) and settings.APPLIES_TO & mixer.POSITIONS:
            yield from (Case(f"{word}-{case}", case.run) for case in attention.self_attention_cases(mixer, {settings.kind: settings}))


def tiny_encoding(settings: PositionalEncodingSettings) -> PositionalEncoding:
    """The module in float64 with random parameters."""
    torch.manual_seed(0)
    return settings.build(DIMS.d_model, DIMS.n_heads, DIMS.d_k, CONTEXT).double()


def _heads() -> torch.Tensor:
    return random_tensor(B, L, DIMS.n_heads, DIMS.d_k)


def _bias(encoding: PositionalEncoding, length: int = L) -> torch.Tensor | None:
    distance = torch.arange(length)[:, None] - torch.arange(length)[None]
    q, k = random_tensor(1, DIMS.n_heads, length, DIMS.d_k), random_tensor(1, DIMS.n_heads, length, DIMS.d_k, seed=2)
    return encoding.bias(distance[None], *(() if encoding.distance_only else (q, k)))


def it_applies_where_declared(settings: PositionalEncodingSettings) -> None:
    encoding, token_positions, x, heads = tiny_encoding(settings), TokenPositions(L, 3), random_tensor(B, L, DIMS.d_model), _heads()
    assert encoding.applies_to == settings.APPLIES_TO, "applies_to of the module must equal APPLIES_TO of the settings"
    applied = {
        "embed": not torch.equal(encoding.embed(x, token_positions), x),
        "rotary": not torch.equal(encoding.rotate(heads, token_positions), heads),
        "bias": _bias(encoding) is not None,
    }
    for point, applies in applied.items():
        assert applies == (point in settings.APPLIES_TO), f"{point!r} must be in APPLIES_TO if and only if it is overridden"


def it_depends_on_positions_only(settings: PositionalEncodingSettings) -> None:
    """The encoding of a token depends on its position in the document, not on other tokens of the row."""
    encoding, token_positions, x, heads = (
        tiny_encoding(settings),
        positions_of_layout("packed"),
        random_tensor(B, L, DIMS.d_model),
        _heads(),
    )
    assert token_positions.positions is not None
    assert token_positions.segments is not None
    together, rotated = encoding.embed(x, token_positions), encoding.rotate(heads, token_positions)
    for t in range(L):
        for row in range(B):
            if token_positions.segments[row, t]:
                alone = TokenPositions(1, int(token_positions.positions[row, t]))
                assert_same(
                    encoding.embed(x[row : row + 1, t : t + 1], alone)[0, 0],
                    together[row, t],
                    "an embedding must not depend on other tokens",
                )
                assert_same(
                    encoding.rotate(heads[row : row + 1, t : t + 1], alone)[0, 0],
                    rotated[row, t],
                    "a query must not depend on other tokens",
                )
    bias = _bias(encoding)
    if bias is not None:
        assert bias.shape == (1, DIMS.n_heads, L, L), f"a bias must be (1, heads, queries, keys), not {list(bias.shape)}"
        assert bias.isfinite().all(), "a bias must be finite"
    assert non_padding(together, token_positions).isfinite().all(), "an embedding must be finite"


def max_positions_are_enforced(settings: PositionalEncodingSettings) -> None:
    encoding, x = tiny_encoding(settings), random_tensor(1, 1, DIMS.d_model)
    if encoding.max_positions is None:
        assert encoding.embed(x, TokenPositions(1, FAR)).isfinite().all(), f"the embedding of position {FAR} must be finite"
        assert encoding.rotate(random_tensor(1, 1, 2, DIMS.d_k), TokenPositions(1, FAR)).isfinite().all(), (
            f"rotate must be finite at position {FAR}"
        )
        return
    encoding.embed(x, TokenPositions(1, encoding.max_positions - 1))
    try:
        encoding.embed(x, TokenPositions(1, encoding.max_positions))
    except DataFault:
        return
    raise AssertionError(f"a token beyond max_positions {encoding.max_positions} must be refused by a DataFault")


def rotate_is_linear(settings: PositionalEncodingSettings) -> None:
    """The fast decoder turns `rotate` into a matrix."""
    encoding, token_positions = tiny_encoding(settings), TokenPositions(L, 3)
    one, other = _heads(), random_tensor(B, L, DIMS.n_heads, DIMS.d_k, seed=2)
    separate = 2 * encoding.rotate(one, token_positions, 2) - 3 * encoding.rotate(other, token_positions, 2)
    assert_same(encoding.rotate(2 * one - 3 * other, token_positions, 2), separate, "rotate must be linear")
    if encoding.orthogonal:
        assert_same(encoding.rotate(one, token_positions, 2).norm(dim=-1), one.norm(dim=-1), "rotate must preserve norms if `orthogonal`")
        assert_same(
            encoding.rotate(one, token_positions, 2),
            encoding.rotate(one, token_positions, 0),
            "rotate must treat queries and keys alike if `orthogonal`",
        )


def every_parameter_has_a_gradient(settings: PositionalEncodingSettings) -> None:
    encoding = tiny_encoding(settings)
    length = L if encoding.max_positions is None else encoding.max_positions
    x, bias = random_tensor(B, length, DIMS.d_model), _bias(encoding, length)
    parts = [encoding.embed(x, TokenPositions(length)), encoding.rotate(_heads(), TokenPositions(L)), *(() if bias is None else (bias,))]
    total = torch.stack([(part * random_tensor(*part.shape, seed=3)).sum() for part in parts]).sum()
    if total.requires_grad:
        total.backward()
    for name, parameter in encoding.named_parameters():
        assert parameter.grad is not None, f"{name} must have a gradient"
        assert parameter.grad.any(), f"the gradient of {name} must not be 0"
