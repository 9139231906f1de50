"""What a family declares of files: names and layouts of its tensors, read both ways, and architectures of llama.cpp."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mini_tf.nn.model import Model
from mini_tf.system.errors import RunFault

_LAYER = re.compile(r"\.\d+\.")


class Layout:
    """Names of a module in the files, whose rows are those of ours one after the other; {i} is the layer's number.

    Subclasses arrange them otherwise. `read` and `write` also work on the meta device, for shapes.
    """

    def __init__(self, *theirs: str) -> None:
        self.theirs = theirs

    def read(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        """Our tensor, of the shape of `like`."""
        return parts[0] if len(parts) == 1 else torch.cat(list(parts))

    def write(self, ours: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """The tensors of the files; sizes: rows of the parts of ours."""
        return [ours] if len(self.theirs) == 1 else list(ours.split(list(sizes)))


class Changed(Layout):
    """One module whose tensors are stored changed. read: theirs to ours; write: ours to theirs."""

    def __init__(self, theirs: str, read: Callable[[Tensor], Tensor], write: Callable[[Tensor], Tensor]) -> None:
        super().__init__(theirs)
        self._read, self._write = read, write

    def read(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        return self._read(parts[0])

    def write(self, ours: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        return [self._write(ours)]


def transposed(theirs: str) -> Layout:
    """A matrix is stored (inputs, outputs), as in GPT-2's Conv1D; a vector as it is."""
    return Changed(theirs, lambda stored: stored.t().contiguous(), lambda ours: ours.t().contiguous())


def shifted(theirs: str, n: int) -> Layout:
    """A table whose first `n` rows are not used; they are written as 0."""
    return Changed(
        theirs,
        lambda stored: stored[n:].contiguous(),
        lambda ours: torch.cat([ours.new_zeros(n, *ours.shape[1:]), ours]),
    )


class ScaledParts(Layout):
    """Parts of ours, of which each is its factor times theirs."""

    def __init__(self, theirs: Sequence[str], factors: Sequence[float]) -> None:
        super().__init__(*theirs)
        self._factors = factors

    def read(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        return super().read([part * factor for part, factor in zip(parts, self._factors, strict=True)], like)

    def write(self, ours: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        return [part / factor for part, factor in zip(super().write(ours, sizes), self._factors, strict=True)]


def as_row(theirs: str) -> Layout:
    """A vector (N,) is stored as (1, N)."""
    return Changed(theirs, lambda stored: stored[0], lambda ours: ours[None])


def by_head(theirs: str, n_heads: int) -> Layout:
    """The rows of each head's query, key and value stand together, as in GPT-NeoX."""

    def exchange(rows: Tensor, *sizes: int) -> Tensor:
        parts: Tensor = rows.unflatten(0, (*sizes, -1))
        return parts.transpose(0, 1).flatten(0, 2)

    return Changed(theirs, lambda stored: exchange(stored, n_heads, 3), lambda ours: exchange(ours, 3, n_heads))


class Twice(Layout):
    """The files have it under several names, of which the first one counts."""

    def read(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        return parts[0]

    def write(self, ours: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        return [ours.clone() for _ in self.theirs]


class Zero(Layout):
    """The files have no such tensor: ours is 0, and only a model in which it is 0 can be written."""

    def read(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        return torch.zeros(like.shape)

    def write(self, ours: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        if not ours.is_meta and bool(ours.count_nonzero()):
            raise ValueError("is not 0")
        return []


Names = Mapping[str, Layout]
"""By module of the model, with {i} for the number of a layer, or by the full name of one tensor."""
Layer = Mapping[str, str | tuple[str, ...]]
"""The names of the modules of a layer in the files, by our names; several are the parts of one."""


def within(prefix: str, layer: Layer, theirs: str) -> dict[str, Layout]:
    """The names of the modules of each layer of a stack: {"self_attn.norm": "ln_1"} of the layers "stack" and ".h"."""
    parts = {ours: (names,) if isinstance(names, str) else names for ours, names in layer.items()}
    return {
        f"{prefix}.layers.{{i}}.{ours}": Layout(*(f"{theirs}.{{i}}.{name}" for name in names))
        for ours, names in parts.items()
    }


class Pair(NamedTuple):
    """A tensor of the model, its names in the files, and how it is laid out there. sizes: rows of its parts."""

    ours: str
    theirs: tuple[str, ...]
    layout: Layout
    sizes: tuple[int, ...]


def pairs_of(model: Model, names: Names) -> Iterator[Pair]:
    """All tensors of a model (on the meta device). ValueError for one that the names do not know."""
    for ours, tensor in model.weights().items():
        path, _, suffix = ours.rpartition(".")
        number = _LAYER.search(f"{path}.")
        layer = number[0][1:-1] if number else ""
        pattern = _LAYER.sub(".{i}.", f"{path}.")[:-1]
        whole = names.get(f"{pattern}.{suffix}")
        layout = whole if whole is not None else names.get(pattern)
        if layout is None:
            raise ValueError(ours)
        end = "" if whole is not None else f".{suffix}"
        theirs = tuple(name.replace("{i}", layer) + end for name in layout.theirs)
        sizes = getattr(model.get_submodule(path), "sizes", None) or (len(tensor),)
        yield Pair(ours, theirs, layout, tuple(sizes))


def expected_shapes(model: Model, names: Names) -> dict[str, tuple[int, ...]]:
    """The tensors that files of this model must have, and their shapes."""
    weights = model.weights()
    written = {pair: pair.layout.write(weights[pair.ours], pair.sizes) for pair in pairs_of(model, names)}
    return {
        name: tuple(part.shape)
        for pair, parts in written.items()
        for name, part in zip(pair.theirs, parts, strict=True)
    }


def read_tensors(model: Model, names: Names, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a model, in fp32, from those of the files, whose shapes have been checked."""
    weights = model.weights()
    read = {}
    for pair in pairs_of(model, names):
        parts = [theirs[name].float() for name in pair.theirs]
        read[pair.ours] = pair.layout.read(parts, weights[pair.ours]).to(weights[pair.ours].dtype)
    return read


def write_tensors(model: Model, names: Names, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the files of a model on the meta device; RunFault if the family has no place for one."""
    written: dict[str, Tensor] = {}
    for pair in pairs_of(model, names):
        try:
            written |= zip(pair.theirs, pair.layout.write(weights[pair.ours], pair.sizes), strict=True)
        except ValueError as error:
            raise RunFault(f"{pair.ours} {error}, and this family of models has no such tensor") from error
    return written


class GgufArchitecture(NamedTuple):
    """An architecture by llama.cpp's word, which has one activation and one kind of rotation.

    interleaved: pairs of a rotation are adjacent dimensions, not halves; None: it has no rotation. activations: words
    of config.json that it computes. scaled: it reads factors of frequencies. gate: the feed-forward layer has one;
    without, it computes models with gate = up and ReLU, which is ReLU squared; xielu: by the activation xIELU. causal:
    it continues texts; else its output are vectors or classes of texts. classes: the dense layer with tanh and the
    output layer of its classifiers, by their names in the files.
    Source: llama.cpp, src/models.
    """

    word: str
    interleaved: bool | None
    activations: tuple[str, ...]
    scaled: bool = True
    gate: bool = True
    xielu: bool = False
    causal: bool = True
    classes: tuple[str, str] | None = None
