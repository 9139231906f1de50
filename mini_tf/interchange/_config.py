"""The values of a Hugging Face config.json, each checked where it is read."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe.values import show
from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, RunFault
from mini_tf.system.limits import limits
from mini_tf.system.plain_file import read_plain, read_small_file

Meaning = TypeVar("Meaning")
LARGEST = 2**24


class Config:
    """The keys of a config.json. Every method raises RunFault with the key, its value and what it must be.

    where: the path of the file, for messages.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def refuse(self, key: str, must: str) -> NoReturn:
        """Raise RunFault: the value of `key` must be something else."""
        raise RunFault(f"{self.where}: {key} is {show(self.values.get(key))}; {must}", where=[self.where])

    def has(self, key: str) -> bool:
        """Whether the key is given and not null."""
        return self.values.get(key) is not None

    def integer(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A whole number from `least` on; required without a default."""
        value = self.values.get(key)
        value = default if value is None else value
        if type(value) is not int or not least <= value <= LARGEST:
            self.refuse(key, f"it must be a whole number from {least} to {LARGEST}")
        return value

    def number(self, key: str, default: float) -> float:
        """A finite number above 0."""
        value = self.values.get(key)
        value = default if value is None else value
        if type(value) not in (int, float) or not 0 < value < float("inf"):
            self.refuse(key, "it must be a number above 0")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.values.get(key)
        value = default if value is None else value
        if type(value) is not bool:
            self.refuse(key, "it must be true or false")
        return value

    def word(self, key: str, meanings: Mapping[str, Meaning], default: str) -> Meaning:
        """What a word means here; other words are refused."""
        value = self.values.get(key)
        value = default if value is None else value
        if not isinstance(value, str) or value not in meanings:
            self.refuse(key, f"minitf has {', '.join(meanings)}")
        return meanings[value]

    def only(self, key: str, *allowed: Any, why: str = "") -> None:
        """The key must be absent, null or one of these values."""
        value = self.values.get(key)
        if value is not None and value != [] and value != {} and not any(type(value) is type(one) and value == one for one in allowed):
            self.refuse(key, f"minitf has {' or '.join(map(show, allowed)) or 'no such setting'}{why}")

    @property
    def n_labels(self) -> int:
        """The number of classes, or 1 of numbers; 2 where nothing is said, as in transformers."""
        return len(self.section("id2label").values) or self.integer("num_labels", 2)

    def section(self, key: str) -> "Config":
        """The keys of an object within; empty if there is none."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.refuse(key, "it must be an object")
        return Config(value or {}, f"{self.where}: {key}")


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
        if (id := config.values.get(f"{name}_id")) is not None:
            return named.get(id)
        return next((usual for usual in USUAL.get(name, ()) if usual in named.values()), None)
    with suppress(OSError, ValueError):
        lines = read_plain(folder / "vocab.txt", limits().tokenizer_bytes).decode().split("\n")
        return next((usual for usual in USUAL.get(name, ()) if usual in lines), None)
    with suppress(DataFault):
        names = {id: token for token, id in Tokenizer.load(folder).special_tokens.items()}
        id = config.values.get(f"{name}_id")
        return names.get(id) if isinstance(id, int) else None
    return None


USUAL = {"cls_token": ("[CLS]",)}
