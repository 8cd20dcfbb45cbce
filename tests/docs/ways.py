# SPDX-License-Identifier: Apache-2.0
"""The ways in which a block of a page can be checked. Data: claims.py writes them down, checks.py carries them out."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Way:
    pass


@dataclasses.dataclass(frozen=True)
class Shell(Way):
    """Commands, a line each: run in the sandbox, in order, with status 0."""


@dataclasses.dataclass(frozen=True)
class Session(Way):
    """Lines that begin with "$ " are run; what stands below each is what it prints, with other numbers."""


@dataclasses.dataclass(frozen=True)
class Output(Way):
    """What a command prints, with other numbers: `of`, or the last command above it.

    part: it stands there among else. exact: numbers are equal, too.
    """
    of: str = ''
    part: bool = False
    exact: bool = False


@dataclasses.dataclass(frozen=True)
class File(Way):
    """A file of the tree, but for its licence line. `runs` is the source of the test that runs it."""
    path: str
    runs: str


@dataclasses.dataclass(frozen=True)
class Tested(Way):
    """Another test executes it: a file that asks claimed.blocks() for what it is to execute."""
    path: str


@dataclasses.dataclass(frozen=True)
class Python(Way):
    """Executed after `frame` (a name in frames.py), each page's in order, by a Python that has `needs`."""
    frame: str = ''
    needs: tuple = ()


@dataclasses.dataclass(frozen=True)
class C(Way):
    """Compiled without a warning: alone if it has a main, else inside of `frame` (a name in frames.py).

    `aside`: a pattern of what stands to the right of the code and belongs to the reader alone.
    """
    frame: str = ''
    aside: str = ''


@dataclasses.dataclass(frozen=True)
class Data(Way):
    """Written into a file of that name, which a command then reads with status 0."""
    name: str
    command: str


@dataclasses.dataclass(frozen=True)
class By(Way):
    """Looked at by a function of special.py."""
    function: str


@dataclasses.dataclass(frozen=True)
class Picture(Way):
    """A drawing or a formula: for people."""


@dataclasses.dataclass(frozen=True)
class Claim:
    heading: str
    first: str      # how the block's first line begins
    way: Way
