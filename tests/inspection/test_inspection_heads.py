"""What is said of heads: exact on models set by hand, equal to plain loops on random maps, and found in a model that
learnt to copy.
"""

import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import figures
import golden
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_models import model_of, usable
from torch import Tensor
from toys import mixer_kinds

from mini_tf.drawing.heat_maps import draw
from mini_tf.drawing.panel import PanelGrid
from mini_tf.inspection import _attention_pictures as pictures
from mini_tf.inspection._attention_maps import Head, Query, Sample, heads_of
from mini_tf.inspection._attention_pictures import describe_head, describe_query
from mini_tf.inspection._capture import CapturedAttention, capture
from mini_tf.inspection._heads import (
    MIN_BLOCK,
    N_ROWS,
    ROLES,
    HeadIndex,
    HeadSelection,
    Score,
    Scores,
    measure,
    repeated_tokens,
    role_of,
    scores_on,
)
from mini_tf.inspection._texts import ModelInput, TokenizedText, TokenizedTexts, Words, aggregate_by_words
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import settings_of
from mini_tf.system.errors import UsageFault

REPEATED = [golden.OPENING, 3, 7, 1, 9, 4, 3, 7, 1, 9, 4, 3, 7]


def random_rows(vocabulary: int = golden.V, length: int = golden.T) -> Tokens:
    """Repeated random tokens behind the opening one."""
    repeated = repeated_tokens(range(1, vocabulary), length - 1)
    assert repeated is not None
    return Tokens(F.pad(repeated, (1, 0), value=golden.OPENING))


def heads(model: Model, ids: list[int]) -> list[list[Head]]:
    scores = scores_on(model, random_rows(length=model.context))
    layers = [heads_of(attention, ids) for attention in capture(model, Tokens(torch.tensor([ids]))).attention]
    return [[replace(head, scores=scores[head.index]) for head in layer] for layer in layers]


def exactly(**scores: float) -> Scores:
    return {name: Score(score, 0.0) for name, score in scores.items()}


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_heads_set_by_hand_score_1_on_what_they_do_and_are_called_so(kind: str) -> None:
    rules = {"previous": golden.previous, "self": golden.itself, "first": golden.first, "same": golden.same}
    rules |= {"next": golden.following} if kind == "encoder" else {}
    layer = heads(golden.with_heads(kind, tuple(rules.values())), REPEATED)[0]
    assert [head.role for head in layer] == list(rules)
    assert [head.measures[name] for name, head in zip(rules, layer, strict=True)] == pytest.approx(
        [1.0] * len(rules), abs=1e-6
    )


def test_an_induction_head_set_by_hand_scores_1_on_induction() -> None:
    below, above = heads(golden.with_heads("decoder", (golden.previous,), (golden.induction,)), REPEATED)
    assert (below[0].role, below[0].measures["previous"]) == ("previous", pytest.approx(1, abs=1e-6))
    assert (above[0].role, above[0].measures["induction"]) == ("induction", pytest.approx(1, abs=1e-6))


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_a_uniform_head_has_entropy_1_and_a_one_hot_head_0(kind: str) -> None:
    [even, sharp] = heads(golden.with_heads(kind, (golden.uniform, golden.itself)), REPEATED)[0]
    assert even.measures["entropy"] == pytest.approx(1, abs=1e-6)
    assert even.role == "broad"
    assert sharp.measures["entropy"] == pytest.approx(0, abs=1e-6)
    assert sharp.measures["max"] == pytest.approx(1, abs=1e-6)
    n = len(REPEATED)
    away = [abs(i - j) for i, j in product(range(n), range(n))]
    if kind == "encoder":
        assert even.measures["distance"] == pytest.approx(sum(away) / n**2, abs=1e-6)
    assert sharp.measures["distance"] == pytest.approx(0, abs=1e-6)


def test_a_uniform_window_is_even_over_what_it_sees() -> None:
    model = settings_of("models", "encoder")(
        d_model=8, n_layers=1, attention=(settings_of("attention", "window")(window=2),)
    ).build(12, 24)  # type: ignore[attr-defined]
    with torch.no_grad():
        model.mixers()[0].qkv.weight.zero_()
    [layer] = [
        heads_of(attention, REPEATED) for attention in capture(model.eval(), Tokens(torch.tensor([REPEATED]))).attention
    ]
    assert [head.measures["entropy"] for head in layer] == pytest.approx([1.0] * 4, abs=1e-6)
    assert [head.measures["first"] for head in layer] == pytest.approx([1 / 5] * 4, abs=1e-6), (
        "row 2 alone sees the first token"
    )


OWN = {"toy", "softmax", "window", "linear", "favor", "simple", "sru", "srupp", "expire_span"}
MIXERS = [mixer for mixer in mixer_kinds() if usable(mixer, "learned", "decoder")]


@pytest.mark.parametrize("mixer", MIXERS)
def test_heads_of_every_mixer_are_measured(mixer: str) -> None:
    """The toy mixer, a fading sum, does not give all of its weight and says so; signed weights have no entropy."""
    for layer in heads(model_of("decoder", (mixer,), "learned"), REPEATED):
        sums = [head.weights.sum(axis=1)[head.visible.any(axis=1)] for head in layer]
        deviates = max(abs(each - 1).max() for each in sums) > 1e-4
        assert deviates == (mixer == "toy") or mixer not in OWN
        for head in layer:
            assert head.weights.dtype == np.float32
            positive = (head.weights >= 0).all()
            assert 0 <= head.measures["entropy"] <= 1 + 1e-6 if positive else head.measures["entropy"] is None
            assert ("row_sum" in head.measures) == deviates
            assert head.measures["self"] is None or head.measures["self"] <= head.measures["max"] + 1e-6


def test_columns_that_belong_to_no_token_are_left_out() -> None:
    weights = torch.tensor([[[[0.5, 0.5, 0.0], [0.2, 0.2, 0.6]]]])
    [head] = heads_of(
        CapturedAttention("decoder.self", 0, weights, 1, torch.ones(1, 2, 2, dtype=torch.bool).tril()), [1, 2]
    )
    assert head.weights.tolist() == weights[0, 0, :, 1:].tolist()
    assert head.measures["row_sum"] == pytest.approx(0.65)
    assert head.measures["self"] == pytest.approx(0.6)


def plain(p: np.ndarray, visible: np.ndarray, ids: list[int]) -> dict[str, float | None]:
    """The measures again, cell by cell from their definitions."""
    n = len(ids)
    rows = [i for i in range(n) if visible[i].sum() >= 2]
    targets = {
        "previous": lambda i, j: j == i - 1,
        "next": lambda i, j: j == i + 1,
        "self": lambda i, j: j == i,
        "first": lambda i, j: j == 0 and i >= 2,
        "induction": lambda i, j: 0 < j <= i and ids[j - 1] == ids[i],
        "same": lambda i, j: j != i and ids[j] == ids[i],
    }

    def mean(values: list[float]) -> float | None:
        return sum(values) / len(values) if values else None

    sees = {i: [j for j in range(n) if visible[i, j]] for i in rows}
    found = {
        "rows": len(rows),
        "entropy": mean(
            [-sum(p[i, j] * math.log(p[i, j]) for j in sees[i] if p[i, j] > 0) / math.log(len(sees[i])) for i in rows]
        ),
        "max": mean([max(p[i]) for i in rows]),
        "distance": mean([sum(p[i, j] * abs(i - j) for j in range(n)) for i in rows]),
    }
    for name, is_target in targets.items():
        shares = [[p[i, j] for j in sees[i] if is_target(i, j)] for i in rows]
        found[name] = mean([sum(share) for share in shares if share])
        if name in ("first", "induction", "same"):
            found[f"{name}_rows"] = len([share for share in shares if share])
    return found


@pytest.mark.parametrize("view", ["causal", "both", "window"])
@pytest.mark.parametrize("length", [1, 2, 3, 9])
def test_measures_are_their_formulas(view: str, length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    away = torch.arange(length)[:, None] - torch.arange(length)[None]
    visible = {"causal": away >= 0, "both": away < length, "window": away.abs() <= 1}[view]
    weights = torch.randn(3, length, length, generator=generator).mul(3).masked_fill(~visible, -torch.inf).softmax(-1)
    ids = torch.randint(3, (length,), generator=generator).tolist()
    for head, found in enumerate(measure(weights, visible, ids)):
        expected = plain(weights[head].double().numpy(), visible.numpy(), ids)
        assert found == {
            name: value if value is None else pytest.approx(value, abs=1e-6) for name, value in expected.items()
        }


def test_rows_that_do_not_sum_to_1_are_told_and_signed_ones_have_no_entropy() -> None:
    visible = torch.ones(4, 4, dtype=torch.bool)
    half, signed = torch.full((4, 4), 0.125), torch.tensor([1.5, -0.5, 0.0, 0.0]).expand(4, 4)
    [even, odd] = measure(torch.stack([half, signed]), visible, [1, 2, 3, 4])
    assert (even["row_sum"], even["entropy"], even["self"]) == (0.5, pytest.approx(1), 0.125)
    assert (odd["row_sum"], odd["entropy"], odd["distance"], odd["max"]) == (1.0, None, None, 1.5)
    mixed = torch.cat([2 * half[:3], signed[3:]])
    [one_signed] = measure(mixed[None], visible, [1, 2, 3, 4])
    assert (one_signed["entropy"], one_signed["distance"], one_signed["max"]) == (None, None, pytest.approx(0.5625))
    first_row = torch.tensor([[1.0, 0], [0.5, 0.5]])
    first_row[0, 0] = -1.0
    [uncounted] = measure(first_row[None], torch.ones(2, 2, dtype=torch.bool).tril(), [1, 2])
    assert (uncounted["entropy"], uncounted["distance"]) == (1.0, 0.5), (
        "a row that sees one token has no choice, and does not count"
    )
    [whole] = measure(2 * half[None], visible, [1, 2, 3, 4])
    assert "row_sum" not in whole


def test_between_two_texts_only_what_compares_no_positions_is_measured() -> None:
    [found] = measure(torch.tensor([[[1.0, 0, 0], [0.5, 0.5, 0]]]), torch.ones(2, 3, dtype=torch.bool), None)
    entropy = pytest.approx(math.log(2) / math.log(3) / 2)
    assert found == {"rows": 2, "entropy": entropy, "max": 0.75, "first": 0.75, "first_rows": 2}


@pytest.mark.parametrize(
    ("scores", "called"),
    [
        ({"previous": 0.6, "induction": 0.9}, "induction"),
        ({"first": 0.8, "same": 0.7}, "first"),
        ({"next": 0.51}, "next"),
        ({"self": 0.5, "broad": 0.91}, "broad"),
        ({"same": 0.6, "broad": 0.91}, "same"),
        ({"self": 0.5, "broad": 0.9}, None),
        ({}, None),
    ],
)
def test_a_role_is_what_has_more_than_half_of_the_attention(scores: dict[str, float], called: str | None) -> None:
    assert role_of(exactly(**scores)) == called


@pytest.mark.parametrize("name", ROLES)
def test_a_role_is_above_its_bound_by_two_standard_errors(name: str) -> None:
    bound = 0.9 if name == "broad" else 0.5
    assert role_of({name: Score(bound + 0.021, 0.01)}) == name
    assert role_of({name: Score(bound + 0.019, 0.01)}) is None
    assert Score.of([0.2, 0.4, 0.9]) == (
        pytest.approx(0.5),
        pytest.approx(0.2081666),
    )  # sqrt((0.09 + 0.01 + 0.16) / 2 / 3)
    assert str(Score(0.714, 0.028)) == "0.71 ± 0.03"


def test_random_rows_repeat_blocks_of_different_tokens_and_lengths() -> None:
    rows = repeated_tokens(range(100, 300), 64)
    assert rows is not None
    assert rows.shape == (N_ROWS, 64)
    lengths = [next(n for n in range(1, 65) if row[n] == row[0]) for row in rows.tolist()]
    assert sorted(lengths) == [*range(17, 33)], "more than a quarter of the row, at most half"
    for row, n in zip(rows.tolist(), lengths, strict=True):
        assert len({*row[:n]}) == n
        assert row == [row[i % n] for i in range(64)]
    assert len({row[0] for row in rows.tolist()}) > N_ROWS / 2
    assert {*range(100, 300)} >= {*rows.flatten().tolist()}
    assert torch.equal(rows, repeated_tokens(range(100, 300), 64)), "the same in every process"
    few = repeated_tokens(range(MIN_BLOCK), 64)
    assert few is not None
    assert len({*few[1].tolist()}) == 4
    assert repeated_tokens(range(MIN_BLOCK - 1), 64) is None
    assert repeated_tokens(range(64), 2 * MIN_BLOCK - 1) is None


def offset(distance: int) -> golden.Rule:
    return lambda query, key: golden._positions(query, key, lambda i: i - distance)


def test_a_head_at_a_fixed_distance_is_neither_induction_nor_same() -> None:
    model = golden.with_heads("decoder", tuple(offset(n) for n in range(2, golden.T)))
    assert {role_of(scores) for scores in scores_on(model, random_rows()).values()} <= {None, "first", "broad"}


def test_scores_of_random_rows_are_means_over_rows_and_their_errors() -> None:
    """Against plain loops over the weights of an untrained model; a window hides some keys of some rows."""
    torch.manual_seed(3)
    attention = (settings_of("attention", "window")(window=7), settings_of("attention", "softmax")())
    model = (
        settings_of("models", "decoder")(d_model=16, n_layers=2, n_heads=2, init_std=0.5, attention=attention)
        .build(12, 24)
        .eval()
    )  # type: ignore[attr-defined]
    rows = random_rows()
    scores = scores_on(model, rows)
    assert [*scores] == [HeadIndex("decoder.self", layer, head) for layer in (0, 1) for head in (0, 1)]
    for one in capture(model, rows).attention:
        for head in (0, 1):
            measured = [
                plain(one.weights[n, head].double().numpy(), one.mask[0].numpy(), row)
                for n, row in enumerate(rows.ids.tolist())
            ]
            for name, score in scores[HeadIndex("decoder.self", one.layer, head)].items():
                values = [
                    value for row in measured if (value := row["entropy" if name == "broad" else name]) is not None
                ]
                assert score.mean == pytest.approx(np.mean(values), abs=1e-6)
                assert score.error == pytest.approx(np.std(values, ddof=1) / len(values) ** 0.5, abs=1e-6)
    hidden, seen = (scores[HeadIndex("decoder.self", layer, 0)] for layer in (0, 1))
    assert {*seen} == {*ROLES} - {"next"}
    assert len([1 for row in rows.ids.tolist() if row[7 + 1] == row[1]]) < N_ROWS, (
        "of some rows the window hides the last occurrence"
    )
    assert {*hidden} == {*seen}


def test_an_encoder_decoder_has_roles_of_self_attention_alone() -> None:
    torch.manual_seed(0)
    model = (
        settings_of("models", "encoder_decoder")(d_model=16, n_layers=1, n_heads=2, init_std=0.5).build(12, 24).eval()
    )  # type: ignore[attr-defined]
    own, source = random_rows(), Tokens(random_rows(length=21).ids)
    scores = scores_on(model, own, source)
    assert [*scores] == [HeadIndex(kind, 0, head) for kind in ("encoder.self", "decoder.self") for head in (0, 1)]
    [encoder] = [one for one in capture(model, own, source).attention if one.kind == "encoder.self"]
    measured = [
        plain(encoder.weights[n, 1].double().numpy(), np.ones((21, 21), bool), row)
        for n, row in enumerate(source.ids.tolist())
    ]
    assert scores[HeadIndex("encoder.self", 0, 1)]["same"].mean == pytest.approx(
        np.mean([row["same"] for row in measured]), abs=1e-6
    )


def test_a_role_does_not_hang_on_the_text() -> None:
    """On this text an induction head has one row to show it, and a head of layer 0 looks like one."""
    ids = [golden.OPENING, 3, 7, 1, 9, 4, 2, 8, 5, 6, 10, 3]
    below, above = heads(golden.with_heads("decoder", (golden.previous, offset(9)), (golden.induction,) * 2), ids)
    assert (below[1].measures["induction"], below[1].role) == (pytest.approx(1, abs=1e-6), None)
    assert (above[0].measures["induction_rows"], above[0].role) == (1, "induction")
    sentence = "induction head, attention weight 1.00 ± 0.00 on the token after an earlier occurrence of the same token"
    assert describe_head(above[0], "word").startswith(
        f"decoder self-attention L1 H0: {sentence} (repeated random tokens); on this text mean"
    )


def test_every_role_has_a_letter_and_a_sentence_of_its_own() -> None:
    rules = (golden.previous, golden.following, golden.itself, golden.first, golden.same, golden.uniform)
    layer = heads(golden.with_heads("encoder", rules), REPEATED)[0]
    sentences = [describe_head(head, "token").removesuffix(" tokens") for head in layer]
    on_text = "(repeated random tokens); on this text mean normalized entropy"
    of_first = "previous-token head, attention weight 1.00 ± 0.00 on the previous token"
    means = "0.08, mean largest weight 0.93, mean distance 1.4"
    assert sentences[0] == f"encoder self-attention L0 H0: {of_first} {on_text} {means}"
    means = "1.00, mean largest weight 0.08, mean distance 4.3"
    of_last = "broad attention, normalized entropy 1.00 ± 0.00"
    assert sentences[5] == f"encoder self-attention L0 H5: {of_last} {on_text} {means}"
    assert "H3: first-token head (attention sink), attention weight 1.00 ± 0.00 on the first token (" in sentences[3]
    assert len({sentence.partition(": ")[2].partition(",")[0] for sentence in sentences}) == len(sentences)
    assert len(set(ROLES.values())) == len(ROLES)
    alone = heads(golden.with_heads("decoder", (golden.previous,)), [3])[0][0]
    assert describe_head(alone, "word").endswith("; no measures, because no word of this text attends to two or more")


def test_a_head_without_a_role_is_described_by_its_means_on_the_text() -> None:
    weights = torch.tensor([[1.0, 0, 0], [0.3, 0.7, 0], [0.2, 0.3, 0.5]])
    [head] = heads_of(
        CapturedAttention("decoder.self", 0, weights[None, None], 0, torch.ones(1, 3, 3, dtype=torch.bool).tril()),
        [1, 2, 3],
    )
    means = "mean normalized entropy 0.91, mean largest weight 0.60, mean distance 0.5 tokens"
    assert describe_head(head, "token") == f"decoder self-attention L0 H0: {means}", "not measured on random tokens"
    assert describe_head(replace(head, scores=exactly(self=0.3)), "token").endswith(f": no role; on this text {means}")


def sample_of(model: Model, ids: list[int]) -> Sample:
    spans: list[tuple[int, int] | None] = [(place, place + 1) for place in range(len(ids))]
    text = "".join(chr(ord("a") + id) for id in ids)
    every = [head for layer in heads(model, ids) for head in layer]
    return Sample(
        TokenizedTexts(TokenizedText(ModelInput(text, ids, spans), [*text], Words([], []))), every, None, 0.0, []
    )


def test_the_grid_has_each_heads_letter_in_its_layers_row() -> None:
    rules = (golden.previous, golden.itself, golden.first, golden.uniform)
    sample = sample_of(
        golden.with_heads("decoder", rules, (golden.induction, golden.itself, golden.previous, golden.uniform)),
        REPEATED,
    )
    cells = pictures.grid(sample)
    assert cells.letters == [["P", "S", "F", "B"], ["I", "S", "P", "B"]]
    assert (cells.rows, cells.columns) == (["L0 decoder.self", "L1 decoder.self"], ["H0", "H1", "H2", "H3"])
    assert set(cells.legend) == set("PSFBI")
    assert cells.values[1].tolist() == [head.measures["entropy"] for head in sample.heads[4:]]


def test_pictures_of_heads_have_each_weight_at_its_query_and_key() -> None:
    rules = ((golden.previous, golden.itself, golden.first), (golden.induction, golden.uniform, golden.same))
    sample = sample_of(golden.with_heads("decoder", *rules), REPEATED)
    figure = figures.drawn(lambda: draw(pictures.plot(sample, "run x, step 1"), "svg"))
    found = figures.maps(figure)
    names = ["L0 H0 previous", "L0 H1 self", "L0 H2 first", "L1 H0 induction", "L1 H1", "L1 H2 same"]
    assert [one.title for one in found] == names
    n = len(REPEATED)
    labels = dict(enumerate(sample.texts.inputs.tokens))
    visible = np.tril(np.ones((n, n), bool))
    exact = {"previous": np.eye(n, k=-1), "self": np.eye(n), "first": np.tile(np.eye(1, n), (n, 1))}
    for number, one in enumerate(found):
        assert (np.isnan(one.values) == ~visible).all(), "keys that a query may not attend to are blank"
        assert one.colors == ("Blues", 0, 1)
        expected = exact.get(one.title.split()[-1])
        if expected is not None:
            rows = slice(1, None)  # the first query attends to itself
            np.testing.assert_allclose(np.nan_to_num(one.values)[rows], (expected * visible)[rows], atol=1e-6)
        assert (one.rows == labels) == (number % 3 == 0)
        assert (one.columns == labels) == (number >= 3)
    np.testing.assert_allclose(np.nansum(found[4].values, axis=1), 1, atol=1e-6)
    assert np.ptp(found[4].values[n - 1]) < 1e-6
    plotted = pictures.plot(sample, "run x")
    assert isinstance(plotted, PanelGrid)
    assert [panel.line for panel in plotted.panels] == [0, 0, 0, 1, 1, 1], "a row of maps per layer"
    assert pictures.axes_legend(sample) == "Rows: queries, one per token. Columns: keys."
    n_pictures = {n: len([*pictures.pictures_of_steps([sample] * n, ["text"] * n)]) for n in (1, 2)}
    assert n_pictures == {1: 2, 2: 5}, "tables and a legend; of several texts each is named"
    title, text, note, *sides = figures.texts(figure)
    assert title == "decoder self-attention, run x, step 1, roles on repeated random tokens"
    assert (text, note) == (sample.text, "Grey: keys that a query may not attend to.")
    assert sides == ["query", "key"]
    alone = figures.drawn(lambda: draw(pictures.plot(replace(sample, heads=sample.heads[3:4]), "run x, step 1"), "svg"))
    [one] = figures.maps(alone)
    np.testing.assert_array_equal(one.values, found[3].values)
    assert (one.rows, one.columns) == (labels, labels)
    assert figures.texts(alone)[0] == "decoder self-attention L1 H0, run x, step 1"
    assert "Induction head, attention weight 1.00 ± 0.00 on the token after" in " ".join(figures.texts(alone))
    of_query = figures.drawn(lambda: draw(pictures.plot(replace(sample, query=Query(7, "h")), "run x, step 1"), "svg"))
    lines = [(*segment[0], round(segment[1][0])) for segment in of_query.axes[0].collections[0].get_segments()]
    assert (7, 1, 6) in lines, "the previous token"
    assert (7, 1, 2) in lines, "where the token 7 stands before"
    assert (7, 1, 3) in lines, "what followed it"
    assert figures.texts(of_query)[0] == "run x, step 1: decoder self-attention of one token: h"


def test_a_sentence_about_a_query_names_the_largest_weights_that_are_not_0() -> None:
    weights = np.array([[0.004, 0.3, 0.006, 0.55, 0.14]], np.float32)
    head = Head(HeadIndex("cross", 2, 1), weights, np.ones((1, 5), bool), {}, {}, "input", "source")
    own, source = (
        TokenizedText(ModelInput(text, [*range(len(text))], [None] * len(text)), [*text], Words([], []))
        for text in ("q", "abcde")
    )
    sample = Sample(TokenizedTexts(own, source), [head], Query(0, "q"), 0.0, [])
    start = "cross-attention L2 H1: 'q' (0) attends to "
    assert describe_query(head, sample) == f"{start}'d' (3) 0.55, 'b' (1) 0.30, 'e' (4) 0.14"
    assert describe_query(head, sample, most=9) == f"{start}'d' (3) 0.55, 'b' (1) 0.30, 'e' (4) 0.14, 'c' (2) 0.01"
    drawn = pictures.query_weights(sample)
    assert (drawn.query_index, list(drawn.tokens), drawn.weights.tolist()) == (None, list("abcde"), weights.tolist())
    hidden = replace(head, visible=np.array([[True, True, False, False, False]]))
    assert list(pictures.query_weights(replace(sample, heads=[hidden])).tokens) == ["a", "b"], "the query is no key"


def test_a_pattern_that_one_row_alone_can_show_has_no_score() -> None:
    ids = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 6, 7, 8, 9, 6], [0, 5, 4, 3, 2, 1]])
    scores = scores_on(golden.with_heads("decoder", (golden.same,)), Tokens(ids))
    assert {*scores[HeadIndex("decoder.self", 0, 0)]} == {"previous", "self", "first", "broad"}
    assert (
        "same"
        in scores_on(golden.with_heads("decoder", (golden.same,)), Tokens(ids[[0, 1, 1]]))[
            HeadIndex("decoder.self", 0, 0)
        ]
    )


@pytest.mark.parametrize(
    ("weights", "high", "is_open"),
    [
        ([0.03] * 100, 0.05, False),
        ([0.03] * 999 + [0.9], 0.05, True),
        ([0.03] * 980 + [0.15] * 20, 0.2, False),
        ([0.05] * 100, 0.05, False),
        ([0.06] * 100, 0.1, False),
        ([0.3] * 100, 0.5, False),
        ([0.51] * 100, 1.0, False),
        ([3.0] * 100, 1.0, True),
        ([np.nan] * 50 + [0.4] * 50, 0.5, False),
    ],
)
def test_a_color_scale_ends_above_99_percent_of_the_weights(weights: list[float], high: float, is_open: bool) -> None:
    scale = pictures.scale_of([np.array(weights).reshape(-1, 10), np.full((1, 1), np.nan)])
    assert (scale.low, scale.high, scale.open_end, scale.label) == (0, high, is_open, "attention weight")


def test_a_table_has_the_largest_score_of_each_pattern_and_its_head() -> None:
    def head(number: int, **scores: float) -> Head:
        return Head(
            HeadIndex("decoder.self", 1, number),
            np.eye(1),
            np.ones((1, 1), bool),
            {},
            {n: Score(s, 0.01) for n, s in scores.items()},
        )

    _, table = pictures.best_scores(
        [head(0, previous=0.3, induction=0.2, broad=0.95), head(1, previous=0.1, induction=0.4), head(2)]
    )
    assert [line.rstrip() for line in table(colored=False, width=80).plain.splitlines()] == [
        "largest weight on random tokens  ± standard error  head",
        "previous token                   0.30 ± 0.01       decoder self-attention L1 H0",
        "induction                        0.40 ± 0.01       decoder self-attention L1 H1",
    ]
    assert [*pictures.best_scores([head(0)])] == [], "not measured"


def test_over_the_steps_each_head_keeps_its_line_with_a_letter_a_step() -> None:
    early = sample_of(golden.with_heads("decoder", (golden.uniform, golden.previous)), REPEATED)
    late = sample_of(golden.with_heads("decoder", (golden.itself, golden.previous)), REPEATED)
    headers, rows = pictures.table_of_steps([replace(early, step=1), replace(late, step=20)])
    assert headers == ["head", "step 1", "step 20"]
    names = [f"decoder self-attention L0 H{head}" for head in (0, 1)]
    assert rows == [[names[0], "1.00 B", "0.00 S"], [names[1], "0.00 P", "0.00 P"]]
    said = "entropy on the text, role on repeated random tokens:  P previous token  S current token  B broad attention"
    assert pictures.legend([early, late]) == said


def named(role: str | None, entropy: float, share: float = 0.0) -> Head:
    measures = {"entropy": entropy, "first": share if role == "first" else 0.0}
    scores = exactly(**{role: share}) if role else exactly(same=0.2)
    return Head(HeadIndex("decoder.self", 0, 0), np.eye(1), np.ones((1, 1), bool), measures, scores)


def test_the_most_structured_are_the_strongest_of_each_role_then_the_sharpest_and_the_first_token_last() -> None:
    weak, strong = named("previous", 0.2, 0.6), named("previous", 0.5, 0.9)
    own, sharp, dull = named("self", 0.1, 0.8), named(None, 0.3), named(None, 0.8)
    rests, broad = named("first", 0.05, 0.99), named("broad", 0.85, 0.95)
    everything = [broad, rests, dull, weak, sharp, own, strong]
    assert pictures.most_structured(everything, most=9) == [strong, own, sharp, dull, rests]
    assert pictures.most_structured(everything) == [strong, own, sharp]
    assert pictures.most_structured([broad, rests]) == [rests]


def test_where_all_heads_are_broad_the_least_broad_is_shown_and_where_none_has_a_choice_none() -> None:
    even, less = named("broad", 0.99, 0.99), named(None, 0.92)
    assert pictures.most_structured([even, less]) == [less]
    alone = replace(named(None, 0.0), measures={"entropy": None})
    assert pictures.most_structured([alone]) == []


def test_attention_to_a_split_word_is_summed_and_from_it_averaged() -> None:
    weights = torch.tensor([[[1.0, 0, 0, 0], [0.4, 0.6, 0, 0], [0.1, 0.2, 0.7, 0], [0.2, 0.3, 0.1, 0.4]]])
    visible = torch.ones(4, 4, dtype=torch.bool).tril()
    between, sees = aggregate_by_words(weights, visible, [0, 1, 1, 2])
    expected = [[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.2, 0.4, 0.4]]
    torch.testing.assert_close(between, torch.tensor([expected]))
    assert torch.equal(sees, torch.ones(3, 3, dtype=torch.bool).tril())


def copier() -> Model:
    """A decoder that learnt to go on with texts that repeat. Its first layer sees one token back only, so it must find
    the rest itself.
    """
    torch.manual_seed(0)
    mixers = (settings_of("attention", "window")(window=1), settings_of("attention", "softmax")())  # type: ignore[attr-defined]
    none = settings_of("positions", "none")()
    settings = {"d_model": 48, "n_layers": 2, "n_heads": 2, "d_ff": 0, "tied": False, "init_std": 0.1}
    model = settings_of("models", "decoder")(**settings, attention=mixers, positions=none).build(16, 24)  # type: ignore[attr-defined]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 30) * (1 - step / 150))
    for _ in range(150):
        period = int(torch.randint(6, 13, ()))
        ids = repeated(16, period)
        scores = model.logits(model(Tokens(ids[:, :-1])).y)
        F.cross_entropy(scores[:, period - 1 :].flatten(0, 1), ids[:, period:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    assert isinstance(model, Model)
    return model.eval()


def repeated(batch: int, period: int) -> Tensor:
    """Texts of 24 tokens: so many different ones, again and again."""
    return torch.rand(batch, 16).argsort(dim=1)[:, :period].repeat(1, -(-24 // period))[:, :24]


def test_a_model_that_learnt_to_copy_shows_the_heads_it_copies_with() -> None:
    scores = scores_on(copier(), random_rows(16))
    roles = [(index.layer, role_of(of_head)) for index, of_head in scores.items()]
    assert (0, "previous") in roles
    assert (1, "induction") in roles
    assert (0, "induction") not in roles


def test_kinds_of_heads_are_listed_once() -> None:
    heads = [HeadIndex(kind, layer, 0) for layer in range(3) for kind in ("decoder.self", "cross")]
    with pytest.raises(UsageFault, match=r"^--kind encoder.self: the model has only cross, decoder.self$"):
        HeadSelection("encoder.self").select(heads)


def test_weights_of_a_query_are_drawn_up_to_the_query_or_the_last_key_that_it_sees() -> None:
    """A query that does not attend to itself is a column, too."""
    tokens = [f"w{n}" for n in range(6)]
    for seen, end in ((2, 5), (5, 6)):
        weights, visible = np.zeros((2, 6, 6)), np.zeros((2, 6, 6), bool)
        weights[:, 4, seen], visible[:, 4, seen] = 1.0, True
        heads = [
            SimpleNamespace(
                index=HeadIndex("decoder.self", 0, n),
                queries="input",
                keys="input",
                weights=weights[n],
                visible=visible[n],
            )
            for n in range(2)
        ]
        sample: Any = SimpleNamespace(heads=heads, query=Query(4, "w4"), unit="token", columns=lambda head: tokens)
        drawn = pictures.query_weights(sample)
        assert (drawn.weights.shape, [*drawn.tokens], drawn.query_index) == ((2, end), tokens[:end], 4)
