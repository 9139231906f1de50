"""From the text of a prompt to the text that a decoder continues it with."""

import torch

from mini_tf.generation.sampling import continuations
from mini_tf.nn.model import Model
from mini_tf.recipe.sections import Recipe
from mini_tf.text.tokenizer import Tokenizer


def prompt_ids(tokenizer: Tokenizer, prompt: str, separated: bool) -> list[int]:
    """The ids that the model reads first: a separator, where it knows one, and the prompt; at least one token."""
    vocabulary = tokenizer.vocabulary
    opening = [vocabulary.separator] if separated and vocabulary.separator is not None else []
    ids = [*opening, *map(int, tokenizer.encode(prompt))]
    return ids or [int(i) for i in tokenizer.encode("\n")[:1]] or [0]


def write(model: Model, tokenizer: Tokenizer, recipe: Recipe, seed: int, over_borders: bool = False) -> str:
    """The continuation of `recipe.generate.prompt`, without the prompt, until the document ends.

    `over_borders`: go on with further documents, a blank line between, until all tokens are written.
    """
    wish, vocabulary, separated = recipe.generate, tokenizer.vocabulary, not recipe.data.split.tail
    device = next(model.parameters()).device
    prompt = torch.tensor([prompt_ids(tokenizer, wish.prompt, separated)], device=device)
    ends = {vocabulary.separator} if separated else set()
    banned = tuple(sorted(vocabulary.special_ids - ends))
    generator = torch.Generator(device).manual_seed(seed)
    documents: list[list[int]] = [[]]
    for ids in continuations(model, prompt, wish.max_new_tokens, wish.temperature, wish.top_k, generator, banned):
        if (found := int(ids[0])) not in ends:
            documents[-1].append(found)
        elif over_borders:
            documents.append([])
        else:
            break
    return "\n\n".join(tokenizer.decode(document) for document in documents)
