"""Contracts refuse what they are for: mixers, positions and models with one fault each, beside the same without it."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toys import Fading, FadingMean

from mini_tf import testing
from mini_tf.inspection._attention_maps import heads_of
from mini_tf.nn import lora
from mini_tf.nn.attention import MultiHeadAttention, MultiHeadSettings
from mini_tf.nn.mixer import AttentionDims, ExplicitAttention, ForwardOutput, LayerSpec, MixerSettings, RecurrentUnit
from mini_tf.nn.model import Model, ModelSettings, OneStack
from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.nn.stack import Stack
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import settings_of
from mini_tf.testing import Case, attention, checks_of, cross_attention, inspection, models, positions, run_all
from mini_tf.testing.tiny.objectives import FIRST_PLAIN, N_ROWS, PAD, SEPARATOR, rows_for


def test_all_checks_run_and_each_that_fails_is_named() -> None:
    ran = list[str]()
    cases = [Case("first", lambda: refuses("none", [], "")), Case("second", lambda: ran.append("second"))]
    cases.append(Case("third", lambda: torch.ones(2).item()))
    with pytest.raises(AssertionError, match=r"first: ValueError: .*\nthird: RuntimeError: "):
        run_all(cases)
    assert ran == ["second"]


def test_every_check_of_a_contract_is_found() -> None:
    """A check of another form, as one with a second parameter, would be left out of its contract in silence."""
    modules = [importlib.import_module(f"mini_tf.testing.{one.name}") for one in pkgutil.iter_modules(testing.__path__)]
    found = {one.__name__: checks_of(one.__name__) for one in modules if hasattr(one, "checks_of")}
    assert {name.rpartition(".")[2]: len(checks) for name, checks in found.items()} == {
        "baselines": 3,
        "corpora": 5,
        "datasets": 16,
        "inspection": 9,
        "noises": 6,
        "objectives": 14,
        "optimizers": 15,
        "pipelines": 11,
        "schedules": 9,
        "tokenizers": 6,
    }


@pytest.mark.parametrize(
    "dataset", ["text", "pairs", "classes", "numbers", "label_sets", "tags", "chats", "text_pairs"]
)
def test_rows_begin_apart_and_half_of_them_are_padded(dataset: str) -> None:
    """Of what objectives are tried with: as long as asked for, and with separators around the plain tokens."""
    rows = rows_for(dataset, lookahead=0, words=False)
    for ids, segments in [
        (rows.ids, rows.segments),
        *([(rows.source.ids, rows.source.segments)] if rows.source else []),
    ]:
        assert segments is not None
        assert (segments == 0).any(axis=1).tolist() == [False] * 4 + [True] * 4
        assert ids.shape[1] <= 8 or dataset == "text_pairs"
        closed = dataset != "text"
        assert not closed or ((ids == PAD) == (segments == 0)).all()
        assert not closed or (ids[:4, -1] == SEPARATOR).all()
        first = ids[:, int(closed and ids is not getattr(rows.source, "ids", None))]
        assert len(set(first.tolist())) == N_ROWS, "other tokens can be memorized"
        assert first.min() >= FIRST_PLAIN


def refuses(case_name: str, cases: Iterable[Case], message: str) -> None:
    """The case of this name raises, and says this."""
    [case] = [case for case in cases if case.name == case_name]
    with pytest.raises(AssertionError, match=message):
        case.run()


# Mixers: a recurrence and softmax attention, each with one method changed.


def plus_future(mixer: nn.Module, y: Tensor) -> Tensor:
    return y + y.mean(1, keepdim=True) if mixer.training else y


def minus_batch_mean(mixer: nn.Module, y: Tensor) -> Tensor:
    return y - y.mean(0) if mixer.training else y


def other_without_gradients(mixer: nn.Module, y: Tensor) -> Tensor:
    return y if torch.is_grad_enabled() else 1.01 * y


def second_chunk_alone(mixer: nn.Module, y: Tensor) -> Tensor:
    return torch.cat([y[:, :64], y[:, 64:] - y[:, 63:64]], dim=1) if y.shape[1] > 64 else y


def changed_output(change: Callable[[nn.Module, Tensor], Tensor]) -> type[Fading]:
    class Changed(Fading):
        def forward(self, *given: Any, **more: Any) -> ForwardOutput:
            mixed = super().forward(*given, **more)
            return mixed._replace(y=change(self, mixed.y))

    return Changed


class Chunked(Fading):
    """Chunks of 64 tokens, each of which begins without a state."""

    def forward(self, x: Tensor, memory: Tensor, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        parts = []
        for first in range(0, x.shape[1], 64):
            part = slice(first, min(first + 64, x.shape[1]))
            before = state if first == 0 else self.start(len(x))
            mixed = super().forward(x[:, part], x[:, part], visibility.span(part, part), before)
            parts.append(mixed.y)
        return mixed._replace(y=torch.cat(parts, dim=1), state=None if state is None else mixed.state)


class Stepping(Fading):
    """Steps token by token; `keeps` is what is left of the state."""

    keeps = Fading.FADE

    def fast_decoding(self) -> RecurrentUnit:
        def step(x: Tensor, state: State) -> tuple[Tensor, State]:
            total = self.keeps * state["sum"] + (1 - self.FADE) * self.value(x)
            return self.out(total), self.after(state, total)

        return RecurrentUnit(step)

    def after(self, state: State, total: Tensor) -> State:
        return state | {"sum": total}


class WrongStep(Stepping):
    keeps = 0.6


class StepWithoutState(Stepping):
    def after(self, state: State, total: Tensor) -> State:
        return state | {"sum": state["sum"] + 0 * total}


class Penalized(Fading):
    """Penalizes outputs, those at padding too."""

    def penalty(self, x: Tensor, visibility: Visibility) -> Tensor:
        return x.square().sum()

    def forward(self, x: Tensor, memory: Tensor, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        return super().forward(x, memory, visibility, state)._replace(penalty=self.penalty(x, visibility))


class MeanPenalty(Penalized):
    def penalty(self, x: Tensor, visibility: Visibility) -> Tensor:
        real = visibility.queries.tensors(len(x), x.device)[0] != 0
        return x[real].square().sum() / real.sum()


class RightPenalty(Penalized):
    def penalty(self, x: Tensor, visibility: Visibility) -> Tensor:
        return x[visibility.queries.tensors(len(x), x.device)[0] != 0].square().sum()


class Restless(Fading):
    """A refresh of its own at every call."""

    def refresh(self, seed: int, step: int) -> bool:
        self.value.weight.data.add_(0.1)
        return False


class NoReset(Fading):
    """Goes on from document to document."""

    def forward(self, x: Tensor, memory: Tensor, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        plain = TokenPositions(x.shape[1])
        return super().forward(x, memory, Visibility(True, plain, plain), state)


class OwnWeights(Fading):
    """Attention weights of another formula."""

    def explicit(self, x: Tensor, memory: Tensor, visibility: Visibility) -> ExplicitAttention:
        weights, values, *_ = super().explicit(x, memory, visibility)
        return ExplicitAttention(weights.square(), values)


class SignedWeights(Fading):
    def explicit(self, x: Tensor, memory: Tensor, visibility: Visibility) -> ExplicitAttention:
        weights, values, *_ = super().explicit(x, memory, visibility)
        return ExplicitAttention(-weights, -values)


class Unused(Fading):
    def __init__(self, dims: AttentionDims) -> None:
        super().__init__(dims)
        self.more = nn.Linear(3, 3)


class Growing(Fading):
    """Keeps every token that it has read."""

    def start(self, batch: int) -> State:
        return super().start(batch) | {"read": self.out.weight.new_empty(batch, 0, len(self.out.weight))}

    def forward(self, x: Tensor, memory: Tensor, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        mixed = super().forward(x, memory, visibility, state)
        return (
            mixed
            if state is None
            else mixed._replace(state=mixed.state | {"read": torch.cat([state["read"], x], dim=1)})
        )  # type: ignore[operator]


class Trimming(Fading):
    def trim(self, state: State) -> State:
        return state | {"sum": 0.9 * state["sum"]}


class OneState(Fading):
    """The sum of the first row stands for all rows."""

    def forward(self, x: Tensor, memory: Tensor, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        if state:
            state = state | {"sum": state["sum"][:1].expand_as(state["sum"])}
        return super().forward(x, memory, visibility, state)


class Heads(MultiHeadAttention):
    """Softmax attention; subclasses change what it sees."""


class SeesAll(Heads):
    def restrict(self, visibility: Visibility) -> Visibility:
        return replace(visibility, causal=False)


class ExcludesSelf(Heads):
    """Queries do not attend to their own token, which is not declared."""

    def restrict(self, visibility: Visibility) -> Visibility:
        return replace(visibility, attends_self=False)


class SeesNeighborDocuments(Heads):
    def restrict(self, visibility: Visibility) -> Visibility:
        return replace(
            visibility,
            memory=replace(visibility.memory, segments=None),
            queries=replace(visibility.queries, segments=None),
        )


class PositionsOfChunks(Heads):
    """Positions count anew every 64 tokens of a call."""

    def project(self, x: Tensor, memory: Tensor | State, visibility: Visibility) -> tuple[Tensor, Tensor, Tensor]:
        whole = visibility.queries
        counted = replace(whole, positions=torch.arange(whole.length).expand(len(x), -1) % 64)
        return super().project(x, memory, replace(visibility, queries=counted))


class Reversing(Heads):
    """Depends on the order of tokens without saying so."""

    def forward(self, x: Tensor, *given: Any, **more: Any) -> ForwardOutput:
        mixed = super().forward(x, *given, **more)
        return mixed._replace(y=mixed.y + x.cumsum(1))


class LaterQueries(Heads):
    """Cross-attention whose queries know the ones after them."""

    def project_query(self, x: Tensor) -> Tensor:
        return super().project_query(x + x.mean(1, keepdim=True))


class SourceInTraining(Heads):
    """Cross-attention to the padding of a source in training."""

    def forward(self, x: Tensor, memory: Any, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        if self.training and self.is_cross_attn:
            visibility = replace(visibility, memory=TokenPositions(visibility.memory.length))
        return super().forward(x, memory, visibility, state)


class Forgotten(Heads):
    """`recall` keeps the values of the first row for all."""

    def recall(self, memory: Tensor, token_positions: TokenPositions) -> State:
        recalled = super().recall(memory, token_positions)
        return recalled | {"v": recalled["v"][:1].expand_as(recalled["v"])}


class ExcludesSelfInWords(Fading):
    """Attends to its own token."""

    SUPPORTS = FadingMean.SUPPORTS | {"excludes_self"}


class ContextOnlyInWords(Fading):
    """Depends on its own token."""

    SUPPORTS = FadingMean.SUPPORTS | {"context_only"}


def with_mixer(mixer: type[Fading] | type[Heads]) -> MixerSettings:
    """Settings that build it, and support what it says."""

    def build(settings: MixerSettings, dims: AttentionDims, layer: LayerSpec) -> Fading | Heads:
        torch.manual_seed(0)
        return mixer(dims) if issubclass(mixer, Fading) else mixer(settings, dims, layer)  # type: ignore[arg-type]

    base = FadingMean if issubclass(mixer, Fading) else MultiHeadSettings
    declared = {"SUPPORTS": getattr(mixer, "SUPPORTS", base.SUPPORTS)}
    return type("Settings", (base,), {"build": build, **declared})()  # type: ignore[no-any-return]


LONG = "a_long_row_matches_its_weights_and_blocks-causal"
TRAINING = "training_without_dropout_matches_evaluation-causal-none"
STEP, EXPLICIT = "fast_decoding_matches_forward", "explicit_matches_forward"
GRADIENT, VISIBLE = (
    "every_parameter_has_a_gradient-causal-none-packed",
    "only_visible_tokens_have_a_gradient-causal-none",
)
OUTPUTS = "outputs in training must be those of evaluation"
PENALTY = "the penalty must be the sum of those of each document"
LATER = "earlier_outputs_do_not_depend_on_later_tokens-causal-none-plain"
FAULTY_MIXERS: list[tuple[type[Fading] | type[Heads], str, str]] = [
    (Chunked, f"{LONG}-none", "must equal forward in long rows"),
    (changed_output(second_chunk_alone), f"{LONG}-none", "must equal forward in long rows"),
    (changed_output(other_without_gradients), f"{LONG}-none", "the same with and without gradients"),
    (changed_output(plus_future), TRAINING, OUTPUTS),
    (changed_output(minus_batch_mean), TRAINING, OUTPUTS),
    (Penalized, TRAINING, PENALTY),
    (MeanPenalty, TRAINING, PENALTY),
    (WrongStep, STEP, "step must match forward"),
    (StepWithoutState, STEP, "must match forward"),
    (Restless, "refresh_depends_on_seed_and_step_only", "seed and step only"),
    (NoReset, "a_packed_document_is_independent-causal-none-packed", "must not depend on the other documents"),
    (OwnWeights, f"{EXPLICIT}-causal-none-packed", "must equal forward"),
    (SignedWeights, f"{EXPLICIT}-causal-none-packed", "nonnegative is declared"),
    (ExcludesSelfInWords, f"{EXPLICIT}-causal-none-plain", "excludes_self is True"),
    (ExcludesSelf, f"{EXPLICIT}-bidirectional-none-packed", "excludes_self is False"),
    (Unused, GRADIENT, "more.weight must have a gradient"),
    (Growing, "the_state_of_a_stream_is_bounded", "must not grow with the length"),
    (Trimming, "a_trimmed_state_gives_the_same_outputs-causal-none-plain", "trim must not change"),
    (OneState, "blocks_with_state_match_one_pass-causal-none-plain", "must match one pass"),
    (ContextOnlyInWords, f"{VISIBLE}-plain", "context_only is True"),
    (SeesAll, LATER, "must not depend on later tokens"),
    (SeesNeighborDocuments, "padding_does_not_change_outputs-causal-none-packed", "padding must not change outputs"),
    (SeesNeighborDocuments, f"{VISIBLE}-packed", "must have no gradient"),
    (PositionsOfChunks, f"{LONG}-rotary", "must match one pass"),
    (Reversing, "the_order_matters_only_if_declared", "unordered is declared"),
]
FAULTY_CROSS: list[tuple[type[Heads], str, str]] = [
    (LaterQueries, "cross-earlier_outputs_do_not_depend_on_later_queries", "must not depend on later queries"),
    (SourceInTraining, "cross-training_without_dropout_matches_evaluation", OUTPUTS),
    (Forgotten, "cross-padded", "must match the source alone"),
]


def named(faults: list[Any]) -> list[Any]:
    return [pytest.param(*fault, id=f"{number}-{fault[1].partition('-')[0]}") for number, fault in enumerate(faults)]


@pytest.mark.parametrize(("mixer", "case", "message"), named(FAULTY_MIXERS))
def test_a_faulty_mixer_is_refused(mixer: type[Fading] | type[Heads], case: str, message: str) -> None:
    refuses(case, attention.mixer_cases(with_mixer(mixer)), message)


@pytest.mark.parametrize("mixer", [RightPenalty, Stepping, Heads])
def test_the_same_mixers_without_a_fault_are_not_refused(mixer: type[Fading] | type[Heads]) -> None:
    tried = {case for _, case, _ in FAULTY_MIXERS} - {"the_state_of_a_stream_is_bounded"}
    cases = [case for case in attention.mixer_cases(with_mixer(mixer)) if case.name in tried]
    assert len(cases) > 10
    for case in cases:
        case.run()


@pytest.mark.parametrize(("mixer", "case", "message"), named(FAULTY_CROSS))
def test_faulty_cross_attention_is_refused(mixer: type[Heads], case: str, message: str) -> None:
    refuses(case, cross_attention.cases(with_mixer(mixer)), message)


# Positional encodings


class Table(PositionalEncodingSettings):
    """A learned bias for each distance up to 4, in each layer."""

    APPLIES_TO = frozenset({"bias"})

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return Biases(n_heads)

    def build_layers(self, n_layers: int, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return Layers([Biases(n_heads) for _ in range(n_layers)])


class Biases(PositionalEncoding):
    applies_to = Table.APPLIES_TO

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(n_heads, 9))

    def bias(self, distance: Tensor, q: Tensor | None = None, k: Tensor | None = None) -> Tensor:
        return self.table[:, distance.clamp(-4, 4) + 4].transpose(0, 1)


class Layers(PositionalEncoding):
    applies_to = Table.APPLIES_TO

    def __init__(self, layers: list[Biases]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def of_layer(self, layer: int) -> Any:
        return self.layers[layer]


class WithoutLayers(Layers):
    of_layer = PositionalEncoding.of_layer


class FirstLayer(Layers):
    def of_layer(self, layer: int) -> Any:
        return self.layers[0]


class Shared(Layers):
    def __init__(self, layers: list[Biases]) -> None:
        super().__init__(layers[:1] * len(layers))


def with_layers(layers: type[Layers]) -> PositionalEncodingSettings:
    def build_layers(settings: Table, n_layers: int, d_model: int, n_heads: int, d_k: int, context: int) -> Layers:
        return layers([Biases(n_heads) for _ in range(n_layers)])

    return type("Settings", (Table,), {"build_layers": build_layers})()  # type: ignore[no-any-return]


class Absolute(Biases):
    """A bias of positions of a row, not of distances."""

    applies_to = frozenset({"embed"})

    def embed(self, x: Tensor, token_positions: TokenPositions) -> Tensor:
        return x + torch.arange(x.shape[1])[:, None]


class Limited(Absolute):
    """Has a limit of which the settings do not know."""

    max_positions = 8


class Turned(Biases):
    """Rotates and stretches."""

    applies_to = frozenset({"rotary"})

    def rotate(self, x: Tensor, token_positions: TokenPositions, n_queries: int | None = None) -> Tensor:
        return x * (1 + token_positions.all_positions(x.device)[..., None, None])


class TurnedBack(Biases):
    """Rotates in the sense opposite to its rotations."""

    applies_to = frozenset({"rotary"})

    def rotations(self, token_positions: TokenPositions, d_k: int, like: Tensor) -> Tensor:
        angle = token_positions.all_positions(like.device)[..., None, None].double().expand(-1, -1, 1, d_k // 2)
        return torch.polar(torch.ones_like(angle), angle)

    def rotate(self, x: Tensor, token_positions: TokenPositions, n_queries: int | None = None) -> Tensor:
        rotations = self.rotations(token_positions, x.shape[-1], x)
        return torch.view_as_real(torch.complex(*x.chunk(2, dim=-1)) * rotations.conj()).flatten(-2)


def alone(encoding: type[Biases], applies_to: str, **declared: Any) -> PositionalEncodingSettings:
    def build(settings: Table, d_model: int, n_heads: int, d_k: int, context: int) -> Biases:
        return encoding(n_heads)

    more = {
        "APPLIES_TO": frozenset({applies_to}),
        "build": build,
        "build_layers": PositionalEncodingSettings.build_layers,
    }
    return type("Settings", (Table,), more | declared)()  # type: ignore[no-any-return]


FAULTY_POSITIONS: list[tuple[PositionalEncodingSettings, str, str]] = [
    (with_layers(WithoutLayers), "every_layer_has_its_encoding", r"of_layer\(0\) must apply to \['bias'\]"),
    (with_layers(FirstLayer), "every_layer_has_its_encoding", "another encoding for each layer"),
    (with_layers(FirstLayer), "every_parameter_has_a_gradient", "layers.1.table must have a gradient"),
    (with_layers(Shared), "every_layer_has_its_encoding", "another encoding for each layer"),
    (with_layers(WithoutLayers), "in_decoder_every_parameter_has_a_gradient_and_a_depth", "must have a gradient"),
    (alone(Biases, "embed"), "it_applies_where_declared", "must equal APPLIES_TO"),
    (alone(Absolute, "embed"), "it_depends_on_positions_only", "must not depend on other tokens"),
    (alone(Limited, "embed"), "max_positions_are_enforced", r"must be equal: \[None, 8, 8\]"),
    (
        alone(Absolute, "embed", max_positions=lambda *_: 3),
        "max_positions_are_enforced",
        r"must be equal: \[3, None, None\]",
    ),
    (alone(Turned, "rotary"), "rotate_is_linear", "must preserve norms"),
    (alone(TurnedBack, "rotary"), "rotations_are_those_of_rotate", "must multiply pairs of dimensions"),
]


@pytest.mark.parametrize(("settings", "case", "message"), named(FAULTY_POSITIONS))
def test_a_faulty_positional_encoding_is_refused(settings: PositionalEncodingSettings, case: str, message: str) -> None:
    refuses(case, positions.cases(settings), message)


def test_layers_with_tables_of_their_own_are_not_refused() -> None:
    for case in positions.cases(Table()):
        if "-" not in case.name:
            case.run()


# Models


class DropsPenalties(Stack):
    def forward(self, *given: Any, **more: Any) -> ForwardOutput:
        return super().forward(*given, **more)._replace(penalty=None)


class CountsTwice(Stack):
    def forward(self, *given: Any, **more: Any) -> ForwardOutput:
        mixed = super().forward(*given, **more)
        return mixed if mixed.penalty is None else mixed._replace(penalty=2 * mixed.penalty)


class Ponders(Stack):
    """A penalty of its own, which counts padding."""

    def forward(self, x: Tensor, *given: Any, **more: Any) -> ForwardOutput:
        mixed = super().forward(x, *given, **more)
        return mixed._replace(penalty=x.sigmoid().sum() + (0 if mixed.penalty is None else mixed.penalty))


class LooksAhead(Stack):
    def forward(self, x: Tensor, *given: Any, **more: Any) -> ForwardOutput:
        return super().forward(x + x.mean(1, keepdim=True) if self.training else x, *given, **more)


class ReadsPadding(Stack):
    def forward(self, x: Tensor, *given: Any, **more: Any) -> ForwardOutput:
        return super().forward(x + x.mean((0, 1)), *given, **more)


class ForgetsState(Stack):
    def forward(
        self, x: Tensor, token_positions: TokenPositions, memory: Any = None, at: Any = None, state: Any = None
    ) -> ForwardOutput:
        return super().forward(x, token_positions, memory, at, self.start(len(x)) if state else None)


class Blind(OneStack):
    """Has no declared stack of its own tokens."""

    def stacks(self) -> Any:
        return [super().stacks()[0]._replace(rows="source")]


def small_model(kind: str, **methods: Any) -> ModelSettings:
    return type("Settings", (settings_of("models", kind),), methods)(d_model=8, n_layers=2, n_heads=2)  # type: ignore[no-any-return]


def with_stack(stack: type[Stack], kind: str = "decoder") -> ModelSettings:
    def build_stack(settings: ModelSettings, positional_encoding: PositionalEncoding, cross_spec: Any = None) -> Stack:
        return stack(settings, settings.causal, positional_encoding, cross_spec)

    return small_model(kind, build_stack=build_stack)


def with_model(model: type[OneStack]) -> ModelSettings:
    def build(settings: ModelSettings, vocabulary_size: int, context: int, of_source: int | None = None) -> Model:
        return model(settings, vocabulary_size, context)

    return small_model("decoder", build=build)


class Misplaces(OneStack):
    """Selected tokens come in another order."""

    def decode(self, inputs: Tokens, memory: Any, at: Tensor | None, state: Any) -> ForwardOutput:
        return super().decode(inputs, memory, None if at is None else at.flip(0), state)


SUM, ROWS = "penalty of each call of a mixer must count once", "must be that of its rows, without padding"
PENALTIES, MODE = "penalties_are_summed_over_mixers_and_rows", "training_without_dropout_matches_evaluation"
FAULTY_MODELS: list[tuple[Callable[[], ModelSettings], str, str]] = [
    (lambda: with_stack(DropsPenalties), PENALTIES, "must be in the penalty of the model"),
    (lambda: with_stack(DropsPenalties, "encoder_decoder"), PENALTIES, SUM),
    (lambda: with_stack(CountsTwice), PENALTIES, SUM),
    (lambda: with_stack(Ponders), PENALTIES, ROWS),
    (lambda: with_stack(LooksAhead), MODE, "logits in training must be those of evaluation"),
    (lambda: with_stack(ReadsPadding), "padding_does_not_change_outputs", "padding must not change logits"),
    (lambda: with_stack(ReadsPadding), "attention_has_the_declared_direction", "only if bidirectional"),
    (lambda: with_stack(ForgetsState), "decoding_token_by_token_matches_one_pass", "must match one pass"),
    (lambda: with_model(Blind), "declared_stacks_exist", "a stack must have the rows"),
    (lambda: with_model(Misplaces), "selected_tokens_match_all_tokens", "selected tokens must match"),
]


@pytest.mark.parametrize(("settings", "case", "message"), named(FAULTY_MODELS))
def test_a_faulty_model_is_refused(settings: Callable[[], ModelSettings], case: str, message: str) -> None:
    refuses(case, models.cases(settings()), message)


def test_a_merged_model_with_a_name_left_over_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def merge(model: Model) -> None:
        lora.merge(model)
        model.left = nn.Parameter(torch.ones(2))

    monkeypatch.setattr(models, "merge", merge)
    with pytest.raises(AssertionError, match="must have the original names"):
        models.adapters_cover_every_stack_and_merge(small_model("decoder"))


@pytest.mark.parametrize(("entropy", "refused"), [(-0.01, True), (1.01, True), (-1e-7, False), (1 + 1e-7, False)])
def test_a_measure_of_a_head_is_a_share_up_to_rounding(
    entropy: float, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def heads(*given: Any) -> list[Any]:
        return [replace(head, measures={"entropy": entropy}) for head in heads_of(*given)]

    monkeypatch.setattr(inspection, "heads_of", heads)
    with pytest.raises(AssertionError, match=r"entropy must be in \[0, 1\]") if refused else nullcontext():
        inspection.head_measures_are_in_range(small_model("decoder"))
