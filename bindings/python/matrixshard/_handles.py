# SPDX-License-Identifier: Apache-2.0
"""What wraps a C handle: closing, order of destruction, and one call at a time.

    Topology, Plan, Comm, Unit, ...  (Handle)      what users hold
            |
          Owned    the pointer; knows its parents (a unit's comm) and who uses it: children and exported views

`close()` destroys at once, and raises what the library says if it can't (HELD). While children or exported views are
alive it is put off until the last of them is gone, so that an array never points to memory that is no longer there.
At the interpreter's exit everything that is left is destroyed, the newest first, arrays or not: peers see a rank that
has left, not one that has died.

Calls on a comm's family come one at a time (comm.h). Python makes that easy to break: autograd has threads of its own,
and the garbage collector destroys from any, in the middle of a callback, too. So each family has a lock, and what a
finalizer can't destroy at once is destroyed at the family's next call.
"""
from __future__ import annotations

import atexit
import collections
import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from ctypes import byref, c_int32, c_uint64, c_void_p
from typing import Any

from ._library import check, lib
from ._structs import info
from .errors import InvalidArgumentError, MatrixShardError


class _Alone:
    """What a family's calls take, one at a time. Families that were joined have one together."""

    _made = 0

    def __init__(self):
        self.lock = threading.RLock()
        self.depth = 0  # calls that are in the library, of the thread that has the lock; above 0 in callbacks
        self.late: collections.deque[Owned] = collections.deque()
        _Alone._made += 1
        self.serial = _Alone._made
        self._settles = False

    def settle(self) -> None:
        """Destroys what finalizers had to leave. The lock is held."""
        if self.depth > 0 or self._settles:
            return
        self._settles = True
        try:
            for _ in range(len(self.late)):
                self.destroy(self.late.popleft())
        finally:
            self._settles = False

    def destroy(self, owned: Owned) -> None:
        """For finalizers: now, or at the family's next call if one is in the library or the library refuses."""
        if self.depth == 0:
            owned.destroy_quietly()
        if owned.pointer is not None and owned.uses == 0:
            self.late.append(owned)


class Family:
    """A comm and all that is made from it, or one handle that stands alone."""

    def __init__(self, rank: int | None = None):
        self.rank = rank
        self.alone = _Alone()
        self.failure: BaseException | None = None  # that a callback has raised, to be raised by the call
        _families.add(self)

    @property
    def lock(self) -> threading.RLock:
        return self.alone.lock

    def run(self, body, *arguments):
        """body(*arguments), alone in the family."""
        alone = self._acquire()
        try:
            return body(*arguments)
        finally:
            alone.lock.release()

    def call(self, function, *arguments) -> int:
        """A call of the library, alone in the family; raises its failure."""
        alone = self._acquire()
        try:
            if alone.late:
                alone.settle()
            alone.depth += 1
            try:
                status = function(*arguments)
            finally:
                alone.depth -= 1
            try:
                return check(status, self.rank)
            except MatrixShardError as error:
                failure, self.failure = self.failure, None
                if failure is not None:
                    raise failure from error
                raise
        finally:
            alone.lock.release()

    def finalize(self, owned: Owned) -> None:
        """Destroys from a finalizer, which can neither wait nor raise."""
        alone = self._try_acquire()
        if alone is None:
            self.alone.late.append(owned)
            return
        try:
            alone.destroy(owned)
        finally:
            alone.lock.release()

    def settle(self) -> None:
        self.alone.settle()

    def join(self, other: Family) -> None:
        """From here on both are one, as they are to the library (mxs_unit_options.replicas)."""
        first, second = sorted((self.alone, other.alone), key=lambda alone: alone.serial)
        if first is second:
            return
        with first.lock, second.lock:
            first.late.extend(second.late)
            for family in list(_families):
                if family.alone is second:
                    family.alone = first

    def _acquire(self) -> _Alone:
        while True:
            alone = self.alone
            alone.lock.acquire()
            if alone is self.alone:
                return alone
            alone.lock.release()  # joined meanwhile

    def _try_acquire(self) -> _Alone | None:
        while True:
            alone = self.alone
            if not alone.lock.acquire(False):
                return None
            if alone is self.alone:
                return alone
            alone.lock.release()


class Families:
    """Several families at once, for an optimizer of units of several comms."""

    def __init__(self, families: list[Family]):
        self.rank = families[0].rank
        self._families = list(dict.fromkeys(families))

    def _in_order(self) -> list[Family]:
        """The same for all threads, so that none waits for another in a circle."""
        return sorted(self._families, key=lambda family: family.alone.serial)

    def run(self, body, *arguments):
        first, *others = self._in_order()
        return first.run(*(family.run for family in others), body, *arguments)

    def call(self, function, *arguments) -> int:
        first, *others = self._in_order()
        return first.call(*(family.call for family in others), function, *arguments)

    def finalize(self, owned: Owned) -> None:
        families = self._in_order()
        taken = []
        try:
            for family in families:
                alone = family._try_acquire()
                if alone is None:
                    break
                taken.append(alone)
            if len(taken) == len(families) and not any(alone.depth for alone in taken):
                taken[0].destroy(owned)
            else:
                families[0].alone.late.append(owned)
        finally:
            for alone in taken:
                alone.lock.release()

    def settle(self) -> None:
        for family in self._in_order():
            family.settle()

    @property
    def failure(self) -> BaseException | None:
        return self._in_order()[-1].failure

    @failure.setter
    def failure(self, failure: BaseException | None) -> None:
        self._in_order()[-1].failure = failure


_families: weakref.WeakSet[Family] = weakref.WeakSet()
# Called before a handle is closed and when one is made: they let go of uses whose end nobody has told (views.py).
before_close: list[Callable[[], None]] = []
# Called at the interpreter's exit, before everything is destroyed: they wait for what would be lost.
before_exit: list[Callable[[], None]] = []
# Of the counts of uses, which any thread changes, finalizers in the middle of anything among them.
_counting = threading.RLock()


def _after_fork() -> None:
    """Threads that had locks are not in the child; its calls are refused by the library, not hung up here."""
    global _counting
    _counting = threading.RLock()
    for family in list(_families):
        family.alone = _Alone()


os.register_at_fork(after_in_child=_after_fork)


class Owned:
    """A pointer that is destroyed once nobody uses it."""

    def __init__(self, pointer: c_void_p, destroy, family: Family | Families, parents: tuple[Owned, ...] = (),
                 keep: tuple = ()):
        self.pointer: c_void_p | None = pointer
        self.family = family
        self.uses = 0
        self.closed = False
        self._closes = False  # a call that destroys it settles what is late, which may be this very one
        self._keep = keep  # what the library has borrowed until destroy
        self._destroy = destroy
        self._parents = parents
        self._process = os.getpid()
        for look in before_close:
            look()
        for parent in parents:
            parent.hold()
        _alive[id(self)] = self

    def hold(self) -> None:
        """One use more: a view, a child, a call of another thread."""
        with _counting:
            self.uses += 1

    def release(self) -> None:
        """One use less."""
        if _counting is None:  # the interpreter has ended; _destroy_all() came before
            return
        with _counting:
            self.uses -= 1
            is_last = self.uses == 0 and self.closed
        if is_last:
            self.close_quietly()

    def close(self) -> None:
        """Destroys, or puts it off while it is in use."""
        if self.pointer is None:
            return
        for look in before_close:
            look()
        self.family.run(self._close)  # not while another thread is in a call of it

    def _close(self) -> None:
        if self.pointer is None or self._closes:
            return
        self._closes = True
        try:
            self._close_once()
        finally:
            self._closes = False

    def _close_once(self) -> None:
        if self.uses > 0:
            self.family.settle()
        with _counting:
            if self.uses > 0:
                self.closed = True
                return
        assert self.pointer is not None
        pointer = c_void_p(self.pointer.value)
        if self._process == os.getpid():  # a forked child has nothing to destroy
            if getattr(self._destroy, 'restype', c_int32) is None:
                self._destroy(byref(pointer))
            else:
                self.family.call(self._destroy, byref(pointer))
        self.forget()

    def forget(self) -> None:
        self.pointer = None
        self._keep = ()
        _alive.pop(id(self), None)
        parents, self._parents = self._parents, ()
        for parent in parents:
            parent.release()

    def close_quietly(self) -> None:
        """From finalizers, which can neither wait nor raise."""
        if self.pointer is not None:
            self.family.finalize(self)

    def destroy_quietly(self) -> None:
        try:
            self.close()
        except Exception:  # pylint: disable=broad-except
            pass  # still held: it is tried again at the family's next call


_alive: dict[int, Owned] = {}


def _destroy_all() -> None:
    for wait in before_exit:
        wait()
    for owned in reversed(list(_alive.values())):
        owned.uses = 0
        owned.destroy_quietly()


atexit.register(_destroy_all)


class Handle:
    """Base of all that wraps a C handle. A context manager: `with Comm() as comm:` closes it at the end."""

    _destroy_name = ''
    _owned: Owned

    def _own(self, pointer: c_void_p, family: Family | Families | None = None, parents: tuple[Handle, ...] = (),
             keep: tuple = ()) -> None:
        family = family or Family()
        destroy = getattr(lib, self._destroy_name)
        self._owned = Owned(pointer, destroy, family, tuple(parent._owned for parent in parents), keep)
        self._finalizer = weakref.finalize(self, self._owned.close_quietly)
        self._finalizer.atexit = False

    @property
    def _pointer(self) -> c_void_p:
        owned = getattr(self, '_owned', None)
        if owned is None or owned.pointer is None or owned.closed:
            raise InvalidArgumentError(f'this {type(self).__name__} is closed')
        return owned.pointer

    def __init__(self, *arguments, **keywords):
        raise TypeError(f'a {type(self).__name__} is not made so: see help(matrixshard.{type(self).__name__})')

    def _create(self, function, *arguments) -> None:
        """function(&pointer, *arguments) makes what this handle is; for what has no comm, so that any thread may."""
        pointer = c_void_p()
        check(function(byref(pointer), *arguments))
        self._own(pointer)

    @classmethod
    def _made(cls, function, *arguments):
        """The same by another function than __init__'s."""
        made = cls.__new__(cls)
        made._create(function, *arguments)
        return made

    @classmethod
    def _from(cls, pointer: c_void_p, family: Family | Families | None = None, parents: tuple[Handle, ...] = (),
              keep: tuple = ()):
        """A handle of what the library has made."""
        made = cls.__new__(cls)
        made._own(pointer, family, parents, keep)
        return made

    def _call(self, function, *arguments) -> int:
        """function(handle, *arguments), alone in the family; raises its failure."""
        self._pointer  # closed already?
        return self._owned.family.run(self._call_alone, function, arguments)

    def _call_alone(self, function, arguments: tuple) -> int:
        return self._owned.family.call(function, self._pointer, *arguments)

    def _ask(self, function, *arguments):
        """The same of a function that can't fail and returns what was asked for."""
        self._pointer  # closed already?
        return self._owned.family.run(lambda: function(self._pointer, *arguments))

    def _query(self, function, struct: Any, *arguments) -> Any:
        """function(handle, *arguments, &struct) as an immutable named tuple."""
        out = struct()
        self._call(function, *arguments, byref(out))
        return info(out)

    def _listed(self, function, struct: Any, *arguments) -> list:
        """function(handle, *arguments, array, capacity, &count) as a list of named tuples."""
        count = c_uint64()
        self._call(function, *arguments, None, 0, byref(count))
        array = (struct * count.value)()
        for element in array:
            element.__init__()
        if len(array) > 0:
            self._call(function, *arguments, array, len(array), byref(count))
        return [info(element) for element in array]

    @contextlib.contextmanager
    def _lent(self):
        """The pointer for another handle's call: a close() meanwhile is put off until the call is over."""
        self._pointer  # closed already?
        owned = self._owned
        owned.family.run(lambda: self._pointer and owned.hold())
        try:
            yield owned.pointer
        finally:
            owned.release()

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
