"""Infilling: an encoder-decoder reads a prompt with masks and generates the text, or what the masks stand for.

A model trained to predict spans (T5, Raffel et al. 2020, arXiv:1910.10683) reads one sentinel per mask and generates
each sentinel with its span; one trained to predict the text (BART, Lewis et al. 2020, arXiv:1910.13461) reads the mask
token and generates all of the text.
"""

from collections.abc import Mapping, Sequence

from mini_tf.data.tokenization.prompts import MASK, split_at_masks
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.mask_filling import text_after
from mini_tf.generation.translation import Translator
from mini_tf.nn.model import Model
from mini_tf.recipe.sections import Generate
from mini_tf.system.errors import RunFault, UsageFault


class Infiller(Translator):
    """Fills masks with an encoder-decoder. n_sentinels: of the objective; 0: it predicts the text."""

    def __init__(
        self, model: Model, tokenizer: Tokenizer, n_sentinels: int, settings: Generate, *, context: int | None = None
    ) -> None:
        super().__init__(model, tokenizer, tokenizer, settings, context=context)
        self.sentinels = tokenizer.vocabulary.sentinels[:n_sentinels]
        mask = tokenizer.vocabulary.mask
        if mask is None:
            raise RunFault(f"the model's tokenizer has no {MASK} token, so the model cannot fill masks")
        self._mask = mask

    def check(self, prompt: str) -> None:
        """UsageFault if the model cannot fill the masks of the prompt."""
        n = prompt.count(MASK)
        if not n:
            raise UsageFault(f"the prompt has no {MASK}, which the model fills", hint=f"example: The {MASK} is red.")
        if self.sentinels and n > len(self.sentinels):
            raise UsageFault(
                f"the prompt has {n} masks; the model has {len(self.sentinels)} sentinels for them",
                hint="divide the prompt",
            )
        [source] = self.encode_sources([prompt])
        if sum(id == self._mask or id in self.sentinels for id in source.ids) < n:
            message = (
                f"the prompt has {source.length} tokens, and a {MASK} behind the {self.longest} that the model reads"
            )
            raise UsageFault(message, hint="shorten the prompt")

    def parts(self, text: str) -> list[str]:
        return split_at_masks(self.tokenizer, text)

    def join(self, parts: Sequence[list[int]]) -> list[int]:
        ids = list(parts[0])
        for number, part in enumerate(parts[1:]):
            ids += [self.sentinels[number] if self.sentinels else self._mask, *part]
        return ids

    def decode(self, source: str, ids: Sequence[int]) -> str:
        """The generated text, or the prompt with the generated spans; a mask without a span stays [MASK]."""
        if not self.sentinels:
            return super().decode(source, ids)
        spans, text = self._spans(ids), ""
        *parts, last = zip(self.parts(source), source.split(MASK), strict=True)
        for sentinel, (part, unfilled) in zip(self.sentinels, parts, strict=False):
            before = text + part
            text = (
                before + text_after(self.tokenizer, before, spans[sentinel])
                if sentinel in spans
                else text + unfilled + MASK
            )
        return text + last[0]

    @property
    def _banned(self) -> frozenset[int]:
        return super()._banned - set(self.sentinels)

    def _spans(self, ids: Sequence[int]) -> Mapping[int, list[int]]:
        """The tokens after each sentinel in a generated text; of a repeated one, those after its first occurrence."""
        spans, span = dict[int, list[int]](), list[int]()
        for id in ids:
            if id in self.sentinels:
                span = []
                spans.setdefault(id, span)
            else:
                span.append(id)
        return spans
