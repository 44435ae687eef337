"""How every figure looks: fonts, sizes for one and two columns."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Text

from headlab.base.errors import UsageError, unknown_name
from headlab.runs.files import write_atomically

ONE_COLUMN = 3.35  # inches, as most journals and the ACL style have it
TWO_COLUMNS = 6.9
DPI = 200
FORMATS = ("png", "svg", "pdf")

STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "hatch.linewidth": 0.4,
    "svg.fonttype": "path",  # letters as outlines: looks the same without the font
    "pdf.fonttype": 42,
    "svg.hashsalt": "headlab",  # the same figure gives the same file
    "text.parse_math": False,  # a token may hold a dollar sign
    "axes.unicode_minus": True,
    "savefig.facecolor": "white",
    "figure.facecolor": "white",
}

# DejaVu Sans comes with matplotlib; the others are only asked for what it lacks, where they are installed.
_FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Emoji")

P = ParamSpec("P")
R = TypeVar("R")


def styled(function: Callable[P, R]) -> Callable[P, R]:
    """Draw in headlab's style, leaving the user's matplotlib settings alone."""

    @functools.wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        with _context():
            return function(*args, **kwargs)

    return inner


def _context() -> Any:
    settings: Any = STYLE | {"font.family": fonts()}
    return mpl.rc_context(settings)


@functools.cache
def fonts() -> list[str]:
    """DejaVu Sans, then the installed fonts for scripts that it lacks."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in _FONTS if name in installed] or ["sans-serif"]


def new_figure(width: float, height: float, layout: Literal["constrained", "compressed"] = "constrained") -> Figure:
    """An empty figure, in inches, that belongs to no window."""
    return Figure(figsize=(width, height), layout=layout)


def figure_of(axes: Axes) -> Figure:
    """The figure that an Axes is in."""
    figure = axes.figure.figure if axes.figure is not None else None  # that of a SubFigure is the whole figure
    if not isinstance(figure, Figure):
        raise UsageError("The given ax belongs to no figure.", "Make it with plt.subplots().")
    return figure


def plain(texts: Iterable[Text]) -> None:
    """Take texts literally: `$` starts no formula."""
    for text in texts:
        text.set_parse_math(False)


def is_dark(colour: Any) -> bool:
    """Whether white letters read better than black ones on a colour."""
    red, green, blue = mpl.colors.to_rgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue < 0.55


def save_figure(figure: Figure, stem: str | Path, formats: Iterable[str] = ("png", "svg")) -> list[Path]:
    """Write a figure as `<stem>.png`, `<stem>.svg` (letters as outlines) or `<stem>.pdf`, atomically.

    Raises UsageError for an unknown format and for a place that cannot be written.
    """
    paths = []
    for format in formats:
        if format not in FORMATS:
            raise unknown_name("figure format", format, FORMATS)
        path = Path(stem).with_name(f"{Path(stem).name}.{format}")
        paths.append(write_atomically(path, functools.partial(draw, figure, format=format)))
    return paths


def draw(figure: Figure, target: Any, *, format: str) -> None:
    """Draw a figure into a path or a binary file, without the time of day in it."""
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format, {})
    with _context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # drawn as a box; the page has it as text
        warnings.filterwarnings("ignore", message=".*does not have a glyph.*|Matplotlib currently does not support")
        if format == "svg":
            _draw_svg(figure, target, metadata)
        else:
            figure.savefig(target, format=format, dpi=DPI, metadata=metadata)


def _draw_svg(figure: Figure, target: Any, metadata: dict[str, Any]) -> None:
    """What savefig does, without its second drawing for the layout: half the time."""
    canvas = figure.canvas
    try:
        FigureCanvasSVG(figure).print_svg(target, metadata=metadata)
    finally:
        figure.set_canvas(canvas)
