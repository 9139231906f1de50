"""Byte-by-byte comparison of two finished runs."""

from pathlib import Path

import safetensors.numpy

from mini_tf.run import manifest

COMPARED = ("metrics.jsonl", "model.safetensors", "optimizer.safetensors")


def differences(one: Path, other: Path) -> dict[str, str | None]:
    """File name -> None if equal, else the line or tensor of the first difference, for the COMPARED files."""
    return {name: _first_difference(_file(one, name), _file(other, name)) for name in COMPARED}


def _file(run: Path, name: str) -> Path:
    checkpoint = f"checkpoints/step-{manifest.read(run).step:08d}"
    return run / checkpoint / name if name == "optimizer.safetensors" else run / name


def _first_difference(one: Path, other: Path) -> str | None:
    first, second = one.read_bytes(), other.read_bytes()
    if first == second:
        return None
    if one.suffix == ".jsonl":
        lines = zip(first.splitlines(), second.splitlines(), strict=False)
        number = next((n for n, (a, b) in enumerate(lines, start=1) if a != b), min(first.count(b"\n"), second.count(b"\n")) + 1)
        return f"line {number}"
    tensors, others = safetensors.numpy.load(first), safetensors.numpy.load(second)
    names = sorted(tensors.keys() | others.keys())
    unequal = (n for n in names if n not in tensors or n not in others or tensors[n].tobytes() != others[n].tobytes())
    return next((f"tensor {name}" for name in unequal), "its header")
