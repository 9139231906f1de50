"""What tests build on: tiny mixers of every kind, and a toy recurrence, so that state is tried on more than key-value
caches.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mini_tf.nn.mixer import AttentionDims, ExplicitAttention, ForwardOutput, LayerSpec, Mixer, MixerSettings
from mini_tf.nn.model import ModelSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing.tiny.mixers import DIMS, TinyMixer
from mini_tf.testing.tiny.mixers import random_tensor as seeded
from mini_tf.testing.tiny.models import every_mixer as models_with

__all__ = [
    "DIMS",
    "TINY_CONSTANTS",
    "Fading",
    "FadingMean",
    "causal_mixers",
    "every_mixer",
    "mixer_kinds",
    "mixer_settings",
    "own_view",
    "present",
    "seeded",
    "small_model",
    "tiny_mixer",
    "with_every_mixer",
]


def present(package: str, *words: str) -> list[str]:
    """Those of some kinds that there are: papers may be absent."""
    return [word for word in words if word in listing(package)]


TINY_CONSTANTS = {"window": {"window": 3}, "expire_span": {"max_span": 6, "ramp": 3}}


class FadingMean(MixerSettings):
    """A recurrence: each token reads the sum of the past, faded by 0.7 a token."""

    SUPPORTS = frozenset({"causal", "packing", "streaming", "nonnegative"})

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Fading":
        return Fading(dims)


class Fading(Mixer):
    FADE = 0.7

    def __init__(self, width: AttentionDims) -> None:
        super().__init__()
        self.value = nn.Linear(width.d_model, width.d_model)
        self.out = nn.Linear(width.d_model, width.d_model)

    def start(self, batch: int) -> State:
        weight = self.value.weight
        return {
            "sum": weight.new_zeros(batch, weight.shape[0]),
            "segment": torch.zeros(batch, dtype=torch.long, device=weight.device),
        }

    def forward(self, x: Tensor, memory: Tensor, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        values = self.value(x)
        segments, _ = visibility.queries.tensors(*x.shape[:1], x.device)
        before = state or self.start(len(x))
        total, last = before["sum"], before["segment"]
        assert isinstance(total, Tensor)
        read = []
        for t in range(x.shape[1]):
            here = segments[:, t]
            total = torch.where((here == last)[:, None], self.FADE * total, 0.0) + (1 - self.FADE) * values[:, t]
            total, last = torch.where((here == 0)[:, None], 0.0, total), here
            read.append(total)
        y = self.join(torch.stack(read, dim=1)[:, None], x, visibility).y
        return ForwardOutput(y, None, None if state is None else {"sum": total, "segment": last})

    def explicit(self, x: Tensor, memory: Tensor, visibility: Visibility) -> ExplicitAttention:
        index = torch.arange(x.shape[1], device=x.device)
        keep = visibility.visible(index[:, None], index[None])
        faded = (1 - self.FADE) * self.FADE ** visibility.distance(index[:, None], index[None]).clamp(min=0).to(x.dtype)
        return ExplicitAttention((faded * keep)[:, None].expand(len(x), -1, -1, -1), self.value(x)[:, None])

    def join(self, read: Tensor, x: Tensor, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        return ForwardOutput(self.out(read[:, 0]), None, state)


def mixer_kinds() -> list[str]:
    return [*listing("attention"), "toy"]


def causal_mixers() -> list[str]:
    """Those that may be the self-attention of a decoder."""
    return [kind for kind in mixer_kinds() if "causal" in mixer_settings(kind).supports]


def mixer_settings(kind: str) -> MixerSettings:
    if kind == "toy":
        return FadingMean()
    settings = settings_of("attention", kind)(**TINY_CONSTANTS.get(kind, {}))
    assert isinstance(settings, MixerSettings)
    return settings


def every_mixer() -> dict[str, MixerSettings]:
    """Every kind, and settings of a kind that change what it attends to, by name."""
    variants = {"all-attention": settings_of("attention", "softmax")(n_persistent=3)}
    return {kind: mixer_settings(kind) for kind in mixer_kinds()} | variants  # type: ignore[return-value]


def small_model(kind: str, **keys: Any) -> ModelSettings:
    settings = settings_of("models", kind)(**{"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 0, **keys})
    assert isinstance(settings, ModelSettings)
    return settings


def with_every_mixer(kind: str, others: Mapping[str, MixerSettings] = MappingProxyType({})) -> ModelSettings:
    """A model of this kind with a layer of each mixer that may be its self-attention, also of other ones.

    Without the toy, which would take half of the time of what compiles it, and is only ours.
    """
    mixers = [mixer for name, mixer in (every_mixer() | others).items() if name != "toy"]
    layers = [one for one in mixers if any(made.attention == (one,) for made in models_with(small_model(kind), [one]))]  # type: ignore[attr-defined]
    return small_model(kind, n_layers=len(layers), attention=tuple(layers))


def tiny_mixer(
    kind: str, attention: Literal["self", "cross"] = "self", position: str = "none", width: AttentionDims = DIMS
) -> Mixer:
    """A mixer in float64 and eval, with weights large enough that attention is far from uniform."""
    settings = None if position == "none" else settings_of("positions", position)()
    return TinyMixer(mixer_settings(kind), settings, attention, width).mixer  # type: ignore[arg-type]


def own_view(causal: bool, positions: TokenPositions) -> Visibility:
    return Visibility(causal, positions, positions)
