"""Scores of texts are computed in parts of bounded size, in order; their values stand in test_minimal_pairs."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_generation_text_generator import SEPARATOR, TOKENIZER
from test_models import model_of
from torch import Tensor

from mini_tf.generation import likelihoods
from mini_tf.generation.likelihoods import TextScorer, batches, predict_targets
from mini_tf.generation.prompt_ids import Affixes


def test_batches_are_as_large_as_fits_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihoods, "BATCH_TOKENS", 12)
    rows = [(n, tuple(range(length)), [(0, 0)]) for n, length in enumerate([3, 3, 3, 4, 5, 13, 1, 2, 6, 6])]
    batched = list(batches(iter([*rows[:2], (99, (1,), []), *rows[2:]])))

    def padded(*batch: Any) -> int:
        return len(batch) * max(len(ids) for _, ids, _ in batch)

    assert [row for batch in batched for row in batch] == rows, "a row without a target is left out"
    assert all(padded(*batch) <= 12 or len(batch) == 1 for batch in batched)
    assert all(padded(*batch, after[0]) > 12 for batch, after in pairwise(batched))


def test_no_more_logits_are_computed_at_once_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihoods, "LOGITS", 3 * 5 + 4)
    hidden, sizes = torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), list[int]()

    def logits(part: Tensor) -> Tensor:
        sizes.append(len(part))
        return part

    labels = [[1, 2, 3], [4], [0, 1, 2, 3]]
    predicted = predict_targets(SimpleNamespace(logits=logits), hidden, labels, 5, True)  # type: ignore[arg-type]
    assert sizes == [3, 3, 2]
    log_p = hidden.log_softmax(-1)
    scored = log_p[range(8), [id for row in labels for id in row]].double()
    torch.testing.assert_close(torch.cat([row.log_p for row in predicted]), scored)
    assert torch.cat([row.best for row in predicted]).tolist() == hidden.argmax(-1).tolist()
    entropies = torch.cat([row.entropy for row in predicted if row.entropy is not None])
    torch.testing.assert_close(entropies, -(log_p.exp() * log_p).sum(-1).double())


def test_progress_ends_when_all_texts_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = list[float]()

    @contextmanager
    def show(title: str) -> Iterator[Any]:
        assert title == "scoring 3 texts"
        yield reported.append

    monkeypatch.setattr(likelihoods, "show_progress", show)
    monkeypatch.setattr(likelihoods, "BATCH_TOKENS", 1)
    scorer = TextScorer(model_of("decoder"), TOKENIZER, Affixes([SEPARATOR], []), "causal")
    assert scorer.texts(["a", "bc", "a"])[::2] == scorer.texts(["a", "bc", "a"])[:1] * 2
    assert reported == [0.5, 1.0] * 2
