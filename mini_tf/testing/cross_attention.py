"""The contract of mixers in cross-attention: `recall`, padding, reordered rows."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from mini_tf.nn import state as states
from mini_tf.nn.mixer import MixerSettings
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.testing import Case
from mini_tf.testing.tiny.mixers import DIMS, B, L, TinyMixer, assert_same, random_tensor


def cases(settings: MixerSettings) -> Iterator[Case]:
    """All checks for cross-attention with these settings."""
    for padded in (False, True):
        yield Case(f"cross-{'padded' if padded else 'plain'}", partial(queries_attend_to_a_source, settings, padded))
    yield Case("cross-no_visible_keys", partial(queries_without_visible_keys_get_nothing_from_them, settings))
    yield Case("cross-reordered", partial(a_recalled_source_can_be_reordered, settings))
    if settings.CROSS_WIDTHS:
        yield Case("cross-other_width", partial(queries_attend_to_a_source, settings, True, d_memory=10))


def queries_attend_to_a_source(settings: MixerSettings, padded: bool, d_memory: int = DIMS.d_memory) -> None:
    tiny, memory = TinyMixer(settings, attention="cross", dims=replace(DIMS, d_memory=d_memory)), random_tensor(B, 5, d_memory, seed=3)
    mixer, x = tiny.mixer, tiny.x
    segments = torch.tensor([[1] * 5, [1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])
    token_positions = TokenPositions.packed(segments) if padded else TokenPositions(5)
    mask = Visibility(False, TokenPositions(L), token_positions)
    y, recalled = mixer(x, memory, mask).y, mixer.recall(memory, token_positions)
    assert_same(mixer(x, recalled, mask).y, y, "a recalled source must give the outputs of the source")
    state, outputs = mixer.start(B), []  # blocks give their cross-attention a state too
    for token in range(L):
        mixed = mixer(x[:, token : token + 1], recalled, Visibility(False, TokenPositions(1, token), token_positions), state)
        state = mixed.state
        outputs.append(mixed.y)
    assert_same(torch.cat(outputs, dim=1), y, "queries one by one must match one pass")
    explicit = mixer.explicit(x, recalled, mask)
    assert_same(mixer.join(explicit.weights @ explicit.values, x, mask).y, y, "join(weights @ values) must equal forward")
    if padded:
        changed = torch.where((segments == 0)[..., None], 1e6, memory)
        assert torch.equal(mixer(x, mixer.recall(changed, token_positions), mask).y, mixer(x, recalled, mask).y), (
            "padding of a source must not change outputs"
        )
        alone = mixer(x[1:2], memory[1:2, :3], Visibility(False, TokenPositions(L), TokenPositions(3))).y
        assert_same(y[1:2], alone, "a padded source must match the source alone")
    order = torch.tensor([3, 1, 4, 0, 2])
    mask = Visibility(False, TokenPositions(L), TokenPositions(5))
    assert_same(mixer(x, memory[:, order], mask).y, mixer(x, memory, mask).y, "outputs must not depend on the order of the source")


def queries_without_visible_keys_get_nothing_from_them(settings: MixerSettings) -> None:
    tiny = TinyMixer(settings, attention="cross")
    mixer, x, memory = tiny.mixer, tiny.x[:1, :2], random_tensor(1, 4, DIMS.d_memory)
    mask = Visibility(False, TokenPositions(2), TokenPositions.packed(torch.zeros(1, 4, dtype=torch.long)))
    explicit = mixer.explicit(x, mixer.recall(memory, mask.memory), mask)
    lead = explicit.lead  # columns of no token; without any the sum is 0
    expected = mixer.join(explicit.weights[..., :lead] @ explicit.values[:, :, :lead], x, mask).y
    assert_same(mixer(x, memory, mask).y, expected, "queries without visible keys must get nothing from the source")


def a_recalled_source_can_be_reordered(settings: MixerSettings) -> None:
    tiny, memory, rows = TinyMixer(settings, attention="cross"), random_tensor(B, 5, DIMS.d_memory, seed=3), torch.tensor([2, 2, 0])
    mask = Visibility(False, TokenPositions(L), TokenPositions(5))
    recalled = states.reorder(tiny.mixer.recall(memory, TokenPositions(5)), rows)
    y = tiny.mixer(tiny.x, recalled, mask).y
    assert_same(y, tiny.mixer(tiny.x, memory[rows], mask).y, "a reordered source must match reordered rows")
