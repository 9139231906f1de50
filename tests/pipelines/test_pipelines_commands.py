"""What the commands open of a model: with their options, which samples, and which labels."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commands import TINY
from test_generation_text_generator import SEPARATOR, TOKENIZER, Parrot, recipe_with

from mini_tf.data.store import Store
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.pipelines import pipeline_of
from mini_tf.pipelines._commands import open_generator, predict_options
from mini_tf.pipelines._prediction import _is_text
from mini_tf.recipe.reading import read
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained, open_trained


@pytest.fixture(scope="module")
def opened(decoder: Path) -> Trained:
    return open_trained(decoder, device="cpu")


def test_options_reach_the_generator_and_a_line_stands_between_samples(opened: Trained) -> None:
    generator: Any = open_generator(opened, {"batch_size": 3, "max_new_tokens": 2, "context": 8})
    assert (generator.batch_size, generator.text_generator.context) == (3, 8)
    assert generator.text_generator.settings.max_new_tokens == 2
    with pytest.raises(UsageFault, match="--batch-size: must be from 1 to 4,096, got 0"):
        open_generator(opened, {"batch_size": 0})
    for samples, lines_between in ((1, [0, 0]), (2, [1, 2])):
        outputs = open_generator(opened, {"num_samples": samples, "max_new_tokens": 1}).outputs(["a", "b"])
        assert [output.shown.count("---") for output in outputs] == lines_between


def test_a_sample_in_training_goes_on_behind_the_end_of_a_document() -> None:
    [letter] = TOKENIZER.encode("b").tolist()
    recipe = recipe_with(temperature=0.0, max_new_tokens=3, prompt="a")
    script = [[letter, SEPARATOR, letter]] * recipe.log.samples
    bundle: Any = SimpleNamespace(recipe=recipe, model=Parrot(script), tokenizer=TOKENIZER)
    pipeline: Any = pipeline_of(bundle)
    assert pipeline.sample(None) == "\n\n".join(["ab\n\nb"] * recipe.log.samples) + "\n"


def test_a_decoder_fills_no_mask_before_which_it_reads_nothing(opened: Trained) -> None:
    running_text = replace(opened, recipe=read(TINY, ["objective.kind=hybrid", "data.split=tail 10%"]).recipe)
    [filled] = open_generator(running_text, {"top_k": 1}).outputs(["a[MASK]"])
    assert len(filled.result["candidates"]) == 1
    with pytest.raises(UsageFault, match="which the model predicts from the token before it"):
        [*open_generator(running_text, {}).outputs(["[MASK] king"])]


def test_the_number_of_classes_that_are_shown_is_at_least_1(classifier: Path, opened: Trained) -> None:
    model = open_trained(classifier, device="cpu")
    assert predict_options(model, top=1).top == 1
    with pytest.raises(UsageFault, match="--top: must be at least 1, got 0"):
        predict_options(model, top=0)
    with pytest.raises(UsageFault, match="--top needs classes or tags"):
        predict_options(opened, top=1)


def test_padding_is_no_text_where_its_id_is_that_of_a_character() -> None:
    ids = np.array([[5, 2, 0, 0]])
    store = Store(None, ids[0], np.zeros(1, np.int64), 2, False, Vocabulary(9, separator=2))
    assert _is_text(store, ids, np.array([[1, 1, 0, 0]])).tolist() == [[True, False, False, False]]
    assert _is_text(store, ids).tolist() == [[True, False, True, True]]
