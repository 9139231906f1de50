"""An exported model as ONNX Runtime runs it: outputs of a batch, whole and token by token, beside those of torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mini_tf.hf.formats._onnx_files import OnnxSession
from mini_tf.hf.formats._onnx_graphs import (
    IDS,
    MASK,
    SOURCE_MASK,
    TYPES,
    Graph,
    NextTokens,
    WholeText,
)
from mini_tf.hf.proof import Batch, Parity, differences, max_or_nan
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens

Outputs = Callable[[Batch], Tensor]


@dataclass(frozen=True)
class Exports:
    """The graphs of a model and their sessions, in the order in which they run."""

    graphs: Sequence[Graph]
    sessions: Sequence[OnnxSession]

    @classmethod
    def opened(cls, graphs: Sequence[Graph], paths: Sequence[Path], runtime: Any) -> "Exports":
        return cls(graphs, [OnnxSession(path, runtime) for path in paths])

    def outputs(self, batch: Batch) -> Tensor:
        """Logits of a batch, without a cache."""
        return self.advance(batch, self.encoded(batch), self.start(batch))[0]

    def encoded(self, batch: Batch) -> dict[str, Tensor]:
        """The inputs of the last graph that the one before it computes of the sources."""
        if batch.source is None or batch.source_mask is None:
            return {}
        found = self.sessions[0]({IDS: batch.source, MASK: batch.source_mask})
        return {SOURCE_MASK: batch.source_mask, **dict(zip(self.graphs[0].outputs, found, strict=True))}

    def start(self, batch: Batch) -> list[Tensor]:
        """The state before the first token."""
        module = self.graphs[-1].module
        return [*module.start(len(batch.ids))] if isinstance(module, NextTokens) else []

    def advance(
        self, batch: Batch, encoded: Mapping[str, Tensor], state: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """The logits of tokens after others, with the state after these; mask: of all tokens."""
        graph = self.graphs[-1]
        inputs = {IDS: batch.ids, MASK: batch.mask}
        if TYPES in graph.example:
            inputs[TYPES] = batch.types if batch.types is not None else torch.zeros_like(batch.ids)
        states = [name for name in graph.example if name not in inputs and name not in encoded]
        inputs |= {**dict(zip(states, state, strict=True)), **encoded}
        logits, *after = self.sessions[-1](inputs)
        return logits, after

    def step_by_step(self, batch: Batch) -> Tensor:
        """Logits of a batch whose tokens come in three parts, the last one a single token."""
        encoded, state, parts = self.encoded(batch), self.start(batch), []
        length = batch.ids.shape[1]
        cuts = sorted({0, length // 2, length - 1, length})
        for first, last in pairwise(cuts):
            logits, state = self.advance(
                replace(batch, ids=batch.ids[:, first:last], mask=batch.mask[:, :last]), encoded, state
            )
            parts.append(logits)
        return torch.cat(parts, dim=1)


@torch.no_grad()
def torch_outputs(graphs: Sequence[Graph], batch: Batch) -> Tensor:
    """Logits of a batch by the model itself, whole, at positions that are counted as in training."""
    module, inputs = graphs[-1].module, Tokens(batch.ids, TokenPositions.packed(batch.mask), batch.types)
    if isinstance(module, WholeText):
        return module.outputs(inputs)
    assert isinstance(module, NextTokens)
    source = None
    if batch.source is not None and batch.source_mask is not None:
        source = Tokens(batch.source, TokenPositions.packed(batch.source_mask))
    mixed = module.model(inputs, source)
    return module.model.logits(mixed.y, copies=mixed.copies)


def parity(exports: Exports, batch: Batch, reader: str, written_as: str) -> Parity:
    """The differences of the outputs from those of the model itself, in all ways in which the graphs can be used."""
    ours = torch_outputs(exports.graphs, batch)
    by_case, size = differences(ours, exports.outputs(batch), batch)
    if isinstance(exports.graphs[-1].module, NextTokens):
        by_case["step by step"] = max_or_nan(differences(ours, exports.step_by_step(batch), batch)[0].values())
        left = padded_on_the_left(batch)
        others = unpadded(exports.outputs(left), left)
        by_case["padded on the left"] = max_or_nan(differences(ours, others, batch)[0].values())
    return Parity(max_or_nan(by_case.values()), size, by_case, reader, written_as, "logits", "fp32")


def padded_on_the_left(batch: Batch) -> Batch:
    """The same rows with the padding in front."""
    order = batch.mask.argsort(dim=1, stable=True)
    return replace(batch, ids=batch.ids.gather(1, order), mask=batch.mask.gather(1, order))


def unpadded(outputs: Tensor, left: Batch) -> Tensor:
    """Outputs (B, L, V) of rows with padding in front, moved to where they are in rows with padding behind."""
    order = left.mask.argsort(dim=1, descending=True, stable=True)
    return outputs.gather(1, order[..., None].expand_as(outputs))
