"""Text for the terminal: titles, wrapped sentences, alignment, and the rendering that all pictures pass through.

Rendered text is safe, and color is the only control code in it. Markup is not interpreted. Terminals are assumed to
have 256 colors; with 16 a colormap would be unreadable.
"""

import io
from collections.abc import Iterator

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.text import Text

from mini_tf.drawing.labels import caption
from mini_tf.system.safe_text import safe_text


def new_text(title: str, width: int | None) -> Text:
    """A text that rich does not wrap, with its title."""
    text = Text(no_wrap=True, overflow="ignore")
    return text.append(caption(title, width) + "\n") if title else text


def finish(text: Text) -> Text:
    """The text without its last newline, which the console adds."""
    text.right_crop(1)
    return text


def add_sentence(text: Text, sentence: str, width: int) -> None:
    """Append a wrapped sentence; non-breaking spaces (\\xa0) keep words together."""
    for line in wrap_sentence(sentence, width):
        text.append(line + "\n")


def wrap_sentence(sentence: str, width: int) -> Iterator[str]:
    """Lines of at most `width` cells; longer words are truncated."""
    line = ""
    for word in (caption(word.replace("\xa0", " "), width) for word in sentence.split(" ")):
        if line and cell_len(line) + 1 + cell_len(word) > width:
            yield line.rstrip()
            line = word
        else:
            line = f"{line} {word}" if line else word
    if line:
        yield line


def pad_left(word: str, width: int) -> str:
    return " " * (width - cell_len(word)) + word


def pad_right(word: str, width: int) -> str:
    return word + " " * (width - cell_len(word))


def center(word: str, width: int) -> str:
    return pad_right(" " * ((width - cell_len(word)) // 2) + word, width)


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
