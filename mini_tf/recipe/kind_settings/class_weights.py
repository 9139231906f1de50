"""The weights of classes as a recipe writes them."""

from typing import Annotated, Any, Literal

from pydantic import WrapValidator
from pydantic_core import PydanticCustomError

from mini_tf.recipe.values import show
from mini_tf.system.errors import suggest

LARGEST_WEIGHT = 1e9


def _check_class_weights(value: Any, validate: Any) -> Any:
    """One error message in place of one for each type of the union."""
    if value is None or value == "balanced":
        return validate(value)
    if not isinstance(value, dict):
        hint = isinstance(value, str) and suggest(value, ["balanced"])
        raise PydanticCustomError(
            "value",
            "{m}",
            {"m": f"must be balanced or {{class: weight}}, got {show(value)}{f'; {hint}' if hint else ''}"},
        )
    for name, weight in value.items():
        if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight <= LARGEST_WEIGHT:
            message = (
                f"the weight of a class must be above 0 and at most {LARGEST_WEIGHT:g}, got {show(weight)} for"
                f" {show(name)}"
            )
            raise PydanticCustomError("value", "{m}", {"m": message})
    return validate(value)


ClassWeights = Annotated[Literal["balanced"] | dict[str, float] | None, WrapValidator(_check_class_weights)]
