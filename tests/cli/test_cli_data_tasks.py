"""`minitf data` on labelled examples: what is asked for stands beside the token where it is asked."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_tasks
from commands import minitf
from hostile import STEERING
from tiny_tasks import NAMES, ODD, OPINIONS, SMALL

TURNS = [{"prompt": f"what is {n} and one ?", "response": f"it is {n + 1} ."} for n in range(40)]


def data(command: str, *arguments: str | Path) -> Any:
    done = minitf("data", command, "bert-nano", *SMALL, *arguments, "--json", "-q")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["result"]


def classes(folder: Path) -> tuple[str, ...]:
    return f"data={{train: '{tiny_tasks.opinions(folder / 'a.jsonl')}', split: 20%}}", "objective.kind=classify"


def tags(folder: Path) -> tuple[str, ...]:
    return f"data={{train: '{tiny_tasks.names(folder / 'a.conll')}', split: 20%}}", "objective.kind=tag"


def numbers(folder: Path) -> tuple[str, ...]:
    file = tiny_tasks.opinions(folder / "a.jsonl")
    return f"data={{train: '{file}', split: 20%, fields: {{text: text, label: stars}}}}", "objective.kind=regress"


def turns(folder: Path) -> tuple[str, ...]:
    file = tiny_tasks.opinions(folder / "a.jsonl", TURNS)
    decoder = "model={kind: decoder, d_model: 16, n_layers: 1, n_heads: 2}"
    return f"data={{train: '{file}', split: 20%}}", "objective.kind=instruct", decoder, "train={steps: 9, context: 64}"


def text_of(row: dict[str, Any]) -> str:
    return "".join(place["reads"] for place in row["positions"]).replace("</s>", "|")


@pytest.mark.parametrize("split", ["train", "val"])
def test_the_class_of_a_text_is_asked_for_at_the_separator_before_it(tmp_path: Path, split: str) -> None:
    shown = data("show", *classes(tmp_path), "train.context=64", "--rows", "1000", "--split", split)
    assert shown["objective"] == "classify"
    assert len(shown["rows"]) == (shown["n_rows"] if split == "val" else 8)
    known = {f"|{row['text']}|": row["label"] for row in OPINIONS}
    for row in shown["rows"]:
        first, *others = row["positions"]
        assert first["target"] == known[text_of(row)]
        assert all(place["target"] is None for place in others)


def test_what_training_hides_is_shown_with_what_stood_there(tmp_path: Path) -> None:
    arguments = (*classes(tmp_path), "train.context=64", "objective.token_dropout_rate=0.5")
    [row], [plain] = (data("show", *given)["rows"] for given in (arguments, arguments[:-1]))
    hidden = [place for place in row["positions"] if place["replaced"] is not None]
    assert 0 < len(hidden) < len(row["positions"])
    assert len({place["reads"] for place in hidden}) == 1
    assert [place["replaced"] or place["reads"] for place in row["positions"]] == [
        place["reads"] for place in plain["positions"]
    ]
    assert all(place["replaced"] is None for place in plain["positions"])
    shown = minitf("data", "show", "bert-nano", *SMALL, *arguments, "-q").stdout
    assert "original" in shown
    assert sum(repr(place["replaced"]) in shown for place in hidden) == len(hidden)
    judged = data("show", *arguments, "--split", "val")["rows"]
    assert all(place["replaced"] is None for one in judged for place in one["positions"]), "nothing is hidden there"


def test_a_number_is_shown_in_its_own_unit(tmp_path: Path) -> None:
    shown = data("show", *numbers(tmp_path), "train.context=64", "--rows", "1000", "--split", "val")
    known = {f"|{row['text']}|": row["stars"] for row in OPINIONS}
    assert len(shown["rows"]) == shown["n_rows"] > 5
    assert all(row["positions"][0]["target"] == pytest.approx(known[text_of(row)], rel=1e-5) for row in shown["rows"])


def test_a_tag_is_asked_for_at_the_first_token_of_its_word(tmp_path: Path) -> None:
    shown = data("show", *tags(tmp_path), "train.context=64", "--rows", "1000", "--split", "val")
    known = {f"|{' '.join(words)}|": (words, tags) for words, tags in NAMES}
    for row in shown["rows"]:
        words, asked = known[text_of(row)]
        assert [place["target"] for place in row["positions"] if place["target"] is not None] == asked
        starts = np.cumsum([0, *(len(place["reads"].replace("</s>", "|")) for place in row["positions"]), 0])
        begins = [1 + len(" ".join(words[:n])) + (n > 0) for n in range(len(words))]
        positions = [n for n, place in enumerate(row["positions"]) if place["target"] is not None]
        assert all(starts[n] <= begin < starts[n + 1] for n, begin in zip(positions, begins, strict=True))


def test_of_a_conversation_only_the_response_and_its_end_are_targets(tmp_path: Path) -> None:
    shown = data("show", *turns(tmp_path), "--rows", "1000", "--split", "val")
    said = {f"{turn['prompt']}|{turn['response']}": turn["response"] for turn in TURNS}
    assert len(shown["rows"]) == shown["n_rows"] > 3
    for row in shown["rows"]:
        asked = "".join(place["target"] or "" for place in row["positions"]).replace("</s>", "|")
        assert asked == said[text_of(row).removeprefix("|")] + "|"
        assert row["positions"][0]["target"] is None


def test_the_tables_stand_for_the_same_and_steer_nothing(tmp_path: Path) -> None:
    for kind in (classes, tags, numbers, turns):
        arguments = ("bert-nano", *SMALL, *kind(tmp_path))
        [row] = data("show", *kind(tmp_path))["rows"]
        shown = minitf("data", "show", *arguments, "-q").stdout
        positions = [line for line in shown.splitlines() if line.startswith("   ") and line.split()[0].isdigit()]
        assert len(positions) == len(row["positions"])
        asked = [place["target"] for place in row["positions"] if place["target"] is not None]
        assert all(repr(target) in shown for target in asked)
        shown += minitf("data", "stats", *arguments, "-q").stdout
        assert not set(shown) & (set(STEERING) - {"\n"}), "though one class is called with an escape sequence"


def test_prompts_that_stand_on_both_sides_are_counted_whatever_their_answers(tmp_path: Path) -> None:
    asked = [{"prompt": f"what is {n} ?", "response": "it is so ."} for n in range(20)]
    train, val = tmp_path / "train.jsonl", tmp_path / "val.jsonl"
    tiny_tasks.opinions(train, asked)
    tiny_tasks.opinions(
        val, [row | {"response": "it is not ."} for row in asked[:7]] + [{"prompt": "why ?", "response": "so ."}]
    )
    given = turns(tmp_path)[1:]
    assert data("stats", f"data={{train: '{train}', val: '{val}'}}", *given)["examples_on_both_sides"] == 7
    rows = [row | {"response": f"it is {n} ."} for n in range(4) for row in asked]
    divided = data("stats", f"data={{train: '{tiny_tasks.opinions(train, rows)}', split: 20%}}", *given)
    assert divided["examples_on_both_sides"] == 0
    assert divided["train"]["documents"] + divided["val"]["documents"] == 80


def test_statistics_count_examples_and_labels_on_both_sides(tmp_path: Path) -> None:
    counted = data("stats", *classes(tmp_path))
    train, val = counted["train"], counted["val"]
    assert train["documents"] + val["documents"] == len(OPINIONS)
    assert {name: train["labels"][name] + val["labels"][name] for name in ("good", "bad", ODD)} == dict.fromkeys(
        ("good", "bad", ODD), 40
    )
    assert sum(val["labels"].values()) == val["documents"] > 5
    assert (
        train["shortest_document"] <= train["median_document"] <= train["95_percent_up_to"] <= train["longest_document"]
    )
    assert counted["examples_on_both_sides"] == 0
    lengths = data("stats", *classes(tmp_path), f"train.context={train['longest_document'] + 1}")["train"]
    assert (train["cut"], lengths["cut"] > 0) == (0, True), "two separators stand beside the text"
    words = data("stats", *tags(tmp_path))
    assert sum(words[side]["labels"]["B-PER"] for side in ("train", "val")) == len(NAMES)
    assert sum(sum(words[side]["labels"].values()) for side in ("train", "val")) == sum(
        len(words) for words, _ in NAMES
    )
    stars = data("stats", *numbers(tmp_path))
    assert {*stars["train"]["labels"]} == {"mean", "std", "min", "max"}
    assert min(stars[side]["labels"]["min"] for side in ("train", "val")) == pytest.approx(
        min(row["stars"] for row in OPINIONS)
    )
    shown, counted = (
        data(command, *turns(tmp_path), *more)
        for command, more in (("show", ("--rows", "99", "--split", "val")), ("stats", ()))
    )
    asked = sum(place["target"] is not None for row in shown["rows"] for place in row["positions"])
    assert counted["val"]["labels"]["tokens_asked_for"] == asked > 10
