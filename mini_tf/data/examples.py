"""What one row of data is before it is ids; a document is a `formats.documents.Document`."""

from typing import NamedTuple

ASSISTANT = "assistant"
"""Whose turns of a conversation are learnt."""


class Pair(NamedTuple):
    """`where` names the line that the pair, or its source, stands in; alignment: links between words, where the data have some.

    further: other targets that are as good; `target` is the one that is learnt.
    """

    source: str
    target: str
    where: str
    alignment: str | None = None
    further: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """All targets, the learnt one first."""
        return self.target, *self.further


class Example(NamedTuple):
    """texts: one or two texts, words, or turns; answers: the class, the number, a tag for each word, or who says each turn.

    answers is empty where they are not known. where: the line it stands in. further: of a conversation, what the assistant could say
    last as well. n_later: turns behind the assistant's last one, which are left out since nothing is learnt there.
    """

    texts: list[str]
    labels: list[str]
    where: str
    further: tuple[str, ...] = ()
    n_later: int = 0
