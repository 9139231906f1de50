"""`minitf finetune` that begins with another run, as real processes and kill -9: the same command again ends with the
same bytes.
"""

from pathlib import Path

import pytest
from commands import EXACT, ROOT, TINY, trained
from test_killed import ENCODING, LEARNING, MODEL, SAVING, Training, assert_same

TASK = (
    *(f"data={{train: {ROOT / 'data' / 'opinions.tsv'}, split: 20%}}", "objective=classify", "model.kind=encoder"),
    *("train.steps=30", "train.batch_size=8", "train.micro_batch_size=4", "checkpoint.every_steps=3"),
    *("eval.every_steps=5", "log.every_steps=1", "adapter={rank: 4, merge: true}"),
    *("train.freeze=[stack.layers.0.*]", "model.dropout_rate=0.2"),
)


class FineTuning(Training):
    """`minitf finetune` in place of `minitf pretrain`."""

    def __init__(self, place: Path, begun: Path) -> None:
        super().__init__(place, (TINY, *TASK, f"model.init_from={begun}"), threads=1)
        self.command[3] = "finetune"


@pytest.mark.slow  # five processes, each of which imports torch; test_finetune.py has the fast form, in forks
def test_killed_at_its_start_on_its_way_and_inside_a_save_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    begun = trained(tmp_path / "begun", *EXACT, MODEL.format("encoder"), "train.steps=2", "eval.tokens=300")
    whole, cut = (FineTuning(tmp_path / name, begun) for name in ("whole", "cut"))
    with whole.start() as beside:
        for moment in (ENCODING, LEARNING, SAVING):
            cut.kill_inside(moment)
        cut.finish()
        _, stderr = beside.communicate(timeout=600)
    assert beside.returncode == 0, stderr.decode()
    assert_same(cut.product(), whole.product())
    assert (cut.folder / "config.json").read_bytes() == (whole.folder / "config.json").read_bytes()
