"""run.json: what a run is, how it stands, and what it was made with. Replaced as a whole, so a reader never meets a part."""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mini_tf.errors import RunFault
from mini_tf.run.disk import Disk, replace

FORMAT = 1
NAME = "run.json"

RunState = Literal["running", "done", "stopped", "failed", "diverged"]


class Manifest(BaseModel):
    """The fields of run.json; keys of a later minor version are kept out of the way, those of a later format refused."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: int = FORMAT
    state: RunState = "running"
    """`running` without a living process means that it was killed; see `finding.state_of`."""
    exit_code: int | None = None
    error: str | None = None
    step: int = 0
    """Finished steps, as of the last checkpoint or the end."""
    best: dict[str, int | float] | None = None
    """{step, loss}: the lowest validation loss so far."""
    model: dict[str, Any] | None = None
    """Where model.safetensors came from: {step, score, sha256}."""
    metrics: dict[str, float | None] = {}
    """The last evaluation's, by the names that --assert uses (val.loss, ...)."""
    extensions: list[tuple[int, int]] = []
    """Each --extend: the step at which the run had ended, and how many further ones were asked for."""
    recipe: str = ""
    run_id: str = ""
    """Hash of what decides the result: recipe, contents of the data, tokenizer."""
    decides: dict[str, Any] = {}
    """What decides the result, by dotted key, to say what changed."""
    hashes: dict[str, str] = {}
    """Contents of the data and the tokenizer."""
    seed: int = 0
    auto: dict[str, Any] = {}
    """What `auto` resolved to at the first start, reused by every continuation."""
    command: list[str] = []
    versions: dict[str, str] = {}
    started: float = 0.0
    """Unix seconds of the first start."""
    pid: int = 0
    host: str = ""


def read(folder: Path) -> Manifest:
    """The manifest of a run folder; RunFault where there is none, it is damaged, or a later format."""
    path = folder / NAME
    try:
        with open(path, encoding="utf-8") as file:
            fields = json.loads(file.read(1 << 24))
        written = fields["format"]
        if isinstance(written, int) and written > FORMAT:
            raise RunFault(f"{path} was written by format {written}; this minitf reads format {FORMAT}", where=[str(path)])
        return Manifest.model_validate(fields)
    except OSError as error:
        raise RunFault(f"{folder} is not a run folder: {NAME}: {error.strerror}", where=[str(folder)]) from error
    except (ValueError, KeyError, TypeError, RecursionError, ValidationError) as error:
        raise RunFault(f"{path} is damaged: {str(error).splitlines()[0]}", where=[str(path)]) from error


def write(folder: Path, manifest: Manifest, disk: Disk) -> None:
    text = json.dumps(manifest.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False)
    replace(disk, folder / NAME, text.encode() + b"\n")
