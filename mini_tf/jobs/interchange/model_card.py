"""The model card of an export: README.md with what the model is, its data, its figures, its recipe and its licence."""

import mini_tf
from mini_tf.recipe.reading import dump
from mini_tf.run import manifest
from mini_tf.trained.opening import LoadedModel


def model_card(loaded: LoadedModel, written_as: str, license: str) -> str:
    """Markdown with the header that Hugging Face's hub reads. license: an identifier such as mit."""
    record, recipe = manifest.read(loaded.folder), loaded.recipe
    figures = "\n".join(f"| {name} | {value:.6g} |" for name, value in record.metrics.items() if value is not None)
    table = f"| metric | value |\n| --- | --- |\n{figures}\n" if figures else "No metrics were recorded.\n"
    data = f"Trained on `{recipe.data.train}`" if record.step else "Imported; its training data are not known to minitf"
    return f"""---
license: {license}
library_name: transformers
tags: [minitf, {recipe.model.kind}]
---

# {loaded.folder.name}

{written_as}, {record.parameters:,} parameters, context {loaded.model.context} tokens, vocabulary {loaded.tokenizer.vocabulary.size:,}.
Objective: {recipe.objective.kind}. Written by minitf {mini_tf.__version__}.

## Data

{data}; {record.step:,} training steps.

## Figures

{table}
## Recipe

```yaml
{dump(recipe)}```
"""
