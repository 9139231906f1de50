"""Layer-wise learning rate decay: a parameter at depth d below the output has the learning rate lr * decay^d.

Source: Clark et al. 2020, "ELECTRA", arXiv:2003.10555, appendix B; Howard and Ruder 2018, arXiv:1801.06146, 3.2.
"""

from collections.abc import Sequence

from torch import nn

from mini_tf.nn.model import Model
from mini_tf.nn.model_stack import ModelStack
from mini_tf.nn.objective_network import ModelWithObjective


def stacks_of(model: nn.Module) -> Sequence[ModelStack]:
    """The stacks that a model declares; empty for another module."""
    return model.stacks() if isinstance(model, Model | ModelWithObjective) else ()


def depths(model: nn.Module) -> dict[str, int]:
    """The depth of every parameter: head and final norm 0, last layer 1, the one before 2, ..., embeddings one more
    than the first layer.

    Encoder and decoder each count from their own last layer, since every decoder layer attends to the output of the
    encoder's last layer. A shared embedding counts as the decoder's. A layer that is applied several times counts once.
    """
    stacks = stacks_of(model)
    depth_by_name: dict[str, int] = {}
    for name, _ in model.named_parameters():
        for one in stacks:
            n_layers = len(one.stack.layers)
            if any(f"{name}.".startswith(f"{path}.") for path in one.embedding_paths()):
                depth_by_name.setdefault(name, one.n_above + n_layers + 1)
            for layer in range(n_layers):
                if name.startswith(f"{one.name}.layers.{layer}."):
                    depth_by_name.setdefault(name, one.n_above + n_layers - layer)
        depth_by_name.setdefault(name, 0)
    return depth_by_name
