"""Copy attention: the mixture by loops, the fused loss and its gradients, rows, beams and states, and recipes."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.translation import Translator
from mini_tf.models.encoder_decoder import EncoderDecoder, Settings
from mini_tf.nn.layers import cross_entropy as fused
from mini_tf.nn.layers.copy_attention import GATE_BIAS, NEVER, Copies
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.model import Model
from mini_tf.nn.state import reorder
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe import sections
from mini_tf.recipe.sections import Generate

V, SPECIAL, D = 20, frozenset({0, 3}), 12
TARGET = torch.tensor([[1, 1, 1, 1, 2, 2], [1, 1, 1, 1, 1, 0]])
SOURCE = torch.tensor([[1, 1, 1, 2, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1, 0, 0]])
"""Documents of two packed rows; 0 is padding."""


def model_of(seed: int = 0, **settings: Any) -> EncoderDecoder:
    torch.manual_seed(seed)
    given = {
        "d_model": D,
        "n_layers": 1,
        "n_heads": 2,
        "init_std": 0.5,
        "copy_attention": True,
        "encoder": {"d_model": 10, "n_heads": 1},
    }
    model = Settings.model_validate(given | settings).build(V, 32).double().eval()
    model.special_ids = SPECIAL
    if model.copy_attention is not None:
        torch.nn.init.normal_(model.copy_attention.gate.bias)
    return model


def ids(*shape: int, seed: int = 1, size: int = V) -> Tensor:
    return torch.randint(size, shape, generator=torch.Generator().manual_seed(seed))


def packed(tokens: Tensor, segments: Tensor) -> Tokens:
    return Tokens(tokens, TokenPositions.packed(segments))


def log_p(model: Model, output: ForwardOutput) -> Tensor:
    return model.logits(output.y, copies=output.copies)


@torch.no_grad()
def test_a_token_is_generated_or_copied_as_the_paper_says() -> None:
    """By loops, from the hidden states of both stacks; documents of a row apart."""
    model, target, source = model_of(), ids(2, 6), ids(2, 8, seed=2, size=7)
    copying = model.copy_attention
    assert copying is not None
    heard: list[Tensor] = []
    model.encoder.register_forward_hook(lambda module, given, output: heard.append(output.y))
    output = model(packed(target, TARGET), packed(source, SOURCE))
    ours, generated = log_p(model, output), model.logits(output.y).softmax(dim=-1)
    [encoded] = heard
    for row in range(2):
        for t in range(6):
            if TARGET[row, t] == 0:
                continue
            q = copying.query.weight @ output.y[row, t]
            scores = {}
            for i in range(8):
                if SOURCE[row, i] == TARGET[row, t] and int(source[row, i]) not in SPECIAL:
                    k = copying.key.weight @ encoded[row, i]
                    if i and SOURCE[row, i - 1] == SOURCE[row, i]:
                        k = k + copying.previous_key.weight @ encoded[row, i - 1]
                    scores[i] = math.exp(float(q @ k) / math.sqrt(D))
            p_gen = 1 / (1 + math.exp(-float(copying.gate.weight[0] @ output.y[row, t] + copying.gate.bias)))
            expected = generated[row, t] * p_gen
            for i, score in scores.items():
                expected[source[row, i]] += (1 - p_gen) * score / sum(scores.values())
            assert len(scores) > 1
            assert_close(ours[row, t].exp(), expected, rtol=0, atol=1e-12)
    real = TARGET != 0
    assert_close(ours[real].logsumexp(dim=-1), torch.zeros(int(real.sum()), dtype=torch.float64), rtol=0, atol=1e-12)


def test_a_source_of_special_tokens_and_padding_copies_nothing() -> None:
    model, target = model_of(), ids(1, 4)
    output = model(Tokens(target), packed(torch.tensor([[3, 0, 3, 5]]), torch.tensor([[1, 1, 1, 0]])))
    assert output.copies is not None
    assert (output.copies.log_attention == NEVER).all()
    assert_close(log_p(model, output), model.logits(output.y).log_softmax(dim=-1), rtol=0, atol=1e-12)
    model.cross_entropy(output.y[0], target[0], 0.1, output.copies.each(lambda part: part[0])).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("head", ["linear", "bert"])
def test_the_fused_loss_has_the_gradients_of_the_mixture(
    smoothing: float, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all parameters; in chunks of two targets, and as a compiler or GPU computes it."""
    monkeypatch.setattr(fused, "CHUNK", 1)
    monkeypatch.setattr(fused, "FEWEST", 2)
    model, target, labels = model_of(head=head), packed(ids(2, 6), TARGET), ids(11, seed=4, size=7)
    source, at = packed(ids(2, 8, seed=2, size=7), SOURCE), TARGET.flatten().nonzero().squeeze(1)

    def gradients(fuse: bool) -> list[Tensor]:
        output = model(target, source, at)
        if fuse:
            loss = model.cross_entropy(output.y, labels, smoothing, output.copies)
        else:
            found = log_p(model, output)
            loss = -(1 - smoothing) * found.gather(1, labels[:, None]).sum() - smoothing * found.mean(dim=1).sum()
        return [loss, *torch.autograd.grad(loss, list(model.parameters()))]

    plain = gradients(fuse=False)
    for ours, theirs in zip(gradients(fuse=True), plain, strict=True):
        assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    for ours, theirs in zip(gradients(fuse=True), plain, strict=True):
        assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


def test_a_loss_stays_exact_where_probabilities_are_too_small_for_their_type() -> None:
    """Log-probabilities down to -700 in single precision, generated, and copied from where the attention is not."""
    gate, log_attention = torch.tensor([400.0, -400.0]), torch.tensor([[0.0, -600.0], [-600.0, 0.0]])
    copies = Copies(gate, log_attention, ids=torch.tensor([[1, 2]] * 2), first=torch.tensor([[0, 1]] * 2))
    hidden, weight = (
        torch.tensor([[1.0], [1.0]], requires_grad=True),
        torch.tensor([[0.0], [-500.0], [-700.0]], requires_grad=True),
    )
    for labels, expected in (([1, 2], 400 + 0.0), ([2, 1], 700 + 600.0)):
        loss = fused.cross_entropy(hidden, weight, None, torch.tensor(labels), 0.0, copies)
        assert loss.item() == pytest.approx(expected, rel=1e-6)
        assert all(one.isfinite().all() for one in torch.autograd.grad(loss, (hidden, weight)))


def test_documents_of_a_row_and_padded_sources_copy_as_alone() -> None:
    model, target, source = model_of(), ids(2, 6), ids(2, 8, seed=2, size=7)
    together = log_p(model, model(packed(target, TARGET), packed(source, SOURCE)))
    for row, document in ((0, 1), (0, 2), (1, 1)):
        own, read = TARGET[row] == document, SOURCE[row] == document
        alone = log_p(model, model(Tokens(target[row, own][None]), Tokens(source[row, read][None])))
        assert_close(together[row, own], alone[0], rtol=0, atol=1e-10)


def test_beams_that_share_a_source_copy_as_with_a_source_each_and_go_on_in_another_order() -> None:
    model, source = model_of(), packed(ids(2, 8, seed=2, size=7), torch.where(SOURCE > 0, 1, 0))
    memory, beams, order = model.encode(source), ids(6, 5), torch.tensor([2, 0, 2, 3, 3, 5])
    whole = log_p(model, model(Tokens(beams), memory.select(torch.tensor([0, 0, 0, 1, 1, 1]))))
    assert_close(log_p(model, model(Tokens(beams), memory)), whole, rtol=0, atol=1e-10)
    state = model(Tokens(beams[:, :3]), memory, state=model.start(6)).state
    for t in (3, 4):
        output = model(Tokens(beams[order, t : t + 1]), memory, state=reorder(state, order) if t == 3 else state)
        state = output.state
        assert_close(log_p(model, output)[:, 0], whole[order, t], rtol=0, atol=1e-10)
    swapped = log_p(model, model(Tokens(beams[[3, 4, 5, 0, 1, 2]]), memory.select(torch.tensor([1, 0]))))
    assert_close(swapped, whole[[3, 4, 5, 0, 1, 2]], rtol=0, atol=1e-10)


@torch.no_grad()
def test_translations_have_the_log_probability_of_one_pass_and_none_of_a_special_token() -> None:
    tokenizer = Tokenizer.train(sections.Tokenizer(kind="char"), ["0123456789"])
    vocabulary = tokenizer.vocabulary
    torch.manual_seed(3)
    model = (
        Settings(d_model=D, n_layers=1, n_heads=2, init_std=0.6, copy_attention=True)
        .build(vocabulary.size, 16)
        .double()
        .eval()
    )
    model.special_ids = vocabulary.special_ids
    torch.nn.init.constant_(model.copy_attention.gate.bias, -1.0)  # type: ignore[union-attr, arg-type]
    translator = Translator(model, tokenizer, tokenizer, Generate(num_beams=3, max_new_tokens=6))
    sources = ["31415", "27", "1828"]
    together = list(translator.translate(sources, n_best=3))
    for source, found in zip(sources, together, strict=True):
        [alone] = translator.translate([source], n_best=3)
        assert [one.text for one in alone] == [one.text for one in found]
        for one in found:
            written = tokenizer.encode(one.text).tolist()
            inputs = torch.tensor([[vocabulary.separator, *written]])
            output = model(
                Tokens(inputs), Tokens(torch.tensor([[*tokenizer.encode(source).tolist(), vocabulary.separator]]))
            )
            labels = torch.tensor([*written, *([vocabulary.separator] if len(written) < 6 else [])])
            scored = log_p(model, output)[0, : len(labels)].gather(1, labels[:, None]).sum()
            assert one.logprob == pytest.approx(float(scored), abs=1e-10)


def test_without_copying_the_weights_are_those_of_the_same_seed_and_at_first_nearly_all_is_generated() -> None:
    plain, copying = model_of(copy_attention=False), model_of()
    own, new = plain.weights(), copying.weights()
    assert all(torch.equal(tensor, new[name]) for name, tensor in own.items())
    assert {name for name in new if name not in own} == {
        *(f"copy_attention.{part}.weight" for part in ("query", "key", "previous_key", "gate")),
        "copy_attention.gate.bias",
    }
    fresh = Settings(d_model=D, n_heads=2, n_layers=1, copy_attention=True).build(V, 32)
    output = fresh(Tokens(ids(2, 6)), Tokens(ids(2, 8, seed=2)))
    assert output.copies is not None
    assert_close(output.copies.gate, torch.full((2, 6), GATE_BIAS), rtol=0, atol=0.5)
    lost = F.log_softmax(fresh.logits(output.y), dim=-1) - log_p(fresh, output)
    assert lost.max() < -math.log(0.9)


def test_two_vocabularies_have_no_tokens_in_common_to_copy() -> None:
    with pytest.raises(ValueError, match="needs one vocabulary"):
        Settings(copy_attention=True).build(V, 32, 30)
