"""The family of a config.json, and the family that can hold a model: by writing its settings and reading them back."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.hf.config_json import shown
from mini_tf.hf.families import GATED, Config, Facts, Family, Head
from mini_tf.hf.families._architectures import shortest_period
from mini_tf.nn.model import ModelSettings
from mini_tf.recipe.kind_settings import inference_settings
from mini_tf.recipe.kinds import kinds_of, listing, settings_of, usable_settings
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.values import show
from mini_tf.system.errors import RunFault, suggest

CONFIG = "config.json"
_OF_HEAD = ("head", "tied", "output_bias", "head_activation")
"""Settings of the output layer over the vocabulary, which the head of a task replaces."""


class Written(NamedTuple):
    """A family, one of its heads, and the keys of config.json for a model.

    read: the settings that these files are read back as: those of the model, or of an equivalent one.
    """

    family: Family
    head: Head
    config: dict[str, Any]
    read: ModelSettings


def family_of(config: Config) -> Family:
    """The family of a config.json. RunFault if there is none."""
    word = str(config.get("model_type") or "").replace("-", "_")
    found = usable_settings("hf.families", word)
    if found is None:
        words = listing("hf.families")
        what = f"model_type is {show(config.get('model_type'))}; minitf reads {', '.join(words)}"
        way = "code of a model is never run; of an export --to code take the run" if config.has("auto_map") else None
        raise RunFault.located(config.where, what, hint=suggest(word, words) or way)
    family = found()
    assert isinstance(family, Family)
    return family


def choose(
    recipe: Recipe, facts: Facts, wanted: str | None = None, reasons: Sequence[str] = (), exact: bool = False
) -> Written:
    """The family and the architecture that a trained model is written as. RunFault with the reasons if none has it.

    wanted: the only family to try. reasons: why no family has it. exact: its matrices must be stored as they are.
    """
    model = recipe.model
    assert isinstance(model, ModelSettings)
    words = [wanted] if wanted is not None else list(kinds_of("hf.families"))
    families = [settings_of("hf.families", word)() for word in words]
    fitting = [one for one in families if isinstance(one, Family) and model.kind == one.MODEL]
    refused: dict[str, _Refusal] = {}
    for family in fitting:
        for head in (head for head in family.HEADS if head.fits(recipe.objective)):
            refusal = _Refusal([*reasons], [])
            for key, (own, needed) in _other_task(head, recipe).items():
                shown_own = shown(own) if isinstance(own, dict) else own
                refusal.reasons.append(f"objective.{key} is {shown_own}, which {family.kind} has {needed}")
                refusal.ways.append(f"objective.{key}={'null' if needed is None else str(needed).lower()}")
            config = family.config(model, facts)
            written = Config(config, f"{family.kind}'s {CONFIG}", family.kind)
            read: Any = settings_of("models", model.kind).model_validate(family.settings(written, head))
            refusal.reasons.extend([*written.faults, *_differences(family, head, recipe, read, facts, exact)])
            if not refusal.reasons:
                config |= _bookkeeping(family, head, facts, recipe)
                return Written(family, head.with_pool_of(recipe.objective), config, read)
            refused.setdefault(family.kind, refusal)
    if not refused:
        none = f"{wanted} has no" if wanted else "no family of Hugging Face models has a"
        what = f"model of the architecture {model.kind} with the objective {recipe.objective.kind}"
        raise RunFault(f"{none} {what}", hint=WAY)
    raise _refusal(refused)


class _Refusal(NamedTuple):
    """Why a family has no such model. ways: overrides of a training with which its objective would fit."""

    reasons: list[str]
    ways: list[str]


def _refusal(refused: Mapping[str, _Refusal]) -> RunFault:
    def distance(word: str) -> tuple[bool, int]:
        """A family that cannot even write the settings is farther than one that writes others."""
        return any(CONFIG in reason for reason in refused[word].reasons), len(refused[word].reasons)

    nearest = min(refused, key=distance)
    reasons, ways = refused[nearest]
    hint = f"trained with {' '.join(ways)} its objective fits; {WAY}" if ways else WAY
    if len(refused) == 1:
        return RunFault(f"this model cannot be written as {nearest}: {'; '.join(reasons)}", hint=hint)
    what = f"this model cannot be written as {', '.join(refused)}; nearest is {nearest}, but {'; '.join(reasons)}"
    faults = [f"{word}: {reason}" for word, refusal in refused.items() for reason in refusal.reasons]
    return RunFault(what, hint=hint, faults=[what, *faults])


WAY = "--to code writes it as a file of plain PyTorch, --to safetensors its tensors under their own names"


def _other_task(head: Head, recipe: Recipe) -> dict[str, tuple[Any, Any]]:
    """Settings of the objective that are others than those of the head: theirs and the one it has."""
    own = recipe.objective.model_dump(mode="json")
    needed = {**{key: (value,) for key, value in head.needs.items()}, **({"pool": head.pools} if head.pools else {})}
    return {key: (own.get(key), allowed[0]) for key, allowed in needed.items() if own.get(key) not in allowed}


def _differences(
    family: Family, head: Head, recipe: Recipe, read: ModelSettings, facts: Facts, exact: bool
) -> Iterator[str]:
    """Settings that are others after the model was written as this family and read back, and no weights can express."""
    model: Any = recipe.model
    replaced = not recipe.objective.HEAD if head.objective is None else not head.over_tokens
    free = _OF_HEAD if replaced else ()
    ours, theirs = (_plain(one, facts.context) for one in (model, read))
    other = [
        key
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key) and key not in free and not _is_equivalent(key, ours, theirs, exact)
    ]
    kinds = tuple(key.removesuffix("kind") for key in other if key.endswith(".kind"))
    for key in other:
        if key.endswith(".kind") or not key.startswith(kinds):  # another kind has other settings
            here, there = (_shown(values, key) for values in (ours, theirs))
            yield f"model.{key} is {here}, which {family.kind} has {there}"


def _is_equivalent(key: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], exact: bool) -> bool:
    """Whether a model with their settings, by dotted key, can compute the same as ours though `key` differs.

    How: `family_model`. exact: no matrix may change.
    """
    path, _, name = key.rpartition(".")
    before, after = ours.get(key), theirs.get(key)
    if name in ("bias", "norm_weight"):
        return bool(after and not before)
    if name == "qk_norm":
        return (before, after) == (True, "weight")
    if name == "scale" and {key} <= ours.keys() & theirs.keys():
        norm = theirs.get(f"{path}.qk_norm")
        return norm == "weight" or (not norm and not exact)
    return name == "activation" and before in GATED and GATED[before] == after and not exact


def _shown(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key, "not")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(model: ModelSettings, context: int) -> dict[str, Any]:
    """All settings that a trained model computes with, by dotted key, each as the number that it stands for."""
    values = inference_settings(model) | {"kind": model.kind}
    for path, stack in model.stacks().items():
        given = inference_settings(stack)
        dims = stack.attention_dims()
        sizes = {"d_k": dims.d_k, "d_v": dims.d_v, "n_kv_heads": dims.n_kv_heads, "d_ff": stack.hidden_dim}
        if path in values:
            own = {key: given[key] for key in values[path] if key in given}
            values[path] = own | {key: size for key, size in sizes.items() if key in own}
        else:
            values |= sizes
    values["d_embedding"] = values.get("d_embedding") or model.d_model
    return dict(_leaves(values, "", context))


def _leaves(value: Any, path: str, context: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):  # repeated over the layers
        value = shortest_period(value)
        value = value[0] if len(value) == 1 else dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, f"{path}.{key}" if path else key, context)
    else:
        yield path, context if path.endswith(".length") and value == "auto" else value


def _bookkeeping(family: Family, head: Head, facts: Facts, recipe: Recipe) -> dict[str, Any]:
    """What every config.json has: architecture, special tokens, labels."""
    config = token_ids(facts.vocabulary)
    if len(head.pools) > 1:
        pool = recipe.objective.model_dump()["pool"]
        config[family.POOL] = next(theirs for theirs, ours in family.POOLS.items() if ours == pool)
    if head.numbers:
        config["problem_type"] = "regression"
    model_type = family.MODEL_TYPE or family.kind
    named = {"architectures": [head.architecture], "model_type": model_type, "dtype": "float32"}
    return config | label_names(facts.labels) | named


def token_ids(vocabulary: Vocabulary) -> dict[str, Any]:
    """The special tokens of a config.json."""
    end = vocabulary.ends[0] if len(vocabulary.ends) == 1 else [*vocabulary.ends] or None
    ids = {"bos": vocabulary.bos_id, "eos": end, "pad": vocabulary.pad}
    ids |= {} if vocabulary.forced_bos is None else {"forced_bos": vocabulary.forced_bos}
    return {f"{name}_token_id": id for name, id in ids.items()}


def label_names(labels: Labels | None) -> dict[str, Any]:
    """The labels of a config.json."""
    if labels is None:
        return {}
    names: Sequence[str] = labels.names or ("LABEL_0",)
    return {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
