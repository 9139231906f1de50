"""Loads a trained model from a run folder: recipe, tokenizers, weights and device setup."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mini_tf.data.datasets import TokenizedData
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import Roles
from mini_tf.nn import objective_network
from mini_tf.nn.lora import adapt, merged_weights
from mini_tf.nn.model import Model
from mini_tf.objectives import Objective
from mini_tf.recipe.kind_settings.objectives import NATS_PER_TOKEN
from mini_tf.recipe.metrics import lower_is_better
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import Runtime
from mini_tf.run import finding, loading, manifest
from mini_tf.run.checkpoint import MODEL, Checkpoints
from mini_tf.run.folder import Run
from mini_tf.run.identity import read_recipe
from mini_tf.run.manifest import Decision
from mini_tf.run.tensors import check_weights, specs
from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, RecipeFault, RunFault, UsageFault, reason_of
from mini_tf.system.safe_files import read_small_file
from mini_tf.trained.architecture import Architecture, vocabulary_sizes
from mini_tf.training.machine.device import Setup, resolve_setup

FORMAT = 1
SOURCE_TOKENIZER = "source_tokenizer.json"
"""File in the run folder of an encoder-decoder whose source has its own vocabulary."""

UNLIMITED = 2**20
"""Context of models whose state needs no more memory for a longer text."""


@dataclass(frozen=True)
class LoadedModel:
    """A run's model on the CPU, and the recipe, tokenizers, labels and objective of its training.

    source_tokenizer: `tokenizer` itself if the vocabulary is shared. auto: machine settings of the run's first start.
    labels: None if the objective has none.
    """

    folder: Path
    recipe: Recipe
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer
    model: Model
    auto: dict[str, Any]
    labels: Labels | None
    objective: Objective
    step: int | str
    """The checkpoint that holds the objective's own network; of averaged checkpoints the newest."""
    decision: Decision | None = field(default=None, kw_only=True)
    """How labels follow from outputs, if it was fitted for these weights."""


@dataclass(frozen=True)
class Trained(LoadedModel):
    """A loaded model, ready for inference: `model` is in eval mode on the device of `setup`.

    objective_weights: tensors of the objective's own network; None: those of the checkpoint. members: of an ensemble,
    the models of all runs, whose predictions are averaged; `model` is that of the median run.
    """

    setup: Setup
    objective_weights: Mapping[str, Tensor] | None = None
    members: tuple["Trained", ...] = ()

    @property
    def generation_context(self) -> int:
        """Context of generation, if none is given: that of training, and in a stream what came before a row, too."""
        if not self.recipe.train.stream:
            return self.model.context
        memories = [mixer.memory_length for mixer in self.model.mixers()]
        return min((self.model.context + tokens for tokens in memories if tokens is not None), default=UNLIMITED)

    def task(self) -> nn.Module:
        """The objective with this model, in eval mode. RunFault if no checkpoint holds its own network."""
        task = self.objective.task(self.model).to(self.setup.device)
        objective_weights = self.objective_weights
        if objective_weights is None:
            expected = specs(objective_network.objective_tensors(self.model, task))
            objective_weights = loading.load_objective(self.folder, self.step, expected)
        objective_network.load_objective(self.model, task, objective_weights)
        return task.eval()


def write_model_files(
    run: Run,
    recipe: Recipe,
    model: Model,
    data: TokenizedData | LoadedModel,
    fully_trainable: Sequence[str] | None = None,
) -> None:
    """Write config.json, the tokenizers and the model's facts in run.json into the run folder.

    config.json has what is needed to build the model and is not in resolved.yaml. data: supplies tokenizers and labels.
    fully_trainable: parameters trained directly, beside an adapter.
    """
    vocabulary_size, source_vocabulary_size = vocabulary_sizes(data.tokenizer, data.source_tokenizer)
    config: dict[str, Any] = {
        "minitf_format": FORMAT,
        "vocabulary_size": vocabulary_size,
        "context": recipe.train.context,
    }
    if data.labels is not None:
        config["labels"] = data.labels.to_json()
    if source_vocabulary_size is not None:
        config["source_vocabulary_size"] = source_vocabulary_size
    if fully_trainable is not None:
        config["whole"] = list(fully_trainable)
    run.write("config.json", json.dumps(config, indent=1) + "\n")
    run.write("tokenizer.json", data.tokenizer.to_json())
    if data.source_tokenizer is not data.tokenizer:
        run.write(SOURCE_TOKENIZER, data.source_tokenizer.to_json())
    objective = recipe.objective
    pipeline = objective.pipeline()
    unit = f"nats per {data.tokenizer.unit}" if objective.LOSS_UNIT == NATS_PER_TOKEN else objective.LOSS_UNIT
    metrics = [] if pipeline is None else [f"val.{name}" for name in pipeline.MAIN_METRICS]
    parameters = sum(p.numel() for p in model.parameters())
    run.update(parameters=parameters, loss_unit=unit, figures=metrics, lower_is_better=[*lower_is_better(objective)])


def open_trained(
    run: str | Path, step: int | str | None = None, device: str = "auto", average: int | str | None = None
) -> Trained:
    """`load_trained`, in eval mode on `device`, in the run's own precision if the device type is the same."""
    folder = finding.find(run)
    setup = _setup(device, manifest.read(folder).auto)  # before the weights, which may take long to load
    return ready(load_trained(folder, step, average), setup)


def ready(
    loaded: LoadedModel, device: str | Setup = "auto", objective_weights: Mapping[str, Tensor] | None = None
) -> Trained:
    """A loaded model in eval mode on a device, or as a setup has it. objective_weights: as in `Trained`."""
    setup = _setup(device, loaded.auto) if isinstance(device, str) else device
    setup.apply()
    loaded.model.to(setup.device).eval()
    return Trained(**vars(loaded), setup=setup, objective_weights=objective_weights)


def load_trained(run: str | Path, step: int | str | None = None, average: int | str | None = None) -> LoadedModel:
    """The model of a run (a folder, a name, `last`), on the CPU; an adapter is merged into it.

    step: N, `best` or `last`; None: model.safetensors. average: in place of `step`, the mean of the last N checkpoints
    or of the `best`. Leaves torch's global settings unchanged.
    """
    if step is not None and average is not None:
        raise UsageFault(f"--step {step} and --average {average} exclude each other", hint="remove one of them")
    folder = finding.find(run)
    record = manifest.read(folder)
    if record.model is None and (members := finding.member_folders(folder)):
        hint = f"the same command continues it; {members[0]} is one of its runs"
        raise RunFault(f"{folder} has no model yet: not all of its runs are trained", hint=hint, where=[str(folder)])
    recipe, tokenizer, source_tokenizer = read_recipe_and_tokenizers(folder)
    if (source := finding.model_folder(folder)) != folder:
        recipe = read_recipe(source)
    config = _read_config(folder / "config.json", vocabulary_sizes(tokenizer, source_tokenizer))
    labels = _read_labels(folder / "config.json", config, recipe)
    architecture = Architecture.of(recipe, tokenizer, source_tokenizer, labels, config["context"])
    meta, adapter = architecture.on_meta(), recipe.adapter
    if adapter is not None and adapter.merge and step is None and average is None and (folder / MODEL).exists():
        adapter = None  # already merged into the weights
    if adapter is not None:
        try:
            adapt(meta, adapter, _fully_trainable(folder / "config.json", config))
        except RecipeFault as error:
            raise RunFault(f"{folder} is damaged: {error.message}", where=[str(folder)]) from error
    expected = specs(meta.weights())  # mismatches are refused before memory is allocated

    def merge(weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return weights if adapter is None else merged_weights(weights, adapter)

    used_step: int | str = "best" if step is None else step
    if average is not None:
        weights = loading.average(folder, average, expected, merge, [name for name, _ in meta.named_buffers()])
        used_step = max(loading.steps_of(folder, average))
    else:
        weights = merge(loading.load_model(folder, step, expected))
        if step is None and record.model is not None:
            used_step = int(record.model["step"])
    check_weights(weights, folder)  # the mean of checkpoints and the sum with an adapter, too
    model = architecture.build()
    model.load_weights(weights)
    decision = record.decision if average is None and _is_published(folder, record, step) else None
    sides, objective = (tokenizer, source_tokenizer), architecture.objective
    return LoadedModel(folder, recipe, *sides, model, record.auto, labels, objective, used_step, decision=decision)


def _is_published(folder: Path, record: manifest.Manifest, step: int | str | None) -> bool:
    """Whether a checkpoint has the weights of model.safetensors. step: as in `load_trained`."""
    if step is None or record.model is None:
        return step is None
    return bool(Checkpoints.of(folder).find_verified(step).step == record.model["step"])


def _fully_trainable(path: Path, config: dict[str, Any]) -> list[str]:
    names = config.get("whole")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RunFault.located(str(path), "`whole`, the parameters trained beside the adapter, must be a list of names")
    return names


def read_fully_trainable(folder: Path) -> list[str]:
    """The parameters of a run trained directly, beside its adapter. RunFault if config.json does not list them."""
    path = folder / "config.json"
    return _fully_trainable(path, _read_config(path))


def _read_labels(path: Path, config: dict[str, Any], recipe: Recipe) -> Labels | None:
    """The labels of a task, None for objectives without; RunFault if they are missing."""
    try:
        labels: Labels | None = recipe.objective.dataset().read_labels(config)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        reason = "no labels" if isinstance(error, KeyError) else str(error)
        raise RunFault.located(str(path), f"not a config.json of this run: {reason}") from error
    return labels


def read_recipe_and_tokenizers(folder: Path) -> tuple[Recipe, Tokenizer, Tokenizer]:
    """A run's recipe, tokenizer and source tokenizer (`tokenizer` itself if the vocabulary is shared).

    RunFault if one is damaged (not DataFault: they are files of the run) or a kind of the recipe is not installed.
    """
    recipe = read_recipe(folder)
    try:
        target, source = recipe.tokenizer, recipe.tokenizer.source
        keeps_template = manifest.read(folder).step == 0  # of a model that was imported and not trained
        tokenizer, *others = (
            Tokenizer.load(path, Roles.of(settings, keeps_template))
            for path, settings in ((folder, target), (folder / SOURCE_TOKENIZER, source))
            if settings is not None
        )
        return recipe, tokenizer, others[0] if others else tokenizer
    except DataFault as error:
        raise RunFault(f"{folder} is damaged: {error.message}", where=error.where) from error


def _setup(device: str, auto: dict[str, Any]) -> Setup:
    runtime = Runtime.on(device)
    setup = resolve_setup(runtime, device_key="--device")
    if setup.device.type == str(auto.get("device")).partition(":")[0]:
        setup = resolve_setup(runtime, {"precision": auto.get("precision", "fp32")})
    return setup


def _read_config(path: Path, sizes: tuple[int | None, int | None] = (None, None)) -> dict[str, Any]:
    """config.json as a dict; sizes: of vocabulary and source vocabulary, which the file must match unless None."""
    try:
        config = strict_json.read(read_small_file(path))
        if not isinstance(config, dict):
            raise ValueError("it is not a JSON object")
        context = config["context"]
        manifest.check_format(path, config["minitf_format"], FORMAT)
        for name, size in zip(("vocabulary_size", "source_vocabulary_size"), sizes, strict=True):
            if size is not None and config[name] != size:
                raise ValueError(f"{name} {str(config[name])[:40]} differs from the tokenizer's {size}")
        if not isinstance(context, int) or not 0 < context <= 2**20:
            raise ValueError(f"context {str(context)[:40]} must be an integer from 1 to {2**20}")
    except FileNotFoundError as error:
        raise RunFault.located(str(path), "file not found", hint="the run has not started training") from error
    except (ValueError, KeyError, TypeError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else reason_of(error)
        raise RunFault.located(str(path), f"not a config.json of minitf: {reason}") from error
    return dict(config)
