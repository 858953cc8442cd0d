"""Makes a CUDA build of torch importable on a machine without CUDA: a stub for each CUDA library that it asks for.

    pip download torch==2.6.0 --no-deps && python -m zipfile -e torch-2.6.0-*.whl DEST
    python benchmarks/torch_versions/stub_cuda.py DEST...

For Linux the package index has CUDA builds only. They hold all of torch's CPU code; what they lack is the libraries of
CUDA itself, which are wheels of their own. Each of these that no folder of the system has is written to
DEST/cuda_stubs: a shared library of that name with the functions that torch's libraries look for in it, under the
symbol versions that they ask for. Every function returns 100, cudaErrorNoDevice, so torch finds that there is no GPU.
Needs gcc, nm and readelf (binutils). To import the torch, put DEST on PYTHONPATH and DEST/cuda_stubs on
LD_LIBRARY_PATH, and bind late: `sys.setdlopenflags(os.RTLD_LAZY | os.RTLD_GLOBAL)`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

STUBS = "cuda_stubs"
# Without a version a symbol does not say whose it is. Who has it does not matter: it only has to be found.
UNVERSIONED = re.compile(r"_*(cu|nccl|nvrtc|nvshmem|nvtx|nvJitLink|nvml)")
TEXTS = ("ErrorString", "ErrorName")  # what these return is printed


def _told_by(*command: str | Path) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def libraries(torch: Path) -> list[Path]:
    """The shared libraries of an unpacked torch."""
    return [*torch.glob("lib/*.so*"), *torch.glob("_C*.so")]


def missing(paths: Iterable[Path]) -> set[str]:
    """The names of the libraries that these ask for and that are neither among them nor on the system."""
    paths = list(paths)
    asked = {
        match[1]
        for path in paths
        for line in _told_by("readelf", "-d", path)
        if "NEEDED" in line and (match := re.search(r"\[(.*)\]", line))
    }
    known = {line.split()[0] for line in _told_by("/sbin/ldconfig", "-p") if line.startswith("\t")}
    return asked - {path.name for path in paths} - known


def wanted(paths: Iterable[Path]) -> dict[str, set[str]]:
    """The functions that these libraries look for elsewhere, by symbol version; "" for those that have none."""
    undefined: set[str] = set()
    defined: set[str] = set()
    for path in paths:
        for line in _told_by("nm", "-D", "--with-symbol-versions", path):
            *_, kind, symbol = line.split()
            (undefined if kind in ("U", "w") else defined).add(symbol)
    owned = {symbol.partition("@")[0] for symbol in defined}
    found: dict[str, set[str]] = defaultdict(set)
    for symbol in undefined:
        name, _, version = symbol.partition("@")
        if name not in owned and (version.startswith(("@lib", "lib")) or (not version and UNVERSIONED.match(name))):
            found[version.lstrip("@")].add(name)
    return found


def write_stub(library: Path, versions: Mapping[str, set[str]]) -> None:
    """A shared library of that name with these functions, each under its symbol version."""
    source, script = library.with_suffix(".c"), library.with_suffix(".map")
    names = sorted(set().union(*versions.values()))
    source.write_text("".join(_function(name) for name in names), encoding="utf-8")
    nodes = {version: names for version, names in versions.items() if version}
    script.write_text(
        "".join(f"{version} {{ global: {'; '.join(sorted(names))}; }};\n" for version, names in nodes.items()),
        encoding="utf-8",
    )
    command: list[str | Path] = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{library.name}"]
    command += [f"-Wl,--version-script={script}"] if nodes else []
    subprocess.run([*command, "-o", library, source], check=True)
    source.unlink()
    script.unlink()


def _function(name: str) -> str:
    if name.endswith(TEXTS):
        return f'const char *{name}(void) {{ return "stub"; }}\n'
    return f"long {name}(void) {{ return 100; }}\n"


def make_stubs(folder: Path) -> list[str]:
    """Writes the stubs that the torch in this folder needs; their names."""
    paths = libraries(folder / "torch")
    names, versions = sorted(missing(paths)), wanted(paths)
    (folder / STUBS).mkdir(exist_ok=True)
    for name in names:
        stem = name.partition(".so")[0].lower()
        own = {version: names for version, names in versions.items() if version.partition(".so")[0].lower() == stem}
        if stem == "libcudart":
            own |= {"": versions[""]} if "" in versions else {}
        write_stub(folder / STUBS / name, own)
    return names


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for each in map(Path, sys.argv[1:]):
        print(f"{each / STUBS}: {', '.join(make_stubs(each))}")
