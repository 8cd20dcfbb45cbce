# SPDX-License-Identifier: Apache-2.0
"""Pictures of measurements and plans, as PNG or SVG; needs matplotlib.

    python -m matrixshard.plot reduce.json -o reduce.svg        what mxs-perf --json FILE wrote
    python -m matrixshard.plot ranks2.json ranks4.json          runs beside each other
    python -m matrixshard.plot plan.json                        of mxs plan --json, or mxs_plan_save
    mxs plan model.safetensors --world "nodes:8 ranks:8" --json | python -m matrixshard.plot - -o plan.png --dark

    from matrixshard import plot
    plot.save(plot.perf(plot.read('reduce.json')), 'reduce.png')

Nothing is measured, planned or judged here: what is drawn stands in the JSON. Colours are those of the page that
`mxs plan --html` writes.
"""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Optional, Union

from ..errors import InvalidArgumentError
from ._describe import describe
from ._look import clean, look_of
from ._read import Row, read, rows_of
from ._sheet import matplotlib, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Iterable[Mapping[str, Any]]

__all__ = ['describe', 'perf', 'plan', 'read', 'save']


def perf(data: Union[Rows, Mapping[str, Rows]], axes: Optional[Axes] = None, *, kind: Optional[str] = None,
         dark: bool = False) -> Figure:
    """Draws rows of `mxs-perf --json`, all of one command.

    data: the rows, each a dict, as `read` returns them; or a dict from names of runs to their rows, to compare them.
    axes: the main panel goes in there, and its figure is returned; without it a new figure of 1,400 pixels' width.
    kind: of gather, reduce and allreduce `bandwidth` (what None means) or `time`.
    dark: for dark surroundings.

    Raises InvalidArgumentError (a ValueError) with a sentence if rows lack what is drawn, ImportError without
    matplotlib. The figure belongs to the caller; pyplot doesn't know it. One call at a time: matplotlib isn't
    thread-safe. Since 0.1.
    """
    matplotlib()
    from ._measurements import sheet_of
    runs = data if isinstance(data, Mapping) else {'data': data}
    rows: list[tuple[str, Row]] = []
    for name, run in runs.items():
        short = clean(os.path.splitext(os.path.basename(name))[0] or name)
        rows += [(short, row) for row in rows_of(run, clean(name))]
    if not rows:
        raise InvalidArgumentError('there are no rows: nothing was measured')
    return sheet_of(rows, kind, look_of(dark)).figure(axes)


def plan(data: Mapping[str, Any], axes: Optional[Axes] = None, *, kind: Optional[str] = None,
         dark: bool = False) -> Figure:
    """Draws a plan: the object that `mxs plan --json` prints, as a dict. `describe` makes one of a Plan, `read` of a
    file, also of a saved plan.

    kind: `objectives` (worst, bound and mean), `owners` (bytes of each unit on each rank), `step` (time of each rank)
    or `memory` (of each rank, what stays and what comes on top); None draws all of them.
    axes: a panel of that kind (`owners` without one) goes in there. Everything else is as in `perf`. Since 0.1.
    """
    matplotlib()
    from ._plan import plan_sheet
    return plan_sheet(data, kind, look_of(dark), alone=axes is not None).figure(axes)
