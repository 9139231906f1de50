"""A program that loads a folder of exported code where there is no minitf, and writes what its model computes.

Arguments: the folder, its class of transformers, files of inputs and of outputs.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file


@torch.no_grad()
def main(folder: Path, auto_class: str, inputs: str, outputs: str) -> None:
    sys.modules.update({"mini_tf": None})  # type: ignore[dict-item]  # an import of it raises ImportError
    batch = load_file(inputs)
    names = ("ids", "mask", "types", "source", "source_mask")
    sys.path.insert(0, str(folder))
    from modeling_minitf import load  # type: ignore[import-not-found]

    results = {"alone": load(folder)(**{name: batch[name] for name in names if name in batch})}
    try:
        import transformers
    except ImportError:
        transformers = None  # type: ignore[assignment]
    if transformers is not None:
        transformers.utils.logging.set_verbosity_error()
        model: Any = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True).eval()
        called = {"input_ids": "ids", "attention_mask": "mask", "token_type_ids": "types"}
        if "source" in batch:
            called = {"input_ids": "source", "attention_mask": "source_mask"}
            called |= {"decoder_input_ids": "ids", "decoder_attention_mask": "mask"}
        results["logits"] = model(**{key: batch[name] for key, name in called.items() if name in batch}).logits
        if "prompt" in batch:
            first = getattr(model.config, "decoder_start_token_id", None)
            model.generation_config = transformers.GenerationConfig(  # greedy, and all rows have as many tokens
                max_new_tokens=int(batch["n_new"]), pad_token_id=0, decoder_start_token_id=first
            )
            results["tokens"] = model.generate(batch["prompt"], attention_mask=batch["prompt_mask"])
    version = getattr(transformers, "__version__", "")
    tensors = {name: tensor.contiguous() for name, tensor in results.items()}
    save_file(tensors, outputs, metadata={"transformers": version})


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
