"""From a prompt to texts: together as one by one, by seed, up to the end, a stop string or the limit."""

from typing import Any

import pytest
import torch
from test_models import model_of

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.prompt_ids import affixes, prompt_ids
from mini_tf.generation.text_generator import Prompt, TextGenerator
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe import reading, sections
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import Generate

TOKENIZER = Tokenizer.train(sections.Tokenizer(kind="char"), ["abcdefghijklmnopqrstuvwxyz \n.,'!?é漢"])
SEPARATOR = TOKENIZER.vocabulary.separator
PROMPTS = ["the cat", "", "a", "once upon a time there was a bear, and", "the bear"]


def recipe_with(split: str = "5%", **wish: Any) -> Recipe:
    recipe = reading.read("quickstart", [f"data.split={split}"]).recipe
    return recipe.model_copy(
        update={"generate": Generate(**{"temperature": 1.0, "top_k": None, "max_new_tokens": 24, **wish})}
    )


def writer_of(context: int | None = None, n_top: int | None = None, **wish: Any) -> TextGenerator:
    model = model_of("decoder", positions="rotary", n_layers=2, init_std=0.3)
    assert TOKENIZER.vocabulary.size <= 40
    return TextGenerator(small(model), TOKENIZER, recipe_with(**wish), context=context, top_logprobs=n_top)


def small(model: Model) -> Model:
    """The model with scores for the tokenizer's ids only."""
    all_scores = model.logits
    model.logits = lambda hidden, words=None, copies=None: all_scores(hidden, words, copies)[
        ..., : TOKENIZER.vocabulary.size
    ]  # type: ignore[method-assign]
    return model


def texts(writer: TextGenerator, prompts: list[str], seed: int = 0, **how: Any) -> list[list[str]]:
    answers = writer.generate([writer.encode_prompt(prompt) for prompt in prompts], seed, **how)
    return [[written.text for written in answer] for answer in answers]


@pytest.mark.parametrize(
    "wish",
    [
        {"temperature": 0.0},
        {"temperature": 1.3},
        {"temperature": 0.9, "top_k": 10, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.3, "stop": ("e", "th")},
    ],
    ids=("greedy", "drawn", "everything"),
)
def test_prompts_of_a_batch_are_continued_as_each_alone(wish: dict[str, Any]) -> None:
    """Prompts of different length, past the context, some with an early end; in batches of any size."""
    writer = writer_of(**wish)
    n = 1 if wish["temperature"] == 0 else 2
    alone = [texts(writer, [prompt], samples=n, batch_size=1)[0] for prompt in PROMPTS]
    assert any(len(text) < 24 for answer in alone for text in answer)
    for writer.sync_steps, writer.lookahead, rows in ((1, 0, 3), (8, 0, 100), (8, 1, 100), (1, 3, 5)):
        assert texts(writer, PROMPTS, samples=n, batch_size=rows) == alone


def test_the_seed_and_the_number_of_the_sample_decide_a_text() -> None:
    writer = writer_of(temperature=1.5)
    [first], [again], [other] = (texts(writer, ["the"], seed=seed, samples=4) for seed in (1, 1, 2))
    assert first == again != other
    assert len(set(first)) == 4
    assert texts(writer, ["the"], seed=1, samples=2) == [first[:2]]
    assert texts(writer, ["the", "the"], seed=1) == [first[:1], first[:1]]


def test_two_prompts_do_not_draw_the_same_numbers() -> None:
    """So hot that the number alone decides: 200 prompts begin in many ways."""
    writer = writer_of(temperature=100.0, max_new_tokens=1)
    begun = texts(
        writer, [f"{first}{second}" for first in "abcdefghijklmnopqrst" for second in "abcdefghij"], batch_size=200
    )
    assert len({text for [text] in begun}) > 10


def test_a_model_that_is_in_training_writes_without_its_dropout() -> None:
    writer = TextGenerator(
        small(model_of("decoder", dropout_rate=0.5).train()), TOKENIZER, recipe_with(temperature=0.0)
    )
    assert texts(writer, PROMPTS) == texts(writer, PROMPTS)


def test_temperature_to_0_and_top_k_1_are_greedy_and_top_p_1_is_plain() -> None:
    greedy = texts(writer_of(temperature=0.0), PROMPTS)
    assert greedy == texts(writer_of(temperature=1e-6), PROMPTS) == texts(writer_of(temperature=2.0, top_k=1), PROMPTS)
    plain = texts(writer_of(temperature=1.2), PROMPTS)
    assert (
        greedy
        != plain
        == texts(writer_of(temperature=1.2, top_p=1.0, min_p=0.0, top_k=1000, repetition_penalty=1.0), PROMPTS)
    )


def test_log_probabilities_are_the_models_own_whatever_changes_the_draw() -> None:
    """Of the chosen token and of the likeliest three, special ones too; against one pass over the whole text."""
    writer = writer_of(temperature=0.7, top_k=5, repetition_penalty=2.0, n_top=3, max_new_tokens=9)
    prompt = writer.encode_prompt("the")
    [[written]] = writer.generate([prompt], 3)
    ids = [token.id for token in written.tokens]
    with torch.no_grad():
        scores = (
            writer.model.logits(writer.model(Tokens(torch.tensor([[*prompt.ids, *ids]]))).y)[0]
            .float()
            .log_softmax(dim=-1)
        )
    expected = scores[len(prompt.ids) - 1 : -1]
    assert [token.logprob for token in written.tokens] == pytest.approx(
        [float(expected[i, id]) for i, id in enumerate(ids)], abs=1e-5
    )
    for token, row in zip(written.tokens, expected, strict=True):
        best = row.topk(3)
        assert [id for id, _ in token.top] == best.indices.tolist()
        assert [logprob for _, logprob in token.top] == pytest.approx(best.values.tolist(), abs=1e-5)
    assert writer_of().top_logprobs is None
    [[plain]] = writer_of(temperature=0.7, top_k=5, repetition_penalty=2.0, max_new_tokens=9).generate([prompt], 3)
    assert (plain.text, plain.tokens) == (written.text, [])


class Parrot(Model):
    """Writes what it is told to, whatever it has read; row by row of `script`, each with its own end."""

    context = 100

    def __init__(self, script: list[list[int]], size: int = TOKENIZER.vocabulary.size) -> None:
        super().__init__()
        self.script, self.size, self.like = script, size, torch.nn.Parameter(torch.zeros(1))

    def start(self, batch: int) -> dict[str, Any]:
        return {"row": torch.arange(batch), "step": 0}

    def trim(self, state: dict[str, Any]) -> dict[str, Any]:
        return state

    def forward(self, inputs: Tokens, source: Any = None, at: Any = None, state: Any = None) -> Any:
        script = self.script
        next_ids = torch.tensor(
            [script[row][min(state["step"], len(script[row]) - 1)] for row in state["row"].tolist()]
        )
        y = torch.nn.functional.one_hot(next_ids, self.size)[:, None].float()
        return ForwardOutput(y, None, {"row": state["row"], "step": state["step"] + 1})

    def logits(self, hidden: Any, words: Any = None, copies: Any = None) -> Any:
        return hidden


def said(script: list[str], **how: Any) -> list[str]:
    """What a model that writes this script has written; | is the end of a document. Of each row another prompt."""
    rows = [[SEPARATOR if c == "|" else int(TOKENIZER.encode(c)[0]) for c in line] for line in script]
    over_borders, ahead = how.pop("over_borders", False), how.pop("ahead", (1, 0))
    writer = TextGenerator(Parrot(rows), TOKENIZER, recipe_with(temperature=0.0, **how), across_documents=over_borders)  # type: ignore[arg-type]
    writer.sync_steps, writer.lookahead = ahead
    return [text for [text] in texts(writer, [chr(ord("a") + i) for i in range(len(rows))], batch_size=len(rows))]


@pytest.mark.parametrize("ahead", [(1, 0), (8, 0), (1, 1), (8, 1), (3, 2)])
def test_a_text_ends_where_the_document_ends_or_the_tokens_are_used_up(ahead: tuple[int, int]) -> None:
    """Rows that are done leave, and the others go on as before; however seldom somebody looks."""
    script = ["one|two", "three four|", "|", "five six seven eight nine|", "a|", "b|", "c|"]
    assert said(script, max_new_tokens=20, ahead=ahead) == [
        "one",
        "three four",
        "",
        "five six seven eight",
        "a",
        "b",
        "c",
    ]


def test_over_borders_another_document_follows_after_a_blank_line() -> None:
    assert said(["one|two|x"], max_new_tokens=9, over_borders=True) == ["one\n\ntwo\n\nx"]
    assert said(["one|two|x"], max_new_tokens=9, over_borders=True, stop=("e\n\nt",)) == ["on"]


def test_without_separators_in_training_none_is_written() -> None:
    """The likeliest other token comes instead."""
    assert said(["ab|"], max_new_tokens=3, split="tail 10%")[0][:2] == "ab"
    assert said(["ab|"], max_new_tokens=3, split="tail 10%") != said(["ab|"], max_new_tokens=3)


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (("ree",), "th"),
        (("four", "ree f"), "th"),
        (("x",), "three four"),
        (("\n", "r f"), "three fou"),
        ((" four",), "three"),
    ],
)
def test_a_text_ends_before_a_stop_string_that_spans_tokens(stop: tuple[str, ...], text: str) -> None:
    expected = "three four" if stop == ("\n", "r f") else text
    assert said(["three four|", "one|"], stop=stop) == [expected, "one"]


def test_what_is_heard_is_what_is_written_piece_by_piece() -> None:
    rows = [[int(id) for id in TOKENIZER.encode("three four")]]
    writer = TextGenerator(Parrot(rows), TOKENIZER, recipe_with(temperature=0.0, max_new_tokens=10, stop=("four.",)))  # type: ignore[arg-type]
    heard: list[str] = []
    [[written]] = writer.generate(
        [writer.encode_prompt("a")], 0, batch_size=1, follow=lambda n, piece: bool(piece and heard.append(piece))
    )
    assert (heard, written.text) == (["t", "h", "r", "e", "e", " ", "four"], "three four")


def test_half_a_character_at_the_end_of_a_text_is_told_as_one_that_cannot_be_read() -> None:
    tokenizer = Tokenizer.train(sections.Tokenizer(kind="byte"), [])
    half = [int(id) for id in tokenizer.encode("a漢")[:-1]]
    model: Any = Parrot([[*half, tokenizer.vocabulary.separator]], tokenizer.vocabulary.size)
    for limit, over_borders, text in ((3, False, "a\ufffd"), (4, False, "a\ufffd"), (4, True, "a\ufffd\n\n")):
        writer = TextGenerator(
            model, tokenizer, recipe_with(temperature=0.0, max_new_tokens=limit), across_documents=over_borders
        )
        assert texts(writer, ["b"]) == [[text]]


def test_a_penalty_keeps_from_repeating() -> None:
    """With a large one no token of the prompt or of the text comes again while others have a score above 0."""
    free, apply_repetition_penalty = (
        writer_of(temperature=0.0, repetition_penalty=x, max_new_tokens=12, split="tail 10%") for x in (1.0, 100.0)
    )
    [[repeating]], [[varied]] = (texts(writer, ["the cat"]) for writer in (free, apply_repetition_penalty))
    assert len(set(repeating)) < 12
    assert len(set(varied)) == 12
    assert not set(varied) & set("the cat")


class Torn(Parrot):
    """Would nearly as well write y each time."""

    def logits(self, hidden: Any, words: Any = None, copies: Any = None) -> Any:
        return hidden + 0.5 * torch.nn.functional.one_hot(torch.tensor(int(TOKENIZER.encode("y")[0])), self.size)


@pytest.mark.parametrize(
    ("penalty", "script", "text"),
    [(1.0, "ax|", "ax"), (4.0, "ax|", "yx"), (4.0, "xx|", "xy"), (4.0, "|", ""), (0.4, "yx|", "yyy")],
)
def test_what_stands_in_the_prompt_or_the_text_is_penalised_but_not_the_end(
    penalty: float, script: str, text: str
) -> None:
    """The separator before the prompt is the token that ends a text."""
    rows = [[SEPARATOR if c == "|" else int(TOKENIZER.encode(c)[0]) for c in script]]
    writer = TextGenerator(
        Torn(rows), TOKENIZER, recipe_with(temperature=0.0, repetition_penalty=penalty, max_new_tokens=3)
    )  # type: ignore[arg-type]
    assert writer.encode_prompt("a").ids[0] == SEPARATOR
    assert texts(writer, ["a"]) == [[text]]


def test_a_prompt_that_is_longer_than_the_context_is_cut_on_the_left() -> None:
    writer = writer_of()  # reads 16 tokens
    assert writer.encode_prompt("a" * 15) == Prompt([SEPARATOR, *TOKENIZER.encode("a" * 15)], 15, 0)
    assert writer.encode_prompt("a" * 15 + "b") == Prompt([*TOKENIZER.encode("a" * 15 + "b")], 16, 0)
    assert writer.encode_prompt("abc" + "d" * 16) == Prompt([*TOKENIZER.encode("d" * 16)], 19, 3)
    assert writer_of(context=40).encode_prompt("abc" + "d" * 16).cut == 0


def test_special_tokens_in_a_prompt_are_plain_text() -> None:
    tokenizer = Tokenizer.train(sections.Tokenizer(kind="byte"), [])
    separator, mask = tokenizer.vocabulary.separator, tokenizer.vocabulary.mask
    ids = prompt_ids(tokenizer, "</s>[MASK]", affixes(tokenizer, "continued").before)
    assert len(ids) == 1 + len("</s>[MASK]")
    assert ids[0] == separator
    assert not {separator, mask} & set(ids[1:])


def test_a_model_without_separators_reads_a_token_of_text_before_it_begins() -> None:
    """A newline; where the tokenizer has none, its first token that stands for text."""
    byte, wordpiece = (Tokenizer.train(sections.Tokenizer(kind=kind), ["a cat"]) for kind in ("byte", "wordpiece"))
    assert prompt_ids(byte, "", []) == byte.encode("\n").tolist()
    [first] = prompt_ids(wordpiece, "", [])
    assert (len(wordpiece.encode("\n")), first) == (0, max(wordpiece.vocabulary.special_ids) + 1)


def test_special_tokens_are_never_written() -> None:
    writer = writer_of(temperature=50.0, n_top=0, max_new_tokens=200)
    [answer] = writer.generate([writer.encode_prompt("the")], 0, samples=8)
    chosen = {token.id for written in answer for token in written.tokens}
    assert chosen & TOKENIZER.vocabulary.special_ids <= {SEPARATOR}
    assert len(chosen) > 30


def test_a_text_goes_on_within_the_last_word_of_its_prompt() -> None:
    tokenizer = Tokenizer.train(sections.Tokenizer(kind="wordpiece", vocab_size=110), ["ab abb ba " * 9])
    model = settings_of("models", "decoder")(d_model=8, n_layers=1, n_heads=2).build(tokenizer.vocabulary.size, 16)
    following = tokenizer.pieces(range(tokenizer.vocabulary.size)).index("##b")
    scores = torch.nn.functional.one_hot(torch.tensor(following), tokenizer.vocabulary.size).float()
    model.logits = lambda hidden, words=None, copies=None: scores.expand(*hidden.shape[:-1], -1)  # type: ignore[method-assign]
    writer = TextGenerator(model, tokenizer, recipe_with(temperature=0.0, max_new_tokens=2))
    assert texts(writer, ["a"]) == [["bb"]]
