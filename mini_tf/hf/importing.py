"""Import of a Hugging Face folder as a run: its weights, its tokenizer, and the recipe of its architecture."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from mini_tf.data.tokenized import Report
from mini_tf.hf.model_folder import ForeignModel, open_foreign, weights_hash
from mini_tf.hf.peft_files import WEIGHTS, is_adapter, read_adapter
from mini_tf.hf.proof import FILE, Parity, compare, make_batch, unknown_to_transformers
from mini_tf.recipe.parsing.yaml_tree import Node
from mini_tf.recipe.reading import Resolved, dump
from mini_tf.run import manifest
from mini_tf.run.disk import FileHashes
from mini_tf.run.identity import Identity
from mini_tf.run.location import RunLocation, open_run, start_run
from mini_tf.run.tensors import CheckpointTensors
from mini_tf.system.errors import RunFault, UsageFault
from mini_tf.system.strict_json import show_json
from mini_tf.trained.framing import check_template
from mini_tf.trained.opening import Trained, load_trained, ready, write_model_files


@dataclass(frozen=True)
class Imported:
    """folder: the new run; parameters: of its model."""

    folder: Path
    parity: Parity
    parameters: int


def import_model(
    source: Path,
    location: RunLocation,
    say: Report,
    warn: Report,
    tokenizer: Path | None = None,
    base: Path | None = None,
) -> Imported:
    """Write a run with the model of a Hugging Face folder, and compare the outputs of both.

    tokenizer: file or folder of its tokenizer; default: the folder. base: the model of an adapter in PEFT's format,
    which is added to it; default: the folder that the adapter names. UsageFault if there is no adapter.

    The folder of the run is made after the proof. Raises RunFault if minitf has no such model, a file is damaged, or
    the outputs differ by more than `proof.TOLERANCE`.
    """
    foreign, model_folder, deltas = read_foreign(source, say, tokenizer, base)
    text = f"# {foreign.head.architecture}, imported from {source.absolute()}\n{dump(foreign.recipe)}"
    name = re.sub(r"[^\w.-]+", "-", source.absolute().name).strip("-.") or foreign.family.kind
    resolved = Resolved(foreign.recipe, name, {}, False, text, source, Node({}, str(source)))
    hashes = {"tokenizer": foreign.tokenizer.hash, "init": weights_hash(model_folder)}
    if foreign.source_tokenizer is not foreign.tokenizer:
        hashes["source_tokenizer"] = foreign.source_tokenizer.hash
    identity = Identity.of(resolved, hashes)
    if deltas is not None:
        identity = replace(identity, hashes={**identity.hashes, "adapter": FileHashes().sha256(source / WEIGHTS)})
    batch = make_batch(foreign.model, foreign.tokenizer.vocabulary)
    parity = compare(foreign.model, foreign.head, batch, model_folder, deltas or {})
    parity.check(source)
    with open_run(location, identity) as run:
        if run.status != "finished":
            start_run(run, identity)
            write_model_files(run, foreign.recipe, foreign.model, foreign.loaded(run.folder))
            run.save(0, CheckpointTensors(foreign.model.weights(), {}, {}), {})
            run.publish(warn=warn)
        _check_written(run.folder, foreign)
        run.write(FILE, show_json(parity.to_json()))
        run.finish("done")
        return Imported(run.folder, parity, run.manifest.parameters)


def read_foreign(
    source: Path, say: Report, tokenizer: Path | None = None, base: Path | None = None
) -> tuple[ForeignModel, Path, Mapping[str, Tensor] | None]:
    """The model of a Hugging Face folder, the folder of its weights, and what an adapter in it adds to them, if any.

    Raises what `import_model` does, before its proof.
    """
    adapter = read_adapter(source) if is_adapter(source) else None
    if adapter is None and base is not None:
        hint = "leave --base out to import the folder alone"
        raise UsageFault(f"--base {base}: {source} is no adapter in PEFT's format", hint=hint)
    model_folder = source.absolute() if adapter is None else (base or Path(adapter.base)).absolute()
    if adapter is not None and (model_folder / manifest.NAME).exists():
        hint = "--base names the model folder that the run was imported from, or an export of the run"
        raise RunFault.located(str(source), f"its base is a run of minitf: {model_folder}", hint=hint)
    deltas = None if adapter is None else adapter.deltas
    foreign = open_foreign(model_folder, tokenizer, deltas or {}, unknown_to_transformers(model_folder))
    check_template(foreign, str(tokenizer or model_folder))
    for note in foreign.notes:
        say(note)
    if deltas is not None:
        say(f"the adapter is added to {len(deltas)} matrices of {model_folder}")
    return foreign, model_folder, deltas


def open_model(source: Path, device: str, say: Report) -> Trained:
    """The model of a Hugging Face folder for inference; nothing is written, and `import_model` has the proof.

    Raises what `read_foreign` does.
    """
    foreign, _, _ = read_foreign(source, say)
    return ready(foreign.loaded(source.absolute()), device, objective_weights={})


def _check_written(run: Path, foreign: ForeignModel) -> None:
    """RunFault unless the run folder has the tensors of the proof."""
    written = load_trained(run).model.weights()
    if other := [name for name, tensor in foreign.model.weights().items() if not torch.equal(written[name], tensor)]:
        raise RunFault.located(str(run), f"{other[0]} is not the tensor that was imported", "--fresh starts a new run")
