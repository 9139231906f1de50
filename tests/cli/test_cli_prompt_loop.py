"""The prompt loop, in a real pseudo-terminal: it asks, streams its answer, can be interrupted, and leaves politely."""

import fcntl
import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, minitf, refused, trained
from processes import Command

from mini_tf.cli.app import main

PATIENCE = 600.0
"""Seconds until something that should be printed counts as never printed."""


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "decoder", "train.steps=20")


class Terminal:
    """`minitf generate` with somebody at its terminal; stdout may go elsewhere, the locale may be another."""

    def __init__(self, *arguments: str | Path, locale: str | None = None, **streams: Any) -> None:
        self.here, there = pty.openpty()
        line = ["generate", *map(str, arguments)]
        environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT), **({"LC_ALL": locale} if locale else {})}
        standard = {"stdin": there, "stdout": there, "stderr": there, **streams}
        # The terminal becomes the controlling one, so that Ctrl-C reaches the process as a signal.
        take_it = partial(fcntl.ioctl, there, termios.TIOCSCTTY, 0)
        takes_it = (
            f"import fcntl, os, sys, termios; fcntl.ioctl({there}, termios.TIOCSCTTY, 0); os.execv(sys.argv[1],"
            " sys.argv[1:])"
        )
        self.process: Any
        if locale is None:
            self.process = Command(line, environment, **standard, prepare=take_it)
        else:  # which Python looks at when it starts
            wrapped = [sys.executable, "-c", takes_it, sys.executable, "-m", "mini_tf", *line]
            self.process = subprocess.Popen(
                wrapped, env=environment, start_new_session=True, pass_fds=(there,), **standard
            )
        os.close(there)
        self.seen = ""

    def type(self, text: str | bytes) -> None:
        os.write(self.here, text if isinstance(text, bytes) else text.encode())

    def wait_for(self, text: str, since: int = 0) -> str:
        """What stands on the screen, once it has `text` after its first `since` characters."""
        while text not in self.seen[since:]:
            assert self.read(), f"{text!r} never came: {self.seen!r}"
        return self.seen

    def read(self) -> bool:
        """Take over what is printed next; False at the end."""
        assert select.select([self.here], [], [], PATIENCE)[0], f"nothing came any more: {self.seen!r}"
        try:
            part = os.read(self.here, 4096).decode(errors="replace")
        except OSError:  # how Linux tells that nobody is left on the other side
            return False
        self.seen += re.sub("\x1b\\[[0-9;?]*[a-zA-Z]|\r", "", part)
        return part != ""

    def leave(self) -> int:
        """The exit code, once everything that was printed has been read."""
        while self.read():
            pass
        return int(self.process.wait())


@pytest.fixture
def at_terminal() -> Iterator[Any]:
    opened: list[Terminal] = []

    def open_one(*arguments: str | Path, **how: Any) -> Terminal:
        opened.append(Terminal(*arguments, **how))
        return opened[-1]

    yield open_one
    for terminal in opened:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait()
        os.close(terminal.here)


def test_it_asks_answers_and_leaves_at_ctrl_d(decoder: Path, at_terminal: Any) -> None:
    """An empty line is asked again; what is no text is told, and the loop goes on."""
    options = ("--greedy", "--max-new-tokens", "20", "--stop", r"\n")
    answers = [minitf("generate", decoder, prompt, *options).stdout for prompt in ("Once", "The")]
    terminal = at_terminal(decoder, *options)
    terminal.wait_for("> ")
    terminal.type("Once\n")
    terminal.wait_for(f"> Once\n{answers[0]}> ")
    terminal.type("\n")
    terminal.wait_for(f"{answers[0]}> \n> ")
    terminal.type(b"\xff\n")
    told = terminal.wait_for("the prompt is not UTF-8")
    terminal.wait_for("\n> ", since=told.index("not UTF-8"))
    terminal.type("The\n")
    terminal.wait_for(f"> The\n{answers[1]}> ")
    terminal.type("\x04")
    assert terminal.leave() == 0
    assert terminal.seen.endswith("> \n")


def test_ctrl_c_ends_an_answer_and_at_the_prompt_the_loop(decoder: Path, at_terminal: Any) -> None:
    terminal = at_terminal(decoder, "--max-new-tokens", "1000000", "--stop", "never written")
    terminal.wait_for("> ")
    terminal.type("Once\n")
    terminal.wait_for("> Once\n")
    asked = len(terminal.seen)
    while len(terminal.seen) < asked + 10:  # the answer has begun to stream, and would go on for hours
        terminal.read()
    terminal.type("\x03")
    terminal.wait_for("\n> ", asked)
    assert terminal.process.poll() is None
    # Python's input() may miss a signal that comes while it is just beginning to wait, so it is sent until it is
    # noticed.
    for _ in range(100):
        terminal.type("\x03")
        if select.select([terminal.here], [], [], 0.2)[0]:
            break
    assert terminal.leave() == 130
    assert terminal.seen.endswith("interrupted\n")
    assert "Traceback" not in terminal.seen


def test_with_stdout_elsewhere_the_prompt_still_stands_on_the_terminal(
    decoder: Path, at_terminal: Any, tmp_path: Path
) -> None:
    options = ("--greedy", "--max-new-tokens", "20")
    with open(tmp_path / "out.txt", "wb") as out:
        terminal = at_terminal(decoder, *options, stdout=out)
        terminal.wait_for("> ")
        terminal.type("Once\n")
        terminal.wait_for("> ", since=terminal.wait_for("Once").index("Once"))
        terminal.type("\x04")
        assert terminal.leave() == 0
    assert (tmp_path / "out.txt").read_text() == minitf("generate", decoder, "Once", *options).stdout


def test_in_the_c_locale_text_comes_whole_and_with_json_ctrl_c_gives_an_envelope(
    decoder: Path, at_terminal: Any
) -> None:
    """Nothing streams with --json; that a prompt is cut, between characters, is told once the model has it."""
    endless = ("--json", "--context", "20", "--max-new-tokens", "1000000", "--stop", "never written")
    terminal = at_terminal(decoder, *endless, locale="C")
    terminal.wait_for("> ")
    terminal.type("é漢🙂" * 3 + "\n")
    terminal.wait_for("the prompt has 27 tokens; the first 9 are truncated")
    terminal.type("\x03")
    terminal.wait_for("\n> ", terminal.wait_for('{"ok"').index('{"ok"'))
    terminal.type("\x04")
    assert terminal.leave() == 0
    [envelope] = [json.loads(line) for line in terminal.seen.splitlines() if line.startswith("{")]
    assert (envelope["ok"], envelope["exit_code"], envelope["error"]["message"]) == (False, 130, "interrupted")


class Typist(io.StringIO):
    """Somebody at a terminal, as far as a program can tell."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seed", "different"), [((), 2), (("--seed", "0"), 1)])
def test_a_prompt_that_is_asked_again_is_answered_anew_unless_a_seed_is_given(
    decoder: Path,
    seed: tuple[str, ...],
    different: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", Typist("Once\nOnce\n"))
    options = ("--temperature", "2", "--max-new-tokens", "20", "--json", *seed)
    with pytest.raises(SystemExit) as leaving:
        main(["generate", str(decoder), *options])
    assert leaving.value.code == 0
    answers = [json.loads(line)["result"] for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == 2
    assert len({text for answer in answers for text in answer["texts"]}) == different
    assert answers[0] == json.loads(minitf("generate", decoder, "Once", *options).stdout)["result"]


def in_the_loop(*typed: str, command: str = "generate") -> Any:
    """What the command prints while these lines are typed, until the end of stdin: objects and lines."""

    def ask(run: Path, *options: str) -> tuple[list[dict[str, Any]], list[str]]:
        with pytest.MonkeyPatch.context() as patch:
            streams = [Typist("".join(f"{line}\n" for line in typed)), io.StringIO(), io.StringIO()]
            for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
                patch.setattr(sys, name, stream)
            with pytest.raises(SystemExit) as leaving:
                main([command, str(run), "--json", *options])
        assert leaving.value.code == 0
        said = streams[2].getvalue().replace("> ", "").splitlines()
        return [json.loads(line) for line in streams[1].getvalue().splitlines()], said

    return ask


def asked_once(run: Path, prompt: str, *options: str) -> Any:
    return json.loads(minitf("generate", run, prompt, "--json", *options).stdout)["result"]


def test_a_banner_says_which_model_answers_and_how_to_leave(decoder: Path) -> None:
    _, said = in_the_loop("/help")(decoder)
    assert said[0] == "decoder, step 20: decoder, next_token; continues a prompt"
    assert said[1] == "/help lists commands, Ctrl-C stops the output, /quit ends"
    assert [
        word
        for word in ("/set", "/retry", "/reset", "/quit", '"""', "//TEXT")
        if not any(line.startswith(word) for line in said[2:])
    ] == []
    _, quiet = in_the_loop("/help")(decoder, "-q")
    assert quiet == said[2:-1]


def test_set_changes_an_option_as_the_command_line_would(decoder: Path) -> None:
    typed = [
        *("/set temperature 2", "Once", "/set --max_new_tokens=3", "/set stop 'e'", "Once", "/set greedy on"),
        *("/set temperature default", "/set greedy", "/set stop default", "Once", "/set greedy off", "Once"),
    ]
    answers, said = in_the_loop(*typed)(decoder, "--seed", "3")
    options = [
        ("--temperature", "2", "--seed", "3"),
        ("--temperature", "2", "--seed", "3", "--max-new-tokens", "3", "--stop", "e"),
        ("--greedy", "--max-new-tokens", "3"),
        ("--max-new-tokens", "3", "--seed", "3"),
    ]
    assert [one["result"] for one in answers if one["ok"]] == [asked_once(decoder, "Once", *given) for given in options]
    assert [line.split() for line in said[2:6]] == [
        ["temperature", "2.0"],
        ["max-new-tokens", "3"],
        ["stop", "'e'"],
        said[5].split(),
    ]
    _, refused = in_the_loop("/set temperature 2", "/set greedy on")(decoder)
    assert refused[3].endswith("; /set temperature default resets the other option")
    assert said[5].startswith(
        "--greedy is --temperature 0; --temperature 2 was given too; /set OPTION default resets the other option"
    )


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("/set temperature hot", "'--temperature'"),
        ("/set temperature 1000", "--temperature: must be at most 100, got 1000"),
        ("/set seed -3", "'--seed'"),
        ("/set tempersture 1", "/set: no such option 'tempersture'; did you mean temperature?"),
        ("/set device cpu", "/set: no such option 'device'"),
        ("/set num-beams 2", "the kind decoder; /set shows the options of this model"),
        ("/set num-samples 2 3", "'--num-samples'"),
        ("/set greedy perhaps", "/set greedy: must be on, off or default, got perhaps"),
        ("/set stop \\q", "unknown escape \\q"),
        ("/sat", "no such command: /sat; /help shows them; //TEXT is the prompt /TEXT"),
        ("/retry", "/retry: no prompt has been given yet"),
    ],
)
def test_what_a_command_cannot_take_is_told_in_a_line_and_changes_nothing(
    decoder: Path, typed: str, words: str
) -> None:
    answers, said = in_the_loop(typed, "Once")(decoder, "--max-new-tokens", "5")
    assert words in said[2]
    assert [one["ok"] for one in answers] == [False, True]
    assert answers[1]["result"] == asked_once(decoder, "Once", "--max-new-tokens", "5")


def test_set_alone_shows_every_option_that_the_model_has(decoder: Path) -> None:
    _, said = in_the_loop("/set")(decoder, "--top-k", "7")
    shown = {line.split()[0]: line.split(maxsplit=1)[1] for line in said[2:] if line}
    assert (shown["top-k"], shown["max-new-tokens"], shown["num-samples"]) == ("7", "40 (default)", "1 (default)")
    assert "num-beams" not in shown
    _, one = in_the_loop("/set top_k")(decoder, "--top-k", "7")
    assert one[2].split() == ["top-k", "7"]


def test_retry_answers_the_last_prompt_with_another_seed(decoder: Path) -> None:
    options = ("--temperature", "2", "--max-new-tokens", "20")
    for seed in ((), ("--seed", "5")):
        first = int(seed[1]) if seed else 0
        answers, _ = in_the_loop("Once", "/retry", "/retry")(decoder, *options, *seed)
        expected = [asked_once(decoder, "Once", *options, "--seed", str(first + n)) for n in range(3)]
        assert [one["result"] for one in answers] == expected
    answers, said = in_the_loop("Once", "/retry")(decoder, "--greedy")
    assert "/retry: greedy decoding does not depend on the seed" in said[2]


def test_a_chat_is_remembered_until_it_is_reset(assistant: Path) -> None:
    """Each answer is that to all messages so far; /retry answers the last one again, and JSON is a chat of its own."""
    run, options = assistant, ("--greedy", "--max-new-tokens", "6")
    other = json.dumps({"messages": [{"role": "user", "content": "turn red"}]})
    typed = ("turn red blue", "turn sun tree", other, "turn bird", "/reset", "turn sun tree")
    answers, _ = in_the_loop(*typed)(run, *options)
    chat: list[dict[str, str]] = []
    for prompt, answer in zip([line for line in typed if line != "/reset"], answers, strict=True):
        if answer is answers[-1]:
            chat = []
        said = [*chat, {"role": "user", "content": prompt}]
        expected = asked_once(run, prompt if prompt == other or not chat else json.dumps({"messages": said}), *options)
        assert answer["result"] == expected
        if prompt != other:
            chat = [*said, {"role": "assistant", "content": expected["texts"][0]}]
    assert answers[-1]["result"]["texts"] == ["tree sun"]
    sampled = ("--temperature", "2", "--seed", "3", "--max-new-tokens", "6")
    answers, _ = in_the_loop("turn red blue", "turn sun tree", "/retry")(run, *sampled)
    assert answers[1]["result"]["prompt"] == answers[2]["result"]["prompt"] != "turn sun tree"


def test_a_model_that_continues_texts_has_no_chat_to_reset(decoder: Path) -> None:
    first, refusal, again = in_the_loop("Once", "/reset", "Once")(decoder, "--greedy", "--max-new-tokens", "3")[0]
    assert first["result"] == again["result"]
    assert refusal["error"]["message"] == "/reset: each prompt is independent of those before it"


def test_prompts_of_several_lines_and_prompts_that_begin_with_a_slash(decoder: Path) -> None:
    answers, _ = in_the_loop('"""', "Once", "", "/set top", '"""', "//help", "/exit", "never asked")(
        decoder, "--max-new-tokens", "3"
    )
    assert [one["result"]["prompt"] for one in answers] == ["Once\n\n/set top", "/help"]


def test_ctrl_c_within_a_prompt_of_several_lines_ends_that_prompt_only(decoder: Path, at_terminal: Any) -> None:
    terminal = at_terminal(decoder, "--max-new-tokens", "1")
    terminal.wait_for("> ")
    terminal.type('"""\n')
    terminal.wait_for("... ")
    # Python's input() may miss a signal that comes while it is just beginning to wait, so it is sent until it is
    # noticed.
    begun = len(terminal.seen)
    while "\n> " not in terminal.seen[begun:]:
        terminal.type("\x03")
        if select.select([terminal.here], [], [], 0.2)[0]:
            terminal.wait_for("\n> ", begun)
    terminal.type("/quit\n")
    assert terminal.leave() == 0


def test_chat_is_the_prompt_loop_and_leaves_at_quit(decoder: Path) -> None:
    options = ("--max-new-tokens", "5", "--temperature", "2")
    typed = ("Once", "/set temperature 1", "Once", "/quit", "never asked")
    generated, chatted = (
        in_the_loop(*typed, command=command)(decoder, *options)[0] for command in ("generate", "chat")
    )
    assert len(generated) == 2
    assert [one["result"] for one in generated] == [one["result"] for one in chatted]


def test_chat_reads_prompts_from_a_pipe_and_refuses_what_the_model_does_not_have(
    decoder: Path, classifier: Path
) -> None:
    done = minitf("chat", decoder, "--greedy", "--max-new-tokens", "5", "-q", stdin="Once\n")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == minitf("generate", decoder, "Once", "--greedy", "--max-new-tokens", "5").stdout
    refused(
        minitf("chat", decoder, "--num-beams", "2"), "--num-beams: beam search needs an encoder-decoder", exit_code=2
    )
    refused(minitf("chat", classifier), "which generates no text; use `minitf predict ", exit_code=2)
