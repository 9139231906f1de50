"""The acceptance script of the interface, run by bash as it stands, and one case of every exit code that scripts
meet.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import shell
from commands import DATA, QUIET, ROOT, TINY, minitf, tiny_model, trained

from mini_tf.run.disk import Disk
from mini_tf.run.folder import Run

SCRIPT = r"""
set -euo pipefail
minitf recipe check tests/data/tiny.yaml
RUN=$(minitf pretrain tests/data/tiny.yaml train.steps=200 -d "$TMP/out dir" --assert 'val.bits_per_byte<4.5')
minitf evaluate "$RUN" --data tests/data/other.txt --json | python -c 'import json,sys; assert 0 < json.load(sys.stdin)["metrics"]["bits_per_byte"] < 6'
minitf generate "$RUN" "Once" --seed 0 > sample.txt          # text only
minitf inspect-attention "$RUN" "Once upon a time" --json --full > maps.json      # first row of a causal map is 1, 0, 0, ...; heads = layers x heads
minitf pretrain tests/data/tiny.yaml train.steps=200 -d "$TMP/out dir"            # already complete, at once
until minitf pretrain tests/data/long.yaml -d "$TMP" -n big; do [ $? -eq 143 ] || exit 1; done     # a pre-emptible machine
"""  # noqa: E501


def test_the_acceptance_script_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is taken away after the first save of the run `big`, and again after the second."""
    shutil.copytree(ROOT / "tests" / "data", tmp_path / "tests" / "data")
    (tmp_path / "tests" / "data" / "long.yaml").write_text(
        "extends: tiny.yaml\ntrain: {steps: 6}\neval: {every_steps: 2}\n"
    )
    (tmp_path / "tmp").mkdir()
    big, lost, save = tmp_path / "tmp" / "big", tmp_path / "tmp" / "lost", Run.save

    def save_and_lose_the_machine(run: Run, *given: Any, **named: Any) -> None:
        save(run, *given, **named)
        if run.folder == big and (not lost.exists() or lost.stat().st_size < 2):
            lost.open("a").write("x")
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Run, "save", save_and_lose_the_machine)
    monkeypatch.setenv("TMP", str(tmp_path / "tmp"))
    python = f"""python() {{ '{sys.executable}' "$@"; }}\n"""
    script = shell.run(python + SCRIPT.replace("train.steps=200", "train.steps=60"), tmp_path)
    assert script.returncode == 0, script.stderr
    assert script.stdout.splitlines()[-4:] == [f"{tmp_path / 'tmp' / 'out dir'}", *[f"{big}"] * 3]
    assert "already complete" in script.stderr
    assert script.stderr.count(f"continuing {big} from step") == 2
    assert (tmp_path / "sample.txt").read_text().strip()
    assert not list(tmp_path.glob("outputs"))
    [sample] = json.loads((tmp_path / "maps.json").read_text())["result"]["samples"]
    assert {(head["layer"], head["head"]) for head in sample["heads"]} == {
        (layer, head) for layer in range(2) for head in range(2)
    }
    for head in sample["heads"]:
        assert head["matrix"][0] == [1.0] + [0.0] * (len(sample["tokens"]) - 1)


def test_every_refusal_has_its_exit_code_one_message_and_the_same_as_json(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "train.steps=1")
    cases = [
        (("pretrain", "--no-such-option"), 2),
        (("pretrain", "no-such-recipe"), 2),
        (("pretrain", TINY, "optimizer.lr=fast"), 3),
        (("pretrain", TINY, "data.train=./no-such.txt"), 4),
        (
            (
                "pretrain",
                TINY,
                f"data.train={{source: {DATA / 'tiny.txt'}, target: {DATA / 'other.txt'}}}",
                tiny_model("encoder_decoder"),
            ),
            4,
        ),
        (("pretrain", TINY, tiny_model("encoder_decoder")), 3),
        (("generate", str(tmp_path / "no-such-run"), "Once"), 5),
        (("pretrain", TINY, *QUIET, "train.steps=1", "-d", str(run), "--assert", "val.loss<0"), 8),
        (("evaluate", str(run), "--device", "cuda:77"), 9),
        (("pretrain", TINY, "data.train=hf:some/text"), 9),
    ]
    for arguments, exit_code in cases:
        done = minitf(*arguments)
        assert done.exit_code == exit_code, (arguments, done)
        assert done.stdout in ("", f"{run}\n")
        assert done.stderr.strip()
        assert "Traceback" not in done.stderr
        enveloped = minitf(*arguments, "--json")
        envelope = json.loads(enveloped.stdout)
        assert enveloped.exit_code == envelope["exit_code"] == exit_code
        assert not envelope["ok"]
        assert envelope["error"].keys() >= {"message", "hint", "where"}


def test_a_diverged_run_is_7_and_says_where(tmp_path: Path) -> None:
    explosive = (
        "model={kind: decoder, d_model: 32, n_layers: 8, n_heads: 2, norm_place: none, activation: relu2, init_std: 10}"
    )
    done = minitf("pretrain", TINY, *QUIET, explosive, "-d", tmp_path / "run")
    assert done.exit_code == 7, done.stderr
    assert "step 1: the loss 'next_token' is nan, but must be finite (micro-batch 1 of 1, documents " in done.stderr
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["state"], record["exit_code"]) == ("diverged", 7)


def test_a_run_with_a_disk_that_fills_is_6_and_the_same_command_continues(tmp_path: Path) -> None:
    recipe = ("train.steps=4", "eval.every_steps=1")
    whole = trained(tmp_path / "whole", *recipe)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Disk, "free", lambda self, folder: 0 if (folder / "step-00000002").exists() else 1 << 40)
        full = minitf("pretrain", TINY, *QUIET, *recipe, "-d", tmp_path / "run")
    assert full.exit_code == 6
    assert "the last checkpoint is step 2" in full.stderr
    trained(tmp_path / "run", *recipe)
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes()
