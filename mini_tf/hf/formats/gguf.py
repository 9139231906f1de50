"""GGUF, the file of llama.cpp, Ollama and others: a decoder or an encoder with its tokenizer, in fp32.

The proof: the file is read back, and its tensors give the outputs of the run by the operations that llama.cpp has. Its
GELU is the one by tanh: of a model with another one, the difference that this makes is told.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import mini_tf
from mini_tf.hf.export_folder import card_files, write_files
from mini_tf.hf.families import Family
from mini_tf.hf.family_choice import WAY
from mini_tf.hf.family_model import FamilyModel, as_family
from mini_tf.hf.formats import Exported, ExportRequest, Format
from mini_tf.hf.formats._gguf_architectures import GgufModel, activation_of, as_gguf
from mini_tf.hf.formats._gguf_reading import GgufFile
from mini_tf.hf.formats._gguf_vocabulary import GgufVocabulary, vocabulary_of
from mini_tf.hf.proof import FILE, Parity, differences, make_batch, max_or_nan, own_outputs
from mini_tf.hf.tokenizer_config import tokenizer_files
from mini_tf.recipe.kinds import kinds_of
from mini_tf.run.disk import storage_errors
from mini_tf.system.errors import RunFault
from mini_tf.system.strict_json import show_json
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
        write_files(folder, {**tokenizer_files(loaded), **card_files(request, name, "gguf")})
        model = loaded.model.eval()
        batch = replace(
            make_batch(model, loaded.tokenizer.vocabulary), types=None
        )  # each token has the first type there
        head = family.head._replace(objective=None) if family.head.masked else family.head
        read, own = GgufFile(folder / MODEL, written.architecture, gguf), own_outputs(model, head, batch)
        exact = activation_of(family.config) == "gelu"
        theirs = read.outputs(batch.ids, batch.mask, "none" if exact else "tanh")
        by_case, size = differences(own, theirs, batch)
        reader = f"the reader of gguf and the operations of llama.cpp's {written.architecture.word}"
        outputs = "hidden states" if head.objective is None else "logits"
        parity = Parity(max_or_nan(by_case.values()), size, by_case, reader, name, outputs, "fp32")
        parity.check(request.target)
        write_files(folder, {FILE: show_json(parity.to_json()).encode()})
        notes = [vocabulary.note] if vocabulary.note else []
        if exact:
            off = max_or_nan(differences(own, read.outputs(batch.ids, batch.mask), batch)[0].values())
            notes.append(
                f"llama.cpp computes GELU by tanh, which changes its {outputs} by up to {off:.2g} of {size:.2g}"
            )
        return Exported(request.target, name, parity, tuple(notes))


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
