"""Tags that mark entities are decoded as the best legal sequence, which brute force over all sequences finds, too."""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny_tasks
import torch
from commands import minitf
from seqeval.metrics.sequence_labeling import get_entities

from mini_tf.data.batch import Batch
from mini_tf.data.examples import Example, Labels
from mini_tf.nn.tokens import Tokens
from mini_tf.pipelines import _decision_rule, pipeline_of
from mini_tf.pipelines._decision_rule import best_tags
from mini_tf.recipe.kinds import settings_of
from mini_tf.scores.entities import BEGIN, END, TagScheme, entity_f1, iobes, lax_rules

SCHEMES = {
    "iob2": (["O", "B-x", "I-x", "B-y", "I-y"], ()),
    "iob1": (["B-x", "I-x", "I-y", "O"], (BEGIN,)),
    "iobes": (["O", "B-x", "I-x", "E-x", "S-x", "S-y"], ()),
    "bilou": (["U-x", "O", "B-x", "L-x", "I-x"], ()),
    "ioe2": (["O", "I-x", "E-x", "I-y", "E-y"], ()),
    "ioe1": (["O", "I-x", "E-x"], (END,)),
    "io": (["O", "I-x", "I-y"], ()),
    "bare": (["B", "I", "O"], ()),
    "no end of one type": (["O", "B-x", "I-x", "E-x", "B-y", "I-y"], ()),
}


def is_legal(tags: Sequence[str], names: Sequence[str], lax: Sequence[str]) -> bool:
    """By a machine of two states, written apart: in an entity that must go on, or not."""
    inside, must = None, False  # the type that may go on; whether it has to
    for tag in map(iobes, tags):
        mark, _, kind = tag.partition("-")
        marks = {
            iobes(name).partition("-")[0] for name in names if iobes(name).partition("-")[2] == kind and name != "O"
        }
        goes_on = mark in "IE" and inside == kind
        if not goes_on and (must or (mark in "IE" and "B" in marks and BEGIN not in lax)):
            return False
        inside = kind if mark in "BI" else None
        closes = (mark == "I" and END not in lax) or (mark == "B" and "S" in marks)
        must = mark in "BI" and "E" in marks and closes
    return not must


def legal_sequences(names: Sequence[str], lax: Sequence[str], n: int) -> Iterator[tuple[int, ...]]:
    for tags in itertools.product(range(len(names)), repeat=n):
        if is_legal([names[tag] for tag in tags], names, lax):
            yield tags


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_best_legal_sequence_is_that_of_brute_force(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names, lax = SCHEMES[scheme]
    random, lengths = np.random.default_rng(0), np.array([3, 1, 0, 4, 2, 5, 4, 1])
    scores = random.normal(size=(lengths.sum(), len(names))) * 2
    best, first = [], 0
    for n in lengths:
        text = scores[first : first + n]
        allowed = [*legal_sequences(names, lax, n)]
        assert allowed, "some sequence is legal for any number of words"
        best += max(allowed, key=lambda tags: text[np.arange(len(tags)), list(tags)].sum()) if n else ()
        first += n
    rules = TagScheme.of(names, lax)
    assert best_tags(scores, lengths, rules).tolist() == best
    monkeypatch.setattr(_decision_rule, "CHUNK", 30)
    parts = [lengths[texts] for texts in _decision_rule._chunks(lengths, len(names))]
    assert all(len(part) == 1 or part.max() * len(part) * len(names) <= 30 for part in parts)
    assert best_tags(scores, lengths, rules).tolist() == best, "in several parts"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_table_of_legal_pairs_is_that_of_the_rules(scheme: str) -> None:
    names, lax = SCHEMES[scheme]
    inner = {pair for n in (2, 3, 4) for tags in legal_sequences(names, lax, n) for pair in itertools.pairwise(tags)}
    assert set(zip(*np.nonzero(TagScheme.of(names, lax).legal), strict=True)) == inner


@pytest.mark.parametrize("scheme", SCHEMES)
def test_entities_of_any_tags_are_those_of_seqeval(scheme: str) -> None:
    names, lax = SCHEMES[scheme]
    random, lengths = np.random.default_rng(1), np.array([5, 0, 1, 9, 30, 3])
    rules, found = TagScheme.of(names, lax), []
    for _ in range(2):
        tags = random.integers(0, len(names), lengths.sum())
        texts = [[iobes(names[tag]) for tag in text] for text in np.split(tags, np.cumsum(lengths)[:-1])]
        expected = {(first + at, last + at, kind) for text, at in zip(texts, np.cumsum(lengths) - lengths, strict=True)
                    for kind, first, last in get_entities(text)}  # fmt: skip
        entities = rules.entities(tags, lengths)
        types = {
            int(n): iobes(name).partition("-")[2] or "_" for n, name in zip(rules.type, names, strict=True) if n >= 0
        }
        assert {(first, last, types[kind]) for first, last, kind in entities.tolist()} == expected
        assert len(entities) == len(expected)
        found.append((entities, expected))
    (ours, a), (theirs, b) = found
    assert entity_f1(ours, theirs) == pytest.approx(2 * len(a & b) / (len(a) + len(b)))
    assert entity_f1(ours[:0], theirs[:0]) == 0


def fitted_lax(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    dataset: Any = settings_of("data.datasets", "tags")()
    return tuple(dataset.fit_labels(Example(["w"] * len(tags), list(tags), "x") for tags in rows).lax)


def test_rules_that_the_training_data_break_are_not_rules() -> None:
    assert fitted_lax([["B-x", "I-x", "O"], ["O", "B-x"]]) == ()
    assert fitted_lax([["I-x", "I-x", "B-x"], ["O", "I-x"]]) == (BEGIN,)
    assert fitted_lax([["B-x", "E-x", "S-x"], ["O", "B-x", "I-x", "E-x"]]) == ()
    assert fitted_lax([["I-x", "O", "I-x", "E-x"], ["I-x"]]) == (END,)
    assert fitted_lax([["N", "V"]]) == ()
    few = [["B-x", "O"]] * 99
    assert fitted_lax([*few, ["O", "I-x"]]) == (), "one error among 100 entities"
    assert fitted_lax([*few, *[["O", "I-x"]] * 9]) == (BEGIN,)
    assert lax_rules(["B-x", "I-x"], {("O", "I-x"): 1}) == (BEGIN,)


def test_broken_rules_are_saved_with_the_labels_and_change_no_other_labels() -> None:
    labels = Labels(("B-x", "I-x"), (1, 2), lax=(BEGIN,))
    assert Labels.of_json(labels.to_json()) == labels
    assert Labels(("a", "b"), (1, 2)).to_json().keys() == {"names", "counts", "mean", "scale", "n_texts"}
    with pytest.raises(ValueError, match=r"labels\.lax must be a list of rules"):
        Labels.of_json(labels.to_json() | {"lax": "all"})


def pipeline(names: Sequence[str]) -> Any:
    recipe = SimpleNamespace(objective=settings_of("objectives", "tag")())
    return pipeline_of(SimpleNamespace(recipe=recipe, labels=Labels(tuple(names), (1,) * len(names)), decision=None))  # type: ignore[arg-type]


def batch_of(examples: Sequence[int], words: Sequence[int], truth: torch.Tensor) -> Batch:
    """Rows of 8 tokens, of which the first ones are words."""
    at = torch.tensor([8 * row + n for row, count in enumerate(words) for n in range(count)])
    return Batch(
        Tokens(torch.arange(8 * len(words)).view(-1, 8)), truth, at, extras={"examples": torch.tensor(examples)}
    )


def test_a_sentence_in_several_rows_and_batches_is_decoded_as_a_whole() -> None:
    names = ["B-x", "I-x", "O"]
    random = torch.Generator().manual_seed(0)
    outputs, truth = torch.randn(15, 3, generator=random), torch.randint(0, 3, (15,), generator=random)
    accumulator = pipeline(names).metric_accumulator()
    accumulator.add(batch_of([4, 4, 7], [3, 2, 4], truth[:9]), outputs[:9])
    accumulator.add(batch_of([7, 7, 2], [1, 0, 5], truth[9:]), outputs[9:])
    assert accumulator.lengths.tolist() == [5, 5, 5]
    best = [
        max(legal_sequences(names, (), 5), key=lambda tags: float(text[range(5), list(tags)].sum()))
        for text in outputs.split(5)
    ]
    assert accumulator.predicted.tolist() == [tag for tags in best for tag in tags]
    assert accumulator.predicted.tolist() != outputs.argmax(-1).tolist()
    assert accumulator.scores()["accuracy"] == pytest.approx(
        float((torch.tensor(best).flatten() == truth).float().mean())
    )


def test_predicted_tags_are_legal_with_their_own_probabilities() -> None:
    outputs = torch.randn(40, 3, generator=torch.Generator().manual_seed(2))
    examples = [Example(["w"] * 5, [], "x")] * 8
    for names in (["B-x", "I-x", "O"], ["N", "V", "D"]):
        found = pipeline(names).predictions(outputs, examples)
        expected = outputs.softmax(-1).view(8, 5, 3)
        for one, p in zip(found, expected, strict=True):
            assert one.scores == pytest.approx(
                [float(p[n, names.index(tag)]) for n, tag in enumerate(one.label)], abs=1e-6
            )
        flat = [tag for one in found for tag in one.label]
        plain = [names[n] for n in outputs.argmax(-1)]
        assert (flat == plain) == (names[0] == "N"), "tags that mark no entities are the most probable ones"
        assert names[0] == "N" or all(is_legal(one.label, names, ()) for one in found)


def test_what_predict_writes_is_what_evaluate_counts_and_never_impossible(tmp_path: Path) -> None:
    """A tagger of one step writes I after O, if it may."""
    rows = [(["one", "two", "three", "four", "five", "six"], ["B-x", "I-x", "O", "O", "B-x", "I-x"])] * 12
    rows = [([f"{word}{n}" for word in words], tags) for n, (words, tags) in enumerate(rows)]
    file = tiny_tasks.names(tmp_path / "all.conll", rows)
    run = tiny_tasks.task(tmp_path, f"data={{train: '{file}', split: 20%}}", "objective.kind=tag", "train.steps=1")
    done = minitf("predict", run, "-i", file, "--assert", "accuracy>=0")
    labels = [json.loads(line)["label"] for line in done.stdout.splitlines()]
    assert all(is_legal(tags, ["B-x", "I-x", "O"], ()) for tags in labels)
    right = np.mean(
        [a == b for tags, (_, true) in zip(labels, rows, strict=True) for a, b in zip(tags, true, strict=True)]
    )
    assert f"accuracy {right:.6g}" in done.stderr
