"""Expire-Span: the mask against the formula, limits, what is dropped and when, and gradients of spans."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import figures
import pytest
import torch
from commands import EXACT, minitf, refused, trained
from test_run_initial import SHORT, SIZES, TEXT, parts_of, theirs
from torch import Tensor

from mini_tf.attention import softmax
from mini_tf.drawing.plotting import figure_label
from mini_tf.inspection import ViewOutput
from mini_tf.nn.mixer import AttentionDims, LayerSpec, carry
from mini_tf.nn.state import State, detach
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.nn.tokens import Tokens
from mini_tf.papers.expire_span.attention import expire_span
from mini_tf.papers.expire_span.inspection import spans as spans_view
from mini_tf.system.errors import RecipeFault
from mini_tf.testing.tiny.mixers import random_tensor, run_in_blocks
from mini_tf.trained.opening import open_trained

DIMS = AttentionDims(d_model=12, d_memory=12, n_heads=4, n_kv_heads=2, d_k=3, d_v=2)
B, L = 3, 24


def tiny_mixer(span_bias: float | None = None, **given: float) -> expire_span.ExpireSpan:
    """In float64, with spans of all lengths, or all alike."""
    torch.manual_seed(0)
    settings = expire_span.Settings(**{"max_span": 10, "ramp": 4, **given})  # type: ignore[arg-type]
    mixer = settings.build(DIMS, LayerSpec(0, 1)).double().eval()
    for parameter in mixer.parameters():
        parameter.data.normal_(0, 0.5)
    if span_bias is not None:
        mixer.span_weight.data.zero_()
        mixer.span_bias.data.fill_(span_bias)
    return mixer


def mix(mixer: torch.nn.Module, x: Tensor, positions: TokenPositions | None = None) -> Tensor:
    positions = positions or TokenPositions(x.shape[1])
    return mixer(x, x, Visibility(True, positions, positions)).y  # type: ignore[no-any-return]


def test_weights_fade_out_behind_the_span_as_the_formula_says() -> None:
    mixer, x = tiny_mixer(pre_div=2.0), random_tensor(B, L, 12)
    p = dict(mixer.named_parameters())
    w_q, w_k, w_v = p["qkv.weight"].split([12, 6, 4])
    y = torch.zeros(B, L, 8, dtype=torch.float64)
    for b in range(B):
        spans = 10 * torch.sigmoid((x[b] @ p["span_weight"] + p["span_bias"]) / 2)
        for h in range(4):
            group = h // 2
            for t in range(L):
                a = (
                    (x[b, : t + 1] @ w_k[3 * group : 3 * group + 3].T)
                    @ (w_q[3 * h : 3 * h + 3] @ x[b, t])
                    / math.sqrt(3)
                ).softmax(0)
                age = t - torch.arange(t + 1)
                a = a * (1 + (spans[: t + 1] - age) / 4).clamp(0, 1)
                y[b, t, 2 * h : 2 * h + 2] = (a / a.sum()) @ (x[b, : t + 1] @ w_v[2 * group : 2 * group + 2].T)
    torch.testing.assert_close(mix(mixer, x), y @ p["out.weight"].T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("pre_div", [1.0, 4.0])
def test_fresh_spans_are_the_initial_share_of_the_longest(pre_div: float) -> None:
    mixer = expire_span.Settings(max_span=40, initial_span=0.25, pre_div=pre_div).build(DIMS, LayerSpec(0, 1))
    torch.testing.assert_close(mixer.spans(random_tensor(B, L, 12).float()), torch.full((B, L), 10.0))


def test_the_longest_spans_are_full_attention_and_the_shortest_reach_over_the_ramp() -> None:
    x, whole = random_tensor(B, L, 12), softmax.Settings().build(DIMS, LayerSpec(0, 1)).double().eval()
    long = tiny_mixer(60.0, max_span=1000)
    whole.load_state_dict({name: t for name, t in long.state_dict().items() if not name.startswith("span")})
    torch.testing.assert_close(mix(long, x), mix(whole, x), rtol=0, atol=1e-12)
    short = tiny_mixer(-60.0)
    positions = TokenPositions(L)
    weights = short.explicit(x, x, Visibility(True, positions, positions)).weights
    age = torch.arange(L)[:, None] - torch.arange(L)
    assert torch.equal(weights[0, 0] > 0, (age >= 0) & (age < 4))


@pytest.mark.parametrize("training", [False, True])
def test_dropping_what_has_expired_changes_nothing_and_bounds_the_memory(training: bool) -> None:
    """In blocks of any size; rows keep what each of them needs."""
    mixer, x = tiny_mixer().train(training), random_tensor(B, 60, 12)
    whole, sizes = mix(mixer, x), []
    for blocks in ([5] * 12, [1] * 60, [30, 30]):
        trimmed, state = run_in_blocks(mixer, x, TokenPositions(60), blocks, trim=True)
        torch.testing.assert_close(trimmed, whole, rtol=0, atol=1e-12)
        kept, _ = run_in_blocks(mixer, x, TokenPositions(60), blocks)
        torch.testing.assert_close(kept, whole, rtol=0, atol=1e-12)
        sizes.append((state["x"] if training else state["spans"]).shape[1])
        assert int(mixer.metrics(state)["memory.real"][0]) == sizes[-1]
    assert sizes[0] <= mixer.settings.memory_bound == 14
    spans = mixer.spans(x)
    visible = (spans + 4 > 60 - torch.arange(60)).sum(1)
    assert sizes == [int(visible.max())] * 3
    assert int(mixer.metrics(state)["memory.ideal"][0]) == int(visible.sum())


def test_only_a_token_within_its_ramp_changes_with_its_span() -> None:
    mixer, x = tiny_mixer(0.0), random_tensor(1, L, 12)  # spans of 5: fading from age 5 to 9
    positions = TokenPositions(L)
    for age, changes in ((2, False), (7, True), (12, False)):
        spans = torch.full((1, L), 5.0, dtype=torch.float64, requires_grad=True)
        mixer.spans = lambda _, spans=spans: spans  # type: ignore[method-assign]
        y = mixer(x, x, Visibility(True, positions, positions)).y[:, age].pow(2).sum()
        assert bool(torch.autograd.grad(y, spans)[0][0, 0]) == changes


def test_the_penalty_has_every_span_once_in_its_life() -> None:
    """Over blocks with a detached memory, without padding."""
    mixer, x = tiny_mixer(0.3, span_loss_weight=0.5).train(), random_tensor(B, L, 12)
    state, total, first = mixer.start(B), torch.zeros(()).double(), 0
    for size in (5, 9, 10):
        positions, block = TokenPositions(size, first), x[:, first : first + size]
        mixed = mixer(block, block, Visibility(True, positions, positions), state)
        total, first, state = total + mixed.penalty, first + size, carry(mixer, detach(mixed.state))  # type: ignore[arg-type]
    share = torch.sigmoid(torch.tensor(0.3, dtype=torch.float64))
    torch.testing.assert_close(total, 0.5 * B * L * 10 * share, rtol=0, atol=1e-10)
    gradient = torch.autograd.grad(total, mixer.span_bias)[0]
    torch.testing.assert_close(gradient, 0.5 * B * L * 10 * share * (1 - share), rtol=0, atol=1e-10)
    padded = TokenPositions.packed(torch.tensor([[0, 0, 1, 1, 1]]))
    one = mixer(x[:1, :5], x[:1, :5], Visibility(True, padded, padded)).penalty
    torch.testing.assert_close(one, 0.5 * 3 * 10 * share, rtol=0, atol=1e-10)


def test_noise_cuts_spans_in_training_alone() -> None:
    mixer, x = tiny_mixer(60.0, noisy=True), random_tensor(B, L, 12)
    before = mix(mixer, x)
    mixer.refresh(1, 2)
    assert float(mixer.limit) < 10
    assert torch.equal(mix(mixer, x), before)
    assert not torch.allclose(mix(mixer.train(), x), before)


def tensors_in(state: State) -> Iterator[tuple[str, Tensor]]:
    for name, part in state.items():
        if isinstance(part, dict):
            yield from tensors_in(part)
        elif isinstance(part, Tensor):
            yield name, part


def test_noise_cuts_spans_at_a_uniform_share_of_the_longest_that_seed_and_step_decide() -> None:
    """Mean and spread of 400 limits are within four standard errors of those of a uniform distribution."""
    mixer, limits = tiny_mixer(noisy=True, max_span=1000, ramp=2), []
    for seed, step in ((seed, step) for seed in range(2) for step in range(200)):
        mixer.refresh(seed, step)
        limits.append(float(mixer.limit))
    assert len(set(limits)) == 400
    assert 0 <= min(limits) < max(limits) <= 1000
    assert sum(limits) / 400 == pytest.approx(500, abs=4 * 1000 / math.sqrt(12 * 400))
    assert not tiny_mixer(max_span=1000).refresh(1, 2)
    assert float(tiny_mixer(max_span=1000).limit) == 1000


def test_a_run_records_its_memory_and_its_penalty(tmp_path: Path) -> None:
    attention = "model.attention={kind: expire_span, max_span: 20, ramp: 8, span_loss_weight: 0.01}"
    stream = ("data.pack=concat", "train.stream=true", "train.context=16", "train.batch_size=3", "model.positions=none")
    run = trained(tmp_path / "run", *EXACT, attention, *stream, "train.steps=3", "log.every_steps=1")
    reports = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    memories = [(one["memory.ideal"], one["memory.real"]) for one in reports if "memory.real" in one]
    assert len(memories) == 3
    assert all(0 < ideal <= real <= 20 + 8 for ideal, real in memories)
    assert any("memory.real.0" in one and "memory.real.1" in one for one in reports)
    metrics = json.loads(minitf("cost", run, "--seconds", "0.01", "--json").stdout)["metrics"]
    assert (metrics["stream.bound"], metrics["stream.ideal"], metrics["stream.real"]) == (28, *memories[-1])
    text = "hello world " * 6
    result, figure = figures.pictured("inspect", "spans", run, text)
    [found] = result["texts"]
    spans, memory = figures.maps(figure)
    assert (spans.title, memory.title, spans.rows) == ("spans", "memory", {0: "layer 0", 1: "layer 1"})
    assert spans.values.tolist() == [layer["spans"] for layer in found["layers"]]
    assert memory.values.tolist() == [layer["memory"]["real"] for layer in found["layers"]]
    assert memory.columns == {n: figure_label(found["tokens"][n], 18) for n in memory.columns}
    assert len(memory.columns) > 1
    largest = max(spans.values.max(), memory.values.max())
    assert spans.colors == memory.colors == ("Blues", 0, pytest.approx(largest))
    assert figures.colorbar(figure)[0] == "tokens"
    opened = open_trained(run, device="cpu")
    spans_view.Settings(run="", texts=(text,)).view(opened, ViewOutput())
    assert not figures.has_hooks(opened.model)
    for layer, mixer in zip(found["layers"], opened.model.mixers(), strict=True):
        assert layer["ramp"] == 8
        mixer.register_forward_pre_hook(
            lambda mixer, inputs: seen.append(mixer.observe(*inputs[:3])["spans"][0].detach())
        )
    seen, state, kept = list[torch.Tensor](), opened.model.start(1), list[list[int]]()
    ids = torch.tensor([[opened.tokenizer.vocabulary.separator, *map(int, opened.tokenizer.encode(text))]])
    for part in ids.split(16, dim=1):
        state = opened.model.carry(opened.model(Tokens(part), state=state).state)
        kept.append([tensor.shape[1] for name, tensor in tensors_in(state) if name == "spans"])
    for n, layer in enumerate(found["layers"]):
        assert torch.cat(seen[n::2]).tolist() == pytest.approx(layer["spans"], abs=1e-4)
        blocks = [layer["memory"]["real"][first] - 1 for first in range(16, len(found["tokens"]), 16)]
        assert blocks == [n_kept[n] for n_kept in kept[:-1]], "what the states of the model keep"
    assert len(found["tokens"]) > 2 * 16
    for layer in found["layers"]:
        n_kept = 0
        for t in range(len(found["tokens"])):  # block by block, token by token
            n_kept += 1
            ideal = sum(layer["spans"][i] + 8 > t + 1 - i for i in range(t + 1))
            assert layer["memory"]["ideal"][t] == ideal
            assert layer["memory"]["real"][t] == n_kept
            if (t + 1) % 16 == 0 or t + 1 == len(found["tokens"]):
                assert layer["dropped"][t // 16] == n_kept - ideal
                n_kept = ideal
    rows = figures.table_in(minitf("inspect", "spans", run, text).stdout, "layer")
    for row, layer in zip(rows[:2], found["layers"], strict=True):
        columns = (layer["spans"], layer["memory"]["ideal"], layer["memory"]["real"])
        means = [f"{figure:.1f}" for column in columns for figure in (sum(column) / len(column), max(column))]
        assert row == [str(layer["layer"]), *means, str(sum(layer["dropped"]))]


def test_a_model_whose_tokens_do_not_expire_has_no_spans_to_show(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", *EXACT, "train.steps=1")
    refused(minitf("inspect", "spans", run, "ab"), "run has no spans: its layers are softmax", exit_code=2)


def test_keys_that_act_only_in_training_may_be_others_also_within_a_mixer_and_those_that_are_computed_with_may_not(
    tmp_path: Path,
) -> None:
    spans = "attention: [{kind: expire_span, max_span: 20}, {kind: sru, forget_bias: 1.0}], positions: none"
    run = trained(tmp_path / "run", *SHORT, SIZES.format("decoder", spans), TEXT)
    key = "model.attention=[{{kind: expire_span, max_span: 20, {}}}, {{kind: sru, {}}}]"
    free = ("span_loss_weight: 0, initial_span: 0.9, noisy: true, dropout_rate: 0.5", "forget_bias: 2.0")
    parts = parts_of(run, TEXT, key.format(*free))
    assert parts.loaded is not None
    assert (parts.loaded.new, parts.loaded.unused) == ((), ())
    assert torch.equal(
        parts.model.weights()["stack.layers.0.self_attn.part.span_bias"],
        theirs(run)["stack.layers.0.self_attn.part.span_bias"],
    )
    for bound, words in (
        (
            ("pre_div: 2.0, noisy: true", "forget_bias: 2.0"),
            r"model\.attention\[0\]\.pre_div: is 2\.0, but 1\.0 in run",
        ),
        (("ramp: 8", "forget_bias: 2.0"), r"model\.attention\[0\]\.ramp: is 8, but 32 in run"),
        (("noisy: true", "highway_bias: 0.0"), r"model\.attention\[1\]\.highway_bias: is 0\.0, but -2\.0 in run"),
    ):
        with pytest.raises(RecipeFault, match=words):
            parts_of(run, TEXT, key.format(*bound))
