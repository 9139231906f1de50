"""generation: tokens a second of 500 tokens, always the likeliest one, alone and 16 texts at a time, random weights.

GPT-2 in the shapes of `step` with 512 positions; all but litgpt, whose class computes something else, write from the
same weights, and must write the same tokens. The plain loop without a cache reads everything again for each token.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .contest import Contest, Options, Side, answer, device, module, threads
from .peers import missing_package
from .shapes import SHAPES, Shape

CONTEXT, N_TOKENS = 512, 500
SECONDS = 4.0


def contests(options: Options) -> Iterator[Contest]:
    for name in ("4x128",) if options.small else ("4x128", "6x384"):
        for rows in (1, 16):
            yield Contest(f"generation {name}, batch {rows}", "tokens/s", list(sides(name, rows, options)))


def sides(name: str, rows: int, options: Options) -> Iterator[Side]:
    def command(word: str) -> list[str]:
        return module("generation", word, name, rows)

    yield Side("minitf", command("minitf"), own=True)
    yield Side("plain torch, cached", command("cached"))
    if rows == 1:
        yield Side("plain torch, uncached", command("uncached"))
    if not options.small:
        yield Side("litgpt", command("litgpt"), missing_package("litgpt"), equal=False)


Write = Callable[[int], list[list[int]] | None]
"""Write so many tokens after each prompt; the ids of what was written, or None where they cannot be compared."""


def measure(side: str, name: str, rows: str, n_tokens: int = N_TOKENS, seconds: float = SECONDS) -> dict[str, Any]:
    """Tokens a second over all texts. Raises UnequalWork where other tokens are written than the plain model's."""
    import torch

    from .weights import UnequalWork

    torch.set_num_threads(threads())
    shape, n = replace(SHAPES[name], context=CONTEXT), int(rows)
    reference, prompts, write = prepare(side, shape, n)
    write(n_tokens // 10)
    taken: list[float] = []
    while len(taken) < 2 or sum(taken) < seconds:
        began = time.perf_counter()
        written = write(n_tokens)
        taken.append(time.perf_counter() - began)
    expected = reference.write(prompts, n_tokens, cached=True)[:, prompts.shape[1] :].tolist()
    if written is not None and written != expected:
        differ = next(
            i
            for i in range(n_tokens)
            if any(a[i : i + 1] != b[i : i + 1] for a, b in zip(written, expected, strict=True))
        )
        raise UnequalWork(f"{side}: other tokens than the plain model's, from token {differ} on: not equal work")
    median = statistics.median(taken)
    return {"value": n * n_tokens / median, "seconds": median, "repeats": len(taken)}


def prepare(side: str, shape: Shape, n: int) -> tuple[Any, Any, Write]:
    """The plain model, the prompts (n, 1) that all sides are given, and how a side writes."""
    import torch

    from .plain import plain

    tokenizer = characters(shape.vocabulary)
    reference = plain(shape).to(device())
    with torch.no_grad():
        reference.tokens.weight[sorted(tokenizer.vocabulary.special_ids)] = (
            0.0  # never the likeliest: minitf writes none of them
        )
    letters = [chr(ord("a") + i) for i in range(n)]
    prompts = torch.tensor([tokenizer.encode(letter).tolist() for letter in letters]).to(device())
    if side in ("minitf", "without graphs"):
        return reference, prompts, minitf(shape, reference, tokenizer, letters, graphs=side == "minitf")
    if side in ("cached", "uncached"):
        return reference, prompts, lambda m: reference.write(prompts, m, side == "cached")[:, 1:].tolist()
    return reference, prompts, litgpt(shape, prompts)


def characters(size: int) -> Any:
    """A tokenizer of characters with a vocabulary of `size`."""
    from mini_tf.data.tokenization.tokenizer import Tokenizer
    from mini_tf.recipe import sections

    letters = [chr(point) for point in range(ord("0"), ord("0") + 200) if chr(point).isprintable()]
    letters = sorted(letters, key=lambda letter: not "a" <= letter <= "p")
    for many in range(size, 0, -1):
        tokenizer = Tokenizer.train(sections.Tokenizer(kind="char"), ["".join(letters[:many])])
        if tokenizer.vocabulary.size == size:
            return tokenizer
    raise ValueError(f"no tokenizer of {size} characters")


def minitf(shape: Shape, reference: Any, tokenizer: Any, letters: list[str], graphs: bool) -> Write:
    from mini_tf.generation.text_generator import TextGenerator
    from mini_tf.recipe.sections import Generate

    from . import weights
    from .own import recipe_of

    recipe = recipe_of(
        shape, "data.split=tail 10%", "tokenizer.kind=char", f"runtime.graphs={'auto' if graphs else 'false'}"
    )
    model = recipe.model.build(shape.vocabulary, shape.context)
    weights.copy(reference, model.to(device()), weights.MINITF_GPT)

    def write(m: int) -> list[list[int]]:
        wish = Generate(temperature=0.0, max_new_tokens=m)
        writer = TextGenerator(model, tokenizer, recipe.model_copy(update={"generate": wish}))
        answers = writer.generate([writer.encode_prompt(letter) for letter in letters], 0, batch_size=len(letters))
        return [tokenizer.encode(written.text).tolist() for [written] in answers]

    return write


def litgpt(shape: Shape, prompts: Any) -> Write:
    import torch
    from litgpt.generate.base import batched_generate_fn, generate

    from . import loops

    model = loops.litgpt_model(shape).eval().to(device())
    model.set_kv_cache(batch_size=len(prompts))
    greedy = {"temperature": 0.0, "top_p": 0.0}

    @torch.inference_mode()
    def write(m: int) -> None:
        if len(prompts) == 1:
            generate(model, prompts[0], 1 + m, **greedy)
        else:
            for _ in batched_generate_fn(
                model, prompts, 1 + m, sample_args=greedy, include_prompt=False, include_eos=False
            ):
                pass

    return write


if __name__ == "__main__":
    answer(measure, sys.argv[1:])
