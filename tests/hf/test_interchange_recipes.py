"""Which shipped recipes can be exported, as which family, and with which overrides the others can."""

import json
import re
import shlex
from pathlib import Path

import pytest
from commands import QUIET, minitf, trained
from families import transformers
from safetensors.torch import load_file

from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.generation.infilling import Infiller
from mini_tf.hf.families import Facts
from mini_tf.hf.family_choice import Written, choose
from mini_tf.recipe.arguments import presets
from mini_tf.recipe.kinds import kinds_of
from mini_tf.recipe.reading import read
from mini_tf.recipe.sections import Generate
from mini_tf.system.errors import RunFault
from mini_tf.trained.opening import open_trained

EXPORTED = {"bart-nano": "bart", "t5-nano": "t5", "transformer-base": "marian"}
GPT, COPIES = "model.activation is relu2, which llama has swiglu", "model.copy_attention is true"
QK_NORM, KIND = "attention.qk_norm is true", "model.attention.kind is"
REFUSED = {
    **dict.fromkeys(("quickstart", "gpt-char", "gpt-nano", "instruct-nano"), (GPT, QK_NORM)),
    "gpt-char-fast": ("model.ngrams", QK_NORM),
    "expire-span-nano": (f"{KIND} expire_span",),
    "linear-nano": (f"{KIND} linear",),
    "performer-nano": (f"{KIND} favor",),
    "sru-nano": (f"{KIND} sru",),
    "srupp-nano": ("model.attention.0.kind is srupp",),
    "xl-nano": ("model.attention.memory_length is 256", "model.positions.kind is transformer_xl"),
    "perceiver-nano": ("no family of Hugging Face models has a model of the architecture perceiver",),
    **dict.fromkeys(("bert-nano", "wnut17-nano"), (QK_NORM, "model.norm is rms")),
    "electra-nano": ("hidden_act is 'relu2'",),
    "sst2-nano": ("objective.pool is mean, which bert has first", QK_NORM),
    "classify-nano": ("objective.wide is", "objective.pool is attention, which bert has first"),
    "tag-nano": ("objective.wide is", "objective.logit_adjustment is fit"),
    **dict.fromkeys(("transformer-nano", "multi30k-en-de", "scitldr-nano"), (QK_NORM,)),
    "summarize-nano": (COPIES, QK_NORM),
    **dict.fromkeys(("cbow-nano", *(f"cbow-ladder-{n}" for n in range(1, 8))), ("intermediate_size is 0",)),
    **dict.fromkeys((f"cbow-ladder-{n}" for n in range(8, 12)), ("model.embed_norm is false",)),
}
REFUSED = {name: reasons for name, reasons in REFUSED.items() if name in presets()}
"""What the reasons must have among them; without the recipes of papers that are absent."""

PAGE = (Path(__file__).parents[2] / "mini_tf" / "hf" / "README.md").read_text()
WAYS = {
    (name, family): shlex.split(ways)
    for name, family, ways in re.findall(r"\| `([\w-]+)` \| `(\w+)` \| `(model\..+)` \|", PAGE)
}
WAYS = {(name, family): ways for (name, family), ways in WAYS.items() if name in presets()}
"""Overrides by recipe and family, from the table of the page; without the recipes of absent papers."""


def chosen(name: str, *overrides: str, to: str | None = None) -> Written:
    recipe = read(name, overrides).recipe
    labels = Labels(("a", "b"), (1, 1)) if recipe.objective.DATASET in ("classes", "tags") else None
    return choose(recipe, Facts(Vocabulary(400, pad=0, unk=1, separator=2, mask=3), recipe.train.context, labels), to)


def test_the_table_has_every_shipped_recipe() -> None:
    assert {*EXPORTED, *REFUSED} == presets().keys()


@pytest.mark.parametrize("name", EXPORTED)
def test_a_shipped_recipe_is_exported(name: str) -> None:
    assert chosen(name).family.kind == EXPORTED[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_shipped_recipe_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(RunFault) as refused:
        chosen(name)
    said = "\n".join([refused.value.message, *refused.value.faults])
    assert all(reason in said for reason in REFUSED[name]), said


def test_the_page_has_a_way_to_every_family() -> None:
    assert {family for _, family in WAYS} | {*EXPORTED.values()} == {*kinds_of("hf.families")} - {
        "roberta"
    }  # its padding has id 1


NAMED = (
    "norm",
    "norm_place",
    "embed_norm",
    "positions.kind",
    "head",
    "n_types",
    "attention.qk_norm",
    "attention.scale",
)


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        ("model.head=linear", ["model.head is linear, which bert has bert"]),
        ("model.d_embedding=16", ["model.d_embedding is 16, which bert has 192"]),
        ("model.output_bias=true", ["model.output_bias is true, which bert has false"]),
        ("model.norm_place=pre", ["model.norm_place is pre, which bert has post"]),
        (
            "model.activation=geglu",
            ["bert's config.json: hidden_act is 'geglu'; bert has gelu, gelu_new, gelu_pytorch_tanh, relu, relu2"],
        ),
        (
            "model.attention={qk_norm: true, scale: 0.3}",
            ["attention.qk_norm is true, which bert has false", "attention.scale is 0.3, which bert has rsqrt_dk"],
        ),
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
    "train.steps=3",
    "train.context=24",
    "train.batch_tokens=200",
    "model.d_model=16",
    "model.n_layers=1",
    "model.n_heads=2",
)
PAIRS = ("data.fields={source: source, target: target}", "model.d_ff=32", "schedule.warmup=0")
TINY_DATA = dict.fromkeys(("bart-nano", "t5-nano"), ("data.fields={text: source}",)) | {"transformer-base": PAIRS}


@pytest.mark.parametrize("name", EXPORTED)
def test_a_small_model_of_a_shipped_recipe_is_theirs(name: str, tmp_path: Path) -> None:
    text = tmp_path / "text.tsv"
    text.write_text("source\ttarget\n" + "".join(f"The cat {n} sat. It was red.\tOn mat {n}\n" for n in range(40)))
    data = (f"data.train={text}", "tokenizer.vocab_size=300", "model.init_std=0.3")
    run = trained(tmp_path / "run", *data, *TINY_DATA[name], *SMALL, recipe=name)
    assert difference(run) < 1e-5
    if name == "t5-nano":  # a sentinel takes the space before it, as in training
        bundle = open_trained(run, device="cpu")
        filler = Infiller(bundle.model, bundle.tokenizer, 100, Generate())
        [ours] = filler.encode_sources(["The cat [MASK] was [MASK]"])
        theirs = transformers().AutoTokenizer.from_pretrained(tmp_path / "out")
        assert theirs("The cat <extra_id_0> was <extra_id_1>")["input_ids"] == ours.ids
        assert theirs.padding_side == "right"


WORDS = [f"The cat {n} sat. It was red." for n in range(40)]
ROWS = {
    "next_token": ("text.txt", "\n\n".join(WORDS)),
    "classify": ("rows.tsv", "label\ttext\n" + "".join(f"{n % 2}\t{text}\n" for n, text in enumerate(WORDS))),
    "tag": ("tags.conll", "".join(f"cat\tB-x\n{n}\tI-x\nsat\tO\n\n" for n in range(40))),
    "seq2seq": ("source.txt", "\n".join(WORDS)),
}


@pytest.mark.parametrize(("name", "family"), WAYS)
def test_a_row_of_the_page_trains_and_is_exported(name: str, family: str, tmp_path: Path) -> None:
    objective = read(name).recipe.objective.kind
    kind = objective if objective in ROWS else "next_token"
    (tmp_path / ROWS[kind][0]).write_text(ROWS[kind][1])
    train = str(tmp_path / ROWS[kind][0])
    train = {
        "classify": f"{train}, fields: {{text: text, label: label}}",
        "seq2seq": f"{{source: {train}, target: {train}}}",
    }.get(kind, train)
    data = f"data={{train: {train}, val: null, split: 25%}}"
    more = ("tokenizer.vocab_size=300", "eval.tokens=100", *SMALL, *WAYS[name, family], *QUIET)
    command = "finetune" if kind in ("classify", "tag") else "pretrain"
    done = minitf(command, name, data, *more, "-d", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert difference(tmp_path / "run", "--to", family) < 1e-5


def difference(run: Path, *options: str) -> float:
    """What parity.json of an export says that transformers' model differs."""
    done = minitf("export", run, "-o", run.parent / "out", *options)
    assert done.exit_code == 0, done.stderr
    parity = json.loads((run.parent / "out" / "parity.json").read_text())
    assert parity["reader"].startswith("transformers")
    return float(parity["largest_difference"])


LEAN = {
    "gpt2": "kind: decoder, norm: layer, norm_weight: false, positions: learned",
    "llama": "kind: decoder, norm: rms, norm_weight: false, activation: swiglu, positions: rotary",
    "bert": (
        "kind: encoder, norm: layer, norm_weight: false, norm_place: post, embed_norm: true, head: bert, n_types: 2, "
        "positions: learned"
    ),
}


@pytest.mark.parametrize("family", LEAN)
def test_biases_and_norm_weights_that_a_model_lacks_are_0_and_1_in_the_files(family: str, tmp_path: Path) -> None:
    run = trained(
        tmp_path / "run",
        "train.steps=2",
        f"model={{{LEAN[family]}, bias: false, d_model: 16, n_layers: 1, n_heads: 2}}",
    )
    assert difference(run, "--to", family) < 1e-5
    written = load_file(tmp_path / "out" / "model.safetensors")
    norms = [tensor for name, tensor in written.items() if "norm" in name.lower() or ".ln_" in name]
    assert norms
    assert all(bool((tensor == 1).all() | (tensor == 0).all()) for tensor in norms)
