from .optimizers import build_optimizer
