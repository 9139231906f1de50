"""Tokenizers: text comes back from its ids, the fast ways equal the library, foreign files are checked first."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers

from mini_tf.errors import DataFault
from mini_tf.recipe import sections
from mini_tf.text.tokenizer import Tokenizer, Vocabulary

SHAKESPEARE = Path(__file__).parents[1] / "../shared/data/tinyshakespeare/input.txt"
STORIES = Path(__file__).parents[1] / "../shared/data/stories260k"
SAMPLE = 'The cat sat on the mat. It\'s 3.5 "naïve" 日本!\n\n\tAnd </s> or [MASK], <pad> too.\n'
KINDS = ("char", "byte", "bpe")


def trained(kind: str, vocab_size: int = 300, text: str = SAMPLE) -> Tokenizer:
    return Tokenizer.train(sections.Tokenizer(kind=kind, vocab_size=vocab_size), [text])  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_text_comes_back_from_its_ids_and_names_of_special_tokens_stay_text(kind: str) -> None:
    tokenizer = trained(kind)
    ids = tokenizer.encode(SAMPLE)
    assert tokenizer.decode(ids) == SAMPLE
    assert not set(ids.tolist()) & tokenizer.vocabulary.special_ids


@pytest.mark.parametrize("kind", ["byte", "bpe"])
@settings(deadline=None)
@given(text=st.text(st.characters(codec="utf-8")))
def test_bytes_hold_any_text(kind: str, text: str) -> None:
    assert _TRAINED[kind].decode(_TRAINED[kind].encode(text)) == text


_TRAINED = {kind: trained(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_saved_file_is_a_standard_one_and_gives_the_same_ids(kind: str, tmp_path: Path) -> None:
    tokenizer = trained(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    library.encode_special_tokens = True
    text = SAMPLE + "unknown: ÿ🙂\r"
    assert library.encode(text, add_special_tokens=False).ids == tokenizer.encode(text).tolist()
    assert library.decode(tokenizer.encode(SAMPLE).tolist()) == SAMPLE
    again = Tokenizer.load(tmp_path)
    assert again.hash == tokenizer.hash
    assert again.vocabulary == tokenizer.vocabulary
    assert np.array_equal(again.encode(text), tokenizer.encode(text))


def test_all_kinds_have_the_same_special_tokens_first() -> None:
    for kind in KINDS:
        size = {"char": 4 + len(set(SAMPLE)), "byte": 260, "bpe": 300}[kind]
        assert trained(kind).vocabulary == Vocabulary(size, pad=0, unk=1, separator=2, mask=3)


def test_characters_count_as_nanogpt_counts_them() -> None:
    if not SHAKESPEARE.exists():
        pytest.skip("shared/data is not here")
    text = SHAKESPEARE.read_text()
    tokenizer = trained("char", text=text)
    order = sorted(set(text))
    assert tokenizer.vocabulary.size == 4 + 65
    assert (tokenizer.encode(text[:5000]) - 4).tolist() == [order.index(c) for c in text[:5000]]


def test_unknown_characters_are_counted_by_name() -> None:
    tokenizer = trained("char", text="abc ")
    assert tokenizer.pieces(tokenizer.encode("a☃b☃é")) == ["a", "<unk>", "b", "<unk>", "<unk>"]
    assert tokenizer.unknown_counts("a☃b☃é") == {"☃": 2, "é": 1}
    assert not trained("byte").unknown_counts("☃")


@pytest.mark.parametrize("kind", KINDS)
def test_words_begin_after_white_space(kind: str) -> None:
    tokenizer = trained(kind)
    text = "The cat\n\nsat  on It's"
    ids, starts = tokenizer.encode(text), tokenizer.word_starts(tokenizer.encode(text))
    pieces = tokenizer.pieces(ids)
    words = "".join(("|" if start else "") + piece for start, piece in zip(starts, pieces, strict=True))
    assert [word.strip() for word in words.split("|")[1:]] == text.split()
    two_rows = np.stack([ids, ids])
    assert np.array_equal(tokenizer.word_starts(two_rows), np.stack([starts, starts]))


def test_pieces_are_readable() -> None:
    tokenizer = trained("bpe", vocab_size=280, text="the the the cat cat\n")
    assert tokenizer.pieces(tokenizer.encode("the cat\né")) == ["the", " cat", "\n", r"\xc3", r"\xa9"]
    assert tokenizer.pieces([2, 3]) == ["</s>", "[MASK]"]


def test_bpe_is_the_same_every_time() -> None:
    if not SHAKESPEARE.exists():
        pytest.skip("shared/data is not here")
    text = SHAKESPEARE.read_text()[:200_000]
    assert trained("bpe", 1000, text).hash == trained("bpe", 1000, text).hash


def test_a_text_without_blanks_is_cut_into_words_of_bounded_length() -> None:
    tokenizer = trained("bpe", 400, "a" * 300_000)
    assert max(map(len, tokenizer.pieces(range(tokenizer.vocabulary.size)))) <= 256
    assert tokenizer.decode(tokenizer.encode("a" * 1000)) == "a" * 1000


def test_a_real_tokenizer_is_read_and_completed() -> None:
    if not STORIES.exists():
        pytest.skip("shared/data is not here")
    tokenizer = Tokenizer.load(STORIES)
    assert tokenizer.vocabulary.size == 512
    assert tokenizer.vocabulary.mask is None
    text = "Once upon a time </s> there"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    masked = tokenizer.with_special("mask")
    assert masked.vocabulary.mask == 512
    assert masked.vocabulary.size == 513
    assert np.array_equal(masked.encode(text + "[MASK]")[:-3], tokenizer.encode(text + "[MASK]")[:-3])
    assert 512 not in masked.encode(text + "[MASK]")
    assert masked.notes == ["the tokenizer has no mask token; [MASK] was added to it"]
    assert masked.with_special("mask") is masked


def content(**changes: object) -> dict[str, Any]:
    return dict(json.loads(tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, "<unk>")).to_str())) | changes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "not JSON"),
        ("[]", "it has no model"),
        ('{"model": {"type": "Strange"}}', "crashed while loading"),
        (json.dumps(content(normalizer={"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000})), "writes 1000 characters"),
        (
            json.dumps(content(model={"type": "WordLevel", "vocab": {"<unk>": 0, "b": 4_000_000_000}, "unk_token": "<unk>"})),
            "the highest id is 4000000000",
        ),
        (json.dumps(content(model={"type": "WordLevel", "vocab": {}, "unk_token": "<unk>"})), "tokenizer"),
        (json.dumps(content(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="})), "crashed while loading"),
    ],
)
def test_a_tokenizer_file_that_is_none_is_refused(text: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(DataFault, match=message) as caught:
        Tokenizer.load(tmp_path)
    assert str(tmp_path) in caught.value.message
    assert capfd.readouterr().err == ""


def test_a_run_that_has_a_tokenizer_is_suggested_for_a_name_near_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs/tales").mkdir(parents=True)
    (tmp_path / "outputs/tales/tokenizer.json").touch()
    with pytest.raises(DataFault, match="no such file") as caught:
        Tokenizer.load(tmp_path / "tale")
    assert caught.value.hint == "did you mean outputs/tales?"


def test_a_tokenizer_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataFault, match=r"tokenizer.json: no such file"):
        Tokenizer.load(tmp_path)
    with (tmp_path / "tokenizer.json").open("wb") as sparse:
        sparse.truncate(65 << 20)
    with pytest.raises(DataFault, match="larger than 64 MiB"):
        Tokenizer.load(tmp_path)


def test_truncation_and_padding_of_a_foreign_file_are_switched_off() -> None:
    inner = tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, "<unk>"))
    inner.enable_truncation(2)
    inner.enable_padding(length=10)
    tokenizer = Tokenizer(inner)
    assert len(tokenizer.encode("a")) == 1
    assert tokenizer.notes == ["the tokenizer would cut texts at 2 tokens; switched off", "the tokenizer would pad texts; switched off"]


def test_a_tokenizer_that_multiplies_text_is_refused() -> None:
    inner = tokenizers.Tokenizer(models.BPE({"a": 0}, []))
    inner.normalizer = normalizers.Sequence([normalizers.Replace("a", "a" * 10)] * 2)
    with pytest.raises(DataFault, match="makes 10000 tokens of 100 characters"):
        Tokenizer(inner).encode("a" * 100)
