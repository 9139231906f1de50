"""The values of a Hugging Face config.json, each checked where it is read."""

import json
import re
from collections.abc import Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from mini_tf.data.tokenization import tokenizer_files
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe.values import show
from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, RunFault
from mini_tf.system.limits import limits
from mini_tf.system.safe_files import read_plain, read_small_file

Meaning = TypeVar("Meaning")
LARGEST, MOST_FAULTS = 2**24, 20
NO_EFFECT = "|".join(
    (
        r".*(dropout|pdrop|dropout_prob|dropout_rate|layerdrop|dropout_rng)|classif_dropout|init_std|initializer_.*|gradient_checkpointing",
        r"_?name_or_path|_name|transformers_version|architectures|model_type|finetuning_task|task_specific_params|tokenizer_class",
        r"torch_dtype|dtype|use_bfloat16|torchscript|tf_legacy_loss|_commit_hash|.*_token_id|id2label|label2id|_?num_labels|problem_type",
        r"return_dict|use_return_dict|output_attentions|output_hidden_states|output_past|use_cache|keys_to_ignore_at_inference",
        r"_?attn_implementation(_autoset|_internal)?|_flash_attn_2_enabled|chunk_size_feed_forward|is_decoder|tie_word_embeddings",
        r"max_length|max_new_tokens|min_length|do_sample|early_stopping|num_beams|num_beam_groups|diversity_penalty|temperature|top_k",
        r"top_p|typical_p|(repetition|length)_penalty|(encoder_)?no_repeat_ngram_size|bad_words_ids|num_return_sequences|output_scores",
        r"return_dict_in_generate|remove_invalid_values|exponential_decay_length_penalty|(begin_)?suppress_tokens|prefix|eos_token_ids",
        r"language|name|model_max_length|max_sequence_length|xla_device|_from_model_config|transformers\.js_config|unsloth_(fixed|version)",
        r"sbert_ce_default_activation_function|sentence_transformers",
    )
)
"""Keys that change no output of a model of any family: names, training, types, outputs, computation, generation, notes
of other tools."""


class Config:
    """The keys of a config.json, each checked where it is read; `check` raises RunFault with all faults.

    A fault is the key, its value and what it must be; a usable value takes its place until then. where: the path of the
    file, for messages; reader: what has settings, minitf or a family.
    """

    def __init__(self, values: Mapping[str, Any], where: str, reader: str = "minitf") -> None:
        self.values, self.where, self.reader = values, where, reader
        self._refused: dict[str, None] = {}
        self._path, self._read, self._sections = "", set[str](), dict[str, Config]()
        self.without_effect: frozenset[str] = frozenset()
        """Keys of which it is known otherwise that they change no output."""
        self.unread = list[str]()
        """Those of them that were not read."""

    def refuse(self, key: str, must: str) -> None:
        """The value of `key` must be something else."""
        self._refused[f"{self.where}: {self._path}{key[:80]} is {_shown(self.values.get(key))}; {must}"] = None

    @property
    def faults(self) -> list[str]:
        """What was refused so far, one line each, the first ones."""
        more = len(self._refused) - MOST_FAULTS
        return [*self._refused][:MOST_FAULTS] + ([f"{self.where}: {more} more keys cannot be read"] if more > 0 else [])

    def rename(self, aliases: Mapping[str, str]) -> None:
        """Give keys their first names. aliases: second names, each with the first one; two must have one value."""
        for name, first in aliases.items():
            if not self.has(name):
                continue
            if self.has(first) and self.values[name] != self.values[first]:
                self.refuse(name, f"it is another name of {first}, which is {_shown(self.values[first])}")
            self.values = {**self.values, first: self.values[name]}

    def refuse_unread(self, without_effect: str, *absent: Any) -> None:
        """Refuse the keys that were not read, unless this regular expression of names has them.

        absent: values that stand for a missing key, beside null.
        """
        for key, value in self.values.items():
            if key in self._read or value in (None, *absent) or re.fullmatch(without_effect, key):
                continue
            if key in self.without_effect:
                self.unread.append(key)
            else:
                self.refuse(key, "minitf does not read this key, which may change the outputs")
        for section in self._sections.values():
            section.refuse_unread(r"(?!)")

    def check(self) -> None:
        """RunFault with all faults so far."""
        if self.faults:
            raise RunFault(self.faults[0], where=[self.where], faults=self.faults)

    def get(self, key: str) -> Any:
        """The value of a key, unchecked; None without it."""
        self._read.add(key)
        return self.values.get(key)

    def has(self, key: str) -> bool:
        """Whether the key is given and not null."""
        return self.get(key) is not None

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number from `least` on; required without a default."""
        value = default if self.get(key) is None else self.get(key)
        if type(value) is int and least <= value <= LARGEST:
            return value
        self.refuse(key, f"it must be a whole number from {least} to {LARGEST}")
        return least

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number above 0; required without a default."""
        value = default if self.get(key) is None else self.get(key)
        if isinstance(value, int | float) and type(value) is not bool and 0 < value < float("inf"):
            return float(value)
        self.refuse(key, "it must be a number above 0")
        return 1.0

    def flag(self, key: str, default: bool) -> bool:
        """True or false. Null is false to transformers, so it is refused where the default is true."""
        value = default if self.get(key) is None and not (default and key in self.values) else self.get(key)
        if type(value) is bool:
            return value
        self.refuse(key, "it must be true or false")
        return default

    def word(self, key: str, meanings: Mapping[str, Meaning], default: str) -> Meaning:
        """What a word means here; other words are refused."""
        value = default if self.get(key) is None else self.get(key)
        if isinstance(value, str) and value in meanings:
            return meanings[value]
        self.refuse(key, f"{self.reader} has {', '.join(meanings)}")
        return meanings[default]

    def only(self, key: str, *allowed: Any, why: str = "") -> None:
        """The key must be absent, null or one of these values."""
        value = self.get(key)
        absent = value is None and not (allowed == (True,) and key in self.values)  # null is false to transformers
        if (
            not absent
            and value != []
            and value != {}
            and not any(type(value) is type(one) and value == one for one in allowed)
        ):
            self.refuse(key, f"{self.reader} has {' or '.join(map(show, allowed)) or 'no such setting'}{why}")

    @property
    def n_labels(self) -> int:
        """The number of classes, or 1 of numbers; 2 where nothing is said, as in transformers."""
        return len(self.mapping("id2label")) or self.integer("num_labels", 2)

    def mapping(self, key: str) -> Mapping[str, Any]:
        """An object within, of which any key is allowed; empty if there is none."""
        value = self.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.refuse(key, "it must be an object")
            return {}
        return value or {}

    def section(self, key: str) -> "Config":
        """The keys of an object within; empty if there is none."""
        if key not in self._sections:
            self._sections[key] = self.beside(self.mapping(key), self.where, f"{self._path}{key}.")
        return self._sections[key]

    def beside(self, values: Mapping[str, Any], where: str, path: str = "") -> "Config":
        """Other keys, whose faults are added to these. path: what stands before a key in messages."""
        other = Config(values, where, self.reader)
        other._path, other._refused = path, self._refused
        return other


def no_such_model(error: ValidationError, where: str, *path: str) -> RunFault:
    """That the settings of a config.json make no model. path: keys of the recipe before those that the error names."""
    found = error.errors(include_url=False, include_input=False)
    faults = [
        f"{where}: minitf has no such model: {'.'.join(map(str, (*path, *fault['loc'])))}: {fault['msg']}"
        for fault in found
    ]
    return RunFault(faults[0], where=[where], faults=faults)


def _shown(value: Any) -> str:
    """A value in a message: of a list or object its JSON."""
    if not isinstance(value, list | Mapping):
        return show(value)
    try:
        text = json.dumps(value)
    except RecursionError:
        return show(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


FORCED_BOS = "forced_bos_token_id"
GENERATION: Mapping[str, tuple[Any, ...]] = {
    **{key: (1,) for key in ("num_beams", "temperature", "top_p", "typical_p", "repetition_penalty", "length_penalty")},
    **{key: (0,) for key in ("min_length", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size")},
    **{"max_length": (20,), "top_k": (50,), "do_sample": (False,), "early_stopping": (False,), "prefix": ("",)},
    **{key: ([],) for key in ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_decoder_ids")},
    **{key: () for key in ("max_new_tokens", "min_new_tokens", FORCED_BOS)},
}
"""Settings of text generation, each with the values that are the default."""


def generation_note(folder: Path, config: Config, imported: Container[str] = ()) -> str | None:
    """A note on the settings of generation of generation_config.json, else config.json, that are not `imported`."""
    values = dict(config.values)
    with suppress(OSError, ValueError, TypeError):
        values |= strict_json.parse(read_small_file(folder / "generation_config.json").decode())
    left_out = {key: defaults for key, defaults in GENERATION.items() if key not in imported}
    given = {key: values.get(key) for key, defaults in left_out.items() if values.get(key) not in (None, *defaults)}
    if not given:
        return None
    listed = ", ".join(f"{key} {_shown(value)}" for key, value in given.items())
    return f"left out: settings of generation, {listed}"


def special_token(folder: Path, name: str, config: Config) -> str | None:
    """The text of a special token, such as bos_token: by tokenizer_config.json, by its id in config.json, or usual.

    None if the files do not tell; damaged files are reported where they are needed.
    """
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        given = strict_json.parse(read_small_file(folder / "tokenizer_config.json").decode())[name]
        token = given["content"] if isinstance(given, Mapping) else given
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
        names = {id: token for token, id in Tokenizer.load(folder).special_tokens.items()}
        id = config.get(f"{name}_id")
        return names.get(id) if isinstance(id, int) else None
    return None


def begin_token(path: Path, config: Config) -> str | None:
    """The special token that a decoder's tokenizer without a template puts before a text; None: there is none.

    path: of the tokenizer, a folder or a file in it. Only older files have `add_bos_token` in place of a template.
    """
    folder, file = (path, tokenizer_files.find_tokenizer_file(path)) if path.is_dir() else (path.parent, path)
    if file is None or file.name == "tokenizer.json":
        return None
    with suppress(OSError, ValueError):
        given = strict_json.parse(read_small_file(folder / "tokenizer_config.json").decode())
        if isinstance(given, Mapping) and isinstance(given.get("add_bos_token"), bool):
            return special_token(folder, "bos_token", config) if given["add_bos_token"] else None
    return special_token(folder, "bos_token", config) if file.suffix == ".model" else None  # Llama's


def end_ids(folder: Path, config: Config) -> list[int]:
    """The ids that end a text: `eos_token_id` of generation_config.json, else of config.json; a number or a list."""
    return _ids(folder, config, "eos_token_id", "an id from 0 to {}, or a list of them")


def forced_bos(folder: Path, config: Config) -> int | None:
    """The id of the first token of every target, if there is one: of generation_config.json, else of config.json."""
    ids = _ids(folder, config, FORCED_BOS, "an id from 0 to {}", most=1)
    return ids[0] if ids else None


def _ids(folder: Path, config: Config, key: str, what: str, most: int | None = None) -> list[int]:
    path = folder / "generation_config.json"
    generation = config.beside(_object(path) if path.is_file() else {}, str(path))
    keys = generation if generation.has(key) else config
    value, size = keys.get(key), config.integer("vocab_size")
    ids = [] if value is None else value if isinstance(value, list) and most is None else [value]
    if all(type(id) is int and 0 <= id < size for id in ids):
        return list(dict.fromkeys(ids))
    keys.refuse(key, f"it must be {what.format(size - 1)}")
    return []


def pad_token(folder: Path, config: Config) -> str | None:
    """The special token that config.json names as padding; None if there is none, or it has one of the usual names."""
    with suppress(DataFault):
        tokenizer, id = Tokenizer.load(folder), config.get("pad_token_id")
        names = {id: token for token, id in tokenizer.special_tokens.items()}
        return names.get(id) if isinstance(id, int) and id != tokenizer.vocabulary.pad else None
    return None


def _object(path: Path) -> Mapping[str, Any]:
    """The content of a JSON file. RunFault if it is no object."""
    try:
        content = strict_json.parse(read_small_file(path).decode())
    except (OSError, ValueError) as error:
        raise RunFault(f"{path}: not JSON: {error}", where=[str(path)]) from error
    if not isinstance(content, Mapping):
        raise RunFault(f"{path}: not a JSON object", where=[str(path)])
    return content


USUAL = {"cls_token": ("[CLS]",)}
