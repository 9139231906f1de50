"""`minitf generate`: text out of a trained model: a decoder continues prompts, an encoder fills their [MASK]s."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.console import Console, command
from mini_tf.cli.generate.continuing import Continue
from mini_tf.cli.generate.filling import Fill
from mini_tf.cli.generate.lines import ahead_by_default, answer_lines
from mini_tf.cli.generate.loop import prompt_loop
from mini_tf.cli.generate.stop_strings import stops
from mini_tf.cli.lines import one_source, refuse_broken
from mini_tf.cli.options import AVERAGE, DEVICE, RUN, STEP
from mini_tf.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.run.trained import Trained


@command
def generate(
    console: Console,
    run: RUN,
    prompts: Annotated[list[str] | None, typer.Argument(metavar="[PROMPT ...]", help="Texts to continue; else lines of stdin.")] = None,
    input: Annotated[Path | None, typer.Option("-i", "--input", metavar="FILE", help="Read prompts by line from a file.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option("--max-new-tokens", metavar="N", help="Most tokens to write.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", metavar="T", help="0: always the likeliest.")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", metavar="K", help="Draw from the K likeliest; encoder: name K (5).")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", metavar="P", help="Draw from the fewest that sum to P.")] = None,
    min_p: Annotated[float | None, typer.Option("--min-p", metavar="P", help="Draw from those with P of the likeliest's.")] = None,
    repetition_penalty: Annotated[float | None, typer.Option("--repetition-penalty", metavar="X", help="1: none.")] = None,
    num_samples: Annotated[int | None, typer.Option("--num-samples", metavar="N", min=1, max=10_000, help="Texts a prompt.")] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", metavar="TEXT", help="End before this; \\n, \\t and \\\\ are read.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, max=2**63 - 1, help="Decides the draws (0).")] = None,
    greedy: Annotated[bool | None, typer.Option("--greedy", help="As --temperature 0.")] = None,
    logprobs: Annotated[int | None, typer.Option("--logprobs", metavar="N", min=0, max=1000, help="Also of the N likeliest.")] = None,
    stream: Annotated[bool | None, typer.Option("--stream/--no-stream", help="Print text as it is written.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", metavar="N", min=1, max=4096, help="Texts at once.")] = None,
    longest: Annotated[int | None, typer.Option("--context", metavar="N", min=1, max=2**20, help="Tokens read at most.")] = None,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
) -> int:
    """Continue each prompt, or fill its [MASK]s; a line of stdin or FILE gives an output line, in which \\n is a newline, \\\\ a backslash.

    At a terminal and without a prompt it asks for one.
    """
    from mini_tf.run.trained import open_trained

    refuse_broken(prompts or [], "a prompt")
    one_source(prompts, input, "prompts")
    options = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "stop": stops(stop) if stop else None,
        "num_samples": num_samples,
        "seed": seed,
        "greedy": greedy,
        "logprobs": logprobs,
        "stream": stream,
        "batch_size": batch_size,
    }
    given = {name: value for name, value in options.items() if value is not None}
    trained = open_trained(run, step, device, average)
    by_line = input is not None or not (prompts or sys.stdin.isatty())
    parts = (console, trained, _context(trained, longest), given, by_line)
    answer: Continue | Fill = Continue(*parts) if trained.recipe.model.READS == "left" else Fill(*parts)
    if prompts:
        answer(prompts)
    elif by_line:
        file = None if input == Path("-") else input
        answer_lines(answer, file, batch_size or ahead_by_default(file))
    else:
        return prompt_loop(console, answer)
    return 0


def _context(trained: "Trained", asked: int | None) -> int:
    """Tokens that the model reads of a text at most; positions that end can be read no farther."""
    if asked is None:
        return trained.model.context
    positions = getattr(trained.recipe.model, "positions", None)
    if getattr(positions, "ENDS", False):
        length = getattr(positions, "length", "auto")
        places = length if isinstance(length, int) else trained.model.context
        if asked > places:
            hint = "positions that run on, as rotary, alibi and sinusoidal do, would read farther"
            raise UsageFault(f"--context {asked}: the model's {getattr(positions, 'kind', '')} positions end at {places}", hint=hint)
    return asked
