"""The settings that a sweep tries: lists and ranges of the command line, all combinations, and samples of Optuna."""

import math
import sys
from collections.abc import Callable, Sequence

import pytest

from mini_tf.jobs.sweeps.space import ROUND, Chosen, Range, Search, Space, grid, read_space, sampled
from mini_tf.system.errors import Unavailable, UsageFault


def test_arguments_are_divided_into_fixed_ones_lists_ranges_and_seeds() -> None:
    space = read_space(
        [
            "gpt-nano",
            "../my.txt",
            "data.val=../other.txt",
            "model.attention=[{kind: window, window: 16}, [softmax, linear], 'a b']",
            "optimizer.lr=[1e-3,0.0010,0.01,1e-3]",
            "model.positions=[{kind: rope, base: 1e4}, {base: 10k, kind: rope}, {kind: rope, base: '1e4'}, [1], [1.0]]",
            "model.dropout_rate=0.0..0.5",
            "train.steps=10..12",
            "train.seed=3..5",
            "train.context=[8,16]",
            "train.context=32",
        ]
    )
    assert space.fixed == ["gpt-nano", "../my.txt", "data.val=../other.txt", "train.context=32"]
    assert space.searched == {
        "model.attention": ["{kind: window, window: 16}", "[softmax, linear]", '"a b"'],
        "optimizer.lr": ["1e-3", "0.01"],
        "model.positions": ["{kind: rope, base: 1e4}", '{kind: rope, base: "1e4"}', "[1]"],
        "model.dropout_rate": Range(0.0, 0.5, whole=False),
        "train.steps": Range(10, 12, whole=True),
    }
    assert space.seeds == ["3", "4", "5"]
    assert space.arguments({"train.steps": "11"}, "train.seed=3") == [*space.fixed, "train.steps=11", "train.seed=3"]


def test_the_grid_has_all_combinations_the_last_key_fastest() -> None:
    space = read_space(["a=[1,2]", "b=3..5", "c.d=[x]", "e=[u,v]"])
    expected = []
    for a in ("1", "2"):
        for b in ("3", "4", "5"):
            for e in ("u", "v"):
                expected.append({"a": a, "b": b, "c.d": "x", "e": e})
    assert [*grid(space)] == [expected]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["quickstart", "a=1"], "nothing to search"),
        (["a=[]"], "a=[]: no values to try"),
        (["a=3..1"], "3 is more than 1"),
        (["a=0.1..1"], "--samples N"),
        (["a=[1]", "train.seed=0.5..2"], "--samples N"),
        (["a=1..1000000000000"], "1,000,000,000,000 values, more than 10,000; --samples N"),
        (["a=1..101", "b=1..100"], "a b: 10,100 combinations, more than 10,000"),
    ],
)
def test_what_cannot_be_searched_is_refused(arguments: Sequence[str], words: str) -> None:
    with pytest.raises(UsageFault) as refusal:
        next(grid(read_space(arguments)))
    assert words in " ".join(refusal.value.lines)


SPACE = Space(
    [], {"lr": Range(1e-4, 1e-1, False), "rate": Range(0.0, 0.3, False), "n": Range(1, 8, True), "k": "xy"}, ()
)


def searched(search: Search, score: Callable[[Chosen], float]) -> list[list[Chosen]]:
    """The batches of a search, each of which gets its scores."""
    batches = [[*next(search)]]
    while True:
        try:
            batches.append([*search.send([score(chosen) for chosen in batches[-1]])])
        except StopIteration:
            return batches


def distance(chosen: Chosen) -> float:
    return abs(math.log(float(chosen["lr"]) / 3e-3)) + abs(int(chosen["n"]) - 2)


def test_random_samples_are_even_in_the_logarithm_of_wide_ranges() -> None:
    pytest.importorskip("optuna")
    [batch] = searched(sampled(SPACE, 300, "random"), distance)
    assert [*next(sampled(SPACE, 20, "random"))] == batch[:20]
    rates, dropout = [float(chosen["lr"]) for chosen in batch], [float(chosen["rate"]) for chosen in batch]
    for values, middle in ((rates, 10**-2.5), (dropout, 0.15)):
        assert 0.4 < sum(value < middle for value in values) / 300 < 0.6
    assert 1e-4 <= min(rates) <= max(rates) <= 1e-1
    assert {chosen["n"] for chosen in batch} == {*map(str, range(1, 9))}
    assert {chosen["k"] for chosen in batch} == {*"xy"}


def test_tpe_draws_rounds_from_the_scores_of_all_rounds_before() -> None:
    optuna = pytest.importorskip("optuna")
    batches = searched(sampled(SPACE, 3 * ROUND + 3, "tpe"), distance)
    assert [*map(len, batches)] == [ROUND, ROUND, ROUND, 3]
    assert searched(sampled(SPACE, 3 * ROUND, "tpe"), distance) == batches[:3]
    elsewhere = searched(sampled(SPACE, 3 * ROUND, "tpe"), lambda chosen: -distance(chosen))
    assert elsewhere[0] == batches[0]
    assert elsewhere[2] != batches[2]

    kinds, study = optuna.distributions, optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    asked = {
        "lr": kinds.FloatDistribution(1e-4, 1e-1, log=True),
        "rate": kinds.FloatDistribution(0.0, 0.3),
        "n": kinds.IntDistribution(1, 8),
        "k": kinds.CategoricalDistribution(["x", "y"]),
    }
    for batch in batches[:3]:
        trials = [study.ask(asked) for _ in range(ROUND)]
        for trial, chosen in zip(trials, batch, strict=True):
            assert float(chosen["lr"]) == pytest.approx(trial.params["lr"], rel=1e-3)
            assert (int(chosen["n"]), chosen["k"]) == (trial.params["n"], trial.params["k"])
            study.tell(trial, distance(chosen))


def test_a_failed_trial_is_no_value_for_tpe() -> None:
    pytest.importorskip("optuna")
    batches = searched(sampled(SPACE, 3 * ROUND, "tpe"), lambda chosen: math.inf)
    assert len(batches) == 3


def test_samples_without_optuna_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(Unavailable) as refusal:
        next(sampled(SPACE, 3, "random"))
    assert refusal.value.lines == ["--samples needs optuna; pip install 'minitf[sweep]'"]
