"""The tokenizer of a run as the files of Hugging Face's tokenizers, framed as minitf frames texts."""

import json
from collections.abc import Mapping

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.system.strict_json import show_json


def tokenizer_files(tokenizer: Tokenizer, context: int, causal: bool) -> dict[str, bytes]:
    """tokenizer.json and tokenizer_config.json. causal: a text has a separator before it, else also behind it.

    A template that the tokenizer came with is kept.
    """
    vocabulary, content = tokenizer.vocabulary, json.loads(tokenizer.to_json())
    names = {id: name for name, id in tokenizer.special_tokens.items()}
    separator = None if vocabulary.separator is None else names[vocabulary.separator]
    begin = None if vocabulary.begin_id is None else names[vocabulary.begin_id]
    if separator is not None and begin is not None and not content.get("post_processor"):
        content["post_processor"] = _template(begin, separator, tokenizer.special_tokens, causal)
    end = names[min(vocabulary.ends)] if vocabulary.ends else separator
    tokens = {"bos_token": separator, "eos_token": end, "unk_token": vocabulary.unk, "pad_token": vocabulary.pad}
    tokens |= {"mask_token": vocabulary.mask} if not causal else {}
    tokens |= {"cls_token": begin, "sep_token": separator} if not causal else {}
    named = {key: names[one] if isinstance(one, int) else one for key, one in tokens.items() if one is not None}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **named, "model_max_length": context, "clean_up_tokenization_spaces": False}
    return {
        "tokenizer.json": json.dumps(content, indent=1, ensure_ascii=False).encode(),
        "tokenizer_config.json": show_json(config).encode(),
    }


def _template(begin: str, separator: str, ids: Mapping[str, int], causal: bool) -> dict[str, object]:
    """[begin] text, and for an encoder [begin] text [separator] other text [separator]."""

    def token(type_id: int, name: str = separator) -> dict[str, object]:
        return {"SpecialToken": {"id": name, "type_id": type_id}}

    def text(name: str, type_id: int) -> dict[str, object]:
        return {"Sequence": {"id": name, "type_id": type_id}}

    single = [token(0, begin), text("A", 0)] + ([] if causal else [token(0)])
    pair = [token(0, begin), text("A", 0), token(0), text("B", 1)] + ([] if causal else [token(1)])
    special = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in {begin: 0, separator: 0}}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}
