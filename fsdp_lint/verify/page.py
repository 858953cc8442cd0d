"""A proof as one HTML file with pictures: no script, no network, light or dark as the reader likes it."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from fsdp_lint.verify import report
from fsdp_lint.verify.hang import short, side_by_side
from fsdp_lint.verify.measures import Call, Run
from fsdp_lint.verify.plan import CannotRun
from fsdp_lint.verify.proof import Proof
from fsdp_lint.verify.verdicts import CONFIRMED, Verdict

_BEFORE, _AFTER = 5, 3  # collectives of a hang's logs that are shown, before the first difference and after it
_MOST_RANKS = 4  # logs side by side
_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --card: #f6f7f9; --ink: #1b1f24; --faint: #666e79; --line: #d5dae1;
  --before: #b3470b; --after: #0064a8; --gathered: #0064a8; --parameters: #0072b2; --gradients: #009e73;
  --optimizer-state: #c98500; --optimizer-only: #c4320a; --other: #8a929d; --good: #0b6e3a; --bad: #b3200e; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171c; --card: #1d2127; --ink: #e8eaed; --faint: #a2abb6;
  --line: #3a414b; --before: #ff9d5c; --after: #62b6f5; --gathered: #62b6f5; --parameters: #56a9e0;
  --gradients: #36c295;
  --optimizer-state: #eab54a; --optimizer-only: #ff7a50; --other: #868f9b; --good: #5fd08f; --bad: #ff8d78; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 1.2rem clamp(.8rem, 3vw, 2.5rem) 3rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0 0 .4rem; } p { margin: .4rem 0; } .faint { color: var(--faint); }
code, .site { font-family: ui-monospace, monospace; font-size: .9em; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } th { font-weight: 600; }
tbody th { font-weight: 400; overflow-wrap: normal; min-width: 6.6rem; }
.verdict { border-left: 4px solid var(--faint); background: var(--card); padding: .6rem .9rem; margin: .6rem 0; }
.good { border-color: var(--good); } .bad { border-color: var(--bad); }
.good b { color: var(--good); } .bad b { color: var(--bad); }
.pictures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 33rem), 1fr)); }
figure { margin: 0; padding: .9rem; background: var(--card); } figcaption { margin-top: .5rem; font-size: .9rem; }
svg { display: block; width: 100%; height: auto; } svg text { font-family: system-ui, sans-serif; }
.wide { max-width: 44rem; } .narrow { display: none; max-width: 26rem; }
@media (max-width: 40rem) { .wide { display: none; } .narrow { display: block; }
  figure { padding: .6rem .3rem; } figcaption, figure h3 { padding: 0 .4rem; } table { font-size: .88rem; } }
.logs { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 9.5rem), 1fr)); }
.logs ol { margin: 0; padding: 0; list-style: none; }
.logs li { padding: .25rem .4rem; border-bottom: 1px solid var(--line); }
.said { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.logs .differs { background: var(--card); border-left: 4px solid var(--bad); }
.logs small { color: var(--faint); display: block; }
pre { white-space: pre-wrap; font-size: .85rem; } details { margin: .8rem 0; } summary { cursor: pointer; }
"""
_KEPT = {True: "good", False: "bad", None: ""}
_HEAD = '<meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>'


def pictures() -> Any:
    """The room that draws. Raises CannotRun where the plotting library is not installed."""
    try:
        return importlib.import_module("fsdp_lint.verify.pictures")
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise CannotRun("--html draws with matplotlib: pip install 'fsdp-lint[html]'") from None


def to_html(proof: Proof) -> str:
    """The whole page."""
    name = escape(proof.plan.target.name)
    parts = [
        f"<h1>fsdp-lint verify: {name}</h1>",
        f"<p>{escape(report.conclusion(proof))}</p>",
        *_verdicts(proof),
        *_expectations(proof),
    ]
    for each in (proof, *proof.beside):
        parts += _mode(each)
    head = f"{_HEAD}<title>{name}</title>"
    body = "\n".join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _verdicts(proof: Proof) -> Iterator[str]:
    yield "<h2>Findings</h2>"
    if not proof.verdicts:
        yield "<p>None.</p>"
    for each in proof.verdicts:
        place = each.finding.place
        site = f"{os.path.relpath(place.path)}:{place.row}"
        yield (
            f'<div class="verdict {_judged(each)}"><b>{each.verdict}</b> {escape(each.finding.code)} '
            f'{escape(each.finding.name)} <span class="site">{escape(site)}</span>'
            f"<p>{_with_code(each.finding.message)}</p>{_because(each.because)}</div>"
        )


def _judged(verdict: Verdict) -> str:
    return "bad" if verdict.open else "good" if verdict.verdict == CONFIRMED else ""


def _with_code(text: str) -> str:
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _because(text: str) -> str:
    before, sign, after = text.partition("; after: ")
    return "".join(f'<p class="faint">{escape(part)}</p>' for part in (before, f"{sign[2:]}{after}") if part)


def _expectations(proof: Proof) -> Iterator[str]:
    for kept in proof.kept:
        told = f"{report.in_words(kept.holds)} ({report.number(kept.value)})"
        text = f"<b>expected</b> <code>{escape(kept.text)}</code>: {escape(told)}"
        yield f'<div class="verdict {_KEPT[kept.holds]}">{text}</div>'


def _mode(proof: Proof) -> Iterator[str]:
    first = proof.before.first
    device = f" {escape(first.device)}, torch {escape(first.torch)}." if first is not None else ""
    yield f"<h2>Measured in mode {proof.plan.mode}</h2>"
    yield f"<p>{escape(report.ranks(proof))}.{device}</p>"
    if not proof.ran_here:
        yield f"<p>It could not be run in this mode: {escape(proof.obstacle)}</p>"
    if not proof.before.records:
        return
    runs = [("before", proof.before)] + ([("after", proof.after.run)] if proof.after is not None else [])
    yield from _table(runs)
    for name, run in runs:
        yield from _hang(name, run)
    yield from _drawn(runs, proof.plan.mode)
    yield from _more(proof, runs)


def _table(runs: Sequence[tuple[str, Run]]) -> Iterator[str]:
    yield "<table><thead><tr><th></th>" + "".join(f"<th>{name}</th>" for name, _ in runs) + "</tr></thead><tbody>"
    unknown = []
    for name, cells in report.rows(runs[0][1], [run for _, run in runs]):
        if all(cell.text == report.UNKNOWN for cell in cells):
            unknown.append(name)
        else:
            yield f"<tr><th>{escape(name)}</th>{''.join(map(_cell, cells))}</tr>"
    yield "</tbody></table>"
    if unknown:
        yield f'<p class="faint">Not measured in this mode: {escape(", ".join(unknown))}.</p>'


def _cell(cell: report.Cell) -> str:
    text = escape(cell.text)
    return f"<td>{text}</td>" if cell.value is None else f'<td><data value="{cell.value}">{text}</data></td>'


def _drawn(runs: Sequence[tuple[str, Run]], mode: str) -> Iterator[str]:
    draw = pictures()
    trees = [(name, draw.tree_of_units(name, run)) for name, run in runs]
    if len(trees) == 2 and trees[0][1] is not None and trees[1][1] is not None and _same_units(runs):
        trees = [("before and after", trees[0][1])]
    told = [
        ("Memory by kind", draw.held_by_kind(runs), f"Of one rank, when {_of_each(runs)} is over."),
        ("Memory over the step", draw.memory_over_the_step(runs), _drawn_step(runs)),
        *((f"FSDP units, {name}", tree, "What their all-gathers bring in one step.") for name, tree in trees),
        ("Collectives in time", draw.collectives_in_time(runs), f"{_drawn_step(runs)} A longer stroke has more bytes."),
    ]
    yield '<div class="pictures">'
    for number, (title, picture, note) in enumerate(told):
        if picture is not None:
            wide, narrow = (_with_ids_of(f"{mode}-{number}", svg) for svg in (picture.wide, picture.narrow))
            yield (
                f'<figure><h3>{escape(title)}</h3><div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
                f'<figcaption class="faint">{escape(note)}'
                f' <span class="said">{escape(picture.said)}</span></figcaption></figure>'
            )
    yield "</div>"
    missing = [title for title, picture, _ in told if picture is None]
    if missing:
        yield f'<p class="faint">Not drawn, because it was not measured: {escape(", ".join(missing))}.</p>'


def _with_ids_of(place: str, svg: str) -> str:
    """Two pictures that look the same may be in one page, and ids must differ there."""
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{place}-", svg)


def _of_each(runs: Sequence[tuple[str, Run]]) -> str:
    """The step that was counted: one for both runs, or each with its own."""
    told = {name: run.counted for name, run in runs if run.steps}
    if len(set(told.values())) < 2:
        return next(iter(told.values()), runs[0][1].counted)
    return ", and ".join(f"{name} {step}" for name, step in told.items())


def _drawn_step(runs: Sequence[tuple[str, Run]]) -> str:
    unfinished = [name for name, run in runs if (r := run.first) is not None and r.steps < 2 and r.timeline]
    far = f" ({' and '.join(unfinished)}: as far as it came)" if unfinished else ""
    seen = "in which operations are seen, which makes it slower; times are those of the CPU's thread."
    return f"The second step{far}, {seen}"


def _same_units(runs: Sequence[tuple[str, Run]]) -> bool:
    return len({tuple((one.unit, one.kind, one.bytes) for one in run.collectives or ()) for _, run in runs}) == 1


def _hang(name: str, run: Run) -> Iterator[str]:
    found = side_by_side(run.calls) if run.hung else None
    if found is None:
        return
    members, at = found
    yield f"<h2>The hang {name}: the ranks' logs of collectives</h2><p>{escape(run.difference or '')}</p>"
    yield '<div class="logs">'
    for rank, own in _telling(members, at):
        shown = range(max(0, at - _BEFORE), min(at + _AFTER, max(len(own), at + 1)))
        lines = [_call(number, own, at) for number in shown]
        yield f"<div><h3>rank {rank}</h3><ol>{''.join(lines)}</ol></div>"
    yield "</div>"
    if len(members) > _MOST_RANKS:
        yield f'<p class="faint">{len(members) - _MOST_RANKS} more ranks are not shown.</p>'


def _telling(members: Mapping[int, list[Call]], at: int) -> list[tuple[int, list[Call]]]:
    """Some of the ranks, and among them one for each way that was gone."""
    ways: dict[tuple[str, int] | None, int] = {}
    for rank, own in members.items():
        ways.setdefault((own[at].kind, own[at].bytes) if at < len(own) else None, rank)
    chosen = [*ways.values(), *(rank for rank in members if rank not in ways.values())][:_MOST_RANKS]
    return [(rank, members[rank]) for rank in sorted(chosen)]


def _call(number: int, own: Sequence[Call], at: int) -> str:
    kind = ' class="differs"' if number == at else ""
    if number >= len(own):
        return f"<li{kind}>no further collective</li>"
    call = own[number]
    told = f"{call.bytes:,} bytes, {short(call.site)}"
    return f"<li{kind}>{number + 1}. {escape(call.kind)}<small>{escape(told)}</small></li>"


def _more(proof: Proof, runs: Sequence[tuple[str, Run]]) -> Iterator[str]:
    units = report.units([run for _, run in runs])
    if units:
        head = "".join(f"<th>{each}</th>" for each in ("FSDP unit", "collective", *(name for name, _ in runs)))
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in units)
        yield f"<details><summary>Collectives by FSDP unit</summary><table><tr>{head}</tr>{body}</table></details>"
    lines = [*report.fixed(proof), *(line for name, run in runs for line in report.remarks(run, name, runs[0][1]))]
    said = "\n".join(lines)
    yield f"<details><summary>What was run, mapped and saved</summary><pre>{escape(said)}</pre></details>"
