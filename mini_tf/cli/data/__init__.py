"""`minitf data`: the rows that a model is trained on, statistics of the data, and validation of data files."""

import typer

from mini_tf.cli.data import check, show, stats

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Print rows as the model reads them, print statistics, and validate data files."
)
app.command("show")(show.show)
app.command("stats")(stats.stats)
app.command("check")(check.check)
