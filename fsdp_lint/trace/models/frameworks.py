"""Libraries around torch: which do nothing that rules speak of, and what the others do on the user's behalf."""

from __future__ import annotations

import functools
import re

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
    "csv",
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
    "transformers.trainer_pt_utils.get_module_class_from_name",
    "accelerate.utils.fsdp_utils.get_parameters_from_modules",
    "types",
)
# Its stages are sharded and called by schedules.
HARMFUL = (
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.export",
    "torch.fx",
    "torch.distributed.checkpoint.state_dict._init_optim_state",
)
FRESH_MODELS = ("from_pretrained", "from_config", "_from_config", "create_model", "get_model")
UNTRAINED = ("from_config", "_from_config")

# Calls of libraries that may set seeds, by their names.
SETS_UP = re.compile(
    r"seed|setup|set_up|init|launch|prepare|start|main|accelerator|fabric|trainer|engine|run$", re.IGNORECASE
)

# Names of functions that may shard the module that they get, or that they are methods of.
SHARDS = re.compile(r"shard|fsdp|parallel|(?<!un)wrap|prepare|setup|distribut|configure", re.IGNORECASE)
# What these libraries make of a model has other parts or kernels, but never units of FSDP (peft/mapping_func.py,
# liger_kernel/transformers/monkey_patch.py).
NO_SHARDERS = ("peft.", "liger_kernel.")
IS_MODEL = re.compile(r"^(?!_)(.*(model|module|network|block|layer|transformer)s?|(.*_)?net|h)$", re.IGNORECASE)
# Methods and attributes that only models have which are lists of blocks with something around them.
HAS_BLOCKS = frozenset({"gradient_checkpointing_enable", "enable_gradient_checkpointing", "_no_split_modules"})
# Attributes and settings that list the classes of layers, and so not that of the model.
NAMES_LAYERS = re.compile(r"_no_split_modules|(layer|block)\w*_(cls|class)|wrap_modules")

MODEL_LIBRARIES = ("transformers", "diffusers", "timm", "torchvision.models", "open_clip", "peft", "x_transformers")
MODEL_NAME = re.compile(r"(Model|For[A-Z]\w+|LMHead\w*|Transformer\w*|UNet\w*|ViT|VisionTransformer|Autoencoder\w*)$")


def is_model_class(dotted: str) -> bool:
    """True for classes of model libraries that are modules, by their names."""
    library = any(dotted.startswith(f"{name}.") for name in MODEL_LIBRARIES)
    return library and bool(MODEL_NAME.search(dotted.rpartition(".")[2]))


def is_untrained(dotted: str) -> bool:
    """True for what makes a model of transformers or diffusers with random values: `from_config(config)`."""
    return dotted.startswith(("transformers.", "diffusers.")) and dotted.rpartition(".")[2] in UNTRAINED


def has_blocks(dotted: str) -> bool:
    """True for what makes a model of transformers: all of these are lists of blocks with something around them."""
    *_, maker, last = f".{dotted}".split(".")
    name = maker if last in FRESH_MODELS else last
    return dotted.startswith("transformers.") and bool(MODEL_NAME.search(name))


@functools.lru_cache(maxsize=1 << 12)
def is_harmless(dotted: str) -> bool:
    """True for library calls that leave modules, parameters and optimizers as they are."""
    if any(dotted == name or dotted.startswith(f"{name}.") for name in HARMFUL):
        return False
    return any(dotted == name or dotted.startswith(f"{name}.") for name in HARMLESS)


# Functions of frameworks that shard a module in place, each block and the root, and the argument that is the module.
# In the order of the rows: torchtune/training/_distributed.py, accelerate/utils/fsdp_utils.py,
# verl/utils/fsdp_utils.py, torchtitan/distributed/fsdp.py (until 0.2 torchtitan/models/llama3/infra/parallelize.py),
# and those of torchtitan/models/*/parallelize.py that call it in any case.
SHARDERS = (
    "torchtune.training.shard_model(0)",
    "torchtune.training.shard_model(model)",
    "torchtune.training._distributed.shard_model(0)",
    "accelerate.utils.fsdp2_prepare_model(1)",
    "accelerate.utils.fsdp_utils.fsdp2_prepare_model(1)",
    "verl.utils.fsdp_utils.apply_fsdp2(0)",
    "verl.utils.fsdp_utils.apply_fsdp2(model)",
    "torchtitan.distributed.fsdp.apply_fsdp_to_decoder(0)",
    "torchtitan.models.llama3.infra.parallelize.apply_fsdp(0)",
    *(
        f"torchtitan.models.{name}({argument})"
        for name in (
            "llama3.parallelize_llama",
            "llama3.parallelize.parallelize_llama",
            "deepseek_v3.parallelize_deepseekv3",
            "deepseek_v3.parallelize.parallelize_deepseekv3",
        )
        for argument in (0, "model")
    ),
)
# Functions that only read a sharded model, and gather it with all ranks: torchtune/training/_distributed.py
# and verl/utils/fsdp_utils.py.
GATHERERS = (
    "torchtune.training.gather_cpu_state_dict(0)",
    "torchtune.training.gather_cpu_state_dict(model)",
    "torchtune.training.get_full_optimizer_state_dict(0)",
    "verl.utils.fsdp_utils.get_fsdp_full_state_dict(0)",
    "verl.utils.fsdp_utils.get_fsdp_full_state_dict(model)",
)
