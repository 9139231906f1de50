"""The pages for users: their commands, and the outputs they show.

`python -m tests.pages FOLDER [PAGE ...]` runs every page, or those that are named (README.md), as it is written in
FOLDER (all: half an hour on 2 cores), and writes what the commands print, and the pictures, into the pages. A block
that has run in FOLDER before is not run again.
"""

import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    *(f"recipes/{name}.md" for name in ("README", "tutorial", "coming-from")),
    *(
        f"mini_tf/{room}/README.md"
        for room in ("data", "pipelines", "inspection", "attention", "hf", "run", "jobs", "parallel", "api", "serving")
    ),
    "mini_tf/jobs/sweeps/README.md",
    *sorted(file.relative_to(ROOT).as_posix() for file in ROOT.glob("mini_tf/papers/**/README.md")),
]
WITHOUT_COMMANDS = ["recipes/features.md", *(f"{folder}/README.md" for folder in ("mini_tf", "tests", "data"))]
INSTALL = ("first command", "test command")
"""Blocks that .ci/run and a new machine run."""
_BLOCK = re.compile(r"(?:<!-- ([^\n]*) -->\n)?```sh\n(.*?)```", re.DOTALL)
_OUTPUT = re.compile(r"<!-- output: ([^\n]*) -->\n```text\n(.*?)```", re.DOTALL)
_PICTURE = re.compile(r"!\[[^\]]*\]\((?:\.\./)*data/pictures/([^)]+\.(?:png|svg))\)")


class Block(NamedTuple):
    """A block of shell commands. name: its marker, or nothing."""

    name: str
    script: str


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str) -> list[Block]:
    """The blocks that are run, in order; `<!-- not run: reason -->` leaves one out."""
    found = [Block(name, script) for name, script in _BLOCK.findall(text_of(page))]
    return [block for block in found if block.name not in INSTALL and not block.name.startswith("not run:")]


def outputs(page: str) -> dict[str, str]:
    """What a page says its commands print, by the names of the outputs."""
    return dict(_OUTPUT.findall(text_of(page)))


def pictures(page: str) -> list[str]:
    """File names of the pictures that a page shows."""
    return _PICTURE.findall(text_of(page))


def _log(run: str) -> str:
    """What a run printed on stderr, without times and the lines about this machine."""
    return f"sed 's/^[^ ]* //' outputs/{run}/log.txt | grep -v -e ^device -e ^tuning -e ^measuring"


PATH_QUERY = "Return the name of the file, or the name of the path."
SENTENCE = "the wise king of a sailor did not follow these birds near the river today"
MADE_BY = {
    "first.log": _log("first"),
    "generate first": 'minitf generate first "The" --seed 1 --num-samples 5 --max-new-tokens 40',
    "opinions.log": _log("opinions"),
    "answers.log": f"{_log('answers')} | grep -e initialized -e trainable",
    "predict opinions": (
        "printf 'a warm story and a fine cast\\nthe soup was cold and the room was dark\\n' | minitf predict opinions"
    ),
    "embed similar": 'minitf embed similar "i do not laugh" "jo rizitu ne" "the boys laugh" --neighbors 2',
    "evaluate answers": "minitf evaluate answers",
    "logprobs": 'minitf generate first "The file is" --greedy --max-new-tokens 4 --logprobs 2',
    "samples": "printf 'The file\\nThe list\\n' | minitf generate first --num-samples 2 --max-new-tokens 8 --stop .",
    "masks": 'minitf generate bert "If the argument is [MASK]one, an exception is raised." --top-k 3',
    "translations": f'minitf generate toy "{SENTENCE}" "i guard the small bridges"',
    "n-best": "printf 'we did not wait\\nthe dogs will listen\\n' | minitf generate toy --n-best 2",
    "evaluate toy": "minitf evaluate toy",
    "attention first": f'minitf inspect-attention first "{PATH_QUERY}"',
    "describe first": f'minitf inspect-attention first "{PATH_QUERY}" --layer 2 --describe',
    "word bat": "minitf inspect word bert bat -i data/senses.jsonl",
    "neighbors file": "minitf inspect word words file --neighbors 5",
    "analogy write": 'minitf inspect word words --analogy "read reading write" --neighbors 3',
    "syntax labelled": "minitf inspect syntax labelled",
    "senses labelled": "minitf inspect senses labelled",
    "align toy": "minitf inspect align toy",
    "doctor": "minitf doctor --resume",
    "crash": "minitf inspect crash burst",
    "cost": "minitf cost quickstart",
    "lengths": "minitf cost quickstart window.yaml performer-nano linear-nano --lengths 4096..32768 | grep 'time ~'",
    "sweep": (
        "minitf sweep quickstart train.steps=60 train.batch_size=4 'optimizer.lr=[0.01,0.04,0.16]' train.seed=1..3"
        " -n rates; minitf runs list outputs/rates"
    ),
    "convert": (
        "minitf convert chars model.attention.kind=favor model.attention.features=128 -n chars-favor 2>&1 | grep -e KL"
        " -e loss"
    ),
}
"""The command that makes each output, after the commands of the pages have run."""
SCREENSHOTS = {
    "film.png": ("film.html#L1H0/q3/s7", 1741),
    "induction-film.png": ("induction-film.html#L1H2/q10/s19", 1345),
}
"""Pictures of HTML pages, which Chromium takes: the page, what is open in it, and the height in pixels."""
CUT = {"first.log": (5, 8), "opinions.log": (5, 2), "attention first": (28, 5), "crash": (14, 7)}
"""Long outputs: how many lines are kept at the beginning and at the end."""


def fill(folder: Path, pages: Sequence[str] = PAGES) -> None:
    """Run pages in a folder, and put outputs and pictures into them."""
    done = folder / "blocks.json"
    if not done.exists():
        shutil.copytree(ROOT / "data", folder / "data", dirs_exist_ok=True)
        prepare(folder)
    finished = json.loads(done.read_text()) if done.exists() else []
    for page in pages:
        for block in blocks(page):
            if [page, block.script] in finished:
                continue
            print(f"+ {page}: {block.name}", file=sys.stderr)
            _run("set +e\n" * (block.name == "crash") + block.script, folder)
            done.write_text(json.dumps(finished := [*finished, [page, block.script]]))
    for page in pages:
        text = text_of(page)
        for name in outputs(page):
            made = cut(_run(MADE_BY[name], folder), *CUT.get(name, (10**6, 0)))
            text = re.sub(
                rf"(<!-- output: {re.escape(name)} -->\n```text\n).*?(```)",
                lambda m, made=made: m[1] + made + m[2],
                text,
                flags=re.DOTALL,
            )
        (ROOT / page).write_text(text)
        for picture in map(Path, pictures(page)):
            if str(picture) in SCREENSHOTS:
                _take(picture, folder)
            for file in (folder / picture, folder / picture.with_suffix(".json")):
                if file.exists():
                    shutil.copy(file, ROOT / "data" / "pictures")
    if "mini_tf/jobs/sweeps/README.md" in pages:
        shutil.copy(folder / "outputs/rates/sweep.svg", ROOT / "data/pictures/sweep.svg")
    if "README.md" in pages:
        shutil.copy(folder / "outputs/first/loss.svg", ROOT / "data/pictures/quickstart-loss.svg")


def _take(picture: Path, folder: Path) -> None:
    """A screenshot of a page, if its command has run in the folder and Chromium is installed."""
    address, height = SCREENSHOTS[str(picture)]
    if shutil.which("chromium") and (folder / address.partition("#")[0]).exists():
        url = f"{folder.resolve().as_uri()}/{address}"
        line = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size=1280,{height}"]
        subprocess.run([*line, "--virtual-time-budget=3000", f"--screenshot={picture}", url], cwd=folder, check=True)


def cut(text: str, first: int, last: int) -> str:
    """The first and last lines of a long text; progress between them is left out."""
    lines = [line.rstrip() for line in text.splitlines()]
    if len(lines) > first + last:
        lines = [*lines[:first], "...", *lines[len(lines) - last :]]
    return "".join(f"{line}\n" for line in lines)


def prepare(folder: Path) -> None:
    """The files of a user that pages name."""
    rows = (ROOT / "data" / "opinions.tsv").read_text().splitlines()[1:]
    reviews = [row.split("\t") for row in rows]
    with (folder / "reviews.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("stars", "review"), *reviews])
    (folder / "new.txt").write_text("a warm story\nthe room was dark\n")
    (folder / "my.txt").write_text("\n\n".join(text for _, text in reviews) + "\n")


def _run(script: str, folder: Path) -> str:
    commands = f"minitf() {{ '{sys.executable}' -m mini_tf \"$@\"; }}\npython() {{ '{sys.executable}' \"$@\"; }}\n"
    line = ["bash", "-euo", "pipefail", "-c", commands + script]
    return subprocess.run(line, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    if unknown := {*sys.argv[2:]} - {*PAGES}:
        sys.exit(f"no such page: {', '.join(sorted(unknown))}; there are {', '.join(PAGES)}")
    fill(Path(sys.argv[1]), sys.argv[2:] or PAGES)
