"""The contract of positions, run on every kind and on a stranger; a new file in mini_tf/positions is tested here
without a line.
"""

import pytest
from strangers import made

from mini_tf.nn.positional_encoding import PositionalEncodingSettings
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing import Case, positions


def every_position() -> dict[str, PositionalEncodingSettings]:
    kinds = {word: settings_of("positions", word)() for word in listing("positions")}
    kinds |= {f"{word}-concat": settings_of("positions", word)(combine="concat") for word in ("learned", "fourier")}  # type: ignore[call-arg]
    return {word: one for word, one in kinds.items() if isinstance(one, PositionalEncodingSettings)} | made("positions")


# What a kind does with each mixer is tried by test_mixers.py, from the mixer's side.
CASES = [
    pytest.param(case, id=f"{word}-{case}")
    for word, settings in every_position().items()
    for case in positions.cases(settings)
    if "-" not in case.name
]


@pytest.mark.parametrize("case", CASES)
def test_a_position_keeps_its_contract(case: Case) -> None:
    case.run()


def test_a_position_is_tried_with_every_mixer_that_it_attaches_to() -> None:
    tried = {case.name.partition("-")[0] for case in positions.cases(made("positions")["relative"]) if "-" in case.name}
    assert tried == {"expire_span", "softmax", "window"}
