"""Python values as the text that stands behind KEY= on a command line."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mini_tf.recipe.arguments import YAML_BEGINS


def as_text(value: Any) -> str:
    """A value as YAML. A str stands for itself, as on a command line, also if it begins as YAML does."""
    if isinstance(value, str | Path):
        text = str(value)
        return json.dumps(text) if text.startswith(YAML_BEGINS) else text
    return json.dumps(value, default=str)


def overrides_of(settings: Mapping[str, Any]) -> Iterator[str]:
    """KEY=VALUE for each setting: {"train": {"steps": 10}} or {"train.steps": 10} is train.steps=10."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and "." not in name:
            yield from (f"{name}.{key}={as_text(item)}" for key, item in value.items())
        else:
            yield f"{name}={as_text(value)}"
