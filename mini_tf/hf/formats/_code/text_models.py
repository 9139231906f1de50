"""The model of this folder: built from config.json, loaded, and run.

`load()` gives a `TextModel`: `model(ids)` are its outputs, and `model.greedy(ids, 20)` continues a text.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from safetensors.torch import load_file
from torch import Tensor, nn

from mini_tf.data.batch import Batch
from mini_tf.hf.formats._code.plain_settings import made_of
from mini_tf.nn.layers.head import is_token
from mini_tf.nn.model import Model
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives._task import TaskOutputs, keys_at

IS_TASK = OF_WORDS = HEAD_HAS_NORM = HAS_SOURCE = CONTINUES = PROMPT_IS_PREFIX = True
"""What a model does: it predicts labels; those of words; by a head with a norm; it has an encoder and a decoder; it
continues texts; the tokens of a prompt attend to each other in both directions. Of an exported model each is known, and
what does not apply is left out."""


def build(config: Mapping[str, Any]) -> Model:
    """The model of a config.json, with random weights."""
    facts = config["minitf"]
    model: Model = made_of(facts["model"]).build(config["vocab_size"], facts["context"], facts["source_vocab_size"])
    model.special_ids = facts["special_ids"]
    if facts["head"] is not None:  # that of a task
        model.replace_head(made_of(facts["head"]))
    if HEAD_HAS_NORM:
        head: Any = model.head
        head.dense.norm = model.settings.make_norm()
    for part in model.modules():
        part._non_persistent_buffers_set.clear()  # the file of weights has all tensors
    return model


def positions_of(mask: Tensor | None) -> TokenPositions | None:
    """Positions of tokens by a mask (B, L), 0 at padding; None, as all of them in order, if there is no padding."""
    return None if mask is None or bool(mask.all()) else TokenPositions.of_mask(mask)


def task_outputs(
    model: Model, facts: Mapping[str, Any], inputs: Tokens
) -> Float[Tensor, "B C"] | Float[Tensor, "B L C"]:
    """Outputs of a text, or of each of its tokens; of a model of words 0 but at the first token of each."""
    task, ids = facts["task"], inputs.ids
    network = TaskOutputs(model, task["pool"], made_of(task["wide"])).train(model.training)
    at = torch.arange(ids.numel(), device=ids.device) if task["by_token"] else None
    extras = {}
    if OF_WORDS:  # noqa: SIM102  # only this one is known
        if task["affixes"] is not None:
            texts, special = facts["texts"], set(facts["special_ids"])
            begins = torch.tensor([text[:1].isspace() and id not in special for id, text in enumerate(texts)])
            at = (begins.to(ids.device)[ids] & is_token(inputs)).flatten().nonzero().squeeze(1)
            extras["words"] = keys_at(ids, is_token(inputs), at, texts, task["affixes"]).to(ids.device)
    outputs: Tensor = network.predict(Batch(inputs, ids.new_empty(0), at, extras=extras)) * task["scale"] + task["mean"]
    if at is None:
        return outputs
    return outputs.new_zeros(ids.numel(), outputs.shape[1]).index_copy(0, at, outputs).view(*ids.shape, -1)


def text_outputs(
    model: Model,
    facts: Mapping[str, Any],
    ids: Int[Tensor, "B L"],
    mask: Int[Tensor, "B L"] | None = None,
    types: Int[Tensor, "B L"] | None = None,
) -> Tensor:
    """Logits (B, L, V) of a model of tokens, or the outputs of a task."""
    inputs = Tokens(ids, positions_of(mask), types)
    if IS_TASK:
        return task_outputs(model, facts, inputs)
    logits: Tensor = model.logits(model(inputs).y)
    return logits


def next_logits(
    model: Model,
    ids: Int[Tensor, "B L"],
    mask: Tensor | None,
    source: Any,
    state: State | None,
    is_prompt: bool = False,
) -> tuple[Float[Tensor, "B L V"], State | None]:
    """Logits of tokens that continue those of `state`, and the state after them.

    source: of an encoder-decoder, tokens or what `model.encode` made of them. is_prompt: these tokens are the prompt.
    """
    begins = state is None or (isinstance(state["seen"], int) and state["seen"] == 0)
    positions = positions_of(mask) if begins else None
    if PROMPT_IS_PREFIX and is_prompt and begins:
        lengths = torch.full(ids.shape[:1], ids.shape[1], device=ids.device) if mask is None else mask.sum(1)
        positions = (positions or TokenPositions(ids.shape[1])).with_prefix(lengths)
    mixed = model(Tokens(ids, positions), source, None, state)
    return model.logits(mixed.y, copies=mixed.copies), None if mixed.state is None else model.trim(mixed.state)


def loss_of(outputs: Tensor, labels: Tensor, problem: str | None) -> Tensor:
    """For training on: cross-entropy, where -100 is no label, or that of the `problem_type` of config.json."""
    if problem == "regression":
        return F.mse_loss(outputs.squeeze(-1), labels.to(outputs.dtype))
    if problem == "multi_label_classification":
        return F.binary_cross_entropy_with_logits(outputs, labels.to(outputs.dtype))
    return F.cross_entropy(outputs.flatten(0, -2), labels.flatten())


class TextModel(nn.Module):
    """The model without transformers."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.config, self.facts, self.model = config, config["minitf"], build(config)

    def forward(
        self,
        ids: Int[Tensor, "B L"],
        mask: Int[Tensor, "B L"] | None = None,
        types: Int[Tensor, "B L"] | None = None,
        source: Int[Tensor, "B M"] | None = None,
        source_mask: Int[Tensor, "B M"] | None = None,
    ) -> Tensor:
        """Logits (B, L, V), or the outputs of a task, (B, C) or (B, L, C). Masks are 0 at padding."""
        if HAS_SOURCE:
            return next_logits(self.model, ids, mask, self.encoded(source, source_mask), None)[0]
        return text_outputs(self.model, self.facts, ids, mask, types)

    def encoded(self, source: Any, mask: Tensor | None = None) -> Any:
        """What the decoder needs of sources (B, M)."""
        return self.model.encode(Tokens(source, positions_of(mask)))

    @torch.no_grad()
    def greedy(self, ids: Int[Tensor, "B L"], n: int, source: Int[Tensor, "B M"] | None = None) -> Int[Tensor, "B n"]:
        """The `n` most probable next tokens, one after the other."""
        memory = self.encoded(source) if HAS_SOURCE else None
        state: State | None = self.model.start(len(ids))
        tokens = ids[:, :0]
        for _ in range(n):
            logits, state = next_logits(self.model, ids, None, memory, state, is_prompt=True)
            ids = logits[:, -1:].argmax(-1)
            tokens = torch.cat([tokens, ids], dim=1)
        return tokens


def load(folder: str | Path = Path(__file__).parent) -> TextModel:
    """The model of a folder with config.json and model.safetensors."""
    model = TextModel(json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")))
    tensors = load_file(Path(folder) / "model.safetensors")
    with torch.no_grad():
        model.model.load_weights({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
    return model.eval()


def main() -> None:
    """Prints the outputs for token ids, which are the arguments, or what continues them."""
    if not all(word.isdecimal() for word in sys.argv[1:]):
        sys.exit(f"{sys.argv[0]}: the arguments are token ids, which the tokenizer gives, such as 5 17 2")
    model, ids = load(), torch.tensor([[int(word) for word in sys.argv[1:]] or [0]])
    n = sum(parameter.numel() for parameter in model.parameters())
    print(f"{model.config['architectures'][0]}, {n:,} parameters")
    if HAS_SOURCE:
        print("target:", model.greedy(torch.tensor([[model.config["decoder_start_token_id"]]]), 20, ids).tolist())
    elif CONTINUES:
        print("next ids:", model.greedy(ids, 20).tolist())
    else:
        print("outputs:", model(ids).detach())
