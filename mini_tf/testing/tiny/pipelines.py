"""A pipeline with a tiny model, untrained or overfitted, and rows of its objective's dataset."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from mini_tf.data.store import Store
from mini_tf.data.tokenized import open_data
from mini_tf.nn.model import Model
from mini_tf.pipelines import GenerateOptions, Output, Pipeline, pipeline_of
from mini_tf.recipe.kind_settings.objectives import ObjectiveSettings
from mini_tf.recipe.kinds import kinds_of
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import Data, Generate, Runtime, Train
from mini_tf.run import manifest
from mini_tf.run.disk import Disk
from mini_tf.system.errors import DataFault
from mini_tf.testing.tiny.datasets import DatasetFixture
from mini_tf.testing.tiny.mixers import set_dropout
from mini_tf.trained.architecture import Architecture
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import pack
from mini_tf.training.machine.device import resolve_setup

MOST_STEPS, SMALL_LOSS, SMALL_ERROR = 400, 0.01, 0.002
"""The end of training of an overfitted model: of classes at a log-loss, of other labels at an error."""
FEW: dict[str, Any] = {"max_new_tokens": 4, "min_new_tokens": 0, "temperature": 0.0, "num_beams": 2}


class _Untrained(Trained):
    """A model without checkpoints: modules of the objective are initialized from a seed."""

    def task(self) -> nn.Module:
        torch.manual_seed(0)
        return self.objective.task(self.model).eval()


@dataclass(frozen=True)
class _Overfitted(Trained):
    """A model with its trained task, which is in no checkpoint."""

    tasks: list[nn.Module] = field(default_factory=list)

    def task(self) -> nn.Module:
        return self.tasks[-1]


@dataclass(frozen=True, eq=False)
class PipelineFixture:
    """A pipeline on an untrained model."""

    objective: ObjectiveSettings
    data: DatasetFixture
    prompts: Sequence[str]

    @property
    def settings(self) -> Any:
        return self.objective.pipeline()

    @cached_property
    def trained(self) -> Trained:
        models: Any = kinds_of("models")
        settings = next(kind for kind in models.values() if self.objective.direction(kind))
        model = settings(d_model=16, n_layers=1, n_heads=2)
        recipe = Recipe.model_construct(
            **{
                name: field.get_default(call_default_factory=True)
                for name, field in Recipe.model_fields.items()
                if not field.is_required()
            }
        )
        sections = {
            "data": Data(train=self.data.file(self.data.rows)),
            "train": Train(steps=1, context=128),
            "generate": Generate(**FEW),
        }
        recipe = recipe.model_copy(update={"model": model, "objective": self.objective, **sections})
        used, labels = self.data.used, self.data.labels
        architecture = Architecture.of(recipe, used.target, used.source, labels)
        setup = resolve_setup(Runtime(device="cpu", compile=False))
        model = architecture.initialize(0).eval()
        with suppress(DataFault):  # a pipeline may read the data of its run
            hashes = open_data(recipe.data, recipe.tokenizer, self.objective, tokenizers=used).hashes
            manifest.write(self.data.folder, manifest.Manifest(hashes=hashes), Disk())
        return _Untrained(
            self.data.folder, recipe, used.target, used.source, model, {}, labels, architecture.objective, 0, setup
        )

    def overfitted(self, store: Store) -> Trained:
        """The model after training on all rows of the store, until its loss is small."""
        untrained = self.trained
        model = self.initialized(1)
        trained = _Overfitted(**vars(replace(untrained, model=model)))
        packing = pack(trained.recipe, store, trained.tokenizer, trained.objective)
        [rows] = packing.eval_rows(packing.n_rows)
        batch = trained.objective.prepare(rows)
        task = untrained.objective.task(model)
        weights = trained.objective.weights
        set_dropout(task, 0.0)
        optimizer = torch.optim.AdamW(task.train().parameters(), lr=1e-2, weight_decay=0.0)
        small = SMALL_LOSS if trained.labels is not None and trained.labels.names else SMALL_ERROR
        for _ in range(MOST_STEPS):
            parts = task(batch, None).parts
            loss = torch.stack(
                [part * weights.get(name, 1.0) / batch.counts[name] for name, part in parts.items()]
            ).sum()
            if loss < small:
                break
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        trained.tasks.append(task.eval())
        return trained

    def initialized(self, seed: int) -> Model:
        """Another model of this architecture."""
        trained = self.trained
        architecture = Architecture.of(trained.recipe, trained.tokenizer, trained.source_tokenizer, trained.labels)
        return architecture.initialize(seed).eval()

    @property
    def pipeline(self) -> Pipeline:
        return pipeline_of(self.trained)

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = (), **options: Any) -> list[Output]:
        return [*self.pipeline.generator(GenerateOptions({"batch_size": 3}, 128, **options)).outputs(prompts, places)]
