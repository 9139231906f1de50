"""Labelled examples in their stores: what is kept and found again, who is held out, which column a fault is in, and the
summary.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import data_of
import numpy as np
import pytest
from data_of import dataset_of, encoded, write_table

from mini_tf.data.datasets import TokenizedData
from mini_tf.data.examples import Example
from mini_tf.data.split import hash_text
from mini_tf.data.store import Store
from mini_tf.recipe import sections
from mini_tf.recipe.data import Data, Split
from mini_tf.system.errors import DataFault

BYTE = sections.Tokenizer(kind="byte")
STARS = ["1", "2", "10"]
REVIEWS = [{"id": str(n), "review": f"film number {n} was seen", "stars": STARS[n % 3]} for n in range(60)]
FIELDS = {"text": "review", "label": "stars"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))


def table(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    return str(write_table(path, rows))


def opened(
    file: object, dataset: str = "classes", said: Any = None, wanted: Sequence[str] = (), **given: Any
) -> TokenizedData:
    data = Data(train=file, **{"fields": FIELDS} | given)  # type: ignore[arg-type]
    settings = {"labels": tuple(wanted)} if wanted else {}
    return data_of.opened(data, BYTE, dataset, (said if said is not None else []).append, **settings)


def refusal(file: object, dataset: str = "classes", **given: Any) -> str:
    with pytest.raises(DataFault) as caught:
        opened(file, dataset, **given)
    assert caught.value.exit_code == 4
    assert "\n" not in caught.value.message
    return f"{caught.value.message} ({caught.value.hint})"


def raw(store: Store) -> list[tuple[list[str], list[str]]]:
    return [(one.texts, one.labels) for one in written(store)]


def written(store: Store) -> list[Example]:
    """As all labelled data keep them."""
    return list(dataset_of("classes").examples(store))


def both(text: TokenizedData) -> list[tuple[list[str], list[str]]]:
    return raw(text.train) + raw(text.val)


def same(one: Store, other: Store) -> None:
    for name in ("ids", "starts", "labels", "row_labels"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


# What is kept


def test_every_example_is_kept_as_it_was_written_on_one_side(tmp_path: Path) -> None:
    text = opened(table(tmp_path / "a.csv", REVIEWS))
    assert sorted(both(text)) == sorted(([row["review"]], [row["stars"]]) for row in REVIEWS)
    for store in (text.train, text.val):
        for number, (texts, [label]) in enumerate(raw(store)):
            assert text.tokenizer.decode(store.document(number)) == texts[0]
            assert store.row_labels is not None
            assert text.labels is not None
            assert text.labels.names[int(store.row_labels[number, 0])] == label
        assert store.labels is None


def test_other_labels_of_the_same_texts_are_other_data(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", REVIEWS)
    first, again = opened(file), opened(file)
    assert (again.hashes, again.labels, both(again)) == (first.hashes, first.labels, both(first))
    same(first.train, again.train)
    others = [
        opened(table(tmp_path / "b.csv", [row | {"stars": "1"} if row["id"] == "5" else row for row in REVIEWS])),
        opened(file, wanted=("10", "2", "1")),
        opened(file, "numbers"),
        opened(file, fields={"text": "review", "label": "id"}, dataset="numbers"),
        # The same ids and labels in other words.
        opened(table(tmp_path / "c.csv", [row | {"stars": f"{row['stars']} stars"} for row in REVIEWS])),
        opened(table(tmp_path / "d.csv", [row | {"stars": str(2 * int(row["stars"]))} for row in REVIEWS]), "numbers"),
    ]
    assert len({first.hashes["data"], *(other.hashes["data"] for other in others)}) == 1 + len(others)


@pytest.mark.parametrize("name", ["train.row_labels", "train.ids", "train.starts"])
def test_a_store_whose_file_is_cut_says_so_instead_of_dying(name: str, tmp_path: Path) -> None:
    text = opened(table(tmp_path / "a.csv", REVIEWS))
    text.train.check()
    assert text.train.path is not None
    text.train.path.with_name(name).write_bytes(b"")
    with pytest.raises(DataFault, match=f"{name} changed during training"):
        text.train.check()


# The classes


def test_classes_are_those_of_the_training_side_in_the_order_of_their_values_or_of_the_recipe(tmp_path: Path) -> None:
    file = table(tmp_path / "a.csv", REVIEWS)
    text = opened(file)
    counted = [sum(label == [name] for _, label in raw(text.train)) for name in STARS]
    assert (text.labels.names, list(text.labels.counts)) == (tuple(STARS), counted)
    ordered = opened(file, wanted=("10", "1", "2", "none"))
    assert (ordered.labels.names, list(ordered.labels.counts)) == (
        ("10", "1", "2", "none"),
        [counted[2], counted[0], counted[1], 0],
    )
    assert raw(ordered.train) == raw(text.train)
    order = [1, 2, 0]
    asked = [np.asarray(store.row_labels)[:, 0] for store in (text.train, ordered.train)]
    assert [order[int(label)] for label in asked[0]] == asked[1].astype(int).tolist()


def test_a_label_that_is_not_learnt_is_refused_with_its_line(tmp_path: Path) -> None:
    train = table(tmp_path / "a.csv", REVIEWS)
    val = table(tmp_path / "b.csv", [{"review": "good", "stars": "2"}, {"review": "strange", "stars": "22"}])
    assert refusal(train, val=val).startswith(f"{val}:3: the label '22' is not one of the classes (did you mean '2'?")
    assert refusal(train, wanted=("1", "2")).startswith(f"{train}:4: the label '10' is not one of the classes")
    text = opened(train)
    with pytest.raises(DataFault, match=r"b\.csv:3: the label '22' is not one of"):
        encoded(Data(train=val, fields=FIELDS), text.tokenizers, "classes", text.labels)


def test_numbers_are_standardised_by_the_training_side_alone(tmp_path: Path) -> None:
    text = opened(table(tmp_path / "a.csv", REVIEWS), "numbers")
    values = np.array([float(label) for _, [label] in raw(text.train)])
    assert (text.labels.mean, text.labels.scale) == pytest.approx((values.mean(), values.std()))
    for store in (text.train, text.val):
        expected = [(float(label) - values.mean()) / values.std() for _, [label] in raw(store)]
        np.testing.assert_allclose(np.asarray(store.row_labels)[:, 0], expected, rtol=1e-6)


# Who is held out


def test_no_text_stands_on_both_sides_whatever_its_label(tmp_path: Path) -> None:
    rows = [{"text": f"text {n % 40}", "label": "ab"[n % 3 % 2]} for n in range(120)]
    text = opened(table(tmp_path / "a.jsonl", rows), fields={}, split=Split(share=0.2))
    train, val = ({texts[0] for texts, _ in raw(store)} for store in (text.train, text.val))
    assert not train & val
    assert val == {row["text"] for row in rows if hash_text(row["text"]) < 0.2 * 2**64}
    assert len(both(text)) == 120


def test_examples_that_are_all_alike_cannot_be_divided(tmp_path: Path) -> None:
    file = table(tmp_path / "a.jsonl", [{"text": "a", "label": label} for label in "abc"])
    assert refusal(file, fields={}).startswith("data.train: 1 different examples; at least 2 are needed")


def known_by(store: Store) -> set[str]:
    return {dataset_of("chats").split_key(one) for one in written(store)}


def test_two_answers_to_one_prompt_stand_on_one_side(tmp_path: Path) -> None:
    rows = [{"prompt": f"question {n % 40}", "response": f"answer {n}"} for n in range(120)]
    text = opened(table(tmp_path / "a.jsonl", rows), "chats", fields={}, split=Split(share=0.2))
    train, val = ({texts[0] for texts, _ in raw(store)} for store in (text.train, text.val))
    assert not train & val
    assert val == {row["prompt"] for row in rows if hash_text(row["prompt"]) < 0.2 * 2**64}
    assert known_by(text.val) == val


def test_of_two_given_files_of_conversations_whole_ones_are_kept_apart(tmp_path: Path) -> None:
    train = table(tmp_path / "a.jsonl", [{"prompt": "q", "response": "r"}, {"prompt": "p", "response": "s"}])
    val = table(tmp_path / "b.jsonl", [{"prompt": "q", "response": "r"}, {"prompt": "q", "response": "other"}])
    text = opened(train, "chats", fields={}, val=val)
    assert raw(text.val) == [(["q", "other"], ["user", "assistant"])]
    assert known_by(text.train) & known_by(text.val) == {"q"}


def test_further_responses_are_kept_and_later_turns_are_left_out_and_counted(tmp_path: Path) -> None:
    several = table(tmp_path / "a.jsonl", [{"prompt": f"q{n}", "response": ["one", "", f"{n}"]} for n in range(20)])
    text = opened(several, "chats", fields={})
    assert {(one.texts[1], one.alternatives) for one in written(text.train)} <= {("one", (f"{n}",)) for n in range(20)}
    turns = [{"role": role, "content": role} for role in ("user", "assistant", "user")]
    chats = table(
        tmp_path / "b.jsonl", [{"messages": [{"role": "system", "content": f"{n}"}, *turns]} for n in range(20)]
    )
    text = opened(chats, "chats", fields={})
    assert all(answers == ["system", "user", "assistant"] for _, answers in both(text))
    assert "20 messages after the assistant's last one were dropped" in text.notes


# One text, or two


def test_the_first_example_to_learn_from_says_whether_there_are_two_texts(tmp_path: Path) -> None:
    one = [{"text": f"a{n}", "label": "xy"[n % 2]} for n in range(20)]
    two = [row | {"text_pair": "b"} for row in one]
    train, other = table(tmp_path / "two.jsonl", two), table(tmp_path / "one.jsonl", one)
    texts = {n: opened(file, fields={}) for n, file in ((1, other), (2, train))}
    assert {n: text.labels.n_texts for n, text in texts.items()} == {1: 1, 2: 2}
    for val in (
        table(tmp_path / "val.jsonl", [{"text": "c", "text_pair": "d", "label": "x"}, {"text": "c", "label": "x"}]),
    ):
        assert refusal(train, fields={}, val=val).startswith(
            f"{val}:2: 'text_pair' is missing; examples have two texts"
        )
        assert refusal(other, fields={}, val=val).startswith(
            f"{val}:1: 'text_pair' is not allowed; examples have one text"
        )
    with pytest.raises(DataFault, match=r"one\.jsonl:1: no column 'text_pair'"):
        encoded(Data(train=other), texts[2].tokenizers, "classes", texts[2].labels)
    with pytest.raises(DataFault, match=r"two\.jsonl:1: 'text_pair' is not allowed"):
        encoded(Data(train=train), texts[1].tokenizers, "classes", texts[1].labels)


# Which column a fault is in


@pytest.mark.parametrize(
    ("form", "column", "cell", "words"),
    [
        ("classes", "review", " ", "'review' is empty (remove the row)"),
        ("classes", "stars", "", "'stars' is empty (remove the row)"),
        ("numbers", "stars", "x", "'stars' must be a number, not 'x'"),
        ("numbers", "review", "", "'review' is empty (remove the row)"),
        ("tags", "review", "", "'review' is empty (remove the row)"),
        ("tags", "stars", " ", "'stars' is empty (remove the row)"),
    ],
)
def test_a_fault_names_the_column_as_the_file_calls_it(
    form: str, column: str, cell: str, words: str, tmp_path: Path
) -> None:
    rows = [
        {"review": "a", "stars": "1"},
        {"review": "b", "stars": "2"} | {column: cell},
        {"review": "c", "stars": "2"},
    ]
    file = table(tmp_path / "a.csv", rows)
    assert refusal(file, form).startswith(f"{file}:3: {words}")


@pytest.mark.parametrize(
    ("form", "fields", "row", "words"),
    [
        ("classes", {}, {"text": "x", "text_pair": 3, "label": "1"}, "'text_pair' must be text, not int"),
        ("chats", {"prompt": "q", "response": "r"}, {"q": " ", "r": "x"}, "'q' is empty"),
        ("chats", {"prompt": "q", "response": "r"}, {"q": "x", "r": ["", " "]}, "'r' is empty"),
        ("chats", {"messages": "chat"}, {"chat": "x"}, "'chat' must be a list of"),
        ("chats", {}, {"prompt": "x"}, "needs prompt and response, or messages"),
        ("tags", {"text": "w", "label": "t"}, {"w": ["a", "b"], "t": ["O"]}, "2 words, but 1 tags"),
    ],
)
def test_a_row_that_is_no_example_is_refused_by_its_columns_names(
    form: str, fields: dict[str, str], row: dict[str, Any], words: str, tmp_path: Path
) -> None:
    file = table(tmp_path / "a.jsonl", [row])
    assert refusal(file, form, fields=fields).startswith(f"{file}:1: {words}")


def test_columns_without_names_are_called_by_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("1\ta b\n2\t \n")
    assert refusal(str(file), fields={"text": "1", "label": "0"}).startswith(f"{file}:2: '1' is empty")


def test_a_file_of_lines_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n\nb\n")
    assert refusal(str(tmp_path / "a.txt")).startswith(
        f"data.train: {tmp_path / 'a.txt'} is not a table (jsonl, csv, tsv, parquet, conll)"
    )


def test_columns_that_are_found_are_reported_under_the_file_that_is_read(tmp_path: Path) -> None:
    """The ids of equal contents are cached once, whatever the path."""
    for name in ("one.csv", "other.csv"):
        file = table(tmp_path / name, REVIEWS)
        note = f"{file}: columns read: text = 'review', label = 'stars'; data.fields selects others"
        text, said = opened(file, fields={}), list[str]()
        assert [one for one in text.notes if "columns read" in one] == [note]
        encoded(Data(train=file), text.tokenizers, "classes", text.labels, said.append)
        assert [one for one in said if "columns read" in one] == [note.replace("data.fields", "--fields")]  # evaluate


# The summary


def test_the_summary_counts_what_is_there(tmp_path: Path) -> None:
    text = opened(table(tmp_path / "a.csv", REVIEWS), wanted=("1", "2", "10", "\x1b[31m11"))
    lengths = sorted(len(texts[0].encode()) for texts, _ in raw(text.train))
    examples, sizes, labels, missing = dataset_of("classes").summary(text)
    assert examples == f"data: {text.train.n_documents} training examples, {text.val.n_documents} validation examples"
    assert sizes.startswith(f"lengths: median {int(np.median(lengths))} tokens, ")
    assert sizes.endswith(f"maximum {lengths[-1]}")
    for name in STARS:
        counts = [sum(answers == [name] for _, answers in raw(store)) for store in (text.train, text.val)]
        assert f" {name} {counts[0]}/{counts[1]}" in labels
    assert missing.startswith("classes without training examples: ")
    assert "\x1b" not in labels + missing
    numbers = list(dataset_of("numbers").summary(opened(table(tmp_path / "b.csv", REVIEWS), "numbers")))
    assert numbers[-1].startswith("labels: mean 4.")
    turns = opened(
        table(tmp_path / "d.jsonl", [{"prompt": f"q{n}", "response": "abc"} for n in range(20)]), "chats", fields={}
    )
    n = turns.train.n_documents
    assert list(dataset_of("chats").summary(turns))[-1] == f"targets: {4 * n} of {len(turns.train)} training tokens"
    many = [{"text": f"t{n}", "label": f"c{n % 20:02}"} for n in range(400)]
    assert (
        " and 8 more" in list(dataset_of("classes").summary(opened(table(tmp_path / "c.jsonl", many), fields={})))[-1]
    )


@pytest.mark.parametrize(
    ("tags", "noted"),
    [
        (["O", "PER"], True),
        (["O", "BEG-PER", "IN-PER"], True),
        (["O", "B-PER", "I-PER"], False),
        (["O", "PER_B", "PER_I"], False),
        (["N", "V"], False),
    ],
)
def test_tags_with_an_outside_but_no_entities_are_noted(tags: list[str], noted: bool, tmp_path: Path) -> None:
    rows = [{"text": [f"w{n}", *["x"] * (len(tags) - 1)], "label": tags} for n in range(30)]
    lines = list(dataset_of("tags").summary(opened(table(tmp_path / "a.jsonl", rows), "tags", fields={})))
    note = "tags are scored word by word: for entity F1 all but O must mark entities, such as B-PER and I-PER"
    assert (lines[-1] == note) == noted
    assert lines.count(note) == noted
