"""Metrics of the mixers of a model (`Mixer.metrics`): of each layer and over all layers."""

from torch import Tensor

from mini_tf.nn.model import Model
from mini_tf.nn.state import State


def mixer_metrics(model: Model, state: State | None) -> dict[str, tuple[Tensor, Tensor | int]]:
    """(sum, count) by name, and by `name.layer` where several layers have it; state: after a forward pass, if any."""
    layers = {} if state is None else state.get("layers", {})
    by_layer: dict[str, dict[int, tuple[Tensor, Tensor | int]]] = {}
    for one in model.stacks():
        for i, block in enumerate(one.stack.blocks):
            for part, mixer in block.mixers.items():
                for name, pair in mixer.metrics(layers.get(str(i), {}).get(part)).items():
                    by_layer.setdefault(name, {})[i] = pair
    found: dict[str, tuple[Tensor, Tensor | int]] = {}
    for name, pairs in by_layer.items():
        if len(pairs) > 1:
            found |= {f"{name}.{i}": pair for i, pair in pairs.items()}
        sums, counts = zip(*pairs.values(), strict=True)
        found[name] = sum(sums[1:], sums[0]), sum(counts[1:], counts[0])
    return found
