"""All recipe keys with type, range, default and meaning, and the JSON Schema of a recipe."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined, core_schema

from mini_tf.recipe.kind_folders import FoundKind, added_kinds
from mini_tf.recipe.kinds import Kind, Section, listing
from mini_tf.recipe.parsing.key_names import OTHER_NAMES
from mini_tf.recipe.parsing.merging import is_whole_section, kinds_at, may_be_null, section_of
from mini_tf.recipe.parsing.validation import near_elsewhere
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.values import describe, members, number
from mini_tf.system.errors import near


@dataclass(frozen=True)
class Key:
    """A recipe key; kinds: the kinds that have it, if not all of the package."""

    name: str
    type: str
    default: str
    meaning: str
    kinds: tuple[str, ...] = ()


def keys() -> tuple[Key, ...]:
    """Every key of a recipe; imports all kinds."""
    return _keys_with(added_kinds())


@cache
def _keys_with(added: tuple[FoundKind, ...]) -> tuple[Key, ...]:
    return tuple(_keys_of([(None, Recipe)], ""))


def suggest_key(option: str) -> str | None:
    """The recipe key for an option such as --batch-size, --learning_rate or --model.n_layers; None if there is none.

    With =VALUE where it takes other values than the option.
    """
    word = option.lstrip("-").replace("-", "_")
    known = [key.name for key in keys()]
    ending = [name for name in known if f".{name}".endswith(f".{word}")]
    if ending:
        return min(ending, key=lambda name: name.count(".")) if word != "kind" else None
    suggestion = OTHER_NAMES.get(word) or near(word, known, cutoff=0.8) or near_elsewhere(word, known)
    return f"{suggestion.partition(' ')[0]}=VALUE" if suggestion and " " in suggestion else suggestion


def _keys_of(variants: Sequence[tuple[str | None, type[Section]]], prefix: str) -> Iterator[Key]:
    """The keys of alternative sections, each given with its kind."""
    fields: dict[tuple[str, ...], list[tuple[str | None, FieldInfo]]] = {}
    for word, section in variants:
        meanings = section.meanings()
        for name, field in section.model_fields.items():
            meaning = " ".join(meanings[name].split())
            fields.setdefault((name, type_of(field), default_of(field), meaning), []).append((word, field))
    for (name, *_, meaning), variants_of in fields.items():
        field = variants_of[0][1]
        words = tuple(str(word) for word, _ in variants_of) if len(variants_of) < len(variants) else ()
        kinds, part = kinds_at(field), section_of(field)
        if kinds is not None and part is None and may_be_null(field):
            yield Key(f"{prefix}{name}", "null, or a kind", "", meaning, words)
        if part is not None and not is_whole_section(field):
            yield Key(f"{prefix}{name}", type_of(field), default_of(field), meaning, words)
        if kinds is not None:
            yield Key(f"{prefix}{name}.kind", "one of " + ", ".join(kinds.words()), default_of(field), meaning, words)
            yield from _keys_of(list(kinds.kinds().items()), f"{prefix}{name}.")
        if part is not None and not _is_written_as_text(field):
            yield from _keys_of([(None, part)], f"{prefix}{name}.")
        elif kinds is None:
            yield Key(f"{prefix}{name}", type_of(field), default_of(field), meaning, words)


def _is_written_as_text(field: FieldInfo) -> bool:
    """True for a section that a recipe writes as one text (data.split)."""
    section = section_of(field)
    return section is not None and section.__str__ is not Section.__str__


def type_of(field: FieldInfo) -> str:
    if _is_written_as_text(field):
        return "text"
    bounds = [c for _, constraints in members(field.annotation, field.metadata) for c in constraints]
    texts = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    known = [
        f"{text} {number(getattr(b, name))}"
        for name, text in texts.items()
        for b in bounds
        if getattr(b, name, None) is not None
    ]
    return ", ".join(dict.fromkeys([describe(field.annotation, field.metadata), *known]))


def default_of(field: FieldInfo) -> str:
    """The default as in a recipe; empty if there is none."""
    value = field.get_default(call_default_factory=True)
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if value is PydanticUndefined or value is None:
        return ""
    if isinstance(value, Kind):
        return value.kind
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number(value)
    if isinstance(value, tuple):
        return f"[{', '.join(item.kind if isinstance(item, Kind) else str(item) for item in value)}]"
    return str(value)


class _RecipeSchema(GenerateJsonSchema):
    """Has the docstrings of fields, and allows numbers written as 10k, 5% or 30m, which YAML reads as text."""

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        made = super().model_schema(schema)
        for name, meaning in schema["cls"].meanings().items() if issubclass(schema["cls"], Section) else ():
            if meaning and name in schema["cls"].model_fields:
                made["properties"][name]["description"] = meaning
        return made

    def int_schema(self, schema: core_schema.IntSchema) -> dict[str, Any]:
        return {"anyOf": [super().int_schema(schema), {"type": "string", "pattern": r"^[-+0-9_.eE]+[kMGT]?$"}]}

    def float_schema(self, schema: core_schema.FloatSchema) -> dict[str, Any]:
        return {"anyOf": [super().float_schema(schema), {"type": "string", "pattern": r"^[-+0-9_.eE]+[kMGT%smhd]?$"}]}


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a recipe file, for editors."""
    schema = Recipe.model_json_schema(schema_generator=_RecipeSchema)
    schema.pop("required", None)  # `extends` may provide every section
    extends = {"type": "string", "description": "The preset or file that this recipe extends."}
    schema["properties"] = {"extends": extends} | schema["properties"]
    return {"$schema": GenerateJsonSchema.schema_dialect} | schema | {"title": "minitf recipe"}


ABOUT = {
    "data": (
        "training data: a file (txt jsonl csv tsv parquet), a glob, a list of them, or python-docs",
        "train: my.txt, split: 5%",
    ),
    "tokenizer": (
        "bpe, byte, char, unigram or wordpiece; or path: a tokenizer.json or a run",
        "kind: bpe, vocab_size: 4096",
    ),
    "model": (
        "decoder (causal), encoder (bidirectional) or encoder_decoder",
        "kind: decoder, d_model: 128, n_layers: 4, n_heads: 4",
    ),
    "objective": (
        "next_token, prefix, masked, denoising, seq2seq, classify, tag, regress or instruct; default: the model's own",
        "",
    ),
    "adapter": ("lora: train an adapter of the run in model.init_from instead of its own matrices", ""),
    "optimizer": (", ".join(listing("optimizers")), "lr: 1e-3, weight_decay: 0.1"),
    "schedule": (f"learning rate schedule: {', '.join(listing('schedules'))}", "kind: cosine, warmup: 2%"),
    "train": (
        "length of the run (one of steps tokens epochs time), batch size and context",
        "steps: 2000, batch_size: 32, context: 128",
    ),
    "eval": ("evaluation on validation data; patience: early stopping", "every_steps: 200, patience: 5"),
    "checkpoint": ("steps between checkpoints, and which are kept", "every_steps: 200, keep_last: 2"),
    "log": ("steps between progress lines, and samples at each evaluation", "every_steps: 10, samples: 1"),
    "runtime": (
        "device, precision and threads; auto: chosen for this machine",
        "device: auto, precision: auto, threads: auto",
    ),
    "generate": ("decoding options of samples", "max_new_tokens: 200, temperature: 0.8, top_k: 50"),
    "expect": ("bounds on metrics that --expect checks", ""),
}
"""By section: its meaning and its most used keys."""


def add_section_comments(text: str) -> str:
    """A recipe's text with a comment above each section; omitted sections are appended, commented out."""
    written: set[str] = set()

    def explain(section: re.Match[str]) -> str:
        name = section[1]
        if name not in ABOUT:
            return section[0]
        written.add(name)
        about, keys = ABOUT[name]
        first = ", ".join(re.findall(r"(\w+):", keys))
        return f"# {name}: {about}{f' ({first}, ...)' if keys else ''}\n{section[0]}"

    explained = re.sub(r"^([a-z]+):", explain, text.rstrip(), flags=re.MULTILINE)
    others = [
        f"# {name}: {about}\n# {name}: {{{keys}}}"
        for name, (about, keys) in ABOUT.items()
        if name not in written and keys
    ]
    return (
        "\n".join([explained, "", "# Omitted keys have their defaults; `minitf recipe keys` lists every key.", *others])
        + "\n"
    )
