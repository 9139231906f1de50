"""What makes two commands mean the same run: the recipe as far as it decides the result, and the contents of its files."""

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
    """A recipe that is ready to run.

    recipe: its name. text: the file as given; resolved: the complete one (both YAML). decides: every dotted key that decides the
    result, without paths. defaults: the default of each of them that has one. hashes: of the contents of data and tokenizer.
    kinds: where those come from that installed packages add; they decide nothing of which run it is.
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
        """The identity of a recipe as it was read, on the contents that were found (`Text.hashes`)."""
        recipe, keys = resolved.recipe, result_keys(resolved.recipe)
        decides = {key.name: key.value for key in keys}
        defaults = {key.name: key.default for key in keys if key.default is not Required}
        return cls(resolved.name, resolved.text, dump(recipe), decides, hashes, recipe.train.seed, defaults, sources_of(recipe))

    @property
    def run_id(self) -> str:
        """Twelve hex digits of what is not left at its default, and of the contents.

        Two recipes of one version of minitf share it exactly where the result must be equal. A key that a later version adds, and
        that is left at its default, changes no id.
        """
        given = {key: value for key, value in self.decides.items() if key not in self.defaults or _show(value) != _show(self.defaults[key])}
        text = json.dumps([given, dict(self.hashes)], sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def default_name(self) -> str:
        return f"{self.recipe}-{self.run_id[:6]}"

    def changes_since(self, run_id: str, decides: Mapping[str, Any]) -> list[str]:
        """`differences` from a run of that id, whose complete keys were `decides`; empty where this identity continues it.

        A key that the run did not know had its default there. Where the ids are equal, a key that this version does not know any
        more had its default in that run, and is passed over. Equal ids do not suffice: a default may have been changed.
        """
        before = {key: value for key, value in self.defaults.items() if not _knows(decides, key)} | dict(decides)
        both = {key: before[key] for key in before if key in self.decides}
        gone = {key: before[key] for key in before if key not in both and (run_id != self.run_id or _knows(self.decides, key))}
        return differences(both, self.decides) + differences(gone, {})


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One `key: old -> new` for each key that changed; values are compared as JSON, as one side was read from it."""
    keys = sorted({*before, *now})
    shown = {key: (_show(before.get(key)), _show(now.get(key))) for key in keys}
    return [f"{key[:80]}: {old[:200]} -> {new[:200]}" for key, (old, new) in shown.items() if old != new]


def _knows(decides: Mapping[str, Any], key: str) -> bool:
    """Whether there is a value for the key, or for what it stands in: a section that is null has no keys at their defaults."""
    known = key in decides
    while not known and (key := key.rpartition(".")[0]):
        known = decides.get(key, GIVEN) != GIVEN
    return known


def _show(value: Any) -> str:
    return "absent" if value is None else json.dumps(value, sort_keys=True, default=str)
