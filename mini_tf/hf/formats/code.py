"""Code: a file of plain PyTorch with the model, for what transformers has no class; it also runs alone.

The file is put together from minitf's own sources: the definitions that the model needs, without what its settings
leave out. The proof runs it in a fresh Python, in which minitf cannot be imported.
"""

import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from mini_tf.hf.family_choice import CONFIG
from mini_tf.hf.formats import Exported, ExportRequest, Format
from mini_tf.hf.formats._code import fresh_reader, text_models
from mini_tf.hf.formats._code.model_code import MODELING, ModelCode, all_tensors, task_facts, task_outputs, written_code
from mini_tf.hf.model_folder import WEIGHTS
from mini_tf.hf.proof import Batch, Parity, differences, make_batch, max_or_nan, token_logits
from mini_tf.hf.tokenizer_config import generation_files, tokenizer_files
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.values import one_line
from mini_tf.run import tensors
from mini_tf.run.disk import Content
from mini_tf.system.errors import RunFault
from mini_tf.system.strict_json import show_json
from mini_tf.trained.architecture import vocabulary_sizes
from mini_tf.trained.opening import LoadedModel

TOLERANCE = 1e-5
"""Of the largest absolute output."""
PROMPT, NEW_TOKENS = 8, 8
CONTINUING = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM")
NOTE = f"{MODELING}.py is code: transformers runs it, and only with trust_remote_code=True"


class Settings(Format):
    def export(self, request: ExportRequest) -> Exported:
        loaded = request.loaded
        code = written_code(loaded)
        written_as = f"code ({code.architecture})"
        files: dict[str, Content] = {
            f"{MODELING}.py": code.text.encode(),
            CONFIG: show_json(code.config).encode(),
            **generation_files(loaded, code.config),
            WEIGHTS: tensors.Serialized(
                {f"model.{name}": tensor for name, tensor in all_tensors(loaded.model).items()}
            ),
            **tokenizer_files(loaded),
            **request.card(written_as, usage=_usage(code)),
        }
        request.write(files)
        return request.proved(written_as, _proof(loaded, code, request.folder), [NOTE])


def _usage(code: ModelCode) -> str:
    return f"""## This is code

`{MODELING}.py` has the whole model in plain PyTorch. transformers runs it, and only with `trust_remote_code=True`: read
it before, as all code of others.

```python
from transformers import AutoTokenizer, {code.auto_class}

model = {code.auto_class}.from_pretrained(FOLDER, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(FOLDER, trust_remote_code=True)
```

Without transformers, `from {MODELING} import load` gives the model, and `python {MODELING}.py 5 6 7` runs it on token
ids.

"""


@torch.no_grad()
def _proof(loaded: LoadedModel, code: ModelCode, folder: Path) -> Parity:
    """The differences of a fresh Python's outputs from those of the model, and of what it continues texts with."""
    model = loaded.model.eval()
    sizes = vocabulary_sizes(loaded.tokenizer, loaded.source_tokenizer)
    batch = make_batch(model, loaded.tokenizer.vocabulary, sizes[1])
    inputs = {name: tensor for name, tensor in vars(batch).items() if isinstance(tensor, Tensor)}
    n_new = min(NEW_TOKENS, min(model.context, model.max_length() or model.context) - PROMPT)
    continues = code.auto_class in CONTINUING and n_new > 0
    if continues:
        inputs |= _prompts(batch, n_new)
    computed, version = _fresh(folder, code.auto_class, inputs)
    ours = reference(loaded, batch)
    by_case, size = differences(ours, computed["alone"], batch)
    by_case = {f"alone, {name}": value for name, value in by_case.items()}
    if "logits" in computed:
        theirs, _ = differences(ours, computed["logits"], batch)
        by_case |= {f"transformers, {name}": value for name, value in theirs.items()}
    if "tokens" in computed:
        by_case["most probable tokens"] = below_the_largest(loaded, computed["tokens"], inputs)
    reader = f"a Python without minitf, and transformers {version}" if version else "a Python without minitf"
    largest = max_or_nan(by_case.values())
    return Parity(largest, size, by_case, reader, code.architecture, "outputs", "fp32", tolerance=TOLERANCE)


def reference(loaded: LoadedModel, batch: Batch) -> Tensor:
    model = loaded.model
    if (task := task_outputs(loaded)) is None:
        return token_logits(model, batch)
    facts = {"task": task_facts(loaded, task), "texts": loaded.tokenizer.vocabulary.texts}
    return text_models.task_outputs(model, facts | {"special_ids": model.special_ids}, batch.tokens())


def _prompts(batch: Batch, n_new: int) -> dict[str, Tensor]:
    """Rows that are continued: sources, or the beginnings of texts with padding on the left."""
    new = {"n_new": torch.tensor(n_new)}
    if batch.source is not None and batch.source_mask is not None:
        return new | {"prompt": batch.source.clone(), "prompt_mask": batch.source_mask.clone()}
    lengths = batch.mask[:, :PROMPT].sum(1)
    mask = torch.arange(PROMPT - 1, -1, -1) < lengths[:, None]
    order = batch.mask[:, :PROMPT].argsort(dim=1, stable=True)
    ids = batch.ids[:, :PROMPT].gather(1, order)
    return new | {"prompt": ids, "prompt_mask": mask.long()}


def below_the_largest(loaded: LoadedModel, tokens: Tensor, inputs: Mapping[str, Tensor]) -> float:
    """By how much the logit of a generated token is below the largest one, at most; 0 of greedy decoding.

    tokens: with the prompt, of which the last ones are new, as many as `inputs` says.
    """
    model, source, n_before = loaded.model, None, tokens.shape[1] - int(inputs["n_new"])
    if model.needs_source:
        source = Tokens(inputs["prompt"], TokenPositions.of_mask(inputs["prompt_mask"]))
        mask = torch.ones_like(tokens)
    else:
        mask = torch.cat([inputs["prompt_mask"], torch.ones_like(tokens[:, n_before:])], dim=1)
    positions = TokenPositions.of_mask(mask[:, :-1])
    if loaded.recipe.objective.prompt_is_prefix(loaded.recipe.model):
        positions = positions.with_prefix(inputs["prompt_mask"].sum(1))
    mixed = model(Tokens(tokens[:, :-1], positions), source)
    logits = model.logits(mixed.y, copies=mixed.copies)[:, n_before - 1 :]
    chosen = logits.gather(2, tokens[:, n_before:, None])
    return float((logits.amax(-1, keepdim=True) - chosen).max())


def _fresh(folder: Path, auto_class: str, tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """What the code computes in a fresh Python, and the version of transformers there, "" without it."""
    with tempfile.TemporaryDirectory() as temporary:
        inputs, outputs = (str(Path(temporary) / f"{name}.safetensors") for name in ("inputs", "outputs"))
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, inputs)
        environment = {"HF_MODULES_CACHE": temporary, "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", inspect.getsource(fresh_reader)]
        done = subprocess.run(
            [*command, str(folder.resolve()), auto_class, inputs, outputs],
            cwd=temporary,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise RunFault(f"{folder}: a fresh Python cannot run it: {one_line(reason)[:300]}", where=[str(folder)])
        with safe_open(outputs, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()["transformers"]  # noqa: SIM118
