"""torch.distributed: what all ranks of a group must call together."""

from __future__ import annotations

import re

from fsdp_lint.trace.events import Collective, Receive
from fsdp_lint.trace.models.api import Call, Handler, Machine
from fsdp_lint.trace.values import Const, Sequence, Unknown, Value, options_of

OPERATIONS = (
    "barrier",
    "monitored_barrier",
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "reduce",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "scatter",
    "scatter_object_list",
    "all_to_all",
    "all_to_all_single",
)
AGREEING = frozenset({"all_reduce", "all_gather", "all_gather_into_tensor", "reduce", "all_gather_object", "gather"})
# Calls of these names bring the ranks together.
TOGETHER = re.compile(
    r"reduce|gather|sync|broadcast|agree|across|world|vote|consensus|any_rank|all_rank", re.IGNORECASE
)


def _collective(op: str) -> Handler:
    def handler(run: Machine, call: Call) -> Value:
        group = call.kwargs.get("group") or (call.args[0] if op == "barrier" and call.args else None)
        if isinstance(group, Const) and group.value is None:
            group = None
        run.emit(Collective, call.site, op=op, on=tuple(call.values()), group=group, plain=True)
        if op == "broadcast_object_list" and call.args:
            _hear(call.args[0])
        return Unknown()

    return handler


def _hear(sent: Value) -> None:
    """A list holds what rank 0 had in it, whatever it held: the same on all ranks."""
    lists = [option for option, _ in options_of(sent) if isinstance(option, Sequence)]
    heard = [Unknown(name="received") for _ in range(max((len(one.items) for one in lists), default=0))]
    for one in lists:
        one.items[:] = heard[: len(one.items)]


def receive(run: Machine, call: Call) -> Value:
    """`recv` and its kin: the first argument holds what another rank has sent."""
    run.emit(Receive, call.site, into=tuple(call.values()[:1]))
    return Unknown()


def sync_module(run: Machine, call: Call) -> Value:
    """torch's own helpers that send a module's parameters and buffers from rank 0."""
    run.emit(Collective, call.site, op="broadcast", on=tuple(call.args), plain=True)
    return Unknown()


FUNCTIONS = {
    **dict.fromkeys(
        (
            "torch.distributed.utils._sync_module_states",
            "torch.distributed.utils._sync_params_and_buffers",
            "torch.distributed._broadcast_coalesced",
            "torch.distributed.distributed_c10d._broadcast_coalesced",
        ),
        sync_module,
    ),
    **{
        f"torch.distributed.{module}{op}": receive
        for op in ("recv", "irecv", "recv_object_list")
        for module in ("", "distributed_c10d.")
    },
    **{f"torch.distributed.{module}{op}": _collective(op) for op in OPERATIONS for module in ("", "distributed_c10d.")},
}
