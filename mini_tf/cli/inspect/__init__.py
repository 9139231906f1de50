"""`minitf inspect`: the views into a trained model, one file each."""

import typer

from mini_tf.cli.inspect import align, attention, crash, model, positions, simple, softmax, tokens, word

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look inside a trained model.")
app.command("attention")(attention.attention)
app.command("align")(align.align)
app.command("word")(word.word)
app.command("model")(model.model)
app.command("tokens")(tokens.tokens)
app.command("positions")(positions.positions)
app.command("softmax")(softmax.softmax)
app.command("simple")(simple.simple)
app.command("crash")(crash.crash)
