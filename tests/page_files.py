"""Pages of maps without a model, and what a file of a page holds, read independently of its script."""

import gzip
import json
import re
from base64 import b64decode
from typing import Any

import numpy as np

from mini_tf.drawing.pages import Page, PageMap, PageTable, Scene
from mini_tf.drawing.panel import Panel, Scale

HOSTILE = [
    *("</script><img src=x onerror=alert(1)>", "<!--<script>", "]]>", "\"'&", "\u2028", "\ud800", "\x1b[31m", "\u202e"),
    *("[/INST]", "{contents}", "__DATA__", "$x$", "\0", "漢字", "🙂", "", "x" * 2000),
]


def causal_map(name: str, tokens: list[str], seed: int, kind: str = "decoder.self", **fields: Any) -> PageMap:
    """Random attention weights of a causal head; what no query may attend to is blank."""
    weights = np.tril(np.random.default_rng(seed).gamma(0.3, size=(len(tokens), len(tokens))) + 1e-9)
    weights /= weights.sum(axis=1, keepdims=True)
    weights[np.triu_indices(len(tokens), 1)] = np.nan
    return PageMap(Panel(name, tokens, tokens, weights), name, kind, **fields)


def page(tokens: list[str], n_layers: int = 2, n_heads: int = 3, n_scenes: int = 2, **fields: Any) -> Page:
    """Heads on a text at several checkpoints; the first layer has roles."""
    roles = ["previous", "induction", ""]
    heads = [
        (layer, head, {"role": roles[head % 3] if not layer else "", "entropy": 0.1 + (layer * 5 + head) % 7 / 8})
        for layer in range(n_layers)
        for head in range(n_heads)
    ]
    scenes = [
        Scene(
            {"text": "a <b>text</b>", "step": str(10 * step)},
            [
                causal_map(f"L{layer}H{head}", tokens, 100 * step + 10 * layer + head, layer=layer, head=head, **more)
                for layer, head, more in heads
            ],
            [PageTable("predictions", ["token", "p"], [[f"at {10 * step}", "0.5"]])],
        )
        for step in range(n_scenes)
    ]
    return Page("A <i>page</i>", scenes, Scale(), row="query", column="key", **fields)


def contents_of(data: bytes) -> dict[str, Any]:
    """The data of a page's file."""
    [text] = re.findall(r'<script type="application/json" id="contents">(.*?)</script>', data.decode(), re.DOTALL)
    return dict(json.loads(text))


def maps_of(data: bytes) -> list[np.ndarray]:
    """The numbers of all maps in a page's file, in order; blank cells are NaN."""
    contents = contents_of(data)
    codes = np.frombuffer(gzip.decompress(b64decode(contents["codes"])), f"<u{contents['bits'] // 8}")
    found, start = [], 0
    for one in (one for scene in contents["scenes"] for one in scene["maps"]):
        shape = len(contents["labels"][one["rows"]]), len(contents["labels"][one["columns"]])
        part = codes[start : start + shape[0] * shape[1]].reshape(shape).astype(float)
        found.append(np.where(part == 0, np.nan, one["low"] + (part - 1) * one["step"]))
        start += part.size
    assert start == len(codes)
    return found
