"""minitf: train, fine-tune, prompt and look inside small transformer language models.

    import mini_tf

    run = mini_tf.load("last")
    print(run.generate("Once upon a time"))

The names below are imported when they are first used, so that `import mini_tf` takes no time.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mini_tf.api import AttentionMaps, LoadedRun, MinitfError, ResultWarning, finetune, load, pretrain

__version__ = "0.1.0"
__all__ = ["AttentionMaps", "LoadedRun", "MinitfError", "ResultWarning", "finetune", "load", "pretrain"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mini_tf' has no attribute {name!r}")
    from mini_tf import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
