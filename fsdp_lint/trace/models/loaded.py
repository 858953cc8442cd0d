"""The modules of torch that are there after `import torch` (measured, 2.13.0), so that attributes lead to them."""

from __future__ import annotations

WITH_PACKAGE = frozenset(
    {
        "torch",
        "torch.amp",
        "torch.cuda",
        "torch.distributed",
        "torch.nn",
        "torch.nn.functional",
        "torch.nn.init",
        "torch.nn.utils",
        "torch.optim",
        "torch.utils",
    }
)
