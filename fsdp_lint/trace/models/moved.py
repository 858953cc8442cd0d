"""Names of torch that have moved, the old private path and the public one; and names that are gone."""

from __future__ import annotations

from typing import NamedTuple

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
    """The public module that has all of these names; None where the path is not old or a name has no new home.

    Without names, the one that stands for the old module as a whole.
    """
    home = MOVED.get(module)
    if home is None or not set(names) <= home[1]:
        return None
    return home[0]


def submodule(module: str, names: tuple[str, ...]) -> str | None:
    """The old module that `from package import module` binds; None for other imports."""
    whole = f"{module}.{names[0]}" if len(names) == 1 and module not in MOVED else ""
    return whole if whole in MOVED else None


class Removed(NamedTuple):
    """A name that is gone since a release, or `deprecated`; `instead` is what has taken its place, by its dotted name.

    `same` is "safe" where the new name may simply be written for the old one, "unsafe" where it does another thing.
    """

    since: str
    instead: str = ""
    same: str = ""
    deprecated: bool = False


# By dotted name, or by module where the whole module is gone. Each was looked up in the wheels of torch 1.12.1, 1.13.1,
# 2.0.1 to 2.3.1, and its import was tried on 2.4.1 to 2.13.0.
_WRAP = "torch.distributed.fsdp.wrap"
_CHECKPOINT_WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
_DCP = "torch.distributed.checkpoint"
_OLD_FSDP2 = "torch.distributed._composable.fsdp"
_OLD_FSDP2_PARTS = (
    "_fsdp_collectives",
    "_fsdp_common",
    "_fsdp_init",
    "_fsdp_param",
    "_fsdp_param_group",
    "_fsdp_state",
)
REMOVED: dict[str, Removed] = {
    f"{_WRAP}.default_auto_wrap_policy": Removed("1.12", f"{_WRAP}.size_based_auto_wrap_policy", "safe"),
    "torch.distributed.fsdp.default_auto_wrap_policy": Removed("1.12", f"{_WRAP}.size_based_auto_wrap_policy", "safe"),
    f"{_WRAP}.ParamExecOrderWrapPolicy": Removed("2.0"),
    f"{_WRAP}.config_auto_wrap": Removed("1.12", f"{_WRAP}.enable_wrap"),
    f"{_CHECKPOINT_WRAPPER}.apply_activation_checkpointing_wrapper": Removed(
        "1.13", f"{_CHECKPOINT_WRAPPER}.apply_activation_checkpointing", "safe"
    ),
    "torch.distributed._composable.fully_shard": Removed("2.6", "torch.distributed.fsdp.fully_shard", "unsafe"),
    "torch.distributed._composable.fully_shard.fully_shard": Removed(
        "2.6", "torch.distributed.fsdp.fully_shard", "unsafe"
    ),
    "torch.distributed.fsdp.flatten_params_wrapper": Removed("2.0"),
    "torch.distributed._tensor.parallel": Removed("2.0", "torch.distributed.tensor.parallel"),
    **{
        f"{_OLD_FSDP2}._fsdp_api.{name}": Removed("2.6", f"torch.distributed.fsdp.{name}", "safe")
        for name in ("MixedPrecisionPolicy", "CPUOffloadPolicy", "OffloadPolicy")
    },
    **{
        f"{_OLD_FSDP2}.{part}": Removed("2.6", f"torch.distributed.fsdp._fully_shard.{part}")
        for part in _OLD_FSDP2_PARTS
    },
    f"{_DCP}.save_state_dict": Removed("2.2", f"{_DCP}.save", deprecated=True),
    f"{_DCP}.load_state_dict": Removed("2.2", f"{_DCP}.load", deprecated=True),
}


def concerns(module: str, names: tuple[str, ...]) -> bool:
    """True when an import is one that these tables speak of."""
    return (
        module in MOVED
        or module in REMOVED
        or submodule(module, names) is not None
        or any(f"{module}.{name}" in REMOVED for name in names)
    )
