"""Transformer-XL: relative positions against explicit matrices, blocks with a memory against one pass, and evaluations
that carry the memory.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from commands import EXACT, TINY, minitf, refused, trained
from torch import Tensor

from mini_tf.attention import softmax, window
from mini_tf.nn.attention import MultiHeadSettings
from mini_tf.nn.mixer import AttentionDims, LayerSpec, Mixer, carry
from mini_tf.nn.state import detach
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.nn.tokens import Tokens
from mini_tf.papers.transformer_xl.positions import transformer_xl
from mini_tf.testing.tiny.mixers import random_tensor
from mini_tf.trained.evaluating import evaluation_data
from mini_tf.trained.opening import open_trained

DIMS = AttentionDims(d_model=12, d_memory=12, n_heads=4, n_kv_heads=2, d_k=3, d_v=2)
B, L = 2, 13


def tiny_mixer(settings: MultiHeadSettings, layer: int = 1, positions: transformer_xl.Settings | None = None) -> Mixer:
    """The mixer of a layer in float64, with large weights; positions: default those of Transformer-XL."""
    torch.manual_seed(0)
    encoding = (
        (positions or transformer_xl.Settings()).build_layers(3, DIMS.d_model, DIMS.n_heads, DIMS.d_k, L).double()
    )
    for parameter in encoding.parameters():
        parameter.data.normal_(0, 0.5)
    mixer = settings.build(DIMS, LayerSpec(layer, 3, "self", encoding.of_layer(layer))).double().eval()  # type: ignore[attr-defined]
    for parameter in mixer.parameters():
        parameter.data.normal_(0, 0.5)
    mixer.encoding = encoding
    return mixer  # type: ignore[no-any-return]


def forward(mixer: Mixer, x: Tensor, start: int = 0) -> Tensor:
    positions = TokenPositions(x.shape[1], start)
    return mixer(x, x, Visibility(True, positions, positions)).y  # type: ignore[no-any-return]


@pytest.mark.parametrize("shared", [True, False])
def test_scores_are_the_four_terms_of_the_paper(shared: bool) -> None:
    """Of each layer by itself; distances beyond the greatest count as that one."""
    settings, x = transformer_xl.Settings(max_distance=9, shared_biases=shared), random_tensor(B, L, 12)
    for layer in (0, 2):
        mixer = tiny_mixer(softmax.Settings(), layer, settings)
        weights, encoding = dict(mixer.named_parameters()), dict(mixer.encoding.named_parameters())
        w_q, w_k, w_v = weights["qkv.weight"].split([12, 6, 4])
        w_r = encoding[f"layers.{layer}.relative.weight"]
        u, v = (
            encoding[f"biases.{name}" if shared else f"layers.{layer}.own_biases.{name}"].view(4, 3) for name in "uv"
        )
        y = torch.zeros(B, L, 8, dtype=torch.float64)
        for b in range(B):
            for h in range(4):
                rows, group = slice(3 * h, 3 * h + 3), h // 2
                for i in range(L):
                    q, scores = w_q[rows] @ x[b, i], []
                    for j in range(i + 1):
                        d = min(i - j, 9)
                        r = torch.tensor(
                            [f(d / 10000 ** (2 * n / 12)) for n in range(6) for f in (math.sin, math.cos)],
                            dtype=torch.float64,
                        )
                        k, relative = w_k[3 * group : 3 * group + 3] @ x[b, j], w_r[rows] @ r
                        scores.append((q @ k + q @ relative + u[h] @ k + v[h] @ relative) / math.sqrt(3))
                    p = torch.stack(scores).softmax(0)
                    y[b, i, 2 * h : 2 * h + 2] = w_v[2 * group : 2 * group + 2] @ (p @ x[b, : i + 1])
        torch.testing.assert_close(forward(mixer, x), y @ weights["out.weight"].T, rtol=0, atol=1e-10)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_without_a_greatest_distance_it_is_twice_the_context(bidirectional: bool) -> None:
    """Alone and in layers; keys ahead have distances of their own, or count as distance 0."""
    settings = transformer_xl.Settings(bidirectional=bidirectional)
    built = (settings.build(12, 4, 3, context=5), settings.build_layers(2, 12, 4, 3, context=5).of_layer(1))
    distance, q, k = (
        torch.arange(-12, 13)[None, None],
        random_tensor(1, 4, 1, 3).float(),
        random_tensor(1, 4, 1, 3, seed=2).float(),
    )
    for encoding in built:
        scores = encoding.bias(distance, q, k.expand(-1, -1, 25, -1))[0, 0, 0]
        differ = [bool(one) for one in scores[1:] != scores[:-1]]
        assert differ == [-10 <= d < 10 and (bidirectional or d >= 0) for d in range(-12, 12)]


def test_keys_that_are_kept_for_decoding_follow_their_weights() -> None:
    """Also after weights were changed in place, as by an optimizer or a checkpoint, and after a pass with gradients."""
    encoding = transformer_xl.Settings().build(12, 4, 3, context=5)
    weight, x = (
        encoding.relative.weight,
        (torch.arange(4)[None, None], random_tensor(1, 4, 1, 3).float(), random_tensor(1, 4, 4, 3).float()),
    )
    with torch.no_grad():
        before, again = encoding.bias(*x), encoding.bias(*x)
        assert torch.equal(before, again)
        weight.mul_(2)
        torch.testing.assert_close(encoding.bias(*x), 2 * before)
        encoding.load_state_dict({name: t / 2 for name, t in encoding.state_dict().items()})
        torch.testing.assert_close(encoding.bias(*x), before)
    encoding.bias(*x).sum().backward()
    assert weight.grad is not None
    assert encoding.double().bias(*(t.double() if t.is_floating_point() else t for t in x)).dtype == torch.float64


@pytest.mark.parametrize("cache", ["inputs", "keys"])
@pytest.mark.parametrize("length", [4, 64])
def test_a_row_attends_to_so_many_tokens_before_it(length: int, cache: str) -> None:
    """As in one pass over these and its own; in training, too."""
    mixer, x = tiny_mixer(softmax.Settings(memory_length=length, memory_cache=cache)), random_tensor(B, L, 12)  # type: ignore[arg-type]
    for training in (False, True):
        mixer.train(training)
        state, first = mixer.start(B), 0
        for size in (5, 1, 7):
            positions, block = TokenPositions(size, first), x[:, first : first + size]
            mixed = mixer(block, block, Visibility(True, positions, positions), state)
            seen = max(0, first - length)
            expected = forward(mixer, x[:, seen : first + size], seen)[:, first - seen :]
            torch.testing.assert_close(mixed.y, expected, rtol=0, atol=1e-10)
            state, first = carry(mixer, mixed.state), first + size


@pytest.mark.parametrize(
    "settings", [softmax.Settings(memory_length=6), window.Settings(window=4)], ids=["softmax", "window"]
)
def test_the_memory_trains_the_projections_of_keys_but_not_the_tokens(settings: MultiHeadSettings) -> None:
    gradients = []
    for cache in ("inputs", "keys"):
        mixer = tiny_mixer(settings.model_copy(update={"memory_cache": cache})).train()
        x, weight, positions = random_tensor(B, 10, 12).requires_grad_(), random_tensor(B, 5, 12), TokenPositions(5)
        first = mixer(x[:, :5], x[:, :5], Visibility(True, positions, positions), mixer.start(B))
        after, second = TokenPositions(5, 5), x[:, 5:]
        state = carry(mixer, detach(first.state))  # type: ignore[arg-type]
        (mixer(second, second, Visibility(True, after, after), state).y * weight).sum().backward()
        assert x.grad is not None
        assert not x.grad[:, :5].any()
        gradients.append(mixer.get_parameter("qkv.weight").grad)
        if cache == "inputs":
            together = torch.cat([x[:, :5].detach(), second.detach()], dim=1)
            mixer.zero_grad()
            (forward(mixer, together)[:, 5:] * weight).sum().backward()
            torch.testing.assert_close(gradients[0], mixer.get_parameter("qkv.weight").grad, rtol=0, atol=1e-10)
    torch.testing.assert_close(gradients[0][:12], gradients[1][:12], rtol=0, atol=1e-10)  # type: ignore[index]
    assert not torch.allclose(gradients[0][12:], gradients[1][12:])  # type: ignore[index]


ONE_LAYER = (
    "model.n_layers=1",
    "model.positions=transformer_xl",
    "model.attention={kind: softmax, memory_length: 20}",
    "data.pack=concat",
)
STREAM = (*EXACT, *ONE_LAYER, "train.stream=true", "train.context=16", "train.batch_size=4")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("xl") / "run", *STREAM, "train.steps=4")


@pytest.mark.parametrize("memory", [None, 50])
def test_an_evaluation_carries_the_memory(run: Path, memory: int | None) -> None:
    """Against a pass over each window and what its memory holds; every target counts once."""
    done = minitf("evaluate", run, "--json", *(() if memory is None else ("--memory", str(memory))))
    assert done.exit_code == 0, done.stderr
    opened = open_trained(run)
    ids = torch.from_numpy(np.asarray(evaluation_data(opened, None, "val").ids).astype(np.int64))
    n_rows = -(-(len(ids) - 1) // 16)
    assert n_rows % 4, "the streams have different lengths"
    begins = [16 * (n_rows * stream // 4) for stream in range(4)]
    total = 0.0
    for row in range(n_rows):
        first, last = 16 * row, min(16 * row + 16, len(ids) - 1)
        stream = max(begin for begin in begins if begin <= first)
        seen = max(stream, first - (memory or 20))
        with torch.no_grad():
            logits = opened.model.logits(opened.model(Tokens(ids[None, seen:last])).y)[0, first - seen :]
        total += float(F.cross_entropy(logits, ids[first + 1 : last + 1], reduction="sum"))
    metrics = json.loads(done.stdout)["metrics"]
    assert metrics["targets"] == len(ids) - 1
    assert metrics["loss"] == pytest.approx(total / (len(ids) - 1), abs=1e-5)


def test_maps_show_the_memory_before_a_row(run: Path) -> None:
    """A text of a row of 16 tokens and the 20 before it; what is longer is cut."""
    done = minitf("inspect", "attention", run, "ab " * 40, "--json")
    result = json.loads(done.stdout)["result"]
    [sample] = result["samples"]
    assert len(sample["tokens"]) == 36
    assert "the last 16 of 36 tokens are a row; to them the 20 before are memory" in done.stderr


def test_a_memory_without_a_stream_is_refused() -> None:
    given = "model.attention={kind: softmax, memory_length: 20}"
    refused(
        minitf("recipe", "check", TINY, given),
        "memory_length: has no effect without a stream; use train.stream: true",
        exit_code=3,
    )


def test_a_longer_memory_for_a_model_without_one_is_refused(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", *EXACT, "train.steps=1")
    refused(minitf("evaluate", run, "--memory", "50"), "--memory 50: run has no memory of a fixed length", exit_code=2)
