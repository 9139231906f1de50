"""Settings of a model, read from config.json: each section names its class."""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar


class PlainSection:
    """The keys of a section of config.json as attributes; those that are absent have the defaults of the class."""

    model_fields: ClassVar[dict[str, Any]] = {}
    """The keys that it may have."""

    def __init_subclass__(cls) -> None:
        cls.model_fields = {**cls.model_fields, **inspect.get_annotations(cls)}

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def model_copy(self, update: Mapping[str, Any]) -> Any:
        """The same settings with other values."""
        return type(self)(**{**vars(self), **update})


def made_of(values: Any) -> Any:
    """What a value of config.json describes: an object of the class that it names, or the value itself."""
    if isinstance(values, list):
        return tuple(made_of(value) for value in values)
    if not isinstance(values, Mapping):
        return values
    made = {key: made_of(value) for key, value in values.items()}
    return globals()[made.pop("class")](**made) if "class" in made else made
