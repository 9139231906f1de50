"""What a run would take: work by the textbook's formula and by torch's own count, memory by the tensors, and nothing
unused.
"""

import json
import math
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from commands import DATA, EXACT, TINY, minitf, tiny_model
from torch.utils.flop_counter import FlopCounterMode

from mini_tf.cost import run_cost
from mini_tf.cost import steps as step_cost
from mini_tf.cost.run_cost import run_time
from mini_tf.cost.steps import (
    INSPECTED_STEPS,
    Overhead,
    count_evaluations_and_saves,
    measure_overhead,
    measure_steps,
    median_step,
    memory_of,
    step_flops,
)
from mini_tf.data.tokenized import open_data
from mini_tf.generation.translation import Translator
from mini_tf.jobs.assembling import build
from mini_tf.jobs.parts import Parts
from mini_tf.recipe.reading import read
from mini_tf.recipe.recipe import Recipe
from mini_tf.training.due import EvaluationSchedule
from mini_tf.training.feed import Feed
from mini_tf.training.flops import forward_flops
from mini_tf.training.machine.device import resolve_setup
from mini_tf.training.machine.hardware import _best_of, peak_flops
from mini_tf.training.machine.memory import saved_bytes
from mini_tf.training.optimizer import build as build_optimizer
from mini_tf.training.schedule import Horizon
from mini_tf.training.training import Training

ENCODER = ("tokenizer={kind: bpe, vocab_size: 300}", tiny_model("encoder"))
PAIRS = (
    f"data={{train: {DATA / 'reversed.tsv'}, fields: {{source: source, target: target}}, split: 10%}}",
    tiny_model("encoder_decoder"),
    *("eval.translations=4", "generate.max_new_tokens=8"),
)
TURNS = (
    f"data={{train: {DATA / 'reversed.tsv'}, fields: {{prompt: source, response: target}}, split: 10%}}",
    *("objective=instruct", "eval.translations=4", "generate.max_new_tokens=8"),
)
BY_TOKENS = (
    *PAIRS,
    "tokenizer={kind: bpe, vocab_size: 300, source: {kind: char}}",
    "train.batch_tokens=300",
    "train.micro_batch_size=4",
)
QUICK = ("--seconds", "0", "-q", *EXACT)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fastest product of this machine, which takes a second, is measured once."""
    monkeypatch.setattr(run_cost, "peak_flops", ONCE)


ONCE = cache(peak_flops)


def recipe_of(*changes: str) -> Recipe:
    return read(TINY, [*EXACT, *changes]).recipe


def training_of(*changes: str) -> tuple[Parts, Training]:
    recipe = recipe_of(*changes)
    text = open_data(recipe.data, recipe.tokenizer, recipe.objective)
    parts = build(recipe, text, resolve_setup(recipe.runtime))
    feed = Feed(parts.plan, parts.train, parts.objective.prepare, parts.setup.micro_batch_size)
    return parts, Training(
        parts.task, feed, build_optimizer(recipe.optimizer, parts.model), parts.schedule, parts.setup
    )


def counted_by_torch(parts: Parts, training: Training) -> int:
    """A real step's forward and backward passes; attention by its explicit products, which torch counts in both
    directions.
    """

    def addmm_(total: Any, a: Any, b: Any, *rest: object, out_shape: object = None, **options: object) -> int:
        return 2 * a[0] * a[1] * b[1]

    known = {torch.ops.aten.addmm_: addmm_}  # torch overlooks this one
    explicit = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with FlopCounterMode(display=False, custom_mapping=known) as counter, explicit:
        for batch in training.feed.micro_batches(median_step(training)):
            sums = parts.task.train()(batch, None)
            torch.stack(list(sums.parts.values())).sum().backward()
    return int(counter.get_total_flops())


def test_work_in_nanogpts_shape_is_the_papers_formula() -> None:
    """6 N + 12 n_layers L d a token (PaLM, appendix B; nanoGPT's estimate_mfu), N without the tables that are only
    looked up.
    """
    shape = "model={kind: decoder, d_model: 128, n_layers: 4, n_heads: 4, d_ff: 512, activation: gelu}"
    parts, training = training_of(shape, "tokenizer.kind=char", "train.context=64", "train.batch_size=12")
    vocabulary = parts.data.tokenizer.vocabulary.size
    matrices = 4 * 12 * 128**2 + 128 * vocabulary
    work = step_flops(parts, training)
    assert work.tokens == 12 * 64
    assert work.flops == 768 * (6 * matrices + 12 * 4 * 64 * 128)
    with_65_characters = work.flops - 768 * 6 * 128 * (vocabulary - 65)
    assert with_65_characters / 1e9 == pytest.approx(3.964, abs=0.001)


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("data.pack=docs",),
        ("model.dropout_rate=0.1", "model.activation=swiglu", "model.tied=false"),
        ENCODER,
        (*ENCODER, "model.head=bert", "objective.scheme=whole_word"),
        PAIRS,
        BY_TOKENS,
        (*PAIRS, "model.encoder={d_model: 48, n_layers: 1, n_heads: 4}", "model.n_kv_heads=1"),
    ],
)
def test_work_is_what_torch_counts_of_forward_and_backward(changes: tuple[str, ...]) -> None:
    parts, training = training_of(*changes)
    work = step_flops(parts, training)
    assert work.flops == counted_by_torch(parts, training)
    assert work.tokens == sum(batch.counts["tokens"] for batch in training.feed.micro_batches(median_step(training)))


def test_work_of_a_window_is_nearly_what_torch_counts() -> None:
    """Its backward pass has a few products more than twice those of its forward pass."""
    parts, training = training_of("model.attention={kind: window, window: 8}")
    assert step_flops(parts, training).flops == pytest.approx(counted_by_torch(parts, training), rel=0.02)


def test_a_usual_step_is_neither_the_smallest_nor_the_largest_and_memory_is_of_the_largest() -> None:
    parts, training = training_of(*BY_TOKENS, "train.seed=1")
    seen = [training.feed.micro_batches(step) for step in range(INSPECTED_STEPS)]
    tokens = [sum(batch.counts["tokens"] for batch in step) for step in seen]
    assert sorted(tokens).index(tokens[median_step(training)]) in (2, 3)
    assert step_flops(parts, training).tokens == tokens[median_step(training)]
    kept = [saved_bytes(partial(parts.task, batch, None), parts.setup, parts.task) for step in seen for batch in step]
    assert min(kept) < memory_of(parts, training).activations >= 0.9 * max(kept)
    assert median_step(training_of()[1]) == 0


def test_tokens_of_pairs_are_those_of_the_targets_that_a_step_asks_for() -> None:
    parts, training = training_of(*PAIRS)
    chosen = training.feed.plan.rows(median_step(training)).rows
    assert step_flops(parts, training).tokens == sum(len(parts.data.train.document(int(row))) + 1 for row in chosen)


def test_a_head_works_only_where_something_is_asked() -> None:
    few, many = (training_of(*ENCODER, f"objective.mask_rate={rate}") for rate in (0.1, 0.5))
    asked = [sum(len(batch.labels) for batch in training.feed.micro_batches(0)) for _, training in (few, many)]
    scores = 3 * 2 * 32 * few[0].data.tokenizer.vocabulary.size
    # What the last layer computes at the asked positions alone comes on top of the scores.
    assert step_flops(*many).flops - step_flops(*few).flops >= scores * (asked[1] - asked[0]) > 0


def test_fused_attention_is_counted_as_its_two_products() -> None:
    q, k, v = (torch.randn(2, 4, length, 8) for length in (16, 16, 16))
    attend = torch.nn.functional.scaled_dot_product_attention
    assert forward_flops(lambda: attend(q, k, v, is_causal=True), CPU) == 2 * 4 * 16 * 16 * (2 * 8 + 2 * 8)


@pytest.mark.parametrize("changes", [(), ENCODER, ("optimizer={kind: muon, lr: 0.02}",), PAIRS])
def test_memory_is_that_of_the_tensors_of_a_real_step(changes: tuple[str, ...]) -> None:
    parts, training = training_of(*changes)
    memory = memory_of(parts, training)
    measure_steps(training, 0)
    parameters = list(parts.model.parameters())
    assert memory.weights == sum(p.numel() * 4 for p in parameters)
    assert memory.gradients == memory.weights
    moments = [t for name, t in training.optimizer.state_tensors().items() if t.dim()]
    assert 0 <= memory.optimizer - 4 * sum(t.numel() for t in moments) <= 64
    rows, context, layers, width = 8, 48, 2, 32
    least = 4 * rows * context * layers * width  # one vector a token and layer, and there are many more
    assert 5 * least < memory.activations < 100 * least
    assert memory.total == memory.weights + memory.gradients + memory.optimizer + memory.activations


def test_muon_remembers_less_than_adamw() -> None:
    adamw, muon = (
        memory_of(*training_of(f"optimizer={{kind: {kind}, lr: 0.02}}")).optimizer for kind in ("adamw", "muon")
    )
    assert muon < adamw


def test_steps_are_timed_up_to_the_end_of_the_run_and_no_further() -> None:
    for steps in (1, 3, 60):
        training = training_of(f"train.steps={steps}")[1]
        timing = measure_steps(training, 0)
        assert timing.seconds > 0
        assert timing.warmup >= 0
        assert int(training.optimizer.state_tensors()["step"]) == min(steps, 7)


def test_a_product_is_measured_again_and_again_until_its_time_is_over() -> None:
    began = time.perf_counter()
    assert _best_of(2, CPU, torch.float32, 0.02) > 0
    assert time.perf_counter() - began >= 0.02


def test_the_peak_is_finite_and_of_the_type_that_products_have() -> None:
    assert 1e8 < peak_flops(CPU, torch.float32, 0) < 1e15
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        assert resolve_setup(recipe_of(f"runtime.precision={precision}").runtime).compute_dtype == dtype


def due_by_hand(evaluates: int, saves: int, steps: int) -> tuple[int, int]:
    evaluated = {step for step in range(1, steps + 1) if step % evaluates == 0 or step == steps}
    return len(evaluated), len(evaluated | {step for step in range(1, steps + 1) if step % saves == 0})


MUCH = 1e12
"""Operations of a step so heavy that nothing is left out for being too near."""


def due(*overrides: str, work: float = MUCH) -> EvaluationSchedule:
    """Of a run of so much text that it may be evaluated as often as it likes."""
    return EvaluationSchedule(recipe_of(*overrides), work, 1e6, 1000)


@pytest.mark.parametrize("steps", [1, 7, 60, 61, 100, 1234])
def test_evaluations_and_checkpoints_are_as_many_as_a_run_makes(steps: int) -> None:
    tenth = math.ceil(steps / 10)
    assert count_evaluations_and_saves(due(), steps, None) == due_by_hand(tenth, tenth, steps)
    assert count_evaluations_and_saves(due(work=MUCH / 50), steps, None) == due_by_hand(
        max(tenth, 50), max(tenth, 50), steps
    )
    recipe = due("eval.every_steps=20")
    assert count_evaluations_and_saves(recipe, steps, None) == due_by_hand(20, 20, steps)
    recipe = due("eval.every_steps=20", "checkpoint.every_steps=15")
    evaluations, saves = due_by_hand(20, 15, steps)
    counted = count_evaluations_and_saves(recipe, steps, None)
    assert counted[0] == evaluations
    assert 0 <= counted[1] - saves <= 1  # a checkpoint of the last step may be counted twice


def test_a_run_by_the_clock_is_evaluated_as_often_as_its_time_allows() -> None:
    """Every five seconds, at most ten times."""
    assert [count_evaluations_and_saves(due(), 1000, seconds)[0] for seconds in (4.0, 20.0, 500.0)] == [1, 4, 10]


def test_memory_is_counted_in_bytes_and_evaluation_in_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert step_cost.peak_bytes(CPU) > 50 << 20  # of a process that has imported torch
    timed: list[int] = []
    monkeypatch.setattr(step_cost, "_time_evaluation", lambda parts, tokens: timed.append(tokens) or 0.25)
    parts = SimpleNamespace(setup=SimpleNamespace(micro_batch_size=8), recipe=recipe_of())
    for seconds in (0.1, 0.8):
        monkeypatch.setattr(step_cost, "EVALUATION_SECONDS", seconds)
        step_cost._evaluation_tokens_per_second(parts, 5000)  # type: ignore[arg-type]
    assert timed == [8 * 48, 8 * 48, 8 * 48, 3 * 8 * 48]


def test_a_real_run_evaluates_samples_and_saves_as_often_as_estimated(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = minitf(
        "pretrain",
        TINY,
        *EXACT,
        "train.steps=11",
        "eval.every_steps=5",
        "checkpoint.keep_last=100",
        "optimizer.lr=1e-3",
        "-q",
        "-d",
        folder,
    )
    assert done.exit_code == 0
    evaluations, saves = count_evaluations_and_saves(due("eval.every_steps=5"), 11, None)
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    assert sum("val.loss" in line for line in lines) == evaluations == len(list((folder / "samples").iterdir()))
    assert len(list((folder / "checkpoints").glob("step-*"))) == saves


CHORES = Overhead(evaluation=0.5, full_evaluation=3.0, sample=0.25, save=0.125, closing=1.0)


def test_the_time_is_the_sum_of_what_is_done() -> None:
    counts, seconds = run_time(due("eval.tokens=100"), Horizon(steps=100), 0.01, CHORES)
    assert counts == {"training": 100, "evaluation": 10, "samples": 10, "saving": 10}
    parts = {"training": 1.0, "evaluation": 5.0, "last_evaluation": 3.0, "samples": 2.5, "saving": 1.25, "closing": 1.0}
    assert seconds == parts
    whole_text = run_time(due("eval.tokens=null"), Horizon(steps=100), 0.01, CHORES)[1]
    assert whole_text == parts | {"last_evaluation": 0.0}  # the last one on the way was already of all the text


@pytest.mark.parametrize("changes", [(), ("eval.every_steps=50",)])
def test_where_the_clock_decides_what_is_done_on_the_way_takes_from_its_time(changes: tuple[str, ...]) -> None:
    counts, seconds = run_time(due(*changes), Horizon(seconds=20.0), 0.01, CHORES)
    last = CHORES.evaluation + CHORES.sample + CHORES.save
    within = sum(seconds[part] for part in ("training", "evaluation", "samples", "saving")) - last
    assert within == pytest.approx(20.0, abs=last)
    assert counts["training"] * 0.01 == pytest.approx(seconds["training"])


def test_a_time_has_the_steps_that_fit_beside_what_is_done_on_the_way() -> None:
    """In 100 s, 19 times 50 steps of 0.5 s with chores of 4.75 s behind them, and 25 steps."""
    dear = replace(CHORES, save=4.0)
    counts, _ = run_time(due("eval.every_steps=50"), Horizon(seconds=100.005), 0.01, dear)
    assert counts == {"training": 19 * 50 + 25, "evaluation": 20, "samples": 20, "saving": 20}
    assert run_time(due(), Horizon(seconds=0.001), 0.01, dear)[0]["training"] == 1


def test_chores_are_timed_and_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    parts, _ = training_of("eval.tokens=500", "eval.every_steps=1")
    overhead = measure_overhead(parts, 1000)
    assert overhead.full_evaluation / overhead.evaluation == pytest.approx(parts.validation_tokens / parts.sample_size)
    assert 500 <= parts.sample_size < 600
    assert min(vars(overhead).values()) > 0
    assert list(tmp_path.iterdir()) == []
    pairs, few = (measure_overhead(training_of(*PAIRS, f"eval.translations={n}")[0], 1000) for n in (2, 0))
    assert min(vars(pairs).values()) > 0
    assert few.sample > 0  # translations that are shown, though not judged
    answers = measure_overhead(training_of(*TURNS)[0], 1000)
    assert min(vars(answers).values()) > 0
    silent = measure_overhead(training_of(*ENCODER)[0], 1000)
    assert (silent.sample, silent.full_evaluation) == (0.0, silent.evaluation)


def costs(*arguments: str) -> dict[str, Any]:
    done = minitf("cost", *arguments, *QUICK, "--json")
    assert done.exit_code == 0, done.stderr
    envelope: dict[str, Any] = json.loads(done.stdout)
    return envelope


def test_the_envelope_has_figures_that_agree_with_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    envelope = costs(TINY, "train.steps=30")
    found, [result] = envelope["metrics"], envelope["result"]
    assert (envelope["ok"], envelope["command"], envelope["run"]) == (True, "cost", None)
    assert (result["recipe"], result["device"], result["precision"], result["micro_batch_size"]) == (
        "tiny",
        "cpu",
        "fp32",
        8,
    )
    assert result["metrics"] == found
    assert found["parameters"] == sum(p.numel() for p in training_of()[0].model.parameters())
    assert found["steps"] == 30
    assert found["tokens_per_step"] == 8 * 48
    assert found["flops_per_token"] * found["tokens_per_step"] == pytest.approx(found["flops_per_step"])
    assert found["tokens_per_second"] * found["seconds_per_step"] == pytest.approx(384)
    assert found["mfu"] == pytest.approx(found["flops_per_step"] / found["seconds_per_step"] / found["peak_flops"])
    assert found["seconds"] == pytest.approx(sum(value for name, value in found.items() if name.startswith("seconds.")))
    assert found["minutes"] == pytest.approx(found["seconds"] / 60)
    assert found["memory_bytes"] == sum(value for name, value in found.items() if name.startswith("memory_bytes."))
    assert found["peak_bytes"] > found["memory_bytes"]
    assert list(tmp_path.iterdir()) == []


def test_pairs_cost_what_their_model_and_their_translations_do() -> None:
    found = costs(TINY, *BY_TOKENS, "train.steps=5")["metrics"]
    parts, _ = training_of(*BY_TOKENS)
    assert found["parameters"] == sum(p.numel() for p in parts.model.parameters())
    assert (found["steps"], found["seconds.samples"] > 0) == (5, True)
    assert found["seconds"] == pytest.approx(sum(value for name, value in found.items() if name.startswith("seconds.")))


def test_where_no_pair_is_translated_the_estimate_translates_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    translated: list[None] = []
    translate = Translator.translate
    monkeypatch.setattr(Translator, "translate", lambda *given: translated.append(None) or translate(*given))
    costs(TINY, *PAIRS, "log.samples=0", "eval.translations=0", "train.steps=5")
    assert translated == []
    costs(TINY, *PAIRS, "log.samples=0", "train.steps=5")
    assert translated


def test_a_dry_run_is_the_same_estimate() -> None:
    dry = json.loads(minitf("pretrain", TINY, *EXACT, "train.steps=3", "--dry-run", "-q", "--json").stdout)["metrics"]
    same = costs(TINY, "train.steps=3")["metrics"]
    assert dry.keys() == same.keys()
    assert [dry[name] == same[name] for name in ("parameters", "flops_per_step", "memory_bytes", "steps")] == [True] * 4


def test_seeds_take_their_time_one_after_the_other() -> None:
    found = costs(TINY, "train.steps=3", "train.seeds=5")["metrics"]
    assert (found["seeds"], found["steps"]) == (5, 3)
    assert found["seconds.training"] == pytest.approx(5 * 3 * found["seconds_per_step"])
    assert found["seconds"] == pytest.approx(sum(value for name, value in found.items() if name.startswith("seconds.")))
    told = minitf("cost", TINY, "train.steps=3", "train.seeds=5", *QUICK).stdout
    assert " for all 5 seeds\n" in told
    found = costs(TINY, "train.steps=3", "train.seeds=2", "data.split={folds: 4}")["metrics"]
    assert (found["seeds"], found["folds"]) == (2, 4)
    assert found["seconds.training"] == pytest.approx(8 * 3 * found["seconds_per_step"])
    assert "3 steps, 5 times\n" in told


def test_one_recipe_is_told_in_lines_and_several_in_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    one = minitf("cost", TINY, *QUICK)
    assert [line.split(" ")[0] for line in one.stdout.splitlines()[:4]] == ["recipe", "parameters", "compute", "memory"]
    assert "33,056" in one.stdout
    Path("wide.yaml").write_text(f"extends: {TINY}\nmodel: {{d_model: 64}}\n")
    two = minitf("cost", TINY, "wide.yaml", "train.steps=4", *QUICK)
    assert two.exit_code == 0, two.stderr
    head, first, second, *_ = (line.split() for line in two.stdout.splitlines())
    assert (head[0], head[-1], first[0], first[-1], second[0]) == ("recipe", "parameters", "tiny", "33,056", "wide")
    assert first[2] == second[2] == "4"
    envelope = costs(TINY, "wide.yaml", "train.steps=4")
    assert [result["recipe"] for result in envelope["result"]] == ["tiny", "wide"]
    assert envelope["metrics"] == envelope["result"][0]["metrics"] != envelope["result"][1]["metrics"]


def test_refusals_have_the_usual_exit_codes(tmp_path: Path) -> None:
    """As in `pretrain`: a word that names nothing is wrong usage, a file that is missing or wrong a refused recipe."""
    assert minitf("cost", "no-such-preset").exit_code == 2
    assert minitf("cost", "missing.yaml").exit_code == 3
    assert minitf("cost", TINY, "model.d_modle=3").exit_code == 3
    assert minitf("cost", TINY, f"data.train={tmp_path / 'missing.txt'}").exit_code == 4
    refused = minitf("cost", TINY, "--device", "cuda:99")
    assert (refused.exit_code, refused.stdout) == (9, "")
    assert "runtime.device" in refused.stderr
