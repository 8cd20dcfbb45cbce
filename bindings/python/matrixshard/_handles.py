# SPDX-License-Identifier: Apache-2.0
"""What wraps a C handle: closing, order of destruction, and one call at a time.

    Topology, Plan, Comm, Unit, ...  (Handle)      what users hold
            |
          Owned    the pointer; knows its parents (a unit's comm) and who uses it: children and exported views

`close()` destroys at once, and raises what the library says if it can't (HELD). While children or exported views are
alive it is put off until the last of them is gone, so that an array never points to memory that is no longer there.
At the interpreter's exit everything that is left is destroyed, the newest first.

Calls on a comm's family come one at a time (comm.h). Python makes that easy to break: autograd has threads of its own
and the garbage collector destroys from any. So each family has a lock, and what can't have it at once is destroyed at
the family's next call.
"""
from __future__ import annotations

import atexit
import os
import threading
import weakref
from ctypes import byref, c_void_p

from ._library import check, lib
from .errors import InvalidArgumentError


class Family:
    """A comm and all that is made from it, or one handle that stands alone."""

    def __init__(self, rank: int | None = None):
        self.rank = rank
        self.lock = threading.RLock()
        self._late: list[Owned] = []

    def call(self, function, *arguments) -> int:
        """A call of the library, alone in the family; raises its failure."""
        with self.lock:
            while self._late:
                self._late.pop().destroy_quietly()
            return check(function(*arguments), self.rank)

    def destroy_later(self, owned: Owned) -> None:
        self._late.append(owned)


class Owned:
    """A pointer that is destroyed once nobody uses it."""

    def __init__(self, pointer: c_void_p, destroy, family: Family, parents: tuple[Owned, ...]):
        self.pointer: c_void_p | None = pointer
        self.family = family
        self.uses = 0
        self.closed = False
        self._destroy = destroy
        self._parents = parents
        self._process = os.getpid()
        for parent in parents:
            parent.uses += 1
        _alive[id(self)] = self

    def close(self) -> None:
        """Destroys, or puts it off while it is in use."""
        if self.pointer is None:
            return
        if self.uses > 0:
            self.closed = True
            return
        pointer = c_void_p(self.pointer.value)
        if self._process == os.getpid():  # a forked child has nothing to destroy
            result = self._destroy
            if result.restype is None:
                result(byref(pointer))
            else:
                self.family.call(result, byref(pointer))
        self.forget()

    def forget(self) -> None:
        self.pointer = None
        _alive.pop(id(self), None)
        parents, self._parents = self._parents, ()
        for parent in parents:
            parent.release()

    def release(self) -> None:
        """One use less."""
        self.uses -= 1
        if self.uses == 0 and self.closed:
            self.close_quietly()

    def close_quietly(self) -> None:
        """From finalizers, which can neither wait nor raise."""
        if not self.family.lock.acquire(blocking=False):
            self.family.destroy_later(self)
            return
        try:
            self.destroy_quietly()
        finally:
            self.family.lock.release()

    def destroy_quietly(self) -> None:
        try:
            self.close()
        except Exception:  # pylint: disable=broad-except
            pass  # still held: it is destroyed at exit


_alive: dict[int, Owned] = {}


def _destroy_all() -> None:
    for owned in reversed(list(_alive.values())):
        owned.uses = 0
        owned.destroy_quietly()


atexit.register(_destroy_all)


class Handle:
    """Base of all that wraps a C handle. A context manager: `with Comm() as comm:` closes it at the end."""

    _destroy_name = ''

    def _own(self, pointer: c_void_p, family: Family | None = None, parents: tuple[Handle, ...] = ()) -> None:
        family = family or Family()
        destroy = getattr(lib, self._destroy_name)
        self._owned = Owned(pointer, destroy, family, tuple(parent._owned for parent in parents))
        self._finalizer = weakref.finalize(self, self._owned.close_quietly)
        self._finalizer.atexit = False

    @property
    def _pointer(self) -> c_void_p:
        owned = getattr(self, '_owned', None)
        if owned is None or owned.pointer is None or owned.closed:
            raise InvalidArgumentError(f'this {type(self).__name__} is closed')
        return owned.pointer

    def _call(self, function, *arguments) -> int:
        """function(handle, *arguments), alone in the family; raises its failure."""
        return self._owned.family.call(function, self._pointer, *arguments)

    @property
    def closed(self) -> bool:
        """True after close(). Since 0.1."""
        owned = getattr(self, '_owned', None)
        return owned is None or owned.pointer is None or owned.closed

    def close(self) -> None:
        """Destroy it. While views or handles made from it are alive, this is put off until they are gone.

        Raises HeldError where the library refuses: gathered, open, in flight, or part of an optimizer. Closing twice
        does nothing. Since 0.1.
        """
        owned = getattr(self, '_owned', None)
        if owned is not None:
            owned.close()

    def __enter__(self):
        self._pointer  # closed already?
        return self

    def __exit__(self, *exception) -> None:
        if exception[0] is None:
            self.close()
        else:
            self._owned.destroy_quietly()  # what happened first is what matters

    def __reduce__(self):
        raise TypeError(f'a {type(self).__name__} belongs to this process: it can be neither pickled nor copied')
