"""What reaches a terminal and the files that commands make: rows H1 to H11 of the faults that are survived, a case or
more each.
"""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import EXACT, ROOT, Done, content, minitf
from safetensors.torch import load_file, save_file

from mini_tf.cli.terminal import files
from mini_tf.jobs import parts
from mini_tf.system.errors import StorageFault
from mini_tf.system.safe_text import safe_text

CODES = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
"""All 65 control codes: C0, DEL, C1."""
SEQUENCES = {
    "OSC-title": "\x1b]0;title\x07",
    "OSC-link": "\x1b]8;;http://x\x1b\\here\x1b]8;;\x1b\\",
    "OSC-clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "CSI-colour": "\x1b[31m",
    "CSI-8bit": "\x9b2J",
    "DCS": "\x1bP+q544e\x1b\\",
    "reset": "\x1bc",
    "bell-and-return": "50%\a\r100%",
    "bidi-embedding": "\u202a\u202b\u202c\u202d\u202etxt.exe",
    "bidi-isolates": "\u2066\u2067\u2068\u2069",
    "bidi-marks": "\u061c\u200e\u200f",
    "separators": "line\u2028paragraph\u2029",
}
STEERING = {*CODES, *"".join(SEQUENCES.values())} - {chr(code) for code in range(0x20, 0x7F)}
LOUD = "".join(character for character in CODES if character not in "\0\n") + "".join(SEQUENCES.values())
"""All of it in one text; NUL cannot be given as an argument, and a line has no newline."""
SMALL = (
    "model.d_model=16",
    "model.n_layers=1",
    "model.n_heads=2",
    "train.batch_size=4",
    "train.context=48",
    "runtime.compile=false",
    *EXACT,
)


def is_calm(done: Done) -> bool:
    """Nothing steers a terminal, and there is no traceback."""
    shown = done.stdout + done.stderr
    return not (STEERING - {"\n", "\t"}) & set(shown) and "Traceback" not in shown


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of characters that has learnt nothing else than to steer terminals."""
    folder = tmp_path_factory.mktemp("terminal")
    rows = [{"text": f"{LOUD} [link=http://x] [/nope] number {number}"} for number in range(60)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = (
        f"data.train={folder / 'rows.jsonl'}",
        "tokenizer.kind=char",
        *SMALL,
        "train.steps=2",
        "generate.max_new_tokens=60",
    )
    done = minitf("pretrain", *line, "runtime.compile=false", "-d", folder / "run")
    assert done.exit_code == 0, done.stderr
    assert is_calm(done)
    return folder / "run"


def test_h1_every_control_code_but_newline_and_tab_is_shown_as_its_number() -> None:
    for code in CODES:
        assert safe_text(f"a{code}b") == (f"a{code}b" if code in "\n\t" else f"a\\x{ord(code):02x}b")


@pytest.mark.parametrize("name", SEQUENCES, ids=[f"H1-{name}" for name in SEQUENCES])
def test_sequences_that_steer_are_shown_and_their_letters_stay(name: str) -> None:
    shown = safe_text(SEQUENCES[name])
    assert shown.isprintable()
    assert "".join(one for one in SEQUENCES[name] if one not in STEERING) == re.sub(
        r"\\(x[0-9a-f]{2}|u[0-9a-f]{4})", "", shown
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("👩\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3", None, id="H1-emoji-stay"),
        pytest.param("می\u200cخواهم क्\u200dष ថ្ងៃ\u200bនេះ hy\u00adphen", None, id="H1-scripts-stay"),
        pytest.param("葛\U000e0100", None, id="H1-variants-stay"),
        pytest.param("\U000e0068\U000e0069", "\\U000e0068\\U000e0069", id="H1-tags"),
        pytest.param("\ufeff\u2060\u2063", "\\ufeff\\u2060\\u2063", id="H1-invisible-operators"),
        pytest.param(
            "a\U000e0101\U000e0102\U000e0103", "a\U000e0101\\U000e0102\\U000e0103", id="H1-message-in-selectors"
        ),
        pytest.param("a\u200b\u200c\u200b", "a\u200b\\u200c\\u200b", id="H1-message-in-blanks"),
        pytest.param("\ud800", "\\ud800", id="H4-half-a-pair"),
    ],
)
def test_ordinary_writing_stays_readable_and_what_hides_is_shown(text: str, shown: str | None) -> None:
    assert safe_text(text) == (text if shown is None else shown)


SHOWING: dict[str, tuple[str, ...]] = {
    "generate": ("generate", "{run}", LOUD, "--temperature", "5", "--num-samples", "2"),
    "generate-logprobs": ("generate", "{run}", LOUD, "--logprobs", "3", "--max-new-tokens", "20"),
    "generate-stop": ("generate", "{run}", "x", "--stop", "\x1b[", "--stop", "\x07"),
    "generate-stream": ("generate", "{run}", LOUD, "--stream"),
    "evaluate": ("evaluate", "{run}"),
    "data-show": ("data", "show", "{run}/resolved.yaml"),
    "data-stats": ("data", "stats", "{run}/resolved.yaml"),
    "encode": ("tokenizer", "encode", "{run}", "--pieces", LOUD),
    "decode": ("tokenizer", "decode", "{run}", *map(str, range(4, 90))),
    "tokens": ("inspect", "tokens", "{run}", LOUD),
    "attention": ("inspect", "attention", "{run}", LOUD[:40]),
    "attention-describe": ("inspect", "attention", "{run}", LOUD[40:80], "--describe"),
    "word": ("inspect", "word", "{run}", "\x1b[31m", "a \x1b[31m b", "\x1b[31m c"),
    "model": ("inspect", "model", "{run}"),
    "runs-show": ("runs", "show", "{run}"),
    "runs-list": ("runs", "list", "{run}/.."),
}


@pytest.mark.parametrize("name", SHOWING, ids=[f"H1-{name}" for name in SHOWING])
def test_no_command_lets_text_steer_the_terminal(name: str, run: Path) -> None:
    line = [word.replace("{run}", str(run)) for word in SHOWING[name]]
    done = minitf(*line)
    assert done.exit_code == 0, done.stderr
    assert is_calm(done)
    if "--stream" not in line:
        told = minitf(*line, "--json")
        assert told.exit_code == 0
        assert told.stdout.isascii()
        assert told.stdout.replace("\n", "").isprintable()
        assert is_calm(told)


def test_h1_what_is_shown_is_what_json_has_exactly(run: Path) -> None:
    line = ("generate", run, "x", "--temperature", "5", "--seed", "1")
    [text] = json.loads(minitf(*line, "--json").stdout)["result"]["texts"]
    assert len(STEERING & set(text)) > 10  # so that the tests above have something to stop
    assert minitf(*line).stdout == safe_text(text) + "\n"


def test_h3_words_that_look_like_markup_stay_words(run: Path) -> None:
    text = "[bold]x[/nope] [link=http://x]y[/link] :smile: {% x %}"
    for line in (
        ("inspect", "attention", run, text),
        ("inspect", "tokens", run, text),
        ("generate", run, text),
        ("evaluate", run),
    ):
        done = minitf(*line)
        assert done.exit_code == 0, done.stderr
        assert is_calm(done)


# H2: names, keys and messages
# ------------------------------------------------------------------------------------------


def _jsonl(folder: Path) -> list[str]:
    (folder / "d.jsonl").write_text(json.dumps({"te\x1b]0;x\x07xt": 1}) + "\n")
    return ["pretrain", f"data.train={folder / 'd.jsonl'}", *SMALL, "train.steps=1", "-d", str(folder / "out")]


def _recipe(folder: Path) -> list[str]:
    (folder / "r.yaml").write_text('"mo\\e[31mdel\\a": {kind: decoder}\nmodel: {kind: "\\u202e\\e]52;c;x\\a"}\n')
    return ["recipe", "check", str(folder / "r.yaml")]


def _tokenizer(folder: Path) -> list[str]:
    (folder / "t.json").write_text(json.dumps({"version": "1.0", "model": {"type": "\x1b[31mX", "vocab": {"\x9b": 0}}}))
    return ["tokenizer", "encode", str(folder / "t.json"), "x"]


FAULTY: dict[str, tuple[int, Any]] = {
    "file-name": (
        3,
        lambda folder: ["pretrain", f"data.train={folder}/a\x1b[31m\r\x9bb.txt", "-d", str(folder / "out")],
    ),
    "file-name-bidi": (4, lambda folder: ["pretrain", f"data.train={folder}/\u202etxt.exe", "-d", str(folder / "out")]),
    "recipe-name": (3, lambda folder: ["recipe", "check", f"{folder}/\u202egnp.yaml"]),
    "override-key": (2, lambda folder: ["recipe", "check", "quickstart", "model.\x1b[31mkind=x"]),
    "override-value": (3, lambda folder: ["recipe", "check", "quickstart", "model.kind=\x1b[31m\x07"]),
    "recipe-key": (3, _recipe),
    "json-key": (4, _jsonl),
    "tokenizer-type": (4, _tokenizer),
    "run-name": (5, lambda folder: ["generate", f"{folder}/\x1b]0;x\x07", "x"]),
    "option": (2, lambda folder: ["generate", "x", "--\x1b[31m"]),
    "command": (2, lambda folder: ["\x1b[31mevil\x07"]),
    "stop": (5, lambda folder: ["generate", "nothing", "x", "--stop", "a\x1b"]),
    "stop-escape": (2, lambda folder: ["generate", "nothing", "x", "--stop", "a\\\x1b"]),
    "input-name": (5, lambda folder: ["generate", "nothing", "-i", f"{folder}/\x1b.txt"]),
    "limits": (2, _recipe),
}


@pytest.mark.parametrize("name", FAULTY, ids=[f"H2-{name}" for name in FAULTY])
def test_messages_name_what_they_name_without_being_steered_by_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, line_of = FAULTY[name]
    if name == "limits":
        monkeypatch.setenv("MINITF_LIMITS", "\x1b[31m=1")
    line = line_of(tmp_path)
    before = content(tmp_path)
    done = minitf(*line)
    assert done.exit_code == code, done.stderr
    assert is_calm(done)
    assert content(tmp_path) == before
    assert not (tmp_path / "out").exists()
    told = minitf(*line, "--json")
    assert told.exit_code == code
    assert told.stdout.isascii()


def test_h2_a_tensors_name_is_shown_safely(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    weights = load_file(tmp_path / "run" / "model.safetensors")
    name = next(iter(weights))
    save_file({**weights, name + "\x1b]0;x\x07\u202e": weights[name].clone()}, tmp_path / "run" / "model.safetensors")
    done = minitf("generate", tmp_path / "run", "x")
    assert done.exit_code == 5
    assert is_calm(done)


def test_h2_a_newline_in_a_name_makes_no_second_line(tmp_path: Path) -> None:
    done = minitf("pretrain", f"data.train={tmp_path}/a\ndone: all is well\n", "-d", tmp_path / "out")
    assert done.exit_code == 4
    assert len(done.stderr.splitlines()) == 1
    assert is_calm(done)


def test_h2_a_run_whose_folder_and_record_hold_escape_codes_is_listed_safely(run: Path, tmp_path: Path) -> None:
    place = tmp_path / "a\x1b]0;x\x07"
    shutil.copytree(run, place)
    record = json.loads((place / "run.json").read_text())
    record |= {"error": "\x1b[31m\u202e", "command": ["\x9b2J"], "versions": {**record["versions"], "\x1bk": "\x07"}}
    (place / "run.json").write_text(json.dumps(record))
    for line in (("runs", "list", tmp_path), ("runs", "show", place), ("generate", place, "x"), ("evaluate", place)):
        done = minitf(*line)
        assert is_calm(done)
        assert done.exit_code in (0, 5)


# H4, H5: positions that are no terminal
# ------------------------------------------------------------------------------------------


def test_h4_any_locale_gets_utf_8_and_no_escape_codes() -> None:
    settings = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    line = [sys.executable, "-m", "mini_tf", "pretrain", "日本 é"]
    done = subprocess.run(line, env={**os.environ, **settings}, capture_output=True, timeout=600)
    assert done.returncode == 2, done.stderr
    assert "日本 é" in done.stderr.decode()
    assert b"\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("columns", ["0", "-5", "x", "", "1", "99999999"], ids=lambda columns: f"H5-COLUMNS={columns}")
def test_any_width_is_drawn_in(columns: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    done = minitf("inspect", "tokens", run, "the cat sat")
    assert done.exit_code == 0, done.stderr
    assert is_calm(done)
    if columns != "99999999":
        assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    "setting", ["TERM=dumb", "NO_COLOR=1", "FORCE_COLOR=1", "TTY_COMPATIBLE=1"], ids=lambda setting: f"H5-{setting}"
)
def test_without_a_terminal_there_is_no_escape_code(setting: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*setting.split("="))
    for done in (minitf("inspect", "attention", run, "ab"), minitf("runs", "list", run.parent), minitf("nothing")):
        assert not {"\x1b", "\r"} & set(done.stdout + done.stderr)


def test_h5_training_without_a_terminal_is_a_line_an_interval_and_no_bar(run: Path, tmp_path: Path) -> None:
    done = minitf("pretrain", run / "resolved.yaml", "-d", tmp_path / "again")
    assert is_calm(done)
    assert [line.split(" | ")[0] for line in done.stderr.splitlines() if line.startswith("step ")] == [
        "step 1/2",
        "step 2/2",
    ]


# H6, H7: no command writes CSV; a page is HTML that runs only its own script (test_drawing_page.py)
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "suffix",
    ["htm", "csv", "tsv", "xlsx"],
    ids=lambda suffix: f"{'H6' if 'h' in suffix else 'H7'}-{suffix}",
)
def test_no_file_is_written_that_a_browser_or_a_spreadsheet_would_run(suffix: str, tmp_path: Path) -> None:
    done = minitf("inspect", "attention", "nothing", "=cmd()", "-o", tmp_path / f"x.{suffix}")
    assert done.exit_code == 2
    assert "suffix must be .png or .svg or .pdf or .html or .json or .safetensors" in done.stderr
    assert not any(tmp_path.iterdir())


def test_h8_no_secret_of_the_environment_is_ever_written(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-7f3a91"
    monkeypatch.setenv("SECRET_CANARY", canary)
    monkeypatch.setenv("HF_TOKEN", canary)
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))

    def fail(*given: Any, **named: Any) -> Any:
        held = os.environ["SECRET_CANARY"]
        raise RuntimeError(f"a bug far below, {len(held)}")

    monkeypatch.setattr(parts, "evaluate", fail)
    done = minitf("pretrain", run / "resolved.yaml", "-d", tmp_path / "run", "--debug", "-v")
    assert done.exit_code == 1
    assert "a bug far below" in done.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name.startswith("crash-") for path in written)
    assert [path for path in written if canary.encode() in path.read_bytes()] == []
    assert canary not in done.stdout + done.stderr


USAGE = {
    "command": ("nonsense",),
    "option": ("generate", "run", "--nonsense"),
    "argument": ("generate",),
    "number": ("generate", "run", "--top-k", "many"),
    "choice": ("runs", "list", "--color", "pink"),
    "range": ("generate", "run", "--seed", "-1"),
    "group": ("runs", "nonsense"),
}


@pytest.mark.parametrize("name", USAGE, ids=[f"H9-{name}" for name in USAGE])
def test_wrong_usage_is_2_and_ends_with_a_command_that_helps(name: str) -> None:
    done = minitf(*USAGE[name])
    assert done.exit_code == 2
    [line] = done.stderr.splitlines()
    assert line.endswith("--help`") or "; for example: minitf " in line
    assert done.stdout == ""


LINES = {
    "too-long": (b"fine\n" + b"x" * 101 + b"\n", 2),
    "endless": (b"x" * 5_000_000, 1),
    "not-utf-8": (b"fine\n\xff\xfe\n", 2),
}


@pytest.mark.parametrize("name", LINES, ids=[f"H10-{name}" for name in LINES])
def test_a_prompt_that_is_no_line_of_text_is_refused_with_its_place(
    name: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, number = LINES[name]
    monkeypatch.setenv("MINITF_LIMITS", "prompt_bytes=100")
    (tmp_path / "prompts").write_bytes(given)
    done = minitf("generate", run, "-i", tmp_path / "prompts", "--max-new-tokens", "2")
    assert done.exit_code == 4, done.stderr
    assert f"prompts:{number}" in done.stderr
    assert is_calm(done)
    assert len(done.stdout.splitlines()) == number - 1
    if name != "not-utf-8":
        piped = minitf("generate", run, "--max-new-tokens", "2", stdin=given.decode())
        assert (piped.exit_code, f"stdin:{number}" in piped.stderr) == (4, True)


def test_h10_nul_in_a_prompt_is_a_character_like_others(run: Path) -> None:
    done = minitf("generate", run, "--max-new-tokens", "2", stdin="a\0b\n")
    assert done.exit_code == 0
    assert is_calm(done)


def test_h10_a_prompt_of_a_hundred_thousand_characters_is_cut_with_a_note(run: Path) -> None:
    done = minitf("generate", run, "ab " * 33_000, "--max-new-tokens", "2")
    assert done.exit_code == 0, done.stderr
    assert "truncated" in done.stderr


def test_h11_no_file_can_be_run_or_is_open_to_others(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    before = os.umask(0o077)
    try:
        done = minitf("pretrain", run / "resolved.yaml", "-d", tmp_path / "run")
        drawn = minitf("inspect", "attention", run, "ab", "-o", tmp_path / "a.png", "-o", tmp_path / "a.json")
    finally:
        os.umask(before)
    assert (done.exit_code, drawn.exit_code) == (0, 0), done.stderr + drawn.stderr
    made = list(tmp_path.rglob("*"))
    assert len(made) > 20
    for path in made:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode & 0o077 == 0, f"{path}: {mode:03o}"
        assert path.is_dir() or mode & 0o111 == 0, f"{path}: {mode:03o}"


# -o ------------------------------------------------------------------------------------------


def _stands(folder: Path, what: str) -> Path:
    path = folder / "x.json"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "read-only":
        path.write_text("mine")
        path.chmod(0o444)
    elif what == "link":
        (folder / "other").write_text("mine")
        path.symlink_to(folder / "other")
    elif what == "dangling-link":
        path.symlink_to(folder / "nowhere")
    elif what == "file":
        path.write_text("mine")
    return path


@pytest.mark.parametrize("forced", [True, False], ids=["forced", "unforced"])
@pytest.mark.parametrize(
    "what", ["pipe", "folder", "read-only", "link", "dangling-link", "file"], ids=lambda what: f"H11-o-{what}"
)
def test_what_stands_where_a_file_shall_be_written_is_left_alone(
    what: str, forced: bool, run: Path, tmp_path: Path
) -> None:
    path = _stands(tmp_path, what)
    before, kind = sorted(os.listdir(tmp_path)), path.lstat()
    done = minitf("inspect", "attention", run, "ab", "-o", path, *(["--force"] if forced else []))
    assert is_calm(done)
    assert sorted(os.listdir(tmp_path)) == before
    if what == "file" and forced:
        assert done.exit_code == 0
        assert json.loads(path.read_text())["samples"]
        return
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert path.lstat()[:7] == kind[:7]


def test_h2_a_file_to_write_may_have_any_name(run: Path, tmp_path: Path) -> None:
    for name in ("\x1b[31m\u202e.json", "a\nb.json", "x" * 250 + ".json"):
        done = minitf("inspect", "attention", run, "ab", "-o", tmp_path / name)
        assert done.exit_code == 0, done.stderr
        assert is_calm(done)
        assert (tmp_path / name).is_file()
    done = minitf("inspect", "attention", run, "ab", "-o", tmp_path / ("x" * 300 + ".json"))
    assert done.exit_code == 2
    assert len(list(tmp_path.iterdir())) == 3


def test_a_file_is_not_written_through_a_link_that_waits_under_its_temporary_name(tmp_path: Path) -> None:
    """The name can be guessed, in a folder of somebody else's for every process at once."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f".minitf.{os.getpid()}.tmp").symlink_to(victim)
    files.write(tmp_path / "out.json", b"new")
    assert (victim.read_text(), (tmp_path / "out.json").read_bytes()) == ("mine", b"new")
    assert not (tmp_path / "out.json").is_symlink()


def test_a_link_put_under_the_temporary_name_at_the_last_moment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After what stood there was removed, and before the file is made."""
    victim, temporary = tmp_path / "victim", tmp_path / f".minitf.{os.getpid()}.tmp"
    victim.write_text("mine")
    remove = Path.unlink

    def remove_and_plant(path: Path, missing_ok: bool = False) -> None:
        remove(path, missing_ok=True)
        if not planted:
            planted.append(path)
            path.symlink_to(victim)

    planted: list[Path] = []
    monkeypatch.setattr(Path, "unlink", remove_and_plant)
    with pytest.raises(StorageFault, match=r"--output .*out\.json: File exists"):
        files.write(tmp_path / "out.json", b"new")
    assert planted == [temporary]
    assert victim.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["victim"]
