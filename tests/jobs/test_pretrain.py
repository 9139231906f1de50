"""`minitf pretrain` from end to end: the folder that it leaves, how it is found again, stopped, continued and
judged.
"""

import hashlib
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import DATA, EXACT, QUIET, TINY, Done, content, minitf, tiny_model, trained
from safetensors.numpy import load_file

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe import reading
from mini_tf.run import folder as run_folder

SHORT = ("train.steps=8", "eval.every_steps=2")
PAIRS = (
    f"data={{train: {DATA / 'reversed.tsv'}, fields: {{source: source, target: target}}, split: 5%}}",
    tiny_model("encoder_decoder").replace("}", ", dropout_rate: 0.2}"),
    *("eval.translations=4", "generate.max_new_tokens=4"),
)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """A finished run, in a folder with a blank in its name; to be read only."""
    folder = tmp_path_factory.mktemp("runs") / "out dir"
    return minitf("pretrain", TINY, *EXACT, *SHORT, "-d", folder), folder


@pytest.fixture
def run(done: tuple[Done, Path], tmp_path: Path) -> Path:
    """A copy of the finished run, to be changed."""
    return Path(shutil.copytree(done[1], tmp_path / "run"))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_stdout_is_one_line_the_folder(done: tuple[Done, Path]) -> None:
    assert done[0].exit_code == 0
    assert done[0].stdout == f"{done[1]}\n"
    assert "\r" not in done[0].stderr


def test_a_run_leaves_the_folder_that_the_interface_describes(done: tuple[Done, Path]) -> None:
    said, folder = done
    assert {path.name for path in folder.iterdir()} == {
        *("recipe.yaml", "resolved.yaml", "run.json", "metrics.jsonl", "timing.jsonl", "loss.svg"),
        *("tokenizer.json", "config.json", "model.safetensors", "checkpoints", "log.txt", "samples"),
    }
    assert (folder / "recipe.yaml").read_bytes() == Path(TINY).read_bytes()
    assert reading.read(folder).recipe == reading.read(TINY, [*EXACT, *SHORT]).recipe
    assert (folder / "loss.svg").read_bytes().startswith(b"<svg ")
    assert Tokenizer.load(folder).decode(Tokenizer.load(folder).encode("so")) == "so"
    config = json.loads((folder / "config.json").read_text())
    assert (config["vocabulary_size"], config["context"]) == (260, 48)
    assert all(line in (folder / "log.txt").read_text() for line in said.stderr.splitlines())
    samples = sorted(path.name for path in (folder / "samples").iterdir())
    assert samples == [f"step-{step:08d}.txt" for step in (2, 4, 6, 8)]


def test_run_json_tells_how_the_run_stands_and_what_made_it(done: tuple[Done, Path]) -> None:
    record = json.loads((done[1] / "run.json").read_text())
    last = lines(done[1] / "metrics.jsonl")[-1]
    expected = {"format": 1, "state": "done", "exit_code": 0, "error": None, "step": 8}
    assert expected.items() <= record.items()
    assert record["metrics"]["val.loss"] == record["best"]["loss"] == last["val.loss"]
    arithmetic = {"device": "cpu", "precision": "fp32", "compile": False}
    assert record["auto"] == {**arithmetic, "threads": 1, "micro_batch_size": 8}
    assert record["command"][1:3] == ["pretrain", TINY]
    assert {"python", "minitf", "torch"} <= record["versions"].keys()
    assert {"data", "tokenizer"} == record["hashes"].keys()


def test_metrics_have_no_clock_and_timing_has_nothing_else(done: tuple[Done, Path]) -> None:
    metrics, timing = lines(done[1] / "metrics.jsonl"), lines(done[1] / "timing.jsonl")
    evaluated = [line for line in metrics if "val.loss" in line]
    learnt = {"step", "tokens", "epoch", "loss", "lr", "grad_norm"}
    judged = {"train.loss", "val.loss", "val.perplexity", "val.bits_per_byte", "val.accuracy"}
    assert [line["step"] for line in metrics] == [line["step"] for line in timing] == list(range(1, 9))
    assert [line["step"] for line in evaluated] == [2, 4, 6, 8]
    assert all(line.keys() == learnt | (judged if line in evaluated else set()) for line in metrics)
    assert all(line.keys() == {"step", "seconds"} for line in timing)
    assert metrics[-1]["tokens"] == 8 * 8 * 48
    assert metrics[-1]["val.bits_per_byte"] < evaluated[0]["val.bits_per_byte"] < 8.1


def test_checkpoints_are_whole_by_their_manifests_and_hold_no_pickle(done: tuple[Done, Path]) -> None:
    checkpoints = sorted((done[1] / "checkpoints").iterdir())
    assert [path.name for path in checkpoints] == ["step-00000006", "step-00000008"]
    for checkpoint in checkpoints:
        files = json.loads((checkpoint / "MANIFEST.json").read_text())["files"]
        assert files.keys() | {"MANIFEST.json"} == {path.name for path in checkpoint.iterdir()}
        assert all(
            hashlib.sha256((checkpoint / name).read_bytes()).hexdigest() == entry["sha256"]
            for name, entry in files.items()
        )
    model = load_file(done[1] / "model.safetensors")
    assert model["embedding.tokens.weight"].shape == (260, 32)
    assert model.keys() == load_file(checkpoints[-1] / "model.safetensors").keys()
    assert sum(tensor.size for tensor in model.values()) == 33_056


def test_the_same_command_again_is_already_complete_and_writes_nothing(run: Path) -> None:
    before = content(run)
    again = minitf("pretrain", TINY, *QUIET, *SHORT, "-d", run)
    assert (again.exit_code, again.stdout) == (0, f"{run}\n")
    assert (
        again.stderr == f"already complete: {run} (step 8); --extend N trains N more steps, --fresh starts a new run\n"
    )
    assert content(run) == before


def test_the_resolved_recipe_reproduces_the_run(done: tuple[Done, Path], tmp_path: Path) -> None:
    trained(tmp_path / "again", recipe=done[1] / "resolved.yaml")
    for name in ("metrics.jsonl", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "again" / name).read_bytes() == (done[1] / name).read_bytes()


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int, number: signal.Signals) -> None:
    """Let the signal arrive right after the checkpoint of a step was saved."""
    save = run_folder.Run.save

    def save_and_signal(self: run_folder.Run, at: int, *given: Any) -> None:
        save(self, at, *given)
        if at == step:
            signal.raise_signal(number)

    monkeypatch.setattr(run_folder.Run, "save", save_and_signal)


@pytest.mark.parametrize(
    ("number", "recipe"),
    [
        (signal.SIGINT, ("train.stream=true", "model.attention={kind: window, window: 16}", "optimizer.clip=0")),
        (
            signal.SIGHUP,
            (*PAIRS, "tokenizer={kind: bpe, vocab_size: 300, source: {kind: char}}", "train.batch_tokens=300"),
        ),
    ],
)
def test_an_interrupted_run_continues_to_the_same_bytes(
    number: signal.Signals, recipe: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other recipes die in test_killed.py, and by other signals in test_faults_process.py."""
    recipe = (*recipe, "train.steps=8", "checkpoint.every_steps=5", "eval.every_steps=3", "log.every_steps=1")
    whole = trained(tmp_path / "whole", *recipe)
    stop_after(monkeypatch, 5, number)
    stopped = minitf("pretrain", TINY, *QUIET, *recipe, "-d", tmp_path / "cut")
    assert stopped.exit_code == 128 + number
    assert "stopped at step 5, saved; run the same command to continue" in stopped.stderr
    assert json.loads((tmp_path / "cut" / "run.json").read_text())["state"] == "stopped"
    trained(tmp_path / "cut", *recipe)
    assert f"continuing {tmp_path / 'cut'} from step 5" in (tmp_path / "cut" / "log.txt").read_text()
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (whole / name).read_bytes()


def test_a_run_is_named_after_its_recipe_and_what_decides_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = [
        Path(minitf("pretrain", TINY, *QUIET, "train.steps=1", *more).stdout.strip())
        for more in ((), ("log.every_steps=3",))
    ]
    other = Path(minitf("pretrain", TINY, *QUIET, "train.steps=1", "train.seed=1").stdout.strip())
    assert named[0] == named[1] != other
    assert named[0].parent == tmp_path / "outputs"
    assert named[0].name.startswith("tiny-")
    assert len(named[0].name) == len("tiny-") + 6
    assert (
        minitf("pretrain", TINY, *QUIET, "train.steps=1", "-n", "mine").stdout == f"{tmp_path / 'outputs' / 'mine'}\n"
    )
    for spelled in ("--out-dir", "--out_dir", "--output-dir", "--output_dir"):
        assert (
            minitf("pretrain", TINY, *QUIET, "train.steps=1", spelled, "a b", "-n", "mine").stdout
            == f"{tmp_path / 'a b' / 'mine'}\n"
        )
    assert minitf("evaluate", "mine").exit_code == 0


def test_fresh_starts_beside_and_is_then_what_the_command_means(run: Path) -> None:
    command = ("pretrain", TINY, *QUIET, *SHORT, "-d", run)
    before = content(run)
    assert minitf(*command, "--fresh").stdout == minitf(*command).stdout == f"{run}.2\n"
    assert content(run) == before
    assert (run.with_name("run.2") / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()


def test_a_finished_run_can_be_extended(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("pretrain", TINY, *QUIET, *SHORT, "-d", run)
    whole = Path(shutil.copytree(run, run.with_name("whole")))
    before = (run / "metrics.jsonl").read_bytes()
    assert minitf("pretrain", TINY, *QUIET, *SHORT, "-d", whole, "--extend", "4").exit_code == 0
    stop_after(monkeypatch, 10, signal.SIGTERM)
    assert minitf(*command, "--extend", "4").exit_code == 143
    assert minitf(*command).exit_code == 0
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert (run / "metrics.jsonl").read_bytes().startswith(before)
    record = json.loads((run / "run.json").read_text())
    assert (record["state"], record["step"], record["extensions"]) == ("done", 12, [[8, 4]])
    assert "already complete" in minitf(*command).stderr


@pytest.mark.parametrize(
    "horizon", [("train.time=0.3s",), ("train.steps=60", "eval.every_steps=2", "eval.patience=2", "optimizer.lr=0.3")]
)
def test_a_run_that_the_clock_or_patience_ended_can_be_extended_too(horizon: tuple[str, ...], tmp_path: Path) -> None:
    run = trained(tmp_path / "run", *horizon)
    ended = json.loads((run / "run.json").read_text())["step"]
    assert minitf("pretrain", TINY, *QUIET, *horizon, "-d", run, "--extend", "3").exit_code == 0
    assert json.loads((run / "run.json").read_text())["step"] == ended + 3 == lines(run / "metrics.jsonl")[-1]["step"]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (
            (*SHORT, "optimizer.lr=1e-3", "-d", "{run}"),
            5,
            "was started with another recipe: optimizer.lr: 0.01 -> 0.001; choose another name",
        ),
        ((*SHORT, "data.train={other}", "-d", "{run}"), 5, "was started with other contents of data"),
        ((*SHORT, "-d", "{data}"), 5, "is not empty and not a minitf run folder"),
        ((*SHORT, "-d", "{new}", "--extend", "5"), 5, "is not finished; without --extend"),
        (("model.n_heads=3", "-d", "{new}"), 3, "model.n_heads=3: 3 does not divide d_model 32; use 1, 2, 4"),
        (("data.train=/no/such", "-d", "{new}"), 4, "/no/such"),
        (("data.val={empty}", "-d", "{new}"), 4, "data.val"),
        (
            ("--device", "cuda:99", "-d", "{new}"),
            9,
            "runtime.device: 'cuda:99' is not available on this machine; available: cpu",
        ),
    ],
)
def test_a_refused_start_changes_nothing(
    arguments: tuple[str, ...], exit_code: int, message: str, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").touch()
    positions = {"run": run, "new": tmp_path / "new", "other": DATA / "other.txt", "data": tmp_path}
    positions["empty"] = tmp_path / "empty.txt"
    before = content(tmp_path)
    refused = minitf("pretrain", TINY, *QUIET, *(argument.format(**positions) for argument in arguments))
    assert (refused.exit_code, refused.stdout) == (exit_code, "")
    assert message in refused.stderr.splitlines()[-1]
    assert content(tmp_path) == before
    assert not (tmp_path / "new").exists()


def test_json_is_one_envelope_with_the_metrics_or_the_fault(run: Path, tmp_path: Path) -> None:
    command = ("pretrain", TINY, *QUIET, *SHORT, "--json", "-d")
    fresh, again = minitf(*command, tmp_path / "new"), minitf(*command, run)
    for done, folder in ((fresh, tmp_path / "new"), (again, run)):
        envelope = json.loads(done.stdout)
        assert done.stdout.count("\n") == 1
        assert envelope.keys() == {"ok", "command", "run", "metrics", "result"}
        assert (envelope["ok"], envelope["command"], envelope["run"]) == (True, "pretrain", str(folder))
        assert {"val.loss", "val.perplexity", "val.accuracy", "val.bits_per_byte", "train.loss"} <= envelope[
            "metrics"
        ].keys()
    refused = minitf("pretrain", TINY, "optimizer.learning_rate=1", "--json")
    envelope = json.loads(refused.stdout)
    assert refused.exit_code == envelope["exit_code"] == 3
    assert not envelope["ok"]
    assert "did you mean" in envelope["error"]["message"]


@pytest.mark.parametrize("finished", [True, False])
def test_gates_judge_a_run_that_ends_now_and_one_that_ended_before(finished: bool, run: Path, tmp_path: Path) -> None:
    command = ("pretrain", TINY, *QUIET, *SHORT, "-d", run if finished else tmp_path / "new")
    missed = minitf(
        *command, "--assert", "val.bits_per_byte<0.5", "--assert", "val.loss < 9", "--assert", "val.perplexity<1"
    )
    assert missed.exit_code == 8
    assert missed.stdout.count("\n") == 1
    assert "val.bits_per_byte is" in missed.stderr
    assert "val.perplexity is" in missed.stderr
    assert "val.loss is" not in missed.stderr
    assert minitf(*command, "--assert", "val.bits_per_byte<8", "--assert", "val.accuracy>=0").exit_code == 0
    assert minitf(*command, "--assert", "val.loss<low").exit_code == 2
    assert minitf(*command, "--expect").exit_code == 2


def test_dry_run_and_print_config_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dry = minitf("pretrain", TINY, *SHORT, "--dry-run")
    assert (dry.exit_code, dry.stdout) == (0, "")
    assert "33,056 parameters" in dry.stderr
    assert json.loads(minitf("pretrain", TINY, "--dry-run", "--json").stdout)["ok"]
    printed = minitf("pretrain", TINY, *SHORT, "optimizer.lr=1e-3", "--print-config")
    assert printed.exit_code == 0
    assert yaml.safe_load(printed.stdout)["optimizer"]["lr"] == 1e-3
    Path("r.yaml").write_text(printed.stdout)
    assert reading.read("r.yaml").recipe == reading.read(TINY, [*SHORT, "optimizer.lr=1e-3"]).recipe
    assert [path.name for path in tmp_path.iterdir()] == ["r.yaml"]


def test_evaluate_measures_what_the_run_recorded_and_other_texts_too(done: tuple[Done, Path]) -> None:
    recorded = json.loads((done[1] / "run.json").read_text())["metrics"]
    again = json.loads(minitf("evaluate", done[1], "--json").stdout)["metrics"]
    assert again["loss"] == pytest.approx(recorded["val.loss"], abs=1e-6)
    assert again["bits_per_byte"] == pytest.approx(recorded["val.bits_per_byte"], abs=1e-6)
    assert again["split"] == "val"
    other = json.loads(minitf("evaluate", done[1], "--data", DATA / "other.txt", "--json").stdout)["metrics"]
    documents = (DATA / "other.txt").read_text().strip().split("\n\n")
    assert other["targets"] == sum(len(document.encode()) + 1 for document in documents)
    assert 0 < other["bits_per_byte"] < 8
    train = json.loads(minitf("evaluate", done[1], "--split", "train", "--json").stdout)["metrics"]
    assert train["targets"] > 8 * again["targets"]
    earlier = json.loads(minitf("evaluate", done[1], "--step", "6", "--json").stdout)["metrics"]
    [then] = [line["val.loss"] for line in lines(done[1] / "metrics.jsonl") if line["step"] == 6]
    assert earlier["loss"] == pytest.approx(then, abs=1e-6)
    assert minitf("evaluate", done[1], "--assert", "loss<0.1").exit_code == 8
    assert minitf("evaluate", done[1], "--step", "3").exit_code == 5
    assert minitf("evaluate", done[1], "--data", "/no/such").exit_code == 4
    assert minitf("evaluate", "/no/such").exit_code == 5
