"""Functions, methods and classes of one file, run in place."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


def shard(model: nn.Module, *, root=True):
    for layer in model.layers:
        fully_shard(layer)  # event: Shard(module=model.layers[...], calls=2)
    if root:
        fully_shard(model)  # event: Shard(module=model, calls=2, guards=0)
    return model


def build(model: nn.Module, lr=1e-3):
    return torch.optim.AdamW(model.parameters(), lr=lr)
    # event: BuildOptimizer(of=model, sharding=later), BuildOptimizer(of=model, sharding=earlier)


def one_function_after_another(model):
    shard(model)
    return build(model)


def wrong_order(model):
    optimizer = build(model)
    shard(model, root=True)
    return optimizer


def without_root(model):
    shard(model, root=False)
    return model


# closures ------------------------------------------------------------------------------------------------------------


def closure(model, mesh):
    def inner(part):
        fully_shard(part, mesh=mesh)  # event: Shard(module=model.head, mesh=mesh), Shard(module=model, mesh=mesh)

    inner(model.head)
    inner(model)


def made_by_a_function():
    def make(reshard):
        def inner(part):
            fully_shard(part, reshard_after_forward=reshard)
            # event: Shard(reshard_after_forward=True), Shard(reshard_after_forward=False)

        return inner

    net = nn.Linear(4, 4)
    make(True)(net)
    make(False)(net)


def bound_outside():
    optimizer = None
    net = nn.Linear(4, 4)

    def late():
        nonlocal optimizer
        optimizer = torch.optim.AdamW(net.parameters())  # event: BuildOptimizer(of=net, sharding=earlier)

    fully_shard(net)  # event: Shard(module=net)
    late()
    optimizer.step()  # event: Step


def lambdas(model):
    wrap = lambda part, **kwargs: fully_shard(part, **kwargs)
    # event: Shard(module=model.head, reshard_after_forward=False)
    wrap(model.head, reshard_after_forward=False)


def handed_a_function(model):
    each(model.layers, fully_shard)


def each(parts, function):
    for part in parts:
        function(part)  # event: Shard(module=model.layers[...], loops=1)


def recursive(module):
    for child in module.children():
        recursive(child)
    fully_shard(module)  # event: Shard


def arguments(*models, **options):
    fully_shard(models[0], **options)  # event: Shard(module=net, reshard_after_forward=False, kwargs_known=True)


def gives_arguments():
    net = nn.Linear(4, 4)
    arguments(net, reshard_after_forward=False)


def several_results(flag):
    model = first_or_second(flag)
    fully_shard(model)  # event: Shard(module=small, guards=1), Shard(module=large, guards=1)


def first_or_second(flag):
    if flag:
        small = nn.Linear(2, 2)
        return small
    large = nn.Linear(9, 9)
    return large


def gives_two():
    net = nn.Linear(2, 2)
    return net, torch.optim.AdamW(net.parameters())  # event: BuildOptimizer(of=net, sharding=later)


def takes_two():
    model, optimizer = gives_two()
    fully_shard(model)  # event: Shard(module=net)
    optimizer.step()  # event: Step(of=net, sharding=earlier)


def decorator(function):
    return function


@decorator
def decorated(model):
    fully_shard(model)  # event: Shard(module=net)


@torch.no_grad()
def decorated_by_a_library(model):
    fully_shard(model)  # event: Shard(module=net)


def calls_decorated():
    net = nn.Linear(2, 2)
    decorated(net)
    decorated_by_a_library(net)


def wrapping(function):
    def inner(*args, **kwargs):
        print("before")
        return function(*args, **kwargs)

    return inner


@wrapping
def decorated_by_a_wrapper(model):
    fully_shard(model)  # event: Shard(module=net)


def calls_wrapped():
    net = nn.Linear(2, 2)
    decorated_by_a_wrapper(net)


async def awaited():
    net = nn.Linear(2, 2)
    await shards_later(net)


async def shards_later(model):
    fully_shard(model)  # event: Shard(module=net)


def generator(model):
    for layer in model.layers:
        yield layer


def walks_a_generator(model):
    for layer in generator(model):
        fully_shard(layer)  # event: Shard(module=model.layers[...])


def generator_of_all(model):
    yield from model.layers
    yield model


def walks_a_delegating_generator(model):
    for part in generator_of_all(model):
        fully_shard(part)  # event: Shard(module=model.layers[...]), Shard(module=model)


def walks_a_chain(model: nn.Module):
    for part in itertools.chain(model.layers, [model]):
        fully_shard(part)  # event: Shard(module=model.layers[...]), Shard(module=model)


def walks_a_chain_of_lists(model: nn.Module):
    for part in itertools.chain.from_iterable([model.layers, model.heads]):
        fully_shard(part)  # event: Shard(module=model.layers[...]), Shard(module=model.heads[...])


def overwritten_parameter(model):
    model = model.inner
    fully_shard(model)  # event: Shard(module=model.inner)


# functions that another thread runs, and hooks ------------------------------------------------------------------------


def threads(model: nn.Module):
    thread = Thread(target=in_a_thread, args=(model,))
    thread.start()
    Thread(target=lambda: fully_shard(model.head), daemon=True).start()  # event: Shard(module=model.head)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(in_a_pool, model, root=False)
    thread.join()


def in_a_thread(model):
    fully_shard(model.body)  # event: Shard(module=model.body, calls=2)


def in_a_pool(model, root):
    if not root:
        fully_shard(model.tail)  # event: Shard(module=model.tail, guards=0)


def hooks_of_an_optimizer():
    net = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(net.parameters())  # event: BuildOptimizer(of=net, sharding=later)
    optimizer.register_step_post_hook(lambda *_: fully_shard(net))  # event: Shard(module=net)


def tower():
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))


def two_of_one_factory(batch):
    """Each call makes a model of its own."""
    net = tower()
    fully_shard(net)  # event: Shard(module=net, guards=0)
    check = tower()
    return torch.optim.SGD(check.parameters(), lr=0.1)  # event: BuildOptimizer(of=check, sharding=none)
