"""The contract of mixers in cross-attention: a source, what `recall` keeps of it, padding, and rows that are reordered."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from mini_tf.nn import state as states
from mini_tf.nn.mixer import MixerSettings
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.testing import Case
from mini_tf.testing.tiny_mixers import DIMS, B, L, TinyMixer, drawn, same


def cases(settings: MixerSettings) -> Iterator[Case]:
    """Everything that a cross mixer of these settings must do."""
    for padded in (False, True):
        yield Case(f"cross-{'padded' if padded else 'plain'}", partial(queries_attend_to_a_source, settings, padded))
    yield Case("cross-sees_nothing", partial(queries_that_see_nothing_get_zeros, settings))
    yield Case("cross-reordered", partial(a_recalled_source_is_reordered_by_rows, settings))
    if settings.CROSS_WIDTHS:
        yield Case("cross-other_width", partial(queries_attend_to_a_source, settings, True, d_memory=10))


def queries_attend_to_a_source(settings: MixerSettings, padded: bool, d_memory: int = DIMS.d_memory) -> None:
    trial, memory = TinyMixer(settings, attention="cross", dims=replace(DIMS, d_memory=d_memory)), drawn(B, 5, d_memory, seed=3)
    mixer, x = trial.mixer, trial.x
    segments = torch.tensor([[1] * 5, [1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])
    token_positions = TokenPositions.packed(segments) if padded else TokenPositions(5)
    view = Visibility(False, TokenPositions(L), token_positions)
    y, recalled = mixer(x, memory, view).y, mixer.recall(memory, token_positions)
    same(mixer(x, recalled, view).y, y, "what recall keeps is not the source")
    state, parts = mixer.start(B), []  # a block gives its cross mixer a state, too
    for token in range(L):
        mixed = mixer(x[:, token : token + 1], recalled, Visibility(False, TokenPositions(1, token), token_positions), state)
        state = mixed.state
        parts.append(mixed.y)
    same(torch.cat(parts, dim=1), y, "queries one by one attend to another source")
    shown = mixer.explicit(x, recalled, view)
    same(mixer.join(shown.weights @ shown.values, x, view).y, y, "join(weights @ values) is not what forward gives")
    if padded:
        loud = torch.where((segments == 0)[..., None], 1e6, memory)
        assert torch.equal(mixer(x, mixer.recall(loud, token_positions), view).y, mixer(x, recalled, view).y), "padding of a source is seen"
        alone = mixer(x[1:2], memory[1:2, :3], Visibility(False, TokenPositions(L), TokenPositions(3))).y
        same(y[1:2], alone, "a padded source is another one")
    order = torch.tensor([3, 1, 4, 0, 2])
    view = Visibility(False, TokenPositions(L), TokenPositions(5))
    same(mixer(x, memory[:, order], view).y, mixer(x, memory, view).y, "a source in another order is another one")


def queries_that_see_nothing_get_zeros(settings: MixerSettings) -> None:
    trial = TinyMixer(settings, attention="cross")
    mixer, x, memory = trial.mixer, trial.x[:1, :2], drawn(1, 4, DIMS.d_memory)
    view = Visibility(False, TokenPositions(2), TokenPositions.packed(torch.zeros(1, 4, dtype=torch.long)))
    shown = mixer.explicit(x, mixer.recall(memory, view.memory), view)
    nothing = mixer.join(torch.zeros_like(shown.weights @ shown.values), x, view).y
    same(mixer(x, memory, view).y, nothing, "queries that see nothing get something")


def a_recalled_source_is_reordered_by_rows(settings: MixerSettings) -> None:
    trial, memory, rows = TinyMixer(settings, attention="cross"), drawn(B, 5, DIMS.d_memory, seed=3), torch.tensor([2, 2, 0])
    view = Visibility(False, TokenPositions(L), TokenPositions(5))
    recalled = states.reorder(trial.mixer.recall(memory, TokenPositions(5)), rows)
    y = trial.mixer(trial.x, recalled, view).y
    same(y, trial.mixer(trial.x, memory[rows], view).y, "a reordered source is not that of reordered rows")
