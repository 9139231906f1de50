"""`minitf inspect align`, and the other views into an encoder-decoder: what is printed, written and refused, on a tiny
run of pairs.
"""

import json
import re
from pathlib import Path
from typing import Any

import figures
import numpy as np
import pytest
import torch
from commands import QUIET, Done, minitf, refused, trained
from rich.cells import cell_len
from safetensors import safe_open

from mini_tf.generation.translation import Translator
from mini_tf.inspection._heads import repeated_tokens, scores_on
from mini_tf.nn.tokens import Tokens
from mini_tf.system.safe_text import safe_text
from mini_tf.trained.opening import open_trained

SOURCES = [
    f"the {a} {b} sees {c}" for a in ("old", "new") for b in ("cat", "dog", "cow") for c in ("me", "you", "us", "them")
]
LINKS = "4-0 0-1 2-2 1?3 3-4"
HELD = ["the old cat sees me .", "a new dog sees you .", "the old cow saw them .", "the cat sees us ."]
NANO = (
    "model={kind: encoder_decoder, d_model: 16, n_layers: 2, n_heads: 2, positions: sinusoidal, encoder: {n_layers: 1,"
    " n_heads: 2}}"
)


def backwards(source: str) -> str:
    return " ".join(source.upper().split()[::-1])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences whose words are turned round and written large, three steps long; its held-out pairs have no links."""
    folder = tmp_path_factory.mktemp("pairs")
    for name, lines in (
        ("a", SOURCES),
        ("b", map(backwards, SOURCES)),
        ("val.a", HELD),
        ("val.b", map(backwards, HELD)),
    ):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    data = (
        f"data={{train: {{source: {folder}/a, target: {folder}/b}}, val: {{source: {folder}/val.a, target:"
        f" {folder}/val.b}}}}"
    )
    steps = (
        "train={steps: 3, batch_size: 4, context: 64}",
        "eval.translations=0",
        "tokenizer={kind: byte}",
        "generate.max_new_tokens=8",
    )
    return trained(folder / "run", data, NANO, *steps, recipe="transformer-nano")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "decoder", "train.steps=1")


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    """All links of the held-out pairs."""
    lines = [" ".join(f"{n - 1 - j}-{j}" for j in range(n)) for n in (len(source.split()) for source in HELD)]
    (tmp_path / "gold").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path / "gold"


def view(name: str, *arguments: str | Path) -> Done:
    return minitf("inspect", name, *arguments)


def result(name: str, *arguments: str | Path) -> dict[str, Any]:
    done = view(name, *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["ok"], answer["command"]) == (True, f"inspect {name}")
    return dict(answer["result"])


# align


def test_align_judges_every_head_by_gold_links(run: Path, gold: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"links.{suffix}" for suffix in ("json", "pharaoh", "svg")]
    found = result("align", run, "--gold", gold, *(part for file in files for part in ("-o", file)))
    assert found == json.loads(files[0].read_text())
    assert [(head["layer"], head["head"], head["shift"]) for head in found["heads"]] == [
        (layer, head, shift) for layer in (0, 1) for head in (0, 1) for shift in (0, 1)
    ]
    assert (found["pairs"], found["chosen_on"], found["reported_on"], found["notes"]) == (4, 2, 2, [])
    rows = figures.table_in(view("align", run, "--gold", gold).stdout, "head ")
    for n, row in enumerate(rows[:4]):
        one, other = found["heads"][2 * n : 2 * n + 2]
        assert row == [f"L{one['layer']} H{one['head']}", f"{one['aer']:.3f}", f"{other['aer']:.3f}"]
    best = found["best"]
    assert best["chosen_aer"] == min(head["aer"] for head in found["heads"])
    links, true = (
        [frozenset(line.split()) for line in text] for text in (found["alignments"], gold.read_text().splitlines())
    )
    hits, total = (
        sum(map(count, (1, 3)))
        for count in (lambda n: 2 * len(links[n] & true[n]), lambda n: len(links[n]) + len(true[n]))
    )
    assert best["aer"] == pytest.approx(1 - hits / total), "on the second and the fourth pair"
    # The diagonal of words turned round meets the middle word of five, and of six none: both pairs that judge have an
    # odd or even count.
    counts = [len(HELD[n].split()) for n in (1, 3)]
    assert found["baseline"]["diagonal"] == pytest.approx(1 - sum(n % 2 for n in counts) / sum(counts))
    assert files[1].read_text() == "".join(f"{line}\n" for line in found["alignments"])
    assert "ring: gold alignment" in files[2].read_text()
    sample = found["sample"]
    assert (sample["source_words"], sample["target_words"]) == (HELD[0].split(), backwards(HELD[0]).split())
    np.testing.assert_allclose(np.sum(sample["matrix"], axis=1) + sample["no_word"], 1, atol=1e-5)
    assert sample["gold"]["sure"] == [[n, 5 - n] for n in range(6)]


def test_align_takes_the_links_that_come_with_the_data(run: Path, tmp_path: Path) -> None:
    rows = [{"source": source, "target": backwards(source), "alignment": LINKS} for source in SOURCES[:5]]
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = result("align", run, "--data", data, "--limit", "3")
    assert (found["pairs"], found["chosen_on"], found["reported_on"]) == (3, 2, 1)
    assert found["sample"]["gold"] == {
        "sure": [[0, 1], [2, 2], [3, 4], [4, 0]],
        "possible": [[0, 1], [1, 3], [2, 2], [3, 4], [4, 0]],
    }
    data.write_text(json.dumps(rows[0] | {"alignment": "7-0"}) + "\n")
    refused(view("align", run, "--data", data), "pair 1: 7-0: there is no word 7 in the source; its words are 0 to 4")


def test_align_of_one_text_draws_its_words_and_says_how_the_head_was_chosen(run: Path, tmp_path: Path) -> None:
    shown = view("align", run, "the old cat", "--target", "CAT OLD THE", "--color", "never")
    assert shown.exit_code == 0, shown.stderr
    filed = view("align", run, "the old cat", "--target", "CAT OLD THE", "-o", tmp_path / "one.pharaoh")
    assert (filed.exit_code, filed.stdout) == (0, "")
    assert re.search(r"^ *CAT ", shown.stdout, re.M)
    assert ("x: alignment by the head" in shown.stdout) == ((tmp_path / "one.pharaoh").read_text() != "\n")
    assert max(map(cell_len, shown.stdout.splitlines())) <= 80
    assert "note: no gold alignments; of 8 combinations of head and shift" in shown.stderr
    found = result("align", run, "the old cat", "--target", "CAT OLD THE")
    assert found["best"]["sharpness"] == max(head["sharpness"] for head in found["heads"])
    assert (found["best"]["aer"], found["baseline"], found["sample"]["gold"]) == (None, {"diagonal": None}, None)
    only = result(
        "align", run, "the old cat", "--target", "CAT OLD THE", "--layer", "-1", "--head", "0", "--shift", "1"
    )
    assert [(head["layer"], head["head"], head["shift"]) for head in only["heads"]] == [(1, 0, 1)]


def test_align_without_a_target_translates_or_says_that_nothing_came(run: Path) -> None:
    opened = open_trained(run)
    translator = Translator(opened.model, opened.tokenizer, opened.source_tokenizer, opened.recipe.generate)
    [[written, *_]] = translator.translate(["the old cat"])
    done = view("align", run, "the old cat")
    if written.text.split():
        assert (done.exit_code, f"target: {safe_text(written.text)}\n" in done.stderr) == (0, True)
    else:
        refused(done, "the model's translation is empty", "--target TEXT", exit_code=2)


def test_align_is_held_to_its_error_rate(run: Path, gold: Path) -> None:
    assert view("align", run, "--gold", gold, "--assert", "aer<=1").exit_code == 0
    missed = view("align", run, "--gold", gold, "--assert", "aer<0")
    assert (missed.exit_code, missed.stderr.splitlines()[-1].startswith("aer is ")) == (8, True)
    assert view("align", run, "--assert", "aer<1").exit_code == 8, "without gold links there is no such figure"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "A"), "--target needs a SOURCE"),
        (("a", "--data", "x.jsonl"), "give one of them"),
        (("a", "--gold", "g"), "needs the target text"),
        (("  ",), "SOURCE has no word"),
        (("a", "--target", " "), "--target has no word"),
        (("--layer", "7"), "--layer 7: 7 is out of range; indices are 0 to 1"),
        (("a", "--target", "b\udcff"), "is not UTF-8"),
        (("x " * 99, "--target", "b"), "no pair fits into the model's context of 64 tokens"),
        (("-o", "links.txt"), "its suffix must be"),
        (("--assert", "nothing"), "is not a comparison"),
    ],
)
def test_what_cannot_be_aligned_is_refused_in_one_line(run: Path, arguments: tuple[str, ...], message: str) -> None:
    refused(view("align", run, *arguments), message, exit_code=2)


def test_gold_files_that_do_not_fit_are_refused_with_their_line(run: Path, gold: Path) -> None:
    gold.write_text("0-0\n" * 3)
    refused(view("align", run, "--gold", gold), f"{gold}:4: {gold} has 3 lines, but there are 4 pairs")
    gold.write_text("0-0\n0-9\n\n\n")
    refused(view("align", run, "--gold", gold), f"{gold}:2: 0-9: there is no word 9 in the target")
    refused(view("align", run, "--gold", gold.with_name("none")), "none")


def test_a_model_of_one_stack_has_no_pairs_to_look_at(decoder: Path) -> None:
    refused(view("align", decoder), "has no cross-attention to a source (decoder)", exit_code=2)
    refused(view("align", decoder, "a"), "has no cross-attention to a source (decoder)", exit_code=2)
    refused(
        view("attention", decoder, "a", "--target", "b"),
        "--target needs an encoder_decoder, but this model is of kind decoder",
        exit_code=2,
    )
    refused(
        view("positions", decoder, "--stack", "encoder"),
        "--stack encoder: a model of kind decoder has only one stack",
        exit_code=2,
    )


# attention


def test_attention_of_a_pair_has_all_three_kinds_of_maps(run: Path) -> None:
    source, target = "the cat", "CAT TH"
    [sample] = result("attention", run, source, "--target", target, "--full")["samples"]
    assert (sample["source"], sample["target"]) == (source, target)
    assert (sample["source_tokens"], sample["target_tokens"]) == ([*source, "</s>"], ["</s>", *target])
    assert not {"tokens", "text", "ids"} & set(sample)
    assert bytes(id - 4 for id in sample["source_ids"][:-1]) == source.encode()
    shapes = {"encoder.self": (8, 8), "decoder.self": (7, 7), "cross": (7, 8)}
    assert [(head["kind"], head["layer"], head["head"]) for head in sample["heads"]] == [
        (kind, layer, head)
        for kind, depth in (("encoder.self", 1), ("decoder.self", 2), ("cross", 2))
        for layer in range(depth)
        for head in (0, 1)
    ]
    for head in sample["heads"]:
        matrix = np.array(head["matrix"])
        assert matrix.shape == shapes[head["kind"]]
        np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-5)
        assert (np.triu(matrix, 1) == 0).all() == (head["kind"] == "decoder.self")
        assert ("distance" in head) == (head["kind"] != "cross"), "no two texts have a distance"
        assert (head["role_scores"] == {}) == (head["kind"] == "cross"), "roles are of self-attention"
    opened = open_trained(run, device="cpu")
    separator, rows = (
        opened.tokenizer.vocabulary.separator,
        repeated_tokens(range(4, opened.tokenizer.vocabulary.size), 63),
    )
    assert rows is not None
    own, of_source = (Tokens(torch.nn.functional.pad(rows, side, value=separator)) for side in ((1, 0), (0, 1)))
    for index, scores in scores_on(opened.model, own, of_source).items():
        [head] = [head for head in sample["heads"] if (head["kind"], head["layer"], head["head"]) == index]
        assert {name: one["score"] for name, one in head["role_scores"].items()} == pytest.approx(
            {n: s.mean for n, s in scores.items()}
        )


def test_attention_of_a_pair_by_words_and_by_a_word_of_the_target(run: Path, tmp_path: Path) -> None:
    pair = ("the cat", "--target", "CAT TH")
    [by_token], [words] = (
        result("attention", run, *pair, "--full", "--kind", "cross", *more)["samples"] for more in ((), ("--words",))
    )
    assert (words["source_words"], words["target_words"]) == (["the", "cat", "</s>"], ["</s>", "CAT", "TH"])
    rows, columns = np.array(words["target_word_of_token"]), np.array(words["source_word_of_token"])
    tokens, between = (np.array(sample["heads"][1]["matrix"]) for sample in (by_token, words))
    for i, j in np.ndindex(3, 3):
        assert between[i, j] == pytest.approx(tokens[rows == i][:, columns == j].sum(axis=1).mean(), abs=1e-6)
    [asked] = result("attention", run, *pair, "--query", "CAT", "--full")["samples"]
    assert (asked["query"], {head["kind"] for head in asked["heads"]}) == ({"index": 1, "text": "CAT"}, {"cross"})
    assert asked["heads"][1]["query_weights"] == words["heads"][1]["matrix"][1]
    [there] = result("attention", run, *pair, "--query", "cat", "--kind", "encoder.self")["samples"]
    assert there["query"] == {"index": 1, "text": "cat"}
    refused(
        view("attention", run, *pair, "--query", "cat"), "no such word in the target; it has </s>, CAT, TH", exit_code=2
    )
    shown = view("attention", run, *pair, "--query", "CAT", "--describe")
    assert re.match(r"cross-attention L0 H0: 'CAT' \(1\) attends to '(the|cat|</s>)' \(", shown.stdout)
    for file, more in (("fan.svg", ("--query", "CAT")), ("maps.svg", ("--layer", "0", "--head", "1"))):
        assert view("attention", run, *pair, "--words", *more, "-o", tmp_path / file).exit_code == 0
        assert {">CAT<", ">the<", ">cat<"} <= set(re.findall(r">\w+<", (tmp_path / file).read_text()))


def test_pictures_of_a_pair_have_rows_and_columns_of_their_texts(run: Path) -> None:
    result, figure = figures.pictured(
        "inspect", "attention", run, "the old cat", "--target", "CAT", "--words", "--full"
    )
    [sample], panels = result["samples"], figures.maps(figure)
    sides = {"encoder.self": ("source", "source"), "decoder.self": ("target", "target"), "cross": ("target", "source")}
    assert [panel.title.split(" ")[:2] for panel in panels] == [
        [f"L{head['layer']}", f"H{head['head']}"] for head in sample["heads"]
    ]
    last = {head["kind"]: (head["layer"], head["head"]) for head in sample["heads"]}
    for panel, head in zip(panels, sample["heads"], strict=True):
        rows, columns = (dict(enumerate(sample[f"{side}_words"])) for side in sides[head["kind"]])
        assert panel.rows == (rows if head["head"] == 0 else {}), "once for the heads of a layer"
        assert panel.columns == (columns if head["layer"] == last[head["kind"]][0] else {}), "once for all layers"
        expected = np.array(head["matrix"])
        np.testing.assert_array_equal(np.nan_to_num(panel.values), expected.astype(np.float32))
        assert np.isnan(panel.values).any() == (head["kind"] == "decoder.self")
    assert {"query (target)", "key (source)", "query", "key", "cross-attention"} <= {*figures.texts(figure)}
    _, figure = figures.pictured("inspect", "attention", run, "the old cat", "--target", "CAT", "--query", "CAT")
    assert [text.get_text() for text in figure.axes[0].texts] == ["CAT"]
    assert ["the", "old", "cat", "</s>"] in [[text.get_text() for text in axes.texts] for axes in figure.axes]


def test_attention_files_of_pairs_hold_both_sides(run: Path, tmp_path: Path) -> None:
    done = view(
        "attention",
        run,
        "the cat",
        "--target",
        "CAT",
        "--words",
        "--full",
        "-o",
        tmp_path / "a.safetensors",
        "-o",
        tmp_path / "a.json",
    )
    assert done.exit_code == 0, done.stderr
    sample = json.loads((tmp_path / "a.json").read_text())["samples"][0]
    with safe_open(tmp_path / "a.safetensors", framework="numpy") as file:
        about = json.loads(file.metadata()["minitf"])
        cross = file.get_tensor("s0000/cross/L01")
        ids, words, offsets = (file.get_tensor(f"s0000/{name}") for name in ("src.ids", "tgt.words", "src.offsets"))
    assert cross.tolist() == [head["matrix"] for head in sample["heads"][-2:]]
    assert (ids.tolist(), words.tolist(), offsets[-1].tolist()) == (
        sample["source_ids"],
        sample["target_word_of_token"],
        [-1, -1],
    )
    assert about["samples"][0]["tgt"] == {
        "text": "CAT",
        "tokens": sample["target_tokens"],
        "words": sample["target_words"],
    }
    assert about["samples"][0]["src"]["text"] == "the cat"


def test_attention_translates_texts_whose_target_is_not_given(run: Path) -> None:
    done = view("attention", run, "the cat", "a dog", "--step", "all")
    assert done.exit_code == 0, done.stderr
    samples = result("attention", run, "the cat", "a dog")["samples"]
    assert [sample["source"] for sample in samples] == ["the cat", "a dog"]
    refused(view("attention", run, "a", "b", "--target", "c"), "--target is one text for 2 sources", exit_code=2)
    long = view("attention", run, "x" * 99, "--target", "y" * 99)
    assert "note: the source has 100 tokens and is truncated to 64, the model's context\n" in long.stderr
    assert "note: the target has 100 tokens and is truncated to 64, the model's context\n" in long.stderr


# the other views


def test_the_other_views_look_at_both_stacks(run: Path) -> None:
    made = result("model", run)
    assert sum(part["parameters"] for part in made["parts"]) == made["parameters"]
    assert {"encoder.layers.0.self_attn.part", "stack.layers.1.cross_attn.part"} <= {
        part["name"] for part in made["parts"]
    }
    assert (made["flops"]["per"], made["cross_attention"], made["encoder"]) == (
        "pair",
        "softmax",
        {"attention": ["softmax"], "positions": "sinusoidal"},
    )
    counts = 3 * 8  # the tokens that were seen, and where each layer's begin
    assert made["memory"]["state"] == (2 + 2) * 64 * 2 * 16 * 4 + counts, (
        "two layers' keys and values, of the target and of the source"
    )
    assert made["memory"]["state_per_token"] == 2 * 2 * 16 * 4
    names = [line.split(" ")[0] for line in view("model", run).stdout.splitlines()]
    assert {"decoder.*.self_attn", "decoder.*.cross_attn", "encoder.0.feed_forward"} <= {*names}
    kinds = [(head["kind"], head["layer"]) for head in result("softmax", run, "the cat")["heads"]]
    assert set(kinds) == {("encoder.self", 0), ("decoder.self", 0), ("decoder.self", 1), ("cross", 0), ("cross", 1)}
    for stack in ((), ("--stack", "encoder")):
        assert result("positions", run, *stack)["positions"] == "sinusoidal"
    word = result("word", run, "cat", "the cat sees me", "a cat")
    assert [layer["layer"] for layer in word["layers"]] == [0, 1], "the encoder has one layer"
    assert [text["pieces"] for text in word["texts"]] == [["c", "a", "t"]] * 2
    assert view("tokens", run, "the cat").exit_code == 0
    refused(view("crash", run), "has no dump of a diverged step", exit_code=5)


def test_a_step_of_pairs_that_diverged_is_shown_with_both_sides(tmp_path: Path) -> None:
    rows = [{"source": source, "target": backwards(source)} for source in SOURCES]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    steps = ("train={steps: 2, batch_size: 4, context: 64}", "eval.translations=0", "tokenizer={kind: byte}")
    # Squares of squares, eight layers deep: no arithmetic holds them.
    wild = NANO.replace(
        "n_layers: 2, n_heads: 2,", "n_layers: 8, n_heads: 2, norm_place: none, activation: relu2, init_std: 10,"
    )
    data = f"data={{train: {tmp_path}/pairs.jsonl, fields: {{source: source, target: target}}}}"
    done = minitf("pretrain", "transformer-nano", *QUIET, data, wild, *steps, "-d", tmp_path / "run")
    assert done.exit_code == 7, done.stderr
    replayed = result("crash", tmp_path / "run")
    assert replayed["reproduced"]
    assert {row["text"] for row in replayed["rows"]} <= {f"{row['source']} => {row['target']}" for row in rows}
