"""The contract of inspection: parameter counts, captured attention and hidden states for any model.

The settings under test should be small: the checks share a model in float64, for a vocabulary of 23 tokens and a
context of 16, within which the state of a mixer that supports streaming must reach its maximum size.
"""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from mini_tf.inspection._attention_maps import heads_of
from mini_tf.inspection._capture import Capture, capture, softmax_statistics
from mini_tf.inspection._heads import ROLES, HeadIndex, repeated_tokens, role_of, scores_on
from mini_tf.inspection._memory_layers import memory_layers, recorded
from mini_tf.inspection._modules import analyze_positions, encoding_of, forward_flops, memory_of, module_parameters
from mini_tf.inspection._occurrences import Occurrence, Sentence, compare_occurrences
from mini_tf.inspection._texts import ModelInput
from mini_tf.nn.layers.feed_forward import FeedForward
from mini_tf.nn.model import Model, ModelSettings
from mini_tf.nn.model_stack import UNITS, ModelStack, SequenceKind
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kind_settings import OptimizerSettings
from mini_tf.recipe.kinds import settings_of
from mini_tf.system.errors import UsageFault
from mini_tf.testing import Case, cases_of, checks_of
from mini_tf.testing.tiny.mixers import assert_same
from mini_tf.testing.tiny.models import CONTEXT, VOCABULARY, L, M, random_ids, source_for, tiny_model

_SHARES = {"max", *ROLES} - {"broad"}
"""Measures of a head that are shares of the attention weights."""
_CLOSE = 1e-6


def cases(settings: ModelSettings) -> list[Case]:
    """All checks of inspection for a model of these settings."""
    return cases_of(checks_of(__name__), settings)


_built: list[tuple[ModelSettings, Model]] = []
"""The last model, as settings need not be hashable."""


def _model_of(settings: ModelSettings) -> Model:
    """The model of all checks: a view leaves it as it was."""
    if not _built or _built[0][0] != settings:
        _built[:] = [(settings, tiny_model(settings))]
    return _built[0][1]


@lru_cache(maxsize=1)
def _captured(model: Model) -> Capture:
    return _capture(model)


def _capture(model: Model) -> Capture:
    return capture(model, Tokens(random_ids(1)), source_for(model, 1))


def every_parameter_is_counted_once(settings: ModelSettings) -> None:
    model = _model_of(settings)
    parts, names = module_parameters(model), {id(parameter): name for name, parameter in model.named_parameters()}
    counted = Counter(
        id(model.get_parameter(f"{part.name}.{name}".lstrip("."))) for part in parts for name in part.shapes
    )
    wrong = {name: counted[key] for key, name in names.items() if counted[key] != 1}
    assert not wrong, f"parameters must be counted once, not: {wrong}"
    total, in_parts = sum(p.numel() for p in model.parameters()), sum(part.parameters for part in parts)
    assert in_parts == total, f"parts must have {total} parameters: {in_parts}"
    for part in parts:
        size = sum(map(math.prod, part.shapes.values()))
        assert (part.parameters, part.bytes) == (size, 8 * size), (
            f"{part.name}: {size} parameters are counted as {part.parameters} in {part.bytes} bytes"
        )
        assert size or part.tied is not None, f"{part.name} has no parameters and no tied ones"


def flops_and_memory_match_the_model(settings: ModelSettings) -> None:
    model = _model_of(settings)
    work = forward_flops(model)
    for name in ("stack", "logits", "forward", "training"):
        assert 0 < getattr(work, name) < math.inf, f"FLOPs of {name}: {getattr(work, name)}"
    per = "pair" if model.needs_source else "token"
    assert work.per == per, f"FLOPs must be per {per}: {work.per}"
    optimizer = settings_of("optimizers", "adamw")()
    assert isinstance(optimizer, OptimizerSettings)
    memory, weights = memory_of(model, optimizer), sum(p.numel() * p.element_size() for p in model.parameters())
    assert memory.weights == weights, f"weights take {memory.weights} bytes, not {weights}"
    assert 2 * weights <= memory.training < math.inf, (
        f"training must take more than the {2 * weights} bytes of weights and gradients: {memory.training}"
    )
    causal = model.stacks()[0].stack.causal
    assert (memory.state is not None) == (memory.state_per_token is not None) == causal, (
        f"a causal model must have a state, others none: causal {causal}, state {memory.state}"
    )
    if memory.state is None or memory.state_per_token is None:
        return
    assert 0 <= memory.state_per_token <= memory.state, (
        f"state per token must be at most the state of {memory.state} bytes: {memory.state_per_token}"
    )
    if all("streaming" in mixer.SUPPORTS for mixer in settings.attention):
        assert memory.state_per_token == 0, (
            f"the state of mixers that support streaming must not grow: {memory.state_per_token} bytes per token"
        )


def positions_of_every_embedding_are_finite(settings: ModelSettings) -> None:
    model = _model_of(settings)
    for model_stack in model.stacks():
        if (where := encoding_of(model, model_stack)) is None:
            continue
        path, analysis, encoding = where.path, analyze_positions(model, where), model.get_submodule(where.path)
        assert isinstance(encoding, PositionalEncoding), f"{path} must be a PositionalEncoding"
        kernels = {f"the bias of head {head}": bias for head, bias in enumerate(analysis.biases)}
        kernels |= {} if analysis.rotary is None else {"rotary": analysis.rotary.kernel}
        kernels |= {} if analysis.vectors is None else {"vectors": analysis.vectors.kernel}
        for name, kernel in kernels.items():
            n = min(CONTEXT, model.context)
            assert len(kernel) == n, f"{path}: {name} must have {n} distances, not {len(kernel)}"
            assert all(map(math.isfinite, kernel)), f"{path}: {name} must be finite: {kernel}"
        assert (analysis.vectors is not None) == ("embed" in encoding.applies_to), (
            f"{path}: vectors if and only if it changes embeddings"
        )
        if analysis.vectors is not None:
            _check_cosines(analysis.vectors.similarity, len(analysis.vectors.positions), path)


def every_head_of_every_call_is_captured_once(settings: ModelSettings) -> None:
    model = _model_of(settings)
    captured = _captured(model)
    expected: Counter[str] = Counter()
    for model_stack in model.stacks():
        mixers = [block.mixers["self_attn"] for block in model_stack.stack.blocks if block.self_attn is not None]
        expected[model_stack.attention] += model_stack.stack.n_passes * sum(mixer.has_heads for mixer in mixers)
        expected[model_stack.cross_attn] += model_stack.stack.n_passes * sum(
            block.cross_attn is not None for block in model_stack.stack.blocks
        )
    layers = [(kind, layer) for kind, n in (+expected).items() for layer in range(n)]
    assert sorted((attention.kind, attention.layer) for attention in captured.attention) == sorted(layers), (
        f"calls that must be captured: {sorted(layers)}"
    )
    for attention in captured.attention:
        masked = attention.weights[..., attention.lead :].masked_select(~attention.mask[:, None])
        assert not masked.any(), f"{attention.kind} layer {attention.layer}: weights must be 0 where the mask is False"
    heads = [
        (attention.kind, attention.layer, n)
        for attention in captured.attention
        for n in range(attention.weights.shape[1])
    ]
    statistics = softmax_statistics([captured])
    message = "softmax statistics must contain each head once"
    assert sorted((head.kind, head.layer, head.head) for head in statistics) == sorted(heads), message
    for head in statistics:
        where, entropy = f"{head.kind} layer {head.layer} head {head.head}", head.normalised
        within = math.isnan(entropy) or -_CLOSE <= entropy <= 1 + _CLOSE
        assert within, f"{where}: the normalized entropy must be in [0, 1]: {entropy}"


def head_measures_are_in_range(settings: ModelSettings) -> None:
    for attention in _captured(_model_of(settings)).attention:
        among = {"input": random_ids(1)[0].tolist(), "source": random_ids(1, M, seed=2)[0].tolist()}
        units = (
            among.get(attention.queries, range(attention.mask.shape[-1]))
            if attention.queries == attention.keys
            else None
        )
        heads = heads_of(attention, units)
        assert len(heads) == attention.weights.shape[1], (
            f"{attention.kind}: there must be {attention.weights.shape[1]} heads, not {len(heads)}"
        )
        for head in heads:
            assert (head.queries, head.keys) == (attention.queries, attention.keys), (
                f"{head.index}: queries and keys must be those of the captured attention"
            )
            normalized = (head.weights >= 0).all() and (
                head.weights.sum(axis=-1) <= 1 + _CLOSE
            ).all()  # else weights are no probabilities
            bounded = {"entropy"} | (_SHARES if normalized else set())
            for name, value in head.measures.items():
                assert value is None or math.isfinite(value), f"{head.index}: {name} must be finite: {value}"
                within = value is None or abs(value - 0.5) <= 0.5 + _CLOSE
                assert within or name not in bounded, f"{head.index}: {name} must be in [0, 1]: {value}"


def head_roles_are_scores_on_repeated_random_tokens(settings: ModelSettings) -> None:
    model = _model_of(settings)
    rows = [repeated_tokens(range(VOCABULARY), length) for length in (CONTEXT, CONTEXT - 2)]
    inputs, source = (Tokens(ids) for ids in rows if ids is not None)
    by_head = scores_on(model, inputs, source if model.needs_source else None)
    between_tokens = [
        attention
        for attention in _captured(model).attention
        if attention.queries == attention.keys and attention.queries not in UNITS
    ]
    expected = [
        HeadIndex(attention.kind, attention.layer, head)
        for attention in between_tokens
        for head in range(attention.weights.shape[1])
    ]
    assert [*by_head] == expected, f"self-attention heads between tokens must have scores: {expected}, not {[*by_head]}"
    for index, scores in by_head.items():
        assert {*scores} <= {*ROLES}, f"{index}: unknown roles {[*scores]}"
        assert role_of(scores) in (None, *scores), f"{index}: role {role_of(scores)!r} without a score"
        for name, score in scores.items():
            assert math.isfinite(score.mean), f"{index}: {name} must be finite: {score.mean}"
            assert 0 <= score.error < math.inf, (
                f"{index}: the error of {name} must be finite and not negative: {score.error}"
            )


def hidden_states_of_every_call_are_captured(settings: ModelSettings) -> None:
    model = _model_of(settings)
    with _recorded_calls(model) as calls:
        captured = _capture(model)
    calls = calls[len(calls) // 2 :]  # the calls of the second of two forward passes
    message = "every declared stack must be called"
    assert {call.of.name for call in calls} == {model_stack.name for model_stack in model.stacks()}, message
    for hidden, (model_stack, inputs, y) in zip(captured.hidden, calls, strict=True):
        assert hidden.rows == model_stack.rows, (
            f"hidden states of {model_stack.name} must be of {model_stack.rows}, not {hidden.rows}"
        )
        assert len(hidden.layers) == model_stack.stack.n_calls + 1, (
            f"{model_stack.name}: {model_stack.stack.n_calls} calls must give one tensor more, not {len(hidden.layers)}"
        )
        n = {"input": L, "source": M}.get(model_stack.rows, inputs.shape[1])
        assert {layer.shape[:2] for layer in hidden.layers} == {(1, n)}, (
            f"hidden states of {model_stack.name} must be (1, {n}, D)"
        )
        assert_same(hidden.layers[0], inputs, f"the first hidden states of {model_stack.name} must be its input")
        message = f"the normed last hidden states of {model_stack.name} must be its output"
        assert_same(model_stack.stack.norm(hidden.layers[-1]), y, message)


def word_vectors_are_hidden_states_of_its_tokens(settings: ModelSettings) -> None:
    model, texts = _model_of(settings), ("ab cd e", "f ab g")
    sentences, occurrences = [Sentence(text, text) for text in texts], [_occurrence(text, "ab") for text in texts]
    rows: SequenceKind = "source" if model.needs_source else "input"
    if rows not in {model_stack.rows for model_stack in model.stacks()}:
        try:
            compare_occurrences(model, sentences, occurrences, as_source=model.needs_source)
        except UsageFault:
            return
        raise AssertionError(f"a model without a stack of {rows} tokens must be refused by a UsageFault")
    with _recorded_calls(model) as calls:
        layers = compare_occurrences(model, sentences, occurrences, as_source=model.needs_source)
    n = len(calls) // 2  # of each sentence
    first, second = (next(call for call in half if call.of.rows == rows) for half in (calls[:n], calls[n:]))
    name, n_calls = first.of.name, first.of.stack.n_calls
    assert len(layers) == n_calls + 1, f"{name} must have {n_calls + 1} layers, not {len(layers)}"
    vector, other = (
        call.inputs[0, where.tokens].mean(dim=0) for call, where in zip((first, second), occurrences, strict=True)
    )
    expected = torch.dot(vector, other) / (vector.norm() * other.norm())
    assert_same(layers[0].cosines[0, 1], expected, f"the vectors before the first layer must be the input of {name}")
    for layer in layers:
        _check_cosines(layer.cosines, len(sentences), f"layer {layer.number}")
        assert math.isfinite(layer.baseline), f"layer {layer.number}: the baseline must be finite: {layer.baseline}"


def feed_forward_layers_are_sums_of_memories(settings: ModelSettings) -> None:
    model = _model_of(settings)
    expected, seen = list[tuple[str, int]](), list[tuple[str, int]]()

    def check(name: str, layer: int, part: FeedForward, x: Tensor) -> None:
        seen.append((name, layer))
        bias = 0 if part.value_bias is None else part.value_bias
        message = f"{name}: layer {layer} must be a sum of its memories"
        assert_same(part.coefficients(x) @ part.values + bias, part.forward(x), message)

    with torch.no_grad(), ExitStack() as hooks:
        for model_stack in model.stacks():
            if any(block.feed_forward is not None for block in model_stack.stack.blocks):
                expected += [(model_stack.name, layer) for layer in memory_layers(model_stack.stack, model_stack.name)]
                hooks.enter_context(recorded(model_stack.stack, partial(check, model_stack.name)))
        model(Tokens(random_ids(1)), source_for(model, 1))
    assert sorted(seen) == sorted(expected), f"layers that must be recorded once: {expected}, not {seen}"


def _check_cosines(cosines: Tensor, n: int, where: str) -> None:
    assert cosines.shape == (n, n), f"{where}: {list(cosines.shape)} cosines of {n} vectors"
    assert (cosines.abs() <= 1 + _CLOSE).all(), f"{where}: cosines must be in [-1, 1]"


def _occurrence(text: str, sought: str) -> Occurrence:
    """The word `sought`, with one token per character."""
    first = text.index(sought)
    inputs = ModelInput(text, [*range(len(text))], [(i, i + 1) for i in range(len(text))])
    return Occurrence((first, first + len(sought)), [*range(first, first + len(sought))], inputs)


class _Call(NamedTuple):
    """A call of a stack: its input and output."""

    of: ModelStack
    inputs: Tensor
    y: Tensor


@contextmanager
def _recorded_calls(model: Model) -> Iterator[list[_Call]]:
    """Calls of declared stacks within this context, in the order in which they return."""
    calls: list[_Call] = []

    def record(model_stack: ModelStack) -> RemovableHandle:
        return model_stack.stack.register_forward_hook(
            lambda _, inputs, mixed: calls.append(_Call(model_stack, inputs[0].detach(), mixed.y.detach()))
        )

    handles = [record(model_stack) for model_stack in model.stacks()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
