"""Draws what was measured, as SVG for a page that gives it its colours; the only room that imports matplotlib.

Each picture is drawn twice, for a wide and for a narrow page, so that its text keeps its size. Nothing is drawn that
was not measured: a picture that would be empty is None.
"""

from __future__ import annotations

import io
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fsdp_lint.verify.measures import Run, collective_totals
from fsdp_lint.verify.report import KINDS, in_bytes
from fsdp_lint.verify.units import tree

Runs = Sequence[tuple[str, Run]]

WIDE, NARROW = 620, 340  # pixels of a picture in a page
_LEFT, _RIGHT = 58, 14  # of these, beside the axes
_STYLE = {
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud, and has the page's font
    "font.size": 12,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# Colours that stand for the page's own: light or dark, as the reader likes it.
_INK, _FAINT, _GATHERED = "#010101", "#020202", "#050505"
_OF_RUNS = {"before": "#030301", "after": "#030302"}
_OF_KINDS = dict(zip(KINDS, ("#040401", "#040402", "#040403", "#040404", "#040405"), strict=True))
_NAMES = {
    _INK: "ink",
    _FAINT: "faint",
    _GATHERED: "gathered",
    **{colour: name for name, colour in _OF_RUNS.items()},
    **{colour: name.replace("_", "-") for name, colour in _OF_KINDS.items()},
}
_MOST_ROWS = 24  # of the tree of units


@dataclass(frozen=True)
class Picture:
    """One picture in both widths, and what it says to those who do not see it."""

    wide: str
    narrow: str
    said: str


def held_by_kind(runs: Runs) -> Picture | None:
    """Bars of the bytes that a rank holds, by kind, and the peak."""
    known = [(name, run, _kinds(run)) for name, run in runs if run.held is not None]
    if not known:
        return None
    largest = max(max(sum(held.values()), run.peak_bytes or 0) for _, run, held in known)
    size, unit = _scale(largest)

    def draw(width: int) -> Figure:
        columns = 3 if width > NARROW else 2
        top = 12 + 22 * math.ceil((len(KINDS) + 1) / columns)
        figure, axes = _figure(width, top + 46 * len(known) + 44, top)
        for row, (_, run, held) in enumerate(known):
            left = 0.0
            for kind, value in held.items():
                label = kind.replace("_", " ") if row == 0 else "_"
                axes.barh(row, value / size, left=left, color=_OF_KINDS[kind], height=0.54, label=label)
                left += value / size
            if run.peak_bytes:
                label = "peak in the steps" if row == 0 else "_"
                axes.vlines(run.peak_bytes / size, row - 0.38, row + 0.38, color=_INK, lw=2.5, label=label)
        _name_rows(axes, [name for name, _, _ in known])
        axes.set_xlim(0, largest / size * 1.04)
        axes.set_xlabel(unit)
        _legend(figure, columns)
        return figure

    told = [f"{name}: {_listed(held)}" + _peak(run) for name, run, held in known]
    return _picture(draw, f"Bytes held by one rank, by kind. {'; '.join(told)}.")


def _kinds(run: Run) -> dict[str, int]:
    return {kind: getattr(run.held, kind, None) or 0 for kind in KINDS}


def _listed(held: dict[str, int]) -> str:
    return ", ".join(f"{kind.replace('_', ' ')} {in_bytes(value)}" for kind, value in held.items())


def _peak(run: Run) -> str:
    return f", peak {in_bytes(run.peak_bytes)}" if run.peak_bytes else ""


def memory_over_the_step(runs: Runs) -> Picture | None:
    """Lines of the bytes that are allocated while one step runs."""
    known = [(name, record.memory) for name, run in runs if (record := run.first) is not None and record.memory]
    if not known or any(run.mode == "shared" for _, run in runs):
        return None
    largest = max(value for _, points in known for _, value in points)
    size, unit = _scale(largest)

    def draw(width: int) -> Figure:
        figure, axes = _figure(width, 236, 30)
        for name, points in known:
            times, values = [at for at, _ in points], [value / size for _, value in points]
            axes.plot(times, values, color=_OF_RUNS[name], lw=1.8, label=name, drawstyle="steps-post")
        axes.set_ylim(0, largest / size * 1.06)
        axes.set_xlim(0, max(at for _, points in known for at, _ in points) * 1.01)
        axes.set_ylabel(unit)
        axes.set_xlabel("ms since the step began")
        axes.locator_params(axis="x", nbins=5)
        _legend(figure, 2)
        return figure

    told = [f"{name}: at most {in_bytes(max(value for _, value in points))}" for name, points in known]
    return _picture(draw, f"Bytes allocated over the second step. {'; '.join(told)}.")


def tree_of_units(name: str, run: Run) -> Picture | None:
    """The units that FSDP gathers, as the tree that they make, with the bytes that each gathers in one step."""
    units = tree(run)
    if not units:
        return None
    shown = units[:_MOST_ROWS]
    largest = max(unit.gathered for unit in units) or 1

    def draw(width: int) -> Figure:
        figure, axes = _figure(width, 12 + 24 * len(shown) + (24 if len(units) > len(shown) else 0), 6, bare=True)
        axes.set_xlim(0, width)
        axes.set_ylim(len(units[: _MOST_ROWS + 1]) - 0.4, -0.6)
        bar = width * 0.3
        for row, unit in enumerate(shown):
            letters = int((width * 0.46 - 14 * unit.depth - 8) / 7.2)  # that stand before the bar
            text = unit.label if len(unit.label) <= letters else f"…{unit.label[1 - letters :]}"
            axes.text(4 + 14 * unit.depth, row, text, va="center")
            share = unit.gathered / largest
            axes.barh(
                row, max(bar * share, 1), left=width * 0.46, color=_GATHERED, alpha=0.25 + 0.75 * share, height=0.6
            )
            axes.text(width * 0.46 + bar * share + 5, row, in_bytes(unit.gathered), va="center")
        if len(units) > len(shown):
            axes.text(4, len(shown), f"and {len(units) - len(shown)} rows more", va="center", color=_FAINT)
        return figure

    told = ", ".join(f"{unit.label} {in_bytes(unit.gathered)}" for unit in shown)
    return _picture(draw, f"FSDP units {name}, with the bytes that their all-gathers bring in one step: {told}.")


def collectives_in_time(runs: Runs) -> Picture | None:
    """When each collective of one step is begun, by kind; the longer the stroke, the more bytes."""
    known = [(name, run, r.timeline) for name, run in runs if (r := run.first) is not None and r.timeline]
    if not known:
        return None
    largest = max(size for _, _, events in known for *_, size in events) or 1
    last = max(at for _, _, events in known for at, *_ in events)
    rows = [(name, kind) for name, _, events in known for kind in dict.fromkeys(kind for _, kind, _, _ in events)]

    def draw(width: int) -> Figure:
        figure, axes = _figure(width, 50 + 62 * len(rows), 8)
        for row, (name, kind) in enumerate(rows):
            events = next(events for each, _, events in known if each == name)
            mine = [(at, size) for at, each, _, size in events if each == kind]
            tops = [row + 0.38 - 0.42 * math.sqrt(size / largest) - 0.06 for _, size in mine]
            axes.hlines(row + 0.38, 0, last, color=_FAINT, lw=0.6)
            axes.vlines([at for at, _ in mine], tops, row + 0.38, color=_OF_RUNS[name], lw=1.6)
            axes.text(0, row - 0.3, f"{kind}: {len(mine)} x, {in_bytes(sum(size for _, size in mine))}", va="center")
        _name_rows(axes, [name for name, _ in rows])
        axes.set_xlim(left=0)
        axes.set_xlabel("ms since the step began")
        axes.locator_params(axis="x", nbins=5)
        return figure

    told = [
        f"{name}: " + ", ".join(f"{count} {kind}, {in_bytes(size)}" for kind, count, size in totals)
        for name, run, _ in known
        if (totals := collective_totals(run.collectives or ()))
    ]
    return _picture(draw, f"When the collectives of the second step are begun. {'; '.join(told)}.")


# ------------------------------------------------------------------------------------------------------- drawing


def _figure(width: int, height: int, top: int, bare: bool = False) -> tuple[Figure, Axes]:
    """A figure of so many pixels, and its axes with `top` pixels above them; without any frame if it is `bare`."""
    figure = Figure(figsize=(width / 72, height / 72))
    left, right, bottom = (0, 0, 0) if bare else (_LEFT, _RIGHT, 42)
    axes = figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    )
    if bare:
        axes.set_axis_off()
    return figure, axes


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), list(names))
    axes.set_ylim(len(names) - 0.5, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _legend(figure: Figure, columns: int) -> None:
    figure.legend(
        loc="upper left",
        ncols=columns,
        frameon=False,
        handlelength=1.1,
        columnspacing=1.4,
        borderpad=0,
        borderaxespad=0.2,
    )


def _scale(largest: float) -> tuple[float, str]:
    """The unit in which the largest is a number that can be read: its bytes, and its name."""
    return next(((size, unit) for size, unit in _UNITS if largest >= size), (1.0, "B"))


_UNITS = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))


def _picture(draw: Callable[[int], Figure], said: str) -> Picture:
    ink = {
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "axes.edgecolor": _FAINT,
        "xtick.color": _FAINT,
        "ytick.color": _FAINT,
        "xtick.labelcolor": _INK,
        "ytick.labelcolor": _INK,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "svg.hashsalt": said,  # the ids of two pictures in one page must differ
    }
    with matplotlib.rc_context({**_STYLE, **ink}):
        wide, narrow = (_as_svg(draw(width), f"{said} {width}") for width in (WIDE, NARROW))
    return Picture(wide, narrow, said)


def _as_svg(figure: Figure, salt: str) -> str:
    """The figure as an element of an HTML page: no size, font or colours of its own, no address, no id without use."""
    matplotlib.rcParams["svg.hashsalt"] = salt
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Creator": None, "Date": None, "Format": None, "Type": None})
    root = ElementTree.fromstring(file.getvalue())
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', file.getvalue()))
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for name in list(element.attrib):
            value = element.attrib.pop(name)
            plain = name.rpartition("}")[2]
            if plain != "id" or value in used:
                element.attrib[plain] = _in_colours_of_the_page(value)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib["aria-hidden"] = "true"  # what it says stands in the caption
    return ElementTree.tostring(root, encoding="unicode")


def _in_colours_of_the_page(style: str) -> str:
    style = re.sub(r"'DejaVu Sans'(?:, [^;]*)?", "inherit", style)
    style = re.sub(r"font: ([0-9.]+)px inherit", r"font-size: \1px", style)
    return re.sub("#0[1-5]0[0-9]0[0-9]", lambda found: f"var(--{_NAMES[found[0]]})", style)
