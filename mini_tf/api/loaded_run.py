"""A trained model in Python: texts, labels, vectors, attention and metrics, by what the commands use.

Options have the names and the ranges of the commands; errors are `MinitfError`s with the commands' words, and what a
command prints as a note, such as a truncated text, is a `ResultWarning`.
"""

import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from jaxtyping import Float

from mini_tf.api.arguments_as_text import as_json, as_text, texts_in
from mini_tf.api.maps import AttentionMaps
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.hf.importing import open_model
from mini_tf.hf.model_folder import is_foreign
from mini_tf.hf.peft_files import is_adapter
from mini_tf.inspection._attention_maps import AttentionRequest, analyze_texts
from mini_tf.inspection._heads import HeadSelection
from mini_tf.inspection._subjects import run_and_step, with_targets
from mini_tf.jobs.run_metrics import RunMetrics
from mini_tf.nn.model import Model
from mini_tf.parallel.group import ProcessGroup
from mini_tf.pipelines import Prediction, pipeline_of
from mini_tf.pipelines._commands import generate_settings, open_generator, predict_options, predict_settings
from mini_tf.recipe.data import check_evaluated
from mini_tf.recipe.kind_settings.pipelines import CONTEXT, GenerateKeywords
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.text_input import refuse_non_utf8
from mini_tf.run import finding, manifest
from mini_tf.system.errors import ResultWarning, UsageFault
from mini_tf.system.hub import PREFIX, local_folder
from mini_tf.system.reporting import LineReporter
from mini_tf.trained.ensembles import open_ensemble
from mini_tf.trained.evaluating import decision_notes, other_data
from mini_tf.trained.opening import Trained
from mini_tf.trained.text_vectors import Embedder

if TYPE_CHECKING:
    from typing_extensions import Unpack

TextOrCells = str | Mapping[str, Any]
"""A text; or the cells of an example, or {"messages": [...]}."""
Thresholds = float | Mapping[str | None, float] | None
PREDICTED = 32
"""Texts per batch of `predict`."""


def load(
    run: str | Path = "last", *, step: int | str | None = None, average: int | str | None = None, device: str = "auto"
) -> "LoadedRun":
    """Open a trained model.

    run: a run folder, the name of a run in outputs/, `last` for the newest, a folder with a Hugging Face model, or
    hf:ORGANIZATION/NAME. step: N, `best` or `last`; default: the best weights. average: the mean of the last N
    checkpoints, or of the `best` ones. device: auto, cpu, cuda, cuda:N or mps.

    A Hugging Face model is read where it lies, and nothing is written; `minitf import` also proves its outputs.
    Raises RunFault if there is no such run, or if it is damaged.
    """
    if not isinstance(run, str | Path):
        raise UsageFault(f"run: must be a name or a path, got {type(run).__name__}")
    if not str(run).startswith(PREFIX) and not is_foreign(Path(run)) and not is_adapter(Path(run)):
        return LoadedRun(open_ensemble(run, step, device, average))
    if step is not None or average is not None:
        raise UsageFault(f"{run} is no run of minitf and has no checkpoints", hint="leave step and average out")
    return LoadedRun(open_model(local_folder(str(run)), device, _note))


def _note(line: str) -> None:
    """Warn at the line that called minitf."""
    names = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_stack(sys._getframe())]
    ours = [level for level, name in enumerate(names, 1) if name.startswith("mini_tf.")]
    warnings.warn(line, ResultWarning, stacklevel=ours[-1] + 1)


def _notes(lines: Iterable[str]) -> None:
    for line in lines:
        _note(line)


def _as_line(text: str | Mapping[str, Any], role: str) -> str:
    """A text, or the cells of an example, as `Reader.line` takes it: a line that begins with { is JSON."""
    if not isinstance(text, str):
        return as_json(text)
    return as_json({role: text}) if text.lstrip().startswith("{") else text


class LoadedRun:
    """A trained model, ready for use. `mini_tf.load` opens one, `mini_tf.pretrain` and `finetune` return one."""

    def __init__(self, trained: Trained) -> None:
        self.trained = trained

    @property
    def model(self) -> Model:
        """The network, an nn.Module in eval mode: hidden states (B, L, D) by `forward`, then `logits` (B, L, V)."""
        return self.trained.model

    @property
    def tokenizer(self) -> Tokenizer:
        """encode(text) -> ids (n,), decode(ids) -> text, pieces(ids) -> the text of each token."""
        return self.trained.tokenizer

    @property
    def recipe(self) -> Recipe:
        """The complete recipe."""
        return self.trained.recipe

    @property
    def folder(self) -> Path:
        """The run folder, or the folder of a Hugging Face model."""
        return self.trained.folder

    @property
    def metrics(self) -> dict[str, float | None]:
        """The metrics at the end of the training, by the names of `--assert`; {} where there was none."""
        return manifest.read(self.folder).metrics if finding.is_run(self.folder) else {}

    def __repr__(self) -> str:
        recipe, n = self.recipe, sum(parameter.numel() for parameter in self.model.parameters())
        summary = f"{recipe.model.kind}, {recipe.objective.kind}, {n:,} parameters"
        return f"LoadedRun({self.folder.name}: {summary}, step {self.trained.step}, {self.trained.setup.device})"

    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompts: TextOrCells, *, context: int | None = None, **options: "Unpack[GenerateKeywords]"
    ) -> str: ...
    @overload
    def generate(
        self, prompts: Sequence[TextOrCells], *, context: int | None = None, **options: "Unpack[GenerateKeywords]"
    ) -> list[str]: ...
    def generate(
        self,
        prompts: TextOrCells | Sequence[TextOrCells],
        *,
        context: int | None = None,
        **options: "Unpack[GenerateKeywords]",
    ) -> str | list[str]:
        """The text that `minitf generate` prints for a prompt, or one for each of several.

        A decoder continues the prompt, an encoder fills each [MASK], an encoder-decoder translates; a chat is a message
        or {"messages": [{"role": "user", "content": "..."}]}. options: those of the command, such as greedy=True,
        max_new_tokens=50, temperature=0.7, seed=1; context: maximum length of a prompt in tokens.
        """
        single = isinstance(prompts, str | Mapping)
        texts = [result["texts"][0] for result in self._generate(prompts, context, options)]
        return texts[0] if single else texts

    def generate_results(
        self,
        prompts: Sequence[TextOrCells],
        *,
        context: int | None = None,
        streamer: Callable[[str], None] | None = None,
        **options: "Unpack[GenerateKeywords]",
    ) -> list[dict[str, Any]]:
        """What `minitf generate --json` prints as `result`: all `texts` of each prompt, and what options add.

        num_samples and n_best give several texts, logprobs=N the `tokens` with their log-probabilities; an
        encoder-decoder has `scores`, an encoder the `candidates` of each mask. streamer: called with each piece of a
        decoder's text as soon as it is final.
        """
        return self._generate(prompts, context, options, streamer)

    def _generate(
        self,
        prompts: TextOrCells | Sequence[TextOrCells],
        context: int | None,
        options: GenerateKeywords,
        streamer: Callable[[str], None] | None = None,
    ) -> list[dict[str, Any]]:
        values: dict[str, Any] = {**options, **({} if context is None else {CONTEXT: context})}
        if isinstance(values.get("stop"), str):
            values["stop"] = (values["stop"],)
        how = {} if streamer is None else {"streamer": streamer}
        if streamer is not None:
            values.setdefault("stream", True)
        listed = texts_in(prompts, "prompts", mappings=True)
        texts = [prompt if isinstance(prompt, str) else as_json(prompt) for prompt in listed]
        generate_settings(self.trained)
        generator = open_generator(self.trained, values, warn=_note, **how)
        results = [output.result for output in generator.outputs(texts)]
        _notes(generator.unread.notes())
        return results

    @overload
    def predict(  # type: ignore[overload-overlap]
        self, texts: TextOrCells, *, top: int | None = None, threshold: Thresholds = None
    ) -> Prediction: ...
    @overload
    def predict(
        self, texts: Sequence[TextOrCells], *, top: int | None = None, threshold: Thresholds = None
    ) -> list[Prediction]: ...
    def predict(
        self, texts: TextOrCells | Sequence[TextOrCells], *, top: int | None = None, threshold: Thresholds = None
    ) -> Prediction | list[Prediction]:
        """The label of a text and its scores, or those of each of several: class, number, or a tag for each word.

        A text is a str or, for pairs and words, {"text": ..., "text_pair": ...}. top: also the N most probable classes,
        in `more`. threshold: no label below this probability, or {class: probability}.
        """
        predict_settings(self.trained)
        by_class = threshold if isinstance(threshold, Mapping) else {} if threshold is None else {None: threshold}
        options = predict_options(self.trained, top, list(by_class.items()))
        predictor = pipeline_of(self.trained).predictor(self.trained, options=options)
        reader = predictor.reader(other_data(self.trained))
        single = isinstance(texts, str | Mapping)
        examples = [
            reader.line(_as_line(text, reader.roles[0]), f"text {number}")
            for number, text in enumerate(texts_in(texts, "texts", mappings=True), 1)
        ]
        predictions = list[Prediction]()
        for first in range(0, len(examples), PREDICTED):
            predictions += predictor.predict(examples[first : first + PREDICTED])
        _notes([*decision_notes(self.trained), *predictor.unread.notes()])
        return predictions[0] if single else predictions

    @overload
    def embed(self, texts: str, *, normalize: bool = False) -> Float[np.ndarray, " D"]: ...
    @overload
    def embed(self, texts: Sequence[str], *, normalize: bool = False) -> Float[np.ndarray, "N D"]: ...
    def embed(self, texts: str | Sequence[str], *, normalize: bool = False) -> np.ndarray:
        """The vector (D,) of a text, or those (N, D) of several, float32: the mean of the last hidden states.

        A run with a task head pools as its head does. normalize: to length 1, so that the product of two vectors is
        their cosine similarity. UsageFault for an encoder-decoder.
        """
        embedder, single = Embedder(self.trained), isinstance(texts, str)
        vectors = embedder.embed(texts_in(texts, "texts"), normalize).numpy()
        _notes(embedder.unread.notes())
        return vectors[0] if single else vectors

    def attention(
        self,
        text: str,
        target: str | None = None,
        *,
        kind: str | None = None,
        layer: int | str | None = None,
        head: int | str | None = None,
        words: bool = False,
        query: str | int | None = None,
    ) -> AttentionMaps:
        """The attention weights of every head on a text, as `minitf inspect-attention` shows them.

        target: of an encoder-decoder; default: its own translation. kind, layer, head: only these, such as
        "encoder.self", 0, "0,2-3". words: by words in place of tokens. query: a word or an index, for the picture of
        its weights alone.
        """
        if not isinstance(text, str) or not isinstance(target, str | None):
            raise UsageFault("text and target: each must be a text")
        refuse_non_utf8([text, target or ""])
        shown = [None if value is None else str(value) for value in (layer, head, query)]
        request = AttentionRequest(HeadSelection(kind, shown[0], shown[1]), words, shown[2])
        [sample] = analyze_texts(self.trained, with_targets(self.trained, [text], target), request)
        _notes(sample.notes)
        return AttentionMaps(sample, self._title)

    @cached_property
    def _title(self) -> str:
        folder, step = self.folder, self.trained.step
        return run_and_step(folder, step) if finding.is_run(folder) else folder.name

    def evaluate(
        self,
        data: str | Path | Mapping[str, Any] | None = None,
        *,
        split: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> dict[str, float | str]:
        """The metrics that `minitf evaluate` prints, with those of baselines.

        data: a file, in any form of data.val; default: the run's own data, of which `split` is val or train. fields:
        the columns of the file, as data.fields.
        """
        where, columns = (None if value is None else as_text(value) for value in (data, fields))
        check_evaluated(where, split, columns)
        if split not in (None, "val", "train"):
            raise UsageFault(f"split {split!r}: must be val or train")
        measured = RunMetrics(self.trained, LineReporter(quiet=True))
        measured.measure(where, split, columns, ProcessGroup())
        _notes(measured.notes)
        return measured.with_baselines()
