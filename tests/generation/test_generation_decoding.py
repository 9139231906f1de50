"""What is read through the cache is what reading everything anew gives: log-probabilities for every mixer and
position.
"""

from collections.abc import Sequence

import pytest
import torch
from test_models import CASES, V, model_of
from torch import Tensor
from toys import present

from mini_tf.generation.decoding import DecodingState, pad
from mini_tf.generation.fast_decoder import FastDecoder
from mini_tf.nn.model import Model
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import listing

STEPS = 20


def some_ids(*shape: int, seed: int = 3) -> Tensor:
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


def cached(model: Model, texts: Sequence[Sequence[int]], following: Tensor, context: int) -> Tensor:
    """Log-probabilities (n + 1, B, V) after the texts and after each of the ids (n, B) that follow."""
    reading = DecodingState(model, texts, context)
    scores = [reading.prefill(), *(reading.decode(ids) for ids in following)]
    return torch.stack(scores).log_softmax(dim=-1)


@torch.no_grad()
def uncached(model: Model, text: Sequence[int], following: Sequence[int], context: int) -> Tensor:
    """The same of one text without a state, in one pass for each beginning: where the text outgrows the context, its
    last half.
    """
    whole, end, begin, found = [*text, *following], len(text), max(0, len(text) - context), []
    while end <= len(whole):
        until = min(len(whole), begin + context)
        scores = model.logits(model(Tokens(torch.tensor([whole[begin:until]]))).y)[0]
        found.append(scores[end - begin - 1 :].log_softmax(dim=-1))
        end, begin = until + 1, until + 1 - max(1, context // 2)
    return torch.cat(found)


@pytest.mark.parametrize(("mixer", "positions"), CASES)
def test_the_cache_gives_the_log_probabilities_of_reading_everything_anew(mixer: str, positions: str) -> None:
    """Beyond the context of 16 too, and from a prompt that is longer than it."""
    model = model_of("decoder", (mixer,), positions, n_layers=2)
    text = some_ids(20).tolist()
    following = some_ids(STEPS, 1, seed=4)
    expected = uncached(model, text, following[:, 0].tolist(), model.context)
    torch.testing.assert_close(cached(model, [text], following, model.context)[:, 0], expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("mixer", "positions"), CASES)
def test_texts_of_different_length_are_read_together_as_each_alone(mixer: str, positions: str) -> None:
    """Each outgrows the context at another step."""
    model, following = model_of("decoder", (mixer,), positions, n_layers=2), some_ids(STEPS, 4, seed=4)
    texts = [some_ids(length, seed=length).tolist() for length in (3, 20, 11, 1)]
    together = cached(model, texts, following, model.context)
    for row, text in enumerate(texts):
        expected = uncached(model, text, following[:, row].tolist(), model.context)
        torch.testing.assert_close(together[:, row], expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("positions", [word for word in listing("positions") if word != "learned"])
@pytest.mark.parametrize("context", [1, 40])
def test_positions_that_run_on_are_read_through_any_context(positions: str, context: int) -> None:
    model, following = model_of("decoder", positions=positions), some_ids(STEPS, 2, seed=4)
    texts = [some_ids(length, seed=length).tolist() for length in (2, 30)]
    together = cached(model, texts, following, context)
    for row, text in enumerate(texts):
        expected = uncached(model, text, following[:, row].tolist(), context)
        torch.testing.assert_close(together[:, row], expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("lengths", [(4, 9, 2), (5, 5, 5)])
def test_rows_leave_and_change_positions_at_any_step(lengths: tuple[int, ...]) -> None:
    model, following = model_of("decoder", positions="rotary"), some_ids(STEPS, 3, seed=4)
    texts = [some_ids(length, seed=length).tolist() for length in lengths]
    reading = DecodingState(model, texts, model.context)
    reading.prefill()
    expected = [uncached(model, text, following[:, row].tolist(), model.context) for row, text in enumerate(texts)]
    rows = torch.arange(3)
    for step, ids in enumerate(following[:-1]):
        if step in (2, 9, 15):
            kept = torch.tensor([2, 0, 1] if step == 2 else [1, 0] if step == 9 else [1])
            reading.select(kept)
            rows = rows[kept]
        found = reading.decode(ids[rows]).log_softmax(dim=-1)
        torch.testing.assert_close(
            found, torch.stack([expected[row][step + 1] for row in rows.tolist()]), rtol=0, atol=1e-8
        )


def test_equal_texts_are_read_once_and_go_their_own_ways() -> None:
    model, text, other = model_of("decoder", positions="alibi"), some_ids(6).tolist(), some_ids(3, seed=9).tolist()
    read: list[int] = []
    model.register_forward_pre_hook(lambda _module, given: read.append(len(given[0].ids)))
    following = some_ids(STEPS, 4, seed=4)
    together = cached(model, [text, other, text, text], following, model.context)
    assert read[:3] == [2, 4, 4]
    for row, own in enumerate([text, other, text, text]):
        expected = uncached(model, own, following[:, row].tolist(), model.context)
        torch.testing.assert_close(together[:, row], expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("left", [True, False])
def test_texts_of_one_length_need_no_positions(left: bool) -> None:
    assert pad([[1, 2], [3, 4]], torch.device("cpu"), left).token_positions is None
    tokens = pad([[1, 2], [3]], torch.device("cpu"), left)
    assert tokens.ids.tolist() == [[1, 2], [0, 3] if left else [3, 0]]
    assert tokens.token_positions is not None
    assert tokens.token_positions.segments is not None
    assert tokens.token_positions.segments.tolist() == [[1, 1], [0, 1] if left else [1, 0]]


@pytest.mark.parametrize("kind", present("attention", "softmax", "window", "linear", "simple"))
def test_a_prompt_that_is_a_prefix_is_attended_to_in_both_directions(kind: str) -> None:
    """The scores after each step are those of the whole text, whose mask is written out here, prompts of two lengths
    side by side.
    """
    model = model_of("decoder", (kind,), "rotary" if kind == "softmax" else "sinusoidal")
    assert FastDecoder.fits(model) == (kind != "simple")
    prompts, follow = [[3, 1, 4, 1, 5, 2, 6, 5, 3, 5], [2, 7]], [[6, 2], [8, 8]]
    reading = DecodingState(model, prompts, 16, prefix=True)
    found = [reading.prefill(), *(reading.decode(torch.tensor(ids)) for ids in zip(*follow, strict=True))]
    for row, (prompt, more) in enumerate(zip(prompts, follow, strict=True)):
        whole = prefixed(model, prompt + more, len(prompt))
        assert not torch.allclose(whole, prefixed(model, prompt + more, 0))
        for step, scores in enumerate(found):
            torch.testing.assert_close(scores[row], whole[len(prompt) - 1 + step], rtol=0, atol=1e-8)


def prefixed(model: Model, text: Sequence[int], n: int) -> Tensor:
    """Scores (L, V) of a text whose first n tokens see each other."""
    positions = torch.arange(len(text))
    orders = torch.where(positions < n, n - 1, positions)[None]
    return model.logits(model(Tokens(torch.tensor([text]), TokenPositions(len(text), orders=orders))).y)[0]


@pytest.mark.parametrize("kind", present("attention", "softmax", "simple"))
def test_a_text_that_outgrows_the_context_keeps_what_is_left_of_its_prefix(kind: str) -> None:
    """And the one beside it keeps its own: what is written does not become a part of a prefix."""
    model = model_of("decoder", (kind,), "rotary" if kind == "softmax" else "sinusoidal")
    long, short, more = [3, 1, 4, 1, 5, 2, 6], [2, 7, 5], [[6, 2], [8, 3]]
    reading = DecodingState(model, [long, short], 8, prefix=True)
    reading.prefill()
    for ids in more:
        scores = reading.decode(torch.tensor(ids))
    texts = [[*long, 6, 8], [*short, 2, 3]]
    torch.testing.assert_close(scores[0], prefixed(model, texts[0][-4:], len(long) - 5)[-1], rtol=0, atol=1e-8)
    torch.testing.assert_close(scores[1], prefixed(model, texts[1], len(short))[-1], rtol=0, atol=1e-8)
