"""Lines of a terminal picture: captions that are cut, sentences that are broken between words, words set in the middle."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from mini_tf.drawing.labels import caption


def page(title: str, width: int | None) -> Text:
    """A text that is never wrapped, with its title."""
    text = Text(no_wrap=True, overflow="ignore")
    return text.append(caption(title, width) + "\n") if title else text


def closed(text: Text) -> Text:
    """The finished page: the console ends its last line."""
    text.right_crop(1)
    return text


def add_sentence(text: Text, sentence: str, width: int) -> None:
    """A sentence in as many lines as it needs; blanks that do not break (\\xa0) keep words together."""
    for line in broken(sentence, width):
        text.append(line + "\n")


def broken(sentence: str, width: int) -> Iterator[str]:
    """A sentence in lines of at most `width` cells; a word longer than that is cut."""
    line = ""
    for word in (caption(word.replace("\xa0", " "), width) for word in sentence.split(" ")):
        if line and cell_len(line) + 1 + cell_len(word) > width:
            yield line.rstrip()
            line = word
        else:
            line = f"{line} {word}" if line else word
    if line:
        yield line


def to_right(word: str, width: int) -> str:
    """A word set to the right of its cells."""
    return " " * (width - cell_len(word)) + word


def to_left(word: str, width: int) -> str:
    """A word set to the left of its cells."""
    return word + " " * (width - cell_len(word))


def centred(word: str, width: int) -> str:
    """A word in the middle of its cells."""
    return to_left(" " * ((width - cell_len(word)) // 2) + word, width)
