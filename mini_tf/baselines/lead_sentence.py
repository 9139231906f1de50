"""The first sentence of the source, as the target: a strong baseline for summaries of news.

A sentence ends at a full stop, question or exclamation mark before white space, or at one of Chinese and Japanese.
"""

import re

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._measures import REFERENCE_METRICS, text_measured

_SENTENCE = re.compile(r".*?(?:[.!?][\"')\]”’]*(?=\s|$)|[。！？])", re.DOTALL)


class Settings(BaselineSettings):
    METRICS = REFERENCE_METRICS

    def measure(self, data: BaselineData) -> Measured:
        return text_measured("the first sentence of the source", data, first_sentence)


def first_sentence(text: str) -> str:
    """The text up to the end of its first sentence."""
    match = _SENTENCE.match(text.strip())
    return match[0] if match else text.strip()
