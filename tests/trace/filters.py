"""Which modules of many are meant: the tests that stand around a call and speak of its module."""

import re

from torch import nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module): ...


def all_of_them(model: nn.Module):
    for module in model.modules():
        fully_shard(module)  # event: Shard(module=model[...], tests=0)


def by_type(model: nn.Module):
    for module in model.modules():
        if isinstance(module, Block):
            fully_shard(module)  # event: Shard(tests=1)


def by_early_continue(model: nn.Module):
    for module in model.modules():
        if not isinstance(module, Block):
            continue
        fully_shard(module)  # event: Shard(tests=1)


def by_name_of_the_type(model: nn.Module, names):
    for module in model.modules():
        if type(module).__name__ in names:
            fully_shard(module)  # event: Shard(tests=1)
        if module.__class__.__name__ in names:
            fully_shard(module)  # event: Shard(tests=1)


def by_a_function(model: nn.Module, wanted):
    for name, module in model.named_modules():
        if wanted(name, module):
            fully_shard(module)  # event: Shard(tests=1)
        if is_block(module):
            fully_shard(module)  # event: Shard(tests=1)


def is_block(module):
    return isinstance(module, (Block, nn.Embedding))


def by_one_of_several_functions(model: nn.Module, conditions):
    for module in model.modules():
        for condition in conditions:
            if condition(module):
                fully_shard(module)  # event: Shard(tests=1)
                break


def by_an_attribute(model: nn.Module):
    for module in model.modules():
        if getattr(module, "is_block", False):
            fully_shard(module)  # event: Shard(tests=1)
        if hasattr(module, "attention"):
            fully_shard(module)  # event: Shard(tests=1)


def in_a_list_first(model: nn.Module):
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    for block in blocks:
        fully_shard(block)  # event: Shard(tests=1)


def appended_first(model: nn.Module):
    blocks = []
    for module in model.modules():
        if isinstance(module, Block):
            blocks.append(module)
    for block in blocks:
        fully_shard(block)  # event: Shard(tests=1)


def inside_apply(model: nn.Module):
    def shard(module):
        if isinstance(module, Block):
            fully_shard(module)  # event: Shard(tests=1)

    model.apply(shard)


# What is said of the name, the size or the filter of a module is said of the module.


def by_two_tests(model: nn.Module):
    for module in model.modules():
        if isinstance(module, Block) or module is model:
            fully_shard(module)  # event: Shard(tests=1)


def by_its_name(model: nn.Module, names):
    for name, module in model.named_modules():
        if name in names:
            fully_shard(module)  # event: Shard(tests=1)
        if re.fullmatch(r"layers\.\d+", name):
            fully_shard(module)  # event: Shard(tests=1)
        if name.startswith("layers.") and name.count(".") == 1:
            fully_shard(module)  # event: Shard(tests=2)


def by_any_of_several_functions(model: nn.Module, conditions):
    for name, module in model.named_modules():
        if any(condition(name, module) for condition in conditions):
            fully_shard(module)  # event: Shard(tests=1)


def by_its_size(model: nn.Module, least):
    for module in model.modules():
        if sum(p.numel() for p in module.parameters()) > least:
            fully_shard(module)  # event: Shard(tests=1)


def by_filter(model: nn.Module, wanted):
    for module in filter(lambda module: isinstance(module, Block), model.modules()):
        fully_shard(module)  # event: Shard(tests=1)
    for module in filter(wanted, model.modules()):
        fully_shard(module)  # event: Shard(tests=1)


def by_name_in_a_generator(model: nn.Module):
    for module in (module for name, module in model.named_modules() if name.endswith("block")):
        fully_shard(module)  # event: Shard(tests=1)


def by_name_in_a_dict(model: nn.Module, names):
    by_name = dict(model.named_modules())
    for name in names:
        module = by_name[name]
        fully_shard(module)  # event: Shard(module="model[?]")
    for name in by_name:
        if isinstance(by_name[name], Block):
            fully_shard(by_name[name])  # event: Shard(module="model[?]", tests=1)
    for name, module in by_name.items():
        if name.endswith("block"):
            fully_shard(module)  # event: Shard(module=model[...], tests=1)


def by_what_was_kept_first(model: nn.Module):
    for name, module in model.named_modules():
        is_block = name.endswith("block")
        if is_block:
            fully_shard(module)  # event: Shard(tests=1)
        parts = name.split(".")
        if len(parts) > 2 and parts[-1].isdigit():
            fully_shard(module)  # event: Shard(tests=2)
        own = list(module.parameters(recurse=False))
        if len(own) > 0:
            fully_shard(module)  # event: Shard(tests=1)
        if own:
            fully_shard(module)  # known-false: Shard(tests=0)
        if any(True for _ in module.parameters()):
            fully_shard(module)  # known-false: Shard(tests=0)


def by_a_pattern(model: nn.Module):
    for module in model.modules():
        match module:
            case Block():
                fully_shard(module)  # event: Shard(tests=1)
        match type(module).__name__:
            case "Block":
                fully_shard(module)  # event: Shard(tests=1)


def by_its_number(model: nn.Module):
    for at, module in enumerate(model.modules()):
        if at > 3:
            fully_shard(module)  # known-false: Shard(tests=0)


def by_names_that_were_filtered(model: nn.Module):
    names = [name for name, module in model.named_modules() if isinstance(module, Block)]
    for name in names:
        fully_shard(model.get_submodule(name))  # known-false: Shard(tests=0)


def by_name_from_the_end(model: nn.Module):
    for name, module in reversed(list(model.named_modules())):
        if name.endswith("block"):
            fully_shard(module)  # event: Shard(tests=1)


# Tests that do not speak of the module.


def by_a_setting(model: nn.Module, args):
    for module in model.modules():
        if args.fsdp:
            fully_shard(module)  # event: Shard(tests=0)


def by_the_name_of_another(model: nn.Module):
    for name, module in model.named_modules():
        print(module)
        for other in model.children():
            if name == "layers":
                fully_shard(other)  # event: Shard(tests=0)


def by_no_filter(model: nn.Module):
    for module in filter(None, model.modules()):
        fully_shard(module)  # event: Shard(tests=0)


def last_first(model: nn.Module):
    for module in list(model.modules())[::-1]:
        fully_shard(module)  # event: Shard(module=model[...])
