"""Rows of labelled examples: every dataset at contexts short and long, what is cut and what is asked, in batches and
one by one.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from data_of import both, dataset_of, objective_for
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import ASSISTANT, Example, Labels
from mini_tf.data.packing import Packing, Shape, _opened
from mini_tf.data.store import in_memory
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe import sections
from mini_tf.recipe.sections import Train
from mini_tf.system.errors import DataFault
from mini_tf.training.feed import Feed
from mini_tf.training.plan import RowPlan, TokenPlan, make_plan

CHAR = Tokenizer.train(sections.Tokenizer(kind="char"), ["abcdefgh "])
SEP = CHAR.vocabulary.separator
CONTEXTS = [4, 8, 9, 13, 40]
FORMS = ["classes", "two texts", "numbers", "tags", "chats"]
DATASETS = {"two texts": "classes"}
TAGS = Labels(("A", "B", "C"), (1, 1, 1))


def some_examples(form: str, n: int = 40, longest: int = 30) -> list[Example]:
    draw = np.random.default_rng(len(form))

    def text(most: int = longest) -> str:
        return "".join(draw.choice(list("abcdefgh"), draw.integers(1, most + 1)))

    def example(number: int) -> Example:
        where = f"f:{number}"
        if form == "tags":
            words = [text(3 if number % 5 else longest) for _ in range(draw.integers(1, 9))]
            return Example(words, draw.choice(TAGS.names, len(words)).tolist(), where)
        if form == "chats":
            who = [*draw.choice(["user", ASSISTANT], draw.integers(0, 3)), ASSISTANT]
            return Example([text(10) for _ in who], list(map(str, who)), where)
        answer = str(draw.normal()) if form == "numbers" else str(draw.choice(TAGS.names))
        return Example([text() for _ in range(2 if form == "two texts" else 1)], [answer], where)

    return [example(number) for number in range(n)]


@cache
def labelling(form: str, context: int) -> Packing:
    labels = Labels(mean=0.5, scale=2.0) if form == "numbers" else Labels() if form == "chats" else TAGS
    labels = replace(labels, n_texts=2) if form == "two texts" else labels
    return packed(form, some_examples(form), labels, context)


def packed(form: str, examples: list[Example], labels: Labels, context: int) -> Packing:
    dataset, used = dataset_of(DATASETS.get(form, form)), both(CHAR)
    return dataset.packing(
        in_memory(dataset.encode(examples, used, labels), used), Shape(context, int(form == "chats"))
    )


def objective_of(form: str) -> Any:
    labels = Labels(mean=0.5, scale=2.0) if form == "numbers" else TAGS
    return objective_for(DATASETS.get(form, form)).build(CHAR.vocabulary, labels)


Row = tuple[list[int], list[float | None]]
"""Ids and labels of a row without its padding."""


def whole(example: Example, form: str) -> Row:
    """An example between its separators, with what is asked at each, put together by hand; every character is a
    token.
    """
    ids: list[int] = [SEP]  # type: ignore[list-item]
    labels: list[float | None] = [None]
    if form in ("classes", "two texts"):
        labels = [float(TAGS.names.index(example.labels[0]))]
    if form == "numbers":
        labels = [float(np.float32((float(example.labels[0]) - 0.5) / 2.0))]
    if form == "tags":
        for word, tag in zip(example.texts, example.labels, strict=True):
            blank = " " if len(ids) > 1 else ""
            ids += CHAR.encode(blank + word).tolist()
            labels += [*[None] * len(blank), float(TAGS.names.index(tag)), *[None] * (len(word) - 1)]
        return [*ids, SEP], [*labels, None]  # type: ignore[list-item]
    for who, text in zip(example.labels if form == "chats" else [""] * 2, example.texts, strict=False):
        ids += [*CHAR.encode(text).tolist(), SEP]  # type: ignore[list-item]
        labels += [1.0 if who == ASSISTANT else None] * (len(text) + 1)
    return ids, labels


def unpadded(rows: Rows) -> list[Row]:
    told = rows.labels
    if told is None:  # a label of the whole row is compared as that of its first separator
        assert rows.row_labels is not None
        told = np.full(rows.ids.shape, np.nan)
        told[:, :1] = rows.row_labels
    segments = np.ones_like(rows.ids) if rows.segments is None else rows.segments
    assert set(np.unique(segments)) <= {0, 1}
    assert (np.diff(segments, axis=1) <= 0).all()  # what is padded stands on the right
    assert np.isnan(told[segments == 0]).all()
    assert (rows.ids[segments == 0] == 0).all()
    found = []
    for ids, labels, real in zip(rows.ids, told, segments == 1, strict=True):
        found.append((ids[real].tolist(), [None if np.isnan(one) else float(one) for one in labels[real]]))
    return found


def every_row(form: str, context: int, batch_size: int = 7) -> list[Row]:
    return [row for rows in labelling(form, context).eval_rows(batch_size) for row in unpadded(rows)]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("form", ["classes", "numbers"])
def test_what_is_too_long_for_its_class_loses_its_end(form: str, context: int) -> None:
    expected = []
    for ids, labels in (whole(one, form) for one in some_examples(form)):
        cut = len(ids) > context
        expected.append(([*ids[: context - 1], SEP], [*labels[: context - 1], None]) if cut else (ids, labels))
    assert every_row(form, context) == expected


@pytest.mark.parametrize("context", [5, 6, *CONTEXTS[1:]])
def test_of_two_texts_the_longer_one_loses_its_end_first_and_both_are_there(context: int) -> None:
    """Token by token, as BERT takes them away."""
    expected = []
    for example in some_examples("two texts"):
        one, other = (CHAR.encode(text).tolist() for text in example.texts)
        while len(one) + len(other) + 3 > context:
            (one if len(one) > len(other) else other).pop()
        assert one
        assert other
        labels = [float(TAGS.names.index(example.labels[0])), *[None] * (len(one) + len(other) + 2)]
        expected.append(([SEP, *one, SEP, *other, SEP], labels))
    assert every_row("two texts", context) == expected


def test_a_row_that_asks_for_nothing_is_left_out_and_a_store_of_such_is_refused() -> None:
    said = [("hello", "user"), ("yes", ASSISTANT)]
    trailing = Example([*(text for text, _ in said), "a" * 30], [*(who for _, who in said), "user"], "f:1")
    whole = Example([text for text, _ in said], [who for _, who in said], "f:2")
    packing = packed("chats", [trailing, whole, trailing], Labels(), 12)
    [rows] = packing.eval_rows(5)
    assert (packing.n_rows, rows.examples.tolist() if rows.examples is not None else None) == (1, [1])
    with pytest.raises(DataFault, match="none of 1 examples has a target within 12 tokens"):
        packed("chats", [trailing], Labels(), 12)


@pytest.mark.parametrize("form", FORMS)
def test_a_row_says_which_example_it_is_a_part_of(form: str) -> None:
    packing = labelling(form, 13)
    found = [rows.slice(0, len(rows)).examples for rows in packing.eval_rows(7)]
    told = np.concatenate([one for one in found if one is not None])
    assert told.dtype == np.int64
    assert told.tolist() == [int(n) for row in range(packing.n_rows) for n in packing.documents(np.array([row]), 0)]
    assert set(told.tolist()) == set(range(40))
    assert (len(told) > 40) == (form == "tags")


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_conversation_that_is_too_long_loses_its_beginning_and_keeps_its_separators(context: int) -> None:
    expected = []
    for ids, labels in (whole(one, "chats") for one in some_examples("chats")):
        cut = len(ids) > context + 1  # the last separator is asked for, but not read
        expected.append(([SEP, *ids[-context:]], [None, *labels[-context:]]) if cut else (ids, labels))
    assert every_row("chats", context) == expected


@pytest.mark.parametrize("context", [3, *CONTEXTS])
def test_every_word_is_asked_for_once_whatever_the_context(context: int) -> None:
    """And each row is some of its example's ids in their order, between two separators, begun at a word unless a word
    is too long.
    """
    packing, rows = labelling("tags", context), every_row("tags", context)
    for number, example in enumerate(some_examples("tags")):
        ids, labels = whole(example, "tags")
        own = [row for n, row in enumerate(rows) if packing.documents(np.array([n]), 0).tolist() == [number]]
        assert [label for row in own for label in row[1] if label is not None] == [
            label for label in labels if label is not None
        ]
        place = 1
        for read, asked in own:
            assert len(read) <= context
            assert (read[0], read[-1], asked[0], asked[-1]) == (SEP, SEP, None, None)
            assert any(label is not None for label in asked)
            while (
                asked[1:-1] != labels[place : place + len(read) - 2] or read[1:-1] != ids[place : place + len(read) - 2]
            ):
                assert labels[place] is None  # only the rest of a long word is left out
                place += 1
            place += len(read) - 2
        assert all(label is None for label in labels[place:])
    if context == 40:
        assert len(rows) > 40  # some are cut even so


def test_no_short_word_is_torn_where_there_is_room_for_it() -> None:
    text = packed("tags", [Example(["abc"] * 30, ["A"] * 30, "f:1")], TAGS, 14)
    rows = [row for batch in text.eval_rows(4) for row in unpadded(batch)]
    assert [CHAR.decode(ids).split() for ids, _ in rows] == [["abc"] * 3] * 10
    assert all(asked[1] == 0.0 for _, asked in rows)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("form", FORMS)
def test_sizes_are_those_of_the_rows(form: str, context: int) -> None:
    packing, rows = labelling(form, context), every_row(form, context)
    lookahead = int(form == "chats")
    lengths = [len(ids) - lookahead for ids, _ in rows]
    assert objective_of(form).lookahead == lookahead
    assert packing.lengths.tolist() == lengths
    assert max(lengths) <= context
    assert packing.row_tokens == pytest.approx(np.mean(lengths))
    wholes = [len(whole(one, form)[0]) - lookahead for one in some_examples(form)]
    assert packing.n_too_long == sum(one > context for one in wholes)
    assert (dataset_of(DATASETS.get(form, form)).TRUNCATES is None) == (form == "tags")


# Through the plans to questions


def feed_of(form: str, plan: RowPlan | TokenPlan, context: int = 13, micro: int = 4) -> Feed:
    return Feed(plan, labelling(form, context), objective_of(form).prepare, micro)


def judged(batches: list[Batch]) -> list[float]:
    return sorted(label for batch in batches for label in batch.labels.tolist())


@pytest.mark.parametrize("form", FORMS)
def test_an_epoch_asks_for_every_label_once_by_either_plan(form: str) -> None:
    packing = labelling(form, 13)
    everything = judged([feed_of(form, RowPlan(1, 1, 0)).prepare(rows) for rows in packing.eval_rows(9)])
    assert len(everything) == sum(label is not None for _, labels in every_row(form, 13) for label in labels)
    for plan in (
        make_plan(Train(batch_tokens=64, context=13, steps=1), packing),
        make_plan(Train(batch_size=5, context=13, steps=1), packing),
    ):
        assert isinstance(plan, RowPlan | TokenPlan)
        n_rows = packing.n_rows if plan.even else int(plan.epoch_steps)
        feed = feed_of(form, plan)
        epoch = [
            batch for step in range(n_rows) for batch in feed.micro_batches(step)
        ]  # of a RowPlan as many epochs as rows a step
        assert judged(epoch) == sorted(everything * (5 if plan.even else 1))
        if not plan.even:
            rows = [plan.rows(step).rows for step in range(n_rows)]
            assert all(len(one) * int(packing.lengths[one].max()) <= 64 for one in rows)


@settings(deadline=None, max_examples=25)
@given(form=st.sampled_from(FORMS), batch_size=st.integers(1, 50), step=st.integers(0, 6))
def test_a_step_that_reaches_into_the_next_epoch_has_the_rows_of_both(form: str, batch_size: int, step: int) -> None:
    packing = labelling(form, 13)
    plan = RowPlan(packing.n_rows, batch_size, seed=1)
    got: list[Rows] = []
    Feed(
        plan, packing, lambda rows: (got.append(rows), feed_of(form, plan).prepare(rows))[1], batch_size
    ).micro_batches(step)
    chosen, rows = plan.rows(step), every_row(form, 13)
    [joined] = got
    assert unpadded(joined) == [rows[n] for n in chosen.rows]
    np.testing.assert_array_equal(joined.keys, chosen.keys)


@pytest.mark.parametrize("before", [(), (8, 9)], ids=["none", "two"])
def test_tokens_that_a_template_puts_before_a_text_have_no_label(before: tuple[int, ...]) -> None:
    """In place of the first column, which is for one such token."""
    labels = np.array([[np.nan, 0.0, 1.0]], np.float32)
    rows = Rows(np.array([[2, 5, 6]]), np.zeros(1, np.uint64), np.array([[1, 1, 1]]), labels=labels)
    opened = _opened(rows, before)
    assert opened.ids.tolist() == [[*before, 5, 6]]
    assert opened.segments is not None
    assert opened.segments.tolist() == [[1] * (len(before) + 2)]
    np.testing.assert_array_equal(opened.labels, [[*[np.nan] * len(before), 0.0, 1.0]])
