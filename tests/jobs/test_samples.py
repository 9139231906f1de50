"""What a run writes at its evaluation points: whose answers are asked for, what they are held to, and that no draw
moves by it.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import lines, trained
from conversations import recipe_in

from mini_tf.data.examples import Example
from mini_tf.nn.tokens import Tokens
from mini_tf.pipelines import pipeline_of
from mini_tf.pipelines.chat import messages_before_answer
from mini_tf.scores.text_scores import corpus_scores, summary_scores, text_scores
from mini_tf.trained.evaluating import evaluation_data
from mini_tf.trained.opening import Trained, open_trained

FIGURES = {"rouge1", "rouge2", "rougeL", "bleu", "chrf", "exact_match"}
EVALUATED = 8
"""eval.translations of the toy."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In the middle of learning; with samples."""
    folder = tmp_path_factory.mktemp("turning")
    changes = ("train.steps=40", "eval.every_steps=20", "checkpoint.keep_last=9")
    return trained(folder / "run", *changes, "log.samples=1", recipe=recipe_in(folder))


@pytest.fixture(scope="module")
def model(run: Path) -> Trained:
    return open_trained(run, device="cpu")


def held_out(model: Trained) -> list[Example]:
    store = evaluation_data(model, None, "val")
    return list(model.recipe.objective.dataset().examples(store))


def answered(model: Trained, example: Example) -> str:
    """By one whole reading a token, without anything that generation is made of."""
    separator = int(model.tokenizer.vocabulary.separator or 0)
    ids = [separator, *map(int, model.tokenizer.encode(example.texts[0])), separator]
    first = len(ids)
    while len(ids) - first < model.recipe.generate.max_new_tokens:
        with torch.no_grad():
            scores = model.model.logits(model.model(Tokens(torch.tensor([ids]))).y[:, -1])[0]
        scores[sorted(model.tokenizer.vocabulary.special_ids - {separator})] = -torch.inf
        ids.append(int(scores.argmax()))
        if ids[-1] == separator:
            break
    return model.tokenizer.decode([id for id in ids[first:] if id != separator])


def figures(line: dict[str, Any]) -> dict[str, float]:
    return {name: line[f"val.{name}"] for name in FIGURES if f"val.{name}" in line}


def test_answers_on_the_way_are_of_a_few_and_the_last_of_all_that_are_held_out(run: Path, model: Trained) -> None:
    examples = held_out(model)
    assert len(examples) > EVALUATED
    texts, wanted = [answered(model, one) for one in examples], [[one.texts[1]] for one in examples]

    def scored(texts: list[str]) -> dict[str, float]:
        return summary_scores(texts, wanted[: len(texts)]) | corpus_scores(texts, wanted[: len(texts)])

    made = json.loads((run / "run.json").read_text())
    assert made["model"]["step"] in (20, 40)  # whichever is better
    assert figures(made["metrics"]) == pytest.approx(scored(texts))
    evaluated = {line["step"]: figures(line) for line in lines(run) if "val.loss" in line}
    assert [*evaluated] == [20, 40]
    assert max(line["chrf"] for line in evaluated.values()) > 0
    for step in (20, 40):
        earlier = open_trained(run, step, "cpu")
        assert evaluated[step] == pytest.approx(scored([answered(earlier, one) for one in examples[:EVALUATED]]))
    assert [
        found for found, _ in pipeline_of(model).generate_with_references(evaluation_data(model, None, "val"))
    ] == texts


def test_a_sample_shows_what_was_said_what_is_expected_and_what_came(run: Path) -> None:
    last, model = (run / "samples" / "step-00000040.txt").read_text(), open_trained(run, 40, "cpu")
    texts = [(*example.texts, answered(model, example)) for example in held_out(model)[:8]]
    shown = [f"user: {said}\nexpected: {wanted}\nmodel: {answer}\n" for said, wanted, answer in texts]
    assert last == "\n".join(shown)


def test_the_last_thing_that_the_assistant_says_is_asked_for() -> None:
    turns = [("system", "s"), ("user", "u"), ("assistant", "a"), ("user", "v"), ("assistant", "b"), ("user", "w")]
    example = Example([text for _, text in turns], [who for who, _ in turns], "here")
    assert messages_before_answer(example) == turns[:4]
    assert messages_before_answer(Example(["a"], ["assistant"], "here")) == []


def test_stopping_is_looked_for_before_every_chunk(model: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_tf.pipelines._references.CHUNK", 5)
    looked: list[None] = []
    store = evaluation_data(model, None, "val")
    texts = [*pipeline_of(model).generate_with_references(store, 12, lambda: looked.append(None))]
    assert len(texts) == 12
    assert len(looked) == 3


def test_answering_moves_no_draw_of_training(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path)
    few = ("train.steps=8", "eval.every_steps=2", "model.dropout_rate=0.2", "log.every_steps=1")
    with_answers = trained(tmp_path / "with", *few, recipe=recipe)
    without = trained(tmp_path / "without", *few, "eval.translations=0", recipe=recipe)
    told, plain = ([{**line} for line in lines(run)] for run in (with_answers, without))
    assert any(figures(line) for line in told)
    assert not any(figures(line) for line in plain)
    assert [line["loss"] for line in told] == [line["loss"] for line in plain]
    weights = [(run / "model.safetensors").read_bytes() for run in (with_answers, without)]
    assert weights[0] == weights[1]


def test_each_text_is_held_to_all_its_references() -> None:
    written = [("the cat sat", ("a dog stood", "the cat sat")), ("one two", ["one two"])]
    whole = text_scores(iter(written))
    assert whole == pytest.approx({**dict.fromkeys(FIGURES, 1.0), "bleu": whole["bleu"], "chrf": 100.0})
    first = text_scores((text, references[:1]) for text, references in written)
    assert first["exact_match"] == 0.5
    assert all(first[name] < whole[name] for name in FIGURES - {"bleu"})


def say_always(run: Trained, text: str) -> None:
    """Weights set by hand: whatever the source, each token of `text` follows the one before it, and the separator the
    last.
    """
    model, separator = run.model, int(run.tokenizer.vocabulary.separator or 0)
    chain = [separator, *map(int, run.tokenizer.encode(text)), separator]
    assert len({*chain}) == len(chain) - 1, "no token comes twice"
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        for place, (token, following) in enumerate(pairwise(chain)):
            model.embedding.tokens.weight[token, place] = 1.0  # type: ignore[union-attr, operator]
            model.head.linear.weight[following, place] = 10.0  # type: ignore[union-attr, operator]


def test_pairs_are_held_to_all_their_targets(tmp_path: Path) -> None:
    """A model that says one thing alone, which is the second of two targets that will do."""

    def rows(name: str, target: str | list[str]) -> Path:
        (tmp_path / name).write_text(
            "".join(json.dumps({"source": f"line {n}", "target": target}) + "\n" for n in range(40))
        )
        return tmp_path / name

    model = "model={kind: encoder_decoder, d_model: 32, n_layers: 1, n_heads: 2, tied: false}"
    data = f"data={{train: {rows('learnt.jsonl', 'red dog')}, fields: {{source: source, target: target}}, split: 20%}}"
    words = "tokenizer={kind: bpe, vocab_size: 300}"
    run = open_trained(
        trained(tmp_path / "run", model, data, words, "train.steps=1", "eval.translations=0"), device="cpu"
    )
    say_always(run, "red dog")

    def judged(*targets: str) -> dict[str, float]:
        store = evaluation_data(run, str(rows("judged.jsonl", list(targets))), "val")
        return text_scores(pipeline_of(run).generate_with_references(store))

    told = {name: judged("many cats", "red dog")[name] for name in FIGURES - {"bleu"}}
    assert told == pytest.approx({**dict.fromkeys(told, 1.0), "chrf": 100.0})
    assert judged("many cats")["rouge1"] == judged("many cats")["exact_match"] == 0.0
