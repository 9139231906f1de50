"""unigram: the most probable segmentation of each word under a unigram language model (Kudo 2018, arXiv:1804.10959).

Training starts with all frequent substrings, and in each round drops those whose removal costs least likelihood. Piece
probabilities are fitted by EM over all segmentations of each word (section 3.2). Words are bytes; a piece is a single
byte (all 256 are kept) or whole characters. Unlike the library's trainer, which sums in the order of a random hash,
this one is deterministic.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from tokenizers import Tokenizer, models

from mini_tf.data.tokenization.pieces import BYTE_OF, CHARACTER_OF
from mini_tf.data.tokenizers import SPECIALS, ByteLevelSettings, byte_level_tokenizer

SPECIAL_SCORE = -1e6
"""Log-probability of the special tokens, so that their names in text are never encoded as them."""


class Settings(ByteLevelSettings):
    MODEL = "Unigram"

    def train(self, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
        split = byte_level_tokenizer(models.BPE()).pre_tokenizer
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(word for word, _ in split.pre_tokenize_str(text))
        words = {bytes(BYTE_OF[c] for c in word): count for word, count in counts.items()}
        pieces = train_pieces(words, vocab_size - len(SPECIALS))
        scored = [("".join(CHARACTER_OF[byte] for byte in piece), score) for piece, score in pieces]
        unknown = list(SPECIALS).index("unk")
        return byte_level_tokenizer(
            models.Unigram([*((token, SPECIAL_SCORE) for token in SPECIALS.values()), *scored], unknown, False)
        )


MAX_PIECE_LENGTH = 16
"""Bytes."""
MAX_WORD_LENGTH = 1024
"""Bytes; longer words are split."""
MAX_BYTES = 1 << 19
"""Total bytes of distinct words; the rarest words are dropped. Time and memory are proportional to it."""
SEED_FACTOR = 10
"""Initial pieces per final piece."""
SHRINK = 0.75
"""Share of the pieces kept per round."""
MIN_COUNT = 0.5
"""Smallest expected count of a piece; single bytes have at least this count."""
DECIMALS = 6
"""Decimals of a score; beyond these, processors differ in exp."""


def train_pieces(counts: Mapping[bytes, int], size: int) -> list[tuple[bytes, float]]:
    """At most `size` pieces with log-probabilities: the 256 bytes in order, then the others, most probable first.

    counts: occurrences of each word.
    """
    words, frequency = _most_frequent(counts)
    pieces = [bytes([b]) for b in range(256)] + _seeds(words, frequency, SEED_FACTOR * size)
    lattice = _Lattice(words, pieces)
    alive = np.ones(len(pieces), bool)
    scores = np.full(len(pieces), -np.log(len(pieces)))
    while True:
        for _ in range(2):
            used, alternative = lattice.expected(scores, frequency)
            used[:256] = np.maximum(used[:256], MIN_COUNT)
            scores = np.log(np.maximum(used, 1e-12) / used.sum())
        n = int(alive.sum())
        if n <= size:
            break
        worth = np.where(alive, np.round(used * (scores - alternative), DECIMALS), -np.inf)
        worth[:256] = np.inf
        alive[np.argsort(-worth, kind="stable")[max(size, int(SHRINK * n)) :]] = False
        used[~alive] = 0
        scores = np.log(np.maximum(used, 1e-12) / used.sum())
        lattice.drop(alive)
    scores = np.round(scores, DECIMALS)
    others = [p for p in range(256, len(pieces)) if alive[p] and used[p] >= MIN_COUNT]
    chosen = [*range(256), *sorted(others, key=lambda p: (-scores[p], pieces[p]))]
    return [(pieces[p], float(scores[p])) for p in chosen]


def _most_frequent(counts: Mapping[bytes, int]) -> tuple[list[bytes], np.ndarray]:
    words, n = [], 0
    frequency = []
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        for first in range(0, len(word), MAX_WORD_LENGTH):
            if n >= MAX_BYTES:
                break
            words.append(word[first : first + MAX_WORD_LENGTH])
            frequency.append(count)
            n += len(words[-1])
    return words, np.array(frequency, float)


def _seeds(words: Sequence[bytes], frequency: np.ndarray, n: int) -> list[bytes]:
    """The `n` substrings with the largest length times count, of those that occur at least twice."""
    scored: list[tuple[float, bytes]] = []
    data, weight = b"".join(words), np.repeat(frequency, [len(word) for word in words])
    for length, starts, number in _substrings(words, frequency):
        if length > 1 and len(starts):
            _, first = np.unique(number, return_index=True)
            count = np.bincount(number, weight[starts])
            best = np.argsort(-count, kind="stable")[:n]
            scored += [
                (-length * count[i], data[starts[first[i]] : starts[first[i]] + length]) for i in best if count[i] >= 2
            ]
    return [piece for _, piece in sorted(scored)[:n]]


def _substrings(strings: Sequence[bytes], frequency: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """For each length: the offsets in the joined strings of substrings of that length (one byte, or whole characters),
    and a number for each, equal for equal substrings. Substrings that occur once may be missing.
    """
    data = np.frombuffer(b"".join(strings), np.uint8)
    lengths = np.array([len(string) for string in strings], int)
    weight = np.repeat(frequency, lengths)
    left = np.repeat(lengths.cumsum(), lengths) - np.arange(len(data))
    opens = np.append((data & 0xC0) != 0x80, True)  # a character starts here, or the text ends
    starts, number = np.arange(len(data)), np.zeros(len(data), int)
    for length in range(1, MAX_PIECE_LENGTH + 1):
        fits = left[starts] >= length
        starts = starts[fits]
        _, number = np.unique(number[fits] * 256 + data[starts + length - 1], return_inverse=True)
        whole = opens[starts] & opens[starts + length] if length > 1 else slice(None)
        yield length, starts[whole], np.unique(number[whole], return_inverse=True)[1]
        again = np.bincount(number, weight[starts])[number] >= 2
        starts, number = starts[again], number[again]


class _Lattice:
    """All segmentations of all words, and of each piece into other pieces. Nodes are positions between bytes, arcs are
    pieces.

    Arcs are sorted by the distance of their target from the start of its word, so that each step processes all words at
    once.
    """

    def __init__(self, words: Sequence[bytes], pieces: Sequence[bytes]) -> None:
        """The first 256 `pieces` are the single bytes; only the others are segmented."""
        self.n_words, self.n_pieces = len(words), len(pieces)
        strings = [*words, *pieces[256:]]
        lengths = np.array([len(string) for string in strings], int)
        ends = lengths.cumsum()
        owner = np.repeat(np.arange(len(strings)), lengths)
        opening = np.append(ends - lengths, 0)
        arcs = []
        for length, starts, number in _substrings(strings, np.ones(len(strings))):
            # Indices of the pieces of this length.
            same_length = np.flatnonzero(lengths[self.n_words :] == length) + self.n_words
            piece_of = np.full(number.max(initial=0) + 1, -1)
            if length == 1:
                piece_of[number] = np.frombuffer(b"".join(strings), np.uint8)[starts]
            else:
                piece_of[number[np.searchsorted(starts, opening[same_length])]] = same_length - self.n_words + 256
            piece, string = piece_of[number], owner[starts]
            itself = (string >= self.n_words) & (lengths[string] == length)
            taken = (piece >= 0) & ~itself
            source = (starts + string)[taken]  # each preceding string has one more node than bytes
            distance = starts[taken] - opening[string[taken]] + length
            arcs.append(np.stack([distance, source + length, source, piece[taken]]))
        all_arcs = np.concatenate(arcs, axis=1)
        self._set_arcs(all_arcs[:, np.lexsort((all_arcs[1], all_arcs[0]))])
        self._ends = ends + np.arange(len(strings))

    def _set_arcs(self, arcs: np.ndarray) -> None:
        """arcs (4, n): distance of target from word start, target, source, piece; sorted by the first two."""
        self._arcs = arcs
        level, self._target, self._source, self._piece = arcs
        borders = [*np.flatnonzero(np.diff(level, prepend=-1)), len(level)]
        self._steps = [slice(first, last) for first, last in pairwise(borders)]

    def drop(self, alive: np.ndarray) -> None:
        """Remove the arcs of all pieces that are not `alive`."""
        self._set_arcs(self._arcs[:, alive[self._piece]])

    def expected(self, scores: np.ndarray, frequency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The expected count of each piece over all segmentations, and its log-probability as other pieces."""
        reached, share = np.zeros(self._ends[-1] + 1 if len(self._ends) else 1), np.empty(len(self._piece))
        for step in self._steps:
            x = reached[self._source[step]] + scores[self._piece[step]]
            group = np.diff(self._target[step], prepend=-1) > 0
            first, group = np.flatnonzero(group), np.cumsum(group) - 1
            top = np.maximum.reduceat(x, first)
            x = np.exp(x - top[group])
            total = np.add.reduceat(x, first)
            share[step] = x / total[group]
            reached[self._target[step][first]] = top + np.log(total)
        flow, used = np.zeros(len(reached)), np.empty(len(self._piece))
        flow[self._ends[: self.n_words]] = frequency
        for step in reversed(self._steps):
            used[step] = flow[self._target[step]] * share[step]
            np.add.at(flow, self._source[step], used[step])
        alternative = np.concatenate([np.full(256, -np.inf), reached[self._ends[self.n_words :]]])
        return np.bincount(self._piece, used, minlength=self.n_pieces).astype(float), alternative
