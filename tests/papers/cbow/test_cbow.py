"""CBOW is the encoder with its switches off: against a direct form with index sums and none of the package's code."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from commands import minitf, refused
from scipy.stats import chisquare
from test_inspection_word_vectors import PAIRS, TEXT
from torch import Tensor

from mini_tf.data.batch import Rows
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.jobs.baselines import baseline_metrics
from mini_tf.nn.model import Model
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.papers.cbow.objectives.cbow import BITS, UnigramSampler
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.reading import read
from mini_tf.run.identity import result_values
from mini_tf.system.errors import RecipeFault
from mini_tf.testing import objectives as contract
from mini_tf.testing import run_all
from mini_tf.testing.tiny.objectives import tiny_objective
from mini_tf.trained.evaluating import evaluation_data
from mini_tf.trained.opening import open_trained

V, D, W, L, MASK, STEPS = 23, 6, 2, 10, 3, 20
VOCABULARY = Vocabulary(V, pad=0, unk=1, separator=2, mask=MASK)
ROWS = np.random.default_rng(0).integers(4, V, (2, L))
CLOSE = {"rtol": 0, "atol": 1e-12}
FREQUENCIES = np.arange(V) ** 2
CBOW = {"scale": 0.0, "window": W, "attends_self": False, "projections": False}


def encoder(attention: dict[str, Any] | None = None, **others: Any) -> Model:
    """The encoder with every switch off."""
    torch.manual_seed(0)
    mixer = settings_of("attention", "window").model_validate({**CBOW, **(attention or {})})
    off: dict[str, Any] = {
        "n_layers": 1,
        "n_heads": 1,
        "d_ff": 0,
        "norm_place": "none",
        "residual": False,
        "tied": False,
    }
    settings: Any = settings_of("models", "encoder")
    positions = settings_of("positions", "none")()
    model = (
        settings(**{"d_model": D, "attention": (mixer,), "positions": positions, "init_std": 0.5, **off, **others})
        .build(V, L)
        .double()
    )
    assert isinstance(model, Model)
    return model


def context_mean(
    table: Tensor, row: list[int], t: int, weight: Callable[[int], float] = lambda distance: 1.0
) -> Tensor:
    """CBOW's hidden vector: the weighted mean of the vectors of the words at most W from t, without that at t."""
    near = [i for i in range(max(0, t - W), min(len(row), t + W + 1)) if i != t]
    weights = torch.tensor([weight(abs(i - t)) for i in near], dtype=table.dtype)
    return torch.einsum("i,id->d", weights, table[[row[i] for i in near]]) / weights.sum()


def softmax_loss(hidden: Tensor, outputs: Tensor, target: int, negatives: list[int]) -> Tensor:
    scores = torch.einsum("d,vd->v", hidden, outputs)
    return scores.exp().sum().log() - scores[target]


def negative_sampling_loss(hidden: Tensor, outputs: Tensor, target: int, negatives: list[int]) -> Tensor:
    words = [target, *(word for word in negatives if word != target)]
    signs = torch.tensor([-1.0] + [1.0] * (len(words) - 1), dtype=hidden.dtype)
    return (1 + (signs * torch.einsum("d,wd->w", hidden, outputs[words])).exp()).log().sum()


def data_with(counts: np.ndarray) -> Any:
    """Training data with these occurrences of each token."""
    return SimpleNamespace(token_counts=counts.copy)


class Route:
    """A way to train the model: how its batches and its loss are made, and which positions are targets."""

    def __init__(self, model: Model, word: str, **settings: Any) -> None:
        self.model = model
        self.objective = settings_of("objectives", word).model_validate(settings).build(VOCABULARY)
        self.task = self.objective.task(model).double()
        self.objective.fit(self.task, data_with(FREQUENCIES))

    def batch(self, step: int) -> Any:
        return self.objective.prepare(Rows(ROWS, np.arange(len(ROWS), dtype=np.uint64) + 100 * step))

    def loss(self, step: int) -> Tensor:
        batch = self.batch(step)
        (part,) = self.task(batch, None).parts.values()
        return part / len(batch.labels)  # type: ignore[no-any-return]

    def targets(self, step: int) -> list[tuple[int, int]]:
        at = self.batch(step).target_positions
        return [divmod(flat, L) for flat in (range(ROWS.size) if at is None else at.tolist())]

    def negatives(self, step: int) -> list[list[int]]:
        """The negative samples of each target, found by walking along the cumulative counts^0.75."""
        draws = self.batch(step).extras.get("draws")
        if draws is None:
            return [[] for _ in self.targets(step)]
        powers = [0.0 if word < 4 else float(count) ** 0.75 for word, count in enumerate(FREQUENCIES)]
        found = []
        for row in (draws.double() / 2**BITS).tolist():
            found.append(
                [next(word for word in range(V) if uniform * sum(powers) < sum(powers[: word + 1])) for uniform in row]
            )
        return found


def masked_with_dot_products() -> Route:
    """[MASK] at the targets; scores are dot products with its vector, 0 and frozen, so the weights are equal."""
    model = encoder({"scale": "none"})
    with torch.no_grad():
        model.embedding.tokens.weight[MASK] = 0  # type: ignore[union-attr, operator, index]
    return Route(model, "masked", mask_rate=0.3, replace=(1.0, 0.0, 0.0), min_distance=W + 1)


ROUTES: dict[str, tuple[Callable[[], Route], Callable[..., Tensor]]] = {
    "masked, dot products with the frozen vector of [MASK]": (masked_with_dot_products, softmax_loss),
    "masked, scale 0": (lambda: Route(encoder(), "masked", replace=(1.0, 0.0, 0.0), min_distance=W + 1), softmax_loss),
    "cbow, softmax": (lambda: Route(encoder(), "cbow"), softmax_loss),
    "cbow, negative sampling": (lambda: Route(encoder(), "cbow", negatives=4), negative_sampling_loss),
}


@pytest.mark.parametrize("name", ROUTES)
def test_cbow_and_its_gradients_are_those_of_index_sums_also_after_twenty_steps(name: str) -> None:
    make, loss_of = ROUTES[name]
    route = make()
    table, outputs = route.model.embedding.tokens.weight, route.model.head.linear.weight  # type: ignore[union-attr]
    assert isinstance(table, Tensor)
    assert isinstance(outputs, Tensor)
    direct = [table.detach().clone().requires_grad_(), outputs.detach().clone().requires_grad_()]
    for step in range(STEPS + 1):
        losses = [
            loss_of(context_mean(direct[0], ROWS[row].tolist(), t), direct[1], int(ROWS[row, t]), negatives)
            for (row, t), negatives in zip(route.targets(step), route.negatives(step), strict=True)
        ]
        expected = torch.stack(losses).mean()
        found = route.loss(step)
        torch.testing.assert_close(found, expected, **CLOSE)
        expected.backward()
        found.backward()
        assert table.grad is not None
        table.grad[MASK] = 0  # frozen
        for mine, theirs in zip((table, outputs), direct, strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, **CLOSE)
        with torch.no_grad():
            for parameter in (table, outputs, *direct):
                parameter -= 0.5 * parameter.grad  # type: ignore[operator]
                parameter.grad = None
    for mine, theirs in zip((table, outputs), direct, strict=True):
        torch.testing.assert_close(mine, theirs, **CLOSE)


def test_only_both_tables_are_parameters() -> None:
    assert {name for name, _ in encoder().named_parameters()} == {"embedding.tokens.weight", "head.linear.weight"}


def hidden(model: Model, ids: np.ndarray, segments: np.ndarray | None = None) -> Tensor:
    positions = None if segments is None else TokenPositions.packed(torch.from_numpy(segments))
    with torch.no_grad():
        return model.eval()(Tokens(torch.from_numpy(ids), positions)).y  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "others", [{}, {"positions": settings_of("positions", "dynamic_window")()}], ids=["uniform", "dynamic"]
)
def test_the_output_at_a_token_does_not_depend_on_it(others: dict[str, Any]) -> None:
    """Bit for bit, also if the token is at the border of its document."""
    model = encoder(**others)
    segments = np.array([[1] * 5 + [2] * (L - 5), [1] * (L - 2) + [0] * 2])
    before = hidden(model, ROWS, segments)
    for t in range(L):
        changed = ROWS.copy()
        changed[:, t] = (changed[:, t] - 4 + 7) % (V - 4) + 4
        after = hidden(model, changed, segments)
        assert torch.equal(after[:, t], before[:, t])
        assert not torch.equal(after, before)


def test_the_bias_of_dynamic_windows_is_the_mean_over_windows_of_random_size() -> None:
    """Not of the means, whose denominators are random: the relative weights are those of the expected sums."""
    model = encoder(positions=settings_of("positions", "dynamic_window").model_validate({"window": W}))
    table = model.embedding.tokens.weight.detach()  # type: ignore[union-attr]
    assert isinstance(table, Tensor)

    def share_of_windows(distance: int) -> float:
        return sum(distance <= window for window in range(1, W + 1)) / W

    found = hidden(model, ROWS)
    for row, t in np.ndindex(ROWS.shape):
        torch.testing.assert_close(found[row, t], context_mean(table, ROWS[row].tolist(), t, share_of_windows), **CLOSE)


def test_beyond_the_dynamic_window_a_token_has_no_weight() -> None:
    narrow, wide = (
        encoder({"window": window}, positions=settings_of("positions", "dynamic_window").model_validate({"window": W}))
        for window in (W, 9)
    )
    torch.testing.assert_close(hidden(wide, ROWS), hidden(narrow, ROWS), **CLOSE)


def test_negative_samples_follow_the_counts_to_the_power_three_quarters() -> None:
    counts = np.random.default_rng(1).integers(0, 500, 40)
    counts[7] = 0
    draws = torch.from_numpy(np.random.default_rng(2).integers(0, 2**BITS, (4000, 5)))
    sampler = UnigramSampler(40)
    sampler.fit(counts)
    found = np.bincount(sampler(draws).flatten().numpy(), minlength=40)
    expected = counts**0.75 / (counts**0.75).sum() * draws.numel()
    assert found[7] == 0
    sampler.fit(np.arange(40) == 7)  # seen once, and no other
    assert (sampler(draws) == 7).all()
    assert chisquare(found[counts > 0], expected[counts > 0]).pvalue > 1e-3


def test_a_negative_sample_never_is_a_special_token_and_does_not_count_if_it_is_the_target() -> None:
    """If all counts are of one word, all its negative samples are skipped where it is the target."""
    model = encoder()
    objective = settings_of("objectives", "cbow").model_validate({"negatives": 3}).build(VOCABULARY)
    batch = objective.prepare(Rows(np.full((1, 4), V - 1), np.zeros(1, np.uint64)))
    task = objective.task(model).double()
    objective.fit(task, data_with(np.array([9, 9, 9, 9, *([0] * (V - 5)), 5])))
    assert (task.sampler(batch.extras["draws"]) == V - 1).all()
    score = hidden(model, np.full((1, 4), V - 1))[0] @ model.head.linear.weight[V - 1]  # type: ignore[union-attr, operator, index]
    torch.testing.assert_close(task(batch, None).parts["cbow"], (1 + (-score).exp()).log().sum(), **CLOSE)


def test_targets_are_apart_and_as_many_as_fit() -> None:
    objective = (
        settings_of("objectives", "masked").model_validate({"mask_rate": 0.9, "min_distance": 4}).build(VOCABULARY)
    )
    rows = Rows(np.full((50, 30), 9), np.arange(50, dtype=np.uint64))
    targets = np.zeros(1500, dtype=bool)
    targets[objective.prepare(rows).target_positions.numpy()] = True
    for row in targets.reshape(50, 30):
        gaps = np.diff(np.flatnonzero(row), prepend=-1, append=30)
        assert (gaps[1:-1] >= 4).all()
        assert (gaps[1:-1] < 8).all(), "between two targets 7 tokens apart no third fits, but 8 apart one does"


LEAKS = "cbow predicts a token from its context, but the model can copy the token itself: "


def faults(*overrides: str, recipe: str = "cbow-ladder-1") -> list[str]:
    with pytest.raises(RecipeFault) as refused:
        read(recipe, ["objective={kind: cbow}", *overrides])
    return list(refused.value.faults)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("model.residual=true", "the residual connection carries it (use residual: false)"),
        ("model.n_layers=2", "2 layers return it by its neighbors (use n_layers 1)"),
        (
            "model.attention.attends_self=true",
            "window attention uses it (use {kind: window, attends_self: false, scale: 0})",
        ),
        ("model.attention.scale=1", "window attention uses it (use {kind: window, attends_self: false, scale: 0})"),
        (
            "model.attention={kind: softmax}",
            "softmax attention uses it (use {kind: window, attends_self: false, scale: 0})",
        ),
        ("model.ngrams=[64]", "n-grams of its neighbors contain it (use ngrams: [])"),
    ],
)
def test_a_recipe_in_which_the_centre_leaks_is_refused_in_one_line(override: str, told: str) -> None:
    (fault,) = faults(override)
    assert fault == f"command line: objective={{kind: cbow}}: {LEAKS}{told}"


def test_all_leaks_are_told_at_once() -> None:
    (fault,) = faults(recipe="bert-nano")
    assert all(word in fault for word in ("4 layers", "residual: false", "softmax attention"))


def test_other_settings_that_cannot_be_are_refused() -> None:
    (heads,) = faults("model.d_k=8")
    assert "leave n_kv_heads, d_k and d_v to their defaults" in heads
    (scheme,) = faults("objective={kind: masked, scheme: span, min_distance: 3}")
    assert scheme.endswith("objective.min_distance: targets of the scheme span are neighbors; use 1, or scheme: token")


LADDER = [
    {"model.positions.kind", "model.positions.window"},
    {"model.attention.projections"},
    {"model.attention.scale"},
    {"model.n_heads"},
    {"model.residual"},
    {"model.norm_place"},
    {"model.d_ff"},
    {"model.positions.kind", "model.positions.window"},
    {"model.n_layers"},
    {f"model.attention.{key}" for key in ("kind", "window", "attends_self", "projections")},
]
"""The keys that each step of the ladder changes."""


def test_each_step_of_the_ladder_changes_one_switch() -> None:
    recipes = [read(f"cbow-ladder-{n}").recipe for n in range(1, len(LADDER) + 2)]
    for (before, after), expected in zip(itertools.pairwise(recipes), LADDER, strict=True):
        one, other = (result_values(recipe) for recipe in (before, after))
        changed = {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
        assert {name for name in changed if not name.startswith("expect")} <= expected | {
            *("model.positions.base", "model.positions.factor", "model.positions.long_wavelengths"),
            "model.attention.n_persistent",
            "model.positions.layer_bases",
            "model.positions.share",
        }
        assert changed & expected


def test_the_accuracy_among_all_words_is_measured_in_evaluation_alone() -> None:
    case = tiny_objective(settings_of("objectives", "cbow").model_validate({"negatives": 3}))  # type: ignore[arg-type]
    assert case.sums(training=True)[1].metrics == {}
    batch, sums = case.sums(training=False)
    predicted = case.model.logits(case.model(batch.inputs, at=batch.target_positions).y).argmax(-1)
    assert [int(number) for number in sums.metrics["accuracy"]] == [
        int((predicted == batch.labels).sum()),
        len(predicted),
    ]


def test_negative_sampling_keeps_the_contract_of_objectives() -> None:
    run_all(contract.cases(settings_of("objectives", "cbow").model_validate({"negatives": 3})))  # type: ignore[arg-type]


def test_a_run_with_negative_samples_is_resumed_and_evaluated_with_its_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts are those of the training split, and the checkpoint has them."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the king saw the queen and the old man near the house. " * 40)
    small = ("data.train=text.txt", "tokenizer.kind=char", "train.batch_size=2", "train.context=16", "model.d_model=8")
    recipe = ("cbow-ladder-1", "objective={kind: cbow, negatives: 2}", *small)
    assert minitf("pretrain", *recipe, "train.steps=4", "-d", "run").exit_code == 0
    first = json.loads(minitf("evaluate", "run", "--json").stdout)["metrics"]
    assert minitf("pretrain", *recipe, "train.steps=4", "-d", "run", "--extend", "2").exit_code == 0
    assert json.loads(minitf("evaluate", "run", "--step", "4", "--json").stdout)["metrics"] == first
    trained = open_trained("run")
    counts = evaluation_data(trained, None, "train").token_counts()
    counts[sorted(trained.tokenizer.vocabulary.special_ids)] = 0
    sampler = UnigramSampler(len(counts))
    sampler.fit(counts)
    assert torch.equal(trained.task().sampler.unigram, sampler.unigram)  # type: ignore[union-attr]
    assert "perplexity" not in str(first)


def test_the_command_shows_word_vectors_of_a_trained_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT)
    Path("pairs.tsv").write_text("".join(f"{pair.words[0]}\t{pair.words[1]}\t{pair.score}\n" for pair in PAIRS))
    small = ("train.steps=2", "train.batch_size=2", "train.context=16", "tokenizer.vocab_size=330", "model.d_model=8")
    trained = minitf(
        "pretrain", "cbow-ladder-1", "data.train=text.txt", *small, "objective={kind: cbow, negatives: 2}", "-d", "run"
    )
    assert trained.exit_code == 0, trained.stderr
    assert minitf("evaluate", "run").exit_code == 0, "the checkpoint has the counts of negative sampling"
    shown = minitf("inspect", "word", "run", "king", "--neighbours", "3")
    assert shown.exit_code == 0, shown.stderr
    assert len(shown.stdout.splitlines()) == 4
    assert minitf("inspect", "word", "run", "--analogy", "man woman king", "-o", "analogy.json").exit_code == 0
    assert len(json.loads(Path("analogy.json").read_text())["tokens"]) == 10
    similarity = minitf("inspect", "word", "run", "--similarity", "pairs.tsv", "--json")
    assert json.loads(similarity.stdout)["result"]["known"]["pairs"] == len(PAIRS)
    refused(
        minitf("inspect", "word", "run", "--analogy", "man woman"), "--analogy needs three words, got 2", exit_code=2
    )
    refused(
        minitf("inspect", "word", "run", "king", "--neighbors", "3", "-o", "x.png"),
        "its suffix must be .json",
        exit_code=2,
    )


def test_no_baseline_has_the_loss_of_negative_sampling() -> None:
    assert baseline_metrics(settings_of("objectives", "cbow")(negatives=5)) == {}  # type: ignore[arg-type]


def test_the_list_of_recipes_begins_with_the_default_and_shows_a_series_once() -> None:
    lines = minitf("recipe", "list").stdout.splitlines()
    names = [line.split("  ")[0] for line in lines]
    assert names[0] == "quickstart"
    assert names[1:] == sorted(names[1:], key=lambda name: re.split(r"(\d+)", name))
    assert "cbow-ladder-1 ... 11" in names
    rows = json.loads(minitf("recipe", "list", "--json").stdout)["result"]
    series = [row["name"] for row in rows if row["name"].startswith("cbow-ladder-")]
    assert series == [f"cbow-ladder-{number}" for number in range(1, 12)]
