"""The model of a run as one of a family of Hugging Face models: its config.json and its tensors.

What the family lacks is put into the weights of a model with other settings that computes the same:

no bias, no weight of a norm    a bias of 0, a weight of 1
activation: relu2               reglu with the same matrix for gate and value
qk_norm: true                   qk_norm: weight, with weights of 1
attention.scale                 a factor of W_Q or, of normalized queries, of their weights
"""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mini_tf.hf.families import Facts, Family, Head
from mini_tf.hf.family_choice import Written, choose
from mini_tf.hf.layouts import write_tensors
from mini_tf.nn.attention import MultiHeadAttention
from mini_tf.nn.layers.feed_forward import FeedForward
from mini_tf.nn.layers.head import TaskHead
from mini_tf.nn.model import Model, ModelSettings
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.recipe import Recipe
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
    _, architecture = _with_settings(loaded, read)
    theirs = architecture.on_meta()
    weights = write_tensors(theirs, family.names(read, head), _equivalent_weights(loaded.model, theirs))
    prefix = "" if head.base else family.PREFIX
    full = {prefix + name[1:] if name.startswith(".") else name: tensor for name, tensor in weights.items()}
    return FamilyModel(family, head, config, full)


def as_other_model(loaded: LoadedModel, wanted: str) -> LoadedModel:
    """The same weights as a model of the kind of a family, if the objective says that they are; else as they are."""
    recipe, family = loaded.recipe, settings_of("hf.families", wanted)()
    assert isinstance(family, Family)
    if family.MODEL != recipe.objective.ALSO_MODEL:
        return loaded
    settings: Any = settings_of("models", family.MODEL)
    settings = settings.model_validate(recipe.model.model_dump(exclude={"kind", "init_from"}))
    recipe, architecture = _with_settings(loaded, settings)
    model = architecture.initialize(0)
    model.load_weights(loaded.model.weights())
    return replace(loaded, recipe=recipe, model=model)


def _with_settings(loaded: LoadedModel, settings: ModelSettings) -> tuple[Recipe, Architecture]:
    """The recipe with other settings of the model, and that model."""
    recipe = loaded.recipe.model_copy(update={"model": settings})
    sides = loaded.tokenizer, loaded.source_tokenizer
    return recipe, Architecture.of(recipe, *sides, loaded.labels, loaded.model.context)


def find_family(loaded: LoadedModel, wanted: str | None = None, exact: bool = False) -> Written:
    """The family of a model, as in `choose`; an output layer of standardized numbers is changed."""
    reasons = _undo_standardization(loaded)
    if vocabulary_sizes(loaded.tokenizer, loaded.source_tokenizer)[1] is not None:
        reasons.append("its sources and targets have two vocabularies, and every family that minitf writes has one")
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


@torch.no_grad()
def _equivalent_weights(ours: Model, theirs: Model) -> dict[str, Tensor]:
    """The weights of `theirs`, on the meta device, with which it computes the same as `ours`."""
    weights = ours.weights()
    for path, part in theirs.named_modules():
        own = ours.get_submodule(path)
        if isinstance(own, FeedForward) and own.activation != part.activation:
            weights |= {f"{path}.up.{name}": torch.cat([value, value]) for name, value in own.up.named_parameters()}
        if isinstance(own, MultiHeadAttention) and isinstance(part, MultiHeadAttention) and own.scale != part.scale:
            weights |= _scaled_queries(own, part, path)
    for name, tensor in theirs.weights().items():
        if name not in weights:
            weights[name] = torch.full(tensor.shape, float(not name.endswith(".bias")))
    return weights


def _scaled_queries(own: MultiHeadAttention, part: MultiHeadAttention, path: str) -> dict[str, Tensor]:
    """The weights of the queries of `part`, whose scores have another scale."""
    factor = own.scale / part.scale
    if part.q_norm is not None:
        norm = torch.ones(own.dims.d_k) if own.q_norm is None else own.q_norm
        return {f"{path}.q_norm": norm * factor}
    name, linear = ("q", own.q) if own.cross else ("qkv", own.qkv)
    scaled = {f"{path}.{name}.{key}": value.clone() for key, value in linear.named_parameters()}
    for value in scaled.values():
        value[: own.sizes[0]] *= factor
    return scaled
