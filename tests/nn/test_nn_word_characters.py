"""N-grams of characters within words are those of scikit-learn's `char_wb`, however the tokenizer splits the words."""

from collections import Counter

import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer

from mini_tf.nn.layers.word_characters import WordCharacters

PIECES = (" ", " a", " cat", "s", " ", "sat on", "é", " x", "\tthe ", " ", "")
"""Ids 0 and 9 are special tokens; 10 is a token without a text."""
TEXTS = [[0, 1, 2, 3, 0], [0, 7, 6, 3, 3, 3, 6, 0], [9, 5, 8, 2, 4, 1], [10, 5], [2], [0]]


def batch(texts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, texts))
    ids = torch.tensor([text + [2] * (width - len(text)) for text in texts])  # padding has a text, which must not count
    return ids, torch.arange(width) < torch.tensor([*map(len, texts)])[:, None]


def text_of(ids: list[int]) -> str:
    return "".join(PIECES[id] for id in ids)


@pytest.mark.parametrize(("shortest", "longest"), [(1, 1), (1, 3), (2, 4), (3, 5), (3, 40)])
def test_they_are_those_of_scikit_learn(shortest: int, longest: int) -> None:
    """By their keys, each of which is that of one string."""
    words = WordCharacters(PIECES, shortest, longest)
    characters, _ = words.spell(*batch(TEXTS))
    string_of: dict[int, str] = {}
    found: list[Counter[str]] = [Counter() for _ in TEXTS]
    for n, (keys, inside) in enumerate(words(*batch(TEXTS)), start=shortest):
        for row, first in inside.nonzero().tolist():
            string = "".join(chr(code or ord(" ")) for code in characters[row, first : first + n].tolist())
            assert string_of.setdefault(int(keys[row, first]), string) == string
            found[row][string] += 1
    assert len(set(string_of.values())) == len(string_of)
    for ids, counts in zip(TEXTS, found, strict=True):
        expected: Counter[str] = Counter()
        for word in text_of(ids).split():
            expected.update(
                f" {word} "[i : i + n] for n in range(shortest, longest + 1) for i in range(len(word) + 3 - n)
            )
        expected = Counter({string: count for string, count in expected.items() if string.strip()})
        assert counts == expected
        if shortest > 1 and text_of(ids).strip():  # it counts single spaces too
            vectorizer = CountVectorizer(analyzer="char_wb", ngram_range=(shortest, longest))
            assert counts == Counter(vectorizer.build_analyzer()(text_of(ids)))


def test_a_compiler_finds_the_same_ngrams_in_more_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    words, (ids, is_token) = WordCharacters(PIECES, 1, 4), batch(TEXTS)

    def keys() -> list[list[list[int]]]:
        return [[n_keys[i][inside[i]].tolist() for n_keys, inside in words(ids, is_token)] for i in range(len(ids))]

    expected, (characters, _) = keys(), words.spell(ids, is_token)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert keys() == expected
    assert words.spell(ids, is_token)[0].shape[1] > characters.shape[1]


def test_every_character_has_its_token() -> None:
    ids, is_token = batch(TEXTS)
    characters, tokens = WordCharacters(PIECES, 3, 5).spell(ids, is_token)
    for row, text in enumerate(TEXTS):
        spelled = [(ord(c) if not c.isspace() else 0, at) for at, id in enumerate(text) for c in PIECES[id]]
        rest = [(0, -1)] * (characters.shape[1] - len(spelled) - 1)
        assert list(zip(characters[row].tolist(), tokens[row].tolist(), strict=True)) == [(0, -1), *spelled, *rest]


def test_texts_shorter_than_all_ngrams_have_none() -> None:
    for texts in ([[1]], [[10]], [[10, 10], [4]]):
        found = WordCharacters(PIECES, 8, 9)(*batch(texts))
        assert found
        assert not any(inside.any() for _, inside in found)
