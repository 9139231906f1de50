"""Export of a run as a Hugging Face folder: config.json, safetensors, tokenizer, model card, and a proof."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import mini_tf
from mini_tf.data.tokenization.tokenizer_files import SAVED_SOURCES, SAVED_TARGETS
from mini_tf.hf.equivalence import equivalent_weights
from mini_tf.hf.families import Facts, Family, Head
from mini_tf.hf.family_choice import CONFIG, choose
from mini_tf.hf.layouts import write_tensors
from mini_tf.hf.model_folder import WEIGHTS
from mini_tf.hf.peft import CONFIG as ADAPTER
from mini_tf.hf.peft import WEIGHTS as ADAPTER_WEIGHTS
from mini_tf.hf.peft import read_adapter, written_adapter
from mini_tf.hf.proof import FILE, Parity, compare, make_batch
from mini_tf.hf.tokenizer_config import tokenizer_files
from mini_tf.nn.layers.head import TaskHead
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.recipe.reading import dump
from mini_tf.recipe.values import show
from mini_tf.run import manifest, tensors
from mini_tf.run.disk import Content, chunks, storage_errors
from mini_tf.run.folder import MODEL_TEXT_FILES
from mini_tf.run.loading import load_model
from mini_tf.system.errors import RunFault, UsageFault
from mini_tf.system.safe_files import remove_path
from mini_tf.system.strict_json import show_json
from mini_tf.trained.architecture import Architecture, vocabulary_sizes
from mini_tf.trained.opening import LoadedModel, load_trained, read_fully_trainable

PEFT = "peft"
"""The format of a LoRA adapter alone."""
PLAIN = "safetensors"
"""The format of tensors under their own names, which every model has."""
SHIFTED = "A masked token is predicted at the position before it: of a mask at position i, take the logits at i - 1."
CARD, RECIPE, RESOLVED = "README.md", "recipe.yaml", "resolved.yaml"


@dataclass(frozen=True)
class Exported:
    """folder: what was written; written_as: architecture, or "safetensors"; parity: None of plain tensors."""

    folder: Path
    written_as: str
    parity: Parity | None


def export_model(
    run: str, folder: Path, to: str | None = None, step: int | str | None = None, license: str = "unknown"
) -> Exported:
    """Write the model of a run into a new folder, load it from there and compare the outputs.

    to: a family of Hugging Face models, "safetensors", or "peft" for a LoRA adapter alone; None: the first family that
    has the model. Raises RunFault with the reasons if none has it, or if the outputs differ by more than
    `proof.TOLERANCE`; the folder is then not left behind.
    """
    if not re.fullmatch(r"[\w.+-]+( [\w.+-]+)*", license):
        raise UsageFault(f"--license {show(license)}: must be a name such as mit or apache-2.0, without other signs")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise RunFault(
            f"{folder} exists and is not an empty folder", hint="give another one with -o", where=[str(folder)]
        )
    with _removed_if_failed(folder):
        return _export(load_trained(run, step), folder, to, step, license)


@contextmanager
def _removed_if_failed(folder: Path) -> Iterator[None]:
    """An empty or missing folder is empty or missing again after an exception."""
    existed = folder.exists()
    try:
        yield
    except BaseException:
        for path in [*folder.iterdir()] if folder.exists() else ():
            remove_path(path)
        if not existed:
            remove_path(folder)
        raise


def _export(loaded: LoadedModel, folder: Path, to: str | None, step: int | str | None, license: str) -> Exported:
    if to == PLAIN:
        return _export_plain(loaded, folder, license)
    if to == PEFT and loaded.recipe.adapter is None:
        raise UsageFault(f"{loaded.folder.name} has no adapter", hint="leave --to out to write its model")
    if to is not None and to in listing("hf.families"):
        loaded = _as_other_model(loaded, settings_of("hf.families", to).MODEL)  # type: ignore[attr-defined]
    two = vocabulary_sizes(loaded.tokenizer, loaded.source_tokenizer)[1] is not None
    reasons = (
        ["its sources and targets have two vocabularies, and every family that minitf writes has one"] if two else []
    )
    reasons += _undo_standardization(loaded)
    facts = Facts(loaded.tokenizer.vocabulary, loaded.model.context, loaded.labels)
    family, head, config, read = choose(loaded.recipe, facts, None if to == PEFT else to, reasons, to == PEFT)
    if to == PEFT:
        return _export_adapter(loaded, folder, family, head, step)
    recipe = loaded.recipe.model_copy(update={"model": read})
    theirs = Architecture.of(
        recipe, loaded.tokenizer, loaded.source_tokenizer, loaded.labels, loaded.model.context
    ).on_meta()
    weights = write_tensors(theirs, family.names(read, head), equivalent_weights(loaded.model, theirs))
    files: dict[str, Content] = {
        CONFIG: show_json(config).encode(),
        WEIGHTS: tensors.Serialized(_named(weights, family, head)),
        **tokenizer_files(loaded),
        **_two_tokenizers(loaded),
        CARD: model_card(loaded, head.architecture, license).encode(),
        RECIPE: (loaded.folder / RESOLVED).read_bytes(),
    }
    _write(folder, files)
    model = loaded.model.eval()
    parity = compare(model, head, make_batch(model, loaded.tokenizer.vocabulary), folder)
    parity.check(folder)
    _write(folder, {FILE: show_json(parity.to_json()).encode()})
    return Exported(folder, head.architecture, parity)


def _as_other_model(loaded: LoadedModel, kind: str) -> LoadedModel:
    """The same weights as a model of this kind, if the objective says that they are one; else as they are."""
    recipe = loaded.recipe
    if kind != recipe.objective.ALSO_MODEL:
        return loaded
    settings: Any = settings_of("models", kind)
    model_settings = settings.model_validate(recipe.model.model_dump(exclude={"kind", "init_from"}))
    recipe = recipe.model_copy(update={"model": model_settings})
    architecture = Architecture.of(
        recipe, loaded.tokenizer, loaded.source_tokenizer, loaded.labels, loaded.model.context
    )
    model = architecture.initialize(0)
    model.load_weights(loaded.model.weights())
    return replace(loaded, recipe=recipe, model=model)


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


def _export_adapter(loaded: LoadedModel, folder: Path, family: Family, head: Head, step: int | str | None) -> Exported:
    """The adapter alone; read back, its products are those of the run."""
    settings = loaded.recipe.adapter
    assert settings is not None
    if whole := read_fully_trainable(loaded.folder):
        fault = f"{loaded.folder.name} trained {whole[0]} beside its adapter, which is no part of one"
        raise RunFault(
            fault,
            hint="without --to peft the adapter is merged into the model that is written",
            where=[str(loaded.folder)],
        )
    if settings.merge and step is None:
        step = "best"  # model.safetensors has it merged
    weights = load_model(loaded.folder, step)
    written, config = written_adapter(loaded.model, weights, family, head, settings, str(loaded.recipe.model.init_from))
    _write(folder, {ADAPTER: show_json(config).encode(), ADAPTER_WEIGHTS: tensors.Serialized(written)})
    read_adapter(folder)
    return Exported(folder, f"an adapter of {head.architecture}", None)


def _two_tokenizers(loaded: LoadedModel) -> dict[str, bytes]:
    """Where sources and targets are split in two ways, both tokenizers, which minitf reads: transformers has one."""
    if loaded.source_tokenizer is loaded.tokenizer:
        return {}
    return {
        SAVED_TARGETS: loaded.tokenizer.to_json().encode(),
        SAVED_SOURCES: loaded.source_tokenizer.to_json().encode(),
    }


def _named(weights: Mapping[str, Tensor], family: Family, head: Head) -> dict[str, Tensor]:
    """The tensors under their full names."""
    prefix = "" if head.base else family.PREFIX
    return {prefix + name[1:] if name.startswith(".") else name: tensor for name, tensor in weights.items()}


def _export_plain(loaded: LoadedModel, folder: Path, license: str) -> Exported:
    texts: dict[str, Any] = {
        name: (loaded.folder / name).read_bytes() for name in MODEL_TEXT_FILES if (loaded.folder / name).exists()
    }
    weights = {WEIGHTS: tensors.Serialized(loaded.model.weights())}
    card = {CARD: model_card(loaded, PLAIN, license).encode(), RECIPE: (loaded.folder / RESOLVED).read_bytes()}
    _write(folder, {**texts, **weights, **card})
    tensors.read(folder / WEIGHTS, tensors.specs(loaded.model.weights()))
    return Exported(folder, PLAIN, None)


def _write(folder: Path, files: Mapping[str, Content]) -> None:
    with storage_errors(f"writing {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with open(folder / name, "wb") as file:
                file.writelines(chunks(content))


def model_card(loaded: LoadedModel, written_as: str, license: str) -> str:
    """Markdown with the header that Hugging Face's hub reads. license: an identifier such as mit."""
    record, recipe = manifest.read(loaded.folder), loaded.recipe
    figures = "\n".join(f"| {name} | {value:.6g} |" for name, value in record.metrics.items() if value is not None)
    table = f"| metric | value |\n| --- | --- |\n{figures}\n" if figures else "No metrics were recorded.\n"
    data = f"Trained on `{recipe.data.train}`" if record.step else "Imported; its training data are not known to minitf"
    shifted = recipe.model.kind == recipe.objective.ALSO_MODEL
    reading = f"\n\n{SHIFTED}" if shifted else ""
    return f"""---
license: {license}
library_name: transformers
tags: [minitf, {recipe.model.kind}]
---

# {loaded.folder.name}

{written_as}, {record.parameters:,} parameters, context {loaded.model.context} tokens,
vocabulary {loaded.tokenizer.vocabulary.size:,}.
Objective: {recipe.objective.kind}. Written by minitf {mini_tf.__version__}.{reading}

## Data

{data}; {record.step:,} training steps.

## Figures

{table}
## Recipe

```yaml
{dump(recipe)}```
"""
