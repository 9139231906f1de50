"""Tensors under their own names in a safetensors file, with the files that minitf reads them by: for every model."""

from typing import Any

from mini_tf.hf.formats import Exported, ExportRequest, Format
from mini_tf.hf.model_folder import WEIGHTS
from mini_tf.run import tensors
from mini_tf.run.folder import MODEL_TEXT_FILES


class Settings(Format):
    def export(self, request: ExportRequest) -> Exported:
        loaded, folder = request.loaded, request.folder
        texts: dict[str, Any] = {
            name: (loaded.folder / name).read_bytes() for name in MODEL_TEXT_FILES if (loaded.folder / name).exists()
        }
        weights = {WEIGHTS: tensors.Serialized(loaded.model.weights())}
        request.write({**texts, **weights, **request.card(self.kind)})
        tensors.read(folder / WEIGHTS, tensors.specs(loaded.model.weights()))
        return Exported(request.target, self.kind, None)
