"""What a perceiver costs as a row grows, and the depth of its parameters for layer-wise learning rates."""

from typing import Any

import pytest
from commands import TINY

from mini_tf.cost import lengths
from mini_tf.cost.lengths import layers_of, measure_lengths
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.reading import read
from mini_tf.training.machine.device import Setup
from mini_tf.training.optimizer import depths


@pytest.mark.parametrize(("query", "sizes"), [("position", (32, 4)), ("task", (1, 4))])
def test_of_a_perceiver_what_grows_with_the_length_is_measured_too(
    query: str, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lengths, "LONG_SECONDS", 0.0)
    sized = (
        "model={kind: perceiver, d_model: 16, d_latent: 24, n_layers: 2, n_heads: 2, n_latents: 4, attention:"
        " [softmax]}"
    )
    layers = layers_of(
        "tiny", read(TINY, [sized, "objective={kind: classify, pool: first}", f"model.query={query}"]).recipe
    )
    names = ["encoder.cross (tiny)", "latent.self (tiny)", "decoder.cross (tiny)"]
    assert [layer.name for layer in layers] == names
    assert [layer.sizes(32) for layer in layers] == [(4, 32), (4, 4), sizes]
    assert [(layer.dims.d_model, layer.dims.d_memory) for layer in layers] == [(24, 16), (24, 24), (16, 24)]
    for layer in layers:
        (short, long), grows = measure_lengths(layer, [64, 128], Setup()), 64 in layer.sizes(64)
        assert short.flops is not None
        assert long.flops is not None
        assert (long.flops > short.flops) == grows
        assert (long.saved > short.saved) == grows  # type: ignore[operator]


def test_depths_of_latents_count_every_pass_between_them_and_the_output() -> None:
    """The decoder is above two layers of latents that are applied three times, and these above the encoder."""
    kind: Any = settings_of("models", "perceiver")
    model = kind(d_model=8, n_layers=2, n_heads=2, n_latents=3, n_blocks=3).build(20, 8)
    expected = {
        "head.": 0, "decoder.norm": 0, "processor.norm.": 0, "decoder.layers.0.": 1, "queries.": 2,
        "processor.layers.1.": 2,
        "processor.layers.0.": 3, "encoder.layers.0.": 8, "latents": 9, "embedding.": 9,
    }  # fmt: skip
    for name, depth in depths(model).items():
        assert depth == next(depth for beginning, depth in expected.items() if name.startswith(beginning)), name
