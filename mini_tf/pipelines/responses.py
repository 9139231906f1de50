"""Conversations answered by the model: what it says in place of what the assistant says last."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from mini_tf.data.examples import ASSISTANT, Example
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.writing import Writer
from mini_tf.nn.model import Model
from mini_tf.recipe.recipe import Recipe
from mini_tf.system.seeds import seed_of
from mini_tf.trained.opening import Trained

CHUNK = 128
"""Conversations that are answered between two looks at whether to stop."""
ROWS = 32
"""Conversations that are answered together."""


class Asked(NamedTuple):
    """before: who says what up to the assistant's last turn; answer: that turn."""

    before: list[tuple[str, str]]
    answer: str


def asked(example: Example) -> Asked:
    """What is asked for in a conversation, and what is known of it then."""
    turns = list(zip(example.answers, example.texts, strict=True))
    last = max(number for number, (who, _) in enumerate(turns) if who == ASSISTANT)
    return Asked(turns[:last], turns[last][1])


def responder(model: Model, tokenizer: Tokenizer, recipe: Recipe) -> Writer:
    """What answers as the recipe says, but always by the likeliest token, so that two evaluations agree."""
    greedy = recipe.generate.model_copy(update={"temperature": 0.0})
    return Writer(model, tokenizer, recipe.model_copy(update={"generate": greedy}))


def responder_of(trained: Trained) -> Writer:
    """As `responder`, of a trained model."""
    return responder(trained.model, trained.tokenizer, trained.recipe)


def respond(writer: Writer, examples: Iterable[Example], each_chunk: Callable[[], None] = lambda: None) -> Iterator[tuple[str, list[str]]]:
    """The answer to each conversation, and beside it the assistant's own, and others that are as good.

    each_chunk is called now and then; what it raises ends the work.
    """
    left = iter(examples)
    while chunk := list(islice(left, CHUNK)):
        each_chunk()
        prompts = [writer.conversation([text for _, text in asked(one).before]) for one in chunk]
        # Those of like length are answered together, for a padded place costs what a token costs.
        order = sorted(range(len(prompts)), key=lambda number: len(prompts[number].ids))
        answers = writer.write([prompts[number] for number in order], seed_of("respond"), rows=ROWS)
        texts = {number: written.text for number, [written] in zip(order, answers, strict=True)}
        for number, one in enumerate(chunk):
            yield texts[number], [asked(one).answer, *one.further]
