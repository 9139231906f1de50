"""The task of `replaced_token`: replace masked tokens by samples, and compute the losses of both networks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mini_tf.data.batch import Batch
from mini_tf.nn.layers.cross_entropy import IGNORED
from mini_tf.nn.layers.head import is_token
from mini_tf.nn.mixer import sum_penalties
from mini_tf.nn.model import Model
from mini_tf.nn.state import State
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import LossSums, Task
from mini_tf.objectives._token_loss import pad_targets
from mini_tf.papers.electra.networks import embedding_of, sample
from mini_tf.system.errors import RunFault

GENERATOR, DISCRIMINATOR = "generator", "discriminator"
"""The parts of the loss."""
Loss = Literal["binary", "softmax_copy", "softmax"]


class Proposal(nn.Module):
    """Proposes tokens for the masked positions without a network: all alike, or by their frequency.

    counts (V,): occurrences of each token in the training data; all 1 until `Objective.fit`. Stored only if `unigram`.
    """

    def __init__(self, vocabulary_size: int, unigram: bool) -> None:
        super().__init__()
        self.register_buffer("counts", torch.ones(vocabulary_size), persistent=unigram)

    def forward(self, n: int) -> Tensor:
        """Logits (n, V)."""
        return self.counts.log().expand(n, -1)  # type: ignore[operator]


class Replacement(Task):
    """The loss of the generator, if there is one, and of the model, the discriminator.

    generator: a model, a `Proposal`, or None, where the masked text itself is the input. special (V,): True for special
    tokens, which are never sampled. masked_only: the discriminator's loss is on masked positions, not on all. shared:
    the embedding is shared. Outputs in eval mode: (T, 2), a score that grows with the probability of a replacement, and
    whether the token is replaced. two_stages: in training the generator learns alone for so many steps; then the
    discriminator, from its weights, while the generator is frozen.
    """

    def __init__(
        self,
        model: Model,
        generator: nn.Module | None,
        special: Tensor,
        loss: Loss,
        weights: Mapping[str, float],
        *,
        masked_only: bool,
        shared: bool,
        temperature: float,
        disallow_correct: bool,
        two_stages: int,
    ) -> None:
        super().__init__()
        self.model, self.generator, self.loss = model, generator, loss
        self.gate = nn.Linear(model.d_model, 1) if loss == "softmax_copy" else None
        self.register_buffer("special", special, persistent=False)
        self.masked_only, self.shared, self.weights = masked_only, shared, weights
        self.temperature, self.disallow_correct = temperature, disallow_correct
        self.two_stages, self.stage = two_stages, "both"

    @property
    def phase(self) -> str:
        return self.stage

    def refresh(self, seed: int, step: int) -> None:
        if not self.two_stages:
            return
        self.stage = GENERATOR if step < self.two_stages else DISCRIMINATOR
        if step == self.two_stages:  # a resumed run copies again, and the weights are still the same
            assert self.generator is not None
            with torch.no_grad():
                tensors = self.model.state_dict(keep_vars=True)
                for name, tensor in self.generator.state_dict().items():
                    if name in tensors and tensors[name].shape == tensor.shape:
                        tensors[name].copy_(tensor)

    def pad_targets(self, batch: Batch, parts: int) -> Batch:
        padded, extras = pad_targets(batch, parts), dict(batch.extras)
        extras["uniform"] = F.pad(extras["uniform"], (0, len(padded.labels) - len(batch.labels)))
        extras.pop("real", None)  # padding is ignored, too
        return replace(padded, extras=extras)

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        stage = self.stage if self.training else "both"
        with torch.set_grad_enabled(torch.is_grad_enabled() and stage != DISCRIMINATOR):
            logits, penalty = self._propose(batch)
            parts: dict[str, Tensor] = {}
            if isinstance(self.generator, Model) and logits is not None:
                parts[GENERATOR] = F.cross_entropy(logits, batch.labels, reduction="sum")
        if stage == GENERATOR:
            return self._sums(parts, {}, penalty)
        ids = self._replaced(batch, logits)
        metrics: dict[str, tuple[Tensor, Tensor | int]] = {}
        if GENERATOR in parts and not self.training:
            assert logits is not None
            metrics["generator_accuracy"] = ((logits.argmax(-1) == batch.labels).sum(), len(batch.labels))
        return self._discriminate(batch, ids, parts, metrics, penalty)

    def _propose(self, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        """Logits (T, V) of the replacements, and the generator's penalty; None without samples."""
        if not isinstance(self.generator, Model):
            return None if self.generator is None else self.generator(len(batch.labels)), None
        mixed = self.generator(batch.inputs, at=batch.target_positions)
        return _full(self.generator.logits(_flat(mixed.y))), mixed.penalty

    def _discriminate(
        self,
        batch: Batch,
        ids: Tensor,
        parts: dict[str, Tensor],
        metrics: dict[str, tuple[Tensor, Tensor | int]],
        penalty: Tensor | None,
    ) -> LossSums:
        at = batch.target_positions if self.masked_only else batch.extras.get("real")
        mixed = self.model(replace(batch.inputs, ids=ids), at=at)
        hidden, (shown, original) = _flat(mixed.y), (_at(tokens, at) for tokens in (ids, batch.extras["original"]))
        penalty = sum_penalties(penalty, mixed.penalty)
        is_target = self._is_target(batch, at)
        if self.training and self.loss == "softmax":
            parts[DISCRIMINATOR] = self.model.cross_entropy(hidden, original.masked_fill(~is_target, IGNORED))
            return self._sums(parts, metrics, penalty)
        fake = shown != original
        if self.loss == "binary":
            scores = _full(self.model.logits(hidden)).squeeze(-1)
            losses = F.binary_cross_entropy_with_logits(scores, fake.to(scores), reduction="none")
            right = (scores > 0) == fake
        else:
            log_p, copied = self._log_probabilities(hidden, shown)
            drawn = log_p.gather(1, original[:, None]).squeeze(1)
            losses = -torch.where(fake, drawn, copied)
            scores, right = -copied, log_p.scatter(1, shown[:, None], copied[:, None]).argmax(-1) == original
        parts[DISCRIMINATOR] = (losses * is_target).sum()
        if self.training:
            return self._sums(parts, metrics, penalty)
        replaced = (ids != batch.extras["original"]).flatten()
        tokens = _at(replaced, batch.extras.get("real"))
        metrics |= {"accuracy": (right.sum(), len(right)), "replaced_rate": (tokens.sum(), len(tokens))}
        outputs = torch.stack([scores, fake.to(scores)], dim=1)
        # Where [MASK] is shown, every masked token differs from the original: nothing is to be detected.
        return self._sums(parts, metrics, penalty, outputs[:0] if self.generator is None else outputs)

    def _is_target(self, batch: Batch, at: Tensor | None) -> Tensor:
        """(T,): False at targets of the discriminator that `pad_targets` has added."""
        if self.masked_only:
            return batch.labels != IGNORED
        return _at(is_token(batch.inputs), at)

    def _log_probabilities(self, hidden: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
        """log p (T, V) of every token where it is not copied, and log p (T,) of the token that is shown."""
        log_p = _full(self.model.logits(hidden)).log_softmax(-1)
        if self.gate is None:
            return log_p, log_p.gather(1, shown[:, None]).squeeze(1)
        gate = _full(self.gate(hidden))
        log_p = log_p + F.logsigmoid(-gate)
        return log_p, torch.logaddexp(F.logsigmoid(gate), log_p.gather(1, shown[:, None])).squeeze(1)

    @torch.no_grad()
    def _replaced(self, batch: Batch, logits: Tensor | None) -> Tensor:
        """(B, L): the text with a sample at each masked position; a sample may be the original token."""
        if logits is None:
            return batch.inputs.ids
        excluded: Tensor = self.special  # type: ignore[assignment]
        is_ignored = batch.labels == IGNORED
        if self.disallow_correct:
            excluded = excluded.expand(len(logits), -1).scatter(
                1, batch.labels.masked_fill(is_ignored, 0)[:, None], True
            )
        sampled = sample(logits / self.temperature, batch.extras["uniform"], excluded)
        original, at = batch.extras["original"], batch.target_positions
        sampled = torch.where(is_ignored, _at(original, at), sampled)
        return sampled.view_as(original) if at is None else original.flatten().scatter(0, at, sampled).view_as(original)

    def _sums(
        self,
        parts: dict[str, Tensor],
        metrics: dict[str, tuple[Tensor, Tensor | int]],
        penalty: Tensor | None,
        outputs: Tensor | None = None,
    ) -> LossSums:
        if penalty is not None:
            parts["penalty"] = penalty
        return LossSums(parts, metrics, None, outputs)

    def gradient_metrics(self, batch: Batch) -> dict[str, float]:
        """gradient_ratio: norm of the weighted gradient of the discriminator's loss with respect to the shared token
        embedding, divided by that of the generator's loss.
        """
        if not self.shared or not (table := embedding_of(self.model).tokens.weight).requires_grad:
            return {}
        parts = self(batch).parts
        norms = {}
        for name in (GENERATOR, DISCRIMINATOR):
            mean = parts[name] * (self.weights.get(name, 1.0) / max(1, batch.counts[name]))
            norms[name] = float(torch.autograd.grad(mean, table)[0].float().norm())
        return {"gradient_ratio": norms[DISCRIMINATOR] / norms[GENERATOR]} if norms[GENERATOR] else {}

    def token_predictor(self) -> Model:
        if isinstance(self.generator, Model):
            return self.generator
        if self.loss == "binary":
            message = "this run has no network that predicts tokens: its masked tokens are drawn without a generator"
            raise RunFault(message, hint="minitf pretrain with objective.proposal=generator trains one")
        return self.model

    @torch.no_grad()
    def replaced_probabilities(self, tokens: Tokens) -> Tensor:
        hidden = self.model(tokens).y.flatten(0, 1)
        if self.loss == "binary":
            p = _full(self.model.logits(hidden)).sigmoid()
        else:
            p = -self._log_probabilities(hidden, tokens.ids.flatten())[1].expm1()
        return p.view(tokens.ids.shape)

    def replace_tokens(self, batch: Batch) -> Tensor:
        return self._replaced(batch, self._propose(batch)[0])


def _flat(hidden: Tensor) -> Tensor:
    """(T, D) of (B, L, D) or (T, D)."""
    return hidden.flatten(0, -2)


def _at(tokens: Tensor, at: Tensor | None) -> Tensor:
    """The tokens at flat positions; None: all."""
    return tokens.flatten() if at is None else tokens.flatten()[at]


def _full(logits: Tensor) -> Tensor:
    """In fp32 under autocast: log-sum-exp and cumulative sums are too inexact in half precision."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
