"""A model out of its run folder: what belongs to it, what stands around its texts, its vectors, damaged files."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
import torch
from commands import TINY, change, record, trained
from tokenizers.processors import TemplateProcessing

from mini_tf.data.tokenization.prompts import PromptTokenizer
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import Template
from mini_tf.data.tokenizers import SPECIALS
from mini_tf.recipe import sections
from mini_tf.recipe.reading import read
from mini_tf.run.manifest import Decision
from mini_tf.system.errors import RunFault
from mini_tf.trained import text_vectors
from mini_tf.trained.evaluating import decision_notes
from mini_tf.trained.framing import TokenizersOfRun, check_template, prompt_tokenizer
from mini_tf.trained.opening import open_trained, read_fully_trainable, read_recipe_and_tokenizers

LORA = "adapter={{rank: 2, merge: {}}}"
MASKS = {"encoder": "masked", "encoder_decoder": "denoising", "decoder": "hybrid"}


def test_a_decoder_has_the_context_and_the_loss_unit_of_its_training(decoder: Path) -> None:
    opened = open_trained(decoder, device="cpu")
    assert opened.generation_context == 48
    assert record(decoder)["loss_unit"] == "nats per byte"
    streams = opened.recipe.model_copy(update={"train": opened.recipe.train.model_copy(update={"stream": True})})
    assert replace(opened, recipe=streams).generation_context == 2**20


def test_an_adapter_is_merged_once_wherever_the_weights_lie(decoder: Path, tmp_path: Path) -> None:
    weights = []
    for merge in ("false", "true"):
        ways = (f"model.init_from={decoder}", LORA.format(merge), "train.steps=1", "eval.tokens=48")
        adapted = trained(tmp_path / merge, *ways)
        weights += [open_trained(adapted, step, "cpu").model.weights() for step in (None, "last")]
    for name, tensor in weights[0].items():
        assert all(torch.equal(tensor, other[name]) for other in weights[1:]), name
    assert any(
        not torch.equal(tensor, weights[0][name]) for name, tensor in open_trained(decoder).model.weights().items()
    )


def framed(*overrides: str, template: Template | None = None) -> TokenizersOfRun:
    tokenizer = Tokenizer.train(sections.Tokenizer(kind="byte"), [])
    tokenizer.vocabulary = replace(tokenizer.vocabulary, template=template)
    return TokenizersOfRun(read(TINY, [*overrides]).recipe, tokenizer, tokenizer)


def test_a_template_is_that_of_a_model_that_was_imported_and_not_trained(decoder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(decoder, tmp_path / "run"))
    inner = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    separator = SPECIALS["separator"]
    inner.post_processor = TemplateProcessing(f"{separator} $A", None, [(separator, inner.token_to_id(separator))])
    inner.save(str(folder / "tokenizer.json"))
    for step, kept in ((1, False), (0, True)):
        change(folder / "run.json", step=step)
        assert (read_recipe_and_tokenizers(folder)[1].vocabulary.template is not None) == kept
    two = Template((3, 3), ())
    check_template(framed(template=two), "here")  # of a document, which may begin with anything
    with pytest.raises(RunFault, match="minitf reads one token before it at most"):
        check_template(framed("objective.kind=classify", "model.kind=encoder", template=two), "here")


def test_a_mask_in_a_prompt_is_one_to_a_model_that_fills_masks_and_text_to_others() -> None:
    for kind, objective in MASKS.items():
        given = framed(f"model.kind={kind}", f"objective.kind={objective}", "tokenizer.kind=byte")
        assert isinstance(prompt_tokenizer(given), PromptTokenizer), kind
    plain = framed()
    assert prompt_tokenizer(plain) is plain.tokenizer


def test_vectors_do_not_depend_on_the_batches_of_texts(decoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_vectors, "BATCH_SIZE", 2)
    embedder = text_vectors.Embedder(open_trained(decoder, device="cpu"))
    texts = ["the king", "a", "no sailor ever saw it", "old", "the old"]
    vectors = embedder.embed(texts)
    assert torch.allclose(vectors, torch.cat([embedder.embed([text]) for text in texts]), atol=1e-5)
    units = vectors / vectors.square().sum(1, keepdim=True).sqrt()
    assert torch.allclose(embedder.embed(texts, normalize=True), units, atol=1e-5)


def test_a_fitted_decision_is_named_where_it_is_not_applied_or_flatters(decoder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(decoder, tmp_path / "run"))
    fitted = {"temperature": 2.0, "bias": {"a": 1.0}, "figures": {"ece": [0.5, 0.25]}}
    model: Any = SimpleNamespace(members=(), folder=folder, decision=Decision(temperature=2.0))
    assert decision_notes(model, fitted_on=True) == []  # nothing was fitted for this run
    change(folder / "run.json", model=record(folder)["model"] | {"decision": fitted})
    assert decision_notes(model) == []
    [note] = decision_notes(model, fitted_on=True)
    assert note.endswith("so the metrics are optimistic; cross-fitted: ece 0.5000 -> 0.2500")
    model.decision = None
    [note] = decision_notes(model)
    assert note == "the temperature and bias fitted for model.safetensors (step 1) are not applied to these weights"
    model.folder = tmp_path  # which is no run, but a model of another tool
    assert decision_notes(model, fitted_on=True) == []


def test_a_context_beyond_its_bounds_is_refused(tmp_path: Path) -> None:
    config: dict[str, Any] = {"minitf_format": 1, "whole": ["a"]}
    for context in (1, 2**20):
        (tmp_path / "config.json").write_text(json.dumps(config | {"context": context}))
        assert read_fully_trainable(tmp_path) == ["a"]
    for wrong in (0, 2**20 + 1, "9"):
        (tmp_path / "config.json").write_text(json.dumps(config | {"context": wrong}))
        with pytest.raises(RunFault, match=re.escape(f"context {wrong} must be an integer from 1 to 1048576")):
            read_fully_trainable(tmp_path)
