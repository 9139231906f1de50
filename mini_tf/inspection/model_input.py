"""A text as the model's input: token ids with the characters of each token."""

from dataclasses import dataclass, replace

from mini_tf.data.prompts import MASK, PLAIN_MASK
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.prompt_ids import Affixes
from mini_tf.system.errors import UsageFault
from mini_tf.trained.framing import prompt_tokenizer, text_affixes
from mini_tf.trained.opening import Trained


@dataclass(frozen=True)
class ModelInput:
    """Ids of a text between special tokens, as generate and predict read it.

    spans: characters [first, last) of each token, or None. n_behind: special tokens behind the text; n_cut: number of
    truncated tokens; name: of the text in messages. has_plain_mask: [MASK] in it is plain text.
    """

    text: str
    ids: list[int]
    spans: list[tuple[int, int] | None]
    n_behind: int = 0
    n_cut: int = 0
    name: str = "text"
    has_plain_mask: bool = False

    def truncate(self, context: int) -> "ModelInput":
        """The first `context` tokens, or fewer and those behind the text."""
        if (n_cut := len(self.ids) - context) <= 0:
            return self
        kept = slice(0, max(0, context - self.n_behind)), slice(max(0, len(self.ids) - self.n_behind), None)
        ids, spans = ([*part[kept[0]], *part[kept[1]]][:context] for part in (self.ids, self.spans))
        return replace(self, ids=ids, spans=spans, n_cut=self.n_cut + n_cut)

    @property
    def note(self) -> str | None:
        """Notes on a truncated text, and on [MASK] that is no mask."""
        length = len(self.ids)
        cut = f"the {self.name} has {length + self.n_cut} tokens and is truncated to {length}, the model's context"
        return "; ".join([*([cut] if self.n_cut else []), *([PLAIN_MASK] if self.has_plain_mask else [])]) or None

    def tokens_of(self, first: int, last: int) -> list[int]:
        """Indices of the tokens that overlap the characters [first, last)."""
        return [i for i, span in enumerate(self.spans) if span is not None and span[0] < last and span[1] > first]


def text_input(tokenizer: Tokenizer, text: str, around: Affixes, name: str = "text") -> ModelInput:
    """A text between special tokens. Raises UsageFault if there are no tokens."""
    ids, spans = tokenizer.spans(text)
    if not (len(ids) or around.before or around.behind):
        what = "a text is empty" if not text else "the tokenizer drops all characters of a text"
        raise UsageFault(f"{what}, and this model has no separator token to start with", hint="give a text with tokens")
    all_ids = [*around.before, *map(int, ids), *around.behind]
    of_text = [(int(first), int(last)) for first, last in spans]
    all_spans = [*[None] * len(around.before), *of_text, *[None] * len(around.behind)]
    return ModelInput(text, all_ids, all_spans, len(around.behind), 0, name, MASK in text and not tokenizer.reads_masks)


def target_input(tokenizer: Tokenizer, text: str, context: int) -> ModelInput:
    """A target as decoder input, with what stands before it; at most `context` tokens in all."""
    return text_input(tokenizer, text, Affixes([*tokenizer.vocabulary.target_start], []), "target").truncate(context)


def untruncated_input(trained: Trained, text: str) -> ModelInput:
    """A text of any length as generate and predict read it: the source of an encoder-decoder, else the input."""
    name = "source" if trained.model.needs_source else "text"
    return text_input(prompt_tokenizer(trained), text, text_affixes(trained), name)
