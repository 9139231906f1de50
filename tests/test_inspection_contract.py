"""The contract of inspection views, run on every kind of model with every mixer and position, and on those of other
people.
"""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from strangers import made
from toys import every_mixer

from mini_tf.nn.model import ModelSettings
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing import Case, inspection
from mini_tf.testing.tiny import models as tiny_models

SMALL = {"d_model": 16, "n_layers": 2, "n_heads": 2}


def every_model() -> Iterator[tuple[str, ModelSettings]]:
    mixers = every_mixer() | made("attention")
    positions = {word: settings_of("positions", word)() for word in listing("positions")} | made("positions")
    for word in listing("models"):
        kind = settings_of("models", word)
        assert issubclass(kind, ModelSettings)
        yield f"{word}-bert", kind(**SMALL, head="bert", tied=False, norm_place="post")
        for name, position in positions.items():
            with suppress(ValueError):  # a perceiver has only positions that are added to its input
                yield f"{word}-{name}", kind(**SMALL | {"n_layers": 1}, positions=position)
        for name, mixer in mixers.items():
            for settings in tiny_models.every_mixer(kind(**SMALL), [mixer]):
                yield f"{word}-{name}", settings
    for word, settings in made("models").items():
        yield word, settings.model_copy(update=SMALL)


CASES = [
    pytest.param(case, id=f"{word}-{case}") for word, settings in every_model() for case in inspection.cases(settings)
]


@pytest.mark.parametrize("case", CASES)
def test_every_view_holds_of_a_model(case: Case) -> None:
    case.run()
