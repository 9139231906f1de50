"""Examples before tokenization; documents are `formats.documents.Document`."""

from typing import NamedTuple

ASSISTANT = "assistant"
"""The role whose messages have a loss."""


class Pair(NamedTuple):
    """where: file and line of the pair or its source; alignment: word alignment, if given.

    further: other references; `target` is the one trained on.
    """

    source: str
    target: str
    where: str
    alignment: str | None = None
    further: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """All references, the trained one first."""
        return self.target, *self.further


class Example(NamedTuple):
    """texts: one or two texts, words, or chat messages; labels: the class, the number, a tag per word, or the role per
    message.

    labels is empty if unknown. where: file and line. further: of a chat, alternative last messages of the assistant.
    n_later: messages after the assistant's last one, which are dropped.
    """

    texts: list[str]
    labels: list[str]
    where: str
    further: tuple[str, ...] = ()
    n_later: int = 0
