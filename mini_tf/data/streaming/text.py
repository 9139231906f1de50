"""The tokens of any part of a corpus that is streamed, and an estimate of how many it has."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mini_tf.data.streaming.sample import HeldOut, Shards
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import compact


class TokenizedPart(NamedTuple):
    """ids (n,): each document after its separator; the next part, or the same from its beginning, may follow.

    starts: index of the first token of each document, and 0.
    """

    ids: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True, eq=False)
class StreamedText:
    """sampled: bytes of the sample that has sampled_tokens tokens, from which the corpus is estimated."""

    shards: Shards
    tokenizer: Tokenizer
    held_out: HeldOut
    sampled: int
    sampled_tokens: int

    @property
    def n_tokens(self) -> int:
        """Tokens of the corpus, estimated."""
        return max(1, self.shards.length * self.sampled_tokens // max(1, self.sampled))

    def read(self, begin: int, end: int) -> TokenizedPart:
        """The training documents that begin at a place in [begin, end). DataFault as `Shards.read`."""
        vocabulary = self.tokenizer.vocabulary
        documents = list(self.held_out.remove(self.shards.read(begin, end)))
        parts, starts, n = [compact(np.zeros(0, np.int64), vocabulary)], [0], 0
        separator = np.array([vocabulary.separator])
        for document, ids in zip(documents, self.tokenizer.encode_batch([one.text for one in documents]), strict=True):
            if document.opens:
                starts.append(n)
                ids = np.concatenate([separator, ids])
            parts.append(compact(ids, vocabulary))
            n += len(ids)
        return TokenizedPart(np.concatenate(parts), np.unique(starts))
