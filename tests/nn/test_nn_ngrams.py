"""Tables of n-grams: each combination its own row, nothing looks over the beginning of a document or ahead."""

import pytest
import torch
from torch.testing import assert_close

from mini_tf.nn.layers.ngram_features import NGrams
from mini_tf.nn.model import Model
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import settings_of

V = 7


def table_of(*rows: int) -> NGrams:
    torch.manual_seed(0)
    return NGrams(V, 4, rows).double()


def nothing(batch: int, reach: int) -> torch.Tensor:
    return torch.full((batch, reach), V)


def decoder() -> Model:
    torch.manual_seed(0)
    settings = settings_of("models", "decoder")(d_model=16, n_layers=2, n_heads=2, ngrams=(100, 30))  # type: ignore[attr-defined]
    model: Model = settings.build(V, 16).double().eval()
    return model


@pytest.mark.parametrize(("v", "rows"), [(7, 1000), (7, 8 * 8), (6, 7 * 7), (9, 10 * 10)])
def test_every_pair_has_its_own_row_where_all_fit(v: int, rows: int) -> None:
    pairs = torch.cartesian_prod(torch.arange(v), torch.arange(v))
    vectors = NGrams(v, 4, (rows,))(pairs, torch.full((len(pairs), 1), v), TokenPositions(2))[:, 1]
    assert len(vectors.unique(dim=0)) == v * v


def test_a_pair_that_begins_a_document_differs_from_all_others() -> None:
    table = table_of(1000)
    assert table.tables[0].num_embeddings == (V + 1) ** 2
    first = table(torch.arange(V)[:, None], nothing(V, 1), TokenPositions(1))[:, 0]
    pairs = torch.cartesian_prod(torch.arange(V), torch.arange(V))
    others = table(pairs, nothing(len(pairs), 1), TokenPositions(2))[:, 1]
    assert len(torch.cat([first, others]).unique(dim=0)) == V * V + V


def test_hashed_triples_spread_over_the_whole_table() -> None:
    table = table_of(100, 50)
    triples = torch.cartesian_prod(*[torch.arange(V)] * 3)
    chosen = []
    table.tables[1].register_forward_hook(lambda module, inputs, output: chosen.append(inputs[0]))
    table(triples, nothing(len(triples), 2), TokenPositions(3))
    counts = torch.bincount(chosen[0][:, 2], minlength=50)
    assert counts.min() >= 1
    assert counts.max() <= 3 * counts.float().mean()


def test_the_rows_of_hashed_triples_are_those_of_the_formula() -> None:
    """In whole numbers of any size: a file's tables mean nothing with other rows."""
    table, ids = table_of(100, 30), torch.cartesian_prod(*[torch.arange(V)] * 3)
    found = table(ids, nothing(len(ids), 2), TokenPositions(3))[:, 2]
    pairs, triples = (part.weight for part in table.tables)
    for (third, second, first), vector in zip(ids.tolist(), found, strict=True):
        pair = first * (V + 1) + second
        product = (pair * (V + 1) + third) * 0x9E3779B97F4A7C15 % 2**64
        row = product // 2**32 % 2**31 % 30  # bits 32 to 62
        assert_close(vector, pairs[pair] + triples[row])


def test_a_sum_of_tables_is_the_sum_of_each() -> None:
    ids = torch.randint(V, (3, 9), generator=torch.Generator().manual_seed(1))
    both = table_of(100, 30)
    single = NGrams(V, 4, (100,)).double()
    single.tables[0] = both.tables[0]
    both.tables[1].weight.data.zero_()
    assert_close(both(ids, nothing(3, 2), TokenPositions(9)), single(ids, nothing(3, 1), TokenPositions(9)))


def test_documents_that_share_a_row_are_embedded_as_they_are_alone() -> None:
    table, ids = table_of(100, 30), torch.randint(V, (1, 8), generator=torch.Generator().manual_seed(2))
    together = table(ids, nothing(1, 2), TokenPositions.packed(torch.tensor([[1, 1, 1, 2, 2, 2, 2, 2]])))
    alone = [table(part, nothing(1, 2), TokenPositions(part.shape[1])) for part in (ids[:, :3], ids[:, 3:])]
    assert_close(together, torch.cat(alone, dim=1))


def test_steps_equal_the_whole_and_nothing_looks_ahead() -> None:
    model, ids = decoder(), torch.randint(V, (2, 10), generator=torch.Generator().manual_seed(3))
    whole = model.logits(model(Tokens(ids)).y)
    state, steps = model.start(2), []
    for part in ids.split([4, 1, 3, 2], dim=1):
        mixed = model(Tokens(part), state=state)
        state = model.trim(mixed.state)
        steps.append(model.logits(mixed.y))
    assert_close(torch.cat(steps, dim=1), whole)
    changed = ids.clone()
    changed[:, 6] = (changed[:, 6] + 1) % V
    assert torch.equal(model.logits(model(Tokens(changed)).y)[:, :6], whole[:, :6])
    assert not torch.equal(model.logits(model(Tokens(changed)).y)[:, 7], whole[:, 7])


def test_a_prompt_padded_on_the_left_is_read_as_it_is_alone() -> None:
    model, ids = decoder(), torch.tensor([[0, 0, 3, 1, 5]])
    padded = TokenPositions(5, 0, torch.tensor([[0, 0, 1, 1, 1]]), torch.tensor([[0, 0, 0, 1, 2]]))
    alone = model.logits(model(Tokens(ids[:, 2:])).y)
    assert_close(model.logits(model(Tokens(ids, padded)).y)[:, 2:], alone)
