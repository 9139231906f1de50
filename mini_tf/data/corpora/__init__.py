"""The corpora that come along."""
