"""`eval.best`: the metric that decides which checkpoint is published, when a run ends early, and what is told of it."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from commands import EXACT, ROOT, TINY, minitf, refused, trained

from mini_tf.jobs.session import Session
from mini_tf.recipe.kinds import kinds_of, settings_of
from mini_tf.recipe.metrics import BestMetric, best_metric, is_lower_better, lower_is_better
from mini_tf.recipe.sections import Eval
from mini_tf.run import manifest
from mini_tf.run.comparison.cost_curves import RunCurves
from mini_tf.run.comparison.groups import grouped, to_reach

SHORT = (*EXACT, "log.samples=0", "train.steps=12", "eval.every_steps=2", "model.d_model=8")
MEASURED = {
    2: {"val.loss": 6.0, "val.accuracy": 0.1},
    4: {"val.loss": 5.0, "val.accuracy": 0.4},
    6: {"val.loss": 4.0, "val.accuracy": 0.4},  # a tie
    8: {"val.loss": 3.0, "val.accuracy": math.nan},
    10: {"val.loss": 2.0, "val.accuracy": 0.3},
    12: {"val.loss": 1.0, "val.accuracy": 0.9},
}
"""The loss is lowest at the end, the accuracy highest at step 4 of the first ten."""


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations measure what stands in MEASURED."""
    evaluate, steps = Session._evaluate, list[int]()

    def at_step(self: Session, report: Any, bar: Any) -> float:
        steps.append(report.step)
        return evaluate(self, report, bar)

    def measure(self: Session, tokens: int | None, *_: object) -> dict[str, float]:
        return dict(MEASURED[steps[-1]])

    monkeypatch.setattr(Session, "_evaluate", at_step)
    monkeypatch.setattr(Session, "measure", measure)


def record(run: Path) -> manifest.Manifest:
    return manifest.read(run)


@pytest.mark.parametrize(("best", "published"), [("perplexity", None), ("accuracy", 4)], ids=["unmeasured", "measured"])
@pytest.mark.usefixtures("measured")
def test_the_best_checkpoint_is_that_of_the_metric_and_the_earlier_one_of_a_tie(
    best: str, published: int | None, tmp_path: Path
) -> None:
    run = trained(tmp_path / "run", *SHORT, "train.steps=10", f"eval.best={best}", "checkpoint.keep_last=1")
    model, found = record(run).model, record(run).best
    assert model is not None
    assert model["step"] == (published or 10)  # without any value the last one is published
    kept = sorted(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*"))
    assert kept == sorted({published or 10, 10})
    assert found == (None if published is None else {"step": published, best: MEASURED[published][f"val.{best}"]})
    if published is not None:
        checkpoint = run / "checkpoints" / f"step-{published:08d}"
        assert (run / "model.safetensors").read_bytes() == (checkpoint / "model.safetensors").read_bytes()
        score = json.loads((checkpoint / "MANIFEST.json").read_text())["score"]
        assert score == model["score"] == -MEASURED[published][f"val.{best}"]


@pytest.mark.usefixtures("measured")
def test_patience_follows_the_metric_and_the_end_is_told_by_its_name(tmp_path: Path) -> None:
    ways = (*SHORT, "eval.best=accuracy", "eval.patience=3", "-d", tmp_path / "run")
    done = minitf("pretrain", TINY, *ways)
    assert done.exit_code == 0, done.stderr
    assert record(tmp_path / "run").step == 10  # the loss would never have ended it, and the accuracy is best at 12
    assert "early stopping: no higher validation accuracy in 3 evaluations (eval.patience)\n" in done.stderr
    assert "(the best checkpoint by accuracy, step 4 of 10)\n" in done.stderr
    assert "0.4000 at step 4" in minitf("runs", "show", tmp_path / "run").stdout


@pytest.mark.usefixtures("measured")
def test_a_run_ends_with_the_first_evaluation_that_meets_its_bound(tmp_path: Path) -> None:
    ways = (*SHORT, "-d", tmp_path / "run")
    done = minitf("pretrain", TINY, *ways, "--until", "val.accuracy>=0.4")
    step = min(step for step, metrics in MEASURED.items() if metrics["val.accuracy"] >= 0.4)
    assert record(tmp_path / "run").step == step < max(MEASURED)
    assert "early stopping: val.accuracy>=0.4 (eval.until)\n" in done.stderr
    assert minitf("pretrain", TINY, *ways, "eval.until=val.accuracy>=0.4", "--extend", "2").exit_code == 0
    assert record(tmp_path / "run").step == step + 2


def test_the_checkpoint_that_meets_the_bound_is_published(tmp_path: Path) -> None:
    """Also if it is not the best: a text learnt by heart says less and less of another one."""
    (tmp_path / "train.txt").write_text("one two three four five\n\n" * 20)
    (tmp_path / "val.txt").write_text("93 17 5802 6641 38\n\n7 7 204\n")
    data = (f"data={{train: {tmp_path / 'train.txt'}, val: {tmp_path / 'val.txt'}}}", "optimizer.lr=0.03")
    recipe = (TINY, *data, "train.steps=40", "eval.every_steps=3", "eval.until=train.loss<2.5", "-d", tmp_path / "run")
    assert minitf("pretrain", *recipe).exit_code == 0
    found = record(tmp_path / "run")
    assert found.best is not None
    assert found.model is not None
    assert found.best["step"] < found.step == found.model["step"] < 40
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert found.metrics["val.loss"] == json.loads(lines[-1])["val.loss"]
    (tmp_path / "run" / "model.safetensors").unlink()
    assert "already complete" in minitf("pretrain", *recipe).stderr
    assert record(tmp_path / "run").model == found.model


@pytest.mark.parametrize(
    ("bound", "fault"),
    [
        ("soon", "must be a comparison such as val.loss<1.9, got 'soon'"),
        ("val.los<2", "next_token has no metric 'los'; did you mean loss?"),
        ("val.loss<baseline.loss", "next_token has no metric 'baseline.loss'"),
        ("main<2", "next_token has no metric 'main'; there are: loss"),
    ],
)
def test_a_bound_that_no_evaluation_measures_is_refused(bound: str, fault: str) -> None:
    ways = ("pretrain", TINY, "--until")
    refused(minitf(*ways, bound), f"command line: eval.until={bound}: {fault}", exit_code=3)
    message = "eval.until=val.loss<2: is compared at evaluations, but there is only one"
    refused(minitf(*ways, "val.loss<2", "eval.every_steps=null"), message, exit_code=3)
    refused(minitf(*ways, " "), "--until: its value is empty", exit_code=2)


@pytest.mark.usefixtures("measured")
def test_a_continued_and_an_extended_run_know_the_best_value(tmp_path: Path) -> None:
    ways = (*SHORT, "train.steps=8", "eval.best=accuracy", "checkpoint.keep_last=1", "-d", tmp_path / "run")
    for extended, best in (([], (4, 0.4)), (["--extend", "2"], (4, 0.4)), (["--extend", "2"], (12, 0.9))):
        assert minitf("pretrain", TINY, *ways, *extended).exit_code == 0
        found = record(tmp_path / "run")
        assert found.best == {"step": best[0], "accuracy": best[1]}
    assert found.model is not None
    assert found.model["step"] == 12


CLASSES = (f"data={{train: {ROOT / 'data' / 'opinions.tsv'}, split: 20%}}", "objective=classify", "model.kind=encoder")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("eval.best=acuracy",), "next_token has no metric 'acuracy'; did you mean accuracy?"),
        (("eval.best=bleu",),
            "next_token has no metric 'bleu'; there are: main, loss, perplexity, bits_per_byte, accuracy"),
        ((*CLASSES, "eval.best=val.accuracy"), "classify has no metric 'val.accuracy'; did you mean accuracy?"),
        ((*CLASSES, "objective.labels=[good, bad]", "eval.best=f1.odd"),
            "there is no class 'odd'; there are: good, bad"),
        (("objective=seq2seq", "model=encoder_decoder", "data.train=translate-toy", "eval.translations=0",
            "eval.best=chrf"),
         "chrf needs generated texts; use eval.translations above 0"),
    ],
)  # fmt: skip
def test_a_metric_that_the_objective_does_not_have_is_refused(overrides: tuple[str, ...], message: str) -> None:
    refused(
        minitf("recipe", "check", TINY, *overrides),
        f"eval.best={overrides[-1].partition('=')[2]}: {message}",
        exit_code=3,
    )


def test_a_class_is_known_once_the_data_are_read(tmp_path: Path) -> None:
    done = minitf("finetune", TINY, *SHORT, *CLASSES, "eval.best=f1.odd", "-d", tmp_path / "run")
    refused(done, "eval.best: there is no class 'odd'; there are: ", exit_code=3)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("objective", "best", "classes", "found"),
    [
        ("classify", "main", None, BestMetric("accuracy", False)),
        ("tag", "main", ["O", "B-PER"], BestMetric("entity_f1", False)),
        ("tag", "main", ["noun", "verb"], BestMetric("accuracy", False)),
        ("regress", "main", None, BestMetric("loss", True)),
        ("regress", "rmse", None, BestMetric("rmse", True)),
        ("regress", "pearson", None, BestMetric("pearson", False)),
        ("seq2seq", "main", None, BestMetric("chrf", False)),
        ("next_token", "bits_per_byte", None, BestMetric("bits_per_byte", True)),
        ("classify", "f1.loss", None, BestMetric("f1.loss", False)),  # a class of that name
    ],
)
def test_the_main_metric_is_that_of_the_task_and_each_has_its_direction(
    objective: str, best: str, classes: list[str] | None, found: BestMetric
) -> None:
    settings: Any = settings_of("objectives", objective)()
    assert best_metric(settings, Eval(best=best), classes) == found
    assert found.score({f"val.{found.name}": 0.25}) == (0.25 if found.lower_is_better else -0.25)
    assert found.value(found.score({f"val.{found.name}": 0.25})) == 0.25
    assert math.isnan(found.score({}))


def test_a_loss_and_its_parts_are_better_if_lower_whatever_the_objective() -> None:
    kinds: dict[str, Any] = kinds_of("objectives")
    for settings in kinds.values():
        names = lower_is_better(settings())
        assert all(
            is_lower_better(name, names) for name in ("loss", "val.loss.generator", "train.loss", "val.perplexity")
        )
        assert not any(is_lower_better(name, names) for name in ("accuracy", "val.f1.loss", "val.chrf"))


@pytest.mark.usefixtures("measured")
def test_compare_takes_the_direction_that_the_run_recorded(tmp_path: Path) -> None:
    runs = grouped([RunCurves.read(trained(tmp_path / "run", *SHORT, "train.steps=10"))])
    reached = to_reach(runs, "steps", "val.accuracy", 0.35)
    assert reached is not None
    assert reached.costs[0] is not None
    assert 2 < reached.costs[0].mean < 4
