"""A text as the model's input: token ids with the characters of each token."""

from dataclasses import dataclass, replace

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.prompt_ids import prompt_ids
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained


@dataclass(frozen=True)
class ModelInput:
    """Ids of a text, with separators as in training. spans: characters [first, last) of each token, or None.

    n_cut: number of truncated tokens; name: of the text in messages.
    """

    text: str
    ids: list[int]
    spans: list[tuple[int, int] | None]
    n_cut: int = 0
    name: str = "text"

    def truncate(self, context: int) -> "ModelInput":
        """The first `context` tokens."""
        return replace(self, ids=self.ids[:context], spans=self.spans[:context], n_cut=max(0, len(self.ids) - context))

    @property
    def note(self) -> str | None:
        """A note if the text was truncated."""
        length = len(self.ids)
        note = f"the {self.name} has {length + self.n_cut} tokens and is truncated to {length}, the model's context"
        return note if self.n_cut else None

    def tokens_of(self, first: int, last: int) -> list[int]:
        """Indices of the tokens that overlap the characters [first, last)."""
        return [i for i, span in enumerate(self.spans) if span is not None and span[0] < last and span[1] > first]


def text_input(tokenizer: Tokenizer, text: str, separated: bool) -> ModelInput:
    """separated: a separator precedes the text, as documents in training. Raises UsageFault if there are no tokens."""
    ids_of_text, spans = tokenizer.spans(text)
    if len(ids_of_text) == 0 and not (separated and tokenizer.vocabulary.separator is not None):
        what = "a text is empty" if not text else "the tokenizer drops all characters of a text"
        raise UsageFault(f"{what}, and this model has no separator token to start with", hint="give a text with tokens")
    ids = prompt_ids(tokenizer, text, separated)
    prefix: list[tuple[int, int] | None] = [None] * (len(ids) - len(ids_of_text))
    return ModelInput(text, ids, [*prefix, *((int(first), int(last)) for first, last in spans)])


def source_input(tokenizer: Tokenizer, text: str, context: int | None = None) -> ModelInput:
    """A source, which ends with a separator; at most `context` tokens with it."""
    ids_of_text, spans = tokenizer.spans(text)
    n = len(ids_of_text) if context is None else context - 1
    separator = tokenizer.vocabulary.separator
    assert separator is not None, "tokenizers of an encoder-decoder have a separator"
    ids = [*map(int, ids_of_text[:n]), separator]
    return ModelInput(text, ids, [*((int(first), int(last)) for first, last in spans[:n]), None], max(0, len(ids_of_text) - n), "source")


def target_input(tokenizer: Tokenizer, text: str, context: int) -> ModelInput:
    """A target as decoder input, which begins with a separator; at most `context` tokens with it."""
    return replace(text_input(tokenizer, text, separated=True), name="target").truncate(context)


def untruncated_input(trained: Trained, text: str) -> ModelInput:
    """A text of any length: the source of an encoder-decoder, else the input."""
    if trained.model.needs_source:
        return source_input(trained.source_tokenizer, text)
    return text_input(trained.tokenizer, text, separated=not trained.recipe.data.split.tail)
