"""The one test of all mixers: every kind x direction x positions x packed or not x with state or not, in float64.

A new file in mini_tf/attention is tested here without a line written for it.
"""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from toys import WIDTH, mixer_kinds, mixer_settings, own_view, position_for, seeded, tiny_mixer

from mini_tf.nn import attend
from mini_tf.nn import state as states
from mini_tf.nn.mixer import Mixer, Place
from mini_tf.nn.places import Places, Visibility
from mini_tf.recipe.kinds import settings_of

B, L = 3, 11
EXACT = {"rtol": 0, "atol": 1e-10}


def cases(causal: bool | None = None) -> list[tuple[str, bool, str]]:
    """(kind, causal, position) that the kinds say they can do."""
    found = []
    for kind, direction, position in itertools.product(mixer_kinds(), (True, False), ("none", "rotary", "alibi", "t5")):
        settings = mixer_settings(kind)
        able = ("left" if direction else "both") in settings.READS
        attaches = position == "none" or position_for(settings, position) is not None
        if able and attaches and causal in (None, direction):
            found.append((kind, direction, position))
    return found


def layout(packed: bool) -> Places:
    """Plain rows, or rows with padding to the left, two documents, and padding to the right."""
    if not packed:
        return Places(L)
    return Places.packed(torch.tensor([[1] * L, [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2], [1, 1, 1, 2, 2, 3, 3, 3, 3, 0, 0]]))


def visible(y: Tensor, places: Places) -> Tensor:
    """The rows of y that stand for tokens, not for padding."""
    return y.flatten(0, 1) if places.segments is None else y[places.segments != 0]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("kind", "causal", "position"), cases())
def test_explicit_weights_give_what_forward_gives(kind: str, causal: bool, position: str, packed: bool) -> None:
    mixer, x, places = tiny_mixer(kind, position=position), seeded(B, L, 12), layout(packed)
    view = own_view(causal, places)
    shown = mixer.explicit(x, x, view)
    y = mixer.join(shown.weights @ shown.values, x)
    torch.testing.assert_close(visible(y, places), visible(mixer(x, x, view).y, places), **EXACT)
    index = torch.arange(L)
    hidden = ~view.keep(index[:, None], index[None])[:, None].expand(B, -1, -1, -1)
    own = shown.weights[..., shown.lead :]
    assert own.masked_select(hidden.expand_as(own)).abs().max().item() == 0 if hidden.any() else True
    assert shown.weights.sum(-1).max() <= 1 + 1e-12
    assert shown.weights.min() >= 0


@pytest.mark.parametrize(("kind", "causal", "position"), cases())
def test_padding_is_finite_and_its_content_reaches_nobody(kind: str, causal: bool, position: str) -> None:
    mixer, places = tiny_mixer(kind, position=position), layout(True)
    x = seeded(B, L, 12)
    loud = torch.where((places.segments == 0)[..., None], 1e6, x)
    before, after = (mixer(t, t, own_view(causal, places)).y for t in (x, loud))
    assert after.isfinite().all()
    assert torch.equal(visible(before, places), visible(after, places))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("kind", "causal", "position"), cases(causal=True))
def test_a_huge_future_token_changes_no_earlier_one(kind: str, causal: bool, position: str, packed: bool) -> None:
    mixer, places = tiny_mixer(kind, position=position), layout(packed)
    view = own_view(True, places)
    x = seeded(B, L, 12)
    for t in (1, 6, L - 1):
        changed = x.clone()
        changed[:, t:] += 1e4 * seeded(B, L - t, 12, seed=t)
        before, after = mixer(x, x, view).y, mixer(changed, changed, view).y
        assert torch.equal(before[:, :t], after[:, :t])
        assert not torch.equal(before[:, t:], after[:, t:])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("kind", "causal", "position"), cases())
def test_gradients_of_hidden_tokens_are_exactly_zero(kind: str, causal: bool, position: str, packed: bool) -> None:
    mixer, places = tiny_mixer(kind, position=position), layout(packed)
    view = own_view(causal, places)
    x = seeded(B, L, 12).requires_grad_()
    t = 5
    (gradient,) = torch.autograd.grad(mixer(x, x, view).y[:, t].sum(), x)
    index = torch.arange(L)
    seen = view.keep(torch.tensor([[t]]), index[None]).expand(B, 1, L)[:, 0]
    seen = seen | (index == t)  # a token always reaches itself, past the mixer or through it
    assert gradient[~seen].abs().sum() == 0
    assert gradient[:, t].abs().sum() > 0


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("sizes", [[1] * L, [3, 1, 7], [8, 3], [5, 6]], ids=str)
@pytest.mark.parametrize(("kind", "causal", "position"), cases(causal=True))
def test_steps_and_blocks_with_state_give_the_whole(kind: str, causal: bool, position: str, sizes: list[int], packed: bool) -> None:
    mixer, places, x = tiny_mixer(kind, position=position), layout(packed), seeded(B, L, 12)
    whole = mixer(x, x, own_view(True, places)).y
    y, _ = run_in_blocks(mixer, x, places, sizes)
    torch.testing.assert_close(visible(y, places), visible(whole, places), **EXACT)


def cut(places: Places, first: int, last: int) -> Places:
    """The places of tokens first..last-1."""
    if places.plain:
        return Places(last - first, first)
    assert places.segments is not None
    assert places.positions is not None
    return Places(last - first, 0, places.segments[:, first:last], places.positions[:, first:last])


def run_in_blocks(mixer: Mixer, x: Tensor, places: Places, sizes: list[int], trim: bool = False) -> tuple[Tensor, states.State]:
    state: states.State | None = mixer.start(len(x))
    parts, first = [], 0
    for size in sizes:
        part = x[:, first : first + size]
        mixed = mixer(part, part, own_view(True, cut(places, first, first + size)), state)
        assert mixed.state is not None
        state = mixer.trim(mixed.state) if trim else mixed.state
        parts.append(mixed.y)
        first += size
    assert state is not None
    return torch.cat(parts, dim=1), state


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("kind", "causal", "position"), cases(causal=True))
def test_trimmed_states_give_what_untrimmed_give(kind: str, causal: bool, position: str, packed: bool) -> None:
    mixer, places, x = tiny_mixer(kind, position=position), layout(packed), seeded(B, L, 12)
    plain, _ = run_in_blocks(mixer, x, places, [4, 1, 6])
    trimmed, _ = run_in_blocks(mixer, x, places, [4, 1, 6], trim=True)
    torch.testing.assert_close(visible(trimmed, places), visible(plain, places), rtol=0, atol=1e-12)


def test_a_state_measures_as_many_bytes_as_its_tensors_hold() -> None:
    state: states.State = {"a": torch.zeros(3, 5, dtype=torch.float64), "b": {"c": torch.zeros(7, dtype=torch.bfloat16), "d": {}}}
    assert states.measure(state) == 3 * 5 * 8 + 7 * 2
    assert states.measure(None) == 0


@pytest.mark.parametrize("kind", [kind for kind in mixer_kinds() if mixer_settings(kind).STREAMS])
def test_a_state_that_streams_stays_bounded(kind: str) -> None:
    mixer = tiny_mixer(kind)
    sizes = []
    for length in (20, 200):
        _, state = run_in_blocks(mixer, seeded(B, length, 12), Places(length), [5] * (length // 5), trim=True)
        sizes.append(states.measure(state))
    assert sizes[0] == sizes[1] > 0


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("kind", "causal", "position"), cases(causal=True))
def test_a_reordered_state_is_the_state_of_reordered_rows(kind: str, causal: bool, position: str, packed: bool) -> None:
    mixer, places, x = tiny_mixer(kind, position=position), layout(packed), seeded(B, L, 12)
    rows = torch.tensor([2, 0, 2])
    _, state = run_in_blocks(mixer, x[:, :6], cut(places, 0, 6), [4, 2])
    whole = run_in_blocks(mixer, x, places, [6, 5])[0][:, 6:]
    here, follow = cut(places, 6, L), x[:, 6:]
    again = states.load(states.save(state))
    unchanged = mixer(follow, follow, own_view(True, here), again).y
    torch.testing.assert_close(visible(unchanged, here), visible(whole, here), **EXACT)
    there = here if here.plain else Places(L - 6, 0, here.segments[rows], here.positions[rows])  # type: ignore[index]
    y = mixer(follow[rows], follow[rows], own_view(True, there), states.reorder(state, rows)).y
    torch.testing.assert_close(visible(y, there), visible(whole[rows], there), **EXACT)


@pytest.mark.parametrize(("kind", "causal", "position"), cases())
def test_documents_that_share_a_row_give_what_they_give_alone(kind: str, causal: bool, position: str) -> None:
    mixer, places, x = tiny_mixer(kind, position=position), layout(True), seeded(B, L, 12)
    together = mixer(x, x, own_view(causal, places)).y
    assert places.segments is not None
    for row in range(B):
        for document in places.segments[row].unique():
            index = (places.segments[row] == document).nonzero().squeeze(1)
            if document == 0:
                continue
            alone = x[row : row + 1, index]
            y = mixer(alone, alone, own_view(causal, Places(len(index)))).y
            torch.testing.assert_close(together[row : row + 1, index], y, **EXACT)


@pytest.mark.parametrize(("kind", "causal", "position"), cases(causal=True))
def test_a_left_padded_row_with_state_gives_what_it_gives_alone(kind: str, causal: bool, position: str) -> None:
    mixer, x = tiny_mixer(kind, position=position), seeded(2, 7, 12)
    alone = run_in_blocks(mixer, x[1:, 3:], Places(4), [4])[0]
    places = Places.packed(torch.tensor([[1] * 7, [0, 0, 0, 1, 1, 1, 1]]))
    padded = run_in_blocks(mixer, x, places, [5, 1, 1])[0]
    torch.testing.assert_close(padded[1:, 3:], alone, **EXACT)


@pytest.mark.parametrize(("kind", "causal", "position"), cases())
def test_every_parameter_learns(kind: str, causal: bool, position: str) -> None:
    mixer, x = tiny_mixer(kind, position=position).train(), seeded(B, L, 12).requires_grad_()
    (mixer(x, x, own_view(causal, layout(True))).y * seeded(B, L, 12, seed=2)).sum().backward()
    for name, parameter in mixer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("position", ["none", "alibi"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("kind", "given"), [("softmax", {}), ("window", {"window": 3}), ("window", {"window": 8})], ids=str)
def test_attention_weights_are_dropped_in_training_alone(
    kind: str, given: dict[str, int], causal: bool, position: str, packed: bool, blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that are rows of the identity give the weights themselves; `blocks`: where a mask is too large to be made whole."""
    if blocks:
        monkeypatch.setattr(attend, "MASK_ELEMENTS", 70)
    settings, width = settings_of("attention", kind)(**given, dropout_rate=0.5), replace(WIDTH, d_v=L)
    mixer = settings.build(width, Place(0, 1, "self", position_for(settings, position)))  # type: ignore[attr-defined, arg-type]
    q, k = seeded(B, 4, L, 6), seeded(B, 2, L, 6, seed=2)
    v, view = torch.eye(L).double().expand(B, 2, L, L), mixer.view(own_view(causal, layout(packed)))
    torch.manual_seed(0)
    whole, again = mixer.eval().read(q, k, v, view), mixer.read(q, k, v, view)
    some = mixer.train().read(q, k, v, view)
    kept = some != 0
    assert torch.equal(again, whole)
    assert 0.3 < kept.sum() / (whole != 0).sum() < 0.7
    torch.testing.assert_close(some, torch.where(kept, 2 * whole, 0.0), **EXACT)


CROSS = [kind for kind in mixer_kinds() if mixer_settings(kind).READS_MEMORY]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", CROSS)
def test_a_cross_mixer_reads_a_memory(kind: str, padded: bool) -> None:
    mixer, x, memory = tiny_mixer(kind, side="cross"), seeded(B, L, 12), seeded(B, 5, 12, seed=3)
    segments = torch.tensor([[1] * 5, [1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])
    places = Places.packed(segments) if padded else Places(5)
    view = Visibility(False, Places(L), places)
    y = mixer(x, memory, view).y
    shown = mixer.explicit(x, memory, view)
    torch.testing.assert_close(mixer.join(shown.weights @ shown.values, x), y, **EXACT)
    torch.testing.assert_close(mixer(x, mixer.recall(memory), view).y, y, **EXACT)
    if padded:
        loud = torch.where((segments == 0)[..., None], 1e6, memory)
        assert torch.equal(mixer(x, loud, view).y, y)
        alone = mixer(x[1:2], memory[1:2, :3], Visibility(False, Places(L), Places(3))).y
        torch.testing.assert_close(y[1:2], alone, **EXACT)
    order = torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(
        mixer(x, memory[:, order], Visibility(False, Places(L), Places(5))).y,
        mixer(x, memory, Visibility(False, Places(L), Places(5))).y,
        **EXACT,
    )


@pytest.mark.parametrize("kind", CROSS)
def test_a_cross_mixer_that_sees_nothing_reads_zeros(kind: str) -> None:
    mixer, x, memory = tiny_mixer(kind, side="cross"), seeded(1, 2, 12), seeded(1, 4, 12)
    view = Visibility(False, Places(2), Places.packed(torch.zeros(1, 4, dtype=torch.long)))
    nothing = mixer.join(torch.zeros(1, 1 if kind == "simple" else WIDTH.n_heads, 2, 12 if kind == "simple" else WIDTH.d_v).double(), x)
    torch.testing.assert_close(mixer(x, memory, view).y, nothing, **EXACT)
