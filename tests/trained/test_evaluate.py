"""Evaluation: figures by their formulas, of every target once, which neither depend on what ran before nor disturb what
runs after.
"""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from commands import TINY
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.packing import Shape
from mini_tf.data.store import Store
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.data.windows import Windows
from mini_tf.nn.state import State
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import NATS_PER_TOKEN, LossSums, Objective, ObjectiveSettings
from mini_tf.recipe.reading import read
from mini_tf.training.evaluation import eval_batch_size, evaluate
from mini_tf.training.machine.device import Setup

VOCABULARY, CONTEXT = 11, 6
IDS = np.random.default_rng(0).integers(4, VOCABULARY, 50)
STORE = Store(None, IDS, np.zeros(1, np.int64), 123, False, Vocabulary(VOCABULARY, 0, 1, 2, None))
PACKING = Windows(STORE, Shape(CONTEXT, 1))


class Asks(ObjectiveSettings):
    LOSS_UNIT, PREDICTS = NATS_PER_TOKEN, frozenset({"every_token"})


class Asked(Objective):
    """What comes next, asked of every token."""

    lookahead = 1

    def __init__(self, settings: type[ObjectiveSettings] = Asks) -> None:
        super().__init__(settings())

    def prepare(self, rows: Rows) -> Batch:
        ids = torch.from_numpy(rows.ids).long()
        real = torch.ones_like(ids) if rows.segments is None else torch.from_numpy(rows.segments)
        at = real[:, 1:].flatten().nonzero().squeeze(1)
        counts = dict.fromkeys(("guess", "small", "penalty", "tokens"), len(at))
        return Batch(Tokens(ids[:, :-1]), ids[:, 1:].flatten()[at], at, counts=counts)


class Guess(nn.Module):
    """Scores what comes next by the last token alone; noise: drawn in every pass, in evaluation too."""

    def __init__(self, dropout: float = 0.0, noise: float = 0.0, size: float = 1.0) -> None:
        super().__init__()
        table = size * torch.randn(
            VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(0), dtype=torch.float64
        )
        self.table, self.dropout, self.noise = nn.Parameter(table), nn.Dropout(dropout), noise

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        assert batch.target_positions is not None
        read = self.table[batch.inputs.ids.flatten()[batch.target_positions]]
        scores = self.dropout(read + self.noise * torch.randn(read.shape) if self.noise else read)
        right = (scores.argmax(-1) == batch.labels).sum()
        parts = {"guess": F.cross_entropy(scores, batch.labels, reduction="sum"), "penalty": torch.tensor(1e6)}
        return LossSums(parts, {"accuracy": (right, len(batch.labels))}, None)


def scores_of(task: nn.Module, batch_size: int = 4, tokens: int | None = None) -> dict[str, float]:
    return evaluate(task, Asked(), PACKING, Setup(), batch_size, tokens)


@pytest.mark.parametrize("batch_size", [1, 4, 100])
@pytest.mark.parametrize("tokens", [None, 2 * CONTEXT])
def test_figures_are_means_over_the_targets_and_bits_over_the_bytes_of_an_average_part(
    tokens: int | None, batch_size: int
) -> None:
    """What training pays for its means, the penalty, is no part of them."""
    task, rows = Guess(), PACKING.eval_row_indices(tokens)
    positions = np.array([place for row in rows for place in range(row * CONTEXT, min(49, (row + 1) * CONTEXT))])
    targets = len(positions)
    assert targets >= (tokens or 49)
    read, after = task.table.detach()[torch.from_numpy(IDS[positions])], torch.from_numpy(IDS[positions + 1])
    loss = F.cross_entropy(read, after).item()
    expected = {
        "loss": loss,
        "perplexity": math.exp(loss),
        "accuracy": (read.argmax(-1) == after).double().mean().item(),
        "bits_per_byte": loss * 49 / math.log(2) / 123,
        "targets": targets,
    }
    assert scores_of(task, batch_size, tokens) == pytest.approx(expected)


def test_a_text_of_one_target_has_the_bits_of_that_target_over_all_its_bytes() -> None:
    store = Store(None, IDS[:2], np.zeros(1, np.int64), 5, False, Vocabulary(VOCABULARY, 0, 1, 2, None))
    scores = evaluate(Guess(), Asked(), Windows(store, Shape(CONTEXT, 1)), Setup(), 4)
    loss = F.cross_entropy(Guess().table.detach()[int(IDS[0])], torch.tensor(int(IDS[1]))).item()
    assert (scores["targets"], scores["bits_per_byte"]) == (1, pytest.approx(loss / math.log(2) / 5))


class Count:
    """Says how many targets it was shown."""

    def __init__(self, name: str) -> None:
        self.name, self.seen = name, 0

    def add(self, batch: Batch, answers: Tensor) -> None:
        self.seen += len(batch.labels)

    def scores(self) -> dict[str, float]:
        return {self.name: self.seen}


def test_a_metric_accumulator_is_given_every_output() -> None:
    assert evaluate(Guess(), Asked(), PACKING, Setup(), 4, accumulator=Count("given"))["given"] == 49


def test_only_a_loss_that_is_declared_the_cross_entropy_of_tokens_has_a_perplexity_and_bits() -> None:
    class Margin(ObjectiveSettings):
        pass

    class Seldom(Asks):
        PREDICTS = frozenset()

    for settings, figures in ((Asks, {"perplexity", "bits_per_byte"}), (Seldom, {"perplexity"}), (Margin, set[str]())):
        found = evaluate(Guess(), Asked(settings), PACKING, Setup(), 4)
        assert found.keys() == {"loss", "accuracy", "targets"} | figures


def test_a_figure_of_which_there_was_nothing_to_judge_is_0() -> None:
    class Idle(Guess):
        def forward(self, batch: Batch, state: State | None = None) -> LossSums:
            sums = super().forward(batch, state)
            return LossSums(sums.parts, {"accuracy": (torch.tensor(0), 0)}, None)

    assert scores_of(Idle())["accuracy"] == 0


def test_of_several_parts_the_loss_is_the_weighted_sum_and_perplexity_and_bits_are_those_of_the_declared_one() -> None:
    class Small(Guess):
        def forward(self, batch: Batch, state: State | None = None) -> LossSums:
            sums = super().forward(batch, state)
            return sums._replace(
                parts=sums.parts
                | {"small": self.table[batch.inputs.ids.flatten()[batch.target_positions]].square().mean(-1).sum()}
            )

    class Weighed(Asked):
        weights = {"small": 0.3}

    task = Small()
    read, after = task.table.detach()[torch.from_numpy(IDS[:-1])], torch.from_numpy(IDS[1:])
    guess, small = F.cross_entropy(read, after).item(), read.square().mean().item()
    found = evaluate(task, Weighed(), PACKING, Setup(), 4)
    assert found["loss"] == pytest.approx(guess + 0.3 * small)
    assert (found["loss.guess"], found["loss.small"]) == pytest.approx((guess, small))
    assert found["perplexity"] == pytest.approx(math.exp(guess))
    assert found["bits_per_byte"] == pytest.approx(guess * 49 / math.log(2) / 123)


def test_a_loss_beyond_what_can_be_raised_to_has_an_infinite_perplexity() -> None:
    assert scores_of(Guess(size=1e4))["perplexity"] == math.inf


def test_what_a_model_draws_in_evaluation_is_always_the_same_and_leaves_torchs_generator_as_it_was() -> None:
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found.append(scores_of(Guess(noise=1.0)))
        assert torch.equal(torch.get_rng_state(), before)
    assert found[0] == found[1] != scores_of(Guess())


@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_dropped_in_evaluation_and_a_task_goes_on_in_the_mode_it_was_in(training: bool) -> None:
    task = Guess(dropout=0.5).train(training)
    assert scores_of(task) == scores_of(Guess())
    assert (task.training, task.dropout.training) == (training, training)
    assert task.table.grad is None


def test_what_is_called_before_each_batch_may_end_an_evaluation() -> None:
    calls: list[int] = []

    def call() -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        evaluate(Guess(), Asked(), PACKING, Setup(), 1, None, call)
    assert calls == [0, 1, 2]
    evaluate(Guess(), Asked(), PACKING, Setup(), 4, None, lambda: calls.append(3))
    assert calls[3:] == [3, 3, 3]  # of nine windows


@pytest.mark.parametrize(
    ("micro_batch_size", "given", "rows"),
    [(8, (), 8), (3, (), 3), (16, (), 8), (8, ("train.batch_tokens=192",), 4), (8, ("train.batch_tokens=48",), 1)],
)
def test_no_more_rows_are_judged_together_than_learn_together(
    micro_batch_size: int, given: tuple[str, ...], rows: int
) -> None:
    """The tiny recipe learns from 8 rows of 48 tokens."""
    assert eval_batch_size(read(TINY, list(given)).recipe, micro_batch_size) == rows
