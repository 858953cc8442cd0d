"""Finds the mistakes in PyTorch FSDP code that raise no error, and fixes them."""

__version__ = "0.1.0"
