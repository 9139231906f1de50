"""The identity of a run: the recipe keys that determine the result, and the contents of data and tokenizer."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mini_tf.recipe.reading import Resolved, dump
from mini_tf.recipe.result_keys import GIVEN, Required, result_keys
from mini_tf.run.kind_sources import sources_of
from mini_tf.run.manifest import KindSource


@dataclass(frozen=True)
class Identity:
    """A recipe and the contents of its files.

    recipe: its name. text: the file as given; resolved: the complete recipe (both YAML). decides: value of every dotted
    key that determines the result, without paths. defaults: the default of each of these keys that has one. hashes: of
    the contents of data and tokenizer. kinds: sources of kinds from installed packages; not part of the identity.
    """

    recipe: str
    text: str
    resolved: str
    decides: Mapping[str, Any]
    hashes: Mapping[str, str]
    seed: int = 0
    defaults: Mapping[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, KindSource] = field(default_factory=dict)

    @classmethod
    def of(cls, resolved: Resolved, hashes: Mapping[str, str]) -> "Identity":
        """The identity of a resolved recipe with the hashes of its data and tokenizer."""
        recipe, keys = resolved.recipe, result_keys(resolved.recipe)
        decides = {key.name: key.value for key in keys}
        defaults = {key.name: key.default for key in keys if key.default is not Required}
        return cls(resolved.name, resolved.text, dump(recipe), decides, hashes, recipe.train.seed, defaults, sources_of(recipe))

    @property
    def run_id(self) -> str:
        """Twelve hex digits of the SHA-256 of all values that differ from their defaults, and of the hashes.

        Within one version of minitf, equal ids mean equal results. A key that a later version adds does not change the
        id while it has its default.
        """
        given = {key: value for key, value in self.decides.items() if key not in self.defaults or _show(value) != _show(self.defaults[key])}
        text = json.dumps([given, dict(self.hashes)], sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def default_name(self) -> str:
        return f"{self.recipe.lstrip('.-') or 'run'}-{self.run_id[:6]}"

    def changes_since(self, run_id: str, decides: Mapping[str, Any]) -> list[str]:
        """`differences` from a run with this id and these complete keys; empty if this identity continues the run.

        A key that the run does not have counts as its default. With equal ids, a key that this version no longer has is
        skipped, since it had its default. Equal ids are not sufficient: a default may have changed between versions.
        """
        before = {key: value for key, value in self.defaults.items() if not _has_value(decides, key)} | dict(decides)
        both = {key: before[key] for key in before if key in self.decides}
        removed = {key: before[key] for key in before if key not in both and (run_id != self.run_id or _has_value(self.decides, key))}
        return differences(both, self.decides) + differences(removed, {})


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One "key: old -> new" per changed key; values are compared as JSON, since those of a run were read from JSON."""
    keys = sorted({*before, *now})
    shown = {key: (_show(before.get(key)), _show(now.get(key))) for key in keys}
    return [f"{key[:80]}: {old[:200]} -> {new[:200]}" for key, (old, new) in shown.items() if old != new]


def _has_value(decides: Mapping[str, Any], key: str) -> bool:
    """Whether the key or a section that contains it has a value: the keys of a null section have no defaults."""
    found = key in decides
    while not found and (key := key.rpartition(".")[0]):
        found = decides.get(key, GIVEN) != GIVEN
    return found


def _show(value: Any) -> str:
    return "absent" if value is None else json.dumps(value, sort_keys=True, default=str)
