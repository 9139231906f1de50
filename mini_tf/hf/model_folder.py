"""Opens a folder with a Hugging Face model: config.json, safetensors files, tokenizer. Reads no code and no pickle."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import Roles
from mini_tf.hf.config_json import MOST_FAULTS, no_such_model
from mini_tf.hf.families import Config, Family, Head
from mini_tf.hf.family_choice import CONFIG, family_of
from mini_tf.hf.layouts import expected_shapes, pairs_of, read_tensors
from mini_tf.hf.sentence_folder import name_base_model, sentence_sections
from mini_tf.hf.tokenizer_config import begin_token, chat_note, read_generation
from mini_tf.nn.model import Model
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import SingleTokenizer
from mini_tf.run import manifest, tensors
from mini_tf.run.disk import FileHashes
from mini_tf.run.tensors import TensorSpec
from mini_tf.system.errors import RunFault
from mini_tf.trained.architecture import Architecture
from mini_tf.trained.opening import LoadedModel

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}
"""Suffixes of LayerNorms in files of before 2020."""


@dataclass(frozen=True)
class ForeignModel:
    """A model that was read from a Hugging Face folder, on the CPU in fp32. notes: what was left out or added."""

    family: Family
    head: Head
    recipe: Recipe
    model: Model
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer
    labels: Labels | None
    notes: list[str]

    def loaded(self, folder: Path) -> LoadedModel:
        objective = self.recipe.objective.build(self.tokenizer.vocabulary, self.labels)
        return LoadedModel(
            folder, self.recipe, self.tokenizer, self.source_tokenizer, self.model, {}, self.labels, objective, 0
        )


def is_foreign(path: Path) -> bool:
    """Whether a path is a folder with a config.json of another tool, and no run."""
    if (path / manifest.NAME).exists() or not (path / CONFIG).is_file():
        return False
    return "model_type" in read_config(path).values


def read_config(folder: Path, name: str = CONFIG) -> Config:
    """The config.json of a folder; RunFault if there is none."""
    if not (folder / name).exists():
        files = f"{name}, {WEIGHTS} and a tokenizer"
        way = f"give a folder with {files}, as save_pretrained writes it, or hf:ORGANIZATION/NAME"
        raise RunFault.located(str(folder), f"it has no {name}" if folder.is_dir() else "not a folder", hint=way)
    return Config.read(folder / name, f"a {name} of a model")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, in order. RunFault if there are none, or only pickle files."""
    if (folder / INDEX).is_file():
        return [folder / name for name in sorted(set(_index(folder / INDEX).values()))]
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    named = [path.name for path in sorted(folder.glob("*")) if path.is_file()]
    others, pickled = ([name for name in named if name.endswith(end)] for end in (".safetensors", ".bin"))
    way = "load it with transformers where you trust it, and save it again: save_pretrained writes model.safetensors"
    if any(re.fullmatch(r".*-of-\d+\.safetensors", name) for name in others):
        fault, way = f"has {others[0]}, one of several files, but no {INDEX}, which lists them", "copy that file, too"
    elif others:
        fault, way = f"has {others[0]}, but no {WEIGHTS}", f"if it is the whole model, rename it to {WEIGHTS}"
    elif pickled:
        fault = f"has only {pickled[0]}, a pickle file, which can run code and is never opened"
    else:
        fault = f"has no {WEIGHTS}"
    raise RunFault(f"{folder} {fault}", hint=way, where=[str(folder)])


def _index(path: Path) -> dict[str, str]:
    """The file of each tensor, by the index of a model in several files."""
    names = Config.read(path, "an index of safetensors files").get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        fault = "not an index of safetensors files: weight_map must give a file for each tensor"
        raise RunFault.located(str(path), fault)
    if bad := [name for name in names.values() if not re.fullmatch(r"[\w.-]+\.safetensors", name)]:
        raise RunFault.located(str(path), f"{bad[0][:80]!r} is not a safetensors file of this folder")
    return names


def weights_hash(folder: Path) -> str:
    hashes = FileHashes()
    return "-".join(hashes.sha256(path) for path in weight_files(folder))


def read_weights(
    config: Config, folder: Path, family: Family, head: Head, model: Model, recipe: Recipe, deltas: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors of `model` (on the meta device) from the files, with `deltas` added, and notes on what was left out.

    RunFault, before any content is read, unless each tensor is there once with its shape, and none remains.
    """
    headers = {path: tensors.read_specs(path) for path in weight_files(folder)}
    names = family.names(recipe.model, head)
    expected = expected_shapes(model, names)
    places = _places(headers, family, expected)
    specs = {name: headers[path][theirs] for name, (path, theirs) in places.items()}
    unused = dict(_unused(family, expected, specs))
    notes = [f"left out: {part}" for part in dict.fromkeys(filter(None, unused.values()))]
    ties = {name: _first_name(family, name, specs) for name in family.TIED}
    again = {
        name: first for name, first in ties.items() if name in specs and name not in expected and name not in unused
    }
    lent = {name: first for name, first in ties.items() if name in expected and name not in specs and first in specs}
    if not family.ALWAYS_TIED:  # the output layer of an untied model is no other tensor
        own_output = next((pair.theirs for pair in pairs_of(model, names) if pair.ours == "head.linear.weight"), ())
        lent = {name: first for name, first in lent.items() if name not in own_output}
    zero = {name for name in family.ZERO if name in expected and name not in specs}
    absent = {name: f"the model has {first.lstrip('.')} in its place" for name, first in lent.items()}
    absent |= {name: "it is 0" for name in sorted(zero)}
    notes += [f"{name} is not in the files: {why}" for name, why in absent.items()]
    used = {name: spec for name, spec in specs.items() if name not in unused and name not in again}
    zero |= family.lacking(config) & expected.keys()
    _check(folder, {name: shape for name, shape in expected.items() if name not in lent and name not in zero}, used)
    read = {path: tensors.read(path, header) for path, header in headers.items()}
    theirs = {table_name: read[path][name] for table_name, (path, name) in places.items()}
    theirs |= {name: theirs[first] for name, first in lent.items()}
    theirs |= {name: torch.zeros(expected[name]) for name in zero}
    for name, first in again.items():
        if first not in theirs or not torch.equal(theirs[name], theirs[first]):
            reason = f"and a {family.kind} model of this {CONFIG} has one tensor for both"
            raise RunFault.located(str(folder), f"{places[name][1]} differs from {first.lstrip('.')}, {reason}")
    for name, delta in deltas.items():
        table_name = _canonical(name, family, False, expected)
        if table_name not in theirs or theirs[table_name].shape != delta.shape:
            raise RunFault.located(str(folder), f"the adapter is of another model: {name[:80]} {list(delta.shape)}")
        theirs[table_name] = theirs[table_name].float() + delta
    weights = read_tensors(model, names, theirs)
    tensors.check_weights(weights, folder)
    return weights, notes


def _places(
    headers: Mapping[Path, Mapping[str, TensorSpec]], family: Family, expected: Mapping[str, Any]
) -> dict[str, tuple[Path, str]]:
    """The file and the name in it of each tensor, by its name in the tables. RunFault for one that is given twice."""
    prefixed = any(name.startswith(family.PREFIX) for header in headers.values() for name in header)
    places: dict[str, tuple[Path, str]] = {}
    for path, header in headers.items():
        for name in header:
            table_name = _canonical(name, family, prefixed, expected)
            if table_name in places:
                raise RunFault.located(str(path), f"{name[:80]} is given twice")
            places[table_name] = path, name
    return places


def _first_name(family: Family, name: str, specs: Mapping[str, Any]) -> str:
    """The first name of a tied tensor: one that the files have, or the last one of a chain of names."""
    first = family.TIED[name]
    while first not in specs and first in family.TIED:
        first = family.TIED[first]
    return first


def _canonical(name: str, family: Family, prefixed: bool, expected: Mapping[str, Any]) -> str:
    """A tensor's name as in the tables: a dot stands for the prefix, and norms have weight and bias."""
    for old, new in _OLD_NAMES.items():
        name = name.removesuffix(old) + new if name.endswith(old) else name
    if family.PREFIX and name.startswith(family.PREFIX):
        return f".{name.removeprefix(family.PREFIX)}"
    return f".{name}" if not prefixed and family.PREFIX and name not in expected and name not in family.TIED else name


def _unused(family: Family, expected: Mapping[str, Any], specs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Tensors that are not read, and what they are; "" for what is computed."""
    for name in specs:
        if name in expected:
            continue
        if re.fullmatch(family.COMPUTED, name):
            yield name, ""
        elif name not in family.TIED:
            yield from ((name, part) for pattern, part in family.DROPPED.items() if re.fullmatch(pattern, name))


def _check(folder: Path, expected: Mapping[str, tuple[int, ...]], specs: Mapping[str, TensorSpec]) -> None:
    """RunFault, listing the first five faults, unless the tensors are exactly the expected ones."""
    faults = [f"{name.lstrip('.')} is missing" for name in expected if name not in specs]
    faults += [f"{name.lstrip('.')[:80]} is not known" for name in specs if name not in expected]
    for name, spec in specs.items():
        if name in expected and (spec.shape != expected[name] or spec.dtype not in _FLOATS):
            faults.append(f"{name.lstrip('.')} is {str(spec)[:80]}, not {list(expected[name])} floating-point numbers")
    if faults:
        more = f" (and {len(faults) - 5} more)" if len(faults) > 5 else ""
        raise RunFault.located(str(folder), f"its tensors are not those of its {CONFIG}: {', '.join(faults[:5])}{more}")


def open_foreign(
    folder: Path,
    tokenizer: Path | None = None,
    deltas: Mapping[str, Tensor] = MappingProxyType({}),
    without_effect: frozenset[str] = frozenset(),
) -> ForeignModel:
    """The model of a Hugging Face folder. tokenizer: file or folder of its tokenizer, by default the folder.

    deltas: what is added to its tensors, by their names in the files. without_effect: keys of config.json that change
    no output, beside those that are known here.

    RunFault if minitf has no such model or a file is damaged, DataFault if the tokenizer cannot be used.
    """
    if (folder / manifest.NAME).exists():
        raise RunFault.located(str(folder), "a run of minitf", hint="all commands and model.init_from take it as it is")
    config = read_config(folder)
    config.without_effect = without_effect
    family = family_of(config)
    name_base_model(folder, config, family)
    head, sections = family.head(config), family.recipe(config, folder)
    vectors, more = sentence_sections(folder, sections["train"]["context"])
    sections |= vectors
    sections["tokenizer"] |= {} if tokenizer is None else {"path": str(tokenizer), "source": None}
    try:
        recipe = Recipe.model_validate(sections)
    except ValidationError as error:
        raise no_such_model(error, config.where) from error
    sides = [side for side in (recipe.tokenizer, recipe.tokenizer.source) if side is not None]
    loaded = [_tokenizer(side, recipe, config) for side in sides]
    target, source = loaded[0], loaded[-1]
    labels = _labels(config, head, recipe)
    if "text_end" in head.pools and config.has("pad_token_id") and config.get("pad_token_id") != target.vocabulary.pad:
        must = f"the last token of a text is found by it, so it must be that of the tokenizer, {target.vocabulary.pad}"
        config.refuse("pad_token_id", must)
    config.check()
    architecture = Architecture.of(recipe, target, source, labels)
    weights, notes = read_weights(config, folder, family, head, architecture.on_meta(), recipe, deltas)
    model = architecture.build()
    model.load_weights(weights)
    generate, of_generation = read_generation(folder, config, recipe)
    recipe = recipe.model_copy(update={"generate": generate})
    unread = f"{config.where}: not read: {_listed(config.unread)}" if config.unread else None
    notes = [*dict.fromkeys(note for tokenizer in loaded for note in tokenizer.notes), *notes, *more, *of_generation]
    notes += filter(None, [chat_note(folder, config), unread])
    head = head.with_pool_of(recipe.objective)
    return ForeignModel(family, head, recipe, model.eval(), target, source, labels, notes)


def _listed(keys: Sequence[str]) -> str:
    more = len(keys) - MOST_FAULTS
    return ", ".join([key[:80] for key in keys[:MOST_FAULTS]] + ([f"{more} more"] if more > 0 else []))


def _tokenizer(settings: SingleTokenizer, recipe: Recipe, config: Config) -> Tokenizer:
    """A tokenizer of the folder, with the ids that the model has; that of a decoder says what stands before a text."""
    path, size = Path(str(settings.path)), config.integer("vocab_size")
    tokenizer = Tokenizer.load(path, Roles.of(settings, keeps_template=True)).with_size(size)
    if recipe.model.SOURCE or not recipe.model.causal or tokenizer.vocabulary.template is not None:
        return tokenizer
    name = begin_token(path, config)
    return tokenizer.with_beginning(name if name in tokenizer.special_tokens else None)


def _labels(config: Config, head: Head, recipe: Recipe) -> Labels | None:
    """The labels of a task, by id2label; None of objectives without labels."""
    if head.objective is None or "tokens" in recipe.objective.PREDICTS or recipe.objective.dataset().STREAM:
        return recipe.objective.dataset().fit_labels(())
    n, names = config.n_labels, config.mapping("id2label")
    if head.numbers:
        config.only("problem_type", "regression")
        if n != 1:
            config.refuse("id2label", f"it has {n} numbers, and minitf predicts one of each text")
        return Labels()
    config.only("problem_type", "single_label_classification", why=": each text or token has one label")
    listed = [str(names.get(str(i), f"LABEL_{i}")) for i in range(n)]
    if len(set(listed)) < n:
        config.refuse("id2label", "the names of labels must be different")
    return Labels(tuple(listed), (0,) * n)
