"""Import of matplotlib without subprocesses, and with its font list in our cache directory.

The list has the fonts of the usual folders, but not those that only fontconfig knows, so it must not be written where
other programs read it.
"""

import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from mini_tf.system.cache import redirect_library_caches


@contextmanager
def _no_process() -> Iterator[None]:
    """matplotlib runs `fc-list`, or on a Mac `system_profiler`, to find fonts; an OSError makes it continue without."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError("figures start no process")

    check_output = subprocess.check_output
    subprocess.check_output = refuse
    try:
        yield
    finally:
        subprocess.check_output = check_output


redirect_library_caches()
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it prints which weight of a font it takes
with _no_process():
    import matplotlib as matplotlib  # `as`: for other files to import from here
    from matplotlib.axes import Axes as Axes
    from matplotlib.cm import ScalarMappable as ScalarMappable
    from matplotlib.collections import LineCollection as LineCollection
    from matplotlib.colors import LinearSegmentedColormap as LinearSegmentedColormap
    from matplotlib.colors import Normalize as Normalize
    from matplotlib.figure import Figure as Figure
    from matplotlib.font_manager import FontEntry as FontEntry
    from matplotlib.font_manager import FontProperties as FontProperties
    from matplotlib.font_manager import findfont as findfont
    from matplotlib.font_manager import findSystemFonts, fontManager
    from matplotlib.ft2font import FT2Font as FT2Font
    from matplotlib.lines import Line2D as Line2D
    from matplotlib.text import Text as Text
    from matplotlib.textpath import TextToPath as TextToPath


def system_fonts() -> list[FontEntry]:
    """Fonts of the usual folders, with those that were installed after matplotlib made its list."""
    with _no_process():
        files = {*findSystemFonts()}
    for file in sorted(files - {font.fname for font in fontManager.ttflist}):
        with suppress(OSError, RuntimeError, NotImplementedError):  # damaged, or of bitmaps
            fontManager.addfont(file)
    return [font for font in fontManager.ttflist if font.fname in files]
