"""ONNX, for ONNX Runtime and whatever else runs it: graphs with any batch size and length, a decoder with its cache.

It measures its metrics on validation data, and how long its graphs take, beside those of torch.
Source: onnx.ai/onnx/operators, and the names of tensors of Hugging Face's exports.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mini_tf.data.batch import Batch as PreparedBatch
from mini_tf.hf.family_choice import WAY
from mini_tf.hf.formats import Exported, ExportRequest, Format
from mini_tf.hf.formats._onnx_graphs import (
    BATCH,
    CACHED,
    LENGTH,
    SOURCE_LENGTH,
    TOTAL,
    Graph,
    WholeText,
    decoder,
    encoder_decoder,
    whole_text,
)
from mini_tf.hf.formats._onnx_running import Exports, Outputs, parity, quantize, quiet, torch_outputs, write_graph
from mini_tf.hf.proof import Batch, make_batch
from mini_tf.hf.tokenizer_config import tokenizer_files
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.recipe.metrics import lower_is_better
from mini_tf.system.errors import MinitfError, RunFault
from mini_tf.trained.architecture import vocabulary_sizes
from mini_tf.trained.evaluating import run_data
from mini_tf.trained.opening import LoadedModel, ready
from mini_tf.training.evaluation import pack

WRITTEN_AS = "ONNX"
EVALUATED_TOKENS, ROWS = 2**14, 16
"""Of the validation data, spread evenly; rows of a batch."""
RUNS, WARM_UP = 15, 3
TYPICAL_LENGTH, TYPICAL_BATCH = 128, 16
WORSE, FASTER = 1e-3, 0.95
"""int8 is kept if no metric is worse by more than this share, and no median time above this share of that in fp32."""


class Settings(Format):
    def check_installed(self) -> None:
        with self.packages(), quiet():
            import onnx  # noqa: F401
            import onnxruntime  # noqa: F401
            import onnxscript  # noqa: F401

    def export(self, request: ExportRequest) -> Exported:
        import onnxruntime as runtime

        loaded, folder = request.loaded, request.folder
        model = loaded.model.eval()
        graphs = graphs_of(loaded)
        request.write(tokenizer_files(loaded))
        paths = [folder / graph.file for graph in graphs]
        for graph, path in zip(graphs, paths, strict=True):
            write_graph(graph, path, _notes(loaded))
        exports = Exports.opened(graphs, paths, runtime)
        sizes = vocabulary_sizes(loaded.tokenizer, loaded.source_tokenizer)
        batch = make_batch(model, loaded.tokenizer.vocabulary, sizes[1])
        proof = parity(exports, batch, f"onnxruntime {runtime.__version__}", WRITTEN_AS)
        proof.check(request.target)
        measured, notes = _measure(loaded, exports, paths, runtime)
        request.write(request.card(WRITTEN_AS, "onnx", _usage(graphs)))
        return request.proved(WRITTEN_AS, proof, notes, measured)


def graphs_of(loaded: LoadedModel) -> list[Graph]:
    """The graphs of a model. RunFault if its outputs are no function of token ids and a mask."""
    model, objective, settings = loaded.model, loaded.recipe.objective, loaded.recipe.model
    parts = [(type(part).__name__, reason) for part in model.modules() if (reason := getattr(part, "NO_GRAPH", ""))]
    faults = [f"{name} has no graph, since {reason}" for name, reason in dict.fromkeys(parts)]
    if objective.prompt_is_prefix(settings):
        faults.append("its prompts are prefixes whose tokens attend to each other, which no input of a graph marks")
    if faults:
        raise RunFault(f"{loaded.folder.name} cannot be written as {WRITTEN_AS}: {'; '.join(faults)}", hint=WAY)
    if "tokens" in objective.PREDICTS and model.needs_source:
        return encoder_decoder(model)
    if "tokens" in objective.PREDICTS and settings.causal:
        return decoder(model)
    labels = loaded.labels
    scale, mean = (1.0, 0.0) if labels is None else (labels.scale, labels.mean)
    return whole_text(model, loaded.objective.task(model), "rows" not in objective.PREDICTS, scale, mean)


def _notes(loaded: LoadedModel) -> dict[str, str]:
    """Metadata of the file: what a program needs beside the tokenizer."""
    labels, decision = loaded.labels, loaded.decision
    notes = {"context": str(loaded.model.context), "objective": loaded.recipe.objective.kind}
    if labels is not None and labels.names:
        notes["labels"] = json.dumps(labels.names)
    if decision is not None:
        notes["temperature"], notes["bias"] = str(decision.temperature), json.dumps(decision.bias)
    return notes


def _usage(graphs: list[Graph]) -> str:
    def listed(names: Iterable[str]) -> str:
        return ", ".join(f"`{name}`" for name in names)

    lines = "\n".join(f"- `{graph.file}`: {listed(graph.example)} -> {listed(graph.outputs)}" for graph in graphs)
    return f"## Inputs and outputs\n\n{lines}\n\n"


def _measure(
    loaded: LoadedModel, exports: Exports, paths: list[Path], runtime: Any
) -> tuple[dict[str, Any], list[str]]:
    """Metrics and times of torch, fp32 and int8, and lines about them; int8 stays if it is faster and not worse."""
    int8 = [path.with_name(f"{path.stem}_int8.onnx") for path in paths]
    for path, quantized in zip(paths, int8, strict=True):
        quantize(path, quantized)
    both = {"onnx": exports, "onnx_int8": Exports.opened(exports.graphs, int8, runtime)}
    data = ValidationBatches(loaded)
    metrics = {"torch": data.metrics(exports, lambda batch: torch_outputs(exports.graphs, batch))}
    metrics |= {name: data.metrics(export, export.outputs) for name, export in both.items()}
    seconds = {
        work.name: times(work, exports.graphs, both)
        for work in workloads(exports.graphs, loaded.model.context, loaded.tokenizer.vocabulary.size)
    }
    reasons = against_int8(metrics["onnx"], metrics["onnx_int8"], seconds)
    if reasons:
        for path in int8:
            path.unlink()
    record = {
        "metrics": {name: measured.values for name, measured in metrics.items()},
        "no_metrics_since": data.reason or metrics["onnx"].reason,
        "median_seconds": seconds,
        "int8": {"written": not reasons, "reasons": reasons},
    }
    shown = {
        name: [f"{reader} {1000 * value:.3g} ms" for reader, value in times_.items()]
        for name, times_ in seconds.items()
    }
    lines = [f"{name}: {', '.join(values)}" for name, values in shown.items()]
    lines.append("int8 is not written: " + "; ".join(reasons) if reasons else "int8 is written, too")
    return record, lines


class Metrics(NamedTuple):
    """values: by name; reason: why there are none. lower: those of which less is better."""

    values: dict[str, float]
    reason: str
    lower: frozenset[str]


class ValidationBatches:
    """Batches of a run's validation data as an exported model reads them. reason: why there are none."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded, self.batches, self.reason = loaded, list[PreparedBatch](), ""
        trained = ready(loaded, "cpu")
        try:
            store = run_data(trained).get("val")
            if store is None or not len(store):
                self.reason = "the run has no validation data"
                return
            packing = pack(loaded.recipe, store, loaded.tokenizer, loaded.objective)
            for rows in packing.eval_rows(ROWS, EVALUATED_TOKENS):
                sides = (rows, rows.source) if rows.source is not None else (rows,)
                if any(side.segments is not None and side.segments.max() > 1 for side in sides):
                    continue
                batch = loaded.objective.prepare_evaluation(rows)
                if (positions := batch.inputs.token_positions) is not None and positions.orders is not None:
                    self.reason = "an evaluation reads texts in both directions, and the graph in order alone"
                    return
                self.batches.append(batch)
        except MinitfError as error:
            self.reason = error.message
        if not self.batches and not self.reason:
            self.reason = "each row of the validation data has several documents"

    def metrics(self, exports: Exports, outputs: Outputs) -> Metrics:
        """Of outputs (B, L, V) or (B, C) of batches."""
        objective = self.loaded.recipe.objective
        lower = frozenset({"loss", *lower_is_better(objective)})
        if self.reason:
            return Metrics({}, self.reason, lower)
        of_targets = [(batch, self._of_targets(outputs(_plain(batch)), batch, exports)) for batch in self.batches]
        if "tokens" in objective.PREDICTS:
            return Metrics({"loss": _cross_entropy(of_targets)}, "", lower)
        pipeline, module = objective.pipeline(), exports.graphs[-1].module
        if pipeline is None or not isinstance(module, WholeText) or module.task is None:
            return Metrics({}, "its task has no metrics of outputs alone", lower)
        accumulator = pipeline.build(ready(self.loaded, "cpu")).metric_accumulator()
        assert accumulator is not None
        for batch, predicted in of_targets:
            accumulator.add(batch, predicted)
        return Metrics({name: float(value) for name, value in accumulator.scores().items()}, "", lower)

    def _of_targets(self, outputs: Tensor, batch: PreparedBatch, exports: Exports) -> Tensor:
        module = exports.graphs[-1].module
        if isinstance(module, WholeText) and module.task is not None:
            outputs = (outputs - module.mean) / module.scale
            if not module.by_token:
                return outputs
        flat = outputs.flatten(0, 1)
        return flat if batch.target_positions is None else flat[batch.target_positions]


def _plain(batch: PreparedBatch) -> Batch:

    def mask(ids: Tensor, positions: TokenPositions | None) -> Tensor:
        segments = None if positions is None else positions.segments
        return torch.ones_like(ids) if segments is None else (segments != 0).long()

    inputs, source = batch.inputs, batch.source
    plain = Batch(inputs.ids, mask(inputs.ids, inputs.token_positions), inputs.types)
    if source is None:
        return plain
    return Batch(plain.ids, plain.mask, plain.types, source.ids, mask(source.ids, source.token_positions))


def _cross_entropy(of_targets: Sequence[tuple[PreparedBatch, Tensor]]) -> float:
    """The mean over all targets, in nats."""
    sums = [float(F.cross_entropy(logits, batch.labels, reduction="sum")) for batch, logits in of_targets]
    return sum(sums) / max(1, sum(len(batch.labels) for batch, _ in of_targets))


def is_worse(metrics: Metrics, than: Metrics) -> list[str]:
    """The metrics that are worse than others by more than WORSE of them."""
    worse = []
    for name, before in than.values.items():
        change = metrics.values[name] - before
        if (change if name in than.lower else -change) > WORSE * abs(before):
            worse.append(f"{name} {metrics.values[name]:.4g} instead of {before:.4g}")
    return worse


def against_int8(fp32: Metrics, int8: Metrics, seconds: dict[str, dict[str, float]]) -> list[str]:
    reasons = [f"there is no metric: {fp32.reason}"] if not fp32.values else is_worse(int8, fp32)
    slow = [
        f"{name} takes {of_work['onnx_int8'] / of_work['onnx']:.2f} times as long (at most {FASTER})"
        for name, of_work in seconds.items()
        if of_work["onnx_int8"] > FASTER * of_work["onnx"]
    ]
    return reasons + slow


class Workload(NamedTuple):
    """One call of one graph. name: for people."""

    name: str
    number: int
    inputs: dict[str, Tensor]


def workloads(graphs: Sequence[Graph], context: int, vocabulary_size: int) -> Iterator[Workload]:
    """A text, a batch of texts, and of a decoder the next token of one."""
    length = max(2, min(TYPICAL_LENGTH, context))
    for number, graph in enumerate(graphs):
        named = {name for axes in graph.axes.values() for name in axes.values()}
        sizes = {BATCH: 1, LENGTH: length, CACHED: 0, SOURCE_LENGTH: length}
        cases = {f"{length} tokens": sizes, f"{TYPICAL_BATCH} x {length} tokens": sizes | {BATCH: TYPICAL_BATCH}}
        if TOTAL in named:
            cases[f"token {length}"] = sizes | {LENGTH: 1, CACHED: length - 1}
        for name, of_case in cases.items():
            yield Workload(f"{graph.file}, {name}", number, graph.sized(of_case, vocabulary_size))


def times(work: Workload, graphs: Sequence[Graph], exports: Mapping[str, Exports]) -> dict[str, float]:
    """Median seconds of torch and of each export, whose runs take turns."""
    tensors = tuple(work.inputs.values())
    module = graphs[work.number].module

    def by_torch() -> None:
        with torch.no_grad():
            module(*tensors)

    calls: dict[str, Callable[[], object]] = {"torch": by_torch}
    for name, export in exports.items():
        session = export.sessions[work.number]
        calls[name] = lambda session=session, arrays=session.arrays(work.inputs): session.run(arrays)  # type: ignore[misc]
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for n in range(WARM_UP + RUNS):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            if n >= WARM_UP:
                seconds[name].append(time.perf_counter() - begin)
    return {name: median(values) for name, values in seconds.items()}
