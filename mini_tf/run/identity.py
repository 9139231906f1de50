"""The identity of a run: the recipe keys that determine the result, and the contents of data and tokenizer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mini_tf.recipe.reading import Resolved, dump
from mini_tf.recipe.result_keys import result_values
from mini_tf.run.kind_sources import sources_of
from mini_tf.run.manifest import KindSource
from mini_tf.system.cache import hash_of


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
        return cls(resolved.name, resolved.text, dump(recipe), decides, hashes, not_default, recipe.train.seed, sources_of(recipe))

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
        added = {key for key in self.decides if key not in decides and key not in self.not_default and not _replaces(key, decides)}
        gone = {key for key in decides if key not in self.decides and run_id == self.run_id and not _replaces(key, self.decides)}
        before, now = ({key: value for key, value in keys.items() if key not in added | gone} for keys in (decides, self.decides))
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
