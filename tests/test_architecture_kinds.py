"""Nothing outside a package of kinds asks which kind it has; what still does is counted here, and only becomes less."""

from collections import Counter
from pathlib import Path

import pytest
from kind_questions import Kinds, Question, kinds_of, packages, questions

PACKAGE = Path(__file__).parents[1] / "mini_tf"

REMAINING: dict[str, dict[str, int]] = {
    "objectives": {
        "cli/class_pictures.py": 1,
        "cli/data/show.py": 3,
        "cli/data/stats.py": 3,
        "cli/evaluate.py": 1,
        "cli/figures.py": 1,
        "cli/finetune.py": 1,
        "cli/generate/command.py": 1,
        "trained/judging.py": 1,
        "generation/writing.py": 1,
        "pipelines/predictions.py": 3,
        "jobs/pretrain.py": 1,
        "recipe/forms.py": 14,
        "recipe/recipe.py": 3,
        "trained/opening.py": 2,
        "jobs/samples.py": 1,
        "jobs/session.py": 1,
        "data/example_store.py": 3,
        "data/examples.py": 1,
        "data/labelling.py": 3,
        "data/opening.py": 6,
        "data/summary.py": 2,
        "training/optimizer.py": 1,
    },
}
"""How many questions each file still has, by the package that they are about. What is removed is taken out here; nothing is added.

Those about objectives are mostly about what a row of data is (`FORM`), which becomes a package of kinds of its own.
"""
KINDS = kinds_of(PACKAGE)


def outside() -> list[Path]:
    """The files that may not ask: all but those of kinds, and the contracts that are tried on every kind."""
    folders = packages(PACKAGE)
    return [file for file in sorted(PACKAGE.rglob("*.py")) if file.parent not in folders and PACKAGE / "testing" not in file.parents]


def test_nothing_asks_which_kind_it_has_but_what_is_listed() -> None:
    found = {file.relative_to(PACKAGE).as_posix(): questions(file.read_text(), KINDS) for file in outside()}
    counts = Counter((one.package, name) for name, of_file in found.items() for one in of_file)
    allowed = Counter({(package, name): number for package, files in REMAINING.items() for name, number in files.items()})
    more = [
        f"{name}:{one.line}: {one.package}: {one.code}" for name, ones in found.items() for one in ones if over(counts, allowed, one, name)
    ]
    assert not more, "a kind declares what others need, nobody asks which it is:\n" + "\n".join(more)
    fewer = [f"{package}: {name}: {counts[package, name]}" for package, name in allowed if counts[package, name] < allowed[package, name]]
    assert not fewer, "there are fewer than REMAINING says; write there:\n" + "\n".join(fewer)


def over(counts: Counter[tuple[str, str]], allowed: Counter[tuple[str, str]], one: Question, name: str) -> bool:
    return counts[one.package, name] > allowed[one.package, name]


def test_packages_of_kinds_are_found_by_the_settings_of_their_files() -> None:
    assert {"attention", "positions", "models", "objectives"} <= KINDS.words.keys()
    assert {"window", "softmax"} <= KINDS.words["attention"]
    assert {folder.name for folder in packages(PACKAGE)} == KINDS.words.keys()
    assert not KINDS.words.keys() & {"cli", "nn", "recipe", "run", "text"}


MADE = Kinds(
    words={"models": {"decoder", "encoder"}, "attention": {"softmax", "window", "none"}, "schedules": {"linear", "constant"}},
    classes={"Window": "attention", "Headed": "attention", "OneStack": "models"},
    settings={"window": "attention", "pool": "objectives"},
)
ASKING = {
    "equal": ("mixer.kind == 'window'", ["attention"]),
    "not equal, turned round": ("'linear' != recipe.schedule.kind", ["schedules"]),
    "in a tuple": ("settings.kind in ('decoder', 'other')", ["models"]),
    "in a constant of the file": ("WORDS = {'softmax': 1}\ndef f(x):\n    return x.kind in WORDS", ["attention"]),
    "in what was gathered": ("def f(xs):\n    kinds = {x.kind for x in xs}\n    return 'window' in kinds", ["attention"]),
    "of a name": ("def f(x):\n    word = x.kind\n    if word == 'window': pass", ["attention"]),
    "of one of two names": ("def f(x, y):\n    n, (kind) = 1, x.kind\n    return kind == 'encoder'", ["models"]),
    "of an argument": ("def f(kind):\n    return kind == 'window'", ["attention"]),
    "of a name within": ("def f(x):\n    if (word := x.kind) == 'window': pass", ["attention"]),
    "match": ("match x.kind:\n    case 'window': pass\n    case 'other': pass", ["attention"]),
    "match of a class": ("match x:\n    case Window(): pass", ["attention"]),
    "a declaration": ("recipe.objective.FORM == 'text'", ["objectives"]),
    "a declaration by name": ("getattr(recipe.objective, 'FORM', None) == 'text'", ["objectives"]),
    "a form": ("def f(o):\n    form = o.FORM\n    return form in ('text', 'pairs')", ["objectives"]),
    "a form as an argument": ("def f(form: Form):\n    return form == 'text'", ["objectives"]),
    "a form that a store keeps": ("store.form == 'turns'", ["objectives"]),
    "match of a form": ("match o.FORM:\n    case 'text' | 'pairs': pass\n    case 'turns' if x: pass", ["objectives", "objectives"]),
    "a table": ("NEEDED[o.FORM]", ["objectives"]),
    "a table, asked gently": ("TABLE.get(getattr(objective, 'FORM', ''))", ["objectives"]),
    "words": ("WORDS = ('softmax', 'window')", ["attention"]),
    "keys": ("MOMENTS = {'linear': 2, 'constant': 1}", ["schedules"]),
    "values": ("DEFAULT = {'left': 'decoder', 'both': 'encoder'}", ["models"]),
    "isinstance": ("isinstance(part, Window)", ["attention"]),
    "isinstance of several": ("isinstance(part, heads.Headed | nn.Linear)", ["attention"]),
    "the very class": ("type(model) is OneStack", ["models"]),
    "a subclass": ("issubclass(type(model), (OneStack, Other))", ["models"]),
    "a name of some kinds": ("hasattr(mixer, 'window')", ["attention"]),
    "a value of some kinds": ("getattr(objective, 'pool', None) == 'first'", ["objectives"]),
}


@pytest.mark.parametrize("sort", ASKING)
def test_a_question_of_every_sort_is_found(sort: str) -> None:
    source, asked = ASKING[sort]
    assert [one.package for one in questions(source, MADE)] == asked


@pytest.mark.parametrize(
    "source",
    [
        "head == 'linear'",
        "x = ', '.join(names) or 'none'",
        "place.kind == 'cross'",
        "place.kind in ('self', 'cross')",
        "def f(x, y):\n    return x.kind == y.kind",
        "def f(x):\n    name = x.label\n    return name == 'window'",
        "def f(x):\n    word = x.kind\ndef g(word):\n    return word == 'window'",
        "reads in mixer.READS",
        "('linear', 'quadratic')",
        "{'decoder': parts}",
        "isinstance(part, Mixer)",
        "'rotary' in position.attaches",
        "getattr(error, 'strerror', None)",
        "settings_of('attention', word)",
        "say(f'{mixer.kind} attention')",
    ],
)
def test_ordinary_words_are_no_question(source: str) -> None:
    assert questions(source, MADE) == []
