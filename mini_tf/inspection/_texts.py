"""Texts as the model's input: ids with the characters of each token, and words.

In maps of words, weights to the tokens of a word are summed, weights from them averaged, so rows sum to 1.
Source: Clark et al. 2019, arXiv:1906.04341, section 4.1.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mini_tf.data.tokenization.prompts import MASK, PLAIN_MASK
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.prompt_ids import Affixes
from mini_tf.inspection._capture import Capture, capture, self_attn_mixers
from mini_tf.nn.mixer import Mixer
from mini_tf.nn.model_stack import UNITS, SequenceKind
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import UsageFault
from mini_tf.trained.framing import prompt_tokenizer, text_affixes
from mini_tf.trained.opening import UNLIMITED, Trained


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
        message = "a text is empty" if not text else "the tokenizer drops all characters of a text"
        message += ", and this model has no separator token to start with"
        raise UsageFault(message, hint="give a text with tokens")
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


class Words(NamedTuple):
    """The words of a text, split at white space, and the index of each token's word."""

    texts: list[str]
    of_token: list[int]


def words_of(input: ModelInput, pieces: Sequence[str]) -> Words:
    """The words of a text for any tokenizer; `pieces`: the tokens as strings.

    A token of white space belongs to the word before it, or, at the beginning, after it. A token that spans several
    words belongs to the first, whose text it extends. Each separator is a word.
    """
    numbers = [number or -token - 1 for token, number in enumerate(word_numbers(input))]
    members: dict[int, list[int]] = {}
    for token, number in enumerate(numbers):
        members.setdefault(number, []).append(token)
    index = {number: i for i, number in enumerate(members)}
    return Words([_text(input, pieces, tokens) for tokens in members.values()], [index[number] for number in numbers])


def word_numbers(input: ModelInput) -> list[int]:
    """The number of each token's word, split at white space, from 1; 0 for a separator."""
    starts = [match.start() for match in re.finditer(r"\S+", input.text)]
    return [0 if span is None else max(1, bisect_right(starts, _start(input.text, *span))) for span in input.spans]


def aggregate_by_words(
    weights: Float[Tensor, "H L M"], visible: Bool[Tensor, "L M"], rows: list[int], columns: list[int] | None = None
) -> tuple[Float[Tensor, "H W V"], Bool[Tensor, "W V"]]:
    """Attention weights and mask between words; rows, columns: the word of each token (columns None: as rows).

    A word is visible to another if any of its tokens is visible to one of the other's.
    """
    row, column = (membership(of_token).to(weights) for of_token in (rows, rows if columns is None else columns))
    summed = row.T @ weights @ column  # (W,L) @ (H,L,M) @ (M,V) -> (H,W,V)
    return summed / row.sum(dim=0)[:, None], row.T @ visible.to(row.dtype) @ column > 0


def membership(of_token: Sequence[int], n_words: int = -1) -> Tensor:
    """(tokens, words): 1 where a token belongs to a word; n_words -1: the largest index + 1."""
    return torch.nn.functional.one_hot(torch.tensor(of_token), n_words)


def _start(text: str, first: int, last: int) -> int:
    """The first character of a token that is not white space, or its first."""
    match = re.compile(r"\S").search(text, first, last)
    return match.start() if match else first


def _text(input: ModelInput, pieces: Sequence[str], tokens: Sequence[int]) -> str:
    spans = [span for token in tokens if (span := input.spans[token]) is not None]
    if not spans:
        return "".join(pieces[token] for token in tokens)
    text = input.text[min(first for first, _ in spans) : max(last for _, last in spans)]
    return text.strip() or text


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
        ids, length = torch.tensor([self.input.ids], device=device), len(self.input.ids)
        prefix = torch.tensor([length], device=device) if self.prefix else None
        return Tokens(ids, None if prefix is None else TokenPositions(length).with_prefix(prefix))


def tokenized_text(tokenizer: Tokenizer, input: ModelInput) -> TokenizedText:
    tokens = tokenizer.pieces(input.ids)
    return TokenizedText(input, tokens, words_of(input, tokens))


@dataclass(frozen=True)
class TokenizedTexts:
    """inputs: of the model, or of the decoder; source: of an encoder-decoder.

    n_memory: tokens before the last row of a stream, which are its memory.
    """

    inputs: TokenizedText
    source: TokenizedText | None = None
    n_memory: int = 0

    def of(self, rows: SequenceKind) -> TokenizedText:
        return self.source if rows == "source" and self.source is not None else self.inputs

    def units(self, rows: SequenceKind, n: int) -> list[str]:
        """Names of the n members of this sequence: tokens or words, numbers of latent vectors, "output"."""
        if rows in UNITS:
            return [rows] if rows == "output" else [str(i) for i in range(n)]
        return self.of(rows).units

    def by_words(self) -> "TokenizedTexts":
        source = self.source and replace(self.source, by_words=True)
        return replace(self, inputs=replace(self.inputs, by_words=True), source=source)

    @property
    def all(self) -> list[TokenizedText]:
        """The text, or the source and the target."""
        return [self.inputs] if self.source is None else [self.source, self.inputs]

    @property
    def notes(self) -> Sequence[str]:
        """Notes on truncated texts, and on the memory."""
        notes = [text.input.note for text in self.all if text.input.note is not None]
        if self.n_memory:
            length = len(self.inputs.input.ids)
            row = f"the last {length - self.n_memory} of {length} tokens are a row"
            notes.append(f"{row}; to them the {self.n_memory} before are memory")
        return notes


def tokenize_texts(trained: Trained, text: str, target: str | None = None) -> TokenizedTexts:
    """The text as input of the run's model; for an encoder-decoder `text` is the source."""
    context = trained.model.context
    if not trained.model.needs_source:
        prefix = trained.recipe.objective.prompt_is_prefix(trained.recipe.model)
        longest = trained.generation_context
        input = untruncated_input(trained, text).truncate(context if longest == UNLIMITED else longest)
        n_memory = max(0, len(input.ids) - context)
        return TokenizedTexts(replace(tokenized_text(trained.tokenizer, input), prefix=prefix), n_memory=n_memory)
    assert target is not None, "an encoder-decoder needs a target"
    input = target_input(trained.tokenizer, target, context)
    source = untruncated_input(trained, text).truncate(context)
    return TokenizedTexts(tokenized_text(trained.tokenizer, input), tokenized_text(trained.source_tokenizer, source))


def capture_texts(trained: Trained, texts: TokenizedTexts) -> Capture:
    device = trained.setup.device
    source = None if texts.source is None else texts.source.to_tokens(device)
    return capture(trained.model, texts.inputs.to_tokens(device), source)


def capture_heads(trained: Trained, texts: TokenizedTexts) -> Capture:
    """`capture_texts` for a view of attention heads. UsageFault if the model has none."""
    captured = capture_texts(trained, texts)
    if not captured.attention:
        kinds = ", ".join(dict.fromkeys(mixer.kind for mixer in trained.recipe.model.all_mixers()))
        message = f"{trained.folder.name} has no attention heads: its layers are {kinds}"
        others = any(type(mixer).observe is not Mixer.observe for mixer in self_attn_mixers(trained.model))
        raise UsageFault(message, hint="see `minitf inspect --help` for views of its layers" if others else None)
    return captured
