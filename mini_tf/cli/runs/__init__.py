"""`minitf runs`: what is in the run folders. Reads them without torch."""

import typer

from mini_tf.cli.runs import compare, list_runs, show

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, show and compare run folders.")
app.command("list")(list_runs.list_)
app.command("show")(show.show)
app.command("compare")(compare.compare)
