"""Tasks on labelled rows: what is asked and how it is judged, against formulas; what is learnt is in
the labels.
"""

import math
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.store import Encoded, Tokenizers, in_memory
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.layers import ngram_features
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import LossSums, Objective
from mini_tf.objectives._task import TaskObjective
from mini_tf.pipelines import pipeline_of
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.reading import read
from mini_tf.scores.entities import BEGIN, entity_scores
from mini_tf.system.errors import RecipeFault
from mini_tf.testing.tiny.objectives import tiny_objective

PAD, SEP, MASK, V = 0, 2, 3, 40
VOCABULARY = Vocabulary(V, pad=PAD, unk=1, separator=SEP, mask=MASK)
LABELS = Labels(("O", "B-x", "I-x"), (50, 30, 20))
NUMBERS = Labels(mean=3.0, scale=0.5)
KINDS = ["classify", "regress", "tag", "instruct"]
POOLS = ["first", "last", "mean", "max"]
CLOSE = {"rtol": 1e-6, "atol": 1e-6}


def objective_of(kind: str, labels: Labels | None = None, **settings: Any) -> Objective:
    still = {} if kind == "instruct" else {"dropout_rate": 0.0}
    own = labels or (NUMBERS if kind == "regress" else LABELS)
    built = settings_of("objectives", kind)(**still | settings).build(VOCABULARY, own)  # type: ignore[attr-defined]
    assert isinstance(built, Objective)
    return built


def model_of(arrangement: str, objective: Objective, **settings: Any) -> Model:
    torch.manual_seed(0)
    small = {"d_model": 16, "n_layers": 2, "n_heads": 2, "init_std": 0.4}
    model: Model = settings_of("models", arrangement)(**small | settings).build(V, 32)  # type: ignore[attr-defined]
    objective.add_modules(model)
    return model.double()


def rows_of(kind: str, n: int = 8, seed: int = 0, pad: int = PAD, only: int | None = None, pair: bool = False) -> Rows:
    """n rows of random ids and labels, or the one that is asked for, as the plan gives them."""
    draw = np.random.default_rng(seed)
    found: list[tuple[list[int], list[float]]] = []
    for _ in range(n):
        ids = [SEP, *draw.integers(4, V, draw.integers(3, 9)).tolist(), SEP]
        ids += [*draw.integers(4, V, draw.integers(1, 4)).tolist(), SEP] * pair
        labels = np.full(len(ids), np.nan)
        if kind == "tag":
            labels[1:-1] = np.where(draw.random(len(ids) - 2) < 0.5, draw.integers(0, 3, len(ids) - 2), np.nan)
            labels[1] = 0
        elif kind == "instruct":
            labels[draw.integers(2, len(ids) - 1) :] = 1
        else:
            labels[0] = draw.normal() if kind == "regress" else draw.integers(0, 3)
        found.append((ids, labels.tolist()))
    chosen = found if only is None else found[only : only + 1]
    width = max(len(ids) for ids, _ in chosen)
    ids = np.array([ids + [pad] * (width - len(ids)) for ids, _ in chosen])
    segments = np.array([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in chosen])
    asked = np.array([labels + [np.nan] * (width - len(labels)) for _, labels in chosen], np.float32)
    keys = np.arange(n, dtype=np.uint64) if only is None else np.array([only], np.uint64)
    whole = kind in ("classify", "regress")
    given = {"row_labels": asked[:, :1]} if whole else {"labels": asked}
    return Rows(ids, keys, None if segments.all() else segments, **given)


def accumulator_of(objective: Objective, labels: Labels) -> Any:
    """What makes figures of a task's outputs."""
    recipe = SimpleNamespace(objective=objective.settings)
    return pipeline_of(SimpleNamespace(recipe=recipe, labels=labels, decision=None)).metric_accumulator()  # type: ignore[arg-type]


def sums_of(objective: Objective, model: Model, rows: Rows, training: bool = False) -> LossSums:
    task = objective.task(model)
    task.train(training)
    sums = task(objective.prepare(rows))
    assert isinstance(sums, LossSums)
    return sums


def loss_of(objective: Objective, model: Model, rows: Rows, training: bool = False) -> Tensor:
    [loss] = sums_of(objective, model, rows, training).parts.values()
    return loss


VARIANTS: list[tuple[str, dict[str, Any], str]] = [
    *(("classify", {"pool": pool}, "decoder") for pool in POOLS),
    ("classify", {"class_weights": "balanced", "label_smoothing": 0.2}, "encoder"),
    ("tag", {"class_weights": {"O": 0.2}}, "decoder"),
    ("instruct", {"label_smoothing": 0.1}, "decoder"),
]
"""What the contract, which tries every task and pool on an encoder, leaves."""


# Rows by themselves, in company, and in micro-batches


@pytest.mark.parametrize(("kind", "given", "arrangement"), VARIANTS, ids=str)
def test_padding_and_company_change_no_rows_loss_nor_answer(kind: str, given: dict[str, Any], arrangement: str) -> None:
    objective = objective_of(kind, **given)
    model = model_of(arrangement, objective)
    for training in (True, False):
        together = sums_of(objective, model, rows_of(kind), training)
        alone = [sums_of(objective, model, rows_of(kind, only=n), training) for n in range(8)]
        strange = sums_of(objective, model, rows_of(kind, pad=17), training)
        for part, loss in together.parts.items():
            torch.testing.assert_close(torch.stack([one.parts[part] for one in alone]).sum(), loss, **CLOSE)
            torch.testing.assert_close(strange.parts[part], loss, **CLOSE)
        if not training and together.outputs is not None:
            answers = [one.outputs for one in alone if one.outputs is not None]
            torch.testing.assert_close(torch.cat(answers), together.outputs, **CLOSE)


# The judgement


def answers_of(objective: Objective, model: Model, rows: Rows) -> tuple[Tensor, Tensor]:
    """Scores, in doubles, and what is right."""
    answers = sums_of(objective, model, rows).outputs
    assert answers is not None
    return answers.double(), objective.prepare(rows).labels


@pytest.mark.parametrize("kind", ["classify", "tag"])
@pytest.mark.parametrize("given", [None, "balanced", {"O": 0.5, "I-x": 4.0}])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_loss_in_training_is_that_of_the_formula(kind: str, given: Any, smoothing: float) -> None:
    """Row i counts w[y_i], and its label is (1 - e) onehot + e / C; evaluation knows neither."""
    objective = objective_of(kind, class_weights=given, label_smoothing=smoothing)
    model = model_of("encoder", objective)
    answers, truth = answers_of(objective, model, rows_of(kind))
    share = {None: [1.0] * 3, "balanced": [1 / 50, 1 / 30, 1 / 20]}.get(
        given if isinstance(given, str | None) else "", [0.5, 1.0, 4.0]
    )
    mean = sum(one * n for one, n in zip(share, LABELS.counts, strict=True)) / 100
    expected, plain = 0.0, 0.0
    for scores, label in zip(answers.tolist(), truth.tolist(), strict=True):
        surprise = [math.log(sum(map(math.exp, scores))) - score for score in scores]
        smoothed = (1 - smoothing) * surprise[label] + smoothing * sum(surprise) / 3
        expected, plain = expected + share[label] / mean * smoothed, plain + surprise[label]
    assert loss_of(objective, model, rows_of(kind), training=True).item() == pytest.approx(expected, rel=1e-5)
    assert loss_of(objective, model, rows_of(kind)).item() == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize("counts", [(50, 30, 20), (1000, 1, 1), (7, 0, 3)])
def test_balanced_classes_weigh_the_same_together_and_examples_one_on_average(counts: tuple[int, ...]) -> None:
    settings = settings_of("objectives", "classify")(class_weights="balanced")
    labels = Labels(LABELS.names, counts)
    weights = settings.weights(labels)  # type: ignore[attr-defined]
    totals = [float(weight) * n for weight, n in zip(weights, counts, strict=True) if n]
    assert totals == pytest.approx([sum(counts) / len(totals)] * len(totals), rel=1e-5)
    assert sum(totals) / sum(counts) == pytest.approx(1, rel=1e-5)
    given = settings_of("objectives", "classify")(class_weights={"B-x": 3.0}).weights(labels)  # type: ignore[attr-defined]
    assert float(given[1] / given[0]) == pytest.approx(3)
    assert sum(float(weight) * n for weight, n in zip(given, counts, strict=True)) == pytest.approx(sum(counts))
    assert settings_of("objectives", "classify")().weights(labels) is None  # type: ignore[attr-defined]


def test_the_most_frequent_classes_have_log_count_ratios_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the counts of the labels, whatever the order of their names; equally frequent ones in that order."""
    monkeypatch.setattr(ngram_features, "MAX_CLASSES", 1)
    classes = [0] * 2 + [1] * 5 + [2] * 3  # each text is a token of its class
    labels = Labels(("good", "bad", "mixed"), (2, 5, 3))
    objective = objective_of("classify", labels, wide={"order": 1, "rows": 256, "class_ratios": True})
    task: Any = objective.task(model_of("encoder", objective))
    tokenizer: Any = SimpleNamespace(vocabulary=VOCABULARY)
    encoded = [Encoded(np.array([10 + label]), row_labels=np.array([label], np.float32)) for label in classes]
    objective.fit(task, in_memory(encoded, Tokenizers(tokenizer, tokenizer)))
    wide = task.head.wide
    rows, _ = wide.rows(torch.tensor([[10], [11], [12]]), torch.ones(3, 1, dtype=torch.bool))
    own, others = [0, 5, 0], [2, 0, 3]  # texts of the class bad, and of the two others, with each token
    expected = [abs(math.log((a + 1) / (5 + 2) * (5 + 2) / (b + 1))) for a, b in zip(own, others, strict=True)]
    assert wide.ratio[rows[:, 0]].tolist() == pytest.approx(expected, rel=1e-6)
    ties = objective_of("classify", Labels(("a", "b", "c", "d"), (1, 4, 1, 4)))
    assert ties.classes_by_frequency.tolist() == [2, 0, 3, 1]  # type: ignore[attr-defined]


def test_what_is_fitted_after_training_is_what_the_settings_name() -> None:
    for kind in ("classify", "tag"):
        settings: Any = settings_of("objectives", kind)
        assert settings(calibrate=True, logit_adjustment="fit").additions == {"temperature", "bias"}
        assert settings(logit_adjustment="fit").additions == {"bias"}


def test_an_output_is_that_of_the_n_grams_and_the_scaled_one_of_the_network() -> None:
    wide = {"order": 1, "rows": 64, "own_loss": True, "network_scale": 0.25}
    case = tiny_objective(settings_of("objectives", "classify")(wide=wide))  # type: ignore[call-arg]
    task: Any = case.task.eval()
    for parameter in task.parameters():
        parameter.data.normal_()
    batch = case.objective.prepare_evaluation(case.rows)
    network, of_n_grams = task.network_and_wide(batch)
    torch.testing.assert_close(task.predict(batch), of_n_grams + 0.25 * network)


def test_words_of_tags_are_told_apart_by_their_tokens() -> None:
    case = tiny_objective(settings_of("objectives", "tag")(wide={"unit": "word", "rows": 64}))  # type: ignore[call-arg]
    keys = case.objective.prepare(case.rows).extras["words"]
    turned = replace(case.rows, ids=case.rows.ids[:, ::-1].copy())
    assert not torch.equal(case.objective.prepare(turned).extras["words"], keys)
    unpadded = [replace(case.rows, segments=segments) for segments in (None, np.ones_like(case.rows.ids))]
    of_each = [case.objective.prepare(rows).extras["words"] for rows in unpadded]
    assert torch.equal(*of_each)


def test_weights_of_a_class_that_is_not_there_are_refused() -> None:
    with pytest.raises(RecipeFault, match=r"^objective\.class_weights: no such class 'Z'; there are O, B-x, I-x$"):
        objective_of("classify", class_weights={"Z": 2.0})
    with pytest.raises(RecipeFault, match="no such class 'B-y'; did you mean B-x"):
        objective_of("tag", class_weights={"O": 1.0, "B-y": 2.0})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("balance", "must be balanced or {class: weight}, got 'balance'; did you mean balanced?"),
        ("[1, 2]", "must be balanced or {class: weight}, got a list"),
        ("{good: .inf}", "the weight of a class must be above 0 and at most 1e+09, got '.inf' for 'good'"),
        ("{good: 0}", "the weight of a class must be above 0 and at most 1e+09, got 0.0 for 'good'"),
        ("{good: 1e300}", "at most 1e+09, got 1e+300 for 'good'"),
        ("{god: 2}", "no such class 'god'; did you mean good?"),
    ],
)
def test_weights_that_are_none_are_refused_in_words(given: str, told: str) -> None:
    classes = ["data={train: x.jsonl}", "model.kind=encoder", "objective={kind: classify, labels: [good, bad]}"]
    with pytest.raises(RecipeFault) as refusal:
        read(None, [*classes, f"objective.class_weights={given}"])
    assert told in refusal.value.message
    for right in ("balanced", "{good: 2}", "{good: 1e9}", "null"):
        read(None, [*classes, f"objective.class_weights={right}"])


def test_the_first_weight_without_a_class_is_named_and_of_many_classes_twenty() -> None:
    labels = [f"c{number}" for number in range(21)]
    told = "no such class 'Zz'; there are " + ", ".join(labels[:20]) + ", ..."
    with pytest.raises(ValueError, match=re.escape(told)):
        settings_of("objectives", "classify")(labels=labels, class_weights={"Zz": 1.0, "Yy": 2.0})


@pytest.mark.parametrize("kind", ["classify", "tag", "instruct", "seq2seq"])
def test_no_label_is_smoothed_away_as_a_whole(kind: str) -> None:
    """Smoothing of 1 would leave nothing to learn; it is a share below that."""
    settings = settings_of("objectives", kind)
    assert settings(label_smoothing=0.99).label_smoothing == 0.99  # type: ignore[attr-defined]
    for wrong in (1.0, -0.01):
        with pytest.raises(ValueError, match="label_smoothing"):
            settings(label_smoothing=wrong)


@pytest.mark.parametrize("kind", ["classify", "tag"])
def test_weights_are_no_less_exact_under_autocast(kind: str) -> None:
    objective = objective_of(kind, class_weights={"O": 0.3, "I-x": 5.1})
    answers, labels = torch.randn(4001, 3, generator=torch.Generator().manual_seed(0)), torch.arange(4001) % 3
    exact = objective.loss(answers, labels, True)  # type: ignore[attr-defined]
    with torch.autocast("cpu", torch.bfloat16):
        mixed = objective.loss(answers, labels, True)  # type: ignore[attr-defined]
    assert mixed.dtype == torch.float32
    assert mixed.item() == pytest.approx(exact.item(), rel=1e-6)


@pytest.mark.parametrize("kind", ["classify", "tag", "regress"])
def test_answers_in_half_precision_are_judged_in_full(kind: str) -> None:
    objective = objective_of(kind)
    model, rows = model_of("encoder", objective).bfloat16(), rows_of(kind)
    batch, sums = objective.prepare(rows), sums_of(objective, model, rows)
    assert sums.outputs is not None
    assert sums.outputs.dtype == torch.float32
    answers = sums.outputs.double()
    if kind == "regress":
        expected = (answers[:, 0] - batch.labels).square().sum()
    else:
        expected = F.cross_entropy(answers, batch.labels, reduction="sum")
    assert loss_of(objective, model, rows).item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_loss_of_numbers_is_the_share_of_the_variance_that_is_not_explained() -> None:
    values = np.random.default_rng(0).normal(3.0, 0.5, 50)
    labels = Labels(mean=float(values.mean()), scale=float(values.std()))
    objective = objective_of("regress", labels)
    rows = rows_of("regress", 50)
    assert rows.row_labels is not None
    rows.row_labels[:, 0] = (values - labels.mean) / labels.scale
    model = model_of("encoder", objective)
    given = answers_of(objective, model, rows)[0].squeeze(-1).detach().numpy() * labels.scale + labels.mean
    share = ((given - values) ** 2).sum() / ((values - values.mean()) ** 2).sum()
    assert loss_of(objective, model, rows).item() / 50 == pytest.approx(share, rel=1e-5)
    for parameter in model.head.parameters():
        parameter.data.zero_()  # the mean, whatever the text
    assert loss_of(objective, model, rows).item() / 50 == pytest.approx(1, rel=1e-5)
    accumulator = accumulator_of(objective, labels)
    for part in (rows.slice(0, 30), rows.slice(30, 50)):
        accumulator.add(objective.prepare(part), torch.from_numpy(part.row_labels) + 2.0)  # type: ignore[arg-type]
    assert accumulator.scores()["rmse"] == pytest.approx(2.0 * labels.scale, rel=1e-5)


def test_numbers_far_from_0_lose_nothing_in_their_figures() -> None:
    """At 1e6 two floats are a sixteenth apart, which would drown an error of a hundredth."""
    labels = Labels(mean=1e6, scale=0.01)
    objective = objective_of("regress", labels)
    accumulator, rows = accumulator_of(objective, labels), rows_of("regress", 50)
    assert rows.row_labels is not None
    accumulator.add(objective.prepare(rows), torch.from_numpy(rows.row_labels) + 1.0)
    scores = accumulator.scores()
    assert (scores["rmse"], scores["pearson"]) == pytest.approx((0.01, 1.0), rel=1e-5)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_sentence_of_several_rows_is_judged_as_a_whole(size: int) -> None:
    """One entity of four words, cut in the middle; of it the end alone is named right, as far as its own row can
    tell.
    """
    names, true, named = ("O", "B-x", "I-x"), [1, 2, 2, 2], [0, 0, 2, 2]
    tags = Labels(names, (1, 1, 1))
    objective = objective_of("tag", tags)
    ids, labels = np.full((4, 4), 7), np.full((4, 4), np.nan, np.float32)
    ids[:, [0, 3]], labels[:, 1:3] = SEP, np.array([true, [0, 1, 0, 1]]).reshape(4, 2)
    chosen = torch.tensor([named, [0, 1, 0, 1]]).reshape(4, 2)
    rows = Rows(ids, np.arange(4, dtype=np.uint64), labels=labels, examples=np.array([5, 5, 6, 6]))
    accumulator = accumulator_of(objective, tags)
    for first in range(0, 4, size):
        accumulator.add(
            objective.prepare(rows.slice(first, first + size)),
            F.one_hot(chosen[first : first + size].flatten(), 3).float(),
        )
    sentences = [
        [[names[tag] for tag in words] for words in side] for side in ([true, [0, 1, 0, 1]], [named, [0, 1, 0, 1]])
    ]
    assert accumulator.scores() == entity_scores(*sentences, names)
    alone = accumulator_of(objective, tags)
    alone.add(objective.prepare(rows.slice(0, 2)), F.one_hot(torch.tensor(named), 3).float())
    assert alone.scores()["entity_f1"] == 0


@pytest.mark.parametrize("kind", ["classify", "tag"])
def test_figures_are_of_all_batches_together(kind: str) -> None:
    objective, rows = objective_of(kind), rows_of(kind, 20)
    for wrong in (0, 1):
        accumulator = accumulator_of(objective, replace(LABELS, lax=(BEGIN,)))  # the tags are drawn, in any order
        for first in range(0, 20, 7):
            batch = objective.prepare(rows.slice(first, first + 7))
            accumulator.add(batch, F.one_hot((batch.labels + wrong * (first > 0)) % 3, 3).float())
        scores = accumulator.scores()
        share = [len(objective.prepare(part).labels) for part in (rows.slice(0, 7), rows)]
        if kind == "classify":
            assert scores["accuracy"] == pytest.approx(share[0] / share[1] if wrong else 1.0)
        else:
            assert (scores["entity_f1"] == 1.0) == (not wrong)


# What is hidden in training


def test_hidden_tokens_are_drawn_by_each_rows_key_and_never_are_separators() -> None:
    objective = objective_of("classify", token_dropout_rate=0.3)
    rows = rows_of("classify", 300, pair=True)
    hidden = objective.prepare(rows).extras["ids"].numpy()
    changed = hidden != rows.ids
    assert rows.segments is not None
    assert set(hidden[changed]) == {MASK}
    assert not changed[rows.ids == SEP].any()
    open_to_it = (rows.segments == 1) & (rows.ids != SEP)
    assert changed[open_to_it].mean() == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / open_to_it.sum()))
    for n in (0, 5):
        alone = objective.prepare(rows_of("classify", 300, pair=True, only=n)).extras["ids"].numpy()[0]
        np.testing.assert_array_equal(alone, hidden[n, : len(alone)])
    other = Rows(rows.ids, rows.keys + np.uint64(1000), rows.segments, labels=rows.labels, row_labels=rows.row_labels)
    assert (objective.prepare(other).extras["ids"].numpy() != hidden).any()
    assert not objective_of("classify").prepare(rows).extras


@pytest.mark.parametrize("kind", ["classify", "regress", "tag"])
def test_tokens_are_hidden_in_training_alone(kind: str) -> None:
    objective, plain = objective_of(kind, token_dropout_rate=0.5), objective_of(kind)
    model, rows = model_of("encoder", objective), rows_of(kind)
    hidden = Rows(
        objective.prepare(rows).extras["ids"].numpy(),
        rows.keys,
        rows.segments,
        labels=rows.labels,
        row_labels=rows.row_labels,
    )
    torch.testing.assert_close(loss_of(objective, model, rows), loss_of(plain, model, rows), rtol=0, atol=0)
    torch.testing.assert_close(loss_of(objective, model, rows, True), loss_of(plain, model, hidden, True), **CLOSE)
    assert abs(loss_of(objective, model, rows, True) - loss_of(plain, model, rows, True)) > 0.01


# Which positions answer, and what they see


def test_tags_are_asked_for_at_the_first_token_of_their_words_alone() -> None:
    rows = rows_of("tag")
    batch = objective_of("tag").prepare(rows)
    assert rows.labels is not None
    assert batch.target_positions is not None
    asked = [(place, label) for place, label in enumerate(rows.labels.flatten().tolist()) if not math.isnan(label)]
    assert list(zip(batch.target_positions.tolist(), batch.labels.tolist(), strict=True)) == asked
    assert batch.counts["tag"] == len(asked)


@pytest.mark.parametrize(
    ("arrangement", "pool", "seen"), [("decoder", "first", 1), ("decoder", "last", 9), ("encoder", "first", 9)]
)
def test_a_pooled_place_sees_what_its_model_shows_it(arrangement: str, pool: str, seen: int) -> None:
    """The last place of a decoder has read all; its first only itself; an encoder's first all."""
    objective = objective_of("classify", pool=pool)
    model = model_of(arrangement, objective)
    ids = np.array([[SEP, 7, 8, 9, 10, 11, 12, 13, SEP]])
    label = np.zeros((1, 1), np.float32)
    first = answers_of(objective, model, Rows(ids, np.zeros(1, np.uint64), row_labels=label))[0]
    for place in range(1, 8):
        other = ids.copy()
        other[0, place] = 30
        changed = answers_of(objective, model, Rows(other, np.zeros(1, np.uint64), row_labels=label))[0]
        assert torch.equal(changed, first) == (place >= seen)


def test_a_responses_loss_is_that_of_the_chain_rule_given_its_prompt() -> None:
    objective = objective_of("instruct")
    model = model_of("decoder", objective).eval()
    prompt, response = [SEP, 7, 8, 9, SEP], [11, 12, 11, SEP]
    labels = np.array([[np.nan] * 5 + [1.0] * 4], np.float32)
    expected = 0.0
    for n, label in enumerate(response):
        hidden = model(Tokens(torch.tensor([[*prompt, *response[:n]]]))).y
        expected -= model.logits(hidden)[0, -1].log_softmax(-1)[label].item()
    rows = Rows(np.array([[*prompt, *response]]), np.zeros(1, np.uint64), labels=labels)
    assert loss_of(objective, model, rows).item() == pytest.approx(expected, abs=1e-9)
    batch = objective.prepare(rows)
    assert batch.labels.tolist() == response
    assert batch.target_positions is not None
    assert batch.target_positions.tolist() == [4, 5, 6, 7]
    assert batch.counts == {"instruct": 4, "tokens": 8, "penalty": 8}
    # Of what is asked nothing hangs on what comes later; the prompt is read, but never asked for.
    scores = model.logits(model(batch.inputs).y)
    for place in (5, 6, 7):
        ids = batch.inputs.ids.clone()
        ids[0, place] = 30
        changed = model.logits(model(Tokens(ids)).y)
        torch.testing.assert_close(changed[:, :place], scores[:, :place], rtol=0, atol=0)
        assert not torch.equal(changed[:, place:], scores[:, place:])


@pytest.mark.parametrize("arrangement", ["encoder", "decoder"])
def test_two_texts_have_two_types_and_a_separator_that_of_the_text_it_closes(arrangement: str) -> None:
    ids = np.array([[SEP, 7, 8, SEP, 9, SEP, PAD], [SEP, 7, SEP, 8, 9, 10, SEP]])
    segments = np.array([[1, 1, 1, 1, 1, 1, 0], [1] * 7])
    labels = np.ones((2, 1), np.float32)
    rows = Rows(ids, np.zeros(2, np.uint64), segments, row_labels=labels)
    losses = []
    for n_types in (0, 1, 2, 3):
        objective = objective_of("classify")
        assert isinstance(objective, TaskObjective)
        model = model_of(arrangement, objective, n_types=n_types)
        batch = objective.prepare(rows)
        if n_types < 2:
            assert batch.inputs.types is None
        else:
            assert batch.inputs.types is not None
            assert (batch.inputs.types * torch.from_numpy(segments)).tolist() == [
                [0, 0, 0, 0, 1, 1, 0],
                [0, 0, 0, 1, 1, 1, 1],
            ]
        losses.append(loss_of(objective, model, rows).item())
    assert len(set(losses[1:])) == 3
    one = Rows(ids[:1, :4], np.zeros(1, np.uint64), row_labels=labels[:1])
    assert objective.prepare(one).inputs.types.tolist() == [[0, 0, 0, 0]]  # type: ignore[union-attr]


# Learning


def learnable(kind: str, n: int, seed: int) -> Rows:
    """Texts whose class is whether token 5 or token 6 stands in them, and whose tags are whether a token is even."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(7, V, (n, 8))
    truth = draw.integers(0, 2, n)
    ids[np.arange(n), draw.integers(1, 7, n)] = 5 + truth
    ids[:, [0, -1]] = SEP
    labels = np.full((n, 8), np.nan, np.float32)
    if kind == "tag":
        labels[:, 1:-1:2] = ids[:, 1:-1:2] % 2
    else:
        labels[:, 0] = truth if kind == "classify" else 2.0 * truth - 1
    whole = kind in ("classify", "regress")
    return Rows(
        ids,
        draw.integers(0, 2**63, n).astype(np.uint64),
        **{"row_labels": labels[:, :1]} if whole else {"labels": labels},
    )


def permuted(rows: Rows) -> Rows:
    given = {
        name: part.copy()
        for name, part in (("labels", rows.labels), ("row_labels", rows.row_labels))
        if part is not None
    }
    for labels in given.values():
        labels[~np.isnan(labels)] = np.random.default_rng(1).permutation(labels[~np.isnan(labels)])
    return Rows(rows.ids, rows.keys, **given)


def trained(kind: str, rows: Rows, steps: int = 60) -> tuple[Objective, Model]:
    """AdamW over batches of 32, with everything that draws turned on."""
    labels = NUMBERS if kind == "regress" else Labels(("O", "B-x"), (1, 1))
    objective = objective_of(kind, labels, dropout_rate=0.1, token_dropout_rate=0.05)
    model = model_of("encoder", objective, n_layers=1, init_std=0.1, dropout_rate=0.1).float()
    task = objective.task(model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        batch: Batch = objective.prepare(rows.slice(first := step * 32 % len(rows), first + 32))
        optimizer.zero_grad()
        (task(batch).parts[kind] / batch.counts[kind]).backward()
        optimizer.step()
    return objective, model


@pytest.mark.parametrize("kind", ["classify", "regress", "tag"])
def test_what_is_learnt_is_in_the_labels(kind: str) -> None:
    """Held-out texts are told apart by a model that saw true labels; one that saw permuted labels cannot."""
    rows, held_out = learnable(kind, 640, 0), learnable(kind, 640, 1)
    right = []
    for given in (rows, permuted(rows)):
        objective, model = trained(kind, given)
        answers, truth = answers_of(objective, model, held_out)
        named = answers.squeeze(-1) > 0 if kind == "regress" else answers.argmax(-1) > 0
        right.append((named == (truth > 0)).double().mean().item())
    assert right[0] > 0.9
    assert right[1] < 0.7
