"""What a model takes over of the run that it begins with: named tensor by tensor, the same to the bit; nothing that
means another thing.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from commands import DATA, EXACT, ROOT, TINY, change, minitf, refused, trained
from torch import Tensor

from mini_tf.data.examples import Labels
from mini_tf.data.tokenized import open_data
from mini_tf.jobs import assembling, initial
from mini_tf.jobs.assembling import build
from mini_tf.jobs.parts import Parts
from mini_tf.models.encoder_decoder import EncoderDecoder
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.reading import read
from mini_tf.system.errors import RecipeFault, RunFault
from mini_tf.system.limits import limits
from mini_tf.trained.opening import open_trained
from mini_tf.training.machine import memory
from mini_tf.training.machine.device import Setup, resolve_setup

SHORT = (
    *EXACT,
    "runtime.precision=fp32",
    "runtime.compile=false",
    "train.steps=1",
    "train.micro_batch_size=8",
    "log.samples=0",
    "eval.tokens=100",
    "eval.translations=0",
)
TEXT, OTHER = f"data.train={DATA / 'tiny.txt'}", f"data.train={DATA / 'other.txt'}"
PAIRS = f"data={{train: {DATA / 'reversed.tsv'}, fields: {{source: source, target: target}}}}"
OPINIONS = (f"data={{train: {ROOT / 'data' / 'opinions.tsv'}, split: 20%}}", "objective=classify")
QUESTIONS = (f"data={{train: {ROOT / 'data' / 'questions.jsonl'}, split: 20%}}", "objective=instruct")
SIZES = "model={{kind: {}, d_model: 16, n_layers: 2, n_heads: 2, bias: true, {}}}"
MADE = {
    "decoder": (SIZES.format("decoder", "positions: learned"), TEXT),
    "untied": (SIZES.format("decoder", "tied: false"), TEXT),
    "encoder": (SIZES.format("encoder", "head: bert, positions: learned"), TEXT),
    "fourier": (SIZES.format("encoder", "positions: fourier"), TEXT),
    "classify": (SIZES.format("encoder", "head: bert"), *OPINIONS),
    "encoder_decoder": (SIZES.format("encoder_decoder", "shared_embeddings: true"), PAIRS),
}
HEAD = ("head.linear.weight", "head.linear.bias")
MASKED_HEAD = (
    "head.transform.dense.weight",
    "head.transform.dense.bias",
    "head.transform.norm.weight",
    "head.transform.norm.bias",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs, by the names of MADE."""
    place = tmp_path_factory.mktemp("begin")
    for name, recipe in MADE.items():
        trained(place / name, *SHORT, *recipe)
    return place


def parts_of(run: Path, *overrides: str) -> Parts:
    recipe = read(TINY, [*SHORT, f"model.init_from={run}", *overrides]).recipe
    return build(recipe, open_data(recipe.data, recipe.tokenizer, recipe.objective), resolve_setup(recipe.runtime))


def without_run(run: Path, *overrides: str) -> Parts:
    """The same model, drawn anew as a whole."""
    recipe = read(TINY, [*SHORT, f"model.init_from={run}", *overrides]).recipe
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"init_from": None}), "adapter": None})
    return build(recipe, open_data(recipe.data, recipe.tokenizer, recipe.objective), resolve_setup(recipe.runtime))


def theirs(run: Path) -> dict[str, Tensor]:
    return open_trained(run, device="cpu").model.weights()


def prefixed(names: Iterator[str] | dict[str, Tensor], *prefixes: str) -> set[str]:
    return {name for name in names if name.startswith(prefixes)}


CASES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "masked words to classes": ("encoder", ("model.kind=encoder", *OPINIONS), HEAD, (*MASKED_HEAD, "head.linear.bias")),
    "the same classes": ("classify", ("model.kind=encoder", *OPINIONS), (), ()),
    "the same classes in another order": (
        "classify",
        ("model.kind=encoder", OPINIONS[0], "objective={kind: classify, labels: [good, bad]}"),
        HEAD,
        HEAD,
    ),
    "other classes": (
        "classify",
        ("model.kind=encoder", OPINIONS[0], "objective={kind: classify, labels: [good, bad, odd]}"),
        HEAD,
        HEAD,
    ),
    "masked words to masked words": ("encoder", ("model.kind=encoder", "objective=masked", OTHER), (), ()),
    "words to answers": ("decoder", QUESTIONS, (), ()),
    "words to answers, with a table of its own": ("untied", QUESTIONS, (), ()),
    "words of a decoder to classes": ("untied", OPINIONS, HEAD, ("head.linear.weight",)),
    "classes to masked words": (
        "classify",
        ("model.kind=encoder", "objective=masked", TEXT),
        (*MASKED_HEAD, "head.linear.bias"),
        HEAD,
    ),
    "pairs to pairs": ("encoder_decoder", ("model.kind=encoder_decoder", PAIRS), (), ()),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_loaded_new_and_left_is_told_name_by_name(case: str, runs: Path) -> None:
    name, overrides, new, left = CASES[case]
    parts, before = parts_of(runs / name, *overrides), theirs(runs / name)
    loaded, ours = parts.loaded, parts.model.weights()
    assert loaded is not None
    assert (loaded.run, set(loaded.new), set(loaded.unused), loaded.warning) == (name, set(new), set(left), "")
    assert set(loaded.loaded) == ours.keys() - set(new) == before.keys() - set(left)
    assert all(torch.equal(ours[one], before[one]) for one in loaded.loaded)
    fresh = without_run(runs / name, *overrides).model.weights()
    assert all(torch.equal(ours[one], fresh[one]) for one in new)
    said = loaded.describe()
    assert said.startswith(f"initialized from {name}: {len(loaded.loaded)} tensors loaded")
    assert (" new (" in said, " unused (" in said) == (bool(new), bool(left))
    assert all(one in said for one in new)
    assert list(loaded.list_names()) == [
        f"{what}: {', '.join(names) or 'none'}"
        for what, names in (("loaded", loaded.loaded), ("new", loaded.new), ("unused", loaded.unused))
    ]


@pytest.mark.parametrize("shared", [True, False])
def test_both_sides_of_an_encoder_decoder_begin_as_the_encoder(shared: bool, runs: Path) -> None:
    made = (SIZES.format("encoder_decoder", f"shared_embeddings: {str(shared).lower()}"), PAIRS, "eval.translations=0")
    kind = (
        made[0].replace("model=", "").removesuffix("}")
        + f", init_from: {runs / 'encoder'}, head: bert, positions: learned}}"
    )
    parts, before = parts_of(runs / "encoder", f"model={kind}", PAIRS), theirs(runs / "encoder")
    ours, loaded = parts.model.weights(), parts.loaded
    assert loaded is not None
    assert isinstance(parts.model, EncoderDecoder)
    crosses = {name for name in ours if ".cross_attn." in name}
    assert set(loaded.new) == crosses
    assert crosses
    assert loaded.unused == ()
    for name in set(ours) - crosses:
        source = (
            name.replace("source_embedding.", "embedding.")
            if name.startswith("source_")
            else name.replace("encoder.", "stack.", 1)
        )
        assert torch.equal(ours[name], before[source])
    assert ("source_embedding.tokens.weight" in ours) is not shared
    assert (
        loaded.warning
        == "the layers of encoder were trained with bidirectional attention, but attention in the decoder is causal: "
        "they need further training"
    )


@pytest.mark.parametrize(
    ("name", "overrides", "words"),
    [
        ("encoder", ("objective=next_token", TEXT), "bidirectional attention, but attention in this model is causal"),
        (
            "decoder",
            ("model.kind=encoder", *OPINIONS),
            "causal attention, but attention in this model is bidirectional",
        ),
    ],
)
def test_layers_that_see_another_side_than_they_did_are_warned_of(
    name: str, overrides: tuple[str, ...], words: str, runs: Path, tmp_path: Path
) -> None:
    done = minitf("finetune", TINY, *SHORT, f"model.init_from={runs / name}", *overrides, "-d", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert f"warning: the layers of {name} were trained with {words}: they need further training\n" in done.stderr
    loaded = parts_of(runs / name, *overrides).loaded
    assert loaded is not None
    assert {"stack.layers.0.self_attn.part.qkv.weight", "embedding.position.table.weight"} <= set(loaded.loaded)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("encoder", ("model.kind=encoder", *OPINIONS)),
        ("fourier", ("model.kind=encoder", *OPINIONS)),
        ("fourier", ("model.kind=encoder", *OPINIONS, "train.context=20")),
        ("decoder", OPINIONS),
        ("decoder", QUESTIONS),
        ("untied", (*QUESTIONS, "adapter.rank=2")),
        ("classify", ("model.kind=encoder", "objective=masked", TEXT)),
    ],
)
def test_hidden_states_are_those_of_the_run_to_the_bit(name: str, overrides: tuple[str, ...], runs: Path) -> None:
    before = open_trained(runs / name, device="cpu").model.eval()
    after, fresh = (made(runs / name, *overrides).model.eval() for made in (parts_of, without_run))
    ids = torch.randint(0, 256, (3, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.equal(after(Tokens(ids)).y, before(Tokens(ids)).y)
        assert not torch.equal(fresh(Tokens(ids)).y, before(Tokens(ids)).y)


def test_the_source_side_reads_as_the_encoder_did_to_the_bit(runs: Path) -> None:
    before = open_trained(runs / "encoder", device="cpu").model.eval()
    after = parts_of(
        runs / "encoder", "model.kind=encoder_decoder", f"model.init_from={runs / 'encoder'}", PAIRS
    ).model.eval()
    assert isinstance(after, EncoderDecoder)
    read: list[Tensor] = []
    after.encoder.register_forward_hook(lambda module, given, mixed: read.append(mixed.y))
    ids = torch.arange(40).view(2, 20)
    with torch.no_grad():
        after(Tokens(ids), Tokens(ids))
        assert torch.equal(read[0], before(Tokens(ids)).y)


@pytest.mark.parametrize(
    ("name", "override", "words"),
    [
        ("decoder", "model.d_model=32", "model.d_model: is 32, but 16 in decoder"),
        ("decoder", "model.n_heads=4", "model.n_heads: is 4, but 2 in decoder"),
        ("decoder", "model.n_layers=3", "model.n_layers: is 3, but 2 in decoder"),
        ("decoder", "model.activation=relu", "model.activation: is relu, but gelu in decoder"),
        ("decoder", "model.norm=rms", "model.norm: is rms, but layer in decoder"),
        ("decoder", "model.norm_place=post", "model.norm_place: is post, but pre in decoder"),
        ("decoder", "model.norm_eps=1e-6", "model.norm_eps: is 1e-06, but 1e-05 in decoder"),
        ("decoder", "model.embed_scale=true", "model.embed_scale: is True, but False in decoder"),
        ("decoder", "model.tied=false", "model.tied: is False, but True in decoder"),
        ("decoder", "model.positions.kind=rotary", "model.positions: is rotary, but learned in decoder"),
        (
            "decoder",
            "model.positions.length=64",
            "model.positions.length: is 64, but 48 in decoder, the run of model.init_from; leave model.positions out",
        ),
        ("untied", "model.positions.base=500", "model.positions.base: is 500.0, but 10000.0 in untied"),
        ("untied", "model.attention.kind=window", "model.attention: is window, but softmax in untied"),
        ("untied", "model.attention.scale=none", "model.attention.scale: is none, but rsqrt_dk in untied"),
        ("untied", "tokenizer.kind=char", "model.init_from uses the run's tokenizer; remove this section"),
    ],
)
def test_what_would_mean_another_thing_than_in_the_run_is_refused(
    name: str, override: str, words: str, runs: Path
) -> None:
    with pytest.raises(RecipeFault) as fault:
        parts_of(runs / name, override)
    assert words in "\n".join(fault.value.lines)


def test_a_command_that_may_not_begin_with_a_run_leaves_no_folder(runs: Path, tmp_path: Path) -> None:
    begins = f"model.init_from={runs / 'decoder'}"
    done = minitf("pretrain", TINY, *SHORT, begins, "model.n_heads=4", "-d", tmp_path / "new")
    refused(done, "model.n_heads: is 4, but 2 in decoder", exit_code=3)
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_positions_are_scaled_as_in_the_run_whatever_the_context_is(runs: Path) -> None:
    """The features of fourier positions stretch over `length`, which decides no shape."""
    overrides = ("model.kind=encoder", *OPINIONS)
    assert (
        parts_of(runs / "fourier", *overrides, "train.context=20").recipe.model.model_dump()["positions"]["length"]
        == 48
    )
    with pytest.raises(RecipeFault, match=r"model\.positions\.length: is 20, but 48 in fourier"):
        parts_of(runs / "fourier", *overrides, "model.positions.length=20")
    with pytest.raises(RecipeFault, match=r"model\.positions\.length: is 20, but 48 in fourier"):
        parts_of(runs / "fourier", *overrides, "train.context=20", "model.positions.length=auto")


@pytest.mark.parametrize(
    ("key", "value"), [("n_heads", 4), ("n_layers", 1), ("attention", "window"), ("positions", "rotary")]
)
def test_a_source_side_of_its_own_is_compared_with_the_run_too(key: str, value: object, runs: Path) -> None:
    """Another number of heads has the same shapes, and would compute another thing."""
    with pytest.raises(RecipeFault, match=rf"model\.encoder\.{key}: is {value}.* in encoder"):
        parts_of(
            runs / "encoder",
            "model.kind=encoder_decoder",
            f"model.init_from={runs / 'encoder'}",
            PAIRS,
            f"model.encoder.{key}={value}",
        )


@pytest.mark.parametrize(
    ("name", "kind", "data"), [("decoder", "encoder_decoder", (PAIRS,)), ("encoder_decoder", "decoder", (TEXT,))]
)
def test_kinds_that_have_too_little_in_common_are_refused(
    name: str, kind: str, data: tuple[str, ...], runs: Path, tmp_path: Path
) -> None:
    done = minitf(
        "pretrain", TINY, *SHORT, f"model.kind={kind}", f"model.init_from={runs / name}", *data, "-d", tmp_path / "new"
    )
    refused(
        done,
        f"model.init_from: model.kind={kind} cannot be initialized from {name}, whose model.kind is {name};"
        f" model.kind={name}",
        exit_code=3,
    )


def test_the_source_side_has_the_vocabulary_that_it_had(runs: Path) -> None:
    overrides = (
        "model.kind=encoder_decoder",
        f"model.init_from={runs / 'encoder_decoder'}",
        PAIRS,
        "tokenizer.source.kind=char",
    )
    with pytest.raises(RecipeFault, match="tokenizer: is not the source tokenizer of encoder_decoder"):
        parts_of(runs / "encoder_decoder", *overrides)


def test_dropout_segments_and_what_fresh_weights_are_drawn_by_may_be_others(runs: Path) -> None:
    free = ("model.dropout_rate=0.3", "model.n_types=2", "model.init_std=0.5")
    loaded = parts_of(runs / "encoder", "model.kind=encoder", *OPINIONS, *free).loaded
    assert loaded is not None
    assert set(loaded.new) == {*HEAD, "embedding.types.weight"}


@pytest.mark.parametrize(("here", "there"), [(2, 4), (4, 2)])
def test_a_tensor_of_another_shape_is_refused_whether_the_runs_is_larger_or_smaller(
    here: int, there: int, tmp_path: Path
) -> None:
    """The number of segments may be another where their table is new, so only its shape tells that it does not fit."""
    run = trained(tmp_path / "run", *SHORT, SIZES.format("encoder", f"n_types: {there}"), TEXT)
    with pytest.raises(
        RecipeFault, match=rf"embedding\.types\.weight is \[{there}, 16\] in run, but \[{here}, 16\] here"
    ):
        parts_of(run, "model.kind=encoder", *OPINIONS, f"model.n_types={here}")


# Runs that are not what they should be.


@pytest.fixture
def copy(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "decoder", tmp_path / "begun"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run: change(run / "run.json", model=None), "has no trained model yet; train it first"),
        (lambda run: (run / "run.json").unlink(), "is not a run folder"),
        (lambda run: (run / "run.json").write_text("{}"), "run.json is damaged"),
        (lambda run: (run / "model.safetensors").write_bytes(b"x" * 99), "model.safetensors"),
        (lambda run: (run / "config.json").unlink(), "config.json: file not found"),
    ],
)
def test_a_run_that_is_damaged_or_not_trained_is_refused(
    damage: Callable[[Path], object], words: str, copy: Path, tmp_path: Path
) -> None:
    damage(copy)
    done = minitf("pretrain", TINY, *SHORT, f"model.init_from={copy}", "-d", tmp_path / "new")
    refused(done, words, exit_code=5)
    assert not (tmp_path / "new").exists()


def test_weights_that_change_while_they_are_read_are_refused(
    copy: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run that is still training publishes better models."""
    match_tensors = initial.match_tensors

    def match_and_train_on(*given: object) -> initial.Initialization:
        found = match_tensors(*given)  # type: ignore[arg-type]
        record = json.loads((copy / "run.json").read_text())
        record["model"]["sha256"] = "0" * 64
        (copy / "run.json").write_text(json.dumps(record))
        return found

    monkeypatch.setattr(initial, "match_tensors", match_and_train_on)
    done = minitf("pretrain", TINY, *SHORT, f"model.init_from={copy}", "-d", tmp_path / "new")
    refused(done, "has just changed; wait until its training ends", exit_code=5)
    assert not (tmp_path / "new").exists()


# Who a run is, and what it needs.


def test_a_run_is_known_by_the_content_of_the_one_it_begins_with(copy: Path, runs: Path, tmp_path: Path) -> None:
    command = ("pretrain", TINY, *SHORT, OTHER)
    moved = Path(shutil.copytree(copy, tmp_path / "elsewhere" / "moved"))
    other = trained(tmp_path / "other", *SHORT, *MADE["decoder"], "train.seed=1")
    named = [
        minitf(*command, f"model.init_from={run}", "-n", "x", "-d", tmp_path / "out").stdout for run in (copy, moved)
    ]
    assert named == [f"{tmp_path / 'out' / 'x'}\n"] * 2
    refused(
        minitf(*command, f"model.init_from={other}", "-n", "x", "-d", tmp_path / "out"),
        "was started with other contents of init",
        exit_code=5,
    )
    assert (
        len(
            {
                json.dumps(initial.init_hash(read(TINY, [f"model.init_from={run}"]).recipe))
                for run in (copy, moved, other)
            }
        )
        == 2
    )
    assert initial.init_hash(read(TINY).recipe) == {}
    none = minitf(*command, "-n", "x", "-d", tmp_path / "out")
    refused(none, "was started with another recipe: model.", exit_code=5)


def test_only_what_learns_needs_memory_for_gradients_and_moments(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = ("train.freeze=[embedding.*, stack.*]", "model.kind=encoder", *OPINIONS)
    adapted = ("adapter={rank: 1}", "model.kind=encoder", *OPINIONS)
    n = sum(p.numel() for p in parts_of(runs / "encoder", *frozen).model.parameters())
    answer = 2 * 16 + 2
    narrow = sum(p.numel() for p in parts_of(runs / "encoder", *adapted).model.parameters()) - n
    for overrides, parameters, learning in (
        (frozen, n, answer),
        (adapted, n + narrow, narrow + answer),
        (frozen[1:], n, n),
    ):
        needed = 4 * (parameters + 3 * learning)
        for free, fits in ((needed, True), (needed - 1, False)):
            available = -(-free * 100 // limits().memory_percent)
            monkeypatch.setattr(memory, "free_bytes", lambda device, available=available: available)
            if fits:
                parts_of(runs / "encoder", *overrides)
            else:
                with pytest.raises(RecipeFault, match=rf"model: {parameters:,} parameters need at least"):
                    parts_of(runs / "encoder", *overrides)


def test_a_run_whose_folder_is_gone_cannot_be_begun_with(copy: Path) -> None:
    recipe = read(TINY, [*SHORT, f"model.init_from={copy}"]).recipe
    shutil.rmtree(copy)
    with pytest.raises(RunFault, match=r"model\.init_from: the run .* no longer exists"):
        initial.init_hash(recipe)


def test_torch_is_set_up_as_the_recipe_says_and_opening_the_run_that_it_begins_with_changes_nothing(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[Setup] = []
    monkeypatch.setattr(Setup, "apply", lambda setup: applied.append(setup))
    parts = parts_of(runs / "decoder", TEXT, "train.micro_batch_size=8")
    assert [(setup.threads, setup.device.type) for setup in applied] == [(parts.setup.threads, "cpu")] == [(1, "cpu")]


def test_torch_is_set_up_anew_with_what_was_decided_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[Setup] = []
    monkeypatch.setattr(Setup, "apply", lambda setup: applied.append(setup))
    monkeypatch.setattr(assembling, "cached_tuning", lambda shape, work, setup, *given: replace(setup, threads=1))
    recipe = read(TINY, [*SHORT, "runtime.threads=2", "train.batch_size=1", "train.micro_batch_size=1"]).recipe
    setup = replace(resolve_setup(recipe.runtime), undecided=frozenset({"threads"}))
    parts = build(recipe, open_data(recipe.data, recipe.tokenizer, recipe.objective), setup)
    assert [setup.threads for setup in applied] == [2, 1]
    assert parts.setup.threads == 1


@pytest.mark.parametrize(("factor", "shift", "kept"), [(1, 0, True), (1, 9, False), (3, 0, False), (-1, 0, True)])
def test_a_head_of_numbers_is_kept_if_mean_and_scale_are_the_same(
    factor: int, shift: int, kept: bool, tmp_path: Path
) -> None:
    """Standardized numbers of another mean or scale are other numbers. Here the mean of all numbers is 0."""
    for name, times, plus in (("first", 1, 0), ("second", factor, shift)):
        rows = [f"a {n}\t{times * (1 if n % 2 else -1) + plus}\n" for n in range(44)]
        for part, lines in ((f"{name}.tsv", rows[:40]), (f"{name}-val.tsv", rows[40:])):
            (tmp_path / part).write_text("text\tlabel\n" + "".join(lines))
    data = "data={{train: {0}.tsv, val: {0}-val.tsv, fields: {{text: text, label: label}}}}"
    regress = (SIZES.format("encoder", "head: bert"), "objective=regress", "tokenizer={kind: byte}")
    run = trained(tmp_path / "run", *SHORT, *regress, data.format(tmp_path / "first"))
    parts = parts_of(run, "model.kind=encoder", "objective=regress", data.format(tmp_path / "second"))
    assert parts.loaded is not None
    assert set(parts.loaded.new) == (set() if kept else set(HEAD))


def test_the_innermost_settings_that_differ_are_named() -> None:
    window, softmax = {"kind": "window", "window": 4}, {"kind": "softmax"}
    for own, other, expected in (
        (1, 1, []),
        (1, 2, [("model.x", "1", "2")]),
        (window, window | {"window": 8}, [("model.x.window", "4", "8")]),
        (window, softmax, [("model.x", "window", "softmax")]),
        ([window], [window | {"window": 8}], [("model.x.window", "4", "8")]),
        ([softmax, window], [softmax, window | {"window": 8}], [("model.x[1].window", "4", "8")]),
        ([softmax], [softmax, window], [("model.x", "[softmax]", "[softmax, window]")]),
        ([softmax, window], [softmax], [("model.x", "[softmax, window]", "[softmax]")]),
        ([softmax], None, [("model.x", "[softmax]", "None")]),
        (None, [softmax], [("model.x", "None", "[softmax]")]),
    ):
        assert list(initial._differing("model.x", own, other)) == expected


def test_a_long_list_of_names_is_shortened_to_six() -> None:
    names = "abcdefgh"
    assert [initial.shorten(names[:n]) for n in (1, 6, 7, 8)] == [
        "a",
        "a, b, c, d, e, f",
        "a, b, c, d, e, f and 1 more",
        "a, b, c, d, e, f and 2 more",
    ]


def test_a_head_of_another_task_is_new_though_its_classes_are_the_same() -> None:
    labels = Labels(("a", "b"), (1, 1))

    def with_objective(kind: str) -> Any:
        return SimpleNamespace(recipe=SimpleNamespace(objective=settings_of("objectives", kind)()), labels=labels)

    for own, other, loaded in (
        ("tag", "tag", True),
        ("classify", "tag", False),
        ("tag", "classify", False),
        ("next_token", "prefix", True),
    ):
        new, trained = with_objective(own), with_objective(other)
        assert initial._same_head_outputs(new.recipe, trained, new) == loaded
