"""tokenizer.extend: new tokens behind the old ids, for text in which they occur, with embeddings of their pieces."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from commands import DATA, QUIET, content, minitf, refused, trained
from safetensors.torch import load_file
from tokenizers import decoders, models, pre_tokenizers, trainers

from mini_tf.data.tokenization.extension import extend, pieces_of_new
from mini_tf.data.tokenization.tokenizer import Tokenizer

OLD = ["the old king saw a small fox in the deep wood", "the fox went home to sleep"] * 3
NEW = ["the transformer attends to tokens", "a transformer reads tokens, and tokens attend", "attention to </s> tokens"]


def trained_on(texts: list[str], size: int = 300) -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    )
    inner.add_special_tokens(["</s>", "<pad>", "[MASK]"])
    return inner


def copied(inner: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    copy = tokenizers.Tokenizer.from_str(inner.to_str())
    copy.encode_special_tokens = True
    return copy


def brute_force(inner: tokenizers.Tokenizer, texts: list[str], n: int) -> list[tuple[str, str]]:
    """Every pair is counted anew before each merge."""
    words = [
        [token for token, at in zip(encoding.tokens, encoding.word_ids, strict=True) if at == word]
        for encoding in inner.encode_batch(texts, add_special_tokens=False)
        for word in sorted(set(encoding.word_ids))
    ]
    ids, merges = inner.get_vocab(with_added_tokens=True), list[tuple[str, str]]()
    for _ in range(n):
        counts = Counter(pair for word in words for pair in pairwise(word) if "".join(pair) not in ids)
        best = min(counts, key=lambda pair: (-counts[pair], ids[pair[0]], ids[pair[1]]))
        merges.append(best)
        ids["".join(best)] = len(ids)
        for word in words:
            at = 0
            while at + 1 < len(word):
                if (word[at], word[at + 1]) == best:
                    word[at : at + 2] = ["".join(best)]
                at += 1
    return merges


def test_merges_go_on_as_if_every_pair_were_counted_anew() -> None:
    old = copied(trained_on(OLD))
    new = extend(copied(old), 12, NEW)
    merges = json.loads(new.to_str())["model"]["merges"]
    n_old = len(json.loads(old.to_str())["model"]["merges"])
    assert [tuple(merge) for merge in merges[n_old:]] == brute_force(old, NEW, 12)


def test_old_ids_stay_and_text_without_new_tokens_is_encoded_as_before() -> None:
    """Wherever the ids differ, they are the old ones with some joined; special tokens in a text are text."""
    old = copied(trained_on(OLD))
    size = old.get_vocab_size()
    new = Tokenizer(extend(copied(old), 10, NEW))
    before = Tokenizer(copied(old))
    assert new.vocabulary.size == size + 10
    assert before.special_tokens == new.special_tokens
    assert before.vocabulary.special_ids == new.vocabulary.special_ids
    pieces = pieces_of_new(before, new)
    assert pieces is not None
    assert sorted(pieces) == [*range(size, size + 10)]
    texts = [*OLD, *NEW, "tokenstokens </s>[MASK] naïve 日本\n\t x", "transformers"]
    changed = 0
    for text in texts:
        ids, old_ids = new.encode(text).tolist(), before.encode(text).tolist()
        assert [part for id in ids for part in pieces.get(id, [id])] == old_ids
        assert (ids == old_ids) == (max(ids) < size)
        assert new.decode(ids) == text
        changed += ids != old_ids
    assert 3 <= changed < len(texts)
    assert all(new.encode(text).tolist() == before.encode(text).tolist() for text in OLD)
    assert pieces_of_new(new, before) is None
    assert pieces_of_new(before, before) == {}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("extension")
    (folder / "new.txt").write_text("\n\n".join(f"{text} {n}" for n in range(8) for text in NEW))
    small = ("model={kind: decoder, d_model: 16, n_layers: 1, n_heads: 2, tied: false}", "train.context=16")
    old = trained(folder / "old", "tokenizer={kind: bpe, vocab_size: 300}", *small, "train.steps=2")
    given = (f"data.train={folder}/new.txt", f"model.init_from={old}", "tokenizer.extend=20", "train.context=16")
    new = trained(folder / "new", *given, "train.steps=1", "optimizer.lr=1e-12")
    return old, new


def test_new_rows_are_the_mean_of_their_pieces(runs: tuple[Path, Path]) -> None:
    old, new = (Tokenizer.load(run) for run in runs)
    before, after = (load_file(run / "model.safetensors") for run in runs)
    pieces = pieces_of_new(old, new)
    assert pieces is not None
    assert len(pieces) == 20
    n_tables = 0
    for name, tensor in before.items():
        torch.testing.assert_close(after[name][: len(tensor)], tensor, atol=1e-6, rtol=1e-6)
        if len(after[name]) > len(tensor):
            n_tables += 1
            for id, parts in pieces.items():
                torch.testing.assert_close(after[name][id], tensor[parts].mean(0), atol=1e-6, rtol=1e-6)
    assert n_tables == 2, "embeddings and output layer"
    ids = np.concatenate(new.encode_batch(NEW))
    assert (ids >= old.vocabulary.size).any()


def test_the_same_command_finds_the_run_without_the_old_one(runs: tuple[Path, Path]) -> None:
    old, new = runs
    before = content(new)
    away = old.rename(old.with_name("away"))
    try:
        done = minitf("pretrain", new, "-d", new, *QUIET)
    finally:
        away.rename(old)
    assert done.exit_code == 0, done.stderr
    assert content(new).keys() == before.keys()
    assert Tokenizer.load(new).vocabulary.size == Tokenizer.load(old).vocabulary.size + 20


@pytest.mark.parametrize(
    ("overrides", "told", "exit_code"),
    [
        (("tokenizer={kind: bpe, vocab_size: 300, extend: 5}",), "extend: is for a loaded tokenizer", 3),
        (("tokenizer={path: %s, extend: 5}",), "the tokenizer has no merges of byte pairs, which could go on", 4),
    ],
)
def test_a_tokenizer_that_cannot_be_extended_is_refused(
    overrides: tuple[str, ...], told: str, exit_code: int, tmp_path: Path
) -> None:
    inner = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    inner.save(str(tmp_path / "tokenizer.json"))
    words = [one.replace("%s", str(tmp_path / "tokenizer.json")) for one in overrides]
    done = minitf("pretrain", DATA / "tiny.yaml", *words, *QUIET, "-d", tmp_path / "run")
    refused(done, told, exit_code=exit_code)
