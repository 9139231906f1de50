"""Views into a trained model, one per file; `minitf inspect NAME` shows them.

A view is a function that returns a `View`, which `cli/inspect/output.py` prints or writes. Views of attention and
hidden states use `capture`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from mini_tf.drawing.panel import Curves, PanelGrid, QueryWeights

Picture = Callable[..., Text]
"""A function of `drawing.terminal` with its arguments bound, except `colored` and `width`."""


@dataclass(frozen=True, eq=False)
class View:
    """Output of a view: `result` for JSON, `pictures` for the terminal, `notes` for stderr.

    figure: for a picture file; None if there is none. files: contents by suffix of other files ("pharaoh"). metrics:
    metrics of the JSON output.
    """

    result: dict[str, Any]
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    figure: PanelGrid | QueryWeights | Curves | None = None
    files: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    metrics: Mapping[str, float | None] | None = None
