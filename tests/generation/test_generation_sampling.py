"""How a token is chosen: every way against its exact distribution, by brute force and by how often it is drawn."""

import math

import pytest
import torch
from torch import Tensor

from mini_tf.generation.sampling import BUFFER_SIZE, UniformNumbers, apply_repetition_penalty, distribution, draw
from mini_tf.recipe.sections import Generate
from mini_tf.system.seeds import seed_of

DRAWS = 20_000


def free(**limits: float) -> Generate:
    """Drawn from all tokens by their own probabilities, but for these limits."""
    return Generate(**{"temperature": 1.0, "top_k": None, **limits})


SCORES = [1.5, -0.3, 0.7, 2.2, 0.0, -1.0, 1.1, 0.4]
CASES = [
    free(),
    *(free(temperature=temperature) for temperature in (0.5, 2.0)),
    *(free(top_k=k) for k in (0, 2, 3, 8, 50)),
    *(free(top_p=p) for p in (0.05, 0.4, 0.9, 1.0)),
    *(free(min_p=p) for p in (0.1, 0.5, 1.0)),
    free(temperature=0.7, top_k=6, top_p=0.8),
    free(temperature=1.5, top_k=7, top_p=0.97, min_p=0.2),
    free(temperature=0.9, top_p=0.6, min_p=0.3),
    free(temperature=1.3, top_k=5, min_p=0.35),
]


def exact(scores: list[float], sampling: Generate) -> list[float]:
    """The probabilities by their definitions, one token at a time."""
    ranked = sorted(range(len(scores)), key=lambda id: -scores[id])[: sampling.top_k or None]
    weight = {id: math.exp(scores[id] / sampling.temperature) for id in ranked}
    total, reached, kept = sum(weight.values()), 0.0, []
    for id in ranked:
        if not kept or reached < sampling.top_p:
            kept.append(id)
        reached += weight[id] / total
    kept = [id for id in kept if weight[id] >= sampling.min_p * weight[ranked[0]]]
    total = sum(weight[id] for id in kept)
    return [weight[id] / total if id in kept else 0.0 for id in range(len(scores))]


def probabilities(scores: Tensor, sampling: Generate) -> Tensor:
    """What `distribution` says, over all ids."""
    weights, ids = distribution(scores, sampling)
    whole = weights if ids is None else torch.zeros_like(scores).scatter(1, ids, weights)
    return whole / whole.sum(dim=-1, keepdim=True)


@pytest.mark.parametrize("sampling", CASES, ids=str)
def test_the_distribution_is_the_one_of_the_definitions(sampling: Generate) -> None:
    rows = torch.tensor([SCORES, SCORES[::-1]])
    expected = torch.tensor([exact(row, sampling) for row in rows.tolist()])
    torch.testing.assert_close(probabilities(rows, sampling), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("sampling", CASES, ids=str)
def test_ids_are_drawn_as_often_as_the_exact_distribution_says(sampling: Generate) -> None:
    """By Pearson's chi-square: within five of its standard deviations."""
    numbers = torch.rand(DRAWS, 1, generator=torch.Generator().manual_seed(0))
    drawn = draw(torch.tensor([SCORES]).expand(DRAWS, -1), sampling, numbers)
    expected = torch.tensor(exact(SCORES, sampling)) * DRAWS
    counts = drawn.bincount(minlength=len(SCORES))
    assert counts[expected == 0].sum() == 0
    freedom = int((expected > 0).sum()) - 1
    chi_square = ((counts - expected).square() / expected)[expected > 0].sum().item()
    assert chi_square <= freedom + 5 * math.sqrt(2 * freedom)


def test_the_numbers_of_a_seed_are_uniform() -> None:
    """In a hundred equal parts, by chi-square, over many samples."""
    uniform = UniformNumbers(7, [(sample,) for sample in range(50)], torch.device("cpu"))
    numbers = torch.cat([uniform.next() for _ in range(2000)])
    counts = (numbers.flatten() * 100).long().bincount(minlength=100)
    assert 0 <= numbers.min() < numbers.max() < 1
    assert ((counts - 1000.0).square() / 1000.0).sum() <= 99 + 5 * math.sqrt(2 * 99)


def test_the_ends_of_the_interval_draw_tokens_that_can_be_drawn() -> None:
    """Tokens of probability 0 stand first and last; the largest number below 1 must not reach past the end."""
    scores = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(2, -1)
    ends = torch.tensor([[0.0], [1 - 2**-24]])
    for sampling in (free(), free(top_k=4), free(top_p=0.99)):
        assert draw(scores, sampling, ends).tolist() == [1, 3]
    wide = torch.zeros(1, 50_257)
    assert draw(wide, free(), ends[1:]).tolist() == [50_256]


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-40, 5e-324])
def test_a_temperature_near_0_is_as_good_as_0(temperature: float) -> None:
    scores = torch.tensor([[1.0, 9e4, -torch.inf, 8.9e4], [3.0, -3e4, 2.0, 1.0]])
    for numbers in (torch.zeros(2, 1), torch.full((2, 1), 0.999999)):
        for limits in (
            free(temperature=temperature),
            free(temperature=temperature, top_k=3),
            free(temperature=temperature, top_p=0.9, min_p=0.1),
        ):
            assert draw(scores, limits, numbers).tolist() == [1, 0]


@pytest.mark.parametrize("top_p", [1e-30, 1e-46, 5e-324])
def test_a_top_p_near_0_draws_the_likeliest(top_p: float) -> None:
    scores = torch.tensor([[1.0, 2.0, 0.0], [3.0, 2.9, 3.1]])
    for limits in (free(top_p=top_p), free(top_p=top_p, top_k=2)):
        assert draw(scores, limits, torch.full((2, 1), 0.999999)).tolist() == [1, 2]


@pytest.mark.parametrize(("top_p", "kept"), [(0.25, 1), (0.5, 2), (0.6, 3), (0.75, 3)])
def test_top_p_keeps_no_token_more_than_reach_it(top_p: float, kept: int) -> None:
    """Four equal tokens, whose sums are exact."""
    assert int((distribution(torch.zeros(1, 4), free(top_p=top_p))[0] > 0).sum()) == kept


def test_only_temperature_0_and_top_k_1_leave_nothing_to_chance() -> None:
    assert free(temperature=0).greedy
    assert free(top_k=1).greedy
    assert not any(
        free(**case).greedy for case in ({"temperature": 1e-9}, {"top_k": 2}, {"top_p": 1e-9}, {"min_p": 1.0})
    )


def test_the_penalty_divides_positive_scores_and_multiplies_the_others() -> None:
    scores = torch.tensor([[2.0, -2.0, 3.0, -3.0, 0.0]])
    seen = torch.tensor([[True, True, False, False, True]])
    assert apply_repetition_penalty(scores, seen, 2.0).tolist() == [[1.0, -4.0, 3.0, -3.0, 0.0]]
    assert torch.equal(apply_repetition_penalty(scores, seen, 1.0), scores)


def test_a_sample_draws_the_same_numbers_alone_and_among_others() -> None:
    cpu, seed = torch.device("cpu"), 5
    together = UniformNumbers(seed, [(0,), (1,), (2,)], cpu)
    alone = [UniformNumbers(seed, [(sample,)], cpu) for sample in (0, 1, 2)]
    for step in range(2100):  # past what is drawn ahead, twice
        if step == 1500:
            together.select(torch.tensor([2, 0]))
            alone = [alone[2], alone[0]]
        assert together.next().flatten().tolist() == [float(one.next()) for one in alone]
    assert UniformNumbers(seed + 1, [(0,)], cpu).next() != UniformNumbers(seed, [(0,)], cpu).next()


def test_a_row_gets_all_numbers_of_its_generator_in_their_order() -> None:
    uniform = UniformNumbers(7, [(3,)], torch.device("cpu"))
    found = torch.stack([uniform.next()[0, 0] for _ in range(2 * BUFFER_SIZE + 1)])
    generator = torch.Generator().manual_seed(seed_of("draw", 7, 3))
    assert torch.equal(
        found[: 2 * BUFFER_SIZE], torch.cat([torch.rand(BUFFER_SIZE, generator=generator) for _ in range(2)])
    )
    assert len(found.unique()) > 2 * BUFFER_SIZE * 0.99
