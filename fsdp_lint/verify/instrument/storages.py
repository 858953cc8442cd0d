"""Living storages on the CPU: how many bytes are allocated now, and how many at most. CUDA counts for itself."""

from __future__ import annotations

import weakref
from typing import Any

import torch


class Storages:
    """Sees the storages of tensors that operations return, and those that are resized: FSDP2 frees by resizing."""

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}

    def install(self) -> None:
        """Follows `resize_` from here on."""
        real = torch.UntypedStorage.resize_

        def resize_(storage: Any, size: int) -> Any:
            done = real(storage, size)
            if storage._cdata in self._known:
                self._set(storage._cdata, self._known[storage._cdata][0], storage.nbytes())
            return done

        torch.UntypedStorage.resize_ = resize_

    def see(self, result: Any) -> None:
        """An operation has returned this."""
        if isinstance(result, torch.Tensor):
            if result.device.type == "cpu":
                self._see(result)
        elif isinstance(result, (list, tuple)):
            for each in result:
                self.see(each)

    def _see(self, tensor: Any) -> None:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse and the like have none
            return
        key = storage._cdata
        known = self._known.get(key)
        ref = known[0] if known else weakref.ref(storage, lambda _: self._gone(key))
        self._set(key, ref, storage.nbytes())

    def _set(self, key: int, ref: weakref.ref[Any], size: int) -> None:
        known = self._known.get(key)
        self.live += size - (known[1] if known else 0)
        self._known[key] = (ref, size)
        self.peak = max(self.peak, self.live)

    def _gone(self, key: int) -> None:
        known = self._known.pop(key, None)
        if known:
            self.live -= known[1]

    def start_again(self) -> None:
        """Forgets the peak so far."""
        self.peak = self.live
