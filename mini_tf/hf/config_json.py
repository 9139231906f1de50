"""The values of a Hugging Face config.json, each checked where it is read."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from mini_tf.recipe.values import show
from mini_tf.system import strict_json
from mini_tf.system.errors import RunFault
from mini_tf.system.safe_files import read_small_file

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

    @classmethod
    def read(cls, path: Path, expected: str) -> "Config":
        """The keys of a file. RunFault, that it is not `expected`, if it is no JSON object."""
        try:
            values = strict_json.read(read_small_file(path))
            if not isinstance(values, dict):
                raise ValueError("it is not a JSON object")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise RunFault.located(str(path), f"not {expected}: {reason}") from error
        return cls(values, str(path))

    def refuse(self, key: str, must: str) -> None:
        """The value of `key` must be something else."""
        self._refused[f"{self.where}: {self._path}{key[:80]} is {shown(self.values.get(key))}; {must}"] = None

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
                self.refuse(name, f"it is another name of {first}, which is {shown(self.values[first])}")
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
        is_allowed = any(type(value) is type(other) and value == other for other in allowed)
        if not absent and not is_allowed and value not in ([], {}):
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
    errors = error.errors(include_url=False, include_input=False)
    keys = [".".join(map(str, (*path, *fault["loc"]))) for fault in errors]
    faults = [
        f"{where}: minitf has no such model: {key}: {fault['msg']}" for key, fault in zip(keys, errors, strict=True)
    ]
    return RunFault(faults[0], where=[where], faults=faults)


def shown(value: Any) -> str:
    """A value in a message: of a list or object its JSON."""
    if not isinstance(value, list | Mapping):
        return show(value)
    try:
        text = json.dumps(value)
    except RecursionError:
        return show(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
