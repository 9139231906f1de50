"""`minitf pretrain`: from a recipe to a trained model in a run folder."""

from mini_tf.cli.training import training_command

pretrain = training_command(
    "pretrain", "Train a model from scratch, evaluate it, and leave a run folder. The same command continues an interrupted run."
)
