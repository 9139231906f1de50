"""A sketch of a model has the real one's names, shapes and types and takes no memory; by it a model that cannot fit is
refused.
"""

import re
from pathlib import Path

import pytest
import torch
from commands import QUIET, TINY, minitf
from test_models import pairs_of
from torch import nn
from toys import TINY_CONSTANTS

from mini_tf.nn.weights import on_meta_device
from mini_tf.optimizers import adamw
from mini_tf.parallel.full_sharding import SHARDINGS, sharding_of
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.sharding import Sharding
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.run.tensors import specs
from mini_tf.system.errors import RecipeFault
from mini_tf.system.processes import ProcessRank
from mini_tf.training.machine import memory

CASES = [
    *(("decoder", mixer, positions) for mixer, positions in pairs_of() if mixer != "toy"),
    *((model, "softmax", "learned") for model in listing("models") if model != "decoder"),
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


def fits(
    free: float, model: nn.Module, word: str, process: ProcessRank, device: str, monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Whether a model is not refused where the device has so many free bytes."""
    monkeypatch.setenv("MINITF_LIMITS", "memory_percent=100")
    monkeypatch.setattr(memory, "free_bytes", lambda device: int(free))
    sharding = sharding_of(word, ProcessGroup(process))
    try:
        memory.refuse_too_large(model, adamw.Settings(), torch.device(device), sharding)
    except RecipeFault:
        return False
    return True


def assert_needed(
    expected: float, model: nn.Module, word: str, process: ProcessRank, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fits from this number of free bytes on."""
    assert not fits(expected - 1, model, word, process, device, monkeypatch)
    assert fits(expected, model, word, process, device, monkeypatch)


@pytest.mark.parametrize("word", SHARDINGS)
def test_processes_of_one_machine_share_its_memory_but_have_a_gpu_each(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(64, 4096, bias=False, device="meta")
    bytes_per_weight = {"none": 16, "optimizer": 4 + 4 + 8 / 4, "full": 16 / 4 + 4 + 4}[
        word
    ]  # without blocks all is gathered
    for device, processes in (("cpu", 2), ("cuda", 1)):
        expected = processes * bytes_per_weight * 2**18
        assert_needed(expected, model, word, ProcessRank(1, 4, 0, 2), device, monkeypatch)


@pytest.mark.parametrize("trained", ["all", "no-blocks", "nothing"])
@pytest.mark.parametrize("vocabulary", [10, 5000])
def test_a_process_of_full_has_room_for_its_share_and_for_what_is_whole_while_it_computes(
    trained: str, vocabulary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Embeddings and head of 5,000 words have larger gradients than a block with its gradient; those of 10 do not."""
    settings = settings_of("models", "encoder_decoder")(d_model=16, n_layers=3, n_heads=2, tied=False)
    model = on_meta_device(lambda: settings.build(vocabulary, 16))  # type: ignore[attr-defined]
    sizes: dict[str, int] = {}
    for name, p in model.named_parameters():
        block = re.match(r"(\w+\.layers\.\d+)\.", name)
        sizes[block[1] if block else "others"] = sizes.get(block[1] if block else "others", 0) + p.numel()
        p.requires_grad_(trained == "all" or (trained == "no-blocks" and not block))
    assert len(sizes) == 7
    others, largest = sizes.pop("others"), max(sizes.values())
    assert largest > min(sizes.values())  # a block of the decoder also has cross-attention
    trainable = {"all": others + sum(sizes.values()), "no-blocks": others, "nothing": 0}[trained]
    share = (4 * (others + sum(sizes.values())) + 12 * trainable) / 2
    gathered = 4 * others + max(4 * others * (trained != "nothing"), 4 * largest + 4 * largest * (trained == "all"))
    assert_needed(share + gathered, model, "full", ProcessRank(0, 2, 0, 1), "cuda", monkeypatch)


def test_a_machine_has_room_for_the_whole_models_that_its_processes_make_before_they_divide_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = on_meta_device(lambda: settings_of("models", "decoder")(d_model=16, n_layers=20, n_heads=2).build(10, 16))  # type: ignore[attr-defined]
    whole = 4 * sum(p.numel() for p in model.parameters())
    assert_needed(16 * whole, model, "full", ProcessRank(0, 16, 0, 16), "cpu", monkeypatch)
    assert fits(whole - 1, model, "full", ProcessRank(0, 16, 0, 16), "cuda", monkeypatch)


def test_a_model_too_large_for_one_of_the_processes_is_refused_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    class Group(ProcessGroup):
        def all_gather(self, value: int) -> list[int]:
            return [value, 3 << 28]

    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 40)
    told = (
        r"model: 99,614,720 parameters need at least 1\.5 GiB with gradients and optimizer state in each of 2"
        r" processes; "
        r"0\.8 GiB are free for each"
    )
    with pytest.raises(RecipeFault, match=told):
        memory.refuse_too_large(
            nn.Linear(95, 1 << 20, bias=False, device="meta"),
            adamw.Settings(),
            torch.device("cpu"),
            Sharding(Group(ProcessRank(0, 2, 0, 1))),
        )
