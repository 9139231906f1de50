"""The small labelled sets of the folder data: what their README says of them is true."""

import csv
import json
from collections import Counter
from pathlib import Path

DATA = Path(__file__).parents[2] / "data"


def test_opinions_are_halves_of_two_classes() -> None:
    with (DATA / "opinions.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert Counter(row["label"] for row in rows) == {"good": 60, "bad": 60}
    assert len({row["text"] for row in rows}) == len(rows)


def test_people_are_60_sentences_in_sound_iob2() -> None:
    sentences = [
        [tuple(line.split("\t")) for line in block.splitlines()]
        for block in (DATA / "people.conll").read_text(encoding="utf-8").split("\n\n")
    ]
    assert len({tuple(sentence) for sentence in sentences}) == len(sentences) == 60
    for sentence in sentences:
        before = "O"
        for word, tag in sentence:
            assert word == word.strip() != ""
            assert tag in {"O", *(f"{place}-{kind}" for place in "BI" for kind in ("PER", "LOC", "ORG"))}
            assert not tag.startswith("I-") or before[2:] == tag[2:], (word, sentence)
            before = tag
    begun = Counter(tag[2:] for sentence in sentences for _, tag in sentence if tag.startswith("B-"))
    assert min(begun.values()) >= 30


def test_questions_are_asked_once_and_those_of_days_and_numbers_are_answered_rightly() -> None:
    rows = [json.loads(line) for line in (DATA / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert all(list(row) == ["prompt", "response"] for row in rows)
    assert len({row["prompt"] for row in rows}) == len(rows) == 42
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    numbers = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    for row in rows:
        words, answer = row["prompt"].removesuffix("?").split(), row["response"]
        if words[0] == "Which":
            step = {"after": 1, "before": -1}[words[-2]]
            assert answer == days[(days.index(words[-1]) + step) % 7], row
        elif words[-2] in ("plus", "minus"):
            sign = 1 if words[-2] == "plus" else -1
            assert answer == numbers[numbers.index(words[-3]) + sign * numbers.index(words[-1])], row
