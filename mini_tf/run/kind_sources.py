"""The installed packages that the kinds of a run come from: noted at its first start, and needed whenever it is opened."""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from mini_tf.recipe import reading
from mini_tf.recipe.entry_points import KindFault, added_kinds, installed_version
from mini_tf.recipe.kinds import added_kinds_in
from mini_tf.recipe.parsing.secrets import without_secrets
from mini_tf.recipe.presets import presets
from mini_tf.recipe.reading import Resolved
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.values import near, one_line, show
from mini_tf.run import finding, manifest
from mini_tf.run.manifest import KindSource, Manifest
from mini_tf.system.errors import RecipeFault, RunFault, UsageFault

_MOST_TOLD = 10


def sources_of(recipe: Recipe) -> dict[str, KindSource]:
    """Where each kind of a recipe comes from that is not minitf's own, as run.json says it."""
    added = sorted(added_kinds_in(recipe))
    return {f"{kind.package}.{kind.word}": KindSource(package=kind.distribution, version=kind.version) for kind in added}


def versions(record: Manifest) -> dict[str, str]:
    """The packages that a run's kinds come from, with the versions that are installed now."""
    return {_key(source): installed_version(source.package) or "none" for source in record.kinds.values()}


def versions_before(record: Manifest) -> dict[str, str]:
    """`versions` at the first start of the run."""
    return {_key(source): source.version for source in record.kinds.values()}


def _key(source: KindSource) -> str:
    return f"package {source.package}"


def require(folder: Path) -> None:
    """RunFault where a package is not installed, or has lost the kind, that the run in `folder` was made with."""
    if gone := list(islice(_gone(manifest.read(folder)), _MOST_TOLD)):
        raise RunFault(gone[0], hint="the run can be used once it is installed", where=[str(folder)], faults=gone)


def _gone(record: Manifest) -> Iterator[str]:
    here = {(f"{kind.package}.{kind.word}", kind.distribution) for kind in added_kinds()}
    for name, source in record.kinds.items():
        if (name, source.package) in here:
            continue
        package, _, word = name.rpartition(".")
        now = installed_version(source.package)
        what = "which is not installed" if now is None else f"which is {now} here and has no such kind"
        of = f"of {one_line(package)} comes from the package {one_line(f'{source.package} {source.version}')}"
        yield f"the kind {show(word)} {of}, {what}"


def resolve(recipe: str | None, overrides: Sequence[str] = (), place: Path | None = None) -> Resolved:
    """`reading.read`, of a run by its name or as `last` too; what a run's kinds lack is said by the run.

    place: the folder of a run that may be continued. Raises what `reading.read` raises, and RunFault where the run, or the one at
    `location`, was made with a package that is not here.
    """
    given = _run_of(recipe)
    try:
        return reading.read(given, overrides)
    except KindFault:
        for folder in (given, place):
            if folder is not None and os.path.isfile(os.path.join(folder, manifest.NAME)):
                require(Path(folder))
        raise


def _run_of(recipe: str | None) -> str | Path | None:
    """The folder of a run that is named; presets and files go before."""
    if recipe is None or recipe in presets() or os.path.isfile(recipe):
        return recipe
    if recipe == "last" or os.path.isfile(finding.OUTPUTS / recipe / manifest.NAME):
        return finding.find(recipe)
    names = [folder.name for folder in finding.list_runs(finding.OUTPUTS)]
    if not os.path.lexists(recipe) and (meant := near(recipe, [*presets(), *names])) in names:
        told = f"no such recipe {show(without_secrets(recipe))}: neither a preset, a file, a run nor KEY=VALUE"
        raise UsageFault(told, hint=f"did you mean {meant}?")
    return recipe


def read_recipe(folder: Path) -> Recipe:
    """The recipe that the run in `folder` was made with.

    RunFault where it is damaged, or names a kind that is not here: it is a file of the run, not what somebody wrote.
    """
    require(folder)
    try:
        return reading.read(folder).recipe
    except KindFault as error:
        hint = error.hint or "it may be a kind of a package that is not installed, or of another version of minitf"
        raise RunFault(f"{folder} cannot be opened: {error.message}", hint=hint, where=error.where) from error
    except RecipeFault as error:
        raise RunFault(f"{folder} is damaged: {error.message}", where=error.where) from error
