"""run.json: identity, state, results and environment of a run. Replaced atomically."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)

from mini_tf.run.disk import Disk, replace
from mini_tf.system import strict_json
from mini_tf.system.errors import Diverged, MinitfError, RunFault, reason_of, to_minitf_error
from mini_tf.system.safe_files import read_small_file

FORMAT = 1
NAME = "run.json"

RunState = Literal["running", "done", "stopped", "failed", "diverged"]
Precision = Literal["fp32", "bf16", "fp16"]


def _with_keys(minimum: int, required: bool, **types: Any) -> AfterValidator:
    """A mapping whose values at these keys have these types; integers are at least `minimum`."""

    def check(fields: dict[str, Any]) -> dict[str, Any]:
        for name, type_ in types.items():
            value = fields.get(name)
            right = (
                isinstance(value, bool) if type_ is bool else isinstance(value, type_) and not isinstance(value, bool)
            )
            if (required or name in fields) and (
                not right or (type_ is not bool and isinstance(value, int) and value < minimum)
            ):
                raise ValueError(f"{name} cannot be {str(value)[:40]!r}")
        return fields

    return AfterValidator(check)


def _check_precision(auto: dict[str, Any]) -> dict[str, Any]:
    if (precision := auto.get("precision", "fp32")) not in get_args(Precision):
        raise ValueError(f"precision cannot be {precision[:40]!r}")
    return auto


def _check_one_metric(best: dict[str, int | float]) -> dict[str, int | float]:
    if len(best) != 2:
        raise ValueError(f"must have a step and one metric, not {', '.join(best)[:80]}")
    return best


_number = (int, float)
_FROM_JSON = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)
"""A number is a number and finite, not text or a boolean."""
_FROM_LIST = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
"""For a tuple, which is a list in JSON."""


class KindSource(BaseModel):
    """The installed package that defines a kind of a run, and its version at the run's first start."""

    model_config = _FROM_JSON

    package: str
    version: str


class Decision(BaseModel):
    """How labels follow from the outputs of a published model, as fitted on the validation data after training.

    bias: added to the log-probability of a class, in nats. figures: before and after, by metric, cross-fitted.
    """

    model_config = _FROM_JSON

    temperature: float = Field(1.0, gt=0)
    bias: dict[str, float] = {}
    figures: dict[str, Annotated[tuple[float, float], _FROM_LIST]] = {}

    @classmethod
    def of_ensemble(cls, each: Sequence["Decision | None"]) -> "Decision | None":
        """Of a mean of probabilities that have the temperatures of their models already: the mean of the biases."""
        fitted = [decision for decision in each if decision is not None]
        names = dict.fromkeys(name for decision in fitted for name in decision.bias)
        return (
            cls(bias={name: sum(decision.bias.get(name, 0.0) for decision in fitted) / len(each) for name in names})
            if fitted
            else None
        )


def _check_decision(model: dict[str, Any]) -> dict[str, Any]:
    if (decision := model.get("decision")) is not None:
        Decision.model_validate(decision)
    return model


_Best = Annotated[dict[str, int | float], _with_keys(0, True, step=int), AfterValidator(_check_one_metric)]
_MODEL_TYPES = {"step": int, "score": (*_number, NoneType), "sha256": str}
_Model = Annotated[dict[str, Any], _with_keys(0, True, **_MODEL_TYPES), AfterValidator(_check_decision)]
_AUTO_TYPES = {"device": str, "precision": str, "compile": bool, "threads": int, "micro_batch_size": int}
_Auto = Annotated[dict[str, Any], _with_keys(1, False, **_AUTO_TYPES), AfterValidator(_check_precision)]


class Manifest(BaseModel):
    """The fields of run.json. Unknown keys are ignored."""

    model_config = _FROM_JSON

    format: int = FORMAT
    state: RunState = "running"
    """`running` without a process that holds the lock means killed; see `finding.state_of`."""
    exit_code: int | None = None
    error: str | None = None
    step: NonNegativeInt = 0
    """Number of finished steps at the last checkpoint or the end."""
    best: _Best | None = None
    """{step, loss}: the lowest validation loss so far; or another metric, of eval.best."""
    model: _Model | None = None
    """The checkpoint published as model.safetensors: {step, score, sha256}, and its `decision` if one was fitted."""
    model_run: str | None = None
    """Of a set of runs: the one whose model is published, such as seed-2."""
    publishing: str | None = None
    """Hash of a model.safetensors with merged adapters while it is being written; no checkpoint has this hash."""
    metrics: dict[str, float | None] = {}
    """Metrics of the last evaluation, by their --assert names (val.loss, ...)."""
    baseline: str | None = None
    """Name of the best baseline, whose metrics are `baseline.METRIC`; None: none was measured."""
    extensions: list[Annotated[tuple[NonNegativeInt, PositiveInt], _FROM_LIST]] = []
    """(step at which the run had ended, number of additional steps) of each --extend."""
    recipe: str = ""
    run_id: str = ""
    """Hash of everything that determines the result: recipe, data and tokenizer contents."""
    decides: dict[str, Any] = {}
    """Values of the recipe keys that determine the result, to report changes."""
    hashes: dict[str, str] = {}
    """Hashes of the contents of data and tokenizer."""
    seed: int = 0
    auto: _Auto = {}
    """Resolved values of `auto` at the first start, reused by every continuation."""
    command: list[str] = []
    versions: dict[str, str] = {}
    kinds: dict[str, KindSource] = {}
    """Source of each kind that is not built in, by name: "attention.mean"."""
    parameters: NonNegativeInt = 0
    """Number of model parameters."""
    flops_per_step: NonNegativeInt | None = None
    """FLOPs of a training step, forward and backward; None if they change with the steps."""
    train_examples: NonNegativeInt | None = None
    """Number of training examples, or of documents."""
    loss_unit: str = ""
    """Unit of val.loss: nats per token, per character, per label, ..."""
    figures: list[str] = []
    """Metrics preferred to the loss for comparing runs, the first measured one is used: val.accuracy, ..."""
    lower_is_better: list[str] = ["loss", "perplexity", "bits_per_byte", "rmse"]
    """Metrics of which a lower value is better, without `val.`; of all others a higher one is."""
    started: float = 0.0
    """Unix time of the first start, seconds."""
    pid: int = 0
    host: str = ""

    def best_with(self, step: int, score: float | None, metric: str, sign: int) -> dict[str, int | float] | None:
        """`best` with a further checkpoint. score: `sign` times the metric, lower is better; None: it has none."""
        best = self.best
        if score is None or (best is not None and metric in best and sign * best[metric] <= score):
            return best
        return {"step": step, metric: sign * score}

    @property
    def decision(self) -> Decision | None:
        """The decision fitted for model.safetensors."""
        fitted = (self.model or {}).get("decision")
        return None if fitted is None else Decision.model_validate(fitted)

    def model_with(self, decision: Decision) -> dict[str, Any] | None:
        """`model`, with a decision fitted for it."""
        return None if self.model is None else {**self.model, "decision": decision.model_dump(mode="json")}


def check_format(path: Path, written: Any, expected: int) -> None:
    """RunFault if a file has another format than this version of minitf writes."""
    if isinstance(written, int) and written != expected:
        hint = "train again, or use the version of minitf that wrote it"
        message = f"has format {str(written)[:20]}; this version of minitf reads format {expected}"
        raise RunFault.about(path, message, hint)


def read(folder: Path) -> Manifest:
    """Read run.json of a folder; RunFault if it is missing, damaged or of another format."""
    path = folder / NAME
    try:
        fields = strict_json.read(read_small_file(path))
        if not isinstance(fields, dict):
            raise ValueError("it is not a JSON object")
        check_format(path, fields["format"], FORMAT)
        return Manifest.model_validate(fields)
    except OSError as error:
        raise RunFault.about(folder, f"is not a run folder: {NAME}: {error.strerror}") from error
    except (ValueError, KeyError) as error:  # and ValidationError
        raise RunFault.about(path, f"is damaged: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'][:3]))}: {first['msg']}"[:200]
    return reason_of(error)


def write(folder: Path, manifest: Manifest, disk: Disk) -> None:
    text = json.dumps(manifest.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False)
    replace(
        disk, folder / NAME, text.encode(errors="backslashreplace") + b"\n"
    )  # a lone surrogate becomes its JSON escape


def outcome(error: BaseException) -> tuple[RunState, int, str]:
    """State, exit code and message of a run that an error ended."""
    text = f"{type(error).__name__}: {error}" if not isinstance(error, MinitfError) else error.message
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 130
        return "stopped", code, "stopped"
    code = to_minitf_error(error).exit_code if isinstance(error, Exception) else 1
    return "diverged" if isinstance(error, Diverged) else "failed", code, text
