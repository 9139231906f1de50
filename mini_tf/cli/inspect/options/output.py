"""Output of a view: files or terminal pictures, notes, JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mini_tf.cli.terminal.console import Console
from mini_tf.cli.terminal.files import write_all

if TYPE_CHECKING:
    from mini_tf.inspection import View


def show(console: Console, view: "View", files: Sequence[Path] = (), run: Path | None = None) -> None:
    """Write the files, or print the pictures if there are none."""
    write_all(console, files, view.result, lambda suffix: _file_of(view, suffix))
    for picture in () if files else view.pictures:
        console.show(picture)
    for note in view.notes:
        console.say(note)
    console.output(run=run, metrics=view.metrics, result=view.result)


def _file_of(view: "View", suffix: str) -> bytes:
    """The content of a file with this suffix, except .json."""
    if suffix in view.files:
        return view.files[suffix]()
    from mini_tf.drawing.files import draw  # matplotlib is slow to import

    assert view.figure is not None, "a view without a figure takes no such file"
    return draw(view.figure, suffix)
