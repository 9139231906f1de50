"""Temporarily adds a folder of kinds to a package of kinds, for tests."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mini_tf.recipe.kinds import clear_kind_caches, listing, settings_of


@contextmanager
def kinds_in(package: str, folder: Path) -> Iterator[None]:
    """Within this context the files of `folder` are kinds of a package such as "objectives" or "data.datasets".

    Raises ValueError if there is no such package.
    """
    if not listing(package):
        raise ValueError(f"there are no kinds of {package!r}; a package is such as attention or data.datasets")
    settings_of(package, listing(package)[0])  # imports the package, whose path is then the one that is searched
    module = sys.modules[f"mini_tf.{package}"]
    module.__path__.append(str(folder))
    clear_kind_caches()
    try:
        yield
    finally:
        module.__path__.remove(str(folder))
        clear_kind_caches()
        for file in folder.glob("*.py"):
            if sys.modules.pop(f"{module.__name__}.{file.stem}", None) is not None:
                delattr(module, file.stem)
