"""Models of Hugging Face as runs, and runs as their folders: the same outputs and the same tensors, both ways."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import QUIET, minitf
from families import CASES, V, folder_of, transformers
from safetensors.torch import load_file

EXACT = 1e-5
SHARED = Path(os.environ.get("MINITF_SHARED", Path(__file__).parents[1] / "../shared"))


def imported(source: Path, run: Path) -> dict[str, Any]:
    """Import a folder; the content of parity.json."""
    done = minitf("import", source, "-o", run)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == f"{run}\n"
    return json.loads((run / "parity.json").read_text())  # type: ignore[no-any-return]


def without_prefix(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A decoder without a head comes out as one whose head is its embedding: with other names of the same tensors."""
    return {re.sub(r"^(model|transformer|bert)\.", "", name): tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize("case", CASES)
def test_a_model_comes_in_and_goes_out_unchanged(case: str, tmp_path: Path) -> None:
    source, run, out = folder_of(case, tmp_path / "theirs"), tmp_path / "run", tmp_path / "out"
    parity = imported(source, run)
    assert parity["reader"].startswith("transformers")
    assert parity["architecture"] == CASES[case][0]
    assert parity["largest_difference"] < EXACT
    assert {"whole", "padded"} <= parity["cases"].keys()
    done = minitf("export", run, "-o", out, "--to", json.loads((source / "config.json").read_text())["model_type"])
    assert done.exit_code == 0, done.stderr
    assert "loaded by transformers" in done.stderr
    assert json.loads((out / "parity.json").read_text())["largest_difference"] < EXACT
    before, after = (without_prefix(load_file(folder / "model.safetensors")) for folder in (source, out))
    for name in ("cls.predictions.bias", "lm_head.bias"):  # of an untied head another bias is added
        if name.replace("bias", "decoder.bias") in before:
            before.pop(name)
    changed = {name for name, tensor in before.items() if name in after and not torch.equal(after[name], tensor)}
    for name in changed:
        # Rows before the first position are never read; the scale of T5's output is part of the norm's weight.
        first = 2 if "position" in name else 0
        assert first or "decoder.final_layer_norm" in name
        torch.testing.assert_close(after[name][first:], before[name][first:], rtol=1e-6, atol=0)
    left_out = {name for name in before.keys() - after.keys() if "pooler" not in name and "seq_relationship" not in name}
    assert left_out == set()
    assert after.keys() - before.keys() <= {"cls.predictions.bias", "lm_head.bias"}
    theirs = transformers().AutoConfig.from_pretrained(out)
    assert (theirs.vocab_size, theirs.architectures) == (V, [json.loads((out / "parity.json").read_text())["architecture"]])


@pytest.mark.parametrize("case", ["gpt2", "llama, grouped queries, wide heads, tied", "gpt2, untied, relu"])
def test_generation_is_theirs_token_by_token(case: str, tmp_path: Path) -> None:
    source, run = folder_of(case, tmp_path / "theirs"), tmp_path / "run"
    imported(source, run)
    prompts = ["w9 w30 w17", "w5", "w11 w12 w13 w14 w15 w16"]
    done = minitf("generate", run, *prompts, "--greedy", "--max-new-tokens", "24", "--json")
    found = [json.loads(line)["result"]["texts"][0] for line in done.stdout.splitlines()]
    model = getattr(transformers(), CASES[case][0]).from_pretrained(source)
    for prompt, text in zip(prompts, found, strict=True):
        ids = torch.tensor([[2, *(int(word[1:]) for word in prompt.split())]])
        # Special tokens are never written by minitf, except the one that ends a text.
        new = model.generate(ids, do_sample=False, max_new_tokens=24, suppress_tokens=[0, 1, 3, 4], pad_token_id=0)[0, ids.shape[1] :]
        assert text.split() == [f"w{id}" for id in new.tolist() if id != 2]
        assert len(text.split()) > 3


def test_a_real_model_of_stories_comes_in_tells_one_and_goes_out_byte_for_byte(tmp_path: Path) -> None:
    stories, run = SHARED / "data" / "stories260k", tmp_path / "stories"
    if not stories.exists():
        pytest.skip("shared/data is not here")
    assert imported(stories, run)["largest_difference"] < 1e-4
    done = minitf("evaluate", run, "--data", stories / "tinystories_sample.txt", "--assert", "bits_per_byte<0.95")
    assert done.exit_code == 0, done.stderr
    told = minitf("generate", run, "Once upon a time", "--greedy", "--max-new-tokens", "30").stdout
    assert "there was a little girl named" in told
    assert minitf("export", run, "-o", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (stories / "model.safetensors").read_bytes()


def test_fine_tuning_begins_with_a_folder_or_with_the_run_that_it_became(tmp_path: Path) -> None:
    source, rows = folder_of("bert", tmp_path / "theirs"), tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "".join(f"w{5 + n % 9} w{20 + n % 7}\t{'ab'[n % 2]}\n" for n in range(40)))
    imported(source, tmp_path / "run")
    for name, start in (("of folder", source), ("of run", tmp_path / "run")):
        keys = (
            "data.val=null",
            "data.split=25%",
            "data.fields={text: text, label: label}",
            "train.steps=1",
            "train.context=16",
            "train.batch_size=4",
            "optimizer={kind: adamw, lr: 1e-12, weight_decay: 0}",
            *QUIET,
        )
        done = minitf("finetune", "sst2-nano", f"data.train={rows}", *keys, f"model.init_from={start}", "-d", tmp_path / name)
        assert done.exit_code == 0, done.stderr
        assert "head.linear.weight" in done.stderr  # alone with its bias it is new
        weights, before = load_file(tmp_path / name / "model.safetensors"), load_file(tmp_path / "run" / "model.safetensors")
        for key, tensor in before.items():
            if not key.startswith("head."):
                torch.testing.assert_close(weights[key], tensor, rtol=0, atol=1e-9)
