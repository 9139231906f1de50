"""The exact entropy of the built-in grammar, by its automaton: how far a model is from perfect."""

import math
from functools import cache

from mini_tf.data.corpora import grammar


def log_probability(document: str) -> float:
    """The exact natural logarithm of a sentence's probability; -inf for what the grammar never says."""
    total, here = 0.0, grammar.State()
    for word in document.split(" "):
        found = next(((p, there) for p, choice, there in grammar.transitions(here) if choice == word), None)
        if found is None:
            return -math.inf
        total += math.log(found[0])
        here = found[1]
    return total if not grammar.transitions(here) else -math.inf


@cache
def _expected(here: grammar.State) -> tuple[float, float]:
    """The entropy in nats of all that may follow a place, and how many words that is on average."""
    entropy = length = 0.0
    for p, _, there in grammar.transitions(here):
        rest, words = _expected(there)
        entropy += p * (rest - math.log(p))
        length += p * (1 + words)
    return entropy, length


def entropy_per_document() -> float:
    """Nats of a sentence: what -log_probability is on average."""
    return _expected(grammar.State())[0]


def entropy_per_token() -> float:
    """Nats of a word, "." included: the entropy of a sentence over its mean number of words."""
    entropy, length = _expected(grammar.State())
    return entropy / length
