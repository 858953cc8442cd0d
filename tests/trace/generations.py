"""What FSDP1 has and FSDP2 has not, tests of a model's class, casts and gradient scalers."""

from contextlib import nullcontext

import torch
import torch.nn as nn
from torch.amp import GradScaler
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        return self.head(x)


def new_names(batches):
    model = Net().to(torch.bfloat16)  # event: Cast(value=model, dtype=bfloat16)
    model.half()  # event: Cast(value=model, dtype=float16)
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    scaler = GradScaler(enabled=False)  # event: BuildScaler(sharded=False, enabled=False)
    for at, batch in enumerate(batches):
        model.set_requires_gradient_sync(False)  # event: SetSync(value=model, flag=False)
        model.set_requires_gradient_sync(at % 4 == 3)  # event: SetSync(value=model)
        with model.no_sync():  # event: UseFSDP1(value=model, api=no_sync())
            scaler.scale(model(batch).sum()).backward()
    has = hasattr(model, "no_sync")  # event: CheckClass(by=hasattr)
    sync = model.no_sync if has else nullcontext
    with sync():  # no-event: UseFSDP1
        pass
    with getattr(model, "no_sync", nullcontext)():  # event: CheckClass(by=hasattr, otherwise=False)
        pass
    if isinstance(model, FSDP):  # event: CheckClass(value=model, by=isinstance, otherwise=False)
        print("one")
    if not isinstance(model, FSDPModule):  # event: CheckClass(value=model, by=isinstance, otherwise=True)
        print("one")
    if isinstance(model, FSDP):  # event: CheckClass(value=model, otherwise=True)
        return None
    if type(model) is Net:  # event: CheckClass(value=model, by=type, otherwise=False)
        print("whole")
    return model


def old_names(model, batch):
    model = FSDP(model)
    scaler = ShardedGradScaler()  # event: BuildScaler(sharded=True)
    with model.no_sync():  # event: UseFSDP1(value=model, api=no_sync())
        scaler.scale(model(batch).sum()).backward()
    with FSDP.summon_full_params(model):  # event: UseFSDP1(value=model, api=FSDP.summon_full_params)
        print(model)


def device_by_keyword(model, index):
    device = torch.device(type="cuda", index=index) if index is not None else torch.device(type="cpu")
    model.to(device)
    fully_shard(model)
    model.half()  # event: Cast(value=model, dtype=float16)


def by_a_pattern(flag, kinds):
    model = Net()
    fully_shard(model)
    match model:
        case FSDP():
            model.no_sync()  # no-event: UseFSDP1
        case FSDPModule() as sharded if flag:
            sharded.set_requires_gradient_sync(False)  # event: SetSync(value=model, flag=False)
        case FSDP() | FSDPModule():
            model.set_requires_gradient_sync(True)  # event: SetSync(value=model, flag=True)
        case _:
            model.set_requires_gradient_sync(False)  # no-event: SetSync
    match (flag, model):
        case (True, FSDP()):
            model.no_sync()  # no-event: UseFSDP1
        case (_, FSDPModule() as sharded):
            sharded.set_requires_gradient_sync(False)  # event: SetSync(value=model, flag=False)
    if issubclass(type(model), FSDP):
        model.no_sync()  # no-event: UseFSDP1
    if isinstance(model, (FSDP, type(model))):  # event: CheckClass(value=model)
        model.set_requires_gradient_sync(True)  # event: SetSync(value=model, flag=True)
    if isinstance(model.head, type(model)):  # event: CheckClass(value=model.head)
        model.set_requires_gradient_sync(True)  # no-event: SetSync
