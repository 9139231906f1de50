"""`minitf generate` with an encoder-decoder: a line in is a line out, in their order, whatever is translated
together.
"""

import json
import os
import sys
from pathlib import Path

import pytest
from commands import minitf, refused, results, tiny_model, trained
from test_cli_prompt_loop import Terminal

from mini_tf.cli.generate.command import default_lookahead, prompt_batches
from mini_tf.generation.translation import Translator
from mini_tf.pipelines import one_line
from mini_tf.system.safe_text import safe_text
from mini_tf.trained.opening import open_trained

MODEL = "model={kind: encoder_decoder, d_model: 16, n_layers: 1, n_heads: 2, init_std: 0.6}"
"""Its weights are as good as random, so that it writes all kinds of bytes."""
LINES = [
    "one two",
    "",
    "a much longer line, still read as a whole",
    "one",
    " \t",
    "three \\ four",
    "one two",
    "x" * 40,
    "é漢🙂",
]


def pairs_of(folder: Path) -> str:
    """The override that makes two small files the data."""
    (folder / "source.txt").write_text("".join(f"line {n}\n" for n in range(20)))
    (folder / "target.txt").write_text("".join(f"{n} enil\n" for n in range(20)))
    return f"data={{train: {{source: '{folder / 'source.txt'}', target: '{folder / 'target.txt'}'}}, split: 10%}}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    return trained(folder / "translator", "train.steps=1", MODEL, pairs_of(folder), "generate.max_new_tokens=12")


@pytest.fixture(scope="module")
def run_that_ends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With learned positions."""
    folder = tmp_path_factory.mktemp("runs")
    learned = MODEL.replace("}", ", positions: learned}")
    return trained(
        folder / "translator",
        "train.steps=1",
        "train.context=32",
        learned,
        pairs_of(folder),
        "generate.max_new_tokens=90",
    )


def shown(text: str) -> str:
    return safe_text(one_line(text)) + "\n"


def test_a_line_in_is_a_line_out_in_order_whatever_is_translated_together(run: Path, tmp_path: Path) -> None:
    model = open_trained(run)
    translator = Translator(model.model, model.tokenizer, model.source_tokenizer, model.recipe.generate)
    expected = [best.text for line in LINES for [best] in translator.translate([line])]
    assert [not text for text in expected] == [not line.strip() for line in LINES]
    assert len(set(expected)) > 5
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{line}\n" for line in LINES))
    product = "".join(map(shown, expected))
    assert minitf("generate", run, stdin=file.read_text()) == (0, product, "")
    for size in ("1", "4"):
        assert minitf("generate", run, "--batch-size", size, "-i", file) == (0, product, "")
    as_arguments = minitf("generate", run, *(line for line in LINES if line))
    assert as_arguments.stdout == "".join(
        safe_text(text) + "\n" for text, line in zip(expected, LINES, strict=True) if line
    )


def test_json_is_an_envelope_an_input_with_scores_and_log_probabilities(run: Path) -> None:
    done = minitf("generate", run, "--json", stdin="one two\n\nthree\n")
    envelopes = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(one["ok"] and one["command"] == "generate" and one["run"] == str(run) for one in envelopes)
    assert [one["result"]["prompt"] for one in envelopes] == ["one two", "", "three"]
    assert [set(one["result"]) for one in envelopes] == [{"prompt", "texts", "scores", "logprobs"}] * 3
    assert envelopes[1]["result"] == {"prompt": "", "texts": [""], "scores": [0.0], "logprobs": [0.0]}
    assert envelopes[0]["result"]["scores"][0] > envelopes[0]["result"]["logprobs"][0]  # divided by more than 1
    [plain] = results(minitf("generate", run, "one two", "--json", "--length-penalty", "0").stdout)
    assert plain["scores"] == plain["logprobs"]


def test_the_n_best_are_lines_of_score_and_text(run: Path) -> None:
    command = ("generate", run, "--n-best", "3", "--num-beams", "5")
    lines = minitf(*command, stdin="one two\n\nthree\n")
    asked = results(minitf(*command, "--json", stdin="one two\n\nthree\n").stdout)
    assert lines.stdout == "".join(
        f"{score:.4f}\t{shown(text)}" for one in asked for score, text in zip(one["scores"], one["texts"], strict=True)
    )
    assert lines.stdout.count("\n") == 9
    for one in asked:
        assert one["scores"] == sorted(one["scores"], reverse=True)
    assert minitf(*command, "one two").stdout == "".join(lines.stdout.splitlines(keepends=True)[:3])
    [best] = results(minitf("generate", run, "one two", "--num-beams", "5", "--json").stdout)
    assert (best["texts"], best["scores"]) == (asked[0]["texts"][:1], asked[0]["scores"][:1])
    assert minitf("generate", run, "one two", "--n-best", "1").stdout.count("\t") == 1


def test_options_stand_for_the_keys_of_the_recipe(run: Path, tmp_path: Path) -> None:
    keys = {"num_beams": 2, "length_penalty": 2.0, "min_new_tokens": 5, "no_repeat_ngram": 1, "max_new_tokens": 9}
    options = [part for key, value in keys.items() for part in ("--" + key.replace("_", "-"), str(value))]
    command = ("generate", "one two", "three", "four", "--json")
    given = results(minitf(command[0], run, *command[1:], *options).stdout)
    folder = tmp_path / "run"
    trained(
        folder, "train.steps=1", MODEL, pairs_of(tmp_path), *(f"generate.{key}={value}" for key, value in keys.items())
    )
    assert results(minitf(command[0], folder, *command[1:]).stdout) == given
    assert given != results(minitf(command[0], run, *command[1:]).stdout)


def test_greedy_is_one_beam(run: Path) -> None:
    command = ("generate", run, "--json", *filter(None, LINES))
    assert minitf(*command, "--greedy").stdout == minitf(*command, "--num-beams", "1").stdout != minitf(*command).stdout
    assert minitf(*command, "--greedy", "--num-beams", "1").exit_code == 0


def test_a_source_longer_than_the_context_is_cut_with_a_note(run: Path) -> None:
    long = "abcdefgh" * 8  # 64 bytes, of 48 with the separator
    done = minitf("generate", run, long)
    assert done.stderr == "the source has 64 tokens; the last 17 are truncated\n"
    assert done.stdout == minitf("generate", run, long[:47]).stdout
    assert minitf("generate", run, stdin=f"a\n{long}\n").stderr.startswith("stdin:2: the source has 64 tokens")
    assert minitf("generate", run, long, "--context", "65").stderr == ""
    assert minitf("generate", run, long, "-q") == (0, done.stdout, "")


def test_positions_that_end_are_written_no_farther(run_that_ends: Path) -> None:
    done = minitf("generate", run_that_ends, "abcdefgh" * 5, "--min-new-tokens", "80", "--json")
    assert done.exit_code == 0
    assert done.stderr == "the source has 40 tokens; the last 9 are truncated\n"
    told = minitf("generate", run_that_ends, "a", "--context", "33")
    refused(told, "--context 33: the model's learned positions end at 32; rotary, alibi and sinusoidal ", exit_code=2)


def test_the_context_of_a_source_ends_with_the_positions_of_the_encoder(tmp_path: Path) -> None:
    """Not with those of the decoder, which are fewer."""
    learned = "{{kind: learned, length: {}}}"
    model = MODEL.replace("}", f", positions: {learned.format(40)}, encoder: {{positions: {learned.format(60)}}}}}")
    run = trained(
        tmp_path / "run", "train.steps=1", "train.context=32", model, pairs_of(tmp_path), "generate.max_new_tokens=4"
    )
    assert minitf("generate", run, "abcdefgh" * 6, "--context", "60").stderr == ""
    refused(
        minitf("generate", run, "a", "--context", "61"),
        "--context 61: the model's learned positions end at 60; ",
        exit_code=2,
    )


def told_of_beams(name: str) -> str:
    return f"beam search needs an encoder-decoder, and {name} is of the kind {name}; leave it out"


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_beams_are_refused_where_nothing_is_translated(kind: str, tmp_path: Path) -> None:
    other = trained(tmp_path / kind, "train.steps=1", tiny_model(kind))
    for option in ("--num-beams=4", "--length-penalty=1", "--min-new-tokens=1", "--no-repeat-ngram=3", "--n-best=1"):
        done = minitf("generate", other, "On[MASK]e", option)
        assert (done.exit_code, done.stdout, done.stderr) == (
            2,
            "",
            f"{option.partition('=')[0]}: {told_of_beams(kind)}\n",
        )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        *(
            ((option,),
                f"{option.partition('=')[0].replace('--no-', '--')}: "
                "translator is an encoder-decoder, which uses beam search ")
            for option in (
                "--temperature=1", "--top-k=5", "--top-p=0.5", "--min-p=0.1", "--repetition-penalty=2",
                "--num-samples=2", "--stop=a",
                "--seed=1", "--logprobs=1", "--stream", "--no-stream",
            )
        ),
        (("--num-beams", "0"), "--num-beams: must be at least 1, got 0"),
        (("--num-beams", "1025"), "--num-beams: must be at most 1024, got 1025"),
        (("--length-penalty", "11"), "--length-penalty: must be at most 10, got 11.0"),
        (("--length-penalty", "nan"), "--length-penalty: must be a finite number, got nan"),
        (("--min-new-tokens", "-1"), "--min-new-tokens: must be at least 0, got -1"),
        (("--no-repeat-ngram", "-1"), "--no-repeat-ngram: must be at least 0, got -1"),
        (("--n-best", "5"), "--n-best 5: must be at most the beam size, 4; increase --num-beams"),
        (("--n-best", "2", "--greedy"), "--n-best 2: must be at most the beam size, 1; increase --num-beams"),
        (("--greedy", "--num-beams", "4"), "--greedy is --num-beams 1; --num-beams 4 was given too"),
        (("--min-new-tokens", "13"), "--min-new-tokens 13 is more than --max-new-tokens 12"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused_in_one_line(run: Path, options: tuple[str, ...], told: str) -> None:
    done = minitf("generate", run, "one", *options)
    refused(done, exit_code=2)
    assert done.stderr.startswith(told)
    assert done.stderr.count("\n") == 1


def test_n_best_is_one_at_least(run: Path) -> None:
    assert minitf("generate", run, "one", "--n-best", "0").exit_code == 2


def test_of_ten_thousand_lines_no_more_are_held_than_are_translated_together(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{n}\n" for n in range(10_000)))
    with file.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert default_lookahead(None, 512) == default_lookahead(file, 512) == 512
        held: list[list[str]] = []
        held.extend([*texts, *positions[:1]] for texts, positions in prompt_batches(None, 512))
    assert [len(texts) - 1 for texts in held] == [512] * 19 + [272]
    assert held[1] == [*map(str, range(512, 1024)), "stdin:513"]
    file.write_text("\n" * 10_000)
    assert minitf("generate", run, "-i", file) == (0, "\n" * 10_000, "")


def test_the_prompt_loop_translates(run: Path) -> None:
    options = ("--max-new-tokens", "3", "--n-best", "2")
    expected = minitf("generate", run, "one two", *options).stdout
    terminal = Terminal(run, *options)
    try:
        terminal.wait_for("> ")
        terminal.type("one two\n")
        terminal.wait_for(f"> one two\n{expected}> ")
        terminal.type("\x04")
        assert terminal.leave() == 0
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.here)
