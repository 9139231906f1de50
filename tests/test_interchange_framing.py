"""Texts are framed by an exported tokenizer as the commands of minitf frame them: the same outputs in transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import QUIET, TINY, minitf, results, trained
from families import transformers

from mini_tf.data.tokenizers import SPECIALS

BERT = "model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2, norm_place: post, embed_norm: true, bias: true, activation: gelu,"
LLAMA = "model={kind: decoder, d_model: 16, n_layers: 1, n_heads: 2, activation: swiglu, norm: rms, positions: rotary}"
MARIAN = (
    "model={kind: encoder_decoder, d_model: 16, n_layers: 1, n_heads: 2, norm_place: post, bias: true, activation: gelu,"
    "positions: {kind: sinusoidal, order: sines_first}, output_bias: true}"
)
FAST = {"bpe": 300, "unigram": 300, "wordpiece": 120, "char": None, "byte": None}


def exported(run: Path) -> Path:
    folder = run.parent / "exported"
    done = minitf("export", run, "-o", folder)
    assert done.exit_code == 0, done.stderr
    return folder


def pipeline(task: str, folder: Path, **more: Any) -> Any:
    return transformers().pipeline(task, model=str(folder), device="cpu", **more)


@pytest.mark.parametrize("kind", FAST)
def test_masks_are_filled_with_the_same_probabilities(kind: str, tmp_path: Path) -> None:
    tokenizer = f"tokenizer={{kind: {kind}{f', vocab_size: {FAST[kind]}' if FAST[kind] else ''}}}"
    model = f"{BERT} head: bert, n_types: 2, positions: learned, init_std: 0.4}}"
    run = trained(tmp_path / "run", "train.steps=1", tokenizer, model)
    fill = pipeline("fill-mask", exported(run), top_k=5)
    for prompt in ("the [MASK] was", "[MASK] and the", "Once upon a [MASK]", "a[MASK], b"):
        [ours] = results(minitf("generate", run, prompt, "--json", "--top-k", "5").stdout)
        theirs = {fill.tokenizer.convert_ids_to_tokens(one["token"]): one["score"] for one in fill(prompt, top_k=20)}
        found = [theirs[name] for name in theirs if name not in SPECIALS.values()][:5]
        assert found == pytest.approx([one["p"] for one in ours["candidates"][0]], abs=1e-5)


@pytest.mark.parametrize("pairs", [False, True], ids=["texts", "pairs"])
def test_classes_have_the_same_probabilities(pairs: bool, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    second = [{"text_pair": f"the {word}"} if pairs else {} for word in ("cat", "dog", "sun", "sea")]
    rows.write_text("".join(json.dumps({"text": f"a {n}", "label": "ab"[n % 2], **second[n % 4]}) + "\n" for n in range(20)))
    model = f"{BERT} n_types: 2, positions: learned, init_std: 0.4}}"
    objective = "objective={kind: classify, pool: first, dense: tanh}"
    data = (f"data.train={rows}", "data.val=null", "data.split=25%", "tokenizer={kind: bpe, vocab_size: 300}", "train.context=32")
    done = minitf("finetune", TINY, *data, model, objective, "train.steps=1", *QUIET, "-d", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    given = {"text": "a 3", **second[1]}
    line = minitf("predict", tmp_path / "run", stdin=json.dumps(given) + "\n").stdout
    classify = pipeline("text-classification", exported(tmp_path / "run"), top_k=None)
    theirs = {one["label"]: one["score"] for one in classify([given])[0]}
    assert theirs == pytest.approx(json.loads(line)["scores"], abs=1e-5)


def test_prompts_are_continued_with_the_same_text(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "train.steps=20", LLAMA)
    ours = minitf("generate", run, "The ", "--greedy", "--max-new-tokens", "12").stdout
    generate = pipeline("text-generation", exported(run))
    [theirs] = generate("The ", max_new_tokens=12, do_sample=False, return_full_text=False)
    assert theirs["generated_text"] == ours.removesuffix("\n")


def test_sources_end_with_a_separator_and_begin_with_none(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("source\ttarget\n" + "".join(f"go {n}\tgeh {n}\n" for n in range(20)))
    data = (f"data.train={pairs}", "data.fields={source: source, target: target}", "objective.kind=seq2seq")
    run = trained(tmp_path / "run", "train.steps=1", MARIAN, *data)
    folder = exported(run)
    tokenizer = transformers().AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("go")["input_ids"]
    assert ids == [*tokenizer("go", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    ours = minitf("generate", run, "go 1", "--greedy", "--max-new-tokens", "6").stdout
    model = transformers().MarianMTModel.from_pretrained(folder)
    suppressed = [id for id in tokenizer.all_special_ids if id != tokenizer.eos_token_id]
    [found] = model.generate(
        **tokenizer("go 1", return_tensors="pt"), do_sample=False, num_beams=1, max_new_tokens=6, suppress_tokens=suppressed
    )
    assert tokenizer.decode(found, skip_special_tokens=True) == ours.removesuffix("\n")
