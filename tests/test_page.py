"""What `verify --html` and `--markdown` write: the numbers of the JSON, no network, readable on any screen."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU()) for _ in range(3)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for block in model:
    fully_shard(block)
fully_shard(model)
for step in range(4):
    model(torch.randn(2, 32, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
HANGS = """\
if dist.get_rank() == 0:
    model[0][0].weight.full_tensor()
dist.barrier()
"""
LOOK = """
<script>
const outside = [...document.querySelectorAll("svg text")].filter(text => {
  const own = text.getBoundingClientRect(), all = text.ownerSVGElement.getBoundingClientRect();
  const across = own.left < all.left - 1 || own.right > all.right + 1;
  return own.width && (across || own.top < all.top - 1 || own.bottom > all.bottom + 1);
}).map(text => text.textContent);
const shown = [...document.querySelectorAll("svg text")].filter(text => text.getBoundingClientRect().width);
const small = shown.filter(text => {
  const svg = text.ownerSVGElement;
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  return parseFloat(getComputedStyle(text).fontSize) * scale < 10;
}).map(text => text.textContent);
const paper = getComputedStyle(document.body).backgroundColor, ink = getComputedStyle(shown[0]).fill;
const wide = document.documentElement.scrollWidth, texts = shown.length;
parent.document.title = JSON.stringify({wide, outside, small, paper, ink, texts});
</script>
"""

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what is written of a program with two mistakes, one of which hangs."""
    pytest.importorskip("torch", reason="needs torch")
    pytest.importorskip("matplotlib", reason="needs matplotlib (the extra html)")
    folder = tmp_path_factory.mktemp("page")
    (folder / "train.py").write_text(PROGRAM + HANGS)
    command = [sys.executable, "-m", "fsdp_lint", "verify", "train.py", "--mode", "cpu", "--mode", "simulate"]
    command += ["--patience", "3", "--expect", "changed>=100%"]
    command += ["--output", "report.json", "--html", "report.html", "--markdown", "report.md"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 1, done.stderr  # the hang is still there
    return folder


def page(folder: Path) -> ElementTree.Element:
    """The page as a tree, which it must be."""
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(text)


def rows(table: ElementTree.Element) -> dict[str, list[float | None]]:
    """The numbers of a table by the row's name."""
    found = {}
    for row in table.iterfind("tbody/tr"):
        cells = [cell.find("data") for cell in row.iterfind("td")]
        found[str(row.findtext("th"))] = [None if cell is None else float(cell.attrib["value"]) for cell in cells]
    return found


def test_it_is_one_file_that_asks_for_nothing(written: Path) -> None:
    text = (written / "report.html").read_text(encoding="utf-8")
    page(written)
    assert not re.search(r"https?:|//|@import|<script|<link|\bsrc=", text)
    assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", text))
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids)) and set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text)) <= set(ids)


def test_its_numbers_are_those_of_the_json(written: Path) -> None:
    told = json.loads((written / "report.json").read_text())
    tables = [table for table in page(written).iter("table") if table.find("tbody") is not None]
    assert len(tables) == 2
    for table, mode in zip(tables, (told, *told["beside"]), strict=True):
        shown = rows(table)
        runs = [mode["before"], mode["after"]]
        for kind in ("parameters", "gradients", "optimizer_state", "optimizer_only", "other"):
            assert shown[f"held: {kind.replace('_', ' ')}"] == [run["held"][kind] for run in runs]
        assert shown["peak in the steps"] == [run["peak_bytes"] for run in runs]
        for one in runs[0]["collectives"]:
            assert shown[f"{one['kind']} a step"][0] == one["bytes"]
        assert ("parameters changed" in shown) == (mode["mode"] == "cpu"), "what is not measured has no row"


def test_it_says_what_was_not_measured(written: Path) -> None:
    said = [text for each in page(written).iter("p") if (text := "".join(each.itertext())).startswith("Not measured")]
    assert said == [
        "Not measured in this mode: step time.",
        "Not measured in this mode: loss by step, parameters changed, step time.",
    ]


def test_each_picture_is_there_and_tells_its_numbers(written: Path) -> None:
    figures = {str(each.findtext("h3")): each for each in page(written).iter("figure")}
    assert figures.keys() == {
        "Memory by kind", "Memory over the step", "FSDP units, before and after", "Collectives in time"
    }  # fmt: skip
    told = json.loads((written / "report.json").read_text())["beside"][0]
    gathered = next(one for one in told["before"]["collectives"] if one["kind"] == "all_gather")
    said = "".join(figures["Collectives in time"].find("figcaption").itertext())  # type: ignore[union-attr]
    assert f"{gathered['count']} all_gather" in said
    texts = [text for each in figures["FSDP units, before and after"].iter("text") for text in each.itertext()]
    assert "* (3)" in texts
    assert all(len(each.findall("div/svg")) == 2 for each in figures.values())


def test_the_logs_of_a_hang_stand_side_by_side(written: Path) -> None:
    (before, _) = [each for each in page(written).iter("div") if each.get("class") == "logs"]
    differing = ["".join(each.itertext()) for each in before.iter("li") if each.get("class") == "differs"]
    first, other = differing
    assert "all_gather" in first and "train.py:17" in first
    assert "barrier" in other and "train.py:18" in other


def test_the_verdicts_are_in_both(written: Path) -> None:
    told = json.loads((written / "report.json").read_text())
    markdown = (written / "report.md").read_text(encoding="utf-8")
    text = "".join(page(written).itertext())
    for verdict in told["verdicts"]:
        assert f"**{verdict['verdict']}**: {verdict['code']} {verdict['name']}" in markdown
        assert f"{verdict['verdict']} {verdict['code']} {verdict['name']}" in text
    assert ":white_check_mark: expected `changed>=100%`: holds (1)" in markdown
    assert "expected changed>=100%: holds (1)" in text
    peak = told["before"]["peak_bytes"] / 1024
    assert re.search(rf"^\| peak in the steps \| {peak:.2f} KiB \| ", markdown, re.MULTILINE)
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in markdown.splitlines() if line.startswith("|")]
    assert set(widths) <= {4, 5}, "every row has the cells of its head"


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_it_whole(width: int, dark: bool, written: Path, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("needs chromium")
    seen = look(browser, (written / "report.html").read_text(encoding="utf-8"), width, dark, tmp_path)
    assert seen["wide"] <= width, "the page does not scroll sideways"
    assert seen["texts"] > 20
    assert seen["outside"] == [] and seen["small"] == [], "no text of a picture is clipped, or too small to be read"
    paper, ink = luminance(seen["paper"]), luminance(seen["ink"])
    assert (paper < ink) == dark
    assert (max(paper, ink) + 0.05) / (min(paper, ink) + 0.05) > 7, "WCAG's contrast for text, level AAA"


def look(browser: str, text: str, width: int, dark: bool, folder: Path) -> dict[str, Any]:
    """What a script finds that is added to the page, in a frame of this width: a window cannot be that narrow."""
    path = folder / "look.html"
    framed = escape(text.replace("</body>", LOOK + "</body>"))
    frame = f'<iframe style="border: 0; width: {width}px; height: 2000px" srcdoc="{framed}"></iframe>'
    path.write_text(f'<!DOCTYPE html><html style="color-scheme: light dark"><title></title>{frame}</html>', "utf-8")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    flags += "--disable-component-update --disable-sync --hide-scrollbars --dump-dom"
    command = [browser, *flags.split(), f"--user-data-dir={folder / 'profile'}", "--window-size=1600,2000"]
    command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    title = re.search("<title>(.*)</title>", done.stdout)
    assert title is not None, done.stderr
    found: dict[str, Any] = json.loads(title[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))
    return found


def test_a_hang_in_the_second_step_is_drawn_as_far_as_it_came(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    pytest.importorskip("matplotlib", reason="needs matplotlib (the extra html)")
    waits = "    if step and not dist.get_rank():\n        dist.barrier()\n    optimizer.step()\n"
    (tmp_path / "train.py").write_text(PROGRAM.replace("    optimizer.step()\n", waits))
    command = [sys.executable, "-m", "fsdp_lint", "verify", "train.py", "--mode", "cpu", "--mode", "shared"]
    command += ["--fixes", "safe", "--patience", "2", "--html", "report.html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    figures = {str(each.findtext("h3")): "".join(each.itertext()) for each in page(tmp_path).iter("figure")}
    assert "Of one rank, when the first and only step is over." in figures["Memory by kind"]
    assert "The second step (before and after: as far as it came), in which" in figures["Memory over the step"]
    told = "".join(page(tmp_path).itertext())
    assert "It could not be run in this mode: mode shared needs a GPU" in told, "and cpu was run all the same"


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it, of `rgb(r, g, b)`."""

    def linear(value: float) -> float:
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(each) / 255) for each in re.findall(r"\d+", colour)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def without(module: str) -> Iterator[str]:
    """The start of a program in which this module is not installed."""
    yield f"import sys; sys.modules[{module!r}] = None"
    yield "from fsdp_lint.cli import main; main()"


@pytest.mark.parametrize("option", ["--html", "--markdown", "--output"])
def test_a_folder_that_is_not_there_is_told_before_anything_is_run(option: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('it was run')\n")
    command = [sys.executable, "-m", "fsdp_lint", "verify", "train.py", option, "nowhere/report"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fsdp-lint: nowhere/report: no such folder\n"


def test_without_the_library_it_says_what_to_install_before_anything_is_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('it was run')\n")
    command = [sys.executable, "-c", "; ".join(without("matplotlib")), "verify", "train.py", "--html", "report.html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fsdp-lint: --html draws with matplotlib: pip install 'fsdp-lint[html]'\n"
