"""Built-in corpora with settings, in recipes: how they are written, merged, kept and known again, and their faults."""

import json
from pathlib import Path

import pytest

from mini_tf.data.corpora import corridor, world
from mini_tf.data.formats.data_files import find_files
from mini_tf.recipe.corpora import find_corpus
from mini_tf.recipe.data import Data, FilePair
from mini_tf.recipe.keys import json_schema, keys
from mini_tf.recipe.reading import dump, read
from mini_tf.run.identity import Identity, result_values
from mini_tf.system.errors import RecipeFault

CORRIDOR = "data.train={kind: corridor, distance: 300}"
OVERRIDE = "command line: "


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def train(*overrides: str, recipe: str | None = None) -> object:
    return read(recipe, overrides).recipe.data.train


def test_a_corpus_has_its_name_or_a_mapping_with_its_settings() -> None:
    assert train("data.train=world") == "world"
    assert train(CORRIDOR) == corridor.Settings(distance=300) == train(CORRIDOR, "data.train.seed=0")
    assert train("data.train=corridor", "data.train.distance=300") == corridor.Settings(distance=300)
    assert train("data.train={kind: world-facts, n_documents: 2k}", recipe="transformer-nano").n_documents == 2000  # type: ignore[attr-defined]
    assert Data(train=world.Settings(seed=2)).train == world.Settings(seed=2)


def test_a_later_level_changes_a_setting_or_the_form() -> None:
    Path("r.yaml").write_text(
        "extends: quickstart\ndata: {train: {kind: corridor, distance: 300, seed: 4}, val: {kind: corridor}}\n"
    )
    assert train(recipe="r.yaml") == corridor.Settings(distance=300, seed=4)
    assert read("r.yaml").recipe.data.val == corridor.Settings()
    assert train("data.train.distance=500", recipe="r.yaml") == corridor.Settings(distance=500, seed=4)
    assert train("data.train.kind=copy", recipe="r.yaml").kind == "copy"  # type: ignore[attr-defined]
    assert train("data.train=corridor", recipe="r.yaml") == "corridor"
    assert train("data.train=a.txt", recipe="r.yaml") == str(Path("a.txt").absolute())
    Path("pairs.yaml").write_text("extends: transformer-nano\ndata: {train: {kind: world-translation, seed: 1}}\n")
    source, target = str(Path("a").absolute()), str(Path("b").absolute())
    assert train("data.train={source: a, target: b}", recipe="pairs.yaml") == FilePair(source=source, target=target)
    Path("files.yaml").write_text("extends: transformer-nano\ndata: {train: {source: a, target: b}}\n")
    assert train("data.train={kind: world-facts, seed: 2}", recipe="files.yaml").kind == "world_facts"  # type: ignore[attr-defined]


def test_the_last_form_on_the_command_line_is_used() -> None:
    text = str(Path("x.txt").absolute())
    assert train(CORRIDOR, "data.train=x.txt") == text
    assert train("data.train={source: a, target: b}", "data.train=x.txt") == text
    assert train("data.train=x.txt", CORRIDOR) == corridor.Settings(distance=300)
    assert train("data.train={kind: corridor, seed: 1}", CORRIDOR) == corridor.Settings(distance=300, seed=1)
    assert read(None, ["data.val={kind: corridor}", "data.val=null"]).recipe.data.val is None
    pair = train(CORRIDOR, "data.train={source: a, target: b}", recipe="transformer-nano")
    assert pair == FilePair(source=str(Path("a").absolute()), target=str(Path("b").absolute()))


def test_the_complete_recipe_gives_the_same_corpus_and_the_same_run() -> None:
    resolved = read(None, [CORRIDOR, "data.val={kind: corridor, seed: 1}"])
    Path("resolved.yaml").write_text(dump(resolved.recipe))
    assert read("resolved.yaml").recipe == resolved.recipe
    assert resolved.sources["data.train.distance"] == "command line"
    contents = {"data": "x", "tokenizer": "y"}
    ids = {
        Identity.of(read(None, [given]), contents).run_id for given in ("data.train=world", "data.train={kind: world}")
    }
    assert len(ids) == 1
    values = result_values(resolved.recipe)
    assert (values["data.train"], values["data.val"]) == ("corridor", "corridor")  # their contents are hashed


def test_settings_decide_the_file_and_defaults_keep_its_name() -> None:
    [plain], [other] = find_files("corridor"), find_files(corridor.Settings(distance=20, n_documents=5), "data.val")
    assert plain.path.name == "corridor-1.jsonl"
    assert other.path.name != plain.path.name
    assert (other.name, other.key) == ("corridor", "data.val")
    assert len(other.path.read_text().splitlines()) == 5
    assert find_corpus(corridor.Settings()) == find_corpus("corridor") == corridor.Settings()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{kind: coridor}", "no such kind 'coridor'; did you mean 'corridor'?"),
        ("{kind: world, sed: 1}", "data.train.sed: no such key; did you mean data.train.seed?"),
        (
            "{kind: world, distance: 1}",
            "data.train.distance: no such key of this kind; it belongs to associative-recall and copy and corridor",
        ),
        ("{kind: world, source: a}", "data.train.source: no such key; did you mean tokenizer.source?"),
        ("{kind: world, seed: -1}", "data.train.seed: must be at least 0, got -1"),
        ("{kind: world, cue: maybe}", "data.train.cue: must be true or false, got 'maybe'"),
        ("{kind: copy, distance: 8}", "data.train.distance: must be at least 9 for this task, got 8"),
        ("{kind: grammar, seed: 1}", "data.train.seed: no such key; did you mean train.seed?"),
        ("{kind: world-facts}", "next_token needs text, not pairs of source and target; use objective seq2seq"),
    ],
)
def test_a_wrong_setting_is_told_in_one_line(given: str, told: str) -> None:
    with pytest.raises(RecipeFault) as refused:
        read(None, [f"data.train={given}"])
    assert refused.value.exit_code == 3
    assert [*refused.value.faults] == [f"{OVERRIDE}data.train={given}: {told}"]


def test_the_schema_and_the_keys_know_the_settings() -> None:
    names = {key.name: key for key in keys()}
    assert "world-facts" in names["data.train.kind"].type
    assert names["data.val.zipf"].kinds == ("world", "world-facts", "world-translation")
    assert {"data.train.source", "data.train.target"} <= names.keys()
    assert '"kind": {"const": "associative-recall"}' in json.dumps(json_schema())
