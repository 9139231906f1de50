"""The contract of mixers: directions, packing, padding, positional encodings, states, cross-attention."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch

from mini_tf.nn import state as states
from mini_tf.nn.mixer import MixerSettings, RecurrentUnit, carry
from mini_tf.nn.positional_encoding import PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.kind_settings import Direction, directions_of, training_keys
from mini_tf.testing import Case, cross_attention, models
from mini_tf.testing.tiny.mixers import (
    DIMS,
    LONG_PREFIX,
    PREFIX,
    B,
    L,
    Layout,
    TinyMixer,
    another_value,
    assert_gradients,
    assert_same,
    long_positions,
    non_padding,
    positions_of_layout,
    random_tensor,
    run_in_blocks,
    supported_positions,
    visibility_of,
    with_zero_rates,
    without_dropout,
)
from mini_tf.testing.tiny.models import models_with

Position = PositionalEncodingSettings | None
NEGATIVE = "weights are negative, but nonnegative is declared"
BLOCKS = [1, 3, 1, 1, 5]
"""Tokens of each: one alone at the beginning, and one after one."""


def cases(settings: MixerSettings) -> list[Case]:
    """All checks for a mixer of these settings, with every positional encoding that it supports, and in models."""
    in_models = ((word, models.cases(model)) for word, model in models_with([settings]))
    return [
        *mixer_cases(settings),
        *(Case(f"in_{word}-{case}", case.run) for word, of_model in in_models for case in of_model),
    ]


def mixer_cases(settings: MixerSettings) -> list[Case]:
    """All checks for a mixer outside of a model."""
    return [
        *self_attention_cases(settings, supported_positions(settings)),
        *(cross_attention.cases(settings) if "cross" in settings.supports else ()),
    ]


def self_attention_cases(settings: MixerSettings, positions: Mapping[str, Position]) -> Iterator[Case]:
    """Checks of self-attention with each of these positional encodings."""
    layouts: tuple[Layout, ...] = ("plain", "packed" if "packing" in settings.supports else "padded")
    always = [explicit_matches_forward, only_visible_tokens_have_a_gradient, every_parameter_has_a_gradient]
    causal = [earlier_outputs_do_not_depend_on_later_tokens]
    with_state = [
        blocks_with_state_match_one_pass,
        a_trimmed_state_gives_the_same_outputs,
        a_reordered_state_matches_reordered_rows,
    ]
    one_of_each = {
        None if position is None else position.APPLIES_TO: word for word, position in reversed([*positions.items()])
    }
    for direction, (word, position), layout in itertools.product(
        directions_of(settings.supports), positions.items(), layouts
    ):
        if layout == "plain" and word not in one_of_each.values():
            continue  # without padding and documents, the same to a mixer as another one that applies where it does
        checks = [
            *always,
            *(causal if direction != "bidirectional" else ()),
            *(with_state if direction == "causal" else ()),
        ]
        checks += [padding_does_not_change_outputs] if layout != "plain" else []
        checks += [a_packed_document_is_independent] if layout == "packed" else []
        checks += [left_padding_does_not_change_outputs] if (direction, layout) == ("causal", "plain") else []
        checks += [a_prefix_continues_token_by_token] if (direction, layout) == ("prefix", "plain") else []
        for check in checks:
            name = f"{check.__name__}-{direction}-{word}-{layout}"
            yield Case(name, partial(_run, check, settings, position, direction, layout))
    for direction, word in itertools.product(directions_of(settings.supports), one_of_each.values()):
        for long in (a_long_row_matches_its_weights_and_blocks, training_without_dropout_matches_evaluation):
            yield Case(f"{long.__name__}-{direction}-{word}", partial(long, settings, positions[word], direction))
    if "causal" in settings.supports:
        yield Case("fast_decoding_matches_forward", partial(fast_decoding_matches_forward, settings))
    if "bidirectional" in settings.supports:
        yield Case("the_order_matters_only_if_declared", partial(the_order_matters_only_if_declared, settings))
    if directions_of(settings.supports):
        yield Case("refresh_depends_on_seed_and_step_only", partial(refresh_depends_on_seed_and_step_only, settings))
        for key in sorted(training_keys(settings)):
            name = f"a_key_of_training_changes_no_output-{key}"
            yield Case(name, partial(a_key_of_training_changes_no_output, settings, key))
    if "streaming" in settings.supports:
        yield Case("the_state_of_a_stream_is_bounded", partial(the_state_of_a_stream_is_bounded, settings))


def _run(
    check: Callable[..., None], settings: MixerSettings, position: Position, direction: Direction, layout: Layout
) -> None:
    mask = visibility_of(direction, positions_of_layout(layout), PREFIX[layout])
    check(TinyMixer(settings, position), mask, direction)


def explicit_matches_forward(tiny: TinyMixer, mask: Visibility, direction: Direction) -> None:
    token_positions, explicit = mask.queries, tiny.mixer.explicit(tiny.x, tiny.x, mask)
    y = tiny.mixer.join(explicit.weights @ explicit.values, tiny.x, mask).y
    message = "join(weights @ values) must equal forward"
    assert_same(non_padding(y, token_positions), non_padding(tiny.mix(tiny.x, mask), token_positions), message)
    visible = (explicit.visibility or mask).mask_rows(0, L, tiny.x.device)
    assert not (visible & ~mask.mask_rows(0, L, tiny.x.device)).any(), "explicit must not add to the mask"
    weights = explicit.weights[..., explicit.lead :]
    assert not weights.masked_select(~visible[:, None].expand_as(weights)).any(), (
        "weights must be 0 where the mask is False"
    )
    diagonal = weights.diagonal(dim1=-2, dim2=-1).transpose(1, 2)  # (B, L, H)
    attends, excluded = non_padding(diagonal, token_positions) != 0, "excludes_self" in tiny.settings.supports
    # of a kernel such as relu some weights are 0 without that
    declared = not attends.any() if excluded else attends.flatten(0, -2).any(0).all()
    assert declared, f"weights of a token for itself: excludes_self is {excluded}"
    assert "nonnegative" not in tiny.settings.supports or (explicit.weights >= 0).all(), NEGATIVE


def a_long_row_matches_its_weights_and_blocks(
    settings: MixerSettings, position: Position, direction: Direction
) -> None:
    """As what is computed in chunks may differ from the second one on, with and without gradients."""
    tiny, token_positions = TinyMixer(settings, position), long_positions("packing" in settings.supports)
    x, mask = tiny.long_x, visibility_of(direction, token_positions, LONG_PREFIX)
    explicit = tiny.mixer.explicit(x, x, mask)
    expected = non_padding(tiny.mixer.join(explicit.weights @ explicit.values, x, mask).y, token_positions)
    message = "join(weights @ values) must equal forward in long rows"
    assert_same(non_padding(tiny.mix(x, mask), token_positions), expected, message)
    with torch.no_grad():
        y = non_padding(tiny.mix(x, mask), token_positions)
        assert_same(y, expected, "outputs must be the same with and without gradients")
        for sizes in ([64, 85, 1],) if direction == "causal" else ():
            y, _ = run_in_blocks(tiny.mixer, x, token_positions, sizes, trim=True)
            assert_same(non_padding(y, token_positions), expected, f"blocks of {sizes} tokens must match one pass")


def training_without_dropout_matches_evaluation(
    settings: MixerSettings, position: Position, direction: Direction
) -> None:
    """Outputs; and the penalty is a sum over the tokens that are no padding, each within its own document."""
    tiny = TinyMixer(with_zero_rates(settings), position)
    token_positions = long_positions("packing" in settings.supports)
    mask = visibility_of(direction, token_positions, LONG_PREFIX)
    expected = non_padding(tiny.mix(tiny.long_x, mask), token_positions)
    mixer = without_dropout(tiny.mixer)
    mixed = mixer(tiny.long_x, tiny.long_x, mask)
    message = "without dropout, outputs in training must be those of evaluation"
    assert_same(non_padding(mixed.y, token_positions), expected, message)
    assert token_positions.segments is not None
    if mixed.penalty is not None:
        alone = []
        for row, segments in zip(tiny.long_x, token_positions.segments, strict=True):
            for document in segments[segments != 0].unique():
                x = row[segments == document][None]
                alone.append(
                    mixer(x, x, visibility_of(direction, TokenPositions(x.shape[1]), LONG_PREFIX, rows=1)).penalty
                )
        message = "the penalty must be the sum of those of each document, without padding"
        assert_same(mixed.penalty, torch.stack(alone).sum(), message)


def fast_decoding_matches_forward(settings: MixerSettings) -> None:
    """A recurrence continues from the state of `forward`, step by step, and `forward` from its state."""
    tiny, token_positions = TinyMixer(settings), positions_of_layout("padded")
    unit = tiny.mixer.fast_decoding()
    if not isinstance(unit, RecurrentUnit):
        return  # the fast decoder of a model computes it
    with torch.no_grad():
        whole = tiny.mix(tiny.x, visibility_of("causal", token_positions))
        _, state = run_in_blocks(tiny.mixer, tiny.x[:, :5], token_positions.slice(0, 5), [5])
        for t in range(5, 9):
            y, state = unit.step(tiny.x[:, t], state)
            assert_same(y, whole[:, t], "fast_decoding().step must match forward")
        rest = token_positions.slice(9, L)
        y = tiny.mixer(tiny.x[:, 9:], tiny.x[:, 9:], Visibility(True, rest, rest), state).y
    message = "forward must continue the state of fast_decoding().step"
    assert_same(non_padding(y, rest), non_padding(whole[:, 9:], rest), message)


def the_order_matters_only_if_declared(settings: MixerSettings) -> None:
    """Without a positional encoding, permuted inputs give permuted outputs, as latent vectors need it."""
    tiny, mask, order = TinyMixer(settings), visibility_of("bidirectional", TokenPositions(L)), torch.arange(L).roll(4)
    if "unordered" in settings.supports:
        message = "outputs depend on the order, but unordered is declared"
        assert_same(tiny.mix(tiny.x[:, order], mask), tiny.mix(tiny.x, mask)[:, order], message)


def padding_does_not_change_outputs(tiny: TinyMixer, mask: Visibility, direction: Direction) -> None:
    token_positions = mask.queries
    assert token_positions.segments is not None
    changed = torch.where((token_positions.segments == 0)[..., None], 1e6, tiny.x)
    before, after = tiny.mix(tiny.x, mask), tiny.mix(changed, mask)
    assert after.isfinite().all(), "outputs at padding must be finite"
    message = "padding must not change outputs"
    assert torch.equal(non_padding(before, token_positions), non_padding(after, token_positions)), message


def earlier_outputs_do_not_depend_on_later_tokens(tiny: TinyMixer, mask: Visibility, direction: Direction) -> None:
    before = tiny.mix(tiny.x, mask)
    for t in (1, 6, L - 1):
        changed = tiny.x.clone()
        changed[:, t:] += 1e4 * random_tensor(B, L - t, tiny.x.shape[2], seed=t)
        after = tiny.mix(changed, mask)
        # Queries of a prefix attend to later tokens of it.
        attending = mask.mask_rows(0, t, tiny.x.device)[..., t:].any(-1).expand(B, -1)
        message = "earlier outputs must not depend on later tokens"
        assert torch.equal(before[:, :t][~attending], after[:, :t][~attending]), message
        assert not torch.equal(before[:, t:], after[:, t:]), "outputs must depend on the inputs"


def only_visible_tokens_have_a_gradient(tiny: TinyMixer, mask: Visibility, direction: Direction) -> None:
    x, t = tiny.x.requires_grad_(), 5
    (gradient,) = torch.autograd.grad(tiny.mix(x, mask)[:, t].sum(), x)
    visible = mask.mask_rows(t, t + 1, x.device).expand(B, 1, L)[:, 0]
    visible = visible | (torch.arange(L) == t)  # a token is its own query
    assert not gradient[~visible].any(), "tokens that are not visible must have no gradient"
    assert gradient[visible].any(), "visible tokens must have a gradient"
    sees_itself, context_only = gradient[:, t].any(), "context_only" in tiny.settings.supports
    assert sees_itself != context_only, (
        f"outputs depend on their own token: {bool(sees_itself)}, but context_only is {context_only}"
    )


def a_packed_document_is_independent(tiny: TinyMixer, mask: Visibility, direction: Direction) -> None:
    together, segments = tiny.mix(tiny.x, mask), mask.queries.segments
    assert segments is not None
    for row in range(B):
        for document in segments[row].unique().tolist():
            index = (segments[row] == document).nonzero().squeeze(1)
            if document:
                alone = tiny.x[row : row + 1, index]
                of_document = visibility_of(direction, TokenPositions(len(index)), PREFIX["packed"], rows=1)
                y = tiny.mixer(alone, alone, of_document).y
                message = "a document must not depend on the other documents of its row"
                assert_same(together[row : row + 1, index], y, message)


def every_parameter_has_a_gradient(tiny: TinyMixer, mask: Visibility, direction: Direction) -> None:
    mixer, x = tiny.mixer.train(), tiny.x.requires_grad_()
    mixed = mixer(x, x, mask)
    penalty = 0 if mixed.penalty is None else mixed.penalty
    ((mixed.y * random_tensor(*mixed.y.shape, seed=2)).sum() + penalty).backward()
    assert_gradients(mixer.named_parameters())


def blocks_with_state_match_one_pass(tiny: TinyMixer, mask: Visibility, direction: Direction) -> None:
    token_positions, whole = mask.queries, tiny.mix(tiny.x, mask)
    y, _ = run_in_blocks(tiny.mixer, tiny.x, token_positions, BLOCKS)
    message = f"blocks of {BLOCKS} tokens must match one pass"
    assert_same(non_padding(y, token_positions), non_padding(whole, token_positions), message)


def a_trimmed_state_gives_the_same_outputs(tiny: TinyMixer, mask: Visibility, direction: Direction) -> None:
    token_positions = mask.queries
    plain, trimmed = (run_in_blocks(tiny.mixer, tiny.x, token_positions, [4, 1, 6], trim)[0] for trim in (False, True))
    message = "trim must not change later outputs"
    assert_same(non_padding(trimmed, token_positions), non_padding(plain, token_positions), message, 1e-12)


def a_reordered_state_matches_reordered_rows(tiny: TinyMixer, mask: Visibility, direction: Direction) -> None:
    token_positions, rows = mask.queries, torch.tensor([2, 0, 2])
    mixer, x = tiny.mixer, tiny.x
    _, state = run_in_blocks(mixer, x[:, :6], token_positions.slice(0, 6), [4, 2])
    whole, block_positions = run_in_blocks(mixer, x, token_positions, [6, 5])[0][:, 6:], token_positions.slice(6, L)
    loaded = states.unflatten(states.flatten(state))
    y = mixer(x[:, 6:], x[:, 6:], Visibility(True, block_positions, block_positions), loaded).y
    message = "a flattened and unflattened state must be equal"
    assert_same(non_padding(y, block_positions), non_padding(whole, block_positions), message)
    reordered = block_positions.select(rows)
    y = mixer(x[rows, 6:], x[rows, 6:], Visibility(True, reordered, reordered), states.reorder(state, rows)).y
    message = "a reordered state must match reordered rows"
    assert_same(non_padding(y, reordered), non_padding(whole[rows], reordered), message)


def left_padding_does_not_change_outputs(tiny: TinyMixer, mask: Visibility, direction: Direction) -> None:
    x = tiny.x[:2, :7]
    alone, _ = run_in_blocks(tiny.mixer, x[1:, 3:], TokenPositions(4), [4])
    padded, _ = run_in_blocks(
        tiny.mixer, x, TokenPositions.packed(torch.tensor([[1] * 7, [0, 0, 0, 1, 1, 1, 1]])), [5, 1, 1]
    )
    assert_same(padded[1:, 3:], alone, "left padding must not change outputs")


def a_prefix_continues_token_by_token(tiny: TinyMixer, mask: Visibility, direction: Direction) -> None:
    """Tokens after a prefix need only the state that the prefix returned."""
    whole, state, outputs = tiny.mix(tiny.x, mask), tiny.mixer.start(B), []
    prefix = PREFIX["plain"]
    for first, last in ((0, prefix), *((t, t + 1) for t in range(prefix, L))):
        block, block_positions = tiny.x[:, first:last], mask.queries.slice(first, last)
        mixed = tiny.mixer(block, block, Visibility(True, block_positions, block_positions), state)
        state = mixed.state
        outputs.append(mixed.y)
    assert_same(torch.cat(outputs, dim=1), whole, "tokens after a prefix must match one pass")


def refresh_depends_on_seed_and_step_only(settings: MixerSettings) -> None:
    tiny = TinyMixer(settings)
    mask = visibility_of(directions_of(settings.supports)[0], TokenPositions(L), 4)
    outputs = []
    for seed, step in ((3, 7), (3, 8), (3, 7)):
        tiny.mixer.refresh(seed, step)
        outputs.append(tiny.mix(tiny.x, mask))
    assert torch.equal(outputs[0], outputs[2]), "refresh must depend on seed and step only"


def a_key_of_training_changes_no_output(settings: MixerSettings, key: str) -> None:
    """In evaluation mode, with the same weights, without and with a state."""
    tiny = TinyMixer(settings)
    other = TinyMixer(type(settings).model_validate(settings.model_dump() | {key: another_value(settings, key)}))
    other.mixer.load_state_dict(tiny.mixer.state_dict())
    direction = directions_of(settings.supports)[0]
    mask = visibility_of(direction, TokenPositions(L), 4)
    outputs = [mixer.mix(mixer.x, mask) for mixer in (tiny, other)]
    assert torch.equal(*outputs), f"{key} changes outputs, but is in TRAINING_KEYS"
    if direction == "causal":
        outputs = [
            run_in_blocks(mixer.mixer, mixer.x, TokenPositions(L), [8, 3], trim=True)[0] for mixer in (tiny, other)
        ]
        assert torch.equal(*outputs), f"{key} changes outputs with a state, but is in TRAINING_KEYS"


def the_state_of_a_stream_is_bounded(settings: MixerSettings) -> None:
    """The size of a state may vary with the content, but not grow with the length."""
    tiny = TinyMixer(settings)
    length = 5 * 80
    state: states.State | None = tiny.mixer.start(B)
    x, sizes = random_tensor(B, length, DIMS.d_model), []
    for first in range(0, length, 5):
        block, block_positions = x[:, first : first + 5], TokenPositions(5, first)
        state = carry(
            tiny.mixer, tiny.mixer(block, block, Visibility(True, block_positions, block_positions), state).state
        )
        sizes.append(states.nbytes(state))
    assert 0 < max(sizes[40:]) <= 1.25 * max(sizes[:40]), (
        f"the state must not grow with the length: {max(sizes[:40])}, {max(sizes[40:])} bytes"
    )
