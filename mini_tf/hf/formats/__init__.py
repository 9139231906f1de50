"""The formats, beside those of Hugging Face's families, that a run is exported to; each other file is one: `--to WORD`.

A format writes a new folder and proves what it wrote by the reader that the format has. A folder that could not be
written, or whose proof fails, is left empty by `exporting.export_model`.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mini_tf
from mini_tf.hf.proof import FILE, Parity
from mini_tf.recipe.kinds import Kind
from mini_tf.recipe.reading import dump
from mini_tf.run import manifest
from mini_tf.run.disk import Content, chunks, storage_errors, temporary_beside
from mini_tf.system.errors import RunFault, Unavailable
from mini_tf.system.safe_files import remove_path
from mini_tf.system.strict_json import show_json
from mini_tf.trained.opening import LoadedModel

SHIFTED = "A masked token is predicted at the position before it: of a mask at position i, take the logits at i - 1."


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

    def write(self, files: Mapping[str, Content]) -> None:
        with storage_errors(f"writing {self.folder}"):
            for name, content in files.items():
                (self.folder / name).parent.mkdir(exist_ok=True)
                with open(self.folder / name, "wb") as file:
                    file.writelines(chunks(content))

    def card(self, written_as: str, library: str = "transformers", usage: str = "") -> dict[str, Content]:
        """The recipe, and the model card: Markdown with the header that Hugging Face's hub reads.

        library: that loads the model; usage: Markdown on how it does.
        """
        loaded = self.loaded
        record, recipe = manifest.read(loaded.folder), loaded.recipe
        figures = "\n".join(f"| {name} | {value:.6g} |" for name, value in record.metrics.items() if value is not None)
        table = f"| metric | value |\n| --- | --- |\n{figures}\n" if figures else "No metrics were recorded.\n"
        data = "Imported; its training data are not known to minitf"
        if record.step:
            data = f"Trained on `{recipe.data.train}`"
        shifted = recipe.model.kind == recipe.objective.ALSO_MODEL
        notes = [SHIFTED] * shifted + [f"Note: {self.note}."] * (self.note is not None)
        reading = "".join(f"\n\n{note}" for note in notes)
        text = f"""---
license: {self.license}
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
        return {"README.md": text.encode(), "recipe.yaml": (loaded.folder / "resolved.yaml").read_bytes()}

    def proved(
        self, written_as: str, parity: Parity, notes: Sequence[str] = (), measured: Mapping[str, Any] | None = None
    ) -> "Exported":
        """The export with its proof, which is written, too. RunFault if the outputs differ."""
        parity.check(self.target)
        self.write({FILE: show_json(parity.to_json() | dict(measured or {})).encode()})
        return Exported(self.target, written_as, parity, tuple(notes))


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


class Format(Kind):
    """A format of exported models."""

    PACKAGE = "hf.formats"

    def check_installed(self) -> None:
        """Import, within `packages`, what it needs beside minitf; Unavailable if something is not installed."""

    @contextmanager
    def packages(self) -> Iterator[None]:
        """A block that imports packages of the extra of its name."""
        try:
            yield
        except ImportError as error:
            package = (error.name or "").partition(".")[0]
            fault = f"--to {self.kind} needs the package {package}"
            raise Unavailable(fault, hint=f"pip install 'minitf[{self.kind}]'") from None

    def export(self, request: ExportRequest) -> Exported:
        """Write the model into the folder of the request, and compare its outputs with those of the run.

        RunFault, with the reasons, if the format has no such model or the outputs differ.
        """
        raise NotImplementedError
