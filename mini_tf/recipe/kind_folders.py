"""Where kinds are found: in minitf, in each of its papers and in installed packages, which are laid out alike.

`attention/mean.py` in such a folder is the kind `mean` of `attention`. An installed package names its folder, as it is
imported, in an entry point of the group `mini_tf.kinds`. Listing reads names of files and metadata of packages (about 4
ms, once a process), and imports nothing.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypeGuard

from mini_tf.recipe.values import one_line, show
from mini_tf.system.cache import sha256_of
from mini_tf.system.errors import RecipeFault

GROUP = "mini_tf.kinds"
"""The group of entry points; their names have no meaning."""
PACKAGES = (
    *("attention", "baselines", "data.corpora", "data.datasets", "data.tokenizers", "hf.families", "hf.formats"),
    *("inspection", "models", "noises", "objectives", "optimizers", "pipelines", "positions", "schedules"),
)
"""The packages of kinds; other subfolders hold what kinds import."""
_MINITF = Path(__file__).parents[1]


class KindFault(RecipeFault):
    """A recipe names a kind that does not exist or cannot be used."""


class KindFolder(NamedTuple):
    """A folder of packages of kinds. module: by which it is imported; distribution, version: of pip, if installed."""

    module: str
    paths: tuple[Path, ...]
    distribution: str = ""
    version: str = ""

    @property
    def owner(self) -> str:
        """Where it is from, for messages."""
        if self.distribution:
            return f"the package {self.distribution} {self.version}"
        return self.module.replace(".", "/") if self.paths != (_MINITF,) else "minitf itself"

    def kinds(self, package: str) -> Iterator["FoundKind"]:
        for path in self.paths:
            for file in path.joinpath(*package.split(".")).glob("*.py"):
                if file.stem.isidentifier() and not file.stem.startswith("_"):
                    yield FoundKind(package, file.stem, self)


class FoundKind(NamedTuple):
    """A kind by its package of kinds and its word, and the folder that has it."""

    package: str
    word: str
    folder: KindFolder

    @property
    def module(self) -> str:
        return f"{self.folder.module}.{self.package}.{self.word}"

    @property
    def root(self) -> Path:
        """The folder that holds the packages of kinds."""
        return next(path for path in self.folder.paths if self._within(path).is_file())

    @property
    def file(self) -> Path:
        return self._within(self.root)

    @property
    def files(self) -> dict[str, str]:
        """SHA-256 of the files of its folder, by path: an editable install changes at one version."""
        return {file.relative_to(self.root).as_posix(): sha256_of(file) for file in sorted(self.root.rglob("*.py"))}

    def _within(self, root: Path) -> Path:
        return root.joinpath(*self.package.split("."), f"{self.word}.py")

    def unusable(self, reason: str) -> KindFault:
        """The error for a module that defines no usable kind."""
        message = (
            f"the kind {self.word} of {self.package} in {self.folder.owner} ({self.module}) cannot be used: {reason}"
        )
        return KindFault(message, hint="`minitf doctor` lists all kinds that cannot be used")


@cache
def own_folders() -> tuple[KindFolder, ...]:
    """minitf itself and each of its papers."""
    papers = sorted(path for path in (_MINITF / "papers").glob("[!_.]*") if path.is_dir())
    return KindFolder("mini_tf", (_MINITF,)), *(KindFolder(f"mini_tf.papers.{path.name}", (path,)) for path in papers)


@cache
def added_folders() -> tuple[KindFolder, ...]:
    """The folders that installed packages name, sorted; without `paths` if there is no such folder.

    KindFault if a package, of whatever purpose, has entry points that cannot be read.
    """
    from importlib import metadata  # takes longer to import than all of this file

    try:
        points = [(point.value, point.dist) for point in metadata.entry_points(group=GROUP)]
    except (TypeError, ValueError) as error:  # of importlib, whose parser checks nothing
        message = f"the entry points of the installed packages cannot be read: {one_line(str(error))}"
        raise KindFault(message, hint="a file entry_points.txt in site-packages has a line without `=`") from error
    return tuple(
        sorted(
            {KindFolder(value, _paths(value), dist.name, dist.version) for value, dist in points if dist is not None}
        )
    )


def _paths(module: str) -> tuple[Path, ...]:
    """The folders of an importable package, which is not imported."""
    first, *rest = module.split(".")
    if not all(map(str.isidentifier, (first, *rest))):
        return ()
    from importlib.util import find_spec

    try:
        spec = find_spec(first)
    except ValueError:  # a module without a spec
        return ()
    paths = [Path(path, *rest) for path in (spec and spec.submodule_search_locations) or ()]
    return tuple(dict.fromkeys(path for path in paths if path.is_dir()))


@cache
def added_kinds() -> tuple[FoundKind, ...]:
    return tuple(sorted(kind for folder in added_folders() for package in PACKAGES for kind in folder.kinds(package)))


@cache
def kinds_by_word(package: str) -> Mapping[str, Sequence[FoundKind]]:
    """All kinds of a package of kinds; of a word that two folders have, both."""
    kinds: dict[str, list[FoundKind]] = {}
    for folder in (*own_folders(), *added_folders()) if package in PACKAGES else ():
        for kind in folder.kinds(package):
            kinds.setdefault(kind.word, []).append(kind)
    return kinds


def find_kind(package: str, word: str) -> FoundKind:
    """A kind that is listed. KindFault if two folders have it."""
    first, *others = kinds_by_word(package)[word]
    if others:
        owners = " and ".join(kind.folder.owner for kind in (first, *others))
        fault = f"the kind {show(word)} of {package} is defined by {owners}"
        raise KindFault(fault, hint="uninstall or rename one of them")
    return first


def installed_version(distribution: str) -> str | None:
    """The version of a package; None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except (metadata.PackageNotFoundError, ValueError):  # ValueError: an empty name
        return None


def clear_caches() -> None:
    """Look for installed packages and their kinds again."""
    for cached in (added_folders, added_kinds, kinds_by_word):
        cached.cache_clear()


@cache
def field_docstrings(section: type) -> dict[str, str]:
    """Those of the fields that a class itself declares, by name; "" for a field that has none."""
    node = _classes_of(sys.modules[section.__module__]).get(section.__qualname__)
    if node is None:  # inside a function, or typed in: inspect finds it, but reads the whole file for each class
        [node] = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(node, ast.ClassDef)
    return docstrings_in(node)


@cache
def _classes_of(module: ModuleType) -> dict[str, ast.stmt]:
    """The classes at the top of a module, by name; none where it has no file."""
    file = getattr(module, "__file__", None)
    tree = ast.parse(Path(file).read_bytes() if file else "")
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def docstrings_in(node: ast.ClassDef) -> dict[str, str]:
    """`field_docstrings` of a class that is not imported."""
    texts = {}
    for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            texts[statement.target.id] = ast.literal_eval(after.value) if _is_text(after) else ""
    return {name: inspect.cleandoc(text) for name, text in texts.items()}


def _is_text(statement: ast.stmt | None) -> TypeGuard[ast.Expr]:
    return isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str)
