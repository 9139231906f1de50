"""Every command of the pages for users runs, what they show is what the commands print, and their tables are true.

Blocks run in a real shell whose `minitf` is a fork of this process. `pages.py` has the pages, and writes outputs and
pictures into them.
"""

import json
import math
import re
import shlex
import shutil
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import Any

import pages
import pytest
import shell
from data_of import shorten_corpora
from processes import launched_by_forks
from shared import once

from mini_tf.cli.app import app
from mini_tf.cli.usage.commands import COMMANDS
from mini_tf.cost import lengths
from mini_tf.drawing import canvas
from mini_tf.parallel import launching
from mini_tf.recipe import arguments
from mini_tf.recipe.arguments import presets
from mini_tf.recipe.kinds import kinds_of, listing
from mini_tf.recipe.reading import read
from mini_tf.system import errors, limits

ROOT = Path(__file__).parents[2]
COST = "train.batch_size=4 eval.tokens=100 runtime.threads=1 generate.max_new_tokens=8"
SMALL = f"{COST} eval.every_steps=2 log.samples=0 eval.translations=2"
FEW_STEPS = f"train.steps=2 {SMALL}"
FEW_TOKENS = "data.split=4%"
"""For a preset on its own corpus: evaluations on all validation data take most of the time."""
LONG_FILE = r"^(python -c .*|    print.*) > (\S+)$"
FEWER = {
    "documents(seed=1, n=1000)": "documents(seed=1, n=120)",
    **{"seeds: 3": "seeds: 2", "train.seeds=5": "train.seeds=2", "-n opinions-wide": "-n opinions-wide train.seeds=2"},
    **{"train.seed=1..3": "train.seed=1..2", "[0.01,0.04,0.16]": "[0.01,0.04]"},
    **{"for n in 20 50 100": "for n in 20 50", "rows-20 rows-50 rows-100": "rows-20 rows-50"},
}
"""Two seeds, two values of a sweep and two sizes go the way of more."""
WIDTH = 120
README, RECIPES, INSPECTION, RUNS = (
    pages.text_of(page)
    for page in ("README.md", "recipes/README.md", "mini_tf/inspection/README.md", "mini_tf/run/README.md")
)


SIZES = {
    **{r"\b(d_model|d_latent): \d+": r"\1: 48", r"d_ff: \d\d+": "d_ff: 64"},
    r"ngrams: \[.*?\]": "ngrams: [50, 300, 300]",
}


def small_recipes(folder: Path) -> Path:
    """The shipped recipes with narrow models, whose layers and heads are as many as in the pages."""
    for name, file in presets().items():
        text = file.read_text()
        for size, small in SIZES.items():
            text = re.sub(size, small, text)
        (folder / f"{name}.yaml").write_text(text)
    return folder


def few_steps(block: pages.Block) -> str:
    """The commands as printed, but with models that are hardly trained, and no bounds."""
    script = re.sub(r" --assert '[^']*'", "", block.script)
    script = re.sub(r"--lengths \d+\.\.\d+", "--lengths 16..64", script)
    script = re.sub(LONG_FILE, r"\1 > all.txt\nhead -n 1000 all.txt > \2", script, flags=re.MULTILINE)
    for many, few in FEWER.items():
        script = script.replace(many, few)
    if block.name == "crash":  # its run diverges, which is exit code 7
        diverge, replay = script.replace("quickstart", f"quickstart {SMALL}").splitlines()
        return f"{diverge.partition('#')[0]} || test $? -eq 7\n{replay}\n"
    script = re.sub(r" train\.(steps|batch_size|epochs)=\d+", "", script)  # the last one on a line would be used
    script = re.sub(r"minitf cost (?!.*--lengths)([^#\n]*)", rf"minitf cost --seconds 0.1 \1 {COST} ", script)
    script = re.sub(r"minitf (pretrain|finetune|sweep) ([^ )]+)", rf"minitf \1 \2 {FEW_STEPS}", script)
    # On the way only where the log of a run is compared; a page needs no curve.
    script = re.sub(r"eval.every_steps=2( .*-n (first|opinions|answers)\b)", r"eval.every_steps=1\1", script)
    own = "|".join(
        name for name in presets() if read(name).recipe.data.train != "translate-toy"
    )  # has validation data of its own
    return re.sub(rf"minitf pretrain ({own}) (?!.*data\.)", rf"minitf pretrain \1 {FEW_TOKENS} ", script)


@cache
def shared_runs() -> list[str]:
    """The commands that train the same run on several pages."""
    lines = [set(few_steps(block).splitlines()) for page in pages.PAGES for block in pages.blocks(page)]
    counted = Counter(line for block in lines for line in block if re.fullmatch(r"minitf pretrain .* -n \w+", line))
    return [line for line, n in counted.items() if n > 1]


def copied(script: str, factory: pytest.TempPathFactory) -> str:
    """A script whose shared runs are copies: each is trained once."""

    def train(folder: Path, line: str) -> Path:
        assert shell.run(line, folder).returncode == 0
        return folder / "outputs" / line.split()[-1]

    for line in shared_runs():
        if line in script.splitlines():
            run = once(factory, "run-" + line.split()[-1], partial(train, line=line))
            script = f"mkdir -p outputs\n{script}".replace(f"{line}\n", f"cp -r {run} outputs/\n")
    return script


def ran(page: str, factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which a page was run from beginning to end, and what its commands printed."""

    def go(folder: Path) -> Path:
        shutil.copytree(ROOT / "data", folder / "data")
        pages.prepare(folder)
        recipes = once(factory, "small-recipes", small_recipes)
        with pytest.MonkeyPatch.context() as patch:
            shorten_corpora(patch)
            patch.setattr(arguments, "_folders", partial(list, [recipes]))
            patch.setattr(lengths, "MIN_REPETITIONS", 1)
            patch.setattr(canvas, "_DPI", 30)
            patch.setattr(launching, "subprocess", launched_by_forks())
            done = shell.run(copied("\n".join(map(few_steps, pages.blocks(page))), factory), folder)
        assert done.returncode == 0, done.stderr[-3000:]
        (folder / "printed.txt").write_text(done.stdout + done.stderr)
        return folder / "printed.txt"

    printed = once(factory, "page-" + page.replace("/", "-"), go)
    return printed.parent, printed.read_text()


LONG = [f"mini_tf/papers/{paper}/README.md" for paper in ("performer", "key_value_memories")]
"""Pages whose commands take long, so that they and their pictures are tried by `pytest -m slow`; what they call has
tests of its own.
"""


def marks(page: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if page in LONG else []


@pytest.mark.parametrize("page", [pytest.param(page, marks=marks(page)) for page in pages.PAGES])
def test_every_command_of_a_page_runs(page: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, _ = ran(page, tmp_path_factory)
    assert [path for path in folder.glob("*.png") if not path.read_bytes().startswith(b"\x89PNG")] == []


CHECKED = {
    "README.md": ("first.log",),
    "recipes/README.md": ("opinions.log", "answers.log", "evaluate answers"),
    "mini_tf/pipelines/README.md": ("evaluate toy",),
    "mini_tf/inspection/README.md": ("word bat",),
    "mini_tf/jobs/README.md": ("cost",),
}
"""Outputs whose words depend neither on what a model learned nor on the precision of the machine."""


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, names in CHECKED.items() for name in names])
def test_an_output_has_the_words_that_its_command_prints_today(
    page: str, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, printed = ran(page, tmp_path_factory)
    logs = "".join(path.read_text() for path in folder.glob("outputs/*/log.txt"))
    now = {beginning(line.partition(" ")[2]) for line in logs.splitlines()} | {
        beginning(line) for line in printed.splitlines()
    }
    shown = [
        line for line in pages.outputs(page)[name].splitlines() if not line.startswith("baseline")
    ]  # left out in tests
    assert [line for line in shown if beginning(line) and beginning(line) not in now] == []


def beginning(line: str) -> str:
    """The words of a line before its first number, precision or quotation; nothing for a line of a map."""
    line = " ".join(line.split())  # a table is wider with the names of baselines
    words = re.match(r"[A-Za-z_ :,().-]*", re.sub(r"\b(bf16|fp16|fp32)\b", "0", line))
    found = words[0].rstrip(" :,(.-") if words else ""
    return found if len(found) > 3 else ""


ALL_PICTURES = [(page, name) for page in pages.PAGES for name in pages.pictures(page)]
OF_RUNS = {
    "quickstart-loss",
    "confusion-people",
    "calibration-opinions",
    "long-text",
    "word-bat-minilm",
    "film",
    "induction-film",
    "sweep",
}
"""Pictures of a page, or of what files of a run or of a benchmark, `evaluate --json`, or a model that is not here hold
as numbers.
"""


def test_pictures_are_there() -> None:
    assert len(ALL_PICTURES) >= 8
    assert {name for _, name in ALL_PICTURES} <= {file.name for file in (ROOT / "data" / "pictures").iterdir()}


@pytest.mark.parametrize(
    ("page", "name"),
    [
        pytest.param(page, file.removesuffix(".png"), marks=marks(page))
        for page, file in ALL_PICTURES
        if page != "README.md" and Path(file).stem not in OF_RUNS
    ],
)
def test_a_picture_has_a_twin_in_json_of_the_form_that_its_command_writes_today(
    page: str, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, _ = ran(page, tmp_path_factory)
    twin, fresh = (json.loads((place / f"{name}.json").read_text()) for place in (ROOT / "data" / "pictures", folder))
    assert form(twin) == form(fresh)
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def form(value: Any) -> Any:
    """What a JSON document says about what: its keys, and the items of a list as a set, without the measured values."""
    if isinstance(value, dict):
        return {key: form(item) for key, item in value.items() if key not in FREE}
    if isinstance(value, list):
        return sorted({json.dumps(form(item), sort_keys=True) for item in value})
    return value if isinstance(value, str) else "number"


FREE = {
    "target",
    "alignments",
    "target_tokens",
    "target_ids",
    "target_words",
    "target_word_of_token",
    "role",
    "tokens",
    "ids",
    "words",
    "word_of_token",
    "pieces",
    "layer",
    "head",
    "notes",
    "induction",
    "same",
    "query",
}
"""Keys whose values depend on the model and the tokenizer, which a test trains for a few steps only."""


def test_the_measures_beside_a_picture_are_those_of_its_maps() -> None:
    """Of the committed picture: entropies and shares computed anew from the weights in its twin."""
    twin = json.loads((ROOT / "data" / "pictures" / "attention-heads.json").read_text())
    [sample] = twin["samples"]
    assert len(sample["heads"]) == 12
    for head in sample["heads"]:
        rows = head["matrix"]
        assert [sum(row) for row in rows] == pytest.approx([1.0] * len(rows), abs=1e-5)
        entropies = [-sum(p * math.log(p) for p in row if p) / math.log(i + 1) for i, row in enumerate(rows) if i]
        assert head["entropy"] == pytest.approx(sum(entropies) / len(entropies), abs=1e-5)
        assert head["previous"] == pytest.approx(
            sum(row[i] for i, row in enumerate(rows[1:])) / (len(rows) - 1), abs=1e-5
        )


def test_what_the_page_prints_of_a_picture_is_what_its_twin_holds() -> None:
    twin = json.loads((ROOT / "data" / "pictures" / "attention-heads.json").read_text())
    for head in twin["samples"][0]["heads"]:
        if head["layer"] == 2 and head["role"] is not None:
            assert f"decoder self-attention L2 H{head['head']}: " in INSPECTION
            assert re.search(rf"L2 H{head['head']}: .*{head[head['role']]:.2f}", INSPECTION)
    word = json.loads((ROOT / "data" / "pictures" / "word-bat.json").read_text())
    for layer in word["layers"][1:]:
        numbers = " +".join(f"{layer[name]:.3f}" for name in ("cosine", "baseline", "corrected", "separation"))
        assert re.search(rf"^{layer['layer']} +{numbers}$", INSPECTION, re.MULTILINE)


def test_the_first_command_is_one_line_that_trains_the_default() -> None:
    found = re.search(r"<!-- first command -->\n```sh\n(.*?)```", README, re.DOTALL)
    assert found
    assert found[1].strip().endswith("&& minitf pretrain")
    assert "quickstart" in presets()


def test_ci_runs_the_readmes_test_command() -> None:
    assert "<!-- test command -->" in (ROOT / ".ci" / "run").read_text()
    found = re.search(r"<!-- test command -->\n```sh\n(.*?)```", README, re.DOTALL)
    assert found
    assert "ruff format --check . && ruff check . && mypy mini_tf && pytest -q -n auto --dist worksteal" in found[1]


@pytest.mark.parametrize("package", ["attention", "positions", "models", "objectives"])
def test_the_list_of_what_it_can_do_names_every_kind(package: str) -> None:
    listed = pages.text_of("recipes/features.md")
    assert [word for word in listing(package) if not re.search(rf"\b{word}\b", listed)] == []


def test_what_the_readme_says_of_speed_is_measured() -> None:
    """Each row has its numbers in one row of the page of measurements."""
    measured = [line for line in pages.text_of("mini_tf/jobs/README.md").splitlines() if line.startswith("|")]
    rows = [line for line in README.splitlines() if re.search(r"\| \d+(\.\d+)? \|$", line)]
    assert len(rows) >= 4
    numbers = [re.findall(r"\d[\d.,]*", row.split("|", 2)[2]) for row in rows]
    same = "101.4"  # "the same" in the second row of that page
    assert [
        row
        for row, wanted in zip(rows, numbers, strict=True)
        if not any(all(n in line or n == same for n in wanted) for line in measured)
    ] == []


def test_pages_keep_to_their_size() -> None:
    """170 lines for the README, and prose of at most 120 characters a line; commands, outputs and tables may be
    wider.
    """
    assert len(README.splitlines()) <= 170
    wide = []
    for page in (*pages.PAGES, *pages.WITHOUT_COMMANDS):
        prose = re.sub(r"```.*?```", "", pages.text_of(page), flags=re.DOTALL)
        wide += [f"{page}: {line}" for line in prose.splitlines() if len(line) > WIDTH and not line.startswith("|")]
    assert wide == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in (*pages.PAGES, *pages.WITHOUT_COMMANDS):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", pages.text_of(page)):
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page}: {target}"


def test_the_limits_are_those_in_force() -> None:
    for name, default, meaning in limits.list_limits():
        shown = limits.format_bytes(default) if name.endswith("bytes") else str(default)
        assert f"| `{name}` | {shown} | {meaning} |" in RUNS


def test_the_exit_codes_are_those_of_errors() -> None:
    meanings = {
        errors.UsageFault: "wrong usage",
        errors.RecipeFault: "recipe refused",
        errors.DataFault: "data or tokenizer refused",
        errors.RunFault: "run folder, checkpoint or model file refused",
        errors.StorageFault: "out of memory or disk",
        errors.Diverged: "training diverged",
        errors.GateMissed: "a bound was not met",
        errors.Unavailable: "a device or an optional package is missing",
    }
    for fault, meaning in meanings.items():
        assert f"| {fault.exit_code} | {meaning}" in RUNS


def test_names_of_other_tools_are_keys_here() -> None:
    """Every key that the page for users of other tools names exists, and so does every option."""
    from mini_tf.recipe.keys import keys
    from mini_tf.recipe.parsing.key_names import OTHER_NAMES, OTHER_WAYS

    page = pages.text_of("recipes/coming-from.md")
    sections = {key.name.partition(".")[0] for key in keys()}
    named = {
        word
        for word in re.findall(r"`([a-z_]+\.[a-z_.]+)`", page)
        if word.partition(".")[0] in sections and not word.endswith(".py")
    }
    known = {key.name for key in keys()}
    assert len(named) >= 15
    assert named - known == set()
    rows = re.findall(r"^\| (.*) \| .* \|$", page.partition("## Settings")[2].partition("\n[1]")[0], re.MULTILINE)
    theirs = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    answered = {*OTHER_NAMES, *OTHER_WAYS, *(name.rpartition(".")[2] for name in known)}
    assert len(theirs) > 50
    assert theirs - answered == set()


TABLES = "\n".join([RECIPES, *(pages.text_of(page) for page in pages.PAGES if page.startswith("mini_tf/papers/"))])
TABLE = {
    name: rest
    for name, *rest in re.findall(r"^\| `([a-z0-9-]+)` \|[^|]*\| ([^|]+) \| ([^|]+) \|$", TABLES, re.MULTILINE)
}
"""The tables of recipes: how long each trains, and what it reaches."""


@pytest.mark.parametrize("name", presets())
def test_what_is_promised_of_a_recipe_agrees_with_its_keys(name: str) -> None:
    """Steps or epochs, minutes (also those of its first line), and the loss that --expect checks."""
    training, reached = TABLE[name]
    recipe, first = read(name).recipe, presets()[name].read_text().splitlines()[0]
    length = {"steps": recipe.train.steps, "epochs": recipe.train.epochs}
    promised = re.match(r"([\d,.]+) (steps|epochs)", training)
    assert promised, training
    assert float(promised[1].replace(",", "")) == length[promised[2]]
    minutes = [re.search(r"about ([\d.]+) minute", text) for text in (training, first)]
    assert len({found and found[1] for found in minutes}) == 1, (training, first)
    most = recipe.expect.get("minutes")
    if minutes[0] and most is not None:
        assert float(minutes[0][1]) < float(most.lstrip("<"))
    loss, bound = re.match(r"([\d.]+) nats", reached), recipe.expect.get("val.loss")
    if loss and bound is not None:
        assert float(loss[1]) < float(bound.lstrip("<"))
    assert len(first) <= WIDTH


def test_every_command_has_examples_and_they_parse() -> None:
    """Those that --help shows: a command of that name, and options that it has."""
    from typer.main import get_command

    program: Any = get_command(app)
    views = {f"inspect {word}": settings.EXAMPLES for word, settings in kinds_of("inspection").items()}  # type: ignore[attr-defined]
    for path, lines in {**{path: one.examples for path, one in COMMANDS.items()}, **views}.items():
        assert lines, path
        for line in lines:
            words = shlex.split(re.sub(r" > .*", "", line))[1:]
            context = program.make_context("minitf", [*words], resilient_parsing=True)
            command, name = program, []
            while hasattr(command, "commands"):
                found, command, words = command.resolve_command(context, words)
                name.append(found)
                context = type(context)(command, parent=context, info_name=found)
            assert " ".join(name) in (path, path.replace(" ", "-", 1)), line
            command.make_parser(context).parse_args(args=words)


def test_every_command_is_an_example() -> None:
    def paths(group: Any, before: str = "") -> list[str]:
        below = [(f"{before} {name}".strip(), command) for name, command in getattr(group, "commands", {}).items()]
        return [
            path
            for name, command in below
            for path in (paths(command, name) if hasattr(command, "commands") else [name])
        ]

    from typer.main import get_command

    views = {f"inspect {word}" for word in listing("inspection")}
    assert {*paths(get_command(app))} == COMMANDS.keys() | views | {"inspect-attention"}
