"""Synthetic rows for objectives, by dataset: eight rows, the last four with padding at the end."""

from dataclasses import replace

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.vocabulary import Vocabulary

PAD, SEPARATOR, N_ROWS = 0, 2, 8
PLAIN_END = 40
FIRST_PLAIN = 4
"""Ids from here on are not special tokens."""
TEXTS = (
    *(" " for _ in range(FIRST_PLAIN)),
    *(f" w{id}" if id % 3 else f"{id}" for id in range(FIRST_PLAIN, PLAIN_END)),
)
VOCABULARY = Vocabulary(PLAIN_END, pad=PAD, unk=1, separator=SEPARATOR, mask=3, texts=TEXTS)
_CLASSES = Labels(("O", "B-x", "I-x"), (50, 30, 20))


def labels_for(dataset: str) -> Labels | None:
    """Labels of the rows of this dataset; None if it has none."""
    named = dict.fromkeys(("classes", "tags", "label_sets"), _CLASSES)
    numbers = Labels(mean=3.0, scale=0.5)
    return {**named, "numbers": numbers, "chats": Labels(), "text_pairs": Labels()}.get(dataset)


def vocabulary_for(n_sentinels: int) -> Vocabulary:
    """The vocabulary of the rows, with this number of sentinels behind it."""
    sentinels = range(PLAIN_END, PLAIN_END + n_sentinels)
    return replace(
        VOCABULARY,
        size=PLAIN_END + n_sentinels,
        others=frozenset(sentinels),
        sentinels=tuple(sentinels),
        texts=(*TEXTS, *(" " for _ in sentinels)),
    )


def rows_for(dataset: str, lookahead: int, words: bool, length: int = 8, sentences: bool = False) -> Rows:
    """Rows of `length` + `lookahead` tokens; for pairs and labeled texts of at most `length`. words, sentences: with
    their starts.

    Each row begins with a different token, so that its other tokens can be memorized. Raises ValueError for an unknown
    dataset.
    """
    draw = np.random.default_rng(0)
    keys = draw.integers(0, 2**63, N_ROWS).astype(np.uint64)
    if dataset == "text":
        ids = _plain(draw, length + lookahead)
        starts = draw.random(ids.shape) < 0.5
        segments = _segments(ids.shape[1], 2 + lookahead)
        return Rows(ids, keys, segments, starts if words else None, sentence_starts=starts if sentences else None)
    if dataset == "pairs":
        source, target = (_closed(_plain(draw, length - 2), opened) for opened in (False, True))
        return Rows(target, keys, _segments(target.shape[1]), None, Rows(source, keys, _segments(source.shape[1])))
    if labels_for(dataset) is None:
        raise ValueError(f"no rows are known of the dataset {dataset!r}")
    if dataset == "text_pairs":
        return _groups(draw, keys)
    ids = _closed(_plain(draw, length - 2), opened=True)
    segments = _segments(ids.shape[1])
    labels, row_labels = _labels(dataset, ids, draw)
    if labels is not None:
        labels[segments == 0] = np.nan
    return Rows(ids, keys, segments, labels=labels, row_labels=row_labels, examples=np.arange(N_ROWS))


def _plain(draw: np.random.Generator, length: int) -> np.ndarray:
    ids = draw.integers(FIRST_PLAIN, PLAIN_END, (N_ROWS, length))
    ids[:, 0] = FIRST_PLAIN + draw.permutation(PLAIN_END - FIRST_PLAIN)[:N_ROWS]
    return ids


def _closed(ids: np.ndarray, opened: bool) -> np.ndarray:
    """The texts with separators; those of the last rows are two tokens shorter and padded on the right."""
    closing = np.full((N_ROWS, 1), SEPARATOR)
    whole = np.concatenate([closing, ids, closing] if opened else [ids, closing], axis=1)
    whole[N_ROWS // 2 :, -3], whole[N_ROWS // 2 :, -2:] = SEPARATOR, PAD
    return whole


def _groups(draw: np.random.Generator, keys: np.ndarray) -> Rows:
    """Rows of a pair and a triplet, whose texts have two plain tokens each; the last ones have two pairs."""
    text = np.insert(_plain(draw, 10).reshape(N_ROWS, 5, 2), [0, 2], SEPARATOR, axis=2)  # between separators
    ids, segments = text.reshape(N_ROWS, 20), np.repeat(np.arange(1, 6), 4)[None].repeat(N_ROWS, 0)
    labels = np.full(ids.shape, np.nan, np.float32)
    labels[:, ::4] = [0, 1, 0, 1, 2]
    for part, padding in ((ids, PAD), (segments, 0), (labels, np.nan)):
        part[N_ROWS // 2 :, -4:] = padding
    return Rows(ids, keys, segments, labels=labels)


def _segments(length: int, n_pads: int = 2) -> np.ndarray:
    segments = np.ones((N_ROWS, length), np.int64)
    segments[N_ROWS // 2 :, -n_pads:] = 0
    return segments


def _labels(dataset: str, ids: np.ndarray, draw: np.random.Generator) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Labels of tokens, and of whole rows."""
    if dataset in ("classes", "numbers"):
        row_labels = draw.normal(size=N_ROWS) if dataset == "numbers" else np.arange(N_ROWS) % len(_CLASSES.names)
        return None, row_labels[:, None].astype(np.float32)
    if dataset == "label_sets":
        return None, draw.integers(0, 2, (N_ROWS, len(_CLASSES.names))).astype(np.float32)
    labels = np.full(ids.shape, np.nan, np.float32)
    if dataset == "tags":
        labels[:, 1:-3] = draw.integers(0, len(_CLASSES.names), labels[:, 1:-3].shape)
    else:
        labels[:, 3:] = 1
    return labels, None
