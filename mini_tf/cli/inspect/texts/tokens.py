"""`minitf inspect tokens`: the tokens of a text. Without torch."""

from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.inspect.options.texts import INPUT, TEXTS, given_texts
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.tokenizer_source import SOURCE, open_tokenizer


@command
def tokens(console: Console, source: SOURCE, texts: TEXTS = None, input: INPUT = None) -> None:
    """List the tokens of a text: id, text, bytes and character offsets."""
    from mini_tf.inspection.texts.tokens import view

    read = given_texts(texts, input)
    show(console, view(open_tokenizer(console, source), read))
