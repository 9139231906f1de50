"""Tensors are written as the safetensors library writes them, but from their own memory."""

import tracemalloc
import weakref
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from mini_tf.run import tensors
from mini_tf.run.disk import Disk, HashedChunks, sha256_of
from mini_tf.run.identity import Identity
from mini_tf.run.location import RunLocation, open_run, start_run
from mini_tf.run.tensors import CheckpointTensors, Serialized

DTYPES = list(tensors._DTYPES.values())
ONE = Identity("one", "train: {}\n", "train: {steps: 2}\n", {"train.steps": 2}, {"train": "aa"}, {"train.steps": 2})


def of_every_kind() -> dict[str, Tensor]:
    """All dtypes as a matrix, a number, an empty tensor and a transposed matrix; the names are not in order."""
    torch.manual_seed(0)
    made = {}
    for dtype in reversed(DTYPES):
        matrix = (torch.randn(3, 5) * 40).to(dtype)
        made |= {
            f"z.{dtype}": matrix,
            f"one.{dtype}": matrix[1, 2].clone(),
            f"none.{dtype}": matrix[:0],
            f"a.{dtype}": matrix.clone().T,
        }
    return made


CASES: dict[str, dict[str, Tensor]] = {
    "every-kind": of_every_kind(),
    "no-tensor": {},
    "a-gradient": {"w": torch.ones(2, requires_grad=True)},
    "broadcast": {"w": torch.ones(1).expand(3, 2), "v": torch.arange(12)[::5]},
    "one-number-with-a-stride": {"w": torch.arange(66).view(2, 33)[1:, 4], "v": torch.arange(66.0).view(2, 33)[:1, 5]},
    "odd-names": {
        name: torch.ones(1) for name in ('quo"te', "back\\slash", "line\n\x01\x7f", "é漢☃\U0001f600", "Z", "a", "")
    },
    **{f"header-{n}": {"n" * n: torch.ones(2, 2)} for n in range(1, 9)},  # every padding
}


@pytest.mark.parametrize("case", CASES)
def test_a_file_has_the_bytes_of_the_safetensors_library(case: str) -> None:
    written = b"".join(Serialized(CASES[case]))
    expected = save(
        {name: tensor.detach().contiguous() for name, tensor in CASES[case].items()}, metadata={"format": "pt"}
    )
    assert written == expected
    assert len(Serialized(CASES[case])) == len(written)
    assert load(written).keys() == CASES[case].keys()


def test_every_chunk_after_the_header_is_the_memory_of_a_tensor() -> None:
    contents = {"a": torch.randn(8, 4), "b": torch.randn(3).bfloat16(), "c": torch.tensor(2.0)}
    _, *chunks = Serialized(contents)
    assert [np.frombuffer(chunk, np.uint8).ctypes.data for chunk in chunks] == [
        contents[name].data_ptr() for name in "acb"
    ]


def test_of_tensors_that_must_be_copied_there_is_one_copy_at_a_time(tmp_path: Path) -> None:
    class Watched:
        """Chunks, each of which must be gone before the next one is made."""

        def __init__(self, chunks: Iterable[bytes | memoryview]) -> None:
            self.chunks, self.last = iter(chunks), lambda: None

        def __iter__(self) -> "Watched":
            return self

        def __next__(self) -> bytes | memoryview:
            assert self.last() is None
            chunk = next(self.chunks)
            if isinstance(chunk, memoryview):
                self.last = weakref.ref(chunk.obj)
            return chunk

    contents = {str(n): torch.randn(40, 30).T for n in range(3)}
    hashed = HashedChunks(Watched(Serialized(contents)))
    Disk().write(tmp_path / "file", hashed)
    assert hashed.sha256 == sha256_of(
        [save({name: tensor.contiguous() for name, tensor in contents.items()}, {"format": "pt"})]
    )


def test_saving_and_publishing_a_checkpoint_make_no_copy_of_its_files(tmp_path: Path) -> None:
    model = {f"{n}.w": torch.randn(1 << 20) for n in range(4)}
    moments = {f"{name}.exp_avg": tensor for name, tensor in model.items()}
    with open_run(RunLocation(tmp_path / "run"), ONE) as run:
        start_run(run, ONE)
        run.resume(pytest.fail)
        tracemalloc.start()  # sees bytes and arrays, not the memory of tensors
        try:
            run.save(1, CheckpointTensors(model, moments, {}, {"head": model["0.w"]}), {"tokens": 1}, score=1.0)
            run.publish()
            run.export_weights = lambda weights: {name: weight + 1 for name, weight in weights.items()}
            run.save(2, CheckpointTensors(model, moments, {}), {"tokens": 2}, score=0.5)
            run.publish()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < sum(tensor.nbytes for tensor in model.values()) / 3
        assert run.checkpoints.find_verified(1).sha256["objective.safetensors"] == sha256_of(
            [save({"head": model["0.w"]}, {"format": "pt"})]
        )
