"""Colormaps: white to dark blue in figures, violet to yellow in terminals; blue to red if diverging.

All are safe for color-blind readers, those of figures also in print. Figures use matplotlib's Blues and RdBu_r.
Terminals use nine of the 256 standard colors with increasing luminance; diverging ones are lightest at zero.
"""

from rich.color import Color

from mini_tf.drawing.panel import Scale

RGB = tuple[int, int, int]

_SEQUENTIAL = (53, 55, 24, 30, 36, 77, 148, 220, 226)
_DIVERGING = (25, 32, 75, 153, 255, 224, 210, 167, 124)


def terminal_color(value: float, scale: Scale) -> Color:
    """The color of a number (not NaN) in a terminal."""
    steps = _DIVERGING if scale.diverging else _SEQUENTIAL
    return Color.from_ansi(steps[min(int(scale.fraction(value) * len(steps)), len(steps) - 1)])


def text_color_on(color: RGB) -> RGB:
    """Black or white, whichever has more contrast on a color (WCAG 2)."""
    red, green, blue = color
    return (0, 0, 0) if (luminance(red / 255, green / 255, blue / 255) + 0.05) ** 2 > 1.05 * 0.05 else (255, 255, 255)


def luminance(*color: float) -> float:
    """The relative luminance of red, green and blue from 0 to 1 (WCAG 2)."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
