"""FLOPs are those of published formulas and of torch's own counter, for every model, mixer and position."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch_flops import torch_flops

from mini_tf.data.batch import Batch
from mini_tf.inspection._modules import forward_flops as inspected_flops
from mini_tf.nn.model import Model, ModelSettings
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.nn.weights import on_meta_device
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.training import flops
from mini_tf.training.flops import forward_flops, training_flops

CPU = torch.device("cpu")
VOCABULARY, ROWS, SOURCE = 29, 2, 70
TINY = {"d_model": 16, "n_layers": 2, "n_heads": 2}
MIXERS: list[dict[str, Any]] = [
    *({"kind": word} for word in listing("attention")),
    {"kind": "softmax", "n_persistent": 5},
    {"kind": "window", "window": 8},
]
HEAD = {"head": "bert", "n_kv_heads": 1, "n_types": 2, "ngrams": [7], "subwords": 9}
VARIANTS: list[dict[str, Any]] = [
    {"activation": "swiglu", "d_ff": 24, "norm_place": "post", **HEAD},
    {"d_ff": 0, "tied": False, "d_k": 6, "d_v": 6, "bias": True, "d_embedding": 10},
]


class LogitsOf(torch.nn.Module):
    """The task without a loss."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, state: None) -> torch.Tensor:
        logits = self.model.logits(self.model(batch.inputs, batch.source, batch.target_positions).y)
        assert isinstance(logits, torch.Tensor)
        return logits


def built(kind: str, **keys: Any) -> ModelSettings | None:
    """The settings of a model; None if its rules refuse them."""
    try:
        settings = settings_of("models", kind).model_validate({**TINY, **keys})
    except ValueError:
        return None
    assert isinstance(settings, ModelSettings)
    return settings


def batch_of(rows: int, length: int, source: int = 0, targets: int | None = None, packed: bool = False) -> Batch:
    def tokens(width: int) -> Tokens:
        ids = torch.zeros(rows, width, dtype=torch.long)
        return Tokens(ids, TokenPositions.packed(torch.ones_like(ids)) if packed else None)

    at = None if targets is None else torch.arange(targets)
    labels = torch.zeros(rows * length if targets is None else targets)
    return Batch(tokens(length), labels, at, tokens(source) if source else None)


def flops_of(settings: ModelSettings, vocabulary: int, *batches: Batch) -> int:
    """Of a model on the meta device, forward only."""
    model = on_meta_device(lambda: settings.build(vocabulary, 512))
    assert isinstance(model, Model)
    counted = training_flops(LogitsOf(model), {}, batches, CPU)
    assert counted % 3 == 0
    return counted // 3


def assert_equal_to_torch(settings: ModelSettings, length: int, packed: bool = False) -> None:
    model = settings.build(VOCABULARY, 512)
    batch = batch_of(ROWS, length, SOURCE if model.needs_source else 0, 3, packed)
    task = LogitsOf(model).train()
    assert (
        training_flops(task, dict(task.named_buffers()), [batch], CPU) == 3 * torch_flops(lambda: task(batch, None)) > 0
    )


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: "-".join(map(str, mixer.values())))
@pytest.mark.parametrize("kind", listing("models"))
def test_flops_of_every_model_and_mixer_are_those_of_torchs_counter(kind: str, mixer: dict[str, Any]) -> None:
    settings = built(kind, attention=mixer, positions="none")
    if settings is not None:
        for length in (9, 100):
            assert_equal_to_torch(settings, length)


@pytest.mark.parametrize("kind", listing("models"))
@pytest.mark.parametrize("keys", VARIANTS, ids=["swiglu", "no feed-forward"])
def test_flops_of_sizes_and_heads_are_those_of_torchs_counter(kind: str, keys: dict[str, Any]) -> None:
    if "n_types" in keys and settings_of("models", kind).SOURCE:  # type: ignore[attr-defined]
        keys = keys | {"n_types": 0}
    settings = built(kind, **keys)
    assert settings is not None
    assert_equal_to_torch(settings, 20)


@pytest.mark.parametrize("kind", listing("positions"))
def test_flops_of_micro_batches_of_two_lengths_are_those_of_each(kind: str) -> None:
    """Nothing that a module keeps for decoding saves the second one a product."""
    settings = built("decoder", positions=kind)
    assert settings is not None
    task, batches = LogitsOf(settings.build(VOCABULARY, 512)), [batch_of(2, 12), batch_of(2, 16)]
    each = [training_flops(task, dict(task.named_buffers()), [batch], CPU) for batch in batches]
    assert training_flops(task, dict(task.named_buffers()), batches, CPU) == sum(each)


@pytest.mark.parametrize("kind", listing("positions"))
def test_outputs_after_an_inspection_of_flops_are_as_before(kind: str) -> None:
    settings = built("decoder", positions=kind)
    assert settings is not None
    model, tokens = settings.build(VOCABULARY, 16).eval(), batch_of(1, 8).inputs
    assert isinstance(model, Model)
    inspected = inspected_flops(model).stack
    with torch.no_grad():
        outputs = model(tokens).y
        assert inspected_flops(model).stack == inspected
        assert torch.equal(model(tokens).y, outputs)
    fresh = settings.build(VOCABULARY, 16).eval()
    fresh.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(fresh(tokens).y, outputs)


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "shared"])
@pytest.mark.parametrize("kind", listing("positions"))
def test_flops_of_positions_are_those_of_torchs_counter(kind: str, packed: bool) -> None:
    settings = built("decoder", positions={"kind": kind, "max_distance": 24} if kind == "transformer_xl" else kind)
    assert settings is not None
    assert_equal_to_torch(settings, 12, packed)


def test_flops_of_gpt_2_small_are_those_of_a_count_by_hand() -> None:
    """Narayanan et al. 2021, arXiv:2104.04473, section 5.1: 24 B s l h^2 (1 + s / 6h + V / 12lh), forward."""
    settings = built("decoder", d_model=768, n_layers=12, n_heads=12, activation="gelu", positions="learned")
    assert settings is not None
    b, s, n, h, v = 2, 256, 12, 768, 50257
    assert flops_of(settings, v, batch_of(b, s)) == 24 * b * s * n * h * h + 4 * b * s * s * n * h + 2 * b * s * h * v


def test_flops_of_bert_base_are_those_of_a_count_by_hand() -> None:
    """Targets alone pass the last feed-forward layer, the transform and the output layer."""
    settings = built(
        "encoder", d_model=768, n_layers=12, n_heads=12, activation="gelu", positions="learned", head="bert"
    )
    assert settings is not None
    b, s, t, h, v = 8, 128, 154, 768, 30522
    attention = 12 * (4 * 2 * b * s * h * h + 2 * 2 * b * s * s * h)
    feed_forward = 2 * 2 * (11 * b * s + t) * h * 4 * h
    assert flops_of(settings, v, batch_of(b, s, targets=t)) == attention + feed_forward + 2 * t * (h * h + h * v)


def test_flops_of_an_encoder_decoder_are_those_of_a_count_by_hand() -> None:
    """The base model of Vaswani et al. 2017, without positions."""
    settings = built(
        "encoder_decoder", d_model=512, n_layers=6, n_heads=8, d_ff=2048, activation="relu", positions="none"
    )
    assert settings is not None
    b, source, target, d, v = 3, 40, 30, 512, 37000
    encoder = b * (source * (4 * d * d + 2 * d * 2048) + 2 * source**2 * d)
    own = b * (target * (4 * d * d + 2 * d * 2048) + 2 * target**2 * d)
    cross = b * (2 * target * d * d + 2 * source * d * d + 2 * target * source * d)
    assert flops_of(settings, v, batch_of(b, target, source)) == 2 * (6 * (encoder + own + cross) + b * target * d * v)


def test_flops_of_many_micro_batches_are_fitted_to_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flops, "MAX_COUNTED", n := 8)
    settings = built("encoder_decoder")
    assert settings is not None
    batches = [batch_of(4, 5 + 3 * i % 17, 30 + 7 * i % 23, 17 + i % 3) for i in range(2 * n)]
    each = [flops_of(settings, VOCABULARY, batch) for batch in batches]
    assert flops_of(settings, VOCABULARY, *batches[:n]) == sum(each[:n])
    assert flops_of(settings, VOCABULARY, *batches[:2] * 50) == 50 * sum(each[:2])
    assert flops_of(settings, VOCABULARY, *batches) == pytest.approx(sum(each), rel=1e-4)


def test_counting_draws_no_random_numbers() -> None:
    before = torch.get_rng_state()
    assert forward_flops(lambda: torch.randn(4, 5) @ torch.randn(5, 6), CPU) == 2 * 4 * 5 * 6
    assert torch.equal(torch.get_rng_state(), before)


def test_counting_sketches_and_optimizer_steps_do_not_import_the_compiler() -> None:
    """And a sketch of an adapted model has its shapes."""
    code = """if True:
        import sys, torch
        from mini_tf.models.decoder import Settings
        from mini_tf.nn.lora import adapt
        from mini_tf.nn.weights import on_meta_device
        from mini_tf.optimizers import adamw
        from mini_tf.recipe.sections import Adapter
        from mini_tf.training import loop
        from mini_tf.training.flops import forward_flops
        from mini_tf.training.optimizer import build

        def adapted():
            model = Settings(d_model=16, n_layers=1, n_heads=2).build(29, 8)
            adapt(model, Adapter())
            return model

        def shapes(model):
            return {name: tensor.shape for name, tensor in model.weights().items()}

        linear = torch.nn.Linear(3, 4)
        assert forward_flops(lambda: linear(torch.relu(torch.ones(2, 3))), torch.device("cpu")) == 48
        optimizer = build(adamw.Settings(), linear)
        torch.manual_seed(0)
        linear(torch.ones(1, 3)).sum().backward()
        optimizer.step(float(optimizer.grad_norm()) * 0.1)
        sketch = shapes(on_meta_device(adapted))
        print(*{"torch._dynamo", "sympy"} & {*sys.modules})
        assert sketch == shapes(adapted())"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
