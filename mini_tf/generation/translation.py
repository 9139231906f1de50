"""From texts of one language to texts of another: what an encoder-decoder writes, found by beam search.

A source is read up to its closing separator, a target begins and ends with one. Sources of like length are translated together,
for a padded place costs what a token costs.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.beam import Beam, Hypothesis, search
from mini_tf.generation.decoding import CachedModel, padded
from mini_tf.generation.prompt_ids import start_ids
from mini_tf.nn.model import Model
from mini_tf.recipe.sections import Generate

ROWS = 32
"""Sources that are translated together."""
CHUNK = 16
"""Batches whose sources are sorted by length."""
LONGER = 50
"""Tokens that a target may have more than its source (Vaswani et al. 2017, section 6.1)."""


class SourceIds(NamedTuple):
    """A text as the encoder reads it, with its separator; `cut`: how many of its `length` tokens were left out, from the right."""

    ids: list[int]
    length: int
    cut: int


class Translation(NamedTuple):
    """logprob: the sum of the model's log-probabilities, the end's too; score: what translations are compared by."""

    text: str
    logprob: float
    score: float


NOTHING = Translation("", 0.0, 0.0)
"""What a blank source says."""


class Translator:
    """An encoder-decoder that translates as `options` says. context: the longest source, its separator included; default the model's."""

    def __init__(
        self, model: Model, tokenizer: Tokenizer, source_tokenizer: Tokenizer, options: Generate, *, context: int | None = None
    ) -> None:
        assert model.needs_source
        self.model, self.tokenizer, self.source_tokenizer, self.options = model, tokenizer, source_tokenizer, options
        self.device = next(model.parameters()).device
        self._room, places = (limit or 2**20 for limit in (model.max_length(), model.max_length("source")))
        self.context = min(context or model.context, places)
        [self._separator], [self._source_end] = (start_ids(one, separated=True) for one in (tokenizer, source_tokenizer))

    def sources(self, texts: Sequence[str]) -> list[SourceIds]:
        """Sources as the model reads them: the beginning of one that is longer than the context."""
        kept = self.context - 1
        encoded = [ids.tolist() for ids in self.source_tokenizer.encode_batch(texts)]
        return [SourceIds([*ids[:kept], self._source_end], len(ids), max(0, len(ids) - kept)) for ids in encoded]

    def translate(self, sources: Sequence[str], rows: int = ROWS, n_best: int = 1) -> Iterator[list[Translation]]:
        """The `n_best` translations of each source, the best first, in the order of the sources; `rows` are translated at a time.

        A translation does not depend on what is translated beside it. n_best: no more than there are beams.
        """
        for first in range(0, len(sources), CHUNK * rows):
            yield from self._translate_chunk(sources[first : first + CHUNK * rows], rows, n_best)

    def _translate_chunk(self, texts: Sequence[str], rows: int, n_best: int) -> list[list[Translation]]:
        self.model.eval()
        sources, translations = self.sources(texts), [[NOTHING] * n_best for _ in texts]
        asked = [number for number, text in enumerate(texts) if text.strip() and sources[number].length]
        asked.sort(key=lambda number: len(sources[number].ids))
        for first in range(0, len(asked), rows):
            numbers = asked[first : first + rows]
            for number, found in zip(numbers, self._search([sources[number] for number in numbers], n_best), strict=True):
                translations[number] = [Translation(self.tokenizer.decode(one.ids), one.logprob, one.score) for one in found]
        return translations

    @torch.inference_mode()
    def _search(self, sources: Sequence[SourceIds], n_best: int) -> list[list[Hypothesis]]:
        options, end = self.options, self._separator
        banned = tuple(sorted(self.tokenizer.vocabulary.special_ids - {end}))
        beam = Beam(end, options.num_beams, n_best, options.length_penalty, options.min_new_tokens, options.no_repeat_ngram, banned)
        memory = self.model.encode(padded([source.ids for source in sources], self.device, left=False))
        begin = torch.full((len(sources),), end, device=self.device)
        targets = CachedModel(self.model, self.model.start(len(sources)), memory)
        return search(targets, begin, [self._limit(source) for source in sources], beam)

    def _limit(self, source: SourceIds) -> int:
        """Most tokens of a translation, its end included."""
        longest = max(len(source.ids) - 1 + LONGER, self.options.min_new_tokens)
        return min(self.options.max_new_tokens, longest, self._room)
