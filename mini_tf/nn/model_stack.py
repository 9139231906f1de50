"""A stack as part of a model: whose hidden states it has, and where its inputs come from."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from torch import Tensor

from mini_tf.nn.stack import Stack
from mini_tf.nn.state import State

SequenceKind = Literal["input", "source", "latent", "output"]
"""The sequence that hidden states belong to: tokens of `inputs`, tokens of the source, latent vectors, or the one
output of a row."""
UNITS: Mapping[SequenceKind, str] = {"latent": "latent vector", "output": "output of the whole row"}
"""What the members of a sequence that are no tokens are, in words."""


class ModelStack(NamedTuple):
    """One stack of a model, as inspection, adapters and layer-wise decay need it.

    name: path in the model. embedding: path of the `Embedding` or parameter of its input; None: another stack. rows:
    sequence of its hidden states; memory: sequence of the keys of its cross-attention; memory_embedding: path of their
    `Embedding`, None: another stack. attention, cross_attn: names of its self- and cross-attention. n_above: layers
    between its last one and the output.
    """

    name: str
    stack: Stack
    embedding: str | None
    rows: SequenceKind = "input"
    memory: SequenceKind = "source"
    memory_embedding: str | None = None
    attention: str = "decoder.self"
    cross_attn: str = "cross"
    n_above: int = 0

    def embedding_paths(self, rows: SequenceKind | None = None) -> list[str]:
        """Paths of the embeddings of its input and of its memory; rows: only of this sequence."""
        both = ((self.embedding, self.rows), (self.memory_embedding, self.memory))
        return [path for path, sequence in both if path is not None and rows in (None, sequence)]


def mixer_metrics(stacks: Sequence[ModelStack], state: State | None) -> dict[str, tuple[Tensor, Tensor | int]]:
    """`Mixer.metrics` of all mixers: (sum, count) by name, and by `name.layer` where several layers have it.

    state: after a forward pass, if any.
    """
    layers = {} if state is None else state.get("layers", {})
    by_layer: dict[str, dict[int, tuple[Tensor, Tensor | int]]] = {}
    for model_stack in stacks:
        for i, block in enumerate(model_stack.stack.blocks):
            for part, mixer in block.mixers.items():
                for name, pair in mixer.metrics(layers.get(str(i), {}).get(part)).items():
                    by_layer.setdefault(name, {})[i] = pair
    metrics: dict[str, tuple[Tensor, Tensor | int]] = {}
    for name, pairs in by_layer.items():
        if len(pairs) > 1:
            metrics |= {f"{name}.{i}": pair for i, pair in pairs.items()}
        sums, counts = zip(*pairs.values(), strict=True)
        metrics[name] = sum(sums[1:], sums[0]), sum(counts[1:], counts[0])
    return metrics
