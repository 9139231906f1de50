"""What people who know other tools type first: it is done, or answered with the one command that does it."""

import csv
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from commands import DATA, QUIET, TINY, minitf, refused

from mini_tf.data.formats import data_files
from mini_tf.data.formats.data_files import find_files
from mini_tf.inspection._heads import parse_indices
from mini_tf.recipe import reading
from mini_tf.recipe.arguments import split_arguments
from mini_tf.recipe.keys import keys, suggest_key
from mini_tf.recipe.parsing.key_names import OTHER_NAMES
from mini_tf.run.task_arguments import command_warning
from mini_tf.system.errors import DataFault, UsageFault

TEXT = (DATA / "tiny.txt").read_text()
OPINIONS = [("a nice room", "good"), ("a dull room", "bad"), ("a nice song", "good"), ("a dull song", "bad")]


@pytest.fixture(autouse=True)
def _among_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.txt").write_text(TEXT)
    Path("more.txt").write_text(f"Another text. {TEXT[:3000]}")
    with open("reviews.csv", "w", newline="") as file:
        csv.writer(file).writerows(
            [("id", "review", "stars"), *((n, f"{text} {n}", label) for n, (text, label) in enumerate(OPINIONS * 8))]
        )


def given(*arguments: str) -> tuple[str | None, object]:
    recipe, overrides = split_arguments(arguments)
    return recipe, reading.read("quickstart", overrides).recipe.data.train


@pytest.mark.parametrize("name", ["lib.py", "notes.md", "val.de", "train.log", "a.TXT"])
def test_a_text_of_any_suffix_is_data(name: str) -> None:
    Path(name).write_text("x: y: z\n")
    assert given(name) == (None, str(Path(name).absolute()))


def test_a_folder_of_texts_is_data_but_a_run_or_a_model_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("texts/more/.hidden").mkdir(parents=True)
    for file in ("texts/b.md", "texts/more/a.txt", "texts/more/.hidden/c.txt"):
        Path(file).write_text(file)
    recipe, pattern = given("texts/")
    assert recipe is None
    assert [file.name for file in find_files(pattern)] == [
        str(Path(f"texts/{name}").absolute()) for name in ("b.md", "more/a.txt")
    ]
    Path("texts/config.json").write_text("{}")
    assert split_arguments(["texts"]) == ("texts", [])
    monkeypatch.setattr(data_files, "MAX_FILES", 1)
    with pytest.raises(DataFault, match="texts has more than 1 files"):
        find_files("texts")
    refused(minitf("pretrain", "texts"), "model.init_from=texts starts from a model", exit_code=3)


def test_a_list_in_a_json_file_is_data_and_a_mapping_a_recipe() -> None:
    Path("list.json").write_text(' [{"text": "a"}]')
    Path("mapping.json").write_text('{"train": {"steps": 1}}')
    assert split_arguments(["list.json", "mapping.json"]) == ("mapping.json", ["data.train=list.json"])
    refused(minitf("pretrain", "list.json"), "jq -c '.[]' list.json > list.jsonl", exit_code=4)
    Path("list.jsonl").write_text("what it would overwrite")
    refused(minitf("pretrain", "list.json"), "jq -c '.[]' list.json > list-2.jsonl", exit_code=4)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("predict", "run", "reviews.csv"), "reviews.csv is a file, not a text; --input reviews.csv reads"),
        (("generate", "run", "my.txt"), "my.txt is a file, not a text; --input my.txt reads"),
        (("generate", "run", "A", "top_p=0.5"), "top_p=0.5 is a setting, not a text; write it as --top-p 0.5"),
        (("generate", "run", "2+2=4"), "no such run: run"),
        (("predict", "run", "seed=3"), "no such run: run"),
        (("sweep", "quickstart", "train.seed=1,2", "data.train=-"), "stdin can be read by one process only"),
    ],
)
def test_a_file_or_a_setting_in_place_of_a_text_is_refused(arguments: tuple[str, ...], line: str) -> None:
    refused(minitf(*arguments), line, exit_code=5 if "no such" in line else 2)


@pytest.mark.parametrize("name", ["gpt2", "hf:gpt2", "bert-base-uncased", "google/t5-v1_1-small", "pythia-70m"])
def test_a_model_of_the_hub_is_no_recipe_and_says_what_it_is(name: str) -> None:
    refused(
        minitf("pretrain", name), f"model.init_from=hf:{name.removeprefix('hf:')}", exit_code=3 if "/" in name else 2
    )


def test_files_of_data_are_what_is_trained_on() -> None:
    assert given("my.txt") == (None, str(Path("my.txt").absolute()))
    assert given("quickstart", "my.txt", "train.steps=3") == ("quickstart", str(Path("my.txt").absolute()))
    assert given("my.txt", "more.txt") == (None, (str(Path("my.txt").absolute()), str(Path("more.txt").absolute())))
    Path("[odd] it's.txt").write_text("x")
    assert given("[odd] it's.txt") == (None, str(Path("[odd] it's.txt").absolute()))
    assert split_arguments(["there.is.none.txt"])[0] == "there.is.none.txt"
    refused(minitf("pretrain", TINY, "my.txt", "data.train=more.txt"), "'my.txt' and data.train both give", exit_code=2)
    done = minitf("pretrain", TINY, "my.txt", *QUIET, "train.steps=1", "-d", "run")
    assert done.exit_code == 0, done.stderr
    assert Path("run/resolved.yaml").read_text().startswith(f"data:\n  train: {Path('my.txt').absolute()}\n")


def test_a_text_that_begins_with_a_dash_is_told_to_stand_behind_two() -> None:
    for command in (("generate",), ("predict",), ("inspect", "attention"), ("inspect", "tokens")):
        done = minitf(*command, "run", "- a film")
        refused(done, "No such option: - ; a text that begins with - stands behind --: -- '- a film'", exit_code=2)
    for option in ("--tpo", "--my_top=3"):
        name = option.partition("=")[0]
        refused(
            minitf("predict", "run", option), f"No such option: {name}", "; see `minitf predict --help`", exit_code=2
        )


def test_the_nearest_file_is_named() -> None:
    refused(minitf("pretrain", "myy.txt"), "no such file myy.txt; did you mean 'my.txt'?", exit_code=2)


@pytest.mark.parametrize("name", ["none.txt", "none.csv", "there/none.jsonl"])
def test_a_file_of_data_that_is_not_there_is_called_that(name: str) -> None:
    refused(minitf("pretrain", name), f"no such file {name}", exit_code=2)


def test_data_without_a_task_are_answered_with_commands_that_name_one() -> None:
    refused(
        minitf("finetune", "my.txt"),
        "a task needs labeled data; use a table with a text and a label in each row",
        exit_code=2,
    )
    done = minitf("finetune", "reviews.csv", "train.steps=1")
    refused(done, "no recipe given", "`minitf finetune sst2-nano reviews.csv train.steps=1`", exit_code=2)
    Path("more.csv").write_text(Path("reviews.csv").read_text())
    several = minitf("finetune", "reviews.csv", "more.csv")
    refused(several, "`minitf finetune sst2-nano reviews.csv more.csv`", exit_code=2)
    refused(minitf("finetune", "data.train=[reviews.csv, my.txt]"), "a task needs labeled data", exit_code=2)
    refused(
        minitf("finetune", "data.train=words.conll"),
        "`minitf finetune wnut17-nano data.train=words.conll`",
        exit_code=2,
    )


SMALL = (
    "model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2}",
    "train.steps=1",
    "train.batch_size=4",
    "tokenizer.kind=char",
)


def test_a_table_is_read_by_what_its_columns_are_called_even_where_a_recipe_counts_those_of_another() -> None:
    done = minitf("finetune", "sst2-nano", "reviews.csv", *SMALL, *QUIET, "train.epochs=null", "-d", "run")
    assert done.exit_code == 0, done.stderr
    assert (
        f"{Path('reviews.csv').absolute()}: columns read: text = 'review', label = 'stars'; data.fields selects others"
        in done.stderr
    )
    assert json.loads(Path("run/config.json").read_text())["labels"]["names"] == ["bad", "good"]


def test_a_column_of_sentences_is_not_taken_for_labels() -> None:
    done = minitf("finetune", "sst2-nano", "reviews.csv", "data.fields={text: id, label: review}", "--dry-run")
    refused(
        done,
        "different labels among",
        "their column does not seem to be the label",
        "data.fields={text: COLUMN, label: COLUMN}",
    )


@pytest.mark.parametrize(
    ("suffix", "separator", "answer"),
    [
        ("csv", ",", "data.header=false 'data.fields={text: 0, label: 1}'"),
        ("tsv", "\t", "data.header=false 'data.fields={text: 0, label: 1}'"),
        ("csv", ";", "tr ';' '\\t' < FILE > FILE.tsv; with data.header=false if the first row is no header"),
    ],
)
def test_a_table_without_a_header_is_answered_with_the_setting(suffix: str, separator: str, answer: str) -> None:
    words = [("lovely", "good"), ("awful", "bad")]
    sentences = [(f"{text} {n}", label) for n in range(12) for text, label in OPINIONS]
    for rows in (words, sentences):
        Path(f"bare.{suffix}").write_text("".join(f"{text}{separator}{label}\n" for text, label in rows))
        refused(minitf("finetune", "classify-nano", f"bare.{suffix}", "--dry-run"), answer)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("pretrain quickstart --steps 100", "train.steps=100"),
        ("finetune quickstart --data.train my.txt", "data.train=my.txt"),
        ("cost quickstart --train.steps=50", "train.steps=50"),
        ("pretrain quickstart --learning-rate 3e-4", "optimizer.lr=3e-4"),
        ("finetune quickstart --block_size=64", "train.context=64"),
        ("cost quickstart --vocab-size", "tokenizer.vocab_size=VALUE"),
        ("pretrain quickstart --max_steps -q", "train.steps=VALUE"),
        ("finetune quickstart --d_model=8", "model.d_model=8"),
        ("cost quickstart --attention.kind=window", "model.attention.kind=window"),
    ],
)
def test_a_setting_given_as_an_option_is_answered_as_a_key(written: str, meant: str) -> None:
    refused(minitf(*written.split()), f"settings are written without dashes: {meant}\n", exit_code=2)


def test_every_name_of_other_tools_means_a_key_and_nonsense_none() -> None:
    known = {key.name for key in keys()}
    for name in OTHER_NAMES:
        assert str(suggest_key(f"--{name}")).partition("=")[0] in known, name
    assert suggest_key("--zzzzzz") is None
    refused(
        minitf("evaluate", "run", "--steps", "3"), "see `minitf evaluate --help`", exit_code=2
    )  # which takes no keys


def test_blanks_around_an_equals_sign_are_answered_without_them() -> None:
    refused(
        minitf("pretrain", "train.steps", "=", "50"),
        "'=' is not KEY=VALUE; write it without spaces: train.steps=50",
        exit_code=2,
    )


@pytest.mark.parametrize(
    ("given", "exit_code"), [("data.train=https://example.com/a.txt", 4), ("https://example.com/a.txt", 3)]
)
def test_an_address_is_answered_with_how_to_download_it(given: str, exit_code: int) -> None:
    refused(
        minitf("pretrain", given),
        "minitf does not download files; download it first: curl -LO https://example.com/a.txt",
        exit_code=exit_code,
    )


def test_a_tab_in_yaml_is_named() -> None:
    Path("tab.yaml").write_text("data:\n\ttrain: my.txt\n")
    refused(
        minitf("pretrain", "tab.yaml"),
        "tab.yaml:2:1: not YAML: the line is indented by a tab; YAML requires spaces",
        exit_code=3,
    )


@pytest.mark.parametrize("override", ["model.n_heads=7", "model.d_model=100", "train.context=9", "model.d_k=3"])
def test_a_fault_of_the_command_line_is_not_laid_at_the_door_of_the_presets_file(override: str) -> None:
    done = minitf("pretrain", "quickstart", override, "train.batch_tokens=8", "--print-config")
    refused(
        done,
        f"command line: {override}" if "context" not in override else "command line: train.batch_tokens=8",
        exit_code=3,
    )
    assert all(line.startswith("command line: ") for line in done.stderr.splitlines())


def test_a_vocabulary_that_the_text_does_not_bear_and_a_context_that_it_does_not_fill_are_warned_of() -> None:
    done = minitf(
        "pretrain", TINY, "my.txt", *QUIET, "tokenizer={kind: bpe, vocab_size: 50k}", "train.steps=1", "-d", "run"
    )
    assert done.exit_code == 0, done.stderr
    assert "(tokenizer.vocab_size is 50,000, but the data yield no more) is large for" in done.stderr
    Path("short.txt").write_text(TEXT[:600])
    small = ("tokenizer={kind: bpe, vocab_size: 301}", "train.context=600", "train.batch_size=1", "train.steps=1")
    done = minitf("pretrain", TINY, "short.txt", *QUIET, *small, "-d", "short")
    assert "a vocabulary of 301 is large for" in done.stderr
    assert "train.context 600 is longer than the training data of" in done.stderr
    fits = int(done.stderr.partition("train.context=")[2].partition(" ")[0])
    again = minitf("pretrain", TINY, "short.txt", *QUIET, f"train.context={fits}", "train.steps=1", "-d", "fitting")
    assert "is longer than" not in again.stderr
    assert "is large for" not in again.stderr  # characters choose no size


def test_more_validation_than_training_data_are_warned_of() -> None:
    """Of twelve documents one is long; the split is 1 : 90 where that one is held out."""
    held_out, words = set[bool](), " ".join(TEXT.split())
    for long in range(5):
        Path("few.txt").write_text(
            "\n\n".join(f"document {n}: {words[: 6000 if n == long else 60]}" for n in range(12))
        )
        said = minitf("pretrain", TINY, "few.txt", *QUIET, "data.split=40%", "--dry-run").stderr
        is_held_out = int(re.findall(r"([\d,]+) validation tokens", said)[0].replace(",", "")) > 5000
        warning = "training data: whole documents are held out, and these differ in length; give data.val"
        assert (warning in said) == is_held_out
        held_out.add(is_held_out)
        if len(held_out) == 2:
            return
    raise AssertionError(f"of five long documents all or none are held out: {held_out}")


def test_validation_data_of_a_classifier_are_examples() -> None:
    more = ("data.split=40%", "eval.tokens=20", "eval.every_steps=1", "train.steps=2", "tokenizer.vocab_size=300")
    said = minitf("finetune", "sst2-nano", "reviews.csv", *QUIET, *more, "--dry-run").stderr
    assert re.search(r"on a fixed sample of \d+ of (\d+) validation examples; at the end, on all of them", said), said


def test_many_epochs_are_warned_of() -> None:
    for epochs, is_many in ((300, True), (20, False)):
        said = minitf("pretrain", TINY, "my.txt", *QUIET, f"train.epochs={epochs}", "--dry-run").stderr
        warning = f"{epochs} epochs: the model will memorize the training data; more data would help"
        assert (warning in said) == is_many


def test_fine_tuning_that_begins_with_nothing_says_so() -> None:
    done = minitf("finetune", TINY, *QUIET, "train.steps=1", "-d", "run")
    assert done.exit_code == 0
    assert (
        "warning: tiny trains from scratch, as `minitf pretrain tiny` does; model.init_from=RUN starts from the weights"
        " of a run" in done.stderr
    )


def test_a_pattern_of_files_and_stdin_stand_where_a_recipe_stands() -> None:
    Path("notes").mkdir()
    for name in ("1.txt", "2.txt"):
        Path("notes", name).write_text(f"The cat {name} sat on the mat, and the dog saw it there.\n" * 200)
    both = "".join(Path("notes", name).read_text() for name in ("1.txt", "2.txt"))
    for argument, stdin in (("notes/*.txt", ""), ("-", both)):
        short, full = (minitf("data", "stats", word, stdin=stdin) for word in (argument, f"data.train={argument}"))
        assert short.exit_code == 0, short.stderr
        assert short.stdout == full.stdout
    refused(minitf("pretrain", "notes/*.md"), "notes/*.md", "no such file", exit_code=3)


def test_a_run_that_gets_other_data_is_said_to_be_a_recipe_only() -> None:
    assert minitf("pretrain", TINY, *QUIET, "train.steps=1", "-d", "first").exit_code == 0
    Path("my.txt").write_text("The cat sat on the mat, and the dog saw it there.\n" * 400)
    run = Path("first").resolve()
    warning = f"warning: only the recipe of {run} is used, not its weights; model.init_from={run} starts from them"
    for words, said in (
        (("my.txt",), True),
        (("my.txt", "model.init_from=first"), False),
        (("train.seed=1",), False),
    ):
        done = minitf("pretrain", "first", *words, *QUIET, "train.steps=1", "--fresh", "-d", "other")
        assert done.exit_code == 0, done.stderr
        assert (warning in done.stderr) == said
        assert "--extend" not in done.stderr


def test_a_run_that_gets_another_number_of_steps_begins_anew_and_says_how_it_goes_on() -> None:
    assert minitf("pretrain", TINY, *QUIET, "train.steps=1", "-d", "first").exit_code == 0
    run = Path("first").resolve()
    for words, more in (
        (("train.steps=1k",), "999"),
        (("train.steps=3", "train.seed=1"), None),
        (("train.steps=3", "-n", "other"), None),
        (("train.steps=3", "--fresh"), None),
        (("train.epochs=1",), None),
    ):
        done = minitf("pretrain", "first", *words, "--dry-run")
        assert done.exit_code == 0, done.stderr
        further = f"`minitf pretrain {run} --extend {more}` trains {run} further\n"
        assert (f"warning: this is another run, from scratch; {further}" in done.stderr) == (more is not None)


def test_a_file_that_is_called_validation_is_said_to_be_trained_on() -> None:
    for names, held_out in ((("a.txt", "my_val.txt"), "my_val.txt"), (("a.txt", "values.txt"), None)):
        resolved = reading.read("quickstart", [f"data.train=[{', '.join(names)}]"])
        warning = command_warning("pretrain", resolved)
        assert (warning or "").startswith(f"{held_out} is trained on, too; data.val=") == (held_out is not None)
        assert (warning is None) == (held_out is None)
    apart = reading.read("quickstart", ["data.train=[a.txt, val.txt]", "data.val=val.txt"])
    assert command_warning("pretrain", apart) is None


def test_a_head_by_the_name_that_is_printed_is_answered_with_its_options() -> None:
    with pytest.raises(UsageFault) as refused:
        parse_indices("--head", "L0H1", 4)
    assert refused.value.hint == "--layer 0 --head 1"


def test_a_tokenizer_is_chosen_by_its_kind_alone() -> None:
    short, full = (reading.read("quickstart", [f"tokenizer{way}"]).recipe for way in ("=char", "={kind: char}"))
    assert short == full
    assert short.tokenizer.kind == "char"


def test_a_run_by_its_name_is_itself_and_not_the_fresh_one_beside_it() -> None:
    steps = (TINY, *QUIET, "train.steps=1", "-n", "mine")
    for options, name in (((), "mine"), (("--fresh",), "mine.2"), ((), "mine.2")):
        assert minitf("pretrain", *steps, *options).stdout == f"{Path('outputs', name).resolve()}\n"
    for name in ("mine", "outputs/mine", "mine.2"):
        done = minitf("pretrain", name)
        assert "already complete" in done.stderr
        assert done.stdout == f"{Path('outputs', Path(name).name).resolve()}\n"


def test_more_steps_under_the_name_of_a_finished_run_are_answered_with_extend() -> None:
    steps = (TINY, *QUIET, "-d", "run")
    assert minitf("pretrain", *steps, "train.steps=2").exit_code == 0
    done = minitf("pretrain", *steps, "train.steps=5")
    refused(done, f"train.steps: 2 -> 5; `minitf pretrain {Path('run').resolve()} --extend 3` trains it", exit_code=5)
    assert minitf("pretrain", "run", "--extend", "3").exit_code == 0
    refused(minitf("pretrain", *steps, "train.steps=5"), "train.steps: 2 -> 5; it has reached step 5", exit_code=5)
    refused(minitf("pretrain", *steps, "train.steps=9"), "`minitf pretrain /", " --extend 4` trains it", exit_code=5)
    for others in (("train.steps=1",), ("train.steps=5", "train.seed=1")):
        done = minitf("pretrain", *steps, *others)
        assert done.exit_code == 5
        assert "--extend" not in done.stderr


@pytest.mark.parametrize("source", ["a pipe", "an empty pipe", "a file", "an empty file", "read"])
def test_a_stdin_that_nothing_reads_is_said(source: str) -> None:
    """By a run that is refused right behind it, since its folder is a file."""
    Path("stdin.txt").write_text("" if source == "an empty file" else "a cat")
    reads, writes = os.pipe()
    os.write(writes, b"" if source == "an empty pipe" else b"a cat")
    data = "-" if source == "read" else "data.train=grammar"
    with open("stdin.txt") as file, open(reads) as pipe, open(writes, "w"):
        done = minitf("pretrain", data, TINY, "-d", "my.txt", stdin=pipe if "pipe" in source else file)
    note = f"stdin is not read; `minitf pretrain {data} {TINY} -d my.txt -` trains on it\n"
    assert (note in done.stderr) == (source in ("a pipe", "a file")), done.stderr
    assert done.exit_code == 5


def test_a_task_under_the_name_of_pretraining_is_told_its_command() -> None:
    done = minitf("pretrain", "sst2-nano", "reviews.csv", *SMALL, *QUIET, "train.epochs=null", "-d", "run")
    assert done.exit_code == 0, done.stderr
    assert (
        "warning: sst2-nano is a task recipe; its command is `minitf finetune sst2-nano`, which does the same"
        in done.stderr
    )


def test_without_a_recipe_only_tags_alone_are_for_the_tagger() -> None:
    for files, recipe in (
        ("a.conll", "wnut17-nano"),
        ("[a.conll, b.conllu]", "wnut17-nano"),
        ("[a.conll, b.csv]", "sst2-nano"),
    ):
        refused(minitf("finetune", f"data.train={files}"), f"`minitf finetune {recipe} ", exit_code=2)


def test_a_run_as_the_only_argument_is_continued_and_with_settings_a_recipe() -> None:
    steps = ("train.steps=4", "checkpoint.every_steps=2", "checkpoint.keep_last=2", *QUIET)
    assert minitf("pretrain", TINY, *steps, "-n", "whole").exit_code == 0
    shutil.copytree("outputs/whole", "outputs/stopped")
    shutil.rmtree("outputs/stopped/checkpoints/step-00000004")
    record = json.loads(Path("outputs/stopped/run.json").read_text())
    stopped = {"state": "stopped", "exit_code": 143, "step": 2, "best": None, "model": None}
    Path("outputs/stopped/run.json").write_text(json.dumps(record | stopped))
    done = minitf("pretrain", "outputs/stopped")
    assert done.stdout == f"{Path('outputs/stopped').absolute()}\n"
    assert "continuing" in done.stderr
    assert "from step 2" in done.stderr
    assert (
        Path("outputs/stopped/model.safetensors").read_bytes() == Path("outputs/whole/model.safetensors").read_bytes()
    )
    for run in ("outputs/stopped", "stopped", "last"):
        assert "already complete: " + str(Path("outputs/stopped").absolute()) in minitf("pretrain", run).stderr
    os.symlink("outputs/stopped", "link")
    assert "already complete: " + str(Path("outputs/stopped").absolute()) in minitf("pretrain", "link").stderr
    refused(
        minitf("pretrain", TINY, *steps, "-d", "link"),
        f"use the folder that the link points to: -d {Path('outputs/stopped').resolve()}",
        exit_code=5,
    )
    other = minitf("pretrain", "outputs/stopped", "train.seed=7", "--dry-run")
    assert "already complete" not in other.stderr
    assert other.exit_code == 0
    assert sorted(os.listdir("outputs")) == ["stopped", "whole"]


def test_a_run_that_has_lost_its_recipe_says_so_and_the_same_command_writes_it_again() -> None:
    steps = ("train.steps=1", *QUIET)
    assert minitf("pretrain", TINY, *steps, "-n", "whole").exit_code == 0
    recipe = Path("outputs/whole/resolved.yaml").read_text()
    Path("outputs/whole/resolved.yaml").unlink()
    for command in (("pretrain", "whole"), ("recipe", "show", "outputs/whole"), ("generate", "last", "Once")):
        refused(
            minitf(*command),
            "without a resolved.yaml; this run has lost it; the command that started the run",
            exit_code=5 if command[0] == "generate" else 3,
        )
    assert "already complete" in minitf("pretrain", TINY, *steps, "-n", "whole").stderr
    assert Path("outputs/whole/resolved.yaml").read_text() == recipe
    assert minitf("pretrain", "whole").exit_code == 0
