from .wrap import wrap_model


def prepare_model(model):
    return wrap_model(model)
