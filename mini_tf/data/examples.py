"""Examples before tokenization. An example of the dataset `text` is a `formats.documents.Document`."""

from typing import NamedTuple

ASSISTANT = "assistant"
"""The role whose chat messages are targets."""


class Pair(NamedTuple):
    """A source and its target.

    where: file and line of the pair, or of its source. alignment: the gold word alignment, if the data have one.
    alternatives: further references; training uses `target` only.
    """

    source: str
    target: str
    where: str
    alignment: str | None = None
    alternatives: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """All reference targets; the first is the training target."""
        return self.target, *self.alternatives


class Example(NamedTuple):
    """One or two texts, the words of a sentence, or the messages of a chat, with their labels.

    labels: the class, the number, one tag per word, or the role of each message; empty if unknown. where: file and
    line. alternatives: other references for the last message of the assistant. n_dropped: messages after the last one
    of the assistant, which are dropped because they contain no target.
    """

    texts: list[str]
    labels: list[str]
    where: str
    alternatives: tuple[str, ...] = ()
    n_dropped: int = 0
