# SPDX-License-Identifier: Apache-2.0
"""Pictures: of what the tools really write, looked at through the figure, and sentences for what can't be drawn."""
import contextlib
import copy
import functools
import io
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from unittest import mock

import matplotlib
import matplotlib.figure
from matplotlib.text import Text

import matrixshard
from matrixshard import plot
from matrixshard.plot import __main__ as program
from matrixshard.plot import _look as look

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MXS, MXS_PERF = os.environ.get('MXS_PROGRAM', ''), os.environ.get('MXS_PERF', '')
MODELS = os.path.join(ROOT, 'tests', 'data', 'models')

# What is measured: words of mxs-perf, and of how many ranks.
MEASURED = {
    'gather': (2, 'gather -b 4K -e 1M -f 4 -n 3 -w 1'),
    'compared': (3, 'gather -b 64K -e 1M -f 4 -n 3 -w 1 --compare all --peers --layout k:1'),
    'reduce': (2, 'reduce -b 4K -e 1M -f 4 -n 3 -w 1 --peers'),
    'allreduce': (2, 'allreduce -b 4K -e 256K -f 4 -n 3 -w 1'),
    'steady': (2, 'gather -b 64K -e 256K -i 64K -n 3 -w 1'),
    'one_size': (2, 'reduce -b 256K -e 256K -n 3 -w 1 --compare all --peers'),
    'ranks1': (1, 'gather -b 256K -e 256K -n 3 -w 1'),
    'ranks2': (2, 'gather -b 256K -e 256K -n 3 -w 1'),
    'ranks3': (3, 'gather -b 256K -e 256K -n 3 -w 1'),
    'alone': (1, 'gather -b 4K -e 64K -f 4 -n 3 -w 1'),
    'bf16': (2, 'gather -b 4K -e 1M -f 4 -n 3 -w 1 --dtype bf16'),
    'latency': (2, 'latency -n 200 -w 10'),
    'idle': (2, 'idle -n 2 -w 1 --late 10'),
    'step': (2, 'step -n 2 -w 1 --units 2'),
    'kernels': (0, 'step --local --shapes 64x64*2,64x256 --threads 1,2 --passes 64K -n 3 -w 1'),
    'planning': (0, 'plan -n 2 -w 1 --ranks 4,16,64 --units 4'),
    'tune': (2, 'tune --dry-run -n 3'),
}
PLANNED = {
    'plan': ('qwen3-32b.json', 'nodes:2 ranks:8 nic:25'),
    'plan_one': ('gpt2-xl.json', 'ranks:1'),
    'plan_wide': ('mistral-7b.json', 'nodes:40 ranks:8'),
}
folder = tempfile.TemporaryDirectory()


def path_of(name):
    return os.path.join(folder.name, name)


def made(name):
    """The file that a tool writes, once."""
    path = path_of(name + '.json')
    if os.path.exists(path):
        return path
    environment = {key: value for key, value in os.environ.items() if not key.startswith(('MXS_', 'RANK', 'WORLD'))}
    environment['MXS_SPEEDS'] = 'none'
    if name in PLANNED:
        model, world = PLANNED[name]
        command = [MXS, 'plan', os.path.join(MODELS, model), '--world', world, '--json', '--save',
                   path_of(name + '.saved')]
    else:
        ranks, words = MEASURED[name]
        command = ([MXS, 'run', '-n', str(ranks), '--'] if ranks else []) + [MXS_PERF, *words.split(), '--json', path]
    if not os.access(command[0], os.X_OK) or (name not in PLANNED and not os.access(MXS_PERF, os.X_OK)):
        raise unittest.SkipTest('mxs and mxs-perf are not built here: MXS_PROGRAM and MXS_PERF')
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    if run.returncode:
        raise AssertionError(f'{" ".join(command)}: {run.stderr}')
    if name in PLANNED:
        with open(path, 'w', encoding='utf-8') as file:
            file.write(run.stdout)
    return path


@functools.lru_cache(maxsize=None)
def figure_of(*names, **more):
    """Drawn once; whoever changes it draws its own."""
    return drawn(*names, **more)


def drawn(*names, **more):
    if names[0] in PLANNED:
        return plot.plan(plot.read(made(names[0])), **more)
    return plot.perf({made(name): plot.read(made(name)) for name in names}, **more)


def told(*words):
    """(status, standard output, standard error) of the program."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = program.main(list(words))
        except SystemExit as end:
            status = end.code
    return status, out.getvalue(), err.getvalue()


def texts_of(figure):
    """Texts that are drawn, and their boxes in pixels."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    # Ticks outside of their axis's view are made but not drawn.
    result = []
    ticks = {}
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            shown = {id(tick.label1) for tick in axis._update_ticks()} if axes.axison else set()
            for tick in axis.get_major_ticks() + axis.get_minor_ticks():
                ticks[id(tick.label1)] = id(tick.label1) in shown and tick.label1.get_visible()
                ticks[id(tick.label2)] = False
            for label in () if axes.axison else (axis.label,):
                ticks[id(label)] = False
    for text in found:
        if ticks.get(id(text), True):
            box = matplotlib.text.Text.get_window_extent(text, renderer)  # an annotation's own takes in its arrow
            result.append((text, box))
    return result


def words_of(figure):
    return [text.get_text() for text, _ in texts_of(figure)]


def overlaps(figure):
    """Pairs of texts that cover each other, and texts that leave the picture."""
    texts = texts_of(figure)
    width, height = figure.get_size_inches() * figure.dpi
    complaints = [f'{text.get_text()!r} leaves the picture: {box.x0:.0f}..{box.x1:.0f} of {width:.0f}, '
                  f'{box.y0:.0f}..{box.y1:.0f} of {height:.0f}'
                  for text, box in texts if box.x0 < 2 or box.y0 < 0 or box.x1 > width - 2 or box.y1 > height]
    texts.sort(key=lambda one: one[1].x0)
    for i, (text, box) in enumerate(texts):
        for other, beside in texts[i + 1:]:
            if beside.x0 >= box.x1 - 1:
                break
            if min(box.y1, beside.y1) - max(box.y0, beside.y0) > 4:
                complaints.append(f'{text.get_text()!r} over {other.get_text()!r}')
    return complaints


PICTURES = [('gather',), ('compared',), ('reduce',), ('allreduce',), ('steady',), ('one_size',), ('alone',),
            ('ranks1', 'ranks2', 'ranks3'), ('gather', 'bf16'), ('gather', 'reduce'), ('ranks1', 'alone'), ('latency',),
            ('idle',), ('step',), ('kernels',), ('planning',), ('tune',), ('plan',), ('plan_one',), ('plan_wide',)]


class Files(unittest.TestCase):
    def test_each_picture_is_a_png_of_1400_pixels_width_and_an_svg_that_is_xml(self):
        for names in PICTURES:
            if names in (('steady',), ('allreduce',), ('gather', 'reduce'), ('ranks1', 'alone'), ('plan_wide',)):
                continue  # as others are
            png, svg = path_of('out.png'), path_of('out.svg')
            with self.subTest(names=names):
                plot.save(figure_of(*names), png)
                plot.save(figure_of(*names), svg)
                with open(png, 'rb') as file:
                    data = file.read()
                self.assertEqual(data[:8], b'\x89PNG\r\n\x1a\n')
                width, height = struct.unpack('>II', data[16:24])
                self.assertEqual(width, 1400)
                self.assertTrue(150 < height < 4000, height)
                root = xml.etree.ElementTree.parse(svg).getroot()
                self.assertEqual(root.tag, '{http://www.w3.org/2000/svg}svg')
                self.assertEqual(root.get('width'), '1008pt')

    def test_svg_is_the_same_each_time_and_has_no_date(self):
        for names in (('reduce',), ('plan_one',), ('latency',)):
            with self.subTest(names=names):
                written = []
                for _ in range(2):
                    plot.save(drawn(*names), path_of('again.svg'))
                    with open(path_of('again.svg'), encoding='utf-8') as file:
                        written.append(file.read())
                self.assertEqual(written[0], written[1])
                self.assertNotRegex(written[0], r'<dc:date>|20\d\d-\d\d-\d\d')

    def test_a_readers_matplotlibrc_changes_nothing(self):
        plot.save(figure_of('gather'), path_of('before.svg'))
        with matplotlib.rc_context({'axes.facecolor': 'pink', 'font.size': 30, 'axes.grid': True, 'lines.linewidth': 9,
                                    'xtick.top': True, 'figure.dpi': 33, 'savefig.bbox': 'tight', 'text.usetex': True}):
            plot.save(drawn('gather'), path_of('after.svg'))
        with open(path_of('before.svg'), 'rb') as one, open(path_of('after.svg'), 'rb') as other:
            self.assertEqual(one.read(), other.read())

    def test_without_a_name_the_picture_lies_beside_its_input(self):
        path = made('alone')
        self.assertEqual(told(path, '--dark'), (0, path[:-5] + '.png\n', ''))
        self.assertTrue(os.path.exists(path[:-5] + '.png'))

    def test_the_module_runs_as_a_program_and_reads_standard_input(self):
        with open(made('plan_one'), 'rb') as file:
            run = subprocess.run([sys.executable, '-m', 'matrixshard.plot', '-', '-o', path_of('piped.svg')],
                                 stdin=file, capture_output=True, text=True, timeout=120)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, path_of('piped.svg') + '\n', ''))


class Looks(unittest.TestCase):
    def test_no_text_covers_another_or_leaves_the_picture(self):
        for names in PICTURES:
            for more in ({}, {'kind': 'time'}):
                if more and names[0] not in ('gather', 'compared', 'alone'):
                    continue
                with self.subTest(names=names, **more):
                    self.assertEqual(overlaps(figure_of(*names, **more)), [])

    def test_no_panel_is_empty(self):
        for names in PICTURES:
            with self.subTest(names=names):
                for axes in figure_of(*names).axes:
                    self.assertTrue(axes.lines or axes.patches or axes.collections)

    def test_colours_are_those_of_the_page_of_mxs_plan(self):
        with open(os.path.join(ROOT, 'src', 'cli', 'plan_page.html'), encoding='utf-8') as file:
            page = file.read()
        for ours, css in zip((look.LIGHT, look.DARK), re.findall(r':root \{(.*?)\}', page, re.DOTALL)):
            theirs = dict(re.findall(r'--([\w-]+): (#[0-9a-f]{6})', css))
            for name in ('page', 'panel', 'ink', 'quiet', 'line', 'accent', 'warn', 'over', 'mean', 'bound', 'pattern',
                         'pattern_dark'):
                self.assertEqual(getattr(ours, name), theirs[name.replace('_', '-')], name)
            self.assertEqual(list(ours.heat), [theirs[f'heat-{level}'] for level in range(9)])
            for name, colour in ours.memory.items():
                self.assertEqual(colour, theirs[name.replace('_', '-')], name)

    def test_text_and_lines_stand_out_from_the_page(self):
        def luminance(colour):
            channels = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
            linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
            return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

        def contrast(one, other):
            light, dark = sorted((luminance(one), luminance(other)), reverse=True)
            return (light + 0.05) / (dark + 0.05)
        for colours in (look.LIGHT, look.DARK):
            for colour in (colours.ink, colours.quiet, colours.bound, colours.accent):
                self.assertGreaterEqual(contrast(colour, colours.page), 4.5, colour)
            for colour in colours.series:
                self.assertGreaterEqual(contrast(colour, colours.page), 3, colour)
            self.assertEqual(len(set(colours.series)), len(look.MARKERS))

    def test_dark_pictures_have_a_dark_page(self):
        for dark in (False, True):
            for names in (('gather',), ('plan',)):
                figure = figure_of(*names, dark=dark)
                self.assertEqual(matplotlib.colors.to_hex(figure.get_facecolor()), look.look_of(dark).page)


class Measurements(unittest.TestCase):
    def assert_says(self, figure, *wanted):
        said = words_of(figure)
        for word in wanted:
            self.assertTrue(any(word == text or (len(word) > 12 and word in text) for text in said),
                            f'{word!r} of {said}')

    def test_a_gather_has_its_command_ranks_and_transport_in_the_title_and_both_forms(self):
        figure = figure_of('gather')
        self.assert_says(figure, 'Gather, 2 ranks on 1 node, shm', 'Bus bandwidth, out of place',
                         'Bus bandwidth, in place', 'Time over bound, in place', 'GB/s',
                         'size of the whole buffer', '64 KiB', 'bound', 'fanout')
        with open(made('gather'), encoding='utf-8') as file:
            rows = [json.loads(line) for line in file]
        line = next(line for line in figure.axes[0].lines if line.get_label() == '_fanout')
        self.assertEqual(list(line.get_xdata()), [4096, 16384, 65536, 262144, 1048576])
        for value, row in zip(line.get_ydata(), [row for row in rows if not row['inplace']]):
            self.assertAlmostEqual(value, row['busbw'])

    def test_time_is_drawn_over_two_scales_of_doublings(self):
        figure = figure_of('gather', kind='time')
        self.assert_says(figure, 'Time, out of place', 'time of a turn')
        self.assertEqual((figure.axes[0].get_xscale(), figure.axes[0].get_yscale()), ('log', 'log'))

    def test_sizes_that_grow_by_steps_have_an_even_scale(self):
        self.assertEqual(figure_of('steady').axes[0].get_xscale(), 'linear')

    def test_contenders_and_peers_are_named_at_their_lines(self):
        with open(made('compared'), encoding='utf-8') as file:
            rows = [json.loads(line) for line in file]
        chosen = {row['algorithm'] for row in rows if row['chosen']}
        self.assert_says(figure_of('compared'), 'memcpy', 'bound', *(name + '*' for name in chosen),
                         *({row['algorithm'] for row in rows} - chosen))

    def test_a_ratio_to_the_bound_is_the_quotient_of_both(self):
        with open(made('reduce'), encoding='utf-8') as file:
            rows = [row for row in map(json.loads, file) if not row['peer']]
        name = '_' + rows[0]['algorithm']
        line = next(line for line in figure_of('reduce').axes[1].lines if line.get_label() == name)
        for value, row in zip(line.get_ydata(), rows):
            self.assertAlmostEqual(value, row['time_us']['median'] / row['bound_us'])

    def test_runs_beside_each_other_are_named_by_what_differs(self):
        self.assert_says(figure_of('gather', 'bf16'), 'f32', 'bf16', 'Gather, 2 ranks on 1 node, shm')
        self.assert_says(figure_of('gather', 'reduce'), 'gather', 'reduce', 'Gather and reduce, 2 ranks on 1 node, shm')

    def test_runs_of_one_size_are_drawn_over_their_ranks(self):
        figure = figure_of('ranks1', 'ranks2', 'ranks3')
        self.assert_says(figure, 'Time of 256 KiB', 'ranks', '2', '3', 'in place')
        self.assertEqual(list(figure.axes[0].lines[0].get_xdata()), [1, 2, 3])

    def test_one_size_of_one_run_is_drawn_as_bars(self):
        self.assert_says(figure_of('one_size'), '256 KiB, out of place', 'bare-sum', 'flat', 'bound', 'time of a turn')

    def test_one_rank_alone_has_times_but_no_bandwidth(self):
        self.assert_says(figure_of('alone'), 'Time, in place')
        with self.assertRaisesRegex(ValueError, 'nothing is sent here'):
            figure_of('alone', kind='bandwidth')

    def test_latency_idle_step_and_tune_say_what_was_measured(self):
        self.assert_says(figure_of('latency'), 'Latency of gathers of 8 B, 2 ranks on 1 node', 'time of a gather')
        self.assert_says(figure_of('idle'), 'Cost of waiting, 2 ranks on 1 node', 'of a core')
        self.assert_says(figure_of('step'), 'One training step without the model, 2 ranks on 1 node', 'gather',
                         'reduce', 'step', 'time of a turn')
        self.assert_says(figure_of('tune'), 'Latency', 'Overhead at each end', 'Rate (GB/s)', 'local 0–1',
                         'as predicted', 'chain')

    def test_kernels_have_their_rates_and_ratios_to_the_plain_form(self):
        figure = figure_of('kernels')
        self.assert_says(figure, 'Kernels of the step, one process', '64 × 64, 2 of them, 1 thread',
                         '64 × 256, 2 threads', 'Gflop/s', 'GB/s', 'memcpy', 'muon apply')
        with open(made('kernels'), encoding='utf-8') as file:
            rows = [json.loads(line) for line in file]
        if any(row.get('faster_than_plain') for row in rows):
            self.assertTrue(any('× plain' in text for text in words_of(figure)))

    def test_planning_is_drawn_over_ranks(self):
        self.assert_says(figure_of('planning'), 'Planning, one process', 'ranks planned for', 'time of planning', '64',
                         'bytes', 'flops')

    def test_a_callers_axes_get_the_main_panel(self):
        for names in (('gather',), ('one_size',), ('kernels',), ('planning',), ('plan',)):
            with self.subTest(names=names):
                figure = matplotlib.figure.Figure()
                axes = figure.add_subplot()
                self.assertIs(drawn(*names, axes=axes), figure)
                self.assertTrue(axes.lines or axes.patches)
                self.assertTrue(axes.get_title(loc='left'))
                self.assertEqual(len(figure.axes), 1)

    def test_rows_without_a_name_are_taken_too(self):
        rows = plot.read(made('gather'))
        self.assertEqual(words_of(plot.perf(rows)), words_of(plot.perf(iter(rows))))


class Plans(unittest.TestCase):
    def test_a_plan_has_objectives_owners_step_and_memory(self):
        said = words_of(figure_of('plan'))
        for wanted in ('qwen3, 64 layers, 32.8 billion parameters: 16 ranks on 2 nodes', 'Owned bytes of a rank',
                       'Step time of a rank', 'Owners', 'Memory of each rank', 'Step time of each rank', 'node 0',
                       'node 1', 'gather, at best', 'model.layers.0', 'none'):
            self.assertIn(wanted, said)
        self.assertTrue(any(re.match(r'gradient slots [\d.]+ GiB', text) for text in said))
        with open(made('plan'), encoding='utf-8') as file:
            plan = json.load(file)
        self.assertIn(plan['verdict'], ' '.join(said))

    def test_each_cell_of_the_map_is_a_unit_that_a_rank_owns_bytes_of(self):
        with open(made('plan'), encoding='utf-8') as file:
            plan = json.load(file)
        owned = sum(1 for unit in plan['units'] for _, count in unit['owned'] if count)
        axes = figure_of('plan', kind='owners').axes[0]
        colours = {matplotlib.colors.to_rgb(colour): level for level, colour in enumerate(look.LIGHT.heat)}
        levels = [patch for patch in axes.patches if colours.get(tuple(patch.get_facecolor()[:3]), 0) > 0]
        cells = sum(len(patch.get_path().vertices) // 5 for patch in levels)
        self.assertEqual(cells - 8, owned)  # eight squares are the scale

    def test_a_saved_plan_is_drawn_as_the_printed_one(self):
        made('plan')
        printed, saved = plot.read(made('plan')), plot.read(path_of('plan.saved'))
        self.assertEqual([rank['peak'] for rank in saved['ranks']], [rank['peak'] for rank in printed['ranks']])
        self.assertEqual([unit['owned'] for unit in saved['units']], [unit['owned'] for unit in printed['units']])
        for rank, other in zip(saved['ranks'], printed['ranks']):
            self.assertLessEqual(other.items(), rank.items())
        for key, objective in printed['objectives'].items():
            self.assertLessEqual(objective.items(), saved['objectives'][key].items())
        self.assertEqual(saved['fingerprint'], printed['fingerprint'])
        picture = path_of('saved.png')
        self.assertEqual(told(path_of('plan.saved'), '-o', picture), (0, picture + '\n', ''))
        self.assertEqual(overlaps(plot.plan(saved)), [])

    def test_a_plan_that_was_made_here_is_drawn(self):
        with matrixshard.Topology('nodes:2 ranks:2') as topology:
            tensors = [matrixshard.Tensor(f'w{i}', (64, 64 + 16 * i), rule='muon', unit=i % 2) for i in range(8)]
            with matrixshard.Plan(tensors, topology, unit_count=2) as plan:
                data = plot.describe(plan, topology, 'Small', slots=2)
                self.assertEqual([rank['owned_bytes'] for rank in data['ranks']],
                                 [plan.rank(rank).owned_bytes for rank in range(4)])
                # A unit with a slot of its own has a part of the stack more.
                data['ranks'][3].update(own_slots=4096, peak=data['ranks'][3]['peak'] + 4096)
        self.assertEqual([rank['node'] for rank in data['ranks']], [0, 0, 1, 1])
        said = words_of(plot.plan(data))
        self.assertIn('Small: 4 ranks on 2 nodes', said)
        self.assertIn('own slots 4.00 KiB', said)

    def test_one_kind_is_drawn_alone(self):
        for kind, title in (('objectives', 'Owned bytes of a rank'), ('owners', 'Owners'),
                            ('step', 'Step time of each rank'), ('memory', 'Memory of each rank')):
            said = words_of(figure_of('plan', kind=kind))
            self.assertIn(title, said)
            self.assertEqual(sum(word in said for word in ('Owners', 'Memory of each rank', 'Step time of each rank')),
                             kind != 'objectives')

    def test_many_ranks_are_drawn_by_node(self):
        self.assertTrue(any('weights on nodes' in text for text in words_of(figure_of('plan_wide'))))

    def test_the_least_and_the_oddest_plans_are_drawn(self):
        plan = plot.read(made('plan'))
        lonely = dict(plan, ranks=plan['ranks'][:1], units=[dict(plan['units'][0], owned=[])])
        nothing = dict(plan, units=[], verdict='', objectives={}, model={}, topology={})
        idle = copy.deepcopy(plan)
        for rank in idle['ranks']:
            rank.update({key: 0 for key in rank if key not in ('rank', 'node')})
        for one in (lonely, nothing, idle):
            self.assertEqual(overlaps(plot.plan(one)), [])


HOSTILE = ['\ud800a$x_1^2$ $\\frac{1}{0}$\n\tc\x00\x1b[31m</text><script> --> $', '$_' * 50, 'ж' * 100]


class HostileNames(unittest.TestCase):
    def test_names_are_never_read_as_formulas_and_never_break_the_picture(self):
        gather, plan = plot.read(made('gather'))[:4], plot.read(made('plan_one'))
        for name in HOSTILE:
            with self.subTest(name=name):
                rows = [dict(row, algorithm=name, transports=name, layout=name) for row in gather]
                odd = dict(plan, model=dict(plan['model'], title=name), verdict=name,
                           units=[dict(unit, name=name) for unit in plan['units'][:4]],
                           topology=dict(plan['topology'], words=name))
                for figure in (plot.perf({name: rows, name + '2': rows[:4]}), plot.plan(odd)):
                    self.assertEqual(overlaps(figure), [])
                    plot.save(figure, path_of('hostile.svg'))
                    xml.etree.ElementTree.parse(path_of('hostile.svg'))
                    self.assertFalse([text for text, _ in texts_of(figure) if text.get_parse_math() and
                                      '$' in text.get_text()])

    def test_other_rows_take_hostile_names_too(self):
        for source, key in (('latency', 'algorithm'), ('idle', 'algorithm'), ('step', 'shapes'),
                            ('kernels', 'contender'), ('tune', 'algorithm')):
            for name in HOSTILE[:2]:
                rows = [dict(row, **{key: name}) if key in row else row for row in plot.read(made(source))]
                with self.subTest(source=source, name=name):
                    figure = plot.perf(rows)
                    self.assertEqual(overlaps(figure), [])
                    plot.save(figure, path_of('hostile.svg'))
                    xml.etree.ElementTree.parse(path_of('hostile.svg'))


class BadInput(unittest.TestCase):
    def assert_refused(self, words, *inputs_and_options, standard_input=''):
        with mock.patch.object(sys, 'stdin', io.TextIOWrapper(io.BytesIO(standard_input.encode()))):
            status, out, err = told(*inputs_and_options)
        self.assertEqual((status, out), (2, ''), err)
        self.assertIn(words, err)
        self.assertNotIn('Traceback', err)

    def file(self, text):
        with open(path_of('bad.json'), 'wb') as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path_of('bad.json')

    def test_files_that_are_no_json_of_ours(self):
        for text, words in (
                ('', 'is empty'), (' \n\n', 'is empty'), ('gather 4096', 'is no JSON'),
                ('{"operation": ', 'is no JSON'),
                (b'\x89PNG\r\n', 'is not UTF-8'), ('7', 'holds a JSON number'), ('[1, 2]', 'holds a JSON array'),
                ('"x"', 'holds a JSON string'), ('null', 'holds a JSON null'), ('[]', 'has no rows'),
                ('{}', 'its object has nothing'), ('{"a": 1}', "its object has 'a'"),
                ('[' * 100000, 'nested too deeply'),
                ('{"matrixshard_topology": 1}', 'is a saved topology'),
                ('{"operation": "gather"}\n[1]', 'line 2, holds a JSON array'),
                ('{"operation": "dance"}', "is of the operation 'dance'"), ('[{"bytes": 1}]', 'has no "operation"'),
                ('{"objectives": {}, "ranks": [], "units": []}', 'a plan without ranks'),
                ('{"objectives": {}, "ranks": [1], "units": []}', '"ranks" of a plan is an array of objects'),
                ('{"objectives": {}, "ranks": [{}], "units": []}', 'ranks[0]: node is missing')):
            with self.subTest(text=text[:40]):
                self.assert_refused(words, self.file(text), '-o', path_of('never.png'))
                self.assertFalse(os.path.exists(path_of('never.png')))

    def test_a_file_that_was_cut_off_says_which_line(self):
        with open(made('gather'), encoding='utf-8') as file:
            text = file.read()
        self.assert_refused('it is the last one, so the run was cut off', self.file(text[:-30]))
        lines = text.splitlines()
        self.assert_refused('line 2, is no JSON object', self.file('\n'.join([lines[0], lines[1][:50], lines[2]])))
        with open(made('plan'), encoding='utf-8') as file:
            self.assert_refused('or not all of it', self.file(file.read()[:-100]))

    def test_numbers_that_are_none(self):
        row = plot.read(made('gather'))[0]
        for key, value, words in (('bytes', None, 'bytes is null'), ('bytes', float('nan'), 'bytes is nan'),
                                  ('bytes', 0, 'bytes is 0'), ('bytes', '4K', "bytes is '4K'"),
                                  ('busbw', -1, 'busbw is -1'),
                                  ('busbw', True, 'busbw is True'), ('time_us', 3, 'time_us.min is missing'),
                                  ('time_us', {'min': 1, 'median': float('inf'), 'max': 2}, 'time_us.median is inf'),
                                  ('time_us', {'min': 1, 'median': 0, 'max': 2}, 'not a number above 0'),
                                  ('bound_us', 'x', "bound_us is 'x'"), ('bytes', 10 ** 400, 'bytes is 1000')):
            with self.subTest(key=key, value=str(value)[:20]):
                self.assert_refused(words, self.file(json.dumps(dict(row, **{key: value}))))
        del row['busbw']
        self.assert_refused('row 1: busbw is missing', self.file(json.dumps(row)))
        for name in ('latency', 'idle', 'step', 'kernels', 'planning', 'tune'):
            rows = plot.read(made(name))
            for key in [key for key, value in rows[0].items() if isinstance(value, (int, float, dict)) and key not in (
                    'bytes', 'late_ms', 'spin', 'pin', 'chosen', 'wrong', 'units', 'elements', 'matrices_max', 'cpu_us',
                    'memory_max_mib', 'cpu_ms') and not key.endswith('_by_cpu')]:
                with self.subTest(name=name, key=key):
                    self.assert_refused('', self.file(json.dumps([dict(rows[0], **{key: float('nan')})])))
                    self.assertRegex(told(path_of('bad.json'))[2], rf'row 1: {key}[.\w]* is (nan|missing)')

    def test_a_plan_with_what_no_plan_has(self):
        plan = plot.read(made('plan'))
        for change, words in (
                ({'units': [dict(plan['units'][0], owned=[[99, 1]])]}, "units[0]: \"owned\" holds [99, 1]"),
                ({'units': [dict(plan['units'][0], owned=[['x', 1]])]}, "units[0]: \"owned\" holds ['x', 1]"),
                ({'units': [dict(plan['units'][0], owned=3)]}, 'units[0]: "owned" holds None'),
                ({'units': [dict(plan['units'][0], gather_bound_ns=None)]}, 'units[0]: gather_bound_ns is null'),
                ({'ranks': [dict(rank, peak=float('nan')) for rank in plan['ranks']]}, 'ranks[0]: peak is nan'),
                ({'objectives': {'bytes': {'worst': None, 'bound': 1}}}, 'objectives.bytes.worst is null')):
            with self.subTest(words=words):
                self.assert_refused(words, self.file(json.dumps(dict(plan, **change))))

    def test_a_saved_plan_that_was_changed(self):
        made('plan')
        with open(path_of('plan.saved'), encoding='utf-8') as file:
            saved = json.load(file)
        self.assert_refused('from standard input', '-', '-o', path_of('never.png'), standard_input=json.dumps(saved))
        with self.assertRaisesRegex(ValueError, 'plot.read'):
            plot.plan(saved)
        saved['tensors'][0]['shape'][0] += 1
        self.assert_refused('bad.json', self.file(json.dumps(saved)))
        self.assert_refused('bad.json', self.file('{"matrixshard_plan": 1}'))

    def test_kinds_that_a_file_does_not_have(self):
        self.assert_refused("invalid choice: 'pie'", made('gather'), '--kind', 'pie')
        self.assert_refused("'owners' is no picture of gather", made('gather'), '--kind', 'owners')
        self.assert_refused("'time' is no picture of a plan", made('plan'), '--kind', 'time')
        self.assert_refused("there is one picture of latency, and no 'time'", made('latency'), '--kind', 'time')

    def test_files_that_have_nothing_in_common(self):
        self.assert_refused('rows of gather, latency have no axis in common', made('gather'), made('latency'))
        self.assert_refused('is a plan: there is a picture of one plan', made('gather'), made('plan'))
        self.assert_refused('is named twice', made('gather'), made('gather'))

    def test_a_file_that_cannot_be_read(self):
        self.assert_refused('cannot be read: No such file', path_of('absent.json'))
        self.assert_refused('cannot be read: Is a directory', folder.name, '-o', path_of('x.png'))
        self.assert_refused('the following arguments are required')

    def test_a_picture_that_cannot_be_written(self):
        self.assert_refused('cannot be written: No such file', made('gather'), '-o', path_of('no/such/folder.png'))
        os.makedirs(path_of('folder.png'), exist_ok=True)
        self.assert_refused('cannot be written: Is a directory', made('gather'), '-o', path_of('folder.png'))
        self.assert_refused('not as .pdf', made('gather'), '-o', path_of('x.pdf'))
        self.assert_refused('this name ends in neither', made('gather'), '-o', path_of('x'))

    def test_python_callers_get_exceptions_with_the_same_sentences(self):
        with self.assertRaisesRegex(ValueError, 'the plan holds rows of mxs-perf'):
            plot.plan([{'operation': 'gather'}])
        with self.assertRaisesRegex(ValueError, 'there are no rows'):
            plot.perf({})
        with self.assertRaisesRegex(ValueError, 'data has no rows'):
            plot.perf([])
        with self.assertRaisesRegex(ValueError, 'data, row 1 is a number'):
            plot.perf([3])

    def test_without_matplotlib_a_sentence_says_what_to_install(self):
        with mock.patch.dict(sys.modules, {'matplotlib': None}):
            self.assert_refused('pip install matplotlib', made('gather'), '-o', path_of('never.png'))
            with self.assertRaisesRegex(ImportError, 'python3-matplotlib'):
                plot.plan({})

    def test_importing_the_module_imports_neither_matplotlib_nor_numpy(self):
        run = subprocess.run([sys.executable, '-c', 'import matrixshard.plot.__main__, sys; '
                              'sys.exit("matplotlib" in sys.modules or "numpy" in sys.modules)'], timeout=60)
        self.assertEqual(run.returncode, 0)
