"""Settings and loss of objectives whose labels have names."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, WrapValidator
from torch import Tensor

from mini_tf.data.examples import Labels
from mini_tf.objectives._task import Loss, TaskSettings
from mini_tf.recipe.data import NonEmptyText
from mini_tf.recipe.kind_settings.objectives import Addition
from mini_tf.recipe.kinds import Rule, Rules, settings_of
from mini_tf.recipe.parsing.schema_faults import invalid
from mini_tf.recipe.values import no_such_class, show
from mini_tf.system.errors import RecipeFault, suggest

LARGEST_WEIGHT = 1e9


def _check_class_weights(value: Any, validate: Any) -> Any:
    """One error message in place of one for each type of the union."""
    if value is None or value == "balanced":
        return validate(value)
    if not isinstance(value, dict):
        hint = isinstance(value, str) and suggest(value, ["balanced"])
        raise invalid(f"must be balanced or {{class: weight}}, got {show(value)}{f'; {hint}' if hint else ''}")
    for name, weight in value.items():
        if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight <= LARGEST_WEIGHT:
            bounds = f"must be above 0 and at most {LARGEST_WEIGHT:g}"
            raise invalid(f"the weight of a class {bounds}, got {show(weight)} for {show(name)}")
    return validate(value)


ClassWeights = Annotated[Literal["balanced"] | dict[str, float] | None, WrapValidator(_check_class_weights)]


class NamedLabels(TaskSettings):
    """Settings of objectives whose labels have names."""

    labels: Annotated[tuple[NonEmptyText, ...], Field(min_length=2, max_length=65536)] | None = None
    """Names of the classes, in this order; null: the classes in the training data."""

    def rules(self) -> Rules:
        yield from super().rules()
        if self.labels and len(set(self.labels)) < len(self.labels):
            yield "labels", "a class is listed twice"

    @property
    def classes(self) -> Sequence[str] | None:
        return self.labels

    def dataset(self) -> Any:
        dataset = settings_of("data.datasets", self.DATASET)
        return dataset.model_validate({"labels": self.labels} if "labels" in dataset.model_fields else {})


class ClassSettings(NamedLabels):
    """Settings of objectives that predict classes."""

    TRAINING_KEYS = frozenset({"label_smoothing", "class_weights"})

    class_weights: ClassWeights = None
    """Weights of the classes in the training loss: balanced (inverse frequency) or {name: weight}."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Label smoothing in training."""
    calibrate: bool = False
    """Temperature scaling of the probabilities, fitted on the validation data after training."""
    logit_adjustment: Literal["fit"] | None = None
    """fit: biases fitted on the validation data after training: of O for entity F1, else of each class for macro F1."""

    def rules(self) -> Rules:
        yield from super().rules()
        if self.labels is not None and (unknown := self._unknown_weights(self.labels)):
            yield Rule("class_weights", no_such_class(unknown[0], self.labels), ("labels",))

    @property
    def additions(self) -> frozenset[Addition]:
        temperature: set[Addition] = {"temperature"} if self.calibrate else set()
        bias: set[Addition] = set() if self.logit_adjustment is None else {"bias"}
        return super().additions | temperature | bias

    def _unknown_weights(self, names: Sequence[str]) -> list[str]:
        """Keys of `class_weights` that are not in `names`."""
        weights = self.class_weights if isinstance(self.class_weights, dict) else {}
        return [name for name in weights if name not in names]

    def weights(self, labels: Labels) -> Tensor | None:
        """Class weights (C,), scaled to a mean of 1 over the training data; None without `class_weights`.

        Raises RecipeFault if `class_weights` names an unknown class.
        """
        if self.class_weights is None:
            return None
        counts = torch.tensor(labels.counts, dtype=torch.float64)
        if isinstance(self.class_weights, dict):
            if unknown := self._unknown_weights(labels.names):
                raise RecipeFault(f"objective.class_weights: {no_such_class(unknown[0], labels.names)}")
            weights = torch.tensor([self.class_weights.get(name, 1.0) for name in labels.names], dtype=torch.float64)
        else:
            weights = 1.0 / counts.clamp(min=1)
        return (weights * counts.sum() / (weights * counts).sum()).float()


def class_loss(weights: Tensor | None, smoothing: float) -> Loss:
    """Cross-entropy in nats; class weights (C,) and label smoothing apply in training only."""

    def loss(outputs: Tensor, labels: Tensor, training: bool) -> Tensor:
        if not training:
            return F.cross_entropy(outputs, labels, reduction="sum")
        if weights is None:
            return F.cross_entropy(outputs, labels, reduction="sum", label_smoothing=smoothing)
        # Not F.cross_entropy(weight=...), which also weights the smoothing term by class.
        losses = F.cross_entropy(outputs, labels, reduction="none", label_smoothing=smoothing)
        return (losses * weights.to(losses)[labels]).sum()  # a dot product would be autocast to half precision

    return loss
