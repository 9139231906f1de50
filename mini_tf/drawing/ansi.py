"""Rendering of rich renderables for the terminal; all pictures pass through it.

Text is made safe, and color is the only control code in the output. Markup is not interpreted. Terminals are assumed to
have 256 colors; with 16 a colormap would be unreadable.
"""

import io

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment

from mini_tf.system.safe_text import safe_text


def render_ansi(renderable: RenderableType, *, colored: bool, width: int) -> str:
    """Lines of text, each with a newline; without colors trailing spaces are removed."""
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
    # A hyperlink would hide its address.
    segments = Segment.strip_links(Segment.filter_control(console.render(renderable)))
    parts = [
        style.render(safe_text(text), color_system=ColorSystem.EIGHT_BIT) if colored and style else safe_text(text)
        for text, style, _ in segments
    ]
    lines = "".join(parts).removesuffix("\n").split("\n")
    return "".join((line if colored else line.rstrip()) + "\n" for line in lines)
