"""The picture files of views: whatever can be drawn, by its class."""

from mini_tf.drawing.curves import draw_curves
from mini_tf.drawing.fan import draw_fan
from mini_tf.drawing.heat_maps import draw_panels
from mini_tf.drawing.panel import Curves, Fan, Sheet


def draw(figure: Sheet | Fan | Curves, suffix: str) -> bytes:
    """PNG or SVG: `suffix` "png" or "svg". UsageFault where a sheet has too many panels."""
    if isinstance(figure, Sheet):
        return draw_panels(figure.panels, figure.scale, figure.title, suffix, across=figure.across, text=figure.text)
    return draw_fan(figure, suffix) if isinstance(figure, Fan) else draw_curves(figure, suffix)
