"""Kinds that installed packages add by entry points; read without importing the packages.

The group of an entry point is the package of kinds (`mini_tf.attention`), its name the kind's name in a recipe, its
value the module. Reading takes about 4 ms with a hundred packages installed, once per process.
"""

from functools import cache
from importlib import metadata
from typing import NamedTuple

from mini_tf.recipe.values import show
from mini_tf.system.errors import RecipeFault

_GROUPS = "mini_tf."


class KindFault(RecipeFault):
    """A recipe names a kind that does not exist or cannot be used."""


class AddedKind(NamedTuple):
    """A kind of an installed package. package: of kinds; module: to import; distribution, version: of pip."""

    package: str
    word: str
    module: str
    distribution: str
    version: str

    def unusable(self, reason: str) -> KindFault:
        """The error for an entry point that cannot be used."""
        point = f"entry point {self.word} = {self.module} ({_GROUPS}{self.package})"
        message = f"the {point} of the package {self.distribution} {self.version} cannot be used: {reason}"
        return KindFault(message, hint="`minitf doctor` lists the packages that add kinds")


@cache
def added_kinds() -> tuple[AddedKind, ...]:
    """The kinds of all installed packages, sorted."""
    points = metadata.entry_points()
    found = [point for group in points.groups if group.startswith(_GROUPS) for point in points.select(group=group)]
    of = [(point, point.dist) for point in found]
    return tuple(sorted(AddedKind(p.group.removeprefix(_GROUPS), p.name, p.value, d.name, d.version) for p, d in of if d is not None))


def find_added_kind(package: str, word: str, built_in: bool) -> AddedKind | None:
    """The added kind of this name; None if there is none. KindFault if there are two, or one that is also built in."""
    found = [kind for kind in added_kinds() if (kind.package, kind.word) == (package, word)]
    providers = ["minitf itself"] * built_in + [f"the package {kind.distribution} {kind.version}" for kind in found]
    if len(providers) > 1:
        raise KindFault(
            f"the kind {show(word)} of {package} is defined by {' and '.join(providers)}", hint="uninstall or rename one of them"
        )
    return found[0] if found else None


def installed_version(distribution: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return metadata.version(distribution)
    except (metadata.PackageNotFoundError, ValueError):  # ValueError: an empty name
        return None
