# SPDX-License-Identifier: Apache-2.0
"""What an evaluation holds: read, checked, and found again by world and placement.

    {"matrixshard_evaluation": 1, "machine": {...}, "versions": {...}, "model": {...}, "settings": {...},
     "measured":       [a point for each sweep, world and placement that ran],
     "predicted_here": [the same points by the cost model],
     "predicted":      [a point for each model, number of GPUs, tokens and placement]}

Keys that are not listed in SHAPE may be there; one that is listed and missing, or holds something else, is refused in a
sentence that names it. A point that could not run isn't there; "missing" then has a sentence about it.
"""
import collections
import json

PLACEMENTS = ('owner', 'slices', 'alltoall', 'zero1', 'ddp')
SWEEPS = ('nodes', 'sequences')
PHASES = ('forward', 'backward', 'step', 'other')
WHAT = {'optimizer_ms': 'optimizer step', 'step_ms': 'whole step'}

World = collections.namedtuple('World', 'ranks_per_node nodes context sequences')
MOST = 1e18  # of any figure: beyond it nothing has been measured
Cluster = collections.namedtuple('Cluster', 'model tokens gpus')  # tokens: of a rank in a step


class Refused(ValueError):
    """Its text is a sentence for the person who wrote the file."""


def text(value):
    return None if isinstance(value, str) and value.strip() else 'a text'


def truth(value):
    return None if isinstance(value, bool) else 'true or false'


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -MOST <= value <= MOST


def number(value):
    return None if is_number(value) else 'a number up to 10^18'


def amount(value):
    return None if is_number(value) and value >= 0 else 'a number of at least 0'


def time(value):
    return None if is_number(value) and value > 0 else 'a time above 0'


def factor_above_0(value):
    return None if is_number(value) and value > 0 else 'a factor above 0'


def count(value):
    return None if is_number(value) and value >= 1 and isinstance(value, int) else 'a whole number of at least 1'


def one_of(*words):
    return lambda value: None if value in words else 'one of ' + ', '.join(map(str, words))


def or_null(check):
    def checked(value):
        wanted = None if value is None else check(value)
        return wanted and wanted + ' or null'
    return checked


SPREAD = {'min': time, 'median': time, 'max': time}
PLACE = {'sweep': one_of(*SWEEPS), 'nodes': count, 'ranks_per_node': count, 'context': count, 'sequences': count,
         'placement': one_of(*PLACEMENTS)}
FIGURES = {'micro_batches': count, 'rounds': count, 'step_ms': SPREAD, 'optimizer_ms': SPREAD, 'cpu_ms': amount,
           'optimizer_cpu_ms': amount, 'bytes': {phase: amount for phase in PHASES}, 'card_bytes': or_null(amount),
           'rest_bytes': amount, 'peak_bytes': amount, 'peak_bytes_predicted': or_null(amount), 'loss_first': number,
           'loss_last': number, 'loss_difference': or_null(amount)}
SHAPE = {
    'matrixshard_evaluation': one_of(1), 'date': text, 'command': text, 'quick': truth, 'seconds': amount,
    'machine': {'processor': or_null(text), 'cores': count, 'memory_bytes': or_null(amount), 'kernel': text,
                'virtual': or_null(text), 'instructions': [text]},
    'versions': {},
    'model': {'layers': count, 'width': count, 'heads': count, 'parameters': count, 'matrices': count,
              'matrix_parameters': count, 'dtype': text, 'newton_schulz_steps': count},
    'settings': {'rate_bits': count, 'rounds': count, 'steps': count},
    'measured': [{**PLACE, **FIGURES}],
    'predicted_here': [{**PLACE, 'step_ms': time, 'optimizer_ms': time}],
    'predicted': [{'model': text, 'gpus': count, 'nodes': count, 'world': text, 'tokens': count,
                   'placement': one_of(*PLACEMENTS), 'optimizer_ms': time, 'step_ms': time, 'rest_bytes': amount,
                   'peak_bytes': amount, 'fits': truth}],
    'missing': [text], 'calibration': {'how': text, 'factors': {}},
}
MAY_LACK = ('missing', 'calibration', 'calibration.how', 'calibration.factors')


def hold(value, shape, path):
    """Refuses what is not of the shape: a dict of shapes, a list of one, or a function that says what is wanted."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise Refused(f'{path or "the evaluation"} is {told(value)}, not an object')
        for key, inner in shape.items():
            place = f'{path}.{key}' if path else key
            if key in value:
                hold(value[key], inner, place)
            elif place not in MAY_LACK:
                raise Refused(f'{place} is missing')
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise Refused(f'{path} is {told(value)}, not a list')
        for place, inner in enumerate(value):
            hold(inner, shape[0], f'{path}[{place}]')
    elif (wanted := shape(value)) is not None:
        raise Refused(f'{path} is {told(value)}, not {wanted}')


def told(value):
    return json.dumps(value)[:60]


def hold_spreads(point, path):
    for key in ('step_ms', 'optimizer_ms'):
        if not point[key]['min'] <= point[key]['median'] <= point[key]['max']:
            raise Refused(f'{path}.{key} has its median outside of its min and max')


def hold_speeds(tuned):
    """What mxs plan reads itself of them, it judges."""
    hold(tuned, {}, 'settings.tuned')
    for nodes, speeds in tuned.items():
        path = f'settings.tuned.{nodes}'
        hold(speeds, {}, path)
        hold(speeds.get('factors', {}), {}, f'{path}.factors')
        for name, factor in speeds.get('factors', {}).items():
            hold(factor, factor_above_0, f'{path}.factors.{name}')


def hold_each_once(points, name, key_of):
    seen = {}
    for place, point in enumerate(points):
        first = seen.setdefault(key_of(point), place)
        if first != place:
            raise Refused(f'{name}[{place}] is the same point as {name}[{first}]')


def check(evaluation):
    """The evaluation, if it is one; else Refused."""
    hold(evaluation, SHAPE, '')
    for place, point in enumerate(evaluation['measured']):
        hold_spreads(point, f'measured[{place}]')
    for name, factor in evaluation.get('calibration', {}).get('factors', {}).items():
        hold(factor, amount, f'calibration.factors.{name}')
    hold_speeds(evaluation['settings'].get('tuned') or {})
    for place, point in enumerate(evaluation['predicted']):
        for key, shape in (('advice', text), ('uncalibrated', dict.fromkeys(WHAT, time))):
            if key in point:
                hold(point[key], shape, f'predicted[{place}].{key}')
    hold_each_once(evaluation['measured'], 'measured', key_here)
    hold_each_once(evaluation['predicted_here'], 'predicted_here', key_here)
    hold_each_once(evaluation['predicted'], 'predicted',
                   lambda point: (point['model'], point['tokens'], point['gpus'], point['placement']))
    return evaluation


def key_here(point):
    return tuple(point[key] for key in PLACE)


def read(path):
    try:
        with open(path, encoding='utf-8') as file:
            return check(json.load(file))
    except OSError as error:
        raise Refused(f'{path} cannot be read: {error.strerror}') from None
    except UnicodeDecodeError as error:
        raise Refused(f'{path} is no JSON: byte {error.start} is not UTF-8') from None
    except json.JSONDecodeError as error:
        raise Refused(f'{path} is no JSON: line {error.lineno}, column {error.colno}: {error.msg}') from None
    except Refused as refusal:
        raise Refused(f'{path}: {refusal}') from None
    except (RecursionError, ValueError) as error:  # brackets or digits without end
        raise Refused(f'{path} is no evaluation: {error}') from None


def by_world(points, sweep):
    """World -> placement -> point, worlds in order."""
    grouped = {}
    for point in points:
        if point['sweep'] == sweep:
            grouped.setdefault(World(*(point[key] for key in World._fields)), {})[point['placement']] = point
    return dict(sorted(grouped.items()))


def all_worlds(points):
    """Of both sweeps; a world that both have counts once."""
    return {world: group for sweep in SWEEPS for world, group in by_world(points, sweep).items()}


def by_cluster(points):
    """Cluster -> placement -> point; models as they come, then by tokens and GPUs."""
    models = list(dict.fromkeys(point['model'] for point in points))
    grouped = {}
    for point in points:
        cluster = Cluster(point['model'], point['tokens'], point['gpus'])
        grouped.setdefault(cluster, {})[point['placement']] = point
    return dict(sorted(grouped.items(), key=lambda item: (models.index(item[0].model), *item[0][1:])))


def placements_of(groups):
    """Those that are there at all, owner first."""
    return [name for name in PLACEMENTS if any(name in group for group in groups.values())]


def time_of(point, what):
    """Milliseconds of `step_ms` or `optimizer_ms`; None where there is no such point."""
    if point is None:
        return None
    return point[what]['median'] if isinstance(point[what], dict) else point[what]


def over_owner(group, placement, what):
    """The placement's time over owner's, above 1 where owner is faster; None where one is missing."""
    owner, other = time_of(group.get('owner'), what), time_of(group.get(placement), what)
    return other / owner if owner and other else None


def tokens_of(group):
    """Of a step, all ranks together: micro-batches are dealt out over them."""
    point = next(iter(group.values()))
    return point['context'] * point['sequences'] * point['micro_batches']
