# SPDX-License-Identifier: Apache-2.0
"""A plan as `mxs plan --html` shows it: objectives, owners of each unit, time and memory of each rank."""
from __future__ import annotations

from typing import Any, Mapping, Optional

from ..errors import InvalidArgumentError
from ._look import Look, bytes_text, clean, count_text, counted, gap_text, time_text
from ._owners import owners_row
from ._ranks import memory_row, step_row
from ._read import Row, is_plan, is_saved_plan, refuse_others
from ._sheet import SMALL, Panel, Sheet, fitted, pixels_of, text_pixels, write

KINDS = ('objectives', 'owners', 'step', 'memory')


class Plan:
    """The plan with everything checked that is drawn."""

    def __init__(self, data: Mapping[str, Any], name: str):
        self.row = Row(data, name)
        self.ranks = [Row(entry, f'{name}, ranks[{i}]') for i, entry in enumerate(self._list('ranks'))]
        self.units = [Row(entry, f'{name}, units[{i}]') for i, entry in enumerate(self._list('units'))]
        if not self.ranks:
            raise InvalidArgumentError(f'{name} is a plan without ranks: there is nothing to draw')
        self.nodes = [int(rank.number('node')) for rank in self.ranks]
        self.node_count = len(set(self.nodes))
        self.owned: list[dict[int, float]] = []
        for unit in self.units:
            self.owned.append(self._owned(unit))

    def _list(self, key: str) -> list[Mapping[str, Any]]:
        value = self.row.raw(key)
        if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
            raise InvalidArgumentError(f'{self.row.place}: "{key}" of a plan is an array of objects, and here is not')
        return value

    def _owned(self, unit: Row) -> dict[int, float]:
        result: dict[int, float] = {}
        pairs = unit.raw('owned') or []
        for pair in pairs if isinstance(pairs, list) else [None]:
            if not isinstance(pair, list) or len(pair) != 2 or not all(
                    isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in pair) or \
                    pair[0] >= len(self.ranks):
                raise InvalidArgumentError(f'{unit.place}: "owned" holds {pair!r:.60}, not [a rank below '
                                           f'{len(self.ranks)}, bytes]')
            result[pair[0]] = result.get(pair[0], 0) + pair[1]
        return result

    def unit_name(self, index: int) -> str:
        return clean(self.units[index].text('name')) or f'unit {index}' if index < len(self.units) else f'unit {index}'

    def of_ranks(self, key: str) -> list[float]:
        return [rank.number(key) for rank in self.ranks]


def plan_sheet(data: Any, kind: Optional[str], look: Look, alone: bool = False, name: str = 'the plan') -> Sheet:
    """alone: of one panel, without facts and verdict."""
    if is_saved_plan(data):
        raise InvalidArgumentError(f'{name} is the JSON of a saved plan, which has owners but no loads and times: '
                                   'plot.read(its file) asks the library for them')
    refuse_others(data, name)
    if not is_plan(data):
        raise InvalidArgumentError(f'{name} holds rows of mxs-perf, not a plan: they are drawn by plot.perf')
    if kind not in (None, *KINDS):
        raise InvalidArgumentError(f'{name}: {kind!r} is no picture of a plan; there are {", ".join(KINDS)}')
    plan = Plan(data, name)
    sheet = Sheet(title_of(plan), facts_of(plan), look=look)
    verdict = clean(plan.row.text('verdict'))
    if verdict:
        sheet.said = [verdict]
        sheet.is_warning = not verdict.startswith('Nothing is wrong') or bool(plan.row.raw('warnings'))
    for one in [kind] if kind else ['owners'] if alone else KINDS:
        if one != 'owners' or plan.units:
            row = ROWS[one](plan, look)
            sheet.rows += [row] if row else []
    if not sheet.rows:
        lacks = 'objectives' if kind == 'objectives' else 'units'
        raise InvalidArgumentError(f'{name} is a plan without {lacks}: there is nothing to draw')
    if alone:
        sheet.title, sheet.facts, sheet.said = sheet.rows[0][0].title, '', []
        sheet.rows[0][0].title = ''
    return sheet


def title_of(plan: Plan) -> str:
    name = clean(plan.row.text('model.title') or plan.row.text('model.path') or 'A plan')
    return f'{fitted(name, 900, 18, "bold")}: {counted(len(plan.ranks), "rank", "ranks")} on ' + \
        counted(plan.node_count, 'node', 'nodes')


def facts_of(plan: Plan) -> str:
    words = [clean(plan.row.text('topology.words'))]
    if plan.row.raw('model.parameters') is not None:
        words.append(f'{count_text(plan.row.number("model.parameters"))} parameters')
    if plan.row.raw('model.tensors') is not None:
        tensors = counted(int(plan.row.number("model.tensors")), 'tensor', 'tensors')
        words.append(f'{tensors} in {counted(len(plan.units), "unit", "units")}')
    if plan.row.raw('fingerprint') is not None:
        words.append(f'fingerprint {clean(plan.row.text("fingerprint"))}')
    return ' · '.join([word for word in words if word] + ['predicted; nothing here was measured'])


# Objectives

def objectives_row(plan: Plan, look: Look) -> list[Panel]:
    """A meter for each: the worst as a bar whose part above the bound is hatched, and the mean of ranks as a mark."""
    panels = []
    for key, title, text, scale in (('bytes', 'Owned bytes of a rank', bytes_text, 1),
                                    ('step_ps', 'Step time of a rank', time_text, 1000),
                                    ('egress', 'Egress of a rank in one unit', bytes_text, 1),
                                    ('nic', 'Egress per NIC in one unit', bytes_text, 1)):
        if plan.row.raw(f'objectives.{key}') is None:
            continue
        worst, bound = (plan.row.number(f'objectives.{key}.{end}') / scale for end in ('worst', 'bound'))
        mean = mean_of(plan, key)
        place = place_of(plan, key)

        def draw(axes: Any, worst: float = worst, bound: float = bound, mean: Optional[float] = mean, text: Any = text,
                 place: str = place) -> None:
            draw_meter(axes, worst, bound, mean, text, place, look)

        panels.append(Panel(draw, title, height=92, left=0, right=0, below=10))
    return panels


def mean_of(plan: Plan, key: str) -> Optional[float]:
    """What an even placement would have; of a NIC it isn't in the plan."""
    if key == 'bytes':
        return sum(plan.of_ranks('owned_bytes')) / len(plan.ranks)
    if key == 'step_ps':
        return sum(plan.of_ranks('step_ns')) / len(plan.ranks)
    unit = plan.row.raw('objectives.egress.unit')
    if key == 'egress' and isinstance(unit, int) and 0 <= unit < len(plan.units):
        return sum(plan.owned[unit].values()) / len(plan.ranks)
    return None


def place_of(plan: Plan, key: str) -> str:
    words = []
    for word in ('rank', 'node'):
        number = plan.row.raw(f'objectives.{key}.{word}')
        if isinstance(number, int) and number >= 0:
            words.append(f'{word} {number}')
    unit = plan.row.raw(f'objectives.{key}.unit')
    if isinstance(unit, int) and unit >= 0:
        words.append(plan.unit_name(unit))
    return ', '.join(words)


def draw_meter(axes: Any, worst: float, bound: float, mean: Optional[float], text: Any, place: str, look: Look) -> None:
    from matplotlib.patches import Rectangle
    width, height = pixels_of(axes)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis('off')
    number = text(worst) if worst else 'none'
    write(axes, 0, 24, number, size=17, weight='bold', color=look.ink, va='baseline')
    left = text_pixels(number, 17, 'bold') + 12
    where = place if worst else 'one node' if plan_is_local(place) else 'nothing to carry'
    write(axes, left, 24, fitted(where, max(60.0, width - left)), color=look.quiet, va='baseline')
    axes.add_patch(Rectangle((0, 38), width, 10, color=look.line, linewidth=0))
    if worst:
        share = min(1.0, bound / worst)
        axes.add_patch(Rectangle((0, 38), width * share, 10, color=look.accent, linewidth=0))
        axes.add_patch(Rectangle((width * share, 38), width * (1 - share), 10, facecolor=look.over,
                                 edgecolor=look.pattern, hatch='////', linewidth=0))
        if mean is not None:
            axes.plot([width * mean / worst] * 2, [33, 53], color=look.mean, linewidth=2.5, solid_capstyle='butt')
    words = [f'bound {text(bound)}' if worst else '', f'mean {text(mean)}' if mean is not None and worst else '']
    write(axes, 0, 70, ' · '.join(word for word in words if word), size=SMALL, color=look.quiet, va='baseline')
    write(axes, 0, 87, gap_text(worst, bound).capitalize() if worst else '', size=SMALL, color=look.ink, va='baseline')


def plan_is_local(place: str) -> bool:
    return 'node 0' in place or not place


ROWS = {'objectives': objectives_row, 'owners': owners_row, 'step': step_row, 'memory': memory_row}
