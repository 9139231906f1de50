"""A recipe that begins with a run has the run's model and tokenizer: on which level it says so decides what comes on
top.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import DATA, EXACT, minitf, refused, trained

from mini_tf.recipe.reading import flat_values, read
from mini_tf.system.errors import RecipeFault

SHORT = (*EXACT, "train.steps=1", "log.samples=0", "eval.tokens=100")
SIZES = (
    "model={{kind: {}, d_model: 16, n_layers: 1, n_heads: 4, activation: relu, positions: learned, dropout_rate: 0.25}}"
)
DATA_OF = {"encoder_decoder": f"data={{train: {DATA / 'reversed.tsv'}, fields: {{source: source, target: target}}}}"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each kind of model, called by it, in outputs."""
    outputs = tmp_path_factory.mktemp("runs") / "outputs"
    for kind in ("decoder", "encoder"):
        trained(outputs / kind, *SHORT, SIZES.format(kind), "train.context=64")
    source = "tokenizer={kind: bpe, vocab_size: 300, source: {kind: char}}"
    sizes = SIZES.format("encoder_decoder").replace(
        "}", ", encoder: {n_layers: 2, positions: {kind: learned, length: auto}}}"
    )
    trained(
        outputs / "encoder_decoder",
        *SHORT,
        sizes,
        DATA_OF["encoder_decoder"],
        source,
        "train.context=64",
        "eval.translations=0",
    )
    return outputs.parent


@pytest.fixture
def here(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with copies of the runs in outputs, and the recipe `tiny.yaml`."""
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    for name in ("tiny.yaml", "tiny.txt"):
        shutil.copy(DATA / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, **recipe: Any) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(yaml.safe_dump(recipe))
    return name


def model(recipe: str | Path, *overrides: str) -> dict[str, Any]:
    return {
        key.removeprefix("model."): value
        for key, value in flat_values(read(recipe, overrides).recipe).items()
        if key.startswith("model.")
    }


THEIRS = {
    "d_model": 16,
    "n_layers": 1,
    "n_heads": 4,
    "activation": "relu",
    "positions.kind": "learned",
    "positions.length": 64,
}


def test_the_runs_model_takes_the_place_of_the_lower_ones(here: Path) -> None:
    """Of tiny.yaml's own model stays its kind and its dropout."""
    own = write("r.yaml", extends="tiny.yaml", model={"dropout_rate": 0.5, "norm": "rms", "n_layers": 7})
    for inherited in (
        model(own, "model.init_from=decoder"),
        model(write("s.yaml", extends=own, model={"init_from": "outputs/decoder"})),
    ):
        assert THEIRS.items() <= inherited.items()
        assert (inherited["kind"], inherited["norm"], inherited["dropout_rate"]) == ("decoder", "layer", 0.5)
        assert inherited["init_from"] == str(here / "outputs" / "decoder")


def test_the_tokenizer_is_the_runs_whatever_lower_levels_say(here: Path) -> None:
    lower = write("r.yaml", extends="tiny.yaml", tokenizer={"kind": "bpe", "vocab_size": 300})
    tokenizer = read(lower, ["model.init_from=decoder"]).recipe.tokenizer
    assert (tokenizer.path, tokenizer.source) == (str(here / "outputs" / "decoder"), None)
    pairs = write(
        "p.yaml",
        model="encoder_decoder",
        data=yaml.safe_load(DATA_OF["encoder_decoder"][5:]),
        train={"steps": 1, "context": 64},
    )
    tokenizer = read(pairs, ["model.init_from=encoder_decoder"]).recipe.tokenizer
    assert tokenizer.source is not None
    assert tokenizer.source.path == str(here / "outputs" / "encoder_decoder" / "source_tokenizer.json")
    assert read("tiny.yaml", ["model.init_from=encoder_decoder", "model.kind=decoder"]).recipe.tokenizer.source is None


def test_what_the_same_level_or_a_later_one_says_comes_on_top(here: Path) -> None:
    begins = write(
        "b.yaml", extends="tiny.yaml", model={"init_from": "outputs/decoder", "n_heads": 2, "dropout_rate": 0.125}
    )
    assert (model(begins)["n_heads"], model(begins)["n_layers"], model(begins)["dropout_rate"]) == (2, 1, 0.125)
    later = write(
        "l.yaml",
        extends=begins,
        model={"norm": "rms", "positions": {"length": 99}},
        tokenizer={"path": "outputs/encoder"},
    )
    found = model(later, "model.n_layers=5")
    assert (found["n_heads"], found["norm"], found["n_layers"], found["positions.length"]) == (2, "rms", 5, 99)
    assert read(later).recipe.tokenizer.path == str(here / "outputs" / "encoder")


@pytest.mark.parametrize(
    ("word", "of"), [("encoder", "decoder"), ("decoder", "encoder"), ("encoder_decoder", "encoder")]
)
def test_the_kind_stays_with_the_keys_that_the_runs_kind_lacks(word: str, of: str, here: Path) -> None:
    data = DATA_OF.get(word, f"data={{train: {DATA / 'tiny.txt'}}}")
    lower = [f"model={{kind: {word}, d_model: 64, dropout_rate: 0.5}}", data]
    if word == "encoder_decoder":
        lower[0] = lower[0].replace("}", ", shared_embeddings: false, encoder: {n_layers: 3}}")
    found = model(
        write(
            "k.yaml", extends="tiny.yaml", **dict(yaml.safe_load(one.replace("=", ": ", 1)).popitem() for one in lower)
        )
    )
    assert (found["kind"], found["d_model"]) == (word, 64)
    found = model("k.yaml", f"model.init_from={of}")
    assert THEIRS.items() <= found.items()
    assert (found["kind"], found["dropout_rate"]) == (word, 0.5)
    if word == "encoder_decoder":
        assert found["shared_embeddings"] is False
        assert found["encoder.n_layers"] is None  # the run has one stack, of which both sides are made


def test_without_a_kind_of_its_own_the_recipe_has_the_runs(here: Path) -> None:
    bare = write("bare.yaml", data={"train": "tiny.txt"}, train={"steps": 1}, model={"init_from": "outputs/encoder"})
    recipe = read(bare, ["train.context=64"]).recipe
    assert (recipe.model.kind, recipe.objective.kind) == ("encoder", "masked")
    assert THEIRS.items() <= model(bare, "train.context=64").items()


def test_tables_of_positions_stay_as_long_as_the_run_made_them(here: Path) -> None:
    assert model("tiny.yaml", "model.init_from=decoder", "train.context=10")["positions.length"] == 64
    long = minitf("recipe", "check", "tiny.yaml", "model.init_from=decoder", "train.context=65")
    refused(long, "64 positions are fewer than the 65 tokens of train.context", exit_code=3)
    pairs = read("outputs/encoder_decoder", ["model.init_from=outputs/encoder_decoder", "train.context=10"]).recipe
    assert flat_values(pairs)["model.encoder.positions.length"] == flat_values(pairs)["model.positions.length"] == 64


@pytest.mark.parametrize(
    "name", ["{here}/outputs/encoder", "outputs/encoder", "encoder", "~/outputs/encoder", "{here}/x/../outputs/encoder"]
)
def test_a_run_is_named_by_its_path_or_its_name_in_outputs(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(here))
    given = f"model.init_from={name.format(here=here)}"
    assert model("tiny.yaml", given)["init_from"] == str(here / "outputs" / "encoder")


def test_a_name_in_a_recipe_is_looked_for_beside_it_first(here: Path) -> None:
    """Neither a file nor a folder of that name hides the run in outputs, a run does."""
    recipe = write("sub/r.yaml", extends="../tiny.yaml", model={"init_from": "encoder"})
    Path("sub/encoder").touch()
    assert model(recipe)["init_from"] == str(here / "outputs" / "encoder")
    Path("sub/encoder").unlink()
    Path("sub/encoder").mkdir()
    assert model(recipe)["init_from"] == str(here / "outputs" / "encoder")
    shutil.copytree("outputs/decoder", "sub/encoder", dirs_exist_ok=True)
    assert model(recipe)["init_from"] == str(here / "sub" / "encoder")


def test_a_runs_own_recipe_stands_for_itself(here: Path) -> None:
    """What it began with may be gone, or another by now; only saying it anew makes it read that run again."""
    resolved = Path("outputs/encoder/resolved.yaml")
    plain = yaml.safe_load(resolved.read_text())
    plain["model"] |= {"init_from": str(here / "gone"), "n_layers": 3}
    resolved.write_text(yaml.safe_dump(plain))
    for recipe in ("outputs/encoder", resolved):
        assert model(recipe)["n_layers"] == model(recipe, "train.steps=3")["n_layers"] == 3
    above = write("above.yaml", extends="outputs/encoder/resolved.yaml", train={"steps": 3})
    assert (model(above)["n_layers"], model(above)["init_from"]) == (3, str(here / "gone"))
    assert model(above, "model.init_from=decoder")["n_layers"] == 1


def test_a_run_that_a_later_level_replaces_may_be_gone(here: Path) -> None:
    gone = write("gone.yaml", extends="tiny.yaml", model={"init_from": str(here / "gone"), "norm": "rms"})
    replaced = model(gone, "model.init_from=decoder")
    assert replaced == model(write("s.yaml", extends=gone, model={"init_from": "outputs/decoder"}))
    assert THEIRS.items() <= replaced.items()
    with pytest.raises(RecipeFault, match="no such run"):
        read(gone, ["model.init_from=null"])
    both = write("both.yaml", extends="tiny.yaml", model={"init_from": "gone"}, tokenizer={"kind": "bpe"})
    with pytest.raises(RecipeFault, match="remove this section"):
        read(both, ["model.init_from=decoder"])
    bare = {"data": {"train": "tiny.txt"}, "train": {"steps": 1, "context": 64}}
    kind = write("kind.yaml", **bare, model={"init_from": "outputs/encoder"})
    assert model(kind, "model.init_from=decoder")["kind"] == "decoder"


def test_a_chain_of_recipes_begins_with_what_its_last_level_says(here: Path) -> None:
    first = write("first.yaml", extends="tiny.yaml", model={"init_from": "outputs/decoder", "norm": "rms"})
    second = write(
        "second.yaml", extends=first, model={"init_from": "outputs/encoder", "kind": "encoder"}, objective="masked"
    )
    found = model(second)
    assert (found["init_from"], found["kind"], found["norm"]) == (str(here / "outputs" / "encoder"), "encoder", "layer")
    assert read(second).recipe.tokenizer.path == str(here / "outputs" / "encoder")


def test_a_recipe_without_the_run_keeps_its_shape_and_begins_anew(here: Path) -> None:
    begins = write("b.yaml", extends="tiny.yaml", model={"init_from": "outputs/decoder"})
    found = model(begins, "model.init_from=null")
    assert found["init_from"] is None
    assert THEIRS.items() <= found.items()


def test_the_complete_recipe_can_be_printed_and_read_again(here: Path) -> None:
    Path("shown.yaml").write_text(
        minitf("recipe", "show", "tiny.yaml", "model.init_from=decoder", "model.n_layers=3").stdout
    )
    assert read("shown.yaml").recipe == read("tiny.yaml", ["model.init_from=decoder", "model.n_layers=3"]).recipe


def test_why_tells_which_run_a_value_is_of(here: Path) -> None:
    resolved = here / "outputs" / "decoder" / "resolved.yaml"
    line = 1 + next(n for n, text in enumerate(resolved.read_text().splitlines()) if text.startswith("  d_model:"))
    shown = minitf("recipe", "show", "tiny.yaml", "model.init_from=decoder", "--why", "model.d_model")
    assert shown.stdout == f"model.d_model: 16 ({resolved}:{line})\n"
    shown = minitf(
        "recipe", "show", "tiny.yaml", "model.init_from=decoder", "model.d_model=8", "--why", "model.d_model"
    )
    assert shown.stdout == f"model.d_model: 8 (command line) < 16 ({resolved}:{line})\n"
    shown = minitf("recipe", "show", "tiny.yaml", "model.init_from=decoder", "--why", "model.init_from")
    assert shown.stdout == f"model.init_from: {here / 'outputs' / 'decoder'} (command line)\n"
    assert minitf("recipe", "check", "tiny.yaml", "model.init_from=decoder").stdout == "tiny: no faults\n"


def puts(content: str | bytes) -> Callable[[Path], object]:
    """What resolved.yaml holds."""
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / "resolved.yaml").write_bytes(data)


def strange_value(folder: Path) -> None:
    path = folder / "resolved.yaml"
    path.write_text(path.read_text().replace("  d_model: 16", "  d_model: many"))


def pipe(folder: Path) -> None:
    (folder / "resolved.yaml").unlink()
    os.mkfifo(folder / "resolved.yaml")


def dangling(folder: Path) -> None:
    (folder / "resolved.yaml").unlink()
    (folder / "resolved.yaml").symlink_to(folder / "nowhere")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (shutil.rmtree, "no such run {run}; `minitf runs list` lists runs"),
        (lambda folder: (folder / "resolved.yaml").unlink(), "{run} is not a run folder"),
        (puts("model: {kind: ["), "{run}/resolved.yaml:2:1: not YAML"),
        (puts(b"model: \xff"), "{run}/resolved.yaml:1: byte 7 is not UTF-8"),
        (puts("train: {steps: 3}\n"), "{run}/resolved.yaml has no model"),
        (puts("- a\n- b\n"), "{run}/resolved.yaml has no model"),
        (strange_value, "model.d_model: must be a whole number, got 'many'"),
        (pipe, "{run} is not a run folder"),
        (dangling, "{run} is not a run folder"),
    ],
)
def test_what_is_no_run_is_refused_in_one_line(damage: Callable[[Path], object], words: str, here: Path) -> None:
    run = here / "outputs" / "encoder"
    damage(run)
    for command in (("recipe", "check"), ("pretrain",)):
        done = minitf(*command, "tiny.yaml", f"model.init_from={run}")
        refused(done, words.format(run=run), exit_code=3)
        assert done.stderr.count("\n") == 1
    own = write("own.yaml", extends="tiny.yaml", model={"init_from": str(run)})
    refused(minitf("recipe", "check", own), words.format(run=run), exit_code=3)


def test_a_config_that_is_damaged_is_refused_when_the_run_is_opened(here: Path) -> None:
    for content in ("", "[]", json.dumps({"context": "much"}), "9" * 5000):
        Path("outputs/decoder/config.json").write_text(content)
        assert model("tiny.yaml", "model.init_from=decoder")["positions.length"] == "auto"
        done = minitf(
            "pretrain", "tiny.yaml", *SHORT, "train.context=64", "model.init_from=decoder", "-d", here / "new"
        )
        refused(done, "outputs/decoder/config.json: not a config.json of minitf", exit_code=5)
    assert not (here / "new").exists()


@pytest.mark.parametrize("level", ["recipe", "command line"])
def test_the_last_run_and_other_words_for_none_are_refused(level: str, here: Path) -> None:
    write("own.yaml", extends="tiny.yaml", model={"init_from": "last"})
    given = ("own.yaml",) if level == "recipe" else ("tiny.yaml", "model.init_from=last")
    refused(
        minitf("recipe", "check", *given),
        "last changes with every run; give a run folder or its name in outputs",
        exit_code=3,
    )
    for value in ("[a]", "{a: b}"):
        assert minitf("recipe", "check", "tiny.yaml", f"model.init_from={value}").exit_code == 3
    assert minitf("recipe", "check", "tiny.yaml", "model.init_from=null").exit_code == 0  # none
    refused(minitf("recipe", "check", "tiny.yaml", "model.init_from="), "is empty; use null for no run", exit_code=3)
    odd = minitf("recipe", "check", "tiny.yaml", "model.init_from=a\x1b[2Jb")
    refused(odd, exit_code=3)


def test_a_kind_given_later_drops_the_run_with_all_settings_of_the_old_kind(here: Path) -> None:
    begins = write("b.yaml", extends="tiny.yaml", model={"init_from": "outputs/decoder"})
    assert model(begins, "model.kind=encoder", "objective.kind=masked")["init_from"] is None
