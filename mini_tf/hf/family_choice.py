"""The family of a config.json, and a model as one of a family that can hold it: its config.json and its tensors.

Whether a family can, is found by writing the settings and reading them back. What it lacks is put into the weights of a
model with other settings that computes the same:

no bias, no weight of a norm    a bias of 0, a weight of 1
activation: relu2               reglu with the same matrix for gate and value
qk_norm: true                   qk_norm: weight, with weights of 1
attention.scale                 a factor of W_Q or, of normalized queries, of their weights
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mini_tf.data.examples import Labels
from mini_tf.hf.config_json import shown
from mini_tf.hf.families import GATED, Config, Facts, Family, Head
from mini_tf.hf.families._architectures import shortest_period
from mini_tf.hf.layouts import write_tensors
from mini_tf.hf.tokenizer_config import token_ids
from mini_tf.nn.attention import MultiHeadAttention
from mini_tf.nn.layers.feed_forward import FeedForward
from mini_tf.nn.layers.head import TaskHead
from mini_tf.nn.model import Model, ModelSettings
from mini_tf.recipe.kind_settings import inference_settings
from mini_tf.recipe.kinds import kinds_of, listing, settings_of, usable_settings
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.values import show
from mini_tf.system.errors import RunFault, suggest
from mini_tf.trained.architecture import Architecture, vocabulary_sizes
from mini_tf.trained.opening import LoadedModel

CONFIG = "config.json"
_OF_HEAD = ("head", "tied", "output_bias", "head_activation")
"""Settings of the output layer over the vocabulary, which the head of a task replaces."""
WAY = "--to code writes it as a file of plain PyTorch, --to safetensors its tensors under their own names"


class Written(NamedTuple):
    """A family, one of its heads, and the keys of config.json for a model.

    read: the settings that these files are read back as: those of the model, or of an equivalent one.
    """

    family: Family
    head: Head
    config: dict[str, Any]
    read: ModelSettings


class FamilyModel(NamedTuple):
    """A model as one of a family. config: of config.json; weights: the tensors by their full names in the files."""

    family: Family
    head: Head
    config: dict[str, Any]
    weights: dict[str, Tensor]


def family_of(config: Config) -> Family:
    """The family of a config.json. RunFault if there is none."""
    word = str(config.get("model_type") or "").replace("-", "_")
    family_class = usable_settings("hf.families", word)
    if family_class is None:
        words = listing("hf.families")
        fault = f"model_type is {show(config.get('model_type'))}; minitf reads {', '.join(words)}"
        way = "code of a model is never run; of an export --to code take the run" if config.has("auto_map") else None
        raise RunFault.located(config.where, fault, hint=suggest(word, words) or way)
    family = family_class()
    assert isinstance(family, Family)
    return family


def choose(
    recipe: Recipe, facts: Facts, wanted: str | None = None, reasons: Sequence[str] = (), exact: bool = False
) -> Written:
    """The family and the architecture that a trained model is written as. RunFault with the reasons if none has it.

    wanted: the only family to try. reasons: why no family has it. exact: its matrices must be stored as they are.
    """
    model = recipe.model
    assert isinstance(model, ModelSettings)
    words = [wanted] if wanted is not None else list(kinds_of("hf.families"))
    families = [settings_of("hf.families", word)() for word in words]
    fitting = [family for family in families if isinstance(family, Family) and model.kind == family.MODEL]
    refused: dict[str, _Refusal] = {}
    for family in fitting:
        for head in (head for head in family.HEADS if head.fits(recipe.objective)):
            refusal = _Refusal([*reasons], [])
            for key, (value, needed) in _other_task(head, recipe).items():
                shown_value = shown(value) if isinstance(value, dict) else value
                refusal.reasons.append(f"objective.{key} is {shown_value}, which {family.kind} has {needed}")
                refusal.ways.append(f"objective.{key}={'null' if needed is None else str(needed).lower()}")
            config = family.config(model, facts)
            written = Config(config, f"{family.kind}'s {CONFIG}", family.kind)
            read: Any = settings_of("models", model.kind).model_validate(family.settings(written, head))
            refusal.reasons.extend([*written.faults, *_differences(family, head, recipe, read, facts, exact)])
            if not refusal.reasons:
                config |= _bookkeeping(family, head, facts, recipe)
                return Written(family, head.with_pool_of(recipe.objective), config, read)
            refused.setdefault(family.kind, refusal)
    if not refused:
        none = f"{wanted} has no" if wanted else "no family of Hugging Face models has a"
        description = f"model of the architecture {model.kind} with the objective {recipe.objective.kind}"
        raise RunFault(f"{none} {description}", hint=WAY)
    raise _refusal(refused)


class _Refusal(NamedTuple):
    """Why a family has no such model. ways: overrides of a training with which its objective would fit."""

    reasons: list[str]
    ways: list[str]

    @property
    def distance(self) -> tuple[bool, int]:
        """A family that cannot even write the settings is farther than one that writes others."""
        return any(CONFIG in reason for reason in self.reasons), len(self.reasons)


def _refusal(refused: Mapping[str, _Refusal]) -> RunFault:
    nearest = min(refused, key=lambda word: refused[word].distance)
    reasons, ways = refused[nearest]
    hint = f"trained with {' '.join(ways)} its objective fits; {WAY}" if ways else WAY
    if len(refused) == 1:
        return RunFault(f"this model cannot be written as {nearest}: {'; '.join(reasons)}", hint=hint)
    fault = f"this model cannot be written as {', '.join(refused)}; nearest is {nearest}, but {'; '.join(reasons)}"
    faults = [f"{word}: {reason}" for word, refusal in refused.items() for reason in refusal.reasons]
    return RunFault(fault, hint=hint, faults=[fault, *faults])


def _other_task(head: Head, recipe: Recipe) -> dict[str, tuple[Any, Any]]:
    """Settings of the objective that are others than those of the head: theirs and the one it has."""
    settings = recipe.objective.model_dump(mode="json")
    needed = {**{key: (value,) for key, value in head.needs.items()}, **({"pool": head.pools} if head.pools else {})}
    return {key: (settings.get(key), allowed[0]) for key, allowed in needed.items() if settings.get(key) not in allowed}


def _differences(
    family: Family, head: Head, recipe: Recipe, read: ModelSettings, facts: Facts, exact: bool
) -> Iterator[str]:
    """Settings that are others after the model was written as this family and read back, and no weights can express."""
    model: Any = recipe.model
    replaced = not recipe.objective.HEAD if head.objective is None else not head.over_tokens
    free = _OF_HEAD if replaced else ()
    ours, theirs = (_plain(settings, facts.context) for settings in (model, read))
    other = [
        key
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key) and key not in free and not _is_equivalent(key, ours, theirs, exact)
    ]
    kinds = tuple(key.removesuffix("kind") for key in other if key.endswith(".kind"))
    for key in other:
        if key.endswith(".kind") or not key.startswith(kinds):  # another kind has other settings
            here, there = (_shown(values, key) for values in (ours, theirs))
            yield f"model.{key} is {here}, which {family.kind} has {there}"


def _is_equivalent(key: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], exact: bool) -> bool:
    """Whether a model with their settings, by dotted key, can compute the same as ours though `key` differs."""
    path, _, name = key.rpartition(".")
    before, after = ours.get(key), theirs.get(key)
    if name in ("bias", "norm_weight"):
        return bool(after and not before)
    if name == "qk_norm":
        return (before, after) == (True, "weight")
    if name == "scale" and {key} <= ours.keys() & theirs.keys():
        norm = theirs.get(f"{path}.qk_norm")
        return norm == "weight" or (not norm and not exact)
    return name == "activation" and before in GATED and GATED[before] == after and not exact


def _shown(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key, "not")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(model: ModelSettings, context: int) -> dict[str, Any]:
    """All settings that a trained model computes with, by dotted key, each as the number that it stands for."""
    values = inference_settings(model) | {"kind": model.kind}
    for path, stack in model.stacks().items():
        settings = inference_settings(stack)
        dims = stack.attention_dims()
        sizes = {"d_k": dims.d_k, "d_v": dims.d_v, "n_kv_heads": dims.n_kv_heads, "d_ff": stack.hidden_dim}
        if path in values:
            shared = {key: settings[key] for key in values[path] if key in settings}
            values[path] = shared | {key: size for key, size in sizes.items() if key in shared}
        else:
            values |= sizes
    values["d_embedding"] = values.get("d_embedding") or model.d_model
    return dict(_leaves(values, "", context))


def _leaves(value: Any, path: str, context: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):  # repeated over the layers
        value = shortest_period(value)
        value = value[0] if len(value) == 1 else dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, f"{path}.{key}" if path else key, context)
    else:
        yield path, context if path.endswith(".length") and value == "auto" else value


def _bookkeeping(family: Family, head: Head, facts: Facts, recipe: Recipe) -> dict[str, Any]:
    """What every config.json has: architecture, special tokens, labels."""
    config = token_ids(facts.vocabulary)
    if len(head.pools) > 1:
        pool = recipe.objective.model_dump()["pool"]
        config[family.POOL] = next(theirs for theirs, ours in family.POOLS.items() if ours == pool)
    if head.numbers:
        config["problem_type"] = "regression"
    model_type = family.MODEL_TYPE or family.kind
    named = {"architectures": [head.architecture], "model_type": model_type, "dtype": "float32"}
    return config | label_names(facts.labels) | named


def label_names(labels: Labels | None) -> dict[str, Any]:
    names: Sequence[str] = () if labels is None else labels.names or ("LABEL_0",)
    if not names:
        return {}
    return {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}


def as_family(loaded: LoadedModel, wanted: str | None) -> FamilyModel:
    """A model as one of the family `wanted`, else of the first that has it; RunFault with the reasons if none has.

    The output layer of a model of numbers is changed, so that its outputs are not standardized.
    """
    family, head, config, read = find_family(loaded, wanted)
    theirs = _with_settings(loaded, read)[1].on_meta()
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
    if labels is None or not isinstance(head, TaskHead):
        return []
    head.linear.weight *= labels.scale
    if head.linear.bias is not None:
        head.linear.bias.mul_(labels.scale).add_(labels.mean)
        return []
    mean = f"{labels.mean:.6g}"
    return [f"objective.head_bias is false, and the mean of its numbers, {mean}, is a bias"] if labels.mean else []


@torch.no_grad()
def _equivalent_weights(ours: Model, theirs: Model) -> dict[str, Tensor]:
    """The weights of `theirs`, on the meta device, with which it computes the same as `ours`."""
    weights = ours.weights()
    for path, their_module in theirs.named_modules():
        our_module = ours.get_submodule(path)
        if isinstance(our_module, FeedForward) and our_module.activation != their_module.activation:
            weights |= {f"{path}.up.{name}": torch.cat([value] * 2) for name, value in our_module.up.named_parameters()}
        if (
            isinstance(our_module, MultiHeadAttention)
            and isinstance(their_module, MultiHeadAttention)
            and our_module.scale != their_module.scale
        ):
            weights |= _scaled_queries(our_module, their_module, path)
    for name, tensor in theirs.weights().items():
        if name not in weights:
            weights[name] = torch.full(tensor.shape, float(not name.endswith(".bias")))
    return weights


def _scaled_queries(our_module: MultiHeadAttention, their_module: MultiHeadAttention, path: str) -> dict[str, Tensor]:
    """The weights of the queries of `their_module`, whose scores have another scale."""
    factor = our_module.scale / their_module.scale
    if their_module.q_norm is not None:
        norm = torch.ones(our_module.dims.d_k) if our_module.q_norm is None else our_module.q_norm
        return {f"{path}.q_norm": norm * factor}
    name, linear = ("q", our_module.q) if our_module.is_cross_attn else ("qkv", our_module.qkv)
    scaled = {f"{path}.{name}.{key}": value.clone() for key, value in linear.named_parameters()}
    for value in scaled.values():
        value[: our_module.sizes[0]] *= factor
    return scaled
