"""Living storages on the CPU: how many bytes are allocated now, and how many at most. CUDA counts for itself."""

from __future__ import annotations

import contextlib
import gc
import time
import weakref
from collections import deque
from collections.abc import Collection
from typing import Any

import torch

_IN_TRANSIT = 5.0  # seconds in which a group's own thread lets go of what it has sent, on a busy machine too
_QUIET = 0.1  # seconds in which nothing went: then all is gone that goes


class _Known(weakref.ref[Any]):
    """A storage that was seen, and its address, by which it is known."""

    key: int


class Storages:
    """Sees the storages of tensors that operations return, and those that are resized: FSDP2 frees by resizing.

    A storage may die at any moment, in a thread of the process group too: its death is only noted, and counted when
    the next storage is seen. A sum that two threads change would lose some.
    """

    def __init__(self) -> None:
        self.peak = 0
        self._live = 0
        self._known: dict[int, tuple[_Known, int]] = {}
        self._dead: deque[_Known] = deque()
        self._carried: set[int] = set()

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
        self._bury()
        key = storage._cdata
        known = self._known.get(key)
        ref = known[0] if known else _Known(storage, self._dead.append)
        ref.key = key
        self._set(key, ref, storage.nbytes())

    def _set(self, key: int, ref: _Known, size: int) -> None:
        known = self._known.get(key)
        self._live += size - (known[1] if known else 0)
        self._known[key] = (ref, size)
        self.peak = max(self.peak, self._live)

    @property
    def live(self) -> int:
        """Bytes that are allocated now."""
        self._bury()
        return self._live

    def _bury(self) -> None:
        while self._dead:
            ref = self._dead.popleft()
            known = self._known.get(ref.key)
            if known is not None and known[0] is ref:
                del self._known[ref.key]
                self._carried.discard(ref.key)
                self._live -= known[1]

    def carry(self, value: Any) -> None:
        """This goes into a collective."""
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            self._see(value)
            key = value.untyped_storage()._cdata
            if key in self._known:
                self._carried.add(key)
        elif isinstance(value, (list, tuple)):
            for each in value:
                self.carry(each)

    def settle(self, kept: Collection[int]) -> None:
        """Waits until what collectives have carried is gone, apart from `kept` storages, and nothing more goes: gloo's
        threads let go of it, and of copies of their own, some time after the collective is done, and until then it is
        allocated. What is still there after that is held; so is what some tensor of Python's has, for which nobody
        waits."""
        awaited = self._carried - set(kept)
        awaited -= _in_python() if awaited else set()
        began = changed = time.monotonic()
        live = self.live
        while (now := time.monotonic()) < began + _IN_TRANSIT:
            if live != self.live:
                live, changed = self.live, now
            if not self._carried & awaited and now > changed + _QUIET:
                break
            time.sleep(0.002)
        self._carried.clear()

    def start_again(self) -> None:
        """Forgets the peak so far."""
        self.peak = self.live


def _in_python() -> set[int]:
    """The storages of all tensors that Python knows of."""
    found = set()
    for each in gc.get_objects():
        if issubclass(type(each), torch.Tensor):
            with contextlib.suppress(NotImplementedError, RuntimeError):
                found.add(each.untyped_storage()._cdata)
    return found
