"""Networks that belong to an objective and not to the model, such as ELECTRA's generator: what a task holds besides the model.

They are trained by the same optimizer and saved in checkpoints, but are no part of model.safetensors. A task that holds nothing
besides the model costs nothing here. What both hold (a tied table) is the model's.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from mini_tf.nn.model import Model, ModelStack, copy_tensors, unique_tensors

CHILD = "objective"
"""Their parameters have names behind this one among those of the model."""


class ModelWithObjective(nn.Module):
    """The modules of the model by their own names, and the others of a task behind `objective.`, for whatever walks over parameters."""

    def __init__(self, model: Model, others: Mapping[str, nn.Module | nn.Parameter]) -> None:
        super().__init__()
        if hasattr(model, CHILD):
            raise ValueError(f"a model may not have a module called {CHILD!r}")
        own = nn.Module()
        for at, parts in ((self, {**model._parameters, **model._modules}), (own, others)):
            for name, part in parts.items():
                setattr(at, name, part)
        setattr(self, CHILD, own)
        self._model = (model,)  # not registered: its parameters have their own names here

    def stacks(self) -> Sequence[ModelStack]:
        """Those of the model."""
        return self._model[0].stacks()


def trained_module(model: Model, task: nn.Module) -> nn.Module:
    """All that the optimizer moves: the model itself where the task holds nothing else.

    Raises ValueError where the task holds the model inside another module.
    """
    others = {name: part for name, part in {**task._parameters, **task._modules}.items() if part is not None and part is not model}
    if any(part is model for other in others.values() if isinstance(other, nn.Module) for part in other.modules()):
        raise ValueError("a task must hold the model as an attribute of its own, not inside another module")
    return ModelWithObjective(model, others) if objective_tensors(model, task) else model


def objective_tensors(model: Model, task: nn.Module) -> dict[str, Tensor]:
    """What a file holds of a task besides the model: parameters and buffers by their first names in the task; not copies."""
    return unique_tensors(task, excluding=model)


def load_objective(model: Model, task: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Take over what `objective_tensors` gave; names and shapes must be equal."""
    copy_tensors(objective_tensors(model, task), tensors)
