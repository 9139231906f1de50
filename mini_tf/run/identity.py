"""The identity of a run: the recipe keys that determine its result, contents of its data, packages of its kinds."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from mini_tf.recipe import reading
from mini_tf.recipe.arguments import is_override, presets, split_arguments
from mini_tf.recipe.corpora import built_in_corpora, is_mixture
from mini_tf.recipe.kind_folders import KindFault, added_kinds, installed_version
from mini_tf.recipe.kinds import added_kinds_in
from mini_tf.recipe.parsing.yaml_tree import without_secrets
from mini_tf.recipe.reading import Resolved, dump
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.values import one_line, show
from mini_tf.run import finding, manifest
from mini_tf.run.manifest import KindSource, Manifest
from mini_tf.system.cache import hash_of
from mini_tf.system.errors import RecipeFault, RunFault, UsageFault, near

NO_EFFECT_ON_RESULT = {
    *("log", "checkpoint", "generate", "expect", "runtime.device"),
    *("runtime.reduce", "runtime.shard", "runtime.timeout"),
    *("train.micro_batch_size", "train.on_nonfinite", "train.most_skips", "train.stop_above"),
    "eval.baseline",
    *("data.home", "data.errors", "tokenizer.path", "tokenizer.source.path", "model.init_from", "objective.teacher"),
}
"""Sections and keys that do not affect the result: reports, samples and baselines; the order of sums and dropout draws;
how processes share the work; ending a run early; names of files and runs, whose contents are hashed instead
(data.errors affects the contents; data.home is only a hint).
"""
_CORPORA = {"data.train", "data.val"}
"""Only names of built-in corpora are hashed; files are hashed by their contents."""
_ONE_VALUE = {"data.split"}
"""A section that may be written as text is one value in either form."""


def result_values(recipe: Recipe, exclude_defaults: bool = False) -> dict[str, Any]:
    """The JSON value of every dotted key that affects the result, or of those whose value is not the default.

    A list of kinds adds its length: `model.attention: 2`, `model.attention[1].window: 128`.
    """
    return dict(_flatten("", recipe.model_dump(mode="json", exclude_defaults=exclude_defaults)))


def _flatten(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if path in NO_EFFECT_ON_RESULT:
        return
    if path in _CORPORA:
        yield path, _corpus(value)
    elif isinstance(value, dict) and value and path not in _ONE_VALUE:
        for name, item in value.items():
            yield from _flatten(f"{path}.{name}" if path else name, item)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield path, len(value)
        for number, item in enumerate(value):
            yield from _flatten(f"{path}[{number}]", item)
    else:
        yield path, value


def _corpus(value: Any) -> Any:
    if is_mixture(value):
        return [item | {"path": _corpus(item["path"])} for item in value]
    word = value.get("kind") if isinstance(value, dict) else value
    return word if word is None or (isinstance(word, str) and word in built_in_corpora()) else "files"


@dataclass(frozen=True)
class Identity:
    """A recipe and the contents of its files.

    recipe: its name. text: the file as given; resolved: the complete recipe (both YAML). decides: value of every dotted
    key that determines the result, without paths; not_default: the part that differs from the defaults. hashes: of the
    contents of data and tokenizer. kinds: sources of kinds from installed packages; not part of the identity.
    """

    recipe: str
    text: str
    resolved: str
    decides: Mapping[str, Any]
    hashes: Mapping[str, str]
    not_default: Mapping[str, Any]
    seed: int = 0
    kinds: Mapping[str, KindSource] = field(default_factory=dict)

    @classmethod
    def of(cls, resolved: Resolved, hashes: Mapping[str, str]) -> "Identity":
        """The identity of a resolved recipe with the hashes of its data and tokenizer."""
        recipe = resolved.recipe
        decides, not_default = result_values(recipe), result_values(recipe, exclude_defaults=True)
        return cls(
            resolved.name,
            resolved.text,
            dump(recipe),
            decides,
            hashes,
            not_default,
            recipe.train.seed,
            sources_of(recipe),
        )

    @property
    def run_id(self) -> str:
        """Twelve hex digits of the SHA-256 of all values that differ from their defaults, and of the hashes.

        Within one version of minitf, equal ids mean equal results. A key that a later version adds does not change the
        id while it has its default.
        """
        return hash_of([dict(self.not_default), dict(self.hashes)])[:12]

    @property
    def default_name(self) -> str:
        return f"{self.recipe.lstrip('.-') or 'run'}-{self.run_id[:6]}"

    def changes_since(self, run_id: str, decides: Mapping[str, Any]) -> list[str]:
        """`differences` from a run with this id and these complete keys; empty if this identity continues the run.

        A key that the run does not have had its default. With equal ids, so had a key that this version no longer has.
        Equal ids are not sufficient: a default may have changed between versions.
        """
        added = {
            key
            for key in self.decides
            if key not in decides and key not in self.not_default and not _replaces(key, decides)
        }
        gone = {
            key
            for key in decides
            if key not in self.decides and run_id == self.run_id and not _replaces(key, self.decides)
        }
        before, now = (
            {key: value for key, value in keys.items() if key not in added | gone} for keys in (decides, self.decides)
        )
        return differences(before, now)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One "key: old -> new" per changed key; values are compared as JSON, since those of a run were read from JSON."""
    keys = sorted({*before, *now})
    shown = {key: (_show(before.get(key)), _show(now.get(key))) for key in keys}
    return [f"{key[:80]}: {old[:200]} -> {new[:200]}" for key, (old, new) in shown.items() if old != new]


def _replaces(key: str, decides: Mapping[str, Any]) -> bool:
    """Whether the section of a key is a value, such as null, in `decides`."""
    return any(key[:dot] in decides for dot in range(len(key)) if key[dot] == ".")


def _show(value: Any) -> str:
    return "absent" if value is None else json.dumps(value, sort_keys=True, default=str)


_MAX_REPORTED = 10


def sources_of(recipe: Recipe) -> dict[str, KindSource]:
    """The source of each kind of a recipe that is not built in, for run.json."""
    added = sorted(added_kinds_in(recipe))
    return {
        f"{kind.package}.{kind.word}": KindSource(package=kind.folder.distribution, version=kind.folder.version)
        for kind in added
    }


def kind_versions(record: Manifest) -> dict[str, str]:
    """Installed versions of the packages that define the kinds of a run, and hashes of their files."""
    installed = {
        f"package {source.package}": installed_version(source.package) or "none" for source in record.kinds.values()
    }
    kinds = {name: kind for kind in added_kinds() if (name := f"{kind.package}.{kind.word}") in record.kinds}
    return installed | {f"files of {name}": hash_of(kind.files)[:12] for name, kind in kinds.items()}


def check_installed(folder: Path) -> None:
    """RunFault if a package that defines a kind of the run is not installed, or no longer has the kind."""
    if missing := list(islice(_missing_kinds(manifest.read(folder)), _MAX_REPORTED)):
        hint = "install that version of the package to use the run"
        raise RunFault(missing[0], hint=hint, where=[str(folder)], faults=missing)


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
    known = run_of(recipe)
    try:
        return reading.read(known, overrides)
    except KindFault:
        for folder in (known, run_folder):
            if folder is not None and os.path.isfile(os.path.join(folder, manifest.NAME)):
                check_installed(Path(folder))
        raise


def resolve_command(
    arguments: Sequence[str],
    options: Mapping[str, str | None],
    out_dir: Path | None,
    name: str | None,
    fresh: bool,
    check_arguments: Callable[[str | None, list[str]], None] | None = None,
) -> tuple[Resolved, Path | None]:
    """The recipe of a training command, and its folder: `out_dir`, or that of a run which is the only argument.

    arguments: [RECIPE] [DATA ...] [KEY=VALUE ...]. options: values of options, by the keys that they stand for.
    check_arguments: called with the recipe and the overrides, may raise UsageFault.
    """
    if out_dir is None and name is None and not fresh:
        out_dir = _run_itself(arguments)
    recipe, overrides = split_arguments(arguments)
    if check_arguments is not None:
        check_arguments(recipe, overrides)
    for key, value in options.items():
        if value is not None and not value.strip():  # as of a variable that is not set; as an override: the default
            raise UsageFault(f"--{key.rpartition('.')[2]}: its value is empty", hint=f"leave it out, or give {key}")
    overrides += [f"{key}={value}" for key, value in options.items() if value is not None]
    return resolve(recipe, overrides, out_dir if name is None else (out_dir or finding.OUTPUTS) / name), out_dir


def _run_itself(arguments: Sequence[str]) -> Path | None:
    """The folder of a run that is the only argument, which is then continued; None for every other recipe."""
    if len(arguments) != 1 or not arguments[0] or is_override(arguments[0]) or arguments[0] in presets():
        return None
    folder = Path(run_of(arguments[0]) or "")
    if not finding.is_run(folder):
        return None
    return folder.resolve() if folder.is_symlink() else folder


def run_of(recipe: str | None) -> str | Path | None:
    """The folder of a run given by name, or the recipe itself; presets and files have precedence."""
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
        raise RunFault(f"{folder} is damaged: {error.message}", hint=error.hint, where=error.where) from error
