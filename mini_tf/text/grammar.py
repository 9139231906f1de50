"""A made-up corpus whose entropy is known exactly: how far a model is from perfect can be measured, not guessed.

Sentences such as "the old dogs near the quiet river bark softly with their bone and today those old dogs rest ." come
from a probabilistic automaton. Verbs, pronouns, possessions and the repeated subject depend on words that stand up to a
dozen places back, which no trigram can see. The automaton is deterministic: a sentence has one way through it, so its
probability is a product and the entropy a sum over all ways.

A token here is a word between blanks; the closing "." is one, what separates sentences is not. A sentence is a document.
"""

import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

N_SENTENCES = 30_000
VERSION = 1
"""To be raised when the grammar changes: it is part of the cached file's name."""

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
OPENINGS = {False: ("the", "a", "this", "every"), True: ("the", "some", "these", "many")}
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


@cache
def choices(here: Place) -> tuple[Choice, ...]:
    """What may come next, or nothing at the end of a sentence."""
    step, noun, plural, _ = here
    verb, possession = NOUNS.get(noun, ("", ""))
    after = here._replace
    if step == "opening":
        both = [(p / 2, word, n) for n in (False, True) for p, word in _falling(OPENINGS[n])]
        merged = {word: sum(p for p, other, _ in both if other == word) for _, word, _ in both}
        # "the" leaves the number open, all other openings tell it.
        return tuple((p, word, after(step="adjective" if word != "the" else "adjective?", plural=word in OPENINGS[True])) for word, p in merged.items())
    if step.startswith("adjective"):
        next_step = step.replace("adjective", "noun")
        described = [(0.75 * p, word, after(step=next_step, adjective=word)) for p, word in _falling(ADJECTIVES)]
        return (*described, *((0.25 * p, word, next) for p, word, next in choices(after(step=next_step))))
    if step.startswith("noun"):
        numbers = ((0.5, False), (0.5, True)) if step == "noun?" else ((1.0, plural),)
        return tuple((p * q, _form(n, many), after(step="where", noun=n, plural=many)) for q, many in numbers for p, n in _falling(tuple(NOUNS)))
    if step == "where":
        return tuple((p, word, after(step="the place")) for p, word in _falling(PREPOSITIONS))
    if step == "the place":
        return ((1.0, "the", after(step="colour")),)
    if step == "colour":
        return tuple((p, word, after(step="place")) for p, word in _falling(COLOURS))
    if step == "place":
        return tuple((p / 2, _form(word, many), after(step="verb")) for many in (False, True) for p, word in _falling(PLACES))
    if step == "verb":
        return ((0.8, _verb(verb, plural), after(step="how")), (0.2, _verb("look", plural), after(step="how")))
    if step == "how":
        return tuple((p, word, after(step="with")) for p, word in _falling(ADVERBS))
    if step == "with":
        return ((1.0, "with", after(step="whose")),)
    if step == "whose":
        return ((1.0, "their" if plural else "its", after(step="possession")),)
    if step == "possession":
        return ((0.9, possession, after(step="and")), (0.1, "friend", after(step="and")))
    if step == "and":
        return ((1.0, "and", after(step="when")),)
    if step == "when":
        return tuple((p, word, after(step="same")) for p, word in _falling(TIMES))
    if step == "same":
        return ((1.0, "those" if plural else "that", after(step="same adjective" if here.adjective else "same noun")),)
    if step == "same adjective":
        return ((1.0, here.adjective, after(step="same noun")),)
    if step == "same noun":
        return ((1.0, _form(noun, plural), after(step="ending")),)
    if step == "ending":
        return tuple((p, _verb(word, plural), after(step="stop")) for p, word in _falling(ENDINGS))
    if step == "stop":
        return ((1.0, ".", after(step="end")),)
    return ()


def documents(seed: int, n: int) -> Iterator[str]:
    """`n` sentences, the same for the same seed on every machine."""
    draws = np.random.Generator(np.random.Philox(key=seed))
    for _ in range(n):
        words, here = [], Place()
        while options := choices(here):
            draw = float(draws.random())
            for p, word, there in options:
                draw -= p
                if draw < 0:
                    break
            words.append(word)
            here = there
        yield " ".join(words)


def log_probability(document: str) -> float:
    """The exact natural logarithm of a sentence's probability; -inf for what the grammar never says."""
    total, here = 0.0, Place()
    for word in document.split(" "):
        found = next(((p, there) for p, choice, there in choices(here) if choice == word), None)
        if found is None:
            return -math.inf
        total += math.log(found[0])
        here = found[1]
    return total if not choices(here) else -math.inf


@cache
def _expected(here: Place) -> tuple[float, float]:
    """The entropy in nats of all that may follow a place, and how many words that is on average."""
    entropy = length = 0.0
    for p, _, there in choices(here):
        rest, words = _expected(there)
        entropy += p * (rest - math.log(p))
        length += p * (1 + words)
    return entropy, length


def entropy_per_document() -> float:
    """Nats of a sentence: what -log_probability is on average."""
    return _expected(Place())[0]


def entropy_per_token() -> float:
    """Nats of a word, "." included: the entropy of a sentence over its mean number of words."""
    entropy, length = _expected(Place())
    return entropy / length


def corpus(folder: Path) -> Path:
    """The built-in corpus `grammar` as a text file in `folder`, one sentence a document."""
    path = folder / f"grammar-{VERSION}.txt"
    if not path.exists():
        draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        draft.write_text("\n\n".join(documents(0, N_SENTENCES)) + "\n", encoding="utf-8")
        os.replace(draft, path)
    return path
