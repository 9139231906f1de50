"""Nothing outside a package of kinds asks which kind it has."""

import ast
from pathlib import Path

import pytest
from kind_questions import Kinds, kinds_of, packages, parsed, questions

PACKAGE = Path(__file__).parents[2] / "mini_tf"


def asking() -> list[Path]:
    """The files that may not ask: all but the contracts, which are tried on every kind."""
    return [file for file in sorted(PACKAGE.rglob("*.py")) if PACKAGE / "testing" not in file.parents]


def test_nothing_asks_which_kind_it_has() -> None:
    """But a kind may know its neighbours, in its own package."""
    kinds = packages(PACKAGE)
    found = [(file, one) for file in asking() for one in questions(parsed(file), kinds_of(PACKAGE))]
    others = [(file, one) for file, one in found if file.parent not in kinds or file.parent.name != one.package]
    asked = [f"{file.relative_to(PACKAGE).as_posix()}:{one.line}: {one.package}: {one.code}" for file, one in others]
    assert not asked, "a kind declares what others need, nobody asks which it is:\n" + "\n".join(asked)


def test_packages_of_kinds_are_found_by_the_settings_of_their_files() -> None:
    assert {"attention", "positions", "models", "objectives"} <= kinds_of(PACKAGE).words.keys()
    assert {"window", "softmax"} <= kinds_of(PACKAGE).words["attention"]
    assert {folder.name for folder in packages(PACKAGE)} == kinds_of(PACKAGE).words.keys()
    assert not kinds_of(PACKAGE).words.keys() & {"cli", "nn", "recipe", "run", "text"}


MADE = Kinds(
    words={
        "models": {"decoder", "encoder"},
        "attention": {"softmax", "window", "none"},
        "schedules": {"linear", "constant"},
    },
    classes={"Window": "attention", "MultiHeadAttention": "attention", "OneStack": "models"},
    settings={"window": "attention", "pool": "objectives"},
)
ASKING = {
    "equal": ("mixer.kind == 'window'", ["attention"]),
    "not equal, turned round": ("'linear' != recipe.schedule.kind", ["schedules"]),
    "in a tuple": ("settings.kind in ('decoder', 'other')", ["models"]),
    "in a constant of the file": ("WORDS = {'softmax': 1}\ndef f(x):\n    return x.kind in WORDS", ["attention"]),
    "in what was gathered": (
        "def f(xs):\n    kinds = {x.kind for x in xs}\n    return 'window' in kinds",
        ["attention"],
    ),
    "of a name": ("def f(x):\n    word = x.kind\n    if word == 'window': pass", ["attention"]),
    "of one of two names": ("def f(x, y):\n    n, (kind) = 1, x.kind\n    return kind == 'encoder'", ["models"]),
    "of an argument": ("def f(kind):\n    return kind == 'window'", ["attention"]),
    "of a name within": ("def f(x):\n    if (word := x.kind) == 'window': pass", ["attention"]),
    "match": ("match x.kind:\n    case 'window': pass\n    case 'other': pass", ["attention"]),
    "match of a class": ("match x:\n    case Window(): pass", ["attention"]),
    "a declaration": ("recipe.objective.DATASET == 'text'", ["datasets"]),
    "a declaration by name": ("getattr(recipe.objective, 'PIPELINE', None) == 'chat'", ["pipelines"]),
    "a declaration by another name": (
        "def f(o):\n    data = o.DATASET\n    return data in ('text', 'pairs')",
        ["datasets"],
    ),
    "match of a declaration": (
        "match o.DATASET:\n    case 'text' | 'pairs': pass\n    case 'chats' if x: pass",
        ["datasets", "datasets"],
    ),
    "a table": ("NEEDED[o.DATASET]", ["datasets"]),
    "a table, asked gently": ("TABLE.get(getattr(objective, 'PIPELINE', ''))", ["pipelines"]),
    "words": ("WORDS = ('softmax', 'window')", ["attention"]),
    "keys": ("MOMENTS = {'linear': 2, 'constant': 1}", ["schedules"]),
    "values": ("DEFAULT = {'left': 'decoder', 'both': 'encoder'}", ["models"]),
    "isinstance": ("isinstance(part, Window)", ["attention"]),
    "isinstance of several": ("isinstance(part, attention.MultiHeadAttention | nn.Linear)", ["attention"]),
    "the very class": ("type(model) is OneStack", ["models"]),
    "a subclass": ("issubclass(type(model), (OneStack, Other))", ["models"]),
    "a name of some kinds": ("hasattr(mixer, 'window')", ["attention"]),
    "a value of some kinds": ("getattr(objective, 'pool', None) == 'first'", ["objectives"]),
}


@pytest.mark.parametrize("sort", ASKING)
def test_a_question_of_every_sort_is_found(sort: str) -> None:
    source, asked = ASKING[sort]
    assert [one.package for one in questions(ast.parse(source), MADE)] == asked


@pytest.mark.parametrize(
    "source",
    [
        "head == 'linear'",
        "x = ', '.join(names) or 'none'",
        "place.kind == 'cross'",
        "place.kind in ('self', 'cross')",
        "def f(x, y):\n    return x.kind == y.kind",
        "def f(x):\n    name = x.label\n    return name == 'window'",
        "o.DATASET == other.DATASET",
        "def f(x):\n    word = x.kind\ndef g(word):\n    return word == 'window'",
        "reads in mixer.READS",
        "('linear', 'quadratic')",
        "{'decoder': parts}",
        "isinstance(part, Mixer)",
        "'rotary' in position.applies_to",
        "getattr(error, 'strerror', None)",
        "settings_of('attention', word)",
        "say(f'{mixer.kind} attention')",
        "class Settings:\n    BASELINES = ('linear', 'constant')",
        "class Settings:\n    DATASET, BASELINES = 'text', ('linear', 'constant')",
    ],
)
def test_ordinary_words_are_no_question(source: str) -> None:
    assert questions(ast.parse(source), MADE) == []
