"""stories260k, a Llama of another tool, in and out, and through GGUF and ONNX: equal ids and equal greedy texts."""

import os
from pathlib import Path

import pytest
import torch
from commands import minitf, refused, results
from families import exported, imported, transformers
from hostile import HOSTILE
from test_onnx import MISSING, greedy_ids

SHARED = Path(os.environ.get("MINITF_SHARED", Path(__file__).parents[3] / "../shared"))
STORIES = SHARED / "data" / "stories260k"
PROMPT, N = "Once upon a time, there was", 40


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not STORIES.exists():
        pytest.skip(f"needs {STORIES}")
    folder = tmp_path_factory.mktemp("stories") / "run"
    assert imported(STORIES, folder)["largest_difference"] < 1e-4
    return folder


def greedy(run: Path) -> str:
    [result] = results(minitf("generate", run, PROMPT, "--greedy", "--max-new-tokens", str(N), "--json").stdout)
    return str(result["texts"][0])


def test_it_tells_a_story_and_goes_out_byte_for_byte(run: Path, tmp_path: Path) -> None:
    done = minitf("evaluate", run, "--data", STORIES / "tinystories_sample.txt", "--assert", "bits_per_byte<0.95")
    assert done.exit_code == 0, done.stderr
    told = minitf("generate", run, "Once upon a time", "--greedy", "--max-new-tokens", "30").stdout
    assert "there was a little girl named" in told
    exported(run, tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (STORIES / "model.safetensors").read_bytes()


def test_its_gguf_is_the_same_model_to_transformers_and_comes_back(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="needs minitf[gguf]")
    exported(run, tmp_path / "gguf", "--to", "gguf")
    auto, file = transformers(), {"gguf_file": "model.gguf"}
    model = auto.AutoModelForCausalLM.from_pretrained(tmp_path / "gguf", dtype=torch.float32, **file)
    tokenizer = auto.AutoTokenizer.from_pretrained(tmp_path / "gguf", **file)
    theirs = auto.AutoTokenizer.from_pretrained(STORIES)
    for text in (text for text in HOSTILE if "\ud800" not in text):
        assert tokenizer(text)["input_ids"] == theirs(text)["input_ids"], ascii(text)
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    found = model.generate(ids, do_sample=False, max_new_tokens=N)[0, ids.shape[1] :]
    assert tokenizer.decode(found, skip_special_tokens=True) == greedy(run).removeprefix(" ")

    del model.config.quantization_config, model.hf_quantizer  # without which transformers saves it as floats
    model.is_quantized = False
    model.save_pretrained(tmp_path / "back")
    tokenizer.save_pretrained(tmp_path / "back")
    imported(tmp_path / "back", tmp_path / "again")
    assert greedy(tmp_path / "again") == greedy(run)


@pytest.mark.slow
def test_its_onnx_file_continues_a_text_as_the_run_does(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason=MISSING)
    pytest.importorskip("onnxruntime", reason=MISSING)
    reason = exported(run, tmp_path / "onnx", "--to", "onnx")["no_metrics_since"]
    assert "was imported and not trained, so it has no data of its own" in reason
    tokenizer = transformers().AutoTokenizer.from_pretrained(tmp_path / "onnx")
    found = greedy_ids(tmp_path / "onnx", tokenizer(PROMPT)["input_ids"], N)
    assert tokenizer.decode(found).strip() == greedy(run).strip()


def test_an_imported_model_has_no_data_to_be_evaluated_on(run: Path) -> None:
    refused(minitf("evaluate", run), "no data of its own; --data FILE evaluates on other data", exit_code=5)
