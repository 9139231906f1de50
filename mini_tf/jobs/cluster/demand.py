"""What a step of a recipe demands, for `minitf plan`: FLOPs and bytes, from shapes alone.

The numbers are those of `minitf cost`, on tensors without data: a model of any size is counted on any machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from mini_tf.data.datasets import TokenizedData
from mini_tf.jobs.assembling import fully_trainable, load_data, restrict_trainable
from mini_tf.jobs.cost.steps import MemoryUse, largest_micro_batch, median_step, memory_with
from mini_tf.jobs.parts import Parts, training_of
from mini_tf.jobs.session import Reporter
from mini_tf.nn.weights.meta_model import without_data
from mini_tf.recipe.recipe import Recipe
from mini_tf.system.errors import RecipeFault
from mini_tf.trained.architecture import Architecture
from mini_tf.training.loop import Training
from mini_tf.training.machine.device import Setup
from mini_tf.training.optimizer import build as build_optimizer

ASSUMED_PRECISION = "bf16"
"""In place of `auto`: what minitf takes on a GPU that has it."""


@dataclass(frozen=True)
class Demand:
    """One step on the global batch, and the length of the run.

    micro_batch_size: in rows; micro_batches: number of them in a step. memory: as of one device that holds everything.
    gathered: bytes of parameters and gradients that a device holds whole at the same time when both are sharded.
    sizes: numbers of each
    trained parameter. steps: None if the recipe gives a time.
    """

    precision: str
    parameters: int
    flops: int
    tokens: int
    batch_size: int
    micro_batch_size: int
    micro_batches: int
    memory: MemoryUse
    gathered: int
    sizes: Mapping[str, int]
    steps: int | None


def demand_of(recipe: Recipe, reporter: Reporter, vocabulary: int | None = None) -> Demand:
    """Open the data, which decide vocabulary and rows, and count. vocabulary: another size of the target vocabulary.

    Raises RecipeFault for a model or an objective whose cost depends on more than shapes.
    """
    parts, training, mode = _without_data(recipe, load_data(recipe, reporter), vocabulary)
    largest, batches = largest_micro_batch(training.feed), training.feed.micro_batches(median_step(training))
    flops = parts.formula_flops(vocabulary or parts.tokenizer.vocabulary.size)
    if flops is None:
        raise _not_planned(f"objective.kind: {recipe.objective.kind}: no formula is known for the FLOPs of this recipe")
    try:
        with mode:
            memory = memory_with(parts, training.optimizer, largest)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise _not_planned(f"model.kind: {recipe.model.kind}: shapes inside this model depend on the data") from error
    return Demand(
        precision=parts.setup.precision,
        parameters=sum(p.numel() for p in parts.trainable.parameters()),
        flops=flops,
        tokens=sum(batch.counts["tokens"] for batch in batches),
        batch_size=parts.plan.batch_size,
        micro_batch_size=parts.setup.micro_batch_size,
        micro_batches=len(batches),
        memory=memory,
        gathered=_gathered(parts),
        sizes={name: p.numel() for name, p in parts.trainable.named_parameters() if p.requires_grad},
        steps=parts.schedule.horizon.steps,
    )


def _without_data(recipe: Recipe, data: TokenizedData, vocabulary: int | None) -> tuple[Parts, Training, FakeTensorMode]:
    """Parts and training loop whose tensors have no data, and the mode in which they compute."""
    architecture = Architecture.of(recipe, data.tokenizer, data.source_tokenizer, data.labels)
    if vocabulary is not None:
        architecture = replace(architecture, vocabulary_size=vocabulary)
    objective, runtime, rows = architecture.objective, recipe.runtime, recipe.train.micro_batch_size
    precision = ASSUMED_PRECISION if runtime.precision == "auto" else runtime.precision
    setup = Setup(torch.device("cpu"), precision, micro_batch_size=1 if rows == "auto" else rows)

    def build() -> tuple[Parts, Training]:
        model = architecture.build()
        full = None if recipe.adapter is None else fully_trainable(model, recipe.objective.predicts_tokens, None)
        restrict_trainable(model, recipe, full)
        parts = Parts(recipe, data, objective, setup, model, objective.task(model), None, full)
        return parts, training_of(parts, (), build_optimizer(recipe.optimizer, parts.trainable, setup.compute_dtype))

    (parts, training), mode = without_data(build)
    return parts, training, mode


def _not_planned(reason: str) -> RecipeFault:
    return RecipeFault(reason, hint="`minitf cost` measures it on this machine")


def _gathered(parts: Parts) -> int:
    """The largest block, and all that is outside of blocks, such as embeddings and head."""

    def size(module: nn.Module) -> int:
        return sum(p.numel() * p.element_size() * (1 + p.requires_grad) for p in module.parameters())

    blocks = [size(block) for stack in parts.model.stacks() for block in stack.stack.blocks]
    return size(parts.trainable) - sum(blocks) + max(blocks, default=0)
