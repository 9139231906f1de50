"""Frozen parameters: without gradient, optimizer state and weight decay, so they stay bit-equal."""

from collections.abc import Sequence

from torch import nn

from mini_tf.nn.weights.lora import plain_name
from mini_tf.nn.weights.patterns import match_names
from mini_tf.system.errors import RecipeFault


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Freeze the parameters whose names match (an adapted matrix by its plain name), and return the names.

    Call it after `lora.adapt` and before building an optimizer. RecipeFault if a pattern matches nothing or no
    parameter remains trainable. A tied table has the embedding's name.
    """
    parameters = {plain_name(name): parameter for name, parameter in model.named_parameters()}
    frozen = match_names("train.freeze", patterns, list(parameters), "parameter")
    for name in frozen:
        parameters[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise RecipeFault("train.freeze: all parameters are frozen", hint="remove a pattern")
    return frozen
