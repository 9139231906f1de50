"""Several labels a text: how they are read, decided by fitted thresholds and measured, against scikit-learn."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import QUIET, cut_off, minitf, refused, tiny_model, trained
from data_of import objective_for
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.multiclass import OneVsRestClassifier
from test_datasets_contract import TEXTS

from mini_tf.baselines._measures import features, label_sets, labelled_splits, words
from mini_tf.pipelines.multi_label_classification import ThresholdFitter
from mini_tf.recipe.data import Data
from mini_tf.recipe.kinds import settings_of
from mini_tf.scores.label_scores import best_cutoffs, crossed_cutoffs, label_set_scores
from mini_tf.testing.baselines import BaselineFixture
from mini_tf.testing.tiny.datasets import DatasetFixture
from mini_tf.trained.opening import open_trained

DRAW = np.random.default_rng(3)
ROWS = [
    {"text": f"{'warm ' * warm}{'cold ' * cold}{'wet ' * wet}day {n}", "labels": ["warm"] * warm + ["wet, cold"] * cold}
    for n, (warm, cold, wet) in enumerate(DRAW.integers(0, 2, (160, 3)).tolist())
]
SMALL = (
    tiny_model("encoder"), "model.d_model=16", "objective={kind: multi_label, separator: ';'}", "tokenizer.kind=byte",
    "train={steps: 6, batch_size: 8, context: 24}", "data.split=50%", "checkpoint={every_steps: 2, keep_last: 3}",
    "optimizer.lr=1e-3", "eval.every_steps=3",
)  # fmt: skip


def jsonl(file: Path) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return file


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("multi-label")
    return trained(folder / "run", *SMALL, f"data.train={jsonl(folder / 'rows.jsonl')}")


def test_lists_of_jsonl_and_separated_cells_of_csv_are_the_same(tmp_path: Path) -> None:
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "tags"], *([row["text"], " ; ".join(row["labels"])] for row in ROWS)])
    dataset: Any = objective_for("label_sets", separator=";").dataset()
    examples = [
        [*dataset.read(dataset.find(str(file), "data.train"), Data(train=str(file)), str(file))]
        for file in (jsonl(tmp_path / "rows.jsonl"), tmp_path / "rows.csv")
    ]
    assert [one[:2] for one in examples[0]] == [one[:2] for one in examples[1]]
    assert [one.labels for one in examples[0]] == [row["labels"] for row in ROWS]


def test_metrics_are_those_of_scikit_learn_over_the_labels_that_occur() -> None:
    truth, predicted = (DRAW.random((2, 40, 4)) < 0.4) & [True, True, True, False]
    found = label_set_scores(truth, predicted, "abcd")
    assert found["subset_accuracy"] == accuracy_score(truth, predicted)
    assert found["f1_micro"] == pytest.approx(f1_score(truth, predicted, average="micro"))
    assert found["f1_macro"] == pytest.approx(f1_score(truth[:, :3], predicted[:, :3], average="macro"))
    assert found["f1.b"] == pytest.approx(f1_score(truth[:, 1], predicted[:, 1]))
    assert "f1.d" not in found


def test_a_cutoff_has_the_largest_f1_of_all() -> None:
    truth = DRAW.random((60, 3)) < [0.1, 0.5, 0.0]
    scores = (DRAW.normal(size=(60, 3)) + truth).round(1)  # with ties
    cutoffs = best_cutoffs(scores, truth)
    for n in range(2):
        tried = [f1_score(truth[:, n], scores[:, n] >= cutoff) for cutoff in np.unique(scores[:, n])]
        assert f1_score(truth[:, n], scores[:, n] >= cutoffs[n]) == pytest.approx(max(tried))
    assert cutoffs[2] == 0
    halves = np.arange(60) % 2
    crossed = crossed_cutoffs(scores, truth, halves)
    assert crossed[5].tolist() == best_cutoffs(scores[::2], truth[::2]).tolist()
    assert crossed[4].tolist() == best_cutoffs(scores[1::2], truth[1::2]).tolist()


def test_thresholds_and_why_there_are_none_are_said_in_words() -> None:
    def lines(logits: np.ndarray, truth: np.ndarray) -> list[str]:
        fitter = ThresholdFitter(np.zeros(2), ["a", "b"])
        fitter._truth, fitter._logits, fitter._halves = [truth], [logits], [n % 2 for n in range(len(truth))]
        fitter.scores()
        return fitter.lines

    truth = np.arange(24)[:, None] // [2, 4] % 2 == 1
    logits = np.where(truth, 3.0, 1.0) * [1, -1] + [
        0,
        2,
    ]  # all seem to have a, of 3 or 1; those with b have -1, the others 1
    [thresholds, _] = lines(logits, truth)
    assert (
        thresholds
        == f"thresholds a {1 / (1 + np.exp(-2)):.2f}, b {1 / (1 + np.exp(1)):.2f}: macro F1 {1 / 3:.4f} -> {5 / 6:.4f}"
    )
    assert lines(logits[:9], truth[:9])[0].endswith("needs 10 examples, and the smaller one has 4")
    assert lines(logits + np.inf, truth)[0].startswith("no thresholds are fitted: some outputs are not finite")


def test_fitted_thresholds_decide_in_predict_and_evaluate(run: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    bias = record["model"]["decision"]["bias"]
    before, after = record["model"]["decision"]["figures"]["f1_macro"]
    assert after > before  # else the untrained model needs no thresholds, and the rest shows nothing
    assert record["metrics"]["val.f1_macro"] == after
    assert record["metrics"]["val.loss"] > 0.3
    opened, answers = open_trained(run, device="cpu"), []
    for line in minitf("predict", run, "-i", run.parent / "rows.jsonl").stdout.splitlines():
        answer = json.loads(line)
        logits = {name: np.log(p / (1 - p)) for name, p in answer["scores"].items()}
        assert answer["label"] == [name for name, logit in logits.items() if logit >= -bias.get(name, 0.0)]
        answers.append(answer["label"])
    assert opened.labels is not None
    names = opened.labels.names
    truth, predicted = (
        np.array([[name in labels for name in names] for labels in each])
        for each in ([row["labels"] for row in ROWS], answers)
    )
    measured = minitf("evaluate", run, "--data", run.parent / "rows.jsonl", "--json")
    metrics = json.loads(measured.stdout)["metrics"]
    assert metrics["f1_micro"] == pytest.approx(f1_score(truth, predicted, average="micro"))
    assert metrics["subset_accuracy"] == pytest.approx(accuracy_score(truth, predicted))


def test_thresholds_of_the_command_line_replace_those_that_were_fitted(run: Path) -> None:
    def predicted(*options: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(minitf("predict", run, "a warm day", *options).stdout)
        return answer

    assert predicted("--threshold", "0")["label"] == [*predicted()["scores"]]
    assert predicted("--threshold", "1")["label"] == []
    assert predicted("--threshold", "1", "--threshold", "warm=0")["label"] == ["warm"]
    top = predicted("--top", "1")
    assert top["top"] == [
        {"label": name, "score": p} for name, p in top["scores"].items() if p == max(top["scores"].values())
    ]
    refused(minitf("predict", run, "a", "--threshold", "x=0.5"), "no such class", exit_code=2)


def test_a_run_that_is_cut_off_continues_to_the_same_bytes(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    cut_off(copy, 4, 6)
    done = minitf("pretrain", copy / "resolved.yaml", *QUIET, "-d", copy)
    assert done.exit_code == 0, done.stderr
    assert (copy / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    assert json.loads((copy / "run.json").read_text())["model"] == json.loads((run / "run.json").read_text())["model"]


def test_the_baseline_is_a_logistic_regression_of_each_label(tmp_path: Path) -> None:
    rows = [{"text": text, "labels": [["a"], ["b", "a"], [], ["c"]][n % 4]} for n, text in enumerate(TEXTS)]
    settings: Any = settings_of("baselines", "tfidf_one_vs_rest")()
    objective = objective_for("label_sets")
    data = BaselineFixture(settings, objective, DatasetFixture(objective.dataset(), rows, tmp_path)).inputs
    train, val, labels, _ = labelled_splits(data, 10**6)
    fitted, measured = features([words()], train, val)
    truth = label_sets(train, labels)
    model = LogisticRegression(C=10, max_iter=100, tol=1e-3)
    p = np.stack([model.fit(fitted, column).predict_proba(measured)[:, 1] for column in truth.T], axis=1)
    of_val = label_sets(val, labels)
    expected = -np.where(of_val, np.log(p), np.log(1 - p)).mean()
    assert settings.measure(data).metrics["loss"] == pytest.approx(expected, rel=1e-6)
    assert OneVsRestClassifier(model).fit(fitted, truth).predict_proba(measured) == pytest.approx(p)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (['{"text": "a", "labels": {"b": 1}}'], "must be text or a number"),
        (['{"text": "a"}'], "labels"),
        ([f'{{"text": "a{n}", "labels": []}}' for n in range(9)], "no training example has a label"),
    ],
)
def test_labels_that_are_none_are_refused(rows: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    done = minitf("data", "stats", *SMALL[:4], f"data.train={tmp_path / 'rows.jsonl'}")
    refused(done, message, exit_code=4)
