"""The contract of inspection views, run on every kind of model with every mixer and every position, and on those of
other people.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from strangers import made
from toys import every_mixer

from mini_tf.nn.model import ModelSettings
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing import inspection, run_all
from mini_tf.testing.tiny import models as tiny_models

SMALL = {"d_model": 16, "n_layers": 2, "n_heads": 2}


def positions_for(settings: ModelSettings, positions: dict[str, Any]) -> Iterator[tuple[str, ModelSettings]]:
    """The settings with each positional encoding that the mixers and the model support."""
    for word, position in positions.items():
        with suppress(ValueError):  # a perceiver has only positions that are added to its input
            yield word, type(settings).model_validate(dict(settings) | {"positions": position})


def every_model() -> Iterator[tuple[str, ModelSettings]]:
    mixers = every_mixer() | made("attention")
    positions = {word: settings_of("positions", word)() for word in listing("positions")} | made("positions")
    for word in listing("models"):
        kind = settings_of("models", word)
        assert issubclass(kind, ModelSettings)
        yield f"{word}-bert", kind(**SMALL, head="bert", tied=False, norm_place="post")
        left = dict(positions)
        for name, mixer in mixers.items():
            for settings in tiny_models.every_mixer(kind(**SMALL), [mixer]):
                taken = next(iter(positions_for(settings, left)), None)
                if taken is None:
                    yield f"{word}-{name}", settings
                else:
                    yield f"{word}-{name}-{taken[0]}", taken[1]
                    del left[taken[0]]
        for name, settings in positions_for(kind(**SMALL | {"n_layers": 1}), left):
            yield f"{word}-{name}", settings
    for word, settings in made("models").items():
        yield word, settings.model_copy(update=SMALL)


@pytest.mark.parametrize("settings", [pytest.param(settings, id=word) for word, settings in every_model()])
def test_every_view_holds_of_a_model(settings: ModelSettings) -> None:
    run_all(inspection.cases(settings))
