"""Documents with gold labels of words, and attention and hidden states of their words, whose tokens are merged.

The documents are a corpus such as `world` or a table with the same columns. Of a truncated document the last word is
left out, since it may have lost tokens. Every figure stands beside that of the same model with random weights.
Source: Clark et al. 2019, arXiv:1906.04341, section 4.1: weights to the tokens of a word are summed, weights from them
averaged.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from mini_tf.data.formats.columns import Columns, labels_of, words_of
from mini_tf.data.formats.data_files import find_files
from mini_tf.data.formats.tables import Row, rows_of
from mini_tf.inspection._capture import Capture
from mini_tf.inspection._heads import HeadIndex
from mini_tf.inspection._texts import (
    TokenizedText,
    aggregate_by_words,
    capture_texts,
    membership,
    tokenize_texts,
    word_numbers,
)
from mini_tf.nn.model_stack import SequenceKind
from mini_tf.system.errors import DataFault, UsageFault
from mini_tf.trained.architecture import Architecture
from mini_tf.trained.evaluating import other_data
from mini_tf.trained.opening import Trained

HINT = "--data world, or a table with these columns"


@dataclass(frozen=True)
class LabelledDocument:
    """labels: by column, one for each word or, of a listed column, any number; a column may be missing."""

    words: list[str]
    labels: dict[str, list[str]]
    where: str

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def indices(self, column: str) -> list[int]:
        """Labels that are indices of words, -1 for none. Raises DataFault for others."""
        indices = []
        for number, label in enumerate(self.labels[column], 1):
            at = int(label) if re.fullmatch(r"-?[0-9]{1,7}", label) else -2
            if not -1 <= at < len(self.words):
                must = f"must be the index of a word, 0 to {len(self.words) - 1}, or -1"
                message = f"{self.where}: {column!r}, word {number}: {label!r} {must}"
                raise DataFault(message, where=(self.where,))
            indices.append(at)
        return indices


def labelled_documents(
    trained: Trained,
    data: str | None,
    needed: Sequence[str],
    optional: Sequence[str],
    limit: int,
    listed: Sequence[str] = (),
) -> list[LabelledDocument]:
    """The first `limit` documents. data: in the syntax of data.train; None: the run's data.val, else its data.train.

    listed: columns of indices of words, as many as there are, one of which is needed. Raises DataFault if a needed
    column is missing, or the number of labels differs from that of the words.
    """
    settings = trained.recipe.data
    if data is None:
        value, key = settings.val or settings.train, "data.val" if settings.val else "data.train"
    else:
        value, key = other_data(trained, data).train, "--data"
    columns = [*needed, *optional, *listed]
    documents: list[LabelledDocument] = []
    for file in find_files(value, key):
        if file.format == "txt":
            lacking = f"columns {', '.join(needed)}" if needed else f"column {' or '.join(listed)}"
            raise DataFault(f"{key}: {file.name} has no {lacking}", hint=HINT, where=(file.name,))
        rows = rows_of(file, Columns(("text", *needed), settings.header, settings.errors, (*optional, *listed)))
        try:
            documents += [_document(row, columns, listed) for row in islice(rows, limit - len(documents))]
        except DataFault as fault:
            if fault.hint is not None and "columns" in fault.hint:  # columns have no other names here
                fault.hint = HINT
            raise
    return documents


def _document(row: Row, columns: Sequence[str], listed: Sequence[str]) -> LabelledDocument:
    words = words_of(row.cells[0], row.where, "text")
    labels = {}
    for column, cell in zip(columns, [*row.cells[1:], *row.optional], strict=True):
        if cell is None and column not in columns[: len(row.cells) - 1]:
            continue
        labels[column] = labels_of(cell, row.where, column)
        if column not in listed and len(labels[column]) != len(words):
            message = f"{len(words)} words, but {len(labels[column])} labels in {column!r}; the numbers must be equal"
            raise DataFault(f"{row.where}: {message}", where=(row.where,))
    if listed and not labels.keys() & {*listed}:
        raise DataFault(f"{row.where} has no column {' or '.join(listed)}", hint=HINT, where=(row.where,))
    return LabelledDocument(words, labels, row.where)


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
    for attention in captured.attention:
        if (attention.queries, attention.keys) != (rows, rows):
            continue
        weights, visible = aggregate_by_words(
            attention.weights[0, :, :, attention.lead :].double().cpu(), attention.mask[0].cpu(), numbers
        )
        first = int(min(numbers) == 0)  # separators
        whole = slice(first, len(visible) - int(tokenized.input.n_cut > 0))
        maps.append(torch.where(visible, weights.nan_to_num(0.0), -1.0)[:, whole, whole])
        heads += [HeadIndex(attention.kind, attention.layer, head) for head in range(len(weights))]
    if not maps:
        raise _lacks(trained, "self-attention between")
    return heads, torch.cat(maps)


def word_vectors(trained: Trained, text: str) -> Float[Tensor, "layers W D"]:
    """The mean over the tokens of each whole word within the context; layer 0 is the embedding.

    Raises UsageFault if the model has no hidden states of tokens.
    """
    captured, tokenized, rows = _captured(trained, text)
    hidden = next((hidden_states for hidden_states in captured.hidden if hidden_states.rows == rows), None)
    if hidden is None:
        raise _lacks(trained, "hidden states of")
    numbers = word_numbers(tokenized.input)
    member = membership(numbers).double()
    layers = torch.cat(hidden.layers).double().cpu()  # (layers, L, D)
    means = member.T @ layers / member.sum(dim=0)[:, None]  # (W,L) @ (layers,L,D) -> (layers,W,D)
    return means[:, int(min(numbers) == 0) : means.shape[1] - int(tokenized.input.n_cut > 0)]


def _lacks(trained: Trained, lacking: str) -> UsageFault:
    return UsageFault(f"{trained.folder.name} has no {lacking} the tokens of a text ({trained.recipe.model.kind})")


def _captured(trained: Trained, text: str) -> tuple[Capture, TokenizedText, SequenceKind]:
    """Of the source of an encoder-decoder, with an empty target."""
    rows: SequenceKind = "source" if trained.model.needs_source else "input"
    texts = tokenize_texts(trained, text, "" if trained.model.needs_source else None)
    return capture_texts(trained, texts), texts.of(rows), rows
