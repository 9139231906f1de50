"""`minitf pretrain`: train a model from scratch."""

from mini_tf.cli.training import training_command

pretrain = training_command(
    "pretrain",
    """Train a model from scratch.

    Reads the data, trains a tokenizer and the model, evaluates, saves checkpoints, and prints the run folder on stdout.
    The same command continues an interrupted run.
    """,
)
