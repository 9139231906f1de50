"""The contract of positional encodings: alone, in the layers of a model, and with every mixer that supports them."""

from collections.abc import Iterator
from typing import Any

import torch

from mini_tf.nn.mixer import MixerSettings
from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.system.errors import DataFault
from mini_tf.testing import Case, attention, cases_of, models
from mini_tf.testing.tiny.mixers import (
    DIMS,
    B,
    L,
    assert_gradients,
    assert_same,
    non_padding,
    positions_of_layout,
    random_tensor,
)

CONTEXT, N_LAYERS = 64, 3
FAR = 5000
"""A position that encodings without `max_positions` must support."""


def cases(settings: PositionalEncodingSettings) -> list[Case]:
    """All checks for a positional encoding of these settings."""
    checks = (
        it_applies_where_declared,
        every_layer_has_its_encoding,
        it_depends_on_positions_only,
        max_positions_are_enforced,
        every_parameter_has_a_gradient,
    )
    rotary = (rotate_is_linear, rotations_are_those_of_rotate) if "rotary" in settings.APPLIES_TO else ()
    return [*cases_of((*checks, *rotary), settings), *_in_models(settings), *_with_mixers(settings)]


def _in_models(settings: PositionalEncodingSettings) -> Iterator[Case]:
    """Checks of models that depend on positions, of a decoder and an encoder of two layers."""
    for word in ("decoder", "encoder"):
        kind: Any = settings_of("models", word)
        model = kind(d_model=16, n_layers=2, n_heads=2, positions=settings)
        of_positions = (
            models.every_parameter_has_a_gradient_and_a_depth,
            models.packed_documents_are_independent,
            models.captured_attention_gives_the_same_logits,
            *(
                (models.decoding_token_by_token_matches_one_pass, models.the_fast_decoder_gives_the_same_logits)
                if model.causal
                else ()
            ),
        )
        yield from (Case(f"in_{word}_{case}", case.run) for case in cases_of(of_positions, model))


def _with_mixers(settings: PositionalEncodingSettings) -> Iterator[Case]:
    for word in listing("attention"):
        mixer = settings_of("attention", word)()
        if isinstance(mixer, MixerSettings) and settings.APPLIES_TO & mixer.supports:
            yield from (
                Case(f"{word}-{case}", case.run)
                for case in attention.self_attention_cases(mixer, {settings.kind: settings})
            )


def tiny_encoding(settings: PositionalEncodingSettings) -> PositionalEncoding:
    """The module in float64 with random parameters."""
    torch.manual_seed(0)
    return settings.build(DIMS.d_model, DIMS.n_heads, DIMS.d_k, CONTEXT).double()


def tiny_layers(settings: PositionalEncodingSettings) -> PositionalEncoding:
    """The module of a stack of three layers."""
    torch.manual_seed(0)
    return settings.build_layers(N_LAYERS, DIMS.d_model, DIMS.n_heads, DIMS.d_k, CONTEXT).double()


def _heads() -> torch.Tensor:
    return random_tensor(B, L, DIMS.n_heads, DIMS.d_k)


def _bias(encoding: PositionalEncoding, length: int = L) -> torch.Tensor | None:
    distance = torch.arange(length)[:, None] - torch.arange(length)[None]
    q, k = random_tensor(1, DIMS.n_heads, length, DIMS.d_k), random_tensor(1, DIMS.n_heads, length, DIMS.d_k, seed=2)
    return encoding.bias(distance[None], *(() if encoding.distance_only else (q, k)))


def _applies_to_heads(encoding: PositionalEncoding) -> dict[str, bool]:
    heads = _heads()
    rotates = not torch.equal(encoding.rotate(heads, TokenPositions(L, 3)), heads)
    return {"rotary": rotates, "bias": _bias(encoding) is not None}


def it_applies_where_declared(settings: PositionalEncodingSettings) -> None:
    encoding = tiny_encoding(settings)
    x, token_positions = random_tensor(B, L, DIMS.d_model), TokenPositions(L, 3)
    assert encoding.applies_to == settings.APPLIES_TO, "applies_to of the module must equal APPLIES_TO of the settings"
    embeds = not torch.equal(encoding.embed(x, token_positions), x)
    for point, applies in {"embed": embeds, **_applies_to_heads(encoding)}.items():
        assert applies == (point in settings.APPLIES_TO), (
            f"{point!r} must be in APPLIES_TO if and only if it is overridden"
        )


def every_layer_has_its_encoding(settings: PositionalEncodingSettings) -> None:
    """`of_layer` of what `build_layers` returns applies where declared; if overridden, each layer has another one."""
    encoding = tiny_layers(settings)
    layers = [encoding.of_layer(layer) for layer in range(N_LAYERS)]
    message = "applies_to of build_layers must equal APPLIES_TO of the settings"
    assert encoding.applies_to == settings.APPLIES_TO, message
    for number, layer in enumerate(layers):
        for point, applies in _applies_to_heads(layer).items():
            assert applies == (point in settings.APPLIES_TO) == (point in layer.applies_to), (
                f"of_layer({number}) must apply to {sorted(settings.APPLIES_TO)}: a module of several layers overrides"
                " of_layer"
            )
    if type(encoding).of_layer is not PositionalEncoding.of_layer:
        assert len({id(layer) for layer in layers}) == N_LAYERS, "of_layer must return another encoding for each layer"


def it_depends_on_positions_only(settings: PositionalEncodingSettings) -> None:
    """The encoding of a token depends on its position in the document, not on other tokens of the row."""
    encoding = tiny_encoding(settings)
    token_positions = positions_of_layout("packed")
    x = random_tensor(B, L, DIMS.d_model)
    heads = _heads()
    assert token_positions.positions is not None
    assert token_positions.segments is not None
    together, rotated = encoding.embed(x, token_positions), encoding.rotate(heads, token_positions)
    if encoding.additive:
        added = encoding.embed(torch.zeros_like(x), token_positions)
        assert_same(x + added, together, "an additive encoding must add the same vectors to all tokens")
    for t in range(L):
        for row in range(B):
            if token_positions.segments[row, t]:
                alone = TokenPositions(1, int(token_positions.positions[row, t]))
                message = "an embedding must not depend on other tokens"
                assert_same(encoding.embed(x[row : row + 1, t : t + 1], alone)[0, 0], together[row, t], message)
                message = "a query must not depend on other tokens"
                assert_same(encoding.rotate(heads[row : row + 1, t : t + 1], alone)[0, 0], rotated[row, t], message)
    bias = _bias(encoding)
    if bias is not None:
        shape = (1, DIMS.n_heads, L, L)
        assert bias.shape == shape, f"a bias must be (1, heads, queries, keys), not {list(bias.shape)}"
        assert bias.isfinite().all(), "a bias must be finite"
    assert non_padding(together, token_positions).isfinite().all(), "an embedding must be finite"


def max_positions_are_enforced(settings: PositionalEncodingSettings) -> None:
    encoding, x = tiny_encoding(settings), random_tensor(1, 1, DIMS.d_model)
    limits = [settings.max_positions(CONTEXT), encoding.max_positions, tiny_layers(settings).max_positions]
    assert len(set(limits)) == 1, (
        f"max_positions of the settings and of the modules of build and build_layers must be equal: {limits}"
    )
    if encoding.max_positions is None:
        assert encoding.embed(x, TokenPositions(1, FAR)).isfinite().all(), (
            f"the embedding of position {FAR} must be finite"
        )
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
    heads, other = _heads(), random_tensor(B, L, DIMS.n_heads, DIMS.d_k, seed=2)
    separate = 2 * encoding.rotate(heads, token_positions, 2) - 3 * encoding.rotate(other, token_positions, 2)
    assert_same(encoding.rotate(2 * heads - 3 * other, token_positions, 2), separate, "rotate must be linear")
    if encoding.orthogonal:
        message = "rotate must preserve norms if `orthogonal`"
        assert_same(encoding.rotate(heads, token_positions, 2).norm(dim=-1), heads.norm(dim=-1), message)
        message = "rotate must treat queries and keys alike if `orthogonal`"
        assert_same(encoding.rotate(heads, token_positions, 2), encoding.rotate(heads, token_positions, 0), message)


def rotations_are_those_of_rotate(settings: PositionalEncodingSettings) -> None:
    """Mixers use one or the other."""
    x, token_positions = _heads(), TokenPositions(L, 3)
    for encoding in (tiny_layers(settings).of_layer(layer) for layer in range(N_LAYERS)):
        if (rotations := encoding.rotations(token_positions, DIMS.d_k, x)) is not None:
            rotated = torch.complex(*x.chunk(2, dim=-1)) * rotations
            message = "rotate must multiply pairs of dimensions by `rotations`"
            assert_same(encoding.rotate(x, token_positions, 2), torch.view_as_real(rotated).flatten(-2), message)


def every_parameter_has_a_gradient(settings: PositionalEncodingSettings) -> None:
    for encoding in (tiny_encoding(settings), tiny_layers(settings)):
        length = L if encoding.max_positions is None else encoding.max_positions
        x = random_tensor(B, length, DIMS.d_model)
        parts = [encoding.embed(x, TokenPositions(length))]
        for layer in (encoding.of_layer(layer) for layer in range(N_LAYERS)):
            bias = _bias(layer, length)
            parts += [layer.rotate(_heads(), TokenPositions(L)), *(() if bias is None else (bias,))]
        total = torch.stack(
            [(part * random_tensor(*part.shape, seed=3 + n)).sum() for n, part in enumerate(parts)]
        ).sum()
        if total.requires_grad:
            total.backward()
        assert_gradients(encoding.named_parameters())
