"""What passes by in a pass: heard from every mixer of every model, equal to what the model works with, and gone
afterwards.
"""

import pytest
import torch
from test_models import model_of, pairs_of
from toys import mixer_settings

from mini_tf.inspection._capture import capture
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import RunFault

NORMALIZED = ("softmax", "window", "linear", "favor", "simple", "srupp", "expire_span")
CASES = [("decoder", *pair) for pair in pairs_of("decoder") if pair[0] != "toy"]
CASES += [("encoder", "softmax", "learned"), ("encoder", "window", "rotary")]


def some_ids(length: int = 9) -> torch.Tensor:
    return torch.randint(40, (1, length), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(("kind", "mixer", "positions"), CASES)
def test_what_is_shown_is_what_the_model_works_with(kind: str, mixer: str, positions: str) -> None:
    """Weights that answer as the fused model does, one reading a layer; rows sum to 1 and see all they may."""
    model = model_of(kind, (mixer,), positions)
    seen = capture(model, Tokens(some_ids()))
    assert seen.difference < 1e-4
    layers = range(len(model.stack.layers)) if model.mixers()[0].has_heads else ()
    assert [(attention.kind, attention.layer) for attention in seen.attention] == [(f"{kind}.self", i) for i in layers]
    for attention in seen.attention:
        assert (attention.weights.movedim(1, 0)[:, ~attention.mask] == 0).all()
        assert attention.mask.all() == (kind == "encoder" and not mixer_settings(mixer).restriction)
        if mixer in NORMALIZED:
            torch.testing.assert_close(attention.weights.sum(-1), torch.ones_like(attention.weights.sum(-1)))
        if (
            mixer in NORMALIZED and positions != "dynamic_window" and mixer != "expire_span"
        ):  # which make some weights 0
            assert (attention.weights.movedim(1, 0)[:, attention.mask] > 0).all()


def test_hidden_vectors_are_those_after_the_embedding_and_each_layer() -> None:
    model, inputs = model_of("encoder", ("softmax",), "learned"), Tokens(some_ids())
    [(rows, hidden)] = capture(model, inputs).hidden
    assert rows == "input"
    x = model.embedding(inputs, TokenPositions(9))
    torch.testing.assert_close(hidden[0], x)
    torch.testing.assert_close(model.stack.norm(hidden[-1]), model(inputs).y)
    assert len(hidden) == 1 + len(model.stack.layers)


def test_a_pass_leaves_no_ear_behind() -> None:
    model = model_of("decoder", ("softmax",), "rotary")
    capture(model, Tokens(some_ids()))
    assert not any(module._forward_hooks for module in model.modules())


def test_packed_rows_are_shown_apart() -> None:
    """Two documents in a row: no weight from one to the other."""
    model = model_of("encoder", ("softmax",), "rotary")
    segments = torch.tensor([[1, 1, 1, 2, 2, 2, 2, 0, 0]])
    for attention in capture(model, Tokens(some_ids(), TokenPositions.packed(segments))).attention:
        own = segments[:, :, None] == segments[:, None, :]
        assert (attention.weights.movedim(1, 0)[:, ~own] == 0).all()


def test_scores_that_are_no_numbers_are_refused() -> None:
    model = model_of("decoder", ("softmax",), "rotary")
    with torch.no_grad():
        model.embedding.tokens.weight[int(some_ids()[0, 0])] = torch.nan
    with pytest.raises(RunFault, match="not finite"):
        capture(model, Tokens(some_ids()))
