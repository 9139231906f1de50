"""Training in Python: `pretrain` and `finetune`, which are the commands of these names."""

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from mini_tf.api.arguments_as_text import overrides_of
from mini_tf.api.loaded_run import LoadedRun, load
from mini_tf.jobs.assembling import Options
from mini_tf.jobs.run_sets import train
from mini_tf.run.identity import resolve_command
from mini_tf.run.location import RunLocation
from mini_tf.run.task_arguments import check_task_arguments, command_warning
from mini_tf.system.reporting import LineReporter


class _Progress(LineReporter):
    """Lines of progress, and a bar at a terminal."""

    @property
    def live(self) -> bool:
        return not self.quiet and sys.stderr.isatty()


def pretrain(
    *arguments: str | Path,
    name: str | None = None,
    out_dir: str | Path | None = None,
    fresh: bool = False,
    extend: int | None = None,
    device: str | None = None,
    progress: bool = True,
    **overrides: Any,
) -> LoadedRun:
    """Train a model from scratch, or continue the run that the same call began.

    arguments: a shipped recipe, a recipe file or a run, and data files: pretrain("bert-nano", "my.txt"); without any
    the recipe quickstart. overrides: settings of the recipe by section, train={"steps": 100}, or by their dotted names,
    **{"train.steps": 100}. name, out_dir, fresh, extend: of the run folder, as the options of the command. progress:
    print its lines on stderr.

    Interrupted, as by the stop button of a notebook, it saves and raises KeyboardInterrupt.
    """
    folder = RunLocation(Path(out_dir) if out_dir else None, name, fresh)
    return _train("pretrain", arguments, overrides, folder, extend, device, progress)


def finetune(
    *arguments: str | Path,
    name: str | None = None,
    out_dir: str | Path | None = None,
    fresh: bool = False,
    extend: int | None = None,
    device: str | None = None,
    progress: bool = True,
    **overrides: Any,
) -> LoadedRun:
    """Train a model on a task: finetune("sst2-nano", "reviews.csv", model={"init_from": run.folder}).

    Otherwise as `pretrain`; a recipe must be given.
    """
    folder = RunLocation(Path(out_dir) if out_dir else None, name, fresh)
    return _train("finetune", arguments, overrides, folder, extend, device, progress)


def _train(
    command: str,
    arguments: tuple[str | Path, ...],
    overrides: dict[str, Any],
    location: RunLocation,
    extend: int | None,
    device: str | None,
    progress: bool,
) -> LoadedRun:
    reporter, line = _Progress(quiet=not progress), [*map(str, arguments), *overrides_of(overrides)]
    check = check_task_arguments if command == "finetune" else None
    resolved, folder = resolve_command(
        line, {"runtime.device": device}, location.directory, location.name, location.fresh, check
    )
    if warning := command_warning(command, resolved):
        reporter.warn(warning)
    location = replace(location, directory=folder)
    location.check()
    result = train(resolved, Options(location, extend, (f"mini_tf.{command}", *line)), reporter)
    if result.exit_code == 128 + signal.SIGINT:
        raise KeyboardInterrupt(f"{result.folder} is saved; the same call continues it")
    if result.exit_code:
        raise SystemExit(result.exit_code)
    return load(result.folder, device=device or "auto")
