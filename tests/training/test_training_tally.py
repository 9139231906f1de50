"""What is counted between two evaluations: improvements, means of training losses, and losses that jump."""

import json
import math
import shutil
import time
from pathlib import Path

import pytest
from commands import QUIET, TINY, lines, minitf, record, trained

from mini_tf.training.counters import Counters

FEWEST, JUMP, NATS = 10, 1.5, 0.5
"""A loss jumps after so many steps at least, by this factor and by so many nats."""


def tally_of(losses: list[float], **fields: float) -> Counters:
    counters = Counters(**fields)  # type: ignore[arg-type]
    for loss in losses:
        counters.add_step(loss)
    return counters


def test_evaluations_since_the_lowest_are_counted_and_an_equal_loss_is_no_better() -> None:
    counters, counted = Counters(), []
    for loss in (3.0, 2.0, 2.5, 2.0, math.nan, 1.5, 1.5):
        counters.add_evaluation(loss, loss)
        counted.append((counters.best, counters.patience_counter))
    assert counted == [(3.0, 0), (2.0, 0), (2.0, 1), (2.0, 2), (2.0, 3), (1.5, 0), (1.5, 1)]


PATIENT = ("eval.every_steps=2", "eval.patience=2", "train.steps=40", "checkpoint.keep_last=9")
STILL = ("optimizer.lr=1e-30", "model.d_model=8", *PATIENT)
"""At such a rate no weight moves by a bit."""


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("still") / "run", *STILL)


def test_losses_that_stay_the_same_end_a_run_by_patience_and_its_first_evaluation_stays_the_best(still: Path) -> None:
    losses = [line["val.loss"] for line in lines(still) if "val.loss" in line]
    assert len(losses) == 3
    assert len(set(losses)) == 1
    assert (record(still)["state"], record(still)["step"]) == ("done", 6)
    assert (record(still)["best"]["step"], record(still)["model"]["step"]) == (2, 2)


def test_every_extension_is_borne_with_new_patience(still: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(still, tmp_path / "run"))
    for end in (10, 14):
        done = minitf("pretrain", TINY, *QUIET, *STILL, "-d", run, "--extend", "8")
        assert (done.exit_code, record(run)["step"]) == (0, end), done.stderr
    assert record(run)["best"]["step"] == 2


def test_the_training_loss_of_an_evaluation_is_the_mean_since_the_one_before() -> None:
    counters = tally_of([4.0, 2.0])
    counters.add_evaluation(9.0, 9.0)
    assert (counters.train_loss, counters.val_loss) == (3.0, 9.0)
    counters.add_step(1.0)
    counters.add_evaluation(8.0, 8.0)
    assert (counters.train_loss, counters.val_loss) == (1.0, 8.0)
    counters.add_evaluation(7.0, 7.0)
    assert math.isnan(counters.train_loss)  # no step was taken


@pytest.mark.parametrize("mean", [0.5, 4.0], ids=["by-nats", "by-share"])
def test_a_loss_jumps_where_it_is_above_both_bounds_and_only_once_until_the_next_evaluation(mean: float) -> None:
    bound = max(JUMP * mean, mean + NATS)
    assert not tally_of([mean] * (FEWEST - 1)).is_spike(100.0)
    counters = tally_of([mean] * FEWEST)
    assert not counters.is_spike(bound)
    assert not counters.is_spike(min(JUMP * mean, mean + NATS) + 1e-3)
    assert counters.is_spike(bound + 1e-3)
    assert not counters.is_spike(100.0)
    counters.add_evaluation(1.0, 1.0)
    assert not counters.is_spike(100.0)  # of how many steps there were before nothing counts
    for _ in range(FEWEST):
        counters.add_step(mean)
    assert counters.is_spike(bound + 1e-3)


def test_all_that_is_counted_survives_json_and_the_clock_goes_on() -> None:
    counters = tally_of([1.0, 0.1], wall_seconds=100.0)
    counters.add_evaluation(0.3, 0.3)
    counters.add_step(1 / 3)
    counters.add_evaluation(0.7, 0.7)
    counters.add_step(0.2)
    other = Counters()
    other.load(json.loads(json.dumps(counters.save())))
    names = ("best", "patience_counter", "loss", "steps", "train_loss", "val_loss")
    assert [getattr(other, name) for name in names] == [0.3, 1, 0.2, 1, 1 / 3, 0.7]
    assert other.wall() >= other.wall_seconds >= 100.0


def test_the_wall_clock_adds_what_has_passed_since_this_process_began_to_the_seconds_before() -> None:
    before = time.monotonic()
    counters = Counters(wall_seconds=100.0)
    between = time.monotonic()
    while time.monotonic() == between:  # a clock may tick coarsely
        pass
    after = time.monotonic()
    assert after - between <= counters.wall() - 100.0 + 1e-6
    assert counters.wall() - 100.0 <= time.monotonic() - before + 1e-6
