"""Text of terminal pictures: truncated titles, wrapped sentences, alignment."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from mini_tf.drawing.labels import caption


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
    """The word padded on the left."""
    return " " * (width - cell_len(word)) + word


def pad_right(word: str, width: int) -> str:
    """The word padded on the right."""
    return word + " " * (width - cell_len(word))


def center(word: str, width: int) -> str:
    """The word padded on both sides."""
    return pad_right(" " * ((width - cell_len(word)) // 2) + word, width)
