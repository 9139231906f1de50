"""The contract of mixers in cross-attention: `recall`, padding, packed rows, states, rows that share a source."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from mini_tf.nn import state as states
from mini_tf.nn.mixer import Mixer, MixerSettings
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.testing import Case
from mini_tf.testing.tiny.mixers import (
    DIMS,
    LONG,
    B,
    L,
    TinyMixer,
    assert_gradients,
    assert_same,
    non_padding,
    random_tensor,
    with_zero_rates,
    without_dropout,
)

M = 5
BLOCKS = [1, 3, 1, 1, 5]
"""Queries of each: one alone at the beginning, and one after one."""
_TARGETS = torch.tensor([[1] * L, [0, 0, 1, 1, 1, 1, 2, 2, 2, 0, 0], [1, 1, 1, 2, 2, 3, 3, 3, 3, 0, 0]])
_SOURCES = torch.tensor([[1] * M, [1, 1, 2, 2, 2], [3, 1, 1, 2, 0]])
"""Segments of packed rows: a target attends to the source of the same segment."""
_MEMORY = random_tensor(B, M, DIMS.d_memory, seed=3)
_MASK = Visibility(False, TokenPositions(L), TokenPositions(M))
_PACKED = Visibility(False, TokenPositions.packed(_TARGETS), TokenPositions.packed(_SOURCES))


def cases(settings: MixerSettings) -> Iterator[Case]:
    """All checks for cross-attention with these settings."""
    for padded in (False, True):
        yield Case(f"cross-{'padded' if padded else 'plain'}", partial(queries_attend_to_a_source, settings, padded))
    yield Case("cross-no_visible_keys", partial(queries_without_visible_keys_get_nothing_from_them, settings))
    yield Case("cross-reordered", partial(a_recalled_source_can_be_reordered, settings))
    for check in (
        earlier_outputs_do_not_depend_on_later_queries,
        only_ordered_queries_depend_on_each_other,
        rows_may_share_a_source,
        a_reordered_state_continues_the_reordered_rows,
        every_parameter_has_a_gradient,
        training_without_dropout_matches_evaluation,
    ):
        yield Case(f"cross-{check.__name__}", partial(check, settings))
    if "packing" in settings.supports:
        yield Case("cross-a_packed_document_is_independent", partial(a_packed_document_is_independent, settings))
    if not [*settings.rules_with(replace(DIMS, d_memory=10))]:
        yield Case("cross-other_width", partial(queries_attend_to_a_source, settings, True, d_memory=10))


def queries_attend_to_a_source(settings: MixerSettings, padded: bool, d_memory: int = DIMS.d_memory) -> None:
    tiny = TinyMixer(settings, attention="cross", dims=replace(DIMS, d_memory=d_memory))
    memory = random_tensor(B, M, d_memory, seed=3)
    mixer, x = tiny.mixer, tiny.x
    segments = torch.tensor([[1] * 5, [1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])
    token_positions = TokenPositions.packed(segments) if padded else TokenPositions(M)
    mask = Visibility(False, TokenPositions(L), token_positions)
    y, recalled = mixer(x, memory, mask).y, mixer.recall(memory, token_positions)
    assert_same(mixer(x, recalled, mask).y, y, "a recalled source must give the outputs of the source")
    blocks, _ = _in_blocks(mixer, x, recalled, mask, BLOCKS)
    assert_same(blocks, y, f"blocks of {BLOCKS} queries must match one pass")
    explicit = mixer.explicit(x, recalled, mask)
    message = "join(weights @ values) must equal forward"
    assert_same(mixer.join(explicit.weights @ explicit.values, x, mask).y, y, message)
    weights = explicit.weights[..., explicit.lead :]
    message = "weights must be 0 where the mask is False"
    assert not weights.masked_select(~mask.mask(x.device)[:, None].expand_as(weights)).any(), message
    message = "weights are negative, but nonnegative is declared"
    assert "nonnegative" not in settings.supports or (explicit.weights >= 0).all(), message
    if padded:
        changed = torch.where((segments == 0)[..., None], 1e6, memory)
        assert torch.equal(mixer(x, mixer.recall(changed, token_positions), mask).y, mixer(x, recalled, mask).y), (
            "padding of a source must not change outputs"
        )
        alone = mixer(x[1:2], memory[1:2, :3], Visibility(False, TokenPositions(L), TokenPositions(3))).y
        assert_same(y[1:2], alone, "a padded source must match the source alone")
    order = torch.tensor([3, 1, 4, 0, 2])
    mask = Visibility(False, TokenPositions(L), TokenPositions(M))
    message = "outputs must not depend on the order of the source"
    assert_same(mixer(x, memory[:, order], mask).y, mixer(x, memory, mask).y, message)


def _in_blocks(
    mixer: Mixer,
    x: Tensor,
    recalled: states.State,
    mask: Visibility,
    sizes: Sequence[int],
    state: states.State | None = None,
) -> tuple[Tensor, states.State]:
    """Queries (R, L, D) block by block, where `rows_per_source` rows share a source: outputs and the final state."""
    state = mixer.start(len(x)) if state is None else state  # a stack gives its cross-attention a state, too
    outputs, first, rows = list[Tensor](), 0, mask.rows_per_source
    for size in sizes:
        block = x[:, first : first + size]
        positions = mask.queries.slice(first, first + size)
        merged = positions if rows == 1 else positions.merge_rows(len(x), rows, x.device)
        mixed = mixer(_merged(block, rows), recalled, replace(mask, queries=merged), state)
        assert mixed.state is not None, "forward must return a state if it is given one"
        state = mixer.trim(mixed.state)
        outputs.append(mixed.y.reshape(block.shape))
        first += size
    return torch.cat(outputs, dim=1), state


def _merged(x: Tensor, rows: int) -> Tensor:
    """Queries (R, L, D) of rows that share a source, in one row: (R / rows, rows * L, D)."""
    return x.reshape(len(x) // rows, -1, x.shape[2])


def queries_without_visible_keys_get_nothing_from_them(settings: MixerSettings) -> None:
    tiny = TinyMixer(settings, attention="cross")
    mixer, x, memory = tiny.mixer, tiny.x[:1, :2], random_tensor(1, 4, DIMS.d_memory)
    mask = Visibility(False, TokenPositions(2), TokenPositions.packed(torch.zeros(1, 4, dtype=torch.long)))
    explicit = mixer.explicit(x, mixer.recall(memory, mask.memory), mask)
    lead = explicit.lead  # columns of no token; without any the sum is 0
    expected = mixer.join(explicit.weights[..., :lead] @ explicit.values[:, :, :lead], x, mask).y
    assert_same(mixer(x, memory, mask).y, expected, "queries without visible keys must get nothing from the source")


def a_recalled_source_can_be_reordered(settings: MixerSettings) -> None:
    tiny, rows = TinyMixer(settings, attention="cross"), torch.tensor([2, 2, 0])
    recalled = states.reorder(tiny.mixer.recall(_MEMORY, _MASK.memory), rows)
    y = tiny.mixer(tiny.x, recalled, _MASK).y
    assert_same(y, tiny.mixer(tiny.x, _MEMORY[rows], _MASK).y, "a reordered source must match reordered rows")


def earlier_outputs_do_not_depend_on_later_queries(settings: MixerSettings) -> None:
    """Queries are target tokens, so they must not know the ones after them."""
    tiny = TinyMixer(settings, attention="cross")
    for t in (1, 6, L - 1):
        changed = tiny.x.clone()
        changed[:, t:] += 1e3 * random_tensor(B, L - t, DIMS.d_model, seed=t)
        before, after = tiny.mixer(tiny.x, _MEMORY, _MASK).y, tiny.mixer(changed, _MEMORY, _MASK).y
        assert torch.equal(before[:, :t], after[:, :t]), "earlier outputs must not depend on later queries"
        assert not torch.equal(before[:, t:], after[:, t:]), "outputs must depend on the queries"


def only_ordered_queries_depend_on_each_other(settings: MixerSettings) -> None:
    tiny = TinyMixer(settings, attention="cross")
    y, reversed_y = tiny.mixer(tiny.x, _MEMORY, _MASK).y, tiny.mixer(tiny.x.flip(1), _MEMORY, _MASK).y.flip(1)
    same = torch.allclose(y, reversed_y, rtol=0, atol=1e-10)
    unordered = "unordered" in settings.supports
    assert same == unordered, f"unordered is {unordered}, but reversed queries give {same=} outputs"


def rows_may_share_a_source(settings: MixerSettings) -> None:
    """Beams of a source are queries of one row; each has a state of its own, also after it became another beam."""
    tiny, rows = TinyMixer(settings, attention="cross"), 2
    x = random_tensor(B * rows, L, DIMS.d_model, seed=4)
    recalled = tiny.mixer.recall(_MEMORY, _MASK.memory)
    recalled_of_rows = states.reorder(recalled, torch.arange(B).repeat_interleave(rows))
    shared = replace(_MASK, rows_per_source=rows)
    merged = replace(shared, queries=_MASK.queries.merge_rows(len(x), rows, x.device))
    whole = tiny.mixer(x, recalled_of_rows, _MASK).y
    y = tiny.mixer(_merged(x, rows), recalled, merged).y
    assert_same(y.reshape(whole.shape), whole, "rows that share a source must match rows with a source each")
    explicit = tiny.mixer.explicit(_merged(x, rows), recalled, merged)
    joined = tiny.mixer.join(explicit.weights @ explicit.values, _merged(x, rows), merged).y
    assert_same(joined, y, "join(weights @ values) must equal forward for rows that share a source")
    blocks, _ = _in_blocks(tiny.mixer, x, recalled, shared, BLOCKS)
    assert_same(blocks, whole, f"blocks of {BLOCKS} queries must match one pass for rows that share a source")
    beams = torch.tensor([1, 1, 3, 2, 4, 4])
    _, state = _in_blocks(tiny.mixer, x[:, :4], recalled, shared, [3, 1])
    later = replace(shared, queries=TokenPositions(L - 4, 4))
    y, _ = _in_blocks(tiny.mixer, x[beams, 4:], recalled, later, [1] * (L - 4), states.reorder(state, beams))
    assert_same(y, whole[beams, 4:], "reordered rows that share a source must continue as the rows that they were")


def a_reordered_state_continues_the_reordered_rows(settings: MixerSettings) -> None:
    tiny, rows = TinyMixer(settings, attention="cross"), torch.tensor([2, 0, 2])
    recalled = tiny.mixer.recall(_MEMORY, _MASK.memory)
    _, state = _in_blocks(tiny.mixer, tiny.x[:, :6], recalled, _MASK, [4, 2])
    whole, later = tiny.mixer(tiny.x, recalled, _MASK).y[:, 6:], replace(_MASK, queries=TokenPositions(L - 6, 6))
    loaded = states.unflatten(states.flatten(state)) or {}
    y, _ = _in_blocks(tiny.mixer, tiny.x[:, 6:], recalled, later, [5], loaded)
    assert_same(y, whole, "a flattened and unflattened state must be equal")
    reordered = states.reorder(recalled, rows) or {}
    y, _ = _in_blocks(tiny.mixer, tiny.x[rows, 6:], reordered, later, [5], states.reorder(state, rows))
    assert_same(y, whole[rows], "a reordered state must match reordered rows")


def a_packed_document_is_independent(settings: MixerSettings) -> None:
    """Of other targets and sources in its row, and of padding on both sides."""
    tiny = TinyMixer(settings, attention="cross")
    together = tiny.mixer(tiny.x, _MEMORY, _PACKED).y
    for row in range(B):
        for document in _TARGETS[row].unique().tolist():
            targets, sources = ((segments[row] == document).nonzero().squeeze(1) for segments in (_TARGETS, _SOURCES))
            if document:
                alone = Visibility(False, TokenPositions(len(targets)), TokenPositions(len(sources)))
                y = tiny.mixer(tiny.x[row : row + 1, targets], _MEMORY[row : row + 1, sources], alone).y
                message = "a target must not depend on other targets and sources of its row"
                assert_same(together[row : row + 1, targets], y, message)
    changed = torch.where((_TARGETS == 0)[..., None], 1e6, tiny.x)
    after = tiny.mixer(changed, _MEMORY, _PACKED).y
    assert after.isfinite().all(), "outputs at padding must be finite"
    message = "padding must not change outputs"
    assert torch.equal(non_padding(after, _PACKED.queries), non_padding(together, _PACKED.queries)), message


def every_parameter_has_a_gradient(settings: MixerSettings) -> None:
    """Also if queries see no keys; gradients must be finite."""
    tiny = TinyMixer(settings, attention="cross")
    mixer, x, memory = tiny.mixer.train(), tiny.x.requires_grad_(), _MEMORY.clone().requires_grad_()
    y = mixer(x, memory, _PACKED).y
    (y * random_tensor(*y.shape, seed=2) * (_TARGETS != 0)[..., None]).sum().backward()
    assert_gradients([("queries", x), ("source", memory), *mixer.named_parameters()])


def training_without_dropout_matches_evaluation(settings: MixerSettings) -> None:
    """Also of a long source, whose attention weights may be computed in chunks."""
    tiny = TinyMixer(with_zero_rates(settings), attention="cross")
    memory = random_tensor(B, LONG, DIMS.d_memory, seed=3)
    mask = Visibility(
        False,
        TokenPositions(L),
        TokenPositions.packed((torch.arange(LONG) < torch.tensor([LONG, 90, 5])[:, None]).long()),
    )
    y, explicit = tiny.mixer(tiny.x, memory, mask).y, tiny.mixer.explicit(tiny.x, memory, mask)
    joined = tiny.mixer.join(explicit.weights @ explicit.values, tiny.x, mask).y
    assert_same(joined, y, "join(weights @ values) must equal forward also for a long source")
    trained = without_dropout(tiny.mixer)(tiny.x, memory, mask).y
    assert_same(trained, y, "without dropout, outputs in training must be those of evaluation")
