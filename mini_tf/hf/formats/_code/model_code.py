"""The code of a model: the file, and the config.json that says how the model is made of it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor, nn

import mini_tf
from mini_tf.hf.family_choice import label_names
from mini_tf.hf.formats._code import plain_settings, text_models, transformer_classes
from mini_tf.hf.formats._code.bundle import Bundle
from mini_tf.hf.formats._code.source_text import Known
from mini_tf.hf.tokenizer_config import token_ids
from mini_tf.nn.layers.head import Head
from mini_tf.nn.layers.word_characters import WordFeatures
from mini_tf.nn.model import ModelSettings
from mini_tf.objectives._task import TaskOutputs
from mini_tf.recipe import kinds
from mini_tf.recipe.kinds import Kind, Section
from mini_tf.system.errors import RunFault
from mini_tf.trained.architecture import vocabulary_sizes
from mini_tf.trained.opening import LoadedModel

MODELING = "modeling_minitf"
ALONE, OF_TRANSFORMERS = text_models.__name__, transformer_classes.__name__


class ModelCode(NamedTuple):
    """The file, and its config.json. architecture: the class in the file; auto_class: that of transformers."""

    text: str
    config: dict[str, Any]
    architecture: str
    auto_class: str


def written_code(loaded: LoadedModel) -> ModelCode:
    """The code of a model. RunFault if it needs another package than torch, or its output layer tells no arguments."""
    model, objective, settings = loaded.model, loaded.recipe.objective, loaded.recipe.model
    task = task_outputs(loaded)
    head = None if isinstance(model.head, Head) else model.head
    purpose = _purpose(loaded, task)
    flags = {
        "IS_TASK": task is not None,
        "OF_WORDS": task is not None and isinstance(task.head.wide, WordFeatures),
        "HEAD_HAS_NORM": task is not None and task.head.dense is not None and task.head.dense.norm is not None,
        "HAS_SOURCE": model.needs_source,
        "CONTINUES": purpose == "CausalLM",
        "PROMPT_IS_PREFIX": objective.prompt_is_prefix(settings),
    }
    described = (settings, head, None if task is None else task.wide)
    objects = [*_objects(described)]
    classes = {*map(type, objects)}
    sections = [section for section in objects if isinstance(section, Section)]
    if isinstance(settings, ModelSettings):
        sections += [section for section in _objects(tuple(settings.stacks().values())) if isinstance(section, Section)]
    architecture, auto_class = f"MiniTFFor{purpose}", f"AutoModelFor{purpose}"
    bundle = Bundle(
        roots=[
            *sorted((cls.__module__, cls.__qualname__) for cls in classes),
            *((ALONE, name) for name in ("load", "main")),
            *((OF_TRANSFORMERS, name) for name in ("MiniTFConfig", architecture)),
        ],
        packages={cls.__module__.partition(".")[0] for cls in (*classes, Bundle)},
        replaced={(kinds.__name__, cls): (plain_settings.__name__, "PlainSection") for cls in ("Section", "Kind")},
        whole={(OF_TRANSFORMERS, name) for name, cls in vars(transformer_classes).items() if isinstance(cls, type)},
        known=Known({"handwritten": False, **flags}, model, sections),
    )
    facts = {
        "model": _described(settings, bundle),
        "context": model.context,
        "source_vocab_size": vocabulary_sizes(loaded.tokenizer, loaded.source_tokenizer)[1],
        "special_ids": sorted(model.special_ids),
        "head": _described(head, bundle),
        "task": None if task is None else _described(task_facts(loaded, task), bundle),
        "texts": [*loaded.tokenizer.vocabulary.texts] if flags["OF_WORDS"] else None,
        "decision": None if loaded.decision is None else loaded.decision.model_dump(include={"temperature", "bias"}),
    }
    text = f'"""{_title(loaded, architecture)}"""\n\n{bundle.text()}\n\nif __name__ == "__main__":\n    main()\n'
    return ModelCode(text, _config(loaded, architecture, auto_class) | {"minitf": facts}, architecture, auto_class)


def task_outputs(loaded: LoadedModel) -> TaskOutputs | None:
    """The outputs of a task head; None: the model has another head."""
    task = None if "tokens" in loaded.recipe.objective.PREDICTS else loaded.objective.task(loaded.model)
    return task.eval() if isinstance(task, TaskOutputs) else None


def _purpose(loaded: LoadedModel, task: TaskOutputs | None) -> str:
    """What transformers' classes for such models have behind "AutoModelFor"."""
    predicts = loaded.recipe.objective.PREDICTS
    if "tokens" in predicts:
        causal = "CausalLM" if loaded.recipe.model.causal else "MaskedLM"
        return "Seq2SeqLM" if loaded.model.needs_source else causal
    of_task = "SequenceClassification" if "rows" in predicts else "TokenClassification"
    return "PreTraining" if task is None else of_task


def task_facts(loaded: LoadedModel, task: TaskOutputs) -> dict[str, Any]:
    """What `text_models.task_outputs` needs to know of a task."""
    labels, wide = loaded.labels, task.wide
    return {
        "pool": task.pool,
        "wide": wide,
        "by_token": "rows" not in loaded.recipe.objective.PREDICTS,
        "scale": 1.0 if labels is None else labels.scale,
        "mean": 0.0 if labels is None else labels.mean,
        "affixes": getattr(wide, "affixes", None) if isinstance(task.head.wide, WordFeatures) else None,
    }


def _objects(value: Any) -> Iterator[Any]:
    """The settings, and the modules of an output layer, that a value consists of."""
    if isinstance(value, nn.Module | Section):
        yield value
        value = tuple(_values(value).values())
    for part in value if isinstance(value, tuple) else ():
        yield from _objects(part)


def _values(described: Any) -> dict[str, Any]:
    """What makes settings, or a module that tells its arguments."""
    if isinstance(described, Section):
        return {name: getattr(described, name) for name in type(described).model_fields}
    try:
        return dict(described.arguments())
    except (AttributeError, NotImplementedError):
        fault = f"a model with the output layer {type(described).__name__} does not go out as code"
        raise RunFault(fault, hint="--to auto or --to safetensors; your own layer: OutputLayer.arguments") from None


def _described(value: Any, bundle: Bundle) -> Any:
    """A value for config.json, from which `plain_settings.made_of` makes it again; of settings those that are read."""
    if isinstance(value, nn.Module | Section):
        kept = {
            key: _described(part, bundle)
            for key, part in _values(value).items()
            if isinstance(value, nn.Module) or key in bundle.attributes
        }
        kind = {"kind": value.kind} if isinstance(value, Kind) else {}
        return {"class": bundle.names[type(value).__module__, type(value).__qualname__], **kind, **kept}
    if isinstance(value, dict):
        return {key: _described(part, bundle) for key, part in value.items()}
    return [_described(part, bundle) for part in value] if isinstance(value, list | tuple) else value


def _title(loaded: LoadedModel, architecture: str) -> str:
    return f"""{loaded.folder.name}: a model of minitf {mini_tf.__version__} in plain PyTorch, without minitf.

Alone it needs torch and safetensors: `python {MODELING}.py` runs it, `from {MODELING} import load` loads it.
With transformers it is {architecture}, loaded with trust_remote_code=True.
Generated from the sources of minitf: each part has the name and the description that it has there.
"""


def _config(loaded: LoadedModel, architecture: str, auto_class: str) -> dict[str, Any]:
    """config.json, as transformers reads it."""
    model, vocabulary = loaded.model, loaded.tokenizer.vocabulary
    n_names = sum(1 for _ in model.named_parameters(remove_duplicate=False))
    config: dict[str, Any] = {
        "architectures": [architecture],
        "auto_map": {"AutoConfig": f"{MODELING}.MiniTFConfig", auto_class: f"{MODELING}.{architecture}"},
        "model_type": "minitf",
        "vocab_size": vocabulary.size,
        "max_position_embeddings": model.context,
        "is_encoder_decoder": model.needs_source,
        "tie_word_embeddings": n_names > sum(1 for _ in model.parameters()),
        "dtype": "float32",
        **token_ids(vocabulary),
        **label_names(loaded.labels),
    }
    if model.needs_source:
        config["decoder_start_token_id"] = vocabulary.begin_id
    if loaded.objective.problem_type is not None:
        config["problem_type"] = loaded.objective.problem_type
    return config


def all_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, also those that can be computed, tied ones once."""
    names: dict[int, str] = {}
    every = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: tensor.detach() for name, tensor in every if names.setdefault(id(tensor), name) == name}
