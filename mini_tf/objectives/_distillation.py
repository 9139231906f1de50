"""Knowledge distillation: a model also learns from the output distribution of a trained one, its teacher.

Loss: (1 - w) cross-entropy with the labels + w T^2 KL(p_teacher || p) of both distributions at the temperature T, in
training only; evaluation has the loss of the labels. The teacher is no part of the task: it is neither trained nor
saved, and its FLOPs are not counted. Time: its forward pass, and the output layer of the model once more. Source:
Hinton et al. 2015, arXiv:1503.02531, section 2; for language models: Sanh et al. 2019, arXiv:1910.01108.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mini_tf.data.batch import Batch
from mini_tf.nn.layers.cross_entropy import IGNORED, chunks_on
from mini_tf.nn.model import Model
from mini_tf.objectives import ObjectiveSettings
from mini_tf.recipe.data import NonEmptyText
from mini_tf.recipe.kind_settings import ModelSettings
from mini_tf.recipe.kinds import Rule, Rules
from mini_tf.recipe.sections import Train


class TeacherSettings(ObjectiveSettings):
    """Settings of objectives with a teacher."""

    TRAINING_KEYS = frozenset({"teacher", "teacher_weight", "teacher_temperature"})

    teacher: NonEmptyText | None = None
    """Run or Hugging Face folder whose output distributions the model also learns; with the same tokenizer."""
    teacher_weight: float = Field(0.5, gt=0, le=1)
    """Weight of the teacher in the training loss; that of the labels is 1 - teacher_weight."""
    teacher_temperature: float = Field(1.0, gt=0, le=100)
    """Temperature of both distributions, above 1 for more weight on improbable outputs."""

    @property
    def teacher_run(self) -> str | None:
        return self.teacher

    def rules(self) -> Rules:
        yield from super().rules()
        if self.teacher == "last":
            yield "teacher", "last changes with every run; give a run folder or its name in outputs"

    def rules_with(self, model: ModelSettings, train: Train) -> Rules:
        yield from super().rules_with(model, train)
        if self.teacher is not None and train.stream:
            yield Rule("objective.teacher", "a teacher has no state of a stream; use train.stream: false", ("train",))


@dataclass(frozen=True, eq=False)
class Distillation:
    """teacher: its task in eval mode, which has no state of training and no gradients."""

    teacher: nn.Module
    weight: float
    temperature: float

    @classmethod
    def of(cls, settings: TeacherSettings, teacher: nn.Module | None, model: Model) -> "Distillation | None":
        """That of a model's task; None without a teacher, and on the meta device, which counts the model's FLOPs."""
        if teacher is None or next(model.parameters()).is_meta:
            return None
        return cls(teacher, settings.teacher_weight, settings.teacher_temperature)

    def of_rows(self, loss: Float[Tensor, ""], outputs: Float[Tensor, "T C"], batch: Batch) -> Float[Tensor, ""]:
        """The loss of outputs with that of their labels, summed over the T targets."""
        with torch.no_grad():
            of_teacher = self.teacher(batch, None).outputs
        return (1 - self.weight) * loss + self.weight * self._divergence(outputs, of_teacher).sum()

    def of_tokens(self, model: Model, hidden: Float[Tensor, "T D"], batch: Batch) -> Float[Tensor, ""]:
        """The loss of hidden states, in chunks whose logits are computed again in the backward pass."""
        predictor: Any = self.teacher.token_predictor()  # type: ignore[operator]
        with torch.no_grad():
            theirs = predictor(batch.inputs, batch.source, batch.target_positions, None).y.reshape(len(hidden), -1)

        def of_chunk(part: Tensor, of_teacher: Tensor, labels: Int[Tensor, " T"]) -> Tensor:
            logits = model.logits(part).float()
            with torch.no_grad():
                target = predictor.logits(of_teacher).float()
            divergence = self._divergence(logits, target) * (labels != IGNORED)
            loss = F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)
            return (1 - self.weight) * loss + self.weight * divergence.sum()

        total = hidden.new_zeros((), dtype=torch.float32)
        vocabulary_size: Any = model.head.linear.out_features  # type: ignore[union-attr]
        for part in chunks_on(hidden.device.type, len(hidden), vocabulary_size):
            chunk = hidden[part], theirs[part], batch.labels[part]
            total = total + checkpoint(of_chunk, *chunk, use_reentrant=False, preserve_rng_state=False)
        return total

    def _divergence(self, logits: Float[Tensor, "T C"], of_teacher: Float[Tensor, "T C"]) -> Float[Tensor, " T"]:
        """T^2 KL(p_teacher || p) in nats; T^2 keeps the gradient's size at any temperature."""
        log_p, log_q = (each.float().div(self.temperature).log_softmax(-1) for each in (of_teacher, logits))
        return self.temperature**2 * F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)
