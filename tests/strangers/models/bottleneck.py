"""A decoder whose middle layers are narrower: a stack, a map down, a narrow stack, a map up that is added, a stack."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.model import ModelSettings, OneStack
from mini_tf.nn.model_stack import ModelStack
from mini_tf.nn.stack import Stack, StackSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import SourceMemory
from mini_tf.nn.tokens import Tokens
from mini_tf.nn.weights import init_weights


class Settings(ModelSettings):
    DIRECTIONS = frozenset({"causal"})
    OBJECTIVE = "next_token"

    below_layers: int = Field(1, ge=1, le=1024)
    """Layers under the narrow ones."""
    middle_layers: int = Field(2, ge=1, le=1024)
    """Narrow layers."""
    middle_width: int | None = Field(None, ge=1, le=65536)
    """Width of the narrow layers; default half of d_model."""

    @property
    def below(self) -> StackSettings:
        return self.model_copy(update={"n_layers": self.below_layers})

    @property
    def middle(self) -> StackSettings:
        width = self.middle_width or max(self.d_model // 2, 1)
        return self.model_copy(update={"n_layers": self.middle_layers, "d_model": width, "d_ff": None})

    def rules(self) -> Iterable[tuple[str, str]]:
        yield from super().rules()
        told = set(StackSettings.rules(self))
        for key, fault in StackSettings.rules(self.middle):
            if (key, fault) not in told:
                yield "middle_width", f"{key}: {fault}"

    def stacks(self) -> Mapping[str, StackSettings]:
        return {"stack": self, "middle": self.middle, "below": self.below}

    def build(self, vocabulary_size: int, context: int, source_vocabulary_size: int | None = None) -> "Bottleneck":
        return Bottleneck(self, vocabulary_size, context)


class Bottleneck(OneStack):
    """`stack` is the last one, nearest to the head."""

    def __init__(self, settings: Settings, vocabulary_size: int, context: int) -> None:
        super().__init__(settings, vocabulary_size, context)
        below, middle = settings.below, settings.middle
        self.below = Stack(below, self.stack.causal, self.embedding.position)
        self.position = middle.positions.build(middle.d_model, middle.n_heads, middle.head_dim, context)
        self.middle = Stack(middle, self.stack.causal, self.position)
        self.down, self.up = (
            nn.Linear(settings.d_model, middle.d_model, bias=False),
            nn.Linear(middle.d_model, settings.d_model, bias=False),
        )
        new = nn.ModuleList([self.below, self.position, self.middle, self.down, self.up])
        init_weights(
            new, [*self.below.residual_outputs, *self.middle.residual_outputs], None, settings.init_std, settings.init
        )

    def stacks(self) -> Sequence[ModelStack]:
        top, middle = len(self.stack.layers), len(self.middle.layers)
        return [
            ModelStack("stack", self.stack, None),
            ModelStack("middle", self.middle, None, attention="middle.self", n_above=top),
            ModelStack("below", self.below, "embedding", attention="below.self", n_above=top + middle),
        ]

    def start(self, batch: int) -> State:
        layers = {name: getattr(self, name).start(batch) for name in ("below", "middle", "stack")}
        return super().start(batch) | {"layers": layers}

    def trim(self, state: State) -> State:
        return state | {"layers": {name: getattr(self, name).trim(part) for name, part in state["layers"].items()}}

    def decode(
        self, inputs: Tokens, memory: SourceMemory | None, at: Tensor | None, state: State | None
    ) -> ForwardOutput:
        token_positions = (
            inputs.token_positions
            if inputs.token_positions is not None
            else self._next_token_positions(inputs.ids, state)
        )
        layers = {} if state is None else state["layers"]
        before = None if state is None else state.get("before")
        x = self.embedding(inputs, token_positions, before)
        below = self.below(x, token_positions, state=layers.get("below"))
        middle = self.middle(
            self.position.embed(self.down(below.y), token_positions), token_positions, state=layers.get("middle")
        )
        top = self.stack(below.y + self.up(middle.y), token_positions, None, at, layers.get("stack"))
        penalties = [mixed.penalty for mixed in (below, middle, top) if mixed.penalty is not None]
        penalty = torch.stack(penalties).sum() if penalties else None
        if state is None:
            return ForwardOutput(top.y, penalty, None)
        after = self._after(
            token_positions, {"below": below.state or {}, "middle": middle.state or {}, "stack": top.state or {}}
        )
        if before is not None:
            after["before"] = torch.cat([before, inputs.ids], dim=1)[:, -self.embedding.n_previous :]
        return ForwardOutput(top.y, penalty, after)
