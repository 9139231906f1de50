"""The proof of an import or export: 16 sequences through both models, and the largest difference of the outputs."""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.hf.families import Head
from mini_tf.hf.model_folder import open_foreign, read_config
from mini_tf.nn.layers.head import pooled, token_index
from mini_tf.nn.model import Model
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.values import one_line
from mini_tf.system.errors import RunFault

TOLERANCE = 1e-4
"""Of the largest absolute output."""
SEQUENCES, LONGEST = 16, 32
FILE = "parity.json"


@dataclass(frozen=True)
class Batch:
    """Token ids of the cases, (B, L); mask: 1 where there is a token, to the right of which is padding.

    types: token types, None if the model has none. source, source_mask: of an encoder-decoder. has_pad: padding has an
    id of its own.
    """

    ids: Tensor
    mask: Tensor
    types: Tensor | None = None
    source: Tensor | None = None
    source_mask: Tensor | None = None
    has_pad: bool = True

    def tokens(self) -> Tokens:
        """The inputs of our model; the rows have no closing separators: the last token is the end of the text."""
        return Tokens(self.ids, TokenPositions.packed(self.mask), self.types)

    def source_tokens(self) -> Tokens | None:
        """The sources of our encoder-decoder."""
        if self.source is None or self.source_mask is None:
            return None
        return Tokens(self.source, TokenPositions.packed(self.source_mask))

    def alone(self) -> "Iterator[Batch]":
        """Each sequence by itself, without padding and source."""
        for row, length in enumerate(self.mask.sum(1).tolist()):
            at = slice(row, row + 1), slice(length)
            yield Batch(self.ids[at], self.mask[at], None if self.types is None else self.types[at])


@dataclass(frozen=True)
class Parity:
    """The largest absolute difference of the outputs, of all sequences and by case, and the largest absolute output.

    reader: who loaded the files; precision: fp32, or fp64 if the outputs in fp32 differed by more than the tolerance.
    missing: why it is no proof: what would be needed for an independent reader; "" of a proof.
    """

    largest_difference: float
    largest_output: float
    cases: Mapping[str, float]
    reader: str
    architecture: str
    outputs: str
    precision: str
    missing: str = ""
    sequences: int = SEQUENCES
    tolerance: float = TOLERANCE

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "cases": dict(self.cases)}

    def describe(self) -> str:
        """One line for people."""
        difference = f"{self.outputs} of {self.sequences} sequences differ by at most {self.largest_difference:.2g}"
        if self.missing:
            return f"no proof, since {self.missing}: minitf alone read the files, {difference} from itself"
        return f"proof: loaded by {self.reader} as {self.architecture}, {difference}" + (
            " in fp64" if self.precision == "fp64" else ""
        )

    @property
    def holds(self) -> bool:
        """Whether all outputs are finite and the same but for rounding."""
        return self.largest_difference <= self.tolerance * self.largest_output < float("inf")

    def check(self, where: Path) -> None:
        """RunFault if the difference is too large, or is no number."""
        if not self.holds:
            limit = self.tolerance * self.largest_output
            fault = f"the {self.outputs} differ by up to {self.largest_difference:.3g}, more than {limit:.3g}"
            cases = ", ".join(f"{name} {difference:.3g}" for name, difference in self.cases.items())
            way = f"{limit:.3g} is {self.tolerance:g} of the largest output; in {self.precision}, by case {cases}"
            raise RunFault.located(str(where), f"{fault} ({way})")


def make_batch(model: Model, vocabulary: Vocabulary, source_vocabulary: int | None = None) -> Batch:
    """Sequences of ids that are not special: half of them padded, and half of them pairs if there are token types."""
    draw = torch.Generator().manual_seed(0)
    length = min(LONGEST, model.max_length() or LONGEST, model.context)

    def rows(size: int, n: int) -> tuple[Tensor, Tensor]:
        usual = torch.tensor([id for id in range(size) if id not in vocabulary.special_ids] or [0])
        ids = usual[torch.randint(len(usual), (SEQUENCES, n), generator=draw)]
        lengths = torch.full((SEQUENCES,), n)
        lengths[SEQUENCES // 2 :] = torch.randint(1, n + 1, (SEQUENCES // 2,), generator=draw)
        mask = torch.arange(n) < lengths[:, None]
        # Their classifiers of decoders find the last token by the id of padding.
        return ids if vocabulary.pad is None else ids.where(mask, torch.tensor(vocabulary.pad)), mask.long()

    ids, mask = rows(vocabulary.size, length)
    types = None
    if model.n_types > 1:
        first = torch.randint(1, length + 1, (SEQUENCES, 1), generator=draw)
        types = (torch.arange(length) >= first).long() * (torch.arange(SEQUENCES) % 2)[:, None]
    if not model.needs_source:
        return Batch(ids, mask, types, has_pad=vocabulary.pad is not None)
    n_source = min(LONGEST, model.max_length("source") or LONGEST, model.context)
    return Batch(ids, mask, types, *rows(source_vocabulary or vocabulary.size, max(1, n_source - 3)))


Outputs = Callable[[Batch, torch.dtype], Tensor]
"""The outputs of a model for a batch, computed in fp32 or fp64."""


@torch.no_grad()
def own_outputs(model: Model, head: Head, batch: Batch, dtype: torch.dtype = torch.float32) -> Tensor:
    """The outputs of our model, which is in fp32: logits, or hidden states of a model without a head."""
    inputs = batch.tokens()
    model.to(dtype)
    try:
        hidden = model(inputs, batch.source_tokens()).y
        if head.pools == ("mean",):
            hidden = pooled("mean", hidden, inputs)
        elif head.pools:
            hidden = hidden.flatten(0, 1)[token_index("first" if head.pools == ("first",) else "last", inputs)]
        outputs: Tensor = hidden if head.objective is None else model.logits(hidden)
        return outputs.to(dtype)
    finally:
        model.float()


@torch.no_grad()
def token_logits(model: Model, batch: Batch) -> Tensor:
    """The logits (B, L, V) of our model, with those of tokens that are copied from the source."""
    mixed = model(batch.tokens(), batch.source_tokens())
    return model.logits(mixed.y, copies=mixed.copies)


def compare(
    model: Model, head: Head, batch: Batch, folder: Path, deltas: Mapping[str, Tensor] = MappingProxyType({})
) -> Parity:
    """The parity of our model with that of a Hugging Face folder, loaded by transformers if it is installed.

    Rounding is told from an error by repeating the comparison in fp64. deltas: what an adapter adds to its tensors.
    """
    reader, theirs, missing = _transformers(folder, head, deltas)
    if theirs is None:
        other = open_foreign(folder, deltas=deltas)
        reader, theirs = "minitf", lambda batch_, dtype: own_outputs(other.model, other.head, batch_, dtype)
    parity = _parity(model, head, batch, theirs, torch.float32)
    if not parity.holds:
        parity = _parity(model, head, batch, theirs, torch.float64)
    return replace(parity, reader=reader, missing=missing)


def _parity(model: Model, head: Head, batch: Batch, theirs: Outputs, dtype: torch.dtype) -> Parity:
    # Their decoders find the last token by the id of padding.
    batches = batch.alone() if head.pools and not batch.has_pad else [batch]
    ours, others = own_outputs(model, head, batch, dtype), torch.cat([theirs(other, dtype) for other in batches])
    by_case, size = differences(ours, others.view_as(ours), batch)
    outputs = "hidden states" if head.objective is None else "logits"
    precision = "fp64" if dtype == torch.float64 else "fp32"
    return Parity(max_or_nan(by_case.values()), size, by_case, "", head.architecture, outputs, precision)


def differences(ours: Tensor, others: Tensor, batch: Batch) -> tuple[dict[str, float], float]:
    """The largest absolute difference of outputs (B, L, V) or (B, C) by case, and the largest absolute one of ours."""
    difference, size = (ours - others).abs().amax(-1), ours.abs().amax(-1)
    if difference.dim() == 2:  # by token, of which padding does not count
        difference, size = (values.masked_fill(batch.mask == 0, 0.0).amax(1) for values in (difference, size))
    padded = batch.mask.eq(0).any(1)
    cases = {"whole": ~padded, "padded": padded}
    if batch.types is not None:
        cases["pairs"] = batch.types.ne(0).any(1)
    if batch.source_mask is not None:
        cases["padded sources"] = batch.source_mask.eq(0).any(1)
    by_case = {name: float(difference[rows].max()) for name, rows in cases.items() if bool(rows.any())}
    return by_case, float(size.max())


def max_or_nan(values: Iterable[float]) -> float:
    """The largest value; NaN if one is NaN, which `max` may pass over."""
    return float(torch.tensor([*values]).max())


def unknown_to_transformers(folder: Path) -> frozenset[str]:
    """The keys of a config.json that are only notes: no source of the installed transformers for its model names them.

    Without transformers there are none. What is named in the sources may act beyond the sequences of the proof.
    """
    transformers, config = _installed(), read_config(folder)
    settings = getattr(transformers, "CONFIG_MAPPING", {})
    named = str(config.get("model_type"))
    if named not in settings:
        return frozenset()
    package = Path(transformers.__path__[0])
    files = [*package.joinpath(*settings[named].__module__.split(".")[1:-1]).glob("*.py"), *package.glob("*.py")]
    return frozenset(config.values).difference(*map(_words_of, files))


@cache
def _words_of(file: Path) -> frozenset[str]:
    """All words of a source file of transformers."""
    return frozenset(re.findall(r"\w+", file.read_text(encoding="utf-8")))


def _installed() -> Any:
    """The module transformers; None if it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import transformers
    except ImportError:
        return None
    return transformers


def _transformers(folder: Path, head: Head, deltas: Mapping[str, Tensor]) -> tuple[str, Outputs | None, str]:
    """The name of the installed transformers and its outputs for a batch; without it None, and what is missing."""
    if (transformers := _installed()) is None:
        return "", None, "transformers is not installed"
    made = getattr(transformers, head.architecture, None)
    if made is None:
        return "", None, f"transformers {transformers.__version__} has no {head.architecture}"
    transformers.utils.logging.disable_progress_bar()
    before = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = made.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
            ).eval()
    except Exception as error:  # whatever their code raises
        raise _fault(folder, "load", error) from error
    finally:
        transformers.utils.logging.set_verbosity(before)
        transformers.utils.logging.enable_progress_bar()
    for name, delta in deltas.items():
        model.get_parameter(name).data += delta
    for part in model.modules():
        if hasattr(part, "config"):
            part.config.return_dict = True

    @torch.no_grad()
    def outputs(batch: Batch, dtype: torch.dtype) -> Tensor:
        inputs = {"input_ids": batch.ids, "attention_mask": batch.mask, "token_type_ids": batch.types}
        if batch.source is not None:
            inputs = {"input_ids": batch.source, "attention_mask": batch.source_mask, "decoder_input_ids": batch.ids}
            inputs |= {"decoder_attention_mask": batch.mask}
        try:
            outputs_: Any = model.to(dtype)(**{name: tensor for name, tensor in inputs.items() if tensor is not None})
        except Exception as error:
            raise _fault(folder, "run", error) from error
        output: Tensor = outputs_[head.output]
        return (output if head.pools else output[:, : batch.ids.shape[1]]).to(dtype)  # a Perceiver decodes its context

    return f"transformers {transformers.__version__}", outputs, ""


def _fault(folder: Path, action: str, error: Exception) -> RunFault:
    reason = f"{type(error).__name__}: {one_line(str(error))[:200]}"
    return RunFault.located(str(folder), f"transformers cannot {action} it: {reason}")
