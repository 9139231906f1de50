"""How a model learns: heads and their roles, predictions, neighbors of words and minimal pairs at every checkpoint."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F

from mini_tf.data.formats.babylm_files import GROUPS, MinimalPair, read_pairs
from mini_tf.drawing.labels import label
from mini_tf.drawing.pages import Cell, Page, PageTable, curves_of, page_file
from mini_tf.drawing.terminal import line, table
from mini_tf.generation.likelihoods import TextScorer
from mini_tf.inspection import INPUT_OUTPUT, HeadOptions, Picture, TextViewSettings, View, ViewOutput, option
from mini_tf.inspection._attention_files import attention_page, to_json
from mini_tf.inspection._attention_maps import AttentionRequest, Sample, analyze_checkpoints, notes_of
from mini_tf.inspection._attention_pictures import pictures_of_steps
from mini_tf.inspection._heads import HeadSelection
from mini_tf.inspection._subjects import with_targets
from mini_tf.run.metric_files import curve
from mini_tf.scores.intervals import pair_scores
from mini_tf.system.errors import UsageFault
from mini_tf.system.numbers import counted
from mini_tf.trained.framing import text_affixes
from mini_tf.trained.opening import Trained

PAIRS = "minimal pairs"
MOST = 5
"""Predictions and neighbors that are shown."""


class Settings(HeadOptions, TextViewSettings):
    """Show how a model learns: heads, predictions, neighbors of words and minimal pairs, at every kept checkpoint.

    With -o film.html one page has a slider over the checkpoints. Predictions are the most probable tokens after each
    TEXT, of an encoder at each [MASK]. The recipe film-nano keeps a checkpoint every 20 steps.
    """

    ALIASES = ("animation", "checkpoints", "evolution", "movie")
    EXAMPLES = (
        'minitf inspect film last "the old dogs near the river" -o film.html',
        'minitf inspect film last "the old dogs" --word dog --pairs pairs.jsonl -o film.html',
    )
    FILES = (".html", ".json")

    step: str | None = None
    neighbors: tuple[str, ...] = option((), "--word", metavar="WORD")
    """Also show the nearest neighbors of this word: tokens by the cosine similarity of their embeddings. Repeatable."""
    pairs: tuple[str, ...] = option((), "--pairs", metavar="FILE", panel=INPUT_OUTPUT)
    """Also show the accuracy on these minimal pairs, as `minitf evaluate --pairs`. Repeatable."""

    def view(self, trained: Trained, output: ViewOutput) -> View:
        """UsageFault if the model has no heads, or minimal pairs are given for an encoder-decoder."""
        if self.pairs and trained.model.needs_source:
            raise UsageFault("--pairs: an encoder_decoder gives texts no probability", hint="remove --pairs")
        pairs, texts = read_pairs(self.pairs), with_targets(trained, self.given_texts, None)
        request = AttentionRequest(HeadSelection(None, self.layers, self.heads))
        samples, tables = list[Sample](), dict[int, list[PageTable]]()
        for sample in analyze_checkpoints(trained, texts, request):  # the model has the weights of the checkpoint
            samples.append(sample)
            step = int(sample.step or 0)
            if step not in tables:
                tables[step] = [*self._tables(trained, pairs)]
            headers = ["most probable tokens", "probability"]
            tables[step].append(PageTable(f"after {sample.text}", headers, [*_predictions(trained, sample)]))
        steps, pictures = [], list[Picture]()
        for step, of_step in tables.items():
            by_title = {page_table.title: [*map(list, page_table.rows)] for page_table in of_step}
            steps.append({"step": step, "tables": by_title})
            pictures += [partial(line, f"step {step}"), *(partial(table, *page_table[1:]) for page_table in of_step)]
        notes = notes_of(samples, len(texts))
        return View(
            {"samples": [to_json(sample, False, False) for sample in samples], "steps": steps, "notes": notes},
            [*pictures_of_steps(samples, self.given_texts), *pictures],
            notes,
            files={"html": lambda: page_file(_page(trained, samples, tables, notes))},
        )

    def _tables(self, trained: Trained, pairs: Sequence[MinimalPair]) -> Iterator[PageTable]:
        for word in self.neighbors:
            yield PageTable(f"nearest neighbors of {word}", ["token", "cosine similarity"], _nearest(trained, word))
        if pairs:
            yield PageTable(PAIRS, ["minimal pairs", "pairs", "accuracy"], [*_accuracies(trained, pairs)])


@torch.no_grad()
def _predictions(trained: Trained, sample: Sample) -> Iterator[Sequence[Cell]]:
    """The most probable tokens after the text, or at each mask in it."""
    texts, input, mask = sample.texts, sample.texts.inputs.input, trained.tokenizer.vocabulary.mask
    source = texts.source and texts.source.to_tokens(trained.setup.device)
    output = trained.model(texts.inputs.to_tokens(trained.setup.device), source)
    logits = trained.model.logits(output.y, copies=output.copies)[0].float().cpu()
    p = logits.softmax(dim=-1)  # (L, V)
    if trained.recipe.model.causal:
        places = [max((i for i, span in enumerate(input.spans) if span is not None), default=len(input.ids) - 1)]
    else:
        places = [i for i, id in enumerate(input.ids) if id == mask]
        p[:, sorted(trained.tokenizer.vocabulary.special_ids)] = 0  # as `minitf generate`
    for place in places:
        top = p[place].topk(MOST)
        for token, share in zip(trained.tokenizer.pieces(top.indices.tolist()), top.values.tolist(), strict=True):
            yield [label(token), share]


def _nearest(trained: Trained, word: str) -> Sequence[Sequence[Cell]]:
    """Tokens by the cosine similarity of their embeddings with that of the word, the mean over its tokens."""
    tokenizer = trained.tokenizer
    ids = min((tokenizer.encode(text).tolist() for text in (f" {word}", word)), key=len)
    embeddings = [embedding.tokens.weight for embedding in trained.model.embeddings().values()]
    if not ids or not embeddings:
        raise UsageFault(f"--word {word}: it has no token with an embedding", hint="remove --word")
    vectors = F.normalize(embeddings[0].detach().float().cpu(), dim=1)[: tokenizer.vocabulary.size]
    cosines = vectors @ F.normalize(vectors[ids].mean(dim=0), dim=0)  # (V, D) @ (D,) -> (V,)
    cosines[[*ids, *tokenizer.vocabulary.special_ids]] = -2
    top = cosines.topk(min(MOST, len(cosines)))
    tokens = [label(token) for token in tokenizer.pieces(top.indices.tolist())]
    return [*zip(tokens, top.values.tolist(), strict=True)]


def _accuracies(trained: Trained, pairs: Sequence[MinimalPair]) -> Iterator[Sequence[Cell]]:
    """Accuracy on all pairs, and by their finest group."""
    kind = "causal" if trained.recipe.model.causal else "word"
    scorer = TextScorer(trained.model, trained.tokenizer, text_affixes(trained), kind)
    scores = scorer.texts([text for pair in pairs for text in pair[:2]])
    groups: dict[str, list[tuple[float, float]]] = {"all": []}
    for pair, good, bad in zip(pairs, scores[::2], scores[1::2], strict=True):
        names = ["all", *(pair.groups[column] for column in GROUPS[::-1] if column in pair.groups)][:2]
        for name in names:
            groups.setdefault(name, []).append((good, bad))
    for name, group_scores in groups.items():
        yield [name, str(len(group_scores)), pair_scores(*map(list, zip(*group_scores, strict=True))).accuracy]


def _page(
    trained: Trained, samples: Sequence[Sample], tables: Mapping[int, Sequence[PageTable]], notes: Sequence[str]
) -> Page:
    """The page of attention with a slider, the tables of each checkpoint, and curves over all of them."""
    page = attention_page(samples, trained, "", notes)
    scenes = [replace(scene, tables=tables[int(scene.at["step"])]) for scene in page.scenes]
    metrics = trained.folder / "metrics.jsonl"
    named = {"training": "loss", "validation": "val.loss"}
    losses = {name: dict[float, float](curve(metrics, key)) for name, key in named.items()}
    scores: dict[str, dict[float, float]] = {}
    for sample in samples:
        step = int(sample.step or 0)
        for name, score in (pair for head in sample.heads for pair in head.scores.items()):
            of_name = scores.setdefault(name, {})
            of_name[step] = max(score.mean, of_name.get(step, 0.0))
    accuracies: dict[str, dict[float, float]] = {}
    for step, of_step in tables.items():
        rows = (row for page_table in of_step if page_table.title == PAIRS for row in page_table.rows)
        for group, _, accuracy in rows:
            accuracies.setdefault(str(group), {})[step] = float(accuracy or 0)
    curves = [
        curves_of("loss", "step", losses),
        curves_of("largest score of a head on repeated random tokens, by role", "step", scores),
        curves_of("accuracy on minimal pairs", "step", accuracies),
    ]
    title = f"How {trained.folder.name} learns, {counted(len(tables), 'checkpoint')}"
    return replace(page, title=title, scenes=scenes, curves=[plot for plot in curves if plot.lines], slider="step")
