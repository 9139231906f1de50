"""SentencePiece models as tokenizers: the ids of transformers and of SentencePiece itself, on awkward texts."""

import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from commands import QUIET, ROOT, minitf, refused
from families import LLAMA, SIDES, T5, made, transformers

from mini_tf.data.tokenization.stream import TextStream
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import Roles
from mini_tf.system.errors import DataFault, Unavailable
from mini_tf.trained.opening import open_trained

TEXTS = [
    *("Hello world.", "héllo  naïve\tNAIVE", "漢字 and 🙂", "a\0b\x07c", "a\u200db\u200bc\ufeff", "½ﬁⅧ e\u0301 Å"),
    *("\u00a0x\u3000y", "two  spaces  ", "", "a\nb\r\nc", "A" * 300, "the" * 100),
    *("<s> </s> <pad>x<extra_id_0>y <mask>", "a ▁ b▁", "<0x0A> <0xzz>", "12345 3.14", "don't", "\ud7ff\ue000"),
    *("👩‍👩‍👧 🇩🇪", "क्षि ไทย ﷺ"),
]
NEXT_LINE = "a\x85b"
"""A space to transformers, where SentencePiece has an unknown character."""
SPACES = [" ", "   ", "  two  spaces  ", "\t", "\n", " \n x", "▁▁ a"]
"""Texts that begin with a space, or have nothing else."""
NAMES = ("<s>", "</s>", "<pad>", "<extra_id_0>")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small models: t5 (unigram), llama (BPE with bytes, spaces kept), bytes (unigram with bytes), bpe, en and de."""
    folder = tmp_path_factory.mktemp("spm")
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if line.strip()]
    lines += ["naïve café 漢字 <b>", "tab\there  two   spaces", "½ don't </s"]

    def train(name: str, text: list[str], **options: Any) -> None:
        (folder / "text.txt").write_text("\n".join(text))
        paths = {"input": str(folder / "text.txt"), "model_prefix": str(folder / name)}
        sentencepiece.SentencePieceTrainer.train(
            **paths, minloglevel=2, hard_vocab_limit=False, num_threads=1, **options
        )

    train("t5", lines, vocab_size=300, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    kept = {
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "allow_whitespace_only_pieces": True,
    }
    train("llama", lines, model_type="bpe", vocab_size=500, byte_fallback=True, split_digits=True, **kept)
    train("bytes", lines, vocab_size=500, byte_fallback=True, user_defined_symbols=["<|im_start|>"])
    train("bpe", lines, model_type="bpe", vocab_size=300)
    train("en", lines, vocab_size=250)
    train(
        "de",
        ["Übergröße der Häuser ist groß 漢字 字 漢", "die Straße ist sehr groß und die Häuser auch", *"ßüöäÜ"],
        vocab_size=120,
    )
    return folder


def folder_of(models: Path, name: str, file: str, folder: Path, **config: Any) -> Path:
    folder.mkdir()
    shutil.copy(models / f"{name}.model", folder / file)
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def theirs(tokenizer: Any, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)  # type: ignore[no-any-return]


def test_a_t5_model_has_the_ids_of_transformers_and_sentinels_behind_them(models: Path, tmp_path: Path) -> None:
    folder = folder_of(models, "t5", "spiece.model", tmp_path / "t5", tokenizer_class="T5Tokenizer")
    ours, reference = Tokenizer.load(folder), transformers().T5Tokenizer.from_pretrained(folder)
    own = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    for text in TEXTS + SPACES:
        assert ours.encode(text).tolist() == own.encode(text), text
        if not any(name in text for name in NAMES):  # special tokens, which minitf never reads from text
            assert ours.encode(text).tolist() == theirs(reference, text), text
    assert ours.encode(NEXT_LINE).tolist() == own.encode(NEXT_LINE)
    v = ours.vocabulary
    assert (v.size, v.pad, v.separator, v.unk) == (len(reference), 0, 1, 2)
    assert [ours.special_tokens[f"<extra_id_{n}>"] for n in (0, 99)] == reference.convert_tokens_to_ids(
        ["<extra_id_0>", "<extra_id_99>"]
    )
    assert len(v.sentinels) == 100
    for text in ("Hello world.", "two spaces", "don't"):
        assert ours.decode(ours.encode(text)) == text
    assert ours.notes == []


def test_a_llama_model_has_the_ids_of_transformers(models: Path, tmp_path: Path) -> None:
    folder = folder_of(models, "llama", "tokenizer.model", tmp_path / "llama", tokenizer_class="LlamaTokenizer")
    ours, reference = Tokenizer.load(folder), transformers().LlamaTokenizer.from_pretrained(folder)
    own = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    for text in TEXTS + SPACES:
        if not any(name in text for name in NAMES):
            assert ours.encode(text).tolist() == theirs(reference, text), text
    for text in TEXTS:
        assert ours.encode(text).tolist() == own.encode(text), text
        ids = ours.encode(text).tolist()
        assert ours.decode(ids) == own.decode(ids), text
        stream = TextStream(ours)
        assert "".join(map(stream.push, ids)) + stream.end() == ours.decode(ids), text
    v = ours.vocabulary
    assert (v.unk, v.separator, v.pad, v.others) == (0, 2, None, frozenset({1}))
    assert not {*ours.encode("".join(NAMES)).tolist()} & v.special_ids


def test_a_model_of_xlm_roberta_has_the_ids_of_transformers(models: Path, tmp_path: Path) -> None:
    folder = folder_of(models, "en", "sentencepiece.bpe.model", tmp_path / "x", tokenizer_class="XLMRobertaTokenizer")
    ours, reference = Tokenizer.load(folder), transformers().XLMRobertaTokenizer.from_pretrained(folder)
    for text in TEXTS + SPACES:
        if not any(name in text for name in (*NAMES, "<mask>")):
            assert ours.encode(text).tolist() == theirs(reference, text), text
    v = ours.vocabulary
    assert (v.size, v.pad, v.separator, v.unk, v.mask) == (len(reference), 1, 2, 3, len(reference) - 1)
    for name, why in (("t5", "are not <unk>"), ("en", "known of XLM-RoBERTa alone")):
        other = folder_of(models, name, "sentencepiece.bpe.model", tmp_path / name)
        if name == "t5":
            (other / "config.json").write_text(json.dumps({"model_type": "xlm-roberta"}))
        with pytest.raises(DataFault, match=why):
            Tokenizer.load(other)


@pytest.mark.parametrize("name", ["bytes", "bpe"])
def test_other_models_have_the_ids_of_sentencepiece(name: str, models: Path, tmp_path: Path) -> None:
    ours = Tokenizer.load(models / f"{name}.model")
    own = sentencepiece.SentencePieceProcessor(model_file=str(models / f"{name}.model"))
    for text in TEXTS + SPACES:
        assert ours.encode(text).tolist() == own.encode(text), text
    if name == "bytes":
        assert ours.pieces(ours.encode("x <|im_start|> y"))[2] == "<|im_start|>"
    ours.save(tmp_path / "saved.json")
    again = Tokenizer.load(tmp_path / "saved.json")
    assert (again.hash, again.notes) == (ours.hash, [])


def marian(models: Path, folder: Path) -> Path:
    """source.spm, target.spm and their common vocab.json, whose order is its own."""
    folder.mkdir()
    tokens = ["</s>", "<unk>", ">>deu<<"]
    for name, file in (("en", "source.spm"), ("de", "target.spm")):
        shutil.copy(models / f"{name}.model", folder / file)
        own = sentencepiece.SentencePieceProcessor(model_file=str(folder / file))
        tokens += sorted({own.id_to_piece(id) for id in range(own.get_piece_size())} - {*tokens, "<s>"})
    ids = {token: id for id, token in enumerate([*tokens, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids))
    return folder


def test_the_two_models_of_marian_have_the_ids_of_transformers(models: Path, tmp_path: Path) -> None:
    folder = marian(models, tmp_path / "marian")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends another package
        reference = transformers().MarianTokenizer.from_pretrained(folder)
    texts = [text for text in TEXTS + SPACES if not any(name in text for name in NAMES)]
    for file, key in (("source.spm", "text"), ("target.spm", "text_target")):
        ours = Tokenizer.load(folder / file)
        assert ours.vocabulary.size == len(reference)
        for text in [*texts, ">>deu<< Hello", ">>deu<<Hello", "Straße sehr groß"]:
            ids = reference(**{key: text}, add_special_tokens=False)["input_ids"]
            assert ours.encode(text).tolist() == ids, (file, text)
        ids = ours.encode("Hello Häuser" if file == "source.spm" else "die Häuser")
        assert ours.decode(ids) == reference.decode(
            ids, skip_special_tokens=True, use_source_tokenizer=file == "source.spm"
        )
    assert Tokenizer.load(folder).hash == Tokenizer.load(folder / "target.spm").hash
    # What only the other language has is decoded, too.
    pieces = json.loads((folder / "vocab.json").read_text())
    known = set(Tokenizer.load(folder / "target.spm").encode(" ".join(TEXTS)).tolist())
    word, source_only = next(
        (piece, id) for piece, id in pieces.items() if re.fullmatch("▁[a-z]{2,}", piece) and id not in known
    )
    assert Tokenizer.load(folder).decode([source_only, source_only]) == " ".join([word[1:]] * 2)
    v = Tokenizer.load(folder).vocabulary
    assert (v.separator, v.unk, v.pad) == (0, 1, len(reference) - 1)


def test_a_marian_folder_with_two_vocabularies_is_refused_also_if_they_are_equally_large(
    models: Path, tmp_path: Path
) -> None:
    folder = marian(models, tmp_path / "marian")
    shutil.copy(folder / "vocab.json", folder / "target_vocab.json")
    with pytest.raises(
        DataFault, match=r"target_vocab\.json: of Marian models with two vocabularies minitf reads none"
    ):
        Tokenizer.load(folder)


def imported(folder: Path, run: Path) -> Path:
    done = minitf("import", folder, "-o", run)
    assert done.exit_code == 0, done.stderr
    return run


def test_a_marian_folder_with_two_models_translates_as_in_transformers(models: Path, tmp_path: Path) -> None:
    """One embedding, two ways to split text; also after another export and import."""
    folder = marian(models, tmp_path / "marian")
    n = len(json.loads((folder / "vocab.json").read_text()))
    ids = {"vocab_size": n, "decoder_vocab_size": n, "eos_token_id": 0}
    ids |= dict.fromkeys(("pad_token_id", "decoder_start_token_id"), n - 1)
    model = made("MarianMTModel", "MarianConfig", **SIDES | ids)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
        reference = transformers().MarianTokenizer.from_pretrained(folder)
    run = imported(folder, tmp_path / "run")
    assert minitf("export", run, "-o", tmp_path / "out").exit_code == 0
    texts = [">>deu<< Hello world.", "the files", "naïve 漢字"]
    for one in (run, imported(tmp_path / "out", tmp_path / "again")):
        trained = open_trained(one, device="cpu")
        assert trained.source_tokenizer.hash == Tokenizer.load(folder / "source.spm", Roles(begin="<pad>")).hash
        assert trained.tokenizer.encode("die Häuser").tolist() == reference(text_target="die Häuser")["input_ids"][:-1]
        assert sum(parameter.numel() for parameter in trained.model.parameters()) < 2 * sum(
            p.numel() for p in model.parameters()
        )
        done = minitf("generate", one, *texts, "--num-beams", "1", "--max-new-tokens", "9", "--json")
        for text, line in zip(texts, done.stdout.splitlines(), strict=True):
            inputs = torch.tensor([reference(text)["input_ids"]])
            special = [id for id in (0, 1, 2, n - 1) if id != 0]
            options = {"do_sample": False, "num_beams": 1, "max_new_tokens": 9, "forced_eos_token_id": None}
            new = model.generate(inputs, suppress_tokens=special, **options)
            expected = reference.decode(new[0], skip_special_tokens=True, use_source_tokenizer=False)
            assert json.loads(line)["result"]["texts"][0].split() == expected.split(), text
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"source": f"the file {n}", "target": f"die Häuser {n}"}) + "\n" for n in range(40))
    )
    keys = (f"data.train={rows}", "data.fields={source: source, target: target}", "train={steps: 1, context: 24}")
    quick = ("train.batch_tokens=96", "eval.translations=0", "eval.baseline=false", "log.samples=0")
    for begin in (folder, run):
        target = tmp_path / f"tuned-{begin.name}"
        done = minitf("finetune", "transformer-nano", *keys, *quick, f"model.init_from={begin}", *QUIET, "-d", target)
        assert done.exit_code == 0, done.stderr


def test_the_roles_of_special_tokens_come_from_their_ids_in_the_config(models: Path, tmp_path: Path) -> None:
    folder = folder_of(models, "llama", "tokenizer.model", tmp_path / "llama")
    size = Tokenizer.load(folder).vocabulary.size
    made("LlamaForCausalLM", "LlamaConfig", **LLAMA, vocab_size=size, bos_token_id=1, eos_token_id=2).save_pretrained(
        folder
    )
    v = open_trained(imported(folder, tmp_path / "run"), device="cpu").tokenizer.vocabulary
    assert (v.separator, v.ends) == (1, (2,))
    folder = folder_of(models, "t5", "spiece.model", tmp_path / "t5")
    size = Tokenizer.load(folder).vocabulary.size
    ids = {"vocab_size": size + 128, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    made("T5ForConditionalGeneration", "T5Config", **T5 | ids).save_pretrained(folder)
    v = open_trained(imported(folder, tmp_path / "t5-run"), device="cpu").tokenizer.vocabulary
    assert (v.begin, v.separator, len(v.sentinels), v.size) == (0, 1, 100, size + 128)


def test_added_tokens_follow_the_pieces(models: Path, tmp_path: Path) -> None:
    size = Tokenizer.load(models / "llama.model").vocabulary.size
    added = {str(size): {"content": "<pad>", "special": True}, str(size + 1): {"content": "<tool>", "special": False}}
    v = Tokenizer.load(folder_of(models, "llama", "tokenizer.model", tmp_path / "new", added_tokens_decoder=added))
    assert (v.vocabulary.size, v.vocabulary.pad, v.encode("<tool>").tolist()) == (size + 2, size, [size + 1])
    old = folder_of(models, "llama", "tokenizer.model", tmp_path / "old")
    (old / "added_tokens.json").write_text(json.dumps({"<pad>": size}))
    assert Tokenizer.load(old).vocabulary.pad == size
    (old / "added_tokens.json").write_text(json.dumps({"<pad>": size + 1}))
    with pytest.raises(DataFault, match=rf"added_tokens.json: the ids of added tokens must follow {size - 1}"):
        Tokenizer.load(old)
    for config, message in (
        ({"added_tokens_decoder": {"x": {}}}, "its added tokens must have the form"),
        ({"added_tokens_decoder": [1]}, "its added tokens must have the form"),
        ({"extra_ids": -1}, "extra_ids is -1"),
    ):
        with pytest.raises(DataFault, match=message):
            Tokenizer.load(
                folder_of(
                    models, "llama", "tokenizer.model", tmp_path / message[:12].replace(" ", str(len(config))), **config
                )
            )
        shutil.rmtree(tmp_path / message[:12].replace(" ", str(len(config))))


def changed(content: bytes, part: str, name: str, value: Any) -> bytes:
    """A model with another value of a field of its trainer_spec, its normalizer_spec or a piece."""
    from sentencepiece import sentencepiece_model_pb2 as format

    proto = format.ModelProto.FromString(content)
    setattr(proto.pieces[int(part)] if part.isdigit() else getattr(proto, part), name, value)
    return proto.SerializeToString()  # type: ignore[no-any-return]


FIELDS = {
    "the score of piece 9 .* is inf": ("9", "score", float("inf")),
    "piece 9 repeats": ("9", "piece", "<pad>"),
    "a token of 5,000 characters": ("9", "piece", "x" * 5000),
    "0 pieces for unknown text": ("2", "type", 3),
    "no ▁ before words": ("trainer_spec", "treat_whitespace_as_suffix", True),
    "splits text into words or characters": ("trainer_spec", "model_type", 3),
    "Precompiled cannot be read": ("normalizer_spec", "precompiled_charsmap", b"\xff\xff\xff\x7f" + b"x" * 40),
}


@pytest.mark.parametrize("message", FIELDS)
def test_a_damaged_or_hostile_model_is_refused(message: str, models: Path, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(changed((models / "t5.model").read_bytes(), *FIELDS[message]))
    with pytest.raises(DataFault, match=message):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x80\x04pickle", None], ids=["empty", "something else", "half of one"])
def test_what_is_no_model_is_refused(content: bytes | None, models: Path, tmp_path: Path) -> None:
    whole = (models / "t5.model").read_bytes()
    (tmp_path / "spiece.model").write_bytes(whole[: len(whole) // 2 + 1] if content is None else content)
    with pytest.raises(DataFault, match="it has no pieces" if content == b"" else "not a SentencePiece model"):
        Tokenizer.load(tmp_path)


def test_without_the_package_one_line_says_so(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentencepiece", None)
    with pytest.raises(Unavailable, match="needs the packages sentencepiece and protobuf"):
        Tokenizer.load(models / "t5.model")
    refused(minitf("tokenizer", "encode", models / "t5.model", "x"), "pip install 'minitf[sentencepiece]'", exit_code=9)
