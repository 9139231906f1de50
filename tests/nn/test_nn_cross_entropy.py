"""Cross-entropy in the large chunks of a GPU, on a CPU: its values, gradients, largest tensor and compiled graph."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_models import Largest
from torch import Tensor
from torch._dynamo import lookup_backend, reset
from torch._subclasses.fake_tensor import FakeTensorMode

from mini_tf.data.batch import Batch
from mini_tf.nn.layers import cross_entropy as fused
from mini_tf.nn.layers.copy_attention import Copies
from mini_tf.nn.layers.cross_entropy import IGNORED, cross_entropy, target_chunks
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import _token_loss
from mini_tf.objectives._token_loss import TokenLoss
from mini_tf.recipe.kinds import settings_of
from mini_tf.testing.tiny.models import random_ids, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler

V, D = 300, 16
HALF = frozenset({torch.bfloat16, torch.float16})


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU does as a GPU does, in chunks of 13 targets."""
    monkeypatch.setattr(fused, "chunks_on", lambda device, *sizes: target_chunks(*sizes))
    monkeypatch.setattr(fused, "PRODUCTS", {"cpu": HALF})
    monkeypatch.setattr(fused, "COMPILED", frozenset({"cpu"}))
    monkeypatch.setattr(fused, "LARGE_CHUNK", 13 * V)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def some_labels(n: int) -> Tensor:
    return torch.randint(V, (n,), generator=torch.Generator().manual_seed(3))


def some_copies(n: int) -> Copies:
    """Of a source of five tokens; the first and the last are equal."""
    ids = torch.tensor([7, 1, 2, 3, 7]).expand(n, -1)
    return Copies(
        drawn(n, seed=4), drawn(n, 5, seed=5).detach().log_softmax(-1), ids, torch.tensor([0, 1, 2, 3, 0]).expand(n, -1)
    )


def plain(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, copies: Copies | None
) -> Tensor:
    logits = F.linear(hidden, weight, bias)
    return F.cross_entropy(
        logits if copies is None else copies.mix(logits), labels, reduction="sum", label_smoothing=smoothing
    )


def compiled(function: Callable[..., Any], graphs: list[Any]) -> Callable[..., Any]:
    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return lookup_backend("aot_eager")(graph, inputs)

    reset()
    return torch.compile(function, fullgraph=True, backend=backend)


def errors(loss: Tensor, expected: Tensor, inputs: tuple[Tensor, ...]) -> list[float]:
    """Of the loss and of each gradient, relative to their norms."""
    both = zip(*((value, *torch.autograd.grad(value, inputs)) for value in (loss, expected)), strict=True)
    return [float(((ours - theirs).norm() / theirs.norm()).detach()) for ours, theirs in both]


@pytest.mark.parametrize("n", [0, 1, 5, 13, 14, 1000])
def test_chunks_have_every_target_once_and_a_bounded_size(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "LARGE_CHUNK", 13 * V)
    chunks = [range(n)[chunk] for chunk in target_chunks(n, V)]
    assert [i for chunk in chunks for i in chunk] == [*range(n)]
    assert all(len(chunk) <= 13 for chunk in chunks)
    assert len(chunks) == -(-n // 13)


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("compiles", [False, True])
def test_chunks_of_a_gpu_give_the_loss_and_gradients_of_all_logits(
    compiles: bool, copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by what is compiled, run as it is."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiles)
    hidden, weight, bias, labels = drawn(50, D), drawn(V, D, seed=1), drawn(V, seed=2), some_labels(50)
    copied = some_copies(50) if copies else None
    for smoothing, shift in ((0.0, None), (0.1, bias)):
        inputs = (hidden, weight) if shift is None else (hidden, weight, shift)
        inputs += () if copied is None else (copied.gate,)
        loss, expected = (f(hidden, weight, shift, labels, smoothing, copied) * 0.3 for f in (cross_entropy, plain))
        assert max(errors(loss, expected, inputs)) < 1e-5


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.02), (torch.float16, 0.003)])
def test_half_precision_in_chunks_is_near_fp32(dtype: torch.dtype, tolerance: float) -> None:
    hidden, weight, labels = drawn(50, D), drawn(V, D, seed=1), some_labels(50)
    expected = plain(hidden, weight, None, labels, 0.0, None)
    with torch.autocast("cpu", dtype):
        loss = cross_entropy(hidden, weight, None, labels)
    assert loss.dtype == torch.float32
    assert max(errors(loss, expected, (hidden, weight))) < tolerance


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize(
    ("products", "compiles", "copies"),
    [
        *product((torch.float32, torch.bfloat16, torch.float16), [False], [False, True]),
        *((torch.float32, True, True), (torch.bfloat16, True, False), (torch.float16, True, True)),
    ],
)
def test_ignored_targets_add_nothing_to_loss_and_gradients(products: torch.dtype, compiles: bool, copies: bool) -> None:
    n = 25  # two chunks
    weight, bias, labels, kept = drawn(V, D, seed=1), drawn(V, seed=2), some_labels(n), torch.arange(n) % 3 > 0
    function = compiled(cross_entropy, []) if compiles else cross_entropy
    hidden, copied = drawn(n, D), some_copies(n) if copies else None
    some = None if copied is None else copied.each(lambda tensor: tensor[kept])
    with torch.autocast("cpu", products, enabled=products != torch.float32):
        expected = cross_entropy(hidden[kept], weight, bias, labels[kept], 0.1, some)
        loss = function(hidden, weight, bias, labels.where(kept, IGNORED), 0.1, copied)
    inputs = (hidden, weight, bias, *(() if copied is None else (copied.gate,)))
    of_loss = torch.autograd.grad(loss, inputs, retain_graph=True)
    assert max(errors(loss, expected, inputs)) < (1e-5 if products == torch.float32 else 0.01)
    assert not any(gradient[~kept].any() for gradient in (of_loss[0], *of_loss[3:]))


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 300.0])
def test_gradients_in_fp16_do_not_overflow_for_one_frequent_label(size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum over 4,000 targets of hidden states of this size: 1,200,000 at most, where fp16 ends at 65,504."""
    monkeypatch.setattr(fused, "LARGE_CHUNK", 2**28)
    hidden, weight = torch.full((4000, D), size, requires_grad=True), (drawn(V, D) * 1e-4).detach().requires_grad_()
    labels = torch.full((4000,), 7)
    expected = plain(hidden, weight, None, labels, 0.0, None)
    with torch.autocast("cpu", torch.float16):
        loss = cross_entropy(hidden, weight, None, labels)
    for ours, theirs in zip(*(torch.autograd.grad(value, (hidden, weight)) for value in (loss, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.01, atol=0.01 * float(theirs.abs().max()))


@pytest.mark.usefixtures("on_a_gpu")
def test_a_graph_serves_any_number_of_targets_of_as_many_chunks() -> None:
    graphs: list[Any] = []
    function, weight = compiled(cross_entropy, graphs), drawn(V, D, seed=1)
    for n in (26, 25, 20, 14):
        hidden = drawn(n, D)
        loss, expected = (f(hidden, weight, None, some_labels(n), 0.0, None) for f in (function, plain))
        assert max(errors(loss, expected, (hidden, weight))) < 1e-5
    assert len(graphs) == 2  # the first one is made for 26 targets


def test_no_tensor_has_the_logits_of_a_batch_of_gpt2_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 x 1,024 targets of a vocabulary of 50,304, without data, in training and in evaluation."""
    for module in (fused, _token_loss):
        monkeypatch.setattr(module, "chunks_on", lambda device, *sizes: target_chunks(*sizes))
    settings = settings_of("models", "decoder")(d_model=768, n_layers=1, n_heads=12, bias=True)
    with FakeTensorMode():
        task = TokenLoss(settings.build(50304, 1024), "loss")  # type: ignore[attr-defined]
        ids = torch.zeros(16, 1024, dtype=torch.long)
        for training in (True, False):
            with Largest() as largest, torch.set_grad_enabled(training), torch.autocast("cpu", torch.bfloat16):
                loss = task.train(training)(Batch(Tokens(ids), ids.flatten())).parts["loss"]
                if training:
                    loss.backward()
            assert 16384 * 50304 // 5 < largest.elements <= fused.LARGE_CHUNK


@pytest.mark.parametrize("copies", [False, True])
def test_evaluation_in_chunks_is_that_of_all_targets_at_once(copies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"copy_attention": True} if copies else {}
    model = tiny_model(
        settings_of("models", "encoder_decoder" if copies else "decoder")(d_model=16, n_layers=1, n_heads=2, **more)
    )
    task, ids = TokenLoss(model, "loss").eval(), random_ids()
    batch = Batch(Tokens(ids), random_ids(seed=5).flatten(), None, Tokens(random_ids(seed=6)) if copies else None)
    with torch.no_grad():
        whole = task(batch)
        vocabulary_size = model.head.linear.out_features  # type: ignore[union-attr]
        monkeypatch.setattr(fused, "LARGE_CHUNK", 4 * vocabulary_size)  # type: ignore[operator]
        chunked = task(batch)
    torch.testing.assert_close(chunked.parts, whole.parts)
    assert chunked.metrics["accuracy"] == whole.metrics["accuracy"]
