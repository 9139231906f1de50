"""Runs as code: a file that runs without minitf computes what the model computes, also for transformers' classes."""

import builtins
import json
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import strangers
import torch
from commands import in_a_fork, minitf, refused, results
from families import exported, transformers
from hostile import HOSTILE
from safetensors.torch import save_file
from test_interchange_recipes import small_run
from test_onnx import RECIPES, UNLIKE, VOCABULARY, loaded

from mini_tf.hf.formats import code as code_format
from mini_tf.hf.formats._code import text_models
from mini_tf.hf.formats._code.model_code import ModelCode, all_tensors, written_code
from mini_tf.hf.formats.code import below_the_largest, reference
from mini_tf.hf.proof import differences, make_batch
from mini_tf.recipe.arguments import presets
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.system.errors import RunFault
from mini_tf.testing.kinds import kinds_in
from mini_tf.trained.opening import open_trained

FILE = "modeling_minitf.py"
VECTORS = "contrastive-nano"
"""Its model has hidden states alone, which a class of transformers has, too."""
OF_A_MIXER = ("expire-span-nano", "linear-nano", "sru-nano")
"""Recipes that differ from others in their mixer, of which each is tried below."""


def load_alone(code: ModelCode, model: torch.nn.Module, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The model of a file that may import torch, safetensors and what comes with Python, and finds no transformers."""
    file = folder / FILE
    file.write_text(code.text)
    (folder / "config.json").write_text(json.dumps(code.config))
    save_file({f"model.{name}": tensor for name, tensor in all_tensors(model).items()}, folder / "model.safetensors")
    import_it = builtins.__import__

    def alone(name: str, given: Any = None, *more: Any) -> Any:
        package = name.partition(".")[0]
        if (given or {}).get("__file__") == str(file) and package not in sys.stdlib_module_names:
            if package == "transformers":
                raise ImportError(name)
            assert package in ("torch", "safetensors"), name
        return import_it(name, given, *more)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", alone)
        return runpy.run_path(str(file))["load"](folder)


@torch.no_grad()
def assert_same(run: Any, alone: Any) -> None:
    """Whole texts with padding, and token by token with what the layers keep."""
    batch = make_batch(run.model, VOCABULARY)
    given = {name: value for name, value in vars(batch).items() if isinstance(value, torch.Tensor)}
    by_case, size = differences(reference(run, batch), alone(**given), batch)
    assert max(by_case.values()) < 1e-5 * size, by_case
    if not run.recipe.model.causal or "tokens" not in run.recipe.objective.PREDICTS:
        return
    rows = batch.mask.bool().all(1)
    prompt = batch.ids[rows][:, :5]
    sources = [] if batch.source is None else [batch.source[rows]]
    tokens = torch.cat([prompt, alone.greedy(prompt, 6, *sources)], dim=1)
    kept = sources[0] if sources else prompt
    given = {"prompt": kept, "prompt_mask": torch.ones_like(kept), "n_new": torch.tensor(6)}
    assert below_the_largest(run, tokens, given) < 1e-5 * size


QUICK = [name for name in UNLIKE if name not in OF_A_MIXER]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in RECIPES if name not in (*QUICK, VECTORS)]


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_the_code_of_a_recipe_computes_what_its_model_computes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = loaded(name)
    assert_same(run, load_alone(written_code(run), run.model, tmp_path, monkeypatch))


def test_a_model_of_words_has_outputs_at_their_first_tokens() -> None:
    run = loaded("tag-nano")
    batch = make_batch(run.model, VOCABULARY)
    begins = torch.tensor([text[0] == " " for text in VOCABULARY.texts])[batch.ids] & batch.mask.bool()
    assert torch.equal(reference(run, batch).count_nonzero(-1) > 0, begins)


@pytest.fixture
def with_strangers() -> Iterator[None]:
    with kinds_in(strangers.FOLDER):
        yield


MIXERS = {word: settings_of("attention", word)() for word in listing("attention")} | strangers.made("attention")
CHANGED = {
    "query and key weights": ("quickstart", "model.attention={qk_norm: weight}", "model.n_kv_heads=1"),
    "a prefix": ("quickstart", "objective.kind=prefix"),
    "layers of their own": ("bert-nano", "model.attention=[{kind: window, window: 3}, softmax]", "model.parallel=true"),
    "a head with a norm": ("sst2-nano", "objective.dense=gelu_norm"),
    "stranger positions": ("quickstart", "model.positions=xpos"),
}
CHANGED |= {
    f"{word} attention": ("quickstart", f"model.attention={word}", "model.positions=none")
    if "causal" in mixer.supports
    else ("transformer-nano", f"model.cross_attention={word}")
    for word, mixer in MIXERS.items()
}


@pytest.mark.parametrize("case", CHANGED)
def test_the_code_of_other_settings_and_kinds_computes_the_same(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_strangers: None
) -> None:
    name, *overrides = CHANGED[case]
    run = loaded(name, *overrides)
    assert_same(run, load_alone(written_code(run), run.model, tmp_path, monkeypatch))


TEXTS = ("The cat", "It was red. The")
WAYS = {
    "summarize-nano": ("generate.max_new_tokens=12", "generate.length_penalty=0"),  # of which transformers has another
}


def forked(command: list[str], *, cwd: str, env: dict[str, str], **_: Any) -> SimpleNamespace:
    """`subprocess.run` of a program for Python, in a fork that has torch and transformers, and forgets minitf."""

    def run() -> None:
        os.chdir(cwd)
        os.environ.update(env)
        for name in [name for name in sys.modules if name.partition(".")[0] in ("mini_tf", "transformers_modules")]:
            del sys.modules[name]
        dynamic_module_utils = transformers().dynamic_module_utils
        dynamic_module_utils.HF_MODULES_CACHE = env["HF_MODULES_CACHE"]
        sys.path.insert(0, env["HF_MODULES_CACHE"])
        sys.argv = command[2:]
        exec(command[2], {"__name__": "__main__"})

    in_a_fork(run)
    return SimpleNamespace(returncode=0)


@pytest.mark.parametrize("name", ["performer-nano", "summarize-nano", "sst2-nano"])
def test_transformers_runs_the_code_of_a_run_as_minitf_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids of hostile texts, too."""
    if name not in presets():
        pytest.skip(f"{name} is a recipe of an absent paper")
    theirs, out = transformers(), tmp_path / "out"
    monkeypatch.setattr(theirs.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.setattr(code_format, "subprocess", SimpleNamespace(run=forked))
    run = small_run(name, tmp_path, *WAYS.get(name, ()))
    done = minitf("export", run, "-o", out, "--to", "code")
    assert done.exit_code == 0, done.stderr
    assert f"{FILE} is code" in done.stderr
    assert f"`{FILE}` has the whole model" in (out / "README.md").read_text()
    parity = json.loads((out / "parity.json").read_text())
    assert parity["reader"].startswith("a Python without minitf, and transformers")
    assert parity["largest_difference"] < 1e-5 * parity["largest_output"]
    tokenizer = theirs.AutoTokenizer.from_pretrained(out, trust_remote_code=True)
    bundle = open_trained(run, device="cpu")
    for text in (text for text in HOSTILE if "\ud800" not in text):
        ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert ids == bundle.source_tokenizer.encode(text).tolist(), ascii(text)
    [auto] = json.loads((out / "config.json").read_text())["auto_map"].keys() - {"AutoConfig"}
    model = getattr(theirs, auto).from_pretrained(out, trust_remote_code=True)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    if name == "sst2-nano":
        probabilities = model(**inputs).logits.softmax(-1).tolist()
        scores = [dict(zip(model.config.id2label.values(), row, strict=True)) for row in probabilities]
        predicted = [json.loads(line)["scores"] for line in minitf("predict", run, *TEXTS).stdout.splitlines()]
        assert predicted == [pytest.approx(row, abs=1e-5) for row in scores]
        return
    if bundle.model.needs_source:  # beams and no repeated n-grams, by generation_config.json
        new, options = model.generate(**inputs), list[str]()
    else:
        new = model.generate(**inputs, max_new_tokens=12, do_sample=False)[:, inputs["input_ids"].shape[1] :]
        options = ["--greedy", "--max-new-tokens", "12"]
    ours = [one["texts"][0] for one in results(minitf("generate", run, *TEXTS, *options, "--json").stdout)]
    assert ours == tokenizer.batch_decode(new, skip_special_tokens=True)


def test_the_proof_runs_in_a_new_process_also_without_transformers(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "transformers.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    parity = exported(classifier, tmp_path / "out", "--to", "code")
    assert parity["reader"] == "a Python without minitf"
    assert 0 < parity["largest_difference"] < 1e-5 * parity["largest_output"]
    monkeypatch.setattr(code_format.subprocess, "run", lambda *command, **_: SimpleNamespace(returncode=3, stderr=""))
    failed = minitf("export", classifier, "-o", tmp_path / "other", "--to", "code")
    refused(failed, "a fresh Python cannot run it: exit code 3", exit_code=5)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(("context", "n_new"), [(24, 8), (12, 4), (8, None)])
def test_the_proof_continues_texts_within_the_context(
    context: int, n_new: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = dict[str, torch.Tensor]()

    def fresh(folder: Path, auto_class: str, tensors: dict[str, torch.Tensor]) -> None:
        inputs.update(tensors)
        raise RunFault("not computed")

    monkeypatch.setattr(code_format, "_fresh", fresh)
    run = loaded("quickstart", f"train.context={context}")
    with pytest.raises(RunFault, match="not computed"):
        code_format._proof(run, written_code(run), Path())
    assert ("prompt" in inputs) == (n_new is not None)
    assert inputs.get("n_new") == n_new


def test_a_model_whose_output_layer_tells_no_arguments_is_refused() -> None:
    with pytest.raises(RunFault, match="the output layer NoHead does not go out as code"):
        written_code(loaded(VECTORS))


def test_words_in_place_of_token_ids_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [FILE, "The"])
    with pytest.raises(SystemExit, match=f"^{FILE}: the arguments are token ids"):
        text_models.main()
