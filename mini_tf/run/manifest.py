"""run.json: what a run is, how it stands, and what it was made with. Replaced as a whole, so a reader never meets a part."""

import json
import math
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from mini_tf.run.disk import Disk, replace
from mini_tf.system.errors import RunFault
from mini_tf.system.plain_file import read_record

FORMAT = 3
OTHER_HASHES = "was made by an earlier minitf, which knew data by their files; whether they are the same cannot be told"
"""What is said of a run whose record is not one that `hashes_ids`."""
NAME = "run.json"

RunState = Literal["running", "done", "stopped", "failed", "diverged"]
Precision = Literal["fp32", "bf16", "fp16"]


def _with(least: int, required: bool, **kinds: Any) -> AfterValidator:
    """A mapping that has these keys with values of such types, whole numbers from `least`."""

    def check(fields: dict[str, Any]) -> dict[str, Any]:
        for name, kind in kinds.items():
            value = fields.get(name)
            if (required or name in fields) and (
                not isinstance(value, kind) or (kind is not bool and isinstance(value, int) and value < least)
            ):
                raise ValueError(f"{name} cannot be {str(value)[:40]!r}")
        return fields

    return AfterValidator(check)


def _known_precision(auto: dict[str, Any]) -> dict[str, Any]:
    if (precision := auto.get("precision", "fp32")) not in get_args(Precision):
        raise ValueError(f"precision cannot be {precision[:40]!r}")
    return auto


_number = (int, float)


class KindSource(BaseModel):
    """The installed package that a kind of a run comes from, with its version at the run's first start."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    package: str
    version: str


_Best = Annotated[dict[str, int | float], _with(0, True, step=int, loss=_number)]
_Model = Annotated[dict[str, Any], _with(0, True, step=int, score=(*_number, NoneType), sha256=str)]
_Kinds = {"device": str, "precision": str, "compile": bool, "threads": int, "micro_batch_size": int}
_Auto = Annotated[dict[str, Any], _with(1, False, **_Kinds), AfterValidator(_known_precision)]


class Manifest(BaseModel):
    """The fields of run.json; keys of a later minor version are kept out of the way, those of a later format refused."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: int = FORMAT
    state: RunState = "running"
    """`running` without a living process means that it was killed; see `finding.state_of`."""
    exit_code: int | None = None
    error: str | None = None
    step: NonNegativeInt = 0
    """Finished steps, as of the last checkpoint or the end."""
    best: _Best | None = None
    """{step, loss}: the lowest validation loss so far."""
    model: _Model | None = None
    """Where model.safetensors came from: {step, score, sha256}."""
    publishing: str | None = None
    """Hash of the model.safetensors that is just being put there, where no checkpoint has it: a merged one."""
    metrics: dict[str, float | None] = {}
    """The last evaluation's, by the names that --assert uses (val.loss, ...)."""
    extensions: list[tuple[NonNegativeInt, PositiveInt]] = []
    """Each --extend: the step at which the run had ended, and how many further ones were asked for."""
    recipe: str = ""
    run_id: str = ""
    """Hash of what decides the result: recipe, contents of the data, tokenizer."""
    decides: dict[str, Any] = {}
    """What decides the result, by dotted key, to say what changed."""
    hashes: dict[str, str] = {}
    """Contents of the data and the tokenizer."""
    seed: int = 0
    auto: _Auto = {}
    """What `auto` resolved to at the first start, reused by every continuation."""
    command: list[str] = []
    versions: dict[str, str] = {}
    kinds: dict[str, KindSource] = {}
    """Where each kind comes from that is not minitf's own, by package of kinds and word: "attention.mean"."""
    parameters: NonNegativeInt = 0
    """Of the model; 0 where an earlier minitf did not record it."""
    loss_unit: str = ""
    """What val.loss is: nats per token, per character, per label, ..."""
    figures: list[str] = []
    """Metrics by which such runs are compared before the loss, the first that was measured: val.accuracy, ..."""
    started: float = 0.0
    """Unix seconds of the first start."""
    pid: int = 0
    host: str = ""


def hashes_ids(record: Manifest) -> bool:
    """Whether `hashes["data"]` is of ids, as of ours, so that both can be compared."""
    return record.format >= 3


def read(folder: Path) -> Manifest:
    """The manifest of a run folder; RunFault where there is none, it is damaged, or a later format."""
    path = folder / NAME
    try:
        fields = json.loads(read_record(path), parse_float=_finite, parse_constant=_finite)
        if not isinstance(fields, dict):
            raise ValueError("it is not an object of JSON")
        written = fields["format"]
        if isinstance(written, int) and written > FORMAT:
            raise RunFault(f"{path} was written by format {str(written)[:20]}; this minitf reads format {FORMAT}", where=[str(path)])
        return Manifest.model_validate(fields)
    except OSError as error:
        raise RunFault(f"{folder} is not a run folder: {NAME}: {error.strerror}", where=[str(folder)]) from error
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError, ValidationError) as error:
        raise RunFault(f"{path} is damaged: {_words(error)}", where=[str(path)]) from error


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"it holds the number {text}")
    return number


def _words(error: Exception) -> str:
    """What is wrong, in a line; of a field the fault names it."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'][:3]))}: {first['msg']}"[:200]
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]}"
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def write(folder: Path, manifest: Manifest, disk: Disk) -> None:
    text = json.dumps(manifest.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False)
    replace(disk, folder / NAME, text.encode(errors="backslashreplace") + b"\n")  # half a surrogate pair becomes its JSON escape
