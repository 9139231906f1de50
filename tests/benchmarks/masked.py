"""masked: tokens a second of masked language modelling, with what each side does by itself: masks drawn anew, dropout
0.1.

4 layers x 256, length 128, batch 32, 8,192 tokens; 15 % of them judged. Residual dropout on both sides, none of
attention weights. Not the same draws, so the losses cannot agree to 1e-4; `step encoder` has that proof for the same
model without dropout.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

from .contest import Contest, Options, Side, answer, module, threads
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
    if options.full:
        sides.append(Side("Hugging Face Trainer compiled", module("masked", "transformers-compiled"), missing))
    yield Contest("masked LM, encoder, dropout 0.1", "tokens/s", sides)


def measure(side: str, name: str = "encoder", seconds: float = SECONDS) -> dict[str, Any]:
    if side == "minitf":
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as its command does, before torch is there
    import torch

    torch.set_num_threads(threads())
    shape = SHAPES[name]
    figures = minitf(name, seconds) if side == "minitf" else transformers(name, seconds, side.endswith("compiled"))
    return {"value": shape.tokens / figures["seconds"], "flops": shape.flops / figures["seconds"], **figures}


def minitf(name: str, seconds: float) -> dict[str, Any]:
    from mini_tf.training.loop import train

    from .loops import step_seconds
    from .own import recipe_of, training_of

    shape = SHAPES[name]
    _, training = training_of(recipe_of(shape, f"model.dropout_rate={DROPOUT}"), shape)
    return step_seconds((report.loss for report in train(training)), seconds)


def transformers(name: str, seconds: float, compiled: bool) -> dict[str, Any]:
    from transformers import BertTokenizerFast, DataCollatorForLanguageModeling

    from . import hugging_face
    from .own import first_batch

    shape = SHAPES[name]
    words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[SEP]", "[MASK]", "[CLS]"])}
    words |= {f"w{i}": i for i in range(len(words), shape.vocabulary)}
    collator = DataCollatorForLanguageModeling(BertTokenizerFast(vocab=words), mlm=True, mlm_probability=MASK_RATE)
    examples = [{"input_ids": row} for row in first_batch(shape)[0]]
    return hugging_face.run(hugging_face.model_of(shape, DROPOUT), examples, shape.batch, seconds, collator, compiled)


if __name__ == "__main__":
    answer(measure, sys.argv[1:])
