"""Which error of torch is which mistake's: any other error of the program says nothing about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fsdp_lint.verify.evidence import Case, Evidence, Probe
from fsdp_lint.verify.hang import short
from fsdp_lint.verify.measures import Trouble

MIXED = "mixed torch.Tensor and DTensor"

# Words of the error, wherever it is raised: nothing else raises them.
ANYWHERE: Mapping[str, tuple[str, ...]] = {
    "shard-order-topdown": ("Invariant encountered: value was None", "FSDP requires named DeviceMesh dims"),
    "cast-after-shard": ("Expected out tensor to have dtype", "Invalid usage of tensors with different dtypes"),
    "ddp-over-fsdp": ("returned an invalid gradient",),
    "fsdp1-kwargs-on-fully-shard": ("fully_shard() got an unexpected keyword argument",),
    "frozen-in-fsdp1-unit": (
        "flatten tensors with uniform `requires_grad`",
        "both parameters with requires_grad=True and",
    ),
    "deepcopy-sharded": ("FSDP does not support deepcopy", "support the deepcopy protocol"),
    "container-sharded": ("does not support containers that do not implement forward",),
    "tied-weights-split": ("is shared with a parameter already managed by another FSDP group",),
    "load-plain-state-dict": ("aten.copy_.default", "no attribute '_local_tensor'"),
    "optimizer-state-naive-fsdp1": ("The size of tensor a", "expanded size of the tensor"),
    "fsdp1-clip-api": ("has no attribute 'clip_grad_norm_'",),
    "offload-device-conflict": ("should be materialized on CPU when enabling CPU offloading",),
    "wrap-policy-called": ("_policy() missing",),
    "mp-policy-mismatch": (
        "must have the same dtype",
        "mixed dtype (CPU)",
        "should be the same",
        "expected scalar type",
    ),
    "process-group-after-shard": ("initialize the default process group twice", "has not been initialized"),
    "cpu-offload-needs-gloo": ("No backend type associated with device type cpu",),
    "missing-set-device": ("Duplicate GPU detected",),
}
# Words of the error where it is raised at, or below, a line of the finding: elsewhere they may mean something else.
HERE: Mapping[str, tuple[str, ...]] = {
    "ddp-over-fsdp": (MIXED, "reshape sharded dimension", "NotImplementedError"),
    "bypass-forward-hooks": (MIXED, "weight must be 2-D", "out of bounds for storage of size 0", "size mismatch"),
    "fsdp1-api-on-fsdp2": ("has no attribute", "KeyError", "IndexError", "AssertionError"),
    "optimizer-state-naive-fsdp1": ("loaded state dict contains a parameter group",),
    "removed-name": ("ImportError", "ModuleNotFoundError", "AttributeError", "unexpected keyword", "FutureWarning"),
}


def raised(case: Case, name: str) -> str:
    """The error of this mistake that ended the run, and where; "" where none did."""
    for trouble in case.run.troubles:
        here = not case.sites.isdisjoint((trouble.site, *trouble.lines))
        words = (*ANYWHERE.get(name, ()), *(HERE.get(name, ()) if here else ()))
        text = _first(trouble, words)
        if text:
            return f"{text} at {short(trouble.site)}"
    return ""


def raises(name: str) -> Probe:
    """The probe for a mistake that raises an error of its own."""

    def ask(case: Case) -> Evidence:
        text = raised(case, name)
        if text:
            return Evidence(True, text)
        if case.run.troubles or case.run.hung:
            return Evidence(None, f"ended by something else: {case.run.ended}")
        return Evidence(False, f"no error: {case.run.ended}")

    return ask


def _first(trouble: Trouble, words: Iterable[str]) -> str:
    """The error that has one of the words: its type, and the line with the word."""
    for text in (trouble.text, *trouble.causes):
        kind = text.partition(":")[0]
        for line in text.splitlines():
            if any(word in line for word in words):
                return f"{kind}: {line.strip()[:300]}" if not text.startswith(line) else line
    return ""
