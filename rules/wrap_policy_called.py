"""A wrap policy is called where it should be handed over.

## What it finds

`transformer_auto_wrap_policy(...)`, `size_based_auto_wrap_policy(...)` or `lambda_auto_wrap_policy(...)` called with
settings only, as in `auto_wrap_policy=transformer_auto_wrap_policy(transformer_layer_cls={Block})`.

## Why it is wrong

These functions are policies, not factories of policies: FSDP calls them for each module, with the module, `recurse` and
`nonwrapped_numel`. Measured on torch 2.13.0: "TypeError: transformer_auto_wrap_policy() missing 3 required positional
arguments: 'module', 'recurse', and 'nonwrapped_numel'".

## How to mend it

Give FSDP `functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})`. `ModuleWrapPolicy({Block})`
says the same, and is made by a call.

## When to leave it

Where a policy of one's own calls it with the module, and where `*` or `**` may bring the missing arguments, the rule is
silent.

## References

- https://docs.pytorch.org/docs/stable/fsdp.html (auto_wrap_policy)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import function_of, text_of
from fsdp_lint.fix.edits import Fix, Replace
from fsdp_lint.fix.spelling import spelled
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import CallPolicy
from fsdp_lint.trace.trace import Trace


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each policy that is called without a module."""
    for call in trace.every(CallPolicy):
        yield Finding(
            at=call,
            message=f"`{call.policy}` is called without a module: it is a policy, and does not make one",
            fix=_fix(call),
        )


def _fix(call: CallPolicy) -> Fix | None:
    """`partial(policy, ...)` with the same arguments."""
    function = function_of(call.site)
    partial = spelled(call.site, "functools", "partial")
    if function is None or partial is None:
        return None
    name = text_of(function)
    rest = text_of(call.site).removeprefix(name).lstrip().removeprefix("(")
    settings = rest.lstrip()
    space = rest[: len(rest) - len(settings)]
    newline = "\n" in space
    comma = "" if settings == ")" else f",{space or ' '}"
    return Fix(
        "Hand the policy over with its settings",
        (Replace(call.site, f"{partial[0]}({space if newline else ''}{name}{comma}{settings}"), *partial[1]),
    )


RULE = Rule(
    check,
    code="FSDP208",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE}),
    since="0.1.0",
)
