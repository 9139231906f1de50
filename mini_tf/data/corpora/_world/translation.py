"""Translations of sentences of the synthetic world, with gold alignments: another order, and forms that agree.

The order of the target, in words of the source:

    this old dog that the girls follow often sees a boat near the river .
    girls follow dog old this often river near boat a sees

The verb comes last, behind its object; a relative clause comes before its noun, adjectives and determiners behind it, a
preposition behind its noun. Nouns have endings of number and case, verbs of tense and number, which the past of the
source does not show. `the`, `that` and the full stop have no translation; every other word has one, and each sense of a
homonym has its own.
"""

from collections.abc import Iterator
from typing import NamedTuple

from mini_tf.data.corpora._world.syntax import ADVERBS, PREPOSITIONS, Node

DETERMINERS = {"a": "uwo", "some": "uwo", "this": "siwa", "these": "siwa"}
ITSELF = ""
ORDER = ("nsubj", "advmod", "prep", "relcl", "obj", "pobj", ITSELF, "amod", "det", "punct")
"""Order of a word and its dependents, by their relations."""
CASES = {"nsubj": "", "obj": "ko", "pobj": "mi"}
"""Endings of nouns, behind that of the plural."""
PLURAL, PAST = "ra", "ta"
"""The plural of nouns, determiners and verbs; the past of verbs, before it."""


class Translation(NamedTuple):
    """links: (index of a source word, index of its target word), sorted."""

    source: list[str]
    target: list[str]
    links: list[tuple[int, int]]

    def row(self) -> dict[str, str]:
        """The alignment is in the Pharaoh format: 0-2 1-0."""
        links = " ".join(f"{i}-{j}" for i, j in self.links)
        return {"source": " ".join(self.source), "target": " ".join(self.target), "alignment": links}


def translate(root: Node) -> Translation:
    """A sentence without pronouns."""
    words = list(root.words())
    index = {id(word): n for n, word in enumerate(words)}
    target = [(index[id(word)], form) for word, form in _translated(root)]
    links = sorted((i, j) for j, (i, _) in enumerate(target))
    return Translation([word.form for word in words], [form for _, form in target], links)


def _translated(root: Node) -> Iterator[tuple[Node, str]]:
    """The words of the source that have a translation, in the order of the target."""
    parts = [root, *root.before, *root.after]
    for part in sorted(parts, key=lambda one: ORDER.index(ITSELF if one is root else one.relation)):
        if part is not root:
            yield from _translated(part)
        elif form := _form(root):
            yield root, form


def _form(word: Node) -> str:
    plural = PLURAL if word.plural else ""
    if word.tag == "det":
        return DETERMINERS[word.form] + plural if word.form in DETERMINERS else ""
    if word.lexeme is None:
        return PREPOSITIONS.get(word.form) or ADVERBS.get(word.form, "")
    ending = CASES[word.relation] if word.tag == "noun" else ""
    past = PAST if word.tag == "verb" and word.form == word.lexeme.stem + "ed" else ""
    return word.lexeme.target + past + plural + ending
