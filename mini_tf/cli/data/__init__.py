"""`minitf data`: show, stats, check."""

from mini_tf.cli.data import check, show, stats
from mini_tf.cli.terminal.help import add, group

app = group("Show and check data as the model sees it.")
add(app, "data show", show.show)
add(app, "data stats", stats.stats)
add(app, "data check", check.check)
