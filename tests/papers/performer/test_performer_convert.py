"""A softmax model converted to FAVOR+: its weights are kept, and random projections are added."""

import json
from pathlib import Path

import pytest
import torch
from commands import EXACT, TINY, minitf

from mini_tf.trained.opening import load_trained

SHAPE = (
    "model={kind: decoder, d_model: 32, n_layers: 2, n_heads: 2, attention: {kind: softmax, qk_norm: true, scale: 0.3}}"
)


def test_a_converted_model_keeps_its_weights_and_predicts_nearly_as_before(tmp_path: Path) -> None:
    done = minitf("pretrain", TINY, SHAPE, *EXACT, "train.steps=20", "log.samples=0", "-d", str(tmp_path / "gpt"), "-q")
    assert done.exit_code == 0, done.stderr
    done = minitf(
        "convert", tmp_path / "gpt", "model.attention={kind: favor, features: 512}", "-d", tmp_path / "favor", "--json"
    )
    assert done.exit_code == 0, done.stderr
    before, after = (load_trained(tmp_path / name).model.weights() for name in ("gpt", "favor"))
    assert set(after) - set(before) == {f"stack.layers.{i}.own.part.projection" for i in range(2)}
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    metrics = json.loads(done.stdout)["metrics"]
    assert 0 < metrics["kl"] < 0.1
    evaluated = json.loads(minitf("evaluate", tmp_path / "favor", "--json").stdout)["metrics"]
    assert evaluated["loss"] == pytest.approx(metrics["loss"], abs=1e-5)
    attention = load_trained(tmp_path / "favor").recipe.model.attention[0]  # type: ignore[attr-defined]
    assert (attention.kind, attention.qk_norm, attention.scale) == ("favor", True, 0.3)
