"""What an encoder puts in place of [MASK]: for each one the likeliest tokens, ranked by probability.

[MASK] in a prompt to an encoder is the only text that is read as a special token. Where a token may begin with the blank before
its word, the one blank before [MASK] belongs to it, as RoBERTa's mask takes it (Liu et al. 2019, arXiv:1907.11692, released code).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from mini_tf.data.tokenization.stream import TextStream
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.decoding import padded, refuse_not_finite
from mini_tf.generation.prompt_ids import first_text_id, start_ids
from mini_tf.nn.model import Model
from mini_tf.system.errors import RunFault, UsageFault

MASK = "[MASK]"


class MaskedPrompt(NamedTuple):
    """A prompt as an encoder reads it; parts: the text around the masks, one more than there are masks."""

    ids: list[int]
    parts: list[str]


class Candidate(NamedTuple):
    """A token, as people read it, with the model's probability of it; `text`: what it writes after the part before its mask."""

    token: str
    p: float
    text: str


class MaskFiller:
    """An encoder that names what may stand in place of each mask.

    `separated`: texts begin with a separator, as in training. context: the longest text that it reads. RunFault where the
    tokenizer has no mask.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, separated: bool, context: int) -> None:
        self.model, self.tokenizer, self.context = model, tokenizer, context
        vocabulary = tokenizer.vocabulary
        if vocabulary.mask is None:
            raise RunFault(f"the model's tokenizer has no {MASK} token, so there is nothing that the model could fill")
        self._mask, self._special = vocabulary.mask, sorted(vocabulary.special_ids)
        self._start_ids, self._ordinary = start_ids(tokenizer, separated), first_text_id(tokenizer)
        self._takes_blank = tokenizer.has_space_prefixed_tokens or len(tokenizer.encode(" ")) == 0

    def masked_prompt(self, prompt: str) -> MaskedPrompt:
        """The prompt with its masks found; UsageFault where it has none, or is longer than the context."""
        *before, last = prompt.split(MASK)
        if not before:
            raise UsageFault(f"the prompt has no {MASK}, and an encoder writes only in its place", hint=f"as in: The {MASK} is red.")
        parts = [*(part.removesuffix(" ") if self._takes_blank else part for part in before), last]
        ids = [*self._start_ids, *map(int, self.tokenizer.encode(parts[0]))]
        for part in parts[1:]:
            ids += [self._mask, *map(int, self.tokenizer.encode(part))]
        if len(ids) > self.context:
            raise UsageFault(f"the prompt has {len(ids)} tokens, but the model reads {self.context} at most", hint="shorten it")
        return MaskedPrompt(ids, parts)

    @torch.inference_mode()
    def candidates(self, questions: Sequence[MaskedPrompt], n: int) -> list[list[list[Candidate]]]:
        """For each question and each of its masks the `n` likeliest tokens, special ones left out; RunFault as in decoding."""
        self.model.eval()
        tokens = padded([question.ids for question in questions], next(self.model.parameters()).device)
        # A pad is 0, which may be the mask's own id.
        real = torch.ones_like(tokens.ids) if tokens.token_positions is None else tokens.token_positions.segments
        at = ((tokens.ids == self._mask) & (real != 0)).flatten().nonzero().squeeze(1)
        scores = self.model.logits(self.model(tokens, at=at).y)
        refuse_not_finite(scores)
        p = scores.float().softmax(dim=-1)
        p[:, self._special] = -1.0
        best = p.topk(min(n, p.shape[-1] - len(self._special)), dim=-1)
        ranked = iter(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        found = []
        for question in questions:
            masks, before = list[list[Candidate]](), ""
            for part in question.parts[:-1]:
                before += part
                masks.append(self._named(before, *next(ranked)))
                before += masks[-1][0].text
            found.append(masks)
        return found

    def filled(self, question: MaskedPrompt, candidates: Sequence[Sequence[Candidate]]) -> str:
        """The prompt with the likeliest token in place of each mask."""
        *before, last = question.parts
        return "".join(part + ranked[0].text for part, ranked in zip(before, candidates, strict=True)) + last

    def _named(self, before: str, ids: Sequence[int], p: Sequence[float]) -> list[Candidate]:
        """Candidates for a mask that stands after the text `before`."""
        after = [int(id) for id in self.tokenizer.encode(before)]
        if before and not set(after) - set(self._special):
            after = [self._ordinary]  # what is unknown is text as well: the mask does not begin it
        texts = [(stream := TextStream(self.tokenizer, after)).push(id) + stream.end() for id in ids]
        return [Candidate(*named) for named in zip(self.tokenizer.pieces(ids), p, texts, strict=True)]
