"""Labelled examples as ids: what becomes ids, and where labels stand, by every kind of tokenizer; what is refused, and
where.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from data_of import both, dataset_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers

from mini_tf.data.examples import ASSISTANT, Example, Labels, Pair
from mini_tf.data.store import Encoded
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe import sections
from mini_tf.system.errors import DataFault

KINDS = ["char", "byte", "bpe", "wordpiece", "unigram"]
LEARNT_FROM = [
    "Hello, world! don't stop",
    "naïve café e\u0301te 東京 タワー 👩\u200d👧",
    "the cat sat on the mat, again; and again.",
    "C3PO's e-mail </s>",
] * 5
CLASSES = Labels(("bad", "good"), (3, 4))
word = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1, max_size=8
).filter(lambda one: one.split() == [one])
known_word = st.sampled_from([one for text in LEARNT_FROM[:4] for one in text.split()])


@cache
def tokenizer(kind: str) -> Tokenizer:
    chooses = {} if kind in ("char", "byte") else {"vocab_size": 300}
    return Tokenizer.train(sections.Tokenizer(kind=kind, **chooses), LEARNT_FROM)  # type: ignore[arg-type]


def encoded(form: str, example: Example, labels: Labels = CLASSES, kind: str = "char") -> Encoded:
    [one] = dataset_of(form).encode([example], both(tokenizer(kind)), labels)
    assert one.ids.dtype == np.int32
    told = one.labels if form in ("tags", "chats") else one.row_labels
    assert told is not None
    assert told.dtype == np.float32
    assert len(told) == (len(one.ids) + 1 if form in ("tags", "chats") else 1)
    return one


def asked(one: Encoded) -> dict[int, float]:
    """Labels by their place; place 0 is the separator before the ids, where the label of the whole is told."""
    if one.row_labels is not None:
        return {0: float(one.row_labels[0])}
    assert one.labels is not None
    return {1 + int(place): float(one.labels[place]) for place in np.flatnonzero(~np.isnan(one.labels))}


def refused(form: str, example: Example, labels: Labels = CLASSES, used: Tokenizer | None = None) -> str:
    with pytest.raises(DataFault) as caught:
        dataset_of(form).encode([example], both(used or tokenizer("char")), labels)
    assert caught.value.where == (example.where,)
    return f"{caught.value.message} ({caught.value.hint})"


def labels_of(form: str, answers: Iterable[str], wanted: tuple[str, ...] | None = None) -> Labels:
    dataset = dataset_of(form, **({} if wanted is None else {"labels": wanted}))
    labels = dataset.fit_labels(Example(["a"], [answer], f"f:{n}") for n, answer in enumerate(answers))
    assert labels is not None
    return labels


# Classes and numbers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [["the cat </s>"], ["the </s>", "</s><mask> mat"]])
@pytest.mark.parametrize("form", ["classes", "numbers"])
def test_texts_stand_between_separators_and_are_labelled_at_the_first(form: str, texts: list[str], kind: str) -> None:
    labels = replace(CLASSES if form == "classes" else Labels(mean=4.0, scale=0.5), n_texts=len(texts))
    one = encoded(form, Example(texts, ["good" if form == "classes" else "3.25"], "f:1"), labels, kind)
    separator = tokenizer(kind).vocabulary.separator
    parts = [tokenizer(kind).encode(text).tolist() for text in texts]
    assert one.ids.tolist() == (parts[0] if len(parts) == 1 else [*parts[0], separator, *parts[1]])
    assert asked(one) == {0: 1.0 if form == "classes" else -1.5}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["classes", "tags", "chats"])
def test_no_text_can_hold_a_special_token(form: str, kind: str) -> None:
    """Names of special tokens are characters like any other: as many separators as there are borders between texts."""
    names = list(tokenizer(kind).special_tokens)
    example = Example([f"a{names[0]}b", *names], ["good"] if form == "classes" else ["good"] * (1 + len(names)), "f:1")
    example = example._replace(labels=[ASSISTANT] * (1 + len(names))) if form == "chats" else example
    ids = encoded(form, example, replace(CLASSES, n_texts=1 + len(names)), kind).ids
    vocabulary = tokenizer(kind).vocabulary
    assert (ids == vocabulary.separator).sum() == (0 if form == "tags" else len(names))
    assert not set(ids.tolist()) & (vocabulary.special_ids - {vocabulary.separator, vocabulary.unk})


@settings(deadline=None, max_examples=30)
@given(
    numbers=st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=20).filter(lambda given: len(set(given)) > 1)
)
def test_numbers_are_learnt_in_standard_deviations_from_their_mean(numbers: list[int]) -> None:
    labels = labels_of("numbers", [str(one) for one in numbers])
    assert labels.mean == pytest.approx(statistics.fmean(numbers))
    assert labels.scale == pytest.approx(statistics.pstdev(numbers))
    learnt = [asked(encoded("numbers", Example(["a"], [str(one)], "f:1"), labels))[0] for one in numbers]
    assert statistics.fmean(learnt) == pytest.approx(0, abs=1e-5)
    assert statistics.fmean(one**2 for one in learnt) == pytest.approx(1, abs=1e-5)
    back = np.array(learnt) * labels.scale + labels.mean
    assert back.tolist() == pytest.approx(numbers, abs=1e-5 * max(map(abs, numbers)))


@pytest.mark.parametrize("numbers", [["0.1"] * 3, ["5", "5.0"], ["1e300", "-1e300"], ["1e-200", "2e-200"]])
def test_numbers_that_nothing_can_be_learnt_from_are_refused(numbers: list[str]) -> None:
    with pytest.raises(
        DataFault,
        match="they must differ" if len({*map(float, numbers)}) == 1 else "too large or too close for float32",
    ):
        labels_of("numbers", numbers)


def test_classes_stand_in_the_order_of_their_names_and_whole_numbers_in_that_of_their_values() -> None:
    def found(*names: str, wanted: tuple[str, ...] | None = None) -> dict[str, int]:
        labels = labels_of("classes", names, wanted)
        return dict(zip(labels.names, labels.counts, strict=True))

    assert list(found("10", "9", "-1", "9").items()) == [("-1", 1), ("9", 2), ("10", 1)]
    assert list(found("10", "9", "x")) == ["10", "9", "x"]
    assert list(found("10", "9", "1.5")) == ["1.5", "10", "9"]
    assert list(found("pos", "neg", "Neg")) == ["Neg", "neg", "pos"]
    assert list(found("7", "07", "007")) == ["007", "07", "7"]
    assert found("a\0", "a") == {"a": 1, "a\0": 1}
    assert list(found("a", "b", "b", wanted=("b", "c", "a")).items()) == [("b", 2), ("c", 0), ("a", 1)]
    with pytest.raises(DataFault, match="all training labels are 'a'; at least two classes are needed"):
        found("a", "a")


def test_what_classes_there_are_is_kept_in_json() -> None:
    for labels in (Labels(("b", "a"), (2, 0)), Labels(mean=-1.5, scale=0.1, n_texts=2), Labels()):
        assert Labels.of_json(labels.to_json()) == labels
    good = Labels(("b", "a"), (2, 0)).to_json()
    bad = {
        "names": [["a", "a"], None],
        "counts": [[1], [1, -1], [1, True]],
        "mean": [math.nan],
        "scale": [0.0, math.inf, "1"],
        "n_texts": [None, 3, True],
    }
    for key, values in bad.items():
        for value in values:
            with pytest.raises(ValueError, match=f"labels.*{key}"):
                Labels.of_json(good | {key: value})
        with pytest.raises(ValueError, match=f"labels.{key} is missing"):
            Labels.of_json({name: value for name, value in good.items() if name != key})


@pytest.mark.parametrize("form", ["classes", "tags"])
def test_a_label_that_is_not_known_is_refused_with_its_line_and_the_nearest_way_out(form: str) -> None:
    assert refused(form, Example(["a"], ["god"], "f.csv:7")) == (
        "f.csv:7: the label 'god' is not one of the classes (did you mean 'good'? objective.labels lists all classes)"
    )
    assert "(the classes are: bad, good; objective.labels lists all classes)" in refused(
        form, Example(["a"], ["99"], "f.csv:7")
    )
    many = Labels(tuple(f"c{n}" for n in range(30)), (1,) * 30)
    assert "c19, ...;" in refused(form, Example(["a"], ["?"], "f.csv:7"), many)


def test_what_is_asked_for_need_not_be_known() -> None:
    assert dataset_of("classes").example({"text": "a"}, "f:1", {"text": "text"}, labelled=False) == Example(
        ["a"], [], "f:1"
    )
    assert asked(encoded("classes", Example(["a"], [], "f:1"))) == {0: 0.0}
    assert asked(encoded("numbers", Example(["a"], [], "f:1"), Labels(mean=3.0))) == {0: 0.0}
    assert list(asked(encoded("tags", Example(["ab", "c"], [], "f:1")))) == [1, 4]


# Tags


def check_positions(words: list[str], kind: str) -> None:
    """Each word's label against what the word alone is made of, and against the characters that each token stands
    for.
    """
    used, tags = tokenizer(kind), ["good" if n % 3 else "bad" for n in range(len(words))]
    one = encoded("tags", Example(words, tags, "f:1"), kind=kind)
    ids, spans = used.spans(" ".join(words))
    assert one.ids.tolist() == ids.tolist()
    by_span, by_word, at, character = {}, {}, 1, 0
    for number, (text, tag) in enumerate(zip(words, tags, strict=True)):
        reach = [n for n, (first, last) in enumerate(spans) if first < character + len(text) and last > character]
        by_span[1 + reach[0]] = float(CLASSES.names.index(tag))
        alone = used.encode(" " * (number > 0) + text)
        blank = int(not used.pieces(alone)[0].strip())
        by_word[at + blank] = by_span[1 + reach[0]]
        at, character = at + len(alone), character + len(text) + 1
    assert asked(one) == by_span == by_word


@pytest.mark.parametrize("kind", KINDS)
def test_a_tag_stands_at_the_first_token_of_its_word(kind: str) -> None:
    check_positions(["don't", "stop", "café", ",", "xyzzy", "(", "Ω", ")", "東京タワー", "the", "."], kind)
    check_positions(["e\u0301te", "\u0301x", "👩\u200d👧", "a\u200d", "\u200b", "the"], kind)
    check_positions(["e\u0301"], kind)


@settings(deadline=None, max_examples=20)
@given(words=st.lists(word | known_word, min_size=1, max_size=8), kind=st.sampled_from(KINDS))
def test_a_tag_stands_at_the_first_token_of_any_word(words: list[str], kind: str) -> None:
    check_positions(words, kind)


def pieces_of_play(normalizer: normalizers.Normalizer | None, splits: bool = True) -> Tokenizer:
    """WordPiece as BERT has it, which cleans its text: what is a control or format character vanishes."""
    vocabulary = {
        one: n for n, one in enumerate(["[PAD]", "[UNK]", "[SEP]", "[MASK]", "play", "##ing", "cat", "the", "the cat"])
    }
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.add_special_tokens(["[PAD]", "[UNK]", "[SEP]", "[MASK]"])
    if normalizer:
        inner.normalizer = normalizer
    if splits:
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return Tokenizer(inner)


@pytest.mark.parametrize(
    ("words", "pieces"),
    [
        (["playing", "\u200d"], ["play", "##ing", "[UNK]"]),
        (["\u200b", "playing"], ["[UNK]", "play", "##ing"]),
        (["cat", "\u00ad", "\ufe0f", "playing"], ["cat", "[UNK]", "[UNK]", "play", "##ing"]),
        (["\u200d"], ["[UNK]"]),
        (["playing", "c\u200dat", "the\u200d"], ["play", "##ing", "cat", "the"]),
    ],
)
def test_a_word_that_normalizes_to_nothing_is_the_unknown_token(words: list[str], pieces: list[str]) -> None:
    """Else its tag would stand at a neighbour's token."""
    used, tags = pieces_of_play(normalizers.BertNormalizer()), [("good", "bad")[n % 2] for n in range(len(words))]
    [one] = dataset_of("tags").encode([Example(words, tags, "f:9")], both(used), CLASSES)
    assert used.pieces(one.ids) == pieces
    starts = [n for n, piece in enumerate(pieces) if not piece.startswith("##")]
    assert asked(one) == {1 + at: {"good": 1.0, "bad": 0.0}[tag] for at, tag in zip(starts, tags, strict=True)}


def test_without_an_unknown_token_the_dropped_word_is_named() -> None:
    inner = tokenizers.Tokenizer(models.BPE({"c": 0, "a": 1, "</s>": 2}, []))
    inner.add_special_tokens(["</s>"])
    message = "f:9: the tokenizer drops the word 'bb', so that it cannot have a tag"
    assert refused("tags", Example(["ca", "bb"], ["good", "bad"], "f:9"), used=Tokenizer(inner)).startswith(message)


def test_words_that_are_one_token_together_are_refused() -> None:
    used = pieces_of_play(None, splits=False)
    message = "f:9: a token spans the words 'the' and 'cat', so that it cannot have a tag"
    assert refused("tags", Example(["the", "cat"], ["good", "bad"], "f:9"), used=used).startswith(message)


@pytest.mark.parametrize("form", ["classes", "numbers", "chats"])
def test_a_text_that_normalizes_to_nothing_is_the_unknown_token(form: str) -> None:
    example = Example(
        ["cat", "\u200d"], {"classes": ["bad"], "numbers": ["1"], "chats": ["user", ASSISTANT]}[form], "f:9"
    )
    used = pieces_of_play(normalizers.BertNormalizer())
    [one] = dataset_of(form).encode([example], both(used), replace(CLASSES, n_texts=2))
    assert used.pieces(one.ids) == ["cat", "[SEP]", "[UNK]"]


def test_a_source_and_a_target_that_normalize_to_nothing_are_unknown() -> None:
    used = pieces_of_play(normalizers.BertNormalizer())
    [one] = dataset_of("pairs").encode([Pair("\u200b", "\ufe0f", "f:9")], both(used), None)
    assert (used.pieces(one.source), used.pieces(one.ids)) == (["[UNK]"], ["[UNK]"])


def test_words_and_tags_that_are_not_as_many_are_refused() -> None:
    with pytest.raises(DataFault, match="f:3: 2 words, but 3 tags; the numbers must be equal"):
        dataset_of("tags").example(
            {"text": "a b", "label": "O O O"}, "f:3", {"text": "text", "label": "label"}, labelled=True
        )


# Conversations

said = st.text(st.sampled_from("the cat sat</s>\n"), min_size=1, max_size=10)


@settings(deadline=None, max_examples=40)
@given(
    turns=st.lists(st.tuples(st.sampled_from(["system", "user", ASSISTANT]), said), min_size=1, max_size=5),
    kind=st.sampled_from(KINDS),
)
def test_what_the_assistant_says_is_asked_for_and_where_it_ends(turns: list[tuple[str, str]], kind: str) -> None:
    if any(not tokenizer(kind).encode(text).size for _, text in turns):
        return
    one = encoded("chats", Example([text for _, text in turns], [who for who, _ in turns], "f:1"), Labels(), kind)
    separator = tokenizer(kind).vocabulary.separator
    row, wanted = [separator], [False]
    for who, text in turns:
        ids = tokenizer(kind).encode(text).tolist()
        row += [*ids, separator]
        wanted += [who == ASSISTANT] * (len(ids) + 1)
    assert [separator, *one.ids.tolist(), separator] == row
    assert (~np.isnan(one.labels)).tolist() == wanted[1:]
    assert set(asked(one).values()) <= {1.0}


def test_a_prompt_and_its_response_are_two_turns_of_which_the_first_of_several_responses_is_learnt() -> None:
    names = {role: role for role in ("prompt", "response", "messages")}
    read = partial(dataset_of("chats").example, labelled=True)
    assert read({"prompt": ["Sum", "up."], "response": ["", "one", "two"]}, "f:1", names) == Example(
        ["Sum up.", "one"], ["user", ASSISTANT], "f:1", ("two",)
    )
    messages = [{"role": "system", "content": "Be kind."}, {"role": ASSISTANT, "content": "Hi"}]
    assert read({"messages": messages}, "f:1", names) == Example(["Be kind.", "Hi"], ["system", ASSISTANT], "f:1")
    with pytest.raises(DataFault, match="f:1: needs prompt and response, or messages"):
        read({"prompt": "a"}, "f:1", names)


def test_a_conversation_ends_with_what_the_assistant_says_last_and_is_known_by_what_stands_before() -> None:
    def read(*who: str) -> Example:
        messages = [{"role": role, "content": f"{role} {n}"} for n, role in enumerate(who)]
        return dataset_of("chats").example({"messages": messages}, "f:1", {"messages": "messages"}, labelled=True)

    one = read("user", ASSISTANT, "user", ASSISTANT, "user", "system")
    assert (one.labels, one.texts[-1], one.n_dropped) == (["user", ASSISTANT, "user", ASSISTANT], "assistant 3", 2)
    assert read("user", ASSISTANT, "user", ASSISTANT) == one._replace(n_dropped=0)
    known_by = dataset_of("chats").split_key
    assert known_by(one._replace(texts=[*one.texts[:-1], "another"])) == known_by(one)
    assert known_by(read("user", ASSISTANT)) != known_by(one)
    assert known_by(read(ASSISTANT)) != known_by(read(ASSISTANT)._replace(texts=["another"]))


@pytest.mark.parametrize("form", ["classes", "numbers"])
def test_a_row_has_as_many_texts_as_the_training_side(form: str) -> None:
    answers, two = ["1" if form == "numbers" else "good"], replace(CLASSES, n_texts=2)
    assert refused(form, Example(["a"], answers, "f:7"), two).startswith(
        "f:7: 'text_pair' is missing; examples have two texts"
    )
    assert refused(form, Example(["a", "b"], [], "f:7")).startswith(
        "f:7: 'text_pair' is not allowed; examples have one text"
    )


def test_a_tokenizer_file_of_another_makes_the_same_of_a_row(tmp_path: Path) -> None:
    tokenizer("bpe").save(tmp_path / "tokenizer.json")
    example = Example(["don't", "stop"], ["good", "bad"], "f:1")
    [again] = dataset_of("tags").encode([example], both(Tokenizer.load(tmp_path)), CLASSES)
    first = encoded("tags", example, kind="bpe")
    np.testing.assert_array_equal(first.ids, again.ids)
    np.testing.assert_array_equal(first.labels, again.labels)
