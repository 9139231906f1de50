"""`minitf generate`: text out of a trained decoder."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from mini_tf.cli.console import Console, command
from mini_tf.cli.options import DEVICE, RUN, STEP


@command
def generate(
    console: Console,
    run: RUN,
    prompts: Annotated[list[str] | None, typer.Argument(metavar="[PROMPT ...]", help="Texts to continue; else lines of stdin.")] = None,
    input: Annotated[Path | None, typer.Option("-i", "--input", metavar="FILE", help="Read prompts by line from a file.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option("--max-new-tokens", min=1, help="Most tokens to write.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", min=0.0, max=100.0, help="0: always the likeliest.")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", min=1, help="Draw from so many of the likeliest tokens.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="As --temperature 0.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="Decides the draws.")] = 0,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """Continue each prompt; only the continuation is printed. A line of stdin or FILE gives a line, with newlines as \\n."""
    from mini_tf.errors import RunFault, UsageFault
    from mini_tf.generation.writing import write
    from mini_tf.run.trained import open_trained

    if greedy and temperature not in (None, 0.0):
        raise UsageFault(f"--greedy is --temperature 0; --temperature {temperature:g} was given too")
    if prompts and input is not None:
        raise UsageFault(f"prompts were given and --input {input} too", hint="give one of them")
    for prompt in prompts or []:
        if any("\ud800" <= character <= "\udfff" for character in prompt):  # how Python hands on bytes that are no text
            raise UsageFault(f"a prompt is not UTF-8: {prompt}")
    trained = open_trained(run, step, device)
    if trained.recipe.model.READS != "left":
        raise RunFault(f"{trained.folder.name} is an encoder, which does not continue a text", where=[str(trained.folder)])
    asked = {"max_new_tokens": max_new_tokens, "temperature": 0.0 if greedy else temperature, "top_k": top_k}
    wish = trained.recipe.generate.model_copy(update={name: value for name, value in asked.items() if value is not None})
    by_line = input is not None or not (prompts or sys.stdin.isatty())
    for prompt in _lines(input) if by_line else prompts or [""]:
        recipe = trained.recipe.model_copy(update={"generate": wish.model_copy(update={"prompt": prompt})})
        text = write(trained.model, trained.tokenizer, recipe, seed)
        if console.json:
            console.emit_json(run=trained.folder, result={"prompt": prompt, "texts": [text]})
        else:
            console.print_product(text.replace("\n", "\\n") if by_line else text)


def _lines(file: Path | None) -> Iterator[str]:
    """The lines of a file, or of stdin each as it comes: whoever writes it may wait for the answer before writing the next."""
    from mini_tf.errors import DataFault

    if file is None:
        yield from _decoded(sys.stdin.buffer, "stdin")
        return
    try:
        with file.open("rb") as lines:
            yield from _decoded(lines, str(file))
    except OSError as error:
        raise DataFault(f"--input {file}: {error.strerror}", where=[str(file)]) from error


def _decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    from mini_tf.errors import DataFault

    for number, line in enumerate(lines, 1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataFault(f"line {number} is not UTF-8 (byte {error.start + 1})", where=[f"{name}:{number}"]) from error
