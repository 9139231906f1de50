"""A run folder that was damaged is refused by name, and put right by the command that made it; a frozen one keeps
loading.
"""

import json
import shutil
from pathlib import Path

import pytest
from commands import DATA, QUIET, TINY, flip, minitf, trained

from mini_tf.data.examples import Labels
from mini_tf.recipe.reading import read
from mini_tf.system.errors import RunFault, UsageFault
from mini_tf.trained.opening import _read_labels, open_trained

FROZEN = DATA / "formats" / "1"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("damage") / "run", "train.steps=2", "model.d_model=8", "train.context=16")


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.safetensors", flip, "is damaged: its sha256 differs from that in run.json"),
        ("config.json", Path.unlink, "file not found"),
        (
            "config.json",
            lambda path: path.write_text('{"minitf_format": 1, "vocabulary_size": 1.5, "context": 16}'),
            "vocabulary_size 1.5",
        ),
        ("tokenizer.json", lambda path: path.write_text("[]"), "is damaged"),
        ("resolved.yaml", lambda path: path.write_text("a: ["), "is damaged"),
    ],
)
def test_a_damaged_run_is_refused_by_name(run: Path, tmp_path: Path, name: str, damage: object, message: str) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    damage(copy / name)  # type: ignore[operator]
    done = minitf("evaluate", copy, "--json")
    assert done.exit_code == 5, done.stderr
    assert message in done.stderr
    assert json.loads(done.stdout)["exit_code"] == 5


def test_a_byte_order_mark_is_no_damage(run: Path, tmp_path: Path) -> None:
    """Some editors write one when a file is saved."""
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    for name in ("run.json", "config.json"):
        (copy / name).write_bytes(b"\xef\xbb\xbf" + (copy / name).read_bytes())
    assert open_trained(copy, device="cpu").step == open_trained(run, device="cpu").step


def test_the_same_command_puts_a_damaged_model_right(run: Path) -> None:
    before = (run / "model.safetensors").read_bytes()
    flip(run / "model.safetensors")
    again = minitf("pretrain", TINY, *QUIET, "train.steps=2", "model.d_model=8", "train.context=16", "-d", run)
    assert again.exit_code == 0
    assert "already complete" in again.stderr
    assert (run / "model.safetensors").read_bytes() == before


def test_a_run_of_format_1_keeps_loading(tmp_path: Path) -> None:
    """Frozen when the format was new, with the loss that was measured then."""
    copy = shutil.copytree(FROZEN, tmp_path / "run")
    done = minitf("evaluate", copy, "--data", DATA / "other.txt", "--json")
    assert done.exit_code == 0, done.stderr
    frozen = json.loads((FROZEN / "measured.json").read_text())
    assert json.loads(done.stdout)["metrics"]["loss"] == pytest.approx(frozen["other.txt"], abs=1e-5)
    assert minitf("runs", "show", copy).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("generate", "{run}", "x", "--device", "zzz"), 2, "--device 'zzz': must be auto, cpu"),
        (("generate", "{run}", "a\udcff"), 2, "a prompt is not UTF-8"),
        (("evaluate", "{run}", "--step", "9" * 5000), 2, "no such checkpoint"),
        (("evaluate", "{run}", "--step", "foo"), 2, "no such checkpoint: 'foo'; use a step number, `last` or `best`"),
        (
            ("pretrain", TINY, "--assert", "val.los<1"),
            2,
            "--assert val.los: not a metric of training; did you mean val.loss?",
        ),
    ],
)
def test_odd_arguments_are_refused_in_a_line(
    run: Path, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    done = minitf(*(argument.replace("{run}", str(run)) for argument in arguments))
    assert done.exit_code == exit_code, done.stderr
    assert message in done.stderr


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({}, "no labels"),
        ({"labels": None}, "not a config.json of this run"),
        ({"labels": Labels(("a",), (1,)).to_json()}, "labels.names must have at least 2 classes"),
    ],
)
def test_a_classifier_without_sound_labels_is_refused(labels: dict[str, object], message: str) -> None:
    recipe = read(TINY, [f"data.train={DATA / 'opinions.tsv'}", "objective=classify"]).recipe
    with pytest.raises(RunFault, match=message):
        _read_labels(Path("config.json"), labels, recipe)


def test_one_step_and_the_mean_of_several_cannot_both_be_asked_for() -> None:
    with pytest.raises(UsageFault, match="--step 2 and --average 3 exclude each other"):
        open_trained(FROZEN, step=2, average=3)
    assert open_trained(FROZEN, step="best", device="cpu").folder == FROZEN


@pytest.mark.parametrize(("device", "precision"), [("cpu", "bf16"), ("cuda", "fp32"), ("cuda:0", "fp32")])
def test_a_run_computes_in_the_precision_it_was_trained_in_on_a_device_of_the_same_kind_alone(
    device: str, precision: str, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(FROZEN, tmp_path / "run"))
    record = json.loads((folder / "run.json").read_text())
    record["auto"] |= {"device": device, "precision": "bf16"}
    (folder / "run.json").write_text(json.dumps(record))
    assert open_trained(folder, device="cpu").setup.precision == precision
