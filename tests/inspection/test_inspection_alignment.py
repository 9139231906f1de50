"""Alignments by cross-attention: heads set by hand are found where they are, the error rate is the formula's, halves do
not mix.
"""

import itertools
import random
from dataclasses import replace
from pathlib import Path

import figures
import golden
import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers

from mini_tf.data.examples import Pair
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.drawing.heat_maps import draw
from mini_tf.drawing.panel import PanelGrid
from mini_tf.inspection import align
from mini_tf.inspection._alignments import (
    GoldAlignment,
    HeadComparison,
    HeadShift,
    align_pairs,
    alignment_of,
    between_words,
    compare_heads,
    dataset_alignments,
    diagonal,
    error_rate,
    format_alignment,
    head_shifts,
    parse_alignment,
    read_alignments,
    word_weights,
)
from mini_tf.inspection._capture import Capture, CapturedAttention, capture
from mini_tf.inspection._heads import HeadSelection
from mini_tf.inspection._texts import ModelInput
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe import reading
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.sections import Runtime
from mini_tf.system.errors import DataFault, UsageFault
from mini_tf.trained.opening import Trained
from mini_tf.training.machine.device import resolve_setup

V, T = 12, 24
D = V + T
N = 6
"""Words of every sentence."""
SHARP = 60.0
WORDS = "abcdefghij"


def tokenizer() -> Tokenizer:
    """Ten words of a token each, and the separator."""
    inner = tokenizers.Tokenizer(
        models.WordLevel({token: id for id, token in enumerate(["<unk>", "</s>", *WORDS])}, unk_token="<unk>")
    )
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(["<unk>", "</s>"])
    return Tokenizer(inner)


def with_cross_heads(*layers: tuple[str, ...]) -> Model:
    """An encoder-decoder of cross heads that are `even`, look at the `same` token, or from row i at place N - 1 - i
    (`reversed`).

    A vector is which token it is, and where it stands; no other mixer does anything.
    """
    softmax = settings_of("attention", "softmax")(scale="none")
    model = settings_of("models", "encoder_decoder")(  # type: ignore[attr-defined]
        d_model=D, n_layers=len(layers), n_heads=len(layers[0]), d_k=D, d_v=D, d_ff=0, norm_place="none",
        attention=(softmax,),
        cross_attention=softmax, positions=settings_of("positions", "learned")(length=T),
    ).build(V, T)  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.tokens.weight[:, :V] = torch.eye(V)
        for embedding in (model.embedding, model.source_embedding):
            embedding.position.table.weight[:, V:] = torch.eye(T)
        for block, heads in zip(model.stack.layers, layers, strict=True):
            queries = block.cross_attn.part.q.weight.view(len(heads), D, D)
            keys = block.cross_attn.part.kv.weight.view(2, len(heads), D, D)[0]
            for head, query, key in zip(heads, queries, keys, strict=True):
                key.copy_(torch.eye(D))
                if head == "same":
                    query[:V, :V] = SHARP * torch.eye(V)
                elif head == "reversed":
                    query[V : V + N, V : V + N] = SHARP * torch.eye(N).flip(0)
    assert isinstance(model, Model)
    return model.eval()


def run_of(model: Model) -> Trained:
    text = tokenizer()
    recipe = reading.read("transformer-nano", []).recipe
    setup = resolve_setup(Runtime(device="cpu", precision="fp32", threads=1))
    return Trained(Path("none"), recipe, text, text, model, {}, None, recipe.objective.build(text.vocabulary), 0, setup)


def shuffled(count: int, permute: bool) -> tuple[list[Pair], list[GoldAlignment | None]]:
    """Sentences of N different words, their words in another order, or reversed; and the links."""
    draw, pairs, gold = random.Random(5), [], []
    for number in range(count):
        source = draw.sample(WORDS, N)
        order = draw.sample(range(N), N) if permute else [*range(N)][::-1]
        pairs.append(Pair(" ".join(source), " ".join(source[i] for i in order), f"f:{number + 1}"))
        sure = frozenset((i, j) for j, i in enumerate(order))
        gold.append(GoldAlignment(sure, sure))
    return pairs, list(gold)


def swept(model: Model, pairs: list[Pair], gold: list[GoldAlignment | None]) -> HeadComparison:
    found = align_pairs(run_of(model), pairs)
    assert found[0] is not None
    return compare_heads(pairs, found, gold, head_shifts(found[0].sharpness.shape, HeadSelection(), None))


def test_the_error_rate_of_a_worked_example() -> None:
    """A = 3 links, S = 2 of which 1 is found, P = 3 of which 2 are found: 1 - (1 + 2) / (3 + 2)."""
    gold = GoldAlignment(frozenset({(0, 0), (2, 1)}), frozenset({(0, 0), (2, 1), (1, 1)}))
    assert error_rate([frozenset({(0, 0), (1, 1), (2, 2)})], [gold]) == pytest.approx(0.4)
    assert error_rate([gold.sure], [gold]) == error_rate([gold.possible], [gold]) == 0
    assert error_rate([frozenset()], [gold]) == 1
    assert error_rate([frozenset()], [GoldAlignment(frozenset(), frozenset())]) is None


def test_the_error_rate_counts_cells_over_all_pairs() -> None:
    """Against sums over matrices of truth values."""
    draw = np.random.default_rng(1)
    a, s, p = (draw.random((20, 5, 7)) < share for share in (0.3, 0.2, 0.4))
    p |= s

    def sets(cells: np.ndarray) -> list[frozenset[tuple[int, int]]]:
        return [frozenset((int(i), int(j)) for i, j in zip(*np.nonzero(one), strict=True)) for one in cells]

    rate = error_rate(sets(a), [GoldAlignment(*both) for both in zip(sets(s), sets(p), strict=True)])
    assert rate == pytest.approx(1 - ((a & s).sum() + (a & p).sum()) / (a.sum() + s.sum()))


@pytest.mark.parametrize(
    ("layers", "permute", "best"),
    [
        ((("even", "even"), ("even", "reversed")), False, HeadShift(1, 1, 0)),
        ((("even", "same"), ("even", "even")), True, HeadShift(0, 1, 1)),
        ((("reversed", "even"), ("even", "same")), True, HeadShift(1, 1, 1)),
    ],
)
def test_a_head_set_by_hand_is_found_at_its_layer_and_shift(
    layers: tuple[tuple[str, ...], ...], permute: bool, best: HeadShift
) -> None:
    """`reversed` looks when it predicts a word, `same` when it reads it; the diagonal is far off, the other shift is
    wrong.
    """
    result = swept(with_cross_heads(*layers), *shuffled(40, permute))
    assert (result.best.head, result.best.aer, result.aer) == (best, 0.0, 0.0)
    assert (result.chosen_on, result.reported_on) == (20, 20)
    assert result.diagonal is not None
    assert result.diagonal > 0.7
    others = {head.head: head.aer for head in result.heads if head.head != best}
    assert len(others) == 7
    assert all(aer is not None and aer > 0.7 for aer in others.values())


def test_the_half_that_judges_has_no_part_in_the_choice() -> None:
    """Other gold links in it change what is reported, and nothing of the choice; in the other half they do change
    it.
    """
    model = with_cross_heads(("same", "reversed"))
    pairs, by_word = shuffled(12, permute=True)
    backwards = frozenset((N - 1 - j, j) for j in range(N))
    by_place: list[GoldAlignment | None] = [GoldAlignment(backwards, backwards)] * 12

    def halves(choosing: list[GoldAlignment | None], judging: list[GoldAlignment | None]) -> HeadComparison:
        return swept(model, pairs, [*itertools.chain.from_iterable(zip(choosing[::2], judging[1::2], strict=True))])

    assert (halves(by_place, by_place).best.head, halves(by_word, by_word).best.head) == (
        HeadShift(0, 1, 0),
        HeadShift(0, 0, 1),
    )
    mixed, same = halves(by_place, by_word), halves(by_place, by_place)
    assert (mixed.best, mixed.heads) == (same.best, same.heads)
    assert same.aer == 0
    assert mixed.aer is not None
    assert mixed.aer > 0.5


def test_without_gold_links_the_sharpest_head_is_taken_and_a_single_pair_is_only_judged() -> None:
    pairs, gold = shuffled(3, permute=True)
    model = with_cross_heads(("even", "same"))
    blind = swept(model, pairs, [None] * 3)
    assert (blind.best.head, blind.best.aer, blind.aer, blind.diagonal) == (HeadShift(0, 1, 1), None, None, None)
    assert blind.best.sharpness == pytest.approx(1)
    alone = swept(model, pairs, [None, gold[1], None])
    assert (alone.chosen_on, alone.reported_on, alone.best.aer, alone.aer) == (0, 1, None, 0.0)


def test_weights_between_words_are_sums_over_source_tokens_and_means_over_target_tokens() -> None:
    """By loops, with columns that belong to no token, and padding behind both sides."""
    source = ModelInput("ab cd  e", [5, 6, 7, 8, 9, 1], [(0, 1), (1, 2), (2, 4), (4, 5), (5, 8), None])
    target = ModelInput("xyz  w", [1, 5, 6, 7, 8], [None, (0, 2), (2, 3), (3, 5), (5, 6)])
    word_of_source, word_of_target = [1, 1, 2, 2, 3, 0], {0: [1, 2, 3], 1: [4]}
    lead, (n_rows, n_columns) = 2, (7, 9)
    weights = torch.rand(3, 2, n_rows, lead + n_columns, generator=torch.Generator().manual_seed(0))
    every = torch.ones(1, n_rows, n_columns, dtype=torch.bool)
    other = CapturedAttention("decoder.self", 0, torch.zeros(3, 2, 7, 7), 0, every[:, :, :7])
    found = between_words(
        Capture([other, CapturedAttention("cross", 0, weights, lead, every, "input", "source")], [], 0.0),
        1,
        source,
        target,
    ).weights
    assert found.shape == (1, 2, 2, 2, 4)
    for head, shift, word, column in itertools.product(range(2), range(2), range(2), range(4)):
        rows = [token - 1 + shift for token in word_of_target[word]]
        columns = [lead + place for place, number in enumerate(word_of_source) if number == column]
        columns += range(lead) if column == 0 else []
        mean = sum(float(weights[1, head, row, place]) for row in rows for place in columns) / len(rows)
        assert found[0, head, shift, word, column] == pytest.approx(mean, rel=1e-5)


def random_model() -> Model:
    torch.manual_seed(0)
    settings = settings_of("models", "encoder_decoder")(
        d_model=16, n_layers=2, n_heads=2, init_std=0.6, positions=settings_of("positions", "sinusoidal")()
    )
    model = settings.build(V, T)  # type: ignore[attr-defined]
    assert isinstance(model, Model)
    return model.eval()


def test_a_pair_in_a_padded_batch_is_aligned_as_alone() -> None:
    run, draw = run_of(random_model()), random.Random(2)
    pairs = [
        Pair(*(" ".join(draw.choices(WORDS, k=draw.randint(1, 15))) for _ in range(2)), f"f:{n}") for n in range(40)
    ]
    for pair, together in zip(pairs, word_weights(run, pairs), strict=True):
        [alone] = word_weights(run, [pair])
        assert together is not None
        assert alone is not None
        np.testing.assert_allclose(together.weights, alone.weights, rtol=0, atol=1e-5)
        np.testing.assert_allclose(together.weights.sum(axis=-1), 1, atol=1e-5)
        assert together.weights.shape == (2, 2, 2, len(pair.target.split()), 1 + len(pair.source.split()))


def test_a_pair_that_is_longer_than_the_context_is_left_out_and_the_others_keep_their_positions() -> None:
    run = run_of(random_model())
    fits, long = Pair("a b", "c", "f:1"), Pair("a " * T, "c", "f:2")
    found = align_pairs(run, [fits, long, fits._replace(target="d e"), long._replace(source="a", target="b " * T)])
    assert [None if one is None else one.aligned.shape[-1] for one in found] == [1, None, 2, None]
    full = fits._replace(source=" ".join("a" * (T - 1)), target=" ".join("b" * (T - 1)))
    assert align_pairs(run, [full])[0] is not None


def test_where_the_separator_has_the_largest_weight_there_is_no_link() -> None:
    """An even head: the separator has as much as every word; ties go to no word."""
    [found] = align_pairs(run_of(with_cross_heads(("even",))), [Pair("a b", "c d", "f:1")])
    assert found is not None
    assert found.aligned.tolist() == [[[[-1, -1], [-1, -1]]]]
    assert alignment_of(found.aligned, HeadShift(0, 0, 0)) == frozenset()


def test_the_map_has_weights_and_marks_where_the_words_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head aligns word j of the target to word 5 - j of the source; sure and possible points lie elsewhere, too."""
    monkeypatch.setattr(align, "run_and_step", lambda folder, step: f"run x, step {step}")
    source, target = ["a", "b", "c", "d", "e", "f"], ["f", "e", "d", "c", "b", "a"]
    pair = Pair(" ".join(source), " ".join(target), "f:1", alignment="0-5 1-1 2?2 1?4 5-0")
    run = run_of(with_cross_heads(("even", "reversed")))
    found = align.Settings(run="x", source="a", step="7").of_pairs(run, [pair])
    assert isinstance(found.figure, PanelGrid)
    figure = figures.drawn(lambda: draw(found.figure, "svg"))
    [panel] = figures.maps(figure)
    assert (panel.rows, panel.columns) == (dict(enumerate(target)), dict(enumerate(source)))
    np.testing.assert_allclose(panel.values, np.eye(N)[::-1], atol=1e-6)
    assert panel.colors == ("Blues", 0, 1)
    assert panel.named == {
        "square": {(word, word) for word in target},
        "ring": {("a", "a"), ("e", "b"), ("f", "f")},
        "dotted ring": {("d", "c"), ("b", "b")},
    }
    assert figures.texts(figure)[0] == "Word alignment by cross-attention L0 H1, shift 0, run x, step 7"
    said = "square: alignment by the head, ring: gold alignment, dotted ring: possible gold alignment"
    assert said in " ".join(figures.texts(figure))
    lines = found.pictures[-1](colored=False, width=80).plain.splitlines()
    assert [line.rstrip() for line in lines[2:8]] == [
        "f           @8", "e    o    @x", "d      ?@x", "c     @x", "b   @8", "a @8",
    ]  # fmt: skip
    assert found.files["pharaoh"]() == b"5-0 4-1 3-2 2-3 1-4 0-5\n"
    result = found.result
    assert result["best"] == {
        "layer": 0,
        "head": 1,
        "shift": 0,
        "sharpness": pytest.approx(1),
        "aer": pytest.approx(1 - 5 / 9),
        "chosen_aer": None,
    }
    # |A & S| = 2, |A & P| = 3, |A| = 6, |S| = 3
    assert result["sample"]["gold"] == {
        "sure": [[0, 5], [1, 1], [5, 0]],
        "possible": [[0, 5], [1, 1], [1, 4], [2, 2], [5, 0]],
    }
    np.testing.assert_allclose(result["sample"]["matrix"], np.eye(N)[::-1], atol=1e-6)
    np.testing.assert_allclose(result["sample"]["no_word"], 0, atol=1e-6)


def test_a_model_without_a_source_has_nothing_to_align() -> None:
    run = run_of(golden.with_heads("decoder", (golden.previous,)))
    with pytest.raises(UsageFault, match="kind decoder has no source"):
        align_pairs(replace(run, recipe=reading.read("quickstart", []).recipe), [Pair("a", "b", "f:1")])
    blind = (
        settings_of("models", "encoder_decoder")(d_model=16, n_layers=1, n_heads=2, cross_attention=None)
        .build(V, T)
        .eval()
    )  # type: ignore[attr-defined]
    with pytest.raises(UsageFault, match="no cross-attention"):
        align_pairs(run_of(blind), [Pair("a", "b", "f:1")])


@pytest.mark.parametrize("cross", [True, False])
def test_one_pass_gives_the_maps_of_all_three_kinds(cross: bool) -> None:
    settings = {} if cross else {"cross_attention": None}
    model = settings_of("models", "encoder_decoder")(
        d_model=16, n_layers=2, n_heads=2, init_std=0.5, encoder={"n_layers": 3, "n_heads": 4}, **settings
    ).build(V, T)  # type: ignore[attr-defined]
    seen = capture(model.eval(), Tokens(torch.tensor([[1, 2, 3, 4, 5]])), Tokens(torch.tensor([[6, 7, 1]])))
    shapes = {(attention.kind, attention.layer): tuple(attention.weights.shape) for attention in seen.attention}
    own = {("encoder.self", i): (1, 4, 3, 3) for i in range(3)} | {("decoder.self", i): (1, 2, 5, 5) for i in range(2)}
    assert shapes == own | ({("cross", i): (1, 2, 5, 3) for i in range(2)} if cross else {})
    assert seen.difference < 1e-5
    for attention in seen.attention:
        torch.testing.assert_close(attention.weights.sum(-1), torch.ones(attention.weights.shape[:-1]))
        assert (attention.weights.movedim(1, 0)[:, ~attention.mask] == 0).all()
        assert attention.mask.all() == (attention.kind != "decoder.self")
    shapes_of = [(stack.rows, [tuple(layer.shape) for layer in stack.layers]) for stack in seen.hidden]
    assert shapes_of == [("source", [(1, 3, 16)] * 4), ("input", [(1, 5, 16)] * 3)]


PAIR = Pair("a b c", "x y", "g:1")


def test_links_are_read_and_written_as_pharaoh_has_them() -> None:
    gold = parse_alignment(" 0-1 2?0  1-1\n", "g:1", PAIR)
    assert gold == GoldAlignment(frozenset({(0, 1), (1, 1)}), frozenset({(0, 1), (1, 1), (2, 0)}))
    assert parse_alignment("\n", "g:1", PAIR) == GoldAlignment(frozenset(), frozenset())
    assert format_alignment(gold.possible) == "2-0 0-1 1-1"
    assert parse_alignment(format_alignment(gold.sure), "g:1", PAIR).sure == gold.sure
    assert dataset_alignments([PAIR, PAIR._replace(alignment="2-1")]) == [
        None,
        GoldAlignment(frozenset({(2, 1)}), frozenset({(2, 1)})),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0-0 3-1", "g:1: 3-1: there is no word 3 in the source; its words are 0 to 2"),
        ("0?2", "g:1: 0?2: there is no word 2 in the target; its words are 0 to 1"),
        ("0-0 1", "g:1: '1' is not an alignment"),
        ("0--1", "g:1: '0--1' is not an alignment"),
        ("-1-0", "g:1: '-1-0' is not an alignment"),
        ("a-b", "g:1: 'a-b' is not an alignment"),
        ("٣-٠", "g:1: '٣-٠' is not an alignment"),
        ("0-0,1-1", "g:1: '0-0,1-1' is not an alignment"),
    ],
)
def test_what_is_no_link_of_the_pair_is_refused_with_its_line(line: str, message: str) -> None:
    with pytest.raises(DataFault) as refused:
        parse_alignment(line, "g:1", PAIR)
    assert (refused.value.message, refused.value.where) == (message, ("g:1",))


@pytest.mark.parametrize(
    ("lines", "said", "where"),
    [("0-0\n", "1 lines, but there are 2 pairs", 2), ("0-0\n\n1-1\n", "3 lines", 3), ("", "0 lines", 1)],
)
def test_a_file_of_links_has_a_line_for_every_pair(tmp_path: Path, lines: str, said: str, where: int) -> None:
    (tmp_path / "gold").write_text(lines)
    with pytest.raises(DataFault, match=said) as refused:
        read_alignments(tmp_path / "gold", [PAIR, PAIR])
    assert refused.value.where == (f"{tmp_path / 'gold'}:{where}",)
    (tmp_path / "gold").write_text("0-0\n\n")
    assert [len(gold.sure) for gold in read_alignments(tmp_path / "gold", [PAIR, PAIR])] == [1, 0]


def test_the_diagonal_goes_from_corner_to_corner() -> None:
    assert diagonal(4, 4) == {(i, i) for i in range(4)}
    assert diagonal(6, 3) == {(1, 0), (3, 1), (5, 2)}
    assert diagonal(1, 3) == {(0, 0), (0, 1), (0, 2)}
    assert diagonal(0, 3) == frozenset()


def test_heads_are_chosen_as_everywhere_else() -> None:
    assert head_shifts((3, 2, 2), HeadSelection(None, "-1", "0"), None) == [HeadShift(2, 0, 0), HeadShift(2, 0, 1)]
    assert head_shifts((2, 2, 2), HeadSelection(), 1) == [HeadShift(i, j, 1) for i in (0, 1) for j in (0, 1)]
    with pytest.raises(UsageFault, match="3 is out of range"):
        head_shifts((3, 2, 2), HeadSelection(None, "3"), None)
