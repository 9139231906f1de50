"""Reading on: the scores of what follows several texts, each a token longer at every call, through what the model remembers.

Texts of different length are padded on the left. A text that outgrows the context is read anew from the context's last half on,
and the others with it, since they share one state: of texts of many lengths, in large batches, each costs all a reading. What
follows a text never depends on the texts beside it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mini_tf.generation.fast_decoder import FastDecoder
from mini_tf.nn import state as states
from mini_tf.nn.model import Model
from mini_tf.nn.stack import SourceMemory
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import RunFault


class DecodingState:
    """What a decoder reads of each text: the last `context` tokens where it is longer; each text holds a token at least.

    texts: what was read in one go; what came after it is not yet among them. prefix: the tokens of the given texts all see each
    other; those that follow do not become part of that, also where a text is read anew.
    """

    def __init__(self, model: Model, texts: Sequence[Sequence[int]], context: int, prefix: bool = False) -> None:
        self.model, self.context = model, context
        self.device = next(model.parameters()).device
        self.texts = [tuple(text[-context:]) for text in texts]
        self._prefixes = [len(text) if prefix else 0 for text in self.texts]
        self._since: list[Tensor] = []
        self._longest = 0
        self._decoder: FastDecoder | CachedModel

    @torch.inference_mode()
    def scores(self) -> Tensor:
        """Scores (B, V) of the tokens that follow the texts, which are read from their beginning; equal ones once.

        Raises RunFault where they are not finite numbers.
        """
        both = [*zip(self.texts, self._prefixes, strict=True)]
        different = list(dict.fromkeys(both))
        texts, prefixes = zip(*different, strict=True)
        self._since, self._longest = [], max(map(len, texts))
        tokens = padded(texts, self.device)
        if any(prefixes):
            token_positions = tokens.token_positions or TokenPositions(tokens.ids.shape[1])
            tokens = Tokens(tokens.ids, token_positions.with_prefix(torch.tensor(prefixes, device=self.device)))
        memory = CachedModel(self.model, self.model.start(len(different)))
        scores = memory.read(tokens)
        refuse_not_finite(scores)
        if len(different) < len(self.texts):
            rows = torch.tensor([different.index(one) for one in both])
            scores = scores[rows]
            memory.select(rows)
        self._decoder = FastDecoder(self.model, memory.state, [*map(len, self.texts)]) if FastDecoder.fits(self.model) else memory
        return scores

    @torch.inference_mode()
    def after(self, ids: Tensor) -> Tensor:
        """Scores (B, V) of the tokens that follow where the texts go on with `ids` (B,)."""
        self._since.append(ids)
        self._longest += 1
        if self._longest <= self.context:
            return self._decoder.after(ids)
        self._begin_again()
        return self.scores()

    def select(self, rows: Tensor) -> None:
        """Row i becomes what row `rows[i]` was."""
        self._decoder.select(rows)
        self.texts, self._prefixes = ([of[row] for row in rows.tolist()] for of in (self.texts, self._prefixes))
        if self._since:
            self._since = list(torch.stack(self._since)[:, rows])

    def _begin_again(self) -> None:
        """Rows that have outgrown the context begin at its last half; the others still where they began."""
        since = torch.stack(self._since, dim=1).tolist()
        whole = [(*text, *new) for text, new in zip(self.texts, since, strict=True)]
        self.texts = [text if len(text) <= self.context else text[-max(1, self.context // 2) :] for text in whole]
        n_cut = (len(before) - len(text) for before, text in zip(whole, self.texts, strict=True))
        self._prefixes = [max(0, prefix - cut) for prefix, cut in zip(self._prefixes, n_cut, strict=True)]


class CachedModel:
    """Any model, going on from its `state` beside the memory of its sources, where it has some."""

    def __init__(self, model: Model, state: State, memory: SourceMemory | None = None) -> None:
        self.model, self.state, self.memory = model, state, memory

    def read(self, tokens: Tokens) -> Tensor:
        """Scores (B, V) of what follows where the texts go on with `tokens` (B, L)."""
        mixed = self.model(tokens, self.memory, state=self.state)
        self.state = self.model.trim(mixed.state)
        return self.model.logits(mixed.y[:, -1])

    def after(self, ids: Tensor) -> Tensor:
        """Scores (B, V) of the tokens that follow where the texts go on with `ids` (B,)."""
        return self.read(Tokens(ids[:, None]))

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Row i becomes what row `rows[i]` was; only these sources remain, None = all."""
        self.state = states.reorder(self.state, rows) or {}
        if self.memory is not None and sources is not None:
            self.memory = self.memory.select(sources)


def refuse_not_finite(scores: Tensor) -> None:
    """RunFault unless all scores are numbers to choose by. Waits for the device, so it is asked once a reading."""
    if not bool(scores.isfinite().all()):
        raise RunFault("the model's scores are not finite numbers: its training diverged", hint="choose an earlier one: --step N")


def padded(texts: Sequence[Sequence[int]], device: torch.device, left: bool = True) -> Tokens:
    """Rows of ids, padded on one side where they are not all of one length; no query attends to the padding."""
    longest = max(map(len, texts))

    def tensor(rows: Sequence[Sequence[int]]) -> Tensor:
        pads = [[0] * (longest - len(row)) for row in rows]
        return torch.tensor([[*pad, *row] if left else [*row, *pad] for row, pad in zip(rows, pads, strict=True)], device=device)

    even = all(len(text) == longest for text in texts)
    return Tokens(tensor(texts), None if even else TokenPositions.packed(tensor([[1] * len(text) for text in texts])))
