"""Parts of a model selected by patterns of their names, as in `train.freeze` and `adapter.targets`."""

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from mini_tf.recipe.values import show
from mini_tf.system.errors import RecipeFault

_SHOWN = 6


def match_names(
    key: str, patterns: Sequence[str], names: Sequence[str], noun: str, all_match: bool = True
) -> list[str]:
    """The names that match one of the patterns (* ? [seq], of the whole name), in their order.

    key, noun: for messages, such as "train.freeze" and "parameter". Raises RecipeFault for a pattern that matches no
    name; without `all_match` only if no pattern matches.
    """
    found = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names) and (not found or all_match):
            raise RecipeFault(f"{key}: no {noun} matches {show(pattern)}; there are {_listed(pattern, names)}")
    return found


def _listed(pattern: str, names: Sequence[str]) -> str:
    """Some of the names, those most similar to the pattern first."""
    nearest = get_close_matches(pattern[:200], names, n=_SHOWN, cutoff=0.3)
    shown = [*nearest, *(name for name in names if name not in nearest)][:_SHOWN]
    more = len(names) - len(shown)
    return (", ".join(shown) or "none") + (f" and {more} more" if more else "")
