# SPDX-License-Identifier: Apache-2.0
"""The predicted half of an evaluation: what `mxs plan --compare` says of the points that were measured, and of clusters
that nobody has measured.

    rates         of a core, from the CPU time of the measured point of one rank: products of the step, and forward and
                  backward. Ranks share the machine's cores, so a rank has min(1, cores / ranks) of one
    links         what `mxs-perf tune` found on them: latency, overhead, rate, and a factor for each algorithm
    calibration   how far measured points are from their prediction, and the factor of the exchange ("direct", which
                  tune doesn't run), from alltoall's steps
    clusters      every model and number of GPUs with those factors, and beside it without them

What ranks pay in CPU time to send and receive is in no prediction: quotients of points with many ranks show it. Here
alltoall's exchange and products come one after the other, as in perf/train; of clusters the exchange of a batch goes
beside the products of others (docs/planning.md).
"""
import concurrent.futures
import hashlib
import json
import math
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / 'tests' / 'data' / 'models'
PLACE = ('sweep', 'nodes', 'ranks_per_node', 'context', 'sequences')
PLACEMENTS = ('owner', 'slices', 'alltoall', 'zero1', 'ddp')

CLUSTERS = {'llama-3-8b': [], 'llama-3-70b': [], 'qwen3-32b': [], 'deepseek-v3': ['--active', '37B'], 'gpt2-xl': []}
GPUS = (8, 16, 32, 64, 128, 256, 512, 1024)
TOKENS = (4096, 32768)
GPUS_OF_NODE = 8
FITS_BYTES = 80e9
# Like an H100: 400 Tflop/s of its 989 in products of bf16, 2.5 TB/s of memory, 450 GB/s to the others of its node, and
# a NIC of 400 Gbit/s. Latencies are guesses.
GPU = {'flops': 4e14, 'memory': 2.5e12, 'nic': 50, 'local': 450, 'latency': 5, 'overhead': 1, 'local-latency': 2,
       'local-overhead': 1}
# Of a core, to begin with: only their ratio stays.
CORE_FLOPS, CORE_MEMORY = 5e11, 5e9


class Unplannable(Exception):
    """What mxs plan says of it."""


class NotMeasured(Exception):
    """Which point is missing."""


# ---- asking mxs plan ----

def topology(nodes, ranks_per_node, rails, speeds):
    """A file as mxs_topology_save writes it. speeds: one as `mxs-perf tune --save` writes it."""
    described = [{'numa_count': 1, 'rails': [{} for _ in range(rails)],
                  'ranks': [{'rank': node * ranks_per_node + rank, 'rail': rank % rails}
                            for rank in range(ranks_per_node)]} for node in range(nodes)]
    kept = {key: value for key, value in speeds.items() if key != 'matrixshard_speeds'}
    return {'matrixshard_topology': 1, **kept, 'nodes': described}


class Planner:
    def __init__(self, build, folder):
        self.mxs = os.path.join(build, 'src', 'cli', 'mxs')
        self.folder = folder
        self.children = set()

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, 'w', encoding='utf-8') as file:
            json.dump(data, file)
        return path

    def compare(self, model, world, words):
        """(rows by placement, advice). world: a topology, whose file is named by what is in it: several ask at once."""
        text = json.dumps(world)
        path = os.path.join(self.folder, f'world-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json')
        if not os.path.exists(path):
            os.replace(self.write(f'{threading.get_ident()}.json', world), path)
        return self.compare_words(model, path, words)

    def compare_words(self, model, world, words):
        command = [self.mxs, 'plan', str(model), '--world', world, '--compare', 'all', '--json', *words]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, env=dict(os.environ, MXS_SPEEDS='none')) as child:
            self.children.add(child)
            text, complaint = child.communicate()
            self.children.discard(child)
        if child.returncode != 0:
            raise Unplannable(f'{shlex.join(command)}: {complaint.strip() or f"status {child.returncode}"}')
        told = json.loads(text)
        return {row['placement']: row for row in told['compare']}, told['advice']

    def stop(self):
        for child in list(self.children):
            child.kill()


def rate_words(flops, memory, train_flops):
    return ['--flops', f'{flops:.6g}', '--memory', f'{memory:.6g}', '--train-flops', f'{train_flops:.6g}']


def without_factors(speeds):
    return {key: value for key, value in speeds.items() if key != 'factors'}


# ---- the points that were measured ----

def demo_model(model, context):
    """The tensors of perf/train/model.cpp."""
    width = model['width']
    tensors = [('embedding.token', [256, width], 0, True), ('embedding.position', [context, width], 0, True)]
    for block in range(model['layers']):
        tensors += [(f'block.{block}.{name}', shape, block + 1, False) for name, shape in (
            ('norm1', [width]), ('qkv', [3 * width, width]), ('projection', [width, width]), ('norm2', [width]),
            ('up', [4 * width, width]), ('down', [width, 4 * width]))]
    last = model['layers'] + 1
    tensors += [('head.norm', [width], last, False), ('head.weight', [256, width], last, True)]
    return {'tensors': [
        {'name': name, 'shape': shape, 'unit': unit, 'dtype': model['dtype'],
         'rule': 'adamw' if flat or len(shape) == 1 else 'muon', **({'role': 'flat'} if flat else {}),
         **({'block_rows': [width] * 3} if name.endswith('qkv') else {})} for name, shape, unit, flat in tensors]}


def speeds_here(evaluation, nodes):
    """Those of tune. One node has none of its own, and takes what its ranks' links cost beside a network."""
    tuned = evaluation['settings'].get('tuned') or {}
    if str(nodes) in tuned:
        return tuned[str(nodes)]
    if nodes > 1:
        raise NotMeasured(f'no speeds of links between {nodes} nodes, which mxs-perf tune measures')
    return without_factors(tuned[max(tuned, key=int)]) if tuned else {}


class Cores:
    """Rates of one core, from CPU times of the point of one rank."""

    def __init__(self, planner, evaluation):
        alone = [point for point in evaluation['measured'] if point['nodes'] == point['ranks_per_node'] == 1
                 and point['optimizer_cpu_ms'] > 0 and point['cpu_ms'] > point['optimizer_cpu_ms']]
        if not alone:
            raise NotMeasured('no measured point of one rank on one node, from which rates of a core would come')
        self.cores = evaluation['machine']['cores']
        point = min(alone, key=lambda each: (each['placement'] != 'owner', each['sweep'] != 'nodes'))
        tokens = point['context'] * point['sequences'] * point['micro_batches']
        rest_s = 1e-3 * (point['cpu_ms'] - point['optimizer_cpu_ms'])
        self.train_flops = 6 * evaluation['model']['parameters'] * tokens / rest_s
        model = planner.write('demo-alone.json', demo_model(evaluation['model'], point['context']))
        rows, _ = planner.compare(model, topology(1, 1, 1, {}), rate_words(CORE_FLOPS, CORE_MEMORY, self.train_flops))
        times = rows['owner']['step_ns'] / (1e6 * point['optimizer_cpu_ms'])
        self.flops, self.memory = CORE_FLOPS * times, CORE_MEMORY * times

    def words(self, ranks):
        share = min(1, self.cores / ranks)
        return rate_words(self.flops * share, self.memory * share, self.train_flops * share)


def point_here(row, passes):
    """perf/train hides no part of alltoall's exchange; each micro-batch of a rank is a forward and backward."""
    optimizer = row['step_ns'] + row['optimizer_wire_ns']
    return {'optimizer_ms': 1e-6 * optimizer, 'step_ms': 1e-6 * (passes * row['forward_backward_ns'] + optimizer)}


def predict_here(planner, cores, evaluation):
    """A point for each measured one, in its order; and what alltoall's exchange was predicted to take."""
    known, points = {}, []
    for point in evaluation['measured']:
        shape = tuple(point[key] for key in PLACE[1:])
        nodes, ranks_per_node, context, sequences = shape
        if shape not in known:
            model = planner.write('demo.json', demo_model(evaluation['model'], context))
            words = [*cores.words(nodes * ranks_per_node), '--tokens', str(context * sequences)]
            speeds = speeds_here(evaluation, nodes)
            known[shape] = [planner.compare(model, topology(nodes, ranks_per_node, 1, each), words)[0]
                            for each in (speeds, without_factors(speeds))]
            say(f'predicted here: {nodes} x {ranks_per_node} ranks, {sequences} x {context} tokens')
        passes = max(1, round(point['micro_batches'] / (nodes * ranks_per_node)))
        row, plain = (rows[point['placement']] for rows in known[shape])
        points.append({**{key: point[key] for key in PLACE}, 'placement': point['placement'], **point_here(row, passes),
                       'optimizer_compute_ms': 1e-6 * row['step_ns'],
                       'optimizer_wire_ms': 1e-6 * row['optimizer_wire_ns'],
                       'uncalibrated': point_here(plain, passes)})
    return points


# ---- calibration ----

EXCHANGE_FACTORS = (0.1, 10)  # beyond, it is no longer the exchange that takes the time
HOW = ('Times of collectives in "predicted" are multiplied by the factor of their algorithm: that of mxs-perf tune on '
       'the virtual nodes, the geometric mean over numbers of nodes; of the exchange ("direct") what alltoall\'s '
       'measured steps take beyond their computation, over its prediction (points that take less than that are left '
       'out, and it is held between {:g} and {:g}). "uncalibrated" is without. Quotients of placements, measured over '
       'predicted here, are told and applied to nothing.').format(*EXCHANGE_FACTORS)


def summary(quotients):
    """Measured over predicted: geometric mean, and the one that is furthest from 1."""
    if not quotients:
        return None
    logarithms = list(map(math.log, quotients))
    return {'geometric_mean': math.exp(sum(logarithms) / len(quotients)),
            'worst': math.exp(max(logarithms, key=abs)), 'points': len(quotients)}


def pairs_of(evaluation, points):
    return list(zip(evaluation['measured'], points))


def exchange_factor(evaluation, points):
    """What of alltoall's step is not computation, over the exchange's prediction. None: no such points."""
    quotients = []
    for measured, point in pairs_of(evaluation, points):
        wire = measured['optimizer_ms']['median'] - point['optimizer_compute_ms']
        if measured['placement'] == 'alltoall' and measured['nodes'] > 1 and wire > 0 < point['optimizer_wire_ms']:
            quotients.append(wire / point['optimizer_wire_ms'])
    return summary(quotients)


def tuned_factors(evaluation):
    """Of each algorithm the geometric mean over numbers of nodes."""
    found = {}
    for speeds in (evaluation['settings'].get('tuned') or {}).values():
        for name, factor in speeds.get('factors', {}).items():
            found.setdefault(name, []).append(factor)
    return {name: math.exp(sum(map(math.log, factors)) / len(factors)) for name, factors in sorted(found.items())}


def calibrate(evaluation, points, cores):
    by_placement = {}
    for placement in PLACEMENTS:
        for where, fits in (('one_node', lambda nodes: nodes == 1), ('several_nodes', lambda nodes: nodes > 1)):
            pairs = [(measured, point) for measured, point in pairs_of(evaluation, points)
                     if measured['placement'] == placement and fits(measured['nodes'])]
            by_placement.setdefault(placement, {})[where] = {
                key: summary([measured[f'{key}_ms']['median'] / point[f'{key}_ms'] for measured, point in pairs])
                for key in ('optimizer', 'step')}
    exchange = exchange_factor(evaluation, points)
    factors = tuned_factors(evaluation)
    if exchange:
        least, most = EXCHANGE_FACTORS
        factors['direct'] = min(max(exchange['geometric_mean'], least), most)
    return {'how': HOW, 'factors': factors, 'exchange': exchange, 'measured_over_predicted': by_placement,
            'core': {'matrix_flops_per_second': cores.flops, 'memory_bytes_per_second': cores.memory,
                     'train_flops_per_second': cores.train_flops}}


# ---- clusters ----

def cluster_words(nodes):
    speeds = ' '.join(f'{name}:{GPU[name]}' for name in ('nic', 'local', 'latency', 'overhead', 'local-latency',
                                                         'local-overhead'))
    return f'nodes:{nodes} ranks:{GPUS_OF_NODE} {speeds}'


def cluster_speeds(factors):
    """Adding in fp32 passes over memory three times."""
    return {'local': {'latency_ns': 1000 * GPU['local-latency'], 'overhead_ns': 1000 * GPU['local-overhead'],
                      'bytes_per_second': 10 ** 9 * GPU['local']},
            'network': {'latency_ns': 1000 * GPU['latency'], 'overhead_ns': 1000 * GPU['overhead'],
                        'bytes_per_second': 10 ** 9 * GPU['nic']},
            'add_bytes_per_second': int(GPU['memory'] / 3), 'factors': factors}


def milliseconds_of(row):
    return {'optimizer_ms': 1e-6 * row['optimizer_ns'], 'forward_backward_ms': 1e-6 * row['forward_backward_ns'],
            'step_ms': 1e-6 * row['whole_step_ns']}


def predict_cluster(planner, factors, model, gpus, tokens):
    """The points of all placements; advice stands with owner's."""
    nodes = gpus // GPUS_OF_NODE
    words = [*rate_words(GPU['flops'], GPU['memory'], GPU['flops']), '--tokens', str(tokens), *CLUSTERS[model]]
    (rows, advice), (plain, _) = (
        planner.compare(MODELS / f'{model}.json', topology(nodes, GPUS_OF_NODE, GPUS_OF_NODE, cluster_speeds(each)),
                        words)
        for each in (factors, {}))
    return [{'model': model, 'gpus': gpus, 'nodes': nodes, 'world': cluster_words(nodes), 'tokens': tokens,
             'placement': name, **milliseconds_of(row), 'optimizer_compute_ms': 1e-6 * row['step_ns'],
             'optimizer_wire_ms': 1e-6 * row['optimizer_wire_ns'],
             'uncalibrated': milliseconds_of(plain[name]), 'rest_bytes': row['rest_bytes'],
             'peak_bytes': row['peak_bytes'], 'step_bytes': row['step_bytes'], 'fits': row['peak_bytes'] <= FITS_BYTES,
             **({'advice': advice} if name == 'owner' else {})} for name, row in rows.items()]


def predict_clusters(planner, factors, models, all_gpus):
    """The largest first: they take longest. In the order of models, tokens and GPUs."""
    asked = [(model, gpus, tokens) for model in models for tokens in TOKENS for gpus in all_gpus]
    found = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        running = {pool.submit(predict_cluster, planner, factors, *each): each
                   for each in sorted(asked, key=lambda each: (each[0] != 'deepseek-v3', -each[1]))}
        try:
            for number, done in enumerate(concurrent.futures.as_completed(running), 1):
                model, gpus, tokens = running[done]
                found[running[done]] = done.result()
                say(f'predicted {number} of {len(asked)}: {model} on {gpus} GPUs, {tokens} tokens')
        except BaseException:  # an interrupt or a refusal: nothing more is waited for
            pool.shutdown(wait=False, cancel_futures=True)
            planner.stop()
            raise
    return [point for each in asked for point in found[each]]


def say(text):
    print(text, file=sys.stderr, flush=True)


def predict(build, evaluation, models=tuple(CLUSTERS), gpus=GPUS):
    """Fills "predicted_here", "calibration" and "predicted", which are nobody's measurement. Returns the evaluation."""
    with tempfile.TemporaryDirectory(prefix='mxs-predict-') as folder:
        planner = Planner(build, folder)
        try:
            cores = Cores(planner, evaluation)
            evaluation['predicted_here'] = predict_here(planner, cores, evaluation)
        except NotMeasured as reason:
            # A run of a few worlds has no such point: the clusters are predicted all the same, without calibration.
            say(f'not predicted here, and not calibrated: {reason}')
            evaluation.setdefault('missing', []).append(f'predictions of the measured points: {reason}')
            evaluation.update(predicted_here=[], calibration={'how': f'not calibrated: {reason}', 'factors': {}})
        else:
            evaluation['calibration'] = calibrate(evaluation, evaluation['predicted_here'], cores)
        evaluation['predicted'] = predict_clusters(planner, evaluation['calibration']['factors'], models, gpus)
    return evaluation
