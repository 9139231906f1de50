"""vocab.txt, and vocab.json with merges.txt: the ids that Hugging Face's own tokenizers make of the same files."""

import json
from pathlib import Path

import pytest

from mini_tf.data.tokenization.pieces import BYTE_OF
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.system.errors import DataFault

LINES = [
    *("[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "he", "##llo", "##l", "##o"),
    *(".", "'", "a", "##a", "naive", "漢", "字", "h"),
]
TEXTS = [
    *("Hello hel.", "héllo  naïve\tNAIVE", "漢字a", "a'a\n\na .", "unknown ‖ x", "he\u200dllo\0 a\ufffd"),
    *("A" * 101, "", " "),
]
MERGES = [("h", "e"), ("Ġ", "he"), ("l", "l"), ("he", "ll"), ("Ġ", "a"), ("Ã", "¯")]


def bert(folder: Path, lines: list[str] = LINES, **config: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def gpt2(
    folder: Path,
    first: tuple[str, ...] = (),
    last: tuple[str, ...] = ("<|endoftext|>",),
    version: str = "#version: 0.2\n",
) -> Path:
    folder.mkdir(exist_ok=True)
    tokens = [*first, *sorted(BYTE_OF), *("".join(pair) for pair in MERGES), *last]
    (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text(version + "".join(f"{a} {b}\n" for a, b in MERGES), encoding="utf-8")
    return folder


@pytest.mark.parametrize("lower", [True, False, None])
@pytest.mark.parametrize("cased", [True, False])
def test_a_vocab_txt_gives_the_ids_of_bert(tmp_path: Path, lower: bool | None, cased: bool) -> None:
    from transformers import BertTokenizer

    lines = [*LINES, "Hello"] if cased else LINES
    folder = bert(tmp_path, lines, **({} if lower is None else {"do_lower_case": lower}))
    ours = Tokenizer.load(folder)
    theirs = BertTokenizer(vocab=str(folder / "vocab.txt"), do_lower_case=not cased if lower is None else lower)
    for text in TEXTS:
        assert ours.encode(text).tolist() == theirs.encode(text, add_special_tokens=False)
    assert bool(ours.notes) == (lower is None)


def test_the_special_tokens_of_a_vocab_txt_are_found_and_stay_text(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(bert(tmp_path) / "vocab.txt")
    v = tokenizer.vocabulary
    assert (v.size, v.pad, v.unk, v.separator, v.mask, v.others) == (len(LINES), 0, 2, 4, 5, frozenset({3}))
    assert not set(tokenizer.encode("[MASK] [SEP] [CLS]").tolist()) & (v.special_ids - {2})
    assert tokenizer.notes == [f"{tmp_path / 'vocab.txt'} has no upper-case letter, so text is lower-cased"]
    assert not tokenizer.has_space_prefixed_tokens
    assert any(loss.startswith("upper case becomes lower case") for loss in tokenizer.round_trip_losses)


def test_what_is_saved_of_a_vocab_file_is_a_tokenizer_json(tmp_path: Path) -> None:
    for folder in (bert(tmp_path / "bert"), gpt2(tmp_path / "gpt2")):
        tokenizer = Tokenizer.load(folder)
        saved = tmp_path / "saved.json"
        tokenizer.save(saved)
        assert Tokenizer.load(saved).hash == tokenizer.hash
        tokenizer.save(folder / "tokenizer.json")
        assert Tokenizer.load(folder).notes == []  # a tokenizer.json is preferred


@pytest.mark.parametrize("version", ["#version: 0.2\n", ""])
def test_a_vocab_json_with_merges_gives_the_ids_of_gpt2(tmp_path: Path, version: str) -> None:
    from transformers import GPT2Tokenizer

    folder = gpt2(tmp_path, version=version)
    ours = Tokenizer.load(folder)
    theirs = GPT2Tokenizer(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
    for text in [*TEXTS, "hello hell  he's a\r\n 🙂"]:
        assert ours.encode(text).tolist() == theirs.encode(text, add_special_tokens=False)
        assert ours.decode(ours.encode(text)) == text
    assert ours.round_trip_losses == []
    assert (ours.vocabulary.separator, ours.vocabulary.mask, ours.has_space_prefixed_tokens) == (262, None, True)
    assert 262 not in ours.encode("<|endoftext|>")
    assert Tokenizer.load(folder / "vocab.json").hash == ours.hash


def test_robertas_special_tokens_are_found(tmp_path: Path) -> None:
    v = Tokenizer.load(gpt2(tmp_path, first=("<s>", "<pad>", "</s>", "<unk>"), last=("<mask>",))).vocabulary
    assert (v.pad, v.separator, v.unk, v.mask, v.others) == (1, 2, 3, 266, frozenset({0}))


def test_bytes_that_a_vocab_json_lacks_are_told_as_lost(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "Ġ": 2}))
    (tmp_path / "merges.txt").write_text("")
    assert "some characters are dropped: 'A' decodes to ''" in Tokenizer.load(tmp_path).round_trip_losses


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("vocab.txt", "[UNK]\na\n\nb\n", "vocab.txt:3: the line is empty"),
        ("vocab.txt", "[UNK]\na\na\n", "vocab.txt:3: the line repeats the token 'a' of line 2"),
        ("vocab.txt", "a\nb\n", r"no line is \[UNK\]"),
        ("vocab.txt", b"[UNK]\na\n\xff\n", "vocab.txt:3: not UTF-8"),
        (
            "tokenizer_config.json",
            '{"do_lower_case": "yes"}',
            "tokenizer_config.json: do_lower_case must be true, false or null",
        ),
        ("tokenizer_config.json", "[]", "tokenizer_config.json: must be a JSON object"),
        ("vocab.json", '{"a": 0,\n"b" 1}', r"vocab.json: not JSON: .*\(line 2, column 5\)"),
        ("vocab.json", '{"a": 0, "b": 1, "a": 2}', "vocab.json: not JSON: duplicate key 'a'"),
        ("vocab.json", '["a"]', "vocab.json: must be a JSON object"),
        ("vocab.json", '{"a": -1}', "vocab.json: the id of the token 'a' is -1"),
        ("vocab.json", '{"a": true}', "the id of the token 'a' is true"),
        ("vocab.json", '{"a": 0, "b": 0}', "the tokens 'a' and 'b' both have the id 0"),
        ("vocab.json", '{"a": 0, "b": 9999999}', "the highest id is 9999999"),
        ("vocab.json", "{}", "no tokens"),
        ("merges.txt", "#version\nh e\nh\n", "merges.txt:3: a merge must be two tokens separated by a space, got 'h'"),
        ("merges.txt", "#version\nh e\nq q\n", "merges.txt:3: the token 'qq' is not in vocab.json"),
        ("merges.txt", None, "merges.txt: no such file"),
    ],
)
def test_a_file_that_is_unfit_is_refused_with_its_line(
    name: str, text: str | bytes | None, message: str, tmp_path: Path
) -> None:
    folder = bert(tmp_path) if name in ("vocab.txt", "tokenizer_config.json") else gpt2(tmp_path)
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        if name == "vocab.json":
            (folder / "merges.txt").write_text("")
    with pytest.raises(DataFault, match=message):
        Tokenizer.load(folder)


def test_a_byte_order_mark_is_no_part_of_a_token(tmp_path: Path) -> None:
    """Windows' editors write one: of vocab.txt it would belong to [PAD]."""
    plain = {"bert": bert(tmp_path / "bert", do_lower_case=False), "gpt2": gpt2(tmp_path / "gpt2")}
    Tokenizer.load(plain["bert"]).save(tmp_path / "json.json")
    (tmp_path / "json").mkdir()
    (tmp_path / "json.json").rename(tmp_path / "json" / "tokenizer.json")
    for name, folder in (*plain.items(), ("json", tmp_path / "json")):
        marked = tmp_path / f"marked {name}"
        marked.mkdir()
        for file in folder.iterdir():
            (marked / file.name).write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
        assert Tokenizer.load(marked).to_json() == Tokenizer.load(folder).to_json()
