# SPDX-License-Identifier: Apache-2.0
"""What `mxs plan --json` tells of a plan, asked of the library: of a Plan, or of a file that mxs_plan_save wrote."""
from __future__ import annotations

import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Mapping

from ._look import clean

if TYPE_CHECKING:
    from ..plan import Plan
    from ..topology import Topology

OBJECTIVES = {'bytes': 'bytes', 'step': 'step_ps', 'egress': 'egress', 'nic': 'nic'}  # ours, theirs


def describe(plan: Plan, topology: Topology, title: str = 'A plan', **memory: Any) -> dict[str, Any]:
    """A plan for `matrixshard.plot.plan`: the object that `mxs plan --json` prints, as far as it is drawn.

    topology: that of the plan, which says on which node a rank is. memory: options of `Plan.memory`, as the run will
    use the plan. Units have no names of their own, since a plan doesn't keep them. Since 0.1.
    """
    ranks = []
    for number in range(plan.rank_count):
        load = plan.rank(number)
        ranks.append({'rank': number, 'node': topology.rank(number).node, 'matrices': load.matrix_count,
                      'owned_bytes': load.owned_bytes, 'step_ns': load.step_ns,
                      **plan.memory(number, **memory)._asdict()})
    units = []
    for number in range(plan.unit_count):
        owned: dict[int, int] = {}
        with plan.layout(number) as layout:
            for segment in layout.segments:
                owned[segment.owner] = owned.get(segment.owner, 0) + segment.bytes
        units.append({'unit': number, **plan.unit(number)._asdict(),
                      'owned': [list(pair) for pair in sorted(owned.items())]})
    objectives = {}
    for kind, name in OBJECTIVES.items():
        values = plan.objective(kind)
        objectives[name] = {'worst': values.worst, 'bound': values.bound, 'unit': values.unit,
                            'node' if kind == 'nic' else 'rank': values.rank}
    return {'model': {'title': title, 'tensors': plan.tensor_count, 'units': plan.unit_count}, 'topology': {},
            'fingerprint': f'{plan.fingerprint:016x}', 'objectives': objectives, 'ranks': ranks, 'units': units,
            'warnings': list(plan.warnings)}


def describe_saved(path: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Of a saved plan, whose JSON is `data`. The library reads it, and refuses what isn't as it was written."""
    from ..plan import Plan
    from ..topology import Topology
    with tempfile.TemporaryDirectory() as folder:
        inner = os.path.join(folder, 'topology.json')
        with open(inner, 'w', encoding='utf-8') as file:
            json.dump(data.get('topology'), file)
        with Plan.load(path) as plan, Topology.load(inner) as topology:
            return describe(plan, topology, clean(os.path.splitext(os.path.basename(path))[0]))
