"""From files, presets, run folders and overrides to one recipe: precedence, positions of faults, paths, and the way
back.
"""

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_tf.recipe.arguments import is_override, presets, split_arguments
from mini_tf.recipe.kinds import listing
from mini_tf.recipe.reading import dump, read
from mini_tf.recipe.recipe import Recipe
from mini_tf.run.identity import Identity
from mini_tf.system.errors import RecipeFault, UsageFault

SMALL = "model: decoder\ntrain: {steps: 100}\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)


def write(name: str, text: str) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)
    return name


def faults(recipe: str, *overrides: str) -> tuple[str, ...]:
    with pytest.raises(RecipeFault) as refused:
        read(recipe, overrides)
    return refused.value.faults


def test_the_command_line_stands_above_the_recipe_above_what_it_extends_above_defaults() -> None:
    write("low.yaml", SMALL + "optimizer: {lr: 1e-1, clip: 2}\nlog: {every_steps: 3}\n")
    write("top.yaml", "extends: low.yaml\noptimizer: {lr: 1e-2}\nlog: {samples: 5}\n")
    mixers = "[window, {kind: softmax, qk_norm: true}]"
    made = read("top.yaml", ["optimizer.lr=1e-3", f"model.attention={mixers}"])
    recipe, sources = made.recipe, made.sources
    assert (recipe.optimizer.lr, recipe.optimizer.clip, recipe.optimizer.eps) == (1e-3, 2, 1e-8)
    assert (recipe.log.every_steps, recipe.log.samples) == (3, 5)
    keys = ("optimizer.lr", "log.samples", "optimizer.clip", "optimizer.eps", "model.kind", "model.d_model")
    positions = ["command line", "top.yaml:3", "low.yaml:3", "default", "low.yaml:1", "default"]
    assert [sources[key] for key in keys] == positions
    assert made.why("optimizer.lr") == [("command line", "1e-3"), ("top.yaml:2", "1e-2"), ("low.yaml:3", "1e-1")]
    assert made.why("optimizer.eps") == [("default", "1e-08")]
    assert made.why("model.attention") == [("command line", mixers)]
    assert (made.name, made.shipped, made.text) == ("top", False, Path("top.yaml").read_text())


def test_every_fault_is_reported_at_once_with_its_line() -> None:
    text = """\
model:
  kind: decoder
  n_embd: 64
  n_heads: 3
  attention: [window, {kind: windw}]
train:
  steps: 10
  epochs: 2
  lr: 3e-4
  batch_size: 8
  micro_batch_size: 3
optimizer: {learning_rate: 1e-3, clip: yes}
optimiser: {}
objective: masked
"""
    found = faults(write("bad.yaml", text), "train.seed=abc", "schedule.warmp=5")
    way = next(line for line in found if "masked needs" in line).partition("; use ")[
        2
    ]  # kinds of the tree, whichever there are
    assert {"objective next_token", "objective prefix", "model encoder"} <= {*way.split(" or ")}
    assert found == (
        "bad.yaml:3: model.n_embd: no such key; did you mean model.d_model?",
        "bad.yaml:4: model.n_heads: 3 does not divide d_model 128; use 1, 2, 4, 8, 16, 32 or 64, or give d_k",
        "bad.yaml:5: model.attention: no such kind 'windw'; did you mean 'window'?",
        "bad.yaml:8: train.epochs: steps and epochs are given; keep exactly one of steps, tokens, epochs, time",
        "bad.yaml:9: train.lr: no such key; did you mean optimizer.lr?",
        "bad.yaml:11: train.micro_batch_size: 3 does not divide batch_size 8; use 2",
        "bad.yaml:12: optimizer.learning_rate: no such key; did you mean optimizer.lr?",
        "bad.yaml:12: optimizer.clip: must be a finite number, got 'yes'",
        "bad.yaml:13: optimiser: no such key; did you mean optimizer?",
        f"bad.yaml:14: objective: masked needs bidirectional attention, but decoder has causal attention; use {way}",
        "command line: schedule.warmp=5: no such key; did you mean schedule.warmup?",
        "command line: train.seed=abc: must be a whole number, got 'abc'",
    )


def test_a_wrong_value_brings_no_fault_about_its_default() -> None:
    assert faults("small.yaml", "train.batch_size=x", "train.micro_batch_size=5") == (
        "command line: train.batch_size=x: must be a whole number, got 'x'",
    )
    assert faults("small.yaml", "model=decoderr") == (
        "command line: model=decoderr: no such kind 'decoderr'; did you mean 'decoder'?",
    )
    assert faults("small.yaml", "train.steps=x") == ("command line: train.steps=x: must be a whole number, got 'x'",)


def test_a_misspelt_key_is_not_said_to_be_missing_too(tmp_path: Path) -> None:
    """However many unknown keys stand beside it."""
    others = "".join(f", x{n}: 1" for n in range(1200))
    for more in ("", others):
        (tmp_path / "r.yaml").write_text(
            f"model: decoder\ntrain: {{steps: 5}}\ndata: {{train: {{source: a, taregt: b{more}}}}}\n"
        )
        with pytest.raises(RecipeFault) as fault:
            read(tmp_path / "r.yaml")
        assert fault.value.faults[0].endswith(":3: data.train.taregt: no such key; did you mean data.train.target?")
        assert not [line for line in fault.value.faults if "is missing" in line]


def test_a_recipe_without_model_or_horizon_is_told_both() -> None:
    found = faults(write("r.yaml", "log: {samples: 0}\n"))
    assert found == (
        f"r.yaml:1: model: must be a kind, one of {', '.join(listing('models'))}",
        "r.yaml:1: train: must set the length of the run: one of steps, tokens, epochs, time, such as steps: 2000",
    )


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("block_size=8", "train.context"),
        ("max_iters=8", "train.steps"),
        ("per_device_train_batch_size=8", "train.batch_size"),
        ("model.num_hidden_layers=2", "model.n_layers"),
        ("objective.mlm_probability=0.2", "objective.mask_rate"),
        ("lr=1", "optimizer.lr"),
        ("optimizer.d_model=1", "model.d_model"),
        ("vocab_size=300", "tokenizer.vocab_size"),
        (
            "train.gradient_accumulation_steps=4",
            "train.micro_batch_size (accumulation is batch_size / micro_batch_size)",
        ),
    ],
)
def test_names_of_other_tools_and_sections_lead_to_the_right_key(override: str, hint: str) -> None:
    assert faults("small.yaml", override) == (f"command line: {override}: no such key; did you mean {hint}?",)


@pytest.mark.parametrize(
    ("override", "kind"), [("model.attention.window=3", "window"), ("optimizer.orthogonal_steps=3", "muon")]
)
def test_a_key_of_another_kind_is_said_to_be_one(override: str, kind: str) -> None:
    told = f"command line: {override}: no such key of this kind; it belongs to {kind}"
    assert faults("small.yaml", override) == (told,)


def test_a_setting_that_stands_alone_in_place_of_a_list_has_no_name_in_messages() -> None:
    override = "model.attention={kind: window, window: -1, name: x}"
    told = f"command line: {override}: model.attention.window: must be at least 1, got -1"
    assert told in faults("small.yaml", override)


def test_a_later_kind_drops_the_settings_of_the_old_one_and_the_same_kind_keeps_them() -> None:
    text = SMALL.replace("decoder", "{kind: decoder, d_model: 64, attention: {kind: window, window: 9}}")
    write("w.yaml", text)
    assert read("w.yaml", ["model.attention.kind=softmax"]).recipe.model.attention[0].kind == "softmax"
    assert read("w.yaml", ["model.attention=window"]).recipe.model.attention[0].window == 9
    assert read("w.yaml", ["model.attention.kind=window"]).recipe.model.attention[0].window == 9
    assert read("w.yaml", ["model.kind=encoder"]).recipe.model.d_model == 128
    assert read("w.yaml", ["model.d_ff=32"]).recipe.model.d_model == 64
    write("s.yaml", SMALL + "schedule: {warmup: 7}\n")
    assert read("s.yaml", ["schedule.kind=cosine"]).recipe.schedule.warmup == 7
    assert read("s.yaml", ["schedule.kind=linear"]).recipe.schedule.warmup == 0.02


def test_overrides_reach_into_kinds_in_any_order() -> None:
    wanted = read("small.yaml", ["model.attention={kind: window, window: 64}"]).recipe
    for overrides in (
        ["model.attention.kind=window", "model.attention.window=64"],
        ["model.attention.window=64", "model.attention.kind=window"],
        ["model.attention=window", "model.attention.window=64"],
        ["model.attention=[{kind: window, window: 64}]"],
    ):
        assert read("small.yaml", overrides).recipe == wanted
    assert len(read("small.yaml", ["model.attention=[window, window, softmax]"]).recipe.model.attention) == 3


def test_an_override_counts_wherever_the_mapping_that_it_lies_in_is_given() -> None:
    wanted = read(
        "small.yaml", ["objective=masked", "model={kind: encoder, d_model: 32, attention: {kind: window, window: 9}}"]
    ).recipe
    assert (wanted.model.kind, wanted.model.d_model, wanted.model.attention[0].window) == ("encoder", 32, 9)
    whole = "model={kind: encoder, d_model: 64, attention: {kind: window, window: 7}}"
    for overrides in permutations([whole, "model.d_model=32", "model.attention.window=9", "objective=masked"]):
        assert read("small.yaml", overrides).recipe == wanted
    for overrides in permutations(
        ["model={kind: encoder}", "model.d_model=32", "model.attention=window", "model.attention.window=9"]
    ):
        assert read("small.yaml", ["objective=masked", *overrides]).recipe == wanted


def test_a_later_horizon_repositions_the_earlier_one_and_two_at_one_level_are_a_fault() -> None:
    write("top.yaml", "extends: small.yaml\ntrain: {tokens: 2M}\n")
    assert (read("top.yaml").recipe.train.tokens, read("top.yaml").recipe.train.steps) == (2_000_000, None)
    train = read("top.yaml", ["train.time=30m"]).recipe.train
    assert (train.tokens, train.time) == (None, 1800)
    assert "keep exactly one" in faults("top.yaml", "train.time=30m", "train.steps=5")[0]
    assert read("small.yaml", ["train.steps=null", "train.epochs=2"]).recipe.train.epochs == 2


def test_of_two_overrides_of_one_key_the_later_counts() -> None:
    assert read("small.yaml", ["train.seed=1", "train.seed=2"]).recipe.train.seed == 2


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("generate.prompt=a: b = c # d", "a: b = c # d"),
        ("generate.prompt=*x &y !z", "*x &y !z"),
        ("generate.prompt=2024", "2024"),
        ("generate.prompt=", ""),
        ('generate.prompt="a\\nb"', "a\nb"),
        ("generate.prompt='it''s'", "it's"),
    ],
)
def test_text_on_the_command_line_needs_no_yaml(override: str, value: str) -> None:
    assert read("small.yaml", [override]).recipe.generate.prompt == value


def test_arguments_are_one_recipe_and_overrides() -> None:
    assert split_arguments(["a.b=1=2", "r.yaml", "c={x: 1}"]) == ("r.yaml", ["a.b=1=2", "c={x: 1}"])
    assert split_arguments([]) == (None, [])
    assert not is_override("./a=b.yaml")
    with pytest.raises(UsageFault, match=r"'b.yaml' is not KEY=VALUE"):
        split_arguments(["a.yaml", "b.yaml"])


def test_extends_may_not_lead_back_to_itself() -> None:
    write("a.yaml", "extends: sub/b.yaml\n")
    write("sub/b.yaml", "log: {samples: 1}\nextends: ../a.yaml\n")
    assert faults("a.yaml") == ("sub/b.yaml:2: extends: ../a.yaml extends itself",)
    assert "no such recipe 'nope'" in faults(write("c.yaml", "extends: nope\n"))[0]
    assert "must be a preset or a file" in faults(write("d.yaml", "extends: [a]\n"))[0]


def test_an_empty_section_is_one_of_defaults() -> None:
    recipe = read(write("r.yaml", SMALL + "optimizer:\n  # lr: 1\ndata: {val: null}\n"), ["tokenizer={}"]).recipe
    assert (recipe.optimizer.lr, recipe.data.val) == (1e-3, None)


def test_paths_are_relative_to_their_recipe_or_to_the_working_directory(tmp_path: Path) -> None:
    write(
        "deep/r.yaml",
        SMALL
        + "data: {train: [a.txt, python-docs, ./grammar, '../t*.txt', hf:x], val: '-'}\ntokenizer: {path: t.json}\n",
    )
    recipe = read("deep/r.yaml").recipe
    deep = tmp_path / "deep"
    assert recipe.data.train == (
        str(deep / "a.txt"),
        "python-docs",
        str(deep / "grammar"),
        str(tmp_path / "t*.txt"),
        "hf:x",
    )
    assert (recipe.data.val, recipe.tokenizer.path) == ("-", str(deep / "t.json"))
    changed = read("deep/r.yaml", ["data.train=my text.txt", "tokenizer.path=t"]).recipe
    assert (changed.data.train, changed.tokenizer.path) == (str(tmp_path / "my text.txt"), str(tmp_path / "t"))


def test_a_sum_in_a_fixed_order_needs_a_number_of_rows_an_eighth_of_the_batch() -> None:
    for override, size in (("train.batch_size=24", 3), ("train.batch_size=4", 1), ("train.batch_tokens=4096", 1)):
        with pytest.raises(RecipeFault, match=rf"micro_batch_size must be a number, such as {size}\b"):
            read("quickstart", ["runtime.reduce=tree", override])


def test_a_tokenizer_may_be_a_run_by_its_name_and_never_the_last_one(tmp_path: Path) -> None:
    write("outputs/tk/tokenizer.json", "{}")
    write("tk/notes.txt", "a folder of the same name without a tokenizer")
    write("deep/r.yaml", SMALL + "tokenizer: {path: tk}\n")
    for recipe, overrides in (
        ("deep/r.yaml", []),
        ("small.yaml", ["tokenizer.path=tk"]),
        ("small.yaml", ["tokenizer.path=outputs/tk"]),
    ):
        assert read(recipe, overrides).recipe.tokenizer.path == str(tmp_path / "outputs/tk")
    write("tk/tokenizer.json", "{}")
    assert read("small.yaml", ["tokenizer.path=tk"]).recipe.tokenizer.path == str(tmp_path / "tk")
    [fault] = faults("small.yaml", "tokenizer.path=last")
    assert "last changes with every run; give a run folder or its name in outputs" in fault


def test_a_run_folder_is_a_recipe_named_like_the_run() -> None:
    made = read("small.yaml", ["data.train=a.txt"])
    write("outputs/small-0a1b2c.2/resolved.yaml", dump(made.recipe))
    again = read("outputs/small-0a1b2c.2")
    assert (again.recipe, again.name) == (made.recipe, "small")


def test_an_extended_recipe_does_not_promise_what_the_lower_one_promised() -> None:
    write("low.yaml", SMALL + 'expect: {val.loss: "<2"}\n')
    write("top.yaml", "extends: low.yaml\n")
    assert (read("low.yaml").recipe.expect, read("top.yaml").recipe.expect) == ({"val.loss": "<2"}, {})
    assert "expect" in faults(write("bad.yaml", SMALL + "expect: {val.loss: 2}\n"))[0]


@pytest.mark.parametrize("name", presets())
def test_a_shipped_recipe_is_short_valid_and_survives_the_way_through_its_dump(name: str) -> None:
    made = read(name)
    assert made.shipped
    assert not read(name, ["train.seed=1"]).shipped
    assert read(name, ["runtime.device=cpu"]).shipped
    assert len(made.text.splitlines()) <= 30
    Path("again.yaml").write_text(dump(made.recipe), encoding="utf-8")
    assert read("again.yaml").recipe == made.recipe


CHANGES = {
    "generate": {
        "prompt": st.text(
            st.characters(exclude_categories=["Cs", "Cc", "Cn"]) | st.sampled_from("\n\t'\"#: 🙂"), max_size=30
        )
    },
    "optimizer": {
        "lr": st.floats(0, 10, exclude_min=True),
        "betas": st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2),
    },
    "schedule": {
        "warmup": st.integers(0, 99) | st.floats(0, 1, exclude_max=True),
        "kind": st.sampled_from(["linear", "inverse_sqrt"]),
    },
    "data": {
        "split": st.floats(0, 1, exclude_min=True, exclude_max=True).map(lambda x: f"tail {x!r}"),
        "header": st.booleans(),
    },
    "eval": {"patience": st.none() | st.integers(1, 10**12)},
    "model": {"d_model": st.integers(1, 20).map(lambda n: 8 * n), "dropout_rate": st.floats(0, 1, exclude_max=True)},
}


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries(
        {}, optional={name: st.fixed_dictionaries({}, optional=part) for name, part in CHANGES.items()}
    )
)
def test_every_recipe_survives_the_way_through_its_dump(changes: dict[str, dict[str, object]]) -> None:
    model = {"kind": "decoder", "attention": ["window", "softmax"]} | changes.pop("model", {})
    recipe = Recipe.model_validate(changes | {"model": model, "train": {"steps": 100}})
    text = dump(recipe)
    Path("again.yaml").write_text(text, encoding="utf-8")
    assert read("again.yaml").recipe == recipe
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 1 << 30}
    assert text == yaml.safe_dump(recipe.model_dump(mode="json"), **options)  # with and without libyaml


@pytest.mark.parametrize(
    "label", ["a" * 30, "a" * 127, "a" * 128, "字" * 30, "字" * 43], ids=lambda label: f"{len(label)}"
)
def test_long_labels_are_written_the_same_with_and_without_libyaml(label: str) -> None:
    objective = {"kind": "classify", "class_weights": {label: 2.0}}
    recipe = Recipe.model_validate({"objective": objective, "model": "encoder", "train": {"steps": 1}})
    plain = recipe.model_dump(mode="json")
    assert dump(recipe) == yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=1 << 30)


def test_what_only_watches_a_run_does_not_decide_its_result() -> None:
    plain = Identity.of(read("small.yaml"), {}).decides
    watching = [
        "log.samples=3",
        "checkpoint.keep_last=5",
        "generate.top_k=3",
        "runtime.device=cpu",
        "train.micro_batch_size=1",
    ]
    assert Identity.of(read("small.yaml", watching), {}).decides == plain
    for other in ("optimizer.lr=1", "train.seed=1", "data.split=10%", "data.train=grammar", "model.d_model=64"):
        assert Identity.of(read("small.yaml", [other]), {}).decides != plain
    assert (
        Identity.of(read("small.yaml", ["data.train=a.txt"]), {}).decides
        == Identity.of(read("small.yaml", ["data.train=b.txt"]), {}).decides
    )


def test_a_preset_that_is_extended_by_a_wrong_name_is_named() -> None:
    write("r.yaml", "extends: quikstart\n")
    assert any("did you mean quickstart" in fault for fault in faults("r.yaml"))
    write("s.yaml", "extends: zzzzzzzz\n")
    assert any("or one of" in fault and "quickstart" in fault for fault in faults("s.yaml"))
