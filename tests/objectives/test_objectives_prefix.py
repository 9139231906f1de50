"""Prefix language modelling: loss and targets against a formula, the drawn lengths, what is seen on every path, and
prompts that are prefixes.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from commands import TINY, minitf, refused, tiny_model, trained
from torch import Tensor
from toys import present

from mini_tf.data.batch import Batch, Rows
from mini_tf.inspection._attention_maps import analyze_attention
from mini_tf.inspection._heads import role_scores
from mini_tf.nn.model import Model
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import Objective
from mini_tf.recipe.kinds import settings_of
from mini_tf.testing.tiny.objectives import VOCABULARY
from mini_tf.trained.opening import open_trained

V = VOCABULARY.size
MIXERS = present("attention", "softmax", "window", "linear", "simple")
CHI_SQUARE_9 = 27.88  # 99.9% quantile
SEGMENTS = np.array([[1] * 5 + [2] * 7 + [0] * 2, [1] * 13 + [2], [1] * 2 + [2] * 11 + [3]])


def objective_of(*rates: float) -> Objective:
    given = {"prefix_rate": rates} if rates else {}
    objective: Objective = settings_of("objectives", "prefix")(**given).build(VOCABULARY)  # type: ignore[attr-defined]
    return objective


def rows(n: int = 3, length: int = 14, segments: np.ndarray | None = None, first_key: int = 0) -> Rows:
    ids = np.random.default_rng(0).integers(4, V, (n, length))
    return Rows(ids, np.arange(first_key, first_key + n, dtype=np.uint64), segments)


def model_of(**given: Any) -> Model:
    torch.manual_seed(0)
    small = {"d_model": 16, "n_layers": 2, "n_heads": 2, "init_std": 0.4}
    return settings_of("models", "decoder")(**small | given).build(V, 32).double()  # type: ignore[attr-defined, no-any-return]


def prefix_lengths(batch: Batch) -> list[int]:
    """Of rows with one document: the tokens before the first target."""
    length = batch.inputs.ids.shape[1]
    at = torch.arange(batch.inputs.ids.numel()) if batch.target_positions is None else batch.target_positions
    return [int(at[at // length == row].min()) - row * length + 1 for row in range(len(batch.inputs.ids))]


def test_every_length_of_a_prefix_is_equally_probable_and_leaves_a_target() -> None:
    lengths = prefix_lengths(objective_of().prepare(rows(1000, 11)))
    counts = np.bincount(lengths, minlength=11)
    assert set(lengths) == {*range(1, 11)}
    assert float(((counts[1:] - 100) ** 2 / 100).sum()) < CHI_SQUARE_9


@pytest.mark.parametrize(
    ("rates", "expected"), [((0.2, 0.5), {4, 5, 6, 7, 8, 9, 10}), ((0.5, 0.5), {10}), ((0, 0), {1}), ((1, 1), {19})]
)
def test_the_length_of_a_prefix_is_a_share_of_the_document(rates: tuple[float, float], expected: set[int]) -> None:
    assert set(prefix_lengths(objective_of(*rates).prepare(rows(200, 20)))) == expected


def mask_by_hand(segments: list[int], orders: list[int]) -> Tensor:
    pairs = [
        [a == b != 0 and i >= j for b, j in zip(segments, orders, strict=True)]
        for a, i in zip(segments, orders, strict=True)
    ]
    return torch.tensor(pairs)


@pytest.mark.parametrize("segments", [None, SEGMENTS], ids=["whole", "documents"])
@pytest.mark.parametrize("attention", MIXERS)
def test_the_loss_is_that_of_each_token_behind_its_prefix(attention: str, segments: np.ndarray | None) -> None:
    """Each target alone: the tokens up to it, the prefix seen as a whole, nothing after it or of other documents."""
    model = model_of(attention=attention, positions="learned").eval()
    objective = objective_of()
    given = rows(segments=segments, first_key=7)
    batch = objective.prepare(given)
    loss = objective.task(model)(batch).parts["prefix"]
    positions = batch.inputs.token_positions
    assert positions is not None
    assert positions.orders is not None
    expected, n = torch.zeros((), dtype=torch.float64), 0
    length = batch.inputs.ids.shape[1]
    at = torch.arange(3 * length) if batch.target_positions is None else batch.target_positions
    for row in range(3):
        own = np.ones(length + 1, int) if segments is None else segments[row]
        for number in sorted({*own.tolist()} - {0}):
            index = np.flatnonzero(own[:-1] == number)
            if not len(index):
                continue
            prefix = int(positions.orders[row, index[0]]) + 1
            targets = [i for i in index if i - index[0] >= prefix - 1 and own[i + 1] != 0]
            assert [*(row * length + i for i in targets)] == [one for one in at.tolist() if one - row * length in index]
            for i in targets:
                ids = torch.from_numpy(given.ids[row, index[0] : i + 1])[None]
                seen = TokenPositions(len(ids[0])).with_prefix(torch.tensor([prefix]))
                logits = model.logits(model(Tokens(ids, seen)).y)[0, -1]
                expected, n = expected + F.cross_entropy(logits, torch.tensor(int(given.ids[row, i + 1]))), n + 1
    assert n == len(batch.labels) == batch.counts["prefix"]
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("attention", MIXERS)
@pytest.mark.parametrize("way", ["explicit", "forward"])
def test_no_token_behind_the_prefix_is_seen_from_before_it(attention: str, way: str) -> None:
    model, prefix = model_of(attention=attention, positions="learned", n_layers=1).eval(), 5
    ids = torch.from_numpy(rows(1).ids)
    positions = TokenPositions(14).with_prefix(torch.tensor([prefix]))
    orders = [prefix - 1] * prefix + [*range(prefix, 14)]
    expected = mask_by_hand([1] * 14, orders)
    if way == "explicit":
        from mini_tf.inspection._capture import capture

        [captured] = capture(model, Tokens(ids, positions)).attention
        seen = (captured.weights[0] != 0).any(0)
        assert torch.equal(seen, expected)
        return
    before = model(Tokens(ids, positions)).y[0]
    for changed in range(14):
        other = ids.clone()
        other[0, changed] = 4 if int(ids[0, changed]) != 4 else 5
        moved = (model(Tokens(other, positions)).y[0] != before).any(-1)
        assert not (moved & ~expected[:, changed]).any()
        assert bool(moved[changed])
    assert not torch.equal(model(Tokens(ids)).y[0, 0], before[0])  # the first token sees the whole prefix


FEW = ("train.steps=3", "train.context=16", "eval.every_steps=3", "log.every_steps=1")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(
        tmp_path_factory.mktemp("prefix") / "run", tiny_model("decoder"), "objective=prefix", "data.pack=docs", *FEW
    )


def test_a_prompt_to_a_prefix_language_model_is_a_prefix(run: Path) -> None:
    done = minitf("generate", run, "The fox was", "--temperature", "0", "--max-new-tokens", "6", "--json")
    assert done.exit_code == 0, done.stderr
    model = open_trained(run, device="cpu")
    prompt = [model.tokenizer.vocabulary.separator, *map(int, model.tokenizer.encode("The fox was"))]
    seen = TokenPositions(len(prompt), orders=torch.full((1, len(prompt)), len(prompt) - 1))
    scores = [
        model.model.logits(model.model(Tokens(torch.tensor([prompt]), positions)).y)[0, -1]
        for positions in (None, seen)
    ]
    assert not torch.allclose(*scores)
    assert model.tokenizer.decode([int(scores[1].argmax())]) in json.dumps(json.loads(done.stdout)["result"])


def test_what_a_prefix_language_model_sees_is_said_and_shown(run: Path) -> None:
    done = minitf("data", "show", run)
    assert (
        "each token attends to a whole prefix and earlier tokens and itself, in its document within the row"
        in done.stdout
    )
    opened = open_trained(run, device="cpu")
    [head, *_] = analyze_attention(opened, "The fox was").heads
    assert head.visible.all()
    assert all("next" in scores for scores in role_scores(opened).values()), "roles are measured on prefixes, too"


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("model=encoder",), "prefix needs prefix attention, but encoder has bidirectional attention"),
        (("model.attention=window", "train.stream=true"), "prefix cannot be trained on a stream; use stream: false"),
        (("objective={prefix_rate: [0.5, 0.2]}",), "the smallest share must not be above the largest"),
    ],
)
def test_what_cannot_have_a_prefix_is_refused_by_name(overrides: tuple[str, ...], told: str) -> None:
    refused(minitf("pretrain", TINY, "objective.kind=prefix", *overrides, "--dry-run"), told, exit_code=3)


@pytest.mark.parametrize(("rate", "n_targets"), [(0.0, 5), (0.5, 3), (1.0, 1)])
def test_the_prefix_is_a_share_of_the_tokens_of_a_document(rate: float, n_targets: int) -> None:
    """Of six tokens, at least one and not all, also where padding follows them."""
    objective = settings_of("objectives", "prefix")(prefix_rate=(rate, rate)).build(VOCABULARY)  # type: ignore[attr-defined]
    ids, key = np.arange(4, 10)[None], np.zeros(1, np.uint64)
    padded = np.pad(ids, ((0, 0), (0, 3)))
    for rows in (Rows(ids, key), Rows(padded, key, (padded > 0).astype(np.int64))):
        assert objective.prepare(rows).labels.tolist() == [*range(10 - n_targets, 10)]
