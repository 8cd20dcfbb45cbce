# SPDX-License-Identifier: Apache-2.0
"""What perf/evaluate makes of an evaluation: tables, pictures and sentences of docs/performance.md."""
import copy
import json
import math
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / 'perf' / 'evaluate' / 'page.py'
PAGE = ROOT / 'docs' / 'performance.md'
README = ROOT / 'README.md'
PUBLISHED = ROOT / 'docs' / 'performance' / 'evaluation.json'
sys.dont_write_bytecode = True
sys.path[:0] = [str(PROGRAM.parent), str(ROOT / 'tests' / 'cli')]

import browser  # noqa: E402
import evaluation as reader  # noqa: E402
import findings  # noqa: E402
import page  # noqa: E402
import parts  # noqa: E402
import svg  # noqa: E402
import tables  # noqa: E402
from evaluations import PLACEMENTS, evaluation, point, prediction  # noqa: E402

HOSTILE = '</svg><b>& &amp;|"]]>`\n| a |\n<!-- evaluation: nodes ends -->\x1b \U0001f600 [x](y) \\'
SVG = '{http://www.w3.org/2000/svg}'
# What a browser makes of the texts of pictures, written into the document, which is then read back.
PROBE = '''<pre id="seen"></pre><script>
document.getElementById('seen').textContent = JSON.stringify([...document.querySelectorAll('svg')].map(picture => {
  const frame = picture.getBoundingClientRect();
  return [...picture.querySelectorAll('text')].map(text => {
    const box = text.getBoundingClientRect();
    return [box.left - frame.left, box.right - frame.left, frame.width, text.textContent];
  });
}));</script>'''


def made(data):
    """(page, pictures) of an evaluation in the page of this tree."""
    return page.made(data, PAGE.read_text(encoding='utf-8'))


def parts_of(text):
    return dict(re.findall(r'^<!-- evaluation: ([\w-]+) begins -->\n(.*?)^<!-- evaluation: \1 ends -->\n', text,
                           re.MULTILINE | re.DOTALL))


def tables_of(text):
    """Each a list of rows, each a list of cells; a bar after a backslash is no column's end."""
    found = []
    for block in re.findall(r'(?:^\|.*\n)+', text, re.MULTILINE):
        found.append([[cell.strip() for cell in re.split(r'(?<!\\)\|', line)[1:-1]] for line in block.splitlines()])
    return found


def boxes_of(picture):
    """(left, top, right, bottom, text) of each text."""
    for text in xml.etree.ElementTree.fromstring(picture).iter(SVG + 'text'):
        size = float(text.get('font-size'))
        width = svg.text_width(text.text, size, text.get('font-weight') == 'bold')
        left = float(text.get('x')) - width * {'middle': 0.5, 'end': 1}.get(text.get('text-anchor'), 0)
        bottom = float(text.get('y'))
        yield left, bottom - 0.76 * size, left + width, bottom + 0.22 * size, text.text


class Evaluation(unittest.TestCase):
    def hold_page(self, data):
        """Whatever the evaluation, page and pictures are well formed. Returns them."""
        text, pictures = made(data)
        self.assertEqual(set(parts_of(text)), set(parts.PARTS))
        for rows in tables_of(text):
            self.assertEqual({len(row) for row in rows}, {len(rows[0])}, rows[0])
            self.assertRegex(' '.join(rows[1]), r'^(---:?( |$))+$')
            self.assertGreater(len(rows), 2, rows[0])
        self.assertEqual(text.count('<details>'), text.count('</details>'))
        for line in ''.join(parts_of(text).values()).splitlines():
            self.assertTrue(len(line) <= 120 or line.startswith(('|', '- ', '<summary>')), line)
        for name, picture in pictures.items():
            self.assertEqual(f'(performance/{name})' in text, picture is not None, name)
            if picture is not None:
                self.hold_picture(name, picture)
        return text, pictures

    def hold_picture(self, name, picture):
        root = xml.etree.ElementTree.fromstring(picture)
        _, _, width, height = map(float, root.get('viewBox').split())
        self.assertTrue(root.find(SVG + 'title').text and root.find(SVG + 'desc').text)
        self.assertNotRegex(picture, r'nan|inf\b|None')
        boxes = list(boxes_of(picture))
        for place, (left, top, right, bottom, text) in enumerate(boxes):
            self.assertTrue(4 <= left <= right <= width - 4 and 4 <= top and bottom <= height - 4,
                            f'{name}: "{text}" leaves the picture')
            for other_left, other_top, other_right, other_bottom, other in boxes[:place]:
                apart = right <= other_left or other_right <= left or bottom <= other_top or other_bottom <= top
                self.assertTrue(apart, f'{name}: "{text}" lies on "{other}"')
        for element in root.iter():
            for key in ('x', 'y', 'cx', 'cy', 'x1', 'x2', 'y1', 'y2', 'width', 'height'):
                if element.get(key):
                    self.assertTrue(-0.05 <= float(element.get(key)) <= max(width, height), (name, element.attrib))
            for pair in (element.get('points') or '').split():
                x, y = map(float, pair.split(','))
                self.assertTrue(0 <= x <= width and 0 <= y <= height, (name, element.attrib))
            self.assertGreaterEqual(float(element.get('font-size') or 11), 11)

    def refused(self, data, sentence):
        with self.assertRaisesRegex(reader.Refused, sentence):
            made(data)

    def test_a_whole_evaluation_gives_all_tables_and_pictures(self):
        text, pictures = self.hold_page(evaluation())
        self.assertNotIn(None, pictures.values())
        for name, part in parts_of(text).items():
            self.assertRegex(part, r'\| ---', name)
            self.assertNotIn(parts.NOTHING, part)
        rows = next(rows for rows in tables_of(parts_of(text)['nodes']))
        self.assertEqual(rows[0], ['nodes', 'ranks a node'] + [f'{name} ms' for name in PLACEMENTS] +
                         [f'{name} / owner' for name in PLACEMENTS[1:]])
        self.assertEqual(rows[5], ['8', '1', '5.50', '460', '174', '258', '40.5', '83.7', '31.5', '46.8', '7.36'])

    def test_measured_and_predicted_stand_in_no_table_together(self):
        text, pictures = made(evaluation())
        for name, part in parts_of(text).items():
            for rows in tables_of(part):
                for cell in rows[0]:
                    if re.search('measured|predicted|counted', cell):
                        self.assertRegex(cell, ', predicted / (measured|counted)$')
            if name.startswith('predicted'):
                self.assertNotRegex(re.sub('predicted / (measured|counted)', '', part), r'(?i)measured|counted')
            elif name != 'machine':
                self.assertNotRegex(part, '(?i)predict')
        for name, picture in pictures.items():
            title = xml.etree.ElementTree.fromstring(picture).find(SVG + 'title').text
            self.assertRegex(title, '^Predicted, not run:' if name.startswith('predicted') else '^Measured:')

    def test_writing_twice_gives_the_same_bytes_and_leaves_the_rest_of_the_page(self):
        with tempfile.TemporaryDirectory() as folder:
            docs = pathlib.Path(folder)
            (docs / 'performance.md').write_bytes(PAGE.read_bytes())
            (docs / 'evaluation.json').write_text(json.dumps(evaluation()), encoding='utf-8')
            seen = []
            for _ in range(2):
                subprocess.run([sys.executable, '-B', PROGRAM, docs / 'evaluation.json', docs], check=True, timeout=60)
                seen.append({path.name: path.read_bytes() for path in docs.rglob('*') if path.is_file()})
            self.assertEqual(seen[0], seen[1])
            self.assertEqual(len(seen[0]), 8)
            self.assertEqual(self.without_parts(seen[0]['performance.md'].decode()),
                             self.without_parts(PAGE.read_text(encoding='utf-8')))
            bare = evaluation(measured=[], predicted=[])
            page.write(bare, folder)
            self.assertEqual(list((docs / 'performance').iterdir()), [])  # pictures of nothing don't stay

    def without_parts(self, text):
        return re.sub(r'(begins -->\n).*?(^<!-- evaluation: )', r'\1\2', text, flags=re.MULTILINE | re.DOTALL)

    def test_the_page_of_this_tree_is_that_of_the_published_run(self):
        text, pictures = made(reader.read(PUBLISHED))
        self.assertEqual(text, PAGE.read_text(encoding='utf-8'),
                         'python3 perf/evaluate/page.py docs/performance/evaluation.json docs writes it anew')
        readme = README.read_text(encoding='utf-8')
        self.assertEqual(page.made_readme(reader.read(PUBLISHED), readme), readme)
        there = {path.name: path.read_text(encoding='utf-8') for path in PUBLISHED.parent.glob('*.svg')}
        self.assertEqual({name: picture for name, picture in pictures.items() if picture is not None}, there)

    def test_the_readme_has_a_part_of_it(self):
        with tempfile.TemporaryDirectory() as folder:
            docs, readme = pathlib.Path(folder) / 'docs', pathlib.Path(folder) / 'README.md'
            docs.mkdir()
            (docs / 'performance.md').write_bytes(PAGE.read_bytes())
            before = README.read_text(encoding='utf-8')
            readme.write_text(before, encoding='utf-8')
            page.write(evaluation(), docs)
            after = readme.read_text(encoding='utf-8')
            self.assertEqual(self.without_parts(after), self.without_parts(before))
            part = parts_of(after)['readme']
            self.assertEqual(tables_of(part)[0][2][1:], ['1', '0.95', '4.90', '21.0', '83.7'])
            self.assertIn('](docs/performance.md)', part)
            page.write(evaluation([], []), docs)
            self.assertEqual(tables_of(parts_of(readme.read_text(encoding='utf-8'))['readme']), [])
            readme.write_text('# Another\n', encoding='utf-8')
            page.write(evaluation(), docs)
            self.assertEqual(readme.read_text(encoding='utf-8'), '# Another\n')

    def test_odd_evaluations_are_told_too(self):
        whole = evaluation()
        some = [each for number, each in enumerate(whole['measured']) if number % 3]
        no_owner = [each for each in whole['measured'] if each['placement'] != 'owner']
        one = [point('nodes', 1, 1, placement=placement) for placement in PLACEMENTS]
        alone = [point('sequences', 4, 2)]
        for name, data in (('nothing', evaluation([], [])), ('some', evaluation(some)),
                           ('no owner', evaluation(no_owner)), ('one world', evaluation(one, [])),
                           ('one point', evaluation(alone, [])),
                           ('one prediction', evaluation([], [prediction('a', 8, 'owner')])),
                           ('holes', evaluation([], [prediction('a', gpus, placement) for gpus, placement in
                                                     ((8, 'owner'), (16, 'slices'), (64, 'owner'), (64, 'alltoall'))])),
                           ('near', evaluation([], [prediction('a', gpus, placement) for gpus in range(1000, 1400, 50)
                                                    for placement in PLACEMENTS])),
                           ('many tokens', evaluation([], [prediction('a' * 90, gpus, placement, tokens)
                                                           for gpus in (8, 16) for tokens in (512, 8192)
                                                           for placement in PLACEMENTS]))):
            with self.subTest(name):
                self.hold_page(data)

    def test_odd_figures_are_told_too(self):
        for change in (lambda each: each.update(card_bytes=None, peak_bytes_predicted=None, loss_difference=None),
                       lambda each: each['bytes'].update(forward=0, backward=0, step=0, other=0),
                       lambda each: each.update(optimizer_cpu_ms=0, cpu_ms=0, rest_bytes=0, peak_bytes=0),
                       lambda each: each.update(optimizer_ms=dict(min=1e-7, median=1e-7, max=1e-7)),
                       lambda each: each.update(optimizer_ms=dict(min=7, median=7, max=7),
                                                step_ms=dict(min=9, median=9, max=9)),
                       lambda each: each.update(step_ms=dict(min=1e9, median=1e9, max=1e9)),
                       lambda each: each['placement'] == 'owner' and each.update(
                           optimizer_ms=dict(min=1e6, median=1e6, max=1e6)),
                       lambda each: each['bytes'].update(step=10 ** 17)):
            data = evaluation()
            for each in data['measured']:
                change(each)
            self.hold_page(data)

    def test_texts_stay_texts(self):
        data = evaluation(None, [prediction(HOSTILE, gpus, placement) for gpus in (8, 64) for placement in PLACEMENTS])
        data['command'] = data['date'] = data['machine']['processor'] = HOSTILE
        data['versions'] = {HOSTILE: HOSTILE}
        data['missing'] = [HOSTILE]
        text, _ = self.hold_page(data)
        plain = re.sub(r'^\| command .*$|^Clusters, in the words of (?:.+\n)+', '', text, flags=re.MULTILINE)
        self.assertNotRegex(plain, '<b|<!-- e.*<!-- e')
        self.assertNotIn('[x](y)', re.sub('<summary>.*', '', plain))  # no Markdown in there
        self.assertEqual(page.made(data, text)[0], text)

    def test_what_is_no_evaluation_is_refused_by_its_key(self):
        def changed(path, value):
            data = copy.deepcopy(evaluation())
            inner = data
            for key in path[:-1]:
                inner = inner[key]
            if value is changed:
                del inner[path[-1]]
            else:
                inner[path[-1]] = value
            return data
        for path, value, sentence in (
                (['matrixshard_evaluation'], 2, r'matrixshard_evaluation is 2, not one of 1'),
                (['matrixshard_evaluation'], changed, r'matrixshard_evaluation is missing'),
                (['date'], 7, r'date is 7, not a text'), (['machine'], [], r'machine is \[\], not an object'),
                (['machine', 'cores'], 0, r'machine\.cores is 0, not a whole number'),
                (['measured'], {}, r'measured is \{\}, not a list'),
                (['measured', 3, 'sweep'], 'x', r'measured\[3\]\.sweep is "x", not one of nodes, sequences'),
                (['measured', 3, 'placement'], 'single', r'measured\[3\]\.placement is "single", not one of owner'),
                (['measured', 0, 'step_ms', 'median'], changed, r'measured\[0\]\.step_ms\.median is missing'),
                (['measured', 0, 'step_ms', 'median'], 0, r'measured\[0\]\.step_ms\.median is 0, not a time above 0'),
                (['measured', 0, 'step_ms', 'min'], 1e6, r'measured\[0\]\.step_ms has its median outside'),
                (['measured', 0, 'loss_last'], math.nan, r'measured\[0\]\.loss_last is NaN, not a number up to'),
                (['measured', 0, 'loss_difference'], math.inf, r'measured\[0\]\.loss_difference is Infinity'),
                (['measured', 0, 'bytes', 'step'], -1, r'measured\[0\]\.bytes\.step is -1, not a number of at least 0'),
                (['measured', 0, 'bytes', 'step'], True, r'measured\[0\]\.bytes\.step is true, not a number'),
                (['measured', 1, 'placement'], 'owner', r'measured\[1\] is the same point as measured\[0\]'),
                (['measured', 0, 'rest_bytes'], 10 ** 400, r'measured\[0\]\.rest_bytes is 1000.*, not a number'),
                (['predicted', 0, 'step_ms'], 1e308, r'predicted\[0\]\.step_ms is 1e\+308, not a time above 0'),
                (['model', 'layers'], 4.0, r'model\.layers is 4\.0, not a whole number'),
                (['settings', 'tuned'], 'x', r'settings\.tuned is "x", not an object'),
                (['settings', 'tuned'], {'2': 7}, r'settings\.tuned\.2 is 7, not an object'),
                (['settings', 'tuned'], {'2': {'factors': {'chain': -1}}}, r'factors\.chain is -1, not a factor above'),
                (['predicted', 0, 'fits'], 'yes', r'predicted\[0\]\.fits is "yes", not true or false'),
                (['predicted_here', 2, 'step_ms'], None, r'predicted_here\[2\]\.step_ms is null, not a time above 0')):
            with self.subTest('.'.join(map(str, path))):
                self.refused(changed(path, value), sentence)
        self.refused([], r'the evaluation is \[\], not an object')

    def test_the_program_says_what_is_wrong_and_writes_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            text = PAGE.read_text(encoding='utf-8')
            good, ends = json.dumps(evaluation()), page.marker('bytes', 'ends')
            for file, words, sentence in (('{', text, 'line 1, column 2'), ('[]', text, r'the evaluation is \[\]'),
                                          ('[' * 100000, text, 'is no evaluation'),
                                          ('[' + '9' * 5000 + ']', text, 'is no evaluation'),
                                          (b'\xff', text, 'byte 0 is not UTF-8'), (None, text, 'cannot be read'),
                                          (good, text.replace('n: bytes', 'n: bites'), 'the page has a part "bites"'),
                                          (good, text.replace(ends, ''), 'out of turn'),
                                          (good, text.replace(ends, '').replace(page.marker('bytes', 'begins'), ''),
                                           'the page lacks'),
                                          (good, None, 'performance.md')):
                docs = pathlib.Path(tempfile.mkdtemp(dir=folder))
                if file is not None:
                    (docs / 'e.json').write_bytes(file if isinstance(file, bytes) else file.encode())
                if words is not None:
                    (docs / 'performance.md').write_text(words, encoding='utf-8')
                result = subprocess.run([sys.executable, '-B', PROGRAM, docs / 'e.json', docs], capture_output=True,
                                        text=True, timeout=60, check=False)
                self.assertEqual(result.returncode, 1)
                self.assertRegex(result.stderr, sentence)
                self.assertNotIn('Traceback', result.stderr)
                self.assertEqual(set(os.listdir(docs)) - {'e.json', 'performance.md'}, set())
                if words is not None:
                    self.assertEqual((docs / 'performance.md').read_text(encoding='utf-8'), words)
        self.assertEqual(subprocess.run([sys.executable, '-B', PROGRAM, 'one'], capture_output=True, timeout=60,
                                        check=False).returncode, 2)

    def test_a_full_disk_leaves_what_stood_there(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        with tempfile.TemporaryDirectory() as folder:
            docs = pathlib.Path(folder, 'docs')
            docs.mkdir()
            text = PAGE.read_text(encoding='utf-8')
            (docs / 'e.json').write_text(json.dumps(evaluation()), encoding='utf-8')
            (docs / 'performance.md').write_text(text, encoding='utf-8')
            result = subprocess.run([sys.executable, '-B', PROGRAM, docs / 'e.json', docs], capture_output=True,
                                    text=True, timeout=60, check=False, preexec_fn=limit)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, '^perf/evaluate/page.py: .*File too large')
            self.assertEqual((docs / 'performance.md').read_text(encoding='utf-8'), text)
            self.assertEqual(list(docs.glob('**/*.part')), [])

    def test_sentences_say_what_the_figures_say(self):
        def at(nodes, placement, ms):
            each = point('nodes', nodes, 1, placement=placement)
            each['optimizer_ms'] = dict(min=ms, median=ms, max=ms)
            return each

        def told(*ratios):
            return findings.gains_by_nodes([at(2 ** power, placement, ms) for power, ratio in enumerate(ratios)
                                            for placement, ms in (('owner', 10.0), ('slices', 10.0 * ratio))],
                                           'slices', 'optimizer_ms')
        self.assertIn('on 1, 2, 4 and 8 nodes, 1.00, 2.00, 4.50 and 12.3 (it rises throughout)', told(1, 2, 4.5, 12.3))
        self.assertIn('(it does not rise anywhere)', told(3, 2, 1))
        self.assertIn('(it does not rise throughout: from 2 to 4 it goes from 2.00 to 1.50)', told(1, 2, 1.5, 3))
        self.assertIn('on 1 node, 0.90 (there is one such point only)', told(0.9))
        self.assertIn('there are no figures', told())

    def test_where_owner_loses_is_all_that_is_listed(self):
        data = evaluation()
        seen = set()
        for rows in tables_of(parts_of(made(data)[0])['losses']):
            seen = {(row[0], row[1], *map(int, row[2:6])) for row in rows[2:]}
        wanted = set()
        groups = {}
        for each in data['measured']:
            world = tuple(each[key] for key in ('nodes', 'ranks_per_node', 'context', 'sequences'))
            groups.setdefault(world, {})[each['placement']] = each
        for world, group in groups.items():
            for name, each in group.items():
                for what, word in (('optimizer_ms', 'optimizer step'), ('step_ms', 'whole step')):
                    if each[what]['median'] < group['owner'][what]['median']:
                        wanted.add((name, word, *world))
        self.assertEqual(seen, wanted)
        short = parts_of(made(data)[0])['short']
        lost = {(row[0], *row[2:]) for row in wanted}
        self.assertIn(f'At {len(lost)} of 52 points another placement is faster', short)
        best = [dict(each, optimizer_ms=dict(min=0.1, median=0.1, max=0.1), step_ms=dict(min=0.2, median=0.2, max=0.2))
                if each['placement'] == 'owner' else each for each in data['measured']]
        text = made(dict(data, measured=best))[0]
        self.assertIn('At no point that was measured', text)
        self.assertIn('At none of 52 points', text)

    def test_tables_have_the_figures_of_their_points(self):
        text, pictures = made(evaluation())
        found = {name: tables_of(part) for name, part in parts_of(text).items()}
        slices = point('nodes', 8, 2, placement='slices')
        row = next(row for row in found['bytes'][0] if row[2] == 'slices')
        self.assertEqual(row[:7], ['8', '2', 'slices', '85.8 MiB', '172 MiB', '85.8 MiB', '1.25 KiB'])
        self.assertEqual(slices['bytes']['forward'], round(85.83 * 2 ** 20, -6))
        self.assertEqual(found['sequences'][0][7][:5], ['512', '4', '8,192', '204', '5.1%'])
        self.assertEqual(found['processors'][0][2][:7], ['1', '1'] + 5 * ['40%'])  # 0.8 of the time, on 2 cores
        lost = next(row for row in found['losses'][0] if row[:4] == ['alltoall', 'optimizer step', '1', '2'])
        self.assertEqual(lost[6:], ['22.8', '20.7', '1.10', 'no'])
        quotients = found['predicted-here'][3]
        self.assertEqual(quotients[0][4], 'owner, predicted / measured')
        self.assertEqual({cell for row in quotients[2:] for cell in row[4:]}, {'0.93'})
        memory = next(rows for rows in found['predicted'] if 'too much' in str(rows))
        self.assertEqual(memory[2], ['8', '8,192', '46.6 GiB, 93.1 GiB: too much'] +
                         4 * ['46.6 GiB, 93.1 GiB: too much'])
        self.assertEqual(memory[3][2:6], 3 * ['23.3 GiB, 46.6 GiB'] + ['46.6 GiB, 93.1 GiB: too much'])
        uncalibrated = next(rows for rows in found['predicted'] if rows[0][0].startswith('without'))
        self.assertEqual(uncalibrated[2], ['owner', '0.50', '0.50', '0.75', '0.75'])
        self.assertIn('(hollow: does not fit)', pictures['predicted-step.svg'])
        self.assertEqual(pictures['predicted-step.svg'].count('<polygon class="h1"'), 2)  # slices on 8 GPUs, two models
        self.assertEqual(pictures['predicted-step.svg'].count('<polygon class="h4"'), 16)

    def test_bars_are_as_long_as_their_bytes(self):
        root = xml.etree.ElementTree.fromstring(made(evaluation())[1]['bytes.svg'])
        widths = {}
        for bar in root.iter(SVG + 'rect'):
            if bar.get('height') == '16':
                widths.setdefault(bar.get('y'), []).append(float(bar.get('width')))
        _, slices = list(widths.values())[:2]
        self.assertAlmostEqual(slices[1] / slices[0], 2, delta=0.01)
        self.assertAlmostEqual(slices[2] / slices[0], 1, delta=0.01)
        self.assertGreater(sum(list(widths.values())[6]), 400)

    def test_rounds_that_overlap_are_told(self):
        owner, other = point(placement='owner'), point(placement='slices')
        other['step_ms'] = dict(min=1, median=owner['step_ms']['median'] - 0.1, max=owner['step_ms']['min'])
        other['optimizer_ms'] = dict(min=0.1, median=0.2, max=owner['optimizer_ms']['min'] - 0.01)
        _, rows = tables.measured_losses([owner, other])
        self.assertEqual({row[1]: row[-1] for row in rows}, {'optimizer step': 'no', 'whole step': 'yes'})

    def test_texts_are_no_wider_in_a_browser_than_they_were_taken_for(self):
        if not browser.PROGRAM:
            self.skipTest('there is no Chromium: ./dev deps pages installs it')
        pictures = [picture for picture in made(evaluation())[1].values() if picture]
        with tempfile.TemporaryDirectory(prefix='mxs-evaluation-') as folder:
            path = os.path.join(folder, 'pictures.html')
            with open(path, 'w', encoding='utf-8') as file:
                file.write('<!DOCTYPE html><html><body>' + ''.join(pictures) + PROBE + '</body></html>')
            started = browser.Browser(os.path.join(folder, 'profile'))
            try:
                shown, complaints = started.show(path, 'light', 1000)
            finally:
                started.close()
        self.assertEqual(complaints, [])
        document = browser.Document(shown)
        seen = json.loads(document.text(document.by_id('seen')))
        for picture, texts in zip(pictures, seen, strict=True):
            for (left, _, right, _, text), (real_left, real_right, width, real) in zip(boxes_of(picture), texts,
                                                                                       strict=True):
                self.assertEqual(text, real)
                self.assertTrue(left - 1 <= real_left and real_right <= right + 1 and width == svg.WIDTH, (text, right,
                                                                                                         real_right))

    def test_each_series_has_its_own_colour_marker_and_dash(self):
        for column in (svg.SERIES, svg.DASHES, [re.sub(r'[-\d.,]+', '', svg.marker(look, 0, 0)) +
                                                    svg.marker(look, 0, 0) for look in range(5)]):
            self.assertEqual(len(set(column)), 5)
        template = (ROOT / 'src/cli/plan_page.html').read_text(encoding='utf-8')
        for colours in svg.COLOURS.values():
            for colour in colours:
                self.assertIn(colour, template)


if __name__ == '__main__':
    unittest.main()
