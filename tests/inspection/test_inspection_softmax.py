"""How sharp a softmax is: by brute force from queries and keys, on hand-made weights, and why scores are scaled."""

import dataclasses
import math
from pathlib import Path

import figures
import numpy as np
import pytest
import torch
from commands import trained
from test_models import model_of, some_ids
from toys import own_view, seeded

from mini_tf.inspection import softmax
from mini_tf.inspection._capture import Capture, CapturedAttention, SoftmaxStatistics, capture, softmax_statistics
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens

NUMBERS = ("entropy", "normalised", "largest", "saturated", "gradient", "logit_range")


def of_weights(weights: torch.Tensor, keep: torch.Tensor | None = None, lead: int = 0) -> list[SoftmaxStatistics]:
    """The sharpness of weights (H, L, M); `keep` (L, M) None = everybody sees everything."""
    keep = torch.ones(weights.shape[1], weights.shape[2] - lead, dtype=torch.bool) if keep is None else keep
    attention = CapturedAttention("encoder.self", 0, weights[None], lead, keep[None])
    return softmax_statistics([Capture([attention], [], 0.0)])


@pytest.mark.parametrize(
    ("kind", "mixer", "reach"), [("encoder", "softmax", 99), ("decoder", "softmax", 99), ("decoder", "window", 3)]
)
def test_every_number_follows_from_queries_and_keys(kind: str, mixer: str, reach: int) -> None:
    model = model_of(kind, (mixer,), "learned", n_layers=1, n_kv_heads=4)
    texts = [some_ids(1, 9), some_ids(1, 6, seed=2)]
    heads = softmax_statistics(capture(model, Tokens(ids)) for ids in texts)
    rows: dict[int, list[list[float]]] = {head: [] for head in range(4)}
    for ids in texts:
        step = model.stack.layers[0].self_attn  # type: ignore[union-attr, index]
        x = step.part_input(model.embedding(Tokens(ids), TokenPositions(ids.shape[1])))  # type: ignore[union-attr, operator]
        qkv = (x @ step.part.qkv.weight.T)[0].tolist()  # type: ignore[union-attr, operator]
        for head in range(4):
            for i in range(len(qkv)):
                seen = [j for j in range(len(qkv)) if abs(i - j) <= reach and (kind == "encoder" or j <= i)]
                q = qkv[i][6 * head : 6 * head + 6]
                keys = [qkv[j][24 + 6 * head : 24 + 6 * head + 6] for j in seen]
                scores = [sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(6) for k in keys]
                p = [math.exp(s) / sum(map(math.exp, scores)) for s in scores]
                entropy = -sum(one * math.log(one) for one in p)
                if len(seen) > 1:
                    gradient, span = sum(one * (1 - one) for one in p), max(scores) - min(scores)
                    rows[head].append(
                        [entropy, entropy / math.log(len(seen)), max(p), float(max(p) > 0.99), gradient, span]
                    )
    for head, measured in enumerate(heads):
        columns = list(zip(*rows[head], strict=True))
        means = [sum(column) / len(column) for column in columns[:5]]
        assert (measured.kind, measured.layer, measured.head, measured.rows) == (
            f"{kind}.self",
            0,
            head,
            len(rows[head]),
        )
        assert [getattr(measured, name) for name in NUMBERS] == pytest.approx([*means, max(columns[5])], abs=1e-9)
        assert not measured.underflow


def test_even_weights_and_a_single_one_are_the_two_ends() -> None:
    even, single = of_weights(torch.stack([torch.full((5, 5), 0.2), torch.eye(5)]))
    assert [getattr(even, name) for name in NUMBERS] == pytest.approx([math.log(5), 1, 0.2, 0, 0.8, 0], abs=1e-6)
    assert [getattr(single, name) for name in NUMBERS] == pytest.approx([0, 0, 1, 1, 0, 0], abs=1e-6)
    assert (even.underflow, single.underflow) == (False, True)


def test_unscaled_wide_products_saturate_and_scaled_ones_do_not() -> None:
    """Entropy, largest weight and gradient of queries and keys of unit variance, as measured once with other draws."""
    known = {4: ((2.72, 0.32, 0.818), (3.71, 0.11, 0.958)), 64: ((0.58, 0.79, 0.294), (3.66, 0.11, 0.959))}
    for d_k, expected in known.items():
        scores = seeded(16, 64, d_k) @ seeded(16, 64, d_k, seed=2).transpose(1, 2)
        unscaled, scaled = ([*of_weights((scores * scale).softmax(dim=-1))] for scale in (1.0, d_k**-0.5))
        for heads, numbers in zip((unscaled, scaled), expected, strict=True):
            means = [sum(getattr(head, name) for head in heads) / 16 for name in ("entropy", "largest", "gradient")]
            assert means == pytest.approx(numbers, abs=0.12)
    assert sum(head.saturated for head in unscaled) / 16 > 0.15
    assert sum(head.saturated for head in scaled) == 0


def test_rows_that_see_one_token_do_not_count_and_without_others_nothing_is_known() -> None:
    causal = own_view(True, TokenPositions(4)).mask(torch.device("cpu"))[0]
    [head] = of_weights((torch.eye(4) * 9).masked_fill(~causal, -torch.inf).softmax(dim=-1)[None], causal)
    assert head.rows == 3
    [alone] = of_weights(torch.ones(1, 1, 1))
    assert alone.rows == 0
    assert all(math.isnan(getattr(alone, name)) for name in NUMBERS)


def test_a_weight_too_small_for_its_type_makes_the_range_a_lower_bound() -> None:
    scores = torch.tensor([[[0.0, -50.0, -200.0]]])
    exact, bounded = of_weights(scores.double().softmax(dim=-1))[0], of_weights(scores.softmax(dim=-1))[0]
    assert (exact.underflow, bounded.underflow) == (False, True)
    assert exact.logit_range == pytest.approx(200)
    assert bounded.logit_range == pytest.approx(50, rel=1e-3)


def test_columns_that_belong_to_no_token_are_seen_by_all() -> None:
    causal = own_view(True, TokenPositions(2)).mask(torch.device("cpu"))[0]
    [head] = of_weights(torch.tensor([[[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]]), causal, lead=1)
    assert head.rows == 2
    assert head.normalised == pytest.approx((1 + (0.5 * math.log(4) + 0.5 * math.log(2)) / math.log(3)) / 2)


def test_texts_count_by_their_rows() -> None:
    """The mean is over all rows, not over the means of texts."""
    model = model_of("encoder", ("softmax",), "rotary")
    captures = [capture(model, Tokens(some_ids(1, length))) for length in (3, 11)]
    both, one, other = softmax_statistics(captures), softmax_statistics(captures[:1]), softmax_statistics(captures[1:])
    assert [dataclasses.astuple(head)[:3] for head in both] == [
        ("encoder.self", layer, head) for layer in range(3) for head in range(4)
    ]
    for all_, a, b in zip(both, one, other, strict=True):
        assert all_.entropy == pytest.approx((3 * a.entropy + 11 * b.entropy) / 14)
        assert all_.logit_range == max(a.logit_range, b.logit_range)


def test_weights_that_do_not_sum_to_1_are_scaled_and_signed_ones_have_no_entropy() -> None:
    for weights, expected in (
        ([0.4, 0.4, 0.4], 1.0),
        ([0.2, 0.2, 0.0], math.log(2) / math.log(3)),
        ([0.7, 0.7, -0.4], math.nan),
    ):
        [head] = of_weights(torch.tensor([[weights]]))
        assert head.normalised == pytest.approx(expected, nan_ok=True)
    assert math.isnan(softmax._row(head)[-1]), "the table leaves a range that is not a number blank"


def test_a_picture_has_a_map_of_each_statistic_with_a_row_per_layer_of_each_kind() -> None:
    two, one = torch.stack([torch.full((5, 5), 0.2), torch.eye(5)]), torch.eye(5)[None]
    mask = torch.ones(1, 5, 5, dtype=torch.bool)
    captured = [
        CapturedAttention("encoder.self", 0, two[None], 0, mask), CapturedAttention("cross", 0, one[None], 0, mask),
        CapturedAttention("encoder.self", 1, two[None], 0, mask),
    ]  # fmt: skip
    panels = [*softmax._panels(softmax_statistics([Capture(captured, [], 0.0)]))]
    names = ["normalized entropy", "largest weight", "saturated rows", "gradient: sum p(1-p)"]
    assert [panel.title for panel in panels] == names
    assert [(panel.rows, panel.columns) for panel in panels] == [
        (["encoder L0", "encoder L1", "cross L0"], ["H0", "H1"])
    ] * 4
    for panel, (even, single) in zip(panels, [(1, 0), (0.2, 1), (0, 1), (0.8, 0)], strict=True):
        expected = np.array([[even, single], [even, single], [single, math.nan]])
        assert panel.values == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_a_picture_has_its_text_or_the_number_of_texts(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "train.steps=1")
    for texts, shown in ((["the cat"], "the cat"), (["the cat", "a bear"], "Means over 2 texts.")):
        _, figure = figures.pictured("inspect", "softmax", run, *texts)
        assert figures.texts(figure)[1] == shown
