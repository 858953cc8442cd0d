"""Two far-apart tests: which of them exclude each other, so that two events are in no order."""

import sys
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


def one_name(model: nn.Module, flag):
    if flag:
        fully_shard(model)  # event: Shard
    if not flag:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def one_attribute(model: nn.Module, args):
    if args.fsdp:
        fully_shard(model)  # event: Shard
    if not args.fsdp:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def is_none(model: nn.Module, args):
    if args.mesh is not None:
        fully_shard(model)  # event: Shard
    if args.mesh is None:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def equal_and_not_equal(model: nn.Module, args):
    if args.strategy != "none":
        fully_shard(model)  # event: Shard
    if args.strategy == "none":
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def equal_to_two_literals(model: nn.Module, args):
    if args.strategy == "fsdp":
        fully_shard(model)  # event: Shard
    if args.strategy == "none":
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def one_test_with_a_name(model: nn.Module, args):
    use_fsdp = args.strategy == "fsdp"
    if args.strategy == "fsdp":
        fully_shard(model)  # event: Shard
    if not use_fsdp:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def zero_and_more(model: nn.Module, args):
    if args.shards > 0:
        fully_shard(model)  # event: Shard
    if args.shards == 0:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def part_of_a_conjunction(model: nn.Module, args):
    if args.fsdp and args.shards > 1:
        fully_shard(model)  # event: Shard
    if not args.fsdp:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def part_of_a_disjunction(model: nn.Module, args):
    if args.fsdp:
        fully_shard(model)  # event: Shard
    if not (args.fsdp or args.ddp):
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def type_of_a_value(model, layers):
    for layer in layers:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)  # event: Shard
        if not isinstance(layer, nn.Linear):
            torch.optim.AdamW(layer.parameters())  # event: BuildOptimizer(sharding=none)


def result_of_a_call(model: nn.Module, config):
    if config.get("fsdp"):
        fully_shard(model)  # event: Shard
    if not config.get("fsdp"):
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def item_of_a_dict(model: nn.Module, config):
    if config["fsdp"]:
        fully_shard(model)  # event: Shard
    if not config["fsdp"]:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


@dataclass
class Config:
    fsdp: bool = True
    shards: int = 8


def literal_default_of_a_dataclass(model: nn.Module):
    config = Config()
    if not config.fsdp:
        optimizer = torch.optim.AdamW(model.parameters())  # no-event: BuildOptimizer
        print(optimizer)
    if config.shards > 1:
        fully_shard(model)  # event: Shard(guards=0)


# What several tests together rule out, and what other spellings of a test say.


def conjunction_with_a_name(model: nn.Module, args):
    use_fsdp = args.fsdp and args.shards > 1
    if use_fsdp:
        fully_shard(model)  # event: Shard
    if not use_fsdp:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def negated_conjunction(model: nn.Module, args):
    if args.fsdp and args.shards > 1:
        fully_shard(model)  # event: Shard
    if not (args.fsdp and args.shards > 1):
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def conjunction_and_what_de_morgan_says(model: nn.Module, args):
    if args.fsdp and args.shards > 1:
        fully_shard(model)  # event: Shard
    if not args.fsdp or args.shards <= 1:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def greater_and_at_most(model: nn.Module, args):
    if args.shards > 1:
        fully_shard(model)  # event: Shard
    if args.shards <= 1:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def greater_and_equal(model: nn.Module, args):
    if args.shards > 1:
        fully_shard(model)  # event: Shard
    if args.shards == 1:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def conjunction_the_other_way_round(model: nn.Module, args):
    if args.fsdp and args.shards > 1:
        fully_shard(model)  # event: Shard
    if args.shards > 1 and args.fsdp:
        print("sharded")
    else:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def one_of_several_literals(model: nn.Module, args):
    if args.strategy in ("fsdp", "fsdp2"):
        fully_shard(model)  # event: Shard
    if args.strategy == "none":
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def either_of_two_literals(model: nn.Module, args):
    if args.strategy == "fsdp" or args.strategy == "fsdp2":
        fully_shard(model)  # event: Shard
    if args.strategy == "none":
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def alternatives_of_a_pattern(model: nn.Module, args):
    match args.strategy:
        case "fsdp" | "fsdp2":
            fully_shard(model)  # event: Shard
    if args.strategy == "none":
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def wildcard_of_a_match(model: nn.Module, args):
    match args.strategy:
        case "none":
            pass
        case _:
            fully_shard(model)  # event: Shard
    if args.strategy == "none":
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def return_in_a_loop(model: nn.Module, names):
    for name in names:
        if name == "plain":
            return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    fully_shard(model)  # event: Shard
    return None


def break_in_a_loop(model: nn.Module, names):
    for name in names:
        if name == "plain":
            break
    else:
        fully_shard(model)  # event: Shard
        return torch.optim.SGD(model.parameters())  # event: BuildOptimizer(sharding=earlier)
    return torch.optim.AdamW(model.parameters())  # known-miss: BuildOptimizer(sharding=none)


def walrus(model: nn.Module, config):
    if mesh := config.mesh():
        fully_shard(model, mesh=mesh)  # event: Shard
    if not mesh:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def flag_that_a_branch_sets(model: nn.Module, args):
    sharded = False
    if args.fsdp:
        fully_shard(model)  # event: Shard
        sharded = True
    if not sharded:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def value_that_a_branch_sets(model: nn.Module, args):
    optimizer = None
    if not args.fsdp:
        optimizer = torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    if optimizer is None:
        fully_shard(model)  # event: Shard


def function_that_tells(model: nn.Module, args):
    if wants_fsdp(args):
        fully_shard(model)  # event: Shard
    if not wants_fsdp(args):
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def wants_fsdp(args):
    return args.fsdp and args.shards > 1


class Trainer:
    def __init__(self, model: nn.Module, args):
        self.use_fsdp = args.strategy == "fsdp"
        self.model = model
        self.shard()
        self.build()

    def shard(self):
        if self.use_fsdp:
            fully_shard(self.model)  # event: Shard

    def build(self):
        if not self.use_fsdp:
            self.optimizer = torch.optim.AdamW(self.model.parameters())  # event: BuildOptimizer(sharding=none)


class Parallel:
    def __init__(self, model: nn.Module, args):
        self.args = args
        self.model = model
        if self.enabled:
            fully_shard(self.model)  # event: Shard
        if not self.enabled:
            self.optimizer = torch.optim.AdamW(self.model.parameters())  # event: BuildOptimizer(sharding=none)

    @property
    def enabled(self):
        return self.args.shards > 1


def conjunction_inside_a_larger_one(model: nn.Module, args):
    if args.fsdp and args.shards > 1 and args.offload:
        fully_shard(model)  # event: Shard
    if not (args.fsdp and args.shards > 1):
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def nested_tests_and_their_negated_conjunction(model: nn.Module, args):
    if args.fsdp:
        if args.shards > 1:
            fully_shard(model)  # event: Shard
    if not (args.fsdp and args.shards > 1):
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def in_and_not_in(model: nn.Module, args):
    if args.strategy in ("fsdp", "fsdp2"):
        fully_shard(model)  # event: Shard
    if args.strategy not in ("fsdp", "fsdp2"):
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def none_and_truth(model: nn.Module, mesh=None):
    if mesh is not None and mesh:
        fully_shard(model)  # event: Shard
    if mesh is None:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


# Exclusions by truth and None, and by leaving early; where they are not seen, a known-false mark says so.


def raise_in_a_loop(model: nn.Module, names):
    for name in names:
        if name == "plain":
            torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
            raise SystemExit
    fully_shard(model)  # event: Shard


def truth_and_none(model: nn.Module, mesh=None):
    if mesh:
        fully_shard(model)  # event: Shard
    if mesh is None:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    return None


def truth_and_length(model: nn.Module, names):
    if len(names) > 0:
        fully_shard(model)  # event: Shard
    if not names:
        return torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=earlier)
    return None


def two_groups_of_literals(model: nn.Module, args):
    if args.strategy in ("fsdp", "fsdp2"):
        fully_shard(model)  # event: Shard
    if args.strategy in ("none", "ddp"):
        return torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=earlier)
    return None


def two_ranges(model: nn.Module, args):
    if args.shards > 4:
        fully_shard(model)  # event: Shard
    if args.shards < 2:
        return torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=earlier)
    return None


def false_and_truth(model: nn.Module, args):
    if args.fsdp is False:
        torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    if args.fsdp:
        fully_shard(model)  # event: Shard


def literal_and_none(model: nn.Module, args):
    if args.strategy is None:
        torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=later)
    if args.strategy == "fsdp":
        fully_shard(model)  # event: Shard


def literal_and_no_text(model: nn.Module, args):
    if not args.strategy:
        torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    if args.strategy == "fsdp":
        fully_shard(model)  # event: Shard


def literal_and_its_beginning(model: nn.Module, args):
    if not args.strategy.startswith("fsdp"):
        torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=later)
    if args.strategy == "fsdp":
        fully_shard(model)  # event: Shard


def number_and_truth(model: nn.Module, args):
    if not args.shards:
        torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
    if args.shards > 1:
        fully_shard(model)  # event: Shard


def item_of_a_dict_and_get(model: nn.Module, config):
    if not config.get("fsdp", False):
        torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=later)
    if config["fsdp"]:
        fully_shard(model)  # event: Shard


def exit_of_the_process(model: nn.Module, args):
    if args.plain:
        torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=none)
        sys.exit(0)
    fully_shard(model)  # event: Shard


def break_and_else(model: nn.Module, names):
    for name in names:
        if name == "plain":
            torch.optim.AdamW(model.parameters())  # known-false: BuildOptimizer(sharding=later)
            break
    else:
        fully_shard(model)  # event: Shard


# Tests that look alike and do not exclude each other.


def conjunction_and_one_part(model: nn.Module, args):
    if args.fsdp and args.shards > 1:
        fully_shard(model)  # event: Shard
    if args.fsdp:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)
    return None


def negated_conjunction_and_one_part(model: nn.Module, args):
    if not (args.fsdp and args.shards > 1):
        fully_shard(model)  # event: Shard
    if args.fsdp:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)
    return None


def conjunction_and_another_negated(model: nn.Module, args):
    if args.fsdp and args.shards > 1:
        fully_shard(model)  # event: Shard
    if not (args.fsdp and args.offload):
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)
    return None


def conjunction_and_a_larger_one_negated(model: nn.Module, args):
    if args.fsdp and args.shards > 1:
        fully_shard(model)  # event: Shard
    if not (args.fsdp and args.shards > 1 and args.offload):
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)
    return None


def negated_conjunction_twice(model: nn.Module, args):
    if not (args.fsdp and args.shards > 1):
        fully_shard(model)  # event: Shard
    if not (args.fsdp and args.shards > 1):
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)
    return None


def ranges_that_overlap(model: nn.Module, args):
    if args.shards > 1:
        fully_shard(model)  # event: Shard
    if args.shards <= 4:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)
    return None


def ranges_with_one_number(model: nn.Module, args):
    if args.shards >= 1:
        fully_shard(model)  # event: Shard
    if args.shards <= 1:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)
    return None


def number_in_a_range(model: nn.Module, args):
    if args.shards < 4:
        fully_shard(model)  # event: Shard
    if args.shards == 2:
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)
    return None


def literal_in_a_group(model: nn.Module, args):
    if args.strategy in ("fsdp", "fsdp2"):
        fully_shard(model)  # event: Shard
    if args.strategy == "fsdp2":
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)
    return None


def group_and_another_group_negated(model: nn.Module, args):
    if args.strategy in ("fsdp", "fsdp2"):
        fully_shard(model)  # event: Shard
    if args.strategy not in ("fsdp", "none"):
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)
    return None


def neither_of_two_literals(model: nn.Module, args):
    if args.strategy != "none":
        fully_shard(model)  # event: Shard
    if args.strategy != "ddp":
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)
    return None


def part_bound_anew(model: nn.Module, args):
    if args.fsdp and args.shards > 1:
        fully_shard(model)  # event: Shard
    args.fsdp = args.other
    if not (args.fsdp and args.shards > 1):
        return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)
    return None


def raise_in_a_loop_that_is_caught(model: nn.Module, names):
    try:
        for name in names:
            if name == "mine":
                fully_shard(model)  # event: Shard
                raise StopIteration
    except StopIteration:
        pass
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)


def return_in_a_loop_of_a_called_function(model: nn.Module, names):
    shards_one(model, names)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)


def shards_one(model, names):
    for name in names:
        if name == "mine":
            return fully_shard(model)  # event: Shard
    return None


# The item of another round, and what a call gives the next time, are other values.


def tests_of_the_item(model: nn.Module, stages):
    for stage in stages:
        if stage == "shard":
            fully_shard(model)  # event: Shard
        if stage == "optimize":
            torch.optim.AdamW(model.parameters())
            # known-miss: BuildOptimizer(sharding=both)
            # known-false: BuildOptimizer(sharding=none)


def return_in_a_later_round(model: nn.Module, stages):
    for stage in stages:
        if stage == "optimize":
            return torch.optim.AdamW(model.parameters())
            # known-miss: BuildOptimizer(sharding=earlier)
            # known-false: BuildOptimizer(sharding=none)
        fully_shard(model)  # event: Shard
    return None


def asked_twice(model: nn.Module, queue):
    if queue.get():
        fully_shard(model)  # event: Shard
    if not queue.get():
        return torch.optim.AdamW(model.parameters())
        # known-miss: BuildOptimizer(sharding=earlier)
        # known-false: BuildOptimizer(sharding=none)
    return None


def two_tests_of_one_of_several(model: nn.Module, options):
    least = options.get("least")
    if least is None:
        least = options.get("most", 1_000)
    if least <= 0:
        raise ValueError("least")
    if least > 0:
        fully_shard(model)  # event: Shard(module=model, ranks=all)
