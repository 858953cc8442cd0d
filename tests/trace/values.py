"""Lists, tuples, dicts and their like: where a value goes and comes from."""

from collections import namedtuple
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Linear(8, 8)


class Net(nn.Module):
    def __init__(self, depth: int = 2):
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        self.layers = nn.ModuleList([Block() for _ in range(depth)])
        self.head = nn.Linear(8, 8)


# tuples and lists ----------------------------------------------------------------------------------------------------


def aliases():
    net = Net()
    same = other = net
    fully_shard(other)  # event: Shard(module=net)
    return torch.optim.AdamW(same.parameters())  # event: BuildOptimizer(of=net, sharding=earlier)


def gives_back():
    net = fully_shard(Net())  # event: Shard(module=net)
    moved = net.to("cpu").train()
    return torch.optim.AdamW(moved.parameters())  # event: BuildOptimizer(of=net, sharding=earlier)


def tuple_unpacking():
    net, _, (head, rest) = Net(), 1, (nn.Linear(1, 1), 2)
    fully_shard(head)  # event: Shard(module=head)
    return torch.optim.AdamW(net.parameters()), rest  # event: BuildOptimizer(of=net, sharding=none)


def starred_unpacking():
    head, *rest = [nn.Linear(1, 1), nn.Embedding(2, 2)]
    fully_shard(head)  # event: Shard(module=head, group=())
    return rest


def swapped():
    one, other = Net(), Net()
    one, other = other, one
    fully_shard(one)  # event: Shard(module=other)
    return torch.optim.AdamW(other.parameters())  # event: BuildOptimizer(of=one, sharding=none)


def subscript():
    models = [Net(), nn.Linear(2, 2)]
    fully_shard(models[0])  # event: Shard(module=Net)
    fully_shard(models[-1])  # event: Shard(module=Linear)


def loop_over_a_display():
    net = Net()
    for part in (net.embed, net.head):
        fully_shard(part)  # event: Shard(module=net.embed), Shard(module=net.head)
    for part in net.layers:
        fully_shard(part)  # event: Shard(module=net.layers[0])


def loop_with_enumerate_and_zip():
    net = Net()
    for at, layer in enumerate(net.layers):
        fully_shard(layer, reshard_after_forward=at < 1)  # event: Shard(module=net.layers[0])
    for layer, other in zip(net.layers, net.layers):
        fully_shard(layer)  # event: Shard(module=net.layers[0])
        print(other)


def loop_over_children():
    net = Net()
    for child in net.children():
        fully_shard(child)  # event: Shard(module=net.embed), Shard(module=net.layers), Shard(module=net.head)


def group():
    net = Net()
    fully_shard([net.embed, net.head])  # event: Shard(module=net.embed, group=(net.embed, net.head))


def concatenation():
    net = Net()
    parts = [net.embed] + [net.head]
    parts += [net.layers]
    parts.append(net)
    for part in parts:
        fully_shard(part)
        # event: Shard(module=net.embed), Shard(module=net.head), Shard(module=net.layers), Shard(module=net)


def starred():
    net = Net()
    parts = [*[net.embed], net.head]
    for part in reversed(parts):
        fully_shard(part)  # event: Shard(module=net.embed), Shard(module=net.head)


# comprehensions ------------------------------------------------------------------------------------------------------


def comprehension():
    net = Net()
    [fully_shard(layer) for layer in net.layers]  # event: Shard(module=net.layers[0], loops=1)
    return torch.optim.AdamW(net.parameters())  # event: BuildOptimizer(of=net, sharding=earlier)


def filtered_comprehension(model):
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    for block in blocks:
        fully_shard(block)  # event: Shard(module=model[...], guards=1)


def filter_that_rules_out():
    net = Net()
    for part in [part for part in net.children() if isinstance(part, nn.Linear)]:
        fully_shard(part)  # event: Shard(module=net.head)


def comprehension_with_two_loops(models):
    for layer in [layer for model in models for layer in model.layers]:
        fully_shard(layer)  # event: Shard(module=models[...].layers[...])


def dict_comprehension():
    net = Net()
    by_name = {name: part for name, part in net.named_children()}
    fully_shard(by_name["head"])  # event: Shard(module=net.head)


def generator_and_next():
    net = Net()
    first = next(layer for layer in net.layers)
    fully_shard(first)  # event: Shard(module=net.layers[0])


# dicts ---------------------------------------------------------------------------------------------------------------


def kwargs_in_steps(model: nn.Module, reshard):
    mesh = init_device_mesh("cuda", (8,))
    kwargs = {"mesh": mesh}
    kwargs["reshard_after_forward"] = False
    kwargs.update(mp_policy=MixedPrecisionPolicy(torch.bfloat16))
    fully_shard(model, **kwargs)
    # event: Shard(module=model, mesh=mesh, reshard_after_forward=False, kwargs_known=True)


def kwargs_under_a_test(model: nn.Module, offload):
    kwargs = dict(reshard_after_forward=True)
    if offload:
        kwargs["reshard_after_forward"] = False
    fully_shard(model, **kwargs)  # event: Shard(module=model, reshard_after_forward=(False, True))


def kwargs_merged(model: nn.Module):
    base = {"reshard_after_forward": True}
    fully_shard(model, **{**base, "reshard_after_forward": False})  # event: Shard(reshard_after_forward=False)
    fully_shard(model, **(base | {"shard_placement_fn": None}))
    # event: Shard(reshard_after_forward=True, shard_placement_fn=None)


def kwargs_from_outside(model: nn.Module, **kwargs):
    fully_shard(model, **kwargs)  # event: Shard(module=model, kwargs_known=False)


def kwargs_popped(model: nn.Module):
    kwargs = {"mesh": None, "depth": 3}
    depth = kwargs.pop("depth")
    fully_shard(model, **kwargs)  # event: Shard(module=model, mesh=None, depth=absent)
    return depth


def table_of_functions(model: nn.Module, name):
    table = {"fsdp": shard_all, "none": lambda m: m}
    table[name](model)
    table["fsdp"](model)


def shard_all(model: nn.Module):
    fully_shard(model)  # event: Shard(module=model, guards=1, calls=2), Shard(module=model, guards=0, calls=2)


def table_asked_each_round(model: nn.Module, names):
    table = {"fsdp": shard_in_a_round, "none": lambda m: m}
    for name in names:
        table[name](model)


def shard_in_a_round(model: nn.Module):
    fully_shard(model)  # event: Shard(module=model, guards=0, calls=2)


def table_asked_alike_each_round(model: nn.Module, args, steps):
    table = {"fsdp": shard_alike, "none": lambda m: m}
    for _ in range(steps):
        table[args.mode](model)


def shard_alike(model: nn.Module):
    fully_shard(model)  # event: Shard(module=model, guards=1, calls=2)


def table_with_default(model: nn.Module, name):
    table = {"blocks": lambda m: fully_shard(m.blocks)}  # event: Shard(module=model.blocks, guards=1)
    table.get(name, fully_shard)(model)  # event: Shard(module=model, guards=1)


def dict_of_models():
    models = {"student": Net(), "teacher": Net()}
    fully_shard(models["student"])  # event: Shard(module=Net)
    return torch.optim.AdamW(models["teacher"].parameters())  # event: BuildOptimizer(of=Net, sharding=none)


# records -------------------------------------------------------------------------------------------------------------


@dataclass
class Options:
    reshard: bool = False
    mesh: object = None
    extra: dict = field(default_factory=dict)


def dataclass_with_defaults(model: nn.Module):
    options = Options(mesh=3)
    fully_shard(model, mesh=options.mesh, reshard_after_forward=options.reshard)
    # event: Shard(mesh=3, reshard_after_forward=False)
    fully_shard(model, **options.extra)  # event: Shard(kwargs_known=True)


@dataclass
class Parts:
    model: nn.Module
    optimizer: object = None

    def __post_init__(self):
        fully_shard(self.model)  # event: Shard(module=net)


def dataclass_with_post_init():
    net = Net()
    parts = Parts(net)
    parts.optimizer = torch.optim.AdamW(parts.model.parameters())  # event: BuildOptimizer(of=net, sharding=earlier)


class Pair(NamedTuple):
    model: nn.Module
    name: str = "net"


def named_tuple():
    net = Net()
    pair = Pair(net)
    fully_shard(pair.model)  # event: Shard(module=net)


def named_tuple_unpacked():
    net = Net()
    model, name = Pair(net)
    fully_shard(model)  # event: Shard(module=net)
    return name


Couple = namedtuple("Couple", "model name")


def named_tuple_by_call():
    net = Net()
    couple = Couple(model=net, name="net")
    fully_shard(couple.model)  # known-miss: Shard(module=net)  # known-false: Shard(module=Couple(...).model)


def named_tuple_by_number():
    pair = Pair(Net())
    fully_shard(pair[0])  # known-miss: Shard(module=net)  # known-false: Shard(module=pair[0])


def named_tuple_by_call_unpacked():
    net = Net()
    model, name = Couple(net, "net")
    fully_shard(model)  # known-miss: Shard(module=net)  # known-false: Shard(module=Couple(...)[0])
    return name


def named_tuple_from_a_function():
    model, _ = gives_a_pair()
    fully_shard(model)  # event: Shard(module=net)


def gives_a_pair():
    net = Net()
    return Pair(name="net", model=net)


def made_here_and_filled():
    net = Net()
    setattr(net, "extra", nn.Linear(8, 8))
    # The module holds the part that is set by name, so that the optimizer has its parameters.
    optimizer = torch.optim.AdamW(net.parameters())  # event: BuildOptimizer(sharding=later)
    fully_shard(getattr(net, "extra"))  # event: Shard(module=net.extra)
    return optimizer


def partial_with_arguments(model: nn.Module):
    shard = partial(fully_shard, reshard_after_forward=False)
    shard(model)  # event: Shard(module=model, reshard_after_forward=False)
    shard(model, reshard_after_forward=True)  # event: Shard(module=model, reshard_after_forward=True)


def mapped():
    net = Net()
    list(map(fully_shard, net.layers))  # event: Shard(module=net.layers[0])


def applied(model: nn.Module):
    model.apply(fully_shard)  # event: ShardEach(module=model)


def told_its_type(model):
    typed = cast(nn.Module, model)
    fully_shard(typed)  # event: Shard(module=model)
