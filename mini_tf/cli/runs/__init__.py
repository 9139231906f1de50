"""`minitf runs`: list, show, compare, rm. Reads run folders without torch."""

from mini_tf.cli.runs import compare, list_runs, remove, show
from mini_tf.cli.terminal.help import add, group

app = group("List, show, compare and remove runs.")
add(app, "runs list", list_runs.list_)
add(app, "runs show", show.show)
add(app, "runs compare", compare.compare)
add(app, "runs rm", remove.remove)
