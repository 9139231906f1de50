"""The tokenizer of a run as the files of Hugging Face's tokenizers, framed as minitf frames texts."""

import json
from typing import Any

from mini_tf.run import manifest
from mini_tf.system.strict_json import show_json
from mini_tf.trained.framing import text_affixes
from mini_tf.trained.opening import LoadedModel


def tokenizer_files(loaded: LoadedModel) -> dict[str, bytes]:
    """tokenizer.json and tokenizer_config.json of the texts that the model reads: of an encoder-decoder, the sources.

    A model that was imported and not trained keeps the template and the mask that its tokenizer came with.
    """
    tokenizer, model = loaded.source_tokenizer, loaded.recipe.model
    vocabulary, content = tokenizer.vocabulary, json.loads(tokenizer.to_json())
    names = {id: name for name, id in tokenizer.special_tokens.items()}
    separator = None if vocabulary.separator is None else names[vocabulary.separator]
    begin = None if vocabulary.begin_id is None else names[vocabulary.begin_id]
    was_trained = manifest.read(loaded.folder).step > 0
    if was_trained or not content["post_processor"]:
        content["post_processor"] = _template(loaded, names, content["post_processor"])
    if was_trained and tokenizer.mask_takes_space:
        marks = {vocabulary.mask, *vocabulary.sentinels}
        content["added_tokens"] = [token | {"lstrip": True} if token["id"] in marks else token for token in content["added_tokens"]]
    end = next((names[id] for id in vocabulary.ends if id in names), separator)
    tokens = {"bos_token": separator, "eos_token": end, "unk_token": vocabulary.unk, "pad_token": vocabulary.pad}
    tokens |= {} if model.causal and not model.SOURCE else {"mask_token": vocabulary.mask}
    tokens |= {} if model.causal else {"cls_token": begin, "sep_token": separator}
    named = {key: names[one] if isinstance(one, int) else one for key, one in tokens.items() if one is not None}
    own = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": loaded.model.context, "clean_up_tokenization_spaces": False}
    if model.causal and not model.SOURCE and loaded.recipe.objective.predicts_tokens:
        own["padding_side"] = "left"  # a text is continued at its last token
    if loaded.model.n_types > 1:
        own["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    return {
        "tokenizer.json": json.dumps(content, indent=1, ensure_ascii=False).encode(),
        "tokenizer_config.json": show_json(own | named).encode(),
    }


def _template(loaded: LoadedModel, names: dict[int, str], given: dict[str, Any] | None) -> dict[str, Any] | None:
    """A post-processor that frames one text, or two with a separator between them, as the pipeline of the run does.

    given: the post-processor of the tokenizer, of which only what changes no ids is kept: GPT-2's trimming of offsets.
    """
    before, behind = (list(map(names.__getitem__, ids)) for ids in text_affixes(loaded))
    separator = loaded.source_tokenizer.vocabulary.separator
    between = [] if separator is None else [names[separator]]
    used = sorted({*before, *behind, *between})

    def special(tokens: list[str], type_id: int = 0) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": name, "type_id": type_id}} for name in tokens]

    first, second = ({"Sequence": {"id": name, "type_id": type_id}} for type_id, name in enumerate("AB"))
    ids = loaded.source_tokenizer.special_tokens
    template = {
        "type": "TemplateProcessing",
        "single": [*special(before), first, *special(behind)],
        "pair": [*special(before), first, *special(between), second, *special(behind, 1)],
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in used},
    }
    trims = given is not None and given["type"] == "ByteLevel"
    return {"type": "Sequence", "processors": [given, template]} if trims else template
