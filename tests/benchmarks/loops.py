"""How each side trains: a generator that makes one optimizer step for each loss it gives, on the plain model's weights.

Every side clips at a norm of 1, decays nothing and takes AdamW with the same numbers, so that their losses may be
compared. What a step takes: some to warm up, then as many as fit into a few seconds; the median counts.
"""

import copy
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mini_tf.training.loop import train

from . import weights
from .contest import device
from .own import recipe_of, training_of
from .plain import decays
from .shapes import Shape

LR, BETAS, CLIP = 1e-3, (0.9, 0.95), 1.0
WARM_UP, LEAST = 4, 5
N_LOSSES = 3
"""First losses that are kept, to compare the sides by."""

Batch = tuple[Tensor, Tensor, Tensor]
LossOf = Callable[[Tensor, Tensor, Tensor], Tensor]


def enough(ends: Sequence[float], seconds: float) -> bool:
    """Whether steps that ended at these times are warm, at least LEAST, and `seconds` long."""
    return len(ends) >= WARM_UP + LEAST and ends[-1] - ends[WARM_UP - 1] >= seconds


def figures(ends: Sequence[float]) -> dict[str, Any]:
    """The median of the steps after the warm-up, and how many they are."""
    taken = [b - a for a, b in zip(ends[WARM_UP - 1 :], ends[WARM_UP:], strict=False)]
    return {"seconds": statistics.median(taken), "steps": len(taken)}


def step_seconds(losses: Iterator[float], seconds: float) -> dict[str, Any]:
    """Figures of `losses`, which makes one step for each loss it gives, and the first losses themselves."""
    first, ends = list[float](), list[float]()
    while not enough(ends, seconds):
        first.append(next(losses))
        ends.append(time.perf_counter())
    return {**figures(ends), "losses": first[:N_LOSSES]}


def minitf(shape: Shape, reference: nn.Module) -> Iterator[float]:
    """minitf's own loop, as `minitf pretrain` runs it."""
    model, training = training_of(
        recipe_of(shape, f"runtime.precision={'fp32' if device() == 'cpu' else 'bf16'}"), shape
    )
    weights.copy(reference, model, weights.MINITF_BERT if shape.masked else weights.MINITF_GPT)
    return (report.loss for report in train(training))


def plain_loop(model: nn.Module, loss_of: LossOf, batch: Batch, fused: bool) -> Iterator[float]:
    """The loop a person writes: forward, backward, clip, AdamW. fused: torch's fused AdamW, which nanoGPT does not use
    on a CPU.
    """
    model.to(device()).train()
    ids, labels, at = (tensor.to(device()) for tensor in batch)
    optimizer = torch.optim.AdamW(decays(model), lr=LR, betas=BETAS, fused=fused or None)
    while True:
        with torch.autocast("cuda", torch.bfloat16, enabled=device() != "cpu"):
            loss = loss_of(ids, labels, at)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.item()


def expected_losses(shape: Shape, reference: nn.Module, batch: Batch) -> list[float]:
    """The first losses that every side must have: by equal gradients and AdamW too, not by equal scores alone.

    Of an encoder only the very first: what is masked is drawn anew at each step.
    """
    model = copy.deepcopy(reference)
    return list(islice(plain_loop(model, model, batch, fused=True), 1 if shape.masked else N_LOSSES))


def nanogpt_model(shape: Shape, checkout: Path) -> Any:
    """The GPT of nanoGPT's model.py, with weights of its own."""
    sys.path.insert(0, str(checkout))
    import model as theirs

    return theirs.GPT(
        theirs.GPTConfig(
            block_size=shape.context, vocab_size=shape.vocabulary, n_layer=shape.n_layers, n_head=shape.n_heads,
            n_embd=shape.d_model,
            dropout=0.0, bias=False,
        )
    )  # fmt: skip


def nanogpt(shape: Shape, reference: nn.Module, checkout: Path) -> tuple[nn.Module, LossOf]:
    model = nanogpt_model(shape, checkout)
    weights.copy(reference, model, weights.NANOGPT)
    return model, lambda ids, labels, at: model(ids, labels.view_as(ids))[1]


def litgpt_model(shape: Shape) -> Any:
    """litgpt's GPT: another mathematics (rotary positions, RMSNorm, an untied head), so its weights are its own."""
    from litgpt.model import GPT, Config

    return GPT(
        Config(
            block_size=shape.context, vocab_size=shape.vocabulary, padded_vocab_size=shape.vocabulary,
            n_layer=shape.n_layers,
            n_head=shape.n_heads, n_embd=shape.d_model, rotary_percentage=1.0, parallel_residual=False, bias=False,
            norm_class_name="RMSNorm", mlp_class_name="GptNeoxMLP", intermediate_size=4 * shape.d_model,
        )
    )  # fmt: skip
