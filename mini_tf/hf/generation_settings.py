"""The settings of text generation, both ways: the section `generate` of a recipe, and generation_config.json.

Processors of logits have the same order. transformers' repetition penalty counts special tokens, too, and its length
penalty is length^p, ours ((5 + length) / 6)^p: the exponent is kept. Stop strings are not written: its `generate` would
refuse every call without a tokenizer. Source: transformers' GenerationConfig.
"""

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mini_tf.hf.config_json import Config, shown
from mini_tf.hf.tokenizer_config import FORCED_BOS, GENERATION, json_values
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import Generate
from mini_tf.system.strict_json import show_json
from mini_tf.trained.opening import LoadedModel

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
    given = {**config.values, **json_values(folder / GENERATION)}
    given = {key: value for key, value in given.items() if value is not None}
    names, samples = {theirs: ours for ours, theirs in _names(recipe).items()}, given.get("do_sample")
    known = {FORCED_BOS} if recipe.model.SOURCE else set()
    if names and not recipe.model.SOURCE and isinstance(samples, bool):
        known |= {"do_sample"}
        given |= {"temperature": given.get("temperature", 1.0) if samples else 0.0}
    elif not recipe.model.SOURCE:  # without do_sample they have no effect there
        names = {theirs: ours for theirs, ours in names.items() if theirs not in SAMPLING}
    read: dict[str, Any] = {}
    for theirs, ours in names.items():
        if theirs in given:
            try:
                Generate.model_validate(read | {ours: given[theirs]})
            except ValidationError:
                continue
            read, known = read | {ours: given[theirs]}, known | {theirs}
    left_out = {
        key: given[key]
        for key, defaults in DEFAULTS.items()
        if key in given and key not in known and given[key] not in defaults
    }
    changed = {key: value for key, value in read.items() if value != getattr(Generate(), key)}
    notes = [
        f"{what}settings of generation, {', '.join(f'{key} {shown(value)}' for key, value in values.items())}"
        for what, values in (("read: ", changed), ("left out: ", left_out))
        if values
    ]
    return Generate.model_validate(read), notes
