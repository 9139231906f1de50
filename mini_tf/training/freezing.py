"""Parameters that do not learn: they have no gradient, no moments and no weight decay, so they stay as they are to the bit."""

from collections.abc import Sequence

from torch import nn

from mini_tf.nn.weights.lora import plain_name
from mini_tf.nn.weights.patterns import match_names
from mini_tf.system.errors import RecipeFault


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Freeze the parameters whose names match (those of an adapted matrix by its plain name), and return the names.

    To be called after `lora.adapt` and before an optimizer is built. RecipeFault where a pattern matches nothing, or nothing is
    left to learn. A table that embeds and scores has the embedding's name.
    """
    parameters = {plain_name(name): parameter for name, parameter in model.named_parameters()}
    frozen = match_names("train.freeze", patterns, list(parameters), "parameter")
    for name in frozen:
        parameters[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise RecipeFault("train.freeze: nothing is left to learn, all parameters are frozen", hint="leave out a pattern")
    return frozen
