"""The contract of models: declarations, selected tokens, states, fast decoder, captured attention, stored weights."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from mini_tf.generation.decoding import CachedModel, pad
from mini_tf.generation.fast_decoder import FastDecoder
from mini_tf.inspection._capture import attention_kinds, capture
from mini_tf.nn.layers.head import TaskHead, is_token
from mini_tf.nn.lora import adapt, merge
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.model import Model, ModelSettings
from mini_tf.nn.model_stack import ModelStack
from mini_tf.nn.stack import Stack
from mini_tf.nn.state import reorder
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.sections import Adapter
from mini_tf.system.errors import DataFault
from mini_tf.testing import Case, cases_of
from mini_tf.testing.tiny.mixers import assert_gradients, assert_same, without_dropout
from mini_tf.testing.tiny.models import (
    VOCABULARY,
    B,
    L,
    M,
    logits_of,
    output_logits,
    padded,
    random_ids,
    row_alone,
    source_for,
    tiny_model,
)
from mini_tf.training.optimizer import depths


def cases(settings: ModelSettings) -> list[Case]:
    """All checks for a model of these settings."""
    checks = [
        declared_stacks_exist,
        attention_has_the_declared_direction,
        settings_declare_the_same_stacks,
        selected_tokens_match_all_tokens,
        padding_does_not_change_outputs,
        loaded_weights_reproduce_the_model,
        loss_is_the_cross_entropy_of_the_logits,
        every_parameter_has_a_gradient_and_a_depth,
        training_without_dropout_matches_evaluation,
        penalties_are_summed_over_mixers_and_rows,
        the_head_can_be_replaced,
        adapters_cover_every_stack_and_merge,
        captured_attention_gives_the_same_logits,
        max_length_is_enforced,
    ]
    if settings.PACKS and all("packing" in mixer.supports for mixer in settings.mixers()):
        checks += [packed_documents_are_independent]
    if settings.causal and all("prefix" in settings.DIRECTIONS & mixer.supports for mixer in settings.mixers()):
        checks += [a_prefix_is_bidirectional]
    if settings.causal:
        checks += [decoding_token_by_token_matches_one_pass, a_reordered_state_continues_the_reordered_rows]
    if tiny_model(settings).fast_decoding() is not None:
        checks += [the_fast_decoder_gives_the_same_logits]
    return cases_of(checks, settings)


def declared_stacks_exist(settings: ModelSettings) -> None:
    model = tiny_model(settings)
    declared = model.stacks()
    assert declared, "a model must declare a stack"
    owned = {id(part) for stack in declared for part in stack.stack.modules()}
    undeclared = [name for name, part in model.named_modules() if part in model.mixers() and id(part) not in owned]
    assert not undeclared, f"mixers must be in declared stacks: {undeclared}"
    for stack in declared:
        assert model.get_submodule(stack.name) is stack.stack, f"the module {stack.name} must be the declared stack"
        names = {name for name, _ in (*model.named_modules(), *model.named_parameters())}
        assert stack.embedding is None or stack.embedding in names, (
            f"the declared embedding {stack.embedding} must exist"
        )
    assert {stack.rows for stack in declared} & {"input", "output"}, "a stack must have the rows 'input', or 'output'"
    assert model.needs_source == (
        "source" in {stack.rows for stack in declared} | {stack.memory for stack in declared if _crosses(stack.stack)}
    )


def _crosses(stack: Stack) -> bool:
    return any(block.cross_attn is not None for block in stack.blocks)


def attention_has_the_declared_direction(settings: ModelSettings) -> None:
    assert settings.DIRECTIONS in ({"bidirectional"}, {"causal"}, {"causal", "prefix"}), (
        f"directions {sorted(settings.DIRECTIONS)}"
    )
    model, ids = tiny_model(settings), random_ids()
    changed = torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % VOCABULARY], dim=1)
    before, after = logits_of(model, ids), logits_of(model, changed)
    message = "logits of earlier tokens must depend on later tokens only if bidirectional"
    assert settings.causal == torch.equal(before[:, :-1], after[:, :-1]), message


def packed_documents_are_independent(settings: ModelSettings) -> None:
    model, ids = tiny_model(settings), random_ids(1)
    source = source_for(model, 1)
    if source is not None:  # a source belongs to one target
        return
    segments = torch.tensor([[1] * 4 + [2] * (L - 4)])
    together = logits_of(model, ids, TokenPositions.packed(segments))
    for part in (slice(0, 4), slice(4, L)):
        message = "a document must not depend on the other documents of its row"
        assert_same(together[:, part], logits_of(model, ids[:, part]), message, 1e-8)


def a_prefix_is_bidirectional(settings: ModelSettings) -> None:
    model, ids, n = tiny_model(settings), random_ids(), 4
    token_positions = TokenPositions(L).with_prefix(torch.full((B,), n))
    whole = logits_of(model, ids, token_positions)
    for t, first in ((n - 1, 0), (L - 1, L - 1)):
        changed = ids.clone()
        changed[:, t] = (changed[:, t] + 1) % VOCABULARY
        differs = (logits_of(model, changed, token_positions) != whole).any(-1).any(0)
        assert not differs[:first].any(), f"token {t} must not change earlier logits"
        assert differs[first] or first == t, f"token {t} of a prefix of {n} must change the logits of its first token"


def settings_declare_the_same_stacks(settings: ModelSettings) -> None:
    declared = [model_stack.name for model_stack in tiny_model(settings).stacks()]
    assert set(settings.stacks()) == set(declared), (
        f"settings and model must declare the same stacks: {sorted(settings.stacks())}, {sorted(declared)}"
    )
    kinds = [kind for model_stack in tiny_model(settings).stacks() for kind in _attention_names(model_stack)]
    assert len(set(kinds)) == len(kinds), f"names of attention types must be unique: {kinds}"


def _attention_names(model_stack: ModelStack) -> list[str]:
    attends_itself = any(block.self_attn is not None for block in model_stack.stack.blocks)
    return [
        *([model_stack.attention] if attends_itself else []),
        *([model_stack.cross_attn] if _crosses(model_stack.stack) else []),
    ]


def selected_tokens_match_all_tokens(settings: ModelSettings) -> None:
    model, ids, at = tiny_model(settings), random_ids(), torch.tensor([0, 4, L, 3 * L - 1])
    whole, chosen = model(Tokens(ids), source_for(model)), model(Tokens(ids), source_for(model), at)
    assert whole.y.shape == (B, L, model.d_model), f"hidden states must be (B, L, D): {list(whole.y.shape)}"
    assert_same(chosen.y, whole.y.flatten(0, 1)[at], "selected tokens must match all tokens")
    logits, candidates = output_logits(model, whole), torch.tensor([5, 1])
    message = "logits of selected tokens must match those of all tokens"
    assert_same(output_logits(model, chosen), logits.flatten(0, 1)[at], message)
    message = "logits of candidates must match all logits"
    assert_same(output_logits(model, whole, candidates), logits[..., candidates], message)
    each = torch.stack([ids, (ids + 1) % VOCABULARY], dim=-1)
    message = "logits of each token's candidates must match all logits"
    assert_same(output_logits(model, whole, each), logits.gather(-1, each), message)


def padding_does_not_change_outputs(settings: ModelSettings) -> None:
    """Neither that of the text nor that of its source."""
    model, texts = tiny_model(settings), padded(settings)
    others = [each if each is None else replace(each, ids=(each.ids + ~is_token(each)) % VOCABULARY) for each in texts]
    before, after = (output_logits(model, model(*each)) for each in (texts, others))
    real = is_token(texts[0])
    assert before.isfinite().all(), "logits at padding must be finite"
    assert torch.equal(before[real], after[real]), "padding must not change logits"
    for row in range(B):
        alone = output_logits(model, model(*(None if each is None else row_alone(each, row) for each in texts)))
        assert_same(before[row, real[row]], alone[0], "a padded row must match the row alone", 1e-8)


def loaded_weights_reproduce_the_model(settings: ModelSettings) -> None:
    model, other = tiny_model(settings), tiny_model(settings, seed=1)
    message = "two seeds must give different models"
    assert not torch.equal(logits_of(model, random_ids()), logits_of(other, random_ids())), message
    other.load_weights(model.weights())
    message = "loaded weights must give the same logits"
    assert torch.equal(logits_of(model, random_ids()), logits_of(other, random_ids())), message
    assert len({tensor.data_ptr() for tensor in model.weights().values() if tensor.numel()}) == sum(
        tensor.numel() > 0 for tensor in model.weights().values()
    ), "weights() must hold each tensor once"


def loss_is_the_cross_entropy_of_the_logits(settings: ModelSettings) -> None:
    model = tiny_model(settings)
    output, labels = _flat(model(Tokens(random_ids()), source_for(model))), random_ids(seed=4).flatten()
    for smoothing in (0.0, 0.1):
        expected = F.cross_entropy(output_logits(model, output), labels, reduction="sum", label_smoothing=smoothing)
        fused = model.cross_entropy(output.y, labels, smoothing, output.copies)
        assert_same(fused, expected, "cross_entropy must equal the cross-entropy of the logits", 1e-8)


def _flat(output: ForwardOutput) -> ForwardOutput:
    return output.each(lambda part: part.flatten(0, 1))


@torch.no_grad()
def training_without_dropout_matches_evaluation(settings: ModelSettings) -> None:
    model, (ids, source) = tiny_model(settings), padded(settings)
    expected = output_logits(model, model(ids, source))
    trained = output_logits(without_dropout(model), model(ids, source))
    real = is_token(ids)
    assert_same(trained[real], expected[real], "without dropout, logits in training must be those of evaluation", 1e-8)


@torch.no_grad()
def penalties_are_summed_over_mixers_and_rows(settings: ModelSettings) -> None:
    """The penalty of a model has that of each call of each mixer once; that of a batch is the sum over its rows."""
    model, (ids, source) = without_dropout(tiny_model(settings)), padded(settings)
    before, added = model(ids, source).penalty, list[float]()
    if before is not None:
        alone = [
            model(row_alone(ids, row), None if source is None else row_alone(source, row)).penalty for row in range(B)
        ]
        message = "the penalty of a batch must be that of its rows, without padding"
        assert_same(before, torch.stack(alone).sum(), message, 1e-8)

    def add(mixer: nn.Module, inputs: object, mixed: ForwardOutput) -> ForwardOutput:
        added.append(2.0 ** len(added))
        return mixed._replace(penalty=mixed.y.new_tensor(added[-1]) + (0 if mixed.penalty is None else mixed.penalty))

    for mixer in model.mixers():
        mixer.register_forward_hook(add)
    after = model(ids, source).penalty
    assert after is not None, "the penalties of mixers must be in the penalty of the model"
    total = float(after - (0 if before is None else before))
    assert abs(total - sum(added)) < 1e-6, f"the penalty of each call of a mixer must count once: {total} of {added}"


def every_parameter_has_a_gradient_and_a_depth(settings: ModelSettings) -> None:
    model = without_dropout(tiny_model(settings))
    mixed = model(Tokens(random_ids(), None, None), source_for(model))
    loss = model.cross_entropy(_flat(mixed).y, random_ids(seed=4).flatten(), copies=_flat(mixed).copies)
    (loss if mixed.penalty is None else loss + mixed.penalty).backward()
    depth_of = depths(model)
    deepest = 1 + max(model_stack.n_above + model_stack.stack.n_calls for model_stack in model.stacks())
    assert_gradients(model.named_parameters())
    for name in dict(model.named_parameters()):
        assert 0 <= depth_of[name] <= deepest, f"the depth of {name} must be in [0, {deepest}]: {depth_of[name]}"


def the_head_can_be_replaced(settings: ModelSettings) -> None:
    model = tiny_model(settings)
    model.replace_head(TaskHead(model.d_model, 3, 0.0).double())
    message = "logits must come from the new head"
    assert model.logits(model(Tokens(random_ids()), source_for(model)).y).shape == (B, L, 3), message


def adapters_cover_every_stack_and_merge(settings: ModelSettings) -> None:
    model = tiny_model(settings)
    before, names = logits_of(model, random_ids()), set(model.weights())
    adapted = adapt(model, Adapter(rank=2))
    for model_stack in model.stacks():
        linear = any(isinstance(part, nn.Linear) for part in model_stack.stack.modules())
        assert not linear or any(name.startswith(f"{model_stack.name}.") for name in adapted), (
            f"adapters must cover the stack {model_stack.name}"
        )
    assert_same(logits_of(model, random_ids()), before, "a new adapter must not change the logits")
    merge(model)
    assert set(model.weights()) == names, "a merged model must have the original names"


def captured_attention_gives_the_same_logits(settings: ModelSettings) -> None:
    model = tiny_model(settings)
    source = source_for(model, 1)
    captured = capture(model, Tokens(random_ids(1)), source)
    assert captured.difference < 1e-8, (
        f"logits with `explicit` attention must be equal: difference {captured.difference:g}"
    )
    message = "every attention type must be captured"
    assert {attention.kind for attention in captured.attention} == set(attention_kinds(model)), message
    n = {"input": L, "source": M}
    for attention in captured.attention:
        rows, columns = attention.weights.shape[-2], attention.weights.shape[-1] - attention.lead
        assert n.get(attention.queries, rows) == rows, (
            f"{attention.kind}: {rows} rows for {n.get(attention.queries)} {attention.queries} tokens"
        )
        assert n.get(attention.keys, columns) == columns, (
            f"{attention.kind}: {columns} columns for {n.get(attention.keys)} {attention.keys} tokens"
        )


def max_length_is_enforced(settings: ModelSettings) -> None:
    model = tiny_model(settings)
    longest = model.max_length()
    if longest is None:
        model(Tokens(random_ids(1, 2 * model.context)), source_for(model, 1))
        return
    model(Tokens(random_ids(1, longest)), source_for(model, 1))
    try:
        model(Tokens(random_ids(1, longest + 1)), source_for(model, 1))
    except DataFault:
        return
    raise AssertionError(f"more than max_length {longest} tokens must be refused by a DataFault")


def decoding_token_by_token_matches_one_pass(settings: ModelSettings) -> None:
    model, ids = tiny_model(settings), random_ids()
    whole, source, state, parts = logits_of(model, ids), source_for(model), model.start(B), []
    memory = None if source is None else model.encode(source)
    for t in range(L):
        mixed = model(Tokens(ids[:, t : t + 1]), memory, state=state)
        state = model.trim(mixed.state)
        parts.append(output_logits(model, mixed))
    assert_same(torch.cat(parts, dim=1), whole, "decoding token by token must match one pass", 1e-8)


def a_reordered_state_continues_the_reordered_rows(settings: ModelSettings) -> None:
    model, ids, rows = tiny_model(settings), random_ids(), torch.tensor([2, 0, 2])
    source = source_for(model)
    memory = None if source is None else model.encode(source)
    state = model(Tokens(ids[:, :5]), memory, state=model.start(B)).state
    continued = model(
        Tokens(ids[rows, 5:]), None if memory is None else memory.select(rows), state=reorder(state, rows)
    )
    expected = output_logits(model, model(Tokens(ids), source))[rows, 5:]
    assert_same(output_logits(model, continued), expected, "a reordered state must continue the reordered rows", 1e-8)


@torch.inference_mode()
def the_fast_decoder_gives_the_same_logits(settings: ModelSettings) -> None:
    model, ids = tiny_model(settings), random_ids(2, 4, seed=6)
    message = "the fast decoder must support the model if all its parts do"
    assert FastDecoder.fits(model) or not _declares_fast_decoding(model), message
    if not FastDecoder.fits(model):
        return
    prompts = [random_ids(1, length, seed=length)[0].tolist() for length in (3, 6)]
    fast, plain = (_decoder(model, prompts, fast=which) for which in (True, False))
    for step in range(ids.shape[1]):
        message = f"step {step + 1}: the fast decoder must match forward"
        assert_same(fast.decode(ids[:, step]), plain.decode(ids[:, step]), message, 1e-8)


def _declares_fast_decoding(model: Model) -> bool:
    if (one_stack := model.fast_decoding()) is None:
        return False
    position = one_stack.embedding.position
    parts = [block.self_attn.part for block in one_stack.stack.blocks if block.self_attn is not None]
    fast = all(part.fast_decoding() is not None for part in parts)  # type: ignore[operator]
    return fast and position.distance_only and position.orthogonal and position.of_layer(0) is position


def _decoder(model: Model, prompts: list[list[int]], fast: bool) -> FastDecoder | CachedModel:
    state = model(pad(prompts, torch.device("cpu")), state=model.start(len(prompts))).state
    return FastDecoder(model, state, [*map(len, prompts)]) if fast else CachedModel(model, state)
