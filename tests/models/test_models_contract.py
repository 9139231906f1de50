"""The contract of models, run on every kind with every mixer, and on a stranger of latents and shared layers."""

from collections.abc import Iterator
from typing import Any

import pytest
from strangers import made
from toys import every_mixer

from mini_tf.nn.model import ModelSettings
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing import models, run_all
from mini_tf.testing.tiny import models as tiny_models

SMALL = {"d_model": 16, "n_layers": 2, "n_heads": 2}


OF_EACH_STATE = ("softmax", "window", "linear", "toy", "expire_span", "srupp")
"""Mixers that differ in their state: in every model. The others are in the first model that takes them."""


def of(kind: type[ModelSettings], given: dict[str, Any]) -> dict[str, Any]:
    """Those keys that the kind has."""
    return {key: value for key, value in given.items() if key in kind.model_fields}


def every_model() -> Iterator[tuple[str, ModelSettings]]:
    mixers, tried = every_mixer() | made("attention"), set[str]()
    for word in listing("models"):
        kind = settings_of("models", word)
        assert issubclass(kind, ModelSettings)
        yield word, kind(**of(kind, SMALL | {"head": "bert", "tied": False}))
        yield word, kind(**of(kind, SMALL | {"positions": settings_of("positions", "learned")(), "norm_place": "post"}))
        if "copy_attention" in kind.model_fields:
            for encoder in ({}, {"d_model": 24, "n_heads": 3}):
                yield f"{word}-copying", kind(**SMALL | {"copy_attention": True, "encoder": encoder})
        for name, mixer in mixers.items():
            for settings in tiny_models.every_mixer(kind(**of(kind, SMALL)), [mixer]):
                if name in OF_EACH_STATE or name not in tried:
                    yield f"{word}-{name}", settings
                tried.add(name)
    for word, settings in made("models").items():
        yield word, settings.model_copy(update=SMALL)


OF_ANY_MIXER = ("the_head_can_be_replaced", "max_length_is_enforced", "loss_is_the_cross_entropy_of_the_logits")
"""What cannot depend on the mixers of a model."""


@pytest.mark.parametrize(("word", "settings"), [pytest.param(*pair, id=pair[0]) for pair in every_model()])
def test_a_model_keeps_its_contract(word: str, settings: ModelSettings) -> None:
    run_all(case for case in models.cases(settings) if "-" not in word or case.name not in OF_ANY_MIXER)
