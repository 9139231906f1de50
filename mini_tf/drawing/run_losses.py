"""The loss curve of one run, loss.svg: written by hand, since every run draws one and matplotlib takes longer to import
than a short run to train.
"""

import html
import math
from collections.abc import Iterator, Sequence

import numpy as np

from mini_tf.system.safe_text import safe_text

Points = Sequence[tuple[float, float]]
_WIDTH, _HEIGHT = 740, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 700, 48, 352  # the frame of the curves, in pixels
_TRAIN, _VAL, _RULE, _MUTED = "#7a9cc6", "#c2410c", "#dddddd", "#555555"
_LONGEST_TITLE = 70
_MAX_POINTS = 2000
"""Of a line; more than the picture has pixels."""


def loss_curve(train: Points, val: Points, title: str, unit: str) -> bytes:
    """An SVG of loss against step: training loss, its running mean, and validation loss with its minimum.

    Points whose loss is not finite are left out.
    """
    train, val = ([point for point in points if math.isfinite(point[1])] for points in (train, val))
    return "\n".join(_elements(train, val, title, unit)).encode()


def _elements(train: Points, val: Points, title: str, unit: str) -> Iterator[str]:
    x_ticks = _ticks([step for points in (train, val) for step, _ in points], whole=True)
    y_ticks = _ticks([loss for points in (train, val) for _, loss in points])

    def x(step: float) -> float:
        return _LEFT + (step - x_ticks[0]) / (x_ticks[-1] - x_ticks[0]) * (_RIGHT - _LEFT)

    def y(loss: float) -> float:
        return _BOTTOM - (loss - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (_BOTTOM - _TOP)

    def line(points: Points, color: str, width: float, opacity: float = 1) -> str:
        places = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in _thinned(points))
        style = f'fill="none" stroke="{color}" stroke-width="{width}" stroke-opacity="{opacity}"'
        return f'<polyline points="{places}" {style} stroke-linejoin="round"/>'

    def dot(point: tuple[float, float], color: str) -> str:
        return f'<circle cx="{x(point[0]):.1f}" cy="{y(point[1]):.1f}" r="2.8" fill="{color}"/>'

    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        ' font-family="system-ui, Helvetica, Arial, sans-serif" font-size="13">'
    )
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    yield _text(_WIDTH / 2, 24, title if len(title) <= _LONGEST_TITLE else title[: _LONGEST_TITLE - 1] + "…", size=15)
    for tick in y_ticks:
        yield f'<path d="M{_LEFT} {y(tick):.1f}H{_RIGHT}" stroke="{_RULE}"/>'
        yield _text(_LEFT - 8, y(tick) + 4, f"{tick:.6g}", "end")
    for tick in x_ticks:
        yield f'<path d="M{x(tick):.1f} {_TOP}V{_BOTTOM}" stroke="{_RULE}"/>'
        yield _text(x(tick), _BOTTOM + 18, f"{tick:,.0f}")
    yield _text((_LEFT + _RIGHT) / 2, _HEIGHT - 10, "step")
    yield _text(18, (_TOP + _BOTTOM) / 2, f"loss ({unit})" if unit else "loss", turned=True)
    if train:
        smooth = running_mean([loss for _, loss in train], max(1, len(train) // 30))
        yield line(train, _TRAIN, 0.8, 0.5)
        yield line([(step, mean) for (step, _), mean in zip(train, smooth, strict=True)], _TRAIN, 1.8)
    if len(train) == 1:
        yield dot(train[0], _TRAIN)
    if val:
        yield line(val, _VAL, 1.5)
        yield from (dot(point, _VAL) for point in val)
        loss, step = min((loss, step) for step, loss in val)
        yield _text(min(x(step), _RIGHT - 16), y(loss) - 9, f"{loss:.3f}", color=_VAL)
    legend = [name for name, points in (("training", train), ("validation", val)) if points]
    for n, name in enumerate(legend):
        color, top = _TRAIN if name == "training" else _VAL, _TOP + 16 + 20 * n
        yield f'<path d="M{_RIGHT - 104} {top - 4}h22" stroke="{color}" stroke-width="1.8"/>'
        yield _text(_RIGHT - 74, top, name, "start")
    yield "</svg>\n"


def _text(x: float, y: float, text: str, anchor: str = "middle", size: int = 13, color: str = _MUTED,
          turned: bool = False) -> str:  # fmt: skip
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    shown = html.escape(safe_text(text), quote=False)
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{color}"{turn}>{shown}</text>'
    )


def _ticks(values: Sequence[float], whole: bool = False) -> list[float]:
    """Round numbers, at most eight, the first not above and the last not below all values."""
    low, high = min(values, default=0), max(values, default=1)
    rough = max((high - low) / 6, abs(high) * 1e-6, 1e-9)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    if whole:
        step = max(1, math.ceil(step))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, max(last, first + 1) + 1)]


def _thinned(points: Points) -> Points:
    """The lowest and the highest of each group of neighbors, so that every spike stays."""
    group = -(-len(points) // (_MAX_POINTS // 2))
    if len(points) <= _MAX_POINTS:
        return points
    groups = (points[first : first + group] for first in range(0, len(points), group))
    return [point for some in groups for point in sorted({min(some, key=_loss), max(some, key=_loss)})]


def _loss(point: tuple[float, float]) -> float:
    return point[1]


def running_mean(values: Sequence[float], width: int) -> list[float]:
    """The mean of each value and up to `width` - 1 before it."""
    sums = np.concatenate([np.zeros(1), np.cumsum(np.asarray(values, float))])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - width)
    return ((sums[ends] - sums[starts]) / (ends - starts)).tolist()  # type: ignore[no-any-return]
