"""The contract of inspection views over a model: whatever it declares, every view counts, captures and measures it rightly.

The settings under test should be small: every check builds a model of them, in float64, for a vocabulary of 23 tokens and a context
of 16; what a mixer with `STREAMS` remembers must be bounded within so many tokens.
"""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from mini_tf.inspection import positions, softmax, word
from mini_tf.inspection.capture import Capture, capture
from mini_tf.inspection.framing import Framed
from mini_tf.inspection.heads import ROLES
from mini_tf.inspection.maps.attention import heads_of
from mini_tf.inspection.parameters import forward_flops, memory_of, parts_of
from mini_tf.inspection.sentences import Sentence
from mini_tf.nn.model import Model, ModelSettings, ModelStack, SequenceKind
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kind_settings import OptimizerSettings
from mini_tf.recipe.kinds import settings_of
from mini_tf.system.errors import UsageFault
from mini_tf.testing import Case, cases_of
from mini_tf.testing.tiny_mixers import same
from mini_tf.testing.tiny_models import CONTEXT, VOCABULARY, L, M, built, drawn_tokens, source_of

_SHARES = {"max", *ROLES} - {"broad"}
"""Measures of a head that are parts of a row's weight."""
_CLOSE, _CLOSE_FLOAT32 = 1e-9, 1e-6


def cases(settings: ModelSettings) -> list[Case]:
    """Everything that inspection must be able to say of a model of these settings."""
    checks = [
        every_parameter_is_counted_once,
        operations_and_memory_are_those_of_the_model,
        positions_of_every_embedding_are_finite,
        every_head_of_every_call_is_captured_once,
        measures_of_heads_are_shares,
        hidden_vectors_are_those_of_every_call,
        a_word_is_read_where_rows_are_tokens_of_its_text,
    ]
    return cases_of(checks, settings)


def _seen(model: Model) -> Capture:
    return capture(model, Tokens(drawn_tokens(1)), source_of(model, 1))


def every_parameter_is_counted_once(settings: ModelSettings) -> None:
    model = built(settings)
    parts, there = parts_of(model), {id(parameter): name for name, parameter in model.named_parameters()}
    counted = Counter(id(model.get_parameter(f"{part.name}.{name}".lstrip("."))) for part in parts for name in part.shapes)
    wrong = {name: counted[key] for key, name in there.items() if counted[key] != 1}
    assert not wrong, f"parameters that are not counted once, and how often they are: {wrong}"
    total = sum(parameter.numel() for parameter in model.parameters())
    assert sum(part.parameters for part in parts) == total, f"parts have {sum(part.parameters for part in parts)} parameters of {total}"
    for part in parts:
        size = sum(map(math.prod, part.shapes.values()))
        assert (part.parameters, part.bytes) == (size, 8 * size), f"{part.name}: {part.parameters} in {part.bytes} bytes are not {size}"
        assert size or part.tied is not None, f"{part.name} has no parameter of its own, and names none that it shares"


def operations_and_memory_are_those_of_the_model(settings: ModelSettings) -> None:
    model = built(settings)
    work = forward_flops(model)
    for name in ("stack", "scores", "forward", "training"):
        assert 0 < getattr(work, name) < math.inf, f"operations of {name}: {getattr(work, name)}"
    assert work.per == ("pair" if model.needs_source else "token"), f"a model that reads a source or not counts operations a {work.per}"
    optimizer = settings_of("optimizers", "adamw")()
    assert isinstance(optimizer, OptimizerSettings)
    memory, weights = memory_of(model, optimizer), sum(p.numel() * p.element_size() for p in model.parameters())
    assert memory.weights == weights, f"weights take {memory.weights} bytes, not {weights}"
    assert 2 * weights <= memory.training < math.inf, f"training takes {memory.training} bytes, weights and gradients {2 * weights}"
    causal = model.stacks()[0].stack.causal
    assert (memory.state is not None) == (memory.state_per_token is not None) == causal, f"causal {causal}, a state of {memory.state}"
    if memory.state is None or memory.state_per_token is None:
        return
    assert 0 <= memory.state_per_token <= memory.state, f"a token takes {memory.state_per_token} bytes of a state of {memory.state}"
    if all(mixer.STREAMS for mixer in settings.attention):
        assert memory.state_per_token == 0, f"the state of mixers that stream grows by {memory.state_per_token} bytes a token"


def positions_of_every_embedding_are_finite(settings: ModelSettings) -> None:
    model = built(settings)
    for one in model.stacks():
        if not positions.has_positions(model, one):
            continue
        seen, position = positions.look(model, str(one.embedding)), model.get_submodule(f"{one.embedding}.position")
        assert isinstance(position, PositionalEncoding), f"{one.embedding}.position is no position"
        kernels = {f"the bias of head {head}": bias for head, bias in enumerate(seen.biases)}
        kernels |= {} if seen.turns is None else {"turns": seen.turns.kernel}
        kernels |= {} if seen.vectors is None else {"vectors": seen.vectors.kernel}
        for name, kernel in kernels.items():
            assert len(kernel) == min(CONTEXT, model.context), f"{one.embedding}: {name} go over {len(kernel)} distances, not {CONTEXT}"
            assert all(map(math.isfinite, kernel)), f"{one.embedding}: {name} are not finite: {kernel}"
        assert (seen.vectors is not None) == ("embed" in position.applies_to), f"{one.embedding}: vectors of places where none are added"
        if seen.vectors is not None:
            n, similarity = len(seen.vectors.places), seen.vectors.similarity
            assert similarity.shape == (n, n), f"{one.embedding}: {list(similarity.shape)} cosines of {n} places"
            assert (similarity.abs() <= 1 + _CLOSE).all(), f"{one.embedding}: cosines of places are not within -1 and 1"


def every_head_of_every_call_is_captured_once(settings: ModelSettings) -> None:
    model = built(settings)
    seen = _seen(model)
    expected: Counter[str] = Counter()
    for one in model.stacks():
        expected[one.attention] += one.stack.n_passes * sum(block.own is not None for block in one.stack.blocks)
        expected[one.cross] += one.stack.n_passes * sum(block.cross is not None for block in one.stack.blocks)
    layers = [(kind, layer) for kind, n in (+expected).items() for layer in range(n)]
    assert sorted((one.kind, one.layer) for one in seen.readings) == sorted(layers), f"captured are other calls than {sorted(layers)}"
    for reading in seen.readings:
        unseen = reading.weights[..., reading.lead :].masked_select(~reading.keep[:, None])
        assert not unseen.any(), f"{reading.kind} layer {reading.layer}: weight where nothing may be seen"
    heads = softmax.sharpness([seen])
    there = sorted((one.kind, one.layer, head) for one in seen.readings for head in range(one.weights.shape[1]))
    assert sorted((head.kind, head.layer, head.head) for head in heads) == there, "sharpness does not tell of each head once"
    for head in heads:
        where = f"{head.kind} layer {head.layer} head {head.head}"
        assert math.isnan(head.normalised) or -_CLOSE <= head.normalised <= 1 + _CLOSE, f"{where}: an entropy of {head.normalised}"


def measures_of_heads_are_shares(settings: ModelSettings) -> None:
    for reading in _seen(built(settings)).readings:
        among = {"own": drawn_tokens(1)[0].tolist(), "source": drawn_tokens(1, M, seed=2)[0].tolist()}
        units = among.get(reading.rows, range(reading.keep.shape[-1])) if reading.rows == reading.columns else None
        heads = heads_of(reading, units)
        assert len(heads) == reading.weights.shape[1], f"{reading.kind}: {len(heads)} heads of {reading.weights.shape[1]}"
        for head in heads:
            assert head.role is None or head.role in ROLES, f"{head.place}: the role {head.role!r}"
            assert (head.queries, head.keys) == (reading.rows, reading.columns), f"{head.place}: rows or columns stand for something else"
            whole = (head.weights >= 0).all() and (head.weights.sum(axis=-1) <= 1 + _CLOSE_FLOAT32).all()  # else weights are no parts
            bounded = {"entropy"} | (_SHARES if whole else set())
            for name, value in head.measures.items():
                assert value is None or math.isfinite(value), f"{head.place}: {name} is {value}"
                within = value is None or -_CLOSE_FLOAT32 <= value <= 1 + _CLOSE_FLOAT32
                assert within or name not in bounded, f"{head.place}: {name} is {value}, no share"


def hidden_vectors_are_those_of_every_call(settings: ModelSettings) -> None:
    model = built(settings)
    with _hearing(model) as heard:
        seen = _seen(model)
    heard = heard[len(heard) // 2 :]  # of the two passes the second is kept
    assert {call.of.name for call in heard} == {one.name for one in model.stacks()}, "a declared stack is never called"
    for hidden, (one, given, y) in zip(seen.hidden, heard, strict=True):
        assert hidden.rows == one.rows, f"hidden vectors of {one.name} stand for {hidden.rows}"
        assert len(hidden.layers) == one.stack.n_calls + 1, f"{one.name}: {len(hidden.layers)} tensors of {one.stack.n_calls} calls"
        n = {"own": L, "source": M}.get(one.rows, given.shape[1])
        assert {layer.shape[:2] for layer in hidden.layers} == {(1, n)}, f"hidden vectors of {one.name} are not (1, {n}, width)"
        same(hidden.layers[0], given, f"the first hidden vectors of {one.name} are not what it is given")
        same(one.stack.norm(hidden.layers[-1]), y, f"the last hidden vectors of {one.name} are not what comes out")


def a_word_is_read_where_rows_are_tokens_of_its_text(settings: ModelSettings) -> None:
    model, texts = built(settings), ("ab cd e", "f ab g")
    sentences, found = [Sentence(text, text) for text in texts], [_occurrence(text, "ab") for text in texts]
    rows: SequenceKind = "source" if model.needs_source else "own"
    if rows not in {one.rows for one in model.stacks()}:
        try:
            word.study(model, sentences, found, as_source=model.needs_source)
        except UsageFault:
            return
        raise AssertionError(f"no stack has {rows} tokens as rows, which is not refused by a UsageFault")
    with _hearing(model) as heard:
        layers = word.study(model, sentences, found, as_source=model.needs_source)
    calls = [next(call for call in half if call.of.rows == rows) for half in (heard[: len(heard) // 2], heard[len(heard) // 2 :])]
    name, n_calls = calls[0].of.name, calls[0].of.stack.n_calls
    assert len(layers) == n_calls + 1, f"{len(layers)} layers of {name}, which makes {n_calls} calls"
    one, other = (call.given[0, where.tokens].mean(dim=0) for call, where in zip(calls, found, strict=True))
    expected = torch.dot(one, other) / (one.norm() * other.norm())
    same(layers[0].cosines[0, 1], expected, f"the vectors before the first layer are not those that {name} is given")
    for layer in layers:
        assert layer.cosines.shape == (2, 2), f"layer {layer.number}: {list(layer.cosines.shape)} cosines of two sentences"
        assert (layer.cosines.abs() <= 1 + _CLOSE).all(), f"layer {layer.number}: cosines are not within -1 and 1"
        assert math.isfinite(layer.baseline), f"layer {layer.number}: a baseline of {layer.baseline}"


def _occurrence(text: str, sought: str) -> word.Occurrence:
    """A token a character."""
    first = text.index(sought)
    given = Framed(text, [ord(character) % VOCABULARY for character in text], [(i, i + 1) for i in range(len(text))])
    return word.Occurrence((first, first + len(sought)), [*range(first, first + len(sought))], given)


class _Call(NamedTuple):
    """A stack, what it was given and what came out."""

    of: ModelStack
    given: Tensor
    y: Tensor


@contextmanager
def _hearing(model: Model) -> Iterator[list[_Call]]:
    """Every call of a declared stack within it, in the order of their ends."""
    heard: list[_Call] = []

    def listen(one: ModelStack) -> RemovableHandle:
        return one.stack.register_forward_hook(lambda stack, given, mixed: heard.append(_Call(one, given[0].detach(), mixed.y.detach())))

    handles = [listen(one) for one in model.stacks()]
    try:
        yield heard
    finally:
        for handle in handles:
            handle.remove()
