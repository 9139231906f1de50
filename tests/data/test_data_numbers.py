"""Numbers that are printed or decided about data, against values by hand, brute force and scikit-learn."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from mini_tf.data import describing
from mini_tf.data.datasets._labelled import class_labels
from mini_tf.data.formats.text_lines import count_bad_bytes
from mini_tf.data.packing import SHORTEST_STREAM, Shape
from mini_tf.data.split import (
    DataSplit,
    ExampleHasher,
    Examples,
    SplitName,
    hash_text,
    hold_out,
    hold_out_fold,
    limit_training,
)
from mini_tf.data.store import Store
from mini_tf.data.tokenization.coverage import Coverage
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.data.windows import Windows
from mini_tf.recipe import sections
from mini_tf.scores.label_scores import log_loss, macro_f1
from mini_tf.scores.text_scores import repeated_share
from mini_tf.system.errors import DataFault

SEP = 2


def store(documents: list[list[int]], raw_bytes: int = 100, size: int = 50) -> Store:
    ids = [SEP, *(id for document in documents for id in (*document, SEP))]
    starts = np.cumsum([0, *(len(document) + 1 for document in documents)])[:-1]
    return Store(None, np.array(ids, np.int64), starts, raw_bytes, True, Vocabulary(size, 0, 1, SEP, 3))


def test_statistics_of_a_store_are_those_of_its_documents() -> None:
    """Lengths without separators, tokens with them."""
    documents = [[5, 5, 1], [6], [7] * 19, [5, 1, 1, 8]]
    found = describing.store_statistics(store(documents, raw_bytes=64))
    assert found == {
        "documents": 4, "tokens": 32, "bytes": 64, "tokens_per_byte": 0.5, "different_tokens": 6, "unknown_tokens": 3,
        "shortest_document": 1, "median_document": 3.5, "95_percent_up_to": pytest.approx(4 + 0.85 * 15),
        "longest_document": 19,
    }  # fmt: skip
    assert describing.length_summary(store(documents)) == "median 3 tokens, 95th percentile 16, maximum 19"
    assert store(documents).token_counts().tolist() == [
        np.bincount(store(documents).ids, minlength=50)[id] for id in range(50)
    ]


def test_documents_on_both_sides_are_counted_once_each() -> None:
    assert describing.n_shared_documents(store([[5, 6], [5], [7]]), store([[7], [7], [5, 6], [6, 5], [8]])) == 2


def test_columns_are_as_wide_as_their_names_and_numbers_as_people_write_them() -> None:
    assert describing.format_columns({"train": {"a": 1234, "longer": 0.5}, "val": {"a": 5, "longer": 12345.678}}) == [
        *("              train          val", "a             1,234            5", "longer          0.5    1.235e+04")
    ]


UNKNOWN = dict(zip("abcdefg", (7, 6, 5, 4, 3, 2, 1), strict=True))


@pytest.mark.parametrize(
    ("sampled", "decoded", "replaced", "notes"),
    [
        (
            99,
            79,
            20,
            "loses 20% of the characters; use more text: the 99 characters",
        ),  # of a short text a fifth at most is unknown
        (95, 76, 19, []),
        (100, 80, 20, []),
        (100, 20, 80, []),
        (100, 19, 81, "loses 81% of the characters; use a tokenizer trained on such text"),
        (1000, 799, 0, "loses 20% of the characters; use a tokenizer"),
        (1000, 800, 0, ["the tokenizer drops about 20.0% of the characters"]),
        (1000, 500, 300, ["the tokenizer drops about 20.0% of the characters"]),
        (1000, 998, 0, ["the tokenizer drops about 0.2% of the characters"]),
        (10_000, 9_990, 0, []),
        (0, 0, 0, []),
    ],
)
def test_a_tokenizer_may_lose_so_much_and_no_more(sampled: int, decoded: int, replaced: int, notes: Any) -> None:
    coverage = Coverage(Tokenizer.train(sections.Tokenizer(kind="char"), ["a"]))
    coverage.add({"unknown": {}, "characters": [sampled // 2, decoded // 2, replaced // 2]})
    coverage.add(
        {"unknown": {}, "characters": [sampled - sampled // 2, decoded - decoded // 2, replaced - replaced // 2]}
    )
    if isinstance(notes, list):
        assert coverage.notes() == notes
        return
    with pytest.raises(DataFault) as refusal:
        coverage.notes()
    assert f"{refusal.value.message}; {refusal.value.hint}".startswith(f"the tokenizer {notes}")


@pytest.mark.parametrize("n", [1, 5, 6, 7])
def test_the_most_frequent_unknown_characters_are_named(n: int) -> None:
    coverage = Coverage(Tokenizer.train(sections.Tokenizer(kind="char"), ["x"]))
    named = dict([*UNKNOWN.items()][:n])
    coverage.add({"unknown": named, "characters": [1000, 1000, 0]})
    listed = ", ".join(f"'{name}' {count} times" for name, count in [*named.items()][:5])
    rest = f" and {n - 5} others" if n > 5 else ""
    assert coverage.notes() == [
        f"{sum(named.values())} characters are not in the vocabulary and become the unknown token: {listed}{rest}"
    ]


def test_unknown_words_are_no_characters() -> None:
    coverage = Coverage(Tokenizer.train(sections.Tokenizer(kind="char"), ["x"]))
    coverage.add({"unknown": {"Great": 2}, "characters": [1000, 1000, 0]})
    assert coverage.notes() == ["2 words are not in the vocabulary and become the unknown token: 'Great' 2 times"]
    coverage.add({"unknown": {"é": 1}, "characters": [1000, 1000, 0]})
    assert coverage.notes()[0].startswith("3 words and characters are not in the vocabulary")


def test_more_classes_than_half_of_the_labels_are_none() -> None:
    """Up to 20 there may always be."""
    many = [f"l{n}" for n in range(21)]
    assert len(class_labels([[name] for name in many * 2], None).names) == 21
    with pytest.raises(DataFault, match="21 different labels among 41: their column does not seem to be the label"):
        class_labels([[name] for name in [*many, *many[:20]]], None)
    assert len(class_labels([[name] for name in many[:20]], None).names) == 20
    assert class_labels([[name] for name in [*many, *many[:20]]], many).counts == (2,) * 20 + (1,)
    assert class_labels([["\u0662"], ["10"]], None).names == ("10", "\u0662")


def test_sentences_are_no_labels_but_names_of_several_words_are() -> None:
    names = [f"transfer of money {n}" for n in range(12)]
    assert len(class_labels([[name] for name in [*names, *names[:6]]], None).names) == 12
    with pytest.raises(DataFault, match="12 different labels among 18") as refused:
        class_labels([[f"{name} did not arrive"] for name in [*names, *names[:6]]], None)
    assert "regress" not in str(refused.value.hint)
    with pytest.raises(DataFault) as refused:
        class_labels([[f"{n / 8}"] for n in range(40)], None)
    assert str(refused.value.hint).startswith("numbers are predicted by objective.kind=regress; else set 'data.fields")


@pytest.mark.parametrize(("n_rows", "streams"), [(1, 3), (31, 3), (48, 3), (100, 4), (101, 1), (101, 7)])
@pytest.mark.parametrize("batch_size", [1, 2, 8])
@pytest.mark.parametrize("tokens", [None, 90])
def test_rows_of_streams_continue_the_rows_before_them(
    n_rows: int, streams: int, batch_size: int, tokens: int | None
) -> None:
    """Every row once, in runs of successive rows; the last row of all is shorter. Ids tell which row it is."""
    context, last = 5, 3
    ids = np.arange((n_rows - 1) * context + last + 1)
    windows = Windows(Store(None, ids, np.array([0]), 1, False, Vocabulary(1000)), Shape(context, 1, streams=streams))
    n_streams = max(1, min(streams, n_rows // SHORTEST_STREAM))
    starts = {n * n_rows // n_streams for n in range(n_streams)}
    seen, before = list[int](), list[int]()
    for batch in windows.eval_batches(batch_size, tokens):
        rows = (batch.rows.ids[:, 0] // context).tolist()
        assert batch.rows.ids.shape[1] == (last if rows[0] == n_rows - 1 else context) + 1
        seen += rows
        if batch.continues is None:
            assert {*rows} <= starts
        else:
            assert [before[n] for n in batch.continues] == [row - 1 for row in rows]
        if not batch.ends:
            before = rows
    assert Counter(seen).most_common(1)[0][1] == 1
    runs = zip(sorted(starts), [*sorted(starts)[1:], n_rows], strict=True)
    share = 1.0 if tokens is None else min(1.0, tokens / (len(ids) - 1))
    assert sorted(seen) == [
        row for first, end in runs for row in range(first, first + int(np.ceil(share * (end - first))))
    ]


@pytest.mark.parametrize("seed", range(3))
def test_scores_without_scikit_learn_are_those_of_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    truth, predicted = random.integers(0, 4, (2, 40))
    assert macro_f1(truth, predicted, 6) == pytest.approx(metrics.f1_score(truth, predicted, average="macro"))
    probabilities = random.dirichlet(np.ones(4), 40)
    assert log_loss(probabilities, truth) == pytest.approx(metrics.log_loss(truth, probabilities, labels=range(4)))


def test_the_log_loss_of_an_impossible_class_is_finite() -> None:
    assert log_loss(np.array([[0.0, 1.0]]), np.array([0])) == pytest.approx(-np.log(np.finfo(float).tiny))


def test_repeated_ngrams_are_those_that_were_there_before_in_their_text() -> None:
    texts = [[*"ababa"], [*"cab"], [], ["d"]]
    assert repeated_share(texts, 1) == pytest.approx(3 / 9)
    assert repeated_share(texts, 2) == pytest.approx(2 / 6)
    assert repeated_share(texts, 3) == pytest.approx(1 / 4)
    assert repeated_share(texts, 5) == 0
    assert repeated_share(texts, 6) is None


def test_bytes_that_are_not_utf8_are_counted_one_by_one(tmp_path: Path) -> None:
    """A replacement character of the text itself is none."""
    file = tmp_path / "a.txt"
    file.write_bytes("é\ufffd\n".encode() + b"\xff\xfe ok \xe2\x82\n" + "\ufffd".encode() + b"\x80\n\xf0\x9f\x99")
    assert count_bad_bytes(file, "a") == 2 + 2 + 1 + 3


@pytest.mark.parametrize("n", [2, 9, 10, 40])
@pytest.mark.parametrize("share", [1e-9, 0.5, 1 - 1e-9])
def test_a_share_is_held_out_by_hash_and_of_fewer_than_ten_the_last(n: int, share: float) -> None:
    """At least the smallest hash is held out, and at least the largest is not."""
    texts = [f"text {i}" for i in range(n)]
    found = hold_out(Examples.of(lambda: iter(texts + texts)), ExampleHasher(str, len), share)
    held_out = [text for split, text in found.read() if split == "val"]
    hashes = sorted(map(hash_text, texts))
    if n < 10:
        assert held_out == [texts[-1]] * 2
        assert found.notes == ("fewer than 10 different examples: the last one is the validation data",)
    else:
        expected = [
            text
            for text in texts
            if hash_text(text) == hashes[0] or (hash_text(text) < share * 2**64 and hash_text(text) != hashes[-1])
        ]
        assert (held_out, found.notes) == (expected * 2, ())
        assert 0 < len(expected) < n
    assert found.characters == 2 * sum(map(len, texts))


@pytest.mark.parametrize("n", [1, 4, 5, 7, 29, 30, 31])
def test_a_number_of_training_examples_has_the_smallest_ranks(n: int) -> None:
    """The ranks are of another hash than the split's; of equal examples the first ones are taken."""
    train, val = [f"text {i % 20}" for i in range(30)], ["held out", "text 3"]
    splits: list[tuple[SplitName, str]] = [*(("train", text) for text in train), *(("val", text) for text in val)]
    found = limit_training(DataSplit.in_one_part(lambda: iter(splits), 99, ("before",)), ExampleHasher(str, len), n)
    ranks = {text: hash_text(f"max_train_samples\0{text}") for text in train}
    chosen = sorted(sorted(range(30), key=lambda i: (ranks[train[i]], i))[:n])
    assert [text for split, text in found.read() if split == "train"] == [train[i] for i in chosen]
    assert [text for split, text in found.read() if split == "val"] == val
    assert found.notes == (
        "before",
        *((f"data.max_train_samples {n}: there are 30 training examples",) if n >= 30 else ()),
    )
    assert found.characters == (99 if n >= 30 else sum(len(train[i]) for i in chosen) + sum(map(len, val)))


@pytest.mark.parametrize("fold", [1, 2, 3])
def test_folds_deal_the_examples_of_each_class_in_turn(fold: int) -> None:
    """By the hash; a text of several classes belongs to the first one by name."""
    classes = {f"text {i}": [*("ab" if i % 5 == 0 else "b" if i % 3 else "c")] for i in range(40)}
    examples = [(text, label) for text, labels in classes.items() for label in labels[::-1]]
    hasher = ExampleHasher(lambda one: one[0], lambda one: 1, stratum=lambda one: one[1])
    found = hold_out_fold(Examples.of(lambda: iter(examples)), hasher, 3, fold)
    dealt = sorted(classes, key=lambda text: (min(classes[text]), hash_text(text)))[fold - 1 :: 3]
    assert [one for split, one in found.read() if split == "val"] == [one for one in examples if one[0] in dealt]
