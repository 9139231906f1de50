"""Learning a unigram vocabulary: its sums equal those over every way to cut a word, and it keeps what is needed."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenizers import unigram as unigram
from mini_tf.recipe import sections

SHAKESPEARE = Path(__file__).parents[2] / "../shared/data/tinyshakespeare/input.txt"
BYTES = [bytes([b]) for b in range(256)]


def cuts(word: bytes, pieces: set[bytes]) -> Iterator[tuple[bytes, ...]]:
    """Every way to write a word as pieces."""
    if not word:
        yield ()
    for n in range(1, len(word) + 1):
        if word[:n] in pieces:
            yield from ((word[:n], *rest) for rest in cuts(word[n:], pieces))


def test_expected_uses_and_alternatives_equal_the_sums_over_all_ways_to_cut() -> None:
    words, frequency = [b"abab", b"banana", "née".encode(), b"a"], np.array([3.0, 2.0, 5.0, 1.0])
    pieces = [*BYTES, b"ab", b"an", b"ana", b"ban", b"abab", "né".encode(), "ée".encode()]
    scores = np.log(np.random.default_rng(0).dirichlet(np.ones(len(pieces))))
    used, alternative = unigram._Lattice(words, pieces).expected(scores, frequency)
    number = {piece: id for id, piece in enumerate(pieces)}
    expected = np.zeros(len(pieces))
    for word, count in zip(words, frequency, strict=True):
        ways = list(cuts(word, set(pieces)))
        chance = np.array([math.exp(sum(scores[number[p]] for p in way)) for way in ways])
        for way, share in zip(ways, chance / chance.sum(), strict=True):
            for piece, times in Counter(way).items():
                expected[number[piece]] += count * share * times
    np.testing.assert_allclose(used, expected, rtol=1e-9, atol=1e-12)
    for piece in pieces[256:]:
        others = [sum(scores[number[p]] for p in way) for way in cuts(piece, set(pieces)) if way != (piece,)]
        assert alternative[number[piece]] == pytest.approx(np.logaddexp.reduce(others))


def test_a_vocabulary_has_all_bytes_and_at_most_the_size_that_was_asked_for() -> None:
    counts = Counter(("the cat sat on the mat with the hat " * 20).encode().split(b" "))
    for size in (256, 257, 262, 1000):
        learnt = unigram.train_pieces(counts, size)
        assert [piece for piece, _ in learnt[:256]] == BYTES
        assert len(learnt) <= size
        assert np.all(np.isfinite([score for _, score in learnt]))
    assert {b"the", b"cat", b"mat"} <= {piece for piece, _ in learnt}
    assert len(unigram.train_pieces({}, 300)) == 256


def test_a_piece_is_a_byte_or_whole_characters() -> None:
    learnt = unigram.train_pieces({"漢字漢字".encode(): 50, "éé漢".encode(): 30}, 300)
    longer = [piece.decode() for piece, _ in learnt[256:]]
    assert {"漢", "é"} & set("".join(longer))
    data = "éèéè".encode()
    for length, offsets, _ in unigram._substrings([data], np.array([2])):
        for offset in offsets if length > 1 else ():
            data[offset : offset + length].decode()


def test_it_needs_no_more_tokens_than_the_library_trainer_does() -> None:
    """That one is the algorithm of sentencepiece; it is not used because its result is another in every process."""
    if not SHAKESPEARE.exists():
        pytest.skip("shared/data is not here")
    text = SHAKESPEARE.read_text()[:100_000]
    ours = Tokenizer.train(sections.Tokenizer(kind="unigram", vocab_size=1000), [text])
    library = tokenizers.Tokenizer(models.Unigram())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = list(ours.special_tokens)
    trainer = trainers.UnigramTrainer(
        vocab_size=1000, special_tokens=special, initial_alphabet=alphabet, unk_token="<unk>", show_progress=False
    )
    library.train_from_iterator([text], trainer)
    assert len(ours.encode(text)) <= 1.02 * len(library.encode(text).ids)
    assert ours.vocabulary.size == library.get_vocab_size() == 1000
