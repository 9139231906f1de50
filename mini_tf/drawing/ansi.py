"""From a rich renderable to the characters a terminal gets: the one gate through which every picture passes.

Whatever a renderable holds, its text is made safe here, and the only control codes that come out are colours. Markup is never read.
Every terminal is taken to know 256 colours: one that does not has become rare, and with 16 no ramp can be read.
"""

import io

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment

from mini_tf.system.safe_text import safe_text


def rendered(renderable: RenderableType, *, colored: bool, width: int) -> str:
    """Lines of text, each ended; without colours no line ends in blanks."""
    console = Console(
        file=io.StringIO(),
        width=width,
        height=100,
        color_system="256",
        force_terminal=colored,
        no_color=not colored,
        force_jupyter=False,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    # A link would be an address that nobody sees.
    segments = Segment.strip_links(Segment.filter_control(console.render(renderable)))
    parts = [
        style.render(safe_text(text), color_system=ColorSystem.EIGHT_BIT) if colored and style else safe_text(text)
        for text, style, _ in segments
    ]
    lines = "".join(parts).removesuffix("\n").split("\n")
    return "".join((line if colored else line.rstrip()) + "\n" for line in lines)
