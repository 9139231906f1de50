"""The recipe keys that affect the result of a run, from which the run's id is hashed."""

from collections.abc import Iterator
from typing import Any

from mini_tf.recipe.corpora import built_in_corpora
from mini_tf.recipe.recipe import Recipe

NO_EFFECT_ON_RESULT = {
    *("log", "checkpoint", "generate", "expect", "runtime.device"),
    *("runtime.reduce", "runtime.shard", "runtime.timeout"),
    *("train.micro_batch_size", "train.on_nonfinite", "train.most_skips", "train.stop_above"),
    "eval.baseline",
    *("data.home", "data.errors", "tokenizer.path", "tokenizer.source.path", "model.init_from"),
}
"""Sections and keys that do not affect the result: reports, samples and baselines; the order of sums and dropout draws;
how processes share the work; ending a run early; names of files and runs, whose contents are hashed instead
(data.errors affects the contents; data.home is only a hint).
"""
_CORPORA = {"data.train", "data.val"}
"""Only names of built-in corpora are hashed; files are hashed by their contents."""
_ONE_VALUE = {"data.split"}
"""A section that may be written as text is one value in either form."""


def result_values(recipe: Recipe, exclude_defaults: bool = False) -> dict[str, Any]:
    """The JSON value of every dotted key that affects the result, or of those whose value is not the default.

    A list of kinds adds its length: `model.attention: 2`, `model.attention[1].window: 128`.
    """
    return dict(_flatten("", recipe.model_dump(mode="json", exclude_defaults=exclude_defaults)))


def _flatten(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if path in NO_EFFECT_ON_RESULT:
        return
    if path in _CORPORA:
        yield path, _corpus(value)
    elif isinstance(value, dict) and value and path not in _ONE_VALUE:
        for name, item in value.items():
            yield from _flatten(f"{path}.{name}" if path else name, item)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield path, len(value)
        for number, item in enumerate(value):
            yield from _flatten(f"{path}[{number}]", item)
    else:
        yield path, value


def _corpus(value: Any) -> Any:
    word = value.get("kind") if isinstance(value, dict) else value
    return word if word is None or (isinstance(word, str) and word in built_in_corpora()) else "files"
