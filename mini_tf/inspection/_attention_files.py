"""A sample of attention as JSON, its maps in a `.safetensors` file, and the page of several samples.

JSON has texts and tokens unchanged, and measures by name; for an encoder-decoder keys have a prefix: source_tokens,
target_tokens. The other file has a float32 tensor (heads, queries, keys) per layer and text, and metadata:

    s0000/decoder.self/L00   weights of the selected heads
    s0000/src.ids            token ids; .words: word of each token; .special: 1 for special tokens;
                             .offsets (T, 2): characters [first, last) of each token, -1, -1 for none
    s0000/tgt.ids, ...       the same of the target of an encoder-decoder; src is then the source

The metadata has one key, `minitf`, with canonical JSON: safetensors writes several keys in random order, and equal maps
must give equal bytes.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

import numpy as np
from safetensors.numpy import save

import mini_tf
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.drawing.pages import Page, PageMap, Scene
from mini_tf.drawing.panel import Panel
from mini_tf.inspection._attention_maps import Head, Sample
from mini_tf.inspection._attention_pictures import (
    axes_legend,
    describe_head,
    describe_query,
    masked_weights,
    most_structured,
    scale_of,
    summarize,
)
from mini_tf.inspection._capture import self_attn_mixers
from mini_tf.inspection._subjects import WeightsId, weights_id
from mini_tf.inspection._texts import TokenizedText
from mini_tf.run import manifest
from mini_tf.trained.opening import Trained


def to_json(sample: Sample, full: bool, described: bool) -> dict[str, Any]:
    """One sample. Rows and columns of a matrix are `words` if present, else `tokens`.

    full: with matrices; described: with a sentence per head.
    """
    inputs, source = sample.texts.inputs, sample.texts.source
    texts = {"text": sample.text} if source is None else {"source": source.input.text, "target": inputs.input.text}
    tokens = _tokens(inputs, "") if source is None else _tokens(source, "source_") | _tokens(inputs, "target_")
    query = {} if sample.query is None else {"query": asdict(sample.query)}
    step = {} if sample.step is None else {"step": sample.step}
    heads = [_head(sample, head, full, described) for head in sample.heads]
    return {**texts, **step, **tokens, **query, "heads": heads}


def _tokens(text: TokenizedText, prefix: str) -> dict[str, Any]:
    words = {"words": text.words.texts, "word_of_token": text.words.of_token} if text.by_words else {}
    return {f"{prefix}{name}": value for name, value in {"tokens": text.tokens, "ids": text.input.ids, **words}.items()}


def _head(sample: Sample, head: Head, full: bool, described: bool) -> dict[str, Any]:
    scores = {name: {"score": score.mean, "error": score.error} for name, score in head.scores.items()}
    fields: dict[str, Any] = {**head.index._asdict(), **head.measures, "role": head.role, "role_scores": scores}
    if sample.query is not None:
        fields["query_weights"] = head.weights[sample.query.index].tolist()
    if described:
        fields["description"] = describe_query(head, sample) if sample.query else describe_head(head, sample.unit)
    if full:
        fields["matrix"] = head.weights.tolist()
    return fields


FORMAT = 1


def pack(samples: Sequence[Sample], trained: Trained, step: str | None) -> bytes:
    """The file's bytes; `step`: value of --step, for samples without a step."""
    steps = [step if sample.step is None else sample.step for sample in samples]
    weights = {step: weights_id(trained.folder, step) for step in dict.fromkeys(steps)}
    tensors: dict[str, np.ndarray] = {}
    for number, sample in enumerate(samples):
        tensors |= {f"s{number:04d}/{name}": tensor for name, tensor in _tensors(sample, trained).items()}
    metadata = _metadata(samples, trained, [weights[step] for step in steps])
    canonical = json.dumps(metadata, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return bytes(save(tensors, metadata={"minitf": canonical}))


def _tensors(sample: Sample, trained: Trained) -> dict[str, np.ndarray]:
    inputs, source = sample.texts.inputs, sample.texts.source
    tensors = _text_tensors(inputs, trained.tokenizer, "src")
    if source is not None:
        tensors = _text_tensors(source, trained.source_tokenizer, "src") | _text_tensors(
            inputs, trained.tokenizer, "tgt"
        )
    for (kind, layer), heads in groupby(sample.heads, key=lambda head: head.index[:2]):
        tensors[f"{kind}/L{layer:02d}"] = np.stack([head.weights for head in heads])
    return tensors


def _text_tensors(text: TokenizedText, tokenizer: Tokenizer, name: str) -> dict[str, np.ndarray]:
    ids = np.array(text.input.ids, np.int32)
    special = np.isin(ids, sorted(tokenizer.vocabulary.special_ids)).astype(np.uint8)
    offsets = np.array([span or (-1, -1) for span in text.input.spans], np.int32)
    tensors: dict[str, np.ndarray] = {"ids": ids, "special": special, "offsets": offsets}
    if text.by_words:
        tensors["words"] = np.array(text.words.of_token, np.int32)
    return {f"{name}.{part}": tensor for part, tensor in tensors.items()}


def _metadata(samples: Sequence[Sample], trained: Trained, weights: Sequence[WeightsId]) -> dict[str, Any]:
    """weights: the weights of each sample."""
    settings = trained.recipe.model_dump(mode="json")["model"]
    model = {
        "run": trained.folder.name,
        "run_id": manifest.read(trained.folder).run_id,
        "weights": [checkpoint._asdict() for checkpoint in dict.fromkeys(weights)],
        "settings": settings,
    }
    has_source = samples[0].texts.source is not None
    return {
        "format": "minitf-attn",
        "version": FORMAT,
        "minitf": mini_tf.__version__,
        "model": model,
        "tokenizer": {"sha256": trained.tokenizer.hash},
        **({"source_tokenizer": {"sha256": trained.source_tokenizer.hash}} if has_source else {}),
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
            _sample_metadata(f"s{n:04d}", sample, weights_of_sample.step)
            for n, (sample, weights_of_sample) in enumerate(zip(samples, weights, strict=True))
        ],
    }


def _sample_metadata(name: str, sample: Sample, step: int) -> dict[str, Any]:
    inputs, source = sample.texts.inputs, sample.texts.source
    texts = {"src": inputs} if source is None else {"src": source, "tgt": inputs}
    described = {side: _text_metadata(text) for side, text in texts.items()}
    heads: dict[str, list[int]] = {}
    for head in sample.heads:
        heads.setdefault(f"{head.index.kind}/L{head.index.layer:02d}", []).append(head.index.head)
    return {"id": name, "step": step, **described, "unit": sample.unit, "heads": heads, "notes": sample.notes}


def _text_metadata(text: TokenizedText) -> dict[str, Any]:
    return {"text": text.input.text, "tokens": text.tokens} | ({"words": text.words.texts} if text.by_words else {})


REMEDIES = "show fewer heads (--layer, --head), words in place of tokens (--words), or one TEXT at one --step"


def attention_page(samples: Sequence[Sample], trained: Trained, run_and_step: str, notes: Sequence[str] = ()) -> Page:
    """A scene per text and checkpoint, open at the query, or at the most structured head."""
    scenes = [scene_of(sample) for sample in samples]
    first = samples[0]
    query = "" if first.query is None else f"/q{first.query.index}"
    head = first.heads[0] if first.query else next(iter(most_structured(first.heads)), first.heads[0])
    return Page(
        f"Attention weights, {run_and_step}",
        scenes,
        scale_of([page_map.panel.values for scene in scenes for page_map in scene.maps]),
        [*([scenes[0].at["text"]] if len({scene.at["text"] for scene in scenes}) == 1 else []), axes_legend(first)],
        [*notes, *_without_heads(trained)],
        row="query",
        column="key",
        opens=_name(head, first) + query,
        remedies=REMEDIES,
    )


def scene_of(sample: Sample) -> Scene:
    at = {"text": " → ".join(text.input.text for text in sample.texts.all)}
    maps = [
        PageMap(
            Panel(str(head.index), sample.rows(head), sample.columns(head), masked_weights(head)),
            _name(head, sample),
            head.index.kind,
            head.index.layer,
            head.index.head,
            head.role or "",
            head.measures["entropy"],
            summarize(head, sample.unit),
        )
        for head in sample.heads
    ]
    return Scene(at if sample.step is None else at | {"step": str(sample.step)}, maps)


def _name(head: Head, sample: Sample) -> str:
    """L2H5; with its kind if there are several: cross.L2H5."""
    kind, layer, number = head.index
    several = len({head.index.kind for head in sample.heads}) > 1
    return f"{f'{kind}.' if several else ''}L{layer}H{number}"


def _without_heads(trained: Trained) -> Iterator[str]:
    mixers = self_attn_mixers(trained.model)
    if layers := [str(layer) for layer, mixer in enumerate(mixers) if not mixer.has_heads]:
        named = f"layer{'s' if len(layers) > 1 else ''} {', '.join(layers)} of {len(mixers)}"
        yield f"{named} without attention heads: `minitf inspect --help` lists the views of such layers"
