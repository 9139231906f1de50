"""A made-up corpus whose entropy is known exactly: how far a model is from perfect can be measured, not guessed.

Sentences such as "the old dogs near the quiet river bark softly with their bone and today those old dogs rest ." come
from a probabilistic automaton. Verbs, pronouns, possessions and the repeated subject depend on words that stand up to a
dozen places back, which no trigram can see. The automaton is deterministic: a sentence has one way through it, so its
probability is a product and the entropy a sum over all ways.

A token here is a word between blanks; the closing "." is one, what separates sentences is not. A sentence is a document. Its entropy
is 17.2829 nats, and a token's 0.9342.
"""

from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from mini_tf.recipe.corpora import CorpusSettings

N_SENTENCES = 30_000

NOUNS = {
    "dog": ("bark", "bone"),
    "cat": ("purr", "mouse"),
    "bird": ("sing", "nest"),
    "horse": ("gallop", "saddle"),
    "cook": ("bake", "spoon"),
    "king": ("rule", "crown"),
    "baker": ("knead", "bread"),
    "child": ("play", "ball"),
    "farmer": ("plough", "barn"),
    "sailor": ("row", "boat"),
}
"""Each noun has a verb and a possession of its own."""
PLURALS = {"child": "children"}
OPENINGS = {False: ("the", "one", "this", "every"), True: ("the", "some", "these", "many")}
ADJECTIVES = ("old", "young", "small", "happy", "clever", "tired", "brave", "quiet")
PREPOSITIONS = ("near", "behind", "beside", "beyond", "under")
COLOURS = ("green", "dark", "long", "cold", "wide", "empty")
PLACES = ("river", "house", "hill", "garden", "bridge", "tower", "road", "wood")
ADVERBS = ("softly", "often", "loudly", "slowly", "gladly", "again")
TIMES = ("today", "later", "tonight", "now")
ENDINGS = ("rest", "sleep", "wait")


class Place(NamedTuple):
    """Where a sentence is: the step that comes next, and what later words will depend on."""

    step: str = "opening"
    noun: str = ""
    plural: bool = False
    adjective: str = ""


Choice = tuple[float, str, Place]
"""Its probability, the word, and where that leads; the words at a place all differ."""


def _falling(words: tuple[str, ...]) -> list[tuple[float, str]]:
    """Probabilities that fall as 1 / (rank + 2)."""
    weights = [1 / (rank + 3) for rank in range(len(words))]
    return [(weight / sum(weights), word) for weight, word in zip(weights, words, strict=True)]


def _form(noun: str, plural: bool) -> str:
    return PLURALS.get(noun, noun + "s") if plural else noun


def _verb(verb: str, plural: bool) -> str:
    return verb if plural else verb + "s"


DRAWN = {
    "where": (PREPOSITIONS, "the"),
    "colour": (COLOURS, "place"),
    "how": (ADVERBS, "with"),
    "when": (TIMES, "same"),
}
"""Steps whose word depends on nothing: what it is drawn from, and the next step."""
FIXED = {"the": "colour", "with": "whose", "and": "when", ".": "end"}
"""Steps that say themselves, and the next step."""


@cache
def choices(here: Place) -> tuple[Choice, ...]:
    """What may come next, or nothing at the end of a sentence."""
    step, noun, plural, adjective = here
    if step == "end":
        return ()
    if step in DRAWN:
        words, following = DRAWN[step]
        return tuple((p, word, here._replace(step=following)) for p, word in _falling(words))
    if step in FIXED:
        return ((1.0, step, here._replace(step=FIXED[step])),)
    if not noun:
        return _subject(here)
    if step == "place":
        return tuple((p / 2, _form(word, many), here._replace(step="verb")) for many in (False, True) for p, word in _falling(PLACES))
    if step == "ending":
        return tuple((p, _verb(word, plural), here._replace(step=".")) for p, word in _falling(ENDINGS))
    verb, possession = NOUNS[noun]
    options, following = {
        "verb": (((0.8, _verb(verb, plural)), (0.2, _verb("look", plural))), "how"),
        "whose": (((1.0, "their" if plural else "its"),), "possession"),
        "possession": (((0.9, possession), (0.1, "friend")), "and"),
        "same": (((1.0, "those" if plural else "that"),), "same adjective" if adjective else "same noun"),
        "same adjective": (((1.0, adjective),), "same noun"),
        "same noun": (((1.0, _form(noun, plural)),), "ending"),
    }[step]
    return tuple((p, word, here._replace(step=following)) for p, word in options)


def _subject(here: Place) -> tuple[Choice, ...]:
    """The opening, an adjective three times out of four, and the noun; after "the" the noun alone tells the number."""
    if here.step == "opening":
        known = [(p / 2, w, Place("adjective", plural=many)) for many in (False, True) for p, w in _falling(OPENINGS[many]) if w != "the"]
        return (*known, (1 - sum(p for p, _, _ in known), "the", Place("adjective?")))
    if here.step.startswith("adjective"):
        at_noun = here._replace(step=here.step.replace("adjective", "noun"))
        described = [(0.75 * p, word, at_noun._replace(adjective=word)) for p, word in _falling(ADJECTIVES)]
        return (*described, *((0.25 * p, word, there) for p, word, there in choices(at_noun)))
    numbers = (False, True) if here.step == "noun?" else (here.plural,)
    return tuple(
        (p / len(numbers), _form(noun, many), here._replace(step="where", noun=noun, plural=many))
        for many in numbers
        for p, noun in _falling(tuple(NOUNS))
    )


def documents(seed: int, n: int) -> Iterator[str]:
    """`n` sentences, the same for the same seed on every machine."""
    draws = np.random.Generator(np.random.Philox(key=seed))
    for _ in range(n):
        words, here = [], Place()
        while options := choices(here):
            ends = list(accumulate(p for p, _, _ in options))
            _, word, here = options[bisect_right(ends, draws.random() * ends[-1])]
            words.append(word)
        yield " ".join(words)


class Settings(CorpusSettings):
    VERSION, FORMAT = "1", "txt"

    def rows(self) -> Iterator[dict[str, str]]:
        return ({"text": sentence} for sentence in documents(0, N_SENTENCES))
