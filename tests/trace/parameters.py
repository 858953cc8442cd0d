"""Parameters are taken when their iterator is walked, not when it is made."""

import itertools

import copy

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


def iterator_made_early(model: nn.Module):
    params = model.parameters()
    fully_shard(model)
    return torch.optim.AdamW(params)  # event: TakeParameters(of=model, sharding=earlier)


def list_made_early(model: nn.Module):
    params = list(model.parameters())  # event: TakeParameters(of=model, sharding=later)
    fully_shard(model)
    return torch.optim.AdamW(params)


def listed_in_every_way(model: nn.Module):
    tuple(model.parameters())  # event: TakeParameters(sharding=later)
    [*model.parameters()]  # event: TakeParameters(sharding=later)
    {**dict(model.named_parameters())}  # event: TakeParameters(sharding=later)
    [p for p in model.parameters() if p.requires_grad]  # event: TakeParameters(sharding=later)
    sorted(model.parameters(), key=len)  # event: TakeParameters(sharding=later)
    fully_shard(model)


def lazy_in_every_way(model: nn.Module):
    filtered = filter(lambda p: p.requires_grad, model.parameters())
    generated = (p for p in model.parameters() if p.requires_grad)
    named = (p for name, p in model.named_parameters() if "bias" not in name)
    chained = itertools.chain(model.parameters(), model.parameters())
    fully_shard(model)
    torch.optim.AdamW(filtered)  # event: TakeParameters(sharding=earlier)
    torch.optim.AdamW(generated)  # event: TakeParameters(sharding=earlier)
    torch.optim.AdamW(named)  # event: TakeParameters(sharding=earlier)
    torch.optim.AdamW(chained)  # event: TakeParameters(sharding=earlier)


def groups(model: nn.Module):
    decay = [p for n, p in model.named_parameters() if "bias" not in n]
    # event: TakeParameters(of=model, sharding=later)
    plain = [p for n, p in model.named_parameters() if "bias" in n]  # event: TakeParameters(of=model, sharding=later)
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain}]
    fully_shard(model)
    return torch.optim.AdamW(groups, lr=1e-3)


def groups_by_append(model: nn.Module):
    decay, plain = [], []
    for name, param in model.named_parameters():  # event: TakeParameters(of=model, sharding=later)
        if name.endswith("bias"):
            plain.append(param)  # event: TakeParameters(of=model, sharding=later)
        else:
            decay.append(param)  # event: TakeParameters(of=model, sharding=later)
    fully_shard(model)
    return torch.optim.AdamW([{"params": decay}, {"params": plain}])


def groups_with_lazy_iterators(model: nn.Module):
    groups = [{"params": model.parameters(), "lr": 1e-3}]
    fully_shard(model)
    return torch.optim.AdamW(groups)  # event: TakeParameters(of=model, sharding=earlier)


def one_weight(model):
    fully_shard(model)
    weight = model.head.weight  # event: TakeParameters(of=model.head, sharding=earlier)
    return weight


def first_parameter(model: nn.Module):
    first = next(model.parameters())  # event: TakeParameters(of=model, sharding=later)
    fully_shard(model)
    return first.device


def walked_twice(model: nn.Module):
    params = model.parameters()
    count = sum(p.numel() for p in params)  # event: TakeParameters(of=model, sharding=later)
    fully_shard(model)
    return count


def helper(model: nn.Module):
    params = trainable(model)
    fully_shard(model)
    return torch.optim.AdamW(params)


def trainable(model: nn.Module):
    return [p for p in model.parameters() if p.requires_grad]  # event: TakeParameters(of=model, sharding=later)


def lazy_helper(model: nn.Module):
    params = lazily(model)
    fully_shard(model)
    return torch.optim.AdamW(params)


def lazily(model: nn.Module):
    for p in model.parameters():  # known-false: TakeParameters(of=model, sharding=later)
        yield p


def new_parts(model: nn.Module):
    fully_shard(model)
    model.head = nn.Linear(4, 4)  # event: Attach(module=model, key=head)
    setattr(model, "neck", nn.Linear(4, 4))  # event: Attach(module=model, key=neck)
    model.add_module("tail", nn.Linear(4, 4))  # event: Attach(module=model, key=tail)
    model.scale = nn.Parameter(torch.ones(1))  # event: Attach(module=model, key=scale)
    model.register_parameter("shift", nn.Parameter(torch.ones(1)))  # event: Attach(module=model, key=shift)
    model.layers[0] = nn.Linear(4, 4)  # event: Attach(key=[0])
    model.again = model.head
    model.mode = "train"
    return model


def copied(model: nn.Module):
    fully_shard(model)
    other = copy.deepcopy(model)  # event: Copy(module=model)
    both = copy.deepcopy({"model": model, "step": 1})  # event: Copy(module=model)
    copy.deepcopy(model.state_dict())
    return other, both


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight
        # event: Tie(module=model.head, key=weight, to=model.embed), TakeParameters(of=model.embed)

    def untie(self):
        self.head.weight = nn.Parameter(torch.ones(8, 4))  # event: Tie(module=model.head, key=weight, to=None)


def tied_inside():
    model = Tied()
    model.untie()
    fully_shard(model)


def tied_from_outside(model: nn.Module):
    model.head.weight = model.embed.weight  # event: Tie(module=model.head, key=weight, to=model.embed)
    fully_shard(model)
