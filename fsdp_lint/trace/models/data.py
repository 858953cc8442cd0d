"""torch.utils.data: loaders and the datasets that they read."""

from __future__ import annotations

from fsdp_lint.trace.events import BuildLoader
from fsdp_lint.trace.models.api import Call, Machine
from fsdp_lint.trace.values import Instance, Object, Value

HOMES = ("torch.utils.data", "torch.utils.data.dataloader")


def loader(run: Machine, call: Call) -> Value:
    """`DataLoader(dataset, ...)`."""
    kwargs = dict(call.kwargs)
    for at, name in enumerate(("dataset", "batch_size", "shuffle", "sampler", "batch_sampler")):
        if at < len(call.args):
            kwargs.setdefault(name, call.args[at])
    dataset = kwargs.pop("dataset", call.first())
    if isinstance(dataset, Instance):
        run.draw(dataset, call.site)
    made = run.new(Object(cls="torch.utils.data.DataLoader", args=(dataset,), kwargs=kwargs, site=call.site))
    run.emit(BuildLoader, call.site, loader=made, dataset=dataset, kwargs=kwargs, kwargs_known=not call.open)
    return made


FUNCTIONS = {f"{home}.DataLoader": loader for home in HOMES}
