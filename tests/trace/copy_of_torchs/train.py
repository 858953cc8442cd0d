# A copy of torch's file is taken for torch's: what it does inside is known, and long.
import torch
from torch.distributed.fsdp import fully_shard

from state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict


def main(model, state):
    fully_shard(model)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    set_model_state_dict(model, state, options=options)  # event: LoadState(into=model, form=full), Collective(on=model)
    state = get_model_state_dict(model, options=options)  # event: Collective(on=model)
    torch.save(state, "model.pt")
