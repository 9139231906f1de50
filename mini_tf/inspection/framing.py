"""A text as a model is given it, and which of its tokens stand for which of its characters; of pairs the source and the target."""

from dataclasses import dataclass, replace

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.prompt_ids import prompt_ids
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained


@dataclass(frozen=True)
class Framed:
    """A text's ids, framed as in training. spans: the characters [first, last) each stands for, None for a separator.

    name: what a message calls the text.
    """

    text: str
    ids: list[int]
    spans: list[tuple[int, int] | None]
    n_cut: int = 0
    name: str = "text"

    def cut(self, context: int) -> "Framed":
        """The first `context` tokens; `n_cut` says how many did not fit."""
        return replace(self, ids=self.ids[:context], spans=self.spans[:context], n_cut=max(0, len(self.ids) - context))

    @property
    def note(self) -> str | None:
        """What has to be told of it: that the model reads a part of it only."""
        length = len(self.ids)
        said = f"the {self.name} has {length + self.n_cut} tokens; the first {length}, the model's context, are looked at"
        return said if self.n_cut else None

    def within(self, first: int, last: int) -> list[int]:
        """The indices of the tokens that stand for any of the characters [first, last)."""
        return [i for i, span in enumerate(self.spans) if span is not None and span[0] < last and span[1] > first]


def framed(tokenizer: Tokenizer, text: str, separated: bool) -> Framed:
    """`separated`: documents in training are, so a separator opens the text. UsageFault where that leaves no token at all."""
    own, spans = tokenizer.spans(text)
    if len(own) == 0 and not (separated and tokenizer.vocabulary.separator is not None):
        said = "a text is empty" if not text else "the tokenizer leaves all of a text out"
        raise UsageFault(f"{said}, and this model knows no separator to begin with", hint="give it a text to read")
    ids = prompt_ids(tokenizer, text, separated)
    opening: list[tuple[int, int] | None] = [None] * (len(ids) - len(own))
    return Framed(text, ids, [*opening, *((int(first), int(last)) for first, last in spans)])


def framed_source(tokenizer: Tokenizer, text: str, context: int | None = None) -> Framed:
    """A source of pairs, which a separator closes: with it at most `context` tokens."""
    own, spans = tokenizer.spans(text)
    room = len(own) if context is None else context - 1
    separator = tokenizer.vocabulary.separator
    assert separator is not None, "the tokenizers of pairs are given one"
    ids = [*map(int, own[:room]), separator]
    return Framed(text, ids, [*((int(first), int(last)) for first, last in spans[:room]), None], max(0, len(own) - room), "source")


def framed_target(tokenizer: Tokenizer, text: str, context: int) -> Framed:
    """A target of pairs as the decoder reads it, which a separator opens: with it at most `context` tokens."""
    return replace(framed(tokenizer, text, separated=True), name="target").cut(context)


def framed_whole(trained: Trained, text: str) -> Framed:
    """A user's text as the model reads it, however long: of a model of pairs, as its encoder does."""
    if trained.model.needs_source:
        return framed_source(trained.source_tokenizer, text)
    return framed(trained.tokenizer, text, separated=not trained.recipe.data.split.tail)
