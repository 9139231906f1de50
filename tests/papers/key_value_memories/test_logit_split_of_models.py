"""A logit is the sum of its parts in every model, of every mixer and positional encoding, that has such a sum."""

from contextlib import ExitStack

import pytest
import torch
from test_inspection_contract import every_model
from torch import Tensor

from mini_tf.nn.model import Model, ModelSettings
from mini_tf.nn.tokens import Tokens
from mini_tf.papers.key_value_memories.logit_split import split_logit, why_not
from mini_tf.testing.tiny.models import random_ids, tiny_model


@pytest.mark.parametrize("settings", [pytest.param(settings, id=word) for word, settings in every_model()])
def test_a_logit_is_the_sum_of_its_parts(settings: ModelSettings) -> None:
    model = tiny_model(settings)
    if why_not(model) is None and blocks_are_all_that_is_added(model):
        split = split_logit(model, Tokens(random_ids(1)))
        assert split.sum == pytest.approx(split.logit, rel=0, abs=1e-9)


def blocks_are_all_that_is_added(model: Model) -> bool:
    """Whether each block of the first stack gets what the one before returned, and the final norm what the last did."""
    stack, inputs, outputs = model.stacks()[0].stack, list[Tensor](), list[Tensor]()
    with torch.no_grad(), ExitStack() as hooks:
        for module in (*stack.blocks, stack.norm):
            hooks.enter_context(module.register_forward_pre_hook(lambda _, given: inputs.append(given[0])))
        for block in stack.blocks:
            hooks.enter_context(block.register_forward_hook(lambda *call: outputs.append(call[-1].y)))
        model(Tokens(random_ids(1)))
    return all(torch.equal(x, y) for x, y in zip(inputs[1:], outputs, strict=True))
