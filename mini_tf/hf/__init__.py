"""Import and export of Hugging Face models, each with a proof that the outputs are the same."""
