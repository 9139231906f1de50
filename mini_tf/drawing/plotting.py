"""Import of matplotlib without subprocesses, and with its font list in our cache directory.

The list lacks system fonts, which figures do not use, so it must not be written where other programs read it.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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
with _no_process():
    import matplotlib as matplotlib  # `as`: for other files to import from here
    from matplotlib.axes import Axes as Axes
    from matplotlib.cm import ScalarMappable as ScalarMappable
    from matplotlib.collections import LineCollection as LineCollection
    from matplotlib.colors import Colormap as Colormap
    from matplotlib.colors import Normalize as Normalize
    from matplotlib.figure import Figure as Figure
    from matplotlib.font_manager import FontProperties as FontProperties
    from matplotlib.font_manager import findfont as findfont
    from matplotlib.ft2font import FT2Font as FT2Font
    from matplotlib.textpath import TextToPath as TextToPath
