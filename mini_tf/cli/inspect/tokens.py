"""`minitf inspect tokens`: a text as the tokenizer cuts it. Needs no torch."""

from mini_tf.cli.inspect.output import show
from mini_tf.cli.inspect.text_options import INPUT, TEXTS, given_texts
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.tokenizer_source import SOURCE, open_tokenizer


@command
def tokens(console: Console, source: SOURCE, texts: TEXTS = None, input: INPUT = None) -> None:
    """Each token of a text: its id, how it reads, its bytes, and the characters it stands for (from 0, the last not included)."""
    from mini_tf.inspection.tokens import view

    read = given_texts(texts, input)
    show(console, view(open_tokenizer(console, source), read))
