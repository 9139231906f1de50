"""Tokenized texts whose tokens, or words, are the rows and columns of attention maps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.inspection.capture import Capture, capture, own_mixers
from mini_tf.inspection.model_input import ModelInput, target_input, untruncated_input
from mini_tf.inspection.words import Words, words_of
from mini_tf.nn.mixer import Mixer
from mini_tf.nn.model_stack import UNITS, SequenceKind
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import UNLIMITED, Trained


@dataclass(frozen=True)
class TokenizedText:
    """A model input with its tokens and words as strings.

    by_words: maps show words, not tokens; prefix: attention within the text is bidirectional (prefix LM).
    """

    input: ModelInput
    tokens: list[str]
    words: Words
    by_words: bool = False
    prefix: bool = False

    @property
    def units(self) -> list[str]:
        """Names of rows or columns: words or tokens."""
        return self.words.texts if self.by_words else self.tokens

    def to_tokens(self, device: torch.device) -> Tokens:
        ids: Tensor = torch.tensor([self.input.ids], device=device)
        length = ids.shape[1]
        return Tokens(
            ids, TokenPositions(length).with_prefix(torch.tensor([length], device=device)) if self.prefix else None
        )


def tokenized_text(tokenizer: Tokenizer, input: ModelInput) -> TokenizedText:
    """The input with its tokens as units."""
    tokens = tokenizer.pieces(input.ids)
    return TokenizedText(input, tokens, words_of(input, tokens))


@dataclass(frozen=True)
class TokenizedTexts:
    """own: the input of the model, or of the decoder; source: of an encoder-decoder.

    n_memory: tokens before the last row of a stream, which are its memory.
    """

    own: TokenizedText
    source: TokenizedText | None = None
    n_memory: int = 0

    def of(self, rows: SequenceKind) -> TokenizedText:
        """The text of this sequence of hidden states."""
        return self.source if rows == "source" and self.source is not None else self.own

    def units(self, rows: SequenceKind, n: int) -> list[str]:
        """Names of the n members of this sequence: tokens or words, numbers of latent vectors, "output"."""
        if rows in UNITS:
            return [rows] if rows == "output" else [str(i) for i in range(n)]
        return self.of(rows).units

    def by_words(self) -> "TokenizedTexts":
        """The texts with words as units."""
        return TokenizedTexts(
            replace(self.own, by_words=True), self.source and replace(self.source, by_words=True), self.n_memory
        )

    @property
    def all(self) -> list[TokenizedText]:
        """The text, or the source and the target."""
        return [self.own] if self.source is None else [self.source, self.own]

    @property
    def notes(self) -> Sequence[str]:
        """Notes on truncated texts, and on the memory."""
        notes = [one.input.note for one in self.all if one.input.note is not None]
        if self.n_memory:
            length = len(self.own.input.ids)
            notes.append(
                f"the last {length - self.n_memory} of {length} tokens are a row; to them the {self.n_memory} before"
                " are memory"
            )
        return notes


def tokenize_texts(trained: Trained, text: str, target: str | None = None) -> TokenizedTexts:
    """The text as input of the run's model; for an encoder-decoder `text` is the source."""
    context = trained.model.context
    if not trained.model.needs_source:
        prefix = trained.recipe.objective.prompts_are_prefixes(trained.recipe.model)
        longest = trained.generation_context
        input = untruncated_input(trained, text).truncate(context if longest == UNLIMITED else longest)
        n_memory = max(0, len(input.ids) - context)
        return TokenizedTexts(replace(tokenized_text(trained.tokenizer, input), prefix=prefix), n_memory=n_memory)
    assert target is not None, "an encoder-decoder needs a target"
    own = tokenized_text(trained.tokenizer, target_input(trained.tokenizer, target, context))
    return TokenizedTexts(
        own, tokenized_text(trained.source_tokenizer, untruncated_input(trained, text).truncate(context))
    )


def capture_texts(trained: Trained, texts: TokenizedTexts) -> Capture:
    """Capture a forward pass of the run's model on the texts."""
    own, source = (None if one is None else one.to_tokens(trained.setup.device) for one in (texts.own, texts.source))
    assert own is not None
    return capture(trained.model, own, source)


def capture_heads(trained: Trained, texts: TokenizedTexts) -> Capture:
    """`capture_texts` for a view of attention heads. UsageFault if the model has none."""
    captured = capture_texts(trained, texts)
    if not captured.attention:
        kinds = ", ".join(dict.fromkeys(mixer.kind for mixer in trained.recipe.model.all_mixers()))
        what = f"{trained.folder.name} has no attention heads: its layers are {kinds}"
        others = any(type(mixer).observe is not Mixer.observe for mixer in own_mixers(trained.model))
        raise UsageFault(what, hint="see `minitf inspect --help` for views of its layers" if others else None)
    return captured
