"""Copy attention of an encoder-decoder (pointer-generator): an output token is generated, or copied from the source.

    p(w) = p_gen p_vocab(w) + (1 - p_gen) sum of a_i over the source positions i with token w
    a = softmax(q k_i / sqrt(d_model)), q: a projection of the decoder's last hidden state,
        k_i: of the encoder's at position i and, with other weights, at position i - 1 of the same document
    p_gen = sigmoid(linear(hidden state of the decoder))

The attention has weights of its own, so it does not depend on the kind of the cross-attention, and the two can attend
to different tokens: those to be written, and those that help to choose. The states of the paper's recurrent encoder
know the token before theirs; here the second key does, so that the token after the last one written is found at once,
and spans are copied. Special tokens and padding are never copied. Everything is computed from log-probabilities. Time
and memory: as one head of cross-attention without values.
Source: See, Liu, Manning 2017, arXiv:1704.04368, section 2.2; with a transformer: Gehrmann et al. 2018,
arXiv:1808.10792, section 5.2; Enarvi et al. 2020, arXiv:2003.02004.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions, Visibility

NEVER = -1e30
"""Log-probability of what is impossible: finite, so that no gradient is NaN."""
GATE_BIAS = 3.0
"""p_gen is sigmoid(3) = 0.95 at first, so that a trained model to which copying is added hardly changes."""


class Copies(NamedTuple):
    """How the hidden states (*at) of one forward pass copy tokens of their sources of M tokens.

    gate (*at): the logit of p_gen. log_attention (*at, M): log a_i, NEVER where a token is not copied. ids (*at, M):
    tokens of the source; first (*at, M): position of the first occurrence of the same token.
    """

    gate: Tensor
    log_attention: Tensor
    ids: Tensor
    first: Tensor

    def each(self, change: Callable[[Tensor], Tensor]) -> "Copies":
        """With `change`, a selection or reshaping of the leading axes, applied to every tensor."""
        return Copies(*map(change, self))

    def log_p_gen(self) -> Tensor:
        return F.logsigmoid(self.gate)

    def log_odds(self) -> Tensor:
        """(*at, M): the log of (1 - p_gen) / p_gen times the attention to all occurrences of a token, at its first one.

        NEVER at later occurrences, so that each distinct token of the source counts once.
        """
        with torch.no_grad():  # the maximum over the occurrences only scales the sum: its gradients cancel
            highest = torch.full_like(self.log_attention, NEVER).scatter_reduce(
                -1, self.first, self.log_attention, "amax"
            )
        each = (self.log_attention - highest.gather(-1, self.first)).exp()
        sums = torch.zeros_like(each).scatter_add(-1, self.first, each)
        return highest + sums.clamp(min=1).log() - self.gate[..., None]

    def mix(self, logits: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Log-probabilities (*at, V) of the mixture with the vocabulary distribution of `logits` (*at, V), or of
        candidates (W,) or (*at, W).

        For a token of the source: log p_gen p_vocab + log(1 + odds / p_vocab), as exact as a sum of logarithms.
        """
        log_p = logits.to(self.log_attention.dtype).log_softmax(dim=-1)
        ratio = self.log_odds() - log_p.gather(-1, self.ids)
        log_p = (log_p + self.log_p_gen()[..., None]).scatter_add(-1, self.ids, -F.logsigmoid(-ratio))
        return (
            log_p
            if candidates is None
            else log_p.gather(-1, candidates.expand(*log_p.shape[:-1], candidates.shape[-1]))
        )


class CopyAttention(nn.Module):
    """One head of attention over an encoded source of width d_memory, and the gate p_gen."""

    def __init__(self, d_model: int, d_memory: int, init_std: float) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_memory, d_model, bias=False)
        self.previous_key = nn.Linear(d_memory, d_model, bias=False)
        self.gate = nn.Linear(d_model, 1)
        for linear in (self.query, self.key, self.previous_key, self.gate):
            nn.init.normal_(linear.weight, 0.0, init_std)
        nn.init.constant_(self.gate.bias, GATE_BIAS)

    def recall(
        self,
        source: Float[Tensor, "B M d_memory"],
        ids: Int[Tensor, "B M"],
        token_positions: TokenPositions,
        special: Collection[int],
    ) -> State:
        """What is computed once per source; special: ids that are never copied."""
        previous = F.pad(self.previous_key(source[:, :-1]), (0, 0, 1, 0))
        previous = previous.masked_fill(token_positions.all_positions(ids.device)[..., None] == 0, 0)
        copyable = torch.ones_like(ids, dtype=torch.bool)
        for id in special:
            copyable &= ids != id
        index = torch.arange(ids.shape[1], device=ids.device)
        first = torch.where(ids[:, :, None] == ids[:, None, :], index, ids.shape[1]).amin(dim=-1)
        return {"k": self.key(source) + previous, "ids": ids, "first": first, "copyable": copyable}

    def forward(
        self,
        hidden: Float[Tensor, "B L D"] | Float[Tensor, "T D"],
        recalled: State,
        visibility: Visibility,
        at: Int[Tensor, " T"] | None,
    ) -> Copies:
        """Copies of all hidden states (B, L, D), or of those (T, D) at the flat indices `at` into (B, L).

        visibility: of the source; rows of `hidden` that share one are concatenated in it (`SourceMemory.visibility`).
        """
        keys, n_queries = recalled["k"], visibility.queries.length
        n_sources, _, d_model = keys.shape
        q, gate = self.query(hidden), self.gate(hidden).squeeze(-1)
        if at is not None:  # each among the queries of its row, whose keys are then not repeated for every target
            q = q.new_zeros(n_sources * n_queries, d_model).index_copy(0, at, q)
        scores = q.view(n_sources, n_queries, d_model) @ keys.mT * d_model**-0.5  # (S,Q,D) @ (S,D,M) -> (S,Q,M)
        keep: Bool[Tensor, "S Q M"] = visibility.mask(keys.device) & recalled["copyable"][:, None]
        log_attention = (
            scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(~keep, NEVER).log_softmax(dim=-1)
        )
        log_attention = log_attention.masked_fill(~keep, NEVER)  # also in a row without any token to copy
        flat = [
            log_attention,
            *(recalled[name][:, None].expand_as(scores) for name in ("ids", "first")),
            keep.any(dim=-1),
        ]
        shape = hidden.shape[:-1]
        log_attention, ids, first, copies = (
            part.flatten(0, 1)[at] if at is not None else part.reshape(*shape, *part.shape[2:]) for part in flat
        )
        gate = gate.to(log_attention.dtype).masked_fill(~copies, -NEVER)  # p_gen = 1 where nothing can be copied
        return Copies(gate, log_attention, ids, first)
