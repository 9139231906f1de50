"""Attention without parameters: what is true of softmax(X X^T) X, and what the words made by hand were made for."""

import itertools
import math

import pytest
import torch
from figures import rows_of
from toys import own_view, seeded, tiny_mixer

from mini_tf.drawing.terminal import table
from mini_tf.inspection import ViewOutput
from mini_tf.nn.mixer import AttentionDims
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.papers.simple.inspection.simple import AXES, HAND_MADE, Settings, walk_through

MADE = ["I", "love", "bears"]


def attended(x: torch.Tensor) -> torch.Tensor:
    """softmax(X X^T) X of (T, d) by the mixer."""
    width = AttentionDims(x.shape[1], x.shape[1], 1, 1, x.shape[1], x.shape[1])
    return tiny_mixer("simple", width=width)(x[None], x[None], own_view(False, TokenPositions(len(x)))).y[0]


def test_each_step_follows_from_the_one_before() -> None:
    steps = walk_through(MADE)
    x = [HAND_MADE[word.lower()] for word in MADE]
    assert steps.vectors.tolist() == [list(row) for row in x]
    for i in range(3):
        scores = [sum(a * b for a, b in zip(x[i], x[j], strict=True)) for j in range(3)]
        weights = [math.exp(s) / sum(map(math.exp, scores)) for s in scores]
        assert steps.scores[i].tolist() == pytest.approx(scores)
        assert steps.weights[i].tolist() == pytest.approx(weights)
        assert steps.outputs[i].tolist() == pytest.approx(
            [sum(w * x[j][k] for j, w in enumerate(weights)) for k in range(4)]
        )


def test_bears_moves_towards_its_neighbours_and_from_burden_to_animal() -> None:
    steps, animal, burden = walk_through(MADE), AXES.index("animal"), AXES.index("burden")
    assert steps.after[-1] > steps.before[-1] + 0.2
    bears, became = steps.vectors[-1], steps.outputs[-1]
    assert bears[animal] == bears[burden]
    assert became[animal] > became[burden] + 0.1
    mean = (steps.vectors[0] + steps.vectors[1]) / 2
    assert steps.before[-1] == pytest.approx((bears @ mean / (bears.norm() * mean.norm())).item())
    assert steps.after[-1] == pytest.approx((became @ mean / (became.norm() * mean.norm())).item())


def test_the_order_of_words_changes_nothing_but_the_order() -> None:
    whole = dict(zip(MADE, walk_through(MADE).outputs, strict=True))
    for order in itertools.permutations(MADE):
        for word, output in zip(order, walk_through(order).outputs, strict=True):
            torch.testing.assert_close(output, whole[word])


def test_rows_sum_to_one_scores_are_symmetric_and_weights_are_not() -> None:
    steps = walk_through([*MADE, "熊", "🐻", "love"])
    torch.testing.assert_close(steps.weights.sum(dim=1), torch.ones(6).double())
    torch.testing.assert_close(steps.scores, steps.scores.T)
    assert not torch.allclose(steps.weights, steps.weights.T)


def test_a_word_alone_stays_what_it_is() -> None:
    steps = walk_through(["bears"])
    torch.testing.assert_close(steps.outputs, steps.vectors)
    assert math.isnan(steps.before[0])
    assert math.isnan(steps.after[0])


def test_the_other_word_of_two_is_what_each_is_compared_with() -> None:
    steps = walk_through(MADE[:2])
    one, other = steps.vectors
    assert steps.before == pytest.approx([(one @ other / (one.norm() * other.norm())).item()] * 2)


def test_long_vectors_of_one_length_see_only_themselves() -> None:
    x = torch.nn.functional.normalize(seeded(5, 4), dim=-1)
    assert not torch.allclose(attended(x), x, atol=0.1)
    torch.testing.assert_close(attended(100 * x), 100 * x)


def test_words_of_unknown_meaning_are_drawn_from_their_characters() -> None:
    steps = walk_through(["I", "love", "cats", "and", "CATS", "cats"])
    assert steps.drawn == ["cats", "and", "CATS"]
    assert steps.vectors[2].tolist() == steps.vectors[5].tolist() == walk_through(["cats"]).vectors[0].tolist()
    assert steps.vectors[2].tolist() != steps.vectors[4].tolist()
    assert walk_through(["LOVE"]).drawn == []


def test_the_tables_have_every_number_of_the_steps() -> None:
    words = ["I", "love", "w" * 17, "v" * 16]
    found = Settings(text=" ".join(words)).view(None, ViewOutput())
    tables = [rows_of(picture) for picture in found.pictures if picture.func is table]  # type: ignore[attr-defined]
    names, result = ["I", "love", f"{'w' * 15}…", "v" * 16], found.result
    cosines = list(zip(result["before"], result["after"], strict=True))
    steps = [result["vectors"], result["scores"], result["weights"], result["outputs"], cosines]
    headers = [AXES, names, names, AXES, ("before", "after")]
    for rows, columns, values in zip(tables, headers, steps, strict=True):
        assert rows[0] == [*columns]
        assert rows[1:] == [[name, *(f"{value:.3f}" for value in row)] for name, row in zip(names, values, strict=True)]
    before, after = cosines[-1]
    moved = "moved towards" if after > before else "did not move towards"
    said = f"{'v' * 16} {moved} the other words: cosine similarity {before:.2f} before, {after:.2f} after."
    assert found.pictures[-1](width=200).plain == said
    assert found.notes == [f"random vectors, seeded by the word: {words[2]!r}, {words[3]!r}"]
