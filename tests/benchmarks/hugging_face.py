"""Hugging Face's side: GPT-2 and BERT under its Trainer, timed by a callback."""

import tempfile
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from . import weights
from .contest import device
from .loops import BETAS, CLIP, LR, Batch, enough, figures
from .shapes import Shape


def model_of(shape: Shape, dropout: float = 0.0) -> Any:
    """GPT-2 or BERT with weights of its own; dropout where minitf has it: the embeddings and what is added to the
    residual stream.
    """
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

    if shape.masked:
        return BertForMaskedLM(
            BertConfig(
                vocab_size=shape.vocabulary, hidden_size=shape.d_model, num_hidden_layers=shape.n_layers,
                num_attention_heads=shape.n_heads, intermediate_size=4 * shape.d_model,
                max_position_embeddings=shape.context,
                hidden_dropout_prob=dropout, attention_probs_dropout_prob=0.0,
            )
        )  # fmt: skip
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=shape.vocabulary, n_positions=shape.context, n_embd=shape.d_model, n_layer=shape.n_layers,
            n_head=shape.n_heads,
            activation_function="gelu", resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=0.0, bos_token_id=None,
            eos_token_id=None,
        )
    )  # fmt: skip


def trainer(shape: Shape, reference: nn.Module, batch: Batch, seconds: float, compiled: bool) -> dict[str, Any]:
    """Figures of the Trainer on the plain model's weights and batch. GPT-2's biases are 0 at the start; it has to learn
    them.
    """
    ids, labels, at = batch
    model = model_of(shape)
    weights.copy(reference, model, weights.HF_BERT if shape.masked else weights.NANOGPT, transposed=not shape.masked)
    asked = torch.full((ids.numel(),), -100)
    asked[at] = labels
    asked = asked.view_as(ids)
    given = {"input_ids": ids, "labels": asked} | (
        {} if shape.masked else {"shift_labels": asked}
    )  # or it would shift them itself
    with torch.no_grad():
        first = float(model.eval()(**given).loss)
    examples = [{name: tensor[row] for name, tensor in given.items()} for row in range(len(ids))]
    return {**run(model, examples, shape.batch, seconds, compiled=compiled), "losses": [first]}


def run(
    model: Any, examples: Sequence[Any], batch: int, seconds: float, collator: Any = None, compiled: bool = False
) -> dict[str, Any]:
    """Figures of a Trainer over `examples`, each 500 times, so that no epoch ends on the way."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    ends: list[float] = []

    class Clock(TrainerCallback):
        """Stops the Trainer when there are enough steps."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            ends.append(time.perf_counter())
            control.should_training_stop = enough(ends, seconds)

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, use_cpu=device() == "cpu", bf16=device() != "cpu",
            per_device_train_batch_size=batch, max_steps=100_000, learning_rate=LR, adam_beta1=BETAS[0],
            adam_beta2=BETAS[1], weight_decay=0.0, max_grad_norm=CLIP, lr_scheduler_type="constant", report_to=[],
            save_strategy="no",
            logging_strategy="no", disable_tqdm=True, remove_unused_columns=False, torch_compile=compiled,
        )  # fmt: skip
        Trainer(
            model, arguments, train_dataset=list(examples) * 500, data_collator=collator, callbacks=[Clock()]
        ).train()
    return figures(ends)
