"""Parts of a model chosen by patterns of their names, as `train.freeze` and `adapter.targets` of a recipe do."""

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from mini_tf.recipe.values import show
from mini_tf.system.errors import RecipeFault

_TOLD = 6


def match_names(key: str, patterns: Sequence[str], names: Sequence[str], what: str, all_match: bool = True) -> list[str]:
    """The names that match one of the patterns (* ? [seq], of the whole name), in their own order.

    key: the recipe's, which faults are told of; what: a word for such a part. RecipeFault for a pattern that no name matches; without
    `all_match` only where none of them matches anything.
    """
    found = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names) and (not found or all_match):
            raise RecipeFault(f"{key}: no {what} matches {show(pattern)}; there are {_listed(pattern, names)}")
    return found


def _listed(pattern: str, names: Sequence[str]) -> str:
    """Some names, those first that are like the pattern."""
    nearest = get_close_matches(pattern[:200], names, n=_TOLD, cutoff=0.3)
    told = [*nearest, *(name for name in names if name not in nearest)][:_TOLD]
    more = len(names) - len(told)
    return (", ".join(told) or "none") + (f" and {more} more" if more else "")
