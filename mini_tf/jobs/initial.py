"""Initialization of a model from a run or a Hugging Face folder: matches tensors, refuses incompatible settings."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mini_tf.data.datasets import TokenizedData
from mini_tf.data.tokenization.extension import pieces_of_new
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.hf.model_folder import is_foreign, open_foreign, weights_hash
from mini_tf.nn.model import Model
from mini_tf.nn.weights import with_new_rows
from mini_tf.recipe.recipe import Recipe
from mini_tf.run import finding, manifest
from mini_tf.system.errors import RecipeFault, RunFault
from mini_tf.trained.opening import SOURCE_TOKENIZER, LoadedModel, load_trained, ready

_TOKENIZER = "tokenizer.json"
_FREE = ("n_types",)
"""Model keys that may differ beside TRAINING_KEYS: only shapes depend on them."""


@dataclass(frozen=True)
class LoadedTensors:
    """Names of the tensors loaded from a run, of the model's new tensors, and of the run's unused tensors.

    warning: on layers whose attention direction changes, and on texts that are framed in another way, or "".
    """

    run: str
    loaded: tuple[str, ...]
    new: tuple[str, ...]
    unused: tuple[str, ...]
    warning: str = ""

    def describe(self) -> str:
        """One line with counts and the first names."""
        others = {"new": self.new, "unused": self.unused}
        parts = [f"{len(names)} {word} ({shorten(names)})" for word, names in others.items() if names]
        return f"initialized from {self.run}: {', '.join([f'{len(self.loaded)} tensors loaded', *parts])}"

    def list_names(self) -> Iterator[str]:
        """All names: one line each for loaded, new and unused."""
        for word, names in (("loaded", self.loaded), ("new", self.new), ("unused", self.unused)):
            yield f"{word}: {', '.join(names) or 'none'}"


@dataclass(frozen=True)
class Initialization:
    """The tensors to load, by their names in the new model, and the report on them."""

    report: LoadedTensors
    weights: Mapping[str, Tensor]

    @torch.no_grad()
    def load_into(self, model: Model) -> None:
        """Copy the tensors into the model; new tensors keep their random initialization."""
        weights = model.weights()
        for name, tensor in self.weights.items():
            weights[name].copy_(tensor)


def init_hash(recipe: Recipe, run_folder: Path | None = None) -> dict[str, str]:
    """{"init": sha256 of the weights of model.init_from, "teacher": of objective.teacher}, as far as they are named.

    run_folder: the new run's own folder, if any; it supplies a hash if a named run no longer exists. RunFault if that
    run has no model. The hashes are a part of the run's identity.
    """
    return {name: _weights_hash(key, path, name, run_folder) for name, (key, path) in _named(recipe).items()}


def _named(recipe: Recipe) -> dict[str, tuple[str, str]]:
    """The key and the path of each trained model that the recipe names."""
    init, teacher = recipe.model.init_from, recipe.objective.teacher_run
    named = {"init": ("model.init_from", init), "teacher": ("objective.teacher", teacher)}
    return {name: (key, path) for name, (key, path) in named.items() if path is not None}


def _weights_hash(key: str, path: str, name: str, run_folder: Path | None) -> str:
    if _is_missing(path):
        recorded = None
        if run_folder is not None and (run_folder / _TOKENIZER).is_file():
            recorded = manifest.read(run_folder).hashes.get(name)
        if recorded is None:
            raise _missing(key, path)
        return recorded
    if is_foreign(Path(path)):
        return weights_hash(Path(path))
    folder = finding.find(path)
    published = manifest.read(folder).model
    if published is None:
        raise RunFault(f"{key}: {folder} has no trained model yet", hint="train it first", where=[str(folder)])
    return str(published["sha256"])


def with_own_tokenizer(recipe: Recipe, run_folder: Path | None) -> Recipe:
    """The recipe, with the tokenizers saved in `run_folder` if the run of model.init_from no longer exists."""
    if run_folder is None or recipe.model.init_from is None or not _is_missing(recipe.model.init_from):
        return recipe
    settings = recipe.tokenizer
    source = settings.source and settings.source.model_copy(update={"path": str(run_folder / SOURCE_TOKENIZER)})
    tokenizer = settings.model_copy(update={"path": str(run_folder / _TOKENIZER), "source": source, "extend": None})
    return recipe.model_copy(update={"tokenizer": tokenizer})


def _is_missing(path: str) -> bool:
    return not any(os.path.lexists(place) for place in (path, finding.OUTPUTS / path))


def _missing(key: str, path: str) -> RunFault:
    if key == "model.init_from":  # which was there when the recipe was read, or named by a run
        hint = "-d FOLDER continues a run that was initialized from it"
        return RunFault(f"{key}: the run {path} no longer exists", hint=hint, where=[path])
    hint = f"{finding.closest_run(Path(path).name)}; hf:ORGANIZATION/NAME is a model of the hub"
    return RunFault(f"{key}: no such run: {path}", hint=hint, where=[path])


def refuse_changed(recipe: Recipe, hashes: Mapping[str, str]) -> None:
    """RunFault if the weights of a named model changed since `init_hash` was called: that run is training."""
    for name, (key, path) in _named(recipe).items():
        if _weights_hash(key, path, name, None) != hashes.get(name):
            hint = "wait until its training ends, then give the same command again"
            raise RunFault(f"{key}: {path} has just changed", hint=hint, where=[path])


def load_teacher(recipe: Recipe, data: TokenizedData, device: torch.device) -> nn.Module | None:
    """The task of the run of objective.teacher, in eval mode on the device; None if the recipe names none.

    RecipeFault if it has another tokenizer, predicts something else, or has a shorter context.
    """
    path = recipe.objective.teacher_run
    if path is None:
        return None
    trained = _load("objective.teacher", path)
    name, context = trained.folder.name, trained.model.context
    if trained.model.needs_source:
        raise RecipeFault(f"objective.teacher: {name} is an encoder-decoder", hint="give a model of one stack")
    if not data.tokenizer.vocabulary.has_tokens_of(trained.tokenizer.vocabulary):
        hint = trained.recipe.tokenizer.argument(path)
        raise RecipeFault(f"objective.teacher: {name} has another tokenizer", hint=hint)
    objective, model = trained.recipe.objective, trained.recipe.model
    direction = objective.direction(model), recipe.objective.direction(recipe.model)
    if not _same_head_outputs(recipe, trained, data) or ("tokens" in objective.PREDICTS and len({*direction}) > 1):
        fault = f"{name}, trained with {objective.kind}, does not predict what {recipe.objective.kind} predicts here"
        raise RecipeFault(f"objective.teacher: {fault}", hint="give a run of the same objective and labels")
    if context < recipe.train.context:
        fault = f"{name} has a context of {context} tokens, and train.context is {recipe.train.context}"
        raise RecipeFault(f"objective.teacher: {fault}", hint=f"train.context={context}")
    if (n_types := trained.model.n_types) > max(1, recipe.model.model_dump().get("n_types", 1)):
        raise RecipeFault(f"objective.teacher: {name} has model.n_types {n_types}", hint=f"model.n_types={n_types}")
    return ready(trained, str(device)).task()


def match_tensors(meta: Model, recipe: Recipe, data: TokenizedData) -> Initialization:
    """Match the tensors of the run of model.init_from to those of `meta`, the new model on the meta device.

    RecipeFault if tokenizer, settings or shapes differ from the run's, which would change the meaning of the tensors.
    """
    trained = _load("model.init_from", str(recipe.model.init_from))
    _refuse_incompatible(recipe, trained, data)
    available, weights = trained.model.weights(), meta.weights()
    head_fits = _same_head_outputs(recipe, trained, data)
    sources = {
        name: _source(name, meta.init_prefixes, available)
        for name in weights
        if not name.startswith("head.") or head_fits
    }
    loaded = {name: available[source] for name, source in sources.items() if source is not None}
    if pieces := pieces_of_new(trained.tokenizer, data.tokenizer):
        loaded |= with_new_rows(loaded, weights, trained.tokenizer.vocabulary.size, pieces)
    if not loaded:
        raise RecipeFault(f"model.init_from: {trained.folder.name} has no tensor that this model can load")
    for name, tensor in loaded.items():
        if tensor.shape != weights[name].shape:
            fault = f"{name} is {list(tensor.shape)} in {trained.folder.name}, but {list(weights[name].shape)} here"
            raise RecipeFault(f"model.init_from: {fault}", hint="leave the model's size keys out of the recipe")
    new = tuple(name for name in weights if name not in loaded)
    unused = tuple(name for name in available if name not in sources.values())
    warning = "; ".join(filter(None, (_direction_warning(recipe, trained), _framing_warning(trained))))
    return Initialization(LoadedTensors(trained.folder.name, tuple(loaded), new, unused, warning), loaded)


def _load(key: str, name: str) -> LoadedModel:
    """The model of a run, or of a Hugging Face folder whose tokenizer has all its ids."""
    if _is_missing(name):  # and the new run has no checkpoint to continue from
        raise _missing(key, name)
    path = Path(name)
    if not is_foreign(path):
        return load_trained(path)
    loaded = open_foreign(path).loaded(path)
    if Tokenizer.load(path).vocabulary.size < loaded.tokenizer.vocabulary.size:
        fault = f"{key}: the model in {path} has more ids than its tokenizer"
        raise RecipeFault(fault, hint=f"`minitf import {path}` adds them; begin with that run")
    return loaded


def _framing_warning(trained: LoadedModel) -> str:
    """A warning if an imported tokenizer puts several tokens before a text, of which training keeps one, else ""."""
    template = trained.source_tokenizer.vocabulary.template
    if template is None or len(template.before) < 2:
        return ""
    names = {id: name for name, id in trained.source_tokenizer.special_tokens.items()}
    before = " ".join(names.get(id, str(id)) for id in template.before)
    name = trained.folder.name
    return f"the tokenizer of {name} puts {before} before a text; training puts one token before it at most"


def _direction_warning(recipe: Recipe, trained: LoadedModel) -> str:
    """A warning if the attention direction of the layers changes, else ""."""
    model, other = recipe.model, trained.recipe.model
    if model.causal == other.causal:
        return ""
    direction = " or ".join(word for word in ("causal", "bidirectional") if word in model.DIRECTIONS)
    trained_direction = "causal" if other.causal else "bidirectional"
    return (
        f"the layers of {trained.folder.name} were trained with {trained_direction} attention, but attention in"
        f" {'the decoder' if model.SOURCE else 'this model'} is {direction}: they need further training"
    )


def _source(name: str, init_prefixes: Mapping[str, str], available: Mapping[str, Tensor]) -> str | None:
    """The name of the run's tensor for a tensor of the new model; init_prefixes: prefixes of names, new -> old."""
    if name in available:
        return name
    for prefix, replacement in init_prefixes.items():
        if name.startswith(prefix) and (other := replacement + name.removeprefix(prefix)) in available:
            return other
    return None


def _same_head_outputs(recipe: Recipe, trained: LoadedModel, data: TokenizedData) -> bool:
    """Whether both heads predict the same: tokens, the same classes, or numbers with the same mean and scale."""
    objective, other = recipe.objective, trained.recipe.objective
    if "tokens" in objective.PREDICTS & other.PREDICTS:
        return True
    both = (data.labels, trained.labels)
    outputs = {None if labels is None else (labels.names, labels.mean, labels.scale) for labels in both}
    return objective.kind == other.kind and "tokens" not in objective.PREDICTS ^ other.PREDICTS and len(outputs) == 1


def _refuse_incompatible(recipe: Recipe, trained: LoadedModel, data: TokenizedData) -> None:
    name = trained.folder.name
    for key in ("tokenizer", "source_tokenizer"):
        tokenizer, trained_tokenizer = getattr(data, key), getattr(trained, key)
        if tokenizer.hash != trained_tokenizer.hash and pieces_of_new(trained_tokenizer, tokenizer) is None:
            new, old = tokenizer.vocabulary, trained_tokenizer.vocabulary
            whose = f"{key.replace('_', ' ')} of {name}, the run of model.init_from"
            added = len(new.special_ids - old.special_ids)
            if added and new.size == old.size + added:  # for the objective; the run's embedding has no rows for them
                needs = f"needs {added} special tokens that the {whose}, does not have"
                raise RecipeFault(f"objective: {recipe.objective.kind} {needs}", hint="begin with a run that has them")
            raise RecipeFault(f"tokenizer: is not the {whose}", hint="leave that section out")
    model, other = recipe.model, trained.recipe.model
    if not model.can_init_from(other):
        fault = f"model.kind={model.kind} cannot be initialized from {name}, whose model.kind is {other.kind}"
        raise RecipeFault(f"model.init_from: {fault}", hint=f"model.kind={other.kind}")
    for key, *values in model.compare_with(other):
        contexts = (recipe.train.context, trained.recipe.train.context)
        value, trained_value = (_comparable(value, context) for value, context in zip(values, contexts, strict=True))
        for inner, here, there in () if key in _FREE else _differing(f"model.{key}", value, trained_value):
            fault = f"is {here}, but {there} in {name}, the run of model.init_from"
            raise RecipeFault(f"{inner}: {fault}", hint=f"leave model.{key} out")


def _comparable(value: Any, context: int) -> Any:
    """A setting with `length: auto` replaced by the context."""
    if isinstance(value, dict):
        settings = {key: _comparable(item, context) for key, item in value.items()}
        return settings | {"length": context} if settings.get("length") == "auto" else settings
    return [_comparable(item, context) for item in value] if isinstance(value, list) else value


def _differing(key: str, value: Any, other: Any) -> Iterator[tuple[str, str, str]]:
    """The innermost keys that differ, with both values; for settings of different kinds, the kinds."""
    if isinstance(value, dict) and isinstance(other, dict) and value.get("kind") == other.get("kind"):
        for name in value:
            yield from _differing(f"{key}.{name}", value[name], other.get(name))
    elif isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        for n, pair in enumerate(zip(value, other, strict=True)):
            yield from _differing(f"{key}[{n}]" if len(value) > 1 else key, *pair)
    elif value != other:
        yield key, _format(value), _format(other)


def _format(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_format, value))}]"
    return str(value.get("kind")) if isinstance(value, dict) else str(value)


def shorten(names: Iterable[str]) -> str:
    """The first six names and the number of further ones."""
    names = list(names)
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
