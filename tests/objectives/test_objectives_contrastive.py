"""Contrastive learning: groups, false negatives, the loss and its metrics against brute force, and exact resume."""

import csv
import json
import math
import shutil
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import QUIET, cut_off, minitf, refused, tiny_model, trained
from data_of import both, dataset_of
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from test_datasets_contract import TEXTS
from torch import Tensor

from mini_tf.data.packing import Shape
from mini_tf.data.store import in_memory
from mini_tf.data.text_groups import ANCHOR, SAME, TextGroups, largest_length, text_starts
from mini_tf.objectives.contrastive import Contrastive, Settings
from mini_tf.recipe.data import Data
from mini_tf.recipe.kinds import settings_of
from mini_tf.run import manifest
from mini_tf.scores.label_scores import contrast_of
from mini_tf.testing.baselines import BaselineFixture
from mini_tf.testing.tiny.datasets import DatasetFixture
from mini_tf.trained.evaluating import run_data
from mini_tf.trained.opening import open_trained
from mini_tf.trained.text_vectors import Embedder

DRAW = np.random.default_rng(4)
WORDS = ("old", "new", "red", "big", "dog", "cat", "sea", "sky")
PAIRS: list[dict[str, Any]] = [
    {"text": " ".join(DRAW.choice(WORDS, 3)) + f" {n}", "positive": " ".join(DRAW.choice(WORDS, 2))} for n in range(60)
]
PAIRS = [row | ({"negative": f"no {n}"} if n % 3 == 0 else {}) for n, row in enumerate(PAIRS)]
SCORED = [
    {"text": f"{a} {b}", "positive": f"{b} {c}", "score": float(n % 7)}
    for n, (a, b, c) in enumerate(DRAW.choice(WORDS, (20, 3)))
]
SMALL = (
    tiny_model("encoder"), "model.d_model=16", "model.dropout_rate=0.1", "tokenizer.kind=byte", "optimizer.lr=1e-3",
    "train={steps: 6, batch_size: 2, context: 200}", "checkpoint={every_steps: 2, keep_last: 3}", "eval.every_steps=3",
)  # fmt: skip


def jsonl(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contrastive")
    train, val = jsonl(folder / "train.jsonl", PAIRS[:-18]), jsonl(folder / "val.jsonl", [*PAIRS[-18:], *SCORED])
    objective = "objective={kind: contrastive, pool: first, group: 5}"
    return trained(folder / "run", *SMALL, objective, f"data.train={train}", f"data.val={val}")


def packed(rows: list[dict[str, Any]], folder: Path, context: int = 200, **settings: Any) -> TextGroups:
    fixture = DatasetFixture(dataset_of("text_pairs", **settings), rows, folder)
    store = in_memory(fixture.dataset.encode(fixture.examples, both(fixture.used.target), None), fixture.used)
    packing = fixture.dataset.packing(store, Shape(context, seed=3))
    assert isinstance(packing, TextGroups)
    return packing


def test_every_epoch_has_every_example_once_in_other_groups_of_its_own(tmp_path: Path) -> None:
    packing = packed(PAIRS, tmp_path, group=7)
    assert packing.n_rows == 9
    groups = [[packing.documents(np.array([row]), epoch).tolist() for row in range(9)] for epoch in (0, 1, 1)]
    assert all(sorted(n for group in epoch for n in group) == [*range(60)] for epoch in groups)
    assert {len(group) for group in groups[0]} == {6, 7}
    assert groups[1] == groups[2] != groups[0]
    first = packing.take(np.arange(9), 1, np.arange(9).astype(np.uint64))
    for row, group in enumerate(groups[1]):
        roles = first.labels[row][text_starts(first)[row]]  # type: ignore[index]
        assert len(roles) == sum(len(PAIRS[n]) for n in group)
        assert (roles == ANCHOR).sum() == len(group)


def test_long_texts_share_what_short_ones_leave_of_the_context(tmp_path: Path) -> None:
    rows = [{"text": "a" * 60, "positive": "b" * (n + 1)} for n in range(8)]
    packing = packed(rows, tmp_path, context=48, group=2)
    taken = packing.take_eval(np.arange(4), np.arange(4).astype(np.uint64))
    assert taken.ids.shape[1] <= 48
    assert packing.n_too_long == 8
    separator = packing.store.vocabulary.separator
    for row in range(4):
        lengths = np.bincount(taken.segments[row])[1:]  # type: ignore[index]
        short = [2 * row + 3, 2 * row + 4]
        assert lengths.tolist() == [(48 - sum(short)) // 2, short[0], (48 - sum(short)) // 2, short[1]]
        ends = np.cumsum(lengths)
        assert (taken.ids[row, ends - 1] == separator).all() and (taken.ids[row, ends - lengths] == separator).all()  # noqa: PT018
    for lengths in DRAW.integers(1, 30, (50, 6)):
        for budget in (6, 40, 100, 500):
            fitting = [cap for cap in range(1, 31) if np.minimum(lengths, cap).sum() <= budget]
            kept = np.minimum(lengths, largest_length(lengths, budget))
            assert kept.tolist() == np.minimum(lengths, max(fitting)).tolist()


def test_a_text_without_a_positive_and_two_with_a_score_stand_twice(tmp_path: Path) -> None:
    rows = [{"text": "alone"}, SCORED[3], {"text": "q", "positive": "p"}]
    packing = packed([*rows, *({"text": text} for text in TEXTS)], tmp_path, context=2000)
    taken = packing.take_eval(np.array([0]), np.zeros(1, np.uint64))
    batch = Contrastive(Settings()).prepare(taken)
    roles, scores = batch.labels.T
    assert roles[:8].tolist() == [ANCHOR, SAME, ANCHOR, SAME, ANCHOR, SAME, ANCHOR, 1]
    assert [n for n, score in enumerate(scores.tolist()) if not math.isnan(score)] == [2]
    assert scores[2] == 3.0
    texts = [ids[: ids.tolist().index(0) if 0 in ids else None].tolist() for ids in batch.inputs.ids]
    assert [texts[0], texts[2], texts[4]] == [texts[1], texts[3], texts[5]]
    assert texts[2] != texts[4]


def test_false_negatives_are_left_out() -> None:
    #                  q  p | q  r | s  p  n | p  q
    texts = np.array([10, 1, 10, 2, 11, 1, 3, 1, 10])
    is_anchor = np.array([1, 0, 1, 0, 1, 0, 0, 1, 0], bool)
    is_positive = np.array([0, 1, 0, 1, 0, 1, 0, 0, 1], bool)
    contrast = contrast_of(texts, is_anchor, is_positive)
    assert contrast.positives.tolist() == [0, 1, 2, 4]
    expected = [
        [1, 0, 0, 1, 0],  # q: p again, r of another q, and q itself are no negatives
        [0, 1, 0, 1, 0],  # q with r: nor is p, the positive of the other q
        [0, 1, 1, 1, 1],  # s: p once
        [0, 1, 0, 1, 1],  # p: nor itself
    ]
    assert contrast.compared().astype(int).tolist() == expected


def test_false_negatives_are_those_of_the_row(tmp_path: Path) -> None:
    rows = [{"text": "q", "positive": f"p{n}"} if n % 3 == 0 else {"text": f"{n}", "positive": "p0"} for n in range(12)]
    packing, objective = packed(rows, tmp_path, group=4), Contrastive(Settings())
    numbers = np.arange(3)
    whole = objective.prepare(packing.take_eval(numbers, numbers.astype(np.uint64)))
    for n in range(3):
        alone = objective.prepare(packing.take_eval(numbers[n : n + 1], numbers[n : n + 1].astype(np.uint64)))
        own = slice(4 * n, 4 * n + 4)
        assert whole.extras["compared"][own, own].tolist() == alone.extras["compared"].tolist()
        assert whole.extras["compared"][own].sum() == alone.extras["compared"].sum()


def test_loss_and_metrics_are_those_of_the_vectors_of_embed(run: Path) -> None:
    opened = open_trained(run, device="cpu")
    examples = [*opened.recipe.objective.dataset().examples(run_data(opened)["val"])]
    assert len(examples) == 38
    embedder, temperature = Embedder(opened), 0.05

    @cache
    def vector(text: str) -> Tensor:
        return embedder.embed([text], normalize=True)[0].double()

    def cosine(first: str, second: str) -> float:
        return float(vector(first) @ vector(second))

    losses, ends = [], [n * 38 // 8 for n in range(9)]
    for first, last in pairwise(ends):
        anchors, candidates = [], []  # (text, positive); (text, anchor or None)
        for one in examples[first:last]:
            own = [[text, text] for text in one.texts] if one.labels else [one.texts]
            for text, positive, *negatives in own:
                anchors.append((text, positive))
                candidates += [(positive, text), *((negative, None) for negative in negatives)]
        for text, positive in anchors:
            known = {positive, text}
            known |= {other for other, owner in candidates if owner == text}
            others = [other for other, _ in candidates if other not in known]
            logits = [cosine(text, positive) / temperature] + [cosine(text, other) / temperature for other in others]
            losses.append(math.log(sum(map(math.exp, logits))) - logits[0])
    metrics = json.loads(minitf("evaluate", run, "--json").stdout)["metrics"]
    assert metrics["targets"] == len(losses)
    assert metrics["loss"] == pytest.approx(np.mean(losses), abs=1e-4)
    scored = [one for one in examples if one.labels]
    expected = spearmanr([cosine(*one.texts) for one in scored], [float(one.labels[0]) for one in scored]).statistic
    assert metrics["spearman"] == pytest.approx(expected, abs=1e-6)
    paired = [one for one in examples if not one.labels]
    candidates = {text for one in paired for text in one.texts[1:]}
    right = [
        all(cosine(one.texts[0], one.texts[1]) > cosine(one.texts[0], other) for other in candidates - {*one.texts[:2]})
        for one in paired
    ]
    assert metrics["retrieval_accuracy"] == pytest.approx(np.mean(right))


def test_a_run_that_is_cut_off_continues_to_the_same_bytes(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    cut_off(copy, 4, 6)
    done = minitf("pretrain", copy / "resolved.yaml", *QUIET, "-d", copy)
    assert done.exit_code == 0, done.stderr
    for name in ("model.safetensors", "metrics.jsonl", "checkpoints/step-00000006/optimizer.safetensors"):
        assert (copy / name).read_bytes() == (run / name).read_bytes()


def test_a_table_with_empty_cells_and_lines_of_json_are_the_same(tmp_path: Path) -> None:
    rows = [*PAIRS[:9], *SCORED]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        names = ("negative", "positive", "text", "score")
        csv.writer(file).writerows([["n", "p", "t", "s"], *([row.get(name, "") for name in names] for row in rows)])
    dataset: Any = dataset_of("text_pairs")

    def texts(file: Path, **fields: str) -> list[Any]:
        data = Data(train=str(file), fields=fields)
        return [one[:2] for one in dataset.read(dataset.find(str(file), "data.train"), data, str(file))]

    found = texts(tmp_path / "rows.csv", text="t", positive="p", negative="n", score="s")
    assert found == texts(jsonl(tmp_path / "rows.jsonl", rows))
    assert [len(one) for one, _ in found[:3]] == [3, 2, 2]
    assert [one for _, one in found[8:11]] == [[], ["0.0"], ["1.0"]]
    assert texts(tmp_path / "rows.csv", text="t")[0] == ([PAIRS[0]["text"]], [])


def test_the_baseline_is_the_cosine_of_tfidf(tmp_path: Path) -> None:
    objective: Any = settings_of("objectives", "contrastive")()
    rows = [*PAIRS[:50], *SCORED]
    fixture, settings = DatasetFixture(objective.dataset(), rows, tmp_path), settings_of("baselines", "tfidf_cosine")()
    data = BaselineFixture(settings, objective, fixture)  # type: ignore[arg-type]
    metrics = data.measure().metrics
    n = 2 * len(rows) // 3
    texts = {text for row in rows[:n] for role, text in row.items() if role != "score"}
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]").fit(sorted(texts))

    def cosine(first: str, second: str) -> float:
        a, b = vectorizer.transform([first, second]).toarray()
        return float(a @ b)

    scored = [row for row in rows[n:] if "score" in row]
    expected = spearmanr([cosine(row["text"], row["positive"]) for row in scored], [row["score"] for row in scored])
    assert metrics["spearman"] == pytest.approx(expected.statistic)
    paired = [row for row in rows[n:] if "score" not in row]
    candidates = {row[role] for row in paired for role in ("positive", "negative") if role in row}
    right = [
        all(
            cosine(row["text"], row["positive"]) > cosine(row["text"], other)
            for other in candidates - {row["positive"]}
        )
        for row in paired
    ]
    assert metrics["retrieval_accuracy"] == pytest.approx(np.mean(right))


def test_a_single_pair_is_said_to_have_no_negative(tmp_path: Path) -> None:
    train = jsonl(tmp_path / "train.jsonl", PAIRS[:30])
    val = jsonl(tmp_path / "val.jsonl", [{"text": "a", "positive": "b"}])
    arguments = (*SMALL, "objective.kind=contrastive", f"data.train={train}", f"data.val={val}", "train.steps=1")
    done = minitf("pretrain", *QUIET, *arguments, "-d", tmp_path / "run")
    assert "validation data: 1 pairs, without a negative, so the loss is 0\n" in done.stderr
    assert "training data: 20 pairs, 10 triplets\n" in done.stderr
    assert manifest.read(tmp_path / "run").metrics["val.loss"] == 0


@pytest.mark.parametrize(
    ("rows", "overrides", "message", "exit_code"),
    [
        ([{"text": text} for text in TEXTS], ("model.dropout_rate=0",), "without dropout a text", 3),
        ([{"text": "a", "positive": "b", "negative": "c", "score": 1}], (), "a score is of two texts", 4),
        ([{"text": "a", "negative": "c"}], (), "without a positive", 4),
        ([{"text": "a", "positive": "b", "score": "x"}], (), "must be a number", 4),
        (PAIRS, ("objective.group=40",), "train.context: 40 examples of 3 texts do not fit", 4),
        (PAIRS, ("objective.pool=first", "model.kind=decoder"), "objective.pool", 3),
    ],
)
def test_what_cannot_be_contrasted_is_refused(
    rows: list[dict[str, Any]], overrides: tuple[str, ...], message: str, exit_code: int, tmp_path: Path
) -> None:
    data = f"data.train={jsonl(tmp_path / 'rows.jsonl', rows)}"
    done = minitf(
        "pretrain",
        *QUIET,
        *SMALL,
        "objective.kind=contrastive",
        data,
        "data.split=20%",
        *overrides,
        "-d",
        tmp_path / "run",
    )
    refused(done, message, exit_code=exit_code)
    assert not (tmp_path / "run").exists()


def table(file: Path, *names: str) -> Path:
    rows = [[f"{word} {n}" for _ in names] for n, word in enumerate(2 * WORDS)]
    file.write_text("".join(",".join(cells) + "\n" for cells in [names, *rows]))
    return file


def test_a_column_that_is_not_read_is_not_lost_in_silence(tmp_path: Path) -> None:
    """Without it, each text would be its own positive; either split may lack a column, and jsonl in its first row."""
    few, run = (*QUIET, *SMALL, "objective.kind=contrastive", "train.steps=1"), tmp_path / "run"
    pairs, texts = table(tmp_path / "pairs.csv", "text", "positive"), table(tmp_path / "texts.csv", "text")
    misspelt = f"data.train={table(tmp_path / 'misspelt.csv', 'text', 'postive')}"
    done = minitf("pretrain", *few, misspelt, "data.split=20%", "-d", run)
    assert "misspelt.csv: the column 'postive' is not read; did you mean 'positive'?\n" in done.stderr
    fields = "{text: text, positive: positve}"
    wrong = ("data.split=20%", f"data.fields={fields}", "-d", tmp_path / "wrong")
    words = "no column 'positve'; the columns are: text, positive; did you mean 'positive'?"
    refused(minitf("pretrain", *few, f"data.train={pairs}", *wrong), f"{pairs}: {words}", exit_code=4)
    assert not (tmp_path / "wrong").exists()
    refused(minitf("evaluate", run, "--data", pairs, "--fields", fields), words, exit_code=4)
    later = jsonl(tmp_path / "later.jsonl", [{"text": "a"}, {"text": "b", "positive": "c"}])
    for n, val in enumerate((pairs, later)):
        others = (f"data.val={val}", "data.fields={text: text, positive: positive}")
        done = minitf("pretrain", *few, f"data.train={texts}", *others, "-d", tmp_path / str(n))
        assert done.exit_code == 0, done.stderr
        # What a run's own file may lack, the file of an evaluation may.
        assert minitf("evaluate", tmp_path / str(n), "--data", texts).exit_code == 0
