"""`minitf finetune` from end to end: a run that begins with another one, adapted or in part frozen, stopped, killed and
continued.
"""

import hashlib
import json
import os
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import EXACT, ROOT, TINY, minitf, refused, tiny_model, trained
from safetensors.torch import load_file
from test_killed import DEAD, die, die_at_record, dies
from torch import Tensor

from mini_tf.nn.lora import adapt
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.reading import read
from mini_tf.run import folder
from mini_tf.run.disk import Disk
from mini_tf.run.folder import Run
from mini_tf.trained.opening import open_trained

STEPS = 5
SETTLED = (*EXACT, "runtime.precision=fp32", "runtime.compile=false", "train.micro_batch_size=8")
SHORT = (*SETTLED, "log.samples=0", "eval.translations=0")
OFTEN = (f"train.steps={STEPS}", "checkpoint.every_steps=2", "eval.every_steps=2", "log.every_steps=1")
OPINIONS = (f"data={{train: {ROOT / 'data' / 'opinions.tsv'}, split: 10%}}", "objective=classify", "model.kind=encoder")
QUESTIONS = (f"data={{train: {ROOT / 'data' / 'questions.jsonl'}, split: 10%}}", "objective=instruct")
TASKS = {"encoder": OPINIONS, "decoder": QUESTIONS}
LORA = "adapter={{rank: 2, alpha: 8, merge: {}}}"
NARROW = ".parametrizations.weight.0."


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of an encoder and one of a decoder, to begin with."""
    place = tmp_path_factory.mktemp("begun")
    for kind in TASKS:
        trained(place / kind, *SHORT, tiny_model(kind), "train.steps=2", "eval.tokens=300")
    return place


@pytest.fixture(scope="module")
def adapted(begun: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an adapted run of the encoder, published as an adapter ("false") and merged ("true")."""
    place = tmp_path_factory.mktemp("adapted")
    for merge in ("false", "true"):
        finetune(*task(begun, "encoder", LORA.format(merge)), "-d", place / merge)
    return place


def finetune(*arguments: str | Path, exit_code: int = 0, recipe: str | Path = TINY) -> str:
    """What it said."""
    done = minitf("finetune", recipe, *arguments)
    assert done.exit_code == exit_code, done.stderr
    return done.stderr


def task(begun: Path, kind: str, *overrides: str) -> tuple[str, ...]:
    return (*SHORT, *OFTEN, *TASKS[kind], f"model.init_from={begun / kind}", *overrides)


def checkpoint(run: Path, step: int = STEPS, name: str = "model") -> dict[str, Tensor]:
    return load_file(run / "checkpoints" / f"step-{step:08d}" / f"{name}.safetensors")


def best(run: Path) -> int:
    return int(json.loads((run / "run.json").read_text())["model"]["step"])


def product(run: Path) -> dict[str, bytes]:
    """All that is promised to be the same."""
    record = json.loads((run / "run.json").read_text())
    last = run / "checkpoints" / f"step-{record['step']:08d}"
    files = [run / name for name in ("metrics.jsonl", "model.safetensors", "config.json", "tokenizer.json")]
    files += [last / f"{name}.safetensors" for name in ("model", "optimizer", "state")]
    figures = json.dumps(record["metrics"] | {"minutes": 0}).encode()
    return {str(path.relative_to(run)): path.read_bytes() for path in files} | {"figures": figures}


def assert_same(one: Path, other: Path) -> None:
    ours, theirs = product(one), product(other)
    assert [name for name in ours if ours[name] != theirs[name]] == []


def scores(model: Model) -> Tensor:
    ids = torch.randint(0, 256, (3, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model.logits(model.eval()(Tokens(ids)).y)


# By recipes alone.


def test_fine_tuning_twice_works_by_recipes_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """a pretrains, b tells opinions, c tells other classes with what b learnt; b's run may be gone when c's is used."""
    monkeypatch.chdir(tmp_path)
    common = "train: {steps: 3, batch_size: 8, context: 48}\nruntime: {device: cpu, threads: 1}\n"
    rows = (ROOT / "data" / "opinions.tsv").read_text().splitlines()
    Path("other.tsv").write_text(
        "text\tmood\n" + "".join(f"{row.split(chr(9))[1]}\t{'abc'[n % 3]}\n" for n, row in enumerate(rows[1:]))
    )
    Path("a.yaml").write_text(
        f"data: {{train: {ROOT / 'tests' / 'data' / 'tiny.txt'}}}\ntokenizer: {{kind: bpe, vocab_size: 300}}\n"
        f"model: {{kind: encoder, d_model: 16, n_layers: 1, n_heads: 2, head: bert}}\n{common}"
    )
    task = "objective: {{kind: classify}}\ndata: {{train: {}, split: 20%{}}}\nmodel: {{init_from: {}}}\n"
    Path("b.yaml").write_text(task.format(ROOT / "data" / "opinions.tsv", "", "a") + common)
    Path("c.yaml").write_text(task.format("other.tsv", ", fields: {text: text, label: mood}", "b") + common)
    said = {name: finetune("-n", name, recipe=f"{name}.yaml") for name in "abc"}
    assert "initialized from a: " in said["b"]
    assert "2 new (head.linear.weight, head.linear.bias)" in said["b"]
    assert (
        "4 unused (head.transform.dense.weight, head.transform.dense.bias, head.transform.norm.weight,"
        " head.linear.bias)" in said["b"]
    )
    assert "initialized from b: " in said["c"]
    assert "2 new (head.linear.weight, head.linear.bias), 2 unused (head.linear.weight, head.linear.bias)" in said["c"]
    assert {Path("outputs", name, "tokenizer.json").read_bytes() for name in "abc"} == {
        Path("outputs/a/tokenizer.json").read_bytes()
    }
    assert json.loads(Path("outputs/c/config.json").read_text())["labels"]["names"] == ["a", "b", "c"]
    assert [load_file(f"outputs/{name}/model.safetensors")["head.linear.bias"].shape[0] for name in "abc"] == [
        300,
        2,
        3,
    ]
    shutil.rmtree("outputs/b")
    shutil.rmtree("outputs/a")
    for command in (
        ("evaluate", "c"),
        ("inspect", "model", "c"),
        ("runs", "show", "c"),
        ("recipe", "show", "outputs/c"),
    ):
        assert minitf(*command).exit_code == 0, command
    assert open_trained("c").recipe.model.init_from == str(tmp_path / "outputs" / "b")
    gone = minitf("finetune", "outputs/c/resolved.yaml", "-n", "d")
    refused(gone, "no longer exists; -d FOLDER continues", exit_code=5)
    refused(minitf("finetune", "c.yaml", "-n", "d"), "no such run", exit_code=3)


def test_the_resolved_recipe_reproduces_the_run(begun: Path, tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    finetune(*task(begun, "decoder", LORA.format("true"), "optimizer.layer_decay=0.8"), "-d", first)
    finetune("-d", again, recipe=first / "resolved.yaml")
    assert_same(first, again)
    assert (again / "resolved.yaml").read_bytes() == (first / "resolved.yaml").read_bytes()


def test_another_run_to_begin_with_under_the_same_path_is_another_run(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun / "encoder", tmp_path / "encoder")
    arguments = task(tmp_path, "encoder", "train.steps=2")
    finetune(*arguments, "-d", tmp_path / "run")
    shutil.rmtree(tmp_path / "encoder")
    trained(tmp_path / "encoder", *SHORT, tiny_model("encoder"), "train.steps=2", "eval.tokens=300", "train.seed=7")
    refused(
        minitf("finetune", TINY, *arguments, "-d", tmp_path / "run"),
        "was started with other contents of init",
        exit_code=5,
    )
    finetune(*arguments, f"model.init_from={begun / 'encoder'}", "-n", "x", "-d", tmp_path)
    assert (tmp_path / "x" / "model.safetensors").read_bytes() == (tmp_path / "run" / "model.safetensors").read_bytes()
    ids = {json.loads((tmp_path / name / "run.json").read_text())["run_id"] for name in ("run", "x")}
    assert len(ids) == 1


# Adapted and frozen.


@pytest.mark.parametrize(("kind", "optimizer"), [("encoder", "adamw"), ("decoder", "muon")])
def test_an_adapter_learns_beside_what_stays_to_the_bit(kind: str, optimizer: str, begun: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    said = finetune(*task(begun, kind, LORA.format("false"), f"optimizer.kind={optimizer}"), "-d", run)
    before, after = load_file(begun / kind / "model.safetensors"), checkpoint(run)
    narrow = {name for name in after if NARROW in name}
    new = {name for name in after if name.startswith("head.")}
    assert {"A", "B"} == {name.split(".")[-2] for name in narrow}
    assert new == ({"head.linear.weight", "head.linear.bias"} if kind == "encoder" else set())
    for name in after.keys() - narrow - new:
        assert torch.equal(after[name], before[name.replace("parametrizations.weight.original", "weight")])
    assert any(after[name].any() for name in narrow if ".B." in name)
    kept = {name.removesuffix(".exp_avg").removesuffix(".exp_avg_sq") for name in checkpoint(run, name="optimizer")}
    assert kept - {"step"} == narrow | new
    trainable, total = (sum(after[name].numel() for name in names) for names in (narrow | new, after))
    assert f"trainable parameters: {trainable:,} of {total:,} ({100 * trainable / total:.1f} %)" in said
    assert load_file(run / "model.safetensors").keys() == after.keys()


def test_an_adapted_run_opens_as_a_plain_model_with_the_same_outputs(adapted: Path) -> None:
    """Of both ways to publish it, of its best checkpoint, of others, and of the mean of two."""
    apart, merged = adapted / "false", adapted / "true"
    assert best(apart) == best(merged)
    assert checkpoint(apart).keys() == checkpoint(merged).keys()
    for step in (best(apart), STEPS):
        model = open_trained(apart, device="cpu").model
        whole = json.loads((apart / "config.json").read_text())["whole"]
        adapt(model, read(apart).recipe.adapter, whole)  # type: ignore[arg-type]
        model.load_weights(checkpoint(apart, step))
        expected = scores(model)
        for run in (apart, merged):
            assert torch.equal(scores(open_trained(run, step, device="cpu").model), expected)
            if step == best(apart):
                for which in (None, "best"):
                    opened = open_trained(run, which, device="cpu").model
                    assert torch.equal(scores(opened), expected)
                    assert not any(NARROW in name for name in opened.weights())
    plain = load_file(merged / "model.safetensors")
    assert plain.keys() == open_trained(apart, device="cpu").model.weights().keys()
    means = [open_trained(run, average=2, device="cpu").model.weights() for run in (apart, merged)]
    steps = sorted((int(path.name[5:]) for path in (apart / "checkpoints").iterdir()), reverse=True)[:2]
    each = [open_trained(apart, step, device="cpu").model.weights() for step in steps]
    for name in plain:
        assert torch.equal(means[0][name], means[1][name])
        assert torch.equal(means[0][name], ((each[0][name].double() + each[1][name].double()) / 2).float())
    for how in (("--step", "best"), ("--average", "2"), ()):
        measured = [
            json.loads(minitf("evaluate", run, *how, "--device", "cpu", "--json").stdout)["metrics"]
            for run in (apart, merged)
        ]
        assert measured[0] == measured[1]
    recorded = json.loads((merged / "run.json").read_text())["metrics"]
    assert recorded["val.loss"] == pytest.approx(measured[1]["loss"], abs=1e-6)


def test_every_command_takes_an_adapted_run_and_one_that_began_with_another(begun: Path, tmp_path: Path) -> None:
    """The run that it began with is gone."""
    shutil.copytree(begun, tmp_path / "begun")
    run = tmp_path / "run"
    finetune(*task(tmp_path / "begun", "decoder", LORA.format("false")), "-d", run)
    assert (
        finetune(*task(tmp_path / "begun", "decoder", LORA.format("true")), "--dry-run").count("nothing was saved") == 1
    )
    shutil.rmtree(tmp_path / "begun")
    for command in (
        ("inspect", "model", run),
        ("inspect", "attention", run, "a text", "--step", "all"),
        ("inspect", "attention", run, "a text", "--step", str(STEPS), "--json"),
        ("generate", run, "Which day", "--max-new-tokens", "3", "--step", "last"),
        ("evaluate", run, "--split", "train"),
        ("runs", "show", run),
    ):
        done = minitf(*command)
        assert done.exit_code == 0, (command, done.stderr)


def test_what_learns_as_a_whole_is_known_when_the_run_is_opened(begun: Path, tmp_path: Path) -> None:
    """Targets that name everything: an adapter for none of the heads of a task, loaded or new, nor for new
    cross-attention.
    """
    everything = "adapter={rank: 2, targets: ['*']}"
    first, second = tmp_path / "first", tmp_path / "second"
    finetune(*task(begun, "encoder", everything), "-d", first)
    finetune(*task(begun, "encoder", everything, f"model.init_from={first}"), "-d", second)
    assert (f"head.linear{NARROW}A.0" in checkpoint(first), f"head.linear{NARROW}A.0" in checkpoint(second)) == (
        False,
        False,
    )
    assert [json.loads((run / "config.json").read_text())["whole"] for run in (first, second)] == [
        ["head.linear.weight", "head.linear.bias"]
    ] * 2
    assert all(
        not torch.equal(checkpoint(second)[name], checkpoint(first)[name])
        for name in ("head.linear.weight", "head.linear.bias")
    )
    log = [line.partition(" ")[2] for line in (second / "log.txt").read_text().splitlines()]
    assert "fully trainable beside the adapter: head.linear.weight, head.linear.bias" in log
    assert any(line.startswith("loaded: ") and "stack.layers.1.feed_forward" in line for line in log)
    assert {"new: none", "unused: none"} <= set(log)
    pairs = f"data={{train: {ROOT / 'tests' / 'data' / 'reversed.tsv'}, fields: {{source: source, target: target}}}}"
    third = tmp_path / "third"
    crossed = ("model.kind=encoder_decoder", f"model.init_from={begun / 'encoder'}", pairs, "eval.tokens=200")
    finetune(*SHORT, *OFTEN, *crossed, everything, "-d", third)
    crosses = {name for name in checkpoint(third) if ".cross_attn." in name}
    assert crosses
    assert not any(NARROW in name for name in crosses)
    for run in (first, second, third):
        assert not any(NARROW in name for name in open_trained(run, device="cpu").model.weights())
    config = json.loads((first / "config.json").read_text())
    for whole in (None, 3, [3]):
        (first / "config.json").write_text(json.dumps(config | {"whole": whole}))
        refused(
            minitf("evaluate", first),
            "`whole`, the parameters trained beside the adapter, must be a list of names",
            exit_code=5,
        )
    (first / "config.json").write_text(json.dumps(config | {"whole": []}))
    refused(minitf("evaluate", first), "model.safetensors", exit_code=5)


@pytest.mark.parametrize("merge", ["false", "true"])
def test_a_run_may_begin_with_an_adapted_one(merge: str, begun: Path, adapted: Path, tmp_path: Path) -> None:
    first, second = adapted / merge, tmp_path / "second"
    finetune(*task(begun, "encoder", f"model.init_from={first}", "train.freeze=[stack.*, embedding.*]"), "-d", second)
    plain, after = open_trained(first, device="cpu").model.weights(), load_file(second / "model.safetensors")
    assert read(second).recipe.adapter is None
    assert plain.keys() == after.keys()
    assert [name for name in plain if not torch.equal(plain[name], after[name])] == [
        "head.linear.weight",
        "head.linear.bias",
    ]


def test_what_is_frozen_is_published_as_it_was_to_the_bit(begun: Path, tmp_path: Path) -> None:
    """With weight decay and layer-wise decay; other optimizers are in test_training_freezing.py."""
    run, patterns = tmp_path / "run", "train.freeze=[embedding.*, stack.layers.0.*]"
    decays = ("optimizer.kind=muon", "optimizer.weight_decay=0.5", "optimizer.layer_decay=0.7")
    finetune(*task(begun, "encoder", patterns, *decays), "-d", run)
    before, after = load_file(begun / "encoder" / "model.safetensors"), load_file(run / "model.safetensors")
    frozen = {name for name in before if name.startswith(("embedding.", "stack.layers.0."))}
    assert {name for name in after if name in before and torch.equal(after[name], before[name])} == frozen
    kept = {name.rpartition(".")[0] for name in checkpoint(run, name="optimizer")} - {""}
    assert kept == after.keys() - frozen


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("adapter.rank=2", "model.init_from=null"), "an adapter needs a trained model; give model.init_from=RUN"),
        ((LORA.format("true"), "checkpoint.keep_best=0"), "which must be kept; use checkpoint.keep_best 1"),
        (
            ("optimizer.features_eps=0.1",),
            "optimizer.features_eps=0.1: has no effect without objective.wide, whose weights it is for",
        ),
        (
            ("eval.every_steps=null", "eval.patience=2"),
            "counts evaluations, but there is only one, after the last step",
        ),
        (("adapter.targets=[stack.*.qvk]",), "adapter.targets: no linear layer matches 'stack.*.qvk'; there are"),
        (("train.freeze=[layer.*]",), "train.freeze: no parameter matches 'layer.*'; there are"),
        (("train.freeze=['*']",), "train.freeze: all parameters are frozen, at least one must be trainable"),
        (
            (LORA.format("false"), "train.freeze=['*']"),
            "train.freeze: all parameters are frozen, at least one must be trainable",
        ),
    ],
)
def test_what_cannot_learn_is_refused(overrides: tuple[str, ...], words: str, begun: Path, tmp_path: Path) -> None:
    refused(minitf("finetune", TINY, *task(begun, "encoder", *overrides), "-d", tmp_path / "new"), words, exit_code=3)
    assert not (tmp_path / "new").exists()


# Stopped, killed, continued, extended.

CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "classify-lora-frozen": (
        "encoder",
        (
            *(LORA.format("true"), "train.freeze=[embedding.*, stack.layers.0.*]"),
            *("model.dropout_rate=0.1", "objective.token_dropout_rate=0.1"),
        ),
    ),
    "instruct-lora-muon": ("decoder", (LORA.format("false"), "optimizer.kind=muon", "optimizer.layer_decay=0.8")),
}


def die_at(deed: str) -> None:
    """Let the process die right after a call of one of Run's methods."""
    done = getattr(Run, deed)
    setattr(Run, deed, lambda *given, **named: (done(*given, **named), die()))


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case == "instruct-lora-muon" else case for case in CASES]
)
def test_a_run_that_dies_after_every_step_and_is_extended_ends_with_the_same_bytes(
    case: str, begun: Path, tmp_path: Path
) -> None:
    kind, overrides = CASES[case]
    arguments = task(begun, kind, *overrides)
    command = ("finetune", TINY, *arguments)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finetune(*arguments, "-d", whole)
    for step in range(1, STEPS + 1):
        dies(partial(die_at_record, step), *command, "-d", cut)
    for deed in ("save", "publish"):
        dies(partial(die_at, deed), *command, "-d", cut)
    finetune(*arguments, "-d", cut)
    assert_same(whole, cut)
    assert "already complete" in finetune(*arguments, "-d", cut)
    finetune(*arguments, "-d", whole, "--extend", "3")
    dies(partial(die_at_record, STEPS + 2), *command, "-d", cut, "--extend", "3")
    finetune(*arguments, "-d", cut)
    assert json.loads((cut / "run.json").read_text())["step"] == STEPS + 3
    assert_same(whole, cut)


def test_a_published_model_that_is_lost_is_put_right_as_it_was(begun: Path, adapted: Path, tmp_path: Path) -> None:
    """The merged one is no checkpoint's file."""
    run, arguments = shutil.copytree(adapted / "true", tmp_path / "run"), task(begun, "encoder", LORA.format("true"))
    before = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").unlink()
    assert minitf("evaluate", run).exit_code == 0  # by its best checkpoint
    for damage in (b"", before[:-1] + b"x"):
        (run / "model.safetensors").write_bytes(damage)
        assert minitf("evaluate", run).exit_code == 5
        finetune(*arguments, "-d", run)
        assert (run / "model.safetensors").read_bytes() == before


def test_a_signal_stops_it_and_the_same_command_goes_on_though_the_run_was_moved(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun, tmp_path / "here")
    arguments = task(tmp_path / "here", "decoder", LORA.format("true"))
    finetune(*arguments, "-d", tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        record = Run.record

        def record_and_signal(self: Run, report: dict[str, Any], seconds: float | None = None) -> None:
            record(self, report, seconds)
            if report["step"] == 3:
                signal.raise_signal(signal.SIGTERM)

        patch.setattr(Run, "record", record_and_signal)
        assert "stopped at step 3, saved" in finetune(*arguments, "-d", tmp_path / "cut", exit_code=143)
    (tmp_path / "here").rename(tmp_path / "there")
    finetune(*task(tmp_path / "there", "decoder", LORA.format("true")), "-d", tmp_path / "cut")
    assert_same(tmp_path / "whole", tmp_path / "cut")


def test_several_seeds_begin_with_the_same_run(begun: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    said = finetune(*task(begun, "encoder", LORA.format("false"), "train.seeds=2", "train.steps=2"), "-d", run)
    assert said.count("initialized from encoder: ") == 2
    hashes = {
        json.loads((folder / "run.json").read_text())["hashes"]["init"]
        for folder in (run, run / "seed-1", run / "seed-2")
    }
    assert hashes == {json.loads((begun / "encoder" / "run.json").read_text())["model"]["sha256"]}
    assert minitf("evaluate", run).exit_code == 0
    after = [checkpoint(run / f"seed-{number}", 2) for number in (1, 2)]
    base = [name for name in after[0] if NARROW not in name and not name.startswith("head.")]
    assert base
    assert all(torch.equal(after[0][name], after[1][name]) for name in base)
    assert not torch.equal(after[0]["head.linear.weight"], after[1]["head.linear.weight"])


# Without the run that it began with.


def test_a_run_goes_on_without_the_one_it_began_with(begun: Path, tmp_path: Path) -> None:
    base = Path(shutil.copytree(begun, tmp_path / "begun"))
    arguments = task(base, "encoder", LORA.format("true"))
    whole, cut, bare = (tmp_path / name for name in ("whole", "cut", "bare"))
    finetune(*arguments, "-d", whole)
    dies(partial(die_at_record, 3), "finetune", TINY, *arguments, "-d", cut)
    dies(partial(die_at_record, 1), "finetune", TINY, *arguments, "-d", bare)
    shutil.move(base, tmp_path / "moved")
    assert "already complete" in finetune("-d", whole, recipe=whole)
    assert f"continuing {cut} from step 2" in finetune("-d", cut, recipe=cut)
    assert_same(cut, whole)
    for run in (whole, cut):
        finetune("-d", run, "--extend", "2", recipe=run)
    assert_same(cut, whole)
    gone = (
        f"model.init_from: the run {base / 'encoder'} no longer exists; -d FOLDER continues a run that was initialized"
        " from it"
    )
    assert "already complete" in finetune(recipe=whole)
    refused(minitf("finetune", whole, "train.seed=9"), gone, exit_code=5)
    refused(minitf("finetune", bare, "-d", bare), gone, exit_code=5)
    refused(minitf("finetune", TINY, *arguments, "-d", whole), "`minitf pretrain RUN -d RUN`", exit_code=3)
    shutil.copytree(begun / "encoder", base / "encoder")
    record = json.loads((base / "encoder" / "run.json").read_text())
    record["model"]["sha256"] = "0" * 64
    (base / "encoder" / "run.json").write_text(json.dumps(record))
    refused(minitf("finetune", whole, "-d", whole), "was started with other contents of init", exit_code=5)


def test_a_step_that_diverged_is_done_again_without_the_run_it_began_with(begun: Path, tmp_path: Path) -> None:
    base = Path(shutil.copytree(begun / "encoder", tmp_path / "encoder"))
    run = tmp_path / "run"
    finetune(*task(tmp_path, "encoder", LORA.format("false"), "train.stop_above=0.001"), "-d", run, exit_code=7)
    shutil.rmtree(base)
    done = minitf("inspect", "crash", run, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["result"]["reproduced"] is True


def test_a_merged_model_whose_run_died_before_it_told_of_it_can_be_used(
    begun: Path, adapted: Path, tmp_path: Path
) -> None:
    run, arguments = tmp_path / "run", task(begun, "encoder", LORA.format("true"))

    def die_when_published() -> None:
        done = folder.replace

        def told(disk: Disk, path: Path, content: bytes) -> None:
            done(disk, path, content)
            if path.name == "model.safetensors":
                os._exit(DEAD)

        folder.replace = told

    dies(die_when_published, "finetune", TINY, *arguments, "-d", run)
    record = json.loads((run / "run.json").read_text())
    assert (record["model"], record["publishing"]) == (
        None,
        hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest(),
    )
    assert minitf("evaluate", run).exit_code == 0
    finetune(*arguments, "-d", run)
    assert_same(run, adapted / "true")
    assert json.loads((run / "run.json").read_text())["publishing"] is None
