"""What a recipe may ask of `minitf pretrain`: every mixer and position, ways to pack, horizons, streams, texts of every
size.
"""

import json
import shutil
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from commands import DATA, QUIET, TINY, evaluated, lines, minitf, record, tiny_model, trained
from safetensors.numpy import load_file
from test_models import pairs_of

import mini_tf.jobs.session
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.training.loop import train

N_ROWS = 329
"""Rows of 48 tokens an epoch of tiny.txt has; one is given up so that later epochs may begin elsewhere."""


POSITIONS = ("learned", "rotary", "t5")
"""Of softmax attention; others are tried by test_models_contract.py."""
CASES = [("decoder", *pair) for pair in pairs_of("decoder") if pair[0] != "toy"]
CASES = [case for case in CASES if case[1] != "softmax" or case[2] in POSITIONS]
CASES += [("encoder", *pair) for pair in pairs_of("encoder") if pair not in pairs_of("decoder") or pair[1] == "t5"]


@pytest.mark.parametrize(("model", "mixer", "positions"), CASES)
def test_every_mixer_and_some_positions_train(model: str, mixer: str, positions: str, tmp_path: Path) -> None:
    ask = (tiny_model(model), f"model.attention.kind={mixer}", f"model.positions.kind={positions}", "data.pack=docs")
    few = ("train.steps=2", "train.context=16", "train.batch_size=2", "data.split=2%", "log.every_steps=1")
    run = trained(tmp_path / "run", *few, *ask)
    assert evaluated(run)["loss"] == pytest.approx(record(run)["metrics"]["val.loss"], abs=1e-6)
    assert all(line["grad_norm"] > 0 for line in lines(run))


def test_what_does_not_attach_is_refused(tmp_path: Path) -> None:
    refused = minitf(
        "pretrain", TINY, "model.attention.kind=simple", "model.positions.kind=alibi", "-d", tmp_path / "run"
    )
    assert refused.exit_code == 3
    assert "alibi is not supported by simple attention" in refused.stderr


@pytest.mark.parametrize(
    ("pack", "objective"), [("docs", "next_token"), ("none", "masked"), ("concat", "next_token"), ("docs", "masked")]
)
def test_a_run_records_what_evaluate_measures_however_the_text_is_packed(
    pack: str, objective: str, tmp_path: Path
) -> None:
    model = {"next_token": "decoder", "masked": "encoder"}[objective]
    run = trained(
        tmp_path / "run",
        *("train.steps=2", "train.batch_size=4", "data.split=5%"),
        *(f"data.pack={pack}", tiny_model(model), f"objective.kind={objective}"),
    )
    recorded, again = record(run)["metrics"], evaluated(run)
    assert again["loss"] == pytest.approx(recorded["val.loss"], abs=1e-6)
    assert again["accuracy"] == recorded["val.accuracy"]
    assert ("val.bits_per_byte" in recorded) is ("bits_per_byte" in again) is (objective == "next_token")
    assert lines(run)[-1]["val.loss"] == recorded["val.loss"]


@pytest.mark.parametrize(
    ("horizon", "steps"),
    [("epochs=0.5", -(-N_ROWS // 16)), ("tokens=2k", -(-2000 // (8 * 48)))],
)
def test_a_horizon_is_so_many_steps(horizon: str, steps: int, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", f"train.{horizon}", "eval.every_steps=1000")
    assert record(run)["step"] == steps == lines(run)[-1]["step"]
    assert lines(run)[-1]["epoch"] == pytest.approx(steps * 8 / N_ROWS, abs=1e-4)


def test_training_by_the_clock_ends_when_the_time_is_up_and_evaluates_and_saves_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is looked at twice a step, and each time an eighth of a second is over."""
    looks = count()
    monkeypatch.setattr(mini_tf.jobs.session, "train", partial(train, clock=lambda: next(looks) / 8))
    run = trained(tmp_path / "run", "train.time=1s")
    assert record(run)["step"] == lines(run)[-1]["step"] == 4
    assert [json.loads(line)["seconds"] for line in (run / "timing.jsonl").read_text().splitlines()][-1] == 1.0
    assert lines(run)[-1]["lr"] < lines(run)[0]["lr"]
    assert "val.loss" in lines(run)[-1]
    assert "already complete" in minitf("pretrain", TINY, *QUIET, "train.time=1s", "-d", run).stderr


def test_patience_ends_a_run_that_gets_no_better_and_the_best_model_is_kept(tmp_path: Path) -> None:
    worse = ("train.steps=200", "optimizer.lr=0.3", "schedule.kind=constant", "eval.every_steps=2", "eval.patience=3")
    run = trained(tmp_path / "run", *worse)
    losses = [line["val.loss"] for line in lines(run) if "val.loss" in line]
    made, best = record(run), min(losses)
    assert made["step"] < 200
    assert "early stopping: no lower validation loss in 3 evaluations (eval.patience)" in (run / "log.txt").read_text()
    assert losses[-4] == best < min(losses[-3:])
    assert made["model"]["step"] == made["best"]["step"] == made["step"] - 6
    assert made["metrics"]["val.loss"] == pytest.approx(best, abs=1e-9)
    assert evaluated(run, "--step", "last")["loss"] > best
    assert "already complete" in minitf("pretrain", run, "-d", run).stderr


def test_a_part_of_the_held_out_text_is_enough_on_the_way_but_not_at_the_end(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "train.steps=4", "eval.every_steps=2", "eval.tokens=100")
    assert evaluated(run)["loss"] == pytest.approx(record(run)["metrics"]["val.loss"], abs=1e-6)
    assert lines(run)[-1]["val.loss"] != record(run)["metrics"]["val.loss"]


@pytest.mark.parametrize(("kind", "pack"), [("decoder", "docs"), ("encoder", "none"), ("decoder", "concat")])
def test_a_kilobyte_of_text_trains_with_a_warning(kind: str, pack: str, tmp_path: Path) -> None:
    text = tmp_path / "small.txt"
    text.write_text((DATA / "tiny.txt").read_text()[:1000])
    ask = (f"data.train={text}", tiny_model(kind), f"data.pack={pack}")
    done = minitf("pretrain", TINY, *QUIET, "train.steps=3", *ask, "-d", tmp_path / "r")
    assert done.exit_code == 0, done.stderr
    assert "fewer than 10 different documents: the last 10% of the characters are the validation data" in done.stderr
    assert record(tmp_path / "r")["metrics"]["val.loss"] > 0


def test_three_lines_are_a_text(tmp_path: Path) -> None:
    text = tmp_path / "a=b c.txt"
    text.write_text("A dog sat.\nA cat sat.\nA dog ran.\n")
    run = trained(tmp_path / "run", "train.steps=2", f"data.train={text}")
    assert "warning: the training data fill 1 row, fewer than the 8 of a batch" in (run / "log.txt").read_text()


def test_a_held_out_text_may_be_given_and_the_tail_of_the_raw_text_be_held_out(tmp_path: Path) -> None:
    given = trained(tmp_path / "given", "train.steps=2", f"data.val={DATA / 'other.txt'}")
    assert evaluated(given)["targets"] == evaluated(given, "--data", str(DATA / "other.txt"))["targets"]
    tail = trained(tmp_path / "tail", "train.steps=2", "data.split=tail 10%", "tokenizer.kind=char")
    text = (DATA / "tiny.txt").read_text()
    assert evaluated(tail)["targets"] == len(text) - int(len(text) * 0.9) - 1
    assert "</s>" not in "".join(minitf("generate", tail, "Once", "--temperature", "5").stdout)


def test_a_stream_carries_its_state_from_step_to_step(tmp_path: Path) -> None:
    ask = ("train.steps=6", "model.attention={kind: window, window: 16}", "log.every_steps=1", "train.stream=true")
    run = trained(tmp_path / "run", *ask, "train.micro_batch_size=4")
    whole = trained(tmp_path / "whole", *ask)
    assert [line["loss"] for line in lines(run)] == pytest.approx([line["loss"] for line in lines(whole)], abs=1e-5)
    state = load_file(run / "checkpoints" / "step-00000006" / "state.safetensors")
    assert all(name.startswith(("0.", "1.")) for name in state)
    assert max(tensor.shape[2] for name, tensor in state.items() if name.endswith(".k")) == 16
    for wrong, message in (
        ("model.attention.kind=softmax", "attention softmax cannot carry its state over to the next step"),
        ("data.pack=docs", "a stream continues across documents; use data.pack concat, not docs"),
    ):
        refused = minitf("pretrain", TINY, *ask, wrong, "-d", tmp_path / "refused")
        assert refused.exit_code == 3
        assert message in refused.stderr


def test_a_stream_needs_a_whole_row_of_text(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("A dog sat.")
    ask = (f"data.train={tmp_path / 'short.txt'}", "train.stream=true", "model.attention={kind: window, window: 16}")
    refused = minitf("pretrain", TINY, *QUIET, *ask, "-d", tmp_path / "run")
    assert refused.exit_code == 4
    assert "data.train: train.stream needs whole rows of 48 tokens, there are 11; train.stream=false" in refused.stderr
    assert not (tmp_path / "run").exists()


def test_a_text_may_come_from_stdin_and_be_judged_by_stdin(tmp_path: Path) -> None:
    tales, others = ((DATA / name).read_text() for name in ("tiny.txt", "other.txt"))
    command = ("pretrain", TINY, *QUIET, "train.steps=2", "data.train=-", "-d", tmp_path / "run")
    assert minitf(*command, stdin=tales).exit_code == 0
    assert "already complete" in minitf(*command, stdin=tales).stderr
    assert minitf(*command, stdin=others).exit_code == 5
    judged = json.loads(minitf("evaluate", tmp_path / "run", "--data", "-", "--json", stdin=others).stdout)["metrics"]
    assert judged == evaluated(tmp_path / "run", "--data", str(DATA / "other.txt"))


def test_a_tokenizer_may_be_another_runs_or_a_file_even_one_that_lacks_special_tokens(tmp_path: Path) -> None:
    import tokenizers

    first = trained(tmp_path / "first", "train.steps=2", "tokenizer.kind=bpe", "tokenizer.vocab_size=300")
    second = trained(tmp_path / "second", "train.steps=2", f"tokenizer.path={first}")
    assert Tokenizer.load(second).hash == Tokenizer.load(first).hash
    letters = sorted(set((DATA / "tiny.txt").read_text()))
    bare = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    bare.save(str(tmp_path / "bare.json"))
    run, path = tmp_path / "run", f"tokenizer.path={tmp_path / 'bare.json'}"
    done = minitf("pretrain", TINY, *QUIET, "train.steps=2", tiny_model("encoder"), path, "-d", run)
    assert Tokenizer.load(run).vocabulary.size == len(letters) + 2
    assert "the tokenizer has no mask token; [MASK] was added" in done.stderr
    assert evaluated(run)["loss"] == pytest.approx(record(run)["metrics"]["val.loss"], abs=1e-6)


def test_a_run_whose_text_has_changed_is_neither_continued_nor_judged_by_it(tmp_path: Path) -> None:
    text = shutil.copy(DATA / "tiny.txt", tmp_path / "text.txt")
    run = trained(tmp_path / "run", "train.steps=2", f"data.train={text}")
    moved = shutil.move(text, tmp_path / "moved.txt")
    assert minitf("evaluate", run).exit_code == 4
    again = minitf("pretrain", TINY, *QUIET, "train.steps=2", f"data.train={moved}", "-d", run)
    assert "already complete" in again.stderr
    Path(text).write_text("Something else. " * 100)
    refused = minitf("evaluate", run)
    assert refused.exit_code == 5
    assert "have changed since training; --data FILE evaluates on other data" in refused.stderr
    assert minitf("evaluate", run, "--data", moved).exit_code == 0
