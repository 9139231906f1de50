"""`minitf cost`: what a run takes on this machine."""

from mini_tf.cli.cost.command import cost as cost
