"""Training data that are read from their files in every step, without an encoded copy: `data.streaming: true`."""
