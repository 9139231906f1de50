"""Kinds in a folder that is not installed, for tests of them, and kinds in other processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from importlib import invalidate_caches
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mini_tf.recipe import kind_folders
from mini_tf.recipe.corpora import CorpusSettings
from mini_tf.recipe.kind_settings import TokenizerSettings
from mini_tf.recipe.kinds import Kind, listing, settings_of

N_ROWS = 200
"""Rows of a corpus that are compared."""
VOCAB_SIZE = 300


@contextmanager
def kinds_in(folder: Path, version: str = "0") -> Iterator[None]:
    """Within this context a folder of packages of kinds (`folder/attention/mean.py`) is installed, as a package of its
    name.
    """
    with TemporaryDirectory() as place:
        metadata = Path(place, f"{folder.name}-{version}.dist-info")
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {folder.name}\nVersion: {version}\n")
        (metadata / "entry_points.txt").write_text(f"[{kind_folders.GROUP}]\nkinds = {folder.name}\n")
        with installed_in(Path(place), folder.absolute().parent):
            yield


@contextmanager
def installed_in(*folders: Path) -> Iterator[None]:
    """Within this context the packages that lie in these folders are installed."""
    before, loaded = [*sys.path], {*sys.modules}
    sys.path += map(str, folders)
    _look_again()
    try:
        yield
    finally:
        packages = {folder.module.partition(".")[0] for folder in kind_folders.added_folders()}
        for name in {*sys.modules} - loaded:
            if name.partition(".")[0] in packages:
                del sys.modules[name]
        sys.path[:] = before
        _look_again()


def _look_again() -> None:
    invalidate_caches()
    kind_folders.clear_caches()


def depend_on_hash_seed(kinds: Iterable[Kind], text: str = "") -> list[str]:
    """The kinds, of tokenizers trained on `text` or of corpora, that give something else with another hash seed
    (PYTHONHASHSEED), with which a set of texts has another order.

    A kind that is not the `Settings` of a file of its package of kinds cannot be made in another process and is left
    out.
    """
    records = []
    for settings in kinds:
        module, of_package = type(settings).__module__, f".{settings.PACKAGE}.{settings.kind}"
        if module.endswith(of_package) and type(settings).__name__ == "Settings":
            folder = Path(str(sys.modules[module].__file__)).parents[of_package.count(".") - 1]
            values = settings.model_dump(mode="json", exclude_defaults=True)
            records.append(
                {"package": settings.PACKAGE, "kind": settings.kind, "folder": str(folder), "settings": values}
            )
    command = [sys.executable, "-m", __name__, json.dumps({"kinds": records, "text": text})]
    results = []
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, f"a process with PYTHONHASHSEED={seed} failed: {done.stderr[-1000:]}"
        results.append(json.loads(done.stdout))
    return [record["kind"] for record, first, second in zip(records, *results, strict=True) if first != second]


def main(kinds: list[dict[str, Any]], text: str) -> list[str]:
    """A hash of what each kind gives in this process."""
    hashes = []
    for record in kinds:
        with ExitStack() as entered:
            if record["kind"] not in listing(record["package"]):
                entered.enter_context(kinds_in(Path(record["folder"])))
            settings = settings_of(record["package"], record["kind"]).model_validate(record["settings"])
            made = ""
            if isinstance(settings, TokenizerSettings):
                made = settings.train(VOCAB_SIZE, [text]).to_str()
            elif isinstance(settings, CorpusSettings):
                made = json.dumps([*islice(map(dict, settings.rows()), N_ROWS)])
            hashes.append(sha256(made.encode()).hexdigest())
    return hashes


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
