"""The one door to matplotlib: imported so that it starts no process, and writes its list of fonts into our cache and nowhere else.

That list lacks the machine's own fonts, of which no figure here uses any; so it may not fall into a folder that other programs read.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from mini_tf.system.library_caches import redirect_library_caches


@contextmanager
def _no_process() -> Iterator[None]:
    """matplotlib asks `fc-list`, or `system_profiler` on a Mac, for more fonts; an OSError tells it that there is no such program."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError("figures start no process")

    ask = subprocess.check_output
    subprocess.check_output = refuse
    try:
        yield
    finally:
        subprocess.check_output = ask


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
