"""By what runs are known: ids that stay when keys are added, and folders that are never continued with another
default.
"""

import json
import shutil
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from commands import DATA, change, minitf, refused
from pydantic import Field

from mini_tf.attention import window
from mini_tf.nn.mixer import MixerSettings
from mini_tf.recipe.data import NonEmptyText
from mini_tf.recipe.kinds import KindOf, OneOrMore, Section, default_kind, settings_of
from mini_tf.recipe.parsing.yaml_tree import Node
from mini_tf.recipe.reading import Resolved, read
from mini_tf.recipe.recipe import Recipe
from mini_tf.run import manifest
from mini_tf.run.identity import Identity, result_values
from mini_tf.run.location import RunLocation, open_run
from mini_tf.system.errors import RunFault

FROZEN = DATA / "formats" / "1"
SMALL: dict[str, Any] = {"model": {"kind": "decoder"}, "objective": {"kind": "next_token"}, "train": {"steps": 10}}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def identity(recipe: Recipe) -> Identity:
    return Identity.of(Resolved(recipe, "x", {}, False, "", Path(), Node({}, "")), {"data": "x"})


def run_id(recipe: Recipe) -> str:
    return identity(recipe).run_id


def changed(section: type[Section], **fields: tuple[Any, Any]) -> type[Any]:
    """A section of the same name and module with these fields besides, or with other defaults."""
    names = {"__module__": section.__module__, "__annotations__": {name: type_ for name, (type_, _) in fields.items()}}
    return type(section.__name__, (section,), names | {name: default for name, (_, default) in fields.items()})


def recipe_of(**fields: tuple[Any, Any]) -> type[Recipe]:
    """A recipe with these sections, or others in the place of its own."""
    made: type[Recipe] = changed(Recipe, **fields)
    return made


WINDOWS = ("window", {"kind": "window", "window": 9}, ["softmax", {"kind": "window", "qk_norm": True}])


@pytest.mark.parametrize("attention", WINDOWS, ids=str)
def test_a_key_that_a_kind_is_given_later_changes_no_id_until_it_is_used(
    attention: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run_id(Recipe.model_validate(SMALL | {"model": {"kind": "decoder", "attention": attention}}))
    monkeypatch.setattr(window, "Settings", changed(settings_of("attention", "window"), dilation=(int, 1)))
    plain = {"kind": "window"} if attention == "window" else attention
    used = [plain[0], plain[1] | {"dilation": 2}] if isinstance(plain, list) else plain | {"dilation": 2}
    ids = [
        run_id(Recipe.model_validate(SMALL | {"model": {"kind": "decoder", "attention": one}}))
        for one in (attention, used)
    ]
    assert ids[0] == before != ids[1]


class Noise(Section):
    kind: Literal["white", "pink"] = "white"
    rate: float = 0.0


Mixers = Annotated[tuple[Annotated[MixerSettings, KindOf("attention")], ...], OneOrMore()]
TWO = (settings_of("attention", "softmax")(), settings_of("attention", "window")())
LATER: dict[str, tuple[Any, Any, list[Any]]] = {
    "section": (Noise, Noise(), [{"kind": "pink"}, {"rate": 0.5}]),
    "nullable section": (Noise | None, None, [{}, {"rate": 0.5}]),
    "kind": (
        Annotated[MixerSettings, KindOf("attention")],
        Field(default_factory=default_kind("attention", "window")),
        ["softmax", {"kind": "window", "window": 9}],
    ),
    "nullable kind": (Annotated[MixerSettings, KindOf("attention")] | None, None, ["softmax", "window"]),
    "kind with other defaults": (
        Annotated[MixerSettings, KindOf("attention")],
        settings_of("attention", "window").model_validate({"window": 9}),
        ["window", {"kind": "window", "window": 10}, "softmax"],
    ),
    "list of kinds": (
        Mixers,
        TWO,
        ["softmax", "window", ["window", "softmax"], ["window", "window"], ["softmax", "window", "softmax"]],
    ),
    "mapping": (dict[str, str], {}, [{"a": "b"}]),
    "list": (tuple[NonEmptyText, ...], (), [["a"], ["b"]]),
}


@pytest.mark.parametrize("what", LATER)
def test_whatever_a_recipe_is_given_later_changes_no_id_at_its_default_and_every_other_value_has_its_own(
    what: str,
) -> None:
    type_, default, others = LATER[what]
    later = recipe_of(later=(type_, default))
    before = run_id(Recipe.model_validate(SMALL))
    assert run_id(later.model_validate(SMALL)) == before
    ids = [run_id(later.model_validate(SMALL | {"later": one})) for one in others]
    assert len({before, *ids}) == 1 + len(others)


VARIANTS = """
train.seed=1
train.steps=11
train={tokens: 10}
train={epochs: 10}
train={time: 10}
model.attention={kind: window, projections: false} | model.positions=none
model.attention=window
model.attention=[softmax, softmax]
model.attention.scale=1
model.attention=[softmax, window]
model.attention=[window, softmax]
model.attention=[softmax, window, softmax]
model.attention={kind: window, scale: 1}
model.attention={kind: window, window: 1}
model.positions=learned
model.positions=sinusoidal
model.positions=none
model.positions.base=2
model.positions={kind: sinusoidal, base: 2}
model.positions={kind: learned, length: 128}
model=encoder
model=encoder | objective={kind: masked, mask_rate: 0.2}
model.n_layers=2
model.n_heads=2
model.d_k=2 | model.n_heads=2
model.d_v=2
model.d_ff=2
model.d_ff=0
data.train=a.txt
data.train=grammar
data.train=a.txt | data.val=b.txt
data.fields={text: body}
PAIRS
PAIRS | model.cross_attention=null
PAIRS | model.cross_attention.qk_norm=true
PAIRS | model.encoder.attention=softmax
PAIRS | model.encoder.n_layers=4
PAIRS | model.encoder.d_model=128
PAIRS | tokenizer.source={}
PAIRS | tokenizer.source={kind: char}
PAIRS | tokenizer.kind=char
tokenizer.kind=char
optimizer.kind=muon
optimizer.head_lr=0.001
optimizer.embedding_lr=0.001
schedule.kind=wsd
schedule.kind=linear
schedule.warmup=2
schedule.floor=2%
eval.every_steps=2
"""
"""Overrides of one small recipe, a variant a line; every key of the schema would be as long as the schema."""


def test_two_recipes_share_an_id_only_where_every_key_has_the_same_value() -> None:
    """Leaving defaults out must not make two of them look alike; the complete keys say which are the same."""
    Path("small.yaml").write_text("data: {train: python-docs}\nmodel: {kind: decoder}\ntrain: {steps: 10}\n")
    pairs = "data.train=translate-toy | model=encoder_decoder"
    lines = ["", *VARIANTS.replace("PAIRS", pairs).strip().splitlines()]
    variants = [[override for override in line.split(" | ") if override] for line in lines]
    known = [Identity.of(read("small.yaml", overrides), {"data": "x"}) for overrides in variants]
    ids = Counter(identity.run_id for identity in known)
    assert [identity.decides for identity in known if ids[identity.run_id] > 1] == []
    assert all(first.decides != second.decides for first, second in combinations(known, 2))


def test_how_a_value_is_written_changes_no_id() -> None:
    Path("small.yaml").write_text("model: {kind: decoder}\ntrain: {steps: 10}\n")
    written = [[], ["optimizer.lr=0.001"], ["optimizer.lr=1e-3"], ["optimizer.lr=.001"], ["model.attention=[softmax]"]]
    written += [
        ["model.attention={kind: softmax, qk_norm: false}"],
        ["data.split=0.05"],
        ["train.seed=0"],
        ["optimizer={}"],
        ["adapter=null"],
    ]
    assert len({Identity.of(read("small.yaml", overrides), {}).run_id for overrides in written}) == 1


def folder_of(recipe: Recipe) -> Path:
    with open_run(RunLocation(name="x"), identity(recipe)) as run:
        return run.folder


def status_of(recipe: Recipe) -> str:
    with open_run(RunLocation(name="x"), identity(recipe)) as run:
        return run.status


def test_a_folder_from_before_a_key_continues_with_it_at_its_default_and_from_then_on_knows_it() -> None:
    folder = folder_of(Recipe.model_validate(SMALL))
    later = recipe_of(later=(Noise, Noise()), other=(Noise | None, None))
    with open_run(RunLocation(name="x"), identity(later.model_validate(SMALL))) as run:
        assert run.status == "continued"
        run.update(state="stopped")
    assert manifest.read(folder).decides["later.rate"] == 0.0
    with pytest.raises(RunFault, match=r"x was started with another recipe: later\.rate: 0\.0 -> 0\.5$"):
        status_of(later.model_validate(SMALL | {"later": {"rate": 0.5}}))
    with pytest.raises(RunFault, match=r'x was started with another recipe: other\.kind: absent -> "white"; '):
        status_of(later.model_validate(SMALL | {"other": {}}))
    assert status_of(Recipe.model_validate(SMALL)) == "continued"  # a version that does not know the keys any more


LOUDER = changed(Noise, rate=(float, 0.5))
DEFAULTS: dict[str, tuple[tuple[Any, Any], tuple[Any, Any], str]] = {
    "value": ((Noise, Noise()), (LOUDER, LOUDER()), "later.rate: 0.0 -> 0.5"),
    "null to a section": (
        (Noise | None, None),
        (Noise, Noise()),
        'later.kind: absent -> "white"; later.rate: absent -> 0.0',
    ),
    "kind": (
        (Annotated[MixerSettings, KindOf("attention")], settings_of("attention", "softmax")()),
        (Annotated[MixerSettings, KindOf("attention")], settings_of("attention", "window")()),
        'later.kind: "softmax" -> "window"',
    ),
    "kind to null": (
        (Annotated[MixerSettings, KindOf("attention")] | None, settings_of("attention", "window")()),
        (Annotated[MixerSettings, KindOf("attention")] | None, None),
        'later.kind: "window" -> absent',
    ),
    "one kind to two": ((Mixers, TWO[:1]), (Mixers, TWO), 'later.kind: "softmax" -> absent'),
    "two kinds to one": ((Mixers, TWO), (Mixers, TWO[:1]), 'later.kind: absent -> "softmax"'),
}


@pytest.mark.parametrize("what", DEFAULTS)
def test_a_folder_of_another_default_is_refused_in_a_line_although_its_id_is_the_same(what: str) -> None:
    then, now, message = DEFAULTS[what]
    before, after = recipe_of(later=then).model_validate(SMALL), recipe_of(later=now).model_validate(SMALL)
    folder = folder_of(before)
    assert run_id(before) == run_id(after)
    with pytest.raises(RunFault) as caught:
        status_of(after)
    assert caught.value.message.startswith(f"{folder} was started with other defaults: ")
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert (
        caught.value.hint
        == f"`minitf pretrain {folder} -d {folder}` continues it with its own values; --fresh starts a new run"
    )


def test_a_folder_of_another_default_continues_with_the_value_that_it_had() -> None:
    folder_of(recipe_of(later=(Noise, Noise())).model_validate(SMALL))
    assert (
        status_of(recipe_of(later=(LOUDER, LOUDER())).model_validate(SMALL | {"later": {"rate": 0.0}})) == "continued"
    )


def test_the_keys_of_a_recipe_are_complete_and_say_of_a_list_how_many_it_has() -> None:
    recipe = Recipe.model_validate(SMALL | {"model": {"kind": "decoder", "attention": ["softmax", "window"]}})
    keys = result_values(recipe)
    assert (keys["model.attention"], keys["model.attention[0].kind"], keys["model.attention[1].window"]) == (
        2,
        "softmax",
        128,
    )
    assert (keys["data.train"], keys["adapter"], keys["optimizer.lr"]) == ("python-docs", None, 0.001)
    assert json.loads(json.dumps(keys)) == keys


def test_a_run_of_this_format_that_was_interrupted_continues_to_its_end(tmp_path: Path) -> None:
    copy = shutil.copytree(FROZEN, tmp_path / "run")
    before = json.loads((copy / "run.json").read_text())
    done = minitf("pretrain", copy, f"data.train={DATA / 'tiny.txt'}", "-d", copy)
    assert done.exit_code == 0, done.stderr
    after = json.loads((copy / "run.json").read_text())
    assert (before["state"], before["step"], after["state"], after["step"]) == ("stopped", 10, "done", 20)
    assert after["run_id"] == before["run_id"]
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [*range(1, 21)]
    measured = json.loads((FROZEN / "measured.json").read_text())
    assert lines[10]["loss"] == pytest.approx(measured["train loss of step 11, uninterrupted"], abs=1e-4)


def test_a_run_of_another_format_is_refused_with_the_way_out(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(FROZEN, tmp_path / "run"))
    record = copy / "run.json"
    change(record, format=2)
    message = f"{record} has format 2; this version of minitf reads format 1"
    hint = "train again, or use the version of minitf that wrote it"
    for command in (
        ("pretrain", copy, f"data.train={DATA / 'tiny.txt'}", "-d", copy),
        ("evaluate", copy),
        ("runs", "show", copy),
    ):
        refused(minitf(*command), message, hint, exit_code=5)


def test_the_id_of_a_run_of_this_format_is_the_one_that_its_recipe_has(tmp_path: Path) -> None:
    record = manifest.read(FROZEN)
    assert Identity.of(read(FROZEN), record.hashes).run_id == record.run_id
    copy = shutil.copytree(FROZEN, tmp_path / "run")
    done = minitf("pretrain", copy, f"data.train={DATA / 'tiny.txt'}", "optimizer.lr=0.02", "-d", copy)
    refused(done, f"{copy} was started with another recipe: optimizer.lr: 0.01 -> 0.02", exit_code=5)
