"""`minitf inspect tokens`: the tokens of a text. Without torch, except for [MASK]."""

from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.inspect.options.texts import INPUT, TEXTS, given_texts
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.tokenizer_source import SOURCE, open_prompt_tokenizer, open_tokenizer


@command
def tokens(console: Console, source: SOURCE, texts: TEXTS = None, input: INPUT = None) -> None:
    """List the tokens of a text: id, text, bytes and character offsets; of [MASK] as the run reads it."""
    from mini_tf.data.prompts import MASK
    from mini_tf.inspection.tokens import view

    read = given_texts(texts, input)
    opened = open_prompt_tokenizer if any(MASK in text for text in read) else open_tokenizer
    show(console, view(opened(console, source), read))
