"""The run folder as seen by a process that does not write it: one of several that train together, except the first."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from mini_tf.parallel.group import ProcessGroup
from mini_tf.run import loading
from mini_tf.run.disk import Disk
from mini_tf.run.folder import Run
from mini_tf.run.loading import LoadedCheckpoint
from mini_tf.run.manifest import Manifest, RunState
from mini_tf.run.tensors import CheckpointTensors, ExpectedTensors
from mini_tf.system.errors import RunFault


def follow(group: ProcessGroup, open_run: Callable[[], Run]) -> Run:
    """The run that rank 0 opens, on every process: the others have a `Follower`.

    Raises RunFault where another process does not see its folder.
    """
    run = open_run() if group.is_rank_0 else None
    facts: list[Any] = group.on_rank_0(
        lambda: [str(run.folder), run.manifest.model_dump(mode="json"), run.status] if run is not None else []
    )
    if run is not None:
        return run
    folder = Path(facts[0])
    if not folder.is_dir():
        where = f"{group.process} cannot see {folder}, which rank 0 has opened"
        raise RunFault(where, hint="all machines need the same file system", where=[str(folder)])
    return Follower(folder, Manifest.model_validate(facts[1]), facts[2])


def resume(
    run: Run, group: ProcessGroup, warn: Callable[[str], None], expected: ExpectedTensors
) -> LoadedCheckpoint | None:
    """`Run.resume` on every process; RunFault where one does not have the checkpoint that rank 0 continues from."""
    with group.independently():
        saved = run.resume(warn, expected)
    step = group.on_rank_0(lambda: None if saved is None else saved.step)
    if saved is None and step is not None:
        saved = loading.load(run.checkpoints.find_verified(step), expected)
    return saved


class Follower(Run):
    """A run that only rank 0 writes: everything else is kept in memory."""

    def __init__(self, folder: Path, record: Manifest, status: Literal["new", "continued", "finished"]) -> None:
        super().__init__(folder, record, -1, status, Disk())

    def start(self, existed: bool = True) -> None:
        self.is_started = True

    def resume(self, *args: Any, **kwargs: Any) -> None:
        """None: see the function `resume`."""

    def record(self, report: Mapping[str, Any], seconds: float | None = None) -> None: ...
    def save(
        self, step: int, contents: CheckpointTensors, counters: Mapping[str, Any], score: float | None = None
    ) -> None: ...
    def rotate(self, keep_last: int, keep_best: int) -> None: ...
    def publish(
        self, which: int | Literal["last", "best"] = "best", warn: Callable[[str], None] = lambda line: None
    ) -> None: ...
    def write(self, name: str, text: str) -> None: ...
    def write_sample(self, step: int, text: str) -> None: ...
    def log(self, line: str) -> None: ...

    def crash(self, text: str) -> Path:
        raise RunFault(f"only rank 0 writes into {self.folder}")  # the traceback is then kept in the cache

    def plot_losses(self) -> None: ...
    def close(self) -> None: ...

    def finish(
        self, state: RunState, exit_code: int = 0, error: str | None = None, metrics: Mapping[str, float] | None = None
    ) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def update(self, **fields: Any) -> None:
        self.manifest = self.manifest.model_copy(update=fields)
