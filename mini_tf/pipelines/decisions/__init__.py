"""From the outputs of a head over classes to labels, for the pipelines of classes and tags."""
