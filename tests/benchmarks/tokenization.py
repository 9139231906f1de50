"""tokenization: MB a second of encoding a text by characters and by bpe, and of learning bpe, against `tokenizers` used
directly.

Direct use means what its documentation shows: `encode` of the text, `encode_batch_fast` of its paragraphs,
`train_from_iterator` over them. minitf is given the paragraphs as the documents of a corpus. Both sides count the bytes
of the text.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .contest import Contest, Options, Side, answer, module
from .texts import text_of

LEAST_SECONDS = 2.0
SIZE = 4_000_000
"""Characters: a shorter text is repeated up to so many, a longer one is cut."""


def contests(options: Options) -> Iterator[Contest]:
    text = text_of(options)

    def sides(task: str, *peers: tuple[str, str]) -> list[Side]:
        own = Side("minitf", module("tokenization", task, "minitf", text), own=True)
        return [own, *(Side(name, module("tokenization", task, word, text)) for name, word in peers)]

    one, many = ("tokenizers, one string", "string"), ("tokenizers, a batch of paragraphs", "batch")
    for task, unit in (("char", "encoding characters"), ("bpe-2048", "encoding bpe, 2,048 tokens")):
        yield Contest(f"tokenization: {unit}", "MB/s", sides(task, one, many))
    for size in (2048, 8192):
        yield Contest(
            f"tokenization: learning bpe, {size:,} tokens", "MB/s", sides(f"train-{size}", ("tokenizers", "direct"))
        )


def measure(task: str, side: str, text: str) -> dict[str, Any]:
    paragraphs = paragraphs_of(Path(text))
    work = learning(int(task[6:]), side, paragraphs) if task.startswith("train-") else encoding(task, side, paragraphs)
    taken: list[float] = []
    while len(taken) < 2 or sum(taken) < LEAST_SECONDS:
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    size = sum(len(paragraph.encode()) for paragraph in paragraphs)
    return {"value": size / statistics.median(taken) / 1e6, "bytes": size, "repeats": len(taken)}


def paragraphs_of(path: Path) -> list[str]:
    """The text in pieces that put together are the text, each with the blank line that ends it."""
    content = path.read_text(encoding="utf-8")
    content = (content * (1 + SIZE // max(1, len(content.encode()))))[:SIZE]
    pieces = [piece + "\n\n" for piece in content.split("\n\n")]
    return [*pieces[:-1], pieces[-1][:-2]]


def encoding(task: str, side: str, paragraphs: list[str]) -> Callable[[], Any]:
    from mini_tf.data.tokenization.tokenizer import Tokenizer
    from mini_tf.recipe import sections

    settings = (
        sections.Tokenizer(kind="char") if task == "char" else sections.Tokenizer(kind="bpe", vocab_size=int(task[4:]))
    )
    ours = Tokenizer.train(settings, paragraphs)
    if side == "minitf":
        return lambda: ours.encode_batch(paragraphs)
    import tokenizers

    theirs = tokenizers.Tokenizer.from_str(ours.to_json())
    if side == "string":
        whole = "".join(paragraphs)
        return lambda: theirs.encode(whole, add_special_tokens=False).ids
    return lambda: [one.ids for one in theirs.encode_batch_fast(paragraphs, add_special_tokens=False)]


def learning(size: int, side: str, paragraphs: list[str]) -> Callable[[], Any]:
    if side == "minitf":
        from mini_tf.data.tokenization.tokenizer import Tokenizer
        from mini_tf.recipe import sections

        return lambda: Tokenizer.train(sections.Tokenizer(kind="bpe", vocab_size=size), paragraphs)
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

    alphabet = pre_tokenizers.ByteLevel.alphabet()

    def learn() -> None:
        inner = tokenizers.Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.train_from_iterator(
            paragraphs, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
        )

    return learn


if __name__ == "__main__":
    answer(measure, sys.argv[1:])
