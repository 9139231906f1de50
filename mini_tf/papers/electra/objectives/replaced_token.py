"""Replaced token detection (ELECTRA): a generator replaces masked tokens, the model tells which tokens were replaced.

The generator is a small masked language model, trained by maximum likelihood; no gradient passes through its samples. A
sample equal to the original token counts as original. The cost of a step is that of the model plus that of the
generator. Source: Clark et al. 2020, "ELECTRA", arXiv:2003.10555, section 2; other proposals, positions and losses are
the ablations of its sections 3.2 and 3.4.

    ELECTRA           proposal: generator, loss_on: all,    loss: binary
    ELECTRA 15%       proposal: generator, loss_on: masked, loss: binary
    Replace MLM       proposal: generator, loss_on: masked, loss: softmax
    All-Tokens MLM    proposal: generator, loss_on: all,    loss: softmax_copy
    BERT              proposal: mask,      loss_on: masked, loss: softmax
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.store import Store
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.objectives import Objective, by_settings
from mini_tf.objectives._masking import Masking, MaskingSettings
from mini_tf.objectives._token_loss import make_batch
from mini_tf.papers.electra.networks import DetectionHead, Tying, build_generator
from mini_tf.papers.electra.replacement import DISCRIMINATOR, GENERATOR, Loss, Proposal, Replacement
from mini_tf.recipe.kind_settings import ModelSettings
from mini_tf.recipe.kind_settings.objectives import Prediction
from mini_tf.recipe.kinds import Rule, Rules
from mini_tf.recipe.sections import Train
from mini_tf.system.errors import DataFault


class Settings(MaskingSettings):
    ALIASES = ("electra", "rtd", "replaced_token_detection")
    SUPPORTS = frozenset({"bidirectional"})
    PIPELINE = "replaced_token_detection"
    METRICS = (
        "accuracy",
        "generator_accuracy",
        "replaced_rate",
        "gradient_ratio",
        f"loss.{GENERATOR}",
        f"loss.{DISCRIMINATOR}",
    )

    replace: tuple[float, float, float] = (0.85, 0.0, 0.15)
    """Shares of the selected tokens that become [MASK], become a random token, stay unchanged, for the generator."""
    proposal: Literal["generator", "unigram", "uniform", "mask"] = "generator"
    """Replacements: samples of a generator, by frequency or uniform, or the masked text itself."""
    loss_on: Literal["all", "masked"] = "all"
    """Positions of the model's loss: all tokens, or the selected ones."""
    loss: Loss = "binary"
    """The model's loss: replaced or not (binary), or the original token, with a probability of copying the input or
    without."""
    generator_width: float = Field(0.25, gt=0, le=1)
    """Width of the generator as a share of the model's, in whole heads of the same size."""
    generator_depth: float = Field(1.0, gt=0, le=1)
    """Layers of the generator as a share of the model's."""
    tying: Tying = "embeddings"
    """Weights that generator and model share: none, all embeddings, or all but the heads."""
    weight: float = Field(50.0, gt=0, le=1e6)
    """Weight of the model's loss; the generator's has 1. The paper's 50 suits 30522 tokens; see gradient_ratio."""
    temperature: float = Field(1.0, gt=0, le=100)
    """Temperature of the sampling of replacements."""
    disallow_correct: bool = False
    """The original token is never sampled, so that every selected token is replaced."""
    generator_steps: int = Field(0, ge=0, le=10**12)
    """Two-stage training: steps of the generator alone, then the model begins with its weights; 0 = both together."""

    def rules(self) -> Rules:
        yield from super().rules()
        if self.proposal == "mask" and self.loss == "binary":
            yield Rule(
                "proposal", "[MASK] tells that a token was replaced; use loss: softmax or softmax_copy", ("loss",)
            )
        equal = self.generator_width == self.generator_depth == 1
        sizes = ("generator_width", "generator_depth")
        if self.tying == "all" and not equal:
            yield Rule("tying", "all needs generator_width: 1 and generator_depth: 1; or use embeddings", sizes)
        if self.generator_steps and not (self.proposal == "generator" and self.tying == "none" and equal):
            needed = "proposal: generator, tying: none, generator_width: 1 and generator_depth: 1"
            yield Rule("generator_steps",
                f"two-stage training copies the generator's weights and freezes it; it needs {needed}",
                       ("proposal", "tying", *sizes))  # fmt: skip

    def rules_with(self, model: ModelSettings, train: Train) -> Rules:
        yield from super().rules_with(model, train)
        if self.generator_steps and model.init_from is not None:
            message = (
                "two-stage training replaces the weights of model.init_from by the generator's; use 0, or remove"
                " model.init_from"
            )
            yield Rule("objective.generator_steps", message, ("model.init_from",))
        if (steps := train.known_steps) and self.generator_steps >= steps:
            message = (
                f"{self.generator_steps} steps are not fewer than the {steps} of the run, so the model would not be"
                " trained; use fewer"
            )
            yield Rule("objective.generator_steps", message, ("train.steps", "train.tokens"))
        if self.proposal == "generator" and len(model.stacks()) != 1:
            message = f"a generator is a smaller model of one stack, but {model.kind} has {len(model.stacks())}"
            yield Rule("objective.proposal", f"{message}; use unigram, uniform or mask, or model encoder", ("model",))

    @by_settings
    def PREDICTS(self) -> frozenset[Prediction]:
        return frozenset() if self.loss == "binary" else frozenset({"tokens"})

    @by_settings
    def LOSS_UNIT(self) -> str:
        discriminator = self.loss if self.loss_on == "all" else f"{self.loss} on masked"
        return (
            f"nats, generator + {self.weight:g} {discriminator}, per token"
            if self.proposal == "generator"
            else f"nats, {discriminator}, per token"
        )

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "ReplacedToken":
        return ReplacedToken(self, vocabulary)


class ReplacedToken(Objective):
    settings: Settings

    def __init__(self, settings: Settings, vocabulary: Vocabulary) -> None:
        super().__init__(settings)
        self.masking = Masking(settings, vocabulary, "replaced token detection")
        if len(self.masking.plain) < 2:
            raise DataFault("the vocabulary has fewer than 2 tokens, so no token can be replaced")
        self.needs_word_starts, self.vocabulary_size = self.masking.needs_word_starts, vocabulary.size
        # With disallow_correct the token that is shown is not the original.
        self.visible_targets = 1.0 if settings.disallow_correct else settings.replace[2]
        # A single part needs no weight, which would only scale the gradient.
        self.weights: Mapping[str, float] = {DISCRIMINATOR: settings.weight} if settings.proposal == "generator" else {}

    def add_modules(self, model: Model) -> None:
        if self.settings.loss == "binary":
            model.replace_head(DetectionHead(model.d_model, model.settings.init_std))

    def prepare(self, rows: Rows) -> Batch:
        shown, selected = rows.ids.copy(), np.zeros(rows.ids.shape, dtype=bool)
        uniform = [np.empty(0, np.float32)]
        for i, (positions, ids, rng) in enumerate(self.masking.rows(rows)):
            selected[i, positions], shown[i, positions] = True, ids
            uniform.append(rng.random(len(positions), np.float32))
        original = torch.from_numpy(rows.ids).long()
        batch = make_batch(rows, torch.from_numpy(shown).long(), original, torch.from_numpy(selected), GENERATOR)
        tokens = batch.counts["tokens"]
        batch.counts[DISCRIMINATOR] = batch.counts[GENERATOR] if self.settings.loss_on == "masked" else tokens
        batch.extras.update(original=original, uniform=torch.from_numpy(np.concatenate(uniform)))
        if rows.segments is not None and tokens < original.numel():
            batch.extras["real"] = torch.from_numpy(np.flatnonzero(rows.segments))
        return batch

    def task(self, model: Model) -> nn.Module:
        settings = self.settings
        generator: nn.Module | None = None
        if settings.proposal == "generator":
            generator = build_generator(model, settings.generator_width, settings.generator_depth, settings.tying)
        elif settings.proposal != "mask":
            generator = Proposal(self.vocabulary_size, settings.proposal == "unigram")
        special = torch.zeros(self.vocabulary_size, dtype=torch.bool)
        special[torch.tensor(self.masking.special)] = True
        return Replacement(
            model,
            generator,
            special,
            settings.loss,
            self.weights,
            masked_only=settings.loss_on == "masked",
            shared=settings.proposal == "generator" and settings.tying != "none",
            temperature=settings.temperature,
            disallow_correct=settings.disallow_correct,
            two_stages=settings.generator_steps,
        )

    def fit(self, task: nn.Module, data: Store) -> None:
        """Count the tokens of the training data, for the proposal unigram."""
        if self.settings.proposal != "unigram":
            return
        counts = data.token_counts()
        counts[self.masking.special] = 0
        if np.count_nonzero(counts) < 2:
            raise DataFault("the training data have fewer than 2 different tokens, so no token can be replaced")
        task.get_buffer("generator.counts").copy_(torch.from_numpy(counts))
