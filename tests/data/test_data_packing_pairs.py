"""From pairs to rows: each row against one that is put together by hand, whatever the lengths, the context and the
order.
"""

import json
from typing import Any

import numpy as np
import pytest
import torch
from data_of import dataset_of, opened

from mini_tf.data.batch import Rows
from mini_tf.data.datasets import TokenizedData
from mini_tf.data.packing import Packing, Shape
from mini_tf.objectives.seq2seq import Settings as Seq2Seq
from mini_tf.recipe import sections
from mini_tf.recipe.data import Data

LENGTHS = [(n * 7 % 13 + 1, n * 5 % 11 + 1) for n in range(50)]


@pytest.fixture(scope="module", params=["one vocabulary", "two"])
def text(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TokenizedData:
    """Pairs of all lengths from 1 to 13 and 1 to 11 characters; the first half of the alphabet is the source's."""
    folder = tmp_path_factory.mktemp("pairing")
    rows = [{"source": "abcdefghijklm"[-n:], "target": "nopqrstuvwx"[-m:]} for n, m in LENGTHS]
    (folder / "a.jsonl").write_text("".join(json.dumps(row | {"n": number}) + "\n" for number, row in enumerate(rows)))
    data = Data(train=str(folder / "a.jsonl"), fields={"source": "source", "target": "target"})
    side = sections.SingleTokenizer(kind="byte") if request.param == "two" else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINITF_CACHE", str(folder / "cache"))
        return opened(data, sections.Tokenizer(kind="char", source=side), "pairs")


def documents(text: TokenizedData) -> list[tuple[list[int], list[int]]]:
    """The ids of every pair, each by its tokenizer from its characters."""
    store, pairs = text.train, []
    assert store.source is not None
    for n in range(store.n_documents):
        written = text.source_tokenizer.decode(store.source.document(n)), text.tokenizer.decode(store.document(n))
        pairs.append((text.source_tokenizer.encode(written[0]).tolist(), text.tokenizer.encode(written[1]).tolist()))
    return pairs


def by_hand(text: TokenizedData, context: int) -> list[tuple[list[int], list[int]]]:
    """(source row, target row) of every pair."""
    ends = text.source_tokenizer.vocabulary.separator, text.tokenizer.vocabulary.separator
    return [
        ([*source[: context - 1], ends[0]], [ends[1], *target, ends[1]][: context + 1])
        for source, target in documents(text)
    ]


def rows_of(text: TokenizedData, context: int) -> Packing:
    return dataset_of("pairs").packing(text.train, Shape(context, 1))


def unpadded(rows: Rows) -> list[list[int]]:
    if rows.segments is None:
        return rows.ids.tolist()  # type: ignore[no-any-return]
    assert set(np.unique(rows.segments)) <= {0, 1}
    assert (np.diff(rows.segments, axis=1) <= 0).all()  # what is padded stands on the right
    assert not rows.segments.all()
    assert not rows.ids[rows.segments == 0].any()
    return [ids[real != 0].tolist() for ids, real in zip(rows.ids, rows.segments, strict=True)]


def both(rows: Rows) -> list[tuple[list[int], list[int]]]:
    assert rows.source is not None
    found = list(zip(unpadded(rows.source), unpadded(rows), strict=True))
    assert rows.source.ids.shape[1] == max(len(source) for source, _ in found)
    assert rows.ids.shape[1] == max(len(target) for _, target in found)
    return found


@pytest.mark.parametrize("context", [1, 2, 5, 10, 12, 13, 14, 64])
def test_rows_are_those_put_together_by_hand(text: TokenizedData, context: int) -> None:
    pairing, expected = rows_of(text, context), by_hand(text, context)
    assert pairing.n_rows == len(expected)
    order = np.random.default_rng(0).permutation(len(expected))
    for chosen in (order, order[:1], order[3:7], np.array([2, 2, 0]), np.arange(len(expected))[-1:]):
        rows = pairing.take(chosen, 0, chosen.astype(np.uint64))
        assert both(rows) == [expected[n] for n in chosen]
        assert rows.source is not None
        assert rows.keys.tolist() == rows.source.keys.tolist() == chosen.tolist()
        assert both(pairing.take(chosen, 3, chosen.astype(np.uint64))) == both(rows)  # the same in every epoch


@pytest.mark.parametrize("context", [1, 2, 5, 10, 12, 13, 14, 64])
def test_sizes_are_those_of_the_rows(text: TokenizedData, context: int) -> None:
    pairing, expected = rows_of(text, context), by_hand(text, context)
    assert pairing.lengths.tolist() == [max(len(source), len(target) - 1) for source, target in expected]
    assert pairing.row_tokens == pytest.approx(np.mean([len(target) - 1 for _, target in expected]))
    assert pairing.n_too_long == sum(max(len(source), len(target)) + 1 > context for source, target in documents(text))
    assert pairing.lengths.max() <= context


@pytest.mark.parametrize("context", [3, 64])
def test_every_target_is_asked_for_once_by_the_objective(text: TokenizedData, context: int) -> None:
    pairing, expected = rows_of(text, context), by_hand(text, context)
    objective: Any = Seq2Seq().build(text.tokenizer.vocabulary)
    asked: list[int] = []
    for rows in pairing.eval_rows(6):
        batch = objective.prepare(rows)
        asked += batch.labels.tolist()
        length, read = batch.inputs.ids.shape[1], batch.inputs.ids.flatten()
        at = torch.arange(len(read)) if batch.target_positions is None else batch.target_positions
        assert ((at % length == 0) == (read[at] == text.tokenizer.vocabulary.separator)).all()
    assert asked == [id for _, target in expected for id in target[1:]]
    assert len(asked) == round(pairing.row_tokens * pairing.n_rows)


def test_the_summary_says_how_long_both_sides_are(text: TokenizedData) -> None:
    pairs, sources, targets = dataset_of("pairs").summary(text)
    assert pairs == f"data: {text.train.n_documents} training pairs, {text.val.n_documents} validation pairs"
    for line, role, side in ((sources, "source", 0), (targets, "target", 1)):
        lengths = [len(pair[side]) for pair in documents(text)]
        half, most = np.quantile(lengths, [0.5, 0.95]).astype(int)
        assert line == f"{role} lengths: median {half} tokens, 95th percentile {most}, maximum {max(lengths)}"
