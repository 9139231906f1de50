"""What a trained model reads around a text, for every command: generate, predict, evaluate --pairs, inspect, export."""

from typing import NamedTuple, Protocol

from mini_tf.data.tokenization.prompts import PromptTokenizer
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.prompt_ids import Affixes, affixes
from mini_tf.recipe.kind_settings.pipelines import Framing
from mini_tf.recipe.recipe import Recipe
from mini_tf.system.errors import RunFault


class Framed(Protocol):
    """A model with its recipe and tokenizers; of a run in training or of an opened one."""

    @property
    def recipe(self) -> Recipe: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def source_tokenizer(self) -> Tokenizer: ...


class TokenizersOfRun(NamedTuple):
    """A recipe and its tokenizers, without the model."""

    recipe: Recipe
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer


def text_affixes(model: Framed) -> Affixes:
    """The special tokens around a text that stands alone, of the source if there is one."""
    recipe = model.recipe
    pipeline, objective = recipe.objective.pipeline(), recipe.objective
    framing: Framing = "example" if pipeline is None else pipeline.FRAMING
    tokenizer = model.source_tokenizer if recipe.model.SOURCE else model.tokenizer
    around = affixes(tokenizer, framing, not recipe.data.split.tail)
    # What follows the pooled token changes nothing in a decoder.
    ends_there = objective.pooling == "text_end" and recipe.model.causal
    return Affixes(around.before, []) if ends_there else around


def check_template(model: Framed, where: str) -> None:
    """RunFault if an imported tokenizer puts tokens around a text that a row of examples has no room for."""
    pipeline, causal = model.recipe.objective.pipeline(), model.recipe.model.causal and not model.recipe.model.SOURCE
    tokenizer = model.source_tokenizer if model.recipe.model.SOURCE else model.tokenizer
    template, separator = tokenizer.vocabulary.template, tokenizer.vocabulary.separator
    closing = () if separator is None else (separator,)
    if template is None or pipeline is None or pipeline.FRAMING not in ("example", "source"):
        return
    if len(template.before) > 1 or (template.behind != closing and not causal):
        names = {id: name for name, id in tokenizer.special_tokens.items()}
        shown = (" ".join(names.get(id, str(id)) for id in ids) or "nothing" for ids in (*template, closing))
        before, behind, end = shown
        message = f"the tokenizer puts {before} before a text and {behind} behind it"
        fault = f"{message}; of this architecture minitf reads one token before it at most, and {end} behind it"
        raise RunFault.located(where, fault)


def prompt_tokenizer(model: Framed) -> Tokenizer:
    """The tokenizer of prompts, of the source if there is one.

    [MASK] is a mask to an encoder, and to a model that fills masks with text; to others it is plain text.
    """
    recipe, tokenizer = model.recipe, model.source_tokenizer if model.recipe.model.SOURCE else model.tokenizer
    pipeline, vocabulary = recipe.objective.pipeline(), tokenizer.vocabulary
    is_encoder = not (recipe.model.SOURCE or recipe.model.causal)
    reads_masks = is_encoder or (pipeline is not None and pipeline.READS_MASKS)
    if not reads_masks or vocabulary.mask is None:
        return tokenizer
    sentinels = vocabulary.sentinels[: recipe.objective.TOKENS.count("sentinel")]
    return PromptTokenizer(tokenizer, sentinels or [vocabulary.mask])
