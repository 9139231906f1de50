"""Perceiver IO: Hugging Face's weights, subsets of outputs, what latents may depend on, FLOPs, and recipes."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import figures
import numpy as np
import pytest
import torch
from commands import TINY, minitf, refused, trained
from torch import Tensor

from mini_tf.cost import lengths
from mini_tf.cost.lengths import Layer, layers_of, measure_lengths
from mini_tf.drawing.plotting import figure_label as label
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.nn.tokens import Tokens
from mini_tf.papers.perceiver.inspection.latents import _row
from mini_tf.papers.perceiver.models import perceiver
from mini_tf.papers.perceiver.models.perceiver import RowIndex
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.reading import read
from mini_tf.testing import inspection, models, run_all
from mini_tf.testing.tiny.models import B, L, random_ids, tiny_model
from mini_tf.trained.opening import open_trained
from mini_tf.training.flops import forward_flops
from mini_tf.training.machine.device import Setup
from mini_tf.training.optimizer import depths

EXACT = {"rtol": 0, "atol": 1e-10}
SMALL = {"d_model": 16, "n_layers": 2, "n_heads": 2, "n_latents": 4}


def made(**given: Any) -> perceiver.Perceiver:
    model = tiny_model(perceiver.Settings.model_validate(SMALL | given))
    assert isinstance(model, perceiver.Perceiver)
    return model


@pytest.mark.parametrize("query", ["position", "input", "task"])
def test_any_subset_of_outputs_is_the_same_rows_of_all_outputs(query: str) -> None:
    model, ids = made(query=query, query_residual=query == "input"), random_ids()
    whole = model(Tokens(ids)).y.flatten(0, 1)
    for at in (
        [0],
        [L + 3, L + 1],
        [3 * L - 1, 0, 4, 2, 2],
        [*range(B * L)],
    ):  # any order, also twice, also none of a row
        torch.testing.assert_close(model(Tokens(ids), at=torch.tensor(at)).y, whole[at], **EXACT)


def test_no_output_at_all_is_an_empty_tensor() -> None:
    assert made()(Tokens(random_ids()), at=torch.tensor([], dtype=torch.long)).y.shape == (0, 16)


def test_the_rows_of_an_index_hold_what_was_chosen() -> None:
    chosen = RowIndex.of(torch.tensor([11, 2, 9, 3]), rows=3, length=4)
    assert chosen.positions.shape == (3, 2), "as many as the most of any row"
    x = torch.arange(12.0).view(3, 4, 1)
    assert chosen.flat(chosen.select(x)).flatten().tolist() == [11, 2, 9, 3]
    assert RowIndex.of(torch.tensor([3, 9]), rows=3, length=4).positions.shape == (3, 1)


def test_latents_do_not_depend_on_the_order_of_tokens_with_their_positions() -> None:
    model, ids, order = made(), random_ids(1), torch.tensor([4, 0, 8, 2, 1, 7, 3, 5, 6])
    latents = []
    model.processor.register_forward_hook(lambda stack, inputs, mixed: latents.append(mixed.y))
    for index in (torch.arange(L), order):
        model(Tokens(ids[:, index], TokenPositions(L, positions=index[None])))
    torch.testing.assert_close(latents[0], latents[1], **EXACT)
    model(Tokens(ids[:, order]))
    assert not torch.allclose(latents[0], latents[2]), "other positions give other latents"


def test_one_layer_with_inputs_as_latents_is_plain_cross_attention() -> None:
    model, x = made(norm_place="none", residual=False, d_ff=0), torch.randn(2, 5, 16, dtype=torch.float64)
    positions = TokenPositions(5)
    layer = model.encoder.layers[0].cross_attn.part  # type: ignore[union-attr]
    expected = layer(x, x, Visibility(False, positions, positions)).y  # type: ignore[operator]
    torch.testing.assert_close(model.encoder(x, positions, model.encoder.recall(x, positions)).y, expected, **EXACT)


def test_the_latents_cost_the_same_at_any_length_and_the_rest_grows_linearly() -> None:
    model, whole, latents, cpu = made(), list[int](), list[int](), torch.device("cpu")
    for length in (4, 8, 12):
        whole.append(forward_flops(lambda length=length: model(Tokens(random_ids(1, length))), cpu))  # type: ignore[misc]
        latents.append(
            forward_flops(lambda: model.processor(torch.zeros(1, 4, 16, dtype=torch.float64), TokenPositions(4)), cpu)
        )
    assert whole[2] - whole[1] == whole[1] - whole[0] > 0
    assert 0 < latents[0] < 2 * whole[0] - whole[1], "the part that does not grow has the layers of the latents"


SHARED, OWN = {"n_blocks": 2, "share_blocks": True}, {"n_blocks": 2, "share_blocks": False}


def test_a_decoder_of_another_width_has_a_feed_forward_layer_of_that_width() -> None:
    def widths(**given: Any) -> tuple[int, int]:
        settings = perceiver.Settings.model_validate(SMALL | {"d_ff": 20} | given)
        return settings.processor_stack.hidden_dim, settings.decoder_stack.hidden_dim

    assert widths() == (20, 20)
    assert widths(d_latent=16) == (20, 20)
    assert widths(d_latent=24) == (20, 4 * 16)
    assert widths(d_latent=24, decoder={"d_ff": 9}) == (20, 9)
    assert widths(decoder={"d_ff": 0}) == (20, 0)


def test_shared_blocks_are_own_blocks_with_equal_weights() -> None:
    shared, own = made(**SHARED), made(**OWN)
    weights = dict(shared.weights())
    for name in own.weights():
        if name.startswith("processor.layers."):
            layer, rest = name.removeprefix("processor.layers.").split(".", 1)
            weights[name] = weights[f"processor.layers.{int(layer) % 2}.{rest}"]
    own.load_weights({name: weights[name] for name in own.weights()})
    torch.testing.assert_close(shared(Tokens(random_ids())).y, own(Tokens(random_ids())).y, **EXACT)
    assert len(own.weights()) > len(shared.weights())


HEADS = {"n_heads": 2, "d_k": 4, "d_v": 12, "d_ff": 24}


def hugging_face() -> tuple[Any, perceiver.Perceiver]:
    """A tiny model with d_k != d_v and d_model != d_latent, and ours with its weights, in float32."""
    from transformers import PerceiverConfig, PerceiverForMaskedLM

    torch.manual_seed(0)
    config = PerceiverConfig(
        num_latents=5, d_latents=24, d_model=16, num_blocks=2, num_self_attends_per_block=2, num_self_attention_heads=2,
        num_cross_attention_heads=2, qk_channels=8, v_channels=24, vocab_size=30, max_position_embeddings=20,
    )  # fmt: skip
    theirs = PerceiverForMaskedLM(config).eval()
    for p in theirs.parameters():
        p.data.normal_(0, 0.3)
    decoder = {"n_heads": 8, "d_k": 32, "d_v": 2, "d_ff": 16}
    sizes = {
        "d_model": 16,
        "n_latents": 5,
        "d_latent": 24,
        "n_layers": 2,
        "n_blocks": 2,
        "bias": True,
        "decoder": decoder,
    } | HEADS
    ours = perceiver.Settings.model_validate(sizes).build(30, 20).eval()
    weights = {name: tensor.detach() for name, tensor in theirs.named_parameters()}
    loaded = {
        "embedding.tokens.weight": weights["perceiver.input_preprocessor.embeddings.weight"],
        "embedding.position.table.weight": weights["perceiver.input_preprocessor.position_embeddings.weight"],
        "latents": weights["perceiver.embeddings.latents"],
        "queries.table.weight": weights["perceiver.decoder.output_position_encodings.position_embeddings"],
        "head.linear.bias": weights["embedding_decoder.bias"],
    }
    crosses = {"encoder": "perceiver.encoder.cross_attention", "decoder": "perceiver.decoder.decoding_cross_attention"}
    of_memory = {"encoder": "embedding.norm", "decoder": "processor.norm"}  # their norm of keys and values
    for name, path in crosses.items():
        loaded |= layer_of(weights, path, f"{name}.layers.0", "cross_attn")
        loaded |= {
            f"{of_memory[name]}.{part}": weights[f"{path}.attention.self.layernorm2.{part}"]
            for part in ("weight", "bias")
        }
    for layer in range(2):
        loaded |= layer_of(weights, f"perceiver.encoder.self_attends.{layer}", f"processor.layers.{layer}", "self_attn")
    ours.load_weights(loaded)
    return theirs, ours


def layer_of(weights: dict[str, Tensor], path: str, name: str, mixer: str) -> dict[str, Tensor]:
    loaded = {}
    for part in ("weight", "bias"):
        q, k, v = (weights[f"{path}.attention.self.{one}.{part}"] for one in ("query", "key", "value"))
        fused = {"qkv": [q, k, v]} if mixer == "self_attn" else {"q": [q], "kv": [k, v]}
        loaded |= {f"{name}.{mixer}.part.{one}.{part}": torch.cat(parts) for one, parts in fused.items()}
        loaded[f"{name}.{mixer}.part.out.{part}"] = weights[f"{path}.attention.output.dense.{part}"]
        loaded[f"{name}.{mixer}.norm.{part}"] = weights[f"{path}.attention.self.layernorm1.{part}"]
        loaded[f"{name}.feed_forward.norm.{part}"] = weights[f"{path}.layernorm.{part}"]
        loaded[f"{name}.feed_forward.part.up.{part}"] = weights[f"{path}.mlp.dense1.{part}"]
        loaded[f"{name}.feed_forward.part.down.{part}"] = weights[f"{path}.mlp.dense2.{part}"]
    return loaded


def test_logits_equal_hugging_faces_perceiver_for_masked_language_modelling() -> None:
    theirs, ours = hugging_face()
    ids = torch.randint(0, 30, (3, 12), generator=torch.Generator().manual_seed(1))
    segments = (torch.arange(12) < torch.tensor([12, 7, 10])[:, None]).long()
    with torch.no_grad():
        expected = theirs(inputs=ids, attention_mask=segments).logits[:, :12]  # theirs decodes all 20 positions
        logits = ours.logits(ours(Tokens(ids, TokenPositions.packed(segments))).y)
    assert expected.abs().max() > 1
    for row, n in enumerate((12, 7, 10)):
        torch.testing.assert_close(logits[row, :n], expected[row, :n], rtol=0, atol=1e-5)


BYTES = (
    "tokenizer.kind=byte",
    "model={kind: perceiver, d_model: 16, n_layers: 1, n_heads: 2, n_latents: 4}",
    "train.context=64",
)


def test_a_masked_model_of_bytes_initializes_a_classifier_with_a_query_of_its_own(tmp_path: Path) -> None:
    run = trained(tmp_path / "bytes", *BYTES, "train.steps=2", "data.pack=none")
    filled = json.loads(minitf("generate", run, "the [MASK]ile is", "--json", "-q").stdout)["result"]
    assert len(filled["candidates"]) == 1
    rows = tmp_path / "rows.tsv"
    rows.write_text("".join(f"{'good' * (n % 2)}{'bad' * (1 - n % 2)} text {n}\t{n % 2}\n" for n in range(40)))
    fields = ("data.fields={text: 0, label: 1}", "data.header=false")
    task = ("model.kind=perceiver", "model.query=task", "objective={kind: classify, pool: first}", "train.steps=2")
    done = minitf(
        "finetune", "sst2-nano", rows, *fields, f"model.init_from={run}", *task, "-d", tmp_path / "classifier", "-q"
    )
    predicted = minitf("predict", done.stdout.strip(), stdin="good text\nbad\n").stdout.splitlines()
    assert len(predicted) == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("model.positions=rotary",), "model.positions=rotary: rotary gives no vectors of positions"),
        (("model.query_positions=none",), "model.query_positions=none: none gives no vectors of positions"),
        (("model.query=task",), "masked predicts tokens, but perceiver with these settings has one output per row"),
        (("model.query=task", "objective={kind: classify, pool: mean}"), "has one output per row; use first"),
        (("data.pack=docs",), "perceiver cannot separate documents within a row"),
        (("model.d_latent=15",), "model.n_heads: 2 does not divide d_latent 15; use 1, 3, 5 or 15, or give d_k"),
        (("model.d_latent=20", "model.decoder.n_heads=3"), "model.decoder.n_heads=3: 3 does not divide d_model 16"),
        (("model.d_latent=24", "model.n_heads=3"), "3 does not divide d_model 16"),
        (("model.cross_attention=sru",), "model.cross_attention=sru: sru attention does not support cross-attention"),
        (("model.cross_attention=diminishing",), "model.cross_attention=diminishing: latents have no order"),
        (
            ("model.attention=window",),
            "model.attention=window: latents have no order, on which window attention depends; use softmax",
        ),
        (
            ("objective=replaced_token",),
            "a generator is a smaller model of one stack, but perceiver has 3; use unigram, uniform or mask",
        ),
        (("objective=next_token",), "next_token needs causal attention"),
    ],
)
def test_impossible_combinations_are_refused_by_name(given: tuple[str, ...], told: str) -> None:
    refused(minitf("recipe", "check", "bert-nano", *BYTES, "data.pack=none", *given), told, exit_code=3)


def test_the_view_of_latents_is_the_product_of_their_attention(tmp_path: Path) -> None:
    """Against matrices that this test multiplies itself."""
    run = trained(tmp_path / "run", *BYTES, "model.n_layers=2", "model.init_std=0.5", "train.steps=1", "data.pack=none")
    result, figure = figures.pictured("inspect", "latents", run, "a cat")
    [found] = result["texts"]
    opened, n = open_trained(run, device="cpu"), len(found["tokens"])
    model = opened.model
    maps: dict[str, list[Tensor]] = {}
    for name, mixer in model.named_modules():
        if name.endswith("part") and hasattr(mixer, "explicit"):
            mixer.register_forward_hook(
                lambda mixer, inputs, mixed, name=name: maps.setdefault(name.partition(".")[0], []).append(
                    mixer.explicit(*inputs[:3]).weights[0].mean(0)
                )
            )
    model(Tokens(torch.tensor([[opened.tokenizer.vocabulary.separator, *opened.tokenizer.encode("a cat").tolist()]])))
    [encoder], processor, [decoder] = maps["encoder"], maps["processor"], maps["decoder"]
    assert [len(processor), list(encoder.shape), list(decoder.shape)] == [2, [4, n], [n, 4]]
    half = torch.eye(4)
    expected = decoder @ (half + processor[1]) @ (half + processor[0]) @ encoder / 4
    torch.testing.assert_close(torch.tensor(found["rollout"]), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.tensor(found["encoder"]), encoder, rtol=0, atol=1e-6)
    assert found["outputs"] == found["tokens"]
    assert torch.tensor(found["rollout"]).sum(1).sub(1).abs().max() < 1e-6
    legends = {
        "encoder.cross": "Rows: queries, one per latent vector. Columns: keys.",
        "latent.self": "Rows: queries, one per latent vector. Columns: keys, one per latent vector.",
        "decoder.cross": "Rows: queries, one per token. Columns: keys, one per latent vector.",
    }
    for kind, legend in legends.items():
        told = " ".join(minitf("inspect", "attention", run, "a cat", "--kind", kind).stdout.split())
        assert legend in told
        assert "mean distance" not in told
    panels, tokens = figures.maps(figure), dict(enumerate([label(token) for token in found["tokens"]]))
    numbers, largest = (
        {i: str(i) for i in range(4)},
        max(np.max(found[name]) for name in ("encoder", "decoder", "rollout")),
    )
    sides = {"encoder": (tokens, numbers), "decoder": (tokens, numbers), "rollout": (tokens, tokens)}
    assert [panel.title for panel in panels] == [*sides]
    for panel, (rows, columns) in zip(panels, sides.values(), strict=True):
        values = (
            panel.values.T if panel.title == "encoder" else panel.values
        )  # latents are columns, since they are many
        assert values.tolist() == found[panel.title]
        assert (panel.rows, panel.columns, panel.colors) == (rows, columns, ("Blues", 0, largest))
    assert {"latent", "token", "output"} <= {*figures.texts(figure)}
    assert figures.colorbar(figure) == ("attention weight, mean over heads", (0, largest))
    lines = minitf("inspect", "latents", run, "a cat", "--top", "2").stdout.splitlines()
    table = lines[next(n for n, line in enumerate(lines) if line.startswith("latent")) + 1 :]
    for latent, line in enumerate(table):
        weights, use = encoder[latent].detach(), decoder[:, latent].detach()
        best = [
            " ".join(f"{tokens[int(i)]} {part[i]:.2f}" for i in part.argsort(descending=True)[:2])
            for part in (weights, use)
        ]
        entropy = float(-(weights * weights.log()).sum() / math.log(n))
        assert line.split() == [
            str(latent),
            *best[0].split(),
            f"{entropy:.2f}",
            *best[1].split(),
            f"{float(use.mean()):.3f}",
        ]


ONE_OUTPUT = perceiver.Settings.model_validate(SMALL | {"query": "task"})


def test_a_model_of_one_output_keeps_the_contracts() -> None:
    run_all([*models.cases(ONE_OUTPUT), *inspection.cases(ONE_OUTPUT)])


def test_views_of_one_output_have_one_row(tmp_path: Path) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("".join(f"{'good' * (n % 2)}{'bad' * (1 - n % 2)} text {n}\t{n % 2}\n" for n in range(40)))
    given = ("data.fields={text: 0, label: 1}", "data.header=false", "objective={kind: classify, pool: first}")
    done = minitf(
        "finetune", "sst2-nano", rows, *given, *BYTES, "model.query=task", "train.steps=1", "-d", tmp_path / "run", "-q"
    )
    run = done.stdout.strip()
    [found] = json.loads(minitf("inspect", "latents", run, "a cat", "--json").stdout)["result"]["texts"]
    assert (found["outputs"], len(found["decoder"]), len(found["rollout"])) == (["output"], 1, 1)
    assert len(found["rollout"][0]) == len(found["tokens"]) > 1
    [sample] = json.loads(
        minitf("inspect", "attention", run, "a cat", "--kind", "decoder.cross", "--full", "--json").stdout
    )["result"]["samples"]
    assert {len(head["matrix"]) for head in sample["heads"]} == {1}
    told = " ".join(minitf("inspect", "attention", run, "a cat", "--kind", "decoder.cross").stdout.split())
    assert "Rows: queries, one per output of the whole row. Columns: keys, one per latent vector." in told
    assert minitf("inspect", "attention", run, "a cat", "--words").exit_code == 0
    told = "these heads have one query per output of the whole row or latent vector, not per token"
    refused(minitf("inspect", "attention", run, "a cat", "--query", "cat"), told, exit_code=2)
    refused(
        minitf("inspect", "memory", run),
        "run: no stack has hidden states of tokens, which trigger memories (perceiver)",
        exit_code=2,
    )


def test_views_and_other_models_refuse_what_a_perceiver_does_not_have(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", *BYTES, "train.steps=1", "data.pack=none")
    told = "--stack latent: a model of kind perceiver has only one stack to show, decoder; leave it out"
    refused(minitf("inspect", "memory", run, "--stack", "latent"), told, exit_code=2)
    told = "run has no cross-attention to a source (perceiver); coverage needs an encoder_decoder"
    refused(minitf("inspect", "coverage", run, "ab"), told, "train one: minitf pretrain transformer-nano", exit_code=2)
    shown = minitf("data", "show", run, "-q").stdout
    assert "4 latent vectors attend to all tokens" in shown
    told = "model.kind=encoder cannot be initialized from run, whose model.kind is perceiver"
    rows = tmp_path / "rows.tsv"
    rows.write_text("".join(f"text {n}\t{n % 2}\n" for n in range(40)))
    data = ("data.fields={text: 0, label: 1}", "data.header=false", f"model={{kind: encoder, init_from: {run}}}")
    refused(minitf("finetune", "sst2-nano", rows, *data, "train.steps=1", "-d", tmp_path / "other"), told, exit_code=3)


def test_the_positions_of_the_input_and_of_the_queries_are_shown(tmp_path: Path) -> None:
    given = ("model.positions={kind: learned, length: 70}", "model.query_positions={kind: fourier, n_bands: 3}")
    run = trained(tmp_path / "run", *BYTES, *given, "train.steps=1", "data.pack=none")
    shown = minitf("inspect", "positions", run, "--json")
    queries = json.loads(shown.stdout)["result"]
    assert "these are the positions of the decoder; use --stack encoder for others" in shown.stderr
    encoder = json.loads(minitf("inspect", "positions", run, "--stack", "encoder", "--json").stdout)["result"]
    assert [(one["positions"], one["n_positions"]) for one in (queries, encoder)] == [("fourier", 64), ("learned", 70)]
    model = open_trained(run, device="cpu").model
    assert isinstance(model, perceiver.Perceiver)
    assert isinstance(model.queries, torch.nn.Module)
    vectors = model.queries.embed(torch.zeros(1, 64, 16), TokenPositions(64))[0].double()  # type: ignore[operator]
    expected = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
    torch.testing.assert_close(torch.tensor(queries["similarity"]).double(), expected.detach(), rtol=0, atol=1e-5)
    assert encoder["never_trained"][-6:] == [*range(64, 70)]


def test_the_entropy_of_attention_to_one_token_is_0() -> None:
    attention: Any = SimpleNamespace(encoder=np.ones((2, 1)), decoder=np.full((1, 2), 0.5))
    assert _row(attention, 1, ["a"], ["b"], 3) == ["a 1.00", "0.00", "b 0.50", "0.500"]


def test_a_model_without_latents_has_none_to_show(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "train.steps=1")
    refused(minitf("inspect", "latents", run, "ab"), "run has no latents: its model is of kind decoder", exit_code=2)


def layers_with(query: str) -> list[Layer]:
    sized = "model={kind: perceiver, d_model: 16, d_latent: 24, n_layers: 2, n_heads: 2, n_latents: 4}"
    return layers_of(
        "tiny", read(TINY, [sized, "objective={kind: classify, pool: first}", f"model.query={query}"]).recipe
    )


@pytest.mark.parametrize(("query", "sizes"), [("position", (32, 4)), ("task", (1, 4))])
def test_a_perceiver_has_layers_of_tokens_of_latents_and_of_outputs(query: str, sizes: tuple[int, int]) -> None:
    layers = layers_with(query)
    names = ["encoder.cross (tiny)", "latent.self (tiny)", "decoder.cross (tiny)"]
    assert [layer.name for layer in layers] == names
    assert [layer.sizes(32) for layer in layers] == [(4, 32), (4, 4), sizes]
    assert [(layer.dims.d_model, layer.dims.d_memory) for layer in layers] == [(24, 16), (24, 24), (16, 24)]


def test_of_a_perceiver_what_grows_with_the_length_is_measured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths, "LONG_SECONDS", 0.0)
    for layer in layers_with("position"):
        (short, long), grows = measure_lengths(layer, [64, 128], Setup()), 64 in layer.sizes(64)
        assert short.flops is not None
        assert long.flops is not None
        assert (long.flops > short.flops) == grows
        assert (long.saved > short.saved) == grows  # type: ignore[operator]


def test_depths_of_latents_count_every_pass_between_them_and_the_output() -> None:
    """The decoder is above two layers of latents that are applied three times, and these above the encoder."""
    kind: Any = settings_of("models", "perceiver")
    model = kind(d_model=8, n_layers=2, n_heads=2, n_latents=3, n_blocks=3).build(20, 8)
    expected = {
        "head.": 0, "decoder.norm": 0, "processor.norm.": 0, "decoder.layers.0.": 1, "queries.": 2,
        "processor.layers.1.": 2,
        "processor.layers.0.": 3, "encoder.layers.0.": 8, "latents": 9, "embedding.": 9,
    }  # fmt: skip
    for name, depth in depths(model).items():
        assert depth == next(depth for beginning, depth in expected.items() if name.startswith(beginning)), name
