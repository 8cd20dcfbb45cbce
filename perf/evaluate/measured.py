# SPDX-License-Identifier: Apache-2.0
"""The measured half: which worlds, in which order, and what becomes of the figures of their runs.

    world     nodes x ranks of a node, tokens of a sequence (context), sequences of a micro-batch
    round     every placement once, one after the other; who begins changes from round to round
    run       a process per rank: one step that isn't counted, then the steps that are
    point     a world and a placement: medians of the rounds
"""
import collections
import json
import os
import statistics
import sys
import time

import runs

CONTEXT, SEQUENCES = 128, 1  # of the sweep over nodes
MICRO_BATCHES = 1            # of each rank in a step, whatever the world: more ranks take more data
PHASES = ('forward', 'backward', 'step', 'other')
MODEL_KEYS = ('matrices', 'matrix_parameters', 'newton_schulz_steps')
# For the first estimate of what is left: a model's weights, in times that they cross a card in a step.
CROSSINGS = {'owner': 4, 'slices': 5, 'alltoall': 4.3, 'zero1': 3, 'ddp': 4}
PLACEMENTS = tuple(CROSSINGS)
TUNE_MESSAGES = 11           # of each size; 50 of 4 MiB take a minute at 100 Mbit/s
TUNE_SECONDS = 40

World = collections.namedtuple('World', 'sweep nodes ranks_per_node context sequences')


def name_of(world):
    return (f'{world.nodes} node{"s" if world.nodes > 1 else ""} x {world.ranks_per_node}, {world.sequences} x '
            f'{world.context} tokens')


def ranks_of(world):
    return world.nodes * world.ranks_per_node


def worlds_of(options):
    worlds = []
    if 'nodes' in options.only:
        worlds += [World('nodes', nodes, ranks, CONTEXT, SEQUENCES) for nodes in options.nodes
                   for ranks in options.ranks]
    if 'sequences' in options.only:
        worlds += [World('sequences', options.sweep_nodes, 1, context, sequences) for context in options.contexts
                   for sequences in options.sequences]
    return worlds


class Left:
    """How much longer? The first guess counts bytes and tokens; then what has been done says how wrong it is."""

    def __init__(self, options, worlds):
        self.options = options
        self.began = time.monotonic()
        tunes = len({world.nodes for world in worlds if world.nodes > 1})
        self.total_s = tunes * TUNE_SECONDS + options.rounds * sum(
            self.guess(world, placement) for world in set(shape_of(world) for world in worlds)
            for placement in options.placements)
        self.done_s = 0

    def guess(self, world, placement):
        options = self.options
        parameters = 12 * options.layers * options.width ** 2
        wire = CROSSINGS[placement] * 2 * parameters * (world.nodes - 1) / world.nodes * 8 / options.rate_bits
        tokens = ranks_of(world) * MICRO_BATCHES * world.context * world.sequences
        work = tokens * parameters * 6 / 50e9 + ranks_of(world) * 0.02
        return 1 + 0.15 * ranks_of(world) + (options.steps + 1) * (wire + work)

    def text(self):
        passed = time.monotonic() - self.began
        left = self.total_s - self.done_s
        if self.done_s > 0:
            left *= passed / self.done_s
        return f'{minutes(passed)} of about {minutes(passed + left)}'


def minutes(seconds):
    return f'{int(seconds) // 60}:{int(seconds) % 60:02}'


def shape_of(world):
    """Worlds of two sweeps may be one: it is measured once."""
    return world._replace(sweep='')


class Measurement:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.worlds = worlds_of(options)
        self.left = Left(options, self.worlds)
        self.speeds = {}     # by nodes: the file that tune has written; None: it failed
        self.points = []
        self.missing = []    # sentences
        self.model = None

    # ---- running ----

    def say(self, text):
        print(f'{self.left.text():>22}  {text}', file=sys.stderr, flush=True)

    def complain(self, what, failure):
        self.missing.append(what)
        print(f'perf/evaluate/evaluate: {what}: {failure.text()}', file=sys.stderr, flush=True)

    def program(self, *path):
        return os.path.join(self.options.build, *path)

    def run(self, world, program, words, speeds, seconds):
        command = runs.command_of(program, words, world, self.options.rate, self.program('src', 'cli', 'mxs'), seconds)
        return runs.run(command, speeds, seconds)

    def speeds_of(self, nodes):
        """Once for each number of nodes: the library then knows its links, as a user's would. None: it can't."""
        if nodes == 1:
            return 'none'
        if nodes not in self.speeds:
            path = os.path.join(self.folder, f'speeds-{nodes}.json')
            world = World('', nodes, max(self.options.ranks), 0, 0)
            self.speeds[nodes] = path
            words = ['tune', '-n', str(TUNE_MESSAGES), '--save', path]
            try:
                self.run(world, self.program('perf', 'mxs-perf'), words, 'none', 300)
            except runs.Failure as failure:
                self.complain(f'speeds of {nodes} nodes, and all that is measured with them', failure)
                self.speeds[nodes] = None
            self.left.done_s += TUNE_SECONDS
            self.say(f'{nodes} nodes: speeds of the links are measured')
        return self.speeds[nodes]

    def train(self, world, placement, speeds):
        options = self.options
        path = os.path.join(self.folder, 'figures.json')
        words = ['--placement', placement, '--steps', str(options.steps + 1), '--micro-batches',
                 str(MICRO_BATCHES * ranks_of(world)), '--layers', str(options.layers), '--width', str(options.width),
                 '--heads', str(options.heads), '--context', str(world.context), '--sequences',
                 str(world.sequences), '--quiet', '--json', path]
        seconds = int(60 + 10 * self.left.guess(world, placement))
        self.run(world, self.program('perf', 'train', 'mxs-train'), words, speeds, seconds)
        with open(path, encoding='utf-8') as file:
            figures = json.load(file)
        self.check_model(figures, ' '.join(words))
        return figures

    def check_model(self, figures, words):
        """All placements are to train one model, and to orthogonalize as often."""
        model = {key: figures[key] for key in MODEL_KEYS}
        if self.model is None:
            self.model = {'parameters': figures['parameters'], **model}
        if any(self.model[key] != model[key] for key in MODEL_KEYS):
            raise runs.Failure(f'its model is {model}, the first run had {self.model}', words, '')

    def measure_world(self, world):
        speeds = self.speeds_of(world.nodes)
        if speeds is None:
            self.missing.append(name_of(world))
            return
        names = self.options.placements
        found = {name: [] for name in names}
        for number in range(self.options.rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                what = f'{name_of(world)}, round {number + 1} of {self.options.rounds}, {name}'
                try:
                    found[name].append(self.train(world, name, speeds))
                    told = round_of(found[name][-1])
                    text = f'step {told["step_ms"]:.1f} ms, optimizer {told["optimizer_ms"]:.1f} ms'
                except runs.Failure as failure:
                    self.complain(what, failure)
                    text = 'failed'
                self.left.done_s += self.left.guess(world, name)
                self.say(f'{what}: {text}')
        reference = found.get('ddp', [])
        self.points += [point_of(world, name, found[name], reference) for name in names if found[name]]

    def measure(self):
        for world in self.worlds:
            same = [point for point in self.points if is_of(point, world)]
            if same:
                self.points += [dict(point, sweep=world.sweep) for point in same]
            else:
                self.measure_world(world)

    def tuned(self):
        """What the links were taken for, by number of nodes."""
        tuned = {}
        for nodes, path in self.speeds.items():
            if path is not None:
                with open(path, encoding='utf-8') as file:
                    tuned[str(nodes)] = json.load(file)
        return tuned


# ---- figures ----

def is_of(point, world):
    return all(point[key] == getattr(world, key) for key in World._fields if key != 'sweep')


def round_of(figures):
    """Without the first step, which touches pages and compiles kernels."""
    return {key: statistics.median(figures[f'all_{key}'][1:]) for key in ('step_ms', 'optimizer_ms')}


def spread(values):
    return {'min': min(values), 'median': statistics.median(values), 'max': max(values)}


def card_bytes(figures):
    """Of the busiest node, in the direction that had more."""
    return max(figures['card_bytes_in'] + figures['card_bytes_out'])


def loss_difference(found, reference):
    """The largest of any step of any round. All have equal seeds and batches."""
    if not reference:
        return None
    return max(abs(a - b) for figures in found for a, b in zip(figures['losses'], reference[0]['losses']))


def point_of(world, placement, found, reference):
    """found: figures of a run of each round; reference: those of ddp."""
    of_rounds = [round_of(figures) for figures in found]
    over_ranks = lambda key: statistics.median(sum(figures[key]) for figures in found)
    last = found[-1]
    return {
        **world._asdict(), 'micro_batches': MICRO_BATCHES * ranks_of(world), 'placement': placement,
        'rounds': len(found),
        'step_ms': spread([each['step_ms'] for each in of_rounds]),
        'optimizer_ms': spread([each['optimizer_ms'] for each in of_rounds]),
        'cpu_ms': over_ranks('cpu_ms'), 'optimizer_cpu_ms': over_ranks('optimizer_cpu_ms'),
        'bytes': {phase: int(over_ranks(f'sent_{phase}_bytes')) for phase in PHASES},
        'matrix_step_bytes': last['optimizer_matrix_bytes'],
        'card_bytes': int(statistics.median(map(card_bytes, found))) if world.nodes > 1 else None,
        **{key: last[key] for key in ('rest_bytes', 'peak_bytes', 'peak_bytes_predicted')},
        'loss_first': last['losses'][0], 'loss_last': last['losses'][-1],
        'loss_difference': loss_difference(found, reference),
        **{key: [figures[key] for figures in found] for key in ('all_step_ms', 'all_optimizer_ms')},
    }


def print_points(points, cores):
    print(f'{"":34} {"":9} {"step":>9} {"optimizer":>9} {"its CPU":>8} {"cores":>6} {"sent in it":>11} {"peak":>7} '
          f'{"|loss-":>8}')
    print(f'{"":34} {"":9} {"ms":>9} {"ms":>9} {"ms":>8} {"busy":>6} {"MB":>11} {"MB":>7} {"ddp|":>8}')
    for point in points:
        optimizer = point['optimizer_ms']['median']
        busy = point['optimizer_cpu_ms'] / (cores * optimizer) if optimizer > 0 else 0
        difference = point['loss_difference']
        world = World(*(point[key] for key in World._fields))
        print(f'{name_of(world):34} {point["placement"]:9} {point["step_ms"]["median"]:9.1f} {optimizer:9.1f} '
              f'{point["optimizer_cpu_ms"]:8.1f} {busy:6.0%} {point["bytes"]["step"] / 1e6:11.3f} '
              f'{point["peak_bytes"] / 1e6:7.1f} {"" if difference is None else f"{difference:8.2g}"}')
