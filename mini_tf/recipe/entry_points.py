"""The kinds that installed packages add: what their entry points say, before anything of theirs is imported.

The group of an entry point is the package of kinds (`mini_tf.attention`), its name the word that a recipe writes, its value the module.
Reading them all takes about 4 ms with a hundred packages installed, once a process.
"""

from functools import cache
from importlib import metadata
from typing import NamedTuple

from mini_tf.recipe.values import show
from mini_tf.system.errors import RecipeFault

_GROUPS = "mini_tf."


class KindFault(RecipeFault):
    """A recipe names a kind that there is not, or one that cannot be used."""


class AddedKind(NamedTuple):
    """`package` is the package of kinds, `module` what is to be imported; `distribution` and `version` are those of pip."""

    package: str
    word: str
    module: str
    distribution: str
    version: str

    def unusable(self, what: str) -> KindFault:
        """What to say where the package does not have what its entry point promises."""
        point = f"entry point {self.word} = {self.module} ({_GROUPS}{self.package})"
        told = f"the {point} of the package {self.distribution} {self.version} cannot be used: {what}"
        return KindFault(told, hint="`minitf doctor` lists the packages that add kinds")


@cache
def added_kinds() -> tuple[AddedKind, ...]:
    """Of all packages that are installed, sorted."""
    points = metadata.entry_points()
    found = [point for group in points.groups if group.startswith(_GROUPS) for point in points.select(group=group)]
    of = [(point, point.dist) for point in found]
    return tuple(sorted(AddedKind(p.group.removeprefix(_GROUPS), p.name, p.value, d.name, d.version) for p, d in of if d is not None))


def adding(package: str, word: str, ours: bool) -> AddedKind | None:
    """The installed package that adds a word; None where none does. KindFault where two do, or one and it is `ours` too."""
    found = [kind for kind in added_kinds() if (kind.package, kind.word) == (package, word)]
    having = ["minitf itself"] * ours + [f"the package {kind.distribution} {kind.version}" for kind in found]
    if len(having) > 1:
        raise KindFault(f"the kind {show(word)} of {package} is in {' and '.join(having)}", hint="uninstall or rename one of them")
    return found[0] if found else None


def installed(distribution: str) -> str | None:
    """The version of an installed package; None where it is not installed."""
    try:
        return metadata.version(distribution)
    except (metadata.PackageNotFoundError, ValueError):  # ValueError: an empty name
        return None
