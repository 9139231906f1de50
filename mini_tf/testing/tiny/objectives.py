"""What an objective is tried with: eight rows of its dataset, the smallest model that fits, and comparisons."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.packing import Shape
from mini_tf.data.store import in_memory
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.layers.head import is_token
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.model import Model, ModelSettings
from mini_tf.objectives import LossSums, Objective, ObjectiveSettings
from mini_tf.pipelines import pipeline_of
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing.tiny.datasets import DatasetFixture, Row
from mini_tf.testing.tiny.mixers import set_dropout
from mini_tf.training.evaluation import MetricAccumulator

# Rows

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


# Models


@dataclass(frozen=True)
class TinyObjective:
    """An objective, its task on a model in float64 without dropout, and rows for it."""

    objective: Objective
    model: Model
    task: nn.Module
    rows: Rows
    labels: Labels | None
    model_settings: ModelSettings
    vocabulary: Vocabulary

    @property
    def metric_accumulator(self) -> MetricAccumulator | None:
        """The metric accumulator of the objective's pipeline."""
        recipe = SimpleNamespace(objective=self.objective.settings)
        return pipeline_of(SimpleNamespace(recipe=recipe, labels=self.labels, decision=None)).metric_accumulator()

    def sums(self, rows: Rows | None = None, training: bool = True) -> tuple[Batch, LossSums]:
        prepare = self.objective.prepare if training else self.objective.prepare_evaluation
        batch = prepare(self.rows if rows is None else rows)
        return batch, self.task.train(training)(batch, None)

    def loss(self, parts: Mapping[str, Tensor], counts: Mapping[str, int]) -> Tensor:
        """The loss as in training: the weighted sum of its parts, each a mean."""
        weights = self.objective.weights
        return torch.stack(
            [part * (weights.get(name, 1.0) / max(counts[name], 1)) for name, part in parts.items()]
        ).sum()

    @torch.no_grad()
    def predictions(self, rows: Rows, training: bool) -> tuple[Batch, Tensor | None]:
        """The batch, and the hidden states (T, D) from which a model of the task predicts its targets; None without."""
        all_hidden = list[Tensor]()

        def kept(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
            def call(hidden: Tensor, *more: Any, **named: Any) -> Tensor:
                all_hidden.append(hidden)
                return method(hidden, *more, **named)

            return call

        def keep_targets(model: nn.Module, inputs: object, output: ForwardOutput) -> None:
            at_targets.append(output.y.flatten(0, -2))

        at_targets = list[Tensor]()
        models = [module for module in self.task.modules() if isinstance(module, Model)]
        hooks = [model.register_forward_hook(keep_targets) for model in models]
        for model in models:
            model.logits, model.cross_entropy = kept(model.logits), kept(model.cross_entropy)  # type: ignore[method-assign]
        try:
            batch, _ = self.sums(rows, training)
        finally:
            for model in models:
                del model.logits, model.cross_entropy
            for hook in hooks:
                hook.remove()
        # A loss in several parts takes the hidden states of some of the targets at a time.
        all_hidden += at_targets
        fitting = (hidden for hidden in all_hidden if hidden.dim() == 2 and len(hidden) == len(batch.labels))
        return batch, next(fitting, None)

    def cut(self, size: int) -> list[Rows]:
        return [self.rows.slice(first, min(first + size, N_ROWS)) for first in range(0, N_ROWS, size)]


@dataclass(frozen=True)
class Given:
    """An objective with rows of its dataset (see `testing.datasets`): at least eight, of different lengths."""

    settings: ObjectiveSettings
    rows: Sequence[Row]

    def prepared(self, lookahead: int = 0) -> tuple[Rows, Labels | None, Vocabulary]:
        with DatasetFixture.temporary(self.settings.dataset(), self.rows) as fixture:
            store = in_memory(fixture.dataset.encode(fixture.examples, fixture.used, fixture.labels), fixture.used)
            packing, numbers = fixture.dataset.packing(store, Shape(64, lookahead, "none")), np.arange(N_ROWS)
            return packing.take(numbers, 0, numbers.astype(np.uint64)), fixture.labels, fixture.used.target.vocabulary


Tried = ObjectiveSettings | Given
"""An objective on synthetic rows, or on given rows."""


def tiny_objective(tried: Tried, d_model: int = 16, dropout: float = 0.0) -> TinyObjective:
    """The objective with a model; `dropout` is set in every dropout layer."""
    settings = tried.settings if isinstance(tried, Given) else tried
    if isinstance(tried, Given):
        rows, labels, vocabulary = tried.prepared()
        objective = settings.build(vocabulary, labels)
        rows = tried.prepared(objective.lookahead)[0] if objective.lookahead else rows
    else:
        labels, vocabulary = labels_for(settings.DATASET), vocabulary_for(settings.TOKENS.count("sentinel"))
        objective = settings.build(vocabulary, labels)
        rows = rows_for(
            settings.DATASET,
            objective.lookahead,
            objective.needs_word_starts,
            sentences=objective.needs_sentence_starts,
        )
    torch.manual_seed(0)
    models: list[Any] = [settings_of("models", word) for word in listing("models")]
    fitting = [kind for kind in models if settings.direction(kind)]
    seeing_most = next(
        (kind for kind in fitting if "bidirectional" in kind.DIRECTIONS), fitting[0]
    )  # so that every position can be predicted
    model_settings = seeing_most(d_model=d_model, n_layers=1, n_heads=2, init_std=0.3)
    model: Model = model_settings.build(vocabulary.size, max(16, rows.ids.shape[1]))
    objective.add_modules(model)
    task = objective.task(model).double()
    set_dropout(task, dropout)
    return TinyObjective(objective, model, task, rows, labels, model_settings, vocabulary)


# Comparisons

CLOSE = 1e-6


def added(mappings: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            total[name] = total[name] + value if name in total else value
    return total


def metrics_and_counts(sums: LossSums) -> dict[str, Any]:
    """Both numbers of each metric, by name."""
    return {f"{name} {n}": pair[n] for name, pair in sums.metrics.items() for n in (0, 1)}


def gradients_of(task: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in task.named_parameters() if p.grad is not None}


def undeclared(names: Iterable[str], declared: Collection[str]) -> list[str]:
    """The metrics that are neither declared nor begin with a declared prefix, one that ends with a dot."""
    exact, prefixes = {*declared}, tuple(name for name in declared if name.endswith("."))
    return [name for name in names if name not in exact and not name.startswith(prefixes)]


def near(actual: Any, expected: Any) -> bool:
    actual, expected = (torch.as_tensor(value).detach().double() for value in (actual, expected))
    return bool((actual - expected).norm() <= CLOSE * max(1.0, float(expected.norm())))


def equal(tensor: Tensor, other: Tensor) -> bool:
    """NaN, the label of what has none, equals NaN."""
    return tensor.shape == other.shape and bool(((tensor == other) | (tensor.isnan() & other.isnan())).all())


def differ(hidden: Tensor, other: Tensor) -> Tensor:
    """(T,): the rows of two tensors (T, D) that differ by more than rounding."""
    return (hidden - other).abs().amax(-1) > 1e-9


def with_other_tokens(rows: Rows, chosen: np.ndarray, vocabulary: Vocabulary) -> Rows:
    """The rows with other plain tokens at the chosen places (B, n), in place of plain ones."""
    plain = np.setdiff1d(np.arange(vocabulary.size), sorted(vocabulary.special_ids))
    next_one = np.arange(vocabulary.size)
    next_one[plain] = np.roll(plain, -1)
    real = np.ones_like(chosen) if rows.segments is None else rows.segments != 0
    return replace(rows, ids=np.where(chosen & real, next_one[rows.ids], rows.ids))


def target_indices(batch: Batch) -> list[list[int]]:
    """The positions of the targets of each row; all if the batch has no `target_positions`."""
    is_target = torch.ones(batch.inputs.ids.shape, dtype=torch.bool)
    if batch.target_positions is not None:
        is_target = torch.zeros_like(is_target).flatten().index_fill(0, batch.target_positions, True).view_as(is_target)
    return [row.nonzero().flatten().tolist() for row in is_target]


def unpadded(batch: Batch) -> list[tuple[list[int], ...]]:
    """The ids of each row without padding: inputs, and the source if there is one."""
    sides = [tokens for tokens in (batch.inputs, batch.source) if tokens is not None]
    return [
        tuple(tokens.ids[row][is_token(tokens)[row]].tolist() for tokens in sides)
        for row in range(len(batch.inputs.ids))
    ]


def other_padding(rows: Rows) -> Rows:
    """The same rows with a plain token as padding."""
    assert rows.segments is not None
    return replace(rows, ids=np.where(rows.segments == 0, FIRST_PLAIN + 5, rows.ids))
