"""Diminishing attention against its formula in loops, its limits, and through beams, packed rows and conversion."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from test_generation_translation import (
    END,
    LETTERS,
    SOURCES,
    TOKENIZER,
    all_texts,
    endless,
    logprobs_of,
    model_of,
    translator_of,
)
from torch import Tensor
from toys import seeded

from mini_tf.attention import softmax
from mini_tf.models import encoder_decoder
from mini_tf.nn import state as states
from mini_tf.nn.attention import MultiHeadAttention
from mini_tf.nn.mixer import LayerSpec
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.papers.diminishing.attention import diminishing
from mini_tf.papers.diminishing.attention.diminishing import Diminishing, Settings
from mini_tf.recipe.parsing.schema_faults import faults_of
from mini_tf.testing import cross_attention
from mini_tf.testing.tiny.mixers import DIMS, EXACT, B, L, TinyMixer

M = 5
FUNCTIONS: dict[str, tuple[dict[str, Any], Callable[[float], float], Callable[[float], float]]] = {
    "log1p": ({}, math.log1p, lambda x: 1 / (1 + x)),
    "sqrt1p": ({}, lambda x: math.sqrt(1 + x) - 1, lambda x: 0.5 / math.sqrt(1 + x)),
    "power": ({"power": 0.3}, lambda x: ((1 + x) ** 0.3 - 1) / 0.3, lambda x: (1 + x) ** -0.7),
    "cap": ({"cap": 0.7}, lambda x: min(x, 0.7), lambda x: float(x < 0.7)),
    "identity": ({}, lambda x: x, lambda x: 1.0),
}
"""By word: settings, F and its derivative (at the cap, from the right)."""
EVERY = pytest.mark.parametrize("word", FUNCTIONS)
RENORMALIZED = pytest.mark.parametrize(
    ("word", "renormalize"),
    [*((word, False) for word in FUNCTIONS), *((word, True) for word in FUNCTIONS if word != "identity")],
)


def settings_of(word: str, **more: Any) -> Settings:
    return Settings(function=word, **FUNCTIONS[word][0], **more)  # type: ignore[arg-type]


def tiny(word: str, **more: Any) -> TinyMixer:
    """The mixer itself: `build` makes another of the identity."""

    class Machinery(Settings):
        def build(self, dims: Any, layer: LayerSpec) -> Diminishing:
            return Diminishing(self, dims, layer)

    return TinyMixer(Machinery(function=word, **FUNCTIONS[word][0] | more), attention="cross")


def mask_of(targets: list[list[int]] | None = None, sources: list[list[int]] | None = None) -> Visibility:
    queries, memory = (
        TokenPositions(length) if rows is None else TokenPositions.packed(torch.tensor(rows))
        for rows, length in ((targets, L), (sources, M))
    )
    return Visibility(False, queries, memory)


PACKED = mask_of(
    [[1] * L, [0, 0, 1, 1, 1, 1, 2, 2, 2, 0, 0], [1, 1, 1, 2, 2, 3, 3, 3, 3, 0, 0]],
    [[1] * M, [1, 1, 2, 2, 2], [3, 1, 1, 2, 0]],
)
MEMORY = seeded(B, M, DIMS.d_memory, seed=3)


def in_loops(word: str, a: Tensor, renormalize: bool = False) -> tuple[Tensor, Tensor]:
    """Weights and final coverage by the definition, number by number; a (B, H, L, M)."""
    F = FUNCTIONS[word][1]
    weights, coverage = torch.zeros_like(a), torch.zeros_like(a[:, :, 0])
    for b, h, i in itertools.product(*(range(n) for n in coverage.shape)):
        c = 0.0
        for t in range(a.shape[2]):
            after = c + float(a[b, h, t, i])
            weights[b, h, t, i] = F(after) - F(c)
            c = after
        coverage[b, h, i] = c
    if renormalize:
        for row in weights.flatten(0, 2):
            row /= max(float(row.sum()), 1e-300)
    return weights, coverage


@RENORMALIZED
def test_every_function_keeps_the_contract(word: str, renormalize: bool) -> None:
    for case in cross_attention.cases(settings_of(word, renormalize=renormalize)):
        case.run()


@pytest.mark.parametrize("mask", [mask_of(), PACKED], ids=["plain", "packed"])
@RENORMALIZED
@torch.no_grad()
def test_weights_are_the_gains_of_effective_coverage(word: str, renormalize: bool, mask: Visibility) -> None:
    one = tiny(word, renormalize=renormalize)
    a = one.mixer.observe(one.x, MEMORY, mask)["attention"]
    torch.testing.assert_close(a, softmax_weights(one, mask), **EXACT)
    weights, coverage = in_loops(word, a, renormalize)
    explicit = one.mixer.explicit(one.x, MEMORY, mask)
    torch.testing.assert_close(explicit.weights, weights, **EXACT)
    mixed = one.mixer(one.x, MEMORY, mask, one.mixer.start(B))
    torch.testing.assert_close(mixed.state["coverage"], coverage, **EXACT)
    torch.testing.assert_close(mixed.y, one.mixer.out((weights @ explicit.values).transpose(1, 2).flatten(2)), **EXACT)


def softmax_weights(one: TinyMixer, mask: Visibility) -> Tensor:
    return _plain(one).explicit(one.x, MEMORY, mask).weights


def _plain(one: TinyMixer) -> MultiHeadAttention:
    plain = softmax.Settings().build(DIMS, LayerSpec(0, 1, "cross", bias=True)).double().eval()
    plain.load_state_dict(one.mixer.state_dict())
    return plain


@pytest.mark.parametrize("mask", [mask_of(), PACKED], ids=["plain", "packed"])
def test_the_identity_is_softmax_attention_bit_for_bit(mask: Visibility) -> None:
    """The weights of diminishing attention itself, and the outputs of what a recipe gets, also in parts of a row."""
    one = tiny("identity")
    plain, built = _plain(one), settings_of("identity").build(DIMS, LayerSpec(0, 1, "cross", bias=True)).double().eval()
    built.load_state_dict(plain.state_dict())
    assert torch.equal(one.mixer.explicit(one.x, MEMORY, mask).weights, plain.explicit(one.x, MEMORY, mask).weights)
    torch.testing.assert_close(one.mixer(one.x, MEMORY, mask).y, plain(one.x, MEMORY, mask).y, **EXACT)
    assert torch.equal(built(one.x, MEMORY, mask).y, plain(one.x, MEMORY, mask).y)
    assert built.start(B) == {}


@EVERY
@torch.no_grad()
def test_weights_add_up_to_the_effective_coverage_and_are_at_most_the_slope_times_attention(word: str) -> None:
    """Telescoping, w >= 0, and w_it <= F'(c_i,t-1) a_it by concavity."""
    _, F, slope = FUNCTIONS[word]
    one = tiny(word)
    a, w = (
        one.mixer.observe(one.x, MEMORY, mask_of())["attention"],
        one.mixer.explicit(one.x, MEMORY, mask_of()).weights,
    )
    c = a.cumsum(dim=2)
    expected = c[:, :, -1].clone().apply_(F)
    torch.testing.assert_close(w.sum(dim=2), expected, **EXACT)
    assert (w >= 0).all()
    assert (w <= (c - a).clone().apply_(slope) * a + 1e-12).all()
    assert (w <= a + 1e-12).all()
    if word != "identity":
        sums = w.sum(dim=-1).mean(dim=(0, 1))
        assert sums[-1] < 0.8 * sums[0]


@EVERY
def test_the_same_attention_gains_less_after_more_of_it(word: str) -> None:
    """f(S + t) - f(S) >= f(S' + t) - f(S') for random sets S within S': the effective coverage is submodular."""
    gain, generator = settings_of(word).gain(), torch.Generator().manual_seed(1)
    attention = torch.rand(40, M, dtype=torch.float64, generator=generator).pow(3)
    for _ in range(50):
        order = torch.randperm(40, generator=generator)
        small, large, t = order[: (n := int(torch.randint(0, 20, (), generator=generator)))], order[: n + 15], order[-1]
        gains = [gain(attention[one].sum(0), attention[t]) for one in (small, large)]
        assert (gains[0] >= gains[1] - 1e-12).all()
        assert gains[0].sum() > gains[1].sum() or word in ("cap", "identity")


def test_the_power_lies_between_the_logarithm_and_the_identity() -> None:
    c, a = seeded(9).abs(), seeded(9, seed=2).abs()
    near, log = (one.gain()(c, a) for one in (Settings(function="power", power=1e-9), Settings()))
    torch.testing.assert_close(near, log, rtol=0, atol=1e-7)
    torch.testing.assert_close(Settings(function="power", power=1.0).gain()(c, a), a, **EXACT)
    half, root = (one.gain()(c, a) for one in (Settings(function="power"), Settings(function="sqrt1p")))
    torch.testing.assert_close(half, 2 * root, **EXACT)


def test_a_weight_after_much_coverage_is_not_lost_to_rounding() -> None:
    """In fp32 log(1 + c + a) - log(1 + c) would be 0 or twice what it is."""
    c, a = torch.tensor(5000.0), torch.tensor(3e-4)
    for word in ("log1p", "sqrt1p", "power"):
        exact = settings_of(word).gain()(c.double(), a.double())
        torch.testing.assert_close(settings_of(word).gain()(c, a).double(), exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize("mask", [mask_of(), PACKED], ids=["plain", "packed"])
@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("word", ["log1p", "sqrt1p", "power", "cap"])
def test_gradients_are_those_of_differences(word: str, renormalize: bool, mask: Visibility) -> None:
    one = tiny(word, renormalize=renormalize)
    x, memory = one.x[:, :, :].detach().requires_grad_(), MEMORY.clone().requires_grad_()
    real = torch.ones(B, L) if mask.queries.segments is None else mask.queries.segments != 0

    def outputs(x: Tensor, memory: Tensor) -> Tensor:
        y: Tensor = one.mixer(x, memory, mask).y
        return (y * real[..., None]).sum(dim=(1, 2))

    assert torch.autograd.gradcheck(outputs, (x, memory), fast_mode=True)


def test_blocks_of_queries_are_the_whole_and_so_are_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    one, gradients, outputs = tiny("log1p"), [], []
    for elements in (2**22, 3 * B * DIMS.n_heads * M):
        monkeypatch.setattr(diminishing, "MASK_ELEMENTS", elements)
        one.mixer.zero_grad()
        y = one.mixer(one.x, MEMORY, PACKED).y
        y.square().sum().backward()
        outputs.append(y.detach())
        gradients.append([parameter.grad.clone() for parameter in one.mixer.parameters()])
    torch.testing.assert_close(*outputs, **EXACT)
    torch.testing.assert_close(*gradients, **EXACT)
    for case in cross_attention.cases(Settings()):
        case.run()


def test_half_precision_keeps_coverage_in_single() -> None:
    one = tiny("log1p")
    mixer = one.mixer.to(torch.bfloat16)
    state: states.State = mixer.start(B)
    assert state["coverage"].dtype == torch.float32
    mixed = mixer(one.x.bfloat16(), MEMORY.bfloat16(), mask_of(), state)
    assert (mixed.y.dtype, mixed.state["coverage"].dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(
        mixed.state["coverage"].sum(-1), torch.full((B, DIMS.n_heads), float(L)), rtol=0, atol=1e-5
    )


def test_attention_weights_are_dropped_in_training_and_coverage_is_not() -> None:
    one, plain = tiny("log1p", dropout_rate=0.5), tiny("log1p")
    before = plain.mixer(one.x, MEMORY, mask_of(), plain.mixer.start(B))
    assert torch.equal(one.mixer(one.x, MEMORY, mask_of()).y, before.y)
    torch.manual_seed(0)
    mixed = one.mixer.train()(one.x, MEMORY, mask_of(), one.mixer.start(B))
    assert not torch.equal(mixed.y, before.y)
    assert torch.equal(mixed.state["coverage"], before.state["coverage"])


# Beams


def cross(word: str, **more: Any) -> dict[str, Any]:
    return {"cross_attention": settings_of(word, **more)}


@pytest.mark.parametrize("given", [cross("log1p"), cross("cap", renormalize=True)], ids=["log1p", "cap, renormalized"])
def test_beam_search_finds_what_a_search_without_state_finds(given: dict[str, Any]) -> None:
    """All texts of at most four letters, scored by whole passes, against beams that hold all of them."""
    model = model_of(0, init_std=0.5, **given)
    expected = all_texts(model, "2718", 4, 0.6)[:5]
    search = translator_of(model, num_beams=1024, max_new_tokens=4, length_penalty=0.6)
    [ours] = search.translate(["2718"], n_best=5)
    assert [one.text for one in ours] == [text for _, text, _ in expected]
    assert [one.score for one in ours] == pytest.approx([score for score, _, _ in expected], abs=1e-10)


def narrow_search(model: Any, source: str, n_beams: int, limit: int) -> list[tuple[list[int], float]]:
    """Beam search with a whole pass without state for every hypothesis at every step; length penalty 0.6."""
    letters = TOKENIZER.encode(LETTERS).tolist()
    live: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[tuple[list[int], float, float]] = []
    for step in range(limit):
        candidates = []
        for ids, total in live:
            logprobs = logprobs_of(model, source, torch.tensor([[END, *ids]]))[0, -1]
            candidates += [([*ids, id], total + float(logprobs[id])) for id in (*letters, END)]
        candidates.sort(key=lambda one: -one[1])
        ended = [one for one in candidates[:n_beams] if one[0][-1] == END]
        finished += [(ids[:-1], total, total / ((5 + len(ids)) / 6) ** 0.6) for ids, total in ended]
        live = [one for one in candidates if one[0][-1] != END][:n_beams]
        if step + 1 == limit and len(finished) < n_beams:
            finished += [(ids, total, total / ((5 + len(ids)) / 6) ** 0.6) for ids, total in live]
        if len(finished) >= n_beams:
            break
    return [(ids, total) for ids, total, _ in sorted(finished, key=lambda one: -one[2])]


def test_beams_of_several_sources_have_coverage_of_their_own() -> None:
    """Three beams of sources of different lengths, of which some end earlier or none ends, against passes without
    state.
    """
    sources = [source for source in dict.fromkeys(SOURCES) if source.strip()]
    for seed, ends in ((3, True), (5, False)):
        model = model_of(seed, init_std=0.4, **cross("log1p"))
        model = model if ends else endless(model)
        found = translator_of(model, num_beams=3, max_new_tokens=6, length_penalty=0.6).translate(sources, n_best=1)
        for source, [ours] in zip(sources, found, strict=True):
            ids, total = narrow_search(model, source, 3, 6)[0]
            assert (ours.text, ours.logprob) == (TOKENIZER.decode(ids), pytest.approx(total, abs=1e-10))
            assert ends or len(ids) == 6


# Recipes


@pytest.mark.parametrize(
    ("given", "key", "message"),
    [
        ({"power": 0.3}, "power", "has no effect on the function log1p; use function: power"),
        ({"function": "sqrt1p", "cap": 2.0}, "cap", "has no effect on the function sqrt1p; use function: cap"),
        ({"function": "identity", "renormalize": True}, "renormalize", "has no effect on the function identity"),
        ({"function": "sqrt"}, "function", "sqrt"),
        ({"function": "power", "power": 1.5}, "power", "1"),
    ],
)
def test_settings_without_effect_are_refused(given: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate(given)
    told = {".".join(map(str, fault.path)): fault.message for fault in faults_of(refused.value)}
    assert message in told[key]


def test_only_the_identity_does_not_depend_on_the_order() -> None:
    assert [name for name in FUNCTIONS if "unordered" in settings_of(name).supports] == ["identity"]


def test_it_is_no_self_attention() -> None:
    with pytest.raises(ValueError, match="is cross-attention"):
        Settings().build(DIMS, LayerSpec(0, 1))


def test_weights_are_those_of_softmax_attention_with_the_same_scale_and_norms() -> None:
    def settings(**given: Any) -> Any:
        return encoder_decoder.Settings(d_model=8, n_heads=2, **given)

    def differing(**cross: Any) -> set[str]:
        new = settings(cross_attention=Settings(**cross))
        return {key for key, mine, theirs in new.compare_with(settings()) if mine != theirs}

    assert differing() == set()
    assert differing(scale="none") == differing(qk_norm=True) == {"cross_attention"}
