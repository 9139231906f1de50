"""The run that a model begins with (model.init_from): which of its tensors go where, and what does not fit, told before a step is made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mini_tf.errors import RecipeFault, RunFault
from mini_tf.nn.model import Model
from mini_tf.recipe.recipe import Recipe
from mini_tf.run import finding, manifest
from mini_tf.run.trained import Trained, open_trained
from mini_tf.text.opening import AnyText

_FREE = ("init_from", "dropout_rate", "init", "init_std", "n_types")
"""Keys of a model that change nothing of what its tensors mean."""
_SIDES = {"encoder.": "stack.", "source_embedding.": "embedding."}
"""Where an encoder-decoder finds its source side in a model of one stack."""


@dataclass(frozen=True)
class Taken:
    """Names of tensors: those that were loaded, those of the model that are new, those of the run that nobody wants."""

    run: str
    loaded: tuple[str, ...]
    new: tuple[str, ...]
    left: tuple[str, ...]

    def spoken(self) -> str:
        """The same for people."""
        parts = [f"{len(self.loaded)} tensors loaded"]
        parts += [f"{len(names)} {what} ({_listed(names)})" for names, what in ((self.new, "new"), (self.left, "left behind")) if names]
        return f"beginning with {self.run}: {', '.join(parts)}"


def contents(recipe: Recipe) -> dict[str, str]:
    """What a run that begins with another is known by besides: the hash of that one's weights. RunFault where it has none."""
    if recipe.model.init_from is None:
        return {}
    folder = finding.find(recipe.model.init_from)
    published = manifest.read(folder).model
    if published is None:
        raise RunFault(f"model.init_from: {folder} has no trained model yet", hint="train it first", where=[str(folder)])
    return {"init": str(published["sha256"])}


@torch.no_grad()
def take_over(model: Model, recipe: Recipe, text: AnyText) -> Taken:
    """Copy the weights of the run that the recipe begins with into a model that was built by it; what is new stays as it was drawn.

    RecipeFault where tokenizer, settings or shapes are others than the run's: what is loaded means what it meant there.
    """
    trained = open_trained(str(recipe.model.init_from), device="cpu")
    _refuse_other_meaning(recipe, trained, text)
    theirs, ours = trained.model.weights(), model.weights()
    sources = {name: _source(name, theirs) for name in ours if not name.startswith("head.") or _same_answers(recipe, trained, text)}
    loaded = {name: theirs[source] for name, source in sources.items() if source is not None}
    if not loaded:
        raise RecipeFault(f"model.init_from: {trained.folder.name} has no tensor that this model could take over")
    for name, tensor in loaded.items():
        if tensor.shape != ours[name].shape:
            raise RecipeFault(
                f"model.init_from: {name} is {list(tensor.shape)} in {trained.folder.name}, but {list(ours[name].shape)} here",
                hint="leave out what the recipe says of the model's sizes",
            )
        ours[name].copy_(tensor)
    used = {source for source in sources.values() if source is not None}
    return Taken(
        trained.folder.name,
        tuple(loaded),
        tuple(name for name in ours if name not in loaded),
        tuple(name for name in theirs if name not in used),
    )


def _source(name: str, theirs: Mapping[str, Tensor]) -> str | None:
    """The run's tensor for a name of ours."""
    if name in theirs:
        return name
    for side, one in _SIDES.items():
        if name.startswith(side) and (other := one + name.removeprefix(side)) in theirs:
            return other
    return None


def _same_answers(recipe: Recipe, trained: Trained, text: AnyText) -> bool:
    """Whether a head is asked for what the run's head was: words of the same vocabulary, or the same classes."""
    mine, theirs = recipe.objective, trained.recipe.objective
    tasks = {"classes", "numbers", "tags"}
    if mine.FORM not in tasks and theirs.FORM not in tasks:
        return True
    names = (None if labels is None else labels.names for labels in (text.labels, trained.labels))
    return mine.kind == theirs.kind and len(set(names)) == 1


def _refuse_other_meaning(recipe: Recipe, trained: Trained, text: AnyText) -> None:
    name = trained.folder.name
    if text.tokenizer.hash != trained.tokenizer.hash:
        raise RecipeFault(f"tokenizer: is not the one of {name}, which model.init_from begins with", hint="leave the section tokenizer out")
    mine, theirs = (one.model.model_dump(mode="json") for one in (recipe, trained.recipe))
    kinds = recipe.model.kind, trained.recipe.model.kind
    if kinds[0] != kinds[1] and "encoder_decoder" in kinds and kinds != ("encoder_decoder", "encoder"):
        raise RecipeFault(f"model.init_from: {name} is a {kinds[1]}, from which no {kinds[0]} can begin", hint=f"model.kind={kinds[1]}")
    for key in mine.keys() & theirs.keys() - {*_FREE, "kind"}:
        if _meaning(mine[key]) != _meaning(theirs[key]):
            raise RecipeFault(
                f"model.{key}: is {_shown(mine[key])}, but {_shown(theirs[key])} in {name}, which model.init_from begins with",
                hint=f"leave model.{key} out",
            )


def _meaning(value: Any) -> Any:
    """A value without what changes nothing of what the tensors mean: dropout, and how long a table of places may be."""
    if isinstance(value, dict):
        return {key: _meaning(item) for key, item in value.items() if key not in ("dropout_rate", "length")}
    return [_meaning(item) for item in value] if isinstance(value, list) else value


def _shown(value: Any) -> str:
    return f"{value.get('kind')} { ({k: v for k, v in value.items() if k != 'kind'}) }" if isinstance(value, dict) else str(value)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
