"""Questions about gradients: which forward a backward goes through."""

from __future__ import annotations

import re

from fsdp_lint.trace.events import Backward, Forward
from fsdp_lint.trace.values import Tensor, Unknown, Value, parts

# What has these keys, or is what calls of these names give, is a copy through which no gradient flows.
CUTS = re.compile(r"(^|\.)(detach|item|tolist|numpy)(\(.*\))?$|^data$")


def may_go_through(backward: Backward, forward: Forward) -> bool:
    """False when the loss has what the forward gave as a detached copy only."""
    result = forward.result
    if result is None:
        return True
    return _reaches(backward.loss, result, cut=True) or not _reaches(backward.loss, result, cut=False)


def _is_cut(value: Value) -> bool:
    return bool(CUTS.search(value.key) or (value.name.endswith(")") and CUTS.search(value.name)))


def _reaches(loss: Value, result: Value, cut: bool) -> bool:
    todo, seen = [loss], set[int]()
    while todo:
        value = todo.pop()
        if value is result:
            return True
        if value.number in seen or (cut and _is_cut(value)):
            continue
        seen.add(value.number)
        todo.extend(part for part in parts(value) if part is not value)
        todo.extend(value.inputs if isinstance(value, Unknown | Tensor) else ())
        todo.extend([value.owner] if value.owner is not None else ())
    return False
