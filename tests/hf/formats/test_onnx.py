"""Runs as ONNX files: ONNX Runtime computes what the model computes, whole and with a cache, or nothing is left."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from commands import evaluated, minitf, refused, results, trained
from torch import Tensor

from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.hf.formats import onnx
from mini_tf.hf.formats._onnx_graphs import BATCH, CACHED, LENGTH, SOURCE_LENGTH, Graph
from mini_tf.hf.formats._onnx_running import Exports, parity, write_graph
from mini_tf.hf.proof import make_batch
from mini_tf.recipe.arguments import presets
from mini_tf.recipe.reading import read
from mini_tf.system.errors import RunFault

MISSING = "needs minitf[onnx]"
SMALL = {"model.d_model": 16, "model.n_layers": 2, "model.n_heads": 2, "train.context": 24}
SIZES = {"cbow-nano": {"model.n_layers": 1}}
VOCABULARY = Vocabulary(
    400, pad=0, unk=1, separator=2, mask=3, sentinels=tuple(range(4, 104)), texts=("a", " b", "c") * 134
)
REFUSED = {
    **dict.fromkeys(("classify-nano", "multi-label-nano"), "CharacterFeatures has no graph"),
    "tag-nano": "WordFeatures has no graph",
    **dict.fromkeys(("linear-nano", "performer-nano"), "has no graph, since its sums are over chunks"),
    **dict.fromkeys(("sru-nano", "srupp-nano"), "Recurrence has no graph"),
}
"""Recipes whose models have no graph, and why."""
UNLIKE = [
    *("bert-nano", "classify-nano", "electra-nano", "expire-span-nano", "film-nano", "gpt-char-fast", "linear-nano"),
    *("perceiver-nano", "sru-nano", "sst2-nano", "summarize-nano", "tag-nano", "wnut17-nano", "xl-nano"),
]
"""With different parts, of which each can be missing with its paper."""
UNLIKE = [name for name in UNLIKE if name in presets()]
RECIPES = [name for name in sorted(presets()) if not name.startswith("cbow-ladder")]


class InTorch:
    """A graph that torch computes, where ONNX Runtime would compute the file."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @torch.no_grad()
    def __call__(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        assert inputs.keys() == self.graph.example.keys()
        return [*self.graph.module(*(inputs[name] for name in self.graph.example))]


def loaded(name: str, *overrides: str) -> Any:
    """A small model of a shipped recipe with random weights, none of them 0."""
    sizes = SMALL | SIZES.get(name, {})
    recipe = read(name, [*(f"{key}={value}" for key, value in sizes.items()), *overrides]).recipe
    labels = Labels(("a", "b"), (1, 1)) if recipe.objective.DATASET in ("classes", "tags", "label_sets") else None
    torch.manual_seed(0)
    objective = recipe.objective.build(VOCABULARY, labels)
    model = recipe.model.build(VOCABULARY.size, recipe.train.context, None)
    objective.add_modules(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.1)
    tokenizer = SimpleNamespace(vocabulary=VOCABULARY)
    return SimpleNamespace(
        **{"model": model.eval(), "recipe": recipe, "objective": objective, "labels": labels, "folder": Path(name)},
        **{"tokenizer": tokenizer, "source_tokenizer": tokenizer, "decision": None},
    )


@pytest.mark.parametrize("name", UNLIKE)
def test_a_graph_computes_what_the_model_computes(name: str) -> None:
    """With padding on either side, and token by token."""
    model = loaded(name)
    if name in REFUSED:
        with pytest.raises(RunFault, match=REFUSED[name]):
            onnx.graphs_of(model)
        return
    graphs = onnx.graphs_of(model)
    for graph in graphs:  # torch 2.10 leaves out an input that is an output
        inputs = [*graph.example.values()]
        assert not any(output is one for output in graph.module(*inputs) for one in inputs)
        sizes = {BATCH: 2, LENGTH: 5, CACHED: 4 if graph.file == "model.onnx" else 0, SOURCE_LENGTH: 6}
        assert len(graph.module(*graph.sized(sizes, VOCABULARY.size).values())[0]) == 2
    exports = Exports(graphs, [InTorch(graph) for graph in graphs])  # type: ignore[arg-type]
    proof = parity(exports, make_batch(model.model, VOCABULARY), "torch", name)
    assert proof.largest_difference < 1e-5 * max(1.0, proof.largest_output)


@pytest.mark.parametrize(("name", "shape"), [("sst2-nano", (2, 2)), ("wnut17-nano", (2, 3, 2))])
def test_metrics_are_of_targets_without_the_scale_of_the_graph(name: str, shape: tuple[int, ...]) -> None:
    graphs, outputs = onnx.graphs_of(loaded(name)), torch.randn(shape)
    module: Any = graphs[-1].module
    module.mean, module.scale = 3.0, 2.0
    batch, exports = (
        SimpleNamespace(**given) for given in ({"target_positions": torch.tensor([1, 4])}, {"graphs": graphs})
    )
    of_targets = onnx.ValidationBatches._of_targets(SimpleNamespace(), 2 * outputs + 3, batch, exports)  # type: ignore[arg-type]
    torch.testing.assert_close(of_targets, outputs if len(shape) == 2 else outputs.flatten(0, 1)[[1, 4]])


def test_a_model_of_2_gib_is_refused_before_it_is_converted(tmp_path: Path) -> None:
    graph = Graph("model.onnx", torch.nn.Embedding(2**21, 2**8, device="meta"), {}, {}, ())
    with pytest.raises(RunFault, match=r"model.onnx would have 2,147,483,648 bytes of parameters"):
        write_graph(graph, tmp_path / "model.onnx", {})


def test_a_hybrid_decoder_has_the_graph_of_its_causal_half_and_a_prefix_decoder_none() -> None:
    hybrid = loaded("quickstart", "objective={kind: hybrid}")
    assert [graph.file for graph in onnx.graphs_of(hybrid)] == ["model.onnx"]
    prefix = loaded("quickstart", "objective={kind: prefix}")
    with pytest.raises(RunFault, match="its prompts are prefixes whose tokens attend to each other"):
        onnx.graphs_of(prefix)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RECIPES if name not in REFUSED])
def test_onnx_runtime_computes_the_graph_of_a_recipe(name: str, tmp_path: Path) -> None:
    onnxruntime, model = pytest.importorskip("onnxruntime", reason=MISSING), loaded(name)
    graphs = onnx.graphs_of(model)
    paths = [tmp_path / graph.file for graph in graphs]
    for graph, path in zip(graphs, paths, strict=True):
        write_graph(graph, path, {})
    proof = parity(Exports.opened(graphs, paths, onnxruntime), make_batch(model.model, VOCABULARY), "", name)
    assert proof.largest_difference < 2e-5 * max(1.0, proof.largest_output)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of a decoder, and its export."""
    pytest.importorskip("onnxscript", reason=MISSING)
    pytest.importorskip("onnxruntime", reason=MISSING)
    folder = tmp_path_factory.mktemp("onnx")
    run = trained(folder / "run", "train.steps=20", "model.n_layers=1")
    done = minitf("export", run, "-o", folder / "out", "--to", "onnx", "--license", "mit")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == f"{folder / 'out'}\n"
    assert "proof: loaded by onnxruntime" in done.stderr
    return run, folder / "out"


def session(out: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(out / "model.onnx", providers=["CPUExecutionProvider"])


def greedy_ids(out: Path, prompt: list[int], n: int) -> list[int]:
    """From the file alone, with the names of Hugging Face's exports: the prompt first, then token by token."""
    runtime = session(out)
    past = {
        value.name: np.zeros([1, value.shape[1], 0, value.shape[3]], np.float32)
        for value in runtime.get_inputs()
        if value.name.startswith("past_key_values.")
    }
    assert {"past_key_values.0.key", "past_key_values.0.value"} <= past.keys()
    found, ids = list[int](), prompt
    for _ in range(n):
        mask = np.ones((1, len(prompt) + len(found)), np.int64)
        inputs = {"input_ids": np.array([ids], np.int64), "attention_mask": mask, **past}
        logits, *state = runtime.run(None, inputs)
        past = dict(zip(past, state, strict=True))
        ids = [int(logits[0, -1].argmax())]
        found += ids
    return found


@pytest.mark.slow
def test_a_program_without_minitf_continues_a_text_greedily(exported: tuple[Path, Path]) -> None:
    run, out = exported
    [ours] = results(minitf("generate", run, "The cat", "--greedy", "--max-new-tokens", "12", "--json").stdout)
    tokenizer = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    found = greedy_ids(out, tokenizer.encode("The cat").ids, 12)
    assert tokenizer.decode(found) == ours["texts"][0]


@pytest.mark.slow
def test_the_record_has_differences_metrics_and_times(exported: tuple[Path, Path]) -> None:
    run, out = exported
    record = json.loads((out / "parity.json").read_text())
    assert record["largest_difference"] < 1e-5 * record["largest_output"]
    assert record["cases"].keys() == {"whole", "padded", "step by step", "padded on the left"}
    assert record["metrics"].keys() == record["median_seconds"]["model.onnx, token 48"].keys()
    for name in ("torch", "onnx"):
        assert record["metrics"][name]["loss"] == pytest.approx(evaluated(run)["loss"], rel=1e-5)
    kept = record["int8"]["written"]
    assert (out / "model_int8.onnx").exists() == kept == (not record["int8"]["reasons"])
    card = (out / "README.md").read_text()
    assert "license: mit\nlibrary_name: onnx" in card
    assert "`past_key_values.0.key`" in card


def test_int8_is_kept_if_it_is_faster_and_no_metric_is_worse() -> None:
    def metrics(**values: float) -> onnx.Metrics:
        return onnx.Metrics(values, "" if values else "no data", frozenset({"loss"}))

    fast, slow = ({"text": {"onnx": 1.0, "onnx_int8": seconds}} for seconds in (0.5, 0.99))
    fp32 = metrics(loss=2.0, f1=0.5)
    assert onnx.against_int8(fp32, metrics(loss=2.001, f1=0.5), fast) == []
    assert onnx.against_int8(fp32, metrics(loss=1.9, f1=0.6), fast) == []
    worse = ["loss 2.01 instead of 2", "f1 0.4 instead of 0.5"]
    assert onnx.against_int8(fp32, metrics(loss=2.01, f1=0.4), fast) == worse
    assert onnx.against_int8(fp32, fp32, slow) == ["text takes 0.99 times as long (at most 0.95)"]
    assert onnx.against_int8(metrics(), metrics(), fast) == ["there is no metric: no data"]


def test_a_missing_package_is_named_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(tmp_path / "run", "train.steps=1")
    for package in ("onnx", "onnxruntime", "onnxscript"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            done = minitf("export", run, "-o", tmp_path / "out", "--to", "onnx")
        refused(done, f"needs the package {package}", "pip install 'minitf[onnx]'", exit_code=9)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_interrupted_export_leaves_nothing_but_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted or killed in the middle; what a killed one leaves has another name, and the next removes it."""
    run, out = trained(tmp_path / "run", "train.steps=1"), tmp_path / "out"

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    def killed(*arguments: object) -> None:
        os._exit(9)

    with monkeypatch.context() as patched:
        patched.setattr(onnx, "write_graph", interrupt)
        assert minitf("export", run, "-o", out, "--to", "onnx").exit_code == 130
        assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with monkeypatch.context() as patched:
        patched.setattr(onnx, "write_graph", killed)
        if (pid := os.fork()) == 0:
            minitf("export", run, "-o", out, "--to", "onnx")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert not out.exists()
    assert len([*tmp_path.iterdir()]) == 2
    assert minitf("export", run, "-o", out, "--to", "safetensors").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]
