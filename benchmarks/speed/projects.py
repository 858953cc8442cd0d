"""Projects made up for measuring: their size is a number, and each holds one known mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

_HEAD = "import torch\nfrom torch.distributed.fsdp import fully_shard\n\n\n"
_FILLING = "".join(
    f"def plain_{n}(values):\n    total = 0\n    for value in values:\n        total += value * {n}\n"
    "    return total\n\n\n"
    for n in range(5)
)
_CHAIN = 10


def chains(folder: Path, files: int) -> None:
    """Scripts that shard through helpers in ten files, each calling the next."""
    for number in range(files):
        chain, link = divmod(number, _CHAIN)
        below = f"from link_{chain}_{link + 1} import go\n\n\n"
        if link == 0:
            text = f"import torch\n{below}model = torch.nn.Linear(8, 8)\ngo(model)\n"
        elif link < _CHAIN - 1 and number < files - 1:
            text = f"{below.replace('import go', 'import go as on')}def go(model):\n    on(model)\n"
        else:
            text = _HEAD + "def go(model):\n    fully_shard(model)\n"
        (folder / f"link_{chain}_{link}.py").write_text(_FILLING + text)


def fan_in(folder: Path, files: int) -> None:
    """One helper that shards, and scripts that all call it."""
    (folder / "helper.py").write_text(_HEAD + "def go(model):\n    fully_shard(model)\n")
    for number in range(files - 1):
        text = f"import torch\nfrom helper import go\n\n\nmodel = torch.nn.Linear({number + 1}, 8)\ngo(model)\n"
        (folder / f"script_{number}.py").write_text(_FILLING + text)


def classes(folder: Path, files: int) -> None:
    """Trainers, each a subclass of the one in the file before, ten deep."""
    for number in range(files):
        deep, level = divmod(number, _CHAIN)
        base = f"trainer_{deep}_{level - 1}"
        head = f"from {base} import Trainer as Base\n\n\n" if level else _HEAD
        body = (
            f"class Trainer(Base):\n    def prepare_{level}(self):\n        self.shard()\n"
            if level
            else "class Trainer:\n    def __init__(self, model):\n        self.model = model\n\n"
            "    def shard(self):\n        fully_shard(self.model)\n"
        )
        (folder / f"trainer_{deep}_{level}.py").write_text(_FILLING + head + body)


def paths(folder: Path, levels: int) -> None:
    """One file in which 2 ** `levels` ways lead to one sharding call."""
    text = "".join(f"def f{n}(model):\n    f{n + 1}(model)\n    f{n + 1}(model)\n\n\n" for n in range(levels))
    (folder / "paths.py").write_text(f"{_HEAD}{text}def f{levels}(model):\n    fully_shard(model)\n")


def few(folder: Path, files: int) -> None:
    """A project of which six files speak of FSDP: three that shard, and three that call them."""
    for number in range(files - 6):
        (folder / f"plain_{number}.py").write_text(_FILLING)
    for number in range(3):
        (folder / f"shards_{number}.py").write_text(f"{_FILLING}{_HEAD}def go(model):\n    fully_shard(model)\n")
        text = f"{_HEAD}from shards_{number} import go\n\n\nmodel = torch.nn.Linear(8, 8)\ngo(model)\n"
        (folder / f"train_{number}.py").write_text(_FILLING + text)


def findings(folder: Path, number: int) -> None:
    """One file with so many mistakes that a fix mends."""
    text = "".join(
        f"def train_{n}(model):\n    optimizer = torch.optim.AdamW(model.parameters())\n    fully_shard(model)\n"
        "    return optimizer\n\n\n"
        for n in range(number)
    )
    (folder / "train.py").write_text(_HEAD + text)


GROWING: dict[str, Callable[[Path, int], None]] = {"chains": chains, "fan-in": fan_in, "classes": classes}
