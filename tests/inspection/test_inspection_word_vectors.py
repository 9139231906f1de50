"""Word vectors of the token embedding: neighbors, analogies and correlations against brute force and scipy."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import minitf, refused
from figures import rows_of
from scipy.stats import norm, spearmanr

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.drawing.labels import label
from mini_tf.inspection._word_vectors import (
    WordPair,
    WordVectors,
    analogy_view,
    interval,
    neighbors_view,
    read_pairs,
    similarity_view,
    spearman,
)
from mini_tf.recipe.sections import Tokenizer as TokenizerSettings
from mini_tf.system.errors import DataFault, UsageFault

TEXT = "the king and the queen saw a man and a woman near the old house of the king. " * 20


@pytest.fixture(scope="module", params=["wordpiece", "bpe"])
def vectors(request: pytest.FixtureRequest) -> WordVectors:
    tokenizer = Tokenizer.train(TokenizerSettings(kind=request.param, vocab_size=330), [TEXT])
    generator = torch.Generator().manual_seed(0)
    return WordVectors(tokenizer, torch.randn(tokenizer.vocabulary.size, 7, generator=generator))


def cosine(x: torch.Tensor, y: torch.Tensor) -> float:
    return sum((x * y).tolist()) / math.sqrt(sum((x * x).tolist()) * sum((y * y).tolist()))


def by_hand(vectors: WordVectors, target: torch.Tensor, without: set[int]) -> list[int]:
    """All allowed tokens by falling similarity."""
    allowed = set(range(len(vectors.table))) - vectors.tokenizer.vocabulary.special_ids - without
    return sorted(allowed, key=lambda id: -cosine(vectors.table[id], target))


def token_of(vectors: WordVectors, word: str) -> int:
    (id,) = vectors.ids(word)
    return id


def test_neighbors_are_the_tokens_of_the_highest_cosine(vectors: WordVectors) -> None:
    king = token_of(vectors, "king")
    found = neighbors_view(vectors, "king", 5).result["tokens"]
    assert [one["id"] for one in found] == by_hand(vectors, vectors.table[king], {king})[:5]
    for one in found:
        assert one["cosine"] == pytest.approx(cosine(vectors.table[one["id"]], vectors.table[king]))
    rows = rows_of(neighbors_view(vectors, "king", 5).pictures[0])
    assert rows == [["token", "cosine"], *([label(one["token"]), f"{one['cosine']:.3f}"] for one in found)]


def test_an_analogy_is_b_minus_a_plus_c_without_its_words(vectors: WordVectors) -> None:
    a, b, c = (token_of(vectors, word) for word in ("man", "woman", "king"))
    expected = by_hand(vectors, vectors.table[b] - vectors.table[a] + vectors.table[c], {a, b, c})
    found = analogy_view(vectors, ["man", "woman", "king"], 4).result["tokens"]
    assert [one["id"] for one in found] == expected[:4]


def test_a_planted_analogy_is_found(vectors: WordVectors) -> None:
    table = vectors.table.clone()
    a, b, c, d = (token_of(vectors, word) for word in ("man", "woman", "king", "queen"))
    table[d] = table[b] - table[a] + table[c]
    found = analogy_view(WordVectors(vectors.tokenizer, table), ["man", "woman", "king"], 1).result["tokens"]
    assert found[0]["id"] == d


def test_a_word_of_several_tokens_is_their_mean_and_is_noted(vectors: WordVectors) -> None:
    ids = vectors.ids("kingold")
    assert len(ids) > 1
    torch.testing.assert_close(vectors.vector("kingold"), torch.stack([vectors.table[id] for id in ids]).mean(dim=0))
    view = neighbors_view(vectors, "kingold", len(vectors.table))
    assert not {one["id"] for one in view.result["tokens"]} & {*ids, *vectors.tokenizer.vocabulary.special_ids}
    assert view.notes[0].startswith(f"'kingold' has {len(ids)} tokens, ")
    assert neighbors_view(vectors, "king", 1).notes == []


def test_a_word_is_tokenized_as_within_a_text(vectors: WordVectors) -> None:
    text = list(map(int, vectors.tokenizer.encode("the king")))
    assert text == [*map(int, vectors.tokenizer.encode("the")), *vectors.ids("king")]


def test_spearman_is_scipy_s_also_with_ties() -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        x, y = draw.integers(0, 6, 30), draw.normal(size=30).round(1)
        assert spearman(x, y) == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    assert math.isnan(spearman(np.ones(5), np.arange(5)))


@pytest.mark.parametrize(("r", "n"), [(0.0, 10), (0.5, 4), (0.5, 100), (-0.9, 40), (0.3, 999)])
def test_the_interval_is_that_of_bonett_and_wright(r: float, n: int) -> None:
    """arctanh(r) is normal with variance (1 + r^2 / 2) / (n - 3), Pearson's 1 / (n - 3)."""
    z = np.arctanh(r) + np.array([norm.ppf(0.025), norm.ppf(0.975)]) * np.sqrt((1 + r**2 / 2) / (n - 3))
    assert interval(r, n) == pytest.approx(np.tanh(z), abs=1e-4)


WORDS = ("king", "queen", "man", "woman", "house", "old")
PAIRS = [WordPair((one, other), float(n)) for n, (one, other) in enumerate(itertools.pairwise(WORDS))]


def test_similarity_is_the_rank_correlation_of_cosines_with_scores(vectors: WordVectors) -> None:
    pairs = [*PAIRS, WordPair(("kingold", "man"), 2.5)]
    result = similarity_view(vectors, pairs, "file").result
    cosines = [cosine(vectors.vector(one), vectors.vector(other)) for (one, other), _ in pairs]
    scores = [pair.score for pair in pairs]
    assert result["one_token"]["spearman"] == pytest.approx(spearmanr(cosines[:-1], scores[:-1]).statistic)
    assert result["known"]["spearman"] == pytest.approx(spearmanr(cosines, scores).statistic)
    assert (result["one_token"]["pairs"], result["known"]["coverage"]) == (len(PAIRS), 1.0)
    for found, n in ((result["one_token"], len(PAIRS)), (result["known"], len(pairs))):
        assert found["interval"] == interval(found["spearman"], n)
    shown = similarity_view(vectors, pairs, "file").pictures[0](colored=False, width=90).plain.splitlines()
    low, high = result["known"]["interval"]
    numbers = (
        f"{len(pairs)} 1.000 {result['known']['spearman']:.3f} {low:.3f} to {high:.3f} {result['known']['random']:.3f}"
    )
    assert shown[2].split() == ["all", "known", "words", *numbers.split()]


def test_pairs_with_unknown_words_are_not_covered() -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(kind="wordpiece", vocab_size=330), [TEXT])
    vectors = WordVectors(
        tokenizer, torch.randn(tokenizer.vocabulary.size, 7, generator=torch.Generator().manual_seed(0))
    )
    result = similarity_view(vectors, [*PAIRS, WordPair(("king", "ÿ"), 2.0)], "file").result
    assert result["known"]["pairs"] == len(PAIRS)
    assert result["known"]["coverage"] == len(PAIRS) / (len(PAIRS) + 1)
    with pytest.raises(UsageFault, match="the tokenizer does not know the word 'ÿ'"):
        vectors.vector("ÿ")


def test_the_control_of_many_pairs_is_no_correlation() -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(kind="byte"), [])
    vectors = WordVectors(tokenizer, torch.eye(tokenizer.vocabulary.size))
    letters = "abcdefghijklmnop"
    pairs = [
        WordPair((one, other), float((7 * n) % 31))
        for n, (one, other) in enumerate((a, b) for a in letters for b in letters if a < b)
    ]
    assert abs(similarity_view(vectors, pairs, "file").result["one_token"]["random"]) < 0.08


@pytest.mark.parametrize(
    "lines",
    [
        ["# a comment", "old\tnew\t1.58", "smart\tintelligent\t9.2", "", "hard\teasy\t1", "big\tlarge\t8"],
        [
            "word1\tword2\tPOS\tSimLex999\tconc(w1)",
            "old\tnew\tA\t1.58\t2.72",
            "smart\tintelligent\tA\t9.2\t1",
            "hard\teasy\tA\t1\t1",
            "big\tlarge\tA\t8\t2",
        ],
        ["Word 1,Word 2,Human (mean)", "old,new,1.58", "smart,intelligent,9.2", "hard,easy,1", "big,large,8"],
    ],
    ids=["of this project", "SimLex-999", "WordSim-353"],
)
def test_files_of_pairs_are_read(lines: list[str]) -> None:
    assert read_pairs(lines, "file") == [
        WordPair(("old", "new"), 1.58),
        WordPair(("smart", "intelligent"), 9.2),
        WordPair(("hard", "easy"), 1.0),
        WordPair(("big", "large"), 8.0),
    ]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["a\tb\t1", "a\tb"], "file:2: a line must be two words and a number, divided by tabs or commas"),
        (["a\tb\t1", "a\tb\tnan"], "file:2: a line must be two words and a number, divided by tabs or commas"),
        (["a\tb\t1"], "file: at least 4 pairs of words are needed, got 1"),
        ([], "file: at least 4 pairs of words are needed, got 0"),
    ],
)
def test_other_files_are_refused(lines: list[str], told: str) -> None:
    with pytest.raises(DataFault) as refusal:
        read_pairs(lines, "file")
    assert refusal.value.message == told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "WORD is missing; or give --analogy 'A B C' or --similarity FILE"),
        (["--neighbours", "3"], "--neighbors needs WORD"),
        (["king", "--analogy", "a b c"], "--analogy takes no WORD"),
        (
            ["--analogy", "a b c", "--similarity", "x"],
            "--analogy and --similarity exclude each other; give one of them",
        ),
        (
            ["king", "a king", "--neighbors", "3"],
            "--neighbors compares token embeddings without sentences; remove the sentences",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(arguments: list[str], told: str, classifier: Path) -> None:
    refused(minitf("inspect", "word", classifier, *arguments), told, exit_code=2)
