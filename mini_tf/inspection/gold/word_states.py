"""Attention and hidden states of the words of a document, whose tokens are merged.

Of a truncated document the last word is left out, since it may have lost tokens.

Source: Clark et al. 2019, arXiv:1906.04341, section 4.1: weights to the tokens of a word are summed, weights from them
averaged.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from mini_tf.inspection.capture import Capture
from mini_tf.inspection.head_selection import HeadIndex
from mini_tf.inspection.tokenized_texts import TokenizedText, capture_texts, tokenize_texts
from mini_tf.inspection.words import aggregate_by_words, membership, word_numbers
from mini_tf.nn.model_stack import SequenceKind
from mini_tf.system.errors import UsageFault
from mini_tf.trained.architecture import Architecture
from mini_tf.trained.opening import Trained


def with_random_weights(trained: Trained) -> Trained:
    """The same model before training, on the same device."""
    architecture = Architecture.of(
        trained.recipe, trained.tokenizer, trained.source_tokenizer, trained.labels, trained.model.context
    )
    with torch.random.fork_rng(devices=[]):
        model = architecture.initialize(0)
    return replace(trained, model=model.to(trained.setup.device).eval())


def word_attention(trained: Trained, text: str) -> tuple[list[HeadIndex], Float[Tensor, "heads W W"]]:
    """Self-attention between the words, for every head; -1 where the mask forbids it.

    W: the number of whole words within the context. Raises UsageFault if tokens do not attend to tokens.
    """
    captured, tokenized, rows = _captured(trained, text)
    numbers, heads, maps = word_numbers(tokenized.input), [], []
    for one in captured.attention:
        if (one.queries, one.keys) != (rows, rows):
            continue
        weights, visible = aggregate_by_words(
            one.weights[0, :, :, one.lead :].double().cpu(), one.mask[0].cpu(), numbers
        )
        first = int(min(numbers) == 0)  # separators
        whole = slice(first, len(visible) - int(tokenized.input.n_cut > 0))
        maps.append(torch.where(visible, weights.nan_to_num(0.0), -1.0)[:, whole, whole])
        heads += [HeadIndex(one.kind, one.layer, head) for head in range(len(weights))]
    if not maps:
        raise UsageFault(
            f"{trained.folder.name} has no self-attention between the tokens of a text ({trained.recipe.model.kind})"
        )
    return heads, torch.cat(maps)


def word_vectors(trained: Trained, text: str) -> Float[Tensor, "layers W D"]:
    """The mean over the tokens of each whole word within the context; layer 0 is the embedding.

    Raises UsageFault if the model has no hidden states of tokens.
    """
    captured, tokenized, rows = _captured(trained, text)
    hidden = next((one for one in captured.hidden if one.rows == rows), None)
    if hidden is None:
        raise UsageFault(
            f"{trained.folder.name} has no hidden states of the tokens of a text ({trained.recipe.model.kind})"
        )
    numbers = word_numbers(tokenized.input)
    member = membership(numbers).double()
    layers = torch.cat(hidden.layers).double().cpu()  # (layers, L, D)
    means = member.T @ layers / member.sum(dim=0)[:, None]  # (W,L) @ (layers,L,D) -> (layers,W,D)
    return means[:, int(min(numbers) == 0) : means.shape[1] - int(tokenized.input.n_cut > 0)]


def _captured(trained: Trained, text: str) -> tuple[Capture, TokenizedText, SequenceKind]:
    """Of the source of an encoder-decoder, with an empty target."""
    rows: SequenceKind = "source" if trained.model.needs_source else "own"
    texts = tokenize_texts(trained, text, "" if trained.model.needs_source else None)
    return capture_texts(trained, texts), texts.of(rows), rows
