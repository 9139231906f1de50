"""Parameters by module, FLOPs per token or pair, and memory of a model."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from mini_tf.drawing.terminal import line, sentence, table
from mini_tf.inspection import COMMON, ModelViewSettings, Picture, View, ViewOutput
from mini_tf.inspection._modules import (
    ForwardFlops,
    MemoryUse,
    ModuleParameters,
    forward_flops,
    memory_of,
    merge_layers,
    module_parameters,
)
from mini_tf.system.numbers import in_bytes, in_flop
from mini_tf.trained.opening import Trained


class Settings(ModelViewSettings):
    """Show parameters by module, FLOPs per token or pair, and memory."""

    PANEL = COMMON
    ALIASES = ("architecture", "layers", "parameters", "params", "shapes", "size", "summary", "weights")
    EXAMPLES = ("minitf inspect model last",)
    FILES = ()

    device: str = "cpu"
    """The numbers are the same everywhere, and counted there."""

    def view(self, trained: Trained, output: ViewOutput) -> View:
        settings = trained.recipe.model
        parts = module_parameters(trained.model)
        total = sum(part.parameters for part in parts)
        work, memory = forward_flops(trained.model), memory_of(trained.model, trained.recipe.optimizer)
        facts = {
            "kind": settings.kind,
            "attention": [mixer.kind for mixer in getattr(settings, "attention", ())],
            "positions": getattr(getattr(settings, "positions", None), "kind", None),
            "context": trained.model.context,
            "vocabulary": trained.tokenizer.vocabulary.size,
            **(_of_source(trained) if settings.SOURCE else {}),
        }
        result = {
            **facts,
            "parameters": total,
            "parts": [_record(part, total) for part in parts],
            "flops": {
                "length": work.length,
                "per": work.per,
                "forward": work.forward,
                "of_which_scores": work.logits,
                "training": work.training,
            },
            "memory": vars(memory),
        }
        metrics = {"parameters": total, f"flops_per_{work.per}": work.forward}
        pictures: list[Picture] = [
            *_tables(facts, merge_layers(parts), total),
            *(partial(line, text, whole=True) for text in _cost(work, memory)),
        ]
        return View(result, pictures, metrics=metrics)


def _of_source(trained: Trained) -> dict[str, Any]:
    """The encoder's facts."""
    settings: Any = trained.recipe.model
    side = settings.source_stack
    return {
        "encoder": {"attention": [mixer.kind for mixer in side.attention], "positions": side.positions.kind},
        "cross_attention": None if settings.cross_attention is None else settings.cross_attention.kind,
        "source_vocabulary": trained.source_tokenizer.vocabulary.size,
    }


def _record(part: ModuleParameters, total: int) -> dict[str, Any]:
    fields = {name: value for name, value in vars(part).items() if name != "times"}
    return fields | {"share": part.parameters / total}


def _tables(facts: dict[str, Any], parts: list[ModuleParameters], total: int) -> Iterator[Picture]:
    attention = " ".join(facts["attention"])
    lines = [f"{facts['kind']} · attention {attention} · positions {facts['positions']}"]
    if (encoder := facts.get("encoder")) is not None:
        lines[0] += f" · cross {facts['cross_attention'] or 'none'}"
        lines.append(f"encoder · attention {' '.join(encoder['attention'])} · positions {encoder['positions']}")
        lines.append(f"source vocabulary {facts['source_vocabulary']:,}")
    lines += [f"context {facts['context']:,} tokens · vocabulary {facts['vocabulary']:,}", ""]
    yield from (partial(sentence, text) for text in lines)
    rows = []
    for part in parts:
        stack = "decoder." if "encoder" in facts else ""
        name = re.sub(r"^stack\.", stack, part.name).removesuffix(".part").replace(".layers.", ".")
        shapes = ["×".join(map(str, shape)) for shape in part.shapes.values()]
        shapes += ["tied"] if part.tied else []
        kind = f"{part.times} × {part.kind}" if part.times > 1 else part.kind
        rows.append([name, kind, f"{part.parameters:,}", f"{part.parameters / total:.1%}", " ".join(shapes)])
    rows.append(["total", "", f"{total:,}", "100.0%", ""])
    headers = ["module", "type", "parameters", "share", "shapes"]
    yield partial(table, headers, rows, keep=1)  # names differ at their ends


def _cost(work: ForwardFlops, memory: MemoryUse) -> list[str]:
    texts = "texts" if work.per == "token" else "sources and targets"
    lines = [
        "",
        f"compute   {in_flop(work.forward)} per {work.per} forward, {in_flop(work.logits)} of it in the output layer",
        f"          {in_flop(work.training)} per {work.per} in training, for {texts} of {work.length:,} tokens",
        f"memory    {in_bytes(memory.weights)} for weights; training needs {in_bytes(memory.training)} for weights,",
        "          gradients and optimizer state, plus activations",
    ]
    if memory.state is None:
        return [*lines, "KV cache  none: attention is bidirectional"]
    grown = f"{in_bytes(memory.state_per_token)} per token" if memory.state_per_token else "constant"
    text = "for a text" if work.per == "token" else "for a source and a target"
    return [*lines, f"KV cache  {in_bytes(memory.state)} {text} of {work.length:,} tokens, {grown}"]
