"""Tuning of `auto` settings: alternatives are timed on the run's own model, in a small share of the run's time.

Nothing is measured for a run under five seconds, nor are steps compared while other programs use the CPU. Settings are
tuned one by one, by expected gain: precision, threads, micro-batch size and, for long runs, compilation; the others
without compilation, which would take longer than they do. Every value is warmed up, then all are measured in turn, and
their medians compared. A value replaces the safe default only if it is clearly faster. Before steps in half precision
matrix products are tried in it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import Any

from mini_tf.system.errors import compiler_reason, is_out_of_memory
from mini_tf.training.machine.device import Setup, missing_compiler
from mini_tf.training.schedule import Horizon

SHORT = 5.0
"""Runs shorter than this, in seconds, are not tuned."""
SHARE = 0.03
"""Largest share of the estimated time of a run for all measurements, without compilation."""
HOPELESS = 0.6
"""Below this gain of matrix products bf16 is not measured: products are most of a step."""
PROMISING, PROMISING_SHARE = 1.5, 0.1
"""From this gain of matrix products on, the largest share for measuring bf16, which may save a third of the run; small
batches would hide that."""
LONGEST = 30.0
"""Largest number of seconds for all measurements."""
CLEAR_GAIN = 0.9
"""A value replaces the safe default if it takes at most this share of its time."""
TOO_SLOW = 1.5
"""A value that takes this many times as long as the safe default, once both are warm, is not measured again."""
ROUNDS = 3
"""Measurements of each value, in turn, after a warm-up, which may prepare kernels."""
COMPILES_FROM = {"cpu": 900.0, "cuda": 60.0}
"""Seconds of a run from which compilation may pay off: it gains more on a GPU. Later runs find its result on disk."""
NOISY = 2.0
"""Ratio of the slowest to the fastest measurement of a value from which timings are too noisy to decide."""
TOO_SHORT = "run too short to measure"
TOO_EXPENSIVE = "measuring would take too much of the run"
BUSY = "machine too busy to measure"

Measure = Callable[[Setup, int, int], float]
"""(setup, rows, step) -> seconds of forward and backward passes on this many rows, e.g. a `StepTimer`."""


@dataclass(frozen=True)
class RunLength:
    """Length of a run: rows per step, and its number of steps or seconds."""

    batch_size: int
    horizon: Horizon

    def seconds(self, step_seconds: float) -> float:
        """Seconds of the run if a step takes `step_seconds`."""
        return self.horizon.seconds if self.horizon.steps is None else self.horizon.steps * step_seconds  # type: ignore[return-value]


def tune(
    setup: Setup,
    length: RunLength,
    measure: Measure,
    contended: Callable[[], bool] = lambda: False,
    bf16_gain: Callable[[], float] = lambda: inf,
) -> Setup:
    """`setup` with all undecided settings decided, with reasons and measurements.

    Its micro_batch_size must be the largest that fits into memory. contended: whether other programs use the CPU now.
    bf16_gain: how many times as fast matrix products are in bf16 as in fp32.
    """
    compiled, setup = setup.compile, replace(setup, compile=False)
    bench = _Bench(measure, length, contended if setup.device.type == "cpu" else lambda: False, SHARE)
    tuned = _tune(setup, bench, bf16_gain)
    return replace(tuned, compile=tuned.compile or compiled)


def _tune(setup: Setup, bench: "_Bench", bf16_gain: Callable[[], float]) -> Setup:
    bench.estimate(setup)
    if bench.length.seconds(bench.step) < SHORT:
        return _all_safe(setup, TOO_SHORT)
    safe, gain = setup, bf16_gain() if "precision" in setup.undecided else inf
    if gain < HOPELESS:
        setup = setup.decided("precision", setup.precision, f"matrix products in bf16 are {1 / gain:.1f} times slower")
    elif "precision" in setup.undecided:
        bench.share = PROMISING_SHARE if gain >= PROMISING else SHARE
        setup = _compare("precision", setup, bench)
        bench.share = SHARE
    for key in ("threads", "micro_batch_size"):
        if key in setup.undecided:
            setup = _compare(key, setup, bench)
    setup = _compile(setup, bench) if "compile" in setup.undecided else setup
    if bench.crowded or (bench.crowded is False and bench.contended()):  # began during the measurements
        return replace(_all_safe(safe, BUSY), provisional=True)
    nothing_known = not setup.measured and gain >= HOPELESS
    return replace(setup, provisional=bench.busy or bench.failed or (bench.too_expensive and nothing_known))


def _all_safe(setup: Setup, reason: str) -> Setup:
    for key in setup.undecided:
        setup = setup.decided(key, getattr(setup, key), reason)
    return setup


def choose(key: str, seconds: Mapping[Any, float], how: str = "measured") -> tuple[Any, str]:
    """The value of a setting and the reason, from seconds per step by value; the safe default comes first."""
    safe, *others = seconds
    best = min(others, key=seconds.__getitem__)
    chosen = best if seconds[best] <= CLEAR_GAIN * seconds[safe] else safe
    rest = ", ".join(f"{_ms(seconds[value])} {_WITH[key].format(value)}" for value in seconds if value != chosen)
    note = ", no clear gain" if chosen == safe and seconds[best] < seconds[safe] else ""
    return chosen, f"{_ms(seconds[chosen])} ms per step against {rest}, {how}{note}"


def choose_compiling(eager: float, compiled: float, cost: float, run: float) -> tuple[bool, str]:
    """Whether to compile and the reason, from seconds per step (eager, compiled), of compilation and of the run.

    The cost is spent when this is known, so a clear gain suffices.
    """
    gain = (1 - compiled / eager) * run
    timing = f"{_ms(compiled)} ms per step against {_ms(eager)} without"
    if gain > cost or compiled <= CLEAR_GAIN * eager:
        return True, f"{timing}, measured; {cost:.0f} s of compilation save {_duration(gain)}"
    return False, f"compiled {timing}, measured: not worth {cost:.0f} s"


_WITH = {"precision": "in {}", "threads": "with {}", "micro_batch_size": "with micro-batches of {}"}


@dataclass
class _Bench:
    """Measures setups within a time budget. step: seconds per step in the setup as decided so far. spent: seconds used.

    contended: whether other programs use the CPU now, which takes up to a third of a second to find out. crowded:
    whether they did before the first comparison; None: there was none. share: of the run that measurements may
    take. busy: measurements were too noisy. too_expensive: a setting was not measured because it would take too
    long. failed: torch.compile failed, which may be mended.
    """

    measure: Measure
    length: RunLength
    contended: Callable[[], bool]
    share: float
    crowded: bool | None = None
    step: float = 0.0
    spent: float = 0.0
    busy: bool = False
    too_expensive: bool = False
    failed: bool = False

    @property
    def left(self) -> float:
        return min(LONGEST, self.share * self.length.seconds(self.step)) - self.spent

    def seconds(self, setup: Setup, rows: int, step: int) -> float:
        seconds = self.measure(setup, rows, step)
        self.spent += seconds
        return seconds

    def estimate(self, setup: Setup) -> None:
        """Estimate the time of a step from one row (an upper bound); unless the run is short, from more rows."""
        if self.length.horizon.steps is None and self.length.seconds(0) < SHORT:
            return
        row = self.seconds(setup, 1, 0)
        self.step = row * self.length.batch_size
        if (run := self.length.seconds(self.step)) >= SHORT:
            rows = max(
                d for d in _divisors(setup.micro_batch_size) if d == 1 or 2 * d * row <= min(LONGEST, SHARE * run) / 3
            )
            self.step = min(self.seconds(setup, rows, step) for step in range(2)) * self.length.batch_size / rows

    def quiet(self) -> bool:
        """Whether no other programs use the CPU; they are looked for once."""
        if self.crowded is None:
            self.crowded = self.contended()
        return not self.crowded

    def affords(self, slowdowns: Iterable[float], rows: int) -> bool:
        """Whether the budget suffices to measure, on `rows` rows, values with these worst-case slowdowns."""
        runs = 1 + ROUNDS + sum(max(2 * slow, TOO_SLOW * (1 + ROUNDS)) for slow in slowdowns)
        return runs * self.step * rows / self.length.batch_size <= self.left

    def compare(self, setups: Mapping[Any, Setup], rows: int, bounded: bool = True) -> dict[Any, float]:
        """Median seconds per step in each setup, measured in turn; the first is the safe default.

        bounded: values without a measurement after warm-up within the budget are missing.
        """
        timed: dict[Any, list[float]] = {}
        for value, setup in setups.items():
            if not timed or not bounded or self.left > 0:
                self.seconds(setup, rows, 0)
                timed[value] = []
        safe, *_ = timed
        for step in range(ROUNDS):
            for value, times in timed.items():
                promising = not times or min(times) <= TOO_SLOW * min(timed[safe])
                if promising and (self.left > 0 or not bounded or not timed[safe]):
                    times.append(self.seconds(setups[value], rows, step))
        timed = {value: times for value, times in timed.items() if times}
        self.busy |= any(max(times) > NOISY * min(times) for times in timed.values())
        return {value: median(times) * self.length.batch_size / rows for value, times in timed.items()}


def _others(key: str, setup: Setup) -> dict[Any, float]:
    """Alternatives to the safe default, cheapest first, with the worst-case slowdown of each."""
    if key == "precision":
        return {"bf16": 3.0}  # products take at most 1 / HOPELESS times as long, and casts come in addition
    if key == "threads":
        return {threads: setup.threads / threads for threads in (setup.threads // 2, 1) if 1 <= threads < setup.threads}
    return {setup.micro_batch_size // part: 1.0 for part in (2, 4) if setup.micro_batch_size % part == 0}


def _compare(key: str, setup: Setup, bench: _Bench) -> Setup:
    """Decide one setting.

    Precision may be timed on fewer rows, which favours the safe fp32; but they would also favour fewer threads.
    """
    others = _others(key, setup)
    sizes = _divisors(setup.micro_batch_size) if key == "precision" else [setup.micro_batch_size]
    while others and not any(bench.affords(others.values(), rows) for rows in sizes):
        others.popitem()
    safe = getattr(setup, key)
    if not others and _others(key, setup):
        bench.too_expensive = True
        return setup.decided(key, safe, TOO_EXPENSIVE)
    if not others:
        return setup.decided(key, safe, "no alternative")
    if not bench.quiet():
        return setup.decided(key, safe, BUSY)
    rows = max(rows for rows in sizes if bench.affords(others.values(), rows))
    seconds = bench.compare({value: replace(setup, **{key: value}) for value in (safe, *others)}, rows)
    if bench.busy or len(seconds) == 1:
        return setup.decided(key, safe, BUSY if bench.busy else TOO_EXPENSIVE)
    some = "" if rows == setup.micro_batch_size else f" on {rows} of {bench.length.batch_size} rows"
    value, reason = choose(key, seconds, f"measured{some}")
    bench.step *= seconds[value] / seconds[safe]
    return _with_measurements(setup, key, seconds).decided(key, value, reason)


def _compile(setup: Setup, bench: _Bench) -> Setup:
    """Decide whether to compile, by a trial if the run is long enough for it to pay off.

    Raises what the same rows raise without the compiler.
    """
    run, least = bench.length.seconds(bench.step), COMPILES_FROM[setup.device.type]
    if run < least:
        return setup.decided("compile", False, f"not measured for runs under {_duration(least)}")
    if missing := missing_compiler(setup.device):
        return setup.decided("compile", False, missing)
    if not bench.quiet():
        return setup.decided("compile", False, BUSY)
    rows, compiled = setup.micro_batch_size, replace(setup, compile=True)
    try:
        first = sum(bench.seconds(compiled, rows, step) for step in range(2))  # another shape compiles once more
        seconds = bench.compare({False: setup, True: compiled}, rows, bounded=False)
    except Exception as error:  # of the compiler, or of data and task
        for step in range(ROUNDS):
            bench.seconds(setup, rows, step)
        bench.failed = True
        if is_out_of_memory(error):
            return setup.without("compile", f"compiled, a step runs out of memory with micro-batches of {rows}")
        return setup.without("compile", f"torch.compile does not work here: {compiler_reason(error)}")
    if bench.busy:
        return setup.decided("compile", False, BUSY)
    cost = max(0.0, first - 2 * seconds[True] * rows / bench.length.batch_size)
    on, reason = choose_compiling(seconds[False], seconds[True], cost, run)
    return _with_measurements(setup, "compile", seconds | {"cost": cost}).decided("compile", on, reason)


def _with_measurements(setup: Setup, key: str, seconds: Mapping[Any, float]) -> Setup:
    rounded = {str(value).lower(): round(of_value, 6) for value, of_value in seconds.items()}
    return replace(setup, measured={**setup.measured, key: rounded})


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f}" if seconds >= 0.01 else f"{seconds * 1000:.2g}"


def _duration(seconds: float) -> str:
    if seconds < 7200:
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
