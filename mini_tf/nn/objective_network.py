"""Modules of an objective besides the model, such as ELECTRA's generator.

They are trained by the same optimizer and saved in checkpoints, but not in model.safetensors. Tensors that they share
with the model belong to the model.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from mini_tf.nn.model import Model
from mini_tf.nn.model_stack import ModelStack
from mini_tf.nn.weights import copy_tensors, unique_tensors

CHILD = "objective"
"""Prefix of their parameters' names."""


class ModelWithObjective(nn.Module):
    """The modules of the model by their own names, and those of the objective under `objective.`."""

    def __init__(self, model: Model, others: Mapping[str, nn.Module | nn.Parameter]) -> None:
        super().__init__()
        if hasattr(model, CHILD):
            raise ValueError(f"a model may not have a module called {CHILD!r}")
        objective = nn.Module()
        for module, parts in ((self, {**model._parameters, **model._modules}), (objective, others)):
            for name, part in parts.items():
                setattr(module, name, part)
        setattr(self, CHILD, objective)
        self._model = (model,)  # not registered as a submodule: its modules are registered above

    def stacks(self) -> Sequence[ModelStack]:
        """The stacks of the model."""
        return self._model[0].stacks()


def trained_module(model: Model, task: nn.Module) -> nn.Module:
    """The module whose parameters are trained: the model itself if the task has no parameters of its own.

    Raises ValueError if the task holds the model inside another module.
    """
    others = {
        name: part
        for name, part in {**task._parameters, **task._modules}.items()
        if part is not None and part is not model
    }
    if any(part is model for other in others.values() if isinstance(other, nn.Module) for part in other.modules()):
        raise ValueError("a task must hold the model as an attribute of its own, not inside another module")
    return ModelWithObjective(model, others) if objective_tensors(model, task) else model


def objective_tensors(model: Model, task: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of a task besides the model, tied ones once, by their names in the task; not copies."""
    return unique_tensors(task, excluding=model)


def load_objective(model: Model, task: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy `tensors`, as returned by `objective_tensors`, into the task; names and shapes must be equal."""
    copy_tensors(objective_tensors(model, task), tensors)
