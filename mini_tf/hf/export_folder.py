"""What every export has: a new folder, which is whole or not there, its files and its model card."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import mini_tf
from mini_tf.hf.proof import Parity
from mini_tf.recipe.reading import dump
from mini_tf.run import manifest
from mini_tf.run.disk import Content, chunks, storage_errors, temporary_beside
from mini_tf.system.errors import RunFault
from mini_tf.system.safe_files import remove_path
from mini_tf.trained.opening import LoadedModel

SHIFTED = "A masked token is predicted at the position before it: of a mask at position i, take the logits at i - 1."
CARD, RECIPE, RESOLVED = "README.md", "recipe.yaml", "resolved.yaml"


@dataclass(frozen=True)
class ExportRequest:
    """What is to be written: the model of a run, with its tokenizers and labels, into a folder.

    target: what the folder is called in the end. step: of the checkpoint, as in `load_trained`. license: for the card.
    note: a line of what is left out, if something is.
    """

    loaded: LoadedModel
    folder: Path
    target: Path
    step: int | str | None
    license: str
    note: str | None = None


@dataclass(frozen=True)
class Exported:
    """folder: what was written; written_as: architecture or format; parity: None of plain tensors; notes: lines."""

    folder: Path
    written_as: str
    parity: Parity | None
    notes: tuple[str, ...] = ()


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder, which becomes `folder` at the end of the block, and is removed after an exception.

    So an export is whole or not there, even if the process is killed; what is left then, the next one there removes.
    RunFault if `folder` exists and is not empty, or cannot be replaced.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise RunFault(
            f"{folder} exists and is not an empty folder", hint="give another one with -o", where=[str(folder)]
        )
    whole = folder.resolve()
    if whole == Path.cwd() or os.path.ismount(whole):
        fault = f"{folder} is {'the working directory' if whole == Path.cwd() else 'a mount point'}"
        raise RunFault(f"{fault}, which a new folder cannot replace", hint="-o names one in it", where=[str(folder)])
    temporary = temporary_beside(whole)
    remove_path(temporary)
    try:
        with storage_errors(f"writing {folder}"):
            temporary.mkdir(parents=True)
        yield temporary
        with storage_errors(f"writing {folder}"):
            temporary.rename(whole)  # which replaces an empty folder
    finally:
        remove_path(temporary)


def write_files(folder: Path, files: Mapping[str, Content]) -> None:
    with storage_errors(f"writing {folder}"):
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            with open(folder / name, "wb") as file:
                file.writelines(chunks(content))


def card_files(
    request: ExportRequest, written_as: str, library: str = "transformers", usage: str = ""
) -> dict[str, Content]:
    """The model card and the recipe of an exported model; the arguments are those of `model_card`."""
    return {
        CARD: model_card(request, written_as, library, usage).encode(),
        RECIPE: (request.loaded.folder / RESOLVED).read_bytes(),
    }


def model_card(request: ExportRequest, written_as: str, library: str = "transformers", usage: str = "") -> str:
    """Markdown with the header that Hugging Face's hub reads.

    library: that loads the model; usage: Markdown on how it does.
    """
    loaded = request.loaded
    record, recipe = manifest.read(loaded.folder), loaded.recipe
    figures = "\n".join(f"| {name} | {value:.6g} |" for name, value in record.metrics.items() if value is not None)
    table = f"| metric | value |\n| --- | --- |\n{figures}\n" if figures else "No metrics were recorded.\n"
    data = f"Trained on `{recipe.data.train}`" if record.step else "Imported; its training data are not known to minitf"
    shifted = recipe.model.kind == recipe.objective.ALSO_MODEL
    notes = [SHIFTED] * shifted + [f"Note: {request.note}."] * (request.note is not None)
    reading = "".join(f"\n\n{note}" for note in notes)
    return f"""---
license: {request.license}
library_name: {library}
tags: [minitf, {recipe.model.kind}]
---

# {loaded.folder.name}

{written_as}, {record.parameters:,} parameters, context {loaded.model.context} tokens,
vocabulary {loaded.tokenizer.vocabulary.size:,}.
Objective: {recipe.objective.kind}. Written by minitf {mini_tf.__version__}.{reading}

{usage}## Data

{data}; {record.step:,} training steps.

## Figures

{table}
## Recipe

```yaml
{dump(recipe)}```
"""
