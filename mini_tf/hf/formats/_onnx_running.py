"""From a graph to an ONNX file, by torch.onnx's exporter, and back to outputs, by ONNX Runtime, beside those of torch.

A batch is computed whole, and token by token.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import mini_tf
from mini_tf.hf.formats._onnx_graphs import (
    BATCH,
    IDS,
    MASK,
    SOURCE_LENGTH,
    SOURCE_MASK,
    TYPES,
    Axes,
    Graph,
    NextTokens,
    WholeText,
)
from mini_tf.hf.proof import Batch, Parity, differences, max_or_nan, token_logits
from mini_tf.recipe.values import one_line
from mini_tf.system.errors import RunFault

OPSET = 23
"""Of April 2025, the first with attention and RMSNorm as operators."""
LARGEST_BYTES = 2**31 - 2**20
"""Of the parameters: a protobuf has less than 2 GiB."""


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings and log lines of other packages, about their own parts."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def write_graph(graph: Graph, path: Path, notes: Mapping[str, str]) -> None:
    """Write a graph as an ONNX file. notes: metadata of the file. RunFault if the exporter cannot."""
    size = sum(parameter.nbytes for parameter in graph.module.parameters())
    if size > LARGEST_BYTES:
        raise RunFault(f"{path.name} would have {size:,} bytes of parameters, and an ONNX file has less than 2 GiB")
    with quiet():
        model = _converted(graph, path)
        inputs = {value.name: value for value in model.graph.input}
        if left_out := [name for name in graph.axes if name not in inputs]:
            fault = f"torch {torch.__version__} leaves out inputs: {', '.join(left_out)}"
            raise RunFault(f"{path.name}: {fault}", hint="torch 2.13 is known to keep them")
        for name, axes in graph.axes.items():
            _name_axes(inputs[name], axes)
        for value in model.graph.output:  # torch's own names of sizes say nothing
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.ClearField("dim_param")
        model.producer_name, model.producer_version = "minitf", mini_tf.__version__
        for key, text in notes.items():
            model.metadata_props.add(key=key, value=text)
    path.write_bytes(model.SerializeToString())


def _converted(graph: Graph, path: Path) -> Any:
    # One size of many inputs: else guards say in pairs that they are equal, and torch.onnx cannot read so many.
    sizes = [size for axes in graph.axes.values() for size in axes.values()]
    dynamic: dict[str, Any] = {size: torch.export.Dim(size) for size in (BATCH, SOURCE_LENGTH) if sizes.count(size) > 2}
    shapes = tuple(
        {axis: dynamic.get(size, torch.export.Dim.DYNAMIC) for axis, size in graph.axes[name].items()}
        for name in graph.example
    )
    try:
        with torch.no_grad():
            inputs = tuple(graph.example.values())
            program = torch.export.export(graph.module, inputs, dynamic_shapes=(shapes,), strict=False)
            converted = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                input_names=list(graph.example),
                output_names=list(graph.outputs),
                verbose=False,
            )
    except Exception as error:  # whatever the exporter raises for what it does not have
        fault = f"torch {torch.__version__} cannot export it: {type(error).__name__}: {_reason(error)}"
        raise RunFault(f"{path.name}: {fault}") from error
    assert converted is not None
    return converted.model_proto


def _reason(error: BaseException) -> str:
    """What the first error says, of which torch's exporter makes others."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(str(error))[:200]


def _name_axes(value: Any, axes: Axes) -> None:
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        if axis in axes:
            dim.dim_param = axes[axis]


class OnnxSession:
    """An ONNX file, opened by ONNX Runtime on the CPU, with as many threads as torch."""

    def __init__(self, path: Path, runtime: Any) -> None:
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        try:
            self._session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise RunFault(f"{path}: onnxruntime cannot load it: {one_line(str(error))[:200]}") from error

    def __call__(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        return [torch.from_numpy(np.asarray(output)) for output in self.run(self.arrays(inputs))]

    @staticmethod
    def arrays(inputs: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        return {name: tensor.contiguous().numpy() for name, tensor in inputs.items()}

    def run(self, arrays: Mapping[str, np.ndarray]) -> Sequence[Any]:
        try:
            outputs: Sequence[Any] = self._session.run(None, dict(arrays))
        except Exception as error:
            raise RunFault(f"onnxruntime cannot run it: {one_line(str(error))[:200]}") from error
        return outputs


def quantize(path: Path, quantized: Path) -> None:
    """Write a graph with the matrices as int8, whose inputs are quantized when it runs ("dynamic quantization")."""
    with quiet():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(
            path, quantized, weight_type=QuantType.QInt8, per_channel=True, op_types_to_quantize=["MatMul"]
        )


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
        memory = self.sessions[0]({IDS: batch.source, MASK: batch.source_mask})
        return {SOURCE_MASK: batch.source_mask, **dict(zip(self.graphs[0].outputs, memory, strict=True))}

    def start(self, batch: Batch) -> list[Tensor]:
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
            part = replace(batch, ids=batch.ids[:, first:last], mask=batch.mask[:, :last])
            logits, state = self.advance(part, encoded, state)
            parts.append(logits)
        return torch.cat(parts, dim=1)


@torch.no_grad()
def torch_outputs(graphs: Sequence[Graph], batch: Batch) -> Tensor:
    """Logits of a batch by the model itself, whole, at positions that are counted as in training."""
    module = graphs[-1].module
    if isinstance(module, WholeText):
        return module.outputs(batch.tokens())
    assert isinstance(module, NextTokens)
    return token_logits(module.model, batch)


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
    order = batch.mask.argsort(dim=1, stable=True)
    return replace(batch, ids=batch.ids.gather(1, order), mask=batch.mask.gather(1, order))


def unpadded(outputs: Tensor, left: Batch) -> Tensor:
    """Outputs (B, L, V) of rows with padding in front, moved to where they are in rows with padding behind."""
    order = left.mask.argsort(dim=1, descending=True, stable=True)
    return outputs.gather(1, order[..., None].expand_as(outputs))
