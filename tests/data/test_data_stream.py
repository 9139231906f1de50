"""Streamed text: ids that come one by one give what decoding all of them gives, and never half a character; a text ends
before the first complete stop string, whatever comes in whichever pieces.
"""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, models, pre_tokenizers

from mini_tf.data.tokenization.stream import StopStringFilter, TextStream
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe import sections

KINDS = get_args(sections.Tokenizer.model_fields["kind"].annotation)
TEXT = ["The cat, the café and 漢字 🙂🙂 don't.\n\n  the end ▁ ##s", "a b c the the cat"] * 3
SENTENCEPIECE = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁the", "▁cat", "s", "�", "é"]


def sentencepiece() -> Tokenizer:
    """As Llama's: a blank is ▁, unknown characters are bytes in hexadecimal."""
    inner = Inner(
        models.BPE({token: id for id, token in enumerate(SENTENCEPIECE)}, [], unk_token="<unk>", byte_fallback=True)
    )
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(inner)


def metaspace() -> Tokenizer:
    inner = Inner(models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("▁the", -2.0), ("s", -2.0), ("▁cat", -3.0)], 0, False))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return Tokenizer(inner)


def bert() -> Tokenizer:
    """Its decoder also tidies up blanks before punctuation."""
    inner = Inner(
        models.WordPiece({t: i for i, t in enumerate(["[UNK]", "cat", "##s", ".", "'", "do", "n't", "##n", "the"])})
    )
    inner.decoder = decoders.WordPiece("##", cleanup=True)
    inner.add_special_tokens(["[SEP]"])
    return Tokenizer(inner)


def words_with_ends() -> Tokenizer:
    """The last token of a word ends with </w>, as in the first GPT."""
    inner = Inner(models.BPE({"the</w>": 0, "c": 1, "at</w>": 2, "s</w>": 3}, []))
    inner.decoder = decoders.BPEDecoder("</w>")
    return Tokenizer(inner)


OTHER_NAMES = {
    "sentencepiece": sentencepiece(),
    "metaspace": metaspace(),
    "bert": bert(),
    "words_with_ends": words_with_ends(),
}
TOKENIZERS = {
    kind: Tokenizer.train(sections.Tokenizer(kind=kind, vocab_size=400), TEXT) for kind in KINDS
} | OTHER_NAMES


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_all_pieces_together_are_the_decoded_text(name: str, data: st.DataObject) -> None:
    """Of any ids: special ones, bytes that never become a character, and text that a model would write."""
    tokenizer = TOKENIZERS[name]
    any_ids = st.lists(st.integers(0, tokenizer.vocabulary.size - 1), max_size=12)
    text_ids = st.text("The cats, é漢🙂\n ▁#�", max_size=12).map(
        lambda text: [int(id) for id in tokenizer.encode(text)]
    )
    ids = [id for part in data.draw(st.lists(any_ids | text_ids, max_size=4)) for id in part]
    stream = TextStream(tokenizer)
    pieces = [*map(stream.push, ids), stream.end()]
    assert "".join(pieces) == tokenizer.decode(ids)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_after_a_prompt_come_the_pieces_that_make_the_whole_of_it(name: str, data: st.DataObject) -> None:
    """The first token of a text may be written in another way than one in its middle."""
    tokenizer = TOKENIZERS[name]
    some_text = st.text("The cats, é漢🙂\n", min_size=1, max_size=8)
    before, ids = ([int(id) for id in tokenizer.encode(data.draw(some_text))] for _ in range(2))
    stream = TextStream(tokenizer, before)
    pieces = [*map(stream.push, ids), stream.end()]
    assert tokenizer.decode(before) + "".join(pieces) == tokenizer.decode(before + ids)


@pytest.mark.parametrize("kind", ["byte", "bpe", "unigram"])
def test_no_character_is_split_and_none_is_kept_back_longer_than_it_must(kind: str) -> None:
    tokenizer, text = TOKENIZERS[kind], "é漢🙂 x\u0301 🙂"
    stream = TextStream(tokenizer)
    ids = [int(id) for id in tokenizer.encode(text)]
    written = ""
    for n, id in enumerate(ids, 1):
        written += stream.push(id)
        assert text.startswith(written)
        assert written == tokenizer.decode(ids[:n]).rstrip("\ufffd")
    assert (written, stream.end()) == (text, "")


@pytest.mark.parametrize(
    ("given_bytes", "told"), [(b"\xff" * 5, "\ufffd" * 5), (b"\xf0\x9f\x99", ""), (b"\xe6\xbc\x41", "\ufffdA")]
)
def test_bytes_that_are_no_character_are_told_as_soon_as_that_is_certain(given_bytes: bytes, told: str) -> None:
    tokenizer = TOKENIZERS["byte"]
    first = int(tokenizer.encode("\x00")[0])
    stream = TextStream(tokenizer)
    assert "".join(stream.push(first + byte) for byte in given_bytes) == told
    assert stream.end() == ("" if told else "\ufffd")


def test_a_token_costs_the_same_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the text is, never are more tokens decoded at once than two, or a run of bytes in hexadecimal."""
    decoded: list[int] = []
    whole = Tokenizer.decode
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: decoded.append(len(ids)) or whole(self, ids))
    for tokenizer in TOKENIZERS.values():
        stream = TextStream(tokenizer)
        for id in list(tokenizer.encode("the cats ")) * 50:
            stream.push(int(id))
    longest_run = 1 + len(b"the cats ")
    assert max(decoded) <= longest_run


def let_through(stops: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    stopping = StopStringFilter(stops)
    return [*map(stopping.push, pieces), stopping.end()], stopping.stopped


def cut(text: str, stops: list[str]) -> str:
    """The text before the stop string whose last character comes first; of several that end there, maximum."""
    for end in range(len(text) + 1):
        if found := [stop for stop in stops if text[:end].endswith(stop)]:
            return text[: end - max(map(len, found))]
    return text


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.lists(st.text("abc", max_size=5), max_size=8))
def test_the_text_ends_before_the_stop_string_that_is_complete_first(stops: list[str], pieces: list[str]) -> None:
    told, stopped = let_through(stops, pieces)
    text = "".join(pieces)
    assert "".join(told) == cut(text, stops)
    assert stopped == any(stop in text for stop in stops)


@given(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3), st.text("abc", max_size=12))
def test_text_is_held_back_only_while_it_may_become_a_stop_string(stops: list[str], text: str) -> None:
    stopping, told = StopStringFilter(stops), ""
    for n, character in enumerate(text, 1):
        told += stopping.push(character)
        if stopping.stopped:
            break
        begun = [k for k in range(n + 1) if any(stop.startswith(text[n - k : n]) for stop in stops)]
        assert told == text[: n - max(begun)]


def test_an_empty_stop_string_is_no_stop_string() -> None:
    with pytest.raises(ValueError, match="empty stop string"):
        StopStringFilter(["a", ""])
