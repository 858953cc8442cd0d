"""A value that is a new one in each round has one order; one from outside has both."""

import torch
from somewhere import Builder, build, settings
from torch import nn
from torch.distributed.fsdp import fully_shard


def module_of_torch():
    for size in settings():
        model = nn.Linear(size, size)
        fully_shard(model)  # event: Shard(loops=1)
        torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)


def module_of_a_model_library(names):
    from transformers import AutoModel

    for name in names:
        model = AutoModel.from_pretrained(name)
        fully_shard(model)  # event: Shard
        torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)


def made_by_a_function_of_the_file():
    for size in settings():
        model = make(size)
        fully_shard(model)  # event: Shard
        torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)


def make(size):
    return nn.Linear(size, size)


def from_outside(model: nn.Module):
    for _ in settings():
        fully_shard(model)  # event: Shard
        torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=both)


# What unknown code gives in a round counts as one value for all rounds, so that both orders are claimed.


def made_by_an_unknown_function():
    for each in settings():
        model = build(each)
        fully_shard(model)  # event: Shard
        torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=both)


def made_by_a_method_of_the_item():
    for each in settings():
        model = each.build()
        fully_shard(model)  # event: Shard
        torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=both)


def made_by_a_method(builder: Builder):
    for each in settings():
        model = builder.build(each)
        fully_shard(model)  # event: Shard
        torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=both)


def items_of_a_list(models):
    for model in models:
        fully_shard(model)  # event: Shard
        torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=both)


def items_of_a_dict(models):
    for name, model in models.items():
        fully_shard(model)  # event: Shard
        torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=both)
        print(name)


def items_by_number(models):
    for at in range(len(models)):
        fully_shard(models[at])  # event: Shard
        torch.optim.AdamW(models[at].parameters())  # known-false: BuildOptimizer(sharding=both)


# Rounds that are run one by one have an order, too.


def items_of_a_display():
    for model in [nn.Linear(1, 1), nn.Linear(2, 2)]:
        fully_shard(model)  # event: Shard
        torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)


def functions_of_a_display(model: nn.Module):
    for step in (shard, build_optimizer):
        step(model)


def shard(model):
    fully_shard(model)  # event: Shard


def build_optimizer(model):
    torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)


def functions_of_a_display_in_the_wrong_order(model: nn.Module):
    for step in (build_optimizer_first, shard):
        step(model)


def build_optimizer_first(model):
    torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=later)


def names_of_stages(model: nn.Module):
    for stage in ["optimize", "shard"]:
        if stage == "shard":
            fully_shard(model)  # event: Shard
        else:
            torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=later)


def one_of_the_items():
    one, two = nn.Linear(1, 1), nn.Linear(2, 2)
    for model in (one, two):
        torch.optim.AdamW(one.parameters())  # event: BuildOptimizer(sharding=later), BuildOptimizer(sharding=earlier)
        fully_shard(model)  # event: Shard


def items_of_a_dict_display():
    parts = {"one": nn.Linear(1, 1), "two": nn.Linear(2, 2)}
    for model in parts.values():
        fully_shard(model)  # event: Shard
        torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)


def display_in_a_loop(model: nn.Module, epochs):
    for _ in epochs:
        for stage in ("shard", "optimize"):
            if stage == "shard":
                fully_shard(model)  # event: Shard
            else:
                torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=both)


# These are not run one by one, though all rounds are known.


def numbers_of_items():
    models = [nn.Linear(1, 1), nn.Linear(2, 2)]
    for at in range(2):
        fully_shard(models[at])  # event: Shard
        torch.optim.AdamW(models[at].parameters())  # known-false: BuildOptimizer(sharding=both)


def items_in_a_comprehension():
    models = [nn.Linear(1, 1), nn.Linear(2, 2)]
    return [torch.optim.AdamW(fully_shard(model).parameters()) for model in models]
    # event: Shard
    # known-false: BuildOptimizer(sharding=both)


def items_that_a_comprehension_made():
    for model in [nn.Linear(size, size) for size in range(4)]:
        fully_shard(model)  # event: Shard
        torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=both)


# A module can be sharded once only: what follows in the same round follows.


def first_round_only(model: nn.Module, steps):
    for step in range(steps):
        if step == 0:
            fully_shard(model)  # event: Shard
            torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=both)


def once_by_a_flag(model: nn.Module, steps):
    done = False
    for _ in range(steps):
        if not done:
            fully_shard(model)  # event: Shard
            torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=both)
            done = True


def until_it_works(model: nn.Module):
    for _ in range(3):
        try:
            fully_shard(model)  # event: Shard
            break
        except RuntimeError:
            continue
    torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)


def parts_of_one_model(model: nn.Module):
    for layer in model.children():
        fully_shard(layer)  # event: Shard
        torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=both)
