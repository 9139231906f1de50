"""What tasks say of new texts: each text by itself, as the model would answer it alone, and as evaluation counts it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_tasks
import torch
from commands import minitf, refused, trained

from mini_tf.data.examples import Example
from mini_tf.data.packing import ExampleRows
from mini_tf.nn.tokens import Tokens
from mini_tf.pipelines import Prediction, Predictor, pipeline_of
from mini_tf.pipelines._decision_rule import ClassAccumulator
from mini_tf.pipelines._prediction import HeadPredictor, PredictionPipeline
from mini_tf.run.manifest import Decision
from mini_tf.scores.entities import entity_scores
from mini_tf.system.errors import DataFault
from mini_tf.trained.opening import Trained, open_trained

TEXTS = [
    "a dull soup",
    "the nice room was a nice room and nicer than all the other rooms that there were in the town",
    "green",
    "nice film",
]


@pytest.fixture(scope="module")
def classifier(classifier: Path) -> Trained:
    return open_trained(classifier, device="cpu")


@pytest.fixture(scope="module")
def tagger(tagger: Path) -> Trained:
    return open_trained(tagger, device="cpu")


@pytest.fixture(scope="module")
def regressor(regressor: Path) -> Trained:
    return open_trained(regressor, device="cpu")


def predictor_of(model: Trained, labelled: bool = False) -> Predictor:
    return pipeline_of(model).predictor(model, labelled)


def predict(model: Trained, texts: list[list[str]]) -> list[Prediction]:
    return predictor_of(model).predict([Example(words, [], f"test:{n}") for n, words in enumerate(texts, 1)])


@torch.no_grad()
def alone(model: Trained, text: str) -> torch.Tensor:
    """What the head gives for the mean of the vectors of one text's tokens, its separators among them."""
    separator, context = model.tokenizer.vocabulary.separator, model.recipe.train.context
    ids = [separator, *model.tokenizer.encode(text)[: context - 2], separator]
    y = model.model(Tokens(torch.tensor([ids]), None), None, None, None).y
    return model.model.logits(y.mean(1))[0]


def test_a_class_is_the_likeliest_by_the_softmax_of_the_head(classifier: Trained) -> None:
    assert classifier.labels is not None
    for text, (label, scores, _) in zip(TEXTS, predict(classifier, [[text] for text in TEXTS]), strict=True):
        assert isinstance(scores, dict)
        expected = alone(classifier, text).softmax(-1).tolist()
        assert scores == pytest.approx(dict(zip(classifier.labels.names, expected, strict=True)), abs=1e-5)
        assert label == max(scores, key=scores.__getitem__)
        assert sum(scores.values()) == pytest.approx(1, abs=1e-5)


def test_a_number_has_its_own_unit(regressor: Trained) -> None:
    assert regressor.labels is not None
    assert regressor.labels.scale != 1
    for text, (label, scores, _) in zip(TEXTS, predict(regressor, [[text] for text in TEXTS]), strict=True):
        assert scores == {}
        assert label == pytest.approx(
            float(alone(regressor, text)) * regressor.labels.scale + regressor.labels.mean, abs=1e-5
        )


@pytest.mark.parametrize("task", ["classifier", "regressor", "tagger"])
def test_no_prediction_depends_on_what_is_predicted_beside_it(task: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(task)
    texts = [text.split() if task == "tagger" else [text] for text in TEXTS]
    together, single = predict(model, texts), [predict(model, [text])[0] for text in texts]
    turned = predict(model, texts[::-1])[::-1]
    for one, other, third in zip(together, single, turned, strict=True):
        if task != "regressor":
            assert one.label == other.label == third.label
        assert flat(one) == pytest.approx(flat(other), abs=1e-5)
        assert flat(one) == pytest.approx(flat(third), abs=1e-5)


def flat(prediction: Prediction) -> list[float]:
    if isinstance(prediction.label, float):
        return [prediction.label]
    return list(prediction.scores.values() if isinstance(prediction.scores, dict) else prediction.scores)


def test_a_sentence_longer_than_the_context_comes_back_whole(tagger: Trained) -> None:
    words, _ = tiny_tasks.NAMES[0]
    [short, long, last] = predict(tagger, [words, words * 20, words[:3]])
    assert [len(one.label) for one in (short, long, last) if isinstance(one.label, list)] == [10, 200, 3]
    assert isinstance(long.scores, list)
    assert len(long.scores) == 200
    assert all(0 < p <= 1 for p in long.scores)
    assert flat(last) == pytest.approx(flat(predict(tagger, [words[:3]])[0]), abs=1e-5)


def test_figures_do_not_depend_on_how_many_sentences_are_answered_at_once(tagger: Trained) -> None:
    words, tags = tiny_tasks.NAMES[0]
    examples = [Example(words[n:] * 5, tags[n:] * 5, f"test:{n + 1}") for n in range(6)]
    scores = []
    for size in (1, 4, 6):
        predictor = predictor_of(tagger, labelled=True)
        found = [one for first in range(0, 6, size) for one in predictor.predict(examples[first : first + size])]
        scores.append(predictor.scores())
    given = [list(one.label) for one in found if isinstance(one.label, list)]
    assert scores == [entity_scores([example.labels for example in examples], given, ["B-PER"])] * 3


def test_metrics_of_predictions_are_without_the_loss_that_a_temperature_gives(classifier: Trained) -> None:
    """Which --assert knows from `evaluate` alone."""
    scaled = replace(classifier, decision=Decision(temperature=2.0))
    assert classifier.labels is not None
    predictor = predictor_of(scaled, labelled=True)
    predictor.predict([Example([text], [classifier.labels.names[n % 2]], f"test:{n}") for n, text in enumerate(TEXTS)])
    usual = pipeline_of(scaled).metric_accumulator()
    assert isinstance(usual, ClassAccumulator)
    assert usual.rule.temperature == 2
    assert "accuracy" in predictor.scores()
    assert "loss" not in predictor.scores()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_each_sentence_is_a_sequence_of_its_own_in_any_call(size: int, tagger: Trained) -> None:
    """Also where each call has one: entities do not go on from one sentence to the next."""
    words, tags = tiny_tasks.NAMES[0]
    examples = [Example(words[n:], tags[n:], f"test:{n + 1}") for n in range(3)]
    pipeline = pipeline_of(tagger)
    accumulator = pipeline.metric_accumulator()
    assert isinstance(accumulator, ClassAccumulator)
    assert isinstance(pipeline, PredictionPipeline)
    predictor = HeadPredictor(pipeline, tagger, accumulator)
    for first in range(0, 3, size):
        predictor.predict(examples[first : first + size])
    assert accumulator.lengths.tolist() == [len(example.texts) for example in examples]


def test_predictions_need_no_training_row_for_each_text(classifier: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """A packing may have other rows for training than for evaluation, such as some that are drawn."""

    class DrawnRows(ExampleRows):
        lengths = np.full(7, 5)  # type: ignore[assignment]

    dataset = type(classifier.recipe.objective.dataset())
    texts, usual = [[text] for text in TEXTS], predictor_of(classifier)
    expected = usual.predict([Example(words, [], f"test:{n}") for n, words in enumerate(texts, 1)])
    packing = dataset.packing
    monkeypatch.setattr(
        dataset, "packing", lambda *given: DrawnRows(**{field: getattr(packing(*given), field) for field in ROWS_OF})
    )
    other = predictor_of(classifier)
    assert other.predict([Example(words, [], f"test:{n}") for n, words in enumerate(texts, 1)]) == expected
    assert other.unread.notes() == usual.unread.notes()
    [cut] = [note for note in usual.unread.notes() if "truncated" in note]
    n, context = len(classifier.tokenizer.encode(TEXTS[1])), classifier.recipe.train.context
    assert f"test:2: the text has {n} tokens; the last {n - context + 2} are truncated" == cut


ROWS_OF = ("store", "shape", "spans", "sources", "n_too_long")


def test_what_is_no_task_with_labels_is_refused(tmp_path: Path) -> None:
    run = trained(tmp_path / "lm", "train.steps=1")
    refused(
        minitf("predict", run, "text"),
        "lm was trained with the objective next_token, which predicts no labels; use `minitf generate lm`",
        exit_code=2,
    )


def test_a_line_is_a_text_or_an_object_of_json(classifier: Trained, tagger: Trained) -> None:
    classes = predictor_of(classifier).reader(classifier.recipe.data)
    tags = predictor_of(tagger).reader(tagger.recipe.data)
    plain = classes.line("a { b", "stdin:7")
    assert plain == classes.line('{"text": "a { b", "label": 1, "more": []}', "stdin:7")
    assert plain.where == "stdin:7"
    for line in ("a  b", '{"text": "a b"}', '{"words": ["a", "b"], "label": null}', '{"text": ["a", "b"]}'):
        assert tags.line(line, "stdin:1").texts == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "'text' is empty"),
        ("{no json", "not valid JSON"),
        ('{"txt": "a"}', "'text' is missing"),
        ('{"text": 3}', "must be text"),
    ],
)
def test_a_line_that_is_neither_is_refused_with_its_place(classifier: Trained, line: str, told: str) -> None:
    reader = predictor_of(classifier).reader(classifier.recipe.data)
    with pytest.raises(DataFault, match=f"stdin:3: .*({told})"):
        reader.line(line, "stdin:3")


def test_two_texts_come_as_json_alone(classifier: Trained) -> None:
    data = classifier.recipe.data.model_copy(update={"fields": {"text": "a", "text_pair": "b"}})
    reader = predictor_of(classifier).reader(data)
    assert reader.line('{"a": "x", "b": "y"}', "stdin:1").texts == ["x", "y"]
    assert reader.line('{"text": "x", "text_pair": "y"}', "stdin:1").texts == ["x", "y"]
    with pytest.raises(DataFault, match="a line of plain text has no second text") as fault:
        reader.line("x", "stdin:1")
    assert fault.value.hint == 'write {"text": ..., "text_pair": ...}'


def test_a_run_on_two_texts_takes_two_of_every_row(tmp_path: Path) -> None:
    rows = [{"text": row["text"], "text_pair": "a room", "label": row["label"]} for row in tiny_tasks.OPINIONS]
    file = tiny_tasks.opinions(tmp_path / "two.jsonl", rows)
    run = trained(
        tmp_path / "run",
        *tiny_tasks.SMALL,
        f"data={{train: '{file}', split: 20%}}",
        "objective.kind=classify",
        "train.steps=1",
        recipe="bert-nano",
    )
    given = minitf("predict", run, "-i", file)
    assert len(given.stdout.splitlines()) == len(rows)
    refused(
        minitf("predict", run, "a nice room"),
        "argument 1: a line of plain text has no second text",
        '"text_pair": ...}',
    )
    single = tiny_tasks.opinions(tmp_path / "one.jsonl")
    told = f"{single}: no column 'text_pair'; the columns are: text, label, stars; name the columns with --fields"
    refused(minitf("predict", run, "-i", single), told, "'{text: text, text_pair: COLUMN}'")
    one = minitf("predict", run, stdin='{"text": "a nice room", "text_pair": "b"}\n{"text": "a nice room"}\n')
    assert len(one.stdout.splitlines()) == 1
    assert "stdin:2: 'text_pair'" in one.stderr
