"""Maps in a file, `.safetensors`: a tensor (heads, queries, keys) in float32 for each layer of each text, and what they are in one JSON.

    s0000/decoder.self/L00   weights of the chosen heads
    s0000/src.ids            of each token its id; .words: its word; .special: whether it is special; .offsets (T, 2): the characters
                             [first, last) of the text that it stands for, -1, -1 for none
    s0000/tgt.ids, ...       the same of the target, where a model reads pairs: src is then the source
Metadata `minitf`, canonical JSON and one key alone, since the library writes several in no fixed order: equal maps give equal bytes.
"""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from safetensors.numpy import save

import mini_tf
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.inspection.checkpoints import Weights, weights_of
from mini_tf.inspection.maps.attention import Sample
from mini_tf.inspection.sides import Side
from mini_tf.run import manifest
from mini_tf.trained.opening import Trained

FORMAT = 1


def pack(samples: Sequence[Sample], trained: Trained, step: str | None) -> bytes:
    """The file of these samples; `step` as it was asked for, where they do not say theirs."""
    weights = {asked: weights_of(trained.folder, asked) for asked in dict.fromkeys(_asked(sample, step) for sample in samples)}
    tensors: dict[str, np.ndarray] = {}
    for number, sample in enumerate(samples):
        tensors |= {f"s{number:04d}/{name}": tensor for name, tensor in _tensors(sample, trained).items()}
    text = json.dumps(
        _metadata(samples, trained, [weights[_asked(sample, step)] for sample in samples]),
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    )
    return bytes(save(tensors, metadata={"minitf": text}))


def _tensors(sample: Sample, trained: Trained) -> dict[str, np.ndarray]:
    own, source = sample.sides.own, sample.sides.source
    found = _side(own, trained.tokenizer, "src")
    if source is not None:
        found = _side(source, trained.source_tokenizer, "src") | _side(own, trained.tokenizer, "tgt")
    for (kind, layer), heads in groupby(sample.heads, key=lambda head: head.place[:2]):
        found[f"{kind}/L{layer:02d}"] = np.stack([head.weights for head in heads])
    return found


def _side(side: Side, tokenizer: Tokenizer, name: str) -> dict[str, np.ndarray]:
    ids = np.array(side.given.ids, np.int32)
    special = np.isin(ids, sorted(tokenizer.vocabulary.special_ids))
    offsets = np.array([span or (-1, -1) for span in side.given.spans], np.int32)
    found: dict[str, np.ndarray] = {f"{name}.ids": ids, f"{name}.special": special.astype(np.uint8), f"{name}.offsets": offsets}
    if side.by_words:
        found[f"{name}.words"] = np.array(side.words.of_token, np.int32)
    return found


def _asked(sample: Sample, step: str | None) -> int | str | None:
    return step if sample.step is None else sample.step


def _metadata(samples: Sequence[Sample], trained: Trained, weights: Sequence[Weights]) -> dict[str, Any]:
    """`weights`: those that each sample was read with."""
    settings = trained.recipe.model_dump(mode="json")["model"]
    steps = [one._asdict() for one in dict.fromkeys(weights)]
    model = {"run": trained.folder.name, "run_id": manifest.read(trained.folder).run_id, "weights": steps, "settings": settings}
    return {
        "format": "minitf-attn",
        "version": FORMAT,
        "minitf": mini_tf.__version__,
        "model": model,
        "tokenizer": {"sha256": trained.tokenizer.hash},
        **({"source_tokenizer": {"sha256": trained.source_tokenizer.hash}} if samples[0].sides.source is not None else {}),
        "capture": {
            "impl": "explicit",
            "eval": True,
            "softmax_dtype": "float32",
            "max_abs_logit_diff": max(sample.difference for sample in samples),
            "device": trained.setup.device.type,
        },
        "axes": "[head, query, key]",
        "quantity": "prob",
        "samples": [_about(f"s{n:04d}", sample, own.step) for n, (sample, own) in enumerate(zip(samples, weights, strict=True))],
    }


def _about(name: str, sample: Sample, step: int) -> dict[str, Any]:
    own, source = sample.sides.own, sample.sides.source
    texts = {"src": _text(own)} if source is None else {"src": _text(source), "tgt": _text(own)}
    heads: dict[str, list[int]] = {}
    for head in sample.heads:
        heads.setdefault(f"{head.place.kind}/L{head.place.layer:02d}", []).append(head.place.head)
    return {"id": name, "step": step, **texts, "unit": sample.unit, "heads": heads, "notes": sample.notes}


def _text(side: Side) -> dict[str, Any]:
    return {"text": side.given.text, "tokens": side.tokens} | ({"words": side.words.texts} if side.by_words else {})
