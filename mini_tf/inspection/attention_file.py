"""Maps in a file, `.safetensors`: a tensor (heads, queries, keys) in float32 for each layer of each text, and what they are in one JSON.

    s0000/decoder.self/L00   weights of the chosen heads      s0000/src.ids, .words, .special   of each token: id, word, whether special
Metadata `minitf`, canonical JSON and one key alone, since the library writes several in no fixed order: equal maps give equal bytes.
"""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from safetensors.numpy import save

import mini_tf
from mini_tf.inspection.attention import Sample
from mini_tf.run import manifest
from mini_tf.run.trained import Trained

FORMAT = 1


def pack(samples: Sequence[Sample], trained: Trained, step: str | None) -> bytes:
    """The file of these samples; `step` as it was asked for."""
    tensors: dict[str, np.ndarray] = {}
    for number, sample in enumerate(samples):
        tensors |= {f"s{number:04d}/{name}": tensor for name, tensor in _tensors(sample, trained).items()}
    text = json.dumps(_metadata(samples, trained, step), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return bytes(save(tensors, metadata={"minitf": text}))


def _tensors(sample: Sample, trained: Trained) -> dict[str, np.ndarray]:
    special = np.isin(sample.ids, sorted(trained.tokenizer.vocabulary.special_ids))
    found: dict[str, np.ndarray] = {"src.ids": sample.ids, "src.special": special.astype(np.uint8)}
    if sample.words is not None:
        found["src.words"] = np.array(sample.words.of_token, np.int32)
    for (kind, layer), heads in groupby(sample.heads, key=lambda head: head.place[:2]):
        found[f"{kind}/L{layer:02d}"] = np.stack([head.weights for head in heads])
    return found


def _metadata(samples: Sequence[Sample], trained: Trained, step: str | None) -> dict[str, Any]:
    settings = trained.recipe.model_dump(mode="json")["model"]
    model = {"run": trained.folder.name, "run_id": manifest.read(trained.folder).run_id, "step": step, "settings": settings}
    return {
        "format": "minitf-attn",
        "version": FORMAT,
        "minitf": mini_tf.__version__,
        "model": model,
        "tokenizer": {"sha256": trained.tokenizer.hash},
        "capture": {
            "impl": "explicit",
            "eval": True,
            "softmax_dtype": "float32",
            "max_abs_logit_diff": max(sample.difference for sample in samples),
            "device": trained.setup.device.type,
        },
        "axes": "[head, query, key]",
        "quantity": "prob",
        "samples": [_about(number, sample) for number, sample in enumerate(samples)],
    }


def _about(number: int, sample: Sample) -> dict[str, Any]:
    source = {"text": sample.text, "tokens": sample.tokens} | ({} if sample.words is None else {"words": sample.words.texts})
    heads: dict[str, list[int]] = {}
    for head in sample.heads:
        heads.setdefault(f"{head.place.kind}/L{head.place.layer:02d}", []).append(head.place.head)
    step = {} if sample.step is None else {"step": sample.step}
    return {"id": f"s{number:04d}", **step, "src": source, "unit": sample.unit, "heads": heads, "notes": sample.notes}
