"""Safetensors files: written deterministically; names, shapes and dtypes are checked before the content is read.

Pickle files can run code and are never opened. The header is also parsed here, since the library accepts duplicate
names, and files are written here, since the library makes a copy of all tensors first. Source of the format:
huggingface.co/docs/safetensors.
"""

import json
import math
import os
import struct
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mini_tf.system import strict_json
from mini_tf.system.errors import RunFault
from mini_tf.system.limits import limits
from mini_tf.system.safe_files import open_plain

_DTYPES = {
    "I64": torch.int64,
    "F64": torch.float64,
    "F32": torch.float32,
    "I32": torch.int32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""The dtypes by name, in the order in which the library writes them: the largest first, so every tensor is aligned."""
LARGEST_WEIGHT = 1e9
"""Above it a norm after two matrices overflows in float32, and returns 0 for every input."""
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class CheckpointTensors(NamedTuple):
    """The tensors of a checkpoint by name. objective: those of the objective's own network, if it has one."""

    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    state: Mapping[str, Tensor]
    objective: Mapping[str, Tensor] = MappingProxyType({})


class TensorSpec(NamedTuple):
    """Shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def on_meta(self) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device="meta")

    def __str__(self) -> str:
        return f"{list(self.shape)} {str(self.dtype).removeprefix('torch.')}"


class ExpectedTensors(NamedTuple):
    """The specs of a checkpoint's tensors by part; None: any.

    unread: tensors of the optimizer that another process needs; they are on the meta device.
    """

    model: Mapping[str, TensorSpec] | None = None
    optimizer: Mapping[str, TensorSpec] | None = None
    objective: Mapping[str, TensorSpec] | None = None
    unread: Collection[str] = ()


def specs(tensors: Mapping[str, Tensor]) -> dict[str, TensorSpec]:
    return {name: TensorSpec(tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


class Serialized:
    """A safetensors file in chunks, the header and then each tensor; `len` is its size in bytes.

    Its bytes are those that `safetensors.torch.save` returns, equal for equal tensors.
    A chunk is the tensor's own memory, or a copy if it is not contiguous or not on the CPU. May be iterated again.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        order = list(_DTYPES.values())
        self._tensors = dict(sorted(tensors.items(), key=lambda item: (order.index(item[1].dtype), item[0])))
        self._header, self._content = _header(self._tensors)

    def __len__(self) -> int:
        return len(self._header) + self._content

    def __iter__(self) -> Iterator[bytes | memoryview]:
        yield self._header
        yield from map(_bytes, self._tensors.values())  # a loop would keep a copy while the next one is made


def _bytes(tensor: Tensor) -> memoryview:
    whole = tensor.detach().cpu().contiguous()
    data: memoryview = (
        whole.as_strided((whole.numel(),), (1,)).view(torch.uint8).numpy().data
    )  # a single number may have another stride
    return data


def _header(tensors: Mapping[str, Tensor]) -> tuple[bytes, int]:
    """The header with its length, padded to a multiple of 8 bytes, and the number of bytes that follow it."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        entries[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, end


def read(
    path: Path, expected: Mapping[str, TensorSpec] | None = None, unread: Collection[str] = ()
) -> dict[str, Tensor]:
    """All tensors of a file; `unread` ones are on the meta device. RunFault, before content is read, if they do not
    match the `expected` specs.
    """
    specs_ = read_specs(path)
    if expected is not None:
        check_specs(expected, specs_, path)
    try:
        with safe_open(path, framework="pt") as file:
            return {
                name: file.get_tensor(name) if name not in unread else spec.on_meta() for name, spec in specs_.items()
            }
    except (SafetensorError, OSError, UnicodeError) as error:
        raise RunFault.located(str(path), f"damaged safetensors file: {error}") from error


def read_specs(path: Path) -> dict[str, TensorSpec]:
    """The specs in the header of a file; RunFault if it is not a safetensors file."""
    try:
        header, content = _read_header(path)
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        specs_ = {name: _spec(entry) for name, entry in entries.items()}
        _check_offsets(specs_, [entry["data_offsets"] for entry in entries.values()], content)
        return specs_
    except OSError as error:
        raise RunFault.located(str(path), f"cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        hint = "pickle files (.pt, .bin, .ckpt) can run code and are never opened"
        reason = f"a tensor has no {error}" if isinstance(error, KeyError) else str(error)
        raise RunFault.located(str(path), f"not a safetensors file: {reason}", hint=hint) from error


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, and the number of bytes that follow it."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise ValueError(f"it has {size} bytes, fewer than the 8 of its header length")
        (length,) = struct.unpack("<Q", file.read(8))
        if length > (maximum := min(size - 8, limits().header_bytes)):
            raise ValueError(f"its header length of {length} bytes exceeds the maximum of {maximum}")
        header = strict_json.read(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    return header, size - 8 - length


def _check_offsets(specs_: Mapping[str, TensorSpec], offsets: list[Any], content: int) -> None:
    """ValueError unless the tensors cover the content without gaps or overlaps."""
    at = 0
    for (begin, end), spec in sorted(zip(map(tuple, offsets), specs_.values(), strict=True), key=lambda pair: pair[0]):
        if begin != at or end - begin != math.prod(spec.shape) * spec.dtype.itemsize:
            raise ValueError(f"a tensor of {spec} cannot occupy bytes {begin} to {end}"[:200])
        at = end
    if at != content:
        raise ValueError(f"its tensors end at byte {at}, its content at byte {content}"[:200])


def _spec(entry: Any) -> TensorSpec:
    if not isinstance(entry, dict):
        raise ValueError("a tensor's entry in its header is not a JSON object")
    if str(entry["dtype"]) not in _DTYPES:
        raise ValueError(f"unknown dtype {str(entry['dtype'])[:40]!r}")
    shape = entry["shape"]
    if not isinstance(shape, list) or len(shape) > 64 or not all(type(n) is int and 0 <= n < 1 << 63 for n in shape):
        raise ValueError(f"invalid shape {str(shape)[:80]}")
    return TensorSpec(tuple(shape), _DTYPES[entry["dtype"]])


def check_specs(expected: Mapping[str, TensorSpec], actual: Mapping[str, TensorSpec], path: Path) -> None:
    """RunFault, listing the first five differences, unless the found tensors match the expected ones exactly."""
    faults = [f"{name} is missing" for name in expected if name not in actual]
    faults += [f"{name[:80]} is not expected" for name in actual if name not in expected]
    faults += [
        f"{name} is {str(actual[name])[:80]}, not {spec}"
        for name, spec in expected.items()
        if name in actual and actual[name] != spec
    ]
    if faults:
        more = f" (and {len(faults) - 5} more)" if len(faults) > 5 else ""
        raise RunFault.located(str(path), f"does not match the model of its recipe: {', '.join(faults[:5])}{more}")


def check_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """RunFault with the name of the first tensor that contains NaN or an infinity."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.is_meta and not bool(torch.isfinite(tensor).all()):
            raise RunFault.located(str(path), f"{name} contains values that are not finite")


def check_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """RunFault if a tensor of a model is not finite, or so large that hidden states overflow."""
    check_finite(weights, path)
    for name, tensor in weights.items():
        if tensor.is_floating_point() and tensor.numel() and (largest := float(tensor.abs().max())) > LARGEST_WEIGHT:
            fault = f"{name} contains values up to {largest:.1g}: hidden states overflow"
            raise RunFault.located(str(path), f"{fault}", hint="choose an earlier checkpoint: --step N")
