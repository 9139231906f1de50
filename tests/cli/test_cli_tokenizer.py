"""`minitf tokenizer`: train, encode, decode and stats, by the same tokenizer that a run has."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from click.testing import Result
from typer.testing import CliRunner

from mini_tf.cli.app import app
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe import sections

TEXT = "the cat sat on the mat.\nthe dog, the cat's friend, ran.\n\n"
HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "\x9b31m",
    "\u202eabc",
    "[bold]x[/bold]",
    "[/INST]",
    "a\nb",
    "日本 🙂",
    "$x$",
    "",
    "</s>[MASK]",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a text and a bpe tokenizer of it lie."""
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n\n".join(f"{TEXT} number {n}" for n in range(40)))
    Tokenizer.train(sections.Tokenizer(kind="bpe", vocab_size=280), [TEXT]).save(tmp_path / "t.json")
    (tmp_path / "one.txt").write_text("a\n")
    return tmp_path


def run(*arguments: str | Path, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(app, ["tokenizer", *map(str, arguments)], input=stdin)


def results(*arguments: str | Path, stdin: str = "") -> list[Any]:
    done = run(*arguments, "--json", stdin=stdin)
    assert done.exit_code == 0, done.output
    return [json.loads(line)["result"] for line in done.stdout.splitlines()]


def train(kind: str, *arguments: str | Path) -> Result:
    recipe = [f"tokenizer.kind={kind}", "tokenizer.vocab_size=300", "data.train=text.txt"]
    return run("train", *recipe, *arguments)


@pytest.mark.parametrize(("kind", "told"), [("unigram", True), ("byte", False)])
def test_train_says_where_the_text_has_no_use_for_so_many_tokens(folder: Path, kind: str, told: bool) -> None:
    done = run(
        "train", f"tokenizer.kind={kind}", "tokenizer.vocab_size=90000", "data.train=text.txt", "-o", "many.json"
    )
    assert done.exit_code == 0, done.output
    assert ("tokens; the data yields fewer than the 90,000 requested\n" in done.stderr) == told


@pytest.mark.parametrize("kind", ["char", "byte", "bpe", "wordpiece", "unigram"])
def test_train_writes_what_a_recipe_asks_for_and_says_what_it_loses(folder: Path, kind: str) -> None:
    done = train(kind, "-o", "new.json")
    assert (done.exit_code, done.stdout) == (0, "new.json\n")
    tokenizer = Tokenizer.load(folder / "new.json")
    assert tokenizer.kind == kind
    assert f"{kind}: {tokenizer.vocabulary.size} tokens" in done.stderr
    assert all(
        loss in done.stderr for loss in tokenizer.round_trip_losses or ["reversible: decode(encode(text)) == text"]
    )
    assert tokenizers.Tokenizer.from_file("new.json").get_vocab_size() == tokenizer.vocabulary.size


def test_an_existing_file_is_written_over_only_by_force(folder: Path) -> None:
    before = (folder / "t.json").read_bytes()
    refused = train("char", "-o", "t.json")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--output t.json: exists; --force overwrites it" in refused.stderr
    assert (folder / "t.json").read_bytes() == before
    assert train("char", "-o", "t.json", "--force").exit_code == 0
    assert Tokenizer.load(folder / "t.json").kind == "char"
    assert sorted(path.name for path in folder.iterdir()) == ["cache", "one.txt", "t.json", "text.txt"]
    [result] = results("train", "tokenizer.kind=byte", "data.train=text.txt", "-o", "u.json")
    assert result == {"path": "u.json", "kind": "byte", "vocabulary": 260, "losses": []}


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["-o", "none/t.json"], 2, "there is no folder none"),
        (["-o", "."], 2, "is a folder"),
        (["-o", "n.json", "tokenizer.path=t.json"], 3, "is already trained; tokenizer.path=null trains a new one"),
        (["-o", "n.json", "tokenizer.kind=wordpiec"], 3, "wordpiece"),
        (["-o", "n.json", "tokenizer.kind=wordpiece", "tokenizer.vocab_size=50"], 3, "50 cannot hold 52 letters"),
        (["-o", "n.json", "data.train=nowhere.txt"], 4, "nowhere.txt"),
        (
            ["-o", "n.json", "tokenizer.kind=char", "data.train=one.txt"],
            4,
            "the training split is empty; data.split=5% takes the rest as validation data",
        ),
    ],
)
def test_train_refuses_what_cannot_be(folder: Path, arguments: list[str], exit_code: int, message: str) -> None:
    done = run("train", *arguments)
    assert (done.exit_code, done.stdout) == (exit_code, "")
    assert message in done.stderr
    assert not (folder / "n.json").exists()


def test_encode_and_decode_are_the_tokenizers_own(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder / "t.json")
    ids = " ".join(map(str, tokenizer.encode("the cat é")))
    assert run("encode", "t.json", "the cat é", "").stdout == f"{ids}\n\n"
    assert run("encode", "t.json", stdin="the cat é\r\nthe cat é").stdout == f"{ids}\n{ids}\n"
    assert run("decode", "t.json", *ids.split()).stdout == "the cat é\n"
    assert run("decode", "t.json", ids).stdout == "the cat é\n"
    assert run("decode", "t.json", stdin=f"{ids}\n\n{ids} 2 3\n").stdout == "the cat é\n\nthe cat é\n"
    assert run("encode", "t.json", "--pieces", "the cat é").stdout == r"'the' ' cat' ' ' '\\xc3' '\\xa9'" + "\n"
    assert (
        run("encode", "t.json", stdin=b"\xef\xbb\xbfthe cat \xc3\xa9\n").stdout == f"{ids}\n"
    )  # the mark that some editors write
    kept = [results("encode", "t.json", stdin=text)[0]["text"] for text in ("a\r\r\n", "a\r", "a \n")]
    assert kept == ["a\r", "a", "a "]
    lines = " ".join(map(str, tokenizer.encode("a\nb")))
    assert run("decode", "t.json", lines).stdout == "a\nb\n"
    assert run("decode", "t.json", stdin=lines).stdout == "a\\nb\n"


@pytest.mark.parametrize("what", ["encode", "decode"])
def test_json_is_an_envelope_a_text_and_nothing_without_texts(folder: Path, what: str) -> None:
    assert len(results(what, "t.json", stdin="5\n6\n7\n")) == 3
    for arguments in ([what, "t.json"], [what, "t.json", "--json"]):
        done = run(*arguments)
        assert (done.exit_code, done.output) == (0, "")
    assert "--json prints one object per text" in " ".join(run(what, "--help").stdout.split())


def test_hostile_text_comes_back_in_json_and_never_reaches_the_terminal_raw(folder: Path) -> None:
    encoded = results("encode", "t.json", *HOSTILE)
    assert [one["text"] for one in encoded] == HOSTILE
    for text, one in zip(HOSTILE, encoded, strict=True):
        assert results("decode", "t.json", *map(str, one["ids"]), stdin="\n")[0]["text"] == text
        assert len(one["ids"]) == len(one["pieces"]) == len(one["spans"])
        assert not {2, 3} & set(one["ids"])
    tokens = [*HOSTILE, "<unk>"]
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({t or "e": id for id, t in enumerate(tokens)}, "<unk>"))
    inner.decoder = tokenizers.decoders.Fuse()
    inner.save("hostile.json")
    ids = [str(id) for id in range(8)]
    for arguments in (
        ["encode", "hostile.json", "--pieces", *HOSTILE],
        ["decode", "hostile.json", *ids],
        ["stats", "hostile.json", HOSTILE[0]],
    ):
        done = run(*arguments)
        assert done.exit_code == 0, done.output
        assert not {"\x1b", "\x9b", "\u202e"} & set(done.output)


@pytest.mark.parametrize(
    ("arguments", "stdin", "exit_code", "message"),
    [
        (["encode", "t.json", "a\udcff"], b"", 2, r"a text is not UTF-8: a\udcff"),
        (["stats", "t.json", "\udcff"], b"", 2, "a text is not UTF-8"),
        (["encode", "\udcff", "a"], b"", 2, "the name of the tokenizer is not UTF-8"),
        (["encode", "t.json"], b"fine\n\xff\n", 4, "stdin:2: line 2 is not UTF-8 (byte 1)"),
        (["decode", "t.json", "280"], b"", 2, "'280' is not an id of this tokenizer: ids are 0 to 279"),
        (["decode", "t.json", "1.5"], b"", 2, "'1.5' is not an id"),
        (["decode", "t.json", "٣"], b"", 2, "is not an id"),
        (["decode", "t.json", "9" * 5000], b"", 2, "is not an id"),
        (["decode", "t.json"], b"5\n6 x\n", 4, "stdin:2: 'x' is not an id"),
        (
            ["stats", "t.json", "a", "-i", "text.txt"],
            b"",
            2,
            "both texts and --input text.txt were given; give one of them",
        ),
        (["stats", "t.json", "", "-i", "text.txt"], b"", 2, "give one of them"),
        (["stats", "t.json", "-i", "none.txt"], b"", 4, "none.txt: No such file"),
        (["stats", "t.json", "-i", "/dev/zero"], b"", 4, "/dev/zero: it is a device"),
        (["stats", "t.json", "-i", "broken.txt"], b"", 4, "broken.txt:2: line 2 is not UTF-8"),
        (["encode", "none.json", "a"], b"", 4, "none.json: no such file"),
        (["encode", "none", "a"], b"", 5, "no such run: none"),
        (["encode", "last", "a"], b"", 5, "there is no last run"),
        (["encode", "text.txt", "a"], b"", 4, "text.txt"),
    ],
)
def test_what_is_unfit_is_refused_in_one_line(
    folder: Path, arguments: list[str], stdin: bytes, exit_code: int, message: str
) -> None:
    (folder / "broken.txt").write_bytes(b"a\n\xff")
    done = run(*arguments, stdin=stdin)
    assert done.exit_code == exit_code, done.output
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_run_is_found_by_name_as_everywhere(folder: Path) -> None:
    (folder / "outputs/tale").mkdir(parents=True)
    manifest = {"format": 1, "state": "done"}
    (folder / "outputs/tale/run.json").write_text(json.dumps(manifest))
    (folder / "outputs/tale/tokenizer.json").write_bytes((folder / "t.json").read_bytes())
    (folder / "tale").mkdir()  # a folder of that name without a tokenizer does not hide the run
    there = [results("encode", name, "the cat")[0]["ids"] for name in ("outputs/tale", "t.json")]
    assert there[0] == there[1]
    (folder / "bert").mkdir()
    (folder / "bert/vocab.txt").write_text("[UNK]\nthe\ncat\n")
    for source in ("bert", "bert/vocab.txt"):
        done = run("encode", source, "The cat dog")
        assert done.stdout == "1 2 0\n"
        assert "has no upper-case letter, so text is lower-cased" in done.stderr


def test_stats_count_what_they_say(folder: Path) -> None:
    tokenizer = Tokenizer.load(folder / "t.json")
    [alone] = results("stats", "t.json")
    assert (alone["kind"], alone["vocabulary"], alone["losses"]) == ("bpe", 280, [])
    assert alone["special_tokens"] == {"<pad>": 0, "<unk>": 1, "</s>": 2, "[MASK]": 3}
    assert sum(alone["pieces_by_length"].values()) == 276
    assert alone["pieces_by_length"]["1"] >= 256
    assert "text" not in alone
    text = "the cat\nsat é é"
    ids = tokenizer.encode(text).tolist()
    (folder / "some.txt").write_bytes(text.encode())
    [given] = results("stats", "t.json", text)
    assert results("stats", "t.json", "-i", "some.txt") == [given]
    (folder / "marked.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert results("stats", "t.json", "-i", "marked.txt") == [given]
    told = given["text"]
    assert (told["tokens"], told["bytes"], told["words"], told["characters"]) == (len(ids), 17, 5, 15)
    assert told["tokens_per_word"] == pytest.approx(len(ids) / 5)
    assert told["bytes_per_token"] == pytest.approx(17 / len(ids))
    assert told["vocabulary_used"] == pytest.approx(len(set(ids)) / 280)
    assert (told["unknown_tokens"], told["unknown"], told["difference"]) == (0, {}, None)
    assert told["most_frequent"][0]["count"] == max(ids.count(id) for id in ids)
    assert {one["id"]: one["count"] for one in told["most_frequent"]}.items() <= {
        id: ids.count(id) for id in ids
    }.items()
    assert told["least_frequent"][0]["count"] == 1
    os.mkfifo(folder / "pipe")  # -i <(command)
    writer = threading.Thread(target=lambda: (folder / "pipe").write_bytes((folder / "some.txt").read_bytes()))
    writer.start()
    assert results("stats", "t.json", "-i", "pipe") == [given]
    writer.join()
    shown = run("stats", "t.json", text).stdout
    assert "reversible: decode(encode(text)) == text" in shown
    assert "round trip: exact" in shown
    [empty] = results("stats", "t.json", "")
    assert (empty["text"]["tokens"], empty["text"]["tokens_per_word"], empty["text"]["bytes_per_token"]) == (
        0,
        None,
        None,
    )


def test_stats_show_where_a_text_does_not_come_back(folder: Path) -> None:
    assert train("wordpiece", "-o", "w.json").exit_code == 0
    [result] = results("stats", "w.json", "the cat's ☃☃ mat")
    assert result["text"]["difference"] == {"at": 7, "text": "'s ☃☃ mat", "back": " ' s mat"}
    assert result["text"]["unknown"] == {"☃☃": 1}
    assert result["text"]["unknown_tokens"] == 1
    shown = run("stats", "w.json", "the cat's").stdout
    assert 'round trip: differs from character 7 on: "\'s" becomes " \' s"' in shown
    assert "not reversible: whitespace is not preserved" in shown


def test_a_tokenizer_of_pairs_is_learnt_from_both_sides(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text("".join(f'{{"source": "ab {n}", "target": "XY {n}"}}\n' for n in range(20)))
    data = f"data={{train: '{tmp_path / 'pairs.jsonl'}', fields: {{source: source, target: target}}}}"
    made = tmp_path / "made.json"
    done = run("train", "-o", made, "model=encoder_decoder", "tokenizer.kind=char", data)
    assert done.exit_code == 0, done.output
    assert Tokenizer.load(made).decode(Tokenizer.load(made).encode("ab XY").tolist()) == "ab XY"
