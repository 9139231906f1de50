"""A trained model out of a run folder: recipe, tokenizer and weights, ready to be used."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor, nn

from mini_tf.data.labels import Labels
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.nn.model import Model
from mini_tf.nn.weights import objective_network
from mini_tf.nn.weights.lora import adapt, merged_weights
from mini_tf.objectives import Objective
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import Runtime
from mini_tf.run import finding, loading, manifest
from mini_tf.run.checkpoint import MODEL
from mini_tf.run.kind_sources import read_recipe
from mini_tf.run.tensors import specs
from mini_tf.system.errors import DataFault, RecipeFault, RunFault, UsageFault
from mini_tf.system.plain_file import read_small_file
from mini_tf.trained import averaging
from mini_tf.trained.architecture import Architecture, vocabulary_sizes
from mini_tf.training.machine.device import Setup, settle

FORMAT = 1
SOURCE_TOKENIZER = "source_tokenizer.json"
"""The file of a run whose pairs have a vocabulary of their own for the source side."""


@dataclass(frozen=True)
class Loaded:
    """A run's model in memory, and what it was trained with; auto: what the run found out at its first start.

    source_tokenizer: of what a model of pairs reads; the same as `tokenizer` where there is one vocabulary. labels: of a task, its
    answers; objective: what was asked.
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
    """The checkpoint that has the objective's own network; of averaged ones the newest."""


@dataclass(frozen=True)
class Trained(Loaded):
    """A run, opened to be used: `model` is in eval on the device of `setup`."""

    setup: Setup

    def task(self) -> nn.Module:
        """The objective on this model, in eval. RunFault where it has a network of its own and no checkpoint keeps that any more."""
        task = self.objective.task(self.model).to(self.setup.device)
        own = loading.load_objective(self.folder, self.step, specs(objective_network.own_tensors(self.model, task)))
        objective_network.load_own(self.model, task, own)
        return task.eval()


def write_config(recipe: Recipe, sizes: tuple[int, int | None], labels: Labels | None = None, whole: Iterable[str] | None = None) -> str:
    """config.json: what resolved.yaml does not say, but the model is built with.

    sizes: of the vocabulary, and of the source side's own. whole: beside an adapter, the parameters that learn as a whole.
    """
    vocabulary_size, source_vocabulary_size = sizes
    config: dict[str, Any] = {"minitf_format": FORMAT, "vocabulary_size": vocabulary_size, "context": recipe.train.context}
    if labels is not None:
        config["labels"] = labels.to_json()
    if source_vocabulary_size is not None:
        config["source_vocabulary_size"] = source_vocabulary_size
    if whole is not None:
        config["whole"] = list(whole)
    return json.dumps(config, indent=1) + "\n"


def open_trained(run: str | Path, step: int | str | None = None, device: str = "auto", average: int | str | None = None) -> Trained:
    """`load_trained`, ready to compute: in eval, in the run's own precision where the device is of the same kind."""
    folder = finding.find(run)
    setup = _setup(device, manifest.read(folder).auto)  # before the weights, whose loading may take long
    setup.apply()
    loaded = load_trained(folder, step, average)
    loaded.model.to(setup.device).eval()
    return Trained(**vars(loaded), setup=setup)


def load_trained(run: str | Path, step: int | str | None = None, average: int | str | None = None) -> Loaded:
    """The model of a run (a folder, a name, `last`), on the CPU; `step` N, `best` or `last`, None = model.safetensors.

    average: instead of one step the mean of the last N checkpoints that are kept, or of the `best`. What torch is set to stays.
    """
    if step is not None and average is not None:
        raise UsageFault(f"--step {step} is one checkpoint, --average {average} the mean of several", hint="leave out one of them")
    folder = finding.find(run)
    record = manifest.read(folder)
    if record.model is None and finding.seed_folder(folder).is_dir():
        hint = f"the command that began it continues it; {finding.seed_folder(folder)} is a run of its own"
        raise RunFault(f"{folder} has no model yet: not all of its seeds are trained", hint=hint, where=[str(folder)])
    recipe, tokenizer, source_tokenizer = read_made_with(folder)
    config = _read_config(folder / "config.json", vocabulary_sizes(tokenizer, source_tokenizer))
    labels = _read_labels(folder / "config.json", config, recipe)
    architecture = Architecture.of(recipe, tokenizer, source_tokenizer, labels, config["context"])
    meta, adapter = architecture.on_meta(), recipe.adapter
    if adapter is not None and adapter.merge and step is None and average is None and (folder / MODEL).exists():
        adapter = None  # it is in the weights already
    if adapter is not None:
        try:
            adapt(meta, adapter, _whole(folder / "config.json", config))
        except RecipeFault as error:
            raise RunFault(f"{folder} is damaged: {error.message}", where=[str(folder)]) from error
    expected = specs(meta.weights())  # what does not fit is refused before memory is taken for it

    def plain(weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return weights if adapter is None else merged_weights(weights, adapter)

    of: int | str = "best" if step is None else step
    if average is not None:
        weights = averaging.average(folder, average, expected, plain, [name for name, _ in meta.named_buffers()])
        of = max(averaging.steps_of(folder, average))
    else:
        weights = plain(loading.load_model(folder, step, expected))
        of = int(record.model["step"]) if step is None and record.model is not None else of
    model = architecture.build()
    model.load_weights(weights)
    return Loaded(folder, recipe, tokenizer, source_tokenizer, model, record.auto, labels, architecture.objective, of)


def _whole(path: Path, config: dict[str, Any]) -> list[str]:
    whole = config.get("whole")
    if not isinstance(whole, list) or not all(isinstance(name, str) for name in whole):
        raise RunFault(f"{path}: does not say what learnt beside the adapter", where=[str(path)])
    return whole


def read_whole(folder: Path) -> list[str]:
    """What learns as a whole beside the adapter of a run. RunFault where its config.json does not say."""
    path = folder / "config.json"
    return _whole(path, _read_config(path))


def _read_labels(path: Path, config: dict[str, Any], recipe: Recipe) -> Labels | None:
    """The answers of a task; RunFault where it has none."""
    try:
        labels: Labels | None = recipe.objective.dataset().read_labels(config)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        what = "there are no labels" if isinstance(error, KeyError) else str(error)
        raise RunFault(f"{path}: not a config.json of this run: {what}", where=[str(path)]) from error
    return labels


def read_made_with(folder: Path) -> tuple[Recipe, Tokenizer, Tokenizer]:
    """Recipe, tokenizer and that of the source side (the same where there is no other) that a run was made with.

    RunFault where they are damaged, for here they are files of the run, not what somebody wrote; and where a kind is not here.
    """
    recipe = read_recipe(folder)
    try:
        tokenizer = Tokenizer.load(folder)
        return recipe, tokenizer, tokenizer if recipe.tokenizer.source is None else Tokenizer.load(folder / SOURCE_TOKENIZER)
    except DataFault as error:
        raise RunFault(f"{folder} is damaged: {error.message}", where=error.where) from error


def _setup(device: str, auto: dict[str, Any]) -> Setup:
    try:
        runtime = Runtime(device=device, compile=False)
    except ValidationError as error:
        raise UsageFault(f"--device {device!r}: must be auto, cpu, cuda, cuda:N or mps") from error
    setup = settle(runtime, device_key="--device")
    if setup.device.type == str(auto.get("device")).partition(":")[0]:
        setup = settle(runtime, {"precision": auto.get("precision", "fp32")})
    return setup


def _read_config(path: Path, sizes: tuple[int | None, int | None] = (None, None)) -> dict[str, Any]:
    """sizes: of the vocabulary and of the source side's own, which the file must say too; None: it need not."""
    try:
        config = json.loads(read_small_file(path))
        if not isinstance(config, dict):
            raise ValueError("it is not an object of JSON")
        written, context = config["minitf_format"], config["context"]
        if written > FORMAT:
            raise RunFault(f"{path}: written by a newer minitf (format {str(written)[:20]}; this one reads {FORMAT})")
        for name, size in zip(("vocabulary_size", "source_vocabulary_size"), sizes, strict=True):
            if size is not None and config[name] != size:
                raise ValueError(f"{name} {str(config[name])[:40]} is not the tokenizer's {size}")
        if not isinstance(context, int) or not 0 < context <= 2**20:
            raise ValueError(f"context {str(context)[:40]} must be a whole number up to {2**20}")
    except FileNotFoundError as error:
        raise RunFault(f"{path}: there is no such file", hint="the run never began training", where=[str(path)]) from error
    except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise RunFault(f"{path}: not a config.json of minitf: {what}", where=[str(path)]) from error
    return dict(config)
