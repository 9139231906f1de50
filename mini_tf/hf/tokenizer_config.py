"""What a folder says of special tokens, of the frame of texts and of generation: read at import, written at export.

tokenizer.json itself is read by `data.tokenization`. Beside it stand tokenizer_config.json and generation_config.json,
and older files leave more to the ids of config.json and to usual names.

Generation is the section `generate` of a recipe. Processors of logits have the same order. transformers' repetition
penalty counts special tokens, too, and its length penalty is length^p, ours ((5 + length) / 6)^p: the exponent is kept.
Stop strings are not written: its `generate` would refuse every call without a tokenizer. Source: its GenerationConfig.
"""

import json
from collections.abc import Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.tokenizer_files import SAVED_TARGETS, find_tokenizer_file
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.hf.config_json import Config, shown
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import Generate
from mini_tf.run import manifest
from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, RunFault
from mini_tf.system.limits import limits
from mini_tf.system.safe_files import read_plain, read_small_file
from mini_tf.system.strict_json import show_json
from mini_tf.trained.framing import text_affixes
from mini_tf.trained.opening import LoadedModel

SETTINGS, GENERATION = "tokenizer_config.json", "generation_config.json"
USUAL = {"cls_token": ("[CLS]",)}
FORCED_BOS = "forced_bos_token_id"

CHAT = "{{ %(separator)s }}{%% for message in messages %%}{{ message['content'] }}{{ %(separator)s }}{%% endfor %%}"
"""The Jinja template of chats: messages between separators."""
CHAT_FILE = "chat_template.jinja"
SAMPLING = ("temperature", "top_k", "top_p", "min_p")
DECODER = {name: name for name in ("max_new_tokens", "repetition_penalty", *SAMPLING)}
BEAMS = {name: name for name in ("max_new_tokens", "min_new_tokens", "num_beams", "length_penalty")}
BEAMS |= {"no_repeat_ngram": "no_repeat_ngram_size"}
"""Settings of a recipe, each with their name of it."""

DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    **{key: (1,) for key in ("num_beams", "temperature", "top_p", "typical_p", "repetition_penalty", "length_penalty")},
    **{key: (0,) for key in ("min_length", "min_p", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size")},
    **{"max_length": (20,), "top_k": (50,), "do_sample": (False,), "early_stopping": (False, "never"), "prefix": ("",)},
    **{key: ([],) for key in ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_decoder_ids")},
    **{key: () for key in ("max_new_tokens", "min_new_tokens", "stop_strings", FORCED_BOS)},
}
"""Their settings, each with the values that are the default."""


def json_values(path: Path) -> Mapping[str, Any]:
    """The keys of a JSON file; none if it is missing or damaged, which is reported where it is needed."""
    with suppress(RunFault):
        return Config.read(path, "JSON").values
    return {}


def special_token(folder: Path, name: str, config: Config) -> str | None:
    """The text of a special token, such as bos_token: by tokenizer_config.json, by its id in config.json, or usual.

    None if the files do not tell; damaged files are reported where they are needed.
    """
    entry = json_values(folder / SETTINGS).get(name)
    token = entry.get("content") if isinstance(entry, Mapping) else entry
    if isinstance(token, str) and token:
        return token
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        content = strict_json.parse(read_plain(folder / "tokenizer.json", limits().tokenizer_bytes).decode())
        named = {token["id"]: str(token["content"]) for token in content["added_tokens"] if token["special"]}
        if (id := config.get(f"{name}_id")) is not None:
            return named.get(id)
        return next((usual for usual in USUAL.get(name, ()) if usual in named.values()), None)
    with suppress(OSError, ValueError):
        lines = read_plain(folder / "vocab.txt", limits().tokenizer_bytes).decode("utf-8-sig").splitlines()
        return next((usual for usual in USUAL.get(name, ()) if usual in lines), None)
    with suppress(DataFault):
        return _named(Tokenizer.load(folder), config.get(f"{name}_id"))
    return None


def chat_template(folder: Path) -> str | None:
    """The Jinja template of chats of a folder; None if it has none."""
    if (folder / CHAT_FILE).is_file():
        return read_small_file(folder / CHAT_FILE).decode(errors="replace").strip()
    template = json_values(folder / SETTINGS).get("chat_template")
    return None if template is None else str(template)


def chat_separator(folder: Path, config: Config) -> str | None:
    """The special token around each message of a chat, if the folder's template is `CHAT`; else None."""
    template = chat_template(folder)
    names = (special_token(folder, role, config) for role in ("bos_token", "eos_token"))
    return next((name for name in names if name and template == CHAT % {"separator": json.dumps(name)}), None)


def chat_note(folder: Path, config: Config) -> str | None:
    """A note on a chat template that minitf does not have."""
    if chat_template(folder) is None or chat_separator(folder, config) is not None:
        return None
    return "left out: its chat template; minitf has that of messages between separators, and prompts are continued"


def _named(tokenizer: Tokenizer, id: Any) -> str | None:
    names = {id: token for token, id in tokenizer.special_tokens.items()}
    return names.get(id) if isinstance(id, int) else None


def begin_token(path: Path, config: Config) -> str | None:
    """The special token that a decoder's tokenizer without a template puts before a text; None: there is none.

    path: of the tokenizer, a folder or a file in it. Only older files have `add_bos_token` in place of a template.
    """
    folder, file = (path, find_tokenizer_file(path)) if path.is_dir() else (path.parent, path)
    if file is None or file.name == "tokenizer.json":
        return None
    adds = json_values(folder / SETTINGS).get("add_bos_token")
    if not isinstance(adds, bool):
        adds = file.suffix == ".model"  # Llama's
    return special_token(folder, "bos_token", config) if adds else None


def pad_token(folder: Path, config: Config) -> str | None:
    """The special token that config.json names as padding; None if there is none, or it has one of the usual names."""
    with suppress(DataFault):
        tokenizer, id = Tokenizer.load(folder), config.get("pad_token_id")
        return _named(tokenizer, id) if id != tokenizer.vocabulary.pad else None
    return None


def end_ids(folder: Path, config: Config) -> list[int]:
    """The ids that end a text: `eos_token_id` of generation_config.json, else of config.json; a number or a list."""
    return _ids(folder, config, "eos_token_id", "an id from 0 to {}, or a list of them")


def forced_bos(folder: Path, config: Config) -> int | None:
    """The id of the first token of every target, if there is one: of generation_config.json, else of config.json."""
    ids = _ids(folder, config, FORCED_BOS, "an id from 0 to {}", most=1)
    return ids[0] if ids else None


def _ids(folder: Path, config: Config, key: str, expected: str, most: int | None = None) -> list[int]:
    path = folder / GENERATION
    generation = config.beside(Config.read(path, "JSON").values if path.is_file() else {}, str(path))
    keys = generation if generation.has(key) else config
    value, size = keys.get(key), config.integer("vocab_size")
    ids = [] if value is None else value if isinstance(value, list) and most is None else [value]
    if all(type(id) is int and 0 <= id < size for id in ids):
        return list(dict.fromkeys(ids))
    keys.refuse(key, f"it must be {expected.format(size - 1)}")
    return []


def token_ids(vocabulary: Vocabulary) -> dict[str, Any]:
    """The special tokens of a config.json."""
    end = vocabulary.ends[0] if len(vocabulary.ends) == 1 else [*vocabulary.ends] or None
    ids = {"bos": vocabulary.bos_id, "eos": end, "pad": vocabulary.pad}
    ids |= {} if vocabulary.forced_bos is None else {"forced_bos": vocabulary.forced_bos}
    return {f"{name}_token_id": id for name, id in ids.items()}


def reads_chats(loaded: LoadedModel) -> bool:
    """Whether a prompt is a whole message, to which a decoder answers, and no text that it continues."""
    pipeline = loaded.recipe.objective.pipeline()
    return pipeline is not None and pipeline.FRAMING == "example"


def tokenizer_files(loaded: LoadedModel) -> dict[str, bytes]:
    """tokenizer.json and tokenizer_config.json of the texts that the model reads: of an encoder-decoder, the sources.

    Where targets are split in another way, their tokenizer stands beside them. A model that was imported and not
    trained keeps the template and the mask that its tokenizer came with.
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
        content["added_tokens"] = [
            token | {"lstrip": True} if token["id"] in marks else token for token in content["added_tokens"]
        ]
    end = next((names[id] for id in vocabulary.ends if id in names), separator)
    tokens = {"bos_token": vocabulary.bos_id, "eos_token": end}
    tokens |= {"unk_token": vocabulary.unk, "pad_token": vocabulary.pad}
    has_masks = not model.causal or model.SOURCE or "mask" in loaded.recipe.objective.TOKENS
    tokens |= {"mask_token": vocabulary.mask} if has_masks else {}
    tokens |= {} if model.causal else {"cls_token": begin, "sep_token": separator}
    present = {key: token for key, token in tokens.items() if token is not None}
    named = {key: names[token] if isinstance(token, int) else token for key, token in present.items()}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": loaded.model.context,
        "clean_up_tokenization_spaces": False,
    }
    if model.causal and not model.SOURCE and "tokens" in loaded.recipe.objective.PREDICTS:
        settings["padding_side"] = "left"  # a text is continued at its last token
        if reads_chats(loaded) and separator is not None:
            settings["chat_template"] = CHAT % {"separator": json.dumps(separator)}
    if loaded.model.n_types > 1:
        settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    files = {
        "tokenizer.json": json.dumps(content, indent=1, ensure_ascii=False).encode(),
        SETTINGS: show_json(settings | named).encode(),
    }
    return files if tokenizer is loaded.tokenizer else files | {SAVED_TARGETS: loaded.tokenizer.to_json().encode()}


def _template(loaded: LoadedModel, names: dict[int, str], processor: dict[str, Any] | None) -> dict[str, Any] | None:
    """A post-processor that frames one text, or two with a separator between them, as the pipeline of the run does.

    processor: that of the tokenizer, of which only what changes no ids is kept: GPT-2's trimming of offsets.
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
    trims = processor is not None and processor["type"] == "ByteLevel"
    return {"type": "Sequence", "processors": [processor, template]} if trims else template


def _names(recipe: Recipe) -> Mapping[str, str]:
    """The settings that a model generates by; none of one that generates no text."""
    if "tokens" not in recipe.objective.PREDICTS:
        return {}
    return BEAMS if recipe.model.SOURCE else DECODER if recipe.model.causal else {}


def generation_files(loaded: LoadedModel, config: Mapping[str, Any]) -> dict[str, bytes]:
    """generation_config.json of a model that generates text. config: its config.json, with the ids of special tokens.

    With it `generate` of transformers does by default what that of minitf does: sampling, or beam search.
    """
    generate, names = loaded.recipe.generate, _names(loaded.recipe)
    if not names:
        return {}
    settings: dict[str, Any] = {theirs: getattr(generate, ours) for ours, theirs in names.items()}
    if not loaded.recipe.model.SOURCE:
        settings |= {"do_sample": not generate.greedy, "top_k": generate.top_k or 0}
        unused: Container[str] = SAMPLING if generate.greedy else ()
    else:
        settings |= {"early_stopping": "never"}
        unused = ("early_stopping", "length_penalty") if generate.num_beams == 1 else ()
    ids = {key: value for key, value in config.items() if key.endswith("_token_id") and value is not None}
    return {GENERATION: show_json(ids | {key: settings[key] for key in settings if key not in unused}).encode()}


def read_generation(folder: Path, config: Config, recipe: Recipe) -> tuple[Generate, list[str]]:
    """The section `generate` of the model of a folder, and notes on what was read and left out.

    What neither generation_config.json nor config.json has remains minitf's default, as does what has no meaning here.
    """
    stored = {**config.values, **json_values(folder / GENERATION)}
    stored = {key: value for key, value in stored.items() if value is not None}
    names, samples = {theirs: ours for ours, theirs in _names(recipe).items()}, stored.get("do_sample")
    known = {FORCED_BOS} if recipe.model.SOURCE else set()
    if names and not recipe.model.SOURCE and isinstance(samples, bool):
        known |= {"do_sample"}
        stored |= {"temperature": stored.get("temperature", 1.0) if samples else 0.0}
    elif not recipe.model.SOURCE:  # without do_sample they have no effect there
        names = {theirs: ours for theirs, ours in names.items() if theirs not in SAMPLING}
    read: dict[str, Any] = {}
    for theirs, ours in names.items():
        if theirs in stored:
            try:
                Generate.model_validate(read | {ours: stored[theirs]})
            except ValidationError:
                continue
            read, known = read | {ours: stored[theirs]}, known | {theirs}
    left_out = {
        key: stored[key]
        for key, defaults in DEFAULTS.items()
        if key in stored and key not in known and stored[key] not in defaults
    }
    changed = {key: value for key, value in read.items() if value != getattr(Generate(), key)}
    notes = [
        f"{prefix}settings of generation, {', '.join(f'{key} {shown(value)}' for key, value in values.items())}"
        for prefix, values in (("read: ", changed), ("left out: ", left_out))
        if values
    ]
    return Generate.model_validate(read), notes
