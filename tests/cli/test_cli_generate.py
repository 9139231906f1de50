"""`minitf generate`: what stands on stdout, what on stderr, and what is refused."""

import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import shell as forking_shell
from commands import ROOT, minitf, results, tiny_model, trained

from mini_tf.cli.app import main
from mini_tf.cli.generate.command import default_lookahead
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.pipelines import one_line
from mini_tf.system.safe_text import safe_text


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "decoder", "train.steps=40")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(
        tmp_path_factory.mktemp("runs") / "encoder", "train.steps=20", tiny_model("encoder"), "model.positions=learned"
    )


@pytest.fixture(scope="module")
def encoder_of_a_tail(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without separators, and with more learned positions than it was trained on."""
    changes = (tiny_model("encoder"), "model.positions={kind: learned, length: 60}", "data.split=tail 10%")
    return trained(tmp_path_factory.mktemp("runs") / "tail", "train.steps=1", *changes)


def test_generate_prints_the_continuation_alone_and_the_seed_decides_it(decoder: Path) -> None:
    command = ("generate", decoder, "Once", "--max-new-tokens", "30")
    first, again, other = (minitf(*command, "--seed", seed) for seed in ("1", "1", "2"))
    assert first.exit_code == 0
    assert first.stdout == again.stdout != other.stdout
    assert first.stderr == ""
    assert not first.stdout.startswith("Once")
    greedy = {
        minitf(*command, *way).stdout
        for way in (("--greedy",), ("--temperature", "0"), ("--greedy", "--seed", "7"), ("--top-k", "1"))
    }
    assert len(greedy) == 1
    plain = ("--temperature", "1", "--top-k", "999", "--seed", "3")
    assert minitf(*command, *plain).stdout == minitf(*command, *plain, "--top-p", "1", "--min-p", "0").stdout
    assert minitf(*command, *plain, "--top-p", "0.5").stdout != minitf(*command, *plain).stdout


def test_two_prompts_are_two_texts_and_a_pipe_is_not_touched(decoder: Path) -> None:
    alone = [
        minitf("generate", decoder, prompt, "--greedy", "--max-new-tokens", "12").stdout
        for prompt in ("Once", "The old")
    ]
    assert minitf(
        "generate", decoder, "Once", "The old", "--greedy", "--max-new-tokens", "12", stdin="never read"
    ).stdout == "".join(alone)


def test_words_without_quotes_are_said_to_be_prompts_of_their_own(decoder: Path) -> None:
    for prompts, said in ((("Once", "upon"), True), (("Once",), False), (("Once", "a day"), False)):
        done = minitf("generate", decoder, *prompts, "--max-new-tokens", "1")
        line = "2 texts of one word each; a text of several words stands in quotes: 'Once upon'\n"
        assert (line in done.stderr) == said


def test_several_samples_are_parted_by_a_line(decoder: Path) -> None:
    options = ("--num-samples", "2", "--max-new-tokens", "8", "--temperature", "2", "--stop", r"\n")
    command = ("generate", decoder, *options)
    [first, second] = results(minitf(*command, "Once", "A", "--json").stdout)
    assert len({*first["texts"], *second["texts"]}) == 4  # type: ignore[misc]
    texts = [safe_text(text) for text in (*first["texts"], *second["texts"])]  # type: ignore[misc]
    assert minitf(*command, "Once", "A").stdout == "\n---\n".join(texts) + "\n"
    piped = minitf(*command, stdin="Once\nA\n").stdout
    assert piped == "".join(safe_text(one_line(text)) + "\n" for text in (*first["texts"], *second["texts"]))  # type: ignore[misc]


def test_a_line_of_a_pipe_gives_a_line_and_json_an_envelope_a_line(decoder: Path) -> None:
    prompts = "Once upon\n\nOne day the \\ cat\r\n</s>"
    options = ("--temperature", "3", "--top-k", "999", "--num-samples", "9", "--max-new-tokens", "60")
    command = ("generate", decoder, *options)
    plain, enveloped = minitf(*command, stdin=prompts), minitf(*command, "--json", stdin=prompts)
    envelopes = [json.loads(line) for line in enveloped.stdout.splitlines()]
    assert [one["result"]["prompt"] for one in envelopes] == ["Once upon", "", "One day the \\ cat", "</s>"]
    assert all(one["ok"] and one["command"] == "generate" and one["run"] == str(decoder) for one in envelopes)
    assert plain.stdout.count("\n") == 4 * 9
    texts = [text for one in envelopes for text in one["result"]["texts"]]
    assert any("\n" in text for text in texts)
    assert any("\\" in text for text in texts)
    assert plain.stdout == "".join(safe_text(text.replace("\\", "\\\\").replace("\n", "\\n")) + "\n" for text in texts)


def test_lines_are_answered_in_order_whatever_is_written_together(decoder: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"{'Once upon a time ' * (i % 4)}{i}\n" for i in range(11)))
    command = ("generate", decoder, "--max-new-tokens", "15", "--num-samples", "2")
    one_by_one = minitf(*command, stdin=prompts.read_text())
    assert one_by_one.stdout.count("\n") == 22
    for batch in ((), ("--batch-size", "3"), ("--batch-size", "64")):
        assert minitf(*command, *batch, "-i", prompts).stdout == one_by_one.stdout


def test_a_minus_as_file_is_stdin_and_a_byte_order_mark_before_it_is_no_text(decoder: Path) -> None:
    done = minitf("generate", decoder, "-i", "-", "--json", "--max-new-tokens", "1", stdin="\ufeffOnce\n\ufeff\n")
    assert [one["prompt"] for one in results(done.stdout)] == ["Once", "\ufeff"]


def test_a_pipe_is_answered_line_by_line(
    decoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second line may come after the answer to the first: somebody talks with the model."""

    def said() -> Iterator[bytes]:
        yield b"Once\n"
        assert capsys.readouterr().out.count("\n") == 1
        yield b"The\n"

    class Talk(io.BytesIO):
        lines = said()

        def readline(self, size: int | None = -1) -> bytes:
            return next(self.lines, b"")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Talk()))
    with pytest.raises(SystemExit) as leaving:
        main(["generate", str(decoder), "--max-new-tokens", "3"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_of_a_file_several_lines_are_answered_together(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("a\n")
    os.mkfifo(tmp_path / "pipe")
    assert default_lookahead(tmp_path / "prompts.txt", 8) == 8
    assert default_lookahead(tmp_path / "pipe", 8) == default_lookahead(tmp_path / "none", 8) == 1


def test_what_comes_before_a_broken_line_is_answered(decoder: Path, encoder: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_bytes(b"Once\nThe\n\xff\nA\n")
    done = minitf("generate", decoder, "-i", prompts, "--max-new-tokens", "3")
    assert (done.exit_code, done.stdout.count("\n")) == (4, 2)
    assert "prompts.txt:3: line 3 is not UTF-8" in done.stderr
    prompts.write_bytes(b"O[MASK]\n" * 10 + b"no mask\nO[MASK]\n")
    done = minitf("generate", encoder, "-i", prompts)
    assert (done.exit_code, done.stdout.count("\n")) == (4, 10)
    told = "the prompt has no [MASK], and an encoder predicts tokens only there; example: The [MASK] is red."
    assert done.stderr == f"{prompts}:11: {told}\n"


def test_log_probabilities_come_with_each_token(decoder: Path) -> None:
    command = ("generate", decoder, "Once", "--max-new-tokens", "6", "--top-k", "5")
    [asked] = results(minitf(*command, "--logprobs", "2", "--json").stdout)
    [tokens] = asked["tokens"]  # type: ignore[misc]
    [text] = asked["texts"]  # type: ignore[misc]
    assert text
    assert (
        text
        == "".join(token["token"] for token in tokens)
        == Tokenizer.load(decoder).decode([token["id"] for token in tokens])
    )
    assert all(len(token["top"]) == 2 and token["logprob"] <= token["top"][0]["logprob"] <= 0 for token in tokens)
    assert "tokens" not in results(minitf(*command, "--json").stdout)[0]
    lines = minitf(*command, "--logprobs", "1").stdout.splitlines()
    assert lines[-6:] == [
        f"{token['logprob']:9.4f} {json.dumps(token['token']):<16}  {top['logprob']:.4f} {json.dumps(top['token'])}"
        for token in tokens
        for top in token["top"][:1]
    ]
    refused = minitf("generate", decoder, "--logprobs", "1", stdin="Once\n")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "--json prints them" in refused.stderr


def test_a_prompt_longer_than_the_context_is_cut_with_a_note(decoder: Path) -> None:
    long = "Once upon a time " * 4  # 68 of 48 bytes
    done = minitf("generate", decoder, long, "--max-new-tokens", "3")
    cut, grown = done.stderr.splitlines()
    assert cut == "the prompt has 68 tokens; the first 20 are truncated"
    assert (
        grown
        == "a text grew longer than the context of 48 tokens; from there on the model saw only the last half of it"
    )
    assert done.stdout == minitf("generate", decoder, long[20:], "--max-new-tokens", "3").stdout
    assert minitf("generate", decoder, stdin=f"a\n{long}\n").stderr.startswith("stdin:2: the prompt has 68 tokens")
    assert minitf("generate", decoder, long, "--context", "80", "--max-new-tokens", "3").stderr == ""
    assert minitf("generate", decoder, long, "-q", "--max-new-tokens", "3") == (0, done.stdout, "")


def test_positions_that_end_are_read_no_farther(encoder: Path, encoder_of_a_tail: Path) -> None:
    for run, end in ((encoder, 48), (encoder_of_a_tail, 60)):
        assert minitf("generate", run, "O[MASK]", "--context", str(end)).exit_code == 0
        refused = minitf("generate", run, "O[MASK]", "--context", str(end + 1))
        assert refused.exit_code == 2
        assert refused.stderr.startswith(
            f"--context {end + 1}: the model's learned positions end at {end}; rotary, alibi and sinusoidal "
        )


def test_an_encoder_reads_the_context_that_was_asked_for_and_a_separator_only_if_it_was_trained_with_it(
    encoder: Path, encoder_of_a_tail: Path
) -> None:
    for run, letters in ((encoder, 3), (encoder_of_a_tail, 4)):
        assert minitf("generate", run, "[MASK]" + letters * "a", "--context", "5").exit_code == 0
        refused = minitf("generate", run, "[MASK]a" + letters * "a", "--context", "5")
        assert (refused.exit_code, refused.stderr) == (
            2,
            "the prompt has 6 tokens, more than the context of 5; shorten it\n",
        )


def test_the_checkpoint_and_the_device_that_were_asked_for_are_taken(decoder: Path) -> None:
    for asked, code, told in ((("--step", "39"), 5, "39"), (("--device", "cuda:77"), 9, "cuda:77")):
        refused = minitf("generate", decoder, "Once", *asked)
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (code, "", 1)
        assert told in refused.stderr


@pytest.mark.parametrize("stop", [r"\n", r"\t", r"a\\b", "e", r"\\n"])
def test_escapes_in_stop_strings_are_read(decoder: Path, stop: str) -> None:
    command = ("generate", decoder, "Once", "--temperature", "3", "--top-k", "999", "--max-new-tokens", "150", "--json")
    [free], [ended] = (
        results(minitf(*command, *more).stdout) for more in ((), ("--stop", stop, "--stop", "never written"))
    )
    literal = {r"\n": "\n", r"\t": "\t", r"a\\b": "a\\b", "e": "e", r"\\n": "\\n"}[stop]
    assert ended["texts"] == [free["texts"][0].partition(literal)[0]]  # type: ignore[index]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--top-p", "0"), "--top-p: must be greater than 0, got 0.0"),
        (("--top-p", "1.5"), "--top-p: must be at most 1, got 1.5"),
        (("--min-p", "-1"), "--min-p: must be at least 0, got -1.0"),
        (("--top-k", "-1"), "--top-k: must be at least 0, got -1"),
        (("--temperature", "nan"), "--temperature: must be a finite number, got nan"),
        (("--temperature", "-1"), "--temperature: must be at least 0, got -1.0"),
        (("--repetition-penalty", "0"), "--repetition-penalty: must be at least 0.01, got 0.0"),
        (("--repetition-penalty", "1e-320"), "--repetition-penalty: must be at least 0.01, got 1e-320"),
        (("--max-new-tokens", "0"), "--max-new-tokens: must be at least 1, got 0"),
        (("--greedy", "--temperature", "1"), "--greedy is --temperature 0; --temperature 1 was given too"),
        (("--greedy", "--top-p", "0.9"), "--greedy is --temperature 0; --top-p 0.9 was given too"),
        (
            ("--greedy", "--num-samples", "2"),
            "--num-samples 2: greedy decoding gives identical samples; give a --temperature above 0",
        ),
        (
            ("--top-k", "1", "--num-samples", "2"),
            "--num-samples 2: greedy decoding gives identical samples; give a --temperature above 0",
        ),
        (("--stop", ""), "--stop is empty"),
        (("--stop", r"\d"), r"--stop \d: unknown escape \d; \n is a newline, \t a tab, \\ a backslash"),
        (("--stop", "a\\"), "--stop a\\: unknown escape \\; \\n is a newline, \\t a tab, \\\\ a backslash"),
        (("--stop", "\udcff"), "a stop string is not UTF-8: \\udcff"),
        (("--stop", "a") * 65, "--stop: 65 strings given, at most 64 allowed"),
        (
            ("--stream", "--num-samples", "2"),
            "--stream prints one text while it is generated; --num-samples was given too; remove one of them",
        ),
        (
            ("--stream", "--batch-size", "8"),
            "--stream prints one text while it is generated; --batch-size was given too; remove one of them",
        ),
        (("-i", "prompts.txt"), "both prompts and --input prompts.txt were given; give one of them"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_line(decoder: Path, options: tuple[str, ...], told: str) -> None:
    refused = minitf("generate", decoder, "Once", *options)
    assert (refused.exit_code, refused.stdout, refused.stderr) == (2, "", f"{told}\n")


def test_text_streams_as_it_is_written(decoder: Path) -> None:
    command = ("generate", decoder, "Once", "The", "--max-new-tokens", "30", "--temperature", "2")
    assert minitf(*command, "--stream").stdout == minitf(*command).stdout == minitf(*command, "--no-stream").stdout
    lines = ("generate", decoder, "--max-new-tokens", "30", "--temperature", "2")
    assert minitf(*lines, "--stream", stdin="Once\nThe\n").stdout == minitf(*lines, stdin="Once\nThe\n").stdout
    refused = minitf(*command, "--stream", "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["ok"]) == (2, False)


def test_the_generate_section_of_the_recipe_is_what_options_change(tmp_path: Path) -> None:
    section = (
        "generate={temperature: 2, top_p: 60%, min_p: 0.1, repetition_penalty: 1.2, stop: [e], max_new_tokens: 50}"
    )
    run = trained(tmp_path / "run", "train.steps=3", "log.samples=2", section)
    [sample] = (run / "samples").glob("*3.txt")
    assert "e" not in sample.read_text()
    given = "--temperature 2 --top-p 0.6 --min-p 0.1 --repetition-penalty 1.2 --stop e --max-new-tokens 50"
    assert minitf("generate", run, "A", "B").stdout == minitf("generate", run, "A", "B", *given.split()).stdout
    assert (
        minitf("generate", run, "A", "--stop", "zzz", "--temperature", "5").stdout
        != minitf("generate", run, "A").stdout
    )


def test_an_encoder_fills_its_masks(encoder: Path) -> None:
    done = minitf("generate", encoder, "On[MASK]e upon a [MASK]ime", "--json", "--top-k", "3")
    [result] = results(done.stdout)
    assert result["prompt"] == "On[MASK]e upon a [MASK]ime"
    first, second = result["candidates"]  # type: ignore[misc]
    assert [set(candidate) for candidate in first + second] == [{"token", "p"}] * 6
    table = minitf("generate", encoder, "On[MASK]e upon a [MASK]ime", "--top-k", "3").stdout
    expected = [
        line
        for number, ranked in enumerate((first, second), 1)
        for line in (
            f"[MASK] {number} of 2",
            *(f"{candidate['p']:.4f} {json.dumps(candidate['token'])}" for candidate in ranked),
        )
    ]
    assert table == "\n".join(expected) + "\n"
    assert minitf("generate", encoder, "On[MASK]e").stdout.count("\n") == 5
    lines = minitf("generate", encoder, stdin="On[MASK]e upon a [MASK]ime\n\\ [MASK]\n").stdout.splitlines()
    assert lines[0] == f"On{first[0]['token']}e upon a {second[0]['token']}ime"
    assert lines[1].startswith("\\\\ ")
    many = [f"{letter}[MASK]" for letter in "abcdefghij"]
    assert [one["prompt"] for one in results(minitf("generate", encoder, *many, "--json").stdout)] == many


def test_what_an_encoder_cannot_fill_is_refused_by_name(encoder: Path) -> None:
    for prompt, told in (
        ("Once", "the prompt has no [MASK]"),
        ("[MASK]" + "a" * 48, "the prompt has 50 tokens, more than the context of 48"),
    ):
        argument, line = (
            minitf("generate", encoder, "[MASK]", prompt),
            minitf("generate", encoder, stdin=f"[MASK]\n{prompt}\n"),
        )
        assert (argument.exit_code, argument.stdout) == (2, "")
        assert argument.stderr.splitlines()[-1].startswith(told)
        assert (line.exit_code, line.stdout.count("\n")) == (4, 1)
        assert line.stderr.startswith(f"stdin:2: {told}")
    unfit = "--temperature=1 --greedy --num-samples=2 --stop=a --logprobs=1 --max-new-tokens=3 --no-stream --seed=1"
    for option in unfit.split():
        refused = minitf("generate", encoder, "[MASK]", option)
        assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
        assert refused.stderr.startswith(
            f"{option.partition('=')[0].replace('--no-', '--')}: encoder is an encoder, which fills [MASK]"
        )
    assert minitf("generate", encoder, "[MASK]", "--top-k", "-1").exit_code == 2


def test_text_that_looks_like_a_special_token_stays_text(decoder: Path) -> None:
    [result] = results(minitf("generate", decoder, "</s><pad>[MASK]", "--json", "--max-new-tokens", "5").stdout)
    assert result["prompt"] == "</s><pad>[MASK]"
    assert minitf("generate", decoder, "</s>" * 13, "--max-new-tokens", "1").stderr.startswith(
        "the prompt has 52 tokens"
    )


def test_texts_and_prompts_that_are_no_utf8_are_refused_in_one_line(decoder: Path) -> None:
    argument = minitf("generate", decoder, "a\udcff")
    assert (argument.exit_code, argument.stderr) == (2, "a prompt is not UTF-8: a\\udcff\n")


def test_a_reader_that_leaves_ends_it_with_141_and_no_word(decoder: Path) -> None:
    """`| head -1` of many answers: each is printed as soon as it is there, so writing to nobody is noticed."""
    line = f'minitf generate "{decoder}" -i tests/data/tiny.txt -q --max-new-tokens 5 --batch-size 1 | head -1'
    done = forking_shell.run(line, ROOT)
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (128 + signal.SIGPIPE, 1, "")
