"""Picture files of views."""

from mini_tf.drawing.curves.plot import draw_curves
from mini_tf.drawing.heat_maps import draw_panels
from mini_tf.drawing.panel import Curves, PanelGrid, QueryWeights
from mini_tf.drawing.query_weights import draw_query_weights


def draw(figure: PanelGrid | QueryWeights | Curves, suffix: str) -> bytes:
    """Draw a figure, `suffix` "png", "svg" or "pdf". Raises UsageFault if it has too many panels."""
    if isinstance(figure, PanelGrid):
        return draw_panels(figure, suffix)
    return draw_query_weights(figure, suffix) if isinstance(figure, QueryWeights) else draw_curves([figure], suffix)
