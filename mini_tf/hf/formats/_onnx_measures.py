"""What an exported model is worth: its metrics on validation data, and how long its graphs take, beside torch's."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mini_tf.data.batch import Batch as PreparedBatch
from mini_tf.hf.formats._onnx_graphs import BATCH, CACHED, LENGTH, SOURCE_LENGTH, TOTAL, Graph, WholeText
from mini_tf.hf.formats._onnx_running import Exports, Outputs
from mini_tf.hf.proof import Batch
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.recipe.metrics import lower_is_better
from mini_tf.system.errors import MinitfError
from mini_tf.trained.evaluating import run_data
from mini_tf.trained.opening import LoadedModel, ready
from mini_tf.training.evaluation import pack

EVALUATED_TOKENS, ROWS = 2**14, 16
"""Of the validation data, spread evenly; rows of a batch."""
RUNS, WARM_UP = 15, 3
TYPICAL_LENGTH, TYPICAL_BATCH = 128, 16
WORSE, FASTER = 1e-3, 0.95
"""int8 is kept if no metric is worse by more than this share, and no median time above this share of that in fp32."""


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
        for batch, found in of_targets:
            accumulator.add(batch, found)
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
    """A prepared batch as ids and masks."""

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
