"""The detector's output layer against numpy, its score without both classes, and a generator that is converted."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import QUIET, TINY, minitf, tiny_model
from test_nn_task_head import gelu
from toys import seeded

from mini_tf.papers.electra.networks import DetectionHead
from mini_tf.trained.opening import open_trained


def test_detection_is_a_dense_layer_with_gelu_before_one_logit() -> None:
    torch.manual_seed(0)
    head, hidden = DetectionHead(64, 0.02), seeded(5, 64).float()
    assert head.dense.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not head.dense.bias.any()
    assert not head.linear.bias.any()
    with torch.no_grad():
        expected = gelu((hidden @ head.dense.weight.T).numpy()) @ head.linear.weight.numpy().T
        np.testing.assert_allclose(head(hidden).numpy(), expected, atol=1e-6)
    with pytest.raises(ValueError, match="a detection head has no vocabulary"):
        head(hidden, torch.tensor([1]))


def test_a_network_of_the_objective_is_converted_too(tmp_path: Path) -> None:
    """ELECTRA's generator has the attention of the model; its weights are kept, and the new run has them."""
    model = tiny_model("encoder")
    done = minitf(
        "pretrain",
        TINY,
        model,
        "objective=replaced_token",
        *QUIET,
        "train.steps=2",
        "-d",
        str(tmp_path / "electra"),
        "-q",
    )
    assert done.exit_code == 0, done.stderr
    done = minitf(
        "convert",
        tmp_path / "electra",
        "model.attention={kind: window, window: 2}",
        "-d",
        tmp_path / "window",
        "--json",
    )
    assert done.exit_code == 0, done.stderr
    envelope = json.loads(done.stdout)
    original, converted = (open_trained(tmp_path / name, device="cpu").task() for name in ("electra", "window"))
    before, after = (
        {name: t for name, t in one.state_dict().items() if "generator" in name} for one in (original, converted)
    )
    assert set(after) == set(before)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    evaluated = json.loads(minitf("evaluate", str(tmp_path / "window"), "--json").stdout)["metrics"]
    assert evaluated["loss.generator"] == pytest.approx(envelope["metrics"]["loss.generator"], abs=1e-5)
