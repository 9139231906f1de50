"""Shell completion as bash asks for it: the words of the line and the number of the last one, in the environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = """
import sys
from mini_tf.cli.app import main
try: main([])
finally: print("torch" in sys.modules, file=sys.stderr)
"""


def completed(line: str, folder: Path) -> tuple[list[str], bool]:
    """What bash is offered for the last word of a line, and whether torch was imported for it."""
    words = line.split(" ")
    asked = {"_MINITF_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **asked}
    done = subprocess.run([sys.executable, "-c", CODE], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr.split()[-1] == "True"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where there are two runs."""
    for name in ("novel", "notes"):
        (tmp_path / "outputs" / name).mkdir(parents=True)
        (tmp_path / "outputs" / name / "run.json").write_text("{}")
    return tmp_path


def test_recipes_keys_values_and_runs_are_completed_without_torch_once_the_keys_are_known(folder: Path) -> None:
    completed("minitf pretrain optimizer.", folder)  # collects the keys of all kinds
    for line, offered in {
        "minitf pretr": ["pretrain"],
        "minitf pretrain gpt-n": ["gpt-nano"],
        "minitf pretrain optimizer.kin": ["optimizer.kind=adamw", "optimizer.kind=muon"],
        "minitf pretrain schedule.kind=cos": ["schedule.kind=cosine"],
        "minitf pretrain quickstart schedule.kind = cos": ["cosine"],  # as bash cuts KEY=VALUE
        "minitf cost bert-nano train.batch_s": ["train.batch_size="],
        "minitf finetune nov": ["novel"],
        "minitf generate no": ["notes", "novel"],
        "minitf runs compare novel la": ["last"],
        "minitf recipe keys model.att": ["model.attention"],
        "minitf recipe init x.yaml --from bert": ["bert-nano"],
        "minitf generate --num-b": ["--num-beams"],
    }.items():
        found, with_torch = completed(line, folder)
        assert (sorted(found), with_torch) == (offered, False), line


def test_a_cache_that_cannot_be_written_completes_no_keys_and_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("MINITF_CACHE", str(folder / "file" / "cache"))
    assert completed("minitf pretrain optimizer.kin", folder)[0] == []
    assert completed("minitf generate nov", folder)[0] == ["novel"]
