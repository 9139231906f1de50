"""Positions: cosines and kernels by brute force and by known values, and the rows that an optimizer never touched."""

import math

import pytest
import torch
from test_models import CONTEXT, model_of, some_ids

from mini_tf.inspection._modules import MAX_MAP, PositionAnalysis, analyze_positions, encoding_of
from mini_tf.inspection.positions import never_trained
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.optimizers import adamw
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.training import optimizer


def model_with(positions: str, context: int = CONTEXT, d_model: int = 8, n_heads: int = 2, **settings: object) -> Model:
    position = settings_of("positions", positions)(**settings)
    model = settings_of("models", "encoder")(
        d_model=d_model, n_layers=1, n_heads=n_heads, positions=position, init_std=0.4
    )
    torch.manual_seed(0)
    return model.build(20, context).double().eval()  # type: ignore[attr-defined, no-any-return]


def analyzed(model: Model) -> PositionAnalysis:
    """Of its only stack."""
    encoding = encoding_of(model, model.stacks()[0])
    assert encoding is not None
    return analyze_positions(model, encoding)


@pytest.mark.parametrize("kind", listing("positions"))
def test_a_kind_is_looked_at_where_it_attaches(kind: str) -> None:
    model, applies_to = model_with(kind), settings_of("positions", kind).APPLIES_TO  # type: ignore[attr-defined]
    seen, drawn = analyzed(model), "bias" in applies_to and model.embedding.position.distance_only  # type: ignore[union-attr]
    turned = hasattr(model.embedding.position, "frequencies")  # of others a kernel is not known
    assert turned or kind != "rotary"
    assert (seen.vectors is not None, seen.rotary is not None, bool(seen.biases)) == (
        "embed" in applies_to,
        turned,
        drawn,
    )


def test_similarity_and_kernel_of_learned_positions_by_brute_force() -> None:
    model, n, d = model_with("learned"), CONTEXT, 8
    table = model.embedding.position.table.weight.tolist()  # type: ignore[union-attr]

    def dot(i: int, j: int) -> float:
        return sum(a * b for a, b in zip(table[i], table[j], strict=True))

    found = analyzed(model).vectors
    assert found is not None
    assert (found.n_positions, found.positions, found.table) == (n, list(range(n)), "embedding.position.table.weight")
    rows = [[math.exp(dot(i, j) / math.sqrt(d)) for j in range(n)] for i in range(n)]
    for distance in range(n):
        far = [rows[i][j] / sum(rows[i]) for i in range(n) for j in range(n) if abs(i - j) == distance]
        assert found.kernel[distance] == pytest.approx(sum(far) / len(far), abs=1e-12)
    for i in range(n):
        for j in range(n):
            assert found.similarity[i, j].item() == pytest.approx(
                dot(i, j) / math.sqrt(dot(i, i) * dot(j, j)), abs=1e-12
            )


def test_sinusoids_are_as_alike_as_is_known_of_them() -> None:
    """At d 512 the cosine of neighbours is .973, of positions 20 apart .616; the kernel's mass within 2 positions grows
    with d.
    """
    near = {}
    for d in (32, 512):
        found = analyzed(model_with("sinusoidal", context=512, d_model=d)).vectors
        assert found is not None
        near[d] = found.kernel[0] + 2 * found.kernel[1] + 2 * found.kernel[2]
        assert (found.positions[:3], len(found.positions)) == ([0, 8, 16], MAX_MAP)
    assert near[32] < 0.1
    assert near[512] > 0.6
    found = analyzed(model_with("sinusoidal", context=60, d_model=512)).vectors
    assert found is not None
    assert [round(found.similarity[0, distance].item(), 3) for distance in (1, 2, 5, 20)] == [
        0.973,
        0.905,
        0.741,
        0.616,
    ]


def test_fourier_features_are_shown_as_their_own_part_of_the_embedding() -> None:
    """Added or concatenated: the difference that the place makes, whatever the token."""
    for combine in ("add", "concat"):
        model = model_with("fourier", combine=combine)
        found, position = analyzed(model).vectors, model.embedding.position  # type: ignore[union-attr]
        assert found is not None
        features = position.features(torch.arange(CONTEXT))  # type: ignore[union-attr, operator]
        own = features @ position.map.weight[:, -features.shape[1] :].T  # type: ignore[union-attr, operator]
        expected = torch.nn.functional.cosine_similarity(own[:, None], own[None], dim=-1)
        torch.testing.assert_close(found.similarity, expected.detach())


def test_of_a_long_table_every_few_positions_are_compared_and_the_kernel_ends_with_the_context() -> None:
    found = analyzed(model_with("learned", length=300)).vectors
    assert found is not None
    assert (found.n_positions, found.positions[:2], found.positions[-1], len(found.positions)) == (300, [0, 5], 295, 60)
    assert len(found.kernel) == CONTEXT


def test_the_rotary_kernel_is_the_mean_cosine_of_its_angles() -> None:
    rotary = analyzed(model_with("rotary", context=40, d_model=24, base=100.0)).rotary
    assert rotary is not None
    angles = [100.0 ** (-2 * i / 12) for i in range(6)]
    assert rotary.kernel == pytest.approx(
        [sum(math.cos(d * angle) for angle in angles) / 6 for d in range(40)], abs=1e-12
    )
    assert rotary.wavelengths == pytest.approx([2 * math.pi / angle for angle in angles])


def test_alibi_falls_by_each_heads_slope() -> None:
    """Slopes of 4 heads: 1/4, 1/16, 1/64, 1/256 (Press et al. 2021, section 3)."""
    biases = analyzed(model_with("alibi", n_heads=4)).biases
    assert biases == [[-slope * distance for distance in range(CONTEXT)] for slope in (1 / 4, 1 / 16, 1 / 64, 1 / 256)]
    assert str(biases[0][0]) == "0.0"


def test_rows_without_a_gradient_are_named_from_the_optimizers_state() -> None:
    model = model_of("decoder", positions="learned").float()
    moved = optimizer.build(adamw.Settings(), model)
    before = model.embedding.position.table.weight.clone()  # type: ignore[union-attr, operator]
    for step in range(3):
        model.logits(model(Tokens(some_ids(2, 9 + step))).y).square().sum().backward()
        moved.step(lr=0.01)
        moved.zero_grad()
    table = analyzed(model).vectors.table  # type: ignore[union-attr]
    rows = never_trained(moved.state_tensors(), str(table))
    same = (model.embedding.position.table.weight == before).all(dim=1)  # type: ignore[union-attr]
    assert rows == same.nonzero().flatten().tolist() == list(range(11, CONTEXT))
    assert never_trained({}, str(table)) is None
