"""`minitf convert`: weights kept to the bit, the divergence by its formula, a run that can be used as any other."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import DATA, EXACT, TINY, minitf, refused

from mini_tf.jobs.convert import _copy, _kept_settings
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import settings_of
from mini_tf.system.errors import RecipeFault
from mini_tf.trained.evaluating import evaluation_data, kl_divergence
from mini_tf.trained.opening import load_trained, open_trained

SHAPE = (
    "model={kind: decoder, d_model: 32, n_layers: 2, n_heads: 2, attention: {kind: softmax, qk_norm: true, scale: 0.3}}"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("convert") / "gpt"
    done = minitf("pretrain", TINY, SHAPE, *EXACT, "train.steps=20", "log.samples=0", "-d", str(folder), "-q")
    assert done.exit_code == 0, done.stderr
    return folder


def convert(run: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    done = minitf("convert", str(run), *arguments, "-d", str(folder), "--json")
    assert done.exit_code == 0, done.stderr
    envelope: dict[str, Any] = json.loads(done.stdout)
    return envelope


def test_weights_and_shared_settings_are_kept_and_the_run_is_usable(run: Path, tmp_path: Path) -> None:
    began = time.perf_counter()
    envelope = convert(run, tmp_path / "window", "model.attention.kind=window", "model.attention.window=20")
    metrics = envelope["metrics"]
    assert min(metrics["before.seconds"], metrics["seconds"]) > 0
    assert metrics["before.seconds"] + metrics["seconds"] < time.perf_counter() - began
    original, converted = load_trained(run), load_trained(tmp_path / "window")
    attention = converted.recipe.model.attention[0]  # type: ignore[attr-defined]
    assert (attention.kind, attention.window, attention.qk_norm, attention.scale) == ("window", 20, True, 0.3)
    before, after = original.model.weights(), converted.model.weights()
    assert set(after) == set(before)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    evaluated = json.loads(minitf("evaluate", str(tmp_path / "window"), "--json").stdout)["metrics"]
    assert evaluated["loss"] == pytest.approx(metrics["loss"], abs=1e-5)
    assert json.loads(minitf("evaluate", str(run), "--json").stdout)["metrics"]["loss"] == pytest.approx(
        metrics["before.loss"], abs=1e-5
    )
    assert 0 < metrics["kl"] < 0.1
    assert minitf("generate", str(tmp_path / "window"), "the ", "--max-new-tokens", "5", "--greedy").exit_code == 0
    more = ("train.steps=2", "log.samples=0", *EXACT, "-d", str(tmp_path / "more"), "-q")
    done = minitf("pretrain", TINY, f"model.init_from={tmp_path / 'window'}", *more)
    assert done.exit_code == 0, done.stderr
    assert load_trained(tmp_path / "more").recipe.model.attention[0].kind == "window"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("model.attention={kind: window, window: 8}", [("window", True, 0.3)]),
        ("model.attention={kind: window, qk_norm: false}", [("window", False, 0.3)]),
        ("model.attention=[window, softmax]", [("window", True, 0.3), ("softmax", True, 0.3)]),
    ],
)
def test_shared_settings_are_kept_however_a_mixer_is_written(
    run: Path, override: str, expected: list[tuple[str, bool, float]], tmp_path: Path
) -> None:
    convert(run, tmp_path / "new", override)
    mixers = load_trained(tmp_path / "new").recipe.model.attention  # type: ignore[attr-defined]
    assert [(mixer.kind, mixer.qk_norm, mixer.scale) for mixer in mixers] == expected


def test_settings_of_an_encoder_and_of_several_mixers_are_kept() -> None:
    def kept(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        old, new = (
            settings_of("models", "encoder_decoder")(**{"d_model": 32, "n_heads": 2} | keys) for keys in (before, after)
        )
        [override] = _kept_settings(old, new)  # type: ignore[arg-type]
        key, _, value = override.partition("=")
        return key, json.loads(value)

    mixer = {"kind": "softmax", "qk_norm": True, "scale": 0.3}
    unchanged = {"dropout_rate": 0.0, "memory_length": 0, "memory_cache": "keys"}
    key, settings = kept({"attention": mixer}, {"attention": mixer, "encoder": {"attention": "window"}})
    assert (key, settings) == ("model.encoder.attention", {"kind": "window", "qk_norm": True, "scale": 0.3} | unchanged)
    key, settings = kept({"attention": [mixer, mixer | {"scale": 0.5}]}, {"attention": "window"})
    assert (key, settings) == ("model.attention", {"kind": "window", "qk_norm": True} | unchanged)


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2)])
def test_a_conversion_that_changes_a_shape_is_refused(sizes: tuple[int, int]) -> None:
    before, after = ({"same": torch.ones(1), "w": torch.zeros(size)} for size in sizes)
    message = rf"w is \[{sizes[0]}\] in run, but \[{sizes[1]}\] after the conversion"
    with pytest.raises(RecipeFault, match=message):
        _copy(before, after, "run")


def test_the_divergence_is_its_formula(run: Path, tmp_path: Path) -> None:
    """On a file of several rows, against log-probabilities of the two models computed here, row by row."""
    text = (DATA / "tiny.txt").read_text().replace("\n\n", "\n")[:500]
    (tmp_path / "held.txt").write_text(text)
    metrics = convert(
        run, tmp_path / "window", "model.attention={kind: window, window: 2}", "--data", str(tmp_path / "held.txt")
    )["metrics"]
    models = [load_trained(folder) for folder in (run, tmp_path / "window")]
    tokenizer, context, divergences = models[0].tokenizer, 48, []
    ids = [tokenizer.vocabulary.separator, *tokenizer.encode(text)]
    for first in range(0, int(metrics["targets"]), context):
        row = torch.tensor([ids[first : first + context]])
        with torch.no_grad():
            p, q = (one.model.eval().logits(one.model(Tokens(row)).y).double().log_softmax(-1)[0] for one in models)
        divergences.append((p.exp() * (p - q)).sum(-1))
    assert len(divergences) > 5
    expected = float(torch.cat(divergences)[: int(metrics["targets"])].mean())
    assert metrics["kl"] == pytest.approx(expected, rel=1e-3)


def test_the_divergence_from_a_broken_model_is_nan(run: Path) -> None:
    original, broken = open_trained(run), open_trained(run)
    next(iter(broken.model.weights().values())).fill_(torch.nan)
    assert math.isnan(kl_divergence(original, broken, evaluation_data(original, None, "val")))


def test_a_conversion_into_the_same_function_changes_nothing(run: Path, tmp_path: Path) -> None:
    """A window as long as the context."""
    metrics = convert(run, tmp_path / "window", "model.attention.kind=window", "model.attention.window=4096")["metrics"]
    assert metrics["kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["loss"] == pytest.approx(metrics["before.loss"], abs=1e-6)


def test_the_same_command_again_is_the_same_run(run: Path, tmp_path: Path) -> None:
    first = convert(run, tmp_path / "again", "model.positions=none")
    sha = (tmp_path / "again" / "model.safetensors").read_bytes()
    assert convert(run, tmp_path / "again", "model.positions=none")["run"] == first["run"]
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == sha


def down(run: Path, layer: int) -> torch.Tensor:
    return load_trained(run).model.weights()[f"stack.layers.{layer}.feed_forward.part.down.weight"]


def test_a_silenced_memory_is_one_column_of_the_down_projection(run: Path, tmp_path: Path) -> None:
    metrics = convert(run, tmp_path / "silenced", "--memory", "1:3=0", "--memory", "0:0-1=-2.5")["metrics"]
    before, after = (load_trained(folder).model.weights() for folder in (run, tmp_path / "silenced"))
    changed = [name for name, tensor in before.items() if not torch.equal(tensor, after[name])]
    assert changed == [f"stack.layers.{layer}.feed_forward.part.down.weight" for layer in (0, 1)]
    expected = [down(run, layer).clone() for layer in (0, 1)]
    expected[1][:, 3] = 0
    expected[0][:, :2] *= -2.5
    assert all(torch.equal(down(tmp_path / "silenced", layer), expected[layer]) for layer in (0, 1))
    assert metrics["loss"] != metrics["before.loss"]
    evaluated = json.loads(minitf("evaluate", str(tmp_path / "silenced"), "--json").stdout)["metrics"]
    assert evaluated["loss"] == pytest.approx(metrics["loss"], abs=1e-5)


def test_a_memory_and_a_setting_are_changed_together(run: Path, tmp_path: Path) -> None:
    convert(run, tmp_path / "both", "model.attention.kind=window", "--memory", "0:5=0.5")
    assert load_trained(tmp_path / "both").recipe.model.attention[0].kind == "window"  # type: ignore[attr-defined]
    assert torch.equal(down(tmp_path / "both", 0)[:, 5], down(run, 0)[:, 5] / 2)


def test_factors_are_part_of_the_identity_of_a_run(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without -d the identity chooses the folder."""
    monkeypatch.chdir(tmp_path)

    def folder(*factors: str) -> str:
        done = minitf("convert", str(run), *(part for factor in factors for part in ("--memory", factor)), "--json")
        assert done.exit_code == 0, done.stderr
        return str(json.loads(done.stdout)["run"])

    first = folder("0:1=0", "1:2=0.5")
    assert folder("1:2=.50", "0:1=-0") == first
    others = {folder("0:1=0"), folder("0:2=0"), folder("0:1=0", "1:2=0.25"), folder("1:1=0")}
    assert len(others | {first}) == 5
    done = minitf("convert", str(run), "--memory", "0:1=1", "-d", first)
    assert done.exit_code == 5
    assert 'memory: "0:1=0.0, 1:2=0.5" -> "0:1=1.0"' in done.stderr


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        (["2:0=0"], "--memory 2:0: layer 2: 2 is out of range; indices are 0 to 1"),
        (["0:128=0"], "--memory 0:128: memory 128: 128 is out of range; indices are 0 to 127"),
        (["0:1"], "--memory 0:1: must be L:I=F, with a finite number F, such as 3:511=0"),
        (["0:1=nan"], "must be L:I=F, with a finite number F"),
        (["0:1=inf"], "must be L:I=F, with a finite number F"),
        (["0:1=1e300"], "--memory 0:1=1e+300: the value is no longer finite"),
        (["0:1=2=3"], "--memory 0:1=2=3: must be L:I=F"),
        (["0:1=1_0"], "--memory 0:1=1_0: must be L:I=F"),
        (["0:1= 1"], "--memory 0:1= 1: must be L:I=F"),
        (["0=1"], "--memory 0: must be the numbers of a layer and of a memory"),
        (["0:1=0", "0:0-3=1"], "--memory 0:0-3=1: memory 0:1 was given before"),
    ],
)
def test_wrong_factors_are_refused_in_one_line(run: Path, factors: list[str], message: str, tmp_path: Path) -> None:
    options = [part for factor in factors for part in ("--memory", factor)]
    refused(minitf("convert", str(run), *options, "-d", str(tmp_path / "new")), message, exit_code=2)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "nothing to convert"),
        (["model.attention.kind=softmax"], 2, "nothing to convert"),
        (["model.d_model=64"], 2, "model.d_model: a conversion changes only attention, cross_attention, positions"),
        (["train.steps=7", "model.attention.kind=window"], 2, "train.steps: a conversion changes only"),
        (["window"], 2, "'window' is not KEY=VALUE"),
        (["model.attention.kind=windw"], 3, "windw"),
    ],
)
def test_refusals_leave_nothing(run: Path, arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    done = minitf("convert", str(run), *arguments, "-d", str(tmp_path / "new"))
    assert done.exit_code == code, done.stderr
    assert message in done.stderr
    assert not (tmp_path / "new").exists()
