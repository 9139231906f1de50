"""Export of a run as a new folder: in a format (`formats`), or as a model of a family of Hugging Face models."""

import re
from dataclasses import replace
from pathlib import Path

from mini_tf.data.tokenization.tokenizer_files import SAVED_SOURCES, SAVED_TARGETS
from mini_tf.hf.export_folder import Exported, ExportRequest, card_files, new_folder, write_files
from mini_tf.hf.family_choice import CONFIG
from mini_tf.hf.family_model import as_family, as_other_model
from mini_tf.hf.formats import Format
from mini_tf.hf.generation_settings import generation_files
from mini_tf.hf.model_folder import WEIGHTS
from mini_tf.hf.proof import FILE, compare, make_batch
from mini_tf.hf.sentence_folder import sentence_files
from mini_tf.hf.tokenizer_config import tokenizer_files
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.recipe.values import show
from mini_tf.run import finding, tensors
from mini_tf.run.disk import Content
from mini_tf.system.errors import UsageFault
from mini_tf.system.strict_json import show_json
from mini_tf.trained.ensembles import one_of_ensemble
from mini_tf.trained.opening import LoadedModel, load_trained

FORMATS = "hf.formats"
"""The package of formats; every other word is a family."""


def export_model(
    run: str, folder: Path, to: str | None = None, step: int | str | None = None, license: str = "unknown"
) -> Exported:
    """Write the model of a run into a new folder, load it from there and compare the outputs.

    to: a format, or a family of Hugging Face models; None: the first family that has the model. Raises RunFault with
    the reasons if the model cannot be written so, or if the outputs differ by more than `proof.TOLERANCE`, and
    Unavailable if a format needs a package that is not installed; the folder is then not there.
    """
    if not re.fullmatch(r"[\w.+-]+( [\w.+-]+)*", license):
        raise UsageFault(f"--license {show(license)}: must be a name such as mit or apache-2.0, without other signs")
    chosen = settings_of(FORMATS, to)() if to is not None and to in listing(FORMATS) else None
    if isinstance(chosen, Format):
        chosen.check_installed()
    with new_folder(folder) as temporary:
        loaded, note = load_trained(run, step), one_of_ensemble(finding.find(run))
        request = ExportRequest(loaded, temporary, folder, step, license, note)
        exported = chosen.export(request) if isinstance(chosen, Format) else _export_family(request, to)
        return replace(exported, notes=(*filter(None, [note]), *exported.notes))


def _export_family(request: ExportRequest, wanted: str | None) -> Exported:
    """As a model that transformers loads."""
    if wanted is not None:
        request = replace(request, loaded=as_other_model(request.loaded, wanted))
    loaded, folder = request.loaded, request.folder
    _, head, config, weights = as_family(loaded, wanted)
    files: dict[str, Content] = {
        CONFIG: show_json(config).encode(),
        WEIGHTS: tensors.Serialized(weights),
        **generation_files(loaded, config),
        **tokenizer_files(loaded),
        **_two_tokenizers(loaded),
        **card_files(request, head.architecture),
    }
    if not loaded.recipe.objective.HEAD:
        files |= sentence_files(loaded.recipe, loaded.model.d_model, loaded.model.context)
    write_files(folder, files)
    model = loaded.model.eval()
    parity = compare(model, head, make_batch(model, loaded.tokenizer.vocabulary), folder)
    parity.check(request.target)
    write_files(folder, {FILE: show_json(parity.to_json()).encode()})
    return Exported(request.target, head.architecture, parity)


def _two_tokenizers(loaded: LoadedModel) -> dict[str, bytes]:
    """Where sources and targets are split in two ways, both tokenizers, which minitf reads: transformers has one."""
    if loaded.source_tokenizer is loaded.tokenizer:
        return {}
    return {
        SAVED_TARGETS: loaded.tokenizer.to_json().encode(),
        SAVED_SOURCES: loaded.source_tokenizer.to_json().encode(),
    }
