# SPDX-License-Identifier: Apache-2.0
"""Evaluations that nobody has measured, for tests of what is made of one. Their figures follow rules of their own."""
PLACEMENTS = ('owner', 'slices', 'alltoall', 'zero1', 'ddp')
# In the step: how often the matrices cross the wire, and whether every rank orthogonalises all of them.
CROSSINGS = {'owner': 0, 'slices': 1, 'alltoall': 0.4, 'zero1': 0.6, 'ddp': 0}
DOES_ALL = ('slices', 'ddp')


def spread(median):
    return {'min': 0.97 * median, 'median': median, 'max': 1.04 * median}


def point(sweep='nodes', nodes=2, ranks_per_node=1, context=128, sequences=1, placement='owner'):
    ranks = nodes * ranks_per_node
    tokens = context * sequences * ranks
    own_ms = 0.5 if nodes > 1 else 2.8 if placement == 'owner' else 0.7  # on one node owner loses by a little
    optimizer_ms = 40 / (1 if placement in DOES_ALL else ranks) + 60 * (nodes - 1) * CROSSINGS[placement] + own_ms
    step_ms = optimizer_ms + 0.02 * tokens + 30 * (nodes > 1)
    wire = 1000000 * (ranks - 1)
    step_bytes = int(6 * wire * CROSSINGS[placement]) + 312 * ranks
    return {'sweep': sweep, 'nodes': nodes, 'ranks_per_node': ranks_per_node, 'context': context,
            'sequences': sequences, 'micro_batches': ranks, 'placement': placement, 'rounds': 3,
            'step_ms': spread(step_ms), 'optimizer_ms': spread(optimizer_ms), 'cpu_ms': 0.9 * step_ms,
            'optimizer_cpu_ms': 0.8 * optimizer_ms,
            'bytes': {'forward': 6 * wire, 'backward': 12 * wire, 'step': step_bytes, 'other': 80 * ranks},
            'card_bytes': None if nodes == 1 else 9 * wire, 'rest_bytes': 19000000, 'peak_bytes': 41000000,
            'peak_bytes_predicted': 40000000, 'loss_first': 5.6, 'loss_last': 1.7283,
            'loss_difference': 0 if placement == 'ddp' else 0.00012, 'all_step_ms': [[step_ms]],
            'all_optimizer_ms': [[optimizer_ms]]}


def prediction(model, gpus, placement, tokens=8192):
    share = 8 / gpus if placement not in DOES_ALL else 1
    optimizer_ms = 900 * share + 300 * CROSSINGS[placement]
    held = 400e9 if placement in ('zero1', 'ddp') else 400e9 * 8 / gpus
    nodes = max(1, gpus // 8)
    step_ms = optimizer_ms + (700.0 if placement in ('zero1', 'ddp') else 710.0)
    return {'model': model, 'gpus': gpus, 'nodes': nodes, 'world': f'nodes:{nodes} ranks:8', 'tokens': tokens,
            'placement': placement, 'optimizer_ms': optimizer_ms, 'forward_backward_ms': 700.0,
            'step_ms': step_ms, 'uncalibrated': {'optimizer_ms': optimizer_ms / 2, 'step_ms': 0.75 * step_ms},
            'rest_bytes': held / 8,
            'peak_bytes': held / 4, 'step_bytes': 1e9 * CROSSINGS[placement], 'fits': held < 320e9,
            **({'advice': 'Take it or leave it.'} if placement == 'owner' else {})}


def here(measured):
    return [{**{key: each[key] for key in ('sweep', 'nodes', 'ranks_per_node', 'context', 'sequences', 'placement')},
             'step_ms': 1.1 * each['step_ms']['median'], 'optimizer_ms': 0.93 * each['optimizer_ms']['median']}
            for each in measured]


def evaluation(measured=None, predicted=None):
    """Of both sweeps and two models, unless points are given."""
    if measured is None:
        measured = [point('nodes', nodes, ranks, placement=placement) for ranks in (1, 2) for nodes in (1, 2, 4, 8)
                    for placement in PLACEMENTS]
        measured += [point('sequences', 4, 1, context, sequences, placement) for context in (32, 128, 512)
                     for sequences in (1, 4) for placement in PLACEMENTS]
    if predicted is None:
        predicted = [prediction(model, gpus, placement) for model in ('tiny-1b', 'large-32b')
                     for gpus in (8, 16, 32, 64, 128, 256, 512, 1024) for placement in PLACEMENTS]
    return {'matrixshard_evaluation': 1, 'date': '2000-01-01', 'command': 'perf/evaluate/evaluate nowhere',
            'quick': False, 'seconds': 1900,
            'machine': {'processor': 'No Processor', 'cores': 2, 'memory_bytes': 8200000000, 'kernel': '0.0',
                        'virtual': None, 'instructions': ['none']},
            'versions': {'matrixshard': '0.0', 'commit': None, 'ucx': '1.0'},
            'model': {'layers': 4, 'width': 256, 'heads': 4, 'parameters': 3300000, 'matrices': 16,
                      'matrix_parameters': 3145728, 'dtype': 'bf16', 'newton_schulz_steps': 5},
            'settings': {'rate_bits': 200000000, 'rounds': 3, 'steps': 6}, 'measured': measured,
            'predicted_here': here(measured), 'predicted': predicted,
            'calibration': {'how': 'Not at all.', 'factors': {'flat': 1.25, 'direct': 0.5}}, 'missing': []}
