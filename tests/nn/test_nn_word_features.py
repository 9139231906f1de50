"""Wide features of words: the words of token ids, and outputs from a brute-force list of features as strings."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tiny_tasks
import torch
from commands import minitf
from toys import seeded

from mini_tf.data.tokenization.vocabulary import shape, word_keys, words_at
from mini_tf.nn.layers.word_characters import WordFeatures
from mini_tf.trained.evaluating import evaluation_data
from mini_tf.trained.opening import open_trained
from mini_tf.training.evaluation import pack

ROWS = 1_000_003
TEXTS = (("The", "U.S.", "bank", "of", "the", "bank"), ("I",), ("in", "NEW", "York", "2024"), ("new", "York"))
WORDS = [word for text in TEXTS for word in text]
LENGTH = 16
AT = torch.tensor([row * LENGTH + 1 + 2 * n for row, text in enumerate(TEXTS) for n in range(len(text))])
"""Every other token begins a word."""
WIDE = "objective.wide={unit: word, rows: 4096, scale: 6}"


def outputs(
    features: WordFeatures, at: torch.Tensor = AT, words: list[str] = WORDS, n_affixes: int = 2
) -> torch.Tensor:
    ids = torch.zeros(len(TEXTS), LENGTH, dtype=torch.long)
    return features(ids, torch.ones_like(ids, dtype=torch.bool), at, torch.tensor(word_keys(words, n_affixes)))


def features_of(
    text: tuple[str, ...], at: int, order: int, window: int, n_affixes: int
) -> Iterator[tuple[object, ...]]:
    """The features of a word as the docstrings describe them; None: outside the text."""

    def word(offset: int) -> str | None:
        return text[at + offset].lower() if 0 <= at + offset < len(text) else None

    def form(offset: int) -> str | None:
        return shape(text[at + offset]) if 0 <= at + offset < len(text) else None

    for offset in range(-window, window + 1):
        yield "word", offset, word(offset)
        yield "shape", offset, form(offset)
        for n, is_prefix in product(range(1, n_affixes + 1), (True, False)):
            if abs(offset) <= 1:
                whole = word(offset)
                yield "affix", offset, n, is_prefix, None if whole is None else whole[:n] if is_prefix else whole[-n:]
    for n in range(2, order + 1):
        for first in range(-n + 1, 1):
            if first >= -window and first + n - 1 <= window:
                yield "words", first, *map(word, range(first, first + n))
                yield "shapes", first, *map(form, range(first, first + n))


@pytest.mark.parametrize(("order", "window", "n_affixes"), [(1, 0, 0), (1, 0, 2), (2, 1, 1), (3, 2, 4), (9, 1, 2)])
def test_each_feature_of_a_word_has_a_weight_of_its_own(order: int, window: int, n_affixes: int) -> None:
    """Two words share as much of their gradients as they share features."""
    features = WordFeatures(16, order, ROWS, 3.0, 1, window).double()
    named = [set(features_of(text, at, order, window, n_affixes)) for text in TEXTS for at in range(len(text))]
    sizes = {len(one) for one in named}
    assert len(sizes) == 1, "every word has the same number of features, so unit length is one number"
    rows = []
    for output in outputs(features, n_affixes=n_affixes):
        features.zero_grad()
        output.sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
        grad = features.weights.weight.grad
        assert grad is not None
        rows.append({int(row): float(grad[row]) for row in grad.nonzero()[:, 0].unique()})
    found = [[sum(one[row] * other.get(row, 0.0) for row in one) for other in rows] for one in rows]
    expected = [[9.0 * len(one & other) / next(iter(sizes)) for other in named] for one in named]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_other_texts_of_a_batch_change_nothing() -> None:
    features = WordFeatures(16, 3, 10_007, 3.0, 4, 2).double()
    features.weights.weight.data = seeded(10_007, 4)
    whole, first = outputs(features), 0
    for text in TEXTS:
        span = slice(first, first + len(text))
        torch.testing.assert_close(outputs(features, AT[span], list(text)), whole[span])
        first += len(text)
    assert outputs(WordFeatures(16, 3, 64, 3.0, 4, 2)).eq(0).all(), "the weights are 0 at first"


def test_words_end_where_the_next_one_the_row_or_the_text_ends() -> None:
    texts = (" ", " New", "Yo", " rk", "!", " (a")
    ids = np.array([[0, 1, 2, 3, 4, 0, 1, 1], [0, 5, 4, 1, 2, 3, 4, 0]])
    is_token = np.array([[True] * 6 + [False] * 2, [True] * 8])
    assert words_at(ids, is_token, np.array([1, 2, 4, 9, 11]), texts) == ["New", "York", "!", "(a!", "NewYork!"]


def test_a_run_sees_the_words_of_its_data_and_predicts_what_it_is_evaluated_on(tmp_path: Path) -> None:
    data = f"data={{train: '{tiny_tasks.names(tmp_path / 'names.conll')}', split: 20%}}"
    adagrad = "optimizer={features_lr: 0.1, features_eps: 1e-4}"
    words_in_pieces = ("tokenizer={kind: wordpiece, vocab_size: 120}", "train={context: 80, steps: 6}")
    run = tiny_tasks.task(tmp_path, data, "objective.kind=tag", *words_in_pieces, WIDE, adagrad)
    trained = open_trained(str(run), None, "cpu")
    store = evaluation_data(trained, None, "val")
    task, seen, found = trained.task().eval(), list[str](), list[list[float]]()
    for rows in pack(trained.recipe, store, trained.tokenizer, trained.objective).eval_rows(4):
        assert rows.labels is not None
        at = np.flatnonzero(~np.isnan(rows.labels))
        words = words_at(rows.ids, np.ones_like(rows.ids, dtype=bool), at, trained.tokenizer.vocabulary.texts)
        probabilities = task(trained.objective.prepare(rows), None).outputs.softmax(-1).amax(1).tolist()
        for row in range(len(rows.ids)):
            own = np.flatnonzero(at // rows.ids.shape[1] == row)
            seen.append(" ".join(words[n] for n in own))
            found.append([probabilities[n] for n in own])
    assert len(seen) == store.n_documents
    assert set(seen) <= {" ".join(words) for words, _ in tiny_tasks.NAMES}
    predicted = minitf("predict", run, "--top", "1", *seen)
    assert predicted.exit_code == 0, predicted.stderr
    scores = [[top[0]["score"] for top in json.loads(line)["top"]] for line in predicted.stdout.splitlines()]
    np.testing.assert_allclose(scores, found, atol=1e-4)
