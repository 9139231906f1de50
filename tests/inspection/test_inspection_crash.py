"""`minitf inspect crash`: the step comes out again, and what is named is what was broken."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import figures
import pytest
import torch
from commands import QUIET, TINY, content, minitf, trained
from test_faults_numerics import EARLY, LATE, early, late, parts_of, told  # noqa: F401  (fixtures)
from torch import Tensor, nn
from toys import causal_mixers

from mini_tf.cli.crash import _origin
from mini_tf.jobs.parts import Parts, training_of
from mini_tf.jobs.replay import ReplayResult, _max_abs, replay_step
from mini_tf.recipe.kinds import listing
from mini_tf.run.tensors import Serialized, read
from mini_tf.training.loop import Progress
from mini_tf.training.optimizer import build as build_optimizer
from mini_tf.training.training import Training


def training_with(*overrides: str) -> Training:
    return training_on(parts_of("train.batch_size=8", "train.micro_batch_size=4", *overrides))


def training_on(parts: Parts) -> Training:
    return training_of(parts, [], build_optimizer(parts.recipe.optimizer, parts.model))


def result_of(stdout: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(stdout)["result"]
    return result


def test_a_step_that_diverged_forward_is_found_again_and_what_it_came_from(early: tuple[Path, str]) -> None:  # noqa: F811
    run, _ = early
    before = content(run)
    done = minitf("inspect", "crash", run, "--json")
    assert done.exit_code == 0, done.stderr
    result = result_of(done.stdout)
    facts = json.loads((run / "diverged" / "facts.json").read_text())
    assert result["diverged"] == facts
    assert result["reproduced"] is True
    assert (result["outcome"]["what"], result["outcome"]["micro"]) == (facts["what"], facts["micro_batch"] - 1)
    assert result["source"]["module"].startswith(
        "stack.layers.3."
    )  # what grows with every layer, grows too large in the last
    assert result["source"]["share"] > 0
    assert [level["module"] for level in result["levels"]] == ["embedding", *(f"stack.layers.{i}" for i in range(4))]
    largest = [
        level["largest"] for level in result["levels"][:-1]
    ]  # of finite numbers, of which the last may have none
    assert largest == sorted(largest)
    assert [level["not_finite"] > 0 for level in result["levels"]] == [False] * 4 + [True]
    assert result["in_fp32"] is not None
    assert [row["row"] for row in result["rows"]] == facts["rows"]
    assert all(row["text"] for row in result["rows"])
    assert content(run) == before


def test_what_is_said_of_a_crash_are_plain_sentences_and_a_table(early: tuple[Path, str]) -> None:  # noqa: F811
    run, _ = early
    done = minitf("inspect", "crash", run)
    said = " ".join(told(done.stdout).split())
    assert "replayed on cpu in bf16: it diverges again in the same way" in said
    assert "first non-finite output: stack.layers.3." in said
    assert "after that step" not in said
    assert "in fp32 instead of bf16 the step is" in said
    assert "try: a lower optimizer.lr (it is 0.3), schedule.warmup=5% (there is none), optimizer.clip=1" in said
    assert max(map(len, done.stdout.splitlines())) <= 80
    rows = figures.table_in(done.stdout, "layer  ")
    for row, level in zip(rows, result_of(minitf("inspect", "crash", run, "--json").stdout)["levels"], strict=False):
        largest, weight = f"{level['largest']:.3g}", f"{level['weight']:.3g}"
        assert row == [level["module"], level["kind"], largest, str(level["not_finite"]), weight]


def test_a_step_that_diverged_backward_is_found_again(late: tuple[Path, str]) -> None:  # noqa: F811
    run, _ = late
    result = result_of(minitf("inspect", "crash", run, "--json").stdout)
    assert result["reproduced"] is True
    assert (result["source"], result["outcome"]["micro"], result["in_fp32"]) == (None, None, None)
    assert "the gradient norm" in result["outcome"]["what"]
    assert bool(result["gradients"]) == bool(result["diverged"]["parameters"])


def test_a_stream_is_replayed_from_what_it_remembered_before_the_step(tmp_path: Path) -> None:
    run = tmp_path / "run"
    streaming = ("model.attention={kind: window, window: 8}", "train.stream=true", "data.pack=concat")
    assert minitf("pretrain", TINY, *QUIET, *LATE, *streaming, "-d", run).exit_code == 7
    assert read(run / "diverged" / "state.safetensors")
    assert result_of(minitf("inspect", "crash", run, "--json").stdout)["reproduced"] is True
    (run / "diverged" / "state.safetensors").write_bytes(b"".join(Serialized({})))
    lost = minitf("inspect", "crash", run)
    assert (lost.exit_code, lost.stdout) == (5, "")
    assert "the stream state after step " in told(lost.stderr)


def breakages(training: Training) -> dict[str, nn.Module]:
    """Modules by name, innermost ones that have weights."""
    named = {name.removeprefix("model."): module for name, module in training.task.named_modules()}
    return {name: module for name, module in named.items() if not list(module.children()) and list(module.parameters())}


@pytest.mark.parametrize(
    "name",
    ["embedding.tokens", "stack.layers.1.self_attn.part.qkv", "stack.layers.0.feed_forward.part.down", "stack.norm"],
)
def test_the_first_module_that_gives_what_is_not_finite_is_named(name: str) -> None:
    training = training_with()
    broken = breakages(training)[name]
    calls: list[None] = []

    def break_in_the_second_micro_batch(module: nn.Module, given: Any, output: Tensor) -> Tensor:
        calls.append(None)
        return output if len(calls) % 2 else output.index_fill(1, torch.tensor([0]), torch.inf)

    broken.register_forward_hook(break_in_the_second_micro_batch)
    weights = [p.detach().clone() for p in training.task.parameters()]
    findings = replay_step(training, Progress())
    assert findings.source is not None
    assert (findings.source.module, findings.source.micro, findings.source.kind) == (name, 1, type(broken).__name__)
    assert 0 < findings.source.share < 1
    assert findings.outcome.micro == 1
    assert all(torch.equal(a, b) for a, b in zip(weights, training.task.parameters(), strict=True))
    assert all(p.grad is None for p in training.task.parameters())


def test_the_first_gradient_that_is_not_finite_is_named() -> None:
    parts = parts_of("train.batch_size=8", "train.micro_batch_size=4")
    training = training_on(parts)
    parameters = dict(training.task.named_parameters())
    name = "model.stack.layers.1.feed_forward.part.up.weight"
    earlier = [name.replace("layers.1", "layers.0"), "model.stack.layers.0.self_attn.part.qkv.weight"]

    def poison() -> Callable[[Tensor], Tensor]:
        turns = cycle((False, True))
        return lambda gradient: gradient.index_fill(0, torch.tensor([0]), torch.nan) if next(turns) else gradient

    hooks = [parameters[word].register_hook(poison()) for word in (name, *earlier)]
    findings = replay_step(training, Progress())
    assert [f"model.{gradient.parameter}" for gradient in findings.gradients] == [name, *earlier]
    [said] = list(_origin(findings, parts))
    share = f"{1 / len(parameters[name]):.2%} of its values"
    assert said.endswith(f"gradient: {name.removeprefix('model.')}, micro-batch 2: {share}, and 2 further parameters")
    for hook in hooks[1:]:
        hook.remove()
    findings = replay_step(training, Progress())
    assert findings.source is None
    [gradient] = findings.gradients
    assert (f"model.{gradient.parameter}", gradient.micro) == (name, 1)
    assert gradient.share == pytest.approx(1 / parameters[name].shape[0])
    assert findings.outcome.what == f"the gradient norm is nan (in {name.removeprefix('model.')}), but must be finite"
    for what, ending in ((None, "finite, with a loss of 2"), ("it is nan", "not finite either: it is nan")):
        *_, said = _origin(replace(findings, in_fp32=ReplayResult(what, None, 2.0, 1.0)), parts)
        assert said == f"in fp32 instead of {parts.setup.precision} the step is {ending}"


@pytest.mark.parametrize(
    ("values", "largest"), [([2.0, -3.0], 3.0), ([torch.nan, -3.0, torch.inf], 3.0), ([torch.nan], 0.0), ([], 0.0)]
)
def test_the_range_of_a_layer_is_that_of_its_finite_numbers(values: list[float], largest: float) -> None:
    assert _max_abs(torch.tensor(values)) == largest


def test_weights_that_are_not_finite_already_are_named() -> None:
    training = training_with()
    with torch.no_grad():
        dict(training.task.named_parameters())["model.stack.layers.0.self_attn.part.out.weight"][0, 0] = torch.inf
    assert replay_step(training, Progress()).weights == ["model.stack.layers.0.self_attn.part.out.weight"]


SOUND = [f"attention.{kind}" for kind in listing("attention") if kind in causal_mixers()] + [
    f"positions.{kind}" for kind in listing("positions")
]


@pytest.mark.parametrize("kind", SOUND)
def test_nothing_is_found_in_a_sound_step(kind: str) -> None:
    """Mixers in rows with padding, positions in rows of several documents."""
    section, word = kind.split(".")
    rest = ("model.positions=none", "data.pack=none") if section == "attention" else ("data.pack=docs",)
    findings = replay_step(training_with(f"model.{section}={word}", *rest), Progress())
    assert (findings.outcome.what, findings.source, findings.gradients, findings.weights) == (None, None, [], [])
    assert findings.outcome.loss > 0
    assert len(findings.levels) == 3
    assert all(level.not_finite == 0 < level.largest for level in findings.levels)


@pytest.fixture
def copied(early: tuple[Path, str], tmp_path: Path) -> Path:  # noqa: F811
    return Path(shutil.copytree(early[0], tmp_path / "copy"))


def test_a_step_of_a_streamed_run_is_found_again_as_long_as_its_files_are_the_same(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.jsonl").write_text(
            "".join(f'{{"text": "Shard {n} says that the number is {m}."}}\n' for m in range(300))
        )
    data = f"data={{train: '{tmp_path}/*.jsonl', streaming: true, split: 10%}}"
    assert minitf("pretrain", TINY, *QUIET, *EARLY, data, "-d", tmp_path / "run").exit_code == 7
    result = result_of(minitf("inspect", "crash", tmp_path / "run", "--json").stdout)
    assert result["reproduced"] is True
    assert [row["row"] for row in result["rows"]] == result["diverged"]["rows"] != []
    whole = " ".join((tmp_path / f"{n}.jsonl").read_text() for n in range(3))
    assert all(sentence in whole for row in result["rows"] for sentence in row["text"].split(".")[1:-1])
    with (tmp_path / "1.jsonl").open("a") as file:
        file.write('{"text": "one more"}\n')
    changed = minitf("inspect", "crash", tmp_path / "run")
    assert (changed.exit_code, changed.stderr.count("\n")) == (5, 1)
    assert "has changed since training" in changed.stderr


def test_a_run_that_did_not_diverge_has_no_crash(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "train.steps=1")
    done = minitf("inspect", "crash", run)
    assert (done.exit_code, done.stdout) == (5, "")
    assert done.stderr == f"{run} has no dump of a diverged step; `minitf runs show` shows how the run ended\n"


def corrupt(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(run: Path) -> None:
        path = run / "diverged" / name
        path.write_bytes(change(path.read_bytes()))

    return apply


def altered(key: str, value: object) -> Callable[[bytes], bytes]:
    return lambda data: json.dumps(json.loads(data) | {key: value}).encode()


def counting(**counters: object) -> Callable[[bytes], bytes]:
    """Other counters, without those that are None."""

    def change(data: bytes) -> bytes:
        facts = json.loads(data)
        facts["counters"] = {name: value for name, value in (facts["counters"] | counters).items() if value is not None}
        return json.dumps(facts).encode()

    return change


def test_of_a_run_that_was_started_again_since_that_is_said(copied: Path) -> None:
    record = json.loads((copied / "run.json").read_text())
    (copied / "run.json").write_text(json.dumps(record | {"state": "done"}))
    assert "the run was continued after that step; its state is done\n" in told(
        minitf("inspect", "crash", copied).stdout
    )
    assert result_of(minitf("inspect", "crash", copied, "--json").stdout)["state"] == "done"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (corrupt("facts.json", lambda data: data[:50]), "facts.json is damaged"),
        (corrupt("facts.json", lambda data: b"[" * 10**5), "facts.json is damaged"),
        (corrupt("facts.json", altered("step", "38")), "facts.json is damaged"),
        (corrupt("facts.json", counting(tokens=None)), "diverged is damaged: the key 'tokens' is missing"),
        (corrupt("facts.json", counting(step=-5)), "facts.json is damaged: invalid counter step"),
        (corrupt("facts.json", counting(step=1.5)), "facts.json is damaged: invalid counter step"),
        (corrupt("facts.json", counting(step=10**17)), "facts.json is damaged: invalid counter step"),
        (corrupt("facts.json", counting(skips=0.5)), "facts.json is damaged: invalid counter skips"),
        (corrupt("facts.json", altered("step", 10**17)), "facts.json is damaged"),
        (
            corrupt("state.safetensors", lambda data: b"".join(Serialized({"a": torch.ones(1), "a.b": torch.ones(1)}))),
            "diverged is damaged",
        ),
        (corrupt("facts.json", altered("format", 99)), "this version of minitf reads format 1"),
        (corrupt("facts.json", altered("setup", {})), "facts.json is damaged"),
        (corrupt("model.safetensors", lambda data: data[: len(data) // 2]), "model.safetensors"),
        (lambda run: (run / "diverged" / "facts.json").unlink(), "facts.json: No such file"),
        (lambda run: (run / "tokenizer.json").write_text("{}"), "is damaged"),
    ],
    ids=[
        "cut",
        "deep",
        "type",
        "no-tokens",
        "negative",
        "half",
        "huge",
        "half-a-skip",
        "huge-step",
        "state",
        "newer",
        "setup",
        "weights",
        "gone",
        "tokenizer",
    ],
)
def test_a_damaged_dump_is_refused_in_one_line(damage: Callable[[Path], None], words: str, copied: Path) -> None:
    damage(copied)
    done = minitf("inspect", "crash", copied)
    assert (done.exit_code, done.stdout) == (5, "")
    assert words in told(done.stderr)
    assert done.stderr.count("\n") == 1


def test_a_text_that_changed_since_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text((Path(TINY).parent / "tiny.txt").read_text())
    run = tmp_path / "run"
    assert minitf("pretrain", TINY, *QUIET, *EARLY, f"data.train={text}", "-d", run).exit_code == 7
    text.write_text(text.read_text() + "\n\nOne more tale.\n")
    done = minitf("inspect", "crash", run)
    assert (done.exit_code, done.stdout) == (5, "")
    assert f"the data of {run} has changed since training, so the step cannot be replayed" in done.stderr
    text.unlink()
    assert minitf("inspect", "crash", run).exit_code == 4


def test_a_device_that_is_missing_is_refused_by_the_option_that_named_it(early: tuple[Path, str]) -> None:  # noqa: F811
    done = minitf("inspect", "crash", early[0], "--device", "cuda:77")
    assert (done.exit_code, done.stdout) == (9, "")
    assert done.stderr.startswith("--device: 'cuda:77' is not available on this machine; available: cpu")
