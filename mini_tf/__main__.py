"""`python -m mini_tf` is `minitf`."""

from mini_tf.cli.app import main

main()
