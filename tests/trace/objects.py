"""Objects: attributes across methods, base classes, properties, modules that hold modules."""

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        return self.head(self.layers(x))


# a class that nobody makes: __init__, then each method, with no order among them -------------------------------------


class Trainer:
    def __init__(self, config):
        self.model = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        # event: BuildOptimizer(of=self.model, sharding=later)
        self.setup()

    def setup(self):
        fully_shard(self.model)  # event: Shard(module=self.model, calls=2)

    def train(self, batches):
        for batch in batches:
            self.model(batch).sum().backward()
            self.optimizer.step()  # event: Step(of=self.model)


class Hooks:
    def configure_model(self):
        self.model = Net()
        fully_shard(self.model)  # event: Shard(module=self.model)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters())  # event: BuildOptimizer(of=self.model, sharding=none)


class Given:
    def __init__(self, model):
        self.model = model

    def shard(self):
        for layer in self.model.layers:
            fully_shard(layer)  # event: Shard(module=model.layers[...])
        fully_shard(self.model)  # event: Shard(module=model)


# base classes --------------------------------------------------------------------------------------------------------


class Base(ABC):
    def __init__(self):
        self.model = self.make()
        self.shard(self.model)
        self.optimizer = self.optimize()

    @abstractmethod
    def make(self): ...

    def shard(self, model):
        fully_shard(model)  # event: Shard(module=self.model), Shard(module=model)

    def optimize(self):
        return torch.optim.AdamW(self.model.parameters())  # event: BuildOptimizer(of=self.model, sharding=earlier)


class Derived(Base):
    def make(self):
        return Net()

    def shard(self, model):
        fully_shard(model.head)  # event: Shard(module=self.model.head), Shard(module=model.head)
        super().shard(model)


class Further(Derived):
    def __init__(self):
        super(Further, self).__init__()
        self.ready = True


class Mixin:
    def shard_it(self):
        fully_shard(self.module)  # event: Shard(module=self.module)


class Mixed(Mixin, Base):
    def __init__(self):
        self.module = Net()
        self.shard_it()


# properties and class members ----------------------------------------------------------------------------------------


class Properties:
    kwargs = {"reshard_after_forward": False}

    def __init__(self):
        self._net = Net()
        fully_shard(self.net, **self.kwargs)  # event: Shard(module=self._net, reshard_after_forward=False)
        fully_shard(self.first)  # event: Shard(module=self._net.head)
        self.static(self.net)
        self.of_class(self.net)
        Properties.static(self.net)

    @property
    def net(self):
        return self._net

    @cached_property
    def first(self):
        return self.net.head

    @staticmethod
    def static(model):
        fully_shard(model)  # event: Shard(module=self._net)

    @classmethod
    def of_class(cls, model):
        fully_shard(model, **cls.kwargs)  # event: Shard(module=self._net, reshard_after_forward=False)


class Factory:
    def __init__(self, model):
        self.model = model

    @classmethod
    def build(cls):
        return cls(Net())

    def shard(self):
        fully_shard(self.model)  # event: Shard(module=model)
        return self


def uses_factory():
    factory = Factory.build().shard()
    return torch.optim.AdamW(factory.model.parameters())  # event: BuildOptimizer(sharding=earlier)


class Callable:
    def __call__(self, model):
        fully_shard(model)  # event: Shard(module=net)


def calls_an_object():
    net = Net()
    wrap = Callable()
    wrap(net)


def bound_method_as_value():
    net = Net()
    wrap = Callable().__call__
    wrap(net)


def two_objects():
    one, other = Given(Net()), Given(Net())
    fully_shard(one.model)  # event: Shard(module=model)
    return torch.optim.AdamW(other.model.parameters())  # event: BuildOptimizer(of=model, sharding=none)


# modules -------------------------------------------------------------------------------------------------------------


class Wrapper(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.extra = nn.Linear(4, 4)

    def shard(self):
        fully_shard(self.inner)  # event: Shard(module=wrapper.inner)
        return fully_shard(self)  # event: Shard(module=wrapper)


def a_part_is_sharded():
    net = Net()
    wrapper = Wrapper(net)
    optimizer = torch.optim.AdamW(wrapper.parameters())  # event: BuildOptimizer(of=wrapper, sharding=later)
    wrapper.shard()
    return optimizer


def another_part():
    net = Net()
    optimizer = torch.optim.AdamW(net.head.parameters())  # event: BuildOptimizer(of=net.head, sharding=none)
    fully_shard(net.layers[0])  # event: Shard(module=net.layers[0])
    return optimizer


def built_in_steps():
    net = nn.Sequential()
    for _ in range(3):
        net.append(nn.Linear(4, 4))
    net.add_module("last", nn.Linear(4, 4))
    fully_shard(net.last)  # event: Shard(module=net.last)
    fully_shard(net)  # event: Shard(module=net)


def sequential_from_a_comprehension():
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)])
    for layer in net:
        fully_shard(layer)  # event: Shard
    fully_shard(net)  # event: Shard(module=net)


class Registry:
    def __init__(self):
        self.models = {}
        self.models["net"] = Net()
        fully_shard(self.models["net"])  # event: Shard


# contexts ------------------------------------------------------------------------------------------------------------


@contextmanager
def context():
    net = Net()
    fully_shard(net)  # event: Shard(module=net)
    yield net


def enters_a_context():
    with context() as net:
        torch.optim.AdamW(net.parameters())  # event: BuildOptimizer(of=net, sharding=earlier)


class Session:
    def __enter__(self):
        self.net = Net()
        return self.net

    def __exit__(self, *exc):
        fully_shard(self.net)  # event: Shard(module=net)


def enters_an_object():
    with Session() as net:
        torch.optim.AdamW(net.parameters())  # event: BuildOptimizer(sharding=later)


# a method that is asked often -----------------------------------------------------------------------------------------


class Store:
    def __init__(self):
        self.one = Net()
        self.two = Net()
        self.three = Net()
        self.four = Net()
        self.five = Net()
        self.six = Net()

    def get(self, name):
        return getattr(self, name)


def asks_twice():
    store = Store()
    optimizer = torch.optim.AdamW(store.get("five").parameters())  # event: BuildOptimizer(sharding=none)
    fully_shard(store.get("six"))  # event: Shard(module=six)
    return optimizer


def asks_often():
    store = Store()
    for name in ("one", "two", "three", "four"):
        print(store.get(name))
    optimizer = torch.optim.AdamW(store.get("five").parameters())  # event: BuildOptimizer(sharding=none)
    fully_shard(store.get("six"))  # event: Shard(module=six)
    return optimizer


@dataclass
class Settings:
    use_fsdp: bool = False
    layers: int = 2


def change(settings, **kwargs):
    for name, value in kwargs.items():
        if hasattr(settings, name):
            setattr(settings, name, value)


def flag_set_by_unknown_name(model: nn.Module, **kwargs):
    settings = Settings()
    if settings.use_fsdp:
        fully_shard(model)
    change(settings, **kwargs)
    if settings.use_fsdp:
        fully_shard(model)  # event: Shard(module=model)
