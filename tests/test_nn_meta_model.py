"""A sketch of a model has the real one's names, shapes and types and takes no memory; by it a model that cannot fit is
refused.
"""

from pathlib import Path

import pytest
import torch
from commands import QUIET, TINY, minitf
from test_models import usable
from toys import TINY_CONSTANTS

from mini_tf.distributed.group import ProcessGroup
from mini_tf.nn.weights.meta_model import on_meta_device
from mini_tf.optimizers import adamw
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.run.tensors import specs
from mini_tf.system.errors import RecipeFault
from mini_tf.training.machine import memory
from mini_tf.training.sharding import Sharding

CASES = [
    (model, mixer, positions)
    for model in listing("models")
    for mixer in listing("attention")
    for positions in listing("positions")
    if usable(mixer, positions, model)
    if model != "perceiver"
    or ({"embed"} >= settings_of("positions", positions).APPLIES_TO and not settings_of("attention", mixer).NEEDS_ORDER)  # type: ignore[attr-defined]
]


@pytest.mark.parametrize(("model", "mixer", "positions"), CASES)
def test_a_sketch_has_the_models_own_tensors_and_draws_nothing(model: str, mixer: str, positions: str) -> None:
    settings = settings_of("models", model)(
        d_model=8,
        n_layers=2,
        n_heads=2,
        tied=False,
        ngrams=(50,) if model == "decoder" else (),
        subwords=50 if model == "encoder" else 0,
        attention=({"kind": mixer, **TINY_CONSTANTS.get(mixer, {})},),
        positions={"kind": positions},
    )
    before = torch.get_rng_state()
    sketch = on_meta_device(lambda: settings.build(100, 16))  # type: ignore[attr-defined]
    assert torch.equal(torch.get_rng_state(), before)
    assert all(tensor.is_meta for tensor in sketch.weights().values())
    assert specs(sketch.weights()) == specs(settings.build(100, 16).weights())  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", ["model.d_model=65536", "model.d_ff=1048576 model.d_model=8192 model.n_layers=64"])
def test_R16_a_model_larger_than_memory_is_refused_before_it_is_built(size: str, tmp_path: Path) -> None:
    done = minitf("pretrain", TINY, *QUIET, *size.split(), "-d", tmp_path / "run")
    assert done.exit_code == 3
    assert "need at least" in done.stderr
    assert "GiB are free; a smaller model.d_model" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_share_of_memory_is_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_tf.training.machine.memory.free_bytes", lambda device: 1_000_000)
    fits = minitf("pretrain", TINY, *QUIET, "train.steps=1", "-d", tmp_path / "run")
    assert fits.exit_code == 0, fits.stderr
    monkeypatch.setenv("MINITF_LIMITS", "memory_percent=10")
    refused = minitf("pretrain", TINY, *QUIET, "train.steps=1", "train.seed=1", "-d", tmp_path / "other")
    assert refused.exit_code == 3, refused.stderr


def test_weights_gradients_and_two_moments_must_fit_into_95_percent_of_what_is_free_and_both_are_told_in_gib(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """16 bytes a parameter: 95 x 2**20 of them need 95 x 2**24 bytes, which is 95 % of 100 x 2**24."""
    sketch = torch.nn.Linear(95, 1 << 20, bias=False, device="meta")
    cpu, free = torch.device("cpu"), 100 << 24
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    memory.refuse_too_large(sketch, adamw.Settings(), cpu, Sharding(ProcessGroup()))
    free -= 1
    told = r"model: 99,614,720 parameters need at least 1\.5 GiB with gradients and optimizer state; 1\.6 GiB are free"
    with pytest.raises(RecipeFault, match=told):
        memory.refuse_too_large(sketch, adamw.Settings(), cpu, Sharding(ProcessGroup()))
