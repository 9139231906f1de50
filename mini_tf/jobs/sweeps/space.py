"""The settings that a sweep tries: `KEY=[A,B]` is a list of values, `KEY=LOW..HIGH` a range of numbers.

All combinations of lists, in the order of the command line, the last key fastest; or samples of Optuna (Akiba et al.
2019, arXiv:1907.10902; TPE: Bergstra et al. 2011, Algorithms for Hyper-Parameter Optimization).
"""

import itertools
import json
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mini_tf.recipe.arguments import is_override
from mini_tf.recipe.parsing.yaml_tree import Node, parse
from mini_tf.recipe.values import real_number, whole_number
from mini_tf.system.errors import Unavailable, UsageFault

Chosen = Mapping[str, str]
"""Values of the searched keys, as the command line writes them."""
Search = Generator[Sequence[Chosen], Sequence[float], None]
"""Yields settings to try together, and gets the score of each: lower is better, infinite for a failure."""
Sampler = Literal["random", "tpe"]
SEED = "train.seed"
ROUND = 8
"""Samples of TPE that are drawn from the same results, so that they do not depend on the number of processes."""
LOGARITHMIC = 10
"""Ratio of the ends of a range from which its logarithm is sampled evenly."""
MOST = 10_000
"""Trials of a sweep, and values of a range that are listed, at most."""
_DIGITS = 4
"""Significant digits of a sampled number."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; whole: if both ends are written as whole numbers."""

    low: float
    high: float
    whole: bool

    @property
    def logarithmic(self) -> bool:
        return self.low > 0 and self.high >= LOGARITHMIC * self.low

    @property
    def all(self) -> Sequence[str]:
        """All numbers; UsageFault if they are not whole, or too many."""
        if not self.whole:
            hint = "--samples N tries N of them; or give a list"
            raise UsageFault(f"{self}: a range of fractions has no end", hint=hint)
        numbers = range(int(self.low), int(self.high) + 1)
        _refuse_too_many(f"{self}", len(numbers), "values")
        return [str(number) for number in numbers]

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}"


Values = Sequence[str] | Range
"""What is tried for a key."""


@dataclass(frozen=True)
class Space:
    """fixed: the arguments that all runs share. searched: by key. seeds: runs of the same settings.

    of_recipe: the seeds are those of `train.seeds`, of which a run has one.
    """

    fixed: Sequence[str]
    searched: Mapping[str, Values]
    seeds: Sequence[str]
    of_recipe: bool = False

    @property
    def as_json(self) -> dict[str, Any]:
        """By key, for `sweep.json`."""
        shown = {key: str(values) if isinstance(values, Range) else [*values] for key, values in self.searched.items()}
        return shown | {SEED: [*self.seeds]}

    @property
    def seed_arguments(self) -> Sequence[Sequence[str]]:
        """What chooses the seed of each run of the same settings: nothing of the only one if no seeds are given."""
        single = ["train.seeds=1", "train.ensemble=null"] if self.of_recipe else []
        return [[f"{SEED}={seed}", *single] for seed in self.seeds] or [[]]

    def arguments(self, settings: Chosen, *more: str) -> list[str]:
        """The arguments of `minitf pretrain`."""
        return [*self.fixed, *(f"{key}={value}" for key, value in settings.items()), *more]


def read_space(arguments: Sequence[str]) -> Space:
    """Split [RECIPE] [DATA ...] [KEY=VALUE ...]; UsageFault if no key has several values, or one has none."""
    fixed, searched = list[str](), dict[str, Values]()
    for argument in arguments:
        key, _, text = argument.partition("=")
        values = _values(key, text) if is_override(argument) else None
        searched.pop(key, None)  # the last value of a key is used
        if values is None:
            fixed.append(argument)
        else:
            searched[key] = values
    if not searched:
        hint = "give a key a list or a range of values: 'optimizer.lr=[0.01,0.02]' train.seed=1..3"
        raise UsageFault("nothing to search: no KEY=[VALUE,...] and no KEY=LOW..HIGH", hint=hint)
    return Space(fixed, searched, _listed(searched.pop(SEED, ())))


def _values(key: str, text: str) -> Values | None:
    """The values of an override; None if it is a single one."""
    if text.startswith("["):
        items = parse(text, key, f"command line: {key}").value
        if not items:
            raise UsageFault(f"{key}=[]: no values to try", hint=f"write {key}=[A,B]; an empty list as value is [[]]")
        written = dict[Any, str]()
        for item in items:
            written.setdefault(_content(item), _written(item))
        return [*written.values()]
    low, dots, high = text.partition("..")
    ends = [(whole_number(end), real_number(end)) for end in (low, high)]
    if not dots or None in (real := [number for _, number in ends]):  # ../my.txt
        return None
    if real[0] > real[1]:  # type: ignore[operator]
        raise UsageFault(f"{key}={text}: {low} is more than {high}", hint=f"write {key}={high}..{low}")
    return Range(*real, whole=all(number is not None for number, _ in ends))  # type: ignore[arg-type,misc]


def _refuse_too_many(subject: str, n: int, unit: str) -> None:
    if n > MOST:
        raise UsageFault(f"{subject}: {n:,} {unit}, more than {MOST:,}", hint="--samples N tries N of them")


def _listed(values: Values) -> Sequence[str]:
    return values.all if isinstance(values, Range) else values


def _written(node: Node) -> str:
    """A value as YAML on one line."""
    if isinstance(node.value, dict):
        return "{" + ", ".join(f"{key}: {_written(value)}" for key, value in node.value.items()) + "}"
    if isinstance(node.value, list):
        return "[" + ", ".join(map(_written, node.value)) + "]"
    return json.dumps(node.value, ensure_ascii=False) if node.value.quoted or not node.value else str(node.value)


def _content(node: Node) -> Any:
    """What equal values have in common, however they are written: 0.1 and 1e-1."""
    if isinstance(node.value, dict):
        return frozenset((key, _content(value)) for key, value in node.value.items())
    if isinstance(node.value, list):
        return tuple(map(_content, node.value))
    number = None if node.value.quoted else real_number(node.value)
    return str(node.value) if number is None else number


def grid(space: Space) -> Search:
    """All combinations at once; UsageFault if they are too many, or for a range that is not of whole numbers."""
    lists = [_listed(values) for values in space.searched.values()]
    _refuse_too_many(" ".join(space.searched), math.prod(map(len, lists)), "combinations")
    yield [dict(zip(space.searched, chosen, strict=True)) for chosen in itertools.product(*lists)]


def sampled(space: Space, n: int, sampler: Sampler) -> Search:
    """`n` samples, a function of the space and the scores; the first ones do not depend on `n`.

    Lists have equally probable values. Raises Unavailable if Optuna is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise Unavailable("--samples needs optuna", hint="pip install 'minitf[sweep]'") from None
    if not space.searched:
        raise UsageFault("--samples: only seeds are given, nothing to sample", hint="give another key several values")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    samplers = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
    study = optuna.create_study(sampler=samplers[sampler](seed=0))
    distributions = {key: _distribution(optuna.distributions, values) for key, values in space.searched.items()}
    size = n if sampler == "random" else ROUND
    for first in range(0, n, size):
        trials = [study.ask(distributions) for _ in range(min(size, n - first))]
        scores = yield [{key: _shown(value) for key, value in trial.params.items()} for trial in trials]
        for trial, score in zip(trials, scores, strict=True):
            failed = score == float("inf")
            study.tell(trial, None if failed else score, optuna.trial.TrialState.FAIL if failed else None)


def _shown(value: Any) -> str:
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else str(value)


def _distribution(kinds: Any, values: Values) -> Any:
    """kinds: the module of Optuna's distributions."""
    if not isinstance(values, Range):
        return kinds.CategoricalDistribution(values)
    if values.whole:
        return kinds.IntDistribution(int(values.low), int(values.high), log=values.logarithmic)
    return kinds.FloatDistribution(values.low, values.high, log=values.logarithmic)
