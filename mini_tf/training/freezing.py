"""Frozen parameters: no gradient, no optimizer state and no weight decay, so their values never change."""

from collections.abc import Sequence

from torch import nn

from mini_tf.nn.lora import plain_name
from mini_tf.nn.weights import match_names
from mini_tf.system.errors import RecipeFault


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Freeze the parameters whose names match a pattern, and return their names.

    Call it after `lora.adapt` (adapted matrices keep their plain names) and before the optimizer is built. A tied
    embedding has the embedding's name. Raises RecipeFault if a pattern matches nothing or everything gets frozen.
    """
    parameters = {plain_name(name): parameter for name, parameter in model.named_parameters()}
    frozen = match_names("train.freeze", patterns, list(parameters), "parameter")
    for name in frozen:
        parameters[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise RecipeFault(
            "train.freeze: all parameters are frozen, at least one must be trainable", hint="remove a pattern"
        )
    return frozen
