"""Cost of an attention layer against the length of a row: FLOPs counted, memory and time measured on this machine."""

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from mini_tf.nn.mixer import AttentionDims, LayerSpec, Mixer
from mini_tf.nn.model import ModelSettings
from mini_tf.nn.stack import AttentionLayer
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.recipe import Recipe
from mini_tf.system.progress import show_progress
from mini_tf.training.flops import TRAINING_PASSES, forward_flops
from mini_tf.training.machine.device import Setup, resolve_setup
from mini_tf.training.machine.memory import free_bytes, saved_bytes

MEASURED_SECONDS, MIN_REPETITIONS, LONG_SECONDS = 1.0, 5, 3.0
"""Time and minimum number of the repetitions at one length; a pass above LONG_SECONDS is not repeated."""
SLOPE_POINTS = 4
"""The slope is fitted to so many of the longest lengths, where the highest power of L dominates."""
PROBED = 256, 512
"""Lengths from whose memory that of the first measured length is extrapolated."""
CONVOLUTION_WIDTH = 3


class Layer(NamedTuple):
    """An attention layer of a recipe, and its name in the table."""

    name: str
    of: AttentionLayer

    @property
    def dims(self) -> AttentionDims:
        return self.of.stack.attention_dims(self.of.d_memory)

    def sizes(self, length: int) -> tuple[int, int]:
        """Queries and keys on a row of `length` tokens."""
        return (
            length if self.of.queries is None else self.of.queries,
            length if self.of.keys is None else self.of.keys,
        )


@dataclass(frozen=True)
class LengthCost:
    """One row of `length` tokens, forward and backward. None: the memory did not suffice.

    saved: bytes of tensors saved for backward. seconds: median. peak: bytes of tensors at the same time beside
    parameters and inputs, None on devices that do not report it.
    """

    length: int
    flops: int | None = None
    seconds: float | None = None
    saved: int | None = None
    peak: int | None = None


@dataclass(frozen=True)
class Slope:
    """Exponent p of time ~ L^p, fitted by least squares on logarithms to lengths first..last; its standard error."""

    exponent: float
    error: float
    first: int
    last: int


class LayerCosts(NamedTuple):
    """The costs of one layer at each length."""

    layer: Layer
    costs: list[LengthCost]

    @property
    def timed(self) -> list[tuple[int, float]]:
        """(length, seconds) of the lengths that were measured."""
        return [(cost.length, cost.seconds) for cost in self.costs if cost.seconds is not None]

    @property
    def slope(self) -> Slope | None:
        """The exponent of the time, over the longest lengths; None for fewer than three."""
        return fit_slope([length for length, _ in self.timed], [seconds for _, seconds in self.timed])


def measure_recipes(recipes: Sequence[tuple[str, Recipe]], lengths: Sequence[int]) -> list[LayerCosts]:
    """The costs of each different mixer of each (name, recipe), with the settings of its `runtime`."""
    measured = []
    for name, recipe in recipes:
        setup = resolve_setup(recipe.runtime)
        setup.apply()
        for layer in layers_of(name, recipe):
            with show_progress(f"measuring {layer.name}") as report_progress:
                costs: list[LengthCost] = []
                for cost in measure_lengths(layer, lengths, setup):
                    costs.append(cost)
                    report_progress(len(costs) / len(lengths))
            measured.append(LayerCosts(layer, costs))
    return measured


def layers_of(name: str, recipe: Recipe) -> list[Layer]:
    """The attention layers that the model declares."""
    model = recipe.model
    assert isinstance(model, ModelSettings)
    layers = model.attention_layers()
    return [Layer(f"{layer.name} ({name})" if layer.name else name, layer) for layer in layers]


def measure_lengths(layer: Layer, lengths: Sequence[int], setup: Setup) -> Iterator[LengthCost]:
    """The cost at each length, the shortest first; nothing is measured after the first that exceeds the memory."""
    mixer, fits = _build(layer, max(*PROBED, *lengths), setup.device), True
    saved = {length: saved_bytes(_forward_of(layer, mixer, length, setup), setup, mixer) for length in PROBED}
    for length in lengths:
        fits = fits and 3 * _extrapolated(saved, length) < free_bytes(setup.device)
        cost = _measure(layer, mixer, length, setup) if fits else LengthCost(length)
        saved |= {} if cost.saved is None else {length: cost.saved}
        yield cost


def _extrapolated(saved: Mapping[int, int], length: int) -> float:
    """Bytes a L + b L^2 through those of the two greatest lengths L."""
    (shorter, low), (longer, high) = sorted(saved.items())[-2:]
    b = max(0.0, (high / longer - low / shorter) / (longer - shorter))
    return (high / longer + b * (length - longer)) * length


def fit_slope(lengths: Sequence[int], values: Sequence[float]) -> Slope | None:
    """The slope over the longest lengths; None for fewer than three."""
    x, y = ([math.log(value) for value in axis[-SLOPE_POINTS:]] for axis in (lengths, values))
    if len(x) < 3:
        return None
    slope, intercept = statistics.linear_regression(x, y)
    residuals = sum((b - slope * a - intercept) ** 2 for a, b in zip(x, y, strict=True))
    spread = sum((a - statistics.fmean(x)) ** 2 for a in x)
    return Slope(slope, math.sqrt(residuals / (len(x) - 2) / spread), lengths[-len(x)], lengths[-1])


def formula_rows(d_model: int) -> dict[str, Callable[[int], float]]:
    """FLOPs of forward and backward of layers that minitf does not have (Vaswani et al. 2017, table 1)."""
    return {
        "recurrent (formula)": lambda length: TRAINING_PASSES * 4 * length * d_model**2,
        f"convolution of {CONVOLUTION_WIDTH} (formula)": lambda length: (
            TRAINING_PASSES * 2 * CONVOLUTION_WIDTH * length * d_model**2
        ),
    }


def _build(layer: Layer, length: int, device: torch.device) -> Mixer:
    stack, dims, cross = layer.of.stack, layer.dims, layer.of.d_memory is not None
    encoding = None if cross else stack.positions.build(dims.d_model, dims.n_heads, dims.d_k, length).to(device)
    return layer.of.mixer.build(dims, LayerSpec(0, 1, "cross" if cross else "self", encoding, stack.bias)).to(device)


def _forward_of(layer: Layer, mixer: Mixer, length: int, setup: Setup) -> Callable[[], torch.Tensor]:
    """The forward pass on one row of random inputs, which have gradients."""
    queries, keys = (TokenPositions(n) for n in layer.sizes(length))
    mask = Visibility(layer.of.causal, queries, keys)
    x = torch.randn(1, queries.length, layer.dims.d_model, device=setup.device).requires_grad_()
    crossed = layer.of.d_memory is not None
    source = torch.randn(1, keys.length, layer.dims.d_memory, device=setup.device).requires_grad_() if crossed else x

    def forward() -> torch.Tensor:
        with setup.autocast():
            y: torch.Tensor = mixer(x, mixer.recall(source, keys) if crossed else x, mask).y
            return y

    return forward


def _measure(layer: Layer, mixer: Mixer, length: int, setup: Setup) -> LengthCost:
    forward = _forward_of(layer, mixer, length, setup)

    def both() -> None:
        forward().sum().backward()

    flops = TRAINING_PASSES * forward_flops(forward, setup.device)
    saved = saved_bytes(forward, setup, mixer)
    peak = _peak_bytes(both, setup.device)  # warms up too
    seconds: list[float] = []
    while not seconds or (
        seconds[0] < LONG_SECONDS and (sum(seconds) < MEASURED_SECONDS or len(seconds) < MIN_REPETITIONS)
    ):
        start = time.perf_counter()
        both()
        if setup.device.type == "cuda":
            torch.cuda.synchronize(setup.device)
        seconds.append(time.perf_counter() - start)
    return LengthCost(length, flops, statistics.median(seconds), saved, peak)


def _peak_bytes(work: Callable[[], None], device: torch.device) -> int | None:
    """The largest sum of the sizes of tensors that `work` allocates, at any time."""
    gc.collect()
    if device.type == "cuda":
        work()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return int(torch.cuda.max_memory_allocated(device) - before)
    if device.type != "cpu":
        work()
        return None
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would write on stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    events = profiled.profiler.kineto_results.events()
    now = peak = 0
    for _, size in sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"):
        now += size
        peak = max(peak, now)
    return peak
