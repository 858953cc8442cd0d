"""Libraries around torch: which do nothing that rules speak of, and what the others do on the user's behalf."""

from __future__ import annotations

HARMLESS = (
    "torch",
    "numpy",
    "math",
    "os",
    "sys",
    "logging",
    "loguru",
    "wandb",
    "tqdm",
    "json",
    "yaml",
    "time",
    "datetime",
    "random",
    "builtins",
    "warnings",
    "re",
    "pathlib",
    "typing",
    "dataclasses",
    "argparse",
    "tensorboard",
    "tensorboardX",
    "rich",
    "psutil",
    "gc",
    "contextlib",
    "itertools",
    "functools",
    "collections",
    "copy",
    "inspect",
    "pprint",
    "torchinfo",
    "torchsummary",
    "mlflow",
    "datasets",
    "einops",
    "packaging",
    "tempfile",
    "shutil",
    "subprocess",
    "threading",
    "hydra.utils.get_original_cwd",
)
# Its stages are sharded and called by schedules.
HARMFUL = ("torch.distributed.pipelining", "torch.distributed.tensor.parallel", "torch.export", "torch.fx")
FRESH_MODELS = ("from_pretrained", "from_config", "_from_config", "create_model", "get_model")


def is_harmless(dotted: str) -> bool:
    """True for library calls that leave modules, parameters and optimizers as they are."""
    if any(dotted == name or dotted.startswith(f"{name}.") for name in HARMFUL):
        return False
    return any(dotted == name or dotted.startswith(f"{name}.") for name in HARMLESS)
