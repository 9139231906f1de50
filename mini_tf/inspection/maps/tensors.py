"""Attention maps in a `.safetensors` file: a float32 tensor (heads, queries, keys) per layer and text, and metadata.

    s0000/decoder.self/L00   weights of the selected heads
    s0000/src.ids            token ids; .words: word of each token; .special: 1 for special tokens;
                             .offsets (T, 2): characters [first, last) of each token, -1, -1 for none
    s0000/tgt.ids, ...       the same of the target of an encoder-decoder; src is then the source

The metadata has one key, `minitf`, with canonical JSON: safetensors writes several keys in random order, and equal maps
must give equal bytes.
"""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from safetensors.numpy import save

import mini_tf
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.inspection.checkpoints import WeightsId, weights_id
from mini_tf.inspection.maps.attention import Sample
from mini_tf.inspection.tokenized_texts import TokenizedText
from mini_tf.run import manifest
from mini_tf.trained.opening import Trained

FORMAT = 1


def pack(samples: Sequence[Sample], trained: Trained, step: str | None) -> bytes:
    """The file's bytes; `step`: value of --step, for samples without a step."""
    weights = {
        one: weights_id(trained.folder, one) for one in dict.fromkeys(_step_of(sample, step) for sample in samples)
    }
    tensors: dict[str, np.ndarray] = {}
    for number, sample in enumerate(samples):
        tensors |= {f"s{number:04d}/{name}": tensor for name, tensor in _tensors(sample, trained).items()}
    metadata = json.dumps(
        _metadata(samples, trained, [weights[_step_of(sample, step)] for sample in samples]),
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    )
    return bytes(save(tensors, metadata={"minitf": metadata}))


def _tensors(sample: Sample, trained: Trained) -> dict[str, np.ndarray]:
    own, source = sample.texts.own, sample.texts.source
    found = _text_tensors(own, trained.tokenizer, "src")
    if source is not None:
        found = _text_tensors(source, trained.source_tokenizer, "src") | _text_tensors(own, trained.tokenizer, "tgt")
    for (kind, layer), heads in groupby(sample.heads, key=lambda head: head.index[:2]):
        found[f"{kind}/L{layer:02d}"] = np.stack([head.weights for head in heads])
    return found


def _text_tensors(text: TokenizedText, tokenizer: Tokenizer, name: str) -> dict[str, np.ndarray]:
    ids = np.array(text.input.ids, np.int32)
    special = np.isin(ids, sorted(tokenizer.vocabulary.special_ids))
    offsets = np.array([span or (-1, -1) for span in text.input.spans], np.int32)
    found: dict[str, np.ndarray] = {
        f"{name}.ids": ids,
        f"{name}.special": special.astype(np.uint8),
        f"{name}.offsets": offsets,
    }
    if text.by_words:
        found[f"{name}.words"] = np.array(text.words.of_token, np.int32)
    return found


def _step_of(sample: Sample, step: str | None) -> int | str | None:
    return step if sample.step is None else sample.step


def _metadata(samples: Sequence[Sample], trained: Trained, weights: Sequence[WeightsId]) -> dict[str, Any]:
    """weights: the weights of each sample."""
    settings = trained.recipe.model_dump(mode="json")["model"]
    steps = [one._asdict() for one in dict.fromkeys(weights)]
    model = {
        "run": trained.folder.name,
        "run_id": manifest.read(trained.folder).run_id,
        "weights": steps,
        "settings": settings,
    }
    return {
        "format": "minitf-attn",
        "version": FORMAT,
        "minitf": mini_tf.__version__,
        "model": model,
        "tokenizer": {"sha256": trained.tokenizer.hash},
        **(
            {"source_tokenizer": {"sha256": trained.source_tokenizer.hash}}
            if samples[0].texts.source is not None
            else {}
        ),
        "capture": {
            "impl": "explicit",
            "eval": True,
            "softmax_dtype": "float32",
            "max_abs_logit_diff": max(sample.difference for sample in samples),
            "device": trained.setup.device.type,
        },
        "axes": "[head, query, key]",
        "quantity": "prob",
        "samples": [
            _sample_metadata(f"s{n:04d}", sample, own.step)
            for n, (sample, own) in enumerate(zip(samples, weights, strict=True))
        ],
    }


def _sample_metadata(name: str, sample: Sample, step: int) -> dict[str, Any]:
    own, source = sample.texts.own, sample.texts.source
    texts = (
        {"src": _text_metadata(own)} if source is None else {"src": _text_metadata(source), "tgt": _text_metadata(own)}
    )
    heads: dict[str, list[int]] = {}
    for head in sample.heads:
        heads.setdefault(f"{head.index.kind}/L{head.index.layer:02d}", []).append(head.index.head)
    return {"id": name, "step": step, **texts, "unit": sample.unit, "heads": heads, "notes": sample.notes}


def _text_metadata(text: TokenizedText) -> dict[str, Any]:
    return {"text": text.input.text, "tokens": text.tokens} | ({"words": text.words.texts} if text.by_words else {})
