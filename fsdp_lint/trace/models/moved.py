"""Names of torch that have moved: the old private path and the public one."""

from __future__ import annotations

MOVED: dict[str, tuple[str, frozenset[str]]] = {
    **dict.fromkeys(
        ("torch.distributed._composable.fsdp", "torch.distributed._composable.fsdp.fully_shard"),
        (
            "torch.distributed.fsdp",
            frozenset(
                {
                    "fully_shard",
                    "FSDPModule",
                    "MixedPrecisionPolicy",
                    "CPUOffloadPolicy",
                    "OffloadPolicy",
                    "UnshardHandle",
                    "register_fsdp_forward_method",
                }
            ),
        ),
    ),
    "torch.distributed._composable.fsdp._fsdp_api": (
        "torch.distributed.fsdp",
        frozenset({"MixedPrecisionPolicy", "CPUOffloadPolicy", "OffloadPolicy"}),
    ),
    "torch.distributed._tensor": (
        "torch.distributed.tensor",
        frozenset(
            {
                "DTensor",
                "DeviceMesh",
                "Shard",
                "Replicate",
                "Partial",
                "Placement",
                "distribute_tensor",
                "distribute_module",
                "empty",
                "full",
                "ones",
                "rand",
                "randn",
                "zeros",
            }
        )
        - {"DeviceMesh"},
    ),
}


def new_home(module: str, names: tuple[str, ...]) -> str | None:
    """The public module that has all of these names; None where the path is not old or a name has no new home."""
    home = MOVED.get(module)
    if home is None or not names or not set(names) <= home[1]:
        return None
    return home[0]
