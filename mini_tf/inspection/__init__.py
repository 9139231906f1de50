"""Looking inside a trained model: each file is one view, `minitf inspect NAME` shows it; `capture` is what they look through.

A view is a function that looks and returns a `View`; `cli/inspect/output.py` writes, prints and answers with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from mini_tf.drawing.panel import Curves, Fan, Sheet

Picture = Callable[..., Text]
"""A function of `drawing.terminal` with its arguments, to be called with `colored` and `width`."""


@dataclass(frozen=True, eq=False)
class View:
    """What a view has to show: `result` as plain data for JSON, `pictures` for a terminal, `notes` beside them.

    figure: for a picture file; None where there is none. files: what is written to files of other suffixes ("pharaoh").
    metrics: figures of the envelope.
    """

    result: dict[str, Any]
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    figure: Sheet | Fan | Curves | None = None
    files: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    metrics: Mapping[str, float | None] | None = None
