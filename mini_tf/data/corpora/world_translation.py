"""The built-in corpus `world-translation`: sentences of the corpus `world`, translated, with gold word alignments.

The target has another order, endings of case, and another word for each sense of a homonym (below).
"""

from collections.abc import Iterator
from typing import NamedTuple

from mini_tf.data.corpora._grammar_documents import ADVERBS, PREPOSITIONS, SyntaxNode, sentences
from mini_tf.data.corpora._lexicon import WorldSettings


class Settings(WorldSettings):
    VERSION, COLUMNS = "1", ("source", "target", "alignment")

    def rows(self) -> Iterator[dict[str, str]]:
        made = map(translate, sentences(self.lexicon, self.zipf, self.seed))
        return (pair.row() for pair in self.different(made, lambda pair: " ".join(pair.source), "n_lexemes"))


DETERMINERS = {"a": "uwo", "some": "uwo", "this": "siwa", "these": "siwa"}
ITSELF = ""
ORDER = ("nsubj", "advmod", "prep", "relcl", "obj", "pobj", ITSELF, "amod", "det", "punct")
"""Order of a word and its dependents, by their relations."""
CASES = {"nsubj": "", "obj": "ko", "pobj": "mi"}
"""Endings of nouns, behind that of the plural."""
PLURAL, PAST = "ra", "ta"
"""The plural of nouns, determiners and verbs; the past of verbs, before it."""


class WorldTranslation(NamedTuple):
    """links: (index of a source word, index of its target word), sorted."""

    source: list[str]
    target: list[str]
    links: list[tuple[int, int]]

    def row(self) -> dict[str, str]:
        """The alignment is in the Pharaoh format: 0-2 1-0."""
        links = " ".join(f"{i}-{j}" for i, j in self.links)
        return {"source": " ".join(self.source), "target": " ".join(self.target), "alignment": links}


def translate(root: SyntaxNode) -> WorldTranslation:
    """A sentence without pronouns."""
    words = list(root.words())
    index = {id(word): n for n, word in enumerate(words)}
    target = [(index[id(word)], form) for word, form in _translated(root)]
    links = sorted((i, j) for j, (i, _) in enumerate(target))
    return WorldTranslation([word.form for word in words], [form for _, form in target], links)


def _translated(root: SyntaxNode) -> Iterator[tuple[SyntaxNode, str]]:
    """The words of the source that have a translation, in the order of the target."""
    parts = [root, *root.before, *root.after]
    for part in sorted(parts, key=lambda part_: ORDER.index(ITSELF if part_ is root else part_.relation)):
        if part is not root:
            yield from _translated(part)
        elif form := _form(root):
            yield root, form


def _form(word: SyntaxNode) -> str:
    plural = PLURAL if word.plural else ""
    if word.tag == "det":
        return DETERMINERS[word.form] + plural if word.form in DETERMINERS else ""
    if word.lexeme is None:
        return PREPOSITIONS.get(word.form) or ADVERBS.get(word.form, "")
    ending = CASES[word.relation] if word.tag == "noun" else ""
    past = PAST if word.tag == "verb" and word.form == word.lexeme.stem + "ed" else ""
    return word.lexeme.target + past + plural + ending
