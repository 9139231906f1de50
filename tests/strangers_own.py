"""Mixers and positions of other sorts than those of the package: for each point of the contract the smallest one that needs it."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mini_tf.errors import DataFault
from mini_tf.nn.attend import attend
from mini_tf.nn.head import Head
from mini_tf.nn.heads import Headed, HeadedSettings
from mini_tf.nn.mixer import Direction, Explicit, Mixed, Mixer, MixerSettings, Place, Width
from mini_tf.nn.model import Model, ModelSettings, ModelStack, Rows, embedding_of
from mini_tf.nn.places import Places, Visibility
from mini_tf.nn.position import Position, PositionSettings
from mini_tf.nn.stack import Across, Stack
from mini_tf.nn.state import State
from mini_tf.nn.tokens import Tokens

CAUSAL: frozenset[Direction] = frozenset({"causal"})


class OthersSettings(HeadedSettings):
    """A token attends to all but itself, as in CBOW."""

    SEES_SELF: ClassVar[bool] = False

    def build(self, width: Width, place: Place) -> "Others":
        return Others(self, width, place)


class Others(Headed):
    def view(self, visibility: Visibility) -> Visibility:
        return visibility if self.cross else visibility.without_self()


class SharpSettings(HeadedSettings):
    """Reads in a way of its own: weights are squared and scaled to sum 1 again."""

    def build(self, width: Width, place: Place) -> "Sharp":
        return Sharp(self, width, place)


class Sharp(Headed):
    def read(self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility) -> Tensor:
        return attend(q, k, v, visibility, 2 * self.scale, _Twice(self._biasing))

    def explicit(self, x: Tensor, memory: Tensor | State, visibility: Visibility) -> Explicit:
        weights, values, _ = super().explicit(x, memory, visibility)
        return Explicit((weights**2 / (weights**2).sum(-1, keepdim=True)).nan_to_num(0.0), values)


class _Twice(Position):
    """A bias, doubled."""

    def __init__(self, position: Position | None) -> None:
        super().__init__()
        self.attaches = frozenset() if position is None else frozenset({"bias"})
        self._position = (position,)

    def bias(self, distance: Tensor, q: Tensor | None = None, k: Tensor | None = None) -> Tensor | None:
        bias = None if self._position[0] is None else self._position[0].bias(distance, q, k)
        return None if bias is None else 2 * bias


class TrailingSettings(HeadedSettings):
    """A recurrence behind the attention, c_t = f c_(t-1) + (1 - f) a_t, which starts anew where a document begins, as SRU++ does."""

    DIRECTIONS: ClassVar[frozenset[Direction]] = CAUSAL
    CROSS: ClassVar[bool] = False

    def build(self, width: Width, place: Place) -> "Trailing":
        return Trailing(self, width, place)


class Trailing(Headed):
    def __init__(self, settings: TrailingSettings, width: Width, place: Place) -> None:
        super().__init__(settings, width, place)
        self.forget = nn.Parameter(torch.zeros(width.d_model))

    def start(self, batch: int) -> State:
        cell = self.forget.new_zeros(batch, len(self.forget))
        return super().start(batch) | {"cell": cell, "segment": torch.zeros(batch, dtype=torch.long, device=cell.device)}

    def join(self, read: Tensor, x: Tensor, visibility: Visibility, state: State | None = None) -> Mixed:
        attended, _, after = super().join(read, x, visibility, state)
        before = self.start(len(x)) if state is None else state
        cell, last, share = before["cell"], before["segment"], self.forget.sigmoid()
        segments, _ = visibility.own.tensors(len(x), x.device)
        cells = []
        for t in range(x.shape[1]):
            here = segments[:, t]
            cell = share * torch.where((here == last)[:, None], cell, 0.0) + (1 - share) * attended[:, t]
            last = here
            cells.append(cell)
        return Mixed(torch.stack(cells, dim=1), None, None if after is None else after | {"cell": cell, "segment": last})


class SumsSettings(MixerSettings):
    """Linear cross-attention: of a source it keeps sums of phi(k) v^T and phi(k), phi = elu + 1."""

    DIRECTIONS: ClassVar[frozenset[Direction]] = frozenset()

    def build(self, width: Width, place: Place) -> "Sums":
        return Sums(width)


class Sums(Mixer):
    def __init__(self, width: Width) -> None:
        super().__init__()
        self.n_heads = width.n_heads
        self.q = nn.Linear(width.d_model, width.n_heads * width.d_k)
        self.k = nn.Linear(width.d_memory, width.n_heads * width.d_k)
        self.v = nn.Linear(width.d_memory, width.n_heads * width.d_v)
        self.out = nn.Linear(width.n_heads * width.d_v, width.d_model)

    def start(self, batch: int) -> State:
        return {}

    def recall(self, memory: Tensor, places: Places) -> State:
        k, v = self._keys(memory, places)
        # `explicit` needs the keys and values themselves; they are made from the source, which all layers share.
        return {"kv": k.transpose(-1, -2) @ v, "k": k.sum(2), "source": memory}

    def forward(self, x: Tensor, memory: Tensor | State, visibility: Visibility, state: State | None = None) -> Mixed:
        kept = memory if isinstance(memory, dict) else self.recall(memory, visibility.memory)
        q = self._features(self.q(x))
        total = (q @ kept["k"][..., None]).clamp(min=1e-30)
        return self.join(q @ kept["kv"] / total, x, visibility, state)

    def explicit(self, x: Tensor, memory: Tensor | State, visibility: Visibility) -> Explicit:
        k, v = self._keys(memory["source"] if isinstance(memory, dict) else memory, visibility.memory)
        scores = self._features(self.q(x)) @ k.transpose(-1, -2)
        return Explicit(scores / scores.sum(-1, keepdim=True).clamp(min=1e-30), v)

    def join(self, read: Tensor, x: Tensor, visibility: Visibility, state: State | None = None) -> Mixed:
        return Mixed(self.out(read.transpose(1, 2).flatten(2)), None, state)

    def _keys(self, memory: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        """phi(k) and v, (B, H, M, ..); 0 at padding."""
        segments, _ = places.tensors(len(memory), memory.device)
        real = (segments != 0)[:, None, :, None]
        k, v = self._features(self.k(memory)), self.v(memory).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        return torch.where(real, k, 0.0), torch.where(real, v, 0.0)

    def _features(self, x: Tensor) -> Tensor:
        return F.elu(x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)) + 1


class SpansSettings(HeadedSettings):
    """Each key says by its content how long it may be seen, 1 to 4 tokens, so that a state shrinks by its content."""

    DIRECTIONS: ClassVar[frozenset[Direction]] = CAUSAL
    CROSS: ClassVar[bool] = False
    STREAMS: ClassVar[bool] = True
    POSITIONS: ClassVar[frozenset[str]] = frozenset({"rotary"})

    def build(self, width: Width, place: Place) -> "Spans":
        return Spans(self, width, place)


class Spans(Headed):
    LONGEST = 4

    def read(self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility) -> Tensor:
        return self._weights(q, k, visibility) @ v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)

    def explicit(self, x: Tensor, memory: Tensor | State, visibility: Visibility) -> Explicit:
        q, k, v = self._project(x, memory, visibility)
        return Explicit(self._weights(q, k, visibility), v.repeat_interleave(q.shape[1] // v.shape[1], dim=1))

    def _weights(self, q: Tensor, k: Tensor, visibility: Visibility) -> Tensor:
        index, keys = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
        seen = visibility.keep(index, keys) & (visibility.distance(index, keys) <= self._spans(k)[:, None])
        scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).transpose(-1, -2) * self.scale
        return scores.masked_fill(~seen[:, None], -torch.inf).softmax(-1).nan_to_num(0.0)

    def _spans(self, k: Tensor) -> Tensor:
        """(B, M); lengths of keys do not depend on their positions, since turning keeps them."""
        norms = k.square().sum(-1).sum(1)
        return 1 + (norms * 7).long().remainder(self.LONGEST)

    def trim(self, state: State) -> State:
        """Keys that no later token of any row may see go."""
        k = state["k"]
        places = Places.of_state(state["places"], k.shape[2])
        positions = places.all_positions(k.device)
        alive = ((positions[:, -1:] + 1 - positions) <= self._spans(k)).any(0)
        first = int(alive.nonzero()[0]) if alive.any() else k.shape[2] - 1
        return state | {"k": k[:, :, first:], "v": state["v"][:, :, first:], "places": places.last(k.shape[2] - first).to_state()}


class RunningSettings(MixerSettings):
    """The mean of a row so far, which does not keep documents apart."""

    DIRECTIONS: ClassVar[frozenset[Direction]] = CAUSAL
    CROSS: ClassVar[bool] = False
    STREAMS: ClassVar[bool] = True
    PACKS: ClassVar[bool] = False

    def build(self, width: Width, place: Place) -> "Running":
        return Running(width)


class Running(Mixer):
    def __init__(self, width: Width) -> None:
        super().__init__()
        self.value, self.out = nn.Linear(width.d_model, width.d_v), nn.Linear(width.d_v, width.d_model)

    def start(self, batch: int) -> State:
        weight = self.value.weight
        return {"sum": weight.new_zeros(batch, weight.shape[0]), "n": weight.new_zeros(batch, 1)}

    def forward(self, x: Tensor, memory: Tensor, visibility: Visibility, state: State | None = None) -> Mixed:
        before = state or self.start(len(x))
        real = self._real(x, visibility)
        sums = before["sum"][:, None] + torch.where(real, self.value(x), 0.0).cumsum(1)
        n = before["n"][:, None] + real.to(x.dtype).cumsum(1)
        y = self.join((sums / n.clamp(min=1))[:, None], x, visibility).y
        return Mixed(y, None, None if state is None else {"sum": sums[:, -1], "n": n[:, -1]})

    def explicit(self, x: Tensor, memory: Tensor, visibility: Visibility) -> Explicit:
        seen = visibility.rows(0, x.shape[1], x.device).expand(len(x), -1, -1)[:, None].to(x.dtype)
        real = self._real(x, visibility)
        return Explicit(seen / seen.sum(-1, keepdim=True).clamp(min=1), torch.where(real, self.value(x), 0.0)[:, None])

    def join(self, read: Tensor, x: Tensor, visibility: Visibility, state: State | None = None) -> Mixed:
        return Mixed(self.out(read[:, 0]), None, state)

    @staticmethod
    def _real(x: Tensor, visibility: Visibility) -> Tensor:
        return (visibility.own.tensors(len(x), x.device)[0] != 0)[..., None]


class RelativeSettings(PositionSettings):
    """Scores that depend on query and distance: (q + v) r(i - j) + u k, Transformer-XL's terms."""

    ATTACHES: ClassVar[frozenset[str]] = frozenset({"bias"})

    reach: int = Field(16, ge=1)

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> "Relative":
        return Relative(n_heads, d_k, self.reach)


class Relative(Position):
    attaches = RelativeSettings.ATTACHES
    by_distance = False

    def __init__(self, n_heads: int, d_k: int, reach: int) -> None:
        super().__init__()
        self.reach, self.scale = reach, d_k**-0.5
        self.u, self.v = (nn.Parameter(torch.randn(n_heads, 1, d_k)) for _ in range(2))
        self.table = nn.Embedding(2 * reach + 1, n_heads * d_k)

    def bias(self, distance: Tensor, q: Tensor | None = None, k: Tensor | None = None) -> Tensor:
        assert q is not None
        assert k is not None
        r = self.table.weight.view(-1, *q.shape[1::2]).transpose(0, 1)  # (H, 2 reach + 1, K)
        by_distance = (q + self.v) @ r.transpose(-1, -2)  # (B, H, L, 2 reach + 1)
        index = (distance.clamp(-self.reach, self.reach) + self.reach)[:, None].expand(len(q), q.shape[1], -1, -1)
        return (by_distance.gather(3, index) + self.u @ k.transpose(-1, -2)) * self.scale


MIXERS: dict[str, Any] = {
    "others": OthersSettings,
    "sharp": SharpSettings,
    "trailing": TrailingSettings,
    "sums": SumsSettings,
    "spans": SpansSettings,
    "running": RunningSettings,
}


class LatentsSettings(ModelSettings):
    """A few latent vectors read the text, go twice through the same layers, and are asked for every token by its position."""

    READS: ClassVar[Any] = "both"

    n_latents: int = 4

    def build(self, vocabulary_size: int, context: int, source_vocabulary_size: int | None = None) -> "Latents":
        return Latents(self, vocabulary_size, context)


class Latents(Model):
    def __init__(self, settings: LatentsSettings, vocabulary_size: int, context: int) -> None:
        super().__init__()
        self.context, self.d_model, self.n_types = context, settings.d_model, 0
        self.embedding = embedding_of(settings, settings, nn.Embedding(vocabulary_size, settings.d_model), context)
        self.latents = nn.Parameter(torch.randn(settings.n_latents, settings.d_model))
        self.queries = nn.Embedding(context, settings.d_model)
        one = settings.model_copy(update={"n_layers": 1})
        across = Across(settings.attention[0], settings.d_model)
        self.reader = Stack(one, False, None, across, own=False)
        self.inner = Stack(settings, False, None, n_passes=2)
        self.decoder = Stack(one, False, None, across, own=False)
        self.head = Head(self.embedding.tokens, True, None, bias=False)

    def stacks(self) -> list[ModelStack]:
        n = self.inner.n_calls
        decoder = ModelStack("decoder", self.decoder, "queries", "own", "latent", cross="decoder.cross")
        inner = ModelStack("inner", self.inner, None, "latent", attention="latent.self", n_above=1)
        reader = ModelStack("reader", self.reader, "latents", "latent", "own", cross="reader.cross", n_above=1 + n)
        return [decoder, inner, reader]

    def max_length(self, rows: Rows = "own") -> int | None:
        return self.queries.num_embeddings

    def forward(self, inputs: Tokens, source: Any = None, at: Tensor | None = None, state: State | None = None) -> Mixed:
        places = inputs.places or Places(inputs.ids.shape[1])
        if inputs.ids.shape[1] > self.queries.num_embeddings:
            raise DataFault("a text is longer than the queries")
        latents, n = self.latents.expand(len(inputs.ids), -1, -1), Places(len(self.latents))
        read = self.reader(latents, n, self.reader.recall(self.embedding(inputs, places), places)).y
        thought = self.inner(read, n).y
        queries = self.queries(places.all_positions(inputs.ids.device)).expand(len(inputs.ids), -1, -1)
        return self.decoder(queries, places, self.decoder.recall(thought, n), at)  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor, words: Tensor | None = None) -> Tensor:
        return self.head(hidden, words) if words is not None else self.head(hidden)

    def cross_entropy(self, hidden: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        return self.head.cross_entropy(hidden, labels, smoothing)  # type: ignore[operator]

    def answer_with(self, head: nn.Module) -> None:
        self.head = head
