"""Feed-forward layers as key-value memories: tables of triggers and votes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mini_tf.drawing.labels import label
from mini_tf.drawing.terminal import line, sentence, table
from mini_tf.inspection import (
    INPUT_OUTPUT,
    LayerOption,
    ModelViewSettings,
    Picture,
    StackOption,
    View,
    ViewOutput,
    option,
)
from mini_tf.inspection._heads import select_stack
from mini_tf.inspection._memory_layers import Layers, MemoryIndex, memory_layers, parse_layers, parse_memories
from mini_tf.nn.layers.head import OutputLayer
from mini_tf.nn.model_stack import UNITS, ModelStack
from mini_tf.papers.key_value_memories.layer_report import LayerReport, report_layers, strengths, strongest, top_votes
from mini_tf.papers.key_value_memories.logit_split import split_view
from mini_tf.papers.key_value_memories.rows import UNKNOWN, Excerpt, corpus_rows, excerpt, predicts_following
from mini_tf.papers.key_value_memories.triggers import Triggers, find_triggers
from mini_tf.recipe.text_input import refuse_non_utf8
from mini_tf.system.errors import DataFault, UsageFault
from mini_tf.trained.opening import Trained

STRONGEST = 2
"""Memories of each layer that are shown unless some are chosen."""
HEADERS = ("layer", "memories", "active", "agreement", "chance", "sd", "without last", "without first")
VOTES = (
    "votes: the most probable tokens by softmax(v E), with value v and output embedding E; the final norm is left out"
)
LEGEND = {
    "active": "share of the coefficients above 0, over all tokens",
    "agreement": "share of the memories whose most probable token follows their first trigger",
    "chance": "mean of this share (sd: standard deviation) with the votes shuffled over the memories",
    "without last": "change of the mean coefficient of the first triggers without their last, or first, token",
}


class Settings(LayerOption, StackOption, ModelViewSettings):
    """Show feed-forward layers as key-value memories: what triggers each memory, and what its value votes for.

    Prints for each layer how often the most probable token of a value follows the text that activates the memory most,
    beside chance, and the strongest memories, or those chosen. With --text alone no corpus is read.
    """

    ALIASES = ("ffn", "feed-forward", "memories", "mlp", "neurons")
    EXAMPLES = (
        "minitf inspect memory last --corpus my.txt",
        "minitf inspect memory last --memory 3:511 --memory 2:0-9 --top 10",
        'minitf inspect memory last --text "The file is"',
    )

    corpus: str | None = option(None, "--corpus", metavar="DATA", panel=INPUT_OUTPUT, shown="the run's data.train")
    """Texts of any size, as data.train: files, a built-in corpus."""
    limit: int | None = option(None, "--limit", metavar="N", panel=INPUT_OUTPUT, ge=1)
    """Only the first N documents."""
    memories: tuple[str, ...] = option((), "--memory", metavar="L:I")
    """Only memory I of layer L, from 0; both may be lists, 0:3,5-7. Repeatable."""
    top: int = option(5, "--top", metavar="N", ge=1, le=1000)
    """Triggers and votes of each memory, and memories of --text."""
    text: str | None = option(None, "--text", metavar="TEXT")
    """Split the logit of the token that the model predicts after this text."""

    def check(self, output: ViewOutput) -> None:
        refuse_non_utf8([self.text or ""], "--text")

    @property
    def reads_corpus(self) -> bool:
        """A text alone needs no corpus."""
        return (
            self.text is None
            or bool(self.memories)
            or any(setting is not None for setting in (self.corpus, self.limit, self.layers))
        )

    def view(self, trained: Trained, output: ViewOutput) -> View:
        """Triggers and votes of memories with a report by layer, and the parts of a prediction.

        Raises UsageFault if the stack has no memories of tokens, or a text cannot be split.
        """
        stacks = [model_stack for model_stack in trained.model.stacks() if model_stack.rows not in UNITS]
        if not stacks:
            message = (
                f"{trained.folder.name}: no stack has hidden states of tokens, which trigger memories"
                f" ({trained.recipe.model.kind})"
            )
            raise UsageFault(message, hint="use a model with an output per token")
        model_stack = select_stack(stacks, self.stack, trained.recipe.model.kind)
        layers = memory_layers(model_stack.stack, trained.folder.name)
        chosen = parse_memories(self.memories, layers)
        of_layers = parse_layers(self.layers, layers) if self.layers is not None or not chosen else []
        selected = {
            layer: part for layer, part in layers.items() if layer in {*of_layers, *(memory.layer for memory in chosen)}
        }
        split = None if self.text is None else split_view(trained, self.text, self.top)
        if not self.reads_corpus:
            assert split is not None
            return split
        triggers = find_triggers(
            trained, model_stack, selected, corpus_rows(trained, self.corpus, model_stack, self.limit), self.top
        )
        if not triggers.n_tokens:
            raise DataFault(
                "the corpus has no tokens" if self.corpus is None else f"--corpus {self.corpus}: it has no tokens"
            )
        reports = report_layers(trained, model_stack, selected, triggers)
        memories = [
            _Memory.of(trained, model_stack, selected, triggers, memory)
            for memory in chosen or strongest(selected, triggers, STRONGEST)
        ]
        notes = [
            *_notes(trained, model_stack, reports, any(part.gated for part in selected.values())),
            *(split.notes if split else ()),
        ]
        result = {
            "stack": model_stack.attention.partition(".")[0],
            "rows": triggers.n_rows,
            "tokens": triggers.n_tokens,
            "layers": [report.to_json() for report in reports],
            "memories": [memory.to_json() for memory in memories],
            **(split.result if split else {}),
            "notes": notes,
        }
        pictures = [
            *_table(reports, triggers, has_votes=_has_votes(trained, model_stack)),
            *(model_stack for memory in memories for model_stack in memory.pictures()),
        ]
        pictures += [partial(sentence, ""), *split.pictures] if split else []
        return View(result, pictures, notes)


def _notes(trained: Trained, model_stack: ModelStack, reports: Sequence[LayerReport], gated: bool) -> Iterator[str]:
    objective, model = trained.recipe.objective, trained.model
    if not _has_votes(trained, model_stack):
        reason = (
            f"{objective.kind} predicts no tokens"
            if model_stack.name == model.stacks()[0].name
            else "it is not before the output layer"
        )
        yield f"values of this stack vote for no tokens: {reason}"
    elif not (isinstance(model.head, OutputLayer) and model.head.is_linear):
        yield "votes: the values pass through the whole output layer, which is not linear: they do not add up"
    if not model_stack.stack.causal:
        yield (
            "attention is bidirectional: a coefficient also depends on the tokens after the trigger, so none are"
            " removed"
        )
    if not predicts_following(trained, model_stack):
        yield "without agreement: the model does not predict the next token from this stack"
    if gated:
        yield "coefficients of a gated activation have either sign; triggers have the largest positive ones"
    if never := [f"{report.never_active} of layer {report.layer}" for report in reports if report.never_active]:
        yield f"memories that were never active: {', '.join(never)}"


def _has_votes(trained: Trained, model_stack: ModelStack) -> bool:
    return model_stack.name == trained.model.stacks()[0].name and "tokens" in trained.recipe.objective.PREDICTS


def _table(reports: Sequence[LayerReport], triggers: Triggers, has_votes: bool) -> Iterator[Picture]:
    """Columns without any value are left out."""
    rows = []
    for report in reports:
        agreed = report.agreement
        shares = (
            ("", "", "") if agreed is None else ("" if math.isnan(value) else f"{value:.2%}" for value in agreed[1:])
        )
        changes = ("" if value is None else f"{value:+.1%}" for value in (report.without_last, report.without_first))
        rows.append([str(report.layer), str(report.memories), f"{report.active:.1%}", *shares, *changes])
    shown = [column for column in range(len(HEADERS)) if any(row[column] for row in rows)]
    headers = [HEADERS[column] for column in shown]
    yield partial(table, headers, [[row[column] for column in shown] for row in rows])
    meanings = [f"{name}: {meaning}" for name, meaning in LEGEND.items() if name in headers] + [VOTES] * has_votes
    yield partial(sentence, "; ".join(meanings) + ".")
    yield partial(sentence, f"{triggers.n_tokens:,} tokens in {triggers.n_rows:,} rows.")


@dataclass(frozen=True)
class _Memory:
    """votes: tokens as strings, with probabilities. strength: norm of what the memory adds at its first trigger."""

    memory: MemoryIndex
    strength: float
    triggers: list[tuple[float, Excerpt]]
    votes: list[tuple[str, float]]

    @classmethod
    def of(
        cls, trained: Trained, model_stack: ModelStack, layers: Layers, triggers: Triggers, memory: MemoryIndex
    ) -> "_Memory":
        part, top = layers[memory.layer], triggers.top[memory.layer].k
        tokenizer = trained.source_tokenizer if model_stack.rows == "source" else trained.tokenizer
        memory_triggers = [
            (
                trigger.coefficient,
                excerpt(tokenizer, trigger.prefix, None if trigger.following == UNKNOWN else trigger.following),
            )
            for trigger in triggers.of(memory)
        ]
        votes = top_votes(trained.model, part.values[memory.number], top) if _has_votes(trained, model_stack) else []
        pieces = trained.tokenizer.pieces([id for id, _ in votes])
        strength = float(strengths(layers, triggers, memory.layer)[memory.number])
        return cls(memory, strength, memory_triggers, [*zip(pieces, (p for _, p in votes), strict=True)])

    def to_json(self) -> dict[str, Any]:
        triggers = [{"coefficient": coefficient, **trigger._asdict()} for coefficient, trigger in self.triggers]
        votes = [{"token": token, "p": p} for token, p in self.votes]
        return {
            "layer": self.memory.layer,
            "memory": self.memory.number,
            "strength": self.strength,
            "triggers": triggers,
            "votes": votes,
        }

    def pictures(self) -> Iterator[Picture]:
        yield partial(sentence, "")
        votes = "  ".join(label(token) for token, _ in self.votes)
        yield partial(line, f"memory {self.memory}  votes: {votes}" if votes else f"memory {self.memory}")
        if not self.triggers:
            yield partial(sentence, "It was never active.")
            return
        rows: list[list[str | float | None]] = []
        for coefficient, trigger in self.triggers:
            rows.append([coefficient, trigger.shown(), *([] if trigger.next is None else [label(trigger.next)])])
        yield partial(table, ["coefficient", "trigger", "next"][: len(rows[0])], rows)
