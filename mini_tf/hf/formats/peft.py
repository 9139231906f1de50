"""The LoRA adapter of a run alone, in PEFT's format; read back, its products are those of the run."""

from mini_tf.hf.family_choice import find_family
from mini_tf.hf.formats import Exported, ExportRequest, Format
from mini_tf.hf.peft_files import CONFIG, MERGED, WEIGHTS, read_adapter, written_adapter
from mini_tf.run import tensors
from mini_tf.run.loading import load_model
from mini_tf.system.errors import RunFault, UsageFault
from mini_tf.system.strict_json import show_json
from mini_tf.trained.opening import read_fully_trainable


class Settings(Format):
    def export(self, request: ExportRequest) -> Exported:
        loaded, step = request.loaded, request.step
        settings = loaded.recipe.adapter
        if settings is None:
            raise UsageFault(f"{loaded.folder.name} has no adapter", hint="leave --to out to write its model")
        family, head, _, _ = find_family(loaded, exact=True)
        if whole := read_fully_trainable(loaded.folder):
            fault = f"{loaded.folder.name} trained {whole[0]} beside its adapter, which is no part of one"
            raise RunFault(fault, hint=MERGED, where=[str(loaded.folder)])
        if settings.merge and step is None:
            step = "best"  # model.safetensors has it merged
        weights = load_model(loaded.folder, step)
        base = str(loaded.recipe.model.init_from)
        written, config = written_adapter(loaded.model, weights, family, head, settings, base)
        request.write({CONFIG: show_json(config).encode(), WEIGHTS: tensors.Serialized(written)})
        read_adapter(request.folder)
        return Exported(request.target, f"an adapter of {head.architecture}", None)
