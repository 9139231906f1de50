"""The vocabulary of a GGUF file: tokens, their types and merges, and the splitting that llama.cpp has for them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mini_tf.data.tokenizers import MAX_WORD_LENGTH
from mini_tf.hf.tokenizer_config import tokenizer_files
from mini_tf.system.errors import RunFault
from mini_tf.trained.framing import text_affixes
from mini_tf.trained.opening import LoadedModel

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
"""Types of tokens."""
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {CONTRACTIONS + r"\p{N}{1,3}" + REST: "llama-bpe", CONTRACTIONS + r"\p{N}" + REST: "qwen2"}
"""Regular expressions of tokenizer.json that split words, and llama.cpp's word for each."""
LONG_WORDS = rf"\S{{{MAX_WORD_LENGTH}}}|\s{{{MAX_WORD_LENGTH}}}"
"""Of our own tokenizers: llama.cpp does not cut words that are so long."""
SPACE, INSIDE = "▁", "##"

_MARKED = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
SPACED = [[{"type": "Prepend", "prepend": SPACE}, _MARKED], [_MARKED]]
"""Normalizers of Llama's tokenizers in older files, with a space before a text or without."""


class GgufVocabulary(NamedTuple):
    """model: llama.cpp's word for the kind; keys: of tokenizer.ggml, without that in front; note: a line for people."""

    model: str
    keys: dict[str, Any]
    note: str = ""


def vocabulary_of(loaded: LoadedModel) -> GgufVocabulary:
    """RunFault, with a name, for what llama.cpp does not have."""
    content = json.loads(loaded.tokenizer.to_json())
    model = content["model"]
    if model["type"] == "WordPiece":
        return _wordpiece(loaded, content)
    if model["type"] != "BPE":
        fault = f"its model is {model['type']}, and must be BPE or WordPiece"
        raise RunFault(f"llama.cpp has no tokenizer like this one: {fault}")
    if not model["merges"]:
        fault = "llama.cpp reads no vocabulary without merges, such as bytes alone"
        raise RunFault(f"{fault}; train with tokenizer.kind=bpe")
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    keys = _tokens(loaded, content) | _special(loaded)
    if model.get("byte_fallback"):
        return _sentencepiece(content, keys, merges)
    pre, note = _pre_tokenizer(content)
    return GgufVocabulary("gpt2", keys | {"pre": pre, "merges": merges}, note)


def _tokens(loaded: LoadedModel, content: Mapping[str, Any]) -> dict[str, Any]:
    ids, added = range(loaded.tokenizer.vocabulary.size), content["added_tokens"]
    tokens = {id: name for name, id in content["model"]["vocab"].items()}
    tokens |= {token["id"]: token["content"] for token in added}
    normal = tokens.keys() - {token["id"] for token in added if token["special"]}
    return {
        "tokens": [tokens.get(id, f"[unused{id}]") for id in ids],
        "token_type": [NORMAL if id in normal else CONTROL for id in ids],
    }


def _wordpiece(loaded: LoadedModel, content: Mapping[str, Any]) -> GgufVocabulary:
    """BERT's vocabulary as llama.cpp's `bert`: tokens at the start of a word begin with a space, others have no ##."""
    normalizer, splitting, model = content["normalizer"] or {}, content["pre_tokenizer"] or {}, content["model"]
    steps = splitting.get("pretokenizers", [splitting])
    if normalizer.get("type", "BertNormalizer") != "BertNormalizer":
        raise RunFault(f"llama.cpp does not change texts as {_shown(normalizer)} does")
    if steps[0].get("type") != "BertPreTokenizer" or any(step["type"] != "Split" for step in steps[1:]):
        raise RunFault(f"llama.cpp has no WordPiece that splits texts as {_shown(splitting)}")
    if model["continuing_subword_prefix"] != INSIDE:
        raise RunFault(f"llama.cpp marks tokens inside a word by {INSIDE}, not {model['continuing_subword_prefix']}")
    keys = _tokens(loaded, content)
    vocabulary, (before, behind) = loaded.tokenizer.vocabulary, text_affixes(loaded)
    ends = behind or [id for id in (vocabulary.separator,) if id is not None]
    if len(before) != 1 or len(ends) != 1:
        shown = f"{len(before)} before and {len(behind)} behind"
        raise RunFault(f"llama.cpp puts one token before a text and one behind it, and this model has {shown}")
    words = [
        token if type == CONTROL else token[len(INSIDE) :] if token.startswith(INSIDE) else SPACE + token
        for token, type in zip(keys["tokens"], keys["token_type"], strict=True)
    ]
    lower, strips = bool(normalizer.get("lowercase")), normalizer.get("strip_accents")
    keys |= _ids(bos=before[0], cls=before[0], seperator=ends[0], unknown=vocabulary.unk)
    keys |= _ids(padding=vocabulary.pad, mask=vocabulary.mask)
    keys |= {"tokens": words, "token_type_count": max(1, loaded.model.n_types)}
    keys |= {"add_bos_token": True, "add_sep_token": True}
    keys |= {"normalizer.lowercase": lower, "normalizer.strip_accents": lower if strips is None else bool(strips)}
    differences = [f"words of more than {model['max_input_chars_per_word']} characters"]
    if not normalizer.get("handle_chinese_chars"):
        differences.append("Chinese characters")
    if not normalizer.get("clean_text"):
        differences.append("control characters")
    note = f"llama.cpp splits {' and '.join(differences)} otherwise"
    if not behind:
        note += f"; it puts {keys['tokens'][ends[0]]} behind a text, too"
    if not lower:
        note += "; it keeps capitals if it reads the key tokenizer.ggml.normalizer.lowercase, as newer versions do"
    return GgufVocabulary("bert", keys, note)


def _pre_tokenizer(content: Mapping[str, Any]) -> tuple[str, str]:
    """llama.cpp's word for how texts are split into words, and what differs from it."""
    if content["normalizer"] is not None:
        changes = _shown(content["normalizer"])
        raise RunFault(f"llama.cpp does not change texts before it splits them, as {changes} does")
    splitting = content["pre_tokenizer"] or {}
    steps: Sequence[Mapping[str, Any]] = splitting.get("pretokenizers", [splitting])
    *splits, last = steps
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        raise RunFault(f"llama.cpp has no tokenizer that splits texts as {_shown(splitting)}")
    patterns = [step.get("pattern", {}).get("Regex", _shown(step)) for step in splits]
    if content["model"]["merges"] and not last["use_regex"]:
        word = PATTERNS.get(patterns[0]) if len(patterns) == 1 else None
        if word is not None and bool(content["model"].get("ignore_merges")) == (word == "llama-bpe"):
            return word, ""
    elif patterns in ([], [LONG_WORDS]) and not content["model"].get("ignore_merges"):
        long = f"words of more than {MAX_WORD_LENGTH} characters are cut here, and not by llama.cpp"
        return "gpt-2", long if patterns else ""
    raise RunFault(f"llama.cpp has no tokenizer that splits texts as {_shown(splitting)}")


def _sentencepiece(content: Mapping[str, Any], keys: dict[str, Any], merges: Sequence[str]) -> GgufVocabulary:
    """A BPE of SentencePiece, whose merges llama.cpp takes from scores: the earlier, the higher."""
    normalizer, splitting = content["normalizer"] or {}, content["pre_tokenizer"] or {}
    steps = [
        *normalizer.get("normalizers", [normalizer] if normalizer else []),
        *splitting.get("pretokenizers", [splitting]),
    ]
    steps = [step for step in steps if step]
    if steps not in SPACED and (len(steps) != 1 or steps[0].get("type") != "Metaspace"):
        raise RunFault(f"llama.cpp has no tokenizer that changes texts as {_shown(steps)}")
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault(merge.replace(" ", "", 1), rank)
    unknown = content["model"].get("unk_token")
    types = [
        UNKNOWN if token == unknown else BYTE if token.startswith("<0x") and len(token) == 6 else type
        for token, type in zip(keys["tokens"], keys["token_type"], strict=True)
    ]
    scores = [-float(ranks.get(token, len(ranks))) for token in keys["tokens"]]
    first = steps[0]["type"] == "Prepend" or steps[0].get("prepend_scheme", "never") != "never"
    keys |= {"token_type": types, "scores": scores, "pre": "default", "add_space_prefix": first}
    return GgufVocabulary("llama", keys)


def _special(loaded: LoadedModel) -> dict[str, Any]:
    vocabulary = loaded.tokenizer.vocabulary
    before, _ = text_affixes(loaded)
    if len(before) > 1:
        raise RunFault(f"llama.cpp puts one token before a text, and this model has {len(before)} there")
    end = vocabulary.ends[0] if vocabulary.ends else vocabulary.separator
    keys = _ids(bos=before[0] if before else vocabulary.bos_id, eos=end, unknown=vocabulary.unk, padding=vocabulary.pad)
    keys |= {"add_bos_token": bool(before), "add_eos_token": False}
    settings = json.loads(tokenizer_files(loaded)["tokenizer_config.json"])
    return keys | ({"chat_template": settings["chat_template"]} if "chat_template" in settings else {})


def _ids(**roles: int | None) -> dict[str, Any]:
    """Keys of the special tokens that there are."""
    return {f"{role}_token_id": int(id) for role, id in roles.items() if id is not None}


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:197]}..."
