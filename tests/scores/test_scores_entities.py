"""Entities are counted as a small parser of our own counts them, in every way of writing them; other tags are judged
word by word.
"""

import sys

import numpy as np
import pytest

from mini_tf.scores.entities import TagScheme, entity_scores, mark_entities

Span = tuple[int, int, str]
"""First word, the word behind the last, type."""


def spans(tags: list[str]) -> set[Span]:
    """Of IOB1 or IOB2: an entity goes on while I- has its type; whatever else is not O begins one."""
    found: list[Span] = []
    for place, tag in enumerate(tags):
        mark, _, kind = tag.partition("-")
        if mark == "I" and found and found[-1][1:] == (place, kind):
            found[-1] = (found[-1][0], place + 1, kind)
        elif mark != "O":
            found.append((place, place + 1, kind))
    return set(found)


MARKS = {"iob2": "BIIB", "iob1": "IIII", "iobes": "BIES", "bilou": "BILU", "bmes": "BMES", "bmewo": "BMEW"}
MARKS |= dict.fromkeys(("underscore", "type first", "type first, underscore"), "BIIB")
FORMS = {"underscore": "{mark}_{kind}", "type first": "{kind}-{mark}", "type first, underscore": "{kind}_{mark}"}


def written(entities: list[Span], n: int, scheme: str) -> list[str]:
    """The tags of `n` words with these entities, in their order."""
    tags = ["O"] * n
    for first, end, kind in entities:
        inside = MARKS[scheme]
        marks = inside[3] if end - first == 1 else inside[0] + inside[1] * (end - first - 2) + inside[2]
        if scheme == "iob1" and any(other[1:] == (first, kind) for other in entities):
            marks = "B" + marks[1:]
        tags[first:end] = [FORMS.get(scheme, "{mark}-{kind}").format(mark=mark, kind=kind) for mark in marks]
    return tags


def drawn(seed: int) -> tuple[list[list[Span]], list[int]]:
    """Entities of 20 texts, many side by side."""
    random = np.random.default_rng(seed)
    texts, lengths = [], []
    for _ in range(20):
        place, entities = 0, []
        while place < 12:
            end = place + int(random.integers(1, 4))
            if random.random() < 0.6:
                entities.append((place, end, ["per", "loc", "creative-work"][random.integers(0, 3)]))
            place = end
        texts.append(entities)
        lengths.append(place)
    return texts, lengths


def figures(truth: list[set[Span]], predicted: list[set[Span]]) -> dict[str, float]:
    def f1(kind: str | None) -> tuple[float, float, float]:
        a, b = ([{one for one in text if kind in (None, one[2])} for text in side] for side in (truth, predicted))
        hits, wanted, found = sum(len(x & y) for x, y in zip(a, b, strict=True)), sum(map(len, a)), sum(map(len, b))
        return 2 * hits / (wanted + found), hits / found if found else 0.0, hits / wanted if wanted else 0.0

    kinds = sorted({one[2] for side in (truth, predicted) for text in side for one in text})
    names = ("entity_f1", "entity_precision", "entity_recall")
    return {**dict(zip(names, f1(None), strict=True)), **{f"entity_f1.{kind}": f1(kind)[0] for kind in kinds}}


def words_right(truth: list[list[str]], predicted: list[list[str]]) -> float:
    pairs = [pair for a, b in zip(truth, predicted, strict=True) for pair in zip(a, b, strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs)


@pytest.mark.parametrize("seed", range(4))
def test_any_tags_at_all_are_read_as_the_small_parser_reads_them(seed: int) -> None:
    """Half of them contradict each other, as those of a model at the start of its training do."""
    random = np.random.default_rng(seed)
    tags = np.array(["O", "B-per", "I-per", "B-creative-work", "I-creative-work"])
    truth, predicted = ([random.choice(tags, n).tolist() for n in (1, 7, 30, 4)] for _ in range(2))
    expected = figures(list(map(spans, truth)), list(map(spans, predicted)))
    scores = entity_scores(truth, predicted)
    assert scores == pytest.approx({"accuracy": words_right(truth, predicted), **expected})
    assert 0 < scores["entity_f1"] < 1


@pytest.mark.parametrize("scheme", MARKS)
def test_the_same_entities_score_the_same_however_they_are_written(scheme: str) -> None:
    theirs, lengths = drawn(0)
    ours = [[one for i, one in enumerate(text) if i % 3 != 1] for text in theirs]
    ours = [[(first, end, "loc" if first == 0 else kind) for first, end, kind in text] for text in ours]
    sides = [[written(text, n, scheme) for text, n in zip(side, lengths, strict=True)] for side in (theirs, ours)]
    if scheme == "iob2":
        assert [spans(tags) for tags in sides[0]] == list(map(set, theirs))
    scores = entity_scores(sides[0], sides[1])
    assert scores.pop("accuracy") == words_right(sides[0], sides[1])
    assert scores == pytest.approx(figures(list(map(set, theirs)), list(map(set, ours))))
    assert 0.3 < scores["entity_f1"] < 0.9
    names = sorted({tag for side in sides for text in side for tag in text})
    rules, ids = TagScheme.of(names), np.array([names.index(tag) for text in sides[0] for tag in text])
    entities, begins = rules.entities(ids, np.array(lengths)), np.append(0, np.cumsum(lengths))
    assert entities[:, :2].tolist() == [
        [b + first, b + end - 1] for b, text in zip(begins, theirs, strict=False) for first, end, _ in text
    ]


def test_an_entity_ends_with_its_text() -> None:
    texts = [["B-per"], ["I-per", "O"]]
    assert entity_scores(texts, [["B-per"], ["O", "O"]])["entity_recall"] == 0.5


def test_a_text_without_entities_scores_nothing_and_warns_of_nothing() -> None:
    scores = entity_scores([["O", "O"]], [["O", "O"]], tags=["O", "B-per", "I-per"])
    assert scores == {"accuracy": 1.0, "entity_f1": 0.0, "entity_precision": 0.0, "entity_recall": 0.0}
    assert entity_scores([["O", "O"]], [["O", "B-per"]])["entity_f1"] == 0.0
    assert entity_scores([["O", "B-per"], []], [["O", "O"], []])["entity_f1.per"] == 0.0


def test_parts_of_speech_are_judged_word_by_word(capsys: pytest.CaptureFixture[str]) -> None:
    truth, predicted = [["NN", "VB", "NN"], ["O"]], [["NN", "NN", "NN"], ["O"]]
    assert entity_scores(truth, predicted) == {"accuracy": 0.75, "f1_macro": pytest.approx((0.8 + 0 + 1) / 3)}
    assert capsys.readouterr() == ("", "")


def test_only_tag_sets_of_marks_are_of_entities() -> None:
    assert all(map(mark_entities, (["O", "B-x", "I-x"], ["U-x", "L-a b"], ["B", "I", "O"], ["S-x-y", "E-x-y"])))
    assert all(
        map(
            mark_entities, (["B", "M", "E", "S"], ["B_x", "O"], ["a-b-B", "a-b-I"], ["x_I", "x_B", "O"], ["B-x", "W-x"])
        )
    )
    assert not any(
        map(
            mark_entities,
            (["M", "S"], ["M-x", "E-x"], ["W-x"], ["S_x", "E_x"], ["N-S", "V-S"], ["x_I", "O"], ["M", "F", "B"]),
        )
    )
    assert not any(
        map(mark_entities, ([], ["O"], ["NN", "VB"], ["B-x", "X"], ["B-"], ["Bx"], ["b-x"], [""], ["-LRB-"]))
    )


def test_the_whole_tag_set_decides_not_what_occurs() -> None:
    texts = [["B-per", "O"]]
    assert entity_scores(texts, texts, tags=["NOUN"]) == {"accuracy": 1.0, "f1_macro": 1.0}


@pytest.mark.parametrize("module", ["seqeval", "sklearn"])
def test_without_its_libraries_accuracy_is_still_given(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert entity_scores([["B-per", "O"]], [["O", "O"]]) == {"accuracy": 0.5}
    if module == "sklearn":
        assert entity_scores([["NN", "VB"]], [["NN", "NN"]]) == {"accuracy": 0.5}
