"""masked: tokens a second of masked language modelling, with what each side does by itself: masks drawn anew, dropout
0.1.

4 layers x 256, length 128, batch 32, 8,192 tokens; 15 % of them judged. Residual dropout on both sides, none of
attention weights. Not the same draws, so the losses cannot agree to 1e-4; `step encoder` has that proof for the same
model without dropout.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from .contest import Contest, Options, Side, answer, device, module, threads
from .peers import missing_package
from .shapes import MASK_RATE, SHAPES

DROPOUT = 0.1
SECONDS = 10.0


def contests(options: Options) -> Iterator[Contest]:
    missing = missing_package("transformers", "accelerate")
    sides = [
        Side("minitf", module("masked", "minitf"), own=True),
        Side("Hugging Face Trainer", module("masked", "transformers"), missing),
    ]
    yield Contest("masked LM, encoder, dropout 0.1", "tokens/s", sides)


def measure(side: str, name: str = "encoder", seconds: float = SECONDS) -> dict[str, Any]:
    if side == "minitf":
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as its command does, before torch is there
    import torch

    torch.set_num_threads(threads())
    shape = SHAPES[name]
    figures = minitf(name, seconds) if side == "minitf" else transformers(name, seconds)
    return {"value": shape.tokens / figures["seconds"], "flops": shape.flops / figures["seconds"], **figures}


def minitf(name: str, seconds: float) -> dict[str, Any]:
    from mini_tf.training.loop import train

    from .loops import step_seconds
    from .own import recipe_of, training_of

    shape = SHAPES[name]
    _, training = training_of(recipe_of(shape, f"model.dropout_rate={DROPOUT}"), shape)
    return step_seconds((report.loss for report in train(training)), seconds)


def transformers(name: str, seconds: float) -> dict[str, Any]:
    """BERT under the Trainer, timed by a callback; each row 500 times, so that no epoch ends on the way."""
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        BertTokenizerFast,
        DataCollatorForLanguageModeling,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    from .loops import BETAS, CLIP, LR, enough, figures
    from .own import first_batch

    shape, ends = SHAPES[name], list[float]()
    words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[SEP]", "[MASK]", "[CLS]"])}
    words |= {f"w{i}": i for i in range(len(words), shape.vocabulary)}
    collator = DataCollatorForLanguageModeling(BertTokenizerFast(vocab=words), mlm=True, mlm_probability=MASK_RATE)
    examples = [{"input_ids": row} for row in first_batch(shape)[0]]
    config = BertConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.d_model, num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads, intermediate_size=4 * shape.d_model, max_position_embeddings=shape.context,
        hidden_dropout_prob=DROPOUT, attention_probs_dropout_prob=0.0,
    )  # fmt: skip

    class Clock(TrainerCallback):
        """Stops the Trainer when there are enough steps."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            ends.append(time.perf_counter())
            control.should_training_stop = enough(ends, seconds)

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, use_cpu=device() == "cpu", bf16=device() != "cpu",
            per_device_train_batch_size=shape.batch, max_steps=100_000, learning_rate=LR, adam_beta1=BETAS[0],
            adam_beta2=BETAS[1], weight_decay=0.0, max_grad_norm=CLIP, lr_scheduler_type="constant", report_to=[],
            save_strategy="no", logging_strategy="no", disable_tqdm=True, remove_unused_columns=False,
        )  # fmt: skip
        model, data = BertForMaskedLM(config), examples * 500
        Trainer(model, arguments, train_dataset=data, data_collator=collator, callbacks=[Clock()]).train()
    return figures(ends)


if __name__ == "__main__":
    answer(measure, sys.argv[1:])
