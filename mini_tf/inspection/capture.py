"""One pass through a model with what passes by kept: attention weights and hidden vectors.

Two passes are made in eval: the model as it trains (fused), and one in which every mixer answers by its `explicit` form.
The largest difference of their scores says how far the weights shown are those that the model works with. The model is
not told: hooks listen to every module that has `explicit`, so a new mixer or model needs no line here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mini_tf.errors import RunFault
from mini_tf.nn.block import Block
from mini_tf.nn.embedding import Embedding
from mini_tf.nn.mixer import Mixed, Mixer
from mini_tf.nn.model import Model
from mini_tf.nn.places import Visibility
from mini_tf.nn.tokens import Tokens


class Reading(NamedTuple):
    """Who read whom in one mixer: weights (B, H, L, lead + M), whose first `lead` columns belong to no token.

    kind: `encoder.self`, `decoder.self` or `cross`; `layer` counts the mixers of that kind in the order of their calls, from 0.
    keep (B or 1, L, M): what each token may see, by the model's direction, its document and the mixer's own view (a window).
    """

    kind: str
    layer: int
    weights: Tensor
    lead: int
    keep: Tensor


@dataclass(frozen=True, eq=False)
class Capture:
    """What was kept of a pass.

    hidden: for each stack, an encoder first, the embeddings and what follows each layer, n_layers + 1 tensors (B, L, D);
    difference: the largest difference between the scores of the two passes.
    """

    readings: list[Reading]
    hidden: list[list[Float[Tensor, "B L D"]]]
    difference: float


@dataclass
class _Listener:
    """Collects while its hooks are on the model."""

    readings: list[Reading] = field(default_factory=list)
    hidden: list[list[Tensor]] = field(default_factory=list)

    def read(self, mixer: nn.Module, given: tuple[Any, ...], mixed: Mixed) -> Mixed:
        assert isinstance(mixer, Mixer)
        x, memory, visibility = given[:3]
        assert isinstance(visibility, Visibility)
        kind = "cross" if memory is not x else "decoder.self" if visibility.causal else "encoder.self"
        explicit = mixer.explicit(x, memory, visibility)
        layer = sum(reading.kind == kind for reading in self.readings)
        keep = mixer.view(visibility).rows(0, visibility.own.length, x.device)
        self.readings.append(Reading(kind, layer, explicit.weights, explicit.lead, keep))
        return mixed._replace(y=mixer.join(explicit.weights @ explicit.values, x))  # (B,H,L,M) @ (B,H,M,V) -> (B,H,L,V)

    def embedded(self, module: nn.Module, given: tuple[Any, ...], x: Tensor) -> None:
        self.hidden.append([x])

    def passed(self, block: nn.Module, given: tuple[Any, ...], mixed: Mixed) -> None:
        self.hidden[-1].append(mixed.y)


@torch.no_grad()
def capture(model: Model, inputs: Tokens, source: Tokens | None = None) -> Capture:
    """Everything that passes by while `model`, in eval and not compiled, reads `inputs`, a model of pairs besides them `source`.

    Raises RunFault where scores are not finite numbers.
    """
    assert not model.training, "dropout would show in the weights"
    scores = model.logits(model(inputs, source).y)
    listener = _Listener()
    with _listening(model, listener):
        explicit = model.logits(model(inputs, source).y)
    if not (torch.isfinite(scores).all() and torch.isfinite(explicit).all()):
        raise RunFault("the model's scores are not finite numbers: its training diverged", hint="choose an earlier one: --step N")
    n_mixers = sum(isinstance(module, Mixer) for module in model.modules())
    assert len(listener.readings) == n_mixers, "every mixer is called once, and heard"
    return Capture(listener.readings, listener.hidden, (scores - explicit).abs().max().item())


@contextmanager
def _listening(model: Model, listener: _Listener) -> Iterator[None]:
    hears: dict[type[nn.Module], Callable[..., Any]] = {Mixer: listener.read, Embedding: listener.embedded, Block: listener.passed}
    handles = [
        module.register_forward_hook(hook) for module in model.modules() for heard, hook in hears.items() if isinstance(module, heard)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
