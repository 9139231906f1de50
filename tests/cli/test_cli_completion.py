"""Shell completion as bash asks for it: the words of the line and the number of the last one, in the environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mini_tf.cli.terminal import completion
from mini_tf.recipe.kinds import listing

ROOT = Path(__file__).parents[2]
CODE = """
import os, sys
from mini_tf.cli.app import main
for line in sys.argv[1:]:
    os.environ.update(COMP_WORDS=line, COMP_CWORD=str(line.count(" ")))
    try: main([])
    except SystemExit: pass
    print("\\n--torch" if "torch" in sys.modules else "")
    print("--end")
"""


def completed(folder: Path, *lines: str) -> list[tuple[list[str], bool]]:
    """What bash is offered for the last word of each line, and whether torch is imported by then."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "_MINITF_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *lines], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    offered = [part.split() for part in done.stdout.split("--end\n")[:-1]]
    return [([word for word in words if word != "--torch"], "--torch" in words) for words in offered]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where there are two runs."""
    for name in ("novel", "notes"):
        (tmp_path / "outputs" / name).mkdir(parents=True)
        (tmp_path / "outputs" / name / "run.json").write_text("{}")
    return tmp_path


def test_recipes_keys_values_and_runs_are_completed_without_torch_once_the_keys_are_known(folder: Path) -> None:
    assert completion._keys()  # collects those of all kinds in the cache
    expected = {
        "minitf pretr": ["pretrain"],
        "minitf pretrain gpt-n": ["gpt-nano"],
        "minitf pretrain optimizer.kin": [f"optimizer.kind={word}" for word in listing("optimizers")],
        "minitf pretrain schedule.kind=cos": ["schedule.kind=cosine"],
        "minitf pretrain quickstart schedule.kind = cos": ["cosine"],  # as bash cuts KEY=VALUE
        "minitf cost bert-nano train.batch_s": ["train.batch_size="],
        "minitf finetune nov": ["novel"],
        "minitf generate no": ["notes", "novel"],
        "minitf runs compare novel la": ["last"],
        "minitf recipe keys model.att": ["model.attention"],
        "minitf recipe init x.yaml --from bert": ["bert-nano"],
        "minitf generate --num-b": ["--num-beams"],
    }
    found = [(sorted(offered), with_torch) for offered, with_torch in completed(folder, *expected)]
    assert dict(zip(expected, found, strict=True)) == {line: (offered, False) for line, offered in expected.items()}


def test_a_cache_that_cannot_be_written_completes_no_keys_and_is_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("MINITF_CACHE", str(folder / "file" / "cache"))
    found = completed(folder, "minitf pretrain optimizer.kin", "minitf generate nov")
    assert [offered for offered, _ in found] == [[], ["novel"]]
