"""The built-in corpus `grammar`: artificial sentences of exactly known entropy, the lower bound of a model's loss.

Sentences such as "the old dogs near the quiet river bark softly with their bone and today those old dogs rest ." come
from a probabilistic automaton. Verbs, pronouns, possessions and the repeated subject depend on words up to a dozen
positions earlier, beyond the reach of a trigram model. The automaton is deterministic: each sentence has a single path,
so its probability is a product and the entropy a sum over all paths.

Each sentence is a document. Its tokens are its words and the closing "."; there is no separator. The entropy is
17.2829 nats per sentence and 0.9342 nats per token.
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
"""The verb and the possession of each noun."""
PLURALS = {"child": "children"}
OPENINGS = {False: ("the", "one", "this", "every"), True: ("the", "some", "these", "many")}
ADJECTIVES = ("old", "young", "small", "happy", "clever", "tired", "brave", "quiet")
PREPOSITIONS = ("near", "behind", "beside", "beyond", "under")
COLOURS = ("green", "dark", "long", "cold", "wide", "empty")
PLACES = ("river", "house", "hill", "garden", "bridge", "tower", "road", "wood")
ADVERBS = ("softly", "often", "loudly", "slowly", "gladly", "again")
TIMES = ("today", "later", "tonight", "now")
ENDINGS = ("rest", "sleep", "wait")


class State(NamedTuple):
    """State of the automaton: the next step, and what later words depend on."""

    step: str = "opening"
    noun: str = ""
    plural: bool = False
    adjective: str = ""


Transition = tuple[float, str, State]
"""Probability, word and next state; the words of a state are distinct."""


def _with_probabilities(words: tuple[str, ...]) -> list[tuple[float, str]]:
    """Probabilities proportional to 1 / (rank + 2), with ranks from 1."""
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
"""Steps whose word is independent of the state: the words, and the next step."""
FIXED = {"the": "colour", "with": "whose", "and": "when", ".": "end"}
"""Steps whose word is their own name, and the next step."""


@cache
def transitions(state: State) -> tuple[Transition, ...]:
    """The transitions from a state; empty at the end of a sentence."""
    step, noun, plural, adjective = state
    if step == "end":
        return ()
    if step in DRAWN:
        words, following = DRAWN[step]
        return tuple((p, word, state._replace(step=following)) for p, word in _with_probabilities(words))
    if step in FIXED:
        return ((1.0, step, state._replace(step=FIXED[step])),)
    if not noun:
        return _subject(state)
    if step == "place":
        return tuple(
            (p / 2, _form(word, many), state._replace(step="verb"))
            for many in (False, True)
            for p, word in _with_probabilities(PLACES)
        )
    if step == "ending":
        return tuple((p, _verb(word, plural), state._replace(step=".")) for p, word in _with_probabilities(ENDINGS))
    verb, possession = NOUNS[noun]
    options, following = {
        "verb": (((0.8, _verb(verb, plural)), (0.2, _verb("look", plural))), "how"),
        "whose": (((1.0, "their" if plural else "its"),), "possession"),
        "possession": (((0.9, possession), (0.1, "friend")), "and"),
        "same": (((1.0, "those" if plural else "that"),), "same adjective" if adjective else "same noun"),
        "same adjective": (((1.0, adjective),), "same noun"),
        "same noun": (((1.0, _form(noun, plural)),), "ending"),
    }[step]
    return tuple((p, word, state._replace(step=following)) for p, word in options)


def _subject(state: State) -> tuple[Transition, ...]:
    """The opening, an adjective (probability 0.75), and the noun, which alone decides the number after "the"."""
    if state.step == "opening":
        known = [
            (p / 2, w, State("adjective", plural=many))
            for many in (False, True)
            for p, w in _with_probabilities(OPENINGS[many])
            if w != "the"
        ]
        return (*known, (1 - sum(p for p, _, _ in known), "the", State("adjective?")))
    if state.step.startswith("adjective"):
        at_noun = state._replace(step=state.step.replace("adjective", "noun"))
        described = [(0.75 * p, word, at_noun._replace(adjective=word)) for p, word in _with_probabilities(ADJECTIVES)]
        return (*described, *((0.25 * p, word, following) for p, word, following in transitions(at_noun)))
    numbers = (False, True) if state.step == "noun?" else (state.plural,)
    return tuple(
        (p / len(numbers), _form(noun, many), state._replace(step="where", noun=noun, plural=many))
        for many in numbers
        for p, noun in _with_probabilities(tuple(NOUNS))
    )


def documents(seed: int, n: int) -> Iterator[str]:
    """`n` sentences; a seed gives the same ones on every machine."""
    draws = np.random.Generator(np.random.Philox(key=seed))
    for _ in range(n):
        words, state = [], State()
        while options := transitions(state):
            ends = list(accumulate(p for p, _, _ in options))
            _, word, state = options[bisect_right(ends, draws.random() * ends[-1])]
            words.append(word)
        yield " ".join(words)


class Settings(CorpusSettings):
    VERSION, FORMAT = "1", "txt"

    def rows(self) -> Iterator[dict[str, str]]:
        return ({"text": sentence} for sentence in documents(0, N_SENTENCES))
