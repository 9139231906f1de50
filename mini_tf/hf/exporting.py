"""Export of a run as a new folder: in a format (`formats`), or as a model of a family of Hugging Face models."""

import re
from dataclasses import replace
from pathlib import Path

from mini_tf.data.tokenization.tokenizer_files import SAVED_SOURCES
from mini_tf.hf.family_choice import CONFIG, as_family, as_other_model
from mini_tf.hf.formats import Exported, ExportRequest, Format, new_folder
from mini_tf.hf.model_folder import WEIGHTS
from mini_tf.hf.proof import compare, make_batch
from mini_tf.hf.sentence_folder import sentence_files
from mini_tf.hf.tokenizer_config import generation_files, tokenizer_files
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.recipe.values import show
from mini_tf.run import finding, tensors
from mini_tf.run.disk import Content
from mini_tf.system.errors import UsageFault
from mini_tf.system.strict_json import show_json
from mini_tf.trained.ensembles import one_of_ensemble
from mini_tf.trained.opening import load_trained

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
    if wanted is not None:
        request = replace(request, loaded=as_other_model(request.loaded, wanted))
    loaded = request.loaded
    _, head, config, weights = as_family(loaded, wanted)
    files: dict[str, Content] = {
        CONFIG: show_json(config).encode(),
        WEIGHTS: tensors.Serialized(weights),
        **generation_files(loaded, config),
        **tokenizer_files(loaded),
        **request.card(head.architecture),
    }
    if loaded.source_tokenizer is not loaded.tokenizer:  # minitf reads both; transformers has one
        files[SAVED_SOURCES] = loaded.source_tokenizer.to_json().encode()
    if not loaded.recipe.objective.HEAD:
        files |= sentence_files(loaded.recipe, loaded.model.d_model, loaded.model.context)
    request.write(files)
    model = loaded.model.eval()
    batch = make_batch(model, loaded.tokenizer.vocabulary)
    return request.proved(head.architecture, compare(model, head, batch, request.folder))
