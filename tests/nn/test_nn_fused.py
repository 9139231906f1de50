"""Operations written by hand with their own backward pass, against torch's plain ones and against finite
differences.
"""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_models import Largest
from torch import Tensor
from torch.autograd import gradcheck
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close

from mini_tf.nn.layers import attention_kernels
from mini_tf.nn.layers.attention_kernels import Kernel, attend
from mini_tf.nn.layers.cross_entropy import CHUNK, cross_entropy
from mini_tf.nn.layers.feed_forward import ACTIVATIONS, FeedForward, activate
from mini_tf.nn.layers.head import Transform
from mini_tf.nn.layers.kernels import Dropout
from mini_tf.nn.layers.norm import NORMS, build_norm, fast_norm, rms_norm
from mini_tf.nn.mixer import AttentionDims, LayerSpec
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.positions import rotary
from mini_tf.recipe.kinds import settings_of


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def gradients(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    """The answer, and its gradients for an answer weighed by random numbers."""
    answer = function(*inputs)
    weights = torch.randn(answer.shape, generator=torch.Generator().manual_seed(9), dtype=answer.dtype)
    return answer, *torch.autograd.grad(answer, inputs, weights)


def assert_same(ours: Callable[..., Tensor], plain: Callable[..., Tensor], *inputs: Tensor) -> None:
    for mine, theirs in zip(gradients(ours, *inputs), gradients(plain, *inputs), strict=True):
        assert_close(mine, theirs)


@pytest.fixture(params=["on a CPU", "for a compiler"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways through an operation; a GPU takes that of a compiler."""
    if request.param == "for a compiler":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


def plain_rms(x: Tensor, weight: Tensor, eps: float = 0.1) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rms_norm_is_its_formula_in_values_and_gradients(dtype: torch.dtype) -> None:
    x, weight = drawn(3, 5, 8, dtype=dtype), drawn(8, seed=1, dtype=dtype)
    assert_same(lambda x, w: rms_norm(x, 0.1, w), plain_rms, x, weight)
    assert_same(lambda x: rms_norm(x, 0.1), lambda x: plain_rms(x, torch.ones(8, dtype=dtype)), x)


@pytest.mark.usefixtures("path")
def test_eps_decides_where_a_vector_is_short() -> None:
    """A root mean square of 1e-3 beside an eps whose root is 1e-2."""
    x = (drawn(3, 5, 8) * 1e-3).detach().requires_grad_()
    assert_same(lambda x: rms_norm(x, 1e-4), lambda x: plain_rms(x, torch.ones(8, dtype=x.dtype), 1e-4), x)


def test_rms_norm_in_half_precision_is_rounded_once_and_has_gradients() -> None:
    """A rounding to bf16 changes a number by 2^-8 of it at most."""
    x = drawn(3, 5, 64, dtype=torch.float32).detach().bfloat16().requires_grad_()
    exact, (y, dx) = plain_rms(x.double(), torch.ones(64), 1e-5), gradients(lambda x: rms_norm(x, 1e-5), x)
    assert ((y.double() - exact).abs() <= 1.001 * 2**-8 * exact.abs()).all()
    full = x.detach().double().requires_grad_()
    _, expected = gradients(lambda x: plain_rms(x, torch.ones(64), 1e-5).to(torch.bfloat16), full)
    assert (dx.double() - expected).norm() < 1e-2 * expected.norm()


def test_rms_norm_of_a_part_of_a_wider_tensor_is_that_of_its_copy() -> None:
    wide = drawn(3, 5, 12)
    part = wide[..., 2:10].unflatten(-1, (2, 4))
    assert_same(
        lambda _: rms_norm(wide[..., 2:10].unflatten(-1, (2, 4)), 1e-5),
        lambda _: rms_norm(part.contiguous(), 1e-5),
        wide,
    )


def test_rms_norm_bears_gradients_and_inputs_of_any_strides() -> None:
    x = drawn(6, 6)
    for make in (
        lambda t: t.sum(),
        lambda t: (t.t() * torch.arange(36.0).view(6, 6)).sum(),
        lambda t: t.expand(3, 6, 6).sum(),
    ):
        mine, theirs = (
            torch.autograd.grad(make(f(x)), x)[0]
            for f in (lambda x: rms_norm(x, 0.1), lambda x: plain_rms(x, torch.ones(6)))
        )
        assert_close(mine, theirs, check_dtype=False)
        mine, theirs = (
            torch.autograd.grad(make(f(x.t())), x)[0]
            for f in (lambda x: rms_norm(x, 0.1), lambda x: plain_rms(x, torch.ones(6)))
        )
        assert_close(mine, theirs, check_dtype=False)


def test_a_norm_without_weights_has_no_parameters_and_normalises_all_the_same() -> None:
    x = drawn(3, 8)
    layer, rms = (build_norm(kind, 8, 0.1, bias=True, weight=False) for kind in ("layer", "rms"))
    assert [*layer.parameters(), *rms.parameters()] == []
    centred = x - x.mean(dim=-1, keepdim=True)
    assert_close(layer(x), plain_rms(centred, torch.ones(8)))
    assert_close(rms(x), plain_rms(x, torch.ones(8)))


def test_rms_norm_of_a_zero_vector_is_zero_with_a_finite_gradient() -> None:
    x = torch.zeros(2, 4, requires_grad=True)
    y, dx = gradients(lambda x: rms_norm(x, 1e-5), x)
    assert y.abs().max() == 0
    assert dx.isfinite().all()


FORMULAS: dict[str, Callable[[float], float]] = {
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu_tanh": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: max(x, 0.0),
    "relu2": lambda x: max(x, 0.0) ** 2,
}
GATES = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "reglu": "relu"}
"""Activations of two inputs: the formula of the first one, which is multiplied by the second one."""


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_an_activation_is_its_formula_with_gradients_and_without(kind: str) -> None:
    x = drawn(4, 6)
    if kind in GATES:
        gate = FORMULAS[GATES[kind]]
        expected = [[gate(a) * b for a, b in zip(row[:3], row[3:], strict=True)] for row in x.tolist()]
    else:
        expected = [[FORMULAS[kind](number) for number in row] for row in x.tolist()]
    given = x.tolist()
    assert_close(activate(kind, x), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
    with torch.no_grad():
        assert_close(activate(kind, x), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
    assert x.tolist() == given


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_layers_have_as_many_inputs_as_their_activation_takes_and_its_gradient_is_that_of_finite_differences(
    kind: str,
) -> None:
    torch.manual_seed(0)
    x = drawn(3, 4)
    for layer in (FeedForward(4, 6, kind, bias=True).double(), Transform(4, kind, torch.nn.LayerNorm(4)).double()):
        assert layer(x).shape == (3, 4)
        assert gradcheck(layer, x)


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("weight", [True, False])
def test_a_norm_in_few_operations_is_the_norm(kind: str, weight: bool) -> None:
    norm, x = build_norm(kind, 6, 0.1, bias=True, weight=weight).double(), drawn(3, 6).detach()
    for i, p in enumerate(norm.parameters()):
        torch.nn.init.normal_(p, generator=torch.Generator().manual_seed(i))
    assert_close(fast_norm(norm, x[0])(x), norm(x))


@pytest.mark.usefixtures("path")
def test_rotary_multiplies_each_pair_by_a_matrix_of_rotation() -> None:
    """Pair i is made of the dimensions i and i + K/2, and turns by base^(-2i/K) a token; positions are any, row by
    row.
    """
    rotary = settings_of("positions", "rotary")(base=50.0).build(12, 2, 6, 16)  # type: ignore[attr-defined]
    positions = torch.tensor([[0, 1, 2, 100], [7, 0, 1, 3]])
    x, token_positions = drawn(2, 4, 3, 6), TokenPositions(4, positions=positions)
    turned = rotary.rotate(x, token_positions)
    assert turned.dtype == torch.float64
    for row, place in product(range(2), range(4)):
        for i in range(3):
            angle = positions[row, place].item() * 50.0 ** (-2 * i / 6)
            matrix = torch.tensor(
                [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64
            )
            pair = torch.stack([x[row, place, :, i], x[row, place, :, i + 3]])
            assert_close(turned[row, place, :, 2 * i : 2 * i + 2].t(), matrix @ pair, rtol=0, atol=1e-12)


def test_positions_that_were_met_in_single_precision_are_turned_in_double_as_if_they_were_new() -> None:
    rotary = settings_of("positions", "rotary")().build(16, 2, 8, 16)  # type: ignore[attr-defined]
    x, token_positions = drawn(1, 5, 3, 8), TokenPositions(5, 1000)
    rotary.rotate(x.float(), token_positions)
    assert_close(rotary.rotate(x, token_positions), rotary.rotate(x, TokenPositions(5, 1000)), rtol=0, atol=1e-12)


class Made(TorchFunctionMode):
    """Remembers which operations were done, and whether any made complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.complex = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.names.append(func.__name__)
        self.complex |= isinstance(out, Tensor) and out.is_complex()
        return out


@pytest.mark.parametrize("compiling", [False, True])
def test_layers_turn_by_the_same_angles_as_complex_numbers_where_there_is_no_compiler(
    compiling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler knows no complex numbers. Angles are made once where the input is, and anew for other positions."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
    rotary = settings_of("positions", "rotary")().build(16, 2, 8, 16)  # type: ignore[attr-defined]
    x, token_positions = drawn(2, 5, 3, 8), TokenPositions(5)
    with Made() as made:
        turned = [rotary.rotate(x, token_positions) for _ in range(3)]
    assert made.complex is not compiling
    assert (made.names.count("cos"), made.names.count("cpu")) == (1, 0)
    assert torch.equal(turned[0], turned[2])
    assert not torch.equal(rotary.rotate(x, TokenPositions(5, 1)), turned[0])


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5, CHUNK // 1000 + 7])
def test_cross_entropy_from_hidden_vectors_is_the_one_from_scores(bias: bool, rows: int) -> None:
    hidden, weight, shift = drawn(rows, 4), drawn(1000, 4, seed=1), drawn(1000, seed=2)
    labels = torch.randint(1000, (rows,), generator=torch.Generator().manual_seed(3))

    def plain(hidden: Tensor, weight: Tensor, *shift: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(hidden, weight, *shift), labels, reduction="sum")

    inputs = (hidden, weight, shift) if bias else (hidden, weight)
    assert_same(lambda h, w, b=None: cross_entropy(h, w, b, labels), plain, *inputs)


def test_cross_entropy_never_has_the_scores_of_all_rows_at_once() -> None:
    hidden, weight = drawn(3000, 4, dtype=torch.float32), drawn(1000, 4, seed=1, dtype=torch.float32)
    with Largest() as largest:
        cross_entropy(hidden, weight, None, torch.zeros(3000, dtype=torch.long)).backward()
    assert CHUNK / 2 < largest.elements <= CHUNK


@pytest.mark.usefixtures("path")
def test_dropout_drops_its_share_keeps_the_mean_and_scales_gradients_by_the_same_mask() -> None:
    dropout, x = Dropout(0.1), torch.ones(1001, 999, requires_grad=True)
    torch.manual_seed(0)
    y = dropout(x)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.9])
    share = (y == 0).float().mean().item()
    assert share == pytest.approx(0.1, abs=5 * (0.1 * 0.9 / y.numel()) ** 0.5)
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(dx, y.detach())
    torch.manual_seed(0)
    assert torch.equal(dropout(x), y)
    assert not torch.equal(dropout(x), y)


def test_nearly_everything_can_be_dropped() -> None:
    assert (Dropout(0.999999)(torch.ones(100_000)) == 0).float().mean() > 0.999


def test_neighbours_are_dropped_independently_of_each_other() -> None:
    torch.manual_seed(1)
    dropped = (Dropout(0.5)(torch.ones(400_000)) == 0).float() - 0.5
    for apart in range(1, 9):
        correlation = (dropped[apart:] * dropped[:-apart]).mean().item() * 4
        assert abs(correlation) < 5 / 400_000**0.5


@pytest.mark.parametrize("n", range(10))
def test_any_number_of_elements_can_be_dropped(n: int) -> None:
    """Though one draw decides on four of them."""
    dropped = torch.stack([Dropout(0.5)(torch.ones(n)) for _ in range(100)])
    assert dropped.shape == (100, n)
    zero, doubled = dropped == 0, dropped == 2
    assert (zero | doubled).all()
    assert (zero.any(dim=0) & doubled.any(dim=0)).all()


def test_dropout_is_nothing_in_evaluation_or_at_rate_0() -> None:
    x = torch.ones(5)
    assert Dropout(0.0)(x) is x
    assert Dropout(0.5).eval()(x) is x


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("autocast", [False, True])
def test_scores_in_half_precision_are_judged_in_full(autocast: bool, smoothing: float) -> None:
    """Hidden vectors are rows of the identity, so that scores are numbers of the table, however products are summed."""
    table = drawn(300, 32, seed=1, dtype=torch.float32).detach().bfloat16()
    labels = torch.randint(300, (32,), generator=torch.Generator().manual_seed(2))
    expected = F.cross_entropy(table.double().t(), labels, reduction="sum", label_smoothing=smoothing)
    hidden, weight = (
        t.to(torch.float32 if autocast else torch.bfloat16).requires_grad_() for t in (torch.eye(32), table)
    )
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = cross_entropy(hidden, weight, None, labels, smoothing)
        with torch.no_grad():
            untrained = cross_entropy(hidden, weight, None, labels, smoothing)
    assert [loss.item(), untrained.item()] == pytest.approx([expected.item()] * 2, rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [50, CHUNK // 300 + 50])
def test_cross_entropy_in_half_precision_is_that_of_full_within_its_digits(rows: int, smoothing: float) -> None:
    """Under bf16 autocast, values and gradients of both factors, in a chunk and in two; a bf16 product has about 3
    digits.
    """
    hidden, weight = drawn(rows, 32, dtype=torch.float32), drawn(300, 32, seed=1, dtype=torch.float32)
    labels = torch.randint(300, (rows,), generator=torch.Generator().manual_seed(2))
    expected = F.cross_entropy(hidden @ weight.t(), labels, reduction="sum", label_smoothing=smoothing)
    with torch.autocast("cpu", torch.bfloat16):
        loss = cross_entropy(hidden, weight, None, labels, smoothing)
    assert loss.dtype == torch.float32
    assert_close(loss, expected, rtol=1e-2, atol=0)
    for mine, theirs in zip(
        torch.autograd.grad(loss, (hidden, weight)), torch.autograd.grad(expected, (hidden, weight)), strict=True
    ):
        assert (mine - theirs).norm() < 2e-2 * theirs.norm()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("positions", [None, "alibi", "t5"])
def test_attention_in_blocks_of_queries_is_attention_at_once(
    positions: str | None, causal: bool, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In values and gradients, those of a learned bias too; a window of 3 makes a mask necessary."""
    torch.manual_seed(0)
    position = None if positions is None else settings_of("positions", positions)().build(8, 4, 2, 16).double()  # type: ignore[attr-defined]
    token_positions = (
        TokenPositions.packed(torch.tensor([[1] * 11, [0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0]]))
        if packed
        else TokenPositions(11)
    )
    q, k, v = drawn(2, 4, 11, 2), drawn(2, 2, 11, 2, seed=1), drawn(2, 2, 11, 3, seed=2)
    inputs = (q, k, v, *(() if position is None else position.parameters()))

    def read(q: Tensor, k: Tensor, v: Tensor, *learned: Tensor) -> Tensor:
        return attend(q, k, v, Visibility(causal, token_positions, token_positions, 3), 0.7, position)

    whole = gradients(read, *inputs)
    monkeypatch.setattr("mini_tf.nn.layers.attention_kernels.MASK_ELEMENTS", 2 * 4 * 11 * 3)
    for mine, theirs in zip(gradients(read, *inputs), whole, strict=True):
        assert_close(mine, theirs, rtol=0, atol=1e-12)
    with torch.no_grad(), Largest() as largest:
        in_blocks = read(*inputs)
    assert_close(in_blocks, whole[0], rtol=0, atol=1e-12)
    assert positions == "t5" or largest.elements <= 2 * 4 * 11 * 3  # the table of biases of all distances is larger


def test_a_gpu_computes_larger_masks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a CPU does as a GPU does."""
    q, k, v = drawn(2, 4, 11, 2), drawn(2, 4, 11, 2, seed=1), drawn(2, 4, 11, 2, seed=2)
    calls = list[int]()

    def counted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, **_: Any) -> Tensor:
        calls.append(q.shape[2])
        return q

    visibility = Visibility(True, TokenPositions(11), TokenPositions(11), 3)
    monkeypatch.setattr(attention_kernels, "MASK_ELEMENTS", 11 * 4)
    for most, blocks in ((11 * 4, [4, 4, 3]), (11 * 5, [5, 5, 1]), (11 * 11, [11])):
        monkeypatch.setattr(attention_kernels, "MORE_ELEMENTS", {"cpu": most})
        with torch.no_grad():
            attend(q, k, v, visibility, 0.7, kernel=Kernel(counted))
        assert calls == blocks
        calls.clear()


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 0.02)]
)
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_rotations_in_complex_and_in_real_numbers_are_equal(
    share: float, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values and gradients; real numbers are those of devices without complex ones."""
    x, up, results = drawn(2, 9, 3, 8).detach().to(dtype), drawn(2, 9, 3, 8, seed=1).detach().to(dtype), []
    positions = TokenPositions.packed(torch.tensor([[1] * 9, [1, 1, 1, 2, 2, 2, 2, 0, 0]]))
    for devices in ({"cpu"}, set[str]()):
        monkeypatch.setattr(rotary, "COMPLEX", devices)
        leaf = x.clone().requires_grad_()
        rotated = rotary.Settings(base=50.0, share=share).build(24, 3, 8, 16).rotate(leaf, positions)
        assert rotated.dtype == dtype
        results.append((rotated, *torch.autograd.grad(rotated, leaf, up)))
    assert_close(*results, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("d_k", "d_v"), [(2, 7), (2, 4), (7, 2), (4, 4)])
def test_keys_and_values_may_be_of_any_two_widths(d_k: int, d_v: int) -> None:
    """Read by the formula, with repeat_kv keys and with a mask or without."""
    q, k, v = drawn(2, 4, 5, d_k), drawn(2, 2, 5, d_k, seed=1), drawn(2, 2, 5, d_v, seed=2)
    for window in (None, 1):
        keep = torch.ones(5, 5).tril().bool() if window is None else torch.ones(5, 5).tril().triu(-1).bool()

        def plain(q: Tensor, k: Tensor, v: Tensor, keep: Tensor = keep) -> Tensor:
            k, v = (torch.stack([t[:, head // 2] for head in range(4)], dim=1) for t in (k, v))
            return (q @ k.transpose(-1, -2) * 0.3).masked_fill(~keep, -torch.inf).softmax(-1) @ v

        view = Visibility(True, TokenPositions(5), TokenPositions(5), window)
        assert_same(lambda q, k, v, view=view: attend(q, k, v, view, 0.3), plain, q, k, v)


def test_attention_weights_in_half_precision_are_dropped_too() -> None:
    """Values that are rows of the identity give the weights themselves."""
    q, k = (drawn(1, 1, 8, 8, seed=seed).detach().bfloat16().requires_grad_() for seed in range(2))
    v, view = torch.eye(8).bfloat16()[None, None], Visibility(False, TokenPositions(8), TokenPositions(8))
    whole, some = (attend(q, k, v, view, 0.3, None, rate) for rate in (0.0, 0.5))
    kept = some != 0
    assert 0 < kept.sum() < 64
    assert_close(some[kept], 2 * whole[kept], rtol=0.02, atol=0.0)


def test_attention_in_half_precision_bears_a_bias() -> None:
    alibi, view = (
        settings_of("positions", "alibi")().build(8, 2, 4, 16),
        Visibility(True, TokenPositions(5), TokenPositions(5)),
    )  # type: ignore[attr-defined]
    q, k, v = (drawn(1, 2, 5, 4, seed=seed).detach().bfloat16().requires_grad_() for seed in range(3))
    read = attend(q, k, v, view, 0.3, alibi)
    assert_close(read.double(), attend(q.double(), k.double(), v.double(), view, 0.3, alibi), rtol=0, atol=2e-2)


def test_attention_in_half_precision_has_the_gradients_of_full_within_its_digits() -> None:
    """On a CPU it is read in fp32 where gradients are wanted; with a mask and a row that sees nothing."""
    q, k, v = (
        drawn(2, 3, 5, 8, seed=seed, dtype=torch.float32).detach().bfloat16().requires_grad_() for seed in range(3)
    )
    segments = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    token_positions = TokenPositions.packed(segments)
    full = [t.detach().double().requires_grad_() for t in (q, k, v)]
    read = attend(q, k, v, Visibility(True, token_positions, token_positions), 0.3)
    keep = (
        torch.ones(5, 5, dtype=torch.bool).tril()
        & (segments[:, None, None] == segments[:, None, :, None])
        & (segments[:, None, None] != 0)
    )
    scores = (full[0] @ full[1].transpose(-1, -2) * 0.3).masked_fill(~keep, -1e30)
    expected = (scores.softmax(-1) * keep) @ full[2]
    assert read.dtype == torch.bfloat16
    assert_close(read.double(), expected, rtol=0, atol=2e-2)
    for mine, theirs in zip(
        torch.autograd.grad(read.float().square().sum(), (q, k, v)),
        torch.autograd.grad(expected.square().sum(), full),
        strict=True,
    ):
        assert (mine.double() - theirs).norm() < 2e-2 * theirs.norm()


@pytest.mark.parametrize(("causal", "n_queries"), [(True, 6), (False, 7), (False, 3)])
def test_attention_in_half_precision_without_a_mask_is_its_formula(causal: bool, n_queries: int) -> None:
    """Values and gradients, of strided inputs as of a projection; longer rows are left to the fused kernel."""
    q, k, v = (
        drawn(2, n, 3, 8, seed=n, dtype=torch.float32).detach().bfloat16().transpose(1, 2).requires_grad_()
        for n in (n_queries, 6, 6)
    )
    full = [t.detach().double().requires_grad_() for t in (q, k, v)]
    scores = full[0] @ full[1].transpose(-1, -2) * 0.7
    keep = torch.ones(n_queries, 6).tril().bool() if causal else torch.ones(n_queries, 6).bool()
    expected = scores.masked_fill(~keep, -torch.inf).softmax(-1) @ full[2]
    up = drawn(*expected.shape, seed=9, dtype=torch.float32).detach().bfloat16()
    results = []
    longer = max(n_queries, 6)
    for longest in (longer, longer - 1):
        with pytest.MonkeyPatch.context() as patch, Made() as made:
            patch.setattr(attention_kernels, "HALF_LENGTH", longest)
            visibility = Visibility(causal, TokenPositions(n_queries), TokenPositions(6))
            attended = attend(q, k, v, visibility, 0.7)
        assert ("scaled_dot_product_attention" in made.names) is (longest < longer)
        results.append((attended, *torch.autograd.grad(attended, (q, k, v), up)))
    for unfused, fused, exact in zip(
        *results, (expected, *torch.autograd.grad(expected, full, up.double())), strict=True
    ):
        assert unfused.dtype == torch.bfloat16
        assert (unfused.double() - exact).norm() < 2e-2 * exact.norm()
        assert (fused.double() - exact).norm() < 2e-2 * exact.norm()


def test_uniform_weights_are_exported_without_a_scale_of_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    q, k, v = (drawn(1, 2, n, 4, seed=n) for n in (3, 5, 5))
    read = attend(q, k, v, Visibility(False, TokenPositions(3), TokenPositions(5)), 0.0)
    assert_close(read, v.mean(dim=2, keepdim=True).expand_as(read))


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize(
    "positions", [{"kind": "rotary", "base": 50.0}, {"kind": "rotary", "share": 0.5}, {"kind": "none"}]
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 2e-2)])
def test_heads_in_one_function_are_those_of_single_operations(
    positions: dict[str, Any], qk_norm: bool, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries, keys and values of grouped heads, and the gradients of all inputs, of packed documents."""
    word, settings = positions["kind"], {name: value for name, value in positions.items() if name != "kind"}
    encoding = settings_of("positions", word)(**settings).build(24, 4, 6, 16)  # type: ignore[attr-defined]
    torch.manual_seed(0)
    dims = AttentionDims(d_model=24, d_memory=24, n_heads=4, n_kv_heads=2, d_k=6, d_v=4)
    mixer = settings_of("attention", "softmax")(qk_norm=qk_norm).build(dims, LayerSpec(0, 1, "self", encoding, True))  # type: ignore[attr-defined]
    mixer, x = mixer.to(dtype), drawn(2, 9, 24).detach().to(dtype).requires_grad_()
    token_positions = TokenPositions.packed(torch.tensor([[1] * 9, [1, 1, 1, 2, 2, 2, 2, 0, 0]]))
    visibility = Visibility(True, token_positions, token_positions)
    sides = []
    for devices in ({"cpu"}, set[str]()):
        monkeypatch.setattr(attention_kernels, "ROTATED_AT_ONCE", devices)
        heads = mixer.project(x, x, visibility)
        ups = [drawn(*part.shape, seed=n).detach().to(dtype) for n, part in enumerate(heads)]
        sides.append((*heads, *torch.autograd.grad(heads, (x, *mixer.qkv.parameters()), ups)))
    for fused, single in zip(*sides, strict=True):
        assert fused.dtype == dtype
        assert (fused - single).double().norm() <= tolerance * single.double().norm()


def test_heads_in_one_function_pass_gradcheck() -> None:
    rotations = torch.polar(torch.ones(1, 3, 1, 2).double(), drawn(1, 3, 1, 2).detach())
    for given in (rotations, 0.1), (rotations, None), (None, 0.1):
        assert gradcheck(lambda x, given=given: attention_kernels.rotated_heads(x, (2, 1, 4), *given), drawn(1, 3, 15))
