"""What is said of heads: exact on models set by hand, equal to plain loops on chance maps, and found in a model that
learnt to copy.
"""

import math
from dataclasses import replace
from itertools import product

import golden
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_models import model_of, usable
from torch import Tensor
from toys import mixer_kinds

from mini_tf.inspection.capture import CapturedAttention, capture
from mini_tf.inspection.describe import describe_head
from mini_tf.inspection.head_selection import HeadIndex
from mini_tf.inspection.heads import ROLES, measure, role
from mini_tf.inspection.maps import panels as panels
from mini_tf.inspection.maps.attention import Head, Query, Sample, heads_of
from mini_tf.inspection.model_input import ModelInput
from mini_tf.inspection.tokenized_texts import TokenizedText, TokenizedTexts
from mini_tf.inspection.words import Words, aggregate_by_words
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import settings_of

REPEATED = [golden.OPENING, 3, 7, 1, 9, 4, 3, 7, 1, 9, 4, 3, 7]


def heads(model: Model, ids: list[int]) -> list[list[Head]]:
    return [heads_of(reading, ids) for reading in capture(model, Tokens(torch.tensor([ids]))).attention]


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_heads_set_by_hand_score_1_on_what_they_do_and_are_called_so(kind: str) -> None:
    rules = {"previous": golden.previous, "self": golden.itself, "first": golden.first, "same": golden.same}
    rules |= {"next": golden.following} if kind == "encoder" else {}
    layer = heads(golden.with_heads(kind, tuple(rules.values())), REPEATED)[0]
    assert [head.role for head in layer] == list(rules)
    assert [head.measures[name] for name, head in zip(rules, layer, strict=True)] == pytest.approx([1.0] * len(rules), abs=1e-6)


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
    model = settings_of("models", "encoder")(d_model=8, n_layers=1, attention=(settings_of("attention", "window")(window=2),)).build(12, 24)  # type: ignore[attr-defined]
    with torch.no_grad():
        model.mixers()[0].qkv.weight.zero_()
    [layer] = heads(model.eval(), REPEATED)
    assert [head.measures["entropy"] for head in layer] == pytest.approx([1.0] * 4, abs=1e-6)
    assert [head.measures["first"] for head in layer] == pytest.approx([1 / 5] * 4, abs=1e-6), "row 2 alone sees the first token"


HEADS = [(kind, mixer) for kind in ("decoder", "encoder") for mixer in mixer_kinds() if usable(mixer, "learned", kind) and mixer != "sru"]


@pytest.mark.parametrize(("kind", "mixer"), HEADS)
def test_heads_of_every_mixer_are_measured(kind: str, mixer: str) -> None:
    """The toy mixer, a fading sum, does not give all of its weight to tokens, and says so."""
    for layer in heads(model_of(kind, (mixer,), "learned"), REPEATED):
        for head in layer:
            assert head.weights.dtype == np.float32
            assert 0 <= head.measures["entropy"] <= 1 + 1e-6
            assert ("row_sum" in head.measures) == (mixer == "toy")
            assert 0 < head.measures["self"] <= head.measures["max"] + 1e-6


def test_columns_that_belong_to_no_token_are_left_out() -> None:
    weights = torch.tensor([[[[0.5, 0.5, 0.0], [0.2, 0.2, 0.6]]]])
    [head] = heads_of(CapturedAttention("decoder.self", 0, weights, 1, torch.ones(1, 2, 2, dtype=torch.bool).tril()), [1, 2])
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
        "entropy": mean([-sum(p[i, j] * math.log(p[i, j]) for j in sees[i] if p[i, j] > 0) / math.log(len(sees[i])) for i in rows]),
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
        assert found == {name: value if value is None else pytest.approx(value, abs=1e-6) for name, value in expected.items()}


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
    assert (uncounted["entropy"], uncounted["distance"]) == (1.0, 0.5), "a row that sees one token has no choice, and does not count"
    [whole] = measure(2 * half[None], visible, [1, 2, 3, 4])
    assert "row_sum" not in whole


def test_between_two_texts_only_what_compares_no_positions_is_measured() -> None:
    [found] = measure(torch.tensor([[[1.0, 0, 0], [0.5, 0.5, 0]]]), torch.ones(2, 3, dtype=torch.bool), None)
    entropy = pytest.approx(math.log(2) / math.log(3) / 2)
    assert found == {"rows": 2, "entropy": entropy, "max": 0.75, "first": 0.75, "first_rows": 2}


@pytest.mark.parametrize(
    ("scores", "called"),
    [
        ({"previous": 0.6, "induction": 0.9}, "previous"),
        ({"first": 0.6, "induction": 0.9}, "induction"),
        ({"first": 0.8, "same": 0.7}, "first"),
        ({"next": 0.51}, "next"),
        ({"self": 0.5, "entropy": 0.91}, "broad"),
        ({"same": 0.9, "entropy": 0.91}, "broad"),
        ({"self": 0.5, "entropy": 0.9}, None),
        ({"same": None}, None),
    ],
)
def test_a_role_is_what_takes_more_than_half(scores: dict[str, float | None], called: str | None) -> None:
    assert role({"entropy": 0.4, "rows": 12, "first_rows": 11, "induction_rows": 3, "same_rows": 3} | scores) == called


@pytest.mark.parametrize("name", ["first", "induction", "same"])
@pytest.mark.parametrize(
    ("able", "of", "enough"), [(1, 12, False), (2, 2, False), (3, 3, True), (3, 12, True), (3, 13, False), (4, 16, True)]
)
def test_a_role_that_only_some_rows_can_show_needs_three_of_them_and_a_quarter_of_all(name: str, able: int, of: int, enough: bool) -> None:
    assert role({"entropy": 0.4, "rows": of, name: 0.9, f"{name}_rows": able}) == (name if enough else None)


def test_an_induction_head_is_not_called_so_by_a_text_where_one_row_alone_could_show_it() -> None:
    model = golden.with_heads("decoder", (golden.previous,), (golden.induction,))
    [head] = heads(model, [golden.OPENING, 3, 7, 1, 9, 4, 2, 8, 5, 6, 10, 3])[1]
    assert (head.measures["rows"], head.measures["induction_rows"]) == (11, 1)
    assert head.measures["induction"] == pytest.approx(1, abs=1e-6)
    assert head.role != "induction"
    [head] = heads(model, REPEATED)[1]
    assert (head.measures["rows"], head.measures["induction_rows"], head.role) == (12, 7, "induction")
    said = "induction head, attention weight 1.00 on the token after an earlier occurrence of the same token (mean over 7 rows)"
    assert describe_head(head, "token") == f"decoder self-attention L1 H0: {said}"


@pytest.mark.parametrize(("rows", "called"), [(0, None), (1, None), (2, None), (3, "self")])
def test_a_text_with_fewer_than_three_rows_that_have_a_choice_gives_no_role(rows: int, called: str | None) -> None:
    """A head that is even over two tokens gives each of them half."""
    assert role({"rows": rows, "entropy": 0.9999, "self": 0.505}) == called


@pytest.mark.parametrize(("causal", "shown"), [(True, 3), (False, 6)])
def test_what_a_query_cannot_look_at_behind_it_is_left_out_of_its_fan(causal: bool, shown: int) -> None:
    visible = np.tri(6, dtype=bool) if causal else np.ones((6, 6), bool)
    weights = (visible / visible.sum(axis=1, keepdims=True)).astype(np.float32)
    heads = [Head(HeadIndex("decoder.self", 0, number), weights, visible, {}, None) for number in range(2)]
    side = TokenizedText(ModelInput("abcdef", [*range(6)], [None] * 6), list("abcdef"), Words([], []))
    sample = Sample(TokenizedTexts(side), heads, Query(2, "c"), 0.0, [])
    drawn = panels.query_weights(sample)
    assert (list(drawn.tokens), drawn.weights.shape, drawn.query_index) == (list("abcdef")[:shown], (2, shown), 2)


def test_every_role_has_a_letter_and_a_sentence_of_its_own() -> None:
    layer = heads(
        golden.with_heads("encoder", (golden.previous, golden.following, golden.itself, golden.first, golden.same, golden.uniform)),
        REPEATED,
    )[0]
    sentences = [describe_head(head, "token") for head in layer]
    assert sentences[0] == "encoder self-attention L0 H0: previous-token head, attention weight 1.00 on the previous token"
    assert sentences[-1] == "encoder self-attention L0 H5: broad attention, mean normalized entropy 1.00, mean distance 4.3 tokens"
    rests = "encoder self-attention L0 H3: first-token head (attention sink), attention weight 1.00 on the first token"
    assert sentences[3] == rests
    assert len({sentence.partition(": ")[2].partition(",")[0] for sentence in sentences}) == len(sentences)
    assert len(set(ROLES.values())) == len(ROLES)
    alone = heads(golden.with_heads("decoder", (golden.previous,)), [3])[0][0]
    assert describe_head(alone, "word") == "decoder self-attention L0 H0: no measures, because no word of this text attends to two or more"


def test_what_a_head_without_a_pattern_does_is_said_to_be_a_mean() -> None:
    weights = torch.tensor([[1.0, 0, 0], [0.3, 0.7, 0], [0.2, 0.3, 0.5]])
    [head] = heads_of(CapturedAttention("decoder.self", 0, weights[None, None], 0, torch.ones(1, 3, 3, dtype=torch.bool).tril()), [1, 2, 3])
    head = replace(head, role=None)
    assert describe_head(head, "token").endswith(
        ": no role, mean normalized entropy 0.91, mean largest weight 0.60, mean distance 0.5 tokens"
    )


def sample_of(model: Model, ids: list[int]) -> Sample:
    spans: list[tuple[int, int] | None] = [(place, place + 1) for place in range(len(ids))]
    text = "".join(chr(ord("a") + id) for id in ids)
    every = [head for layer in heads(model, ids) for head in layer]
    return Sample(TokenizedTexts(TokenizedText(ModelInput(text, ids, spans), [*text], Words([], []))), every, None, 0.0, [])


def test_the_grid_has_each_heads_letter_in_its_layers_row() -> None:
    rules = (golden.previous, golden.itself, golden.first, golden.uniform)
    sample = sample_of(golden.with_heads("decoder", rules, (golden.induction, golden.itself, golden.previous, golden.uniform)), REPEATED)
    cells = panels.grid(sample)
    assert cells.letters == [["P", "S", "F", "B"], ["I", "S", "P", "B"]]
    assert (cells.rows, cells.columns) == (["L0 decoder.self", "L1 decoder.self"], ["H0", "H1", "H2", "H3"])
    assert set(cells.legend) == set("PSFBI")
    assert cells.values[1].tolist() == [head.measures["entropy"] for head in sample.heads[4:]]


def test_over_the_steps_each_head_keeps_its_line_with_a_letter_a_step() -> None:
    early = sample_of(golden.with_heads("decoder", (golden.uniform, golden.previous)), REPEATED)
    late = sample_of(golden.with_heads("decoder", (golden.itself, golden.previous)), REPEATED)
    headers, rows = panels.table_of_steps([replace(early, step=1), replace(late, step=20)])
    assert headers == ["head", "step 1", "step 20"]
    names = [f"decoder self-attention L0 H{head}" for head in (0, 1)]
    assert rows == [[names[0], "1.00 B", "0.00 S"], [names[1], "0.00 P", "0.00 P"]]
    assert panels.legend([early, late]) == "entropy and role:  P previous token  S current token  B broad attention"


def named(role: str | None, entropy: float, share: float = 0.0) -> Head:
    return Head(
        HeadIndex("decoder.self", 0, 0), np.eye(1), np.ones((1, 1), bool), {"entropy": entropy} | ({role: share} if role else {}), role
    )


def test_the_most_structured_are_the_strongest_of_each_role_then_the_sharpest_and_the_first_token_last() -> None:
    weak, strong = named("previous", 0.2, 0.6), named("previous", 0.5, 0.9)
    own, sharp, dull = named("self", 0.1, 0.8), named(None, 0.3), named(None, 0.8)
    rests, broad = named("first", 0.05, 0.99), named("broad", 0.95)
    everything = [broad, rests, dull, weak, sharp, own, strong]
    assert panels.most_structured(everything, most=9) == [strong, own, sharp, dull, rests]
    assert panels.most_structured(everything) == [strong, own, sharp]
    assert panels.most_structured([broad, rests]) == [rests]


def test_where_all_heads_are_broad_the_least_broad_is_shown_and_where_none_has_a_choice_none() -> None:
    even, less = named("broad", 0.99), named("broad", 0.92)
    assert panels.most_structured([even, less]) == [less]
    alone = replace(named(None, 0.0), measures={"entropy": None})
    assert panels.most_structured([alone]) == []


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
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 30) * (1 - step / 300))
    for _ in range(300):
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
    model = copier()
    ids = repeated(1, 9)[0].tolist()
    below, above = heads(model, ids)
    assert "previous" in [head.role for head in below]
    best = max(above, key=lambda head: head.measures["induction"] or 0.0)
    assert best.role == "induction"
    assert (best.measures["induction"] or 0.0) > 0.5
