"""Texts are framed by an exported tokenizer as the commands of minitf frame them: the same outputs in transformers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from commands import QUIET, TINY, minitf, refused, results, trained
from families import folder_of, imported, transformers

from mini_tf.data.tokenizers import SPECIALS
from mini_tf.trained.opening import open_trained

BERT = (
    "model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2, norm_place: post, embed_norm: true, bias: true,"
    " activation: gelu,"
)
GPT2 = "model={kind: decoder, d_model: 16, n_layers: 1, n_heads: 2, bias: true, activation: gelu, positions: learned}"
LLAMA = "model={kind: decoder, d_model: 16, n_layers: 1, n_heads: 2, activation: swiglu, norm: rms, positions: rotary}"
MARIAN = (
    "model={kind: encoder_decoder, d_model: 16, n_layers: 1, n_heads: 2, norm_place: post, bias: true, activation:"
    " gelu,positions: {kind: sinusoidal, order: sines_first}, output_bias: true}"
)
FAST = {"bpe": 300, "unigram": 300, "wordpiece": 120, "char": None, "byte": None}


def exported(run: Path) -> Path:
    folder = run.parent / "exported"
    done = minitf("export", run, "-o", folder, "--license", "apache-2.0")
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
    prompts = ("the [MASK] was", "[MASK] and the", "Once upon a [MASK]", "a[MASK], b")
    filled = results(minitf("generate", run, *prompts, "--json", "--top-k", "5").stdout)
    for prompt, ours in zip(prompts, filled, strict=True):
        theirs = {fill.tokenizer.convert_ids_to_tokens(one["token"]): one["score"] for one in fill(prompt, top_k=20)}
        found = [theirs[name] for name in theirs if name not in SPECIALS.values()][:5]
        assert found == pytest.approx([one["p"] for one in ours["candidates"][0]], abs=1e-5)


LLAMA_CLASSES = "objective={kind: classify, dense: null, head_bias: false, pool: "
BERT_TASK = f"{BERT} n_types: 2, positions: learned, init_std: 0.4}}"
TASKS = {
    "texts": (BERT_TASK, "objective={kind: classify, pool: first, dense: tanh}", False),
    "pairs": (BERT_TASK, "objective={kind: classify, pool: first, dense: tanh}", True),
    "the mean of an encoder": (
        "model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2, norm: rms, activation: relu2, init_std: 0.4,"
        " attention: {kind: softmax, scale: 0.3}}",
        "objective={kind: classify, pool: mean, dense: gelu}",
        False,
    ),
    "a decoder at the separator": (LLAMA, f"{LLAMA_CLASSES}last}}", False),
    "a decoder at the end of the text": (LLAMA, f"{LLAMA_CLASSES}text_end}}", True),
}


BPE = "tokenizer={kind: bpe, vocab_size: 300}"


def finetuned(
    folder: Path, model: str, objective: str, rows: Sequence[dict[str, Any]], tokenizer: str = BPE, steps: int = 2
) -> Path:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = (f"data={{train: {folder / 'rows.jsonl'}, val: null, split: 25%}}", tokenizer)
    more = ("train={context: 32, micro_batch_size: 8}", f"train.steps={steps}", "optimizer.lr=0.1", *QUIET)
    done = minitf("finetune", TINY, *data, model, objective, *more, "-d", folder / "run")
    assert done.exit_code == 0, done.stderr
    return folder / "run"


CLASSES = [{"text": f"a {n}", "label": "ab"[n % 2]} for n in range(20)]
SECOND = ("the cat", "the dog", "the sun", "the sea")


@pytest.mark.parametrize("case", TASKS)
def test_classes_have_the_same_probabilities(case: str, tmp_path: Path) -> None:
    model, objective, pairs = TASKS[case]
    rows = [{"text": f"a {n}", **({"text_pair": SECOND[n % 4]} if pairs else {})} for n in range(20)]
    run = finetuned(tmp_path, model, objective, [row | {"label": "ab"[n % 2]} for n, row in enumerate(rows)])
    lines = minitf("predict", run, stdin="".join(json.dumps(row) + "\n" for row in rows[3:7])).stdout.splitlines()
    classify = pipeline("text-classification", exported(run), top_k=None)
    for row, line in zip(rows[3:7], lines, strict=True):
        theirs = {label["label"]: label["score"] for label in classify([row])[0]}
        assert theirs == pytest.approx(json.loads(line)["scores"], abs=1e-5)
    imported(tmp_path / "exported", tmp_path / "again")
    again, before = (open_trained(folder, device="cpu").recipe for folder in (tmp_path / "again", run))
    assert again.objective.pool == before.objective.pool
    config = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert (config["id2label"], config["label2id"]) == ({"0": "a", "1": "b"}, {"a": 0, "b": 1})
    assert (tmp_path / "exported" / "recipe.yaml").read_bytes() == (run / "resolved.yaml").read_bytes()
    card = (tmp_path / "exported" / "README.md").read_text()
    assert card.startswith("---\nlicense: apache-2.0\n")
    assert "| val.accuracy |" in card
    assert f"Trained on `{tmp_path / 'rows.jsonl'}`; 2 training steps." in card


def test_a_classifier_of_a_decoder_needs_no_padding_token(tmp_path: Path) -> None:
    """Tokenizers of GPT-2 and Llama have none."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        ["a b"], tokenizers.trainers.BpeTrainer(special_tokens=["</s>"], initial_alphabet=letters, show_progress=False)
    )
    made.save(str(tmp_path / "own.json"))
    own = f"tokenizer={{path: {tmp_path / 'own.json'}}}"
    run = finetuned(tmp_path, LLAMA, f"{LLAMA_CLASSES}text_end}}", CLASSES, own)
    classify = pipeline("text-classification", exported(run), top_k=None)
    ours = json.loads(minitf("predict", run, stdin="a 3\n").stdout)["scores"]
    assert {one["label"]: one["score"] for one in classify(["a 3"])[0]} == pytest.approx(ours, abs=1e-5)


def test_numbers_are_the_same(tmp_path: Path) -> None:
    """An exported model predicts numbers, not those that training standardized."""
    rows = [{"text": f"a {n % 7}", "label": 100 + 20 * (n % 7)} for n in range(40)]
    run = finetuned(tmp_path, BERT_TASK, "objective={kind: regress, pool: first, dense: tanh}", rows)
    ours = json.loads(minitf("predict", run, stdin="a 3\n").stdout)["label"]
    regress = pipeline("text-classification", exported(run), function_to_apply="none")
    assert regress("a 3")[0]["score"] == pytest.approx(ours, rel=1e-6)
    imported(tmp_path / "exported", tmp_path / "again")
    again = json.loads(minitf("predict", tmp_path / "again", stdin="a 3\n").stdout)["label"]
    assert again == pytest.approx(ours, rel=1e-6)


def test_a_mean_without_a_bias_that_could_have_it_is_refused(tmp_path: Path) -> None:
    rows = [{"text": f"a {n}", "label": 3 + n % 5} for n in range(40)]
    objective = "objective={kind: regress, dense: null, head_bias: false, pool: text_end}"
    run = finetuned(tmp_path, LLAMA, objective, rows)
    done = minitf("export", run, "-o", tmp_path / "out", "--to", "llama")
    refused(done, "objective.head_bias is false, and the mean of its numbers, ", exit_code=5)


def test_a_classifier_of_the_mean_is_refused_with_a_way_out(tmp_path: Path) -> None:
    run = finetuned(tmp_path, BERT_TASK, "objective={kind: classify}", CLASSES)
    done = minitf("export", run, "-o", tmp_path / "out", "--to", "bert")
    way = "trained with objective.dense=tanh objective.pool=first its objective fits"
    refused(done, "objective.pool is mean, which bert has first", way, exit_code=5)


def test_prompts_are_continued_with_the_same_text(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "train.steps=20", LLAMA)
    ours = minitf("generate", run, "The ", "--greedy", "--max-new-tokens", "12").stdout
    generate = pipeline("text-generation", exported(run))
    [theirs] = generate("The ", max_new_tokens=12, do_sample=False, return_full_text=False)
    assert theirs["generated_text"] == ours.removesuffix("\n")
    options = {"max_new_tokens": 12, "do_sample": False, "return_full_text": False}
    several = ["The ", "Once upon a time there was a cat, and it "]
    together = generate(several, **options, batch_size=2)  # padded on the left, as the tokenizer says by itself
    alone = [generate(prompt, **options)[0] for prompt in several]
    assert [texts[0] for texts in together] == alone
    assert transformers().AutoTokenizer.from_pretrained(tmp_path / "exported").padding_side == "left"


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
    tokenizers_ = ("tokenizer={kind: byte, source: {kind: char}}", "model.tied=true")
    two = trained(tmp_path / "two", "train.steps=1", MARIAN, *data, *tokenizers_)
    refused(minitf("export", two, "-o", tmp_path / "no"), "two vocabularies", "--to safetensors", exit_code=5)
    suppressed = [id for id in tokenizer.all_special_ids if id != tokenizer.eos_token_id]
    options = {"do_sample": False, "num_beams": 1, "max_new_tokens": 6, "suppress_tokens": suppressed}
    [found] = model.generate(**tokenizer("go 1", return_tensors="pt"), **options)
    assert tokenizer.decode(found, skip_special_tokens=True) == ours.removesuffix("\n")


def test_a_model_that_was_only_imported_keeps_its_template(tmp_path: Path) -> None:
    source = folder_of("bert", tmp_path / "theirs")
    theirs = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    special = [("<s>", theirs.token_to_id("<s>"))]
    theirs.post_processor = tokenizers.processors.TemplateProcessing("<s> $A <s>", special_tokens=special)
    theirs.save(str(source / "tokenizer.json"))
    imported(source, tmp_path / "run")
    for options in ((), ("--step", "best")):
        done = minitf("export", tmp_path / "run", "-o", tmp_path / f"out{len(options)}", *options)
        assert done.exit_code == 0, done.stderr
        again = tokenizers.Tokenizer.from_file(str(tmp_path / f"out{len(options)}" / "tokenizer.json"))
        assert again.encode("w9 w10").ids == theirs.encode("w9 w10").ids


@pytest.mark.parametrize("bias", [True, False])
def test_a_tagger_is_written_if_its_output_layer_has_a_bias(bias: bool, tmp_path: Path) -> None:
    """Theirs always has one; the proof compares the outputs."""
    rows = [{"text": [letter, "bat"], "label": ["O", "B-x"]} for letter in "abcdefgh"]
    tokenizer = "tokenizer={kind: wordpiece, vocab_size: 120}"
    run = finetuned(tmp_path, BERT_TASK, f"objective={{kind: tag, head_bias: {str(bias).lower()}}}", rows, tokenizer, 1)
    done = minitf("export", run, "-o", tmp_path / "out", "--to", "bert")
    if bias:
        assert done.exit_code == 0, done.stderr
        config = json.loads((tmp_path / "out" / "config.json").read_text())
        assert config["architectures"] == ["BertForTokenClassification"]
    else:
        refused(done, "objective.head_bias is False, which bert has True", exit_code=5)


@pytest.mark.parametrize("model", [LLAMA, GPT2])
def test_a_model_of_chats_answers_messages_again_when_it_comes_back(model: str, tmp_path: Path) -> None:
    """Also after transformers has saved the template in a file of its own."""
    rows = [{"prompt": f"say {word} {n}", "response": word} for n, word in enumerate(("red", "dog", "sun") * 8)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    data = (f"data={{train: {tmp_path / 'rows.jsonl'}, split: 25%}}", "objective=instruct", "eval.translations=0")
    run = trained(tmp_path / "run", *data, model, "train={steps: 4, batch_size: 8, context: 32}")
    theirs = exported(run)
    said = (("user", "say dog"), ("assistant", "dog"), ("user", "?"))
    chat = [{"role": role, "content": content} for role, content in said]
    asked = "say red", json.dumps({"messages": chat}), "--seed", "1", "--max-new-tokens", "12"
    answers = minitf("generate", run, *asked).stdout
    for folder in (theirs, tmp_path / "saved"):
        done = minitf("import", folder, "-o", tmp_path / f"from {folder.name}")
        assert done.exit_code == 0, done.stderr
        assert "chat template" not in done.stderr
        assert minitf("generate", tmp_path / f"from {folder.name}", *asked).stdout == answers
        if folder == theirs:
            transformers().AutoTokenizer.from_pretrained(theirs).save_pretrained(tmp_path / "saved")
            transformers().AutoModelForCausalLM.from_pretrained(theirs).save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "chat_template.jinja").exists()


def test_another_chat_template_is_left_out_and_named(tmp_path: Path) -> None:
    folder = folder_of("llama", tmp_path / "theirs")
    template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
    (folder / "chat_template.jinja").write_text(template)
    done = minitf("import", folder, "-o", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert "left out: its chat template" in done.stderr
