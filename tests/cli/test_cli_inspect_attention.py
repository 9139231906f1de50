"""`minitf inspect attention`: what it prints, writes and refuses, on tiny runs; texts come back exactly and reach no
picture raw.
"""

import hashlib
import json
import os
import pty
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_parity
import torch
from commands import Done, minitf, trained
from hang import outcome
from page_files import contents_of, maps_of
from processes import Command
from rich.cells import cell_len
from safetensors import safe_open
from torch import Tensor

from mini_tf.drawing.labels import label
from mini_tf.drawing.look import DARK
from mini_tf.inspection._attention_maps import heads_of
from mini_tf.inspection._capture import capture
from mini_tf.inspection._heads import repeated_tokens, role_of, scores_on
from mini_tf.nn.attention import MultiHeadAttention
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.trained.opening import open_trained

TEXT = "the cat heard the bear"
MARKUP = "</script><img src=x onerror=alert(1)> ]]> &lt; \"'&"
HOSTILE = [
    "\x1b[31mred \x9b31m a \u202e b tab\tnew\nline\r\u2028",
    "[/INST] [bold]x[/bold] [link=a] $x$ $\\frac{",
    MARKUP,
    "漢字 🙂 e\u0301 </s> [MASK] <pad>",
    "x" * 2000,
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder, which keeps the checkpoints of its last two steps."""
    return trained(
        tmp_path_factory.mktemp("runs") / "decoder",
        "train.steps=4",
        "checkpoint.every_steps=1",
        "checkpoint.keep_last=2",
    )


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder of three mixers, of which `simple` has one head only."""
    mixers = "[{kind: window, window: 2}, simple, softmax]"
    model = f"model={{kind: encoder, d_model: 32, n_layers: 3, n_heads: 2, positions: learned, attention: {mixers}}}"
    return trained(tmp_path_factory.mktemp("runs") / "encoder", "train.steps=1", model, "objective=masked")


def inspect(run: Path, *arguments: str | Path, stdin: str = "") -> Done:
    return minitf("inspect", "attention", run, *arguments, stdin=stdin)


def result(run: Path, *arguments: str | Path, stdin: str = "") -> dict[str, Any]:
    done = inspect(run, *arguments, "--json", stdin=stdin)
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["ok"], answer["command"], answer["run"]) == (True, "inspect attention", str(run))
    return dict(answer["result"])


def read(sample: dict[str, Any]) -> bytes:
    """The bytes that a sample's ids stand for, by the order of a byte tokenizer: four special tokens, then every
    byte.
    """
    return bytes(id - 4 for id in sample["ids"][1:])


def test_both_names_are_one_command() -> None:
    helps = [minitf(*name, "--help").stdout for name in (("inspect", "attention"), ("inspect-attention",))]
    assert helps[0].replace("minitf inspect attention", "minitf inspect-attention") == helps[1]
    assert "--query" in helps[1]


def test_json_has_every_head_and_with_full_its_map(run: Path, tmp_path: Path) -> None:
    shown = result(run, TEXT, "--full", "-o", tmp_path / "maps.json")
    assert json.loads((tmp_path / "maps.json").read_text()) == shown
    assert (shown["notes"], shown["difference"] < 1e-5) == ([], True)
    [sample] = shown["samples"]
    assert (sample["text"], sample["tokens"], read(sample)) == (TEXT, ["</s>", *TEXT], TEXT.encode())
    assert [(head["kind"], head["layer"], head["head"]) for head in sample["heads"]] == [
        ("decoder.self", layer, head) for layer in (0, 1) for head in (0, 1)
    ]
    for head in sample["heads"]:
        matrix = np.array(head["matrix"])
        assert matrix[0].tolist() == [1.0] + [0.0] * len(TEXT)
        np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-6)
        assert "row_sum" not in head
        assert 0 < head["entropy"] <= 1 + 1e-9
    assert "matrix" not in result(run, TEXT)["samples"][0]["heads"][0]


def test_an_encoder_is_shown_with_all_its_mixers(encoder: Path) -> None:
    heads = result(encoder, TEXT, "--full")["samples"][0]["heads"]
    assert [(head["kind"], head["layer"], head["head"]) for head in heads] == [
        ("encoder.self", layer, head) for layer, head in ((0, 0), (0, 1), (1, 0), (2, 0), (2, 1))
    ]
    window = np.array(heads[0]["matrix"])
    away = np.abs(np.subtract.outer(np.arange(len(window)), np.arange(len(window))))
    assert ((window > 0) == (away <= 2)).all()
    assert all(head["next"] is not None for head in heads)
    shown = inspect(encoder, TEXT).stdout
    assert [re.search(rf"^L{layer} encoder.self .*-", shown, re.M) is not None for layer in (0, 1, 2)] == [
        False,
        True,
        False,
    ]
    assert "- no such head" in shown
    assert "no such head" not in inspect(encoder, TEXT, "--layer", "0").stdout


@pytest.mark.parametrize(
    ("options", "positions"),
    [
        (("--layer", "-1"), [(1, 0), (1, 1)]),
        (("--layer", "0-1", "--head", "1"), [(0, 1), (1, 1)]),
        (("--layer", "0,-1", "--head", "-2"), [(0, 0), (1, 0)]),
        (("--kind", "decoder.self", "--layer", "0"), [(0, 0), (0, 1)]),
    ],
)
def test_layers_heads_and_kinds_are_chosen(
    run: Path, options: tuple[str, ...], positions: list[tuple[int, int]]
) -> None:
    heads = result(run, TEXT, *options)["samples"][0]["heads"]
    assert [(head["layer"], head["head"]) for head in heads] == positions
    assert inspect(run, TEXT, *options).stdout.count("attention weight") == len(positions)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--layer", "2"), "--layer 2: 2 is out of range; indices are 0 to 1"),
        (("--head", "1-0"), "--head 1-0: the range 1-0 is empty"),
        (("--head", "one"), "--head one: must be numbers and ranges, such as 0,2-3,-1"),
        (("--kind", "cross"), "--kind cross: the model has only decoder.self"),
        (
            ("--query", "dog"),
            "--query dog: no such word in the text; it has </s>, the, cat, heard, bear; or give an index, 0 to 22",
        ),
        (("--query", "23"), "--query 23: no such word"),
        (("--query", ""), "--query is empty; give a word of the text or a token index"),
        (("--layer", "١"), "must be numbers and ranges"),
        (("--full",), "--full needs JSON output; add --json or -o FILE.json"),
        (("-i", "there.txt"), "both texts and --input there.txt were given"),
        (("-o", "maps.gif"), "maps.gif: its suffix must be .png or .svg or .pdf or .html or .json or .safetensors"),
        (("-o", "maps.png", "another"), "a picture shows one text at one checkpoint"),
        (("-o", "maps.svg", "--step", "all"), "a picture shows one text at one checkpoint"),
        (("a \udcff b",), "a text is not UTF-8"),
        (("--query", "\udcff"), "--query is not UTF-8"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(run: Path, options: tuple[str, ...], message: str) -> None:
    refused = inspect(run, TEXT, *options)
    assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert message in refused.stderr


def test_texts_come_from_arguments_a_file_or_stdin(run: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_bytes("the cat\r\nein Bär\n".encode())
    by_file = result(run, "-i", tmp_path / "texts.txt")
    assert [sample["text"] for sample in by_file["samples"]] == ["the cat", "ein Bär"]
    assert result(run, "the cat", "ein Bär") == by_file == result(run, stdin="the cat\nein Bär\n")
    assert inspect(run, "the cat", "ein Bär").stdout.splitlines()[0] == "the cat"
    (tmp_path / "texts.txt").write_bytes(b"a\n\xff\n")
    refused = inspect(run, "-i", tmp_path / "texts.txt")
    assert (refused.exit_code, refused.stdout) == (4, "")
    assert "texts.txt:2: line 2 is not UTF-8" in refused.stderr
    assert inspect(run, "-i", tmp_path / "none.txt").exit_code == 4
    empty = inspect(run)
    assert (empty.exit_code, "stdin has no line" in empty.stderr) == (2, True)
    assert inspect(tmp_path, TEXT).exit_code == 5


def test_a_terminal_without_a_text_is_told_how_to_give_one(run: Path) -> None:
    ours, theirs = pty.openpty()
    pipe = subprocess.PIPE
    command = Command(["inspect-attention", str(run)], os.environ, stdin=theirs, stdout=pipe, stderr=pipe)
    said = outcome(command)
    os.close(ours)
    os.close(theirs)
    assert (command.returncode, said) == (2, ("", 'no text given; give one: "a text", or -i FILE\n'))


def test_an_empty_text_is_its_separator_where_the_model_knows_one(run: Path, tmp_path: Path) -> None:
    [sample] = result(run, "")["samples"]
    assert (sample["tokens"], sample["heads"][0]["entropy"], sample["heads"][0]["rows"]) == (["</s>"], None, 0)
    assert inspect(run, "").exit_code == 0
    tail = trained(tmp_path / "tail", "train.steps=1", "data.split=tail 10%")
    refused = inspect(tail, "")
    assert (refused.exit_code, "a text is empty" in refused.stderr) == (2, True)
    assert result(tail, "ab")["samples"][0]["tokens"] == ["a", "b"]


def test_of_a_text_longer_than_the_context_the_beginning_is_looked_at(run: Path) -> None:
    shown = result(run, "ab", "x" * 100)
    assert [len(sample["tokens"]) for sample in shown["samples"]] == [3, 48]
    note = "text 2: the text has 101 tokens and is truncated to 48, the model's context"
    assert shown["notes"] == [note]
    assert f"note: {note}\n" in inspect(run, "ab", "x" * 100).stderr


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:20]))
def test_hostile_texts_come_back_exactly_and_reach_no_picture_raw(run: Path, tmp_path: Path, text: str) -> None:
    [sample] = result(run, text, "--words")["samples"]
    assert sample["text"] == text
    assert read(sample) == text.encode()[:47]
    if len(text.encode()) < 48:
        assert sample["words"] == ["</s>", *text.split()]
    options = ("--words", "--head", "0", "--layer", "0", "--describe", "--color", "always")
    drawn = inspect(run, text, *options, "-o", tmp_path / "maps.svg")
    picture = inspect(run, text, "--words", "--color", "never")
    assert (drawn.exit_code, picture.exit_code) == (0, 0)
    svg = (tmp_path / "maps.svg").read_text()
    stderr = re.sub("\x1b\\[\\d*m", "", drawn.stderr)  # warnings are colored
    for shown in (drawn.stdout + stderr, picture.stdout + picture.stderr, svg):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028]", shown)
    assert "<img" not in svg
    assert max(map(cell_len, picture.stdout.splitlines())) <= 80


def test_words_have_the_sums_to_their_tokens_and_the_means_from_them(run: Path) -> None:
    [by_token], [by_word] = (result(run, TEXT, "--full", *option)["samples"] for option in ((), ("--words",)))
    assert by_word["words"] == ["</s>", *TEXT.split()]
    of_token = np.array(by_word["word_of_token"])
    assert "".join(np.array(by_word["tokens"])[of_token == 1]) == "the "
    tokens, words = (np.array(sample["heads"][2]["matrix"]) for sample in (by_token, by_word))
    for a in range(6):
        for b in range(6):
            assert words[a, b] == pytest.approx(tokens[of_token == a][:, of_token == b].sum(axis=1).mean(), abs=1e-6)
    np.testing.assert_allclose(words.sum(axis=1), 1, atol=1e-6)
    assert by_word["heads"][0]["entropy"] != by_token["heads"][0]["entropy"]


def test_a_query_shows_where_one_word_looks_in_every_head(run: Path, tmp_path: Path) -> None:
    [sample] = result(run, TEXT, "--query", "cat", "--full")["samples"]
    assert sample["query"] == {"index": 2, "text": "cat"}
    assert all(head["query_weights"] == head["matrix"][2] for head in sample["heads"])
    [by_token] = result(run, TEXT, "--query", "-1")["samples"]
    assert (by_token["query"], "words" in by_token) == ({"index": len(TEXT), "text": "r"}, False)
    [part] = result(run, "see (the cat)!", "--query", "cat")["samples"]
    assert part["query"] == {"index": 3, "text": "cat)!"}
    both = "cat, see the cat. the catalogue"
    assert result(run, both, "--query", "cat")["samples"][0]["query"] == {"index": 4, "text": "cat."}, (
        "of all the last, exact or not"
    )
    assert (
        "note: 'cat' matches 2 words: 'cat,' (1), 'cat.' (4); the last is shown\n"
        in inspect(run, both, "--query", "cat").stderr
    )
    shown = inspect(run, TEXT, "--query", "the", "-o", tmp_path / "fan.svg")
    assert "note: 'the' matches 2 words: 'the' (1), 'the' (4); the last is shown\n" in shown.stderr
    assert shown.stdout == ""
    assert re.search(r"^ *>the ", inspect(run, TEXT, "--query", "the").stdout, re.M)
    assert ">heard</text>" in (drawn := (tmp_path / "fan.svg").read_text())
    assert ">bear</text>" not in drawn, "it stands behind the query"


@pytest.mark.parametrize("tokenizer", ["{kind: char}", "{kind: wordpiece, vocab_size: 120}"])
def test_a_query_finds_the_word_as_typed_whatever_the_tokenizer_makes_of_it(tokenizer: str, tmp_path: Path) -> None:
    run, text = (
        trained(tmp_path / "run", "train.steps=1", f"tokenizer={tokenizer}"),
        "Don't see the Zèbra, or the zebra",
    )
    for asked, index, found in (("Don't", 1, "Don't"), ("Zèbra", 4, "Zèbra,"), ("Zèbra,", 4, "Zèbra,")):
        [sample] = result(run, text, "--query", asked)["samples"]
        assert sample["words"] == ["</s>", *text.split()]
        assert sample["query"] == {"index": index, "text": found}
    assert inspect(run, text, "--query", "don't").exit_code == 2


def test_sentences_say_the_same_as_the_numbers(run: Path) -> None:
    shown = inspect(run, TEXT, "--describe").stdout.splitlines()
    [sample] = result(run, TEXT, "--describe")["samples"]
    assert shown[0].startswith("4 heads, roles on repeated random tokens: ")
    assert shown[1:] == [head["description"] for head in sample["heads"]]
    assert f"entropy {sample['heads'][0]['entropy']:.2f}" in shown[1]
    [row] = result(run, TEXT, "--query", "cat", "--layer", "0", "--head", "0", "--describe")["samples"][0]["heads"]
    best = int(np.argmax(row["query_weights"]))
    assert (
        f"'cat' (2) attends to {['</s>', *TEXT.split()][best]!r} ({best}) {max(row['query_weights']):.2f}"
        in row["description"]
    )


def test_roles_are_scores_on_random_tokens_with_errors_whatever_the_text(run: Path) -> None:
    texts = result(run, TEXT, "ab")["samples"]
    heads = [[(head["role"], head["role_scores"]) for head in sample["heads"]] for sample in texts]
    assert heads[0] == heads[1]
    model = open_trained(run, device="cpu")
    rows = repeated_tokens(
        range(4, model.tokenizer.vocabulary.size), 47
    )  # without special tokens, behind the separator
    assert rows is not None
    rows = torch.nn.functional.pad(rows, (1, 0), value=model.tokenizer.vocabulary.separator)
    expected = scores_on(model.model, Tokens(rows))
    for (role, scores), (index, own) in zip(heads[0], expected.items(), strict=True):
        assert role == role_of(own)
        assert scores == {
            name: {"score": pytest.approx(s.mean), "error": pytest.approx(s.error)} for name, s in own.items()
        }, index
    shown = inspect(run, TEXT).stdout
    best = max(range(4), key=lambda head: heads[0][head][1]["previous"]["score"])
    score, error = heads[0][best][1]["previous"].values()
    assert re.search(
        rf"^previous token +{score:.2f} ± {error:.2f} +decoder self-attention L{best // 2} H{best % 2}$", shown, re.M
    )


def test_options_that_choose_heads_add_up_and_others_are_given_once(run: Path) -> None:
    twice = result(run, TEXT, "--layer", "0", "--layer", "1", "--head", "1", "--head", "1")["samples"][0]["heads"]
    assert [(head["layer"], head["head"]) for head in twice] == [(0, 1), (1, 1)]
    shown = inspect(run, TEXT, "--layer", "0", "--head", "0", "--head", "1").stdout
    assert shown.count("decoder self-attention L0 H") == 2
    refused = inspect(run, TEXT, "--query", "cat", "--query", "bear")
    assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert "--query: given 2 times, but takes one value" in refused.stderr


def test_a_terminal_says_how_many_of_the_heads_it_shows(tmp_path: Path) -> None:
    run = trained(tmp_path / "deep", "train.steps=1", "model={kind: decoder, d_model: 16, n_layers: 3, n_heads: 2}")
    assert re.search(r"^\d of 6 heads shown; --layer/--head for others$", inspect(run, TEXT).stdout, re.M)
    assert "\n4 of 6 heads shown; --layer/--head for others\n" in inspect(run, TEXT, "--layer", "0-2").stdout
    assert "heads shown" not in inspect(run, TEXT, "--layer", "0-1").stdout


def test_pictures_name_the_run_the_step_the_heads_and_the_text(run: Path, tmp_path: Path) -> None:
    text = "a cat"
    for file, title, *options in (
        ("all.svg", "decoder self-attention, run decoder, step 3"),
        ("one.svg", "decoder self-attention L1 H0, run decoder, step 3", "--layer", "1", "--head", "0"),
        ("fan.svg", "run decoder, step 3: decoder self-attention of one word: cat", "--query", "cat"),
    ):
        done = inspect(run, text, "--step", "3", *options, "-o", tmp_path / file)
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"written: {tmp_path / file}\n")
        drawn = (tmp_path / file).read_text()
        assert all(f">{said}</text>" in drawn for said in (title, text))
    assert ">L1 H1" in (tmp_path / "all.svg").read_text()
    said = inspect(run, text, "-o", tmp_path / "said.html", "--describe").stdout
    assert said.startswith("4 heads, roles on repeated random tokens: ")


def test_a_picture_can_be_dark_and_untitled(run: Path, tmp_path: Path) -> None:
    pictures = {}
    for option in ("--dark", "--no-title"):
        done = inspect(run, "a cat", option, "-o", tmp_path / f"{option}.svg")
        assert done.exit_code == 0, done.stderr
        pictures[option] = (tmp_path / f"{option}.svg").read_text()
    assert ["a cat" in picture for picture in pictures.values()] == [True, False]
    assert [">L1 H1" in picture for picture in pictures.values()] == [True, True]
    assert [DARK.paper in picture for picture in pictures.values()] == [True, False]
    for option in ("--dark", "--no-title"):
        for more in ((), ("-o", tmp_path / "numbers.json")):
            done = inspect(run, TEXT, option, *more)
            assert (done.exit_code, done.stdout) == (2, "")
            assert f"{option} is of a picture, and none is written; add --output FILE.png" in done.stderr


def test_all_steps_show_how_heads_form(run: Path) -> None:
    samples = result(run, TEXT, "ab", "--step", "all")["samples"]
    assert [(sample["step"], sample["text"]) for sample in samples] == [(3, TEXT), (3, "ab"), (4, TEXT), (4, "ab")]
    for early in (True, False):
        one = result(run, TEXT, "--step", "3" if early else "last")["samples"][0]
        assert {**one, "step": 3 if early else 4} == samples[0 if early else 2]
    done = inspect(run, TEXT, "--step", "all")
    kept = "note: 2 checkpoints of this run are kept; train with checkpoint.keep_last=20 to see how heads develop\n"
    assert done.stderr == kept
    shown = done.stdout.splitlines()
    assert shown[0].split() == ["head", "step", "3", "step", "4"]
    for line, early, late in zip(shown[1:5], samples[0]["heads"], samples[2]["heads"], strict=True):
        numbers = re.findall(r"\d\.\d\d", line)
        assert numbers == [f"{head['entropy']:.2f}" for head in (early, late)]
    assert shown[5].startswith("entropy on the text, role on repeated random tokens:")
    described = inspect(run, TEXT, "--step", "all", "--describe").stdout
    assert re.findall(r"^step (\d)\n4 heads, roles ", described, re.M) == ["3", "4"]
    assert inspect(run, TEXT, "--step", "all", "--query", "cat").stdout.count(">cat") == 2
    assert inspect(run, TEXT, "--step", "2").exit_code == 5


def test_files_are_written_whole_and_only_pictures_of_minitf_again_without_force(run: Path, tmp_path: Path) -> None:
    names = [tmp_path / f"maps.{suffix}" for suffix in ("png", "svg", "pdf", "html", "json", "safetensors")]
    asked = [part for name in names for part in ("-o", name)]
    done = inspect(run, "a cat", *asked, "--layer", "1", "--head", "0")
    assert done.exit_code == 0, done.stderr
    before = [name.read_bytes() for name in names]
    assert before[2].startswith(b"%PDF")
    assert inspect(run, "cats", *asked[:8]).exit_code == 0
    assert [name.read_bytes() == old for name, old in zip(names, before, strict=True)] == [False] * 4 + [True] * 2
    for name in names[:4]:
        name.write_bytes(b"of another tool")
    for name in names:
        refused = inspect(run, "cats", "-o", name)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert f"{name.name}: exists; --force overwrites it" in refused.stderr
    assert inspect(run, "a cat", *asked, "--layer", "1", "--head", "0", "--force").exit_code == 0
    assert [name.read_bytes() for name in names] == before
    assert sorted(tmp_path.iterdir()) == sorted(names)


def test_the_page_has_the_weights_of_all_texts_and_checkpoints(run: Path, tmp_path: Path) -> None:
    page, texts = tmp_path / "page.html", (TEXT, MARKUP)
    assert inspect(run, *texts, "--step", "all", "-o", page).exit_code == 0
    samples = result(run, *texts, "--step", "all", "--full")["samples"]
    contents, maps = contents_of(page.read_bytes()), iter(maps_of(page.read_bytes()))
    assert [scene["at"] for scene in contents["scenes"]] == [
        {"text": text, "step": step} for step in ("3", "4") for text in texts
    ]
    for sample, scene in zip(samples, contents["scenes"], strict=True):
        for head, shown in zip(sample["heads"], scene["maps"], strict=True):
            assert shown["name"] == f"L{head['layer']}H{head['head']}"
            assert (shown["role"] or None, shown["entropy"]) == (head["role"], head["entropy"])
            assert contents["labels"][shown["rows"]] == [label(token) for token in sample["tokens"]]
            weights = np.where(np.tri(len(sample["tokens"]), dtype=bool), head["matrix"], np.nan)
            np.testing.assert_allclose(next(maps), weights, rtol=0, atol=1.01 * contents["error"])
    assert inspect(run, TEXT, "--query", "bear", "--layer", "1", "-o", page, "--force").exit_code == 0
    assert re.fullmatch(r"L1H0/q\d", contents_of(page.read_bytes())["opens"])


def test_the_maps_file_has_the_weights_and_the_same_bytes_each_time(run: Path, tmp_path: Path) -> None:
    texts, files = (TEXT, "漢字 🙂"), [tmp_path / "first.safetensors", tmp_path / "again.safetensors"]
    sample = result(run, *texts, "--full", "--words")["samples"][1]
    for maps in files:
        assert inspect(run, *texts, "--words", "-o", maps).exit_code == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    with safe_open(files[0], framework="numpy") as file:
        assert list(file.metadata()) == ["minitf"]
        about = json.loads(file.metadata()["minitf"])
        layer = file.get_tensor("s0001/decoder.self/L01")
        ids, special = file.get_tensor("s0001/src.ids"), file.get_tensor("s0001/src.special")
        assert file.get_tensor("s0001/src.words").tolist() == sample["word_of_token"]
        offsets = file.get_tensor("s0001/src.offsets")
    assert (layer.dtype, layer.tolist()) == (np.float32, [head["matrix"] for head in sample["heads"][2:]])
    assert (ids.tolist(), special.tolist()) == (sample["ids"], [1] + [0] * (len(sample["ids"]) - 1))
    assert (about["format"], about["version"], about["axes"]) == ("minitf-attn", 1, "[head, query, key]")
    assert (offsets.dtype, offsets[0].tolist()) == (np.int32, [-1, -1])
    spans = [[0, 1]] * 3 + [[1, 2]] * 3 + [[2, 3]] + [[3, 4]] * 4
    assert offsets[1:].tolist() == spans, "of each byte its character"
    assert about["samples"][1]["src"] == {name: sample[name] for name in ("text", "tokens", "words")}
    assert about["samples"][1]["heads"] == {"decoder.self/L00": [0, 1], "decoder.self/L01": [0, 1]}


def test_the_maps_file_says_whose_weights_were_looked_at(run: Path, tmp_path: Path) -> None:
    def about(*options: str) -> dict[str, Any]:
        assert inspect(run, TEXT, "ab", *options, "--force", "-o", tmp_path / "maps.safetensors").exit_code == 0
        with safe_open(tmp_path / "maps.safetensors", framework="numpy") as file:
            return dict(json.loads(file.metadata()["minitf"]))

    def saved(file: Path) -> str:
        return hashlib.sha256(file.read_bytes()).hexdigest()

    steps = {step: saved(run / "checkpoints" / f"step-{step:08d}" / "model.safetensors") for step in (3, 4)}
    best = json.loads((run / "run.json").read_text())["model"]["step"]
    assert about()["model"]["weights"] == [{"step": best, "sha256": saved(run / "model.safetensors")}]
    assert about("--step", "3")["model"]["weights"] == [{"step": 3, "sha256": steps[3]}]
    assert about("--step", "last")["model"]["weights"] == [{"step": 4, "sha256": steps[4]}]
    over = about("--step", "all")
    assert over["model"]["weights"] == [{"step": step, "sha256": steps[step]} for step in (3, 4)]
    assert [sample["step"] for sample in over["samples"]] == [3, 3, 4, 4]


def test_narrow_grids_keep_the_layers_numbers(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows = inspect(run, TEXT).stdout.splitlines()[2:4]
    assert [row[:2] for row in rows] == ["L0", "L1"]


def test_a_terminal_shows_the_grid_and_the_most_structured_heads(run: Path) -> None:
    plain, colored = (inspect(run, TEXT, "--color", color).stdout for color in ("never", "always"))
    assert "\x1b[" in colored
    assert "\x1b" not in plain
    assert max(map(cell_len, plain.splitlines())) <= 80
    assert plain.startswith("Roles of all heads")
    assert len(re.findall("^L[01] decoder.self ", plain, re.M)) == 2
    assert 1 <= plain.count("attention weight") <= 3


def test_the_difference_of_explicit_attention_is_a_detail(run: Path) -> None:
    difference = "largest difference of logits, explicit against fused attention: "
    assert inspect(run, TEXT, "-v").stderr.startswith(difference)
    assert inspect(run, TEXT).stderr == ""


VIEWS = {"attention": (TEXT, "a cat"), "softmax": (TEXT, "a cat"), "word": ("cat", "a cat", "the cat sat", "my cat")}


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_warns_once_where_explicit_attention_differs(
    view: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused = MultiHeadAttention.explicit

    def wrong(self: MultiHeadAttention, *arguments: Any) -> Any:
        computed = fused(self, *arguments)
        return computed._replace(weights=computed.weights * 9)

    monkeypatch.setattr(MultiHeadAttention, "explicit", wrong)
    for command in (("inspect", view, run, *VIEWS[view], "-q"),) * 2:
        done = minitf(*command)
        assert done.exit_code == 0
        assert done.stderr == (
            "warning: explicit and fused attention differ by more than 0.001 in their logits: "
            "what is shown may not be what the model computes\n"
        )


@pytest.mark.parametrize(
    "parity",
    [
        test_parity.test_a_decoder_reproduces_hugging_faces_gpt2,
        test_parity.test_an_encoder_reproduces_hugging_faces_bert,
    ],
)
def test_the_maps_are_hugging_faces_eager_maps(parity: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of parity again, to 1e-5, of the maps that are shown."""
    compared = []

    def shown(model: Model, ids: Tensor) -> list[Tensor]:
        texts = [
            [heads_of(attention, row.tolist()) for attention in capture(model, Tokens(row[None])).attention]
            for row in ids
        ]
        compared.extend(texts)
        maps = [[np.stack([head.weights for head in heads]) for heads in text] for text in texts]
        return [torch.from_numpy(np.stack(layer)) for layer in zip(*maps, strict=True)]

    monkeypatch.setattr(test_parity, "maps_of", shown)
    parity()
    assert len(compared) == 2
