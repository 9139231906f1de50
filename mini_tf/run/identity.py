"""What makes two commands mean the same run: the recipe as far as it decides the result, and the contents of its files."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mini_tf.recipe.reading import Resolved, decisive, dump, flatten


@dataclass(frozen=True)
class Identity:
    """A recipe that is ready to run.

    `recipe` is its name, `text` the file as given, `resolved` the complete one (both YAML); `decides` is what decides the
    result, without paths; `hashes` are of the contents of data and tokenizer.
    """

    recipe: str
    text: str
    resolved: str
    decides: Mapping[str, Any]
    hashes: Mapping[str, str]
    seed: int = 0

    @classmethod
    def of(cls, resolved: Resolved, hashes: Mapping[str, str]) -> "Identity":
        """The identity of a recipe as it was read, on the contents that were found (`Text.hashes`)."""
        recipe = resolved.recipe
        return cls(resolved.name, resolved.text, dump(recipe), decisive(recipe), hashes, recipe.train.seed)

    @property
    def keys(self) -> dict[str, Any]:
        """What decides the result, by dotted key."""
        return flatten(self.decides)

    @property
    def run_id(self) -> str:
        """Twelve hex digits: equal exactly where the result must be equal."""
        text = json.dumps([self.keys, dict(self.hashes)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def default_name(self) -> str:
        return f"{self.recipe}-{self.run_id[:6]}"


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One `key: old -> new` for each key that changed; values are compared as JSON, as one side was read from it."""
    keys = sorted({*before, *now})
    shown = {key: (_show(before.get(key)), _show(now.get(key))) for key in keys}
    return [f"{key[:80]}: {old[:200]} -> {new[:200]}" for key, (old, new) in shown.items() if old != new]


def _show(value: Any) -> str:
    return "absent" if value is None else json.dumps(value, sort_keys=True, default=str)
