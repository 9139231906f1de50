"""The most frequent tag of each word in the training data; of an unknown word, the most frequent tag of all."""

from collections import Counter

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._measures import TAG_METRICS, labelled_splits, tag_metrics

MOST_BYTES = 20_000_000


class Settings(BaselineSettings):
    METRICS = TAG_METRICS

    def measure(self, data: BaselineData) -> Measured:
        splits, counts = labelled_splits(data, MOST_BYTES), dict[str, Counter[str]]()
        for text in splits.train:
            for word, tag in zip(text.texts, text.labels, strict=True):
                counts.setdefault(word, Counter())[tag] += 1
        frequent = {word: min(tags, key=lambda tag: (-tags[tag], tag)) for word, tags in counts.items()}
        unknown = splits.labels.names[max(range(len(splits.labels.counts)), key=splits.labels.counts.__getitem__)]
        predicted = [[frequent.get(word, unknown) for word in text.texts] for text in splits.val]
        return Measured("the most frequent tag of each word", tag_metrics(splits, predicted), splits.note)
