"""Mask filling: an encoder predicts the most probable tokens at each [MASK]."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mini_tf.data.tokenization.prompts import MASK, PromptTokenizer, split_at_masks
from mini_tf.data.tokenization.stream import TextStream
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.decoding import check_finite, pad
from mini_tf.generation.prompt_ids import Affixes, first_text_id
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.model import Model
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import RunFault, UsageFault


class MaskedBefore:
    """A decoder that predicts masks at the position before them (`objective: hybrid`), called as an encoder is: tokens
    attend in both directions, and what is predicted at position i is token i.
    """

    def __init__(self, model: Model) -> None:
        self.decoder = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.decoder, name)

    def __call__(self, tokens: Tokens, source: None = None, at: Tensor | None = None) -> ForwardOutput:
        """at (T,): flat indices into (B, L) of the masks, none of which is the first token of a text."""
        assert at is not None, "a masked token is predicted at the position before it; give the positions of the masks"
        length = tokens.ids.shape[1]
        positions = tokens.token_positions or TokenPositions(length)
        both_directions = replace(positions, orders=torch.full_like(tokens.ids, length))
        output: ForwardOutput = self.decoder(replace(tokens, token_positions=both_directions), None, at - 1)
        return output


class MaskedPrompt(NamedTuple):
    """The ids of a prompt, and the parts of its text around the masks, one more than there are masks."""

    ids: list[int]
    parts: list[str]


def text_after(tokenizer: Tokenizer, before: str, ids: Sequence[int]) -> str:
    """The text that `ids` add to the text `before`."""
    after = [int(id) for id in tokenizer.encode(before)]
    if before and not set(after) - tokenizer.vocabulary.special_ids:
        after = [first_text_id(tokenizer)]  # unknown characters are text too: the ids are not at the beginning
    stream = TextStream(tokenizer, after)
    return "".join(map(stream.push, ids)) + stream.end()


class Candidate(NamedTuple):
    """A predicted token, its probability and its id."""

    token: str
    p: float
    id: int


class MaskFiller:
    """Fills masks with an encoder.

    around: special tokens around a text, as in training. context: maximum length in tokens. first: position of the
    first token that the model can predict. RunFault if the tokenizer has no mask token.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, around: Affixes, context: int, first: int = 0) -> None:
        self.model, self.tokenizer, self.context = model, tokenizer, context
        vocabulary = tokenizer.vocabulary
        if vocabulary.mask is None:
            raise RunFault(f"the model's tokenizer has no {MASK} token, so the model cannot fill masks")
        self._mask, self._special = vocabulary.mask, sorted(vocabulary.special_ids)
        self._affixes, self._first = around, first

    def encode_prompt(self, prompt: str) -> MaskedPrompt:
        """UsageFault if the prompt has no mask or is longer than the context."""
        parts = split_at_masks(self.tokenizer, prompt)
        if len(parts) == 1:
            raise UsageFault(
                f"the prompt has no {MASK}, and an encoder predicts tokens only there",
                hint=f"example: The {MASK} is red.",
            )
        text = PromptTokenizer(self.tokenizer, [self._mask]).encode(prompt)
        ids = [*self._affixes.before, *map(int, text), *self._affixes.behind]
        if len(ids) > self.context:
            raise UsageFault(
                f"the prompt has {len(ids)} tokens, more than the context of {self.context}", hint="shorten it"
            )
        if self._mask in ids[: self._first]:
            message = f"the prompt begins with {MASK}, which the model predicts from the token before it"
            raise UsageFault(message, hint="put a word before it")
        return MaskedPrompt(ids, parts)

    @torch.inference_mode()
    def candidates(self, prompts: Sequence[MaskedPrompt], n: int) -> list[list[list[Candidate]]]:
        """The `n` most probable tokens of each mask, without special ones; RunFault if logits are not finite."""
        self.model.eval()
        tokens = pad([prompt.ids for prompt in prompts], next(self.model.parameters()).device)
        # Padding has id 0, which may be the mask's id.
        real = torch.ones_like(tokens.ids) if tokens.token_positions is None else tokens.token_positions.segments
        at = ((tokens.ids == self._mask) & (real != 0)).flatten().nonzero().squeeze(1)
        logits = self.model.logits(self.model(tokens, at=at).y)
        check_finite(logits)
        p = logits.float().softmax(dim=-1)
        p[:, self._special] = -1.0
        best = p.topk(min(n, p.shape[-1] - len(self._special)), dim=-1)
        ranked = iter(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        return [[self._candidates(*next(ranked)) for _ in prompt.parts[1:]] for prompt in prompts]

    def fill(self, prompt: MaskedPrompt, candidates: Sequence[Sequence[Candidate]]) -> str:
        """The prompt with the most probable token at each mask.

        The tokens of adjacent masks are decoded together, since several bytes may be one character; bytes that are not
        valid UTF-8 become U+FFFD.
        """
        text, adjacent = "", list[int]()
        for part, ranked in zip(prompt.parts, [*candidates, ()], strict=True):
            if part:
                text, adjacent = text + self._text_of(adjacent, text) + part, []
            adjacent += [candidate.id for candidate in ranked[:1]]
        return text + self._text_of(adjacent, text)

    def _text_of(self, ids: Sequence[int], before: str) -> str:
        return text_after(self.tokenizer, before, ids) if ids else ""

    def _candidates(self, ids: Sequence[int], p: Sequence[float]) -> list[Candidate]:
        return [Candidate(*candidate) for candidate in zip(self.tokenizer.pieces(ids), p, ids, strict=True)]
