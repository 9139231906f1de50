"""minitf in Python: `import mini_tf`, which takes its names from here when they are first used."""

from mini_tf.api.loaded_run import LoadedRun, load
from mini_tf.api.maps import AttentionMaps
from mini_tf.api.training_calls import finetune, pretrain
from mini_tf.system.errors import MinitfError, ResultWarning

__all__ = ["AttentionMaps", "LoadedRun", "MinitfError", "ResultWarning", "finetune", "load", "pretrain"]
