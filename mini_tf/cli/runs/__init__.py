"""`minitf runs`: list, show, compare, report, rm. Only the attention heads of a report need torch."""

from mini_tf.cli.runs import compare, list_runs, remove, report, show
from mini_tf.cli.terminal.help import add, group

app = group("List, show, compare, report and remove runs.")
add(app, "runs list", list_runs.list_)
add(app, "runs show", show.show)
add(app, "runs compare", compare.compare)
add(app, "runs report", report.report)
add(app, "runs rm", remove.remove)
