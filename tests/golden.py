"""Models whose heads are set by hand, so that what each does is known exactly: attention alone, no norms, no
feed-forward layer.

A token's vector has three parts: which token it is, where it stands, and, once the first layer has written it, which
token stands before. Scores are `SHARP` where a head's rule holds and 0 elsewhere, so all weight but e^-60 lies there.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from mini_tf.nn.model import Model
from mini_tf.recipe.kinds import settings_of

V, T = 12, 24
TOKEN, PLACE, BEFORE = (range(first, first + size) for first, size in ((0, V), (V, T), (V + T, V)))
D = V + T + V
SHARP = 60.0
OPENING = 0
"""A token that stands at the beginning alone, as a separator does."""

Rule = Callable[[Tensor, Tensor], None]
"""Sets the matrices (D, D) of queries and keys, which come as zeros."""


def previous(query: Tensor, key: Tensor) -> None:
    _positions(query, key, lambda i: i - 1)


def following(query: Tensor, key: Tensor) -> None:
    _positions(query, key, lambda i: i + 1)


def itself(query: Tensor, key: Tensor) -> None:
    _positions(query, key, lambda i: i)


def first(query: Tensor, key: Tensor) -> None:
    _positions(query, key, lambda i: 0)


def uniform(query: Tensor, key: Tensor) -> None:
    """Everything gets the same."""


def same(query: Tensor, key: Tensor) -> None:
    """The same token, but not the one itself."""
    _meet(query, key, TOKEN, TOKEN, SHARP)
    _meet(query, key, PLACE, PLACE, -2 * SHARP)


def induction(query: Tensor, key: Tensor) -> None:
    """Where the token before is the one that stands here; only above a layer whose first head is `previous`."""
    _meet(query, key, TOKEN, BEFORE, SHARP)


def with_heads(kind: str, *layers: tuple[Rule, ...]) -> Model:
    """A model whose heads follow these rules; the first head of each layer writes the token it sees into BEFORE."""
    model = settings_of("models", kind)(  # type: ignore[attr-defined]
        d_model=D, n_layers=len(layers), n_heads=len(layers[0]), d_k=D, d_v=D, d_ff=0, norm_place="none",
        attention=(settings_of("attention", "softmax")(scale="none"),),
        positions=settings_of("positions", "learned")(length=T),
    ).build(V, T)  # fmt: skip
    assert isinstance(model, Model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.tokens.weight[:, TOKEN] = torch.eye(V)
        model.embedding.position.table.weight[:, PLACE] = torch.eye(T)
        for mixer, rules in zip(model.mixers(), layers, strict=True):
            queries, keys, values = mixer.qkv.weight.view(3, len(rules), D, D)
            for rule, query, key in zip(rules, queries, keys, strict=True):
                rule(query, key)
            values[0] = torch.eye(D)
            mixer.out.weight[BEFORE, TOKEN] = 1.0
    return model.eval()


def _positions(query: Tensor, key: Tensor, target: Callable[[int], int]) -> None:
    for i in range(T):
        if 0 <= target(i) < T:
            query[PLACE[target(i)], PLACE[i]] = SHARP
    key[PLACE, PLACE] = 1.0


def _meet(query: Tensor, key: Tensor, here: range, there: range, score: float) -> None:
    """Adds `score` where part `here` of the token that looks equals part `there` of the one it looks at."""
    for a, b in zip(here, there, strict=True):
        query[a, a] = score
        key[a, b] = 1.0
