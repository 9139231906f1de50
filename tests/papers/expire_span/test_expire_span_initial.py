"""Which keys of Expire-Span, and of SRU, may differ from those of the run whose weights are loaded."""

from pathlib import Path

import pytest
import torch
from commands import trained
from test_run_initial import SHORT, SIZES, TEXT, parts_of, theirs

from mini_tf.system.errors import RecipeFault


def test_keys_that_act_only_in_training_may_be_others_also_within_a_mixer_and_those_that_are_computed_with_may_not(
    tmp_path: Path,
) -> None:
    spans = "attention: [{kind: expire_span, max_span: 20}, {kind: sru, forget_bias: 1.0}], positions: none"
    run = trained(tmp_path / "run", *SHORT, SIZES.format("decoder", spans), TEXT)
    key = "model.attention=[{{kind: expire_span, max_span: 20, {}}}, {{kind: sru, {}}}]"
    free = ("span_loss_weight: 0, initial_span: 0.9, noisy: true, dropout_rate: 0.5", "forget_bias: 2.0")
    parts = parts_of(run, TEXT, key.format(*free))
    assert parts.loaded is not None
    assert (parts.loaded.new, parts.loaded.unused) == ((), ())
    assert torch.equal(
        parts.model.weights()["stack.layers.0.own.part.span_bias"], theirs(run)["stack.layers.0.own.part.span_bias"]
    )
    for bound, words in (
        (
            ("pre_div: 2.0, noisy: true", "forget_bias: 2.0"),
            r"model\.attention\[0\]\.pre_div: is 2\.0, but 1\.0 in run",
        ),
        (("ramp: 8", "forget_bias: 2.0"), r"model\.attention\[0\]\.ramp: is 8, but 32 in run"),
        (("noisy: true", "highway_bias: 0.0"), r"model\.attention\[1\]\.highway_bias: is 0\.0, but -2\.0 in run"),
    ):
        with pytest.raises(RecipeFault, match=words):
            parts_of(run, TEXT, key.format(*bound))
