"""Attention weights of every head on a text, and what each head does."""

from functools import partial

from mini_tf.drawing.pages import page_file
from mini_tf.inspection import (
    COMMON,
    HEADS,
    INPUT_OUTPUT,
    MODEL,
    PICTURES,
    HeadOptions,
    TextViewSettings,
    View,
    ViewOutput,
    option,
)
from mini_tf.inspection._attention_files import attention_page, pack, to_json
from mini_tf.inspection._attention_maps import AttentionRequest, Sample, analyze_checkpoints, analyze_texts, notes_of
from mini_tf.inspection._attention_pictures import pictures, pictures_of_steps, plot
from mini_tf.inspection._heads import HeadSelection
from mini_tf.inspection._subjects import run_and_step, with_targets
from mini_tf.recipe.text_input import refuse_non_utf8
from mini_tf.system.errors import UsageFault
from mini_tf.system.numbers import counted
from mini_tf.trained.opening import Trained

MIN_STEPS = 3
"""With so few checkpoints a note says how more are kept."""


class Settings(HeadOptions, TextViewSettings):
    """Show the attention weights of all heads, and what each head does.

    Prints the role of every head, measured on repeated random tokens, and the maps of the most structured ones; with -o
    writes files only. FILE: a picture (.png, .svg, .pdf), a page with all heads, texts and checkpoints for a browser,
    offline (.html), numbers (.json) or weight matrices (.safetensors).
    Encoder-decoder: TEXT is the source; --query is a word of the target, or of the source with --kind encoder.self.
    """

    PANEL = COMMON
    ALIASES = (
        "attn",
        "attention-weights",
        "head",
        "heads",
        "head-view",
        "model-view",
        "neuron-view",
        "maps",
        "heatmap",
        "induction",
        "roles",
    )
    EXAMPLES = (
        'minitf inspect-attention last "The file is closed." -o heads.png',
        'minitf inspect-attention last "The file is closed." --layer 0 --describe',
    )
    FILES = (*PICTURES, ".html", ".json", ".safetensors")

    step: str | None = option(None, "--step", metavar="N|best|last|all", panel=MODEL, shown="best")
    """Which checkpoint; all: every kept one."""
    target: str | None = option(None, "--target", metavar="TEXT", panel=INPUT_OUTPUT, shown="its own translation")
    """Target text (encoder-decoder)."""
    mixers: str | None = option(None, "--kind", metavar="KIND", panel=HEADS)
    """Only encoder.self, decoder.self or cross."""
    words: bool = option(False, "--words")
    """By words: weights to the tokens of a word are summed, from them averaged."""
    query: str | None = option(None, "--query", metavar="WORD")
    """Only the weights of this query: a word, or a token index from 0."""
    describe: bool = option(False, "--describe")
    """Print sentences instead of maps."""
    full: bool = option(False, "--full")
    """Include the weight matrices in JSON."""

    @property
    def opened_step(self) -> str | None:
        return None if self.step == "all" else self.step

    def check(self, output: ViewOutput) -> None:
        for text, name in ((self.mixers, "--kind"), (self.query, "--query"), (self.target, "--target")):
            refuse_non_utf8([text or ""], name)
        if self.query == "":
            raise UsageFault("--query is empty", hint="give a word of the text or a token index")
        super().check(output)
        if output.suffixes & {*PICTURES} and (len(self.given_texts) > 1 or self.step == "all"):
            hint = "give one TEXT and --step N, or -o FILE.json"
            raise UsageFault("a picture shows one text at one checkpoint", hint=hint)
        if self.full and not output.json and not output.suffixes & {".json", ".safetensors"}:
            raise UsageFault("--full needs JSON output", hint="add --json or -o FILE.json")

    def view(self, trained: Trained, output: ViewOutput) -> View:
        """The pictures of each text are shown as soon as it is analyzed, of several checkpoints a table at the end."""
        texts, selection = self.given_texts, HeadSelection(self.mixers, self.layers, self.heads)
        by_table = self.step == "all" and not self.describe and self.query is None
        samples, entries = list[Sample](), []
        analyze = analyze_checkpoints if self.step == "all" else analyze_texts
        pairs = with_targets(trained, texts, self.target)
        for sample in analyze(trained, pairs, AttentionRequest(selection, self.words, self.query)):
            if self.describe or not (output.files or by_table):
                for picture in pictures(sample, len(texts) > 1, self.describe, selection != HeadSelection()):
                    output.show(picture)
            entries.append(to_json(sample, self.full, self.describe))
            samples.append(sample if output.suffixes - {".json"} else sample.without_weights())
        notes, difference = notes_of(samples, len(texts)), max(sample.difference for sample in samples)
        n_steps, keep_last = len({sample.step for sample in samples}), trained.recipe.checkpoint.keep_last
        if len(texts) == 2 and trained.model.needs_source:
            notes.append("two sources, each with the model's own translation; --target TEXT gives that of one")
        if self.step == "all" and n_steps <= MIN_STEPS:
            kept = f"{counted(n_steps, 'checkpoint')} of this run {'are' if n_steps > 1 else 'is'} kept"
            notes.append(f"{kept}; train with checkpoint.keep_last={10 * keep_last} to see how heads develop")
        for note in notes:
            output.say(f"note: {note}")
        output.detail(f"largest difference of logits, explicit against fused attention: {difference:.1e}")

        def page() -> bytes:
            run = f"run {trained.folder.name}" if self.step == "all" else run_and_step(trained.folder, self.step)
            return page_file(attention_page(samples, trained, run, notes))

        return View(
            {"samples": entries, "notes": notes, "difference": difference},
            list(pictures_of_steps(samples, texts)) if by_table else (),
            figure=plot(samples[0], run_and_step(trained.folder, self.step)) if output.suffixes & {*PICTURES} else None,
            files={"safetensors": partial(pack, samples, trained, self.step), "html": page},
        )
