"""Import of a Hugging Face folder as a run: its weights, its tokenizer, and the recipe of its architecture."""

import re
from dataclasses import dataclass
from pathlib import Path

from mini_tf.jobs.assembling import write_model_files
from mini_tf.jobs.interchange.proof import FILE, Parity, compare, make_batch
from mini_tf.jobs.session import Reporter, save_checkpoint
from mini_tf.recipe.parsing.yaml_tree import Node
from mini_tf.recipe.reading import Resolved, dump
from mini_tf.run.folder import CheckpointTensors
from mini_tf.run.identity import Identity
from mini_tf.run.opening import RunLocation, open_run, start_run
from mini_tf.system.strict_json import show_json
from mini_tf.trained.foreign import ForeignModel, open_foreign, weights_hash
from mini_tf.trained.opening import load_trained


@dataclass(frozen=True)
class Imported:
    """folder: the new run; parameters: of its model."""

    folder: Path
    parity: Parity
    parameters: int


def import_model(source: Path, location: RunLocation, reporter: Reporter, tokenizer: Path | None = None) -> Imported:
    """Write a run with the model of a Hugging Face folder, and compare the outputs of both.

    tokenizer: file or folder of its tokenizer; default: the folder. Raises RunFault if minitf has no such model, a file
    is damaged, or the outputs differ by more than `proof.TOLERANCE`.
    """
    foreign = open_foreign(source.absolute(), tokenizer)
    for note in foreign.notes:
        reporter.say(note)
    text = f"# {foreign.head.architecture}, imported from {source.absolute()}\n{dump(foreign.recipe)}"
    name = re.sub(r"[^\w.-]+", "-", source.absolute().name).strip("-.") or foreign.family.kind
    resolved = Resolved(foreign.recipe, name, {}, False, text, source, Node({}, str(source)))
    identity = Identity.of(resolved, {"tokenizer": foreign.tokenizer.hash, "init": weights_hash(source.absolute())})
    with open_run(location, identity) as run:
        if run.status != "finished":
            start_run(run, identity)
            model = foreign.model
            write_model_files(run, foreign.recipe, model, foreign.loaded(run.folder))
            save_checkpoint(run, 0, CheckpointTensors(model.weights(), {}, {}), {}, None, foreign.recipe.checkpoint, reporter.warn)
        parity = _prove(run.folder, foreign, source.absolute())
        run.write(FILE, show_json(parity.to_json()))
        parity.check(run.folder)
        run.finish("done")
        return Imported(run.folder, parity, run.manifest.parameters)


def _prove(run: Path, foreign: ForeignModel, source: Path) -> Parity:
    """The model is read back from the run folder."""
    model, vocabulary = load_trained(run).model.eval(), foreign.tokenizer.vocabulary
    return compare(model, foreign.head, make_batch(model, vocabulary.special_ids, vocabulary.size), source)
