"""`minitf inspect coverage`, and a run of pairs whose cross-attention is converted into diminishing attention: weights
kept, attention, coverage and weights by their formula, repetition and facts by counting.
"""

import json
import re
from pathlib import Path
from typing import Any

import figures
import numpy as np
import pytest
import torch
from commands import QUIET, Done, minitf, refused, tiny_model, trained
from shared import once

from mini_tf.data.corpora import world_facts
from mini_tf.drawing.plotting import figure_label as label
from mini_tf.generation.translation import Translator
from mini_tf.inspection._capture import capture
from mini_tf.inspection._coverage import FactCounts, Summaries, cross_attention, facts_reader
from mini_tf.inspection._texts import target_input, untruncated_input
from mini_tf.nn.tokens import Tokens
from mini_tf.trained.opening import load_trained, open_trained

FACTS = "{{kind: world-facts, n_documents: {}, n_facts: 2, n_distractors: 0, seed: {}}}"
NANO = """model={kind: encoder_decoder, d_model: 32, n_layers: 2, n_heads: 2, positions: learned,
  encoder: {n_layers: 1},
 cross_attention: {kind: softmax, qk_norm: true, scale: 0.3}}"""
SHORT = (
    "train={steps: 3, batch_size: 4, context: 96}",
    "eval.translations=0",
    "generate={max_new_tokens: 30, num_beams: 2}",
    "tokenizer={kind: wordpiece, vocab_size: 400}",
)
DATA = (f"data.train={FACTS.format(60, 0)}", f"data.val={FACTS.format(6, 1)}")
SOURCE, TARGET = "gotal nuras the nanar . dara dozus the makin .", "dara dozus the makin . dara dozus"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(
        tmp_path_factory,
        "facts",
        lambda folder: trained(folder / "plain", *DATA, NANO, *SHORT, recipe="transformer-nano"),
    )


def converted(run: Path, folder: Path, *settings: str) -> dict[str, Any]:
    done = minitf("convert", run, *settings, "-d", folder, "--json")
    assert done.exit_code == 0, done.stderr
    metrics: dict[str, Any] = json.loads(done.stdout)["metrics"]
    return metrics


@pytest.fixture(scope="module")
def diminishing(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def convert(folder: Path) -> Path:
        converted(run, folder / "log", "model.cross_attention.kind=diminishing")
        return folder / "log"

    return once(tmp_path_factory, "diminished", convert)


def view(*arguments: str | Path) -> Done:
    return minitf("inspect", "coverage", *arguments)


def envelope(*arguments: str | Path) -> dict[str, Any]:
    done = view(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def maps_of(*arguments: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = envelope(*arguments)["result"]["sample"]["maps"]
    return found


# Conversion


def test_a_conversion_keeps_every_weight_and_has_no_new_one(run: Path, diminishing: Path) -> None:
    original, other = load_trained(run), load_trained(diminishing)
    before, after = original.model.weights(), other.model.weights()
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    cross = other.recipe.model.cross_attention  # type: ignore[attr-defined]
    assert (cross.kind, cross.function, cross.qk_norm, cross.scale) == ("diminishing", "log1p", True, 0.3)


def test_the_identity_converts_into_the_same_predictions_and_back(run: Path, diminishing: Path, tmp_path: Path) -> None:
    identity = converted(run, tmp_path / "identity", "model.cross_attention={kind: diminishing, function: identity}")
    assert identity["loss"] == identity["before.loss"]
    assert identity["kl"] == pytest.approx(0, abs=1e-9)
    log = converted(diminishing, tmp_path / "back", "model.cross_attention.kind=softmax")
    assert log["kl"] > 0
    assert log["loss"] == identity["loss"]
    assert log["before.loss"] != log["loss"]


def test_a_run_is_trained_further_with_diminishing_attention(run: Path, diminishing: Path, tmp_path: Path) -> None:
    """From a run that has it, and from one that has not, if its settings of queries and keys are kept."""
    other = "model.cross_attention={{kind: diminishing, function: cap, {}}}"
    for name, begin in (
        ("had", (f"model.init_from={diminishing}",)),
        ("new", (f"model.init_from={run}", other.format("qk_norm: true, scale: 0.3"))),
    ):
        done = minitf(
            "pretrain", "transformer-nano", *DATA, *SHORT[:3], *QUIET, *begin, "train.steps=1", "-d", tmp_path / name
        )
        assert done.exit_code == 0, done.stderr
        loaded = re.search(r"initialized from \w+: (\d+) tensors loaded(.*)", done.stderr)
        assert loaded is not None
        assert (int(loaded[1]), loaded[2]) == (len(load_trained(run).model.weights()), "")
        assert load_trained(tmp_path / name).recipe.model.cross_attention.kind == "diminishing"  # type: ignore[attr-defined]
    begin = (f"model.init_from={run}", other.format("scale: 0.3"))
    done = minitf("pretrain", "transformer-nano", *DATA, *SHORT[:3], *QUIET, *begin, "-d", tmp_path / "wrong")
    refused(done, "model.cross_attention.qk_norm: is False, but True in plain, the run of model.init_from", exit_code=3)


def test_as_self_attention_it_is_refused() -> None:
    done = minitf("recipe", "check", "quickstart", "model.attention=diminishing")
    refused(done, "diminishing attention is cross-attention only", exit_code=3)


# Copying


@pytest.fixture(scope="module")
def copying(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained further from a run that does not copy, with an adapter."""
    begin = (f"model.init_from={run}", "model.copy_attention=true", "adapter={rank: 2}")
    return once(
        tmp_path_factory,
        "copying",
        lambda folder: trained(folder / "copies", *DATA, *SHORT[:3], *begin, recipe="transformer-nano"),
    )


def test_a_run_begins_with_one_that_does_not_copy_and_trains_the_new_weights_beside_an_adapter(
    run: Path, copying: Path
) -> None:
    before, opened = load_trained(run).model.weights(), load_trained(copying)
    after = opened.model.weights()
    new = {name for name in after if name not in before}
    assert new
    assert all(name.startswith("copy_attention.") for name in new)
    assert not all(torch.equal(after[name], torch.full_like(after[name], 3.0)) for name in new if name.endswith("bias"))
    assert torch.equal(before["embedding.tokens.weight"], after["embedding.tokens.weight"])
    assert opened.model.special_ids == opened.tokenizer.vocabulary.special_ids


def test_where_each_token_is_copied_from_is_shown_as_the_model_computes_it(run: Path, copying: Path) -> None:
    found = envelope(copying, SOURCE, "--target", TARGET)["result"]["sample"]
    copies = {name: np.array(values) for name, values in found["copies"].items()}
    np.testing.assert_allclose(copies["p_gen"] + copies["copied"].sum(axis=1), 1, atol=1e-5)
    own = np.array([[token == other for other in found["source_tokens"]] for token in found["target_tokens"]])
    own[-1] = False  # the separator of the source is not copied
    np.testing.assert_allclose(copies["copied_label"], (copies["copied"] * own).sum(axis=1), atol=1e-6)
    assert (copies["label"] > copies["copied_label"]).all()
    shown = view(copying, SOURCE, "--target", TARGET).stdout
    assert re.search(r"target token +p_gen +p +copied +from", shown)
    rows = figures.table_in(shown, "target token")
    for n, token in enumerate(found["target_tokens"]):
        numbers = (copies["p_gen"][n], copies["label"][n], copies["copied_label"][n] / copies["label"][n])
        source = int(copies["copied"][n].argmax())
        assert rows[n] == [
            label(token),
            *(f"{number:.3f}" for number in numbers),
            f"{label(found['source_tokens'][source])} {source}",
        ]
    assert "copies" not in envelope(run, SOURCE, "--target", TARGET)["result"]["sample"]


def test_copying_needs_one_vocabulary() -> None:
    given = ("recipe", "check", "transformer-nano", "model.copy_attention=true", "tokenizer.source={kind: char}")
    refused(
        minitf(*given),
        "model.copy_attention",
        "needs one tokenizer for source and target; remove tokenizer.source",
        exit_code=3,
    )


# Maps


def test_coverage_is_the_sum_of_attention_and_weights_are_what_it_gains(diminishing: Path) -> None:
    for one, head in zip(maps_of(diminishing, SOURCE, "--target", TARGET, "--head", "0,1"), [0, 1, 0, 1], strict=True):
        assert one["head"] == head
        attention, coverage, weights = (np.array(one[name]) for name in ("attention", "coverage", "weight"))
        np.testing.assert_allclose(attention.sum(axis=1), 1, atol=1e-5)
        np.testing.assert_allclose(coverage, attention.cumsum(axis=0), atol=1e-5)
        gains = np.log1p(coverage) - np.log1p(coverage - attention)
        np.testing.assert_allclose(weights, gains, atol=1e-5)
        np.testing.assert_allclose(one["row_sums"], weights.sum(axis=1), atol=1e-5)
        assert one["row_sums"][-1] < one["row_sums"][0] < 1


def test_a_layer_is_the_mean_of_its_heads_and_plain_attention_has_no_weights_besides(run: Path) -> None:
    pair = (run, SOURCE, "--target", TARGET)
    layers, heads = maps_of(*pair), maps_of(*pair, "--head", "0,1")
    assert [(one["layer"], one["head"]) for one in layers] == [(0, None), (1, None)]
    for layer, one in enumerate(layers):
        assert "weight" not in one
        for name in ("attention", "coverage"):
            np.testing.assert_allclose(
                one[name], np.mean([head[name] for head in heads[2 * layer : 2 * layer + 2]], axis=0), atol=1e-6
            )
        np.testing.assert_allclose(one["row_sums"], 1, atol=1e-5)


def test_a_row_stands_for_the_token_that_is_predicted_there(diminishing: Path) -> None:
    sample = envelope(diminishing, SOURCE, "--target", TARGET)["result"]["sample"]
    opened = open_trained(diminishing)
    assert sample["target_tokens"] == [*opened.tokenizer.pieces(opened.tokenizer.encode(TARGET).tolist()), "</s>"]
    assert sample["source_tokens"] == [*opened.tokenizer.pieces(opened.tokenizer.encode(SOURCE).tolist()), "</s>"]
    assert np.array(sample["maps"][0]["coverage"]).shape == (len(sample["target_tokens"]), len(sample["source_tokens"]))


def test_maps_are_printed_and_drawn(diminishing: Path, tmp_path: Path) -> None:
    shown = view(diminishing, SOURCE, "--target", TARGET, "--color", "never")
    assert shown.exit_code == 0, shown.stderr
    assert [line for line in shown.stdout.splitlines() if line.startswith("L")] == [
        f"L1, {name}" for name in ("attention", "coverage", "weight")
    ]
    assert "1 of 2 layers shown" in shown.stderr
    assert "1 of 2" not in view(diminishing, SOURCE, "--target", TARGET, "--layer", "0,1").stderr
    result, figure = figures.pictured("inspect", "coverage", diminishing, SOURCE, "--target", TARGET)
    sample, panels = result["sample"], figures.maps(figure)
    assert sample["target"] == TARGET
    names = [(layer, name) for layer in (0, 1) for name in ("attention", "coverage", "weight")]
    assert [panel.title for panel in panels] == [f"L{layer}, {name}" for layer, name in names]
    largest = max(np.max(one[name]) for one in sample["maps"] for name in ("attention", "coverage", "weight"))
    for panel, (layer, name) in zip(panels, names, strict=True):
        np.testing.assert_array_equal(panel.values, np.array(sample["maps"][layer][name]))
        assert panel.rows in ({}, {n: label(token, 18) for n, token in enumerate(sample["target_tokens"])})
        assert panel.columns in ({}, {n: label(token, 18) for n, token in enumerate(sample["source_tokens"])})
        assert panel.colors[2] >= min(1, largest) * 0.99
    assert figures.colorbar(figure)[0] == "attention weight or coverage"
    totals = (
        view(diminishing, SOURCE, "--target", TARGET, "--layer", "0", "--color", "never")
        .stdout.split("\nsource token ")[1]
        .splitlines()
    )
    assert totals[0].split() == ["L0", "coverage", "L0", "weight"]
    [one, _] = sample["maps"]
    for n, line in enumerate(totals[1 : 1 + len(sample["source_tokens"])]):
        weight = np.sum(one["weight"], axis=0)[n]
        assert line.split()[-2:] == [f"{one['coverage'][-1][n]:.3f}", f"{weight:.3f}"]


def test_the_attention_of_coverage_is_that_of_the_model(run: Path) -> None:
    opened = open_trained(run, device="cpu")
    cross_attention(opened, untruncated_input(opened, SOURCE), target_input(opened.tokenizer, TARGET, 96))
    assert not figures.has_hooks(opened.model)
    separator, source, target = (
        opened.tokenizer.vocabulary.separator,
        opened.tokenizer.encode(SOURCE),
        opened.tokenizer.encode(TARGET),
    )
    inputs, read = (
        Tokens(torch.tensor([ids])) for ids in ([separator, *map(int, target)], [*map(int, source), separator])
    )
    cross = [
        one.weights[0].mean(dim=0).numpy()
        for one in capture(opened.model, inputs, read).attention
        if one.kind == "cross"
    ]
    for one, weights in zip(maps_of(run, SOURCE, "--target", TARGET), cross, strict=True):
        np.testing.assert_allclose(one["attention"], weights, atol=1e-6)
        totals = np.zeros(len(source) + 1)
        for row, coverage in zip(weights, one["coverage"], strict=True):
            totals += row
            np.testing.assert_allclose(coverage, totals, atol=1e-5)


# Repetition and facts


def test_figures_are_those_of_the_generated_texts(diminishing: Path) -> None:
    opened, corpus = open_trained(diminishing), world_facts.Settings(n_documents=6, n_facts=2, n_distractors=0, seed=1)
    rows = list(corpus.rows())[:5]
    translator = Translator(opened.model, opened.tokenizer, opened.source_tokenizer, opened.recipe.generate)
    written = [best[0].text for best in translator.translate([row["source"] for row in rows])]
    found = envelope(diminishing, "--limit", "5")
    result, metrics = found["result"], found["metrics"]
    assert (result["texts"]["texts"], result["texts"]["words"]) == (5, sum(len(text.split()) for text in written))
    for n in (1, 2, 3, 4):
        ngrams = [[tuple(words[i : i + n]) for i in range(len(words) - n + 1)] for words in map(str.split, written)]
        repeated = [gram in text[:i] for text in ngrams for i, gram in enumerate(text)]
        share = sum(repeated) / len(repeated) if repeated else None
        assert metrics[f"repetition.{n}"] == pytest.approx(share)
    n_facts = sum(row["target"].count(" .") for row in rows)
    assert result["references"]["facts"] == {
        **FactCounts(n_facts, n_facts, 0, n_facts, 0)._asdict(),
        "shares": {"recall": 1.0, "twice": 0.0, "invented": 0.0},
    }
    assert result["texts"]["facts"]["facts"] == n_facts
    assert metrics["facts.recall"] == result["texts"]["facts"]["said"] / n_facts
    shown = view(diminishing, "--limit", "5").stdout
    repetition, facts = (figures.table_in(shown, header) for header in ("texts  ", "facts  "))
    for row, name in zip(repetition[:2], ("texts", "references"), strict=True):
        numbers = [value for value in result[name]["repetition"].values() if value is not None]
        expected = [
            name[:-1],
            str(result[name]["texts"]),
            str(result[name]["words"]),
            *(f"{value:.3f}" for value in numbers),
        ]
        assert row == expected
    for row, name in zip(facts[:2], ("texts", "references"), strict=True):
        numbers = [value for value in result[name]["facts"]["shares"].values() if value is not None]
        assert row == [name[:-1], str(result[name]["facts"]["facts"]), *(f"{value:.3f}" for value in numbers)]


def test_facts_that_are_said_said_twice_and_invented_are_counted_by_text() -> None:
    corpus = world_facts.Settings()
    names = corpus.lexicon.names[:3]
    a, b, c = (f"{name} zegs the kulan ." for name in names)
    passive, cleft = f"the kulan is zeged by {names[0]} .", f"it is {names[1]} that zegs the kulan ."
    stranger = "some kulan zegs the kulan ."
    found = Summaries.of(
        [f"{passive} {b} {stranger} {a}", c],
        [f"{a} {c} {c} {cleft} {cleft} {stranger}", f"{c} {c} {c} nonsense"],
        corpus.facts,
    )
    assert found.facts == FactCounts(facts=3, said=3, twice=2, stated=4, invented=1)
    assert found.facts.shares == {"recall": 1.0, "twice": 2 / 3, "invented": 0.25}
    assert Summaries.of([a], [""], corpus.facts).metrics() == {
        **dict.fromkeys(("repetition.1", "repetition.2", "repetition.3", "repetition.4")),
        "facts.recall": 0.0,
        "facts.twice": 0.0,
        "facts.invented": None,
    }


def test_facts_are_read_as_by_the_corpus_of_the_data_or_of_the_run(diminishing: Path, tmp_path: Path) -> None:
    table = tmp_path / "pairs.jsonl"
    table.write_text(json.dumps({"source": SOURCE, "target": TARGET}) + "\n")
    counts = envelope(diminishing, "--data", table)["result"]["references"]["facts"]
    assert {name: counts[name] for name in FactCounts._fields} == {
        "facts": 2,
        "said": 1,
        "twice": 0,
        "stated": 1,
        "invented": 0,
    }
    opened = open_trained(diminishing)
    assert facts_reader(opened, "translate-toy") is None
    assert facts_reader(opened, "world-translation") is None


def test_repetition_is_the_share_of_ngrams_that_occurred_before() -> None:
    texts = ["a b c a b c a", "a b", "", "a"]
    found = Summaries.of(texts, texts, None)
    expected = {"repetition.1": 4 / 10, "repetition.2": 3 / 7, "repetition.3": 2 / 5, "repetition.4": 1 / 4}
    assert found.metrics() == pytest.approx(expected)
    assert (found.texts, found.words, found.to_json()["facts"]) == (4, 10, None)


# Refusals


def generated(*_: object, **__: object) -> None:
    raise AssertionError("a text was generated")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "A"), "--target needs a SOURCE"),
        (("a", "--data", "x.jsonl"), "give one of them"),
        (("  ",), "SOURCE has no words"),
        (("a", "--target", "b", "--layer", "7"), "--layer 7: 7 is out of range; indices are 0 to 1"),
        (("a", "--limit", "2"), "--limit 2: SOURCE is one text"),
        (("--layer", "7"), "--layer 7: 7 is out of range; indices are 0 to 1"),
        (("a", "--head", "9"), "--head 9: 9 is out of range; indices are 0 to 1"),
        (("-o", "map.pharaoh"), "its suffix must be"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line_before_texts_are_generated(
    diminishing: Path, arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Translator, "translate", generated)
    refused(view(diminishing, *arguments), message, exit_code=2)


def test_models_without_pairs_or_cross_attention_are_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = trained(tmp_path / "decoder", "train.steps=1")
    refused(
        view(decoder, "a"),
        "has no cross-attention to a source (decoder); coverage needs an encoder_decoder",
        exit_code=2,
    )
    noisy = trained(tmp_path / "noisy", "train.steps=1", tiny_model("encoder_decoder"), "objective=denoising")
    refused(view(noisy), "noisy has the objective denoising, whose data are not pairs", "give a SOURCE", exit_code=2)
    blind = trained(
        tmp_path / "blind",
        *DATA,
        NANO.replace("{kind: softmax, qk_norm: true, scale: 0.3}", "null"),
        *SHORT,
        "train.steps=1",
        recipe="transformer-nano",
    )
    monkeypatch.setattr(Translator, "translate", generated)
    refused(view(blind), "blind has no cross-attention", exit_code=2)
    refused(view(blind, "a", "--target", "b"), "blind has no cross-attention", exit_code=2)
