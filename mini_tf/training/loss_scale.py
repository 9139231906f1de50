"""Dynamic loss scaling for fp16, as torch.amp.GradScaler.

After an overflow the step is skipped and the scale halved; after 2000 consecutive finite steps it is doubled.
Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.2.
"""

from dataclasses import dataclass

_GROWTH_INTERVAL = 2000


@dataclass(frozen=True)
class LossScale:
    """The scale, a power of two, and the number of finite steps since it changed."""

    scale: float = 2.0**16
    good_steps: int = 0

    def after(self, overflow: bool) -> "LossScale":
        """The scale of the next step."""
        if overflow:
            return LossScale(self.scale / 2)
        if self.good_steps + 1 == _GROWTH_INTERVAL:
            return LossScale(self.scale * 2)
        return LossScale(self.scale, self.good_steps + 1)
