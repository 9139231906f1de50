"""Runs of conversations and the files that judge them: built-in pairs are prompts and responses, files have columns of
their own.
"""

import json
from pathlib import Path

import pytest
from commands import evaluated, minitf, refused, trained

from mini_tf.data.corpora import docs_summaries
from mini_tf.data.examples import Example
from mini_tf.pipelines import pipeline_of
from mini_tf.trained.opening import open_trained

SMALL = (
    "model={kind: decoder, d_model: 16, n_layers: 1, n_heads: 2}", "tokenizer={kind: byte}", "objective.kind=instruct",
    "train={steps: 1, batch_size: 2, context: 48}", "eval.translations=0", "generate.max_new_tokens=4",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _summaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small corpus in place of the built-in one."""
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    name = f"docs-summaries-{docs_summaries.Settings.VERSION}.jsonl"
    written(tmp_path / "cache" / name, "source", "target", "summary")


def written(file: Path, asked: str, answered: str, what: str = "answer") -> Path:
    rows = [{asked: f"{what} {n} ?", answered: [f"{what} {n} .", "or so"]} for n in range(30)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def run_of(folder: Path, *data: str) -> Path:
    return trained(folder / "run", *SMALL, *data, recipe="gpt-nano")


def test_a_run_on_built_in_pairs_is_judged_by_a_file_of_prompts_and_responses(tmp_path: Path) -> None:
    run = run_of(tmp_path, "data={train: docs-summaries, split: 20%}")
    own, other = written(tmp_path / "a.jsonl", "prompt", "response"), written(tmp_path / "b.jsonl", "q", "r")
    metrics = evaluated(run, "--data", own)
    assert metrics["bleu_signature"].startswith("nrefs:2|")
    assert metrics["targets"] == sum(len(f"answer {n} .") + 1 for n in range(30))
    again = evaluated(run, "--data", other, "--fields", "{prompt: q, response: r}")
    assert (again["loss"], again["targets"]) == (metrics["loss"], metrics["targets"])
    assert evaluated(run, "--data", "docs-summaries")["targets"] == sum(len(f"summary {n} .") + 1 for n in range(30))
    missing = "b.jsonl:1: needs prompt and response, or messages; name the columns, such as 'data.fields={prompt: "
    refused(minitf("evaluate", run, "--data", other), missing)


OWN, USUAL = ("q", "r"), ("prompt", "response")


@pytest.mark.parametrize(
    ("sides", "columns"),
    [(("docs-summaries", "{}"), OWN), (("docs-summaries", "{}"), USUAL), (("{}", "docs-summaries"), OWN)],
)
def test_one_side_may_be_built_in_and_the_other_a_file(
    sides: tuple[str, str], columns: tuple[str, str], tmp_path: Path
) -> None:
    train, val = (side.format(written(tmp_path / "a.jsonl", *columns)) for side in sides)
    fields = f"{{prompt: {columns[0]}, response: {columns[1]}}}"
    run = run_of(tmp_path, f"data={{train: '{train}', val: '{val}', fields: {fields}}}")
    of_val = "summary" if val == "docs-summaries" else "answer"
    assert evaluated(run)["targets"] == sum(len(f"{of_val} {n} .") + 1 for n in range(30))
    assert evaluated(run, "--data", val) == evaluated(run) | {"split": "data"}


def test_all_responses_of_a_file_are_references(tmp_path: Path) -> None:
    model = open_trained(run_of(tmp_path, "data={train: docs-summaries, split: 20%}"), device="cpu")
    roles, chat = ["user", "assistant"], pipeline_of(model)
    examples = [Example(["a", "b"], roles, "f:1", ("c", "d")), Example(["a", "e"], roles, "f:2")]
    assert [chat.references(one) for one in examples] == [["b", "c", "d"], ["e"]]
