"""What a run says at its start of what it will do, held to counts of the data and the model."""

from types import SimpleNamespace

import pytest
from commands import EXACT, TINY, tiny_model

from mini_tf.data.tokenized import open_data
from mini_tf.jobs import messages
from mini_tf.jobs.assembling import build
from mini_tf.jobs.parts import Parts
from mini_tf.recipe.reading import read
from mini_tf.training.machine.device import resolve_setup


def parts_of(*changes: str) -> Parts:
    recipe = read(TINY, [*EXACT, *changes]).recipe
    return build(recipe, open_data(recipe.data, recipe.tokenizer, recipe.objective), resolve_setup(recipe.runtime))


def said(parts: Parts) -> list[str]:
    lines: list[str] = []
    messages.report_start(parts, SimpleNamespace(say=lines.append, detail=lines.append, warn=lines.append))  # type: ignore[arg-type]
    return lines


@pytest.mark.parametrize("objective", ["masked", "replaced_token"])
def test_parameters_beside_those_of_the_model_are_said_where_there_are_some(objective: str) -> None:
    parts = parts_of(tiny_model("encoder"), f"objective={objective}")
    n = sum(tensor.numel() for tensor in parts.objective_tensors().values())
    expected = f"objective: {objective}, {n:,} additional parameters, which are not part of the model"
    assert [line for line in said(parts) if "additional parameters" in line] == [expected] * (n > 0)
    assert (n > 0) == (objective == "replaced_token")


def test_checkpoints_by_words_are_of_the_first_step_that_has_read_so_many() -> None:
    parts = parts_of("train.steps=6", "checkpoint.at_words=[100, 200, 1k]")
    each = 8 * 48 * parts.data.train.words / len(parts.data.train)
    assert parts.words_per_step == pytest.approx(each)
    assert 70 < each < 99  # so that 100 are read within the second step, and 200 within the third
    assert [*parts.word_steps.items()] == [(2, 100), (3, 200), (-int(-1000 // each), 1000)]
    lines = said(parts)
    assert f"words: {parts.data.train.words:,} in the training text, about {6 * each:,.0f} read in the run" in lines
    assert "checkpoints by words: 100 after step 2, 200 after step 3" in lines
    assert "not read in the run, so no checkpoint: 1,000 words" in lines


@pytest.mark.parametrize(
    ("changes", "n_train", "n_val", "warned"),
    [
        ((), 10, 11, True),
        ((), 11, 11, False),
        (("data.split=50%",), 10, 11, True),
        (("data.split=60%",), 10, 11, False),
        (("data.val=tiny.txt",), 10, 11, False),
    ],
)
def test_more_validation_than_training_data_is_a_warning_unless_asked_for(
    changes: tuple[str, ...], n_train: int, n_val: int, warned: bool
) -> None:
    recipe = read(TINY, changes).recipe
    data = SimpleNamespace(train=SimpleNamespace(n_tokens=n_train), val=SimpleNamespace(n_tokens=n_val))
    warning = messages._split_warning(SimpleNamespace(recipe=recipe, data=data))  # type: ignore[arg-type]
    assert (warning is not None) == warned
