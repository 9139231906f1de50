"""Tokenizers: text comes back from its ids, the fast ways equal the library, foreign files are checked first."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tokenizers import decoders, models, normalizers, pre_tokenizers

from mini_tf.data.tokenization.guard import check_components
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe import sections
from mini_tf.recipe.kinds import listing
from mini_tf.system.errors import DataFault
from mini_tf.testing.tokenizers import SAMPLE, assert_round_trip

SHAKESPEARE = Path(__file__).parents[2] / "../shared/data/tinyshakespeare/input.txt"
STORIES = Path(__file__).parents[2] / "../shared/data/stories260k"
KINDS = listing("data.tokenizers")
KEEP_SPACES = ("char", "byte", "bpe", "unigram")


def trained(kind: str, vocab_size: int = 300, text: str = SAMPLE) -> Tokenizer:
    return Tokenizer.train(sections.Tokenizer(kind=kind, vocab_size=vocab_size), [text])


_TRAINED = {kind: trained(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=60)
@given(text=st.text(st.characters(codec="utf-8")) | st.text("The cat\n\t <>/s[MASK]#▁.'"))
def test_a_text_comes_back_or_the_kind_said_what_it_loses(kind: str, text: str) -> None:
    assert_round_trip(_TRAINED[kind], text)


def test_a_component_that_is_not_known_is_refused_by_its_name() -> None:
    content = json.loads(_TRAINED["byte"].to_json()) | {"normalizer": {"type": "Odd"}}
    with pytest.raises(DataFault, match="its normalizer 'Odd' is not supported"):
        check_components(json.dumps(content))


def test_what_each_kind_loses_is_said_in_plain_words() -> None:
    unknown = "that is not in the vocabulary becomes the unknown token, which decodes to nothing"
    assert {kind: _TRAINED[kind].round_trip_losses for kind in KINDS} == {
        "char": [f"a character {unknown}"],
        "byte": [],
        "bpe": [],
        "wordpiece": [
            f"a word with a character {unknown}",
            r"whitespace is not preserved: 'A\tA' decodes to 'A A', 'A  A' decodes to 'A A', 'A.A' decodes to 'A . A'",
            "a very long word decodes with spaces in it",
        ],
        "unigram": [],
    }


@pytest.mark.parametrize(
    ("normalizer", "told"),
    [
        (normalizers.Lowercase(), "upper case becomes lower case: 'A' decodes to 'a'"),
        (normalizers.NFC(), "some characters are replaced: 'e\u0301' decodes to 'é'"),
        (normalizers.NFKC(), "some characters are replaced: 'e\u0301' decodes to 'é'"),
        (normalizers.Replace("``", '"'), "some characters are replaced: '``' decodes to '\"'"),
        (normalizers.Nmt(), r"some characters are dropped: '\x01' decodes to ''"),
        (
            normalizers.Strip(),
            "whitespace is not preserved: ' A' decodes to 'A', 'A ' decodes to 'A', ' ' decodes to ''",
        ),
        (normalizers.Replace("qz", "x"), None),
        (normalizers.Replace("İ", "i"), None),
    ],
    ids=repr,
)
def test_what_a_normalizer_changes_is_found(normalizer: normalizers.Normalizer, told: str | None) -> None:
    inner = tokenizers.Tokenizer.from_str(_TRAINED["byte"].to_json())
    inner.normalizer = normalizer
    losses = Tokenizer(inner).round_trip_losses
    assert told in losses if told else losses


@pytest.mark.parametrize("kind", KINDS)
def test_the_span_of_an_id_is_the_text_it_stands_for(kind: str) -> None:
    tokenizer = _TRAINED[kind]
    text = "The cat  naïve\n日本 mat"
    ids, spans = tokenizer.spans(text)
    n_bytes = len(text.encode())
    for id, piece, (first, last) in zip(ids, tokenizer.pieces(ids), spans, strict=True):
        if id == tokenizer.vocabulary.unk:
            assert not text[first:last].isspace()
        elif "\\x" in piece:
            as_bytes = re.sub(rb"\\x(..)", lambda found: bytes.fromhex(found[1].decode()), piece.encode())
            assert as_bytes in text[first:last].encode()
        else:
            assert piece.removeprefix("##") == text[first:last]
    covered = {i for first, last in spans for i in range(first, last)}
    assert (
        "".join(text[i] for i in covered).split()
        == "".join(c for c in text if kind != "wordpiece" or not c.isspace()).split()
    )
    if kind == "byte":
        assert len(ids) == n_bytes
        assert [last - first for first, last in spans] == [1] * n_bytes


def test_a_token_may_begin_with_a_blank_in_the_kinds_that_join_words_so() -> None:
    text = "the cat and the cat and the cat " * 5
    assert {kind: trained(kind, text=text).has_space_prefixed_tokens for kind in KINDS} == {
        "char": False,
        "byte": False,
        "bpe": True,
        "wordpiece": False,
        "unigram": True,
    }
    if STORIES.exists():
        assert Tokenizer.load(STORIES).has_space_prefixed_tokens


@pytest.mark.parametrize("kind", KINDS)
def test_the_saved_file_is_a_standard_one_and_gives_the_same_ids(kind: str, tmp_path: Path) -> None:
    tokenizer = trained(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    library.encode_special_tokens = True
    text = SAMPLE + "unknown: ÿ🙂\r"
    assert library.encode(text, add_special_tokens=False).ids == tokenizer.encode(text).tolist()
    assert library.decode(tokenizer.encode(SAMPLE).tolist()) == tokenizer.decode(tokenizer.encode(SAMPLE))
    again = Tokenizer.load(tmp_path)
    assert again.hash == tokenizer.hash
    assert again.vocabulary == tokenizer.vocabulary
    assert np.array_equal(again.encode(text), tokenizer.encode(text))


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
    assert tokenizer.count_unknown_text("a☃b☃é") == {"☃": 2, "é": 1}
    assert trained("byte").vocabulary.size == 260
    assert not trained("byte").count_unknown_text("☃")


@pytest.mark.parametrize("kind", KEEP_SPACES)
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


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
@pytest.mark.parametrize("character", ["a", " ", "\n", "漢"])
def test_a_text_that_is_one_word_is_cut_into_words_of_bounded_length(kind: str, character: str) -> None:
    tokenizer = trained(kind, 400, character * 300_000)
    assert max(map(len, tokenizer.pieces(range(tokenizer.vocabulary.size)))) <= 256
    back = tokenizer.decode(tokenizer.encode(character * 1000))
    assert ("".join(back.split()) if kind == "wordpiece" else back) == (
        character * 1000 if kind != "wordpiece" else character.strip() * 1000
    )


def test_wordpiece_cuts_words_as_bert_does() -> None:
    tokenizer = trained("wordpiece", 140, "low low low lower lower newest newest newest widest, widest.")
    ids = tokenizer.encode("lowest wider, x <unk>")
    pieces = tokenizer.pieces(ids)
    assert "".join(pieces).replace("##", "") == "lowestwider,<unk><unk><unk><unk>"
    assert tokenizer.word_starts(ids).tolist() == [not piece.startswith("##") for piece in pieces]
    vocabulary = set(tokenizer.pieces(range(tokenizer.vocabulary.size)))
    for word in ("lowest", "wider"):
        rest, expected = word, []
        while rest:  # the longest known beginning, again and again
            mark = "##" if expected else ""
            longest = next(n for n in range(len(rest), 0, -1) if mark + rest[:n] in vocabulary)
            expected.append(mark + rest[:longest])
            rest = rest[longest:]
        assert tokenizer.pieces(tokenizer.encode(word)) == expected


@pytest.mark.parametrize(("kind", "smallest"), [("bpe", 260), ("unigram", 260), ("wordpiece", 108)])
def test_a_vocabulary_too_small_for_its_kind_is_refused(kind: str, smallest: int) -> None:
    sections.Tokenizer(kind=kind, vocab_size=smallest)
    with pytest.raises(ValidationError, match=f"{smallest - 1} cannot hold .*; use at least {smallest}"):
        sections.Tokenizer(kind=kind, vocab_size=smallest - 1)


def test_special_tokens_that_a_foreign_model_reads_out_of_text_are_split(tmp_path: Path) -> None:
    """As T5's do: its unigram vocabulary holds </s> with the best score of all."""
    scores = {"<unk>": 0.0, "</s>": 0.0, "<pad>": 0.0, "▁": -3.0, "a": -4.0, "s": -5.0, "<": -6.0, "/": -6.0, ">": -6.0}
    inner = tokenizers.Tokenizer(models.Unigram(list(scores.items()), 0, False))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    inner.add_special_tokens(["<unk>", "</s>", "<pad>"])
    inner.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.pieces(tokenizer.encode("a </s>")) == [" ", "a", " ", "<", "/", "s", ">"]
    assert tokenizer.notes == [
        "the tokenizer would encode </s>, <pad> in text as special tokens; such text is split instead"
    ]
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path).hash == tokenizer.hash


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
    assert masked.notes == ["the tokenizer has no mask token; [MASK] was added"]
    assert masked.with_special("mask") is masked


def test_a_run_that_has_a_tokenizer_is_suggested_for_a_name_near_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_tokenizer_that_multiplies_text_is_refused() -> None:
    inner = tokenizers.Tokenizer(models.BPE({"a": 0}, []))
    inner.normalizer = normalizers.Sequence([normalizers.Replace("a", "a" * 10)] * 2)
    with pytest.raises(DataFault, match="makes 10000 tokens from 100 characters"):
        Tokenizer(inner).encode("a" * 100)
