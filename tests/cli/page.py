# SPDX-License-Identifier: Apache-2.0
"""The page of `mxs plan --html`, as a file and as headless Chromium shows it: page.py MAKE_PAGE TEMPLATE MXS.
Speaks TAP.

A probe, a script at the end of a copy of the page, writes what it sees into the document, which is then read back.
Cases that want a browser are skipped where there is none.
"""
import atexit
import copy
import functools
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../support'))
import browser
import sample_plans
from tap_cases import Skipped, case, run_cases

MAKE_PAGE, TEMPLATE, MXS = sys.argv[1:4]
FOLDER = tempfile.TemporaryDirectory(prefix='mxs-page-')
DARK, LIGHT = 'dark', 'light'
HOSTILE = ['</script><script>window.harmed = 1</script>', '<img src=x onerror="window.harmed = 2">', '<!-- <script>',
           '"><svg onload=window.harmed=3>', 'a\u2028b\u2029c', '&lt;b&gt;', '\'; window.harmed = 4; \'',
           '\u0000\u001b',
           'javascript:window.harmed=5', '\U0001f600 \u202e gnirts', ']]>', '${window.harmed = 6}', '\\u003c/script>']


def browser_case(body):
    """A case that is skipped where there is no browser."""
    @functools.wraps(body)
    def with_browser():
        if not browser.PROGRAM:
            raise Skipped('no chromium in PATH; ./dev deps pages installs it')
        body()
    return case(with_browser)


def in_folder(name):
    return os.path.join(FOLDER.name, name)


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def write(path, text):
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)


def make(path, plan, **options):
    text = plan if isinstance(plan, str) else json.dumps(plan, ensure_ascii=False)
    return subprocess.run([MAKE_PAGE, path], input=text, capture_output=True, text=True, check=False, timeout=60,
                          **options)


def carried_by(page):
    return json.loads(re.search(r'<script type="application/json" id="plan">(.*?)</script>', page, re.DOTALL)[1])


def page_of(plan):
    path = in_folder('page.html')
    result = make(path, plan)
    assert result.returncode == 0 and result.stderr == '', result.stderr
    return read(path)


# What every probe tells; PROBE stands for more.
PROBE = '''<script>
const asked = performance.getEntriesByType('resource').map((entry) => entry.name);
const style = (node) => getComputedStyle(node);
const probe = {
  background: style(document.documentElement).backgroundColor, ink: style(document.body).color,
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  asked, scripts: document.scripts.length, images: document.images.length, harmed: window.harmed || null,
  failure: document.getElementById('failure').textContent,
};
PROBE
document.body.append(Object.assign(document.createElement('pre'), {id: 'probe', textContent: JSON.stringify(probe)}));
</script>'''

# Tables that are made when their part is opened.
OPEN_ALL = '''document.querySelectorAll("details").forEach((details) => {
  details.open = true; details.dispatchEvent(new Event("toggle")); });'''


@functools.cache
def shared_browser():
    started = browser.Browser(in_folder('profile'))
    atexit.register(started.close)
    return started


def browse(page, more='', scheme=LIGHT, width=1400, probed=True):
    """Returns (document, what the probe told, complaints of the console)."""
    path = in_folder('shown.html')
    end = page.rindex('</body>')
    write(path, page[:end] + (PROBE.replace('PROBE', more) if probed else '') + page[end:])
    shown, console = shared_browser().show(path, scheme, width)
    document = browser.Document(shown)
    told = json.loads(document.text(document.by_id('probe'))) if probed else None
    return document, told, console


def cells(document, table):
    return [[(document.text(cell), cell['attributes'].get('data-value')) for cell in row['children']]
            for row in document.all('tr', document.all('tbody', table)[0])]


def bytes_text(count):
    unit = 0
    while count >= 1024 and unit < 5:
        count, unit = count / 1024, unit + 1
    if unit == 0:
        return f'{count:.0f} B'
    number = f'{count:.2f}' if count < 99.995 else f'{count:.1f}' if count < 999.95 else f'{count:,.0f}'
    return f'{number} {["", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}'


@case
def the_file_names_nothing_outside_itself():
    for text in (read(TEMPLATE), page_of(sample_plans.gpt_4())):
        assert not re.search(r'\b(?:https?|wss?|ftp|data|blob):', text)
        assert not re.search(r'\ssrc\s*=|@import|\b(?:fetch|import)\(|XMLHttpRequest|WebSocket|sendBeacon|EventSource',
                             text)
        assert all(target.startswith('#') for target in re.findall(r'url\(["\']?(.)', text))
        assert not re.search(r'\.innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function', text)
        assert "default-src 'none'" in text and '<link' not in text and '<iframe' not in text


@case
def no_name_ends_the_element_that_carries_the_plan():
    plan = sample_plans.gpt_4()
    for i, name in enumerate(HOSTILE):
        plan['notes'].append(name)
        plan['units'][i % len(plan['units'])]['name'] += name
    plan['model']['title'] = ''.join(HOSTILE)
    page, template = page_of(plan), read(TEMPLATE)
    for word in ('<script', '</script', '<!--', '<svg', '<img'):
        assert page.count(word) == template.count(word), word
    assert '\u2028' not in page and '\u2029' not in page
    assert carried_by(page) == plan


@case
def the_template_is_a_page_of_its_own():
    small, ours = carried_by(read(TEMPLATE)), sample_plans.llama_70b()
    assert set(small) == set(ours) - {'tensors'}
    for part in ('ranks', 'units', 'compare'):
        assert set(small[part][0]) == set(ours[part][0]), part


def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@case
def colours_can_be_read_and_told_apart_in_both_themes():
    themes = [dict(re.findall(r'--([\w-]+): (#[0-9a-f]{6});', block))
              for block in re.findall(r':root \{(.*?)\}', read(TEMPLATE), re.DOTALL)]
    assert len(themes) == 2 and set(themes[0]) == set(themes[1])
    for theme in themes:
        for ink in ('ink', 'quiet', 'accent', 'bound'):
            assert all(contrast(theme[ink], theme[paper]) >= 4.5 for paper in ('page', 'panel')), ink
        assert contrast(theme['ink'], theme['warn-panel']) >= 4.5 and contrast(theme['over'], theme['panel']) >= 3
        # Lightness (cube root of luminance) goes one way, in steps that differ by less than two to one.
        steps = [luminance(theme[f'heat-{level}']) ** (1 / 3) for level in range(9)]
        sizes = [after - before for before, after in zip(steps[1:], steps[2:])]
        assert all(size * (steps[1] - steps[0]) > 0 for size in sizes), sizes
        assert max(map(abs, sizes)) < 2 * min(map(abs, sizes)), sizes


@case
def a_page_is_written_completely_or_not_at_all():
    plan = sample_plans.gpt_4()
    kept = in_folder('kept.html')
    write(kept, 'what was there')
    os.chmod(kept, 0o640)

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))

    result = make(kept, plan, preexec_fn=small_files)
    assert result.returncode == 1 and 'kept.html' in result.stderr and 'File too large' in result.stderr, result.stderr
    assert read(kept) == 'what was there'
    for path, word in [(FOLDER.name, 'is a folder'), (in_folder('missing/page.html'), 'No such file'),
                       ('/dev/full', 'No space left'), (in_folder('kept.html/page.html'), 'Not a directory')]:
        result = make(path, plan)
        assert result.returncode == 1 and word in result.stderr and path in result.stderr, (path, result.stderr)
    os.symlink('kept.html', in_folder('link.html'))
    assert make(in_folder('link.html'), plan).returncode == 0
    assert os.path.islink(in_folder('link.html')) and read(kept) == page_of(plan)
    assert os.stat(kept).st_mode & 0o777 == 0o640
    piped = make('/dev/stdout', plan)
    assert piped.returncode == 0 and piped.stdout == page_of(plan)
    assert not [name for name in os.listdir(FOLDER.name) if '.new-' in name]


def check_heat(document, plan, by, columns):
    drawing = document.all('svg', document.by_id('heat-area'))[0]['attributes']
    assert (drawing['data-units'], drawing['data-columns'], drawing['data-by']) == (
        str(len(plan['units'])), str(columns), by), drawing
    node = {rank['rank']: rank['node'] for rank in plan['ranks']}
    wanted = sum(len({node[rank] if by == 'node' else rank for rank, count in unit['owned'] if count})
                 for unit in plan['units'])
    paths = [path['attributes'] for path in document.all('path', document.by_id('heat-area'))]
    assert sum(int(path['data-cells']) for path in paths) == wanted
    assert all(path['d'].count('M') == int(path['data-cells']) for path in paths)
    times = document.by_id('heat-times')['children'][1:]
    assert [int(row['attributes']['data-value']) for row in times] == [
        unit['gather_bound_ns'] for unit in plan['units']]


@browser_case
def every_number_is_the_plans():
    plan = sample_plans.llama_70b()
    document, told, console = browse(page_of(plan), OPEN_ALL)
    assert console == [] and told['failure'] == '', (console, told)
    check_heat(document, plan, 'rank', 64)
    cards = [card['attributes'] for card in document.all('div', class_='card')]
    assert [(int(card['data-worst']), int(card['data-bound'])) for card in cards] == [
        (plan['objectives'][name]['worst'], plan['objectives'][name]['bound'])
        for name in ('bytes', 'step_ps', 'egress', 'nic')]
    assert bytes_text(plan['objectives']['bytes']['worst']) in document.text(document.by_id('cards'))

    fields = {2: 'weight_bytes', 3: 'gradient_bytes', 4: 'owner_count', 5: 'segment_count', 6: 'rank_bytes_max',
              7: 'rank_bytes_bound', 9: 'nic_bytes_max', 10: 'nic_bytes_bound', 12: 'network_bytes',
              13: 'gather_bound_ns'}
    rows = cells(document, document.by_id('unit-table'))
    assert len(rows) == len(plan['units'])
    for row, unit in zip(rows, plan['units']):
        assert row[1][0] == unit['name'] and row[2][0] == bytes_text(unit['weight_bytes']), row
        assert [int(row[i][1]) for i in fields] == [unit[field] for field in fields.values()], (row, unit)

    rows = cells(document, document.by_id('rank-details'))
    keys = ['rank', 'node', 'matrices', 'step_ns', 'owned_bytes', 'weights', 'masters', 'gradients', 'state', 'slack',
            'rest', 'slots', 'gradient_slots', 'workspace', 'peak']
    assert [[int(cell[1]) for cell in row] for row in rows] == [[rank[key] for key in keys] for rank in plan['ranks']]
    parts = {row[0][0]: row for row in cells(document, document.by_id('memory-parts'))}
    assert parts['peak'][4] == (bytes_text(max(rank['peak'] for rank in plan['ranks'])),
                                str(max(rank['peak'] for rank in plan['ranks'])))

    rows = cells(document, document.by_id('compare-table'))
    assert [[row[0][0]] + [int(cell[1]) for cell in row[1:7]] for row in rows] == [
        [row[key] for key in ('placement', 'rest_bytes', 'peak_bytes', 'step_ns', 'local_bytes', 'network_bytes',
                              'step_bytes')] for row in plan['compare']]
    assert 'predicted' in document.text(document.by_id('compare-title'))
    owned = document.text(document.all('tbody', document.by_id('heat-details'))[0])
    for rank, count in plan['units'][3]['owned']:
        assert f'{rank}:\u00a0{bytes_text(count)}'.replace(' ', '\u00a0') in owned
    assert len(cells(document, document.by_id('tensor-details'))) == len(plan['tensors'])
    made = document.text(document.by_id('made-facts'))
    assert 'mxs ' in made and '150 TFLOP/s' in made and plan['topology']['words'] in made, made


@browser_case
def both_themes_draw_without_a_complaint_and_nothing_sticks_out():
    page = page_of(sample_plans.llama_70b())
    seen = []
    more = ('probe.fill = style(document.querySelector("#heat-area path")).fill;'
            'probe.bars = style(document.querySelector("#step-chart path")).fill;')
    for scheme, width in [(LIGHT, 1400), (DARK, 700)]:
        _, told, console = browse(page, more, scheme, width)
        assert console == [] and told['failure'] == '' and told['overflow'] <= 0, (scheme, width, console, told)
        assert told['asked'] == []
        seen.append(told)
    for key in ('background', 'ink', 'fill', 'bars'):
        assert seen[0][key] != seen[1][key], (key, seen)


@browser_case
def thousands_of_ranks_are_shown_by_node_and_by_rank():
    plan = sample_plans.llama_70b_2048()
    document, told, console = browse(page_of(plan), width=700)
    assert console == [] and told['overflow'] <= 0, (console, told)
    check_heat(document, plan, 'node', 256)
    assert 'Columns are nodes' in document.text(document.by_id('owners-lead'))
    document, told, console = browse(page_of(plan), 'document.querySelector("input[value=rank]").click();'
                                     'const area = document.getElementById("heat-area");'
                                     'probe.scrolls = area.scrollWidth > area.clientWidth;')
    assert console == [] and told['scrolls'] and told['overflow'] <= 0, (console, told)
    check_heat(document, plan, 'rank', 2048)


@browser_case
def hostile_names_stay_text():
    plan = sample_plans.llama_70b()
    for i, name in enumerate(HOSTILE):
        plan['units'][i]['name'] = plan['tensors'][i]['name'] = plan['compare'][i % 5]['note'] = name
        plan['tensors'][i]['why'] = plan['tensors'][i]['rule'] = name
    plan['model'].update(title=HOSTILE[0], path=HOSTILE[1])
    plan['topology']['words'] = HOSTILE[3]
    plan.update(verdict=HOSTILE[0] + HOSTILE[1], warnings=HOSTILE, notes=HOSTILE, fingerprint=HOSTILE[1])
    document, told, console = browse(page_of(plan), OPEN_ALL + '''
        document.querySelectorAll("#unit-table thead button").forEach((button) => button.click());
        document.querySelector("#heat-area svg").dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowDown"}));
        probe.told = document.getElementById("told").textContent;
        probe.scripts = document.scripts.length; probe.images = document.images.length;
        probe.harmed = window.harmed || null; probe.title = document.title;''')
    assert console == [] and told['harmed'] is None, (console, told)
    assert told['scripts'] == 3 and told['images'] == 0 and told['failure'] == '', told
    assert HOSTILE[0] in told['title'] and told['told'].startswith(HOSTILE[1]), told
    names = {row[1][0] for row in cells(document, document.by_id('unit-table'))}
    shown = {name for name in HOSTILE if '\0' not in name}
    assert shown <= names, shown - names
    assert document.text(document.by_id('verdict')) == HOSTILE[0] + HOSTILE[1]


@browser_case
def plans_with_little_in_them_draw():
    small = sample_plans.gpt_4()
    bare = copy.deepcopy(small)
    bare['units'], bare['warnings'], bare['notes'] = [], [], []
    for key in ('compare', 'wire'):
        del bare[key]
    for objective in bare['objectives'].values():
        objective.update(worst=0, bound=0, unit=-1)
    for rank in bare['ranks']:
        rank.update({key: 0 for key in rank if key not in ('rank', 'node')})
    tensors, names = sample_plans.llama(1, 64, 192, 64, 100)
    for plan in (small, bare, sample_plans.plan_of('one rank', tensors, names, 1, 1)):
        document, told, console = browse(page_of(plan), OPEN_ALL)
        assert console == [] and told['failure'] == '' and told['overflow'] <= 0, (plan['model'], console, told)
        assert 'NaN' not in document.text(document.by_id('main')) and 'undefined' not in document.text(
            document.by_id('main')) and 'Infinity' not in document.text(document.by_id('main'))
        assert 'NaN' not in str(document.all('path')) + str(document.all('rect')), plan['model']
        check_heat(document, plan, 'rank', len(plan['ranks']))


@browser_case
def keys_and_pointer_tell_what_a_cell_is():
    plan = sample_plans.llama_70b()
    unit, (rank, count) = plan['units'][2], plan['units'][2]['owned'][1]
    document, told, console = browse(page_of(plan), f'''
        const drawing = document.querySelector("#heat-area svg");
        const press = (key, times) => {{ for (let i = 0; i < times; ++i)
          drawing.dispatchEvent(new KeyboardEvent("keydown", {{key}})); }};
        press("ArrowDown", 2); press("ArrowRight", {rank});
        probe.keys = document.getElementById("told").textContent;
        press("End", 1); press("ArrowRight", 3); press("PageDown", 100);
        probe.end = document.getElementById("told").textContent;
        press("Escape", 1); probe.after = document.getElementById("told").textContent;
        const bars = document.querySelector("#step-chart svg"), frame = bars.getBoundingClientRect();
        bars.dispatchEvent(new PointerEvent("pointermove", {{clientX: frame.left + 70, clientY: frame.top + 50}}));
        probe.bar = document.getElementById("told").textContent;''')
    assert console == [], console
    share = f'{100 * count / unit["weight_bytes"]:.1f}% of the unit'
    assert told['keys'].split('\n') == [unit['name'], f'rank {rank}, node {rank // 8}',
                                        f'{bytes_text(count)}, {share}'], told
    assert told['end'].split('\n')[:2] == ['lm_head', 'rank 63, node 7'] and told['after'] == '', told
    assert told['bar'].startswith('rank 0, node 0\n'), told


@browser_case
def mxs_plan_writes_the_page_of_its_own_json():
    """A world of 3 + 5 ranks, names that bite, budget, comparison, tensors: from the list to the drawing."""
    tensors = [{'name': f'layers.{layer}.{name}', 'unit': f'layer {layer}', 'shape': shape, 'dtype': 'bf16'}
               for layer in range(3) for name, shape in [('q', [256, 256]), ('up', [1024, 256]), ('norm', [256])]]
    tensors += [{'name': name, 'unit': name, 'shape': [64, 32]} for name in HOSTILE if '\0' not in name]
    given, page = in_folder('list.json'), in_folder('plan.html')
    write(given, json.dumps({'tensors': tensors}))
    words = [MXS, 'plan', given, '--world', 'ranks:3+5', '--compare', 'all', '--budget', '1GiB', '--tensors', '--json']
    result = subprocess.run([*words, '--html', page], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    plan, text = json.loads(result.stdout), read(page)
    assert carried_by(text) == plan
    assert plan['budget_bytes'] == 1 << 30 and {tensor['name'] for tensor in plan['tensors']} == {
        tensor['name'] for tensor in tensors}
    document, told, console = browse(text, OPEN_ALL)
    assert console == [] and told['failure'] == '' and told['harmed'] is None and told['overflow'] <= 0, (console, told)
    assert told['scripts'] == 3 and told['images'] == 0, told
    check_heat(document, plan, 'rank', 8)
    assert len(cells(document, document.by_id('tensor-details'))) == len(tensors)
    assert [row[0][0] for row in cells(document, document.by_id('compare-table'))] == [
        row['placement'] for row in plan['compare']] and len(plan['compare']) == 5
    assert 'budget 1.00 GiB' in document.text(document.by_id('owned-chart'))
    assert document.text(document.by_id('verdict')) == plan['verdict']


@browser_case
def the_browser_is_told_to_ask_no_network():
    calls = []
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        listener.listen()

        def hang_up_on_every_call():
            while True:
                try:
                    listener.accept()[0].close()
                except OSError:  # the case is over
                    return
                calls.append(1)

        thread = threading.Thread(target=hang_up_on_every_call)
        thread.start()
        address = f'127.0.0.1:{listener.getsockname()[1]}'
        planted = page_of(sample_plans.gpt_4()).replace(
            '</body>', f'<img alt="" src="http://{address}/a.png"><script>fetch("http://{address}/b").catch(() => 0)'
            '</script></body>')
        try:
            browse(planted, probed=False)
            with_policy = len(calls)
            browse(planted.replace('http-equiv="Content-Security-Policy"', 'name="policy"'), probed=False)
            without_policy = len(calls) - with_policy
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert with_policy == 0 and without_policy > 0, (with_policy, without_policy)


@browser_case
def a_plan_that_is_no_json_is_said_to_be_none():
    _, told, console = browse(page_of('{"model": '))
    assert told['failure'].startswith('This page could not be drawn') and console, told


if __name__ == '__main__':
    run_cases()
