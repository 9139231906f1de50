"""How deep below the output a parameter lies: with layer-wise decay its rate is lr * decay^depth, so that what a model learnt
first, and what other tasks share, changes least.

Source: Clark et al. 2020, "ELECTRA", arXiv:2003.10555, appendix B; Howard and Ruder 2018, arXiv:1801.06146, section 3.2.
"""

from collections.abc import Sequence

from torch import nn

from mini_tf.nn.model import Model, ModelStack
from mini_tf.nn.weights.objective_network import ModelWithObjective


def stacks_of(model: nn.Module) -> Sequence[ModelStack]:
    """The stacks that a model declares; none of another module."""
    return model.stacks() if isinstance(model, Model | ModelWithObjective) else ()


def depths(model: nn.Module) -> dict[str, int]:
    """The depth of every parameter: a head's and a last norm's is 0, the last layer's 1, the one before 2, ..., an embedding's one
    more than the first layer's.

    The stacks of an encoder-decoder count from their own tops: every layer of the decoder attends to the output of the encoder's
    last one, so that is no farther from the model's output. An embedding that both share is the decoder's. Layers that are
    gone through several times count once.
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
