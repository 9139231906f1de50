"""The installed packages that define kinds of a run: recorded at its first start, required whenever it is opened."""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from mini_tf.recipe import reading
from mini_tf.recipe.kind_folders import KindFault, added_kinds, installed_version
from mini_tf.recipe.kinds import added_kinds_in, files_with
from mini_tf.recipe.parsing.secrets import without_secrets
from mini_tf.recipe.presets import presets
from mini_tf.recipe.reading import Resolved
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.values import near, one_line, show
from mini_tf.run import finding, manifest
from mini_tf.run.manifest import KindSource, Manifest
from mini_tf.system.cache import hash_of
from mini_tf.system.errors import RecipeFault, RunFault, UsageFault

_MAX_REPORTED = 10


def sources_of(recipe: Recipe) -> dict[str, KindSource]:
    """The source of each kind of a recipe that is not built in, for run.json."""
    added = sorted(added_kinds_in(recipe))
    return {f"{kind.package}.{kind.word}": KindSource(package=kind.folder.distribution, version=kind.folder.version) for kind in added}


def versions(record: Manifest) -> dict[str, str]:
    """Installed versions of the packages that define the kinds of a run, and hashes of their files."""
    installed = {f"package {source.package}": installed_version(source.package) or "none" for source in record.kinds.values()}
    kinds = {name: kind for kind in added_kinds() if (name := f"{kind.package}.{kind.word}") in record.kinds}
    return installed | {f"files of {name}": hash_of(files_with(kind))[:12] for name, kind in kinds.items()}


def check_installed(folder: Path) -> None:
    """RunFault if a package that defines a kind of the run is not installed, or no longer has the kind."""
    if missing := list(islice(_missing_kinds(manifest.read(folder)), _MAX_REPORTED)):
        raise RunFault(missing[0], hint="install that version of the package to use the run", where=[str(folder)], faults=missing)


def _missing_kinds(record: Manifest) -> Iterator[str]:
    available = {(f"{kind.package}.{kind.word}", kind.folder.distribution) for kind in added_kinds()}
    for name, source in record.kinds.items():
        if (name, source.package) in available:
            continue
        package, _, word = name.rpartition(".")
        version = installed_version(source.package)
        state = "which is not installed" if version is None else f"whose installed version {version} has no such kind"
        origin = f"of {one_line(package)} comes from the package {one_line(f'{source.package} {source.version}')}"
        yield f"the kind {show(word)} {origin}, {state}"


def resolve(recipe: str | None, overrides: Sequence[str] = (), run_folder: Path | None = None) -> Resolved:
    """`reading.read`, which also accepts the name of a run or `last`.

    run_folder: that of a run that may be continued. Raises what `reading.read` raises, and RunFault if the named run,
    or the one in `run_folder`, needs a package that is not installed.
    """
    given = _run_of(recipe)
    try:
        return reading.read(given, overrides)
    except KindFault:
        for folder in (given, run_folder):
            if folder is not None and os.path.isfile(os.path.join(folder, manifest.NAME)):
                check_installed(Path(folder))
        raise


def _run_of(recipe: str | None) -> str | Path | None:
    """The folder of a run given by name; presets and files have precedence."""
    if recipe is None or recipe in presets() or os.path.isfile(recipe):
        return recipe
    if recipe == "last" or os.path.isfile(finding.OUTPUTS / recipe / manifest.NAME):
        return finding.find(recipe)
    names = [folder.name for folder in finding.list_runs(finding.OUTPUTS)]
    if not os.path.lexists(recipe) and (meant := near(recipe, [*presets(), *names])) in names:
        message = f"no such recipe {show(without_secrets(recipe))}: not a preset, file, run or KEY=VALUE"
        raise UsageFault(message, hint=f"did you mean {meant}?")
    return recipe


def read_recipe(folder: Path) -> Recipe:
    """The recipe of a run folder; RunFault if it is damaged or has a kind that is not installed."""
    check_installed(folder)
    try:
        return reading.read(folder).recipe
    except KindFault as error:
        hint = error.hint or "the kind may come from a package that is not installed, or from another version of minitf"
        raise RunFault(f"{folder} cannot be opened: {error.message}", hint=hint, where=error.where) from error
    except RecipeFault as error:
        raise RunFault(f"{folder} is damaged: {error.message}", where=error.where) from error
