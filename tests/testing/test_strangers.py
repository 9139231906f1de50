"""Kinds of other people in whole runs: recipes name them, commands train, prompt and inspect them, and refuse what they
cannot do.
"""

import json
from pathlib import Path

import pytest
import torch
from commands import TINY, minitf, refused, tiny_model, trained
from strangers import strangers

from mini_tf.inspection._capture import capture
from mini_tf.nn.tokens import Tokens
from mini_tf.trained.opening import open_trained

__all__ = ["strangers"]
pytestmark = pytest.mark.usefixtures("strangers")
FEW = ("train.steps=3", "train.context=16", "eval.every_steps=3", "log.every_steps=1")


def test_a_recipe_of_strangers_trains_writes_and_is_inspected(tmp_path: Path) -> None:
    kinds = ("model.attention=trailing", "model.positions=relative", "optimizer=lion", "schedule=polynomial")
    run = trained(tmp_path / "run", tiny_model("decoder"), *kinds, *FEW)
    for command in (
        ("generate", run, "The fox", "--max-new-tokens", "5"),
        ("inspect", "attention", run, "The fox"),
        ("inspect", "model", run),
    ):
        done = minitf(*command)
        assert done.exit_code == 0, done.stderr
    said = " ".join(minitf("inspect", "positions", run, "--curve").stdout.split())
    assert said.startswith("positions: relative; it depends on queries and keys, so there is no curve over distance")
    assert "`minitf inspect attention`" in said


def test_an_objective_names_a_mixer_that_cannot_have_its_direction() -> None:
    done = minitf("pretrain", TINY, "objective=prefix", "model.attention=trailing", "--dry-run")
    refused(done, "prefix needs prefix attention, which trailing does not support; use another attention", exit_code=3)


def test_a_model_of_latents_says_what_its_rows_stand_for_and_reads_one_document_a_row(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", tiny_model("latents"), "model.d_model=16", *FEW)
    seen = capture(open_trained(run, device="cpu").model, Tokens(torch.arange(5)[None]))
    kinds = [(one.kind, one.layer, one.queries, one.keys, tuple(one.weights.shape[2:])) for one in seen.attention]
    assert kinds[:2] == [("reader.cross", 0, "latent", "input", (4, 5)), ("latent.self", 0, "latent", "latent", (4, 4))]
    assert kinds[-1] == ("decoder.cross", 0, "input", "latent", (5, 4))
    for command in (
        ("inspect", "attention", run, "The fox"),
        ("inspect", "model", run),
        ("inspect", "softmax", run, "The fox"),
    ):
        done = minitf(*command)
        assert done.exit_code == 0, done.stderr
    asked = ("inspect", "attention", run, "The fox ran", "--query", "fox")
    assert minitf(*asked).exit_code == 0
    [sample] = json.loads(minitf(*asked, "--json").stdout)["result"]["samples"]
    assert (sample["query"]["text"], {head["kind"] for head in sample["heads"]}) == ("fox", {"decoder.cross"})
    assert [len(head["query_weights"]) for head in sample["heads"]] == [4, 4]
    refused(
        minitf(*asked, "--kind", "latent.self"),
        "--query fox: these heads have one query per latent vector, not per token; use --kind decoder.cross",
        exit_code=2,
    )
    done = minitf("inspect", "positions", run)
    refused(done, "a model of kind latents has no embedding with a positional encoding", exit_code=2)
    done = minitf("inspect", "word", run, "fox", "The fox ran", "a fox sat")
    assert done.exit_code == 0, done.stderr
    [sample] = json.loads(minitf("inspect", "attention", run, "The fox ran", "--words", "--full", "--json").stdout)[
        "result"
    ]["samples"]
    shapes = {head["kind"]: (len(head["matrix"]), len(head["matrix"][0])) for head in sample["heads"]}
    n = len(sample["words"])
    assert shapes == {"reader.cross": (4, n), "latent.self": (4, 4), "decoder.cross": (n, 4)}
    done = minitf("pretrain", TINY, "model=latents", "data.pack=docs", "--dry-run")
    refused(done, "latents cannot separate documents within a row; use pack: none or concat", exit_code=3)


def test_what_is_not_learnt_from_a_stream_is_refused_by_name() -> None:
    done = minitf("pretrain", TINY, "objective=margin", "model.attention=window", "train.stream=true", "--dry-run")
    refused(done, "margin cannot be trained on a stream; use stream: false", exit_code=3)
