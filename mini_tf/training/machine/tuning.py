"""Chooses `auto` settings by timing the run's own model, within 3 % of the run's time.

Not for runs under ten seconds, nor on a busy machine. Each setting is chosen by itself, in the order of its possible
gain: precision, threads, micro-batch size, and, for long runs, compilation. Every value is warmed up, then all are
timed in turns, and medians are compared. A value must be clearly faster than the safe one to replace it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from mini_tf.training.machine.device import Setup, missing_compiler
from mini_tf.training.schedule import Horizon

SHORT = 10.0
"""Runs shorter than this (seconds) measure nothing."""
SHARE = 0.03
"""Largest share of a run's estimated time for all measurements, without compilation."""
LONGEST = 30.0
"""Largest time for them in seconds, however long the run."""
CLEARLY = 0.9
"""A value replaces the safe one if it takes at most this share of its time."""
HOPELESS = 1.5
"""A value that is so many times slower than the safe one, both warm, is not timed again."""
ROUNDS = 3
"""Alternating timings of each value, after one for warmup."""
COMPILES_FROM = {"cpu": 900.0, "cuda": 300.0}
"""Shortest run (seconds) in which compilation for half a minute may pay off."""
SCATTERED = 2.0
"""If the slowest of equal timings takes so many times as long as the fastest, the machine is busy."""
TOO_SHORT = "run too short to measure"
TOO_DEAR = "measuring would take too long"
BUSY = "machine too busy to measure"

Measure = Callable[[Setup, int, int], float]
"""(setup, rows, turn) -> seconds of forward and backward passes on so many rows; a `StepTimer`, in tests a table."""


@dataclass(frozen=True)
class RunLength:
    """Length of a run: rows per step, and steps or seconds."""

    batch_size: int
    horizon: Horizon

    def seconds(self, step: float) -> float:
        """Seconds of the run, given the seconds of a step."""
        return self.horizon.seconds if self.horizon.steps is None else self.horizon.steps * step  # type: ignore[return-value]


def tune(setup: Setup, work: RunLength, measure: Measure, contended: Callable[[], bool] = lambda: False) -> Setup:
    """`setup` with all undecided settings decided, with reasons and timings.

    Its micro_batch_size must be the largest that fits into memory. contended: whether other programs use the CPU now.
    """
    bench = _Bench(measure, work)
    bench.look(setup)
    if work.seconds(bench.step) < SHORT:
        return _all_safe(setup, TOO_SHORT)
    if contended():
        return replace(_all_safe(setup, BUSY), provisional=True)
    safe = setup
    for key in ("precision", "threads", "micro_batch_size"):
        if key in setup.undecided:
            setup = _compare(key, setup, bench)
    setup = _compile(setup, bench) if "compile" in setup.undecided else setup
    if contended():  # meanwhile
        return replace(_all_safe(safe, BUSY), provisional=True)
    return replace(setup, provisional=bench.busy or (bench.too_dear and not setup.measured))


def _all_safe(setup: Setup, reason: str) -> Setup:
    for key in setup.undecided:
        setup = setup.decided(key, getattr(setup, key), reason)
    return setup


def choose(key: str, seconds: Mapping[Any, float], how: str = "measured") -> tuple[Any, str]:
    """The value of a setting and the reason, from seconds per step; the first value is the safe one."""
    safe, *others = seconds
    best = min(others, key=seconds.__getitem__)
    chosen = best if seconds[best] <= CLEARLY * seconds[safe] else safe
    rest = ", ".join(f"{_ms(seconds[value])} {_WITH[key].format(value)}" for value in seconds if value != chosen)
    close = ", no clear gain" if chosen == safe and seconds[best] < seconds[safe] else ""
    return chosen, f"{_ms(seconds[chosen])} ms per step, {rest}, {how}{close}"


def choose_compiling(eager: float, compiled: float, cost: float, run: float) -> tuple[bool, str]:
    """Whether to compile and the reason: from seconds per step without and with it, of compilation, and of the whole
    run.
    """
    gain = (1 - compiled / eager) * run
    told = f"{_ms(compiled)} ms per step, {_ms(eager)} without"
    if gain > cost:
        return True, f"{told}, measured; {cost:.0f} s of compilation save {_duration(gain)}"
    return False, f"compiled {told}, measured: not worth {cost:.0f} s of compilation"


_WITH = {"precision": "in {}", "threads": "with {}", "micro_batch_size": "with micro-batches of {}"}


@dataclass
class _Bench:
    """Times setups, and counts the time spent; step: seconds of a step in the current setup.

    busy: timings were too noisy to decide; too_dear: something was not timed, since it would take too long.
    """

    measure: Measure
    work: RunLength
    step: float = 0.0
    spent: float = 0.0
    busy: bool = False
    too_dear: bool = False

    @property
    def left(self) -> float:
        return min(LONGEST, SHARE * self.work.seconds(self.step)) - self.spent

    def seconds(self, setup: Setup, rows: int, turn: int) -> float:
        taken = self.measure(setup, rows, turn)
        self.spent += taken
        return taken

    def look(self, setup: Setup) -> None:
        """Seconds of a step, estimated from one row (too high), and if that is not short from up to a micro-batch."""
        if self.work.horizon.steps is None and self.work.seconds(0) < SHORT:
            return
        row = self.seconds(setup, 1, 0)
        self.step = row * self.work.batch_size
        if (run := self.work.seconds(self.step)) >= SHORT:
            rows = max(d for d in _divisors(setup.micro_batch_size) if d == 1 or 2 * d * row <= min(LONGEST, SHARE * run) / 3)
            self.step = min(self.seconds(setup, rows, turn) for turn in range(2)) * self.work.batch_size / rows

    def affords(self, slowdowns: Iterable[float], rows: int) -> bool:
        """Whether the safe value and others, so many times slower at worst, can be timed on so many rows."""
        tries = 1 + ROUNDS + sum(max(2 * slow, HOPELESS * (1 + ROUNDS)) for slow in slowdowns)
        return tries * self.step * rows / self.work.batch_size <= self.left

    def compare(self, setups: Mapping[Any, Setup], rows: int, bounded: bool = True) -> dict[Any, float]:
        """Seconds per step of each value: the median of alternating timings. The first is the safe one.

        bounded: a value that cannot be warmed up in time is left out.
        """
        timed: dict[Any, list[float]] = {}
        for value, setup in setups.items():
            if not timed or not bounded or self.left > 0:
                self.seconds(setup, rows, 0)
                timed[value] = []
        safe, *_ = timed
        for turn in range(ROUNDS):
            for value, times in timed.items():
                hopeful = not times or min(times) <= HOPELESS * min(timed[safe])
                if hopeful and (self.left > 0 or not bounded or not timed[safe]):
                    times.append(self.seconds(setups[value], rows, turn))
        timed = {value: times for value, times in timed.items() if times}
        self.busy |= any(max(times) > SCATTERED * min(times) for times in timed.values())
        return {value: median(times) * self.work.batch_size / rows for value, times in timed.items()}


def _others(key: str, setup: Setup) -> dict[Any, float]:
    """Values besides the safe one, cheapest first, and how many times slower each may be."""
    if key == "precision":
        return {"bf16": 5.0}
    if key == "threads":
        return {threads: setup.threads / threads for threads in (setup.threads // 2, 1) if 1 <= threads < setup.threads}
    return {setup.micro_batch_size // part: 1.0 for part in (2, 4) if setup.micro_batch_size % part == 0}


def _compare(key: str, setup: Setup, bench: _Bench) -> Setup:
    """Decide one setting. With few rows other types than fp32 look worse, but fewer threads look better."""
    others = _others(key, setup)
    sizes = _divisors(setup.micro_batch_size) if key == "precision" else [setup.micro_batch_size]
    while others and not any(bench.affords(others.values(), rows) for rows in sizes):
        others.popitem()
    safe = getattr(setup, key)
    if not others and _others(key, setup):
        bench.too_dear = True
        return setup.decided(key, safe, TOO_DEAR)
    if not others:
        return setup.decided(key, safe, "no alternative")
    rows = max(rows for rows in sizes if bench.affords(others.values(), rows))
    seconds = bench.compare({value: replace(setup, **{key: value}) for value in (safe, *others)}, rows)
    if bench.busy or len(seconds) == 1:
        return setup.decided(key, safe, BUSY if bench.busy else TOO_DEAR)
    whole = rows == setup.micro_batch_size
    value, reason = choose(key, seconds, "measured" if whole else f"measured on {rows} of {bench.work.batch_size} rows")
    bench.step *= seconds[value] / seconds[safe]
    return _noted(setup, key, seconds).decided(key, value, reason)


def _compile(setup: Setup, bench: _Bench) -> Setup:
    """Decide whether to compile by compiling, if the run is long enough."""
    run, least = bench.work.seconds(bench.step), COMPILES_FROM[setup.device.type]
    if run < least:
        return setup.decided("compile", False, f"only tried in runs over {_duration(least)}")
    if missing := missing_compiler(setup.device):
        return setup.decided("compile", False, missing)
    rows, compiled = setup.micro_batch_size, replace(setup, compile=True)
    try:
        first = sum(bench.seconds(compiled, rows, turn) for turn in range(2))  # rows of another shape compile once more
        seconds = bench.compare({False: setup, True: compiled}, rows, bounded=False)
    except Exception as error:  # any failure of the compiler leaves training uncompiled
        return setup.decided("compile", False, f"compilation failed: {type(error).__name__}")
    if bench.busy:
        return setup.decided("compile", False, BUSY)
    cost = max(0.0, first - 2 * seconds[True] * rows / bench.work.batch_size)
    on, reason = choose_compiling(seconds[False], seconds[True], cost, run)
    return _noted(setup, "compile", seconds | {"cost": cost}).decided("compile", on, reason)


def _noted(setup: Setup, key: str, seconds: Mapping[Any, float]) -> Setup:
    figures = {str(value).lower(): round(figure, 6) for value, figure in seconds.items()}
    return replace(setup, measured={**setup.measured, key: figures})


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f}" if seconds >= 0.01 else f"{seconds * 1000:.2g}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
