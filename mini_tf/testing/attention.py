"""The contract of mixers: every direction, plain, packed and padded, with positions and without, in blocks with state, cross."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch

from mini_tf.nn import state as states
from mini_tf.nn.mixer import MixerSettings
from mini_tf.nn.positional_encoding import PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.kind_settings import Direction
from mini_tf.testing import Case, cross_attention
from mini_tf.testing.tiny_mixers import (
    DIMS,
    PREFIX,
    B,
    L,
    Layout,
    TinyMixer,
    drawn,
    fitting_positions,
    in_blocks,
    laid_out,
    same,
    tokens,
    view_of,
)

BLOCKS = ([1] * L, [3, 1, 7], [8, 3], [5, 6])


def cases(settings: MixerSettings) -> list[Case]:
    """Everything that a mixer of these settings must do, by what it declares, with every kind of position that attaches to it."""
    return [*with_positions(settings, fitting_positions(settings)), *(cross_attention.cases(settings) if settings.CROSS else ())]


def with_positions(settings: MixerSettings, positions: Mapping[str, PositionalEncodingSettings | None]) -> Iterator[Case]:
    """What self-attention must do with each of these positions."""
    layouts: tuple[Layout, ...] = ("plain", "packed" if settings.PACKS else "padded")
    everywhere = [explicit_gives_what_forward_gives, only_what_is_seen_has_a_gradient, every_parameter_has_a_gradient]
    ordered = [no_earlier_token_sees_a_later_one]
    with_state = [blocks_with_state_give_the_whole, a_trimmed_state_gives_the_same, a_reordered_state_is_that_of_reordered_rows]
    for direction, (word, position), layout in itertools.product(sorted(settings.DIRECTIONS), positions.items(), layouts):
        checks = [*everywhere, *(ordered if direction != "bidirectional" else ()), *(with_state if direction == "causal" else ())]
        checks += [content_of_padding_reaches_no_token] if layout != "plain" else []
        checks += [a_document_in_a_shared_row_is_as_alone] if layout == "packed" else []
        checks += [a_left_padded_row_is_as_alone] if (direction, layout) == ("causal", "plain") else []
        checks += [a_prefix_goes_on_token_by_token] if (direction, layout) == ("prefix", "plain") else []
        for check in checks:
            yield Case(f"{check.__name__}-{direction}-{word}-{layout}", partial(_try, check, settings, position, direction, layout))
    if settings.DIRECTIONS:
        yield Case("a_refreshed_mixer_depends_on_seed_and_step", partial(a_refreshed_mixer_depends_on_seed_and_step, settings))
    if settings.STREAMS:
        yield Case("a_stream_needs_bounded_memory", partial(a_stream_needs_bounded_memory, settings))


def _try(
    check: Callable[..., None], settings: MixerSettings, position: PositionalEncodingSettings | None, direction: Direction, layout: Layout
) -> None:
    check(TinyMixer(settings, position), direction, layout)


def explicit_gives_what_forward_gives(trial: TinyMixer, direction: Direction, layout: Layout) -> None:
    token_positions = laid_out(layout)
    view = view_of(direction, token_positions, PREFIX[layout])
    shown = trial.mixer.explicit(trial.x, trial.x, view)
    y = trial.mixer.join(shown.weights @ shown.values, trial.x, view).y
    same(tokens(y, token_positions), tokens(trial.mix(trial.x, view), token_positions), "join(weights @ values) is not what forward gives")
    seen = trial.mixer.restrict(view).mask_rows(0, L, trial.x.device)
    assert not (seen & ~view.mask_rows(0, L, trial.x.device)).any(), "view() shows more than it was given"
    own = shown.weights[..., shown.lead :]
    assert not own.masked_select(~seen[:, None].expand_as(own)).any(), "weights are not 0 where nothing may be seen"
    assert shown.weights.sum(-1).max() <= 1 + 1e-12, "rows of weights sum to more than 1"
    assert shown.weights.min() >= 0, "weights are negative"
    diagonal = own.diagonal(dim1=-2, dim2=-1)
    assert trial.settings.ATTENDS_SELF or not diagonal.any(), "a token attends to itself, which ATTENDS_SELF = False denies"


def content_of_padding_reaches_no_token(trial: TinyMixer, direction: Direction, layout: Layout) -> None:
    token_positions = laid_out(layout)
    assert token_positions.segments is not None
    view = view_of(direction, token_positions, PREFIX[layout])
    loud = torch.where((token_positions.segments == 0)[..., None], 1e6, trial.x)
    before, after = trial.mix(trial.x, view), trial.mix(loud, view)
    assert after.isfinite().all(), "outputs of padding are not finite"
    assert torch.equal(tokens(before, token_positions), tokens(after, token_positions)), "the content of padding reaches tokens"


def no_earlier_token_sees_a_later_one(trial: TinyMixer, direction: Direction, layout: Layout) -> None:
    token_positions = laid_out(layout)
    view = view_of(direction, token_positions, PREFIX[layout])
    for t in (1, 6, L - 1):
        changed = trial.x.clone()
        changed[:, t:] += 1e4 * drawn(B, L - t, trial.x.shape[2], seed=t)
        before, after = trial.mix(trial.x, view), trial.mix(changed, view)
        reached = view.mask_rows(0, t, trial.x.device)[..., t:].any(-1).expand(B, -1)  # a prefix is seen from its beginning on
        assert torch.equal(before[:, :t][~reached], after[:, :t][~reached]), "a later token changes an earlier one"
        assert not torch.equal(before[:, t:], after[:, t:]), "tokens change nothing"


def only_what_is_seen_has_a_gradient(trial: TinyMixer, direction: Direction, layout: Layout) -> None:
    token_positions, t = laid_out(layout), 5
    view, x = view_of(direction, token_positions, PREFIX[layout]), trial.x.requires_grad_()
    (gradient,) = torch.autograd.grad(trial.mix(x, view)[:, t].sum(), x)
    seen = view.mask_rows(t, t + 1, x.device).expand(B, 1, L)[:, 0]
    seen = seen | (torch.arange(L) == t)  # a token reaches its own output as a query
    assert not gradient[~seen].any(), "a token that is not seen has a gradient"
    assert gradient[seen].any(), "no token has a gradient"
    assert not trial.settings.ATTENDS_SELF or gradient[:, t].any(), "a token's own vector has no gradient"


def a_document_in_a_shared_row_is_as_alone(trial: TinyMixer, direction: Direction, layout: Layout) -> None:
    token_positions = laid_out(layout)
    together = trial.mix(trial.x, view_of(direction, token_positions, PREFIX[layout]))
    assert token_positions.segments is not None
    for row in range(B):
        for document in token_positions.segments[row].unique().tolist():
            index = (token_positions.segments[row] == document).nonzero().squeeze(1)
            if document:
                alone = trial.x[row : row + 1, index]
                view = view_of(direction, TokenPositions(len(index)), PREFIX[layout])
                y = trial.mixer(alone, alone, _first_row(view)).y
                same(together[row : row + 1, index], y, "a document is another one beside others in its row")


def _first_row(view: Visibility) -> Visibility:
    token_positions = view.queries.select(torch.tensor([0]))
    return replace(view, queries=token_positions, memory=token_positions)


def every_parameter_has_a_gradient(trial: TinyMixer, direction: Direction, layout: Layout) -> None:
    mixer, x = trial.mixer.train(), trial.x.requires_grad_()
    view = view_of(direction, laid_out(layout), PREFIX[layout])
    mixed = mixer(x, x, view)
    ((mixed.y * drawn(*mixed.y.shape, seed=2)).sum() + (0 if mixed.penalty is None else mixed.penalty)).backward()
    for name, parameter in mixer.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        assert parameter.grad.any(), f"the gradient of {name} is 0"


def blocks_with_state_give_the_whole(trial: TinyMixer, direction: Direction, layout: Layout) -> None:
    token_positions = laid_out(layout)
    whole = trial.mix(trial.x, Visibility(True, token_positions, token_positions))
    for sizes in BLOCKS:
        y, _ = in_blocks(trial.mixer, trial.x, token_positions, sizes)
        same(tokens(y, token_positions), tokens(whole, token_positions), f"blocks of {sizes} tokens are not the whole")


def a_trimmed_state_gives_the_same(trial: TinyMixer, direction: Direction, layout: Layout) -> None:
    token_positions = laid_out(layout)
    plain, trimmed = (in_blocks(trial.mixer, trial.x, token_positions, [4, 1, 6], trim)[0] for trim in (False, True))
    same(tokens(trimmed, token_positions), tokens(plain, token_positions), "trim changes what follows", 1e-12)


def a_reordered_state_is_that_of_reordered_rows(trial: TinyMixer, direction: Direction, layout: Layout) -> None:
    token_positions, rows = laid_out(layout), torch.tensor([2, 0, 2])
    mixer, x = trial.mixer, trial.x
    _, state = in_blocks(mixer, x[:, :6], token_positions.slice(0, 6), [4, 2])
    whole, here = in_blocks(mixer, x, token_positions, [6, 5])[0][:, 6:], token_positions.slice(6, L)
    again = states.unflatten(states.flatten(state))
    y = mixer(x[:, 6:], x[:, 6:], Visibility(True, here, here), again).y
    same(tokens(y, here), tokens(whole, here), "a state that was saved and loaded is another one")
    there = here.select(rows)
    y = mixer(x[rows, 6:], x[rows, 6:], Visibility(True, there, there), states.reorder(state, rows)).y
    same(tokens(y, there), tokens(whole[rows], there), "a reordered state is not that of reordered rows")


def a_left_padded_row_is_as_alone(trial: TinyMixer, direction: Direction, layout: Layout) -> None:
    x = trial.x[:2, :7]
    alone, _ = in_blocks(trial.mixer, x[1:, 3:], TokenPositions(4), [4])
    padded, _ = in_blocks(trial.mixer, x, TokenPositions.packed(torch.tensor([[1] * 7, [0, 0, 0, 1, 1, 1, 1]])), [5, 1, 1])
    same(padded[1:, 3:], alone, "padding on the left changes what follows")


def a_prefix_goes_on_token_by_token(trial: TinyMixer, direction: Direction, layout: Layout) -> None:
    """What follows a prefix needs nothing but the state that the prefix left."""
    prefix = PREFIX[layout]
    view = view_of(direction, laid_out(layout), prefix)
    whole, state, parts = trial.mix(trial.x, view), trial.mixer.start(B), []
    for first, last in ((0, prefix), *((t, t + 1) for t in range(prefix, L))):
        part, here = trial.x[:, first:last], view.queries.slice(first, last)
        mixed = trial.mixer(part, part, Visibility(True, here, here), state)
        state = mixed.state
        parts.append(mixed.y)
    same(torch.cat(parts, dim=1), whole, "what follows a prefix is another text from its state")


def a_refreshed_mixer_depends_on_seed_and_step(settings: MixerSettings) -> None:
    trial = TinyMixer(settings)
    view = view_of(sorted(settings.DIRECTIONS)[0], TokenPositions(L), 4)
    outputs = []
    for seed, step in ((3, 7), (3, 8), (3, 7)):
        trial.mixer.refresh(seed, step)
        outputs.append(trial.mix(trial.x, view))
    assert torch.equal(outputs[0], outputs[2]), "refresh does not depend on seed and step alone"


def a_stream_needs_bounded_memory(settings: MixerSettings) -> None:
    """A state may grow and shrink with its content, but no longer once the text is long."""
    trial = TinyMixer(settings)
    length = 5 * 80
    state: states.State | None = trial.mixer.start(B)
    x, sizes = drawn(B, length, DIMS.d_model), []
    for first in range(0, length, 5):
        part, here = x[:, first : first + 5], TokenPositions(5, first)
        state = trial.mixer.trim(trial.mixer(part, part, Visibility(True, here, here), state).state)
        sizes.append(states.nbytes(state))
    assert 0 < max(sizes[40:]) <= 1.25 * max(sizes[:40]), f"the state grows with the text: {max(sizes[:40])}, {max(sizes[40:])} bytes"
