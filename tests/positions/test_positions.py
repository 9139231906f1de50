"""The contract of positions, run on every kind and on a stranger; a new file in mini_tf/positions is tested here
without a line.
"""

from typing import Any

import pytest
import torch
from strangers import made

from mini_tf.nn.positional_encoding import PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing import positions, run_all
from mini_tf.testing.tiny.mixers import random_tensor


def every_position() -> dict[str, PositionalEncodingSettings]:
    kinds = {word: settings_of("positions", word)() for word in listing("positions")}
    kinds |= {f"{word}-concat": settings_of("positions", word)(combine="concat") for word in ("learned", "fourier")}  # type: ignore[call-arg]
    return {word: one for word, one in kinds.items() if isinstance(one, PositionalEncodingSettings)} | made("positions")


@pytest.mark.parametrize("word", every_position())
def test_a_position_keeps_its_contract(word: str) -> None:
    """What a kind does with each mixer is tried by test_mixers.py, from the mixer's side."""
    run_all(case for case in positions.cases(every_position()[word]) if "-" not in case.name)


def test_a_position_is_tried_with_every_mixer_that_it_attaches_to() -> None:
    tried = {case.name.partition("-")[0] for case in positions.cases(made("positions")["relative"]) if "-" in case.name}
    assert tried == {word for word in listing("attention") if "bias" in settings_of("attention", word)().supports}  # type: ignore[attr-defined]


def test_sinusoids_are_those_of_the_formula_in_either_order() -> None:
    """Vaswani et al. 2017, section 3.5; tensor2tensor has all sines first."""
    angles = torch.tensor([[position / 50 ** (2 * i / 6) for i in range(3)] for position in range(5, 8)])
    for order, expected in (
        ("alternating", torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)),
        ("sines_first", torch.cat([angles.sin(), angles.cos()], dim=-1)),
    ):
        encoding: Any = settings_of("positions", "sinusoidal")(base=50.0, order=order).build(6, 1, 6, 16)  # type: ignore[attr-defined]
        torch.testing.assert_close(encoding.embed(torch.zeros(1, 3, 6), TokenPositions(3, 5))[0], expected)


@pytest.mark.parametrize(
    ("share", "d_k", "n_rotated"), [(1.0, 6, 6), (0.5, 8, 4), (0.65, 6, 2), (0.25, 4, 2), (0.1, 8, 2), (0.99, 8, 6)]
)
def test_a_share_of_the_dimensions_is_rotated_whole_pairs_rounded_down(share: float, d_k: int, n_rotated: int) -> None:
    """At least one pair; the others stay as they are."""
    rotary: Any = settings_of("positions", "rotary")(share=share).build(8, 1, d_k, 16)  # type: ignore[attr-defined]
    heads = random_tensor(1, 3, 1, d_k)
    rotated = rotary.rotate(heads, TokenPositions(3, 5))
    assert torch.equal(rotated[..., n_rotated:], heads[..., n_rotated:])
    assert (rotated[..., :n_rotated].norm(dim=-1) - heads[..., :n_rotated].norm(dim=-1)).abs().max() < 1e-12
    whole: Any = settings_of("positions", "rotary")().build(8, 1, n_rotated, 16)  # type: ignore[attr-defined]
    torch.testing.assert_close(
        rotated[..., :n_rotated], whole.rotate(heads[..., :n_rotated].contiguous(), TokenPositions(3, 5))
    )


def test_bases_of_layers_are_repeated_over_them() -> None:
    bases = settings_of("positions", "rotary")(layer_bases=(100.0, 5000.0)).build_layers(5, 8, 1, 4, 16)  # type: ignore[attr-defined]
    for layer, base in enumerate((100.0, 5000.0, 100.0, 5000.0, 100.0)):
        expected: Any = settings_of("positions", "rotary")(base=base).build(8, 1, 4, 16)  # type: ignore[attr-defined]
        heads = random_tensor(1, 3, 1, 4)
        assert torch.equal(
            bases.of_layer(layer).rotate(heads, TokenPositions(3, 5)), expected.rotate(heads, TokenPositions(3, 5))
        )


def test_what_is_compiled_rotates_as_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first layer, and in others, which have the same positions."""
    token_positions, heads = TokenPositions.packed(torch.tensor([[1, 1, 1, 2, 2]])), random_tensor(1, 5, 2, 6)
    rotaries: list[Any] = [settings_of("positions", "rotary")().build(12, 2, 6, 16) for _ in range(2)]  # type: ignore[attr-defined]
    expected = rotaries[0].rotate(heads, token_positions)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    for _ in range(2):
        torch.testing.assert_close(rotaries[1].rotate(heads, token_positions), expected)
