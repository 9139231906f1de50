"""A stack as part of a model: whose hidden states it has, and where its inputs come from."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from mini_tf.nn.stack import Stack

SequenceKind = Literal["own", "source", "latent", "output"]
"""The sequence that hidden states belong to: tokens of `inputs` ("own"), tokens of the source, latent vectors, or the
one output of a row."""
UNITS: Mapping[SequenceKind, str] = {"latent": "latent vector", "output": "output of the whole row"}
"""What the members of a sequence that are no tokens are, in words."""


class ModelStack(NamedTuple):
    """One stack of a model, as inspection, adapters and layer-wise decay need it.

    name: path in the model. embedding: path of the `Embedding` or parameter of its input; None: another stack. rows:
    sequence of its hidden states; memory: sequence of the keys of its cross-attention; memory_embedding: path of their
    `Embedding`, None: another stack. attention, cross: names of its self-attention and cross-attention. n_above: layers
    between its last one and the output.
    """

    name: str
    stack: Stack
    embedding: str | None
    rows: SequenceKind = "own"
    memory: SequenceKind = "source"
    memory_embedding: str | None = None
    attention: str = "decoder.self"
    cross: str = "cross"
    n_above: int = 0

    def embedding_paths(self, rows: SequenceKind | None = None) -> list[str]:
        """Paths of the embeddings of its input and of its memory; rows: only of this sequence."""
        both = ((self.embedding, self.rows), (self.memory_embedding, self.memory))
        return [path for path, sequence in both if path is not None and rows in (None, sequence)]
