"""The run that a model begins with (model.init_from): which of its tensors go where, and what does not fit, told before a step is made."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mini_tf.data.datasets import TokenizedData
from mini_tf.nn.model import Model
from mini_tf.recipe.kind_settings import attended_tokens
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import SingleTokenizer, Tokenizer
from mini_tf.run import finding, manifest
from mini_tf.system.errors import RecipeFault, RunFault
from mini_tf.trained.opening import SOURCE_TOKENIZER, Loaded, load_trained

_TOKENIZER = "tokenizer.json"
_FREE = ("init_from", "dropout_rate", "init", "init_std", "n_types")
"""Keys of a model that change nothing of what its tensors mean."""


@dataclass(frozen=True)
class LoadedTensors:
    """Names of tensors: those that were loaded, those of the model that are new, those of the run that nobody wants.

    reads: a warning where layers see another side of a token than they did.
    """

    run: str
    loaded: tuple[str, ...]
    new: tuple[str, ...]
    left: tuple[str, ...]
    reads: str = ""

    def describe(self) -> str:
        """The same for people."""
        parts = [f"{len(self.loaded)} tensors loaded"]
        parts += [f"{len(names)} {what} ({listed(names)})" for names, what in ((self.new, "new"), (self.left, "left behind")) if names]
        return f"beginning with {self.run}: {', '.join(parts)}"

    def lists(self) -> Iterator[str]:
        """All names, a line for each kind."""
        for what, names in (("loaded", self.loaded), ("new", self.new), ("left behind", self.left)):
            yield f"{what}: {', '.join(names) or 'none'}"


@dataclass(frozen=True)
class Initialization:
    """What a model takes over, and the tensors by the names that they have there."""

    taken: LoadedTensors
    weights: Mapping[str, Tensor]

    @torch.no_grad()
    def load_into(self, model: Model) -> None:
        """What is new stays as it was drawn."""
        ours = model.weights()
        for name, tensor in self.weights.items():
            ours[name].copy_(tensor)


def contents(recipe: Recipe, begun: Path | None = None) -> dict[str, str]:
    """What a run that begins with another is known by besides: the hash of that one's weights. RunFault where it has none.

    begun: a folder in which the run may have been begun already; where the other is gone, what was noted there is taken.
    """
    if recipe.model.init_from is None:
        return {}
    if _is_gone(recipe):
        noted = manifest.read(begun).hashes.get("init") if begun is not None and (begun / _TOKENIZER).is_file() else None
        if noted is None:
            raise _gone(recipe)
        return {"init": noted}
    folder = finding.find(recipe.model.init_from)
    published = manifest.read(folder).model
    if published is None:
        raise RunFault(f"model.init_from: {folder} has no trained model yet", hint="train it first", where=[str(folder)])
    return {"init": str(published["sha256"])}


def with_own_tokenizer(recipe: Recipe, begun: Path | None) -> Recipe:
    """Where the run that a recipe begins with is gone, the recipe with the tokenizers that the run in `begun` keeps."""
    if begun is None or recipe.model.init_from is None or not _is_gone(recipe):
        return recipe
    source = None if recipe.tokenizer.source is None else SingleTokenizer(path=str(begun / SOURCE_TOKENIZER))
    return recipe.model_copy(update={"tokenizer": Tokenizer(path=str(begun / _TOKENIZER), source=source)})


def _is_gone(recipe: Recipe) -> bool:
    name = str(recipe.model.init_from)
    return not any(os.path.lexists(path) for path in (name, finding.OUTPUTS / name))


def _gone(recipe: Recipe) -> RunFault:
    name = str(recipe.model.init_from)
    return RunFault(f"model.init_from: the run {name} is gone", hint="-d FOLDER continues a run that began with it", where=[name])


def refuse_changed(recipe: Recipe, hashes: Mapping[str, str]) -> None:
    """RunFault where the run that was begun with has another model by now than when `contents` was asked: somebody trains it."""
    if not contents(recipe).items() <= hashes.items():
        hint = "wait until it is trained; the same command then begins with what it is"
        raise RunFault(f"model.init_from: {recipe.model.init_from} was changed just now", hint=hint, where=[str(recipe.model.init_from)])


def begin(meta: Model, recipe: Recipe, text: TokenizedData) -> Initialization:
    """What a model takes over of the run that its recipe begins with; `meta` is the model without content.

    RecipeFault where tokenizer, settings or shapes are others than the run's: what is loaded means what it meant there.
    """
    if _is_gone(recipe):  # the run in hand was begun with it, but has no checkpoint to go on from
        raise _gone(recipe)
    trained = load_trained(str(recipe.model.init_from))
    _refuse_other_meaning(recipe, trained, text)
    theirs, ours = trained.model.weights(), meta.weights()
    sources = {
        name: _source(name, meta.found_in, theirs) for name in ours if not name.startswith("head.") or _same_answers(recipe, trained, text)
    }
    loaded = {name: theirs[source] for name, source in sources.items() if source is not None}
    if not loaded:
        raise RecipeFault(f"model.init_from: {trained.folder.name} has no tensor that this model could take over")
    for name, tensor in loaded.items():
        if tensor.shape != ours[name].shape:
            raise RecipeFault(
                f"model.init_from: {name} is {list(tensor.shape)} in {trained.folder.name}, but {list(ours[name].shape)} here",
                hint="leave out what the recipe says of the model's sizes",
            )
    used = {source for source in sources.values() if source is not None}
    new, left = tuple(name for name in ours if name not in loaded), tuple(name for name in theirs if name not in used)
    return Initialization(LoadedTensors(trained.folder.name, tuple(loaded), new, left, _other_side(recipe, trained)), loaded)


def _other_side(recipe: Recipe, trained: Loaded) -> str:
    """What there is to say where layers see another side of a token than they were trained to see."""
    here, there = recipe.model, trained.recipe.model
    if here.causal == there.causal:
        return ""
    who, sees = "the decoder" if here.SOURCE else "this model", attended_tokens(here.DIRECTIONS & {"causal", "bidirectional"}, False)
    name = trained.folder.name
    return f"the layers of {name} were trained reading {there.attended_tokens}, but {who} reads {sees}: they have to learn that anew"


def _source(name: str, found_in: Mapping[str, str], theirs: Mapping[str, Tensor]) -> str | None:
    """The run's tensor for a name of ours."""
    if name in theirs:
        return name
    for side, one in found_in.items():
        if name.startswith(side) and (other := one + name.removeprefix(side)) in theirs:
            return other
    return None


def _same_answers(recipe: Recipe, trained: Loaded, text: TokenizedData) -> bool:
    """Whether a head is asked for what the run's head was: words of the same vocabulary, the same classes, or numbers in the same unit."""
    mine, theirs = recipe.objective, trained.recipe.objective
    if mine.PREDICTS_TOKENS and theirs.PREDICTS_TOKENS:
        return True
    answers = {None if labels is None else (labels.names, labels.mean, labels.scale) for labels in (text.labels, trained.labels)}
    return mine.kind == theirs.kind and len(answers) == 1


def _refuse_other_meaning(recipe: Recipe, trained: Loaded, text: TokenizedData) -> None:
    name = trained.folder.name
    for key in ("tokenizer", "source_tokenizer"):
        if getattr(text, key).hash != getattr(trained, key).hash:
            what = key.replace("_", " ")
            raise RecipeFault(f"tokenizer: is not the {what} of {name}, which model.init_from begins with", hint="leave that section out")
    mine, theirs = recipe.model, trained.recipe.model
    if not mine.can_start_from(theirs):
        what = f"{name} is a {theirs.kind}, from which no {mine.kind} can begin"
        raise RecipeFault(f"model.init_from: {what}", hint=f"model.kind={theirs.kind}")
    for key, *values in mine.compared(theirs):
        contexts = (recipe.train.context, trained.recipe.train.context)
        here, there = (_meaning(value, context) for value, context in zip(values, contexts, strict=True))
        for inner, ours, other in () if key in _FREE else _differing(f"model.{key}", here, there):
            what = f"is {ours}, but {other} in {name}, which model.init_from begins with"
            raise RecipeFault(f"{inner}: {what}", hint=f"leave model.{key} out")


def _meaning(value: Any, context: int) -> Any:
    """A value without dropout, which changes nothing of what the tensors mean; `auto` is a number of places, the context."""
    if isinstance(value, dict):
        kept = {key: _meaning(item, context) for key, item in value.items() if key != "dropout_rate"}
        return kept | {"length": context} if kept.get("length") == "auto" else kept
    return [_meaning(item, context) for item in value] if isinstance(value, list) else value


def _differing(key: str, here: Any, there: Any) -> Iterator[tuple[str, str, str]]:
    """The innermost keys that differ, with the two values; of two kinds, which have other keys, the kinds."""
    if isinstance(here, dict) and isinstance(there, dict) and here.get("kind") == there.get("kind"):
        for name in here:
            yield from _differing(f"{key}.{name}", here[name], there.get(name))
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for n, (one, other) in enumerate(zip(here, there, strict=True)):
            yield from _differing(f"{key}[{n}]" if len(here) > 1 else key, one, other)
    elif here != there:
        yield key, _shown(here), _shown(there)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return str(value.get("kind")) if isinstance(value, dict) else str(value)


def listed(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
