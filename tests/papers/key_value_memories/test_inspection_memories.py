"""`minitf inspect memory`: layers are exact sums of memories, a stream of batches gives what sorting everything gives,
and a logit is the sum of its parts.
"""

import itertools
import json
import math
import re
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import figures
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from commands import DATA, minitf, refused, tiny_model, trained
from test_inspection_contract import every_model
from torch import Tensor

from mini_tf.drawing.labels import label
from mini_tf.drawing.terminal import table
from mini_tf.inspection import ViewOutput
from mini_tf.inspection._memory_layers import MemoryIndex, memory_layers, parse_memories, recorded
from mini_tf.nn.layers.feed_forward import ACTIVATIONS, FeedForward
from mini_tf.nn.model import Model, ModelSettings
from mini_tf.nn.tokens import Tokens
from mini_tf.papers.key_value_memories import layer_report
from mini_tf.papers.key_value_memories.inspection.memory import Settings, _table
from mini_tf.papers.key_value_memories.layer_report import (
    NO_VOTE,
    LayerReport,
    agreement,
    first_votes,
    report_layers,
    shorten_triggers,
    strengths,
    top_votes,
)
from mini_tf.papers.key_value_memories.logit_split import split_logit, split_view, why_not
from mini_tf.papers.key_value_memories.rows import Excerpt, corpus_rows, excerpt
from mini_tf.papers.key_value_memories.triggers import (
    TopTriggers,
    Triggers,
    find_triggers,
    prefix_hashes,
)
from mini_tf.recipe.data import Split
from mini_tf.recipe.kinds import settings_of
from mini_tf.system.errors import UsageFault
from mini_tf.testing import inspection as contract
from mini_tf.testing.tiny.models import VOCABULARY, random_ids
from mini_tf.testing.tiny.models import tiny_model as random_model
from mini_tf.trained.opening import Trained, open_trained

CORPUS = (
    "a cat.\n\na cat!\n\nthe old king saw a bird near the river and went home, and the king was old again\n\na"
    " cat.\n\nking\n"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of a step each: a decoder, an encoder, an encoder-decoder, a gated decoder, one without these layers."""
    folder = tmp_path_factory.mktemp("memories")
    pairs = (f"data.train={DATA / 'reversed.tsv'}", "data.fields={source: source, target: target}", "objective=seq2seq")
    sizes = "d_model: 16, n_layers: 2, n_heads: 2"
    trained(folder / "decoder", "train.steps=1", "train.context=24")
    trained(folder / "encoder", "train.steps=1", tiny_model("encoder"), "objective=masked")
    trained(folder / "pairs", "train.steps=1", f"model={{kind: encoder_decoder, {sizes}}}", *pairs)
    trained(
        folder / "gated", "train.steps=1", f"model={{kind: decoder, {sizes}, activation: swiglu, norm_place: post}}"
    )
    trained(folder / "bare", "train.steps=1", f"model={{kind: decoder, {sizes}, d_ff: 0}}")
    return folder


def opened(folder: Path, seed: int = 0) -> Trained:
    """In float64, with weights that differ from memory to memory."""
    found = open_trained(folder, device="cpu")
    model, generator = found.model.double(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype), alpha=0.2)
    return replace(found, model=model)


def written(folder: Path, text: str = CORPUS) -> str:
    path = folder / "corpus.txt"
    path.write_text(text)
    return str(path)


# layers


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_a_layer_is_the_sum_of_its_memories_and_a_silenced_one_takes_away_its_part(kind: str, bias: bool) -> None:
    torch.manual_seed(0)
    layer, x = FeedForward(5, 7, kind, bias).double(), torch.randn(2, 3, 5, dtype=torch.float64)
    with torch.no_grad():
        y, m, values = layer(x), layer.coefficients(x), layer.values.clone()
        expected = torch.zeros_like(y) if layer.value_bias is None else layer.value_bias.expand_as(y).clone()
        for i in range(7):
            expected += m[..., i : i + 1] * values[i]
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
        if kind == "swiglu":
            gate, up = (x @ weight.T for weight in layer.up.weight.chunk(2))
            bias_of_gate, bias_of_up = (0, 0) if layer.up.bias is None else layer.up.bias.chunk(2)
            torch.testing.assert_close(m, F.silu(gate + bias_of_gate) * (up + bias_of_up), rtol=0, atol=1e-12)
        layer.values[4].zero_()
        assert not layer.down.weight[:, 4].any()
        torch.testing.assert_close(layer(x), y - m[..., 4:5] * values[4], rtol=0, atol=1e-12)


# streams


def sorted_triggers(coefficients: np.ndarray, prefixes: list[Any], k: int) -> list[list[tuple[float, int]]]:
    """(coefficient, token) of each memory, from all coefficients (T, n) at once."""
    found = []
    for column in coefficients.T.tolist():
        seen, chosen = set(), list[tuple[float, int]]()
        for token in sorted(range(len(column)), key=lambda token: (-column[token], token)):
            if column[token] > 0 and prefixes[token] not in seen and len(chosen) < k:
                seen.add(prefixes[token])
                chosen.append((column[token], token))
        found.append(chosen)
    return found


def of_table(top: TopTriggers) -> list[list[tuple[float, int]]]:
    rows = zip(top.coefficients.tolist(), top.tokens.tolist(), strict=True)
    return [[(value, token) for value, token in zip(*row, strict=True) if token >= 0] for row in rows]


@pytest.mark.parametrize("k", [1, 3, 50])
@pytest.mark.parametrize("levels", [4, 10**6])
def test_a_stream_gives_what_sorting_everything_gives(levels: int, k: int) -> None:
    """With many ties, and prefixes that occur again."""
    draw = np.random.default_rng(0)
    of_prefix = draw.integers(-levels // 2, levels, (900, 5)).astype(float)
    of_prefix[:, 4] = -1  # never active
    prefixes = draw.integers(0, 900, 1400).astype(np.uint64)
    coefficients = of_prefix[prefixes.astype(int)]
    top, first = TopTriggers(5, k), 0
    for size in (1, 2, 700, 0, 3, 694):
        part = slice(first, first + size)
        top.add(torch.from_numpy(coefficients[part]), np.arange(first, first + size) * 10, prefixes[part])
        first += size
    expected = sorted_triggers(coefficients, prefixes.tolist(), k)
    assert of_table(top) == [[(value, 10 * token) for value, token in row] for row in expected]
    assert expected[4] == []


def test_prefixes_have_equal_hashes_if_and_only_if_they_are_equal_whatever_follows_them() -> None:
    draw = np.random.default_rng(0)
    ids, source = draw.integers(0, 2, (40, 9)), draw.integers(0, 2, (40, 3))
    source[:20, 2] = -1
    for sources in (None, source):
        by_hash: dict[int, set[Any]] = {}
        for n, row in enumerate(prefix_hashes(ids, sources).tolist()):
            for length, one in enumerate(row, 1):
                own = () if sources is None else tuple(id for id in sources[n].tolist() if id >= 0)
                by_hash.setdefault(one, set()).add((own, tuple(ids[n, :length].tolist())))
        assert all(len(prefixes) == 1 for prefixes in by_hash.values())
        assert len(by_hash) == len(set().union(*by_hash.values()))
    longer = np.concatenate([source, np.full((40, 2), -1)], axis=1)
    assert np.array_equal(prefix_hashes(ids, source), prefix_hashes(ids, longer))


# triggers


def all_prefixes(trained: Trained, text: str) -> Iterator[tuple[tuple[int, ...], int]]:
    """Each prefix of each document in rows of the context, and the token after it."""
    separator, context = trained.tokenizer.vocabulary.separator, trained.model.context
    assert separator is not None
    for document in text.strip().split("\n\n"):
        ids = [separator, *map(int, trained.tokenizer.encode(document)), separator]
        for first in range(0, len(ids) - 1, context):
            for last in range(first + 1, min(first + context, len(ids) - 1) + 1):
                yield tuple(ids[first:last]), ids[last]


def coefficients_of(model: Model, ids: tuple[int, ...]) -> np.ndarray:
    """(layers, n) at the last token of one prefix, in a forward pass of its own."""
    found = []
    with (
        torch.no_grad(),
        recorded(model.stacks()[0].stack, lambda layer, part, x: found.append(part.coefficients(x[0, -1]))),
    ):
        model(Tokens(torch.tensor([ids])))
    return torch.stack(found).numpy()


def searched(trained: Trained, corpus: str, k: int = 4) -> Triggers:
    one = trained.model.stacks()[0]
    return find_triggers(trained, one, memory_layers(one.stack, "run"), corpus_rows(trained, corpus, one), k)


def test_triggers_are_the_prefixes_of_all_documents_with_the_largest_coefficients(runs: Path, tmp_path: Path) -> None:
    model = opened(runs / "decoder")
    found, prefixes = searched(model, written(tmp_path)), [*all_prefixes(model, CORPUS)]
    coefficients = np.stack([coefficients_of(model.model, prefix) for prefix, _ in prefixes])  # (T, layers, n)
    assert (found.n_tokens, max(len(prefix) for prefix, _ in prefixes)) == (len(prefixes), 24)
    for layer in (0, 1):
        active = (coefficients[:, layer] > 0).sum()
        assert found.active[layer] == active
        expected = sorted_triggers(np.round(coefficients[:, layer], 9), [prefix for prefix, _ in prefixes], 4)
        for index, rows in enumerate(expected):
            triggers = found.of(MemoryIndex(layer, index))
            assert [tuple(trigger.prefix) for trigger in triggers] == [prefixes[token][0] for _, token in rows]
            assert [trigger.following for trigger in triggers] == [prefixes[token][1] for _, token in rows]
            assert [trigger.coefficient for trigger in triggers] == pytest.approx(
                [value for value, _ in rows], abs=1e-8
            )


def test_a_raw_stream_is_read_in_rows_without_separators(runs: Path, tmp_path: Path) -> None:
    found = open_trained(runs / "decoder", device="cpu")
    data = found.recipe.data
    raw = replace(
        found,
        recipe=found.recipe.model_copy(update={"data": data.model_copy(update={"split": Split(share=0.1, tail=True)})}),
    )
    ids, rows = [*map(int, found.tokenizer.encode(CORPUS))], list[int]()
    for batch in corpus_rows(raw, written(tmp_path), raw.model.stacks()[0]):
        assert batch.tokens.ids.shape[1] == 24
        assert batch.counted.sum() == len(ids) - 1
        rows += batch.tokens.ids[batch.counted].tolist()
        assert batch.following[batch.counted].tolist() == ids[1:]
    assert rows == ids[:-1]


def test_a_corpus_that_is_repeated_has_the_same_triggers_and_keeps_no_more_rows(runs: Path, tmp_path: Path) -> None:
    model = opened(runs / "decoder")
    once, again = searched(model, written(tmp_path)), searched(model, written(tmp_path, "\n".join([CORPUS] * 40)))
    assert again.n_rows == 40 * once.n_rows
    assert again.rows.keys() == once.rows.keys()
    for layer in (0, 1):
        assert np.array_equal(again.top[layer].tokens, once.top[layer].tokens)


def test_a_trigger_without_a_token_is_the_shorter_prefix_alone(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[float]()
    monkeypatch.setattr(layer_report, "show_progress", lambda text: nullcontext(told.append))
    model = opened(runs / "decoder")
    one, found, separator = (
        model.model.stacks()[0],
        searched(model, written(tmp_path)),
        model.tokenizer.vocabulary.separator,
    )
    layers = memory_layers(one.stack, "run")
    shortened, [report, _] = shorten_triggers(model, one, layers, found), report_layers(model, one, layers, found)
    assert 0 < min(told) <= max(told) == told[-1] == 1.0
    alone, compared = cache(partial(coefficients_of, model.model)), list[tuple[float, ...]]()
    for layer in layers:
        for index, trigger in enumerate(found.first(layer)):
            with_first = [] if trigger is None else trigger.prefix
            start = int(with_first[:1] == [separator])
            if trigger is None or len(with_first) - start < 2:
                assert all(np.isnan(values[index]) for values in shortened[layer])
                continue
            shorter = (with_first[:-1], with_first[:start] + with_first[start + 1 :])
            expected = [alone(tuple(ids))[layer, index] for ids in shorter]
            assert [values[index] for values in shortened[layer]] == pytest.approx(expected, abs=1e-9)
            compared += [(trigger.coefficient, *expected)] if layer == 0 else []
    whole, *means = np.mean(compared, axis=0)
    assert (report.without_last, report.without_first) == pytest.approx(tuple(mean / whole - 1 for mean in means))
    assert report.shortened == len(compared) > 100


# votes


def test_votes_are_the_values_times_the_output_embedding() -> None:
    model = random_model(settings_of("models", "decoder")(d_model=8, n_layers=1, n_heads=2))  # type: ignore[arg-type]
    values = memory_layers(model.stacks()[0].stack, "run")[0].values.detach()
    values[3].zero_()
    table = model.embedding.tokens.weight.detach()  # type: ignore[union-attr]
    p = np.exp((values @ table.T).numpy())
    p /= p.sum(axis=1, keepdims=True)
    votes = first_votes(model, values, VOCABULARY)
    assert votes.tolist() == [NO_VOTE if n == 3 else int(row.argmax()) for n, row in enumerate(p)]
    best = np.argsort(-p[0])[:4]
    assert top_votes(model, values[0], 4) == [(int(id), pytest.approx(p[0, id])) for id in best]
    assert top_votes(model, values[3], 4) == []


@pytest.mark.parametrize(
    ("votes", "following"), [([1, 1, 2, 3, 0], [1, 1, 2, 2, 5]), ([1, 2, 3, 4], [4, 4, 1, 4]), ([7, 7], [7, 7])]
)
def test_chance_is_the_mean_over_all_orders_of_the_votes(votes: list[int], following: list[int]) -> None:
    n, found = len(votes), agreement(np.array(votes), np.array(following))
    shares = [sum(a == b for a, b in zip(order, following, strict=True)) / n for order in itertools.permutations(votes)]
    expected = (n, sum(a == b for a, b in zip(votes, following, strict=True)) / n, np.mean(shares), np.std(shares))
    assert found == pytest.approx(expected, abs=1e-12)


# the parts of a logit


@pytest.mark.parametrize(
    "keys", [{"norm": "layer", "bias": True, "activation": "swiglu"}, {"norm": "rms", "tied": False}]
)
def test_each_part_is_its_vector_through_the_frozen_norm_and_the_output_embedding(keys: dict[str, Any]) -> None:
    model = random_model(settings_of("models", "decoder")(d_model=8, n_layers=2, n_heads=2, **keys))  # type: ignore[arg-type]
    ids, outputs = random_ids(1), dict[str, Any]()
    stack: Any = model.stack
    for name, part in (("attention", stack.layers[1].self_attn.part), ("layer", stack.layers[0].feed_forward.part)):
        part.register_forward_hook(
            lambda part, inputs, output, name=name: outputs.update({name: output, f"{name} input": inputs[0]})
        )
    stack.norm.register_forward_pre_hook(lambda part, inputs: outputs.update(last=inputs[0][0, -1]))
    split = split_logit(model, Tokens(ids))
    with torch.no_grad():
        logits = model.logits(model(Tokens(ids)).y)[0, -1]
    h, weight = outputs["last"], stack.norm.weight.detach()
    scale = (
        1 / (h.var(correction=0) + 1e-5).sqrt() if keys["norm"] == "layer" else 1 / (h.square().mean() + 1e-5).sqrt()
    )
    row = model.head.linear.weight.detach()[split.token]  # type: ignore[union-attr]

    def contribution(vector: torch.Tensor) -> float:
        centered = vector - vector.mean() if keys["norm"] == "layer" else vector
        return float((row * weight * scale * centered).sum())

    assert (split.token, split.logit) == (int(logits.argmax()), pytest.approx(float(logits.max()), abs=1e-12))
    assert split.p == pytest.approx(float(logits.softmax(-1).max()), abs=1e-12)
    assert split.attention[1] == pytest.approx(contribution(outputs["attention"].y[0, -1]), abs=1e-12)
    layer = stack.layers[0].feed_forward.part
    m = layer.coefficients(outputs["layer input"][0, -1]).detach()
    assert split.memories[0].coefficients == pytest.approx(m.numpy(), abs=1e-12)
    expected = [contribution(m[i] * layer.down.weight[:, i].detach()) for i in range(32)]
    assert split.memories[0].contributions == pytest.approx(expected, abs=1e-12)
    if keys.get("bias"):
        assert split.bias[0] == pytest.approx(contribution(layer.down.bias.detach()), abs=1e-12)
        assert split.norm_bias == pytest.approx(float(row @ stack.norm.bias.detach()), abs=1e-12)
    else:
        assert (split.bias, split.norm_bias) == ({}, 0.0)
    assert split.sum == pytest.approx(split.logit, abs=1e-10)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    "keys", [{}, {"norm_place": "none"}, {"norm": "rms", "norm_weight": False}, {"d_embedding": 6}, {"d_ff": 0}]
)
def test_parts_sum_to_the_logit(keys: dict[str, Any], activation: str) -> None:
    model = random_model(
        settings_of("models", "decoder")(d_model=8, n_layers=2, n_heads=2, activation=activation, bias=True, **keys)
    )  # type: ignore[arg-type]
    split = split_logit(model, Tokens(random_ids(1)))
    assert split.sum == pytest.approx(split.logit, abs=1e-10)


@pytest.mark.parametrize(
    ("kind", "keys", "reason"),
    [
        ("decoder", {"norm_place": "post"}, "post-norm"),
        ("decoder", {"residual": False}, "residual"),
        ("decoder", {"head": "bert"}, "output layer is not linear"),
        ("encoder", {}, "only the next token of a decoder"),
        ("encoder_decoder", {}, "only the next token of a decoder"),
    ],
)
def test_a_logit_that_is_no_sum_is_refused_by_name(kind: str, keys: dict[str, Any], reason: str) -> None:
    model = random_model(settings_of("models", kind)(d_model=8, n_layers=1, n_heads=2, **keys))  # type: ignore[arg-type]
    assert reason in str(why_not(model))


def add_between_blocks(model: Model) -> Model:
    """As a Universal Transformer does, whose step embeddings are no part of a block."""
    model.stack.layers[1].register_forward_pre_hook(
        lambda block, inputs: (inputs[0] + torch.arange(inputs[0].shape[-1]) / 4, *inputs[1:])
    )  # type: ignore[union-attr, operator]
    return model


def test_rounding_of_a_large_logit_in_float32_is_no_refusal(runs: Path) -> None:
    run = open_trained(runs / "decoder", device="cpu")
    with torch.no_grad():
        run.model.embedding.tokens.weight.mul_(1e4)  # type: ignore[union-attr, operator]
    split = split_view(run, "the old king", 3).result["split"]
    assert split["logit"] > 1e3
    assert split["sum"] == pytest.approx(split["logit"], rel=1e-4)


def test_a_logit_of_more_than_the_blocks_is_refused_with_sum_and_logit(runs: Path) -> None:
    run = opened(runs / "decoder")
    split = split_view(run, "the old king", 3).result["split"]
    assert split["sum"] == pytest.approx(split["logit"])
    add_between_blocks(run.model)
    with pytest.raises(
        UsageFault, match=r"its parts sum to -?[\d.]+, but it is -?[\d.]+: the model also adds other vectors"
    ) as fault:
        split_view(run, "the old king", 3)
    said, logit = map(float, re.findall(r"-?\d+\.\d{4}", fault.value.message))
    ids = torch.tensor([[run.tokenizer.vocabulary.separator, *map(int, run.tokenizer.encode("the old king"))]])
    with torch.no_grad():
        assert logit == pytest.approx(float(run.model.logits(run.model(Tokens(ids)).y)[0, -1].max()), abs=1e-4)
    assert abs(said - logit) > 1e-3


def test_the_contract_of_views_holds_of_a_model_that_adds_between_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of("models", "decoder")(d_model=8, n_layers=2, n_heads=2)
    monkeypatch.setattr(contract, "tiny_model", lambda settings: add_between_blocks(random_model(settings)))
    contract.feed_forward_layers_are_sums_of_memories(settings)  # type: ignore[arg-type]
    assert not blocks_are_all_that_is_added(contract.tiny_model(settings))  # type: ignore[arg-type]


# the command


def result_of(*arguments: str | Path) -> Any:
    done = minitf("inspect", "memory", *arguments, "--json", "-q")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["result"]


def test_the_report_has_all_layers_and_the_strongest_memories_of_each(runs: Path, tmp_path: Path) -> None:
    corpus = written(tmp_path)
    arguments = (runs / "decoder", "--corpus", corpus, "--top", "3", "--text", "the old king")
    result = result_of(*arguments)
    assert result == result_of(*arguments)
    assert [(one["layer"], one["memories"]) for one in result["layers"]] == [(0, 128), (1, 128)]
    for one in result["layers"]:
        assert one["compared"] == 128 - one["never_active"]
        assert 0 < one["active"] < 1
        assert 0 <= one["chance"] <= 1
    assert [one["layer"] for one in result["memories"]] == [0, 0, 1, 1]
    for one in result["memories"]:
        assert len(one["triggers"]) == len(one["votes"]) == 3
        assert one["strength"] > 0
    assert result["split"]["sum"] == pytest.approx(result["split"]["logit"], abs=1e-4)
    printed = minitf("inspect", "memory", *arguments)
    assert max(map(len, printed.stdout.splitlines())) <= 80
    assert f"memory 0:{result['memories'][0]['memory']}  votes: " in printed.stdout
    assert f"logit {result['split']['logit']:.4f}" in printed.stdout


def test_tables_of_memories_have_the_numbers_in_their_columns(runs: Path, tmp_path: Path) -> None:
    run = opened(runs / "decoder")
    found = Settings(run="", corpus=str(written(tmp_path)), top=3, text="the old king").view(run, ViewOutput())
    assert not figures.has_hooks(run.model)
    result = found.result
    tables = [figures.rows_of(picture) for picture in found.pictures if picture.func is table]  # type: ignore[attr-defined]
    layers, *memories, parts, largest = tables
    assert layers[0] == ["layer", "memories", "active", "agreement", "chance", "sd", "without last", "without first"]
    for cells, one in zip(layers[1:], result["layers"], strict=True):
        shares = [f"{one[name]:.2%}" for name in ("agreement", "chance", "chance_deviation")]
        changes = [f"{one[name]:+.1%}" for name in ("without_last", "without_first")]
        assert cells == [str(one["layer"]), "128", f"{one['active']:.1%}", *shares, *changes]
    for rows, one in zip(memories, result["memories"], strict=True):
        assert [float(cells[0]) for cells in rows[1:]] == pytest.approx(
            [trigger["coefficient"] for trigger in one["triggers"]], abs=1e-3
        )
        assert [cells[-1] for cells in rows[1:]] == [label(trigger["next"]) for trigger in one["triggers"]]
    split = result["split"]
    assert parts[0] == [
        "layer",
        *(name for name in ("attention", "memories", "bias") if split["layers"][0][name] is not None),
    ]
    for cells, one in zip(parts[1:], split["layers"], strict=True):
        assert cells == [str(one["layer"]), *(f"{one[name]:.3f}" for name in parts[0][1:])]
    assert largest[0] == ["memory", "contribution", "coefficient", "votes"]
    for cells, one in zip(largest[1:], split["memories"], strict=True):
        assert cells[:3] == [
            f"{one['layer']}:{one['memory']}",
            f"{one['contribution']:.3f}",
            f"{one['coefficient']:.3f}",
        ]
        assert cells[3:] == [label(vote["token"]) for vote in one["votes"]]
    ids = torch.tensor([[run.tokenizer.vocabulary.separator, *map(int, run.tokenizer.encode("the old king"))]])
    whole = split_logit(run.model, Tokens(ids))
    for one in split["layers"]:
        layer_memories = whole.memories[one["layer"]]
        assert one["attention"] == pytest.approx(whole.attention[one["layer"]])
        assert one["memories"] == pytest.approx(layer_memories.contributions.sum())
        assert one["active"] == sum(m > 0 for m in layer_memories.coefficients)
    every = [(layer, n, float(c)) for layer, one in whole.memories.items() for n, c in enumerate(one.contributions)]
    best = sorted(every, key=lambda one: -abs(one[2]))[:3]
    assert [(one["layer"], one["memory"]) for one in split["memories"]] == [(layer, n) for layer, n, _ in best]
    assert min(c for *_, c in sorted(every, key=lambda one: -abs(one[2]))[:20]) < 0, "the sign does not matter"


def test_a_memory_that_was_never_active_has_no_part_in_the_agreement(runs: Path, tmp_path: Path) -> None:
    run = opened(runs / "decoder")
    up = run.model.stack.layers[0].feed_forward.part.up  # type: ignore[union-attr, operator]
    with torch.no_grad():
        up.weight[5] = 0
    found = Settings(run="", corpus=str(written(tmp_path)), memories=("0:5",)).view(run, ViewOutput())
    [layer] = found.result["layers"]
    assert (layer["never_active"], layer["compared"]) == (1, 127)
    assert "memories that were never active: 1 of layer 0" in found.notes
    assert [picture(colored=False, width=80).plain for picture in found.pictures][-1] == "It was never active."


def test_chosen_memories_and_layers_are_shown_and_only_their_layers_are_read(runs: Path, tmp_path: Path) -> None:
    corpus = written(tmp_path)
    whole = result_of(runs / "decoder", "--corpus", corpus, "--memory", "0:3,5-6", "--memory", "-1:127")
    assert [(one["layer"], one["memory"]) for one in whole["memories"]] == [(0, 3), (0, 5), (0, 6), (1, 127)]
    one_layer = result_of(runs / "decoder", "--corpus", corpus, "--memory", "1:127")
    assert (one_layer["layers"], one_layer["memories"]) == (whole["layers"][1:], whole["memories"][3:])
    assert [
        one["layer"]
        for one in result_of(runs / "decoder", "--corpus", corpus, "--layer", "-1", "--limit", "1")["memories"]
    ] == [1, 1]


def test_a_text_alone_is_split_without_a_corpus(runs: Path) -> None:
    result = result_of(runs / "decoder", "--text", "the old king", "--top", "9")
    assert {*result} == {"split", "notes"}
    assert len(result["split"]["memories"]) == 9
    sizes = [abs(one["contribution"]) for one in result["split"]["memories"]]
    assert sizes == sorted(sizes, reverse=True)


def test_a_limit_is_that_of_the_corpus_which_is_read_beside_a_text() -> None:
    assert Settings(run="", text="a", limit=1).reads_corpus
    assert not Settings(run="", text="a").reads_corpus


def test_agreement_of_no_triggers_is_blank_in_the_table() -> None:
    none = agreement(np.array([]), np.array([]))
    picture, *_ = _table([LayerReport(0, 3, 0.5, 3, none, 0, None, None)], SimpleNamespace(n_tokens=1, n_rows=1), True)  # type: ignore[arg-type]
    assert str(picture(colored=False, width=80)).split() == ["layer", "memories", "active", "0", "3", "50.0%"]


def test_stacks_that_predict_no_next_token_have_triggers_without_agreement(runs: Path, tmp_path: Path) -> None:
    def notes_of(*arguments: str | Path) -> tuple[Any, str]:
        result = result_of(*arguments)
        assert all(one["triggers"] for one in result["memories"])
        return result, " ".join(result["notes"])

    encoder, notes = notes_of(runs / "encoder", "--corpus", written(tmp_path))
    assert [encoder["layers"][0][key] for key in ("agreement", "without_last")] == [None, None]
    assert all(one["votes"] for one in encoder["memories"])
    assert "bidirectional" in notes
    assert "does not predict the next token" in notes
    corpus = ("--corpus", DATA / "reversed.tsv", "--limit", "40")
    encoder, notes = notes_of(runs / "pairs", *corpus, "--stack", "encoder")
    assert not any(one["votes"] for one in encoder["memories"])
    assert "not before the output layer" in notes
    decoder, notes = notes_of(runs / "pairs", *corpus)
    assert (encoder["stack"], decoder["stack"]) == ("encoder", "decoder")
    assert "agreement" not in notes
    assert None not in decoder["layers"][0].values()
    _, notes = notes_of(runs / "gated", "--corpus", written(tmp_path))
    assert "either sign" in notes


@pytest.mark.parametrize(
    ("run", "arguments", "code", "message"),
    [
        ("bare", (), 2, "has no feed-forward layers"),
        ("decoder", ("--memory", "3"), 2, "--memory 3: must be the numbers of a layer and of a memory, such as 3:511"),
        ("decoder", ("--memory", "2:0"), 2, "--memory 2:0: layer 2: 2 is out of range; indices are 0 to 1"),
        ("decoder", ("--memory", "0:128"), 2, "--memory 0:128: memory 128: 128 is out of range; indices are 0 to 127"),
        ("decoder", ("--layer", "x"), 2, "--layer x: must be numbers and ranges"),
        ("decoder", ("--stack", "encoder"), 2, "has only one stack"),
        ("decoder", ("--corpus", "missing.txt"), 4, "missing.txt: no such file"),
        ("gated", ("--text", "a"), 2, "post-norm"),
        ("encoder", ("--text", "a"), 2, "only the next token of a decoder"),
    ],
)
def test_faults_are_one_line(runs: Path, run: str, arguments: tuple[str, ...], code: int, message: str) -> None:
    refused(minitf("inspect", "memory", runs / run, *arguments), message, exit_code=code)


def test_the_strength_of_a_memory_is_the_norm_of_what_it_adds_at_its_first_trigger() -> None:
    layers: Any = [SimpleNamespace(values=torch.tensor([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]]))]
    coefficients = np.array([[2.0, 1.0], [1.5, 1.0], [0.0, 0.0]])
    triggers: Any = SimpleNamespace(top=[SimpleNamespace(coefficients=coefficients)])
    assert strengths(layers, triggers, 0).tolist() == [10, 3, 0]


def test_an_excerpt_begins_with_an_ellipsis_if_anything_is_left_out() -> None:
    assert Excerpt("ab ", "c", None, 25).shown() == "ab [c]"
    assert Excerpt("ab ", "c", None, 26).shown() == "…ab [c]", "tokens were left out"
    assert Excerpt("x" * 44, "c", None, 9).shown() == "x" * 44 + "[c]"
    assert Excerpt("x" * 45, "c", None, 9).shown() == "…" + "x" * 44 + "[c]"
    assert Excerpt("x" * 45, "y" * 40, None, 9).shown(20) == "…xxxxxxx[yyyyyyyyy…]"
    assert Excerpt("x" * 45, "y" * 40, None, 9).shown(21) == "…xxxxxxxx[yyyyyyyyy…]"


def test_an_excerpt_is_the_end_of_a_prefix_with_its_special_tokens(runs: Path) -> None:
    tokenizer = open_trained(runs / "decoder", device="cpu").tokenizer
    separator = tokenizer.vocabulary.separator
    assert separator is not None
    ids = [separator, *map(int, tokenizer.encode("a cat")), separator, *map(int, tokenizer.encode("漢 sat"))]
    found = excerpt(tokenizer, ids, ids[1])
    assert found == ("a cat</s>漢 sa", "t", "a", 13)
    assert found.shown() == "a cat</s>漢 sa[t]"
    assert [found.shown(10), found.shown(9), found.shown(8)] == ["…>漢 sa[t]", "…漢 sa[t]", "… sa[t]"]
    assert excerpt(tokenizer, [separator], None) == ("", "</s>", None, 1)
    long = excerpt(tokenizer, [*map(int, tokenizer.encode("x" * 60 + "y"))], None)
    assert (long.before, long.shown()) == ("x" * 24, f"…{'x' * 24}[y]")
    first, *_, last = sorted(tokenizer.vocabulary.special_ids)
    vocabulary = replace(tokenizer.vocabulary, separator=last)
    other: Any = SimpleNamespace(vocabulary=vocabulary, decode=tokenizer.decode, pieces=tokenizer.pieces)
    assert [excerpt(other, [id, ids[1]], None).length for id in (first, last)] == [2, 1]


def test_memories_are_chosen_by_lists_and_ranges() -> None:
    model = random_model(settings_of("models", "decoder")(d_model=8, n_layers=3, n_heads=2))  # type: ignore[arg-type]
    layers = memory_layers(model.stacks()[0].stack, "run")
    assert [*map(str, parse_memories(["2:3", "0-1:-1,2", "2:3"], layers))] == ["0:2", "0:31", "1:2", "1:31", "2:3"]
    with pytest.raises(UsageFault, match="the range 1-0 is empty"):
        parse_memories(["1-0:1"], layers)
    assert math.isnan(agreement(np.array([]), np.array([])).share)


@pytest.mark.parametrize("settings", [pytest.param(settings, id=word) for word, settings in every_model()])
def test_a_logit_is_the_sum_of_its_parts(settings: ModelSettings) -> None:
    model = random_model(settings)
    if why_not(model) is None and blocks_are_all_that_is_added(model):
        split = split_logit(model, Tokens(random_ids(1)))
        assert split.sum == pytest.approx(split.logit, rel=0, abs=1e-9)


def blocks_are_all_that_is_added(model: Model) -> bool:
    """Whether each block of the first stack gets what the one before returned, and the final norm what the last did."""
    stack, inputs, outputs = model.stacks()[0].stack, list[Tensor](), list[Tensor]()
    with torch.no_grad(), ExitStack() as hooks:
        for module in (*stack.blocks, stack.norm):
            hooks.enter_context(module.register_forward_pre_hook(lambda _, given: inputs.append(given[0])))
        for block in stack.blocks:
            hooks.enter_context(block.register_forward_hook(lambda *call: outputs.append(call[-1].y)))
        model(Tokens(random_ids(1)))
    return all(torch.equal(x, y) for x, y in zip(inputs[1:], outputs, strict=True))
