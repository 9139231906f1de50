"""Recipes of pairs: how they are written, kept and known again, and in which words what is wrong with them is told."""

from pathlib import Path
from typing import Any

import pytest

from mini_tf.recipe.data import Data, FilePair
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.recipe.reading import Resolved, dump, read, read_data
from mini_tf.recipe.sections import SingleTokenizer
from mini_tf.run.identity import Identity
from mini_tf.system.errors import RecipeFault

OVERRIDE = "command line: "
PAIRS = "needed: {source: COLUMN, target: COLUMN}"
SEQ2SEQ = (
    "seq2seq needs pairs; use {source: FILE, target: FILE}, or a table (csv, tsv, jsonl, parquet) with columns source"
    " and target, or data.fields {source: COLUMN, target: COLUMN}"
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def nano(*overrides: str) -> Resolved:
    return read("transformer-nano", overrides)


def faults(*overrides: str, recipe: str = "transformer-nano") -> list[str]:
    with pytest.raises(RecipeFault) as refused:
        read(recipe, overrides)
    assert refused.value.exit_code == 3
    return list(refused.value.faults)


def test_two_files_are_given_with_blanks_and_all_in_their_names(tmp_path: Path) -> None:
    recipe = nano("data.train={source: a b.txt, target: 'c: d'}", "data.val={source: [x, y], target: '*.z'}").recipe
    assert recipe.data.train == FilePair(source=f"{tmp_path}/a b.txt", target=f"{tmp_path}/c: d")
    assert recipe.data.val == FilePair(source=(f"{tmp_path}/x", f"{tmp_path}/y"), target=f"{tmp_path}/*.z")
    assert recipe.data.pairs


def test_paths_of_a_recipe_file_begin_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    Path("deep/r.yaml").write_text(
        "extends: transformer-nano\ndata: {train: {source: a, target: ../b}}\ntokenizer: {source: {path: t.json}}\n"
    )
    recipe = read("deep/r.yaml").recipe
    assert recipe.data.train == FilePair(source=f"{tmp_path}/deep/a", target=f"{tmp_path}/b")
    assert recipe.tokenizer.source == SingleTokenizer(path=f"{tmp_path}/deep/t.json")
    assert read("deep/r.yaml", ["data.train.target=c"]).recipe.data.train == FilePair(
        source=f"{tmp_path}/deep/a", target=f"{tmp_path}/c"
    )


@pytest.mark.parametrize(
    "overrides",
    [
        ["data.train={source: a b, target: [c, 'd: e']}", "tokenizer.source={kind: unigram, vocab_size: 300}"],
        [
            "data.train=t.jsonl",
            "data.fields={source: en, target: '2'}",
            "data.val=v.jsonl",
            "tokenizer.source.path=x y.json",
        ],
        ["model.cross_attention=null", "model.encoder={d_model: 64, attention: [softmax, window], positions: learned}"],
        ["train.batch_tokens=null", "train.batch_size=7"],
    ],
)
def test_the_complete_recipe_is_read_as_the_one_it_was_made_from(overrides: list[str], tmp_path: Path) -> None:
    recipe = nano(*overrides).recipe
    (tmp_path / "else").mkdir()
    Path("else/resolved.yaml").write_text(dump(recipe))
    assert read("else/resolved.yaml").recipe == recipe
    assert read("else").recipe == recipe


def test_no_path_decides_what_a_run_is() -> None:
    def known(folder: str) -> dict[str, Any]:
        files = [f"data.{key}={{source: {folder}/{key}.a, target: {folder}/{key}.b}}" for key in ("train", "val")]
        return dict(
            Identity.of(nano(*files, f"tokenizer.path={folder}/t", f"tokenizer.source.path={folder}/s"), {}).decides
        )

    assert known("/one") == known("/two")
    assert not any("/one" in str(value) for value in known("/one").values())
    resolved = nano("data.train={source: a, target: b}"), nano("data.train={source: c, target: d}")
    assert Identity.of(resolved[0], {"data": "x"}).run_id == Identity.of(resolved[1], {"data": "x"}).run_id
    assert Identity.of(resolved[0], {"data": "x"}).run_id != Identity.of(resolved[1], {"data": "y"}).run_id
    own = nano("data.train={source: a, target: b}", "tokenizer.source={kind: char}")
    assert Identity.of(own, {"data": "x"}).run_id != Identity.of(resolved[0], {"data": "x"}).run_id
    assert known("/one") != Identity.of(nano(), {}).decides


def test_a_later_level_changes_one_key_of_a_side() -> None:
    Path("r.yaml").write_text(
        "extends: transformer-nano\ntokenizer: {source: {kind: wordpiece, vocab_size: 300}}\nmodel: {kind:"
        " encoder_decoder, cross_attention: {kind: softmax, qk_norm: true}, encoder: {d_model: 64, n_heads: 2}}\n"
    )
    recipe: Any = read(
        "r.yaml", ["tokenizer.source.vocab_size=400", "model.cross_attention.scale=2", "model.encoder.n_layers=3"]
    ).recipe
    assert recipe.tokenizer.source == SingleTokenizer(kind="wordpiece", vocab_size=400)
    assert (recipe.model.cross_attention.qk_norm, recipe.model.cross_attention.scale) == (True, 2.0)
    assert (recipe.model.encoder.d_model, recipe.model.encoder.n_heads, recipe.model.encoder.n_layers) == (64, 2, 3)
    none: Any = read("r.yaml", ["tokenizer.source=null", "model.cross_attention=null", "model.encoder=null"]).recipe
    assert (none.tokenizer.source, none.model.cross_attention, none.model.encoder.d_model) == (None, None, 64)
    assert read("r.yaml", ["tokenizer.source.kind=char"]).recipe.tokenizer.source == SingleTokenizer(kind="char")


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("data.train=3", SEQ2SEQ),
        ("data.train=corpus.txt", SEQ2SEQ),
        ("data.train=[]", "must have at least one item"),
        ("data.train=[a, {b: c}]", "a source has no key 'b'; a source has path, name, weight, epochs"),
        ("data.train={source: a}", "data.train.target: is missing; must be text or a list of texts"),
        ("data.train={sorce: a, target: b}", "data.train.sorce: no such key; did you mean data.train.source?"),
        ("data.train={source: a, target: b, x: c}", "data.train.x: no such key; use one of source, target"),
        ("data.train={source: [], target: b}", "data.train.source: must have at least one item"),
        (
            "data.train={source: {a: b}, target: b}",
            "data.train.source: must be text or a list of texts, got a mapping as entry 1",
        ),
        (
            "data.train={source: -, target: b}",
            "data.train.source: - (stdin) cannot be one of two parallel files; give a file",
        ),
        ("data.val=v.jsonl", None),
        (
            "data.val={source: a, target: b}",
            "must have the form of data.train: two files {source: F, target: G}, or a table",
        ),
        ("data.fields={source: a}", f"only source is given; {PAIRS}"),
        ("data.fields={text: a}", f"unknown column role 'text'; {PAIRS}"),
        ("data.fields={source: a, target: b, x: c}", f"unknown column role 'x'; {PAIRS}"),
        ("data.split=tail 10%", "tail 10% splits a stream of characters; for pairs use a share such as 5%"),
        ("train.batch_tokens=10", "10 tokens cannot hold a row of context 64; use at least 64"),
        ("model.encoder.positions=rotery", "no such kind 'rotery'; did you mean 'rotary'?"),
        ("model.encoder.attention=[softmax, foo]", f"no such kind 'foo'; use one of {', '.join(listing('attention'))}"),
        ("model.encoder.n_layer=3", "no such key; did you mean model.encoder.n_layers?"),
        ("model.encoder.n_heads=3", "3 does not divide d_model 128; use 1, 2, 4, 8, 16, 32 or 64, or give d_k"),
        ("model.encoder=3", "must be a mapping of keys, got '3'"),
        ("model.cross_attention=null", None),
        ("model.cross_attention=window", "window attention does not support cross-attention; use softmax"),
        (
            "model.cross_attention.qk=true",
            "no such key; use one of qk_norm, scale, dropout_rate, memory_length, memory_cache, n_persistent",
        ),
        ("tokenizer.source=null", None),
        (
            "tokenizer.source.kind=wordpeice",
            "must be one of bpe, byte, char, unigram, wordpiece, got 'wordpeice'; did you mean wordpiece?",
        ),
        ("tokenizer.source.vocab=300", "no such key; did you mean tokenizer.source.vocab_size?"),
        (
            "tokenizer.source.vocab_size=20",
            "20 cannot hold 256 bytes and 4 special tokens; use at least 260, or kind char",
        ),
    ],
)
def test_a_fault_of_pairs_is_one_line_in_words(override: str, told: str | None) -> None:
    if told is None:
        nano(override)
    else:
        assert faults(override) == [f"{OVERRIDE}{override}: {told}"]


@pytest.mark.parametrize("key", ["model.positions", "model.encoder.positions"])
def test_too_few_positions_are_a_fault_of_the_stack_that_has_them(key: str) -> None:
    others = () if "encoder" in key else ("model.encoder.positions=rotary",)
    [fault] = faults(f"{key}={{kind: learned, length: 8}}", *others)
    assert f"{key}.length: 8 positions are fewer than the 64 tokens of train.context" in fault


def test_both_sides_that_are_missing_are_both_told() -> None:
    assert faults("data.train={}") == [
        f"{OVERRIDE}data.train={{}}: data.train.{side}: is missing; must be text or a list of texts"
        for side in ("source", "target")
    ]


def test_two_files_have_no_columns() -> None:
    told = faults("data.train={source: a, target: b}", "data.fields={source: x, target: y}")
    assert told == [f"{OVERRIDE}data.fields={{source: x, target: y}}: parallel files have no columns; remove it"]


def test_a_question_about_texts_is_not_asked_of_pairs_nor_the_other_way_round() -> None:
    Path("lm.yaml").write_text("model: {kind: decoder}\ntrain: {steps: 1}\n")
    told = "data.train: next_token needs text, not pairs of source and target; use objective seq2seq"
    assert faults("data.train=translate-toy", recipe="lm.yaml") == [
        f"{OVERRIDE}data.train=translate-toy: {told.removeprefix('data.train: ')}"
    ]
    assert faults("data.train={source: a, target: b}", recipe="lm.yaml") == [
        f"{OVERRIDE}data.train={{source: a, target: b}}: {told.removeprefix('data.train: ')}"
    ]
    assert faults("data.train=grammar") == [f"{OVERRIDE}data.train=grammar: {SEQ2SEQ}"]
    [fault] = faults("data.train=[t.csv, t.txt]")
    assert fault.startswith(
        f"{OVERRIDE}data.train=[t.csv, t.txt]: seq2seq needs pairs; of these two files: 'data.train={{"
    )
    assert faults("data.train=t.conll") == [f"{OVERRIDE}data.train=t.conll: {SEQ2SEQ}"]
    assert faults("data.train=hf:me/t.csv") == [f"{OVERRIDE}data.train=hf:me/t.csv: {SEQ2SEQ}"]
    for tables in ("[t.jsonl, t.TSV]", "tables/*", "."):
        assert nano(f"data.train={tables}").recipe.data.train  # whose columns are seen when they are read
    nano("data.train=t.jsonl", "data.fields={source: en, target: de}")
    own = "tokenizer.source={kind: char}"
    assert faults(own, recipe="lm.yaml") == [f"{OVERRIDE}{own}: the objective has no source; remove it"]
    assert faults("data.fields={review: a}", recipe="lm.yaml") == [
        f"{OVERRIDE}data.fields={{review: a}}: unknown column role 'review'; needed: {{text: COLUMN}}"
    ]


def test_faults_stand_at_their_line_of_a_recipe() -> None:
    Path("r.yaml").write_text(
        "extends: transformer-nano\ndata:\n  train:\n    sorce: a\n    target: b\ntokenizer:\n  source:\n    vocab:"
        " 300\nmodel:\n  kind: encoder_decoder\n  encoder:\n    n_layrs: 2\n  cross_attention: softmx\n"
    )
    assert faults(recipe="r.yaml") == [
        "r.yaml:4: data.train.sorce: no such key; did you mean data.train.source?",
        "r.yaml:8: tokenizer.source.vocab: no such key; did you mean tokenizer.source.vocab_size?",
        "r.yaml:12: model.encoder.n_layrs: no such key; did you mean model.encoder.n_layers?",
        "r.yaml:13: model.cross_attention: no such kind 'softmx'; did you mean 'softmax'?",
    ]


def test_a_stream_has_no_steps_of_tokens() -> None:
    Path("lm.yaml").write_text(
        "model: {kind: decoder, attention: window}\ntrain: {steps: 1, stream: true, context: 8}\n"
    )
    assert faults("train.batch_tokens=64", recipe="lm.yaml") == [
        f"{OVERRIDE}train.batch_tokens=64: rows of a stream all have the same length; use batch_size"
    ]


def test_a_later_size_of_batches_repositions_an_earlier_one(tmp_path: Path) -> None:
    """Also that of resolved.yaml, which names both keys."""
    rows = read("transformer-nano", ["train.batch_size=8"]).recipe.train
    assert (rows.batch_size, rows.batch_tokens) == (8, None)
    tokens = read("transformer-nano", ["train.batch_tokens=5k"]).recipe.train
    assert tokens.batch_tokens == 5000
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(dump(read("transformer-nano").recipe))
    assert read(resolved).recipe.train.batch_tokens == 2000
    assert read(resolved, ["train.batch_size=8"]).recipe.train.batch_tokens is None


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (("data.pack=docs",), "data.pack"),
        (("generate.min_new_tokens=300",), "300 is more than max_new_tokens 200"),
        (
            ("data.train=[translate-toy, a.jsonl]", "data.fields={source: a, target: b}"),
            "translate-toy is a corpus of pairs",
        ),
    ],
)
def test_what_pairs_cannot_be_is_refused(overrides: tuple[str, ...], fault: str) -> None:
    with pytest.raises(RecipeFault) as refused:
        read("transformer-nano", overrides)
    assert fault in str(refused.value.message) + str(refused.value.faults)


def test_pairs_beside_text_are_refused() -> None:
    with pytest.raises(RecipeFault, match=r"is a pair of files, and data\.train is not"):
        read("gpt-nano", ["data.val={source: a, target: b}"])


@pytest.mark.parametrize(
    ("objective", "fields", "told"),
    [
        ("seq2seq", "{source: a}", "--fields: only source is given; needed: {source: COLUMN, target: COLUMN}"),
        ("classify", "{txt: a}", "--fields: unknown column role 'txt'; needed: {text: COLUMN, label: COLUMN}"),
        ("next_token", "{txt: a}", "--fields: unknown column role 'txt'; needed: {text: COLUMN}"),
    ],
)
def test_columns_of_other_data_that_are_not_read_are_refused_in_one_line(
    objective: str, fields: str, told: str
) -> None:
    with pytest.raises(RecipeFault) as caught:
        read_data(Data(train="a.csv"), settings_of("objectives", objective)(), "b.csv", fields)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3
