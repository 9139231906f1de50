"""`minitf inspect film`: what it shows of each kept checkpoint is what the other commands say of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import evaluated, minitf, refused, tiny_model, trained
from page_files import contents_of

from mini_tf.drawing.labels import label
from mini_tf.trained.opening import open_trained

TEXT = "the cat heard"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder that keeps two checkpoints."""
    keys = (
        "train.steps=4",
        "checkpoint.every_steps=2",
        "checkpoint.keep_last=2",
        "eval.every_steps=2",
        "eval.tokens=64",
    )
    return trained(tmp_path_factory.mktemp("film") / "decoder", *keys)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    rows = [("the cat", "cat the", "a"), ("he heard", "heard he", "a"), ("a bear", "bear a", "b")]
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": name}) for good, bad, name in rows]
    file.write_text("\n".join(lines) + "\n")
    return file


def film(run: Path, *arguments: str | Path) -> dict[str, Any]:
    done = minitf("inspect", "film", run, *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout)["result"])


def test_the_film_has_what_other_commands_say_of_each_checkpoint(run: Path, pairs: Path) -> None:
    result = film(run, TEXT, "--word", "cat", "--pairs", str(pairs))
    assert [step["step"] for step in result["steps"]] == [2, 4]
    for step, sample in zip(result["steps"], result["samples"], strict=True):
        number, tables = str(step["step"]), step["tables"]
        done = minitf(
            "generate", run, TEXT, "--step", number, "--greedy", "--max-new-tokens", "1", "--logprobs", "5", "--json"
        )
        [[generated]] = json.loads(done.stdout)["result"]["tokens"]
        alternatives = {label(one["token"]): one["logprob"] for one in generated["top"]}
        shown = dict(tables[f"after {TEXT}"])
        assert shown.keys() == alternatives.keys()
        np.testing.assert_allclose(
            [np.log(shown[name]) for name in shown], [alternatives[name] for name in shown], atol=1e-4
        )
        metrics = evaluated(run, "--pairs", str(pairs), "--step", number)
        assert {name: accuracy for name, _, accuracy in tables["minimal pairs"]} == {
            "all": metrics["pairs.accuracy"],
            **{name: metrics[f"pairs.accuracy.{name}"] for name in "ab"},
        }
        maps = minitf("inspect", "attention", run, TEXT, "--step", number, "--json")
        assert sample["heads"] == json.loads(maps.stdout)["result"]["samples"][0]["heads"]


def test_neighbors_are_the_nearest_embeddings(run: Path) -> None:
    result, opened = film(run, TEXT, "--word", "a"), open_trained(run, 4)
    table = opened.model.embeddings()["embedding"].tokens.weight.detach().numpy().astype(float)
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    [*ids] = opened.tokenizer.encode("a")
    mean = table[ids].mean(axis=0)
    cosines = table @ mean / np.linalg.norm(mean)
    usual = [id for id in range(len(table)) if id not in {*ids, *opened.tokenizer.vocabulary.special_ids}]
    nearest = sorted(usual, key=lambda id: -cosines[id])[:5]
    shown = result["steps"][-1]["tables"]["nearest neighbors of a"]
    assert [name for name, _ in shown] == [label(piece) for piece in opened.tokenizer.pieces(nearest)]
    np.testing.assert_allclose([cosine for _, cosine in shown], cosines[nearest], atol=1e-5)


def test_the_page_has_a_slider_over_the_checkpoints(run: Path, pairs: Path, tmp_path: Path) -> None:
    done = minitf("inspect", "film", run, TEXT, "a bear", "--pairs", str(pairs), "-o", tmp_path / "film.html")
    assert (done.exit_code, done.stdout) == (0, "")
    contents = contents_of((tmp_path / "film.html").read_bytes())
    assert contents["slider"] == "step"
    assert [scene["at"] for scene in contents["scenes"]] == [
        {"text": text, "step": step} for step in ("2", "4") for text in (TEXT, "a bear")
    ]
    assert [table["title"] for table in contents["scenes"][0]["tables"]] == [
        "minimal pairs",
        f"after {TEXT}",
        "after a bear",
    ]
    losses = contents["curves"][0]
    validation = dict(zip(losses["x"], losses["lines"][1]["y"], strict=True))
    recorded = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {step: loss for step, loss in validation.items() if loss is not None} == {
        line["step"]: line["val.loss"] for line in recorded if "val.loss" in line
    }
    assert contents["curves"][2]["x"] == [2, 4]


def test_an_encoder_predicts_its_masks_and_a_decoder_has_none(tmp_path: Path) -> None:
    run = trained(tmp_path / "encoder", "train.steps=1", tiny_model("encoder"), "objective=masked")
    [step] = film(run, "the [MASK] heard")["steps"]
    done = minitf("generate", run, "the [MASK] heard", "--top-k", "5", "--json")
    [candidates] = json.loads(done.stdout)["result"]["candidates"]
    shown = step["tables"]["after the [MASK] heard"]
    np.testing.assert_allclose([p for _, p in shown], [one["p"] for one in candidates], atol=1e-5)
    assert film(run, "no mask")["steps"][0]["tables"]["after no mask"] == []


def test_what_cannot_be_filmed_is_refused(run: Path, pairs: Path) -> None:
    refused(minitf("inspect", "film", run), "no text given", exit_code=2)
    refused(minitf("inspect", "film", run, TEXT, "--word", ""), "--word", exit_code=2)
    refused(minitf("inspect", "film", run, TEXT, "--step", "2"), "--step", exit_code=2)


def test_without_a_text_the_tokens_that_begin_one_are_predicted(run: Path) -> None:
    [first, _] = film(run, "")["steps"]
    assert len(first["tables"]["after "]) == 5


def test_a_text_that_is_cut_is_noted(run: Path, tmp_path: Path) -> None:
    text = "the cat heard " * 60
    done = minitf("inspect", "film", run, text, "-o", tmp_path / "film.html", "-o", tmp_path / "film.json")
    [note] = contents_of((tmp_path / "film.html").read_bytes())["notes"]
    assert "is truncated to" in note
    assert note in done.stderr
    assert json.loads((tmp_path / "film.json").read_text())["notes"] == [note]
