"""Text on its way to a model: sources, documents, tokenizers, ids in files, rows."""
