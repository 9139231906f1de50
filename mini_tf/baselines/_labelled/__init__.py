"""What baselines for labelled examples share: examples and metrics, TF-IDF features, tags."""
