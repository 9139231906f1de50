"""The rows of a corpus of any size, as input of a model, and excerpts of them.

Each document of a text is read by itself, from its opening separator on, in rows of the context.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Any, NamedTuple

import torch
from rich.cells import cell_len
from torch import Tensor

from mini_tf.data.batch import Rows
from mini_tf.data.datasets import Dataset
from mini_tf.data.raw import Files
from mini_tf.data.store import Tokenizers, in_memory
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.drawing.labels import label, visible_characters
from mini_tf.generation.likelihoods import BATCH_TOKENS
from mini_tf.nn.layers.head import is_token
from mini_tf.nn.model_stack import ModelStack
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.trained.evaluating import other_data
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import pack

CHUNK = 1 << 20
"""Characters that are encoded at once."""
UNKNOWN = -1
"""In place of a following token that is not known, or that the model does not predict."""


class RowBatch(NamedTuple):
    """inputs, source: of the model. tokens (B, L): those of the inspected stack, `inputs` or `source`.

    following (B, L): the token after each, which the model predicts there, or UNKNOWN. counted (B, L): tokens that are
    no padding, and have a following token if the model predicts it.
    """

    inputs: Tokens
    source: Tokens | None
    tokens: Tokens
    following: Tensor
    counted: Tensor


def corpus_rows(
    trained: Trained, corpus: str | None, model_stack: ModelStack, limit: int | None = None
) -> Iterator[RowBatch]:
    """All rows of a corpus in the syntax of data.train, by default the run's own data.train.

    model_stack: the inspected stack. limit: only the first documents. Raises DataFault if a file or a row is invalid.
    """
    data = trained.recipe.data if corpus is None else other_data(trained, corpus)
    dataset: Dataset = trained.recipe.objective.dataset()
    files = Files(dataset, data, data.train, "data.train" if corpus is None else "--corpus", trained.labels)
    used = Tokenizers(trained.source_tokenizer, trained.tokenizer)
    recipe = trained.recipe.model_copy(update={"data": data.model_copy(update={"pack": "none"})})
    for examples in _chunks(islice(files.examples().read(), limit), dataset):
        store = in_memory(dataset.encode(examples, used, trained.labels), used, dataset.separated(data))
        packing = pack(recipe, store, trained.tokenizer, trained.objective)
        for rows in packing.eval_rows(max(1, BATCH_TOKENS // packing.shape.context)):
            yield _batch(trained, rows, model_stack)


def _chunks(examples: Iterator[Any], dataset: Dataset) -> Iterator[list[Any]]:
    """Examples of at least CHUNK characters, except the last ones."""
    chunk, size = [], 0
    for example in examples:
        chunk.append(example)
        size += dataset.size(example)
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _batch(trained: Trained, rows: Rows, model_stack: ModelStack) -> RowBatch:
    source = None
    if trained.model.needs_source:  # the objective may make the source from the text
        batch = trained.objective.prepare(rows)
        inputs, source = batch.inputs, batch.source
        following = torch.full(inputs.ids.shape, UNKNOWN)
        at = slice(None) if batch.target_positions is None else batch.target_positions
        following.view(-1)[at] = batch.labels
    else:  # as it is, without the masks of a training batch
        ids, ahead = torch.from_numpy(rows.ids), trained.objective.lookahead
        real = torch.ones_like(ids, dtype=torch.bool) if rows.segments is None else torch.from_numpy(rows.segments) != 0
        length = ids.shape[1] - ahead
        positions = None if rows.segments is None else TokenPositions.packed(real[:, :length].long())
        inputs, following = Tokens(ids[:, :length], positions), torch.full((len(ids), length), UNKNOWN)
        if ahead:
            following = torch.where(real[:, 1 : length + 1], ids[:, 1 : length + 1], following)
    tokens = source if model_stack.rows == "source" and source is not None else inputs
    counted = is_token(tokens)
    if predicts_following(trained, model_stack):
        return RowBatch(inputs, source, tokens, following, counted & (following != UNKNOWN))
    return RowBatch(inputs, source, tokens, torch.full(tokens.ids.shape, UNKNOWN), counted)


def predicts_following(trained: Trained, model_stack: ModelStack) -> bool:
    """Whether the model predicts the next token from this stack's hidden states."""
    return (
        model_stack.name == trained.model.stacks()[0].name
        and model_stack.stack.causal
        and "tokens" in trained.recipe.objective.PREDICTS
    )


SHOWN = 24
"""Tokens before the trigger that are kept."""
WIDTH = 48
"""Cells of an excerpt in a terminal."""


class Excerpt(NamedTuple):
    """The end of a prefix: `before` is the text before its last token, `trigger` that token, `next` the one after it.

    length: tokens of the whole prefix. A separator that opens it is left out.
    """

    before: str
    trigger: str
    next: str | None
    length: int

    def shown(self, width: int = WIDTH) -> str:
        """The trigger in brackets, and as much of the text before it as fits."""
        trigger = f"[{label(self.trigger, width // 2)}]"
        room, kept = width - cell_len(trigger), list[str]()
        characters = visible_characters(self.before)
        for character in reversed(characters):
            if (room := room - cell_len(character)) < 1:  # of the ellipsis
                break
            kept.append(character)
        cut = len(kept) < len(characters) or self.length - 1 > SHOWN
        return f"{'…' * cut}{''.join(reversed(kept))}{trigger}"


def excerpt(tokenizer: Tokenizer, ids: Sequence[int], following: int | None) -> Excerpt:
    """The excerpt of a prefix `ids` and the token after it, if there is one."""
    start = int(len(ids) > 1 and ids[0] == tokenizer.vocabulary.separator)
    before = ""
    for is_special, group in groupby(ids[start:-1][-SHOWN:], key=lambda id: id in tokenizer.vocabulary.special_ids):
        part = list(group)
        before += "".join(tokenizer.pieces(part)) if is_special else tokenizer.decode(part)
    [trigger] = tokenizer.pieces(ids[-1:])
    return Excerpt(before, trigger, None if following is None else tokenizer.pieces([following])[0], len(ids) - start)
