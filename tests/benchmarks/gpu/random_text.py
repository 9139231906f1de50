"""A text of random characters and a tokenizer of them, with a vocabulary of exactly the size of a shape's."""

import unicodedata
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe import sections

BLOCKS = ((0x30, 0x250), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0x20000, 0x2A6E0))
"""Letters that normalization keeps: Latin, and those of Chinese and Korean, since GPT-2's vocabulary is large."""


def letters() -> Iterator[str]:
    for first, end in BLOCKS:
        for letter in map(chr, range(first, end)):
            if letter.isalnum() and unicodedata.is_normalized("NFKC", letter):
                yield letter


def tokenizer_of(vocabulary: int) -> Any:
    """A tokenizer of characters with this many tokens, special ones included."""
    few = Tokenizer.train(sections.Tokenizer(kind="char"), ["ab"])
    n = vocabulary - (few.vocabulary.size - 2)
    tokenizer = Tokenizer.train(sections.Tokenizer(kind="char"), ["".join(islice(letters(), n))])
    if tokenizer.vocabulary.size != vocabulary:
        raise ValueError(f"a tokenizer of {tokenizer.vocabulary.size} tokens in place of {vocabulary}")
    return tokenizer


def write(folder: Path, vocabulary: int, n_tokens: int) -> tuple[Path, Path]:
    """The text and the tokenizer of it, as files of `folder`."""
    text, tokenizer = folder / "random.txt", folder / "tokenizer.json"
    made = tokenizer_of(vocabulary)
    alphabet = np.array([*islice(letters(), vocabulary - len(made.vocabulary.special_ids))])
    text.write_text("".join(np.random.default_rng(0).choice(alphabet, n_tokens)), encoding="utf-8")
    tokenizer.write_text(made.to_json(), encoding="utf-8")
    return text, tokenizer
