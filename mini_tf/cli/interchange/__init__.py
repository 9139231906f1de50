"""`minitf import` and `minitf export`."""

from mini_tf.cli.interchange.commands import export as export
from mini_tf.cli.interchange.commands import import_ as import_
