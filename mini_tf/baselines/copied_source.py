"""The source itself, as the target."""

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._measures import REFERENCE_METRICS, text_measured


class Settings(BaselineSettings):
    METRICS = REFERENCE_METRICS

    def measure(self, data: BaselineData) -> Measured:
        return text_measured("the source, copied", data, str.strip)
