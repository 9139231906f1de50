"""A model of conversations answers: how turns are framed, where an answer ends, and what `minitf generate` prints of
it.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commands import minitf, refused, results, tiny_model, trained
from conversations import BY_HEART, turned
from data_of import both, dataset_of
from test_generation_text_generator import Parrot
from test_models import model_of

from mini_tf.data.examples import ASSISTANT, Example
from mini_tf.data.packing import Shape
from mini_tf.data.store import in_memory
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.text_generator import Prompt, TextGenerator
from mini_tf.pipelines.chat import Chat, _parse_messages, messages_before_answer
from mini_tf.recipe import reading, sections
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import Generate
from mini_tf.trained.opening import Trained, open_trained

BYTES = Tokenizer.train(sections.Tokenizer(kind="byte"), [])
SEPARATOR = int(BYTES.vocabulary.separator or 0)
TURNS = ["Be brief.", "Who?", "Me.", "Where is it?"]


def recipe_with(**wish: Any) -> Recipe:
    recipe = reading.read("quickstart", ["objective=instruct", "data.train=rows.jsonl"]).recipe
    return recipe.model_copy(update={"generate": Generate(**{"temperature": 0.0, **wish})})


def writer_of(context: int, tokenizer: Tokenizer = BYTES) -> TextGenerator:
    return TextGenerator(model_of("decoder"), tokenizer, recipe_with(), context=context)


@pytest.fixture(scope="module")
def run(assistant: Path) -> Path:
    return assistant


@pytest.fixture(scope="module")
def model(run: Path) -> Trained:
    return open_trained(run, device="cpu")


# How turns are framed.


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("context", [9, 20, 100])
def test_turns_stand_as_in_the_rows_that_were_learnt(n: int, context: int) -> None:
    """What stands before an answer is what training reads there; of a long conversation its end."""
    prompt = writer_of(100).encode_chat(TURNS[:n])
    joined = b"|".join([b"", *(turn.encode() for turn in TURNS[:n]), b""])
    assert [b"|" if id == SEPARATOR else bytes([BYTES.decode([id]).encode()[0]]) for id in prompt.ids] == [
        bytes([b]) for b in joined
    ]
    answer = "Yes"
    example = Example([*TURNS[:n], answer], [*["user"] * n, "assistant"], "here")
    chats, used = dataset_of("chats"), both(BYTES)
    store = in_memory(chats.encode([example], used, None), used)
    rows = chats.packing(store, Shape(context, 1)).take(np.array([0]), 0, np.zeros(1, np.uint64))
    asked = ~np.isnan(rows.labels[0])  # type: ignore[index]
    before = rows.ids[0, : int(asked.argmax())].tolist()
    assert writer_of(len(before)).encode_chat(TURNS[:n]).ids == before


def test_a_prompt_is_one_turn_and_too_long_a_one_loses_its_beginning_but_no_separator() -> None:
    [*ids] = map(int, BYTES.encode("abcdefgh"))
    assert writer_of(10).encode_chat(["abcdefgh"]) == Prompt([SEPARATOR, *ids, SEPARATOR], 8, 0, False)
    assert writer_of(7).encode_chat(["abcdefgh"]) == Prompt([SEPARATOR, *ids[3:], SEPARATOR], 8, 3, False)
    assert writer_of(2).encode_chat(["abcdefgh"]) == Prompt([SEPARATOR, SEPARATOR], 8, 8, False)
    assert writer_of(1).encode_chat(["abcdefgh"]).ids == [SEPARATOR]
    assert writer_of(9).encode_chat([]) == Prompt([SEPARATOR], 0, 0, False)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_an_answer_is_a_text_of_its_own_up_to_the_next_separator(kind: Any) -> None:
    """GeneratedText as it was learnt: no blank joins its first word to the prompt's last."""
    tokenizer = Tokenizer.train(
        sections.Tokenizer(kind=kind, vocab_size=300), ["the cat sat on a mat and the dog sat too"] * 9
    )
    separator = int(tokenizer.vocabulary.separator or 0)
    script = [*map(int, tokenizer.encode("sat on")), separator, *map(int, tokenizer.encode("the dog"))]
    writer = TextGenerator(Parrot([script], tokenizer.vocabulary.size), tokenizer, recipe_with(max_new_tokens=30))
    heard: list[str] = []
    [[written]] = writer.generate(
        [writer.encode_chat(["the cat"])], 0, batch_size=1, follow=lambda n, piece: bool(piece and heard.append(piece))
    )
    assert (written.text, "".join(heard)) == ("sat on", "sat on")


# What is learnt.


def test_a_tiny_model_gives_the_answers_that_it_learnt_by_heart(run: Path) -> None:
    done = minitf("generate", run, *(f"turn {words}" for words in BY_HEART), "--greedy")
    assert (done.exit_code, done.stdout) == (0, "".join(turned(words) + "\n" for words in BY_HEART))
    assert done.stderr == ""
    assert minitf("evaluate", run, "--split", "train", "--assert", "exact_match>=1").exit_code == 0


def test_the_last_token_of_an_answer_is_the_separator(run: Path, model: Trained) -> None:
    [result] = results(minitf("generate", run, "turn red blue", "--greedy", "--logprobs", "1", "--json").stdout)
    [tokens] = result["tokens"]
    ids = [token["id"] for token in tokens]
    assert ids == [*map(int, model.tokenizer.encode("blue red")), model.tokenizer.vocabulary.separator]
    assert all(-0.1 < token["logprob"] <= 0 for token in tokens)


def test_a_prompt_that_is_cut_is_told(run: Path) -> None:
    long = minitf("generate", run, "turn " + "red " * 30, "--greedy")
    assert long.exit_code == 0
    assert "tokens; the first " in long.stderr


# Conversations as prompts.


def messages(*turns: tuple[str, str]) -> str:
    return json.dumps({"id": 7, "messages": [{"role": who, "content": text} for who, text in turns]})


def test_a_prompt_of_messages_is_that_conversation(run: Path, model: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the assistant's last word, which a file to learn from has."""
    one = ("user", "turn red blue")
    asked = [messages(one), messages(one, ("assistant", "something else")), "  " + messages(one)]
    done = minitf("generate", run, "--greedy", stdin="\n".join(["turn red blue", *asked]))
    assert done.stdout == "blue red\n" * 4
    read: list[list[str]] = []

    def encode_chat(generator: TextGenerator, texts: list[str]) -> Prompt:
        read.append(texts)
        return Prompt([0], 0, 0)

    monkeypatch.setattr(TextGenerator, "encode_chat", encode_chat)
    minitf(
        "generate",
        run,
        messages(("system", "</s>"), one, ("assistant", "blue red"), ("user", "sun")),
        "--max-new-tokens",
        "1",
    )
    assert read[0] == ["</s>", "turn red blue", "blue red", "sun"]


def test_what_is_no_conversation_of_json_is_text() -> None:
    for text in ('{"messages"', '{"prompt": "turn"}', "{}", "[1]", '{"messages": [], "messages": []}', "{" * 9999):
        assert _parse_messages(text) is None


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ('{"messages": "hello"}', "'messages' must be a list of"),
        ('{"messages": [{"role": "user"}]}', "message 1 has no 'content'"),
        (messages(("robot", "hello")), "the role of message 1 must be system, user or assistant, not 'robot'"),
        (messages(("user", " ")), "the content of message 1 is empty"),
    ],
)
def test_messages_that_are_no_conversation_are_refused_and_the_lines_before_them_answered(
    broken: str, told: str, run: Path
) -> None:
    refused(minitf("generate", run, "turn red", broken), "the prompt: ", told, exit_code=2)
    lines = minitf("generate", run, "--greedy", "--batch-size", "9", stdin=f"turn red blue\n{broken}\nturn red\n")
    assert (lines.exit_code, lines.stdout) == (4, "blue red\n")
    assert lines.stderr.startswith("stdin:2: the prompt: ")
    assert told in lines.stderr


# What writes nothing.


def test_a_model_that_labels_writes_nothing(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": n % 2} for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = f"data={{train: {tmp_path / 'rows.jsonl'}, split: 20%}}"
    few = ("objective=regress", "train.steps=2", "eval.every_steps=1", "log.samples=2")
    run = trained(tmp_path / "run", tiny_model("decoder"), data, *few)
    told = "run was trained with the objective regress, which generates no text"
    refused(minitf("generate", run, "x"), told, "minitf predict", exit_code=2)
    assert not list((run / "samples").glob("*"))


def test_the_last_answer_of_a_chat_is_what_is_generated() -> None:
    """After all messages before it, also after earlier answers; alternatives are references, too."""
    example = Example(["a", "b", "c", "d"], ["user", ASSISTANT, "user", ASSISTANT], "f:1", ("e",))
    assert messages_before_answer(example) == [("user", "a"), (ASSISTANT, "b"), ("user", "c")]
    pipeline = Chat(SimpleNamespace(recipe=None))  # type: ignore[arg-type]
    assert pipeline.references(example) == ["d", "e"]
    assert pipeline.format_example(example) == f"user: a\n{ASSISTANT}: b\nuser: c\nexpected: d\nmodel: "
