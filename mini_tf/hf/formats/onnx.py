"""ONNX, for ONNX Runtime and whatever else runs it: graphs with any batch size and length, a decoder with its cache.

Source: onnx.ai/onnx/operators, and the names of tensors of Hugging Face's exports.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mini_tf.hf.family_choice import WAY
from mini_tf.hf.formats import Exported, ExportRequest, Format
from mini_tf.hf.formats._onnx_graphs import Graph, decoder, encoder_decoder, whole_text
from mini_tf.hf.formats._onnx_measures import FASTER, Metrics, ValidationBatches, is_worse, times, workloads
from mini_tf.hf.formats._onnx_running import Exports, parity, quantize, quiet, torch_outputs, write_graph
from mini_tf.hf.proof import make_batch
from mini_tf.hf.tokenizer_config import tokenizer_files
from mini_tf.system.errors import RunFault
from mini_tf.trained.architecture import vocabulary_sizes
from mini_tf.trained.opening import LoadedModel

WRITTEN_AS = "ONNX"


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
        "metrics": {name: found.values for name, found in metrics.items()},
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


def against_int8(fp32: Metrics, int8: Metrics, seconds: dict[str, dict[str, float]]) -> list[str]:
    """Why int8 is not better."""
    reasons = [f"there is no metric: {fp32.reason}"] if not fp32.values else is_worse(int8, fp32)
    slow = [
        f"{name} takes {of_work['onnx_int8'] / of_work['onnx']:.2f} times as long (at most {FASTER})"
        for name, of_work in seconds.items()
        if of_work["onnx_int8"] > FASTER * of_work["onnx"]
    ]
    return reasons + slow
