"""Shell completion, after `minitf --install-completion`: recipes, runs, KEY=VALUE. Faults complete nothing.

The keys of all kinds are collected once, since that imports torch, and kept in the cache.
"""

import json
import re
from contextlib import suppress
from pathlib import Path

import typer


def recipe_arguments(ctx: typer.Context, incomplete: str) -> list[str]:
    """Shipped recipes, runs, and KEY= of a recipe; behind the `=` the values of a choice.

    bash makes three words of KEY=VALUE and completes the last one; other shells complete the whole.
    """
    before = [*(ctx.params.get("arguments") or []), *ctx.args]
    if before[1:] and before[-1] == "=":
        return _values(before[-2], incomplete)
    name, equals, start = incomplete.partition("=")
    if equals:
        return [f"{name}={word}" for word in _values(name, start)]
    keys = [key for key in _keys() if key.startswith(incomplete)] if incomplete else []
    if len(keys) == 1 and (values := _values(keys[0], "")):
        return [f"{keys[0]}={word}" for word in values]
    return [*recipes(incomplete), *run_names(incomplete), *(f"{key}=" for key in keys)]


def recipes(incomplete: str) -> list[str]:
    """Names of shipped recipes."""
    from mini_tf.recipe.arguments import presets

    return [name for name in presets() if name.startswith(incomplete)]


def run_names(incomplete: str) -> list[str]:
    """Names of runs in outputs/, and `last`."""
    from mini_tf.run.finding import OUTPUTS, list_runs

    return [name for name in ("last", *(folder.name for folder in list_runs(OUTPUTS))) if name.startswith(incomplete)]


def sections(incomplete: str) -> list[str]:
    """Sections of a recipe, and the sections within them."""
    return sorted({key.rpartition(".")[0] or key for key in _keys() if key.startswith(incomplete)})


def _values(key: str, start: str) -> list[str]:
    return [word for word in _keys().get(key, []) if word.startswith(start)]


def _keys() -> dict[str, list[str]]:
    """Every key with the words that its value may be, where it is a choice."""
    from mini_tf.system.cache import build_or_load
    from mini_tf.system.errors import StorageFault

    with suppress(StorageFault, OSError, ValueError):
        folder = build_or_load("completion", _version(), _collect).folder
        choices: dict[str, list[str]] = json.loads((folder / "keys.json").read_text())
        return choices
    return {}


def _collect(folder: Path) -> dict[str, str]:
    from mini_tf.recipe.keys import keys

    choices = {
        key.name: re.findall(r"\w+", key.type.removeprefix("one of ")) if key.type.startswith("one of ") else []
        for key in keys()
    }
    (folder / "keys.json").write_text(json.dumps(choices))
    return {}


def _version() -> str:
    """Changes with every file of the package, and with every installed package that adds kinds."""
    from mini_tf.recipe.kind_folders import added_kinds
    from mini_tf.system.cache import hash_of

    package = Path(__file__).parents[2]
    files = sorted(
        (str(file), stat.st_mtime_ns, stat.st_size) for file in package.rglob("*.py") if (stat := file.stat())
    )
    return hash_of([files, [(kind.module, kind.folder.version) for kind in added_kinds()]])
