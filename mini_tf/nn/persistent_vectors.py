"""Persistent key and value vectors: parameters that every query attends to beside the tokens, in one softmax.

With enough of them a layer needs no feed-forward layer, whose hidden units they resemble: a key that is compared with
the token, a value that is added. As in the paper, the parameters are multiplied by sqrt(d_k) and sqrt(n), so that an
optimizer with steps of equal size, such as Adam, moves vectors as fast as their width and number require. Unlike there,
they are matrices as those of linear layers: with the same initialization (`init_std`; in the paper keys and values
begin with variance 1) and weight decay, updated by Muon and adapted by LoRA.
Source: Sukhbaatar et al. 2019, arXiv:1907.01470, sections 4.2 and 5.1.
"""

from jaxtyping import Float
from torch import Tensor, nn

from mini_tf.nn.layers.fused_linear import FusedLinear
from mini_tf.nn.mixer import AttentionDims


class PersistentVectors(nn.Module):
    """n vectors of each key-value head."""

    def __init__(self, n: int, dims: AttentionDims) -> None:
        super().__init__()
        self.n, self.factors = n, (dims.d_k**0.5, n**0.5)
        self.keys, self.values = (FusedLinear(d, (n,) * dims.n_kv_heads, bias=False) for d in (dims.d_k, dims.d_v))

    def forward(self) -> tuple[Float[Tensor, "G N K"], Float[Tensor, "G N V"]]:
        """Keys and values."""
        keys, values = (linear.weight.unflatten(0, (-1, self.n)) for linear in (self.keys, self.values))
        return keys * self.factors[0], values * self.factors[1]
