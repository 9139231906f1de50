"""Translation: an encoder-decoder generates the target of a source by beam search; infilling: what masks stand for.

A source ends with a separator, and a target begins and ends with one, unless an imported tokenizer says otherwise.
Sources of similar length share a batch.

A model trained to predict spans (T5, Raffel et al. 2020, arXiv:1910.10683) reads one sentinel per mask and generates
each sentinel with its span; one trained to predict the text (BART, Lewis et al. 2020, arXiv:1910.13461) reads the mask
token and generates all of the text.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from mini_tf.data.tokenization.prompts import MASK, split_at_masks
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import first_tokens, or_unknown
from mini_tf.generation.beam import BeamSettings, Hypothesis, beam_search
from mini_tf.generation.decoding import CachedModel, pad
from mini_tf.generation.mask_filling import text_after
from mini_tf.generation.prompt_ids import affixes
from mini_tf.nn.model import Model
from mini_tf.recipe.sections import Generate
from mini_tf.system.errors import RunFault, UsageFault

BATCH_SIZE = 32
"""Default number of sources per batch."""
SORTED_BATCHES = 16
"""Batches whose sources are sorted by length together."""
MAX_EXTRA_TOKENS = 50
"""Tokens by which a target may be longer than its source (Vaswani et al. 2017, section 6.1)."""


class SourceIds(NamedTuple):
    """The ids of a source with its separator; `cut`: how many of its `length` tokens were truncated on the right.

    parts: the texts that were tokenized.
    """

    ids: list[int]
    length: int
    cut: int
    parts: list[str]


class Translation(NamedTuple):
    """logprob: summed over the tokens, including the end token; score: logprob with the length penalty, for ranking."""

    text: str
    logprob: float
    score: float


EMPTY = Translation("", 0.0, 0.0)
"""The translation of a blank source."""


class Translator:
    """Generates targets with an encoder-decoder. context: maximum source length with the separator."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        source_tokenizer: Tokenizer,
        settings: Generate,
        *,
        context: int | None = None,
    ) -> None:
        assert model.needs_source
        self.model, self.tokenizer, self.source_tokenizer, self.settings = model, tokenizer, source_tokenizer, settings
        self.device = next(model.parameters()).device
        self._max_length, max_source = (limit or 2**20 for limit in (model.max_length(), model.max_length("source")))
        self.context = min(context or model.context, max_source)
        vocabulary = tokenizer.vocabulary
        self._start, self._ends = vocabulary.target_start, vocabulary.ends
        self._before, self._behind = affixes(source_tokenizer, "source")
        self.longest = self.context - len(self._before) - len(self._behind)
        """Tokens of the text of a source, at most."""

    def encode_sources(self, texts: Sequence[str]) -> list[SourceIds]:
        """Token ids of sources; longer ones than the context are truncated on the right, between characters.

        As in training, a text that normalizes to nothing is the unknown token, unless it is blank.
        """
        vocabulary = self.source_tokenizer.vocabulary
        split = [self.parts(text) for text in texts]
        ids_of = iter(self.source_tokenizer.encode_batch([part for parts in split for part in parts]))
        joined = [np.array(self.join([next(ids_of).tolist() for _ in parts]), np.int64) for parts in split]
        joined = [or_unknown(ids, vocabulary) if text.strip() else ids for text, ids in zip(texts, joined, strict=True)]
        kept = [first_tokens(vocabulary, ids, self.longest) for ids in joined]
        return [
            SourceIds([*self._before, *ids[:n].tolist(), *self._behind], len(ids), len(ids) - n, parts)
            for ids, n, parts in zip(joined, kept, split, strict=True)
        ]

    def parts(self, text: str) -> list[str]:
        """The parts of a source that are tokenized one by one."""
        return [text]

    def join(self, parts: Sequence[list[int]]) -> list[int]:
        """The token ids of a source, from those of its parts."""
        [ids] = parts
        return ids

    def decode(self, source: str, ids: Sequence[int]) -> str:
        """The text of the generated `ids` for a source."""
        return self.tokenizer.decode(ids)

    @property
    def _banned(self) -> frozenset[int]:
        """Special tokens that are never generated."""
        return self.tokenizer.vocabulary.special_ids - {*self._ends}

    def translate(
        self, sources: Sequence[str], batch_size: int = BATCH_SIZE, n_best: int = 1
    ) -> Iterator[list[Translation]]:
        """The `n_best` translations of each source, the best first, in the order of the sources.

        A translation does not depend on the other sources of the batch. n_best: at most num_beams.
        """
        chunk = SORTED_BATCHES * batch_size
        for first in range(0, len(sources), chunk):
            yield from self._translate_chunk(sources[first : first + chunk], batch_size, n_best)

    def _translate_chunk(self, texts: Sequence[str], batch_size: int, n_best: int) -> list[list[Translation]]:
        self.model.eval()
        sources, translations = self.encode_sources(texts), [[EMPTY] * n_best for _ in texts]
        order = [number for number, text in enumerate(texts) if text.strip() and sources[number].length]
        order.sort(key=lambda number: len(sources[number].ids))
        for first in range(0, len(order), batch_size):
            numbers = order[first : first + batch_size]
            hypotheses = self._search([sources[number] for number in numbers], n_best)
            for number, best in zip(numbers, hypotheses, strict=True):
                text = partial(self.decode, texts[number])
                translations[number] = [Translation(text(ids), logprob, score) for ids, logprob, score, _ in best]
        return translations

    @torch.inference_mode()
    def _search(self, sources: Sequence[SourceIds], n_best: int) -> list[list[Hypothesis]]:
        shared = ("num_beams", "length_penalty", "min_new_tokens", "no_repeat_ngram")
        options = {name: getattr(self.settings, name) for name in shared}
        beams = BeamSettings(self._ends, n_best=n_best, banned=tuple(sorted(self._banned)), **options)
        memory = self.model.encode(pad([source.ids for source in sources], self.device, left=False))
        *forced, begin = (torch.full((len(sources),), id, device=self.device) for id in self._start)
        decoder = CachedModel(self.model, self.model.start(len(sources)), memory)
        for ids in forced:
            decoder.decode(ids)
        return beam_search(decoder, begin, [self._limit(source) for source in sources], beams)

    def _limit(self, source: SourceIds) -> int:
        """Maximum length of a translation in tokens, including the end token."""
        longest = max(source.length - source.cut + MAX_EXTRA_TOKENS, self.settings.min_new_tokens)
        return min(self.settings.max_new_tokens, longest, self._max_length - len(self._start) + 1)


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
            if sentinel in spans:
                text += part
                text += text_after(self.tokenizer, text, spans[sentinel])
            else:
                text += unfilled + MASK
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
