"""Loops, branches and returns: which of two events comes first."""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


def straight(model: nn.Module):
    optimizer = torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=later)
    fully_shard(model)  # event: Shard(module=model)
    return optimizer


def right(model: nn.Module):
    fully_shard(model)  # event: Shard(module=model, guards=0, loops=0)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def arms_exclude_each_other(model: nn.Module, flag: bool):
    if flag:
        fully_shard(model)  # event: Shard(module=model, guards=1)
    else:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=none)
    return None


def far_apart_on_one_test(model: nn.Module, flag: bool):
    if not flag:
        optimizer = torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=none)
    print("between")
    if flag:
        fully_shard(model)  # event: Shard(module=model)
        optimizer = torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)
    return optimizer


def far_apart_on_a_test_of_other_outcome(model: nn.Module, flag: bool):
    if not flag:
        optimizer = torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=later)
    flag = True
    if flag:
        fully_shard(model)  # event: Shard(module=model)
    return optimizer


def far_apart_on_a_name_bound_anew(model: nn.Module, config):
    flag = config.first
    if not flag:
        optimizer = torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=later)
    flag = config.second
    if flag:
        fully_shard(model)  # event: Shard(module=model)
    return optimizer


def far_apart_on_an_attribute(model: nn.Module, config):
    if config.shard:
        fully_shard(model)  # event: Shard(module=model)
    if not config.shard:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=none)
    return None


def early_return_of_the_other_case(model: nn.Module, flag: bool):
    if not flag:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=none)
    fully_shard(model)  # event: Shard(module=model, guards=1)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def early_raise(model: nn.Module, name: str):
    if name == "fsdp":
        fully_shard(model)  # event: Shard(module=model)
    elif name == "none":
        pass
    else:
        raise ValueError(name)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def equal_to_different_strings(model: nn.Module, name: str):
    if name == "late":
        optimizer = torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=none)
    if name == "early":
        fully_shard(model)  # event: Shard(module=model)
        optimizer = torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)
    return optimizer


def known_test(model: nn.Module):
    flag = False
    if flag:
        fully_shard(model)  # no-event: Shard
    if not flag:
        fully_shard(model)  # event: Shard(guards=0)


def loop_in_both_orders(model: nn.Module, steps):
    for _ in steps:
        optimizer = torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=both)
        fully_shard(model)  # event: Shard(loops=1)
    return optimizer


def born_in_the_loop(sizes):
    for size in sizes:
        model = nn.Linear(size, size)
        fully_shard(model)  # event: Shard(loops=1)
        optimizer = torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)
        optimizer.zero_grad()


def while_loop(model: nn.Module, queue):
    while queue.more():
        fully_shard(model)  # event: Shard(loops=1)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def loop_left_early(model: nn.Module, names):
    for name in names:
        if name == "skip":
            continue
        if name == "stop":
            break
        fully_shard(model)  # event: Shard(module=model, loops=1)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def after_a_loop_that_returns(model: nn.Module, names):
    for name in names:
        if name == "mine":
            return fully_shard(model)  # event: Shard(module=model)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=none)


def conditional_expression(model: nn.Module, flag: bool):
    fully_shard(model) if flag else None  # event: Shard(module=model, guards=1)
    return None if flag else torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)


def match_on_a_subject(model: nn.Module, name: str):
    match name:
        case "fsdp":
            fully_shard(model)  # event: Shard(module=model)
        case "none":
            return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=none)
        case _:
            raise ValueError(name)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def match_after_if(model: nn.Module, name: str):
    if name == "none":
        optimizer = torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=none)
    match name:
        case "fsdp":
            fully_shard(model)  # event: Shard(module=model)
            optimizer = torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)
    return optimizer


def match_binds_its_capture(kind):
    match kind:
        case {"model": inner}:
            fully_shard(inner)  # event: Shard(module=inner)


def with_block(model: nn.Module, path):
    with open(path) as file, torch.device("meta"):
        fully_shard(model)  # event: Shard(module=model, contexts=(open(...), torch.device(meta)))
    file.close()


def try_and_except(model: nn.Module):
    try:
        fully_shard(model)  # event: Shard(module=model)
    except RuntimeError:  # event: Swallow
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=none)
    else:
        print("sharded")
    finally:
        print("done")
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def finally_comes_last(model: nn.Module):
    try:
        optimizer = torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=later)
    finally:
        fully_shard(model)  # event: Shard(module=model)
    return optimizer


def sharded_again(model: nn.Module):
    fully_shard(model)  # event: Shard(module=model)
    model(1)
    model.reshard()  # event: Reshard(module=model)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def caught_and_gone_on(model: nn.Module):
    try:
        fully_shard(model)  # event: Shard(module=model)
    except Exception:  # event: Swallow
        print("not sharded")
    return model


def caught_and_raised(model: nn.Module):
    try:
        fully_shard(model)  # event: Shard(module=model)
    except Exception:
        print("not sharded")
        raise


def a_missing_name(model: nn.Module):
    try:
        fully_shard(model)  # event: Shard(module=model)
    except ValueError:
        return None
