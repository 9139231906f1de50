"""Settings without keys that act only in training or on initial weights: what a trained model computes depends on them.

`Section.TRAINING_KEYS` declares the others.
"""

from typing import Any

from mini_tf.recipe.kinds import Section


def training_keys(section: Section) -> frozenset[str]:
    """The TRAINING_KEYS of its class and of all base classes."""
    return frozenset(key for base in type(section).__mro__ for key in vars(base).get("TRAINING_KEYS", ()))


def changed_training_keys(section: Section) -> list[str]:
    """Those of `training_keys` whose values are not their defaults."""
    fields, keys = type(section).model_fields, training_keys(section)
    return [key for key, field in fields.items() if key in keys and getattr(section, key) != field.default]


def inference_settings(section: Section) -> dict[str, Any]:
    """The section as JSON without `training_keys`, its own and those of the sections within it."""
    return _without(section, section.model_dump(mode="json"))  # type: ignore[no-any-return]


def _without(value: Any, dumped: Any) -> Any:
    """dumped: the value as JSON, where a tuple of one item may be that item (`OneOrMore`)."""
    if isinstance(value, tuple) and isinstance(dumped, list):
        return [_without(item, one) for item, one in zip(value, dumped, strict=True)]
    if isinstance(value, tuple):
        return _without(value[0], dumped)
    if not isinstance(value, Section):
        return dumped
    left_out = training_keys(value)
    return {key: _without(getattr(value, key), one) for key, one in dumped.items() if key not in left_out}
