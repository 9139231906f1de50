"""The texts whose tokens are the rows and columns of a map: one text that reads itself, or a target and its source."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.inspection.capture import Capture, capture
from mini_tf.inspection.framing import Framed, framed_source, framed_target, framed_whole
from mini_tf.inspection.words import Words, words_of
from mini_tf.nn.model import SequenceKind
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.trained.opening import Trained


@dataclass(frozen=True)
class Side:
    """A text as it was given; `tokens`: how its tokens read; by_words: rows and columns are its words, not its tokens;
    prefix: all of its tokens see each other."""

    given: Framed
    tokens: list[str]
    words: Words
    by_words: bool = False
    prefix: bool = False

    @property
    def units(self) -> list[str]:
        """What rows or columns are: tokens, or words."""
        return self.words.texts if self.by_words else self.tokens

    def read_on(self, device: torch.device) -> Tokens:
        ids: Tensor = torch.tensor([self.given.ids], device=device)
        length = ids.shape[1]
        return Tokens(ids, TokenPositions(length).with_prefix(torch.tensor([length], device=device)) if self.prefix else None)


def side_of(tokenizer: Tokenizer, given: Framed) -> Side:
    """A framed text, by tokens."""
    tokens = tokenizer.pieces(given.ids)
    return Side(given, tokens, words_of(given, tokens))


@dataclass(frozen=True)
class Sides:
    """`own`: what the model reads itself, of pairs the target; `source`: of pairs what it reads besides."""

    own: Side
    source: Side | None = None

    def of(self, rows: SequenceKind) -> Side:
        """The text whose tokens stand for such vectors; of an encoder-decoder the source for those of the encoder."""
        return self.source if rows == "source" and self.source is not None else self.own

    def by_words(self) -> "Sides":
        """The same in words."""
        return Sides(replace(self.own, by_words=True), self.source and replace(self.source, by_words=True))

    @property
    def read(self) -> list[Side]:
        """The text; or a source, and its target."""
        return [self.own] if self.source is None else [self.source, self.own]

    @property
    def notes(self) -> Sequence[str]:
        """What has to be told of the texts: which are cut."""
        return [side.given.note for side in self.read if side.given.note is not None]


def sides_of(trained: Trained, text: str, target: str | None = None) -> Sides:
    """A text as this run's model reads it; where it reads pairs the text is the source, and `target` what is written of it."""
    context = trained.model.context
    if not trained.model.needs_source:
        prefix = trained.recipe.objective.prompts_are_prefixes(trained.recipe.model)
        return Sides(replace(side_of(trained.tokenizer, framed_whole(trained, text).cut(context)), prefix=prefix))
    assert target is not None, "a model of pairs reads a target"
    own = side_of(trained.tokenizer, framed_target(trained.tokenizer, target, context))
    return Sides(own, side_of(trained.source_tokenizer, framed_source(trained.source_tokenizer, text, context)))


def captured(trained: Trained, sides: Sides) -> Capture:
    """What passes by while the run's model reads them."""
    own, source = (None if side is None else side.read_on(trained.setup.device) for side in (sides.own, sides.source))
    assert own is not None
    return capture(trained.model, own, source)
