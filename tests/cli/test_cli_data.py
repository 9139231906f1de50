"""`minitf data`: what it shows is what the objective asks, place by place."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mini_tf.cli.app import app

SENTENCES = [f"the cat number {n} sat on mat {n % 7}" for n in range(60)]


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("\n\n".join(SENTENCES))
    (tmp_path / "tiny.yaml").write_text(
        "data: {train: text.txt, pack: docs}\ntokenizer: {kind: char}\nmodel: {kind: decoder}\ntrain: {steps: 1,"
        " context: 48}\n"
    )
    return str(tmp_path / "tiny.yaml")


def result(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["data", *arguments, "--json", "-q"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["result"]


def test_the_next_token_is_asked_for_at_every_place(recipe: str) -> None:
    shown = result("show", recipe, "--split", "val")
    assert shown["sees"] == "each token attends to earlier tokens and itself, in its document within the row"
    places = shown["rows"][0]["positions"]
    assert [place["target"] for place in places[:-1]] == [place["reads"] for place in places[1:]]
    assert places[0]["reads"] == "</s>"
    assert "".join(place["reads"] for place in places if place["document"] == 1).removeprefix("</s>") in SENTENCES


def test_masked_positions_show_what_stood_there(recipe: str) -> None:
    masked = ["model.kind=encoder", "objective.kind=masked", "objective.scheme=whole_word", "objective.mask_rate=0.3"]
    shown = result("show", recipe, *masked, "--rows", "4")
    positions = [place for row in shown["rows"] for place in row["positions"]]
    asked = [place for place in positions if place["target"] is not None]
    assert 0.15 < len(asked) / len(positions) < 0.35
    assert all(place["replaced"] in (None, place["target"]) for place in asked)
    assert all(place["replaced"] is None for place in positions if place["target"] is None)
    assert "[MASK]" in {place["reads"] for place in asked}
    assert shown == result("show", recipe, *masked, "--rows", "4")


def test_the_table_stands_for_the_same_row(recipe: str) -> None:
    [row] = result("show", recipe)["rows"]
    table = CliRunner().invoke(app, ["data", "show", recipe, "-q"]).stdout.splitlines()
    first, *_, last = row["documents"]
    n_rows = result("show", recipe)["n_rows"]
    assert table[2] == f"row {row['row']} of {n_rows} (counted from 0), documents {first} to {last}: 48 tokens"
    assert [line.split()[0] for line in table[4:]] == [str(place["position"]) for place in row["positions"]]


@pytest.mark.parametrize("pack", ["concat", "docs", "none"])
def test_the_rows_of_the_held_out_text_are_all_counted(recipe: str, pack: str) -> None:
    shown = result("show", recipe, f"data.pack={pack}", "data.split=30%", "--split", "val", "--rows", "10000")
    assert shown["n_rows"] == len(shown["rows"]) > 5


def test_what_a_mixer_leaves_out_is_said_of_each_mixer(recipe: str) -> None:
    model = "model={kind: encoder, attention: [{kind: window, window: 2}, softmax]}"
    shown = result("show", recipe, model, "data.pack=concat")
    words = (
        "each token attends to earlier and later tokens and itself, in its row (window: at most 2 tokens away, then"
        " softmax: unrestricted)"
    )
    assert shown["sees"] == words
    stream = ["model={kind: decoder, attention: window}", "data.pack=concat", "train.stream=true"]
    assert (
        "in its row, and earlier rows of the stream (window: at most 128 tokens away)"
        in result("show", recipe, *stream)["sees"]
    )


def test_statistics_count_what_is_there(recipe: str) -> None:
    counted = result("stats", recipe)
    train, val = counted["train"], counted["val"]
    assert train["documents"] + val["documents"] == 60
    assert train["bytes"] + val["bytes"] == sum(map(len, SENTENCES))
    assert train["tokens"] == train["bytes"] + train["documents"] + 1
    assert train["longest_document"] == max(map(len, SENTENCES))
    assert counted["documents_on_both_sides"] == 0


def test_a_refused_text_is_one_line_and_exit_code_4(recipe: str) -> None:
    done = CliRunner().invoke(app, ["data", "stats", recipe, "data.train=nowhere.txt"])
    assert done.exit_code == 4
    assert done.stderr.count("\n") == 1
    assert "nowhere.txt: no such file" in done.stderr


PAIRS = [(f"the {n} cats", f"sa{'ta' * (n % 5)} {n}") for n in range(60)]


@pytest.fixture
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "en").write_text("".join(f"{source}\n" for source, _ in PAIRS))
    (tmp_path / "xx").write_text("".join(f"{target}\n" for _, target in PAIRS))
    (tmp_path / "pairs.yaml").write_text(
        "data: {train: {source: en, target: xx}}\ntokenizer: {kind: char, source: {kind: byte}}\n"
        "model: {kind: encoder_decoder}\ntrain: {steps: 1, context: 48, batch_tokens: 100}\n"
    )
    return str(tmp_path / "pairs.yaml")


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_pair_is_shown_as_it_is_read_and_asked_for(pairs: str, split: str) -> None:
    shown = result("show", pairs, "--split", split, "--rows", "1000", "data.split=30%")
    counted = result("stats", pairs, "data.split=30%")
    assert shown["n_rows"] == counted[split]["pairs"]
    assert len(shown["rows"]) == shown["n_rows"] if split == "val" else 1 < len(shown["rows"]) <= 100 // 10
    found = [("".join(p["reads"] for p in row["source"]["positions"]), row["positions"]) for row in shown["rows"]]
    for source, positions in found:
        read, asked = [place["reads"] for place in positions], [place["target"] for place in positions]
        assert (read[0], asked[-1], read[1:]) == ("</s>", "</s>", asked[:-1])
        assert (source.removesuffix("</s>"), "".join(read[1:])) in PAIRS
        assert source.endswith("</s>")
    assert len({len(row["positions"]) + row["padding"] for row in shown["rows"]}) == 1
    assert split == "train" or any(row["padding"] for row in shown["rows"])


def test_the_table_of_a_pair_has_both_sides(pairs: str) -> None:
    [row] = result("show", pairs, "--split", "val")["rows"]
    lines = CliRunner().invoke(app, ["data", "show", pairs, "--split", "val", "-q"]).stdout.splitlines()
    assert lines[0].startswith(
        "val, seq2seq, pairs: each target token attends to earlier target tokens and itself, and to the whole "
    )
    n_source, n_target = len(row["source"]["positions"]), len(row["positions"])
    assert (
        lines[2]
        == f"row 0 of {result('stats', pairs)['val']['pairs']} (counted from 0), pair 1: source {n_source} tokens,"
        f" target {n_target} tokens"
    )
    assert len(lines[4:]) == max(n_source, n_target)
    first = f"{0:>8}  {row['source']['positions'][0]['reads']!r:<20} {'</s>'!r:<20} {row['positions'][0]['target']!r}"
    assert lines[4] == first


def test_what_is_seen_of_pairs_is_said_of_either_side(pairs: str) -> None:
    blind = result("show", pairs, "model.cross_attention=null", "model.encoder.attention={kind: window, window: 3}")[
        "sees"
    ]
    assert "itself, but not to the source; " in blind
    assert blind.endswith("each source token attends to all source tokens (window: at most 3 tokens away)")


def test_statistics_of_pairs_count_either_side(pairs: str) -> None:
    counted = result("stats", pairs, "train.context=12")
    assert counted["train"]["pairs"] + counted["val"]["pairs"] == 60
    for number, role in enumerate(("source", "target")):
        texts = [pair[number] for pair in PAIRS]
        assert sum(counted[side][role]["bytes"] for side in ("train", "val")) == len("".join(texts))
        assert max(counted[side][role]["longest_document"] for side in ("train", "val")) == max(map(len, texts))
    assert sum(counted[side]["cut"] for side in ("train", "val")) == sum(max(map(len, pair)) + 1 > 12 for pair in PAIRS)
    assert counted["sources_on_both_sides"] == 0
    assert counted["source_vocabulary"] > 256 > counted["vocabulary"]
    table = CliRunner().invoke(app, ["data", "stats", pairs, "-q"]).stdout
    assert table.splitlines()[0].split() == ["train", "source", "train", "target", "val", "source", "val", "target"]
    assert f"vocabulary: source {counted['source_vocabulary']} tokens, target {counted['vocabulary']} tokens" in table


def test_sources_on_both_sides_are_counted(pairs: str, tmp_path: Path) -> None:
    (tmp_path / "en2").write_text("the 1 cats\nthe 1 dogs\n")
    (tmp_path / "xx2").write_text("sato 1\nsata 1\n")
    val = f"data.val={{source: {tmp_path}/en2, target: {tmp_path}/xx2}}"
    assert result("stats", pairs, val)["sources_on_both_sides"] == 1


def test_a_line_without_partner_is_one_line_and_exit_code_4(pairs: str, tmp_path: Path) -> None:
    (tmp_path / "xx").write_text("one\n")
    done = CliRunner().invoke(app, ["data", "stats", pairs])
    assert done.exit_code == 4
    assert f"{tmp_path}/en:2: no corresponding line: this file has 60 lines, {tmp_path}/xx 1" in done.stderr


@pytest.mark.parametrize("pack", ["concat", "docs", "none"])
def test_rows_name_the_documents_that_they_read_from_1(recipe: str, pack: str) -> None:
    rows = result("show", recipe, f"data.pack={pack}", "--rows", "4", "--split", "val")["rows"]
    assert rows[0]["documents"][0] == 1
    assert all(row["documents"] == sorted(set(row["documents"])) for row in rows)
    if pack == "none":
        assert all(len(row["documents"]) == 1 for row in rows)
    else:  # one text on end
        assert all(a["documents"][-1] in (b["documents"][0], b["documents"][0] - 1) for a, b in pairwise(rows))
    shown = CliRunner().invoke(app, ["data", "show", recipe, f"data.pack={pack}", "--split", "val"]).output
    assert re.search(r"^row 0 of \d+ \(counted from 0\), document", shown, re.MULTILINE)


def test_examples_are_numbered_too(pairs: str) -> None:
    done = CliRunner().invoke(app, ["data", "show", pairs, "data.split=30%", "--rows", "3", "--split", "val"])
    assert re.findall(r"counted from 0\), (pair \d)", done.output) == ["pair 1", "pair 2", "pair 3"]
