"""Load older tokenizer files: vocab.txt (BERT's WordPiece), and vocab.json with merges.txt (GPT-2's byte-level BPE).

Options come from a tokenizer_config.json in the same folder.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from mini_tf.data.tokenization.sentencepiece_models import (
    CONTROL,
    UNKNOWN,
    UNREACHABLE,
    AddedToken,
    Piece,
    SentencePieceModel,
    content,
    read_model,
    replacement,
    tokenizer_json,
)
from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short

Read = Callable[[Path], str]
"""Reads the text of a file; DataFault if it cannot be read."""


def word_piece(file: Path, text: str, read: Read, names: Sequence[str]) -> tuple[tokenizers.Tokenizer, list[str]]:
    """The tokenizer of a vocab.txt, whose line n is token n - 1, and notes on what was assumed. names: names of special
    tokens.

    Text is lower-cased if do_lower_case is true, or if it is absent and no token has an upper-case letter.
    """
    tokens = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    vocabulary: dict[str, int] = {}
    for number, token in enumerate(tokens, 1):
        if not token or token in vocabulary:
            problem = "is empty; a line must be a token (`minitf data stats` reads a text)"
            problem = f"repeats the token {short(token)!r} of line {vocabulary[token] + 1}" if token else problem
            raise DataFault.located(f"{file}:{number}", f"the line {problem}")
        vocabulary[token] = number - 1
    unknown = next((name for name in ("[UNK]", "<unk>", "<UNK>") if name in vocabulary), None)
    if unknown is None:
        raise DataFault.located(str(file), "no line is [UNK], the token of words outside the vocabulary")
    config = config_of(file.parent, read)
    special = [name for name in names if name in vocabulary]
    lower = config.get("do_lower_case")
    notes = []
    if lower is None:
        lower = all(token == token.lower() for token in vocabulary.keys() - set(special))
        article, negation = ("no", "") if lower else ("an", "not ")
        notes.append(f"{file} has {article} upper-case letter, so text is {negation}lower-cased")
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=100))
    inner.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars") is not False,
        strip_accents=config.get("strip_accents"),
        lowercase=lower,
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece("##", cleanup=False)
    inner.add_special_tokens(special)
    return inner, notes


def byte_level(file: Path, text: str, read: Read, names: Sequence[str]) -> tuple[tokenizers.Tokenizer, list[str]]:
    """The tokenizer of a vocab.json and the merges.txt in the same folder."""
    vocabulary = numbers(file, text)
    merges = _merges(file.with_name(file.name[: -len("vocab.json")] + "merges.txt"), read, vocabulary)
    inner = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    prefix = config_of(file.parent, read).get("add_prefix_space") is True
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([name for name in names if name in vocabulary])
    return inner, []


def numbers(file: Path, text: str) -> dict[str, int]:
    """The ids by token of a vocab.json; DataFault unless they are different whole numbers."""
    vocabulary = json_object(file, text)
    tokens: dict[int, str] = {}
    for token, id in vocabulary.items():
        if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < 1 << 32:
            number = json.dumps(id)[:40]
            fault = f"the id of the token {short(token)!r} is {number}, not a whole number of at least 0"
            raise DataFault.located(str(file), fault)
        if id in tokens:
            fault = f"the tokens {short(tokens[id])!r} and {short(token)!r} both have the id {id}"
            raise DataFault.located(str(file), fault)
        tokens[id] = token
    return vocabulary


def _merges(file: Path, read: Read, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(read(file).replace("\r\n", "\n").split("\n"), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        where = f"{file}:{number}"
        parts = line.split(" ")
        if len(parts) != 2 or not all(parts):
            raise DataFault.located(where, f"a merge must be two tokens separated by a space, got {line[:80]!r}")
        for token in (*parts, "".join(parts)):
            if token not in vocabulary:
                raise DataFault.located(where, f"the token {short(token)!r} is not in vocab.json")
        merges.append((parts[0], parts[1]))
    return merges


def config_of(folder: Path, read: Read) -> dict[str, Any]:
    """The content of tokenizer_config.json; {} if there is none."""
    file = folder / "tokenizer_config.json"
    config = json_object(file, read(file)) if file.is_file() else {}
    for key in ("do_lower_case", "tokenize_chinese_chars", "strip_accents", "add_prefix_space"):
        if not isinstance(config.get(key), bool | None):
            raise DataFault.located(str(file), f"{key} must be true, false or null, got {json.dumps(config[key])[:80]}")
    return config


def json_object(file: Path, text: str) -> dict[str, Any]:
    """The content of a JSON file, which must be an object."""
    try:
        content = strict_json.parse(text)
    except ValueError as error:
        raise DataFault.located(str(file), f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise DataFault.located(str(file), "must be a JSON object")
    return content


SUFFIXES = (".model", ".spm")
FAIRSEQ = "sentencepiece.bpe.model"
"""The file of models whose ids are those of fairseq."""
T5_SENTINELS = 100
LANGUAGE = re.compile(">>[^<>]+<<")
"""A token of Marian's models for several languages: the language to translate to, written before the text."""


def load(file: Path, data: bytes, read: Read) -> tuple[str, list[str]]:
    """The tokenizer.json of a SentencePiece model, and notes on what was assumed. data: of the file."""
    model = read_model(file, data)
    vocabulary, other = file.with_name("vocab.json"), file.with_name("target_vocab.json")
    if other.is_file():
        raise DataFault.located(str(other), "of Marian models with two vocabularies minitf reads none")
    if file.suffix == ".spm" and vocabulary.is_file():
        made, notes = _marian(file, model, numbers(vocabulary, read(vocabulary)), vocabulary)
    else:
        config = config_of(file.parent, read)
        model = _xlm_roberta(file, model, config, read) if file.name == FAIRSEQ else model
        made, notes = tokenizer_json(model, _added(file, model, config, read), config.get("add_prefix_space")), []
    return json.dumps(made), notes


def _xlm_roberta(file: Path, model: SentencePieceModel, config: Mapping[str, Any], read: Read) -> SentencePieceModel:
    """The model with its pieces by the ids of fairseq, which XLM-R has: other special tokens first, the mask last."""
    path = file.with_name("config.json")
    word = json_object(path, read(path)).get("model_type") if path.is_file() else None
    if word != "xlm-roberta" and not str(config.get("tokenizer_class")).startswith("XLMRoberta"):
        fault = "its ids are known of XLM-RoBERTa alone; save it as tokenizer.json with transformers"
        raise DataFault.located(str(file), fault)
    if [piece.text for piece in model.pieces[:3]] != ["<unk>", "<s>", "</s>"]:
        raise DataFault.located(str(file), "its first pieces are not <unk>, <s> and </s>, as those of XLM-RoBERTa are")
    first = [Piece(name, 0.0, CONTROL) for name in ("<s>", "<pad>", "</s>")]
    pieces = [*first, Piece("<unk>", 0.0, UNKNOWN), *model.pieces[3:], Piece("<mask>", 0.0, CONTROL)]
    return model._replace(pieces=pieces, unknown=3)


def _added(file: Path, model: SentencePieceModel, config: Mapping[str, Any], read: Read) -> list[AddedToken]:
    """The tokens behind the pieces: sentinels of T5, and those that tokenizer_config.json or added_tokens.json has."""
    size, n_sentinels = len(model.pieces), _n_sentinels(file.parent, config, read)
    named = {size + n: (f"<extra_id_{n_sentinels - 1 - n}>", True) for n in range(n_sentinels)}
    listed = config.get("added_tokens_decoder") or {}
    old = file.with_name("added_tokens.json")
    where = file.with_name("tokenizer_config.json") if listed or not old.is_file() else old
    if where == old:
        listed = {id: {"content": name, "special": True} for name, id in numbers(old, read(old)).items()}
    try:
        behind = {int(id): token for id, token in listed.items() if int(id) >= size}
        named |= {id: (str(token["content"]), bool(token.get("special"))) for id, token in behind.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        fault = 'its added tokens must have the form {"32000": {"content": "<pad>"}}'
        raise DataFault.located(str(where), fault) from None
    if sorted(named) != [*range(size, size + len(named))]:
        fault = f"the ids of added tokens must follow {size - 1}, the last one of {file.name}"
        raise DataFault.located(str(where), fault)
    return [AddedToken(id, *named[id]) for id in sorted(named)]


def _n_sentinels(folder: Path, config: Mapping[str, Any], read: Read) -> int:
    """`extra_ids`, which T5 has 100 of where nothing is said."""
    path = folder / "config.json"
    model = json_object(path, read(path)) if path.is_file() else {}
    is_t5 = model.get("model_type") == "t5" or str(config.get("tokenizer_class")).startswith("T5")
    n = config.get("extra_ids", T5_SENTINELS if is_t5 else 0)
    if type(n) is not int or not 0 <= n <= 10_000:
        fault = f"extra_ids is {short(str(n))}, not a whole number from 0 to 10000"
        raise DataFault.located(str(folder / "tokenizer_config.json"), fault)
    return n


def _marian(
    file: Path, model: SentencePieceModel, ids: dict[str, int], vocabulary: Path
) -> tuple[dict[str, Any], list[str]]:
    """The tokenizer of one language of a Marian model: its pieces by their ids in vocab.json.

    A token that only the other language has is found in text where it is one character that this language's model does
    not know; a run of such characters is the unknown token. So it is in transformers, where also a run can be a token.
    """
    unknown = model.pieces[model.unknown].text
    names = sorted(ids, key=ids.__getitem__)
    if unknown not in ids or [ids[name] for name in names] != [*range(len(names))]:
        fault = f"its ids must be 0, 1, 2 and so on, and {short(unknown)!r} one of its tokens"
        raise DataFault.located(str(vocabulary), fault)
    hidden = {piece.text for piece in model.pieces if piece.kind in (UNKNOWN, CONTROL)} | {"<pad>", "</s>", unknown}
    scores = {piece.text: piece.score for piece in model.pieces if piece.text in ids and piece.text not in hidden}
    if not scores:
        raise DataFault.located(str(vocabulary), f"it has no piece of {file.name}")
    least = min(scores.values())
    named = [
        AddedToken(ids[name], name, name in hidden) for name in names if name in hidden or LANGUAGE.fullmatch(name)
    ]
    known = set(" ").union(*(piece.text for piece in model.pieces if piece.text not in hidden))
    single = {name for name in names if len(name) == 1 and name not in known}
    plain = scores.keys() | {token.text for token in named} | single
    rows = [[name if name in plain else UNREACHABLE + name, scores.get(name, least)] for name in names]
    lost = sum(piece.text not in ids and piece.text not in hidden for piece in model.pieces)
    note = f"{vocabulary.name} lacks {lost} of {len(model.pieces)} pieces of {file.name}, which are never used"
    made = content(model, ids, rows, named, "always" if model.prefix else "never")
    strange = next(sign for sign in map(chr, range(0xE000, 0xF900)) if sign not in ids and sign not in known)
    run = replacement({"Regex": f"[^{''.join(map(re.escape, sorted(known)))}]{{2,}}"}, strange)
    made["normalizer"]["normalizers"].append(run)
    return made, [note] if lost else []
