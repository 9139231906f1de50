"""`minitf data`: exactly what the model sees of a text, of pairs or of labelled examples, and what there is in it."""

import typer

from mini_tf.cli.data import check, show, stats

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look at the text as the model sees it.")
app.command("show")(show.show)
app.command("stats")(stats.stats)
app.command("check")(check.check)
