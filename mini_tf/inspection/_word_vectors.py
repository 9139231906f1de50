"""Word vectors of the token embedding: nearest neighbors, analogies, and correlation with human similarity.

The vector of a word of several tokens is the mean of theirs. Similarity is the cosine. Source: Mikolov et al. 2013,
arXiv:1301.3781, section 4: analogies by b - a + c, without the three words; Hill et al. 2015, "SimLex-999"; the
interval of a correlation: Bonett and Wright 2000, "Sample size requirements for estimating Pearson, Kendall and
Spearman correlations".
"""

import math
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.drawing import terminal
from mini_tf.drawing.labels import label
from mini_tf.inspection import View
from mini_tf.system.errors import DataFault, UsageFault
from mini_tf.trained.opening import Trained


class WordVectors:
    """The vectors of a table (V, D), one per token."""

    def __init__(self, tokenizer: Tokenizer, table: Float[Tensor, "V D"]) -> None:
        self.tokenizer, self.table = tokenizer, table.detach().cpu().double()

    @classmethod
    def of(cls, trained: Trained) -> "WordVectors":
        """Those of the token embedding, of an encoder-decoder the encoder's. UsageFault if there is none."""
        is_source = trained.model.needs_source
        embedding = next(iter(trained.model.embeddings("source" if is_source else "input").values()), None)
        if embedding is None:
            raise UsageFault("the model has no token embedding of its own text")
        return cls(trained.source_tokenizer if is_source else trained.tokenizer, embedding.tokens.weight)

    def ids(self, word: str) -> list[int]:
        """The tokens of a word within a text; none if one of them is unknown."""
        space = " " if self.tokenizer.has_space_prefixed_tokens else ""
        ids = list(map(int, self.tokenizer.encode(space + word)))
        return [] if self.tokenizer.vocabulary.unk in ids else ids

    def vector(self, word: str) -> Float[Tensor, " D"]:
        """UsageFault if the tokenizer does not know the word."""
        ids = self.ids(word)
        if not ids:
            raise UsageFault(f"the tokenizer does not know the word {word!r}")
        return self.table[ids].mean(dim=0)

    def nearest(self, vector: Float[Tensor, " D"], n: int, without: Collection[int]) -> list[tuple[int, float]]:
        """The `n` tokens of the highest cosine similarity to `vector`, without special ones and those of `without`."""
        cosines = F.normalize(self.table, dim=1) @ F.normalize(vector, dim=0)
        cosines[sorted({*without, *self.tokenizer.vocabulary.special_ids})] = -torch.inf
        best = cosines.topk(min(n, int(cosines.isfinite().sum())))
        return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def neighbors_view(vectors: WordVectors, word: str, n: int) -> View:
    neighbors = vectors.nearest(vectors.vector(word), n, vectors.ids(word))
    return _tokens_view(vectors, {"word": word}, [word], neighbors)


def analogy_view(vectors: WordVectors, words: Sequence[str], n: int) -> View:
    """The tokens nearest to b - a + c. UsageFault unless there are three words."""
    if len(words) != 3:
        hint = '--analogy "a b c": a is to b as c is to ?'
        raise UsageFault(f"--analogy needs three words, got {len(words)}", hint=hint)
    a, b, c = map(vectors.vector, words)
    neighbors = vectors.nearest(b - a + c, n, [id for word in words for id in vectors.ids(word)])
    return _tokens_view(vectors, {"analogy": list(words)}, words, neighbors)


def _tokens_view(
    vectors: WordVectors, result: dict[str, Any], words: Sequence[str], neighbors: Sequence[tuple[int, float]]
) -> View:
    ids, cosines = zip(*neighbors, strict=True) if neighbors else ((), ())
    pieces = vectors.tokenizer.pieces([*ids])
    rows = [[label(piece), cosine] for piece, cosine in zip(pieces, cosines, strict=True)]
    columns = zip(ids, pieces, cosines, strict=True)
    tokens = [{"id": id, "token": piece, "cosine": cosine} for id, piece, cosine in columns]
    notes = []
    for word in words:
        if len(parts := vectors.tokenizer.pieces(vectors.ids(word))) > 1:
            notes.append(f"{word!r} has {len(parts)} tokens, {' '.join(map(repr, parts))}; its vector is their mean")
    pictures = [partial(terminal.table, ["token", "cosine"], rows)]
    return View(result | {"tokens": tokens, "notes": notes}, pictures, notes)


LINE = "two words and a number, divided by tabs or commas"
FEWEST_PAIRS = 4
"""Minimum number of pairs for a correlation and its interval."""
RANDOM_DRAWS = 20
"""Numbers of tables of random vectors, the control."""


class WordPair(NamedTuple):
    """Two words, and the similarity that people gave them."""

    words: tuple[str, str]
    score: float


def read_pairs(lines: Sequence[str], name: str) -> list[WordPair]:
    """Pairs of words with a number, from lines `word TAB word TAB ... number ...` or with commas between the cells.

    The first number counts. Empty lines, lines that begin with # and a header are skipped. DataFault for other lines.
    """
    pairs = []
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in line.split("\t" if "\t" in line else ",")]
        if not line.strip() or line.startswith("#"):
            continue
        scores = [score for cell in cells[2:] if (score := _number(cell)) is not None]
        if scores and cells[0] and cells[1]:
            pairs.append(WordPair((cells[0], cells[1]), scores[0]))
        elif pairs:
            where = f"{name}:{number}"
            raise DataFault(f"{where}: a line must be {LINE}", where=(where,))
    if len(pairs) < FEWEST_PAIRS:
        message = f"{name}: at least {FEWEST_PAIRS} pairs of words are needed, got {len(pairs)}"
        raise DataFault(message, hint=f"a line is {LINE}", where=(name,))
    return pairs


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def similarity_view(vectors: WordVectors, pairs: Sequence[WordPair], name: str) -> View:
    """Spearman's correlation of cosine similarities with the scores of people: for words of one token, and for all."""
    known = [pair for pair in pairs if all(vectors.ids(word) for word in pair.words)]
    whole = [pair for pair in known if all(len(vectors.ids(word)) == 1 for word in pair.words)]
    results = {"one_token": _correlate(vectors, whole, len(pairs)), "known": _correlate(vectors, known, len(pairs))}
    names = ("words of one token", "all known words")
    rows = [
        [
            title,
            f"{result['pairs']:,}",
            result["coverage"],
            result["spearman"],
            _interval(result["interval"]),
            result["random"],
        ]
        for title, result in zip(names, results.values(), strict=True)
    ]
    columns = ["pairs of", "pairs", "coverage", "spearman", "95% interval", "random vectors"]
    random = f"random vectors: mean of {RANDOM_DRAWS} random initializations"
    legend = f"{name}: coverage is the share of its {len(pairs):,} pairs; {random}."
    pictures = [partial(terminal.table, columns, rows), partial(terminal.sentence, legend)]
    return View({"file": name, "pairs": len(pairs), **results}, pictures)


def _interval(bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else f"{bounds[0]:.3f} to {bounds[1]:.3f}"


def _correlate(vectors: WordVectors, pairs: Sequence[WordPair], n_all: int) -> dict[str, Any]:
    """Correlation, its 95 % interval and that of random vectors; None for too few pairs."""
    size = {"pairs": len(pairs), "coverage": len(pairs) / n_all}
    if len(pairs) < FEWEST_PAIRS:
        return {**size, "spearman": None, "interval": None, "random": None}
    scores = np.array([pair.score for pair in pairs])
    tokens = [[vectors.ids(word) for word in pair.words] for pair in pairs]
    r = spearman(_cosines(vectors.table, tokens), scores)
    # An embedding is initialized with normal numbers, whose scale does not change a cosine.
    generator = torch.Generator().manual_seed(0)
    tables = (torch.randn(vectors.table.shape, generator=generator) for _ in range(RANDOM_DRAWS))
    controls = [spearman(_cosines(table, tokens), scores) for table in tables]
    return {**size, "spearman": r, "interval": interval(r, len(pairs)), "random": float(np.mean(controls))}


def _cosines(table: Tensor, tokens: Sequence[Sequence[Sequence[int]]]) -> np.ndarray:
    first, second = (torch.stack([table[pair[side]].mean(dim=0) for pair in tokens]) for side in (0, 1))
    return F.cosine_similarity(first, second, dim=1).numpy()


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rank correlation; ties have their mean rank. NaN if x or y is constant."""

    def ranks(values: np.ndarray) -> np.ndarray:
        _, number, counts = np.unique(values, return_inverse=True, return_counts=True)
        mean_ranks: np.ndarray = np.cumsum(counts) - (counts - 1) / 2
        return mean_ranks[number]

    with np.errstate(all="ignore"):
        return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def interval(r: float, n: int) -> tuple[float, float]:
    """The 95 % interval of Spearman's correlation r of n pairs, after Bonett and Wright."""
    z, width = math.atanh(min(max(r, -1 + 1e-12), 1 - 1e-12)), 1.96 * math.sqrt((1 + r * r / 2) / (n - 3))
    return math.tanh(z - width), math.tanh(z + width)
