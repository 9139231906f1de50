"""How much of a text was copied, against a search for every run of eight words in the texts themselves."""

import re
from collections.abc import Sequence

import numpy as np
import pytest

from mini_tf.data.store import Encoded, Store, Tokenizers, in_memory
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation import copying
from mini_tf.generation.copying import copied_share
from mini_tf.recipe import sections


def stored(tokenizer: Tokenizer, texts: Sequence[str]) -> Store:
    return in_memory([Encoded(np.array(tokenizer.encode(text))) for text in texts], Tokenizers(tokenizer, tokenizer))


def brute_force(text: str, corpus: Sequence[str]) -> float:
    words = [*re.finditer(r"\w+", text)]
    copied = {
        n + k
        for n in range(len(words) - 7)
        if any(map(re.compile(rf"\b{re.escape(text[words[n].start() : words[n + 7].end()])}\b").search, corpus))
        for k in range(8)
    }
    return len(copied) / len(words) if words else 0.0


def sentences(seed: int, n_words: int) -> str:
    random = np.random.default_rng(seed)
    words, between = ["it", "was", "the", "ocean", "x1", "colour"], [" "] * 7 + [", ", ". "]
    return "".join(words[random.integers(6)] + between[random.integers(9)] for _ in range(n_words)).strip(", .") + "."


@pytest.mark.parametrize("kind", ["char", "bpe", "byte"])
def test_the_share_of_copied_words_is_that_of_a_search_in_the_texts(kind: str) -> None:
    corpus = [sentences(seed, 60) for seed in range(40)]
    tokenizer = Tokenizer.train(sections.Tokenizer(kind=kind, vocab_size=300), corpus)  # type: ignore[arg-type]
    store, shares = stored(tokenizer, corpus), set()
    for seed in range(12):
        random = np.random.default_rng(seed)
        source, first = corpus[random.integers(40)].split(" "), random.integers(20)
        sample = " ".join([sentences(100 + seed, 9), *source[first : first + random.integers(5, 25)], "and", "so"])
        shares.add(share := copied_share(sample, store, tokenizer))
        assert share == brute_force(sample, corpus)
    assert len(shares) > 5


def test_what_is_copied_begins_and_ends_with_whole_words_of_one_document() -> None:
    corpus = ["one two three four five six seven eight nine ten", "eleven twelve"]
    tokenizer = Tokenizer.train(sections.Tokenizer(kind="char"), [*corpus, "Tnw, "])
    store = stored(tokenizer, corpus)
    shares = {
        "two three four five six seven eight nine!": 1.0,
        "new new two three four five six seven eight nine": 0.8,
        "two three four five six seven eight": 0.0,
        "wo three four five six seven eight nine": 0.0,
        "two three, four five six seven eight nine": 0.0,
        "four five six seven eight nine ten eleven": 0.0,
        "four five six seven eight nine teneleven": 0.0,
        "": 0.0,
    }
    assert {text: copied_share(text, store, tokenizer) for text in shares} == shares


def around(text: str, position: int) -> str:
    """The whole words of 100 characters around a position."""
    return text[max(0, position - 50) : position + 50].partition(" ")[2].rpartition(" ")[0]


def test_copied_text_is_found_across_borders_and_up_to_a_number_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    text, other = (" ".join(f"{letter}{n}" for n in range(3_300)) for letter in "ab")
    tokenizer = Tokenizer.train(sections.Tokenizer(kind="char"), ["ab 0123456789"])
    store = stored(tokenizer, (text, other))

    def copied(sample: str) -> float:
        return copied_share(sample, store, tokenizer)

    monkeypatch.setattr(copying, "_BLOCK", 8_192)
    monkeypatch.setattr(copying, "_CHUNK", 8_192)
    assert [copied(around(text, position)) for position in (60, 8_192, 16_384, len(text) - 60)] == [1.0] * 4
    assert copied(around(other, 8_192)) == 1.0
    assert copied(text[7_500:8_750].partition(" ")[2].rpartition(" ")[0]) == 1.0  # in two chunks
    monkeypatch.setattr(copying, "MAX_TOKENS", 8_750)
    assert [copied(around(text, position)) for position in (8_650, 8_850)] == [1.0, 0.0]
    assert copied(around(other, 60)) == 0.0
    monkeypatch.setattr(copying, "MAX_TOKENS", len(text) + 1_250)
    assert [copied(around(other, position)) for position in (1_150, 1_350)] == [1.0, 0.0]
