"""`fully_shard` gets a keyword of FSDP1.

## What it finds

`fully_shard(...)` with a keyword that only `FullyShardedDataParallel` takes: `sharding_strategy`, `auto_wrap_policy`,
`mixed_precision`, `cpu_offload`, `device_mesh`, `process_group`, `device_id`, `use_orig_params`, `sync_module_states`,
`limit_all_gathers`, `forward_prefetch`, `backward_prefetch`, `param_init_fn`, `ignored_modules`, `ignored_states`; in
the call, in a dict that is unpacked into it, or through `functools.partial`.

## Why it is wrong

`fully_shard(module, *, mesh, reshard_after_forward, shard_placement_fn, mp_policy, offload_policy, ignored_params)` has
no such keyword and raises `TypeError: fully_shard() got an unexpected keyword argument`, once all ranks are up
(measured, torch 2.4 to 2.13). `shard_placement_fn` is there from 2.6 on, `ignored_params` from 2.7 on.

## How to mend it

Say it in FSDP2's words:

| FSDP1 | FSDP2 |
| --- | --- |
| `sharding_strategy=FULL_SHARD` | nothing, or `reshard_after_forward=True` |
| `sharding_strategy=SHARD_GRAD_OP` | `reshard_after_forward=False` |
| `sharding_strategy=HYBRID_SHARD` | `mesh=` with two dimensions (replicate, shard) |
| `auto_wrap_policy=` | call `fully_shard` on each block, then on the model |
| `mixed_precision=MixedPrecision(...)` | `mp_policy=MixedPrecisionPolicy(...)`, which knows no `buffer_dtype` |
| `cpu_offload=CPUOffload(True)` | `offload_policy=CPUOffloadPolicy()` |
| `device_mesh=` | `mesh=` |
| `process_group=` | `mesh=DeviceMesh.from_group(...)` |
| `ignored_states=`, `ignored_modules=` | `ignored_params=`, a set of parameters |
| `param_init_fn=` | build on the meta device, `to_empty` after sharding, then initialise |
| `sync_module_states=True` | nothing: FSDP2 does not broadcast; same seed on all ranks, or load a state dict |
| `use_orig_params`, `device_id`, `limit_all_gathers`, prefetching | nothing: FSDP2 does this, or has methods for it |

The fix does so where the values are written out. A wrap policy that names classes becomes a loop over
`reversed(list(model.modules()))`, innermost modules first, as an unsafe fix: look whether the classes are still the
right ones.

## When to leave it

Never. The rule looks at torch's `fully_shard` only: another package's, or a function of the project by that name, has a
signature of its own. A keyword that is put into the dict under a test is not reported where the sharding call stands
under a test, too: the two may exclude each other.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (FSDP1 to FSDP2 migration guide)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fsdp_lint.fix.arguments import argument, is_path, keywords, text_of
from fsdp_lint.fix.calls import changed_call, free_name
from fsdp_lint.fix.edits import ChangeCall, Edit, EnsureImport, Fix, InsertBefore
from fsdp_lint.fix.spelling import spelled, spelled_here
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Shard
from fsdp_lint.trace.freezing import is_of, policy_classes
from fsdp_lint.trace.models.fsdp import DROPPED_KEYWORDS, FSDP1_KEYWORDS
from fsdp_lint.trace.trace import Trace, called, certain_keywords, touches
from fsdp_lint.trace.values import Const, External, Module, Object, Value

PUBLIC = "torch.distributed.fsdp"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each sharding call with keywords of FSDP1."""
    for shard in trace.every(Shard):
        if shard.generation != 2:
            continue
        given = certain_keywords(shard)
        wrong = [name for name in FSDP1_KEYWORDS if name in given]
        if wrong:
            names = ", ".join(f"`{name}`" for name in wrong)
            yield Finding(
                at=shard,
                message=f"`fully_shard` gets {names} for `{called(shard.module)}`: only FSDP1 takes "
                + ("this keyword" if len(wrong) == 1 else "these keywords"),
                fix=_fix(trace, shard, wrong, given),
            )


def _fix(trace: Trace, shard: Shard, wrong: list[str], given: dict[str, Value]) -> Fix | None:
    """All keywords at once: one that is left would raise again."""
    call = shard.site
    if not set(wrong) <= set(keywords(call)):
        return None
    rename: dict[str, str] = {}
    put: dict[str, str] = {}
    drop: list[str] = []
    imports: list[EnsureImport] = []
    for name in wrong:
        if name in DROPPED_KEYWORDS or name == "auto_wrap_policy":
            drop.append(name)
            continue
        found = _translated(shard, name, given[name])
        if found is None:
            return None
        new, text, needed = found
        imports.extend(needed)
        if not new:
            drop.append(name)
            continue
        rename[name] = new
        if text:
            put[new] = text
    change = ChangeCall(call, rename=rename, drop=tuple(drop), put=put)
    if "auto_wrap_policy" not in wrong:
        return Fix("Use FSDP2's keywords", (change, *imports))
    loop = _loop(trace, shard, change)
    if loop is None:
        return None
    message = "Shard the classes of the policy in a loop, then the root"
    return Fix(message, (*loop, change, *imports), Applicability.UNSAFE)


def _loop(trace: Trace, shard: Shard, change: ChangeCall) -> tuple[Edit, ...] | None:
    """A loop over the modules whose classes a wrap policy names, above the call; none where the policy wraps nothing.

    None where the classes are not known, or where another call shards parts of the model.
    """
    model, classes = argument(shard.site, "module", 0), policy_classes(shard)
    if classes == []:
        return ()
    item = free_name(shard.site, ("block", "unit", "each_block"))
    if model is None or item is None or not is_path(model) or classes is None:
        return None
    if isinstance(shard.module, Module) and is_of(shard.module, classes):
        return None
    if any(one.site != shard.site and touches(one.module, shard.module) for one in trace.every(Shard)):
        return None
    one, names = changed_call(change, item), [_class_here(shard, cls) for cls in classes]
    named = [each for each in names if each is not None]
    if one is None or len(named) < len(names):
        return None
    words = [word for word, _ in named]
    tested = words[0] if len(words) == 1 else f"({', '.join(words)})"
    over = f"reversed(list({text_of(model)}.modules()))"
    text = f"for {item} in {over}:\n    if isinstance({item}, {tested}):\n        {one}"
    return (InsertBefore(shard.site, text), *(needed for _, imports in named for needed in imports))


def _class_here(shard: Shard, cls: tuple[Path, str] | str) -> tuple[str, tuple[EnsureImport, ...]] | None:
    """What a class is called at the sharding call, with the import that this needs."""
    if isinstance(cls, str):
        module, _, name = cls.rpartition(".")
        return spelled(shard.site, module, name)
    word = spelled_here(shard.site, *cls)
    return (word, ()) if word is not None else None


def _translated(shard: Shard, name: str, value: Value) -> tuple[str, str, tuple[EnsureImport, ...]] | None:
    """FSDP2's keyword, the text of its value where that changes, and imports; no keyword where it is left out."""
    if name == "device_mesh":
        return "mesh", "", ()
    if name == "sharding_strategy" and isinstance(value, External):
        strategy = value.dotted.rpartition(".")[2]
        if strategy == "FULL_SHARD":
            return "", "", ()
        return ("reshard_after_forward", "False", ()) if strategy == "SHARD_GRAD_OP" else None
    if name == "cpu_offload":
        return _offload(shard, value)
    return _precision(shard) if name == "mixed_precision" else None


def _offload(shard: Shard, value: Value) -> tuple[str, str, tuple[EnsureImport, ...]] | None:
    on: Value | None = value
    if isinstance(value, Object) and value.cls == "CPUOffload":
        on = value.get(0, "offload_params") or Const(value=False)
    if not isinstance(on, Const):
        return None
    if not on.value:
        return "", "", ()
    written = spelled(shard.site, PUBLIC, "CPUOffloadPolicy")
    return ("offload_policy", f"{written[0]}()", written[1]) if written is not None else None


def _precision(shard: Shard) -> tuple[str, str, tuple[EnsureImport, ...]] | None:
    """`MixedPrecisionPolicy` with the types that a literal `MixedPrecision(...)` names."""
    policy = argument(shard.site, "mixed_precision")
    written = spelled(shard.site, PUBLIC, "MixedPrecisionPolicy")
    if policy is None or written is None:
        return None
    names = keywords(policy)
    if not names or not set(names) <= {"param_dtype", "reduce_dtype", "buffer_dtype"} or argument(policy, "", 0):
        return None
    kept = [(name, argument(policy, name)) for name in names if name != "buffer_dtype"]
    text = ", ".join(f"{name}={text_of(site)}" for name, site in kept if site is not None)
    return "mp_policy", f"{written[0]}({text})", written[1]


RULE = Rule(
    check,
    code="FSDP902",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE, Applicability.UNSAFE}),
    since="0.1.0",
)
