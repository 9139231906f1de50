"""The model of a run as one of a family of Hugging Face models: its config.json and its tensors."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mini_tf.hf.equivalence import equivalent_weights
from mini_tf.hf.families import Facts, Family, Head
from mini_tf.hf.family_choice import Written, choose
from mini_tf.hf.layouts import write_tensors
from mini_tf.nn.layers.head import TaskHead
from mini_tf.recipe.kinds import settings_of
from mini_tf.trained.architecture import Architecture, vocabulary_sizes
from mini_tf.trained.opening import LoadedModel


class FamilyModel(NamedTuple):
    """A model as one of a family. config: of config.json; weights: the tensors by their full names in the files."""

    family: Family
    head: Head
    config: dict[str, Any]
    weights: dict[str, Tensor]


def as_family(loaded: LoadedModel, wanted: str | None) -> FamilyModel:
    """A model as one of the family `wanted`, else of the first that has it; RunFault with the reasons if none has.

    The output layer of a model of numbers is changed, so that its outputs are not standardized.
    """
    family, head, config, read = find_family(loaded, wanted)
    recipe = loaded.recipe.model_copy(update={"model": read})
    theirs = Architecture.of(
        recipe, loaded.tokenizer, loaded.source_tokenizer, loaded.labels, loaded.model.context
    ).on_meta()
    weights = write_tensors(theirs, family.names(read, head), equivalent_weights(loaded.model, theirs))
    return FamilyModel(family, head, config, _named(weights, family, head))


def as_other_model(loaded: LoadedModel, wanted: str) -> LoadedModel:
    """The same weights as a model of the kind of a family, if the objective says that they are; else as they are."""
    recipe, family = loaded.recipe, settings_of("hf.families", wanted)()
    assert isinstance(family, Family)
    if family.MODEL != recipe.objective.ALSO_MODEL:
        return loaded
    settings: Any = settings_of("models", family.MODEL)
    model_settings = settings.model_validate(recipe.model.model_dump(exclude={"kind", "init_from"}))
    recipe = recipe.model_copy(update={"model": model_settings})
    architecture = Architecture.of(
        recipe, loaded.tokenizer, loaded.source_tokenizer, loaded.labels, loaded.model.context
    )
    model = architecture.initialize(0)
    model.load_weights(loaded.model.weights())
    return replace(loaded, recipe=recipe, model=model)


def find_family(loaded: LoadedModel, wanted: str | None = None, exact: bool = False) -> Written:
    """The family of a model, as in `choose`; an output layer of standardized numbers is changed."""
    two = vocabulary_sizes(loaded.tokenizer, loaded.source_tokenizer)[1] is not None
    reasons = (
        ["its sources and targets have two vocabularies, and every family that minitf writes has one"] if two else []
    )
    reasons += _undo_standardization(loaded)
    facts = Facts(loaded.tokenizer.vocabulary, loaded.model.context, loaded.labels)
    return choose(loaded.recipe, facts, wanted, reasons, exact)


@torch.no_grad()
def _undo_standardization(loaded: LoadedModel) -> list[str]:
    """Change the output layer of a model of numbers so that its outputs are numbers, not standardized ones.

    Reasons why its weights cannot express that.
    """
    labels, head = loaded.labels, loaded.model.head
    if labels is not None and isinstance(head, TaskHead):
        head.linear.weight *= labels.scale
        if head.linear.bias is not None:
            head.linear.bias.mul_(labels.scale).add_(labels.mean)
        elif labels.mean:
            return [f"objective.head_bias is false, and the mean of its numbers, {labels.mean:.6g}, is a bias"]
    return []


def _named(weights: Mapping[str, Tensor], family: Family, head: Head) -> dict[str, Tensor]:
    """The tensors under their full names."""
    prefix = "" if head.base else family.PREFIX
    return {prefix + name[1:] if name.startswith(".") else name: tensor for name, tensor in weights.items()}
