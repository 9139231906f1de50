"""`minitf cost` and `minitf plan`: what a run takes on this machine, and what it would take on a cluster."""

from mini_tf.cli.cost.command import cost as cost
from mini_tf.cli.cost.planning import plan as plan
