"""Memory of a stream: tokens of earlier rows that each layer keeps, by settings and as recorded in a run."""

from pathlib import Path
from typing import NamedTuple

from mini_tf.recipe.recipe import Recipe
from mini_tf.run import finding
from mini_tf.run.metric_files import curve
from mini_tf.system.errors import RunFault


class StreamMemory(NamedTuple):
    """Tokens of earlier rows per row and layer.

    bound: the most that any layer can keep. ideal, real: mean over the layers of the tokens that the next token sees,
    and of those kept for the longest row of a batch, at the last report of a run; None if it records none.
    """

    bound: int
    ideal: float | None = None
    real: float | None = None

    @property
    def metrics(self) -> dict[str, float]:
        return {f"stream.{name}": value for name, value in self._asdict().items() if value is not None}


def stream_memory(recipe: Recipe, source: str | None) -> StreamMemory | None:
    """None without `train.stream`, or if no layer keeps tokens. source: what names the recipe, possibly a run."""
    bounds = [bound for mixer in recipe.model.mixers() if (bound := mixer.memory_bound) is not None]
    if not recipe.train.stream or not bounds:
        return None
    run = None if source is None else _run(source)
    curves = [[] if run is None else curve(run / "metrics.jsonl", f"memory.{name}") for name in ("ideal", "real")]
    return StreamMemory(max(bounds), *(points[-1][1] if points else None for points in curves))


def _run(source: str) -> Path | None:
    try:
        return finding.find(source)
    except RunFault:  # a shipped recipe or a file
        return None
