"""Baselines: the contract over every kind, and each against scikit-learn or a formula called by hand."""

import itertools
import math
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score, log_loss, matthews_corrcoef
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline, make_union
from test_datasets_contract import ROWS

from mini_tf.baselines import Measured, NoBaseline, _measures, ngram
from mini_tf.baselines._measures import WORDS, labelled_splits, logistic, unigram
from mini_tf.baselines.lead_sentence import first_sentence
from mini_tf.baselines.neighbours import NONE, NeighbourModel, _visible_neighbours
from mini_tf.baselines.ngram import NgramModel, _histories
from mini_tf.baselines.shape_tagger import ILLEGAL, _features, best_path, legal_transitions, shape
from mini_tf.data.batch import Batch
from mini_tf.data.examples import Example
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import kinds_of, listing, settings_of
from mini_tf.recipe.metrics import ranking_metrics
from mini_tf.testing import baselines as contract
from mini_tf.testing import run_all
from mini_tf.testing.baselines import BaselineFixture
from mini_tf.testing.tiny.datasets import DatasetFixture

OBJECTIVES: dict[str, Any] = {word: settings() for word, settings in kinds_of("objectives").items()}
NAMED = [(kind, word) for word, one in OBJECTIVES.items() for kind in one.BASELINES]
OWN = (
    "copied_source",
    "frequent_tag",
    "lead_sentence",
    "majority",
    "mean",
    "neighbours",
    "ngram",
    "ridge",
    "shape_tagger",
)
OWN += ("tfidf_characters", "tfidf_cosine", "tfidf_logistic", "tfidf_one_vs_rest", "unigram")


@pytest.mark.parametrize(("kind", "word"), NAMED)
def test_every_baseline_keeps_to_the_contract(kind: str, word: str) -> None:
    baseline: Any = settings_of("baselines", kind)()
    run_all(contract.cases(baseline, OBJECTIVES[word], ROWS[OBJECTIVES[word].DATASET]))


def test_every_baseline_is_named_by_an_objective_and_compared_by_a_metric_that_ranks_its_models() -> None:
    assert {*OWN} <= {kind for kind, _ in NAMED} <= {*listing("baselines")}
    for word, one in OBJECTIVES.items():
        if one.BASELINES:
            of_each: list[Any] = [settings_of("baselines", kind) for kind in one.BASELINES]
            assert any({*ranking_metrics(one)} & {*baseline.METRICS} for baseline in of_each), word


class Undeclared(settings_of("baselines", "majority")):  # type: ignore[misc]
    def measure(self, data: Any) -> Measured:
        return Measured("x", {"accuracy": 0.5, "bleu": 1.0})


class DrawsAnew(settings_of("baselines", "majority")):  # type: ignore[misc]
    def measure(self, data: Any) -> Measured:
        return Measured("x", {"accuracy": float(np.random.random())})


class NotFinite(settings_of("baselines", "majority")):  # type: ignore[misc]
    def measure(self, data: Any) -> Measured:
        return Measured("x", {"loss": math.inf})


@pytest.mark.parametrize(
    ("fault", "holds", "told"),
    [
        (Undeclared, contract.declares_its_metrics, "METRICS must declare"),
        (NotFinite, contract.declares_its_metrics, "must be a finite float"),
        (DrawsAnew, contract.measures_the_same_again, "the same data must give the same"),
    ],
)
def test_a_baseline_that_breaks_the_contract_is_found_out(fault: Any, holds: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=told):
        holds(fixture(fault(), "classify", ROWS["classes"], tmp_path))


def fixture(baseline: Any, word: str, rows: Any, folder: Path) -> BaselineFixture:
    return BaselineFixture(baseline, OBJECTIVES[word], DatasetFixture(OBJECTIVES[word].dataset(), rows, folder))


def measured(kind: str, word: str, rows: Any, folder: Path, **settings: Any) -> dict[str, float]:
    return fixture(settings_of("baselines", kind)(**settings), word, rows, folder).measure().metrics


DRAW = np.random.default_rng(5)
GOOD, BAD = ["fine", "a lovely film", "I like it !", "so good"], ["dull", "a sad , long film", "not for me", "no good"]
REVIEWS = [
    {"text": f"{pool[DRAW.integers(4)]} {pool[DRAW.integers(4)]} {GOOD[DRAW.integers(4)]}", "label": label}
    for _ in range(30)
    for label, pool in (("good", GOOD), ("bad", BAD), ("mixed", GOOD + BAD))
]
N_TRAIN = 2 * len(REVIEWS) // 3
TEXTS = [str(row["text"]) for row in REVIEWS]
LABELS = [str(row["label"]) for row in REVIEWS]


def by_hand(vectorizer: Any) -> dict[str, float]:
    """Logistic regression of the labels by scikit-learn alone."""
    model = make_pipeline(vectorizer, LogisticRegression(C=10.0, tol=1e-3)).fit(TEXTS[:N_TRAIN], LABELS[:N_TRAIN])
    truth, predicted = LABELS[N_TRAIN:], model.predict(TEXTS[N_TRAIN:])
    return {
        "accuracy": accuracy_score(truth, predicted),
        "f1_macro": f1_score(truth, predicted, average="macro"),
        "f1_micro": f1_score(truth, predicted, average="micro"),
        "matthews": matthews_corrcoef(truth, predicted),
        "loss": log_loss(truth, model.predict_proba(TEXTS[N_TRAIN:])),
    }


def words() -> Any:
    return TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORDS)


def test_each_label_of_a_set_is_predicted_as_scikit_learn_does(tmp_path: Path) -> None:
    """Of fewer validation texts than are needed to choose thresholds."""
    sets = [["good"] * (n % 2) + ["long"] * (n % 3 > 0) for n in range(45)]
    rows = [{"text": f"{' '.join(names)} film {n % 7}", "labels": names} for n, names in enumerate(sets)]
    texts, truth = [str(row["text"]) for row in rows], np.array([["good" in names, "long" in names] for names in sets])
    model = make_pipeline(words(), OneVsRestClassifier(LogisticRegression(C=10.0, tol=1e-3)))
    predicted = model.fit(texts[:30], truth[:30].astype(int)).predict(texts[30:])
    found = measured("tfidf_one_vs_rest", "multi_label", rows, tmp_path)
    assert found["f1_micro"] == f1_score(truth[30:], predicted, average="micro") > 0.5
    assert found["subset_accuracy"] == accuracy_score(truth[30:], predicted)


def test_tfidf_with_logistic_regression_is_scikit_learns(tmp_path: Path) -> None:
    found, hand = measured("tfidf_logistic", "classify", REVIEWS, tmp_path), by_hand(words())
    assert found == pytest.approx(hand, abs=1e-9)
    assert 0.4 < found["accuracy"] < 1  # it has learned something, and there are mistakes to count


def test_tfidf_of_characters_is_scikit_learns(tmp_path: Path) -> None:
    union = make_union(words(), TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5)))
    assert measured("tfidf_characters", "classify", REVIEWS, tmp_path) == pytest.approx(by_hand(union), abs=1e-9)


def test_of_two_texts_each_has_its_own_features(tmp_path: Path) -> None:
    """The label is that of the second text, and the first text has the words of both classes."""
    rows = [
        {"text": TEXTS[-1 - n], "text_pair": f"{'yes' if n % 2 else 'no'} {n}", "label": "ab"[n % 2]} for n in range(60)
    ]
    swapped = [{**row, "text": row["text_pair"], "text_pair": row["text"]} for row in rows]
    for n, one in enumerate((rows, swapped)):
        (folder := tmp_path / str(n)).mkdir()
        assert measured("tfidf_logistic", "classify", one, folder)["accuracy"] == 1


def test_majority_is_the_most_frequent_class_of_the_training_data(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": "a" if n % 3 else "b"} for n in range(30)]
    found = measured("majority", "classify", rows, tmp_path)
    assert found["accuracy"] == pytest.approx(np.mean([n % 3 > 0 for n in range(20, 30)]))
    assert found["matthews"] == 0


def test_ridge_and_mean_are_scikit_learns_and_the_formula(tmp_path: Path) -> None:
    numbers = [len(text) / 7 + 3 * (label == "good") for text, label in zip(TEXTS, LABELS, strict=True)]
    rows = [{"text": text, "label": number} for text, number in zip(TEXTS, numbers, strict=True)]
    model = make_pipeline(words(), Ridge(alpha=1.0)).fit(TEXTS[:N_TRAIN], numbers[:N_TRAIN])
    truth, predicted = np.array(numbers[N_TRAIN:]), model.predict(TEXTS[N_TRAIN:])
    for name in ("ridge", "mean"):
        (tmp_path / name).mkdir()
    found = measured("ridge", "regress", rows, tmp_path / "ridge")
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((truth - predicted) ** 2)), abs=1e-9)
    assert found["pearson"] == pytest.approx(np.corrcoef(truth, predicted)[0, 1])
    one = fixture(settings_of("baselines", "mean")(), "regress", rows, tmp_path / "mean")
    labels, mean = one.inputs.labels, one.measure().metrics
    assert labels is not None
    assert mean["loss"] == pytest.approx(np.mean(((truth - labels.mean) / labels.scale) ** 2))
    assert mean.keys() == {"loss", "rmse"}  # a constant has no correlation


def test_one_class_in_the_training_data_is_no_fit(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": "a" if n < 25 else "b"} for n in range(30)]
    with pytest.raises(NoBaseline, match="all training labels are the same"):
        measured("tfidf_logistic", "classify", rows, tmp_path)


NAMES = [
    f"Anna met {name} in {place}".split()
    for name in ("Omar", "Lena", "Igor")
    for place in ("Oslo", "Lima", "New York", "Rome")
]
TAGGED = [
    {"text": [*one, "."], "label": [*["B-PER", "O", "B-PER", "O", "B-LOC", "I-LOC"][: len(one)], "O"]} for one in NAMES
]


def test_more_weights_than_memory_has_room_for_are_no_fit() -> None:
    """A label of its own for nearly every text: the fit would take minutes and gigabytes."""
    features = scipy.sparse.csr_matrix((2000, 20_000))
    with pytest.raises(NoBaseline, match="2,000 classes with 20,000 features are too many for a linear model"):
        logistic(features, np.arange(2000), features, 2000, 1.0)


def test_the_most_frequent_tag_of_each_word(tmp_path: Path) -> None:
    """Of the validation names, Igor is unknown: its tag is that of most words."""
    found = measured("frequent_tag", "tag", TAGGED, tmp_path)
    tags = {word: tag for row in TAGGED[:8] for word, tag in zip(row["text"], row["label"], strict=True)}
    correct = [
        tags.get(word, "O") == tag for row in TAGGED[8:] for word, tag in zip(row["text"], row["label"], strict=True)
    ]
    assert found["accuracy"] == pytest.approx(np.mean(correct))
    assert 0 < found["entity_f1"] < 1


def test_the_logistic_tagger_knows_a_name_by_its_shape_and_place(tmp_path: Path) -> None:
    assert measured("shape_tagger", "tag", TAGGED, tmp_path)["entity_f1"] == 1


def test_features_are_the_word_its_shape_its_affixes_and_two_words_around_it() -> None:
    words = Example(["Anna", "saw", "Bo", "in", "LA"], [], "")
    _, _, middle, _, last = map(set, _features([words]))
    own = {"0=bo", "shape=Aa", "prefix=b", "prefix=bo", "suffix=o", "suffix=bo"}
    before = {"-2=anna", "-2shape=Aa", "-1=saw", "-1shape=a"}
    assert middle == own | before | {"1=in", "1shape=a", "2=la", "2shape=A"}
    assert {"-2=bo", "-2shape=Aa", "-1=in", "-1shape=a", "1=", "2="} < last


def test_shapes() -> None:
    assert [shape(word) for word in ("McDonald's", "2024", "iPhone12", "...", "Ünsal", "")] == [
        "AaAa'a",
        "0",
        "aAa0",
        ".",
        "Aa",
        "",
    ]


def test_the_best_path_is_that_of_all_paths() -> None:
    """Also where only the transitions at the borders of the text decide between two paths."""
    n_decided = {"first": 0, "last": 0}
    for seed in range(60):
        draw = np.random.default_rng(seed)
        scores, transitions = draw.normal(size=(4, 3)), np.where(draw.random((4, 4)) < 0.3, ILLEGAL, 0.0)

        totals: dict[str, dict[tuple[int, ...], float]] = {"": {}, "first": {}, "last": {}}
        for path in itertools.product(range(3), repeat=4):
            inner = sum(scores[n, tag] for n, tag in enumerate(path)) + sum(
                transitions[pair] for pair in itertools.pairwise(path)
            )
            first, last = transitions[3, path[0]], transitions[path[-1], 3]
            totals[""][path], totals["first"][path], totals["last"][path] = (
                inner + first + last,
                inner + last,
                inner + first,
            )
        best = {without: max(of_path, key=of_path.__getitem__) for without, of_path in totals.items()}
        assert best_path(scores, transitions) == list(best[""])
        for border in n_decided:
            n_decided[border] += best[border] != best[""]
    assert min(n_decided.values()) > 10


def test_only_transitions_of_a_kind_that_the_training_data_have_are_legal() -> None:
    names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    legal = legal_transitions([["B-PER", "I-PER", "O", "B-LOC", "B-PER"], ["O", "O"]], names) == 0
    states = {name: n for n, name in enumerate([*names, ""])}
    allowed = {(a, b) for a in states for b in states if legal[states[a], states[b]]}
    assert {
        ("B-LOC", "I-LOC"),
        ("", "B-LOC"),
        ("I-LOC", "O"),
        ("B-PER", ""),
    } <= allowed  # of the same kind as one that is there
    assert not {("O", "I-PER"), ("B-PER", "I-LOC"), ("", "I-PER")} & allowed
    assert (legal_transitions([["NOUN", "VERB"]], ["NOUN", "VERB"]) == 0).all()  # which mark no entities


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One. Two.", "One."),
        (" What ?  Yes.", "What ?"),
        ("Version 2.0 is out! Get it.", "Version 2.0 is out!"),
        ('He said "no." Then he left.', 'He said "no."'),
        ("no end", "no end"),
        ("一。二。", "一。"),
    ],
)
def test_first_sentences(text: str, first: str) -> None:
    assert first_sentence(text) == first


def test_lead_and_copy_are_scored_against_the_references(tmp_path: Path) -> None:
    rows = [{"source": f"Text {n}. More of it.", "target": [f"Text {n}.", "other"]} for n in range(12)]
    for name in ("lead", "copy"):
        (tmp_path / name).mkdir()
    lead = measured("lead_sentence", "seq2seq", rows, tmp_path / "lead")
    assert lead["exact_match"] == 1
    assert lead["rouge1"] == pytest.approx(1)
    copied = measured("copied_source", "seq2seq", rows, tmp_path / "copy")
    assert copied["exact_match"] == 0
    assert copied["rouge1"] == pytest.approx(2 * 2 / (5 + 2))  # 5 words, 2 of them in the reference of 2


# N-gram models

V = 5
IDS = np.random.default_rng(0).choice(V - 1, 200, p=[0.5, 0.3, 0.15, 0.05])  # token 4 never occurs


def discounts(counts: list[int]) -> list[float]:
    """Chen and Goodman's, by their equations."""
    n = [sum(count == k for count in counts) for k in range(5)]
    if not (n[1] and n[2]):
        return [0, 0.5, 0.5, 0.5]
    y = n[1] / (n[1] + 2 * n[2])
    found = [
        1 - 2 * y * n[2] / n[1],
        2 - 3 * y * n[3] / n[2] if n[3] else y,
        3 - 4 * y * n[4] / n[3] if n[3] and n[4] else y,
    ]
    return [0, *(min(max(one, 0.05), k) for k, one in enumerate(found, 1))]


class BruteForce:
    """Interpolated modified Kneser-Ney from dictionaries of tuples."""

    def __init__(self, ids: list[int], order: int, vocabulary_size: int = V) -> None:
        self.order, self.vocabulary_size = min(order, len(ids)), vocabulary_size
        self.raw = {
            n: Counter(tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)) for n in range(1, self.order + 1)
        }
        self.before = {
            n: {gram: max(1, len({longer for longer in self.raw[n + 1] if longer[1:] == gram})) for gram in self.raw[n]}
            for n in range(1, self.order)
        }

    def p(self, token: int, history: tuple[int, ...], top: bool = True) -> float:
        n = len(history) + 1
        counts: Any = self.raw[n] if top or n == self.order else self.before[n]
        lower = 1 / self.vocabulary_size if n == 1 else self.p(token, history[1:], top=False)
        mine = {gram: count for gram, count in counts.items() if gram[:-1] == history}
        if not mine:
            return lower
        d, total = discounts(list(counts.values())), sum(mine.values())
        count = mine.get((*history, token), 0)
        freed = sum(d[min(one, 3)] for one in mine.values())
        return (count - d[min(count, 3)]) / total + freed / total * lower


def test_a_text_may_end_with_a_token_that_occurs_once() -> None:
    ids = [0, 1, 0, 2, 1, 3]
    model, brute = NgramModel(np.array(ids), V, 2), BruteForce(ids, 2)
    scored = model.score(np.array([[1, 3]]), np.array([[0, 1]]))
    assert np.exp(scored.log_p[0]) == pytest.approx([brute.p(1, ()), brute.p(3, (1,))], rel=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_the_ngram_model_is_the_brute_force_formula_and_sums_to_one(order: int) -> None:
    model, brute = NgramModel(IDS, V, order), BruteForce(IDS.tolist(), order)
    draw = np.random.default_rng(1)
    for _ in range(40):
        history = draw.integers(0, V, draw.integers(0, order)).tolist()
        rows = np.array([[*history, token] for token in range(V)])
        scored = model.score(rows, np.broadcast_to(np.arange(rows.shape[1]), rows.shape))
        p = np.exp(scored.log_p[:, -1])
        assert p == pytest.approx([brute.p(token, tuple(history)) for token in range(V)], rel=1e-12)
        assert p.sum() == pytest.approx(1, abs=1e-12)
        best = np.flatnonzero(scored.correct[:, -1])
        assert best.tolist() == [p.argmax()] or p[best] == pytest.approx([p.max()])


def test_the_most_probable_token_may_be_one_that_never_followed_the_history() -> None:
    """Every second token is 0, and the others are many: after a rare pair, 0 is more probable than what was seen."""
    size, n_unseen = 40, 0
    ids = np.random.default_rng(0).integers(1, size, 120)
    ids[np.random.default_rng(1).random(120) < 0.5] = 0
    for order in (2, 3):
        model, brute = NgramModel(ids, size, order), BruteForce(ids.tolist(), order, size)
        for history in sorted(brute.raw[order - 1])[::3]:
            rows = np.array([[*history, token] for token in range(size)])
            scored = model.score(rows, np.broadcast_to(np.arange(order), rows.shape))
            p = np.array([brute.p(token, history) for token in range(size)])
            [best] = np.flatnonzero(scored.correct[:, -1])
            assert p[best] == pytest.approx(p.max(), rel=1e-12)
            n_unseen += (*history, int(best)) not in brute.raw[order]
    assert n_unseen > 10


def test_a_history_ends_at_the_row_and_at_the_last_separator() -> None:
    rows = np.array([[7, 1, 2, 0, 3, 4], [0, 1, 0, 0, 1, 2]])
    assert _histories(rows, 0).tolist() == [[0, 1, 2, 3, 1, 2], [0, 1, 2, 1, 1, 2]]
    assert _histories(rows, None).tolist() == [[0, 1, 2, 3, 4, 5]] * 2


def test_shorter_histories_of_a_row_are_the_smaller_model() -> None:
    """A row of 6 tokens: the first is scored as by the model of order 1, the second as by that of order 2, ..."""
    model, row = NgramModel(IDS, V, 4), IDS[None, 50:56]
    histories = np.arange(6)[None]
    for n in range(4):
        smaller = NgramModel(IDS, V, 4).score(row, np.minimum(histories, n)).log_p
        assert smaller[0, n] == model.score(row, histories).log_p[0, n]
        brute = BruteForce(IDS.tolist(), 4)
        assert np.exp(smaller[0, n]) == pytest.approx(brute.p(int(row[0, n]), tuple(row[0, :n].tolist())), rel=1e-12)


def test_the_ngram_baseline_is_the_mean_over_the_models_own_targets(tmp_path: Path) -> None:
    one = fixture(settings_of("baselines", "ngram")(max_order=2), "next_token", ROWS["text"], tmp_path)
    found, data = one.measure(), one.inputs
    order, separator = int(found.name[0]), data.train.vocabulary.separator
    total, n = 0.0, 0
    model = NgramModel(np.asarray(data.train.ids, np.int64), data.train.vocabulary.size, order)
    for number in range(data.val.store.n_documents):  # a row each: the target of the last token is the separator
        ids = np.array([[separator, *data.val.store.document(number), separator]])
        total -= model.score(ids, np.arange(ids.shape[1])[None]).log_p[0, 1:].sum()
        n += ids.shape[1] - 1
    assert found.metrics["loss"] == pytest.approx(total / n)
    assert found.metrics["perplexity"] == pytest.approx(math.exp(total / n))
    assert found.metrics["bits_per_byte"] == pytest.approx(total / math.log(2) / data.val.bytes_of(n))


PLAIN = Vocabulary(V, separator=3)


def neighbours_by_hand(ids: list[int], left: int, right: int) -> list[float]:
    """Witten-Bell interpolation, from lists of all that occurred."""
    seen = [(a, w, b) for a, w, b in zip(ids, ids[1:], ids[2:], strict=False) if w != 3]
    counts = [ids.count(w) if w != 3 else 0 for w in range(V)]
    lowest = [(count + 1) / (sum(counts) + V) for count in counts]

    def interpolated(found: list[int], lower: list[float]) -> list[float]:
        n = len(set(found))
        return [(found.count(w) + n * below) / (len(found) + n) if found else below for w, below in enumerate(lower)]

    of_left, of_right = (
        interpolated([t[1] for t in seen if t[at] == side], lowest) for at, side in ((0, left), (2, right))
    )
    mean = [(a + b) / 2 for a, b in zip(of_left, of_right, strict=True)]
    lower = of_right if left == NONE else of_left if right == NONE else mean
    return interpolated([w for a, w, b in seen if (a, b) == (left, right)], lower)


def test_counts_of_neighbours_are_the_brute_force_formula_and_sum_to_one() -> None:
    model, tokens = NeighbourModel(IDS, PLAIN), np.arange(V)
    for left, right in itertools.product(range(-1, V), repeat=2):
        p = model.probabilities(np.full(V, left), np.full(V, right), tokens)
        assert p == pytest.approx(neighbours_by_hand(IDS.tolist(), left, right), rel=1e-12)
        assert p.sum() == pytest.approx(1, abs=1e-12)


def test_masked_neighbours_are_not_seen(tmp_path: Path) -> None:
    """The losses of two baselines on the masked positions of the model's evaluation, from its batches."""
    one = fixture(settings_of("baselines", "neighbours")(), "masked", ROWS["text"], tmp_path)
    data, total, n, n_correct = one.inputs, 0.0, 0, 0
    ids, mask = np.asarray(data.train.ids, np.int64), data.train.vocabulary.mask
    model = NeighbourModel(ids, data.train.vocabulary)
    for batch in data.batches():
        assert batch.target_positions is not None
        segments = batch.inputs.token_positions and batch.inputs.token_positions.segments
        for at, label in zip(batch.target_positions.tolist(), batch.labels.tolist(), strict=True):
            row, place = divmod(at, batch.inputs.ids.shape[1])
            sides = []
            for beside in (place - 1, place + 1):
                inside = 0 <= beside < batch.inputs.ids.shape[1] and (segments is None or segments[row, beside] != 0)
                token = int(batch.inputs.ids[row, beside]) if inside else NONE
                sides.append(np.array([NONE if token == mask else token]))
            total -= math.log(model.probabilities(*sides, np.array([label]))[0])
            n_correct += int(model.most_frequent(*sides)[0]) == label
            n += 1
    assert n > 30
    found = one.measure()
    assert found.metrics["loss"] == pytest.approx(total / n)
    assert found.metrics["accuracy"] == pytest.approx(n_correct / n)
    assert 0 < n_correct < n
    assert found.note == ""


def test_neighbours_are_tokens_of_the_row_that_are_neither_masks_nor_padding() -> None:
    ids, segments = torch.tensor([[5, 6, 7, 8], [5, 9, 4, 0]]), torch.tensor([[1, 1, 2, 2], [1, 1, 1, 0]])
    inputs, labels = Tokens(ids, TokenPositions.packed(segments)), torch.zeros(8, dtype=torch.long)
    left, right = _visible_neighbours(Batch(inputs, labels), mask=9)
    assert left.tolist() == [NONE, 5, 6, 7, NONE, 5, NONE, 4]
    assert right.tolist() == [6, 7, 8, NONE, NONE, 4, NONE, NONE]


def most_frequent_by_hand(ids: list[int], left: int, right: int) -> int:
    """Between the two neighbours, else after the left one, else of all; of equally frequent ones the first."""
    seen = [(a, w, b) for a, w, b in zip(ids, ids[1:], ids[2:], strict=False) if w != 3]
    both = [w for a, w, b in seen if (a, b) == (left, right)]
    after = [w for a, w, _ in seen if a == left]
    found = both or after or [w for w in ids if w != 3]
    return min(set(found), key=lambda w: (-found.count(w), w))


def test_the_most_frequent_token_between_two_neighbours() -> None:
    ids = np.random.default_rng(2).choice(V, 60)
    model = NeighbourModel(ids, PLAIN)
    for left, right in itertools.product(range(-1, V), repeat=2):
        [found] = model.most_frequent(np.array([left]), np.array([right])).tolist()
        assert found == most_frequent_by_hand(ids.tolist(), left, right)


def test_frequencies_are_those_of_plain_tokens_with_one_added(tmp_path: Path) -> None:
    """A token that is never seen has a probability; special ones, which are no targets, are not counted."""
    frequencies = unigram(np.array([0, 0, 1, 3, 3, 3]), PLAIN)
    assert frequencies.tolist() == pytest.approx([3 / 8, 2 / 8, 1 / 8, 1 / 8, 1 / 8])
    one = fixture(settings_of("baselines", "unigram")(), "masked", ROWS["text"], tmp_path)
    data, found = one.inputs, one.measure().metrics
    vocabulary = data.train.vocabulary
    counts = Counter(id for id in np.asarray(data.train.ids).tolist() if id not in vocabulary.special_ids)
    labels = [label for batch in data.batches() for label in batch.labels.tolist()]
    p = [(counts[label] + 1) / (counts.total() + vocabulary.size) for label in labels]
    assert found["loss"] == pytest.approx(-np.log(p).mean())
    assert found["accuracy"] == pytest.approx(
        np.mean([label == max(counts, key=lambda id: (counts[id], -id)) for label in labels])
    )
    assert "bits_per_byte" not in found


def test_of_many_training_tokens_evenly_spaced_blocks_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_measures, "MOST_TOKENS", 64)
    monkeypatch.setattr(_measures, "BLOCKS", 4)
    data = fixture(settings_of("baselines", "unigram")(), "masked", ROWS["text"], tmp_path).inputs
    ids = np.asarray(data.train.ids).tolist()
    last = len(ids) - 16
    expected = [ids[first : first + 16] for first in (0, last // 3, 2 * last // 3, last)]
    assert _measures.training_ids(data.train).tolist() == [*itertools.chain.from_iterable(expected)]
    note = settings_of("baselines", "unigram")().measure(data).note  # type: ignore[attr-defined]
    assert note == f"from 64 of {data.train.n_tokens:,} training tokens"


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_order_is_the_best_one_on_the_last_tenth(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tokens that follow from none, one or two before them; the tenth is cut into rows, the rest is counted."""
    monkeypatch.setattr(ngram, "CHOICE_ROW", 9)
    draw, ids = np.random.default_rng(order), [1, 2]
    for _ in range(400):
        likely = {1: 0, 2: (ids[-1] + 1) % 4, 3: (ids[-1] + 2 * ids[-2]) % 4}[order]
        ids.append(likely if order > 1 and draw.random() < 0.9 else int(draw.integers(4)))
    n = len(ids) // 10
    held_out = np.array(ids[-(n // 9 * 9) :]).reshape(-1, 9)
    losses = []
    for tried in (1, 2, 3):
        brute = BruteForce(ids[:-n], tried)
        p = [brute.p(row[t], tuple(row[max(0, t - tried + 1) : t])) for row in held_out.tolist() for t in range(9)]
        losses.append(-sum(map(math.log, p)))
    assert ngram._best_order(np.array(ids), V, None, 3) == np.argmin(losses) + 1 == order


def test_of_many_tokens_only_the_last_ones_choose_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of 19 is no row, of 20 it is one."""
    ids = np.random.default_rng(0).integers(0, 4, 40)
    monkeypatch.setattr(ngram, "CHOICE_TOKENS", 20)
    assert ngram._best_order(ids, V, None, 4) != 2
    monkeypatch.setattr(ngram, "CHOICE_TOKENS", 19)
    assert ngram._best_order(ids, V, None, 4) == 2


def test_of_many_examples_a_random_part_is_used_and_counted(tmp_path: Path) -> None:
    rows = [{"text": f"text {n:03}", "label": "ab"[n % 2]} for n in range(300)]
    data = fixture(settings_of("baselines", "tfidf_logistic")(), "classify", rows, tmp_path).inputs
    every = [one.texts for one in data.examples(data.train)]
    assert every == [[f"text {n:03}"] for n in range(200)]
    splits = labelled_splits(data, data.train.raw_bytes // 2)
    used = [one.texts for one in splits.train]
    assert used == [texts for texts in every if texts in used]
    assert abs(len(used) - 100) < 4 * 200**0.5 / 2
    assert splits.note == f"from {len(used)} of 200 training examples"
    assert labelled_splits(data, data.train.raw_bytes).note == ""
    large: Any = SimpleNamespace(labels=(), val=SimpleNamespace(store=SimpleNamespace(raw_bytes=10_000_001)))
    with pytest.raises(NoBaseline, match="the validation texts have more than 10 MB"):
        labelled_splits(large, 10_000_000)


def test_long_texts_are_scored_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"source": f"Text {n}. More of it.", "target": [f"Text {n}.", "other"]} for n in range(90)]
    one = fixture(settings_of("baselines", "lead_sentence")(), "seq2seq", rows, tmp_path)
    assert one.measure().note == ""
    work = sum(len(f"Text {n}.") * (len(f"Text {n}.") + len("other")) for n in range(60, 90)) / 6**2
    monkeypatch.setattr(_measures, "MOST_WORK", work / 3)
    found = one.measure()
    assert found.metrics["exact_match"] == 1
    [scored, total] = re.fullmatch(r"on (\d+) of (\d+) validation examples", found.note).groups()  # type: ignore[union-attr]
    assert int(total) == 30
    assert abs(int(scored) - 10) <= 4 * (30 * 2 / 9) ** 0.5
    monkeypatch.setattr(_measures, "MOST_WORK", 0)
    assert one.measure().note == "on 1 of 30 validation examples"
