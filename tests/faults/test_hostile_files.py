"""Whatever a file or an argument holds: a documented exit code, no traceback, no hang, nothing that steers a terminal,
nothing unused.

hypothesis writes the files (hostile_files.py) and shrinks one that breaks the promise. Each sort of file has two dozen
here, and hundreds in the slow form.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hostile_files as files
import pytest
from commands import Done, minitf, trained
from hang import Hang, ending
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe import sections

FEW, MANY = 25, 500
STEERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0001-\U000e007f]"
)
SMALL = (
    "model.d_model=16",
    "model.n_layers=1",
    "model.n_heads=2",
    "train.batch_size=4",
    "train.context=32",
    "runtime.compile=false",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the commands run, with a cache of its own."""
    folder = tmp_path_factory.mktemp("hostile")
    before, cache = os.getcwd(), os.environ["MINITF_CACHE"]
    os.environ["MINITF_CACHE"] = str(folder / "cache")
    (folder / "here").mkdir()
    os.chdir(folder / "here")
    yield folder
    os.chdir(before)
    os.environ["MINITF_CACHE"] = cache


@pytest.fixture(scope="module")
def run(place: Path) -> Path:
    """A finished run of four steps, with checkpoints of two and four."""
    (place / "tales.txt").write_text("\n\n".join(f"tale number {n}: once there was a cat" for n in range(60)))
    line = (
        f"data.train={place / 'tales.txt'}",
        "train.steps=4",
        "eval.every_steps=2",
        "checkpoint.every_steps=2",
        *SMALL,
    )
    return trained(place / "run", *line)


@pytest.fixture(scope="module")
def unfinished(place: Path, run: Path) -> Path:
    """The same run as it was after two of its steps."""
    folder = place / "unfinished"
    shutil.copytree(run, folder)
    shutil.rmtree(folder / "checkpoints" / "step-00000004")
    record = json.loads((folder / "run.json").read_text())
    assert record["best"]["step"] == record["model"]["step"] == 4
    (folder / "run.json").write_text(
        json.dumps(record | {"state": "stopped", "exit_code": 143, "step": 2, "best": None, "model": None})
    )
    return folder


def told(arguments: tuple[str | Path, ...], stdin: str = "") -> tuple[Done, str]:
    """One command, and what reached file descriptor 2 past Python; a hang is a failure."""
    with tempfile.TemporaryFile() as behind:
        kept = os.dup(2)
        os.dup2(behind.fileno(), 2)
        try:
            with ending():
                done = minitf(*arguments, stdin=stdin)
        except Hang as hang:
            raise AssertionError(f"{hang}: {arguments}") from None
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        behind.seek(0)
        return done, behind.read().decode(errors="replace")


def holds(
    codes: set[int], *arguments: str | Path, stdin: str = "", writes: str | None = None, lines: bool = False
) -> Done:
    """The promise, of one command. writes: the file or folder that it may make or change; lines: --json prints an
    envelope an input.
    """
    before = listed(writes)
    done, behind = told(arguments, stdin)
    shown = f"{arguments}\nexit {done.exit_code}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    assert done.exit_code in codes, shown
    assert behind == "", shown + behind
    for stream in (done.stdout, done.stderr):
        assert STEERS.search(stream) is None, shown
        assert "Traceback" not in stream, shown
    assert listed(writes) == before, shown
    if done.exit_code:
        said = done.stderr.splitlines()
        assert 0 < len(said) < 60, shown
        assert max(map(len, said)) < 2000, shown
    if "--json" in arguments:
        envelopes = [json.loads(line, parse_constant=pytest.fail) for line in done.stdout.splitlines()]
        assert len(envelopes) == 1 or lines, shown
        codes_told = [one.get("exit_code", 0) for one in envelopes]
        assert all(one["ok"] == (code == 0) for one, code in zip(envelopes, codes_told, strict=True)), shown
        assert codes_told == [0] * (len(envelopes) - 1) + [done.exit_code] if done.exit_code else not any(codes_told), (
            shown
        )
    return done


def listed(but: str | None) -> dict[str, tuple[int, int]]:
    """Every file below the working directory, its size and when it was written, except the one that may be."""
    paths = [path for path in Path().rglob("*") if path.parts[0] != but]
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths if path.is_file()} | {
        f"{path}/": (0, 0) for path in paths if path.is_dir()
    }


def emptied() -> None:
    """A working directory with nothing in it, and no cache of what earlier examples held."""
    for entry in Path().iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.rmtree(os.environ["MINITF_CACHE"], ignore_errors=True)


def explore(examples: st.SearchStrategy[Any], check: Callable[[Any], None], n: int) -> None:
    """`check` on `n` examples, always the same ones."""

    @settings(max_examples=n, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(examples)
    def one(example: Any) -> None:
        emptied()
        check(example)

    one()


many = pytest.mark.parametrize("n", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
fewer = pytest.mark.parametrize("n", [8, pytest.param(MANY, marks=pytest.mark.slow)])
"""Of what trains."""
JSON = st.sampled_from([(), ("--json",)])


@many
@pytest.mark.parametrize("sort", ["grown", "changed"])
def test_recipes(place: Path, sort: str, n: int) -> None:
    commands = st.sampled_from(
        [("recipe", "check"), ("recipe", "show"), ("pretrain", "--print-config"), ("recipe", "show", "--why", "model")]
    )

    def check(example: Any) -> None:
        recipe, command, option = example
        Path("r.yaml").write_bytes(recipe)
        holds({0, 2, 3} if "--why" in command else {0, 3}, *command, "r.yaml", *option)

    explore(st.tuples(files.recipes() if sort == "grown" else files.changed_recipes(), commands, JSON), check, n)


@many
def test_overrides(place: Path, n: int) -> None:
    commands = st.sampled_from([("recipe", "check"), ("recipe", "show"), ("pretrain", "--print-config")])

    def check(example: Any) -> None:
        overrides, command, option = example
        holds({0, 2, 3}, *command, *option, "--", *overrides)

    explore(st.tuples(st.lists(files.OVERRIDES, min_size=1, max_size=3), commands, JSON), check, n)


@many
def test_texts_and_tables(place: Path, n: int) -> None:
    show, stats, train = ("data", "show"), ("data", "stats"), ("tokenizer", "train", "-o", "t.json")
    choices = st.tuples(
        st.sampled_from([show, stats, train]),
        st.sampled_from(["strict", "replace"]),
        st.sampled_from(["byte", "char", "bpe"]),
    )

    def check(example: Any) -> None:
        (name, content), (command, errors, kind), option = example
        Path(name).write_bytes(content)
        size = ("tokenizer.vocab_size=270",) if kind == "bpe" else ()
        line = (
            f"data.train={name}",
            f"data.errors={errors}",
            f"tokenizer.kind={kind}",
            *size,
            "train.context=16",
            "data.split=20%",
        )
        done = holds({0, 4}, *command, *line, *option, writes="t.json")
        assert Path("t.json").exists() == (command is train and done.exit_code == 0)

    explore(st.tuples(files.data_files(), choices, JSON), check, n)


def sound_tokenizer(kind: str) -> dict[str, Any]:
    """A small tokenizer.json of a kind of ours, or of the library's."""
    if kind == "wordlevel":
        vocabulary = {"<unk>": 0, "tale": 1, "cat": 2, "a": 3, "</s>": 4}
        unk = {"id": 0, "content": "<unk>", "special": True} | dict.fromkeys(
            ("single_word", "lstrip", "rstrip", "normalized"), False
        )
        model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
        return {
            "version": "1.0",
            "added_tokens": [unk],
            "pre_tokenizer": {"type": "Whitespace"},
            "model": model,
        } | dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    texts = [f"tale number {n}: once there was a cat" for n in range(20)]
    made: dict[str, Any] = json.loads(Tokenizer.train(sections.Tokenizer(kind=kind, vocab_size=300), texts).to_json())
    return made


@many
@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "wordlevel"])
def test_tokenizers(place: Path, kind: str, n: int) -> None:
    commands = st.sampled_from([("tokenizer", "encode"), ("tokenizer", "stats"), ("inspect", "tokens")])

    def check(example: Any) -> None:
        content, command, text, option = example
        Path("tokenizer.json").write_bytes(content)
        holds({0, 4}, *command, *option, "tokenizer.json", "--", text, lines=command[-1] == "encode")

    texts = files.TEXTS.map(lambda text: text.replace("\0", ""))
    explore(st.tuples(files.tokenizer_files(sound_tokenizer(kind)), commands, texts, JSON), check, n)


@many
def test_vocabularies(place: Path, n: int) -> None:
    def check(example: Any) -> None:
        made, text, option = example
        for name, content in made.items():
            Path(name).write_bytes(content)
        holds({0, 4}, "tokenizer", "encode", *option, next(iter(made)), "--", text, lines=True)

    explore(st.tuples(files.vocabularies(), files.TEXTS.map(lambda text: text.replace("\0", "")), JSON), check, n)


class Part(NamedTuple):
    """A file of a run folder, and how it is made hostile."""

    name: str
    contents: Callable[[Path], st.SearchStrategy[bytes]]


def _tree(path: Path) -> Any:
    return json.loads(path.read_bytes())


CHECKPOINT = "checkpoints/step-00000002"
RECORDS = ("run.json", "config.json", "tokenizer.json", f"{CHECKPOINT}/MANIFEST.json", f"{CHECKPOINT}/counters.json")
TENSORS = (
    "model.safetensors",
    f"{CHECKPOINT}/model.safetensors",
    f"{CHECKPOINT}/optimizer.safetensors",
    f"{CHECKPOINT}/state.safetensors",
)
PARTS = [Part(name, lambda path: files.json_files(_tree(path))) for name in RECORDS]
PARTS += [Part(name, lambda path: files.tensor_files(path.read_bytes())) for name in TENSORS]
PARTS += [Part(name, lambda path: files.changed_recipes()) for name in ("resolved.yaml",)]
PARTS += [Part("metrics.jsonl", lambda path: files.data_files().map(lambda made: path.read_bytes() + made[1]))]


def hostile_runs(folder: Path, names: st.SearchStrategy[Part]) -> st.SearchStrategy[tuple[str, bytes, bool]]:
    """(name, content, sealed): a file of a run folder, and whether the hashes that are kept of it are made to fit."""

    def of(part: Part) -> st.SearchStrategy[tuple[str, bytes, bool]]:
        return st.tuples(st.just(part.name), part.contents(folder / part.name), st.booleans())

    return names.flatmap(of)


def laid(folder: Path, example: tuple[str, bytes, bool]) -> None:
    """A copy of a run in the working directory, with one hostile file."""
    name, content, seal = example
    shutil.copytree(folder, "run")
    Path("run", name).write_bytes(content)
    if seal:
        files.sealed(Path("run"), lambda data: hashlib.sha256(data).hexdigest())


@many
@pytest.mark.parametrize("sort", ["records", "tensors"])
def test_run_folders_that_are_read(run: Path, sort: str, n: int) -> None:
    step = ("--step", "2")
    commands = st.sampled_from(
        [
            (("evaluate", "run"), {0, 4, 5}),
            (("evaluate", "run", *step), {0, 4, 5}),
            (("generate", "run", "once", "--max-new-tokens", "3"), {0, 4, 5}),
            (("generate", "run", "once", "--max-new-tokens", "3", *step), {0, 4, 5}),
            (("inspect", "model", "run"), {0, 5}),
            (("inspect", "attention", "run", "once", *step), {0, 4, 5}),
            (("runs", "show", "run"), {0, 5}),
            (("runs", "list", "."), {0}),
        ]
    )

    def check(example: Any) -> None:
        part, (command, codes), option = example
        laid(run, part)
        holds(codes, *command, *option, lines=command[0] == "generate")

    kinds = [part for part in PARTS if part.name.endswith(".safetensors") == (sort == "tensors")]
    explore(st.tuples(hostile_runs(run, st.sampled_from(kinds)), commands, JSON), check, n)


@fewer
@pytest.mark.parametrize("sort", ["records", "tensors"])
def test_run_folders_that_are_continued(unfinished: Path, run: Path, sort: str, n: int) -> None:
    def check(example: Any) -> None:
        part, option = example
        laid(unfinished, part)
        holds({0, 5, 7}, "pretrain", str(run / "resolved.yaml"), "-d", "run", *option, writes="run")

    kinds = [part for part in PARTS if part.name.endswith(".safetensors") == (sort == "tensors")]
    explore(st.tuples(hostile_runs(unfinished, st.sampled_from(kinds)), JSON), check, n)


@many
def test_texts_that_a_run_is_asked_about(run: Path, n: int) -> None:
    short = ("--max-new-tokens", "2")
    commands = st.sampled_from(
        [
            (("evaluate", str(run), "--data"), {0, 4}),
            (("generate", str(run), *short, "-i"), {0, 4}),
            (("tokenizer", "stats", str(run), "-i"), {0, 4}),
            (("inspect", "tokens", str(run), "-i"), {0, 2, 4}),
            (("inspect", "attention", str(run), "-i"), {0, 2, 4}),
        ]
    )

    def check(example: Any) -> None:
        (name, content), (command, codes), option = example
        Path(name).write_bytes(content)
        holds(codes, *command, name, *option, lines=command[0] == "generate")

    explore(st.tuples(files.data_files(), commands, JSON), check, n)


@many
def test_prompts_and_texts(run: Path, n: int) -> None:
    name = str(run)
    short = ("--max-new-tokens", "4", "--temperature", "5")
    commands = st.sampled_from(
        [
            ("generate", *short, name),
            ("generate", *short, "--logprobs", "2", name),
            ("tokenizer", "encode", name),
            ("tokenizer", "encode", "--pieces", name),
            ("tokenizer", "decode", name),
            ("tokenizer", "stats", name),
            ("inspect", "tokens", name),
            ("inspect", "attention", name),
            ("inspect", "attention", "--describe", "--words", name),
        ]
    )

    def check(example: Any) -> None:
        text, command, option, piped = example
        many_answers = command[0] == "generate" or command[1] in ("encode", "decode")
        if piped and "stats" not in command and "--logprobs" not in command and max(text, default="") < "\udc80":
            holds({0, 2, 4}, *command, *option, stdin=text, lines=many_answers)
        else:
            holds({0, 2}, *command, *option, "--", text, lines=many_answers)

    explore(st.tuples(files.ARGUMENTS, commands, JSON, st.booleans()), check, n)
