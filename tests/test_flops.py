"""FLOPs by formula are what torch's counter finds: every model, mixer, position and objective, short and long rows."""

from typing import Any

import pytest
import torch
from toys import present

from mini_tf.models.encoder_decoder import EncoderDecoder
from mini_tf.nn.batch_sizes import BatchSizes
from mini_tf.nn.model import Model, ModelSettings
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.training.flops import flops_of

VOCABULARY, ROWS, SOURCE = 29, 2, 70
TINY = {"d_model": 16, "n_layers": 3, "n_heads": 2}
MIXERS: list[dict[str, Any]] = [
    *({"kind": word} for word in listing("attention")),
    {"kind": "softmax", "n_persistent": 5},
    {"kind": "window", "window": 8},
    *({"kind": word, "features": 7, "variant": "hyperbolic"} for word in present("attention", "favor")),
]
WITH_FORMULA = {"decoder", "encoder", "encoder_decoder", "perceiver", "softmax", "window", "linear", "favor", "simple"}
"""Kinds whose formula is known; of others there may be none."""
VARIANTS: list[dict[str, Any]] = [
    {"activation": "swiglu", "d_ff": 24, "head": "bert", "n_kv_heads": 1, "n_types": 2, "ngrams": [7], "subwords": 9, "norm_place": "post"},
    {"d_ff": 0, "tied": False, "d_k": 6, "d_v": 6, "bias": True},
]


def built(kind: str, **keys: Any) -> ModelSettings | None:
    """The settings of a model; None if its rules refuse them."""
    try:
        settings = settings_of("models", kind).model_validate({**TINY, **keys})
    except ValueError:
        return None
    assert isinstance(settings, ModelSettings)
    return settings


def counted_and_formula(settings: ModelSettings, length: int, packed: bool = False) -> tuple[int, int | None]:
    """packed: each row has positions of its own."""
    ids, at = torch.zeros(ROWS, length, dtype=torch.long), torch.tensor([0, length - 1, length])
    source_ids = torch.zeros(ROWS, SOURCE, dtype=torch.long)
    tokens, source = (Tokens(each, TokenPositions.packed(torch.ones_like(each)) if packed else None) for each in (ids, source_ids))
    counts = dict.fromkeys(("shared_positions", "shared_source_positions"), not packed)
    sizes = BatchSizes(ROWS, length, len(at), VOCABULARY, VOCABULARY, SOURCE if settings.SOURCE else 0, **counts)  # type: ignore[arg-type]
    if (hidden := settings.hidden_flops(sizes)) is None:
        return 0, None
    model: Model = settings.build(VOCABULARY, 512).eval()
    with torch.no_grad():
        counted = flops_of(lambda: model.logits(model(tokens, source if model.needs_source else None, at).y))
    return counted, hidden + settings.head_flops(sizes)


@pytest.mark.parametrize("length", [9, 64, 100])
@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: "-".join(map(str, mixer.values())))
@pytest.mark.parametrize("kind", listing("models"))
def test_the_formula_of_every_model_and_mixer_is_what_is_counted(kind: str, mixer: dict[str, Any], length: int) -> None:
    settings = built(kind, attention=mixer, positions="none")
    if settings is not None:
        counted, formula = counted_and_formula(settings, length)
        assert formula == counted or (formula is None and not {kind, mixer["kind"]} <= WITH_FORMULA)


@pytest.mark.parametrize("kind", listing("models"))
@pytest.mark.parametrize("keys", VARIANTS, ids=["swiglu", "no feed-forward"])
def test_sizes_and_heads_are_in_the_formula(kind: str, keys: dict[str, Any]) -> None:
    if "n_types" in keys and settings_of("models", kind).SOURCE:  # type: ignore[attr-defined]
        keys = keys | {"n_types": 0}
    settings = built(kind, **keys)
    assert settings is not None
    counted, formula = counted_and_formula(settings, 20)
    assert formula == counted or (formula is None and kind not in WITH_FORMULA)


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "shared"])
@pytest.mark.parametrize("kind", listing("positions"))
def test_positions_are_in_the_formula(kind: str, packed: bool) -> None:
    """Packed rows have positions of their own; those that all rows share are mapped once."""
    settings = built("decoder", positions={"kind": kind, "max_distance": 24} if kind == "transformer_xl" else kind)
    assert settings is not None
    counted, formula = counted_and_formula(settings, 12, packed)
    assert counted == formula


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "shared"])
@pytest.mark.parametrize("combine", ["add", "concat"])
@pytest.mark.parametrize("kind", listing("models"))
def test_positions_and_projections_of_narrow_tables_are_in_the_formula(kind: str, combine: str, packed: bool) -> None:
    settings = built(kind, positions={"kind": "fourier", "n_bands": 3, "combine": combine}, d_embedding=10)
    assert settings is not None
    counted, formula = counted_and_formula(settings, 12, packed)
    assert formula == counted or (formula is None and kind not in WITH_FORMULA)


def test_an_encoder_of_another_width_and_no_cross_attention_are_in_the_formula() -> None:
    for keys in ({"encoder": {"d_model": 24, "n_layers": 1, "n_heads": 3}}, {"cross_attention": None}):
        settings = built("encoder_decoder", **keys)
        assert settings is not None
        assert isinstance(settings.build(VOCABULARY, 8), EncoderDecoder)
        counted, formula = counted_and_formula(settings, 10)
        assert counted == formula


def test_zero_padding_of_narrow_values_is_not_in_the_formula() -> None:
    """The fused kernel pads values of 4 to the 8 of queries; the formula counts what attention needs."""
    settings = built("decoder", d_k=8, d_v=4, positions="none")
    assert settings is not None
    counted, formula = counted_and_formula(settings, 10)
    assert formula is not None
    assert counted - formula == ROWS * 3 * 2 * 2 * 10 * 10 * (8 - 4)


def test_a_mixer_without_a_formula_has_none() -> None:
    settings = built("decoder", attention=["softmax", "window"])
    assert settings is not None
    unknown = type("Unknown", (type(settings.attention[0]),), {"cost": lambda *_: None}).model_construct()
    assert settings.model_copy(update={"attention": (unknown,)}).hidden_flops(BatchSizes(1, 8, 8, 9, 9)) is None


@pytest.mark.skipif(not present("models", "perceiver"), reason="its paper is absent")
@pytest.mark.parametrize(
    "keys", [{"query": "task"}, {"query": "input"}, {"query_positions": "fourier"}], ids=lambda keys: str([*keys.values()])
)
def test_queries_of_a_perceiver_are_in_the_formula(keys: dict[str, Any]) -> None:
    settings = built("perceiver", **keys)
    assert settings is not None
    counted, formula = counted_and_formula(settings, 12)
    assert counted == formula
