"""Attention without parameters: its formula, softmax attention with identities for projections, and its view."""

import itertools
import math
from pathlib import Path

import pytest
import torch
from commands import minitf
from figures import rows_of
from pydantic import ValidationError
from test_cli_inspect_views import refused, result_of, shown
from test_run_identity import SMALL, run_id
from toys import own_view, seeded, tiny_mixer

from mini_tf.drawing.terminal import table
from mini_tf.inspection import ViewOutput
from mini_tf.nn.mixer import AttentionDims, LayerSpec
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.papers.simple.inspection.simple import AXES, HAND_MADE, Settings, walk_through
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.recipe import Recipe
from mini_tf.testing.tiny.mixers import DIMS, EXACT


def test_an_encoder_of_another_width_is_refused_since_nothing_projects_it() -> None:
    settings = settings_of("models", "encoder_decoder")
    sides = {"d_model": 24, "n_heads": 4, "positions": "none", "encoder": {"d_model": 12}, "cross_attention": "simple"}
    with pytest.raises(ValidationError, match="d_model 24 must be the width of the source, 12"):
        settings.model_validate(sides)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", ["none", "rsqrt_d", "cosine"])
def test_simple_attention_compares_vectors_as_its_scale_says(scale: str, causal: bool) -> None:
    mixer = settings_of("attention", "simple")(scale=scale).build(DIMS, LayerSpec(0, 1)).eval()  # type: ignore[attr-defined]
    x, view = seeded(2, 5, 12), own_view(causal, TokenPositions(5))
    length = x.square().sum(dim=-1).sqrt()
    divided = {
        "none": torch.ones(1),
        "rsqrt_d": torch.tensor(12.0).double().sqrt(),
        "cosine": length[:, :, None] * length[:, None],
    }[scale]
    scores = x @ x.transpose(1, 2) / divided
    scores = scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf) if causal else scores
    torch.testing.assert_close(mixer(x, x, view).y, scores.softmax(dim=-1) @ x, **EXACT)
    torch.testing.assert_close(mixer.explicit(x, x, view).weights[:, 0], scores.softmax(dim=-1), **EXACT)


def test_the_worked_example_of_softmax() -> None:
    """softmax([1, 2, 3, 4]), as weights of a mixer whose scores are those numbers."""
    mixer = tiny_mixer("simple", width=AttentionDims(4, 4, 1, 1, 4, 4), attention="cross")
    query, memory = torch.tensor([[[1.0, 0, 0, 0]]]).double(), torch.eye(4).double()[None].clone()
    memory[0, :, 0] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    shown = mixer.explicit(query, memory, Visibility(False, TokenPositions(1), TokenPositions(4)))
    assert shown.weights.flatten().tolist() == pytest.approx([0.0321, 0.0871, 0.2369, 0.6439], abs=5e-5)


def test_simple_walks_through_the_words(tmp_path: Path) -> None:
    text = shown("simple", "I love bears")
    result = result_of("simple", "I love bears")
    assert text == shown("simple")
    assert "bears moved towards the other words" in text
    assert f"{result['weights'][2][0]:.3f}" in text
    assert result["drawn"] == result["notes"] == []
    assert result["after"][2] > result["before"][2]


def test_simple_takes_any_words_but_not_many(tmp_path: Path) -> None:
    text = "\x1b[31m [bold] 漢字 👩\u200d🚀 bears"
    result = result_of("simple", text)
    assert result["words"] == text.split()
    assert result["drawn"] == text.split()[:-1]
    assert "[bold]" in shown("simple", text)
    shown("simple", " ".join("abcdefghijkl"))
    for words in ("", " ", "a " * 13):
        assert "words, but must have 1 to 12" in refused(2, "simple", words)


def test_of_one_word_there_is_nothing_to_compare() -> None:
    alone = result_of("simple", "bears")
    assert (alone["before"], alone["after"]) == ([None], [None])
    assert "nan" not in shown("simple", "bears")


def test_words_that_look_like_markup_stay_words() -> None:
    words = ("[link=http://x]", "[/nope]", ":smile:", "[bold]")
    printed = minitf("inspect", "simple", " ".join(words)).stdout
    assert all(word in printed for word in words)
    assert "the text is not UTF-8" in refused(2, "simple", "a\udcff")


def test_a_given_value_that_is_the_default_of_another_kind_is_kept_apart() -> None:
    """`simple` leaves scores unscaled by default, `softmax` does not: the same word beside another kind."""
    scales = [("simple", "none"), ("softmax", "none"), ("simple", "rsqrt_d"), ("softmax", "rsqrt_dk")]
    models = [
        {"kind": "decoder", "positions": "none", "attention": {"kind": kind, "scale": scale}} for kind, scale in scales
    ]
    ids = {run_id(Recipe.model_validate(SMALL | {"model": model})) for model in models}
    assert len(ids) == len(scales)


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
