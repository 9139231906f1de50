"""Word vectors of the token embedding: nearest neighbors and analogies.

The vector of a word of several tokens is the mean of theirs. Similarity is the cosine. Source: Mikolov et al. 2013,
arXiv:1301.3781, section 4: analogies by b - a + c, without the three words.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.drawing import terminal
from mini_tf.drawing.labels import label
from mini_tf.inspection import View
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained


class WordVectors:
    """The vectors of a table (V, D), one per token."""

    def __init__(self, tokenizer: Tokenizer, table: Float[Tensor, "V D"]) -> None:
        self.tokenizer, self.table = tokenizer, table.detach().cpu().double()

    @classmethod
    def of(cls, trained: Trained) -> "WordVectors":
        """Those of the token embedding, of an encoder-decoder the encoder's. UsageFault if there is none."""
        found = next(iter(trained.model.embeddings("source" if trained.model.needs_source else "own").values()), None)
        if found is None:
            raise UsageFault("the model has no token embedding of its own text")
        return cls(trained.source_tokenizer if trained.model.needs_source else trained.tokenizer, found.tokens.weight)

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
    """The tokens nearest to a word."""
    found = vectors.nearest(vectors.vector(word), n, vectors.ids(word))
    return _tokens_view(vectors, {"word": word}, [word], found)


def analogy_view(vectors: WordVectors, words: Sequence[str], n: int) -> View:
    """The tokens nearest to b - a + c. UsageFault unless there are three words."""
    if len(words) != 3:
        raise UsageFault(
            f"--analogy needs three words, got {len(words)}", hint='--analogy "a b c": a is to b as c is to ?'
        )
    a, b, c = map(vectors.vector, words)
    found = vectors.nearest(b - a + c, n, [id for word in words for id in vectors.ids(word)])
    return _tokens_view(vectors, {"analogy": list(words)}, words, found)


def _tokens_view(
    vectors: WordVectors, result: dict[str, Any], words: Sequence[str], found: Sequence[tuple[int, float]]
) -> View:
    pieces = vectors.tokenizer.pieces([id for id, _ in found])
    rows: list[list[str | float | None]] = [
        [label(piece), cosine] for piece, (_, cosine) in zip(pieces, found, strict=True)
    ]
    tokens = [{"id": id, "token": piece, "cosine": cosine} for piece, (id, cosine) in zip(pieces, found, strict=True)]
    notes = [
        f"{word!r} has {len(ids)} tokens, {' '.join(map(repr, vectors.tokenizer.pieces(ids)))}; its vector is their"
        " mean"
        for word in words
        if len(ids := vectors.ids(word)) > 1
    ]
    return View(
        result | {"tokens": tokens, "notes": notes}, [partial(terminal.table, ["token", "cosine"], rows)], notes
    )
