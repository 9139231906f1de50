"""Guesses of people who know other tools, among runs, recipes and files: each is answered by the one right command."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, minitf, refused

from mini_tf.cli.inspect import view_called
from mini_tf.inspection import ViewSettings
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.run import manifest
from mini_tf.run.disk import Disk
from mini_tf.run.manifest import Manifest


@pytest.fixture(autouse=True)
def _among_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run `mine`, texts and a table."""
    monkeypatch.chdir(tmp_path)
    Path("outputs/mine").mkdir(parents=True)
    manifest.write(Path("outputs/mine"), Manifest(recipe="tiny", state="done"), Disk())
    Path("outputs/mine/resolved.yaml").write_text("data: {}\n")
    Path("my.txt").write_text("Once upon a time.\n")
    Path("reviews.csv").write_text("text,label\nnice,good\n")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        # an argument without its command
        ("quickstart", "the command comes first: minitf pretrain quickstart"),
        ("my.txt train.steps=3", "the command comes first: minitf pretrain my.txt train.steps=3"),
        ("mine", "the command comes first: minitf generate mine"),
        ("last", "the command comes first: minitf generate last"),
        ("recipe gpt-nano", "the command comes first: minitf recipe show gpt-nano"),
        ("data my.txt", "the command comes first: minitf data show my.txt"),
        ("tokenizer mine once", "the command comes first: minitf tokenizer encode mine once"),
        ("runs mine", "the command comes first: minitf runs show mine"),
        ("inspect mine once", "the view comes first: minitf inspect attention mine once"),
        # a command of a group
        ("compare a b", "`minitf runs compare`"),
        ("encode mine x", "`minitf tokenizer encode`"),
        ("keys", "`minitf recipe keys`"),
        ("rm mine", "`minitf runs rm`"),
        ("stats my.txt", "`minitf data stats`, `minitf tokenizer stats`"),
        # other tools
        ("head_view mine once", '`minitf inspect-attention RUN "a text" -o heads.png`'),
        ("finetune_lora mine", "`minitf finetune sst2-nano reviews.csv model.init_from=RUN`, with adapter.kind=lora"),
        ("resume mine", "the command that started the run continues it; so does `minitf pretrain RUN`"),
        ("quantize mine", "there is nothing of this kind here"),
        ("inspect parameters mine", "`minitf inspect model mine`"),
        ("inspect Head_View mine 'once upon'", "`minitf inspect attention mine 'once upon'`"),
        ("inspect neurons mine", "`minitf inspect memory mine`"),
        ("inspect logits mine x", '`minitf generate RUN "a prompt" --logprobs 5`'),
        # options
        ("--json runs list", "options stand behind the command: minitf runs list --json"),
        ("-V", "`minitf --version`"),
        ("generate mine x --temp 0.8", "--temperature T"),
        ("chat mine --temp=0.8", "--temperature T"),
        ("generate mine x --gpu", "--device cuda"),
        ("pretrain my.txt --gpus 2", "--nproc P"),
        ("pretrain my.txt --bf16 True", "runtime.precision=bf16"),
        ("pretrain my.txt --tokenizer char", "tokenizer.kind=KIND, or tokenizer.path=FILE"),
        ("pretrain my.txt --overwrite_output_dir", "--fresh starts a new run beside an existing one"),
        ("predict mine x --top_k 2", "--top N"),
        ("predict mine -i reviews.csv --text-column x", "--fields '{text: COLUMN}'"),
        ("convert mine --to gguf", "`minitf export RUN --to FORMAT -o DIR` writes formats of other tools"),
        ("serve mine --share", "--host 0.0.0.0 lets other machines in"),
        ("evaluate mine -o m.json", "--json prints them for programs: minitf evaluate RUN --json > FILE"),
        ("inspect attention mine x --heads 0", "--head 0,2"),
        ("inspect attention mine x --html", "-o FILE.html"),
        # what is missing, or too much
        ("generate", 'for example: minitf generate last "The file is" --temperature 0.7'),
        ("export mine folder", "-o folder"),
        ("export mine -o folder --format gguf", "--to FORMAT"),
        ("evaluate mine my.txt", "--data my.txt"),
        ("evaluate mine no.txt", "see `minitf evaluate --help`"),
    ],
)
def test_a_guess_is_answered_by_the_right_command(typed: str, answer: str) -> None:
    done = minitf(*shlex.split(typed))
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.partition("; ")[2].startswith(answer), done.stderr


@pytest.mark.parametrize(
    ("typed", "answer", "exit_code"),
    [
        (
            "finetune mine reviews.csv",
            "mine is a run, whose recipe would train from scratch on these data; `minitf finetune sst2-nano"
            " data.train=reviews.csv model.init_from=mine` starts from its weights",
            2,
        ),
        (
            "finetune outputs/mine my.txt",
            "`minitf finetune outputs/mine data.train=my.txt model.init_from=outputs/mine`",
            2,
        ),
        ("evaluate my.txt", "no such run: my.txt; the run comes first: `last` is the newest", 5),
        ("export mine -o model.onnx", "a folder is written, not a file; --to onnx -o model", 2),
        ("export mine -o model.pt", "a folder is written, not a file; -o model", 2),
        ("generate lats x", "no such run: lats; did you mean last?", 5),
        ("generate nowhere x", "no such run: nowhere; `minitf runs list` lists all runs", 5),
        ("generate mine x --temperature 1000", "--temperature: must be at most 100, got 1000", 2),
        ("generate mine x --step many", "no such checkpoint: 'many'; use a step number, `last` or `best`", 2),
        (
            "pretrain val=0.1",
            "command line: val=0.1: no such key; did you mean data.split (a share such as 10%; data.val names a file)?",
            3,
        ),
        ("inspect positions mine --device gpu", "--device 'gpu': must be auto, cpu, cuda, cuda:N or mps", 2),
    ],
)
def test_a_guess_that_is_a_command_is_not_misunderstood(typed: str, answer: str, exit_code: int) -> None:
    refused(minitf(*typed.split()), answer, exit_code=exit_code)


def test_a_key_is_listed_by_its_last_word() -> None:
    lines = minitf("recipe", "keys", "lr").stdout.splitlines()
    assert lines
    assert {line.split()[0] for line in lines} == {"optimizer.lr"}


def test_other_words_for_views_are_of_one_view_and_no_view_themselves() -> None:
    views = listing("inspection")
    of = {word: settings_of("inspection", word) for word in views}
    named = [alias for view in of.values() if issubclass(view, ViewSettings) for alias in view.ALIASES]
    assert len(set(named)) == len(named)
    assert not {*named} & {*views}
    assert {view_called(alias) for alias in named} == {*views} - {None}
    assert view_called("nonsense") is None


BEFORE_TORCH = (
    "generate nowhere x",
    "chat nowhere",
    "generate mine x --temperature 1000",
    "generate mine reviews.csv",
    "generate mine x --step 7",
    "predict nowhere x",
    "predict mine x --device gpu",
    "evaluate nowhere",
    "evaluate mine --step best",
    "export nowhere -o folder",
    "import hf:a/b/c",
    "inspect model nowhere",
    "inspect attention mine x -o heads.xyz",
    "inspect softmax mine --no-such",
    "runs show nowhere",
    "runs rm nowhere --yes",
    "runs compare nowhere mine",
)


def test_what_is_wrong_with_a_command_line_is_said_before_torch_is_imported() -> None:
    code = ["import sys; from mini_tf.cli.app import main"]
    for line in BEFORE_TORCH:
        code.append(
            f"try: main({line.split()!r})\nexcept SystemExit as leaving: assert leaving.code in (2, 5), {line!r}"
        )
        code.append(f"assert 'torch' not in sys.modules, {line!r}")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == len(BEFORE_TORCH)
