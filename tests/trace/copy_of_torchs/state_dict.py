"""What a project took over from torch, under the names that it has there."""

from dataclasses import dataclass


@dataclass
class StateDictOptions:
    full_state_dict: bool = False
    cpu_offload: bool = False


def get_model_state_dict(model, *, options=None):
    return _own(model.state_dict(), options)


def get_optimizer_state_dict(model, optimizers, *, options=None):
    return _own(optimizers.state_dict(), options)


def set_model_state_dict(model, model_state_dict, *, options=None):
    return model.load_state_dict(_own(model_state_dict, options))


def set_state_dict(model, optimizers, *, model_state_dict, optim_state_dict, options=None):
    set_model_state_dict(model, model_state_dict, options=options)
    optimizers.load_state_dict(optim_state_dict)


def _own(state, options):
    return {name: value for name, value in state.items() if options is not None}
