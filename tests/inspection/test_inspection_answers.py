"""`minitf inspect answers`: models made by hand have the recall that follows from their making, whatever the luck of a
trained one.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import figures
import pytest
import torch
from commands import minitf, refused, tiny_model, trained
from torch import Tensor, nn

from mini_tf.data.corpora import associative_recall, copy, corridor, world
from mini_tf.inspection import View
from mini_tf.inspection._gold import LabelledDocument, with_random_weights
from mini_tf.inspection.answers import Settings, answers_of, predictions, questions_of
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.tokens import Tokens
from mini_tf.trained.opening import Trained, open_trained

SYMBOLS = ("gak", "zur", "bim", "tol")
LETTERS = 4
"""Tokens of a word and the space after it."""
LOGIT = 3.0
Rule = Callable[[Sequence[int], int], int]
"""The token that a model predicts at a position of a row of ids."""


class MadeByHand(nn.Module):
    def __init__(self, size: int, context: int, rule: Rule) -> None:
        super().__init__()
        self.size, self.context, self.rule = size, context, rule
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, tokens: Tokens, at: Tensor) -> ForwardOutput:
        assert tokens.ids.shape[1] <= self.context
        rows, length = tokens.ids.tolist(), tokens.ids.shape[1]
        predicted = [self.rule(rows[n // length], n % length) for n in at.tolist()]
        return ForwardOutput(LOGIT * nn.functional.one_hot(torch.tensor(predicted), self.size).float(), None, None)

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden


def copies(distance: int) -> Rule:
    """The next token is the one that stood `distance` words before it."""
    return lambda row, at: row[at + 1 - LETTERS * distance] if at + 1 >= LETTERS * distance else 0


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one step: a decoder, a decoder of a stream, an encoder, an encoder-decoder."""
    folder = tmp_path_factory.mktemp("answers")
    one = ("train.steps=1", "train.context=24")
    trained(folder / "decoder", *one, "data.train={kind: corridor, n_documents: 40, distance: 3}")
    window = "model.attention={kind: window, window: 40}"
    trained(
        folder / "stream",
        *one,
        "train.stream=true",
        window,
        "model.positions=rotary",
        "model.init_std=0.3",
        "train.batch_size=2",
    )
    trained(folder / "encoder", *one, tiny_model("encoder"))
    trained(folder / "noisy", *one, tiny_model("encoder_decoder"), "objective.kind=denoising")
    return folder


def by_hand(run: Path, rule: Rule, context: int = 4096) -> Trained:
    opened = open_trained(run, device="cpu")
    return replace(opened, model=MadeByHand(opened.tokenizer.vocabulary.size, context, rule))  # type: ignore[arg-type]


def recall(distance: int, n: int = 4) -> list[LabelledDocument]:
    """Documents of words of three letters, whose second word is the last one too."""
    words = [["aaa", symbol, *["fff"] * (distance - 2), "ddd", symbol] for symbol in islice(SYMBOLS * n, n)]
    return [LabelledDocument(one, {"answers": [str(distance + 1)]}, "row") for one in words]


def view(trained: Trained, documents: Sequence[LabelledDocument]) -> View:
    return Settings(run="").of_documents(trained, documents)


def all_of(trained: Trained, documents: Sequence[LabelledDocument]) -> dict[str, Any]:
    return dict(view(trained, documents).result["all"])


def test_a_model_that_copies_recalls_every_answer_and_the_answers_of_others_by_chance(outputs: Path) -> None:
    model = by_hand(outputs / "decoder", copies(6))
    documents = [recall(6)[n % 3 * n % 4] for n in range(300)]
    found = view(model, documents).result
    shares = [count / len(documents) for count in Counter(document.words[-1] for document in documents).values()]
    chance = sum(share**2 for share in shares)
    [own], record = found["distances"], found["all"]
    assert own | {"distance": "all"} == record
    assert {"distance": "6", "tokens": 24.0, "answers": 300, "cue_lost": 0, "accuracy": 1.0}.items() <= own.items()
    assert abs(record["shuffled"] - chance) < 3 * math.sqrt(chance * (1 - chance) / len(documents))
    assert found["chance"] == 1 / len(shares)
    log_p = LOGIT - math.log(math.exp(LOGIT) + model.tokenizer.vocabulary.size - 1)
    assert record["log_p"] == pytest.approx(len("gak") * log_p)


def test_the_table_has_the_numbers_in_their_columns_and_the_chance_of_guessing(outputs: Path) -> None:
    model, documents = by_hand(outputs / "decoder", copies(6)), [*recall(6), *recall(3)]
    found = view(model, documents)
    records = [*found.result["distances"], found.result["all"]]
    assert [(one["distance"], one["tokens"], one["answers"]) for one in records] == [
        ("3", 12, 4),
        ("6", 24, 4),
        ("all", 18, 8),
    ]
    [headers, *rows] = figures.rows_of(found.pictures[0])
    assert headers == ["distance", "tokens", "answers", "cue lost", "accuracy", "random", "shuffled", "log p"]
    for cells, one in zip(rows, records, strict=True):
        shares = [f"{one[name]:.3f}" for name in ("accuracy", "random", "shuffled", "log_p")]
        assert cells == [one["distance"], f"{one['tokens']:.3f}", str(one["answers"]), str(one["cue_lost"]), *shares]
    n = len({document.words[-1] for document in documents})
    said = found.pictures[2](width=200).plain
    assert said == f"{n} different answers: guessing has accuracy {1 / n:.3f}, log p {math.log(1 / n):.3f}."
    untrained = predictions(with_random_weights(model), questions_of(model, documents))
    assert records[-1]["random_log_p"] == pytest.approx(sum(one.log_p for one in untrained) / 8)
    assert records[-1]["random_log_p"] != records[-1]["log_p"]


def test_a_model_that_always_predicts_one_word_is_right_as_often_as_it_occurs(outputs: Path) -> None:
    opened = open_trained(outputs / "decoder", device="cpu")
    letters = opened.tokenizer.encode("gak ").tolist()
    model = by_hand(outputs / "decoder", lambda row, at: letters[at % LETTERS])
    for n in (5, 6, 8):
        documents = recall(4, n)
        expected = sum(document.words[-1] == "gak" for document in documents) / n
        found = all_of(model, documents)
        assert (found["accuracy"], found["shuffled"]) == (expected, expected)


@pytest.mark.parametrize(("beyond", "accuracy"), [(0, 1.0), (1, 0.0)])
def test_an_answer_is_recalled_if_its_cue_is_within_the_context_that_ends_at_the_answer(
    outputs: Path, beyond: int, accuracy: float
) -> None:
    distance = 7
    context = LETTERS * distance + len("gak") - 1 - beyond  # the last letter is predicted, not read
    model = by_hand(outputs / "decoder", copies(distance), context)
    documents = recall(distance)
    found = all_of(model, documents)
    assert (found["accuracy"], found["cue_lost"]) == (accuracy, beyond * len(documents))
    mixed = view(model, [*documents, *recall(3)]).result["distances"]
    assert [(one["distance"], one["answers"], one["cue_lost"]) for one in mixed] == [("3", 4, 0), ("7", 4, 4 * beyond)]
    assert mixed[1]["accuracy"] == accuracy


def test_an_encoder_sees_a_mask_in_place_of_every_token_of_the_answer(outputs: Path) -> None:
    opened = open_trained(outputs / "encoder", device="cpu")
    mask = opened.tokenizer.vocabulary.mask
    for context, accuracy in ((4096, 1.0), (LETTERS * 5 + len("gak"), 1.0), (LETTERS * 5 + len("gak") - 1, 0.0)):

        def rule(row: Sequence[int], at: int) -> int:
            assert row[at] == mask
            assert row.count(mask) == len("gak")
            return row[at - LETTERS * 5] if at >= LETTERS * 5 else 0

        documents = [LabelledDocument([*one.words, "end"], one.labels, "row") for one in recall(5)]
        assert all_of(by_hand(outputs / "encoder", rule, context), documents)["accuracy"] == accuracy


def test_several_answers_of_a_document_have_one_row_within_the_context_and_are_the_same_alone(outputs: Path) -> None:
    opened = open_trained(outputs / "decoder", device="cpu")
    both = LabelledDocument(["aaa", "gak", "zur", "ddd", "gak", "zur"], {"answers": ["4", "5"]}, "row")
    questions = questions_of(opened, [both])
    assert len(questions.rows) == 1
    alone = [questions_of(opened, [replace(both, labels={"answers": [n]})]) for n in "45"]
    for together, one in zip(predictions(opened, questions), alone, strict=True):
        [single] = predictions(opened, one)
        assert together.ids == single.ids
        assert together.log_p == pytest.approx(single.log_p, rel=1e-5)


def test_a_model_of_a_stream_reads_the_whole_document_with_its_state(outputs: Path) -> None:
    opened, documents = open_trained(outputs / "stream", device="cpu"), recall(31)
    questions = questions_of(opened, documents)
    assert not any(answer.lost for answer in questions.answers)
    for answer, prediction in zip(questions.answers, predictions(opened, questions), strict=True):
        ids, targets = questions.rows[answer.row]
        assert len(ids) > 3 * opened.model.context
        with torch.no_grad():
            logits = opened.model.logits(opened.model(Tokens(torch.tensor([ids]))).y)[0].log_softmax(-1)
        assert prediction.log_p == pytest.approx(sum(float(logits[at, id]) for at, id in targets), rel=1e-4)
        assert prediction.ids == tuple(int(logits[at].argmax()) for at, _ in targets)


def test_documents_without_answers_are_in_the_stream(outputs: Path) -> None:
    opened, [first, silent, last] = open_trained(outputs / "stream", device="cpu"), recall(8, n=3)
    documents = [first, replace(silent, labels={"answers": ["-"]}), last]
    questions = questions_of(opened, documents)
    separated = [
        [opened.tokenizer.vocabulary.separator, *opened.tokenizer.encode(one.text).tolist()] for one in documents
    ]
    assert [[*ids] for ids, _ in questions.rows.values()] == separated
    assert {answer.document for answer in questions.answers} == {0, 2}
    assert len(predictions(opened, questions)) == len(questions.answers)


@pytest.mark.parametrize(
    "settings", [corridor.Settings(distance=20), copy.Settings(distance=20), associative_recall.Settings(distance=20)]
)
def test_the_cue_of_an_answer_is_the_word_that_the_task_repeats(settings: Any) -> None:
    for row in islice(settings.rows(), 200):
        document = LabelledDocument(row["text"].split(), {"answers": row["answers"].split()}, "row")
        for answer, cue in answers_of(document):
            if isinstance(settings, associative_recall.Settings):
                assert cue == document.words.index(document.words[answer - 1]) + 1
            else:
                assert cue == answer - 20


def test_the_cue_of_the_world_is_its_label() -> None:
    row = next(world.Settings().rows())
    document = LabelledDocument(row["text"].split(), {"cue": row["cue"].split()}, "row")
    assert answers_of(document) == [(len(document.words) - 2, 2)]
    assert answers_of(replace(document, labels={"cue": ["-"]})) == []


def test_the_view_reads_the_runs_own_corpus_and_another_one(outputs: Path) -> None:
    for words, distance in ((("decoder",), "3"), (("stream", "--data", "{kind: copy, distance: 12}"), "12")):
        done = minitf("inspect", "answers", outputs / words[0], *words[1:], "--limit", "5", "--json")
        assert done.exit_code == 0, done.stderr
        printed = json.loads(done.stdout)
        found = printed["result"]
        assert printed["metrics"] == {
            "answers.accuracy": found["all"]["accuracy"],
            "answers.log_p": found["all"]["log_p"],
        }
        assert found["documents"] == 5
        assert found["distances"][0]["distance"] == distance


def test_data_without_answers_and_models_that_predict_no_tokens_are_refused(outputs: Path, tmp_path: Path) -> None:
    plain, wrong, one = (tmp_path / f"{name}.jsonl" for name in ("plain", "wrong", "one"))
    plain.write_text('{"text": "a king"}\n')
    wrong.write_text('{"text": "a king", "cue": "1 0"}\n')
    one.write_text('{"text": "a king a king", "answers": "3"}\n')
    for run, data, told, exit_code in (
        (
            "decoder",
            plain,
            "plain.jsonl:1 has no column answers or cue; --data world, or a table with these columns",
            4,
        ),
        ("decoder", "grammar", "grammar has no column answers or cue", 4),
        ("decoder", wrong, "'cue' must be the index of a word and of a later one, or -, not '1 0'", 4),
        ("decoder", one, "2 or more documents with answers are needed, got 1", 2),
        ("noisy", "corridor", "noisy has the objective denoising, which predicts no next or masked token of a text", 2),
    ):
        refused(minitf("inspect", "answers", outputs / run, "--data", data), told, exit_code=exit_code)
