"""Views of a trained model: KINDS. A file here is a view, and `minitf inspect NAME` shows it.

The command is made from the settings of the view. They are read from its source, since views import torch and --help
must not. Files whose names begin with an underscore hold what several views share, or what one large view consists of.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from mini_tf.drawing.look import PICTURES as PICTURES
from mini_tf.recipe.kinds import Kind
from mini_tf.recipe.text_input import one_source, read_lines, refuse_non_utf8
from mini_tf.system.errors import UsageFault

MODEL, INPUT_OUTPUT, HEADS = "Model", "Input and output", "Layers and heads"
"""Panels of --help."""
COMMON, RESEARCH = "Common views", "Research views"
"""Panels of `minitf inspect --help`, in its order."""

Picture = Callable[..., Any]
"""A function of `drawing.terminal` with its arguments bound, except `colored` and `width`."""


@dataclass(frozen=True, eq=False)
class View:
    """Output of a view: `result` for JSON, `pictures` for the terminal, `notes` for stderr.

    figure: of `drawing.panel`, for a picture file; None if there is none. files: contents by suffix of other files
    ("pharaoh"). metrics: metrics of the JSON output, which --assert can bound.
    """

    result: dict[str, Any]
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = ()
    figure: Any = None
    files: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    metrics: Mapping[str, float | None] | None = None


def _nowhere(*_: Any) -> None:
    """Prints nothing."""


@dataclass(frozen=True)
class ViewOutput:
    """Where the output of a view goes: files of -o, or the terminal.

    json: stdout gets JSON. say: a line on stderr; detail: one that only -v shows; show: a picture, before the view is
    complete.
    """

    files: Sequence[Path] = ()
    json: bool = False
    say: Callable[[str], None] = _nowhere
    detail: Callable[[str], None] = _nowhere
    show: Callable[[Picture], None] = _nowhere

    @property
    def suffixes(self) -> set[str]:
        return {file.suffix.lower() for file in self.files}


class ViewSettings(Kind):
    """Base settings of a view. Its docstring is the help of the command, its fields are the arguments and options.

    `view` gets no model; that of `ModelViewSettings` does.
    """

    PACKAGE = "inspection"
    EXAMPLES: ClassVar[tuple[str, ...]] = ()
    """Command lines that --help shows."""
    FILES: ClassVar[tuple[str, ...]] = (".json", ".html")
    """Suffixes of files that -o writes; without any the command has no -o."""
    PANEL: ClassVar[str] = RESEARCH
    """The panel of `minitf inspect --help` that lists it."""
    METRICS: ClassVar[tuple[str, ...]] = ()
    """Metrics that --assert can bound; without any the command has no --assert."""

    def check(self, output: ViewOutput) -> None:
        """Raise UsageFault for options that contradict each other. Called before anything is opened."""

    def view(self, subject: Any, output: ViewOutput, /) -> View:
        """The numbers, tables and pictures. subject: what is looked at, such as a trained model."""
        raise NotImplementedError


def option(
    default: Any,
    *flags: str,
    metavar: str = "",
    panel: str | None = None,
    shown: str | None = None,
    completion: str | None = None,
    ge: int | None = None,
    le: int | None = None,
) -> Any:
    """A field that is an option of the command, without flags an argument; the docstring below it is its help.

    shown: what --help prints as the default. completion: a function of `cli.terminal.completion`.
    """
    written: dict[str, Any] = {
        "flags": [*flags],
        "metavar": metavar,
        "panel": panel,
        "shown": shown,
        "completion": completion,
    }
    return Field(default, ge=ge, le=le, json_schema_extra={"command": written})


class ModelViewSettings(ViewSettings):
    """A view of a trained model: `view` gets a `trained.opening.Trained`."""

    run: str = option(..., metavar="RUN", completion="run_names")
    """A run: its folder, its name in outputs/, or `last` for the newest."""
    step: str | None = option(None, "--step", metavar="N|best|last", panel=MODEL, shown="best")
    """Which checkpoint."""
    device: str = option("auto", "--device", metavar="DEVICE", panel=MODEL)
    """auto, cpu, cuda, cuda:N or mps."""

    @property
    def opened_step(self) -> str | None:
        """The checkpoint whose weights the model is given."""
        return self.step


class TokenizerViewSettings(ViewSettings):
    """A view of a tokenizer: `view` gets a `data.tokenization.tokenizer.Tokenizer`. Needs no torch."""

    source: str = option(..., metavar="RUN|FILE", completion="run_names")
    """A run, or a tokenizer.json, vocab.txt, vocab.json or a folder with one."""

    @property
    def reads_masks(self) -> bool:
        """Whether [MASK] must be read as the model of the run reads it, for which torch is imported."""
        return False


class TextOptions(ViewSettings):
    """Options of a view of texts: arguments, lines of a file, or of stdin."""

    texts: tuple[str, ...] = option((), metavar="[TEXT ...]")
    """Texts; without any, lines of stdin."""
    input: Path | None = option(None, "-i", "--input", metavar="FILE", panel=INPUT_OUTPUT)
    """Read texts from the lines of a file."""

    def check(self, output: ViewOutput) -> None:
        super().check(output)
        assert self.given_texts

    @cached_property
    def given_texts(self) -> Sequence[str]:
        """At least one text, read once; UsageFault if there is none, or both arguments and a file."""
        one_source(self.texts, self.input)
        refuse_non_utf8(self.texts)
        if not self.texts and self.input is None and sys.stdin.isatty():
            raise UsageFault("no text given", hint='give one: "a text", or -i FILE')
        texts = self.texts or tuple(read_lines(self.input))
        if not texts:
            raise UsageFault("no text given", hint=f"{self.input or 'stdin'} has no lines")
        return texts


class TextViewSettings(TextOptions, ModelViewSettings):
    """A view of a trained model on texts."""


class LayerOption(ViewSettings):
    """The option that selects layers."""

    layer: tuple[str, ...] = option((), "--layer", metavar="0,2-3,-1", panel=HEADS)
    """Only these layers, from 0; -1 is the last. Repeatable."""

    @property
    def layers(self) -> str | None:
        """One list of all layers; None: not given."""
        return ",".join(self.layer) or None


class HeadOptions(LayerOption):
    """The options that select layers and heads."""

    head: tuple[str, ...] = option((), "--head", metavar="1,3", panel=HEADS)
    """Only these heads, from 0. Repeatable."""

    @property
    def heads(self) -> str | None:
        """One list of all heads; None: not given."""
        return ",".join(self.head) or None


class StackOption(ViewSettings):
    """The option that selects a stack."""

    stack: str | None = option(None, "--stack", metavar="encoder|decoder", shown="decoder")
    """Of a model with several."""


class PairViewSettings(HeadOptions, ModelViewSettings):
    """A view of cross-attention on pairs: one source with its target, or those of data."""

    source: str | None = option(None, metavar="[SOURCE]", shown="the run's validation pairs")
    """A source text."""
    target: str | None = option(None, "--target", metavar="TEXT", panel=INPUT_OUTPUT, shown="its own translation")
    """Target text (encoder-decoder)."""
    data: str | None = option(None, "--data", metavar="DATA", panel=INPUT_OUTPUT)
    """Use the pairs of this file or corpus."""

    def check(self, output: ViewOutput) -> None:
        refuse_non_utf8([self.source or "", self.target or ""])
        if self.source is None and self.target is not None:
            raise UsageFault("--target needs a SOURCE", hint="give the source text")
        if self.source is not None and self.data is not None:
            raise UsageFault(f"both SOURCE and --data {self.data} were given", hint="give one of them")


class LabelledViewSettings(ModelViewSettings):
    """A view of documents with gold labels."""

    data: str | None = option(None, "--data", metavar="DATA", panel=INPUT_OUTPUT, shown="the run's validation data")
    """Labelled documents: world, {kind: world, seed: 1}, or a table with these columns."""
    limit: int = option(100, "--limit", metavar="N", panel=INPUT_OUTPUT, ge=2)
    """Only the first N documents."""
