"""Parts of a corpus that can be read independently, so that several processes read and encode it together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from mini_tf.parallel.team import ALONE, Team
from mini_tf.system.errors import DataFault

Item = TypeVar("Item", covariant=True)

SIZE = 1 << 20
"""Bytes of the files of a part, at least: batches of examples end with it."""


@dataclass(frozen=True)
class Part(Generic[Item]):
    """read: iterates over the items anew at every call; they are never all in memory. size: bytes of its files."""

    read: Callable[[], Iterator[Item]]
    size: int = 0


def read_all(parts: Sequence[Part[Item]]) -> Iterator[Item]:
    return (item for part in parts for item in part.read())


@dataclass(frozen=True)
class Examples:
    """All examples of data.train or data.val, in parts that begin with the beginning of an example.

    team: the processes that read them together. none: the error if there is no example.
    """

    parts: Sequence[Part[Any]]
    team: Team = ALONE
    none: Callable[[], DataFault] = lambda: DataFault("no examples")

    @classmethod
    def of(cls, read: Callable[[], Iterator[Any]]) -> "Examples":
        """Examples in a single part."""
        return cls((Part(read),))

    def read(self) -> Iterator[Any]:
        """All examples in order; DataFault at the first invalid one, or if there is none."""
        any_read = False
        for example in read_all(self.parts):
            any_read = True
            yield example
        if not any_read:
            raise self.none()

    def map(self, change: Callable[[Iterator[Any]], Iterator[Item]]) -> list[Part[Item]]:
        """The parts, with what `change` makes of the examples of each."""

        def changed(part: Part[Any]) -> Iterator[Item]:
            return change(part.read())

        return [Part(partial(changed, part), part.size) for part in self.parts]

    @property
    def own(self) -> Sequence[Part[Any]]:
        """The parts of this process."""
        return self.team.own(self.parts, lambda part: part.size)
