"""`minitf runs`: list, show, compare. Reads run folders without torch."""

from mini_tf.cli.runs import compare, list_runs, show
from mini_tf.cli.terminal.help import add, group

app = group("List, show and compare runs.")
add(app, "runs list", list_runs.list_)
add(app, "runs show", show.show)
add(app, "runs compare", compare.compare)
