"""Built-in corpora, one per file. A recipe writes the file name with hyphens instead of underscores."""
