"""Depth of parameters below the output: with layer-wise decay a parameter's learning rate is lr * decay^depth, so lower
layers, which are more general, change less.

Source: Clark et al. 2020, "ELECTRA", arXiv:2003.10555, appendix B; Howard and Ruder 2018, arXiv:1801.06146, section
3.2.
"""

from collections.abc import Sequence

from torch import nn

from mini_tf.nn.model import Model, ModelStack
from mini_tf.nn.weights.objective_network import ModelWithObjective


def stacks_of(model: nn.Module) -> Sequence[ModelStack]:
    """The stacks that a model declares; none for another module."""
    return model.stacks() if isinstance(model, Model | ModelWithObjective) else ()


def depths(model: nn.Module) -> dict[str, int]:
    """Depth of every parameter: 0 for head and last norm, 1 for the last layer, 2 for the one before, ..., and one more
    than the first layer for the embedding.

    The stacks of an encoder-decoder count from their own last layers, since every decoder layer attends to the
    encoder's output. An embedding that both share belongs to the decoder. Layers with shared weights count once.
    """
    stacks = stacks_of(model)
    found: dict[str, int] = {}
    for name, _ in model.named_parameters():
        for one in stacks:
            n_layers = len(one.stack.layers)
            if one.embedding is not None and f"{name}.".startswith(f"{one.embedding}."):
                found.setdefault(name, one.n_above + n_layers + 1)
            for layer in range(n_layers):
                if name.startswith(f"{one.name}.layers.{layer}."):
                    found.setdefault(name, one.n_above + n_layers - layer)
        found.setdefault(name, 0)
    return found
