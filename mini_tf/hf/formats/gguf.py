"""GGUF, the file of llama.cpp, Ollama and others: a decoder or an encoder with its tokenizer, in fp32.

The proof: the file is read back, and its tensors give the outputs of the run by the operations that llama.cpp has. Its
GELU is the one by tanh: of a model with another one, the difference that this makes is told. Nothing of that proof is
taken from the model that was exported: plain operations in fp32 on what llama.cpp's reader finds in the file.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import mini_tf
from mini_tf.hf.families import Family
from mini_tf.hf.family_choice import WAY, FamilyModel, as_family
from mini_tf.hf.formats import Exported, ExportRequest, Format
from mini_tf.hf.formats._gguf_architectures import CLASSES, CLASSIFIER, ROTATIONS, GgufModel, activation_of, as_gguf
from mini_tf.hf.formats._gguf_vocabulary import GgufVocabulary, vocabulary_of
from mini_tf.hf.layouts import GgufArchitecture
from mini_tf.hf.proof import Parity, differences, make_batch, max_or_nan, own_outputs
from mini_tf.hf.tokenizer_config import tokenizer_files
from mini_tf.recipe.kinds import kinds_of
from mini_tf.run.disk import storage_errors
from mini_tf.system.errors import RunFault
from mini_tf.trained.opening import LoadedModel

MODEL = "model.gguf"


class Settings(Format):
    def check_installed(self) -> None:
        with self.packages():
            import gguf  # noqa: F401

    def export(self, request: ExportRequest) -> Exported:
        import gguf

        loaded, folder = request.loaded, request.folder
        try:
            family, written = gguf_model(loaded, gguf)
            vocabulary = vocabulary_of(loaded)
        except RunFault as fault:
            raise RunFault(f"{loaded.folder.name} cannot be written as GGUF: {fault.message}", hint=WAY) from fault
        with storage_errors(f"writing {request.target}"):
            _write(folder / MODEL, gguf, written, vocabulary, request)
        name = f"GGUF ({written.architecture.word})"
        request.write({**tokenizer_files(loaded), **request.card(name, "gguf")})
        model = loaded.model.eval()
        batch = replace(
            make_batch(model, loaded.tokenizer.vocabulary), types=None
        )  # each token has the first one there
        head = family.head._replace(objective=None) if family.head.masked else family.head
        read, ours = GgufFile(folder / MODEL, written.architecture, gguf), own_outputs(model, head, batch)
        exact = activation_of(family.config) == "gelu"
        theirs = read.outputs(batch.ids, batch.mask, "none" if exact else "tanh")
        by_case, size = differences(ours, theirs, batch)
        reader = f"the reader of gguf and the operations of llama.cpp's {written.architecture.word}"
        outputs = "hidden states" if head.objective is None else "logits"
        parity = Parity(max_or_nan(by_case.values()), size, by_case, reader, name, outputs, "fp32")
        notes = [vocabulary.note] if vocabulary.note else []
        if exact:
            off = max_or_nan(differences(ours, read.outputs(batch.ids, batch.mask), batch)[0].values())
            change = f"changes its {outputs} by up to {off:.2g} of {size:.2g}"
            notes.append(f"llama.cpp computes GELU by tanh, which {change}")
        return request.proved(name, parity, notes)


def gguf_model(loaded: LoadedModel, gguf: Any) -> tuple[FamilyModel, GgufModel]:
    """A model as one of a family, and as llama.cpp's; RunFault with the reasons if there is none. gguf: the module."""
    family = as_family(loaded, _family(loaded))
    words = {word: number for number, word in gguf.MODEL_ARCH_NAMES.items()}
    return family, as_gguf(family, lambda word, n: gguf.get_tensor_name_map(words[word], n))


def _family(loaded: LoadedModel) -> str | None:
    """The first family with an architecture of llama.cpp that has the model; None, so that all reasons are listed."""
    for word, family in kinds_of("hf.families").items():
        if issubclass(family, Family) and family.GGUF:
            with suppress(RunFault):
                return as_family(loaded, word).family.kind
    return None


def _write(path: Path, gguf: Any, model: GgufModel, vocabulary: GgufVocabulary, request: ExportRequest) -> None:
    architecture = model.architecture.word
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(request.loaded.folder.name)
    writer.add_license(request.license)
    writer.add_description(f"Written by minitf {mini_tf.__version__}")
    writer.add_file_type(int(gguf.LlamaFileType.ALL_F32))
    for key, value in model.keys.items():
        _add(writer, f"{architecture}.{key}", value)
    writer.add_tokenizer_model(vocabulary.model)
    for key, value in vocabulary.keys.items():
        _add(writer, "tokenizer.chat_template" if key == "chat_template" else f"tokenizer.ggml.{key}", value)
    for name, tensor in model.tensors.items():
        writer.add_tensor(name, tensor.detach().float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: Any, key: str, value: Any) -> None:
    """A key with the type that llama.cpp reads it with: counts are unsigned, and of tokens, types are signed."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif value:
        writer.add_array(key, value)


class GgufFile:
    """A file of an architecture that was read. gguf: the module. keys: by full names; tensors: dequantized."""

    def __init__(self, path: Path, architecture: GgufArchitecture, gguf: Any) -> None:
        reader = gguf.GGUFReader(path)
        self.keys: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
        self.tensors = {
            tensor.name: torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type)) for tensor in reader.tensors
        }
        self.architecture = architecture
        assert self.keys["general.architecture"] == architecture.word

    def key(self, name: str, default: Any = None) -> Any:
        return self.keys.get(f"{self.architecture.word}.{name}", default)

    @torch.no_grad()
    def outputs(self, ids: Tensor, mask: Tensor, gelu: str = "tanh") -> Tensor:
        """(B, L) -> logits (B, L, V) or (B, C), or hidden states (B, L, D). gelu: "none", as minitf, or llama.cpp's."""
        self._gelu = gelu
        return self._logits(ids) if self.architecture.causal else self._encoded(ids, mask)

    def _logits(self, ids: Tensor) -> Tensor:
        hidden = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        x = self.tensors["token_embd.weight"][ids]
        if "position_embd.weight" in self.tensors:
            x = x + self.tensors["position_embd.weight"][: ids.shape[1]]
        for layer in range(self.key("block_count")):
            block = f"blk.{layer}."
            x = x + self._attention(self._norm(x, f"{block}attn_norm"), block, hidden)
            x = x + self._feed_forward(self._norm(x, f"{block}ffn_norm"), block, layer)
        return self._linear(self._norm(x, "output_norm"), "output")

    def _encoded(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = mask.eq(0)[:, None, None]
        x = self.tensors["token_embd.weight"][ids] + self.tensors["position_embd.weight"][: ids.shape[1]]
        if "token_types.weight" in self.tensors:
            x = x + self.tensors["token_types.weight"][0]
        x = self._norm(x, "token_embd_norm")
        for layer in range(self.key("block_count")):
            block = f"blk.{layer}."
            x = self._norm(x + self._attention(x, block, hidden), f"{block}attn_output_norm")
            x = self._norm(x + self._feed_forward(x, block, layer), f"{block}layer_output_norm")
        if self.key("pooling_type") == CLASSES:
            dense, output = CLASSIFIER
            return self._linear(self._linear(x[:, 0], dense).tanh(), output)
        return x

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias"))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")
        if (eps := self.key("attention.layer_norm_rms_epsilon")) is not None:
            scale: Tensor = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
            return x * scale * weight
        return F.layer_norm(x, weight.shape, weight, bias, self.key("attention.layer_norm_epsilon"))

    def _attention(self, x: Tensor, block: str, hidden: Tensor) -> Tensor:
        """hidden: where no token is visible, (L, L) or (B, 1, 1, L)."""
        heads = self.key("attention.head_count")
        groups = self.key("attention.head_count_kv", heads)
        if f"{block}attn_qkv.weight" in self.tensors:
            parts = self._linear(x, f"{block}attn_qkv").chunk(3, dim=-1)
        else:
            parts = tuple(self._linear(x, f"{block}attn_{name}") for name in "qkv")
        q, k, v = (
            part.unflatten(-1, (n, -1)).transpose(1, 2) for part, n in zip(parts, (heads, groups, groups), strict=True)
        )  # (B, heads, L, K)
        if f"{block}attn_q_norm.weight" in self.tensors:
            q, k = self._norm(q, f"{block}attn_q_norm"), self._norm(k, f"{block}attn_k_norm")
        if self.architecture.interleaved is not None:
            q, k = self._rotated(q), self._rotated(k)
        k, v = (part.repeat_interleave(heads // groups, dim=1) for part in (k, v))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        y = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        return self._linear(y.transpose(1, 2).flatten(2), f"{block}attn_output")

    def _rotated(self, x: Tensor) -> Tensor:
        width = self.key("rope.dimension_count")
        frequencies = self.key("rope.freq_base") ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        if ROTATIONS in self.tensors:
            frequencies = frequencies / self.tensors[ROTATIONS].double()
        angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * frequencies  # (L, K/2)
        cos, sin = angle.cos().float(), angle.sin().float()
        if self.architecture.interleaved:
            first, second = x[..., ::2], x[..., 1::2]
            return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def _feed_forward(self, x: Tensor, block: str, layer: int) -> Tensor:
        up = self._linear(x, f"{block}ffn_up")
        if f"{block}ffn_gate.weight" in self.tensors:
            up = F.silu(self._linear(x, f"{block}ffn_gate")) * up
        elif (alpha_p := self.key("xielu.alpha_p")) is not None:
            up = self._xielu(up, F.softplus(torch.tensor(alpha_p[layer])), layer)
        elif self.key("attention.layer_norm_rms_epsilon") is not None:
            up = up.relu().square()
        else:
            up = F.gelu(up, approximate=self._gelu)
        return self._linear(up, f"{block}ffn_down")

    def _xielu(self, x: Tensor, alpha_p: Tensor, layer: int) -> Tensor:
        alpha_n, beta, eps = (self.key(f"xielu.{name}")[layer] for name in ("alpha_n", "beta", "eps"))
        below = (x.clamp(max=eps).expm1() - x) * (beta + F.softplus(torch.tensor(alpha_n))) + beta * x
        return torch.where(x > 0, alpha_p * x.square() + beta * x, below)
