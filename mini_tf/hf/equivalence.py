"""Models with other settings that compute the same: what a family of models lacks is put into its weights.

no bias, no weight of a norm    a bias of 0, a weight of 1
activation: relu2               reglu with the same matrix for gate and value: relu(x) x = relu(x)^2
qk_norm: true                   qk_norm: weight, with weights of 1
attention.scale                 a factor of W_Q or, of normalized queries, of their weights
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mini_tf.nn.attention import MultiHeadAttention
from mini_tf.nn.layers.feed_forward import FeedForward
from mini_tf.nn.model import Model

_FILLED = ("bias", "norm_weight")
GATED = {"relu2": "reglu"}
"""Activations, and those with a gate that are the same if gate and value are equal."""


def is_equivalent(key: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], exact: bool = False) -> bool:
    """Whether a model with their settings, by dotted key, can compute the same as ours though `key` differs.

    exact: no matrix may change.
    """
    path, _, name = key.rpartition(".")
    before, after = ours.get(key), theirs.get(key)
    if name in _FILLED:
        return bool(after and not before)
    if name == "qk_norm":
        return (before, after) == (True, "weight")
    if name == "scale" and {key} <= ours.keys() & theirs.keys():
        norm = theirs.get(f"{path}.qk_norm")
        return norm == "weight" or (not norm and not exact)
    return name == "activation" and before in GATED and GATED[before] == after and not exact


@torch.no_grad()
def equivalent_weights(ours: Model, theirs: Model) -> dict[str, Tensor]:
    """The weights of `theirs`, on the meta device, with which it computes the same as `ours`."""
    weights = ours.weights()
    for path, part in theirs.named_modules():
        own = ours.get_submodule(path)
        if isinstance(own, FeedForward) and own.activation != part.activation:
            weights |= {f"{path}.up.{name}": torch.cat([value, value]) for name, value in own.up.named_parameters()}
        if isinstance(own, MultiHeadAttention) and isinstance(part, MultiHeadAttention):
            weights |= _of_attention(own, part, path)
    for name, tensor in theirs.weights().items():
        if name not in weights:
            weights[name] = torch.full(tensor.shape, float(not name.endswith(".bias")))
    return weights


def _of_attention(own: MultiHeadAttention, part: MultiHeadAttention, path: str) -> dict[str, Tensor]:
    """The weights of queries, if their factor is another one."""
    if (factor := own.scale / part.scale) == 1:
        return {}
    if part.q_norm is not None:
        norm = torch.ones(own.dims.d_k) if own.q_norm is None else own.q_norm
        return {f"{path}.q_norm": norm * factor}
    name, linear = ("q", own.q) if own.cross else ("qkv", own.qkv)
    scaled = {f"{path}.{name}.{key}": value.clone() for key, value in linear.named_parameters()}
    for value in scaled.values():
        value[: own.sizes[0]] *= factor
    return scaled
