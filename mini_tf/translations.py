"""Held-out sources translated by the model, and how near that comes to the targets that people wrote."""

import itertools
from collections.abc import Callable, Iterator, Sequence

from mini_tf import scores
from mini_tf.generation.translating import Translator
from mini_tf.recipe import sections
from mini_tf.text.pair_store import raw_pairs
from mini_tf.text.pairs import Pair, columns_of, find_pairs
from mini_tf.text.split import Side

CHUNK = 256
"""Sources that are translated between two looks at whether to stop."""


def pairs_of(data: sections.Data, other: object, side: Side) -> Iterator[Pair]:
    """The pairs of a side of a recipe's own data as they were written; of `other` data, given as data.val is, all."""
    return raw_pairs(data, side) if other is None else find_pairs(other, "--data").read(columns_of(data))


def translate(translator: Translator, pairs: Sequence[Pair], each_chunk: Callable[[], None] = lambda: None) -> list[str]:
    """The best translation of each source. each_chunk is called before each chunk; what it raises ends the work."""
    found: list[str] = []
    for first in range(0, len(pairs), CHUNK):
        each_chunk()
        sources = [pair.source for pair in pairs[first : first + CHUNK]]
        found += [best[0].text for best in translator.translate(sources)]
    return found


def judge(translations: Sequence[str], pairs: Sequence[Pair]) -> dict[str, float]:
    """bleu and chrf (0 to 100) and exact_match (0 to 1) of translations of these pairs."""
    return scores.corpus_scores(translations, [pair.target for pair in pairs])


def first_of(pairs: Iterator[Pair], n: int | None) -> list[Pair]:
    """The first `n` pairs; None = all."""
    return list(itertools.islice(pairs, n))
