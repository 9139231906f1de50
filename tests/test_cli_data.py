"""`minitf data`: what it shows is what the objective asks, place by place."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mini_tf.cli.data import app

SENTENCES = [f"the cat number {n} sat on mat {n % 7}" for n in range(60)]


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("\n\n".join(SENTENCES))
    (tmp_path / "tiny.yaml").write_text(
        "data: {train: text.txt, pack: docs}\ntokenizer: {kind: char}\nmodel: {kind: decoder}\ntrain: {steps: 1, context: 48}\n"
    )
    return str(tmp_path / "tiny.yaml")


def result(*arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--json", "-q"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["result"]


def test_the_next_token_is_asked_for_at_every_place(recipe: str) -> None:
    shown = result("show", recipe, "--split", "val")
    assert shown["sees"] == "each token sees only what stands before and itself, in its document within the row"
    places = shown["rows"][0]["places"]
    assert [place["target"] for place in places[:-1]] == [place["reads"] for place in places[1:]]
    assert places[0]["reads"] == "</s>"
    assert "".join(place["reads"] for place in places if place["document"] == 1).removeprefix("</s>") in SENTENCES


def test_masked_places_show_what_stood_there(recipe: str) -> None:
    masked = ["model.kind=encoder", "objective.kind=masked", "objective.scheme=whole_word", "objective.mask_rate=0.3"]
    shown = result("show", recipe, *masked, "--rows", "4")
    places = [place for row in shown["rows"] for place in row["places"]]
    asked = [place for place in places if place["target"] is not None]
    assert 0.15 < len(asked) / len(places) < 0.35
    assert all(place["replaced"] in (None, place["target"]) for place in asked)
    assert all(place["replaced"] is None for place in places if place["target"] is None)
    assert "[MASK]" in {place["reads"] for place in asked}
    assert shown == result("show", recipe, *masked, "--rows", "4")


def test_the_table_stands_for_the_same_row(recipe: str) -> None:
    [row] = result("show", recipe)["rows"]
    table = CliRunner().invoke(app, ["show", recipe, "-q"]).stdout.splitlines()
    assert table[2] == f"row {row['row']} of {result('show', recipe)['n_rows']} (counted from 0): 48 tokens"
    assert [line.split()[0] for line in table[4:]] == [str(place["place"]) for place in row["places"]]


@pytest.mark.parametrize("pack", ["concat", "docs", "none"])
def test_the_rows_of_the_held_out_text_are_all_counted(recipe: str, pack: str) -> None:
    shown = result("show", recipe, f"data.pack={pack}", "data.split=30%", "--split", "val", "--rows", "10000")
    assert shown["n_rows"] == len(shown["rows"]) > 5


def test_what_a_mixer_leaves_out_is_said_of_each_mixer(recipe: str) -> None:
    model = "model={kind: encoder, attention: [{kind: window, window: 2}, softmax]}"
    shown = result("show", recipe, model, "data.pack=concat")
    words = "each token sees both sides and itself, in its row (window: at most 2 tokens away, then softmax: all of these)"
    assert shown["sees"] == words
    stream = ["model={kind: decoder, attention: window}", "data.pack=concat", "train.stream=true"]
    assert "in its row, and earlier rows of the stream (window: at most 128 tokens away)" in result("show", recipe, *stream)["sees"]


def test_statistics_count_what_is_there(recipe: str) -> None:
    counted = result("stats", recipe)
    train, val = counted["train"], counted["val"]
    assert train["documents"] + val["documents"] == 60
    assert train["bytes"] + val["bytes"] == sum(map(len, SENTENCES))
    assert train["tokens"] == train["bytes"] + train["documents"] + 1
    assert train["longest_document"] == max(map(len, SENTENCES))
    assert counted["documents_on_both_sides"] == 0


def test_a_refused_text_is_one_line_and_exit_code_4(recipe: str) -> None:
    done = CliRunner().invoke(app, ["stats", recipe, "data.train=nowhere.txt"])
    assert done.exit_code == 4
    assert done.stderr.count("\n") == 1
    assert "nowhere.txt: no such file" in done.stderr
