"""What an imported model reads around a text, and where its text ends: as transformers with its own tokenizer."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from commands import QUIET, TINY, evaluated, minitf, refused, results, trained
from families import CASES, CONTEXT, change_config, exported, folder_of, imported, transformers
from tokenizers.processors import TemplateProcessing

from mini_tf.generation.text_generator import TextGenerator
from mini_tf.hf.importing import open_model
from mini_tf.trained.opening import open_trained

BEGIN, END, MASK = "<s>", "</s>", "[MASK]"
TEMPLATES = {"nothing": (), "a beginning": (BEGIN, "$A"), "both": (BEGIN, "$A", END)}


def framed(case: str, folder: Path, template: Sequence[str], **config: Any) -> Path:
    """The saved model of a case, with a tokenizer that puts special tokens around texts; without words: no template."""
    source = folder_of(case, folder, **config)
    roles = {"cls_token": BEGIN, "sep_token": END, "mask_token": MASK}
    if "bert" in case:
        (source / "tokenizer_config.json").write_text(json.dumps(roles))
    if template:
        inner = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
        names = [(name, inner.token_to_id(name)) for name in (BEGIN, END)]
        inner.post_processor = TemplateProcessing([*template], special_tokens=names)
        inner.save(str(source / "tokenizer.json"))
    return source


def tokenizer_of(source: Path) -> Any:
    named = {"pad_token": "<pad>", "bos_token": BEGIN, "eos_token": END, "cls_token": BEGIN, "sep_token": END}
    named["mask_token"] = MASK
    return transformers().PreTrainedTokenizerFast(tokenizer_file=str(source / "tokenizer.json"), **named)


def model_of(case: str, source: Path) -> Any:
    return getattr(transformers(), CASES[case][0]).from_pretrained(source, attn_implementation="eager")


def opened(case: str, source: Path, run: Path) -> tuple[Any, Any]:
    """Their tokenizer and their model of a folder, which is imported."""
    imported(source, run)
    return tokenizer_of(source), model_of(case, source)


def generated(run: Path, *arguments: str) -> list[list[str]]:
    done = minitf("generate", run, *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return [text.split() for result in results(done.stdout) for text in result["texts"]]


SUPPRESSED = [0, 1, 3, 4]
"""Special tokens but the end: minitf never writes them."""


def their_words(model: Any, ids: Sequence[int], n: int, **more: Any) -> list[str]:
    """The words that transformers generates greedily, up to an end."""
    given = {"do_sample": False, "num_beams": 1, "max_new_tokens": n, "suppress_tokens": SUPPRESSED}
    new = model.generate(torch.tensor([ids]), pad_token_id=0, **given, **more)[0].tolist()
    new = new[1:] if model.config.is_encoder_decoder else new[len(ids) :]
    ends = model.generation_config.eos_token_id
    ends = {ends} if isinstance(ends, int) else {*(ends or ())}
    return [f"w{id}" for n, id in enumerate(new) if id > 4 and not ends & {*new[: n + 1]}]


@pytest.mark.parametrize(("case", "template"), [("gpt2", "nothing"), ("llama, another gate", "a beginning")])
def test_a_decoder_continues_what_its_tokenizer_makes_of_a_prompt(case: str, template: str, tmp_path: Path) -> None:
    source, run = framed(case, tmp_path / "theirs", TEMPLATES[template]), tmp_path / "run"
    tokenizer, model = opened(case, source, run)
    prompts = ["w9 w30 w17", "w5", "w11 w12 w13 w14 w15 w16"]
    ours = generated(run, *prompts, "--greedy", "--max-new-tokens", "24")
    assert ours == [their_words(model, tokenizer(prompt)["input_ids"], 24) for prompt in prompts]
    assert min(map(len, ours)) > 3
    [sample] = json.loads(minitf("inspect", "attention", run, "w9 w30", "--json").stdout)["result"]["samples"]
    assert sample["tokens"] == tokenizer.convert_ids_to_tokens(tokenizer("w9 w30")["input_ids"])


ENDS = [("gpt2", "config.json"), ("llama", "generation_config.json")]
ENDS += [("llama", "an exported run"), ("t5 1.1", "an exported run")]


@pytest.mark.parametrize(("case", "where"), ENDS)
def test_a_text_ends_where_theirs_ends(case: str, where: str, tmp_path: Path) -> None:
    """At a token in the middle of what it would say: alone, beside another one, and after an export."""
    is_pair = case == "t5 1.1"
    source = framed(case, tmp_path / "theirs", ("$A", END) if is_pair else (BEGIN, "$A"), bos_token_id=1)
    tokenizer = tokenizer_of(source)
    (source / "generation_config.json").unlink()
    start = {"decoder_start_token_id": 0, "forced_eos_token_id": None} if is_pair else {}
    prompt = tokenizer("w9 w30 w17")["input_ids"]
    endless = their_words(model_of(case, source), prompt, 12, **start)
    end = next(int(word[1:]) for n, word in enumerate(endless) if n > 1 and word not in endless[:n])
    written = {"config.json": end, "generation_config.json": 2, "an exported run": [2, end]}
    change_config(source, {"eos_token_id": written[where], **start})
    if where == "generation_config.json":
        (source / where).write_text(json.dumps({"eos_token_id": [end], "_from_model_config": False} | start))
    model = model_of(case, source)
    expected = their_words(model, prompt, 12, **start)
    assert 1 < len(expected) < len(endless)
    run = tmp_path / "run"
    imported(source, run)
    if where == "an exported run":
        exported(run, tmp_path / "out")
        run = tmp_path / "again"
        tokenizer, again = opened(case, tmp_path / "out", run)
        assert their_words(again, tokenizer("w9 w30 w17")["input_ids"], 12, **start) == expected
    beams = ("--num-beams", "1") if is_pair else ("--greedy",)
    assert generated(run, "w9 w30 w17", *beams, "--max-new-tokens", "12") == [expected]
    if not is_pair:
        samples = generated(run, "w9 w30 w17", "--num-samples", "8", "--temperature", "0.7", "--max-new-tokens", "12")
        assert f"w{end}" not in {word for sample in samples for word in sample}
        assert min(map(len, samples)) < 12


NO_IDS = [("llama", "eos_token_id", given, ", or a list of them") for given in ('"2"', "[2, 48]", "-1", "true")]
NO_IDS += [("bart", "forced_bos_token_id", given, "") for given in ('"2"', "[1]", "48")]


@pytest.mark.parametrize(("case", "key", "given", "more"), NO_IDS)
def test_an_end_or_a_forced_token_that_is_no_id_is_refused_by_its_key(
    case: str, key: str, given: str, more: str, tmp_path: Path
) -> None:
    activation = {"llama": "hidden_act", "bart": "activation_function"}[case]
    source = folder_of(case, tmp_path / "theirs", **{activation: "mish"})
    (source / "generation_config.json").write_text(f'{{"{key}": {given}}}')
    done = minitf("import", source, "-o", tmp_path / "run")
    refused(done, f"generation_config.json: {key} is ", f"it must be an id from 0 to 47{more}\n", exit_code=5)
    assert f"config.json: {activation} is 'mish'" in done.stderr  # all faults at once


CLASSIFIERS = [("llama, classes", "nothing"), ("gpt2, classes", "a beginning"), ("gpt2, classes", "both")]


@pytest.mark.parametrize(("case", "template"), [*CLASSIFIERS, ("bert, classes", "both")])
def test_a_classifier_reads_what_its_tokenizer_makes(case: str, template: str, tmp_path: Path) -> None:
    """A mask is one to an encoder. Of a decoder theirs reads the end of the text, and ours the token before it."""
    source, run = framed(case, tmp_path / "theirs", TEMPLATES[template]), tmp_path / "run"
    tokenizer, model = opened(case, source, run)
    encodes = case == "bert, classes"
    texts = ["w9 w30 w17", "w5", f"w9 {MASK} w17" if encodes else "w11 w12 w13 w14 w15 w16"]
    done = minitf("predict", run, *texts)
    assert done.stderr == "" or not encodes
    for text, line in zip(texts, done.stdout.splitlines(), strict=True):
        ids = tokenizer(text)["input_ids"]
        if template == "both" and not encodes:
            ids = ids[:-1]
        with torch.no_grad():
            p = model(torch.tensor([ids])).logits[0].softmax(-1).tolist()
        assert [*json.loads(line)["scores"].values()] == pytest.approx(p, abs=1e-5)


@pytest.mark.parametrize("case", ["bert", "roberta", "bert, classes"])
def test_attention_weights_of_an_encoder_are_theirs(case: str, tmp_path: Path) -> None:
    """With the closing separator, and with a mask where the text has one."""
    source, run = framed(case, tmp_path / "theirs", TEMPLATES["both"]), tmp_path / "run"
    tokenizer, model = opened(case, source, run)
    text = f"w9 {MASK} w17 w30"
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        theirs = model(ids, output_attentions=True).attentions
    done = minitf("inspect", "attention", run, text, "--json", "--full")
    [sample] = json.loads(done.stdout)["result"]["samples"]
    assert sample["tokens"] == [BEGIN, "w9", MASK, "w17", "w30", END]
    for head in sample["heads"]:
        assert torch.tensor(head["matrix"]).sub(theirs[head["layer"]][0, head["head"]]).abs().max() < 1e-5
    words = minitf("inspect", "attention", run, text, "--words", "--query", MASK, "--json").stdout
    [by_words] = json.loads(words)["result"]["samples"]
    assert by_words["tokens"] == sample["tokens"]
    [tokens] = json.loads(minitf("inspect", "tokens", run, text, "--json").stdout)["result"]["texts"]
    assert [one["id"] for one in tokens["tokens"]] == ids[0, 1:-1].tolist()
    assert tokens["tokens"][1]["span"] == [3, 9]


def test_pseudo_log_likelihoods_are_of_the_text_between_its_special_tokens(tmp_path: Path) -> None:
    run = tmp_path / "run"
    tokenizer, model = opened("bert", framed("bert", tmp_path / "theirs", TEMPLATES["both"]), run)
    pairs = [("w9 w30 w17", "w9 w31 w17"), ("w5", "w6 w7")]
    rows = [json.dumps({"sentence_good": a, "sentence_bad": b}) for a, b in pairs]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows))

    def score(text: str) -> float:
        ids, total = tokenizer(text)["input_ids"], 0.0
        for n in range(1, len(ids) - 1):
            masked = torch.tensor([[*ids[:n], tokenizer.mask_token_id, *ids[n + 1 :]]])
            with torch.no_grad():
                total += float(model(masked).logits[0, n].log_softmax(-1)[ids[n]])
        return total

    done = minitf("evaluate", run, "--pairs", tmp_path / "pairs.jsonl", "--score", "token", "--json")
    expected = sum(score(good) - score(bad) for good, bad in pairs) / len(pairs)
    assert json.loads(done.stdout)["metrics"]["pairs.difference"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("case", ["bert, classes", "gpt2, classes", "bart"])
def test_special_tokens_that_a_row_has_no_room_for_are_refused(case: str, tmp_path: Path) -> None:
    source = framed(case, tmp_path / "two", (BEGIN, END, "$A", END))
    done = minitf("import", source, "-o", tmp_path / "run")
    puts = f"the tokenizer puts {BEGIN} {END} before a text and {END} behind it"
    refused(done, f"{puts}; of this architecture minitf reads", exit_code=5)
    if case == "bert, classes":
        rows = "".join(json.dumps({"text": f"w{5 + n}", "label": "ab"[n % 2]}) + "\n" for n in range(20))
        (tmp_path / "rows.jsonl").write_text(rows)
        keys = (f"data.train={tmp_path / 'rows.jsonl'}", f"model.init_from={source}", "objective.kind=classify")
        done = minitf("pretrain", TINY, *keys, "train={steps: 1, context: 16}", *QUIET, "-d", tmp_path / "on")
        assert done.exit_code == 0, done.stderr
        assert f"puts {BEGIN} {END} before a text; training puts one token before it at most" in done.stderr
    done = minitf("import", framed(case, tmp_path / "none", (BEGIN, "$A")), "-o", tmp_path / "run")
    assert done.exit_code == (0 if case == "gpt2, classes" else 5)  # the end changes nothing before it


def test_a_source_is_framed_as_their_tokenizer_frames_it(tmp_path: Path) -> None:
    """BART's has a token at its beginning."""
    run = tmp_path / "run"
    tokenizer, model = opened("bart", framed("bart", tmp_path / "theirs", TEMPLATES["both"]), run)
    texts = ["w9 w30 w17", "w11 w12 w13 w14"]
    ours = generated(run, *texts, "--num-beams", "1", "--max-new-tokens", "8")
    start = {"decoder_start_token_id": 2, "forced_eos_token_id": None}
    assert ours == [their_words(model, tokenizer(text)["input_ids"], 8, **start) for text in texts]
    done = minitf("inspect", "attention", run, texts[0], "--target", "w6", "--json")
    [sample] = json.loads(done.stdout)["result"]["samples"]
    assert sample["source_tokens"] == [BEGIN, "w9", "w30", "w17", END]


LONG = " ".join(f"w{5 + n % 40}" for n in range(60))
PAIRS = [("w9 w30 w17", "w6 w7 w8"), ("w11 w12", "w13"), (LONG, "w20 " * 60)]
"""Of which the last is longer than the context on both sides."""


def test_targets_begin_with_the_token_that_theirs_are_forced_to(tmp_path: Path) -> None:
    """BART's: generated texts, losses of targets, rows at the context's length, an export and training on."""
    source = framed("bart", tmp_path / "theirs", TEMPLATES["both"])
    (source / "generation_config.json").unlink()
    change_config(source, {"forced_bos_token_id": 1, "bos_token_id": 1, "forced_eos_token_id": None})
    run = tmp_path / "run"
    tokenizer, model = opened("bart", source, run)
    texts = ["w9 w30 w17", "w11 w12 w13 w14"]
    started = {"forced_bos_token_id": None, "decoder_input_ids": torch.tensor([[2, 1]])}  # as forced
    eight = ("--num-beams", "1", "--max-new-tokens", "8")
    expected = [their_words(model, tokenizer(text)["input_ids"], 8, **started) for text in texts]
    assert generated(run, *texts, *eight) == expected
    [first] = results(minitf("generate", run, texts[0], *eight, "--json").stdout)
    source_ids = torch.tensor([tokenizer(texts[0])["input_ids"]])
    target = torch.tensor([[2, 1, *(int(word[1:]) for word in expected[0])]])
    with torch.no_grad():
        p = model(source_ids, decoder_input_ids=target).logits[0, 1:-1].log_softmax(-1)
    assert first["logprobs"] == pytest.approx([float(p[range(8), target[0, 2:]].sum())], abs=1e-4)
    file = tmp_path / "pairs.tsv"
    file.write_text("source\ttarget\n" + "".join(f"{source}\t{target.strip()}\n" for source, target in PAIRS))
    losses, n = 0.0, 0
    for text, target in PAIRS:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"][: CONTEXT - 2]
        whole = tokenizer(target, add_special_tokens=False)["input_ids"]
        labels = [1, *whole, 2] if len(whole) < CONTEXT - 1 else [1, *whole][:CONTEXT]
        with torch.no_grad():
            loss = model(input_ids=torch.tensor([[1, *ids, 2]]), labels=torch.tensor([labels])).loss
        losses, n = losses + float(loss) * len(labels), n + len(labels)
    assert evaluated(run, "--data", file)["loss"] == pytest.approx(losses / n, rel=1e-5)
    exported(run, tmp_path / "out")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (written["forced_bos_token_id"], written["bos_token_id"], written["pad_token_id"]) == (1, 1, 0)
    imported(tmp_path / "out", tmp_path / "again")
    assert generated(tmp_path / "again", *texts, *eight) == expected
    data = f"data={{train: {file}, val: null, split: 34%, fields: {{source: source, target: target}}}}"
    kinds = ("model.kind=encoder_decoder", "objective.kind=seq2seq", f"model.init_from={run}")
    trained(tmp_path / "on", data, *kinds, "train.steps=1", f"train.context={CONTEXT}")
    assert open_trained(tmp_path / "on", device="cpu").tokenizer.vocabulary.target_start == (2, 1)


def test_an_export_of_an_import_names_its_beginning_and_padding(tmp_path: Path) -> None:
    """Where its padding is the end of a text, as GPT-2's classifiers have it."""
    source = framed("gpt2, classes", tmp_path / "theirs", TEMPLATES["a beginning"], pad_token_id=2, bos_token_id=1)
    imported(source, tmp_path / "run")
    exported(tmp_path / "run", tmp_path / "out")
    names = ("config.json", "tokenizer_config.json")
    config, tokens = (json.loads((tmp_path / "out" / name).read_text()) for name in names)
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 2)
    assert (tokens["bos_token"], tokens["eos_token"], tokens["pad_token"]) == (BEGIN, END, END)
    imported(tmp_path / "out", tmp_path / "again")
    texts = ("w9 w30 w17", "w5")
    assert minitf("predict", tmp_path / "again", *texts).stdout == minitf("predict", tmp_path / "run", *texts).stdout


def test_training_on_from_an_import_keeps_its_ends_and_adds_the_separator(tmp_path: Path) -> None:
    """And the text is framed as in training."""
    source = framed("llama", tmp_path / "theirs", (BEGIN, "$A"), bos_token_id=1, eos_token_id=[2, 30])
    (source / "generation_config.json").unlink()
    run = tmp_path / "run"
    imported(source, run)
    texts = (" ".join(f"w{5 + n * m % 43}" for m in range(1, 9)) for n in range(200))
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    data = f"data.train={tmp_path / 'text.jsonl'}"
    for name, start in (("of the run", run), ("of the folder", source)):
        trained(tmp_path / name, data, f"model.init_from={start}", "train.steps=1", "train.context=16")
        model = open_trained(tmp_path / name, device="cpu")
        assert model.tokenizer.vocabulary.ends == (2, 30, 1)
        generator = TextGenerator(model.model, model.tokenizer, model.recipe)
        assert (generator.before, generator.end_ids) == ([1], {1, 2, 30})
    assert open_trained(run, device="cpu").tokenizer.vocabulary.ends == (2, 30)
    exported(tmp_path / "of the run", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["eos_token_id"] == [2, 30, 1]


@pytest.mark.parametrize(
    ("config", "begins"),
    [({}, False), ({"add_bos_token": True}, True), ({"add_bos_token": True, "bos_token": "<none>"}, False)],
)
def test_older_files_say_in_their_settings_what_stands_before_a_text(
    config: dict[str, Any], begins: bool, tmp_path: Path
) -> None:
    """A vocab.json with merges.txt has no template."""
    source = folder_of("gpt2", tmp_path / "theirs")
    (source / "tokenizer.json").unlink()
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())[:44]
    vocabulary = {name: n for n, name in enumerate([*letters, "<|endoftext|>", BEGIN])}
    (source / "vocab.json").write_text(json.dumps(vocabulary))
    (source / "merges.txt").write_text("#version: 0.2\n")
    (source / "tokenizer_config.json").write_text(json.dumps({"bos_token": BEGIN} | config))
    model = open_model(source, "cpu", str)
    assert TextGenerator(model.model, model.tokenizer, model.recipe).before == ([45] if begins else [])
    if begins or not config:
        imported(source, tmp_path / "run")
        exported(tmp_path / "run", tmp_path / "out")
        ids = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).encode("!").ids
        assert ids == [*([45] if begins else []), vocabulary["!"]]


def test_a_text_that_is_cut_keeps_its_closing_token_as_in_transformers(tmp_path: Path) -> None:
    run = tmp_path / "run"
    tokenizer, _ = opened("bert", framed("bert", tmp_path / "theirs", TEMPLATES["both"]), run)
    text = " ".join(f"w{5 + n % 40}" for n in range(39))
    result = json.loads(minitf("inspect", "attention", run, text, "--json").stdout)["result"]
    theirs = tokenizer(text, truncation=True, max_length=CONTEXT)["input_ids"]
    assert result["samples"][0]["tokens"] == tokenizer.convert_ids_to_tokens(theirs)
    assert result["notes"][0] == "the text has 41 tokens and is truncated to 40, the model's context"
    whole = " ".join(text.split()[:38])
    assert json.loads(minitf("inspect", "attention", run, whole, "--json").stdout)["result"]["notes"] == []
    assert minitf("inspect", "word", run, "w42", text, whole).exit_code == 0  # the last word that is kept
    done = minitf("inspect", "word", run, "w43", text, whole)
    assert done.exit_code == 2
    assert "'w43' ends at token 40, but the model's context is 40, its closing token included" in done.stderr
