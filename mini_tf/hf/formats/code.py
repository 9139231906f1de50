"""Code: a file of plain PyTorch with the model, for what transformers has no class; it also runs alone.

The file is put together from minitf's own sources: the definitions that the model needs, without what its settings
leave out. The proof runs it in a fresh Python, in which minitf cannot be imported.
"""

from mini_tf.data.tokenization.tokenizer_files import SAVED_TARGETS
from mini_tf.hf.export_folder import card_files, write_files
from mini_tf.hf.family_choice import CONFIG
from mini_tf.hf.formats import Exported, ExportRequest, Format
from mini_tf.hf.formats._code.fresh_proof import prove
from mini_tf.hf.formats._code.model_code import MODELING, ModelCode, all_tensors, written_code
from mini_tf.hf.generation_settings import generation_files
from mini_tf.hf.model_folder import WEIGHTS
from mini_tf.hf.proof import FILE
from mini_tf.hf.tokenizer_config import tokenizer_files
from mini_tf.run import tensors
from mini_tf.run.disk import Content
from mini_tf.system.strict_json import show_json

NOTE = f"{MODELING}.py is code: transformers runs it, and only with trust_remote_code=True"


class Settings(Format):
    def export(self, request: ExportRequest) -> Exported:
        loaded, folder = request.loaded, request.folder
        code = written_code(loaded)
        written_as = f"code ({code.architecture})"
        files: dict[str, Content] = {
            f"{MODELING}.py": code.text.encode(),
            CONFIG: show_json(code.config).encode(),
            **generation_files(loaded, code.config),
            WEIGHTS: tensors.Serialized({f"model.{name}": one for name, one in all_tensors(loaded.model).items()}),
            **tokenizer_files(loaded),
            **card_files(request, written_as, usage=_usage(code)),
        }
        if loaded.source_tokenizer is not loaded.tokenizer:
            files[SAVED_TARGETS] = loaded.tokenizer.to_json().encode()
        write_files(folder, files)
        proof = prove(loaded, code, folder)
        proof.check(request.target)
        write_files(folder, {FILE: show_json(proof.to_json()).encode()})
        return Exported(request.target, written_as, proof, (NOTE,))


def _usage(code: ModelCode) -> str:
    return f"""## This is code

`{MODELING}.py` has the whole model in plain PyTorch. transformers runs it, and only with `trust_remote_code=True`: read
it before, as all code of others.

```python
from transformers import AutoTokenizer, {code.auto_class}

model = {code.auto_class}.from_pretrained(FOLDER, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(FOLDER, trust_remote_code=True)
```

Without transformers, `from {MODELING} import load` gives the model, and `python {MODELING}.py 5 6 7` runs it on token
ids.

"""
