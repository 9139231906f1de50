"""Prefill and decoding: the logits of the next token of several sequences, with a KV cache or recurrent state.

Sequences of different length are padded on the left. A sequence that outgrows the context is truncated to the last half
of the context and processed again, and with it all others, since they share one state; with many lengths in a large
batch, this happens once per sequence. The logits of a sequence never depend on the others, but for the rounding of
matrix products of another number of rows, which decides near ties only.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mini_tf.data.tokenization.vocabulary import Vocabulary, last_tokens
from mini_tf.generation.fast_decoder import FastDecoder
from mini_tf.nn import state as states
from mini_tf.nn.model import Model
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import SourceMemory
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import RunFault


class DecodingState:
    """A batch of sequences that a decoder extends; each starts as the last `context` tokens of a non-empty prompt.

    sequences: the ids that the last `prefill` processed; ids decoded since are not included. prefix: tokens of a prompt
    attend to each other in both directions; decoded tokens never join the prefix, also after a truncation. vocabulary:
    says where a sequence may be truncated; None: anywhere.
    """

    def __init__(
        self,
        model: Model,
        prompts: Sequence[Sequence[int]],
        context: int,
        prefix: bool = False,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.model, self.context, self._vocabulary = model, context, vocabulary
        self.device = next(model.parameters()).device
        self.sequences = [tuple(prompt[-context:]) for prompt in prompts]
        self._prefixes = [len(sequence) if prefix else 0 for sequence in self.sequences]
        self._decoded: list[Tensor] = []
        self.longest = 0
        self._decoder: FastDecoder | CachedModel | None = None

    @torch.inference_mode()
    def prefill(self) -> Tensor:
        """Process all sequences from their beginning, duplicates once; logits (B, V) of the next token.

        RunFault if the logits are not finite.
        """
        keys = [*zip(self.sequences, self._prefixes, strict=True)]
        unique = list(dict.fromkeys(keys))
        sequences, prefixes = zip(*unique, strict=True)
        self._decoded, self.longest = [], max(map(len, sequences))
        tokens = pad(sequences, self.device)
        if any(prefixes):
            token_positions = tokens.token_positions or TokenPositions(tokens.ids.shape[1])
            tokens = Tokens(tokens.ids, token_positions.with_prefix(torch.tensor(prefixes, device=self.device)))
        cached = CachedModel(self.model, self.model.start(len(unique)))
        logits = cached.forward(tokens)
        check_finite(logits)
        if len(unique) < len(self.sequences):
            rows = torch.tensor([unique.index(key) for key in keys])
            logits = logits[rows]
            cached.select(rows)
        fast = FastDecoder.fits(self.model)
        self._decoder = FastDecoder(self.model, cached.state, [*map(len, self.sequences)]) if fast else cached
        return logits

    @torch.inference_mode()
    def decode(self, ids: Tensor) -> Tensor:
        """Append `ids` (B,); logits (B, V) of the next token."""
        self.append(ids)
        if self.longest <= self.context and self._decoder is not None:
            return self._decoder.decode(ids)
        self._truncate()
        return self.prefill()

    def release(self) -> FastDecoder:
        """Give the decoder away, whose ids are then given by `append`: `decode` processes the sequences again."""
        decoder, self._decoder = self._decoder, None
        assert isinstance(decoder, FastDecoder)
        return decoder

    def append(self, ids: Tensor) -> None:
        """Record `ids` (B,) as decoded."""
        self._decoded.append(ids)
        self.longest += 1

    def select(self, rows: Tensor) -> None:
        """Row i becomes row `rows[i]`."""
        if self._decoder is not None:
            self._decoder.select(rows)
        self.sequences, self._prefixes = (
            [items[row] for row in rows.tolist()] for items in (self.sequences, self._prefixes)
        )
        if self._decoded:
            self._decoded = list(torch.stack(self._decoded)[:, rows])

    def _truncate(self) -> None:
        """Truncate sequences that have outgrown the context to its last half; keep the others."""
        decoded = torch.stack(self._decoded, dim=1).tolist()
        whole = [(*sequence, *ids) for sequence, ids in zip(self.sequences, decoded, strict=True)]
        self.sequences = [ids if len(ids) <= self.context else ids[-self._n_kept(ids) :] for ids in whole]
        n_cut = (len(before) - len(after) for before, after in zip(whole, self.sequences, strict=True))
        self._prefixes = [max(0, prefix - cut) for prefix, cut in zip(self._prefixes, n_cut, strict=True)]

    def _n_kept(self, ids: Sequence[int]) -> int:
        n = max(1, self.context // 2)
        return n if self._vocabulary is None else last_tokens(self._vocabulary, np.array(ids), n)


class CachedModel:
    """Any model with its `state`, and for an encoder-decoder the encoded sources (`memory`)."""

    def __init__(self, model: Model, state: State, memory: SourceMemory | None = None) -> None:
        self.model, self.state, self.memory = model, state, memory

    def forward(self, tokens: Tokens) -> Tensor:
        """Append `tokens` (B, L); logits (B, V) of the next token."""
        output = self.model(tokens, self.memory, state=self.state)
        self.state = self.model.trim(output.state)
        last = output.each(lambda part: part[:, -1])
        return self.model.logits(last.y, copies=last.copies)

    def decode(self, ids: Tensor) -> Tensor:
        """Append `ids` (B,); logits (B, V) of the next token."""
        return self.forward(Tokens(ids[:, None]))

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Row i becomes row `rows[i]`; keep only these sources, None = all."""
        self.state = states.reorder(self.state, rows) or {}
        if self.memory is not None and sources is not None:
            self.memory = self.memory.select(sources)


def check_finite(logits: Tensor) -> None:
    """RunFault unless all values are finite. Synchronizes with the device, so it is called once per prefill."""
    if not bool(logits.isfinite().all()):
        raise RunFault(
            "the model's logits are not finite: its training diverged", hint="choose an earlier checkpoint: --step N"
        )


def pad(sequences: Sequence[Sequence[int]], device: torch.device, left: bool = True) -> Tokens:
    """A batch of sequences, padded on one side if their lengths differ; no query attends to the padding."""
    longest = max(map(len, sequences))

    def tensor(rows: Sequence[Sequence[int]]) -> Tensor:
        padding = [[0] * (longest - len(row)) for row in rows]
        return torch.tensor(
            [[*pads, *row] if left else [*row, *pads] for row, pads in zip(rows, padding, strict=True)], device=device
        )

    equal = all(len(sequence) == longest for sequence in sequences)
    segments = [[1] * len(sequence) for sequence in sequences]
    return Tokens(tensor(sequences), None if equal else TokenPositions.packed(tensor(segments)))
