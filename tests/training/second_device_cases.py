"""A device with a memory of its own computes what the CPU does, without a GPU: every model, every objective, and the
commands. `test_second_device.py` runs these tests in a process of their own.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import second_device
import tiny_tasks
import torch
from commands import EXACT, TINY, lines, minitf
from record.commands import COMMANDS
from record.making import make
from record.runs import RUNS, needed
from strangers import made
from test_models_contract import every_model
from test_objectives_contract import KINDS, VARIANTS
from torch import Tensor
from toys import with_every_mixer

from mini_tf.nn.model import ModelSettings
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.run import manifest
from mini_tf.testing.tiny.models import random_ids, source_for, tiny_model
from mini_tf.testing.tiny.objectives import gradients_of, tiny_objective

Computed = dict[str, Tensor]
NUMBER = re.compile(r"\d\.\d+(?:e-\d+)?")


DEVICE = second_device.install()


def assert_same(compute: Callable[[torch.device], Computed]) -> None:
    expected, actual = compute(torch.device("cpu")), compute(DEVICE)
    assert all(tensor.device == DEVICE for tensor in actual.values())
    torch.testing.assert_close({name: tensor.cpu() for name, tensor in actual.items()}, expected)


def models() -> Iterator[tuple[str, ModelSettings]]:
    """Of every kind also one with a layer of each mixer."""
    for word, settings in every_model():
        if "-" not in word or word in ("encoder_decoder-copying", "encoder_decoder-diminishing"):
            yield word, settings
    for word in listing("models"):
        yield f"{word}-mixers", with_every_mixer(word, made("attention"))


@pytest.mark.parametrize("settings", [pytest.param(settings, id=word) for word, settings in models()])
def test_a_model_computes_the_same(settings: ModelSettings) -> None:
    def compute(device: torch.device) -> Computed:
        model, ids = tiny_model(settings).to(device), random_ids().to(device)
        source = source_for(model)
        scores = model.logits(model(Tokens(ids), None if source is None else source.to(device)).y)
        scores.logsumexp(-1).sum().backward()
        return {"scores": scores.detach(), **gradients_of(model)}

    assert_same(compute)


PREPARED = ("masked", "denoising", "prefix")
"""Their variants prepare other rows, on the CPU."""


@pytest.mark.parametrize(
    ("kind", "given"), [*KINDS, *(variant for variant in VARIANTS if variant[0] not in PREPARED)], ids=str
)
def test_an_objective_computes_the_same(kind: str, given: dict[str, Any]) -> None:
    def compute(device: torch.device) -> Computed:
        case = tiny_objective(settings_of("objectives", kind)(**given))  # type: ignore[arg-type]
        task, computed = case.task.to(device), dict[str, Tensor]()
        for training, prepare in ((True, case.objective.prepare), (False, case.objective.prepare_evaluation)):
            batch = prepare(case.rows).to(device)
            sums = task.train(training)(batch, None)
            case.loss(sums.parts, batch.counts).backward()
            computed |= {f"{name} in {training}": part.detach() for name, part in sums.parts.items()}
        return computed | gradients_of(task)

    assert_same(compute)


def train(folder: Path) -> None:
    """Two runs of two steps, one of which goes on for a third."""
    classes = tiny_tasks.opinions(folder / "opinions.jsonl")
    encoder = ("bert-nano", *tiny_tasks.SMALL, "train.steps=2", "log.samples=0", *EXACT, "objective.kind=classify")
    decoder = (TINY, "model.n_layers=1", "train.steps=2", "train.batch_size=16", "generate.max_new_tokens=2", *EXACT)
    for line in (
        ("pretrain", *decoder, "-d", folder / "text"),
        ("pretrain", folder / "text", "--extend", "1"),
        ("finetune", *encoder, f"data={{train: '{classes}', split: 20%}}", "-d", folder / "classes"),
    ):
        done = minitf(*line)
        assert done.exit_code == 0, done.stderr


def answers(folder: Path) -> dict[str, tuple[list[str], list[float]]]:
    """What commands say of the runs: words and numbers."""
    commands = {
        "evaluate": ("evaluate", folder / "text"),
        "greedy": ("generate", folder / "text", "The", "A bird", "--greedy", "--max-new-tokens", "5"),
        "sampled": ("generate", folder / "text", "The", "--seed", "3", "--max-new-tokens", "5"),
        "attention": ("inspect", "attention", folder / "text", "The bird", "--json"),
        "predict": ("predict", folder / "classes", "a nice film"),
    }
    said = {name: minitf(*line).stdout for name, line in commands.items()}
    assert all(said.values()), said
    return {name: (NUMBER.sub("#", text).split(), [*map(float, NUMBER.findall(text))]) for name, text in said.items()}


def test_commands_train_and_use_runs_there(tmp_path: Path) -> None:
    folders = tmp_path / "cpu", tmp_path / "second"
    for folder in folders:
        folder.mkdir()
    train(folders[0])
    expected = answers(folders[0])
    with second_device.used_by_commands():
        train(folders[1])
        for name, (words, numbers) in answers(folders[0]).items():
            assert words == expected[name][0]
            assert numbers == pytest.approx(expected[name][1], abs=1e-4)
    losses = [[line["loss"] for line in lines(folder / "text")] for folder in folders]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert manifest.read(folders[1] / "text").auto["device"] == str(DEVICE)


@pytest.mark.slow
def test_every_run_and_command_of_the_record_ends_as_on_a_cpu() -> None:
    """But for the run that is killed, whose first process knows nothing of another device; the refusal of a device,
    which all are; and memories, where torch squeezes the logits of one vector in place, which a device in Python cannot
    follow.
    """
    runs = RUNS.keys() - {"killed"}
    commands = {
        name for name, command in COMMANDS.items() if "killed" not in {*command.needs, *needed(" ".join(command.lines))}
    } - {"no such device", "inspect memory"}

    def codes() -> dict[str, list[int]]:
        record = make(runs, commands, lambda line: None)
        parts = {**record["runs"], **record["commands"]}
        return {name: [said["exit_code"] for said in part["said"]] for name, part in parts.items()}

    expected = codes()
    with second_device.used_by_commands():
        assert codes() == expected
