"""Which shipped recipes can be exported, as which family, and with which overrides the others can."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from commands import QUIET, minitf, results, trained
from families import exported, imported, transformers, written
from hostile import HOSTILE
from safetensors.torch import load_file
from test_onnx import loaded

from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.generation.translation import Infiller
from mini_tf.hf.families import Facts
from mini_tf.hf.family_choice import Written, choose
from mini_tf.hf.model_folder import open_foreign
from mini_tf.recipe.arguments import presets
from mini_tf.recipe.kinds import kinds_of
from mini_tf.recipe.reading import read
from mini_tf.recipe.sections import Generate
from mini_tf.system.errors import RunFault
from mini_tf.trained.opening import open_trained

PAGE = (Path(__file__).parents[2] / "mini_tf" / "hf" / "README.md").read_text()
AS_THEY_ARE, CHANGED = PAGE.split("A few overrides")
SHIPPED = {name: where for name, where in re.findall(r"\| `([\w-]+)` \| (.+) \|\n", AS_THEY_ARE) if name in presets()}
"""The table of the page: by recipe the architecture, or that it is code."""
EXPORTED = [name for name, where in SHIPPED.items() if re.fullmatch(r"`\w+`", where)]
WAYS = {
    (name, family): shlex.split(ways)
    for name, family, ways in re.findall(r"\| `([\w-]+)` \| `(\w+)` \| `(model\..+)` \|", CHANGED)
    if name in presets()
}
"""Overrides by recipe and family, from the table of the page; without the recipes of absent papers."""


def chosen(name: str, *overrides: str, to: str | None = None, exact: bool = False) -> Written:
    recipe = read(name, overrides).recipe
    labels = Labels(("a", "b"), (1, 1)) if recipe.objective.DATASET in ("classes", "tags") else None
    vocabulary = Vocabulary(400, pad=0, unk=1, separator=2, mask=3)
    return choose(recipe, Facts(vocabulary, recipe.train.context, labels), to, (), exact)


def row(name: str) -> str:
    """What the page says of a recipe: its architecture, or the first reason why it goes out as code."""
    try:
        return f"`{chosen(name).head.architecture}`"
    except RunFault as refused:
        reasons = re.sub(r"this model cannot be written as .*?(nearest is \w+, but |: )", "", refused.message)
        each = re.split(r"; (?=model\.|objective\.|\w+'s config)", reasons)
        first, *more = sorted(each, key=lambda reason: ("config.json" in reason, ".kind is" not in reason))
        return f"code: {first}" + (f"; {len(more)} more" if more else "")


def test_the_page_says_where_every_shipped_recipe_goes() -> None:
    rows = {name: row(name) for name in sorted(presets())}
    assert rows == SHIPPED, "\n".join(f"| `{name}` | {where} |" for name, where in rows.items())


def test_the_page_has_a_way_to_every_family() -> None:
    as_shipped = {chosen(name).family.kind for name in EXPORTED}
    of_others = {"roberta", "xlm_roberta"}  # whose padding has id 1
    assert {family for _, family in WAYS} | as_shipped == {*kinds_of("hf.families")} - of_others


def test_matrices_of_an_adapter_are_stored_as_they_are() -> None:
    """Each change of a matrix is a reason, the weights of norms are none."""
    overrides = WAYS["quickstart", "llama"]
    assert chosen("quickstart", *overrides).read.norm_weight
    with pytest.raises(RunFault) as refused:
        chosen("quickstart", *overrides, to="llama", exact=True)
    assert re.findall(r"model\.([\w.]+) is", refused.value.message) == ["activation", "attention.scale"]


NAMED = ("norm", "norm_place", "embed_norm", "positions.kind", "head", "n_types", "attention.qk_norm")


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        ("model.head=linear", ["model.head is linear, which bert has bert"]),
        ("model.d_embedding=16", ["model.d_embedding is 16, which bert has 192"]),
        ("model.output_bias=true", ["model.output_bias is true, which bert has false"]),
        ("model.norm_place=pre", ["model.norm_place is pre, which bert has post"]),
        ("model.activation=geglu", ["bert's config.json: hidden_act is 'geglu'; bert has gelu, gelu_new, "]),
        ("model.attention.qk_norm=true", ["attention.qk_norm is true, which bert has false"]),
        ("model.d_ff=0", ["intermediate_size is 0; it must be a whole number from 1", "model.d_ff is 0"]),
    ],
)
def test_a_setting_that_a_family_lacks_is_named_with_all_others(change: str, reasons: list[str]) -> None:
    with pytest.raises(RunFault) as refused:
        chosen("bert-nano", *WAYS["bert-nano", "bert"], change, to="bert")
    assert all(reason in refused.value.message for reason in reasons), refused.value.message
    with pytest.raises(RunFault) as all_of_them:
        chosen("bert-nano", to="bert")
    assert all(f"model.{key} is" in all_of_them.value.message for key in NAMED)


SMALL = (
    *("train.steps=3", "train.context=24", "train.batch_tokens=200", "eval={tokens: 100, translations: 0}"),
    *("schedule.warmup=0", "model.d_model=16", "model.n_layers=1", "model.n_heads=2"),
    *("model.init=scaled", "model.init_std=0.3"),
)
WORDS = [f"The cat {n} sat. It was red." for n in range(40)]
ROWS: dict[str, list[dict[str, Any]]] = {
    "classify": [{"text": text, "label": str(n % 2)} for n, text in enumerate(WORDS)],
    "tag": [{"tokens": ["cat", str(n), "sat"], "tags": ["B-x", "I-x", "O"]} for n in range(40)],
    "seq2seq": [{"source": text, "target": text} for text in WORDS],
    "contrastive": [{"text": text, "positive": text[:9]} for text in WORDS],
    "instruct": [{"prompt": text, "response": text} for text in WORDS],
}
"""By objective; of others the texts alone."""
FIELDS = {"classify": "{text: text, label: label}", "seq2seq": "{source: source, target: target}"}
FIELDS |= {"tag": "{text: tokens, label: tags}"}
SIZES = {
    "transformer-base": ("model.d_ff=32",),
    "perceiver-nano": ("model.decoder={n_heads: 8, d_k: 32, d_v: 2, d_ff: 16}",),
    "contrastive-nano": ("objective.group=2",),
}


def small_run(name: str, folder: Path, *overrides: str) -> Path:
    """A run of a shipped recipe with a tiny model, on a few rows, whose weights are not 0."""
    recipe = read(name).recipe
    kind = recipe.objective.kind
    rows = ROWS.get(kind, [{"text": text} for text in WORDS])
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = f"data={{train: {folder / 'rows.jsonl'}, val: null, split: 25%, fields: {FIELDS.get(kind, '{}')}}}"
    size = () if recipe.tokenizer.kind in ("char", "byte") else ("tokenizer.vocab_size=300",)
    more = (*size, *SMALL, *overrides, *SIZES.get(name, ()), *QUIET)
    command = "finetune" if kind in ("classify", "tag", "contrastive") else "pretrain"
    done = minitf(command, name, data, *more, "-d", folder / "run")
    assert done.exit_code == 0, done.stderr
    return folder / "run"


GENERATED = {
    "gpt-nano": {"do_sample": True, "temperature": 0.6, "top_k": 20, "max_new_tokens": 200},
    "instruct-nano": {"do_sample": False, "temperature": None, "max_new_tokens": 40},
    "transformer-base": {"num_beams": 4, "length_penalty": 0.6, "early_stopping": "never", "no_repeat_ngram_size": 0},
}
"""What transformers reads of some recipes' settings of generation."""


@pytest.mark.parametrize("name", EXPORTED)
def test_a_small_model_of_a_shipped_recipe_is_theirs(name: str, tmp_path: Path) -> None:
    run = small_run(name, tmp_path)
    assert difference(run) < 1e-5
    out = tmp_path / "out"
    theirs = transformers().AutoTokenizer.from_pretrained(out)
    bundle = open_trained(run, device="cpu")
    for text in (text for text in HOSTILE if "\ud800" not in text):
        ids = theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert ids == bundle.tokenizer.encode(text).tolist(), ascii(text)
    for key, value in GENERATED.get(name, {}).items():
        assert getattr(transformers().GenerationConfig.from_pretrained(out), key) == value
    assert open_foreign(out).recipe.generate == bundle.recipe.generate.model_copy(update={"prompt": ""})
    if not bundle.model.needs_source and bundle.recipe.objective.HEAD:
        imported(out, tmp_path / "again")
        model = transformers().AutoModelForCausalLM.from_pretrained(out)
        assert f"`{type(model).__name__}`" == SHIPPED[name]
        generate = transformers().pipeline("text-generation", model=model, tokenizer=theirs, device="cpu")
        [text] = generate("The cat", max_new_tokens=12, do_sample=False, return_full_text=False)
        for folder in (run, tmp_path / "again"):
            done = minitf("generate", folder, "The cat", "--greedy", "--max-new-tokens", "12", "--json")
            [ours] = results(done.stdout)
            assert ours["texts"] == [text["generated_text"]]
        if bundle.recipe.objective.kind == "instruct":
            messages = [{"role": "user", "content": "The cat"}]
            [text] = generate(messages, max_new_tokens=12, do_sample=False)
            assert text["generated_text"][-1]["content"] == ours["texts"][0]
    if name == "t5-nano":  # a sentinel takes the space before it, as in training
        filler = Infiller(bundle.model, bundle.tokenizer, 100, Generate())
        [source] = filler.encode_sources(["The cat [MASK] was [MASK]"])
        assert theirs("The cat <extra_id_0> was <extra_id_1>")["input_ids"] == source.ids
        assert theirs.padding_side == "right"


@pytest.mark.parametrize(("name", "family"), WAYS)
def test_a_model_of_a_row_of_the_page_is_theirs(name: str, family: str, tmp_path: Path) -> None:
    parity = written(loaded(name, *WAYS[name, family], *SIZES.get(name, ())), family, tmp_path)
    assert parity.largest_difference < 1e-5 * max(1.0, parity.largest_output)


def difference(run: Path, *options: str) -> float:
    """What parity.json of an export says that transformers' model differs, by the largest output."""
    parity = exported(run, run.parent / "out", *options)
    assert parity["reader"].startswith("transformers")
    return float(parity["largest_difference"]) / max(1.0, parity["largest_output"])


LEAN = {
    "gpt2": "kind: decoder",
    "bert": "kind: encoder, norm_place: post, embed_norm: true, head: bert, n_types: 2",
}


@pytest.mark.parametrize("family", LEAN)
def test_biases_and_norm_weights_that_a_model_lacks_are_0_and_1_in_the_files(family: str, tmp_path: Path) -> None:
    without = "bias: false, norm: layer, norm_weight: false, positions: learned"
    model = f"model={{{LEAN[family]}, {without}, d_model: 16, n_layers: 1, n_heads: 2}}"
    run = trained(tmp_path / "run", "train.steps=2", model)
    assert difference(run, "--to", family) < 1e-5
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    norms = [tensor for name, tensor in tensors.items() if "norm" in name.lower() or ".ln_" in name]
    assert norms
    assert all(bool((tensor == 1).all() | (tensor == 0).all()) for tensor in norms)
