"""Attention weights of a text as arrays, and as the picture that `minitf inspect-attention` draws."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from mini_tf.drawing.heat_maps import draw
from mini_tf.inspection._attention_maps import Head, Sample
from mini_tf.inspection._attention_pictures import describe, plot
from mini_tf.system.errors import UsageFault


@dataclass(frozen=True)
class AttentionMaps:
    """The attention heads of a model on one text; a notebook shows the picture.

    title: of the picture. A head has `index` (kind, layer, head), `weights` (queries, keys) and `role`, measured on
    repeated random tokens.
    """

    sample: Sample
    title: str

    @property
    def heads(self) -> list[Head]:
        """The selected heads: by kind, layer and number."""
        return self.sample.heads

    @property
    def tokens(self) -> list[str]:
        """The tokens of the text (or its words): of an encoder-decoder, those of the target."""
        return self.sample.texts.inputs.units

    @property
    def source_tokens(self) -> list[str] | None:
        """Those of the source of an encoder-decoder; None for other models."""
        return None if self.sample.texts.source is None else self.sample.texts.source.units

    @property
    def kinds(self) -> list[str]:
        """The kinds of attention: encoder.self, decoder.self, cross."""
        return list(dict.fromkeys(head.index.kind for head in self.heads))

    def weights(self, kind: str | None = None) -> Float[np.ndarray, "layers H L M"]:
        """The weights of all heads of a kind, by default the only one; rows are queries.

        UsageFault without such a kind, if there are several, or if the layers do not have maps of one shape, which
        `heads` has one by one.
        """
        if kind not in (self.kinds if kind or len(self.kinds) > 1 else [None]):
            raise UsageFault(f"kind {kind!r}: must be one of {', '.join(self.kinds)}")
        heads = [head for head in self.heads if kind in (None, head.index.kind)]
        layers = list(dict.fromkeys(head.index.layer for head in heads))
        if len({head.weights.shape for head in heads}) > 1 or len(heads) % len(layers):
            raise UsageFault("the layers have maps of different shapes", hint="`heads` has them one by one")
        stacked = np.stack([head.weights for head in heads])
        return stacked.reshape(len(layers), -1, *stacked.shape[1:])

    def describe(self) -> list[str]:
        """What each head does, in a sentence, as with --describe."""
        return describe(self.sample)

    def picture(self, suffix: str = "png") -> bytes:
        """The picture as a file, `suffix` png or svg."""
        if suffix not in ("png", "svg"):
            raise UsageFault(f"suffix {suffix!r}: must be png or svg")
        return draw(plot(self.sample, self.title), suffix)

    def _repr_png_(self) -> bytes:
        return self.picture()

    def __repr__(self) -> str:
        return f"AttentionMaps({len(self.heads)} heads on {self.sample.text!r})"
