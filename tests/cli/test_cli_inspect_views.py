"""`minitf inspect word, model, tokens, positions, softmax`: what is printed and drawn, what is refused, what
reaches JSON.
"""

import json
import re
from pathlib import Path
from typing import Any

import figures
import numpy as np
import pytest
import tiny_tasks
from commands import TINY, Done, minitf, trained

from mini_tf.data.tokenization.prompts import PLAIN_MASK
from mini_tf.drawing.plotting import figure_caption
from mini_tf.inspection._modules import analyze_positions, encoding_of
from mini_tf.inspection.positions import _panel
from mini_tf.system.safe_text import safe_text
from mini_tf.trained.opening import open_trained

HOSTILE = [
    "\x1b[31mred",
    "\x9b",
    "[/INST]",
    "[bold]x[/bold]",
    "\u202e",
    "$x$",
    "漢字",
    "👩\u200d🚀",
    "</s>",
    "[MASK]",
    "y" * 300,
]
KINDS = {"learned": "learned, length: 60", "none": "none", "rotary": "rotary", "alibi": "alibi"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run for each kind of positions, of two steps each; decoders, but the one with learned positions an encoder."""
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    for kind, settings in KINDS.items():
        model = "encoder" if kind == "learned" else "decoder"
        sizes = f"d_model: 16, n_layers: 2, n_heads: 2, positions: {{kind: {settings}}}"
        found[kind] = trained(folder / kind, "train.steps=2", f"model={{kind: {model}, {sizes}}}")
    return found


def result_of(*arguments: str | Path, stdin: str = "") -> Any:
    done = minitf("inspect", *arguments, "--json", "-q", stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["result"]


def shown(*arguments: str | Path, stdin: str = "") -> str:
    done = minitf("inspect", *arguments, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == safe_text(done.stdout)
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    return done.stdout


def refused(exit_code: int, *arguments: str | Path, stdin: str = "") -> str:
    done: Done = minitf("inspect", *arguments, stdin=stdin)
    assert done.exit_code == exit_code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


# word


def test_word_compares_the_senses_of_a_file_and_the_figures_hold_their_layers(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    senses = Path(__file__).parents[2] / "data" / "senses.jsonl"
    files = [tmp_path / f"bears.{suffix}" for suffix in ("svg", "json")]
    assert shown("word", runs["none"], "bat", "-i", senses, *(part for file in files for part in ("-o", file))) == ""
    text = shown("word", runs["none"], "bat", "-i", senses)
    result = json.loads(files[1].read_text())
    assert result == result_of("word", runs["none"], "bat", "-i", senses)
    records = [json.loads(line) for line in senses.read_text().splitlines()]
    assert [(one["text"], one["sense"]) for one in result["texts"]] == [
        (r["text"], r["sense"]) for r in records if r["word"] == "bat"
    ]
    assert [layer["layer"] for layer in result["layers"]] == [0, 1, 2]
    assert result["layers"][0]["cosine"] == pytest.approx(1)
    assert result["layers"][0]["separation"] == pytest.approx(0, abs=1e-12)
    assert "separation" in text
    for row, layer in zip(figures.table_in(text, "layer  ")[:3], result["layers"], strict=True):
        numbers = [f"{layer[name]:.3f}" for name in ("cosine", "baseline", "corrected", "separation")]
        assert row == [f"{layer['layer']}{' (embedding)' * (layer['layer'] == 0)}", *numbers]
    assert "blink: He told the lie and did not bat an eye." in text
    for title in ("layer 0", "layer 1", "layer 2"):
        assert title in files[0].read_text()
    before = [file.read_bytes() for file in files]
    shown("word", runs["none"], "bat", "-i", senses, *(part for file in files for part in ("-o", file)), "--force")
    assert [file.read_bytes() for file in files] == before


def test_word_keeps_hostile_texts_exactly_and_draws_them_safely(runs: dict[str, Path], tmp_path: Path) -> None:
    texts = [f"bears {hostile}"[:45] for hostile in HOSTILE]
    assert [one["text"] for one in result_of("word", runs["none"], "bears", *texts)["texts"]] == texts
    drawn = shown("word", runs["none"], "bears", *texts)
    shown("word", runs["none"], "bears", *texts, "--layer", "1", "-o", tmp_path / "x.svg")
    assert "[bold]x[/bold]" in drawn
    assert "\x1b" not in (tmp_path / "x.svg").read_text()
    for word in ("漢字", "👩\u200d🚀", "[bold]", "$x$", "\x1b[31m"):
        pair = [f"a {word} b", f"{word} c"]
        assert [one["characters"] for one in result_of("word", runs["none"], word, *pair)["texts"]] == [
            [2, 2 + len(word)],
            [0, len(word)],
        ]
        shown("word", runs["none"], word, *pair)


def test_word_reads_sentences_from_a_pipe(runs: dict[str, Path]) -> None:
    """Run with nothing at the terminal, as every command here is."""
    done = minitf("inspect", "word", runs["rotary"], "bears", "--json", stdin="two bears\nI love bears\n")
    assert [text["text"] for text in json.loads(done.stdout)["result"]["texts"]] == ["two bears", "I love bears"]
    refused = minitf("inspect", "word", runs["rotary"], "bears", stdin="two bears\nno such\n")
    assert (refused.exit_code, refused.stderr.startswith("stdin:2: the word 'bears'")) == (4, True)


def test_word_says_what_it_cannot_do(runs: dict[str, Path], tmp_path: Path) -> None:
    run, file = runs["rotary"], tmp_path / "s.txt"
    file.write_text("two bears\nno such\n")
    assert "text 2: the word 'bears' does not occur in it" in refused(2, "word", run, "bears", "bears", "Bears")
    assert f"{file}:2: the word 'bears' does not occur in it" in refused(4, "word", run, "bears", "-i", file)
    assert "-i FILE" in refused(2, "word", run, "bears")
    assert "can be compared, got 1" in refused(2, "word", run, "bears", "one of bears")
    assert "WORD is empty" in refused(2, "word", run, " ", "a b", "c d")
    assert "give one of them" in refused(2, "word", run, "bears", "bears", "-i", file)
    assert "--layer 3: must be 0 (the embedding) to 2" in refused(
        2, "word", run, "bears", "bears", "bears", "--layer", "3"
    )
    assert "but the model's context is 48" in refused(2, "word", run, "bears", "bears", "y " * 30 + "bears")
    assert "WORD is not UTF-8" in refused(2, "word", run, "\udcff", "bears", "bears")
    assert "a text is not UTF-8" in refused(2, "word", run, "bears", "bears", "bears \udcff")
    file.write_bytes(b"bears\nbears \xff\n")
    assert "is not UTF-8" in refused(4, "word", run, "bears", "-i", file)
    assert "exists" in refused(2, "word", run, "bears", "bears", "a bears", "-o", file.rename(tmp_path / "s.json"))


def test_word_says_which_occurrence_is_compared(runs: dict[str, Path]) -> None:
    result = result_of("word", runs["alibi"], "bears", "he bears two bears", "two bears", "bears, bears, bearskin")
    assert [(one["characters"], one["occurrences"]) for one in result["texts"]] == [
        ([3, 8], 2),
        ([4, 9], 1),
        ([0, 5], 2),
    ]
    said = "occurs 2 times; the first, at characters"
    assert result["notes"] == [
        f"text 1: 'bears' {said} 3 to 7, is compared",
        f"text 3: 'bears' {said} 0 to 4, is compared",
    ]


def test_word_says_what_it_cut(runs: dict[str, Path]) -> None:
    result = result_of("word", runs["alibi"], "bears", "bears " + "y " * 30, "two bears")
    assert result["notes"] == ["text 1: the text has 67 tokens and is truncated to 48, the model's context"]
    assert [one["n_cut"] for one in result["texts"]] == [19, 0]


def test_word_draws_the_layer_that_was_asked_for_alone_or_says_which_it_shows(tmp_path: Path) -> None:
    model = "model={kind: encoder, d_model: 8, n_layers: 5, n_heads: 2, positions: none}"
    run, file = trained(tmp_path / "deep", "train.steps=1", model, "objective=masked"), tmp_path / "x.svg"
    shown("word", run, "bears", "two bears", "it bears", "-o", file)
    text, drawn = shown("word", run, "bears", "two bears", "it bears"), file.read_text()
    assert "bears in 2 sentences, layers 0, 2, 3, 5 of 0-5" in drawn
    assert ([f"bears: layer {n}" in drawn for n in range(6)], "bears: layer 5" in text) == (
        [True, False, True, True, False, True],
        True,
    )
    shown("word", run, "bears", "two bears", "it bears", "--layer", "-2", "-o", file, "--force")
    text, drawn = shown("word", run, "bears", "two bears", "it bears", "--layer", "-2"), file.read_text()
    assert "of 0-5" not in drawn
    assert ([f"bears: layer {n}" in drawn for n in range(6)], "bears: layer 4" in text) == (
        [n == 4 for n in range(6)],
        True,
    )


def test_word_pictures_are_cosines_without_their_baseline_on_one_scale(runs: dict[str, Path]) -> None:
    texts, last_alone = ("two bears", "it bears a load", "bears, and a bear"), list[bool]()
    for run, options, chosen in (
        (runs["learned"], (), (0, 1, 2)),
        (runs["alibi"], (), (0, 1, 2)),
        (runs["learned"], ("--layer", "1"), (1,)),
    ):
        result, figure = figures.pictured("inspect", "word", run, "bears", *texts, *options)
        panels = figures.maps(figure)
        corrected = [np.array(result["layers"][n]["pairs"]) - result["layers"][n]["baseline"] for n in chosen]
        off = ~np.eye(3, dtype=bool)
        assert [panel.title for panel in panels] == [f"bears: layer {n}" for n in chosen]
        for panel, values in zip(panels, corrected, strict=True):
            assert panel.values[off].tolist() == pytest.approx(values[off].tolist())
            assert np.isnan(panel.values.diagonal()).all()
            assert panel.columns in ({n: str(n + 1) for n in range(3)}, {})
            assert [*panel.rows.values()] in (
                [figure_caption(f"{n} {text}", 18) for n, text in enumerate(texts, 1)],
                [],
            )
        ends = min(values[off].min() for values in corrected), max(values[off].max() for values in corrected)
        assert all(panel.colors == ("Blues", pytest.approx(ends[0]), pytest.approx(ends[1])) for panel in panels)
        assert figures.colorbar(figure) == ("cosine similarity - baseline", pytest.approx(ends))
        last_alone.append((corrected[-1][off].min(), corrected[-1][off].max()) == ends)
    assert not all(last_alone), "the ends of the scale are not always those of the last panel"


def test_what_is_no_number_is_null_in_json_and_blank_in_a_table(runs: dict[str, Path]) -> None:
    for layer in result_of("word", runs["none"], "a", "a", "a a")["layers"]:
        assert (layer["baseline"], layer["corrected"], layer["cosine"] is None) == (None, None, False)
    assert "nan" not in shown("word", runs["none"], "a", "a", "a a")


# model


def test_model_counts_what_training_counted(runs: dict[str, Path]) -> None:
    for kind, run in runs.items():
        done = minitf("inspect", "model", run, "--json")
        answer = json.loads(done.stdout)
        result = answer["result"]
        log = (run / "log.txt").read_text()
        assert f"{result['parameters']:,} parameters" in log
        assert (
            sum(part["parameters"] for part in result["parts"])
            == result["parameters"]
            == answer["metrics"]["parameters"]
        )
        assert sum(part["share"] for part in result["parts"]) == pytest.approx(1)
        assert (result["positions"], result["context"], result["vocabulary"]) == (kind, 48, 260)
        assert (result["memory"]["state"] is None) == (kind == "learned")
        text = shown("model", run)
        rows = [line.split() for line in text.splitlines()]
        assert ["total", f"{result['parameters']:,}", "100.0%"] in rows
        merged: dict[str, int] = {}
        for part in result["parts"]:
            name = re.sub(r"\.\d+\.", ".*.", part["name"]).removeprefix("stack.").removesuffix(".part")
            merged[name] = merged.get(name, 0) + part["parameters"]
        for name, size in merged.items():
            [row] = [row for row in rows if row[:1] == [name]]
            assert f"{size:,}" in row
            assert f"{size / result['parameters']:.1%}" in row
        assert re.search(
            r"^compute +[0-9.]+ kFLOP per token forward, [0-9.]+ kFLOP of it in the output layer$", text, re.M
        )


def test_a_head_of_one_number_is_no_vocabulary_and_its_few_operations_have_a_unit(tmp_path: Path) -> None:
    rows = tiny_tasks.opinions(tmp_path / "rows.jsonl")
    fields = "data.fields={text: text, label: stars}"
    done = minitf(
        "finetune",
        TINY,
        f"data.train={rows}",
        fields,
        "objective=regress",
        *tiny_tasks.SMALL,
        "train.steps=1",
        "-d",
        tmp_path / "run",
    )
    assert done.exit_code == 0, done.stderr
    [work] = [line for line in shown("model", tmp_path / "run").splitlines() if line.startswith("compute")]
    assert re.search(r", [0-9.]+ k?FLOP of it in the output layer$", work)


# tokens


def test_tokens_are_the_bytes_of_the_text_and_no_special_token(runs: dict[str, Path]) -> None:
    result = result_of("tokens", runs["none"], *HOSTILE)
    assert [one["text"] for one in result["texts"]] == HOSTILE
    for one in result["texts"]:
        assert b"".join(bytes.fromhex(token["bytes"]) for token in one["tokens"]) == one["text"].encode()
        assert all(token["bytes"].count(" ") == 0 for token in one["tokens"])  # a token of this tokenizer is a byte
        assert {at for token in one["tokens"] for at in range(*token["span"])} == set(range(len(one["text"])))
    drawn = shown("tokens", runs["none"], *HOSTILE)
    assert "4 tokens, 4 characters, 4 bytes" in drawn
    tokens = result_of("tokens", runs["none"], "aé")["texts"][0]["tokens"]
    rows = figures.table_in(shown("tokens", runs["none"], "aé"), "index")
    assert [row[:2] for row in rows[:3]] == [[str(n), str(token["id"])] for n, token in enumerate(tokens)]
    assert [row[3:] for row in rows[:3]] == [["61", "0-1"], ["c3", "1-2"], ["a9", "1-2"]]
    assert rows[3] == ["3 tokens, 2 characters, 3 bytes: 1.00 bytes per token"]
    assert "⟨1B⟩" in drawn


@pytest.mark.parametrize("tokenizer", ["{kind: char}", "{kind: bpe, vocab_size: 300}"])
def test_tokens_of_other_tokenizers_say_their_bytes_and_what_is_unknown(tokenizer: str, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "train.steps=1", f"tokenizer={tokenizer}")
    text = "the king and 漢 queen"
    for source in (run, run / "tokenizer.json"):
        [one] = result_of("tokens", source, stdin=f"{text}\n")["texts"]
        assert b"".join(bytes.fromhex(token["bytes"]) for token in one["tokens"]) == text.encode()
        assert [token["span"] for token in one["tokens"] if token["unknown"]] == (
            [[13, 14]] if "char" in tokenizer else []
        )
    assert ("1 unknown" in shown("tokens", run, text)) == ("char" in tokenizer)


def test_an_empty_text_has_no_tokens(runs: dict[str, Path]) -> None:
    assert result_of("tokens", runs["none"], "")["texts"] == [{"text": "", "n_tokens": 0, "n_bytes": 0, "tokens": []}]
    assert shown("tokens", runs["none"], "") == "0 tokens, 0 characters, 0 bytes\n"


def test_texts_that_are_not_utf_8_are_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"fine\n\xff\n")
    for command in ("tokens", "softmax"):
        assert "a text is not UTF-8" in refused(2, command, runs["none"], "a\udcff")
        assert "is not UTF-8" in refused(4, command, runs["none"], "-i", broken)
        assert "no text given" in refused(2, command, runs["none"])
    assert "no such run" in refused(5, "tokens", "nothing", "a")


@pytest.mark.parametrize("command", ["attention", "word", "model", "tokens", "positions", "softmax"])
def test_a_run_whose_name_is_not_utf_8_is_refused_in_one_line(command: str) -> None:
    texts = {"word": ("bears", "bears", "bears"), "model": (), "positions": ()}.get(command, ("a",))
    done = minitf("inspect", command, "no\udcffrun", *texts)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2 if command == "tokens" else 5, "", 1)
    assert "no\\udcffrun" in done.stderr


def test_tokens_opens_whatever_encode_opens(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "king", "##s"]))
    for source in (tmp_path, tmp_path / "vocab.txt"):
        [one] = result_of("tokens", source, "the kings")["texts"]
        encoded = json.loads(minitf("tokenizer", "encode", source, "the kings", "--json").stdout)["result"]
        assert [token["id"] for token in one["tokens"]] == encoded["ids"]
        assert [token["span"] for token in one["tokens"]] == [[0, 3], [4, 8], [8, 9]]


# positions


@pytest.mark.parametrize("kind", KINDS)
def test_positions_are_shown_by_where_they_attach(kind: str, runs: dict[str, Path], tmp_path: Path) -> None:
    files = [tmp_path / f"positions.{suffix}" for suffix in ("json", "svg")]
    if kind == "none":
        said = " ".join(shown("positions", runs[kind], "--curve").split())
        assert said.startswith(
            "positions: none; this model has no positional encoding, so there is no curve over distance;"
        )
        assert "`minitf inspect attention`" in said
        asked = minitf("inspect", "positions", runs[kind], "-o", files[0], "-o", files[1])
        assert (asked.exit_code, asked.stdout) == (2, "")
        assert f"--output {files[1]}: none positions have nothing to plot" in asked.stderr
        assert not files[0].exists()
        assert result_of("positions", runs[kind]) == {"positions": "none", "context": 48}
        return
    assert shown("positions", runs[kind], *(part for file in files for part in ("-o", file))) == ""
    text, alone = (shown("positions", runs[kind], *curve) for curve in ((), ("--curve",)))
    assert "over distance 0 to 47" in alone
    assert ("cosine similarity" in text, "cosine" in alone) == (kind == "learned", False)
    result = json.loads(files[0].read_text())
    assert result == result_of("positions", runs[kind])
    assert result["positions"] == kind
    assert ("similarity" in result) == (kind == "learned")
    assert f"{kind} positions" in text
    assert "<svg" in files[1].read_text()
    _, figure = figures.pictured("inspect", "positions", runs[kind], "--curve")
    [axes] = figure.axes
    lines = [line.get_ydata().tolist() for line in axes.lines]
    assert lines == (result["biases"] if kind == "alibi" else [result["kernel"]])
    assert {tuple(line.get_xdata()) for line in axes.lines} == {tuple(range(48))}
    assert (axes.get_xlabel(), figure.get_suptitle().startswith(f"{kind} positions: ")) == ("distance", True)
    if kind == "rotary":
        long = sum(wavelength > 48 for wavelength in result["wavelengths"])
        assert 0 < (result["pairs_that_never_turn_once"] == long) * long < len(result["wavelengths"])
        assert f"{long} wavelengths exceed the context of 48." in " ".join(text.split())
    if kind == "learned":
        rows = [line.split() for line in text.splitlines()]
        named = [int(row[0]) for row in rows if row and row[0].isdigit() and len(row) > 1]
        assert named[-31:] == [*range(0, 60, 2), 60], "every second position in 80 characters, and how many there are"
        vectors = analyze_positions(
            opened := open_trained(runs[kind], device="cpu").model, encoding_of(opened, opened.stacks()[0])
        ).vectors  # type: ignore[arg-type]
        few = _panel("", vectors, 20)  # type: ignore[arg-type]
        assert (list(few.rows), list(few.columns)) == ([str(n) for n in range(0, 60, 3)],) * 2
        assert few.values[7, 4] == pytest.approx(result["similarity"][21][12])
        _, figure = figures.pictured("inspect", "positions", runs[kind])
        [panel] = figures.maps(figure)
        assert panel.values.tolist() == result["similarity"]
        assert panel.rows == {n: str(n) for n in panel.rows}
        assert panel.columns == {n: str(n) for n in panel.columns}
        assert (len(panel.values), panel.colors) == (60, ("RdBu_r", -1, 1))


def test_rows_that_were_never_trained_are_known_from_the_checkpoint_or_else_from_the_context(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    run = runs["learned"]
    result = result_of("positions", run)
    assert (result["n_positions"], result["never_trained"]) == (60, list(range(48, 60)))
    assert result["never_trained_by"] == "the optimizer's state after step 2"
    assert "never trained: 48-59" in shown("positions", run)
    (run / "checkpoints").rename(tmp_path / "elsewhere")
    try:
        result = result_of("positions", run)
    finally:
        (tmp_path / "elsewhere").rename(run / "checkpoints")
    assert (result["never_trained"], result["never_trained_by"]) == (list(range(48, 60)), "the context")


def test_a_damaged_optimizer_file_is_refused_and_not_passed_over(runs: dict[str, Path]) -> None:
    run = runs["learned"]
    file = max((run / "checkpoints").glob("*/optimizer.safetensors"))
    sound = file.read_bytes()
    file.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    try:
        assert "is damaged: optimizer.safetensors: wrong checksum" in refused(5, "positions", run)
    finally:
        file.write_bytes(sound)


# softmax


def test_softmax_has_a_line_for_every_head(runs: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "heads.json"
    assert shown("softmax", runs["rotary"], "Once upon a time", *HOSTILE, "-o", file) == ""
    text = shown("softmax", runs["rotary"], "Once upon a time", *HOSTILE)
    result = json.loads(file.read_text())
    assert [(head["layer"], head["head"]) for head in result["heads"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(0 < head["normalised"] <= 1 for head in result["heads"])
    assert [one["text"] for one in result["texts"]] == ["Once upon a time", *HOSTILE]
    [with_mask] = [n for n, text in enumerate(HOSTILE, 2) if "[MASK]" in text]
    cut = f"text {1 + len(HOSTILE)}: the text has 301 tokens and is truncated to 48, the model's context"
    assert result["notes"] == [f"text {with_mask}: {PLAIN_MASK}", cut]
    names = ("entropy", "normalised", "largest", "saturated", "gradient")
    rows = {tuple(line.split()[:2]): line.split()[3:] for line in text.splitlines() if "decoder.self" in line}
    assert len(rows) == 4
    for head in result["heads"]:
        *numbers, logit_range = rows[f"L{head['layer']}", f"H{head['head']}"]
        assert numbers == [f"{head[name]:.3f}" for name in names]
        assert logit_range.lstrip(">") == f"{head['logit_range']:.1f}"
    assert text.splitlines()[0].split("  ")[-1].strip() == "range"
    lines = result_of("softmax", runs["rotary"], stdin="Once upon a time\n")
    assert lines == result_of("softmax", runs["rotary"], "Once upon a time")


def test_an_empty_text_is_refused_alike_by_every_view_of_a_model_without_a_separator(tmp_path: Path) -> None:
    tail = trained(tmp_path / "tail", "train.steps=1", "data.split=tail 10%")
    said = "a text is empty, and this model has no separator token to start with; give a text with tokens\n"
    assert refused(2, "softmax", tail, "ab", "") == refused(2, "attention", tail, "ab", "") == said


def test_softmax_needs_a_token_that_has_a_choice(runs: dict[str, Path]) -> None:
    assert "give a longer text" in refused(2, "softmax", runs["rotary"], "")
