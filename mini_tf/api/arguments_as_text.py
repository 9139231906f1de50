"""Python values as the text that stands on a command line: behind KEY=, or as a prompt."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mini_tf.recipe.arguments import YAML_BEGINS
from mini_tf.recipe.text_input import refuse_non_utf8
from mini_tf.system.errors import UsageFault


def as_text(value: Any) -> str:
    """A value as YAML. A str stands for itself, as on a command line, also if it begins as YAML does."""
    if isinstance(value, str | Path):
        text = str(value)
        return json.dumps(text) if text.startswith(YAML_BEGINS) else text
    return json.dumps(value, default=str)


def texts_in(argument: Any, name: str, mappings: bool = False) -> list[Any]:
    """One text, or the texts of a list; with `mappings` also mappings. UsageFault for others. name: of the argument."""
    kinds, expected = ((str, Mapping), "a text or a dict") if mappings else ((str,), "a text")
    if isinstance(argument, kinds):
        argument = [argument]
    if isinstance(argument, bytes) or not isinstance(argument, Iterable):
        raise UsageFault(f"{name}: must be {expected}, or a list of them, got {type(argument).__name__}")
    texts = [*argument]
    for number, text in enumerate(texts, 1):
        if not isinstance(text, kinds):
            raise UsageFault(f"{name}: must be {expected}, got {type(text).__name__} as entry {number}")
    refuse_non_utf8([text for text in texts if isinstance(text, str)], f"an entry of {name}")
    return texts


def as_json(value: Mapping[str, Any]) -> str:
    """A prompt or an example that is a mapping. UsageFault if JSON has no such value."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageFault(f"a mapping with texts and numbers is needed: {error}") from None


def overrides_of(settings: Mapping[str, Any]) -> Iterator[str]:
    """KEY=VALUE for each setting: {"train": {"steps": 10}} or {"train.steps": 10} is train.steps=10."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and "." not in name:
            yield from (f"{name}.{key}={as_text(item)}" for key, item in value.items())
        else:
            yield f"{name}={as_text(value)}"
