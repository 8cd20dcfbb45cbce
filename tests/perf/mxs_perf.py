#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mxs-perf runs in worlds of 1 to 8 processes, checks its own values, finds a planted fault, writes JSON of a known
form, and says what is wrong with bad options."""
import json
import os
import socket
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
FOLDER = tempfile.TemporaryDirectory()
TABLE = os.path.join(FOLDER.name, 'table.json')

ROW = {'operation': str, 'bytes': int, 'count': int, 'layout': str, 'owners': int, 'ranks': int, 'nodes': int,
       'transports': str, 'dtype': str, 'memory': str, 'algorithm': str, 'chosen': bool, 'peer': bool, 'inplace': bool,
       'time_us': dict, 'rank_us': dict, 'algbw': float, 'busbw': float, 'bound_us': float, 'efficiency': float,
       'bytes_out': int, 'bytes_in': int, 'messages': int, 'chunk_bytes': int, 'copy_rate': float, 'wrong': int}


def run(words, ranks, nodes=None):
    """Exit codes, standard output of rank 0, and the errors of all. nodes: of each rank, if they are to differ."""
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        port = listener.getsockname()[1]
    common = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), MXS_TIMEOUT='60')
    common.pop('MXS_ALGORITHM', None)
    children = []
    for rank in range(ranks):
        own = dict(common, RANK=str(rank), LOCAL_RANK=str(rank), **({'MXS_NODE': str(nodes[rank])} if nodes else {}))
        children.append(subprocess.Popen([PROGRAM] + words, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         text=True))
    outputs = [child.communicate(timeout=100) for child in children]
    return [child.returncode for child in children], outputs[0][0], ''.join(errors for _, errors in outputs)


def rows_of(words, ranks, code=0, nodes=None):
    """The objects of the JSON file, or a complaint."""
    if os.path.exists(TABLE):
        os.remove(TABLE)
    codes, output, errors = run(words + ['--json', TABLE], ranks, nodes)
    if codes != [code] * ranks:
        return None, f'{words}, {ranks} ranks: {codes}: {output}{errors}'
    with open(TABLE, encoding='utf-8') as file:
        return [json.loads(line) for line in file], ''


def odd_one(row):
    """What is odd about a row of gather, reduce or allreduce, or ''."""
    for key, kind in ROW.items():
        if row['peer'] and key in ('bound_us', 'efficiency', 'wrong'):
            continue
        if not isinstance(row.get(key), kind):
            return f'{key} is {row.get(key)}'
    for times in (row['time_us'], row['rank_us']):
        low, middle, high = times.values()
        if not 0 <= low <= middle <= high:
            return f'times {times}'
    return 'wrong data' if row['wrong'] else ''


def measures(words, world, **wanted):
    """Every row is in order, and the rows' values of each key that is wanted are those wanted, as a set."""
    rows, complaint = rows_of(words + ['-n', '2', '-w', '1'], world)
    if complaint:
        return complaint
    for row in rows:
        if odd_one(row):
            return f'{odd_one(row)}: {row}'
    for key, values in wanted.items():
        if {row[key] for row in rows} != values:
            return f'{key}: {[row[key] for row in rows]}, wanted {values}'
    return ''


def all_of(*complaints):
    return '\n'.join(complaint for complaint in complaints if complaint)


def every_world():
    """Tiny sizes, none at all among them, in every form of every collective."""
    complaints = []
    for ranks in (1, 2, 3, 4, 7, 8):
        words = ['-b', '0', '-e', '4100', '-i', '2050']
        wanted = dict(ranks={ranks}, inplace={False, True})
        complaints += [
            measures(['gather', '--layout', 'zipf:1.5', '-c', '2'] + words, ranks, bytes={0, 2048, 4100}, **wanted),
            measures(['reduce', '--layout', 'one', '-d', 'bf16', '--accumulate'] + words, ranks, dtype={'bf16'},
                     bytes={0, 2050, 4100}, inplace={False}),
            measures(['allreduce'] + words, ranks, **wanted)]
    return all_of(*complaints)


def every_algorithm():
    sizes = ['-b', '100K', '-e', '1M', '-f', '10']
    return all_of(
        measures(['gather', '--compare', 'all', '--peers'] + sizes, 3, bytes={102400, 1024000}, peer={False, True}),
        measures(['gather', '--compare', 'flat,chain', '--memory', 'heap', '-d', 'bf16'] + sizes, 3,
                 algorithm={'flat', 'chain'}, memory={'heap'}),
        measures(['reduce', '--compare', 'all', '--peers', '--layout', 'k:2', '-v'] + sizes, 3, owners={2},
                 peer={False, True}),
        measures(['reduce', '--memory', 'heap', '--rank-order', '-d', 'f16', '--chunk', '64K', '--window', '2'] + sizes,
                 3, chunk_bytes={65536}),
        measures(['allreduce', '--compare', 'all', '-a', 'avg'] + sizes, 2, chosen={False, True}),
        measures(['gather', '--algorithm', 'chain', '--spin', '--pin', '--form', 'in-place'] + sizes, 2,
                 algorithm={'chain'}, inplace={True}))


def figures_follow_from_each_other():
    rows, complaint = rows_of(['gather', '--layout', 'k:2', '-b', '64K', '-e', '64K', '-n', '3'], 4)
    if complaint:
        return complaint
    for row in rows:
        time = row['time_us']['median']
        # Two of four ranks own nothing and receive all.
        for key, wanted in (('algbw', 65536 / time * 1e-3), ('busbw', 65536 / time * 1e-3),
                            ('bound_us', 65536 / row['copy_rate'] * 1e-3), ('efficiency', row['bound_us'] / time)):
            if abs(row[key] - wanted) > 0.01 * wanted + 0.001:
                return f'{key} should be {wanted}: {row}'
    rows, complaint = rows_of(['reduce', '-b', '64K', '-e', '64K', '-n', '3', '-d', 'bf16'], 4)
    if complaint:
        return complaint
    return '' if abs(rows[0]['busbw'] - 0.75 * rows[0]['algbw']) < 0.01 * rows[0]['busbw'] + 0.001 else f'{rows}'


def layout_file(text):
    name = os.path.join(FOLDER.name, 'layout')
    with open(name, 'w', encoding='utf-8') as file:
        file.write(text)
    return name


def files():
    good = layout_file('# a unit\n1 4K\n0 100\n1 0\n')
    rows, complaint = rows_of(['gather', '--layout', good, '-n', '1'], 2)
    if complaint or {(row['bytes'], row['owners'], row['wrong']) for row in rows} != {(4196, 2, 0)}:
        return complaint or f'{rows}'
    return all_of(refuses(['gather', '--layout', layout_file('0 4K\n2 4K\n')], 'line 2'),
                  refuses(['gather', '--layout', layout_file('0 4K\n0 5\n')], 'whole elements'),
                  refuses(['gather', '--layout', layout_file('zero 4K\n')], 'line 1'),
                  refuses(['gather', '--layout', os.path.join(FOLDER.name, 'none')], 'file'))


def planted_faults():
    complaints = []
    for words in (['gather'], ['reduce'], ['allreduce'], ['step', '--units', '1', '--shapes', '64x64,64'],
                  ['checkpoint', FOLDER.name, '--units', '1', '--shapes', '64x64,64']):
        sizes = ['-b', '4K', '-e', '4K'] if '--units' not in words else []
        rows, complaint = rows_of(words + sizes + ['-n', '1', '-w', '0', '--plant-fault'], 2, code=1)
        complaints.append(complaint or ('' if all(row['wrong'] > 0 for row in rows) else f'not found: {rows}'))
    return all_of(*complaints)


def other_commands():
    model = ['--units', '3', '--shapes', '48x32,32x32*2,32', '-n', '2', '-w', '1']
    complaints = []
    for words, ranks, key in ((['latency', '-n', '50', '-w', '5', '--spin'], 2, 'time_us'),
                              (['latency', '-n', '50', '-w', '5', '-b', '64', '--layout', 'one'], 3, 'time_us'),
                              (['idle', '--late', '20', '-n', '1', '-w', '0'], 3, 'cpu_percent'),
                              (['checkpoint', FOLDER.name] + model, 1, 'memory_mib'),
                              (['checkpoint', FOLDER.name, '-d', 'f32'] + model, 3, 'of_dd_direct'),
                              (['step'] + model, 1, 'gather'), (['step', '-d', 'bf16'] + model, 3, 'reduce'),
                              (['step', '--by-reference', '--rank-order'] + model, 2, 'step'),
                              (['plan', '--ranks', '1,3,16'] + model, 1, 'step_flops'),
                              (['plan', '--ranks', '4,8,9', '--shapes', '48x32,64x64f*3,900f'], 1, 'memory_max_mib')):
        rows, complaint = rows_of(words, ranks)
        count = {'plan': 3, 'checkpoint': 2}.get(words[0], 1)
        if not complaint and (len(rows) != count or any(key not in row or row.get('wrong', 0) for row in rows)):
            complaint = f'{words}: {rows}'
        complaints.append(complaint)
    return all_of(*complaints)


def local_steps():
    """Kernels without ranks: every backend that is here, and passes, with figures that follow from each other."""
    rows, complaint = rows_of(['step', '--local', '--shapes', '48x32*2,1x7', '--threads', '1,2', '--backends',
                               'tiles,onednn,openblas,reference', '--passes', '64K', '-n', '2', '-w', '1'], 1)
    if complaint:
        return complaint
    products = [row for row in rows if row['part'] == 'newton-schulz']
    passes = [row for row in rows if row['part'] == 'pass']
    wrong = [row for row in rows if not row['wall_ms']['min'] <= row['wall_ms']['median'] <= row['wall_ms']['max']]
    wrong += [row for row in products if row['difference'] is not None and not row['difference'] < 5e-2]
    wrong += [row for row in products if not near(row['gflops'], row['flops'] / row['wall_ms']['median'] * 1e-6)]
    wrong += [row for row in passes if not near(row['gigabytes_per_second'], row['elements'] * row['element_bytes']
                                                / row['wall_ms']['median'] * 1e-6)]
    chosen = {(row['rows'], row['threads']) for row in products if row['chosen']}
    names = {row['contender'] for row in passes}
    if wrong or chosen != {(48, 1), (48, 2), (1, 1), (1, 2)} or {'memcpy', 'adamw'} - names:
        return f'{wrong}, chosen {chosen}, passes {passes}'
    backends = ['--backends', 'reference,reference', '--shapes', '8x9', '--threads', '1', '--passes', '0']
    rows, complaint = rows_of(['step', '--local', '--plant-fault', '-n', '1', '-w', '0'] + backends, 1, code=1)
    return complaint


def near(figure, wanted):
    return abs(figure - wanted) <= 0.02 * wanted + 0.02


def tunes():
    """Links of each kind that there is, and a file that later comms read."""
    saved = os.path.join(FOLDER.name, 'speeds.json')
    complaints = []
    for ranks, node, kinds in ((1, None, []), (3, None, ['local']), (3, [0, 0, 1], ['local', 'network'])):
        if os.path.exists(saved):
            os.remove(saved)
        rows, complaint = rows_of(['tune', '-n', '3', '--save', saved], ranks, nodes=node)
        complaints.append(complaint)
        if complaint:
            continue
        links = [row for row in rows if 'link' in row]
        factors = {row['algorithm']: row['factor'] for row in rows if 'factor' in row}
        if [row['link'] for row in links] != kinds or any(row['bandwidth'] <= 0 for row in links):
            complaints.append(f'{ranks} ranks: {rows}')
        if (ranks > 1) != ('chain' in factors) or any(factor <= 0 for factor in factors.values()):
            complaints.append(f'{ranks} ranks: factors {factors}')
        with open(saved, encoding='utf-8') as file:
            speeds = json.load(file)
        if min(speeds['local']['bytes_per_second'], speeds['add_bytes_per_second']) < 1_000_000:
            complaints.append(f'{speeds}')
        if set(speeds['factors']) != set(factors):
            complaints.append(f'{speeds}, factors of {set(factors)}')
    return all_of(*complaints, refuses(['tune', '-n', '3', '--save', '/proc/no/speeds'], '/proc/no', 1))


def refuses(words, sentence, code=2):
    codes, output, errors = run(words, ranks=1)
    right = codes == [code] and sentence in errors and 'terminate' not in errors
    return '' if right else f'{words}: {codes}: {output}{errors}'


def lost_output():
    """A table that can't be written is no success, and a closed output is not taken for the next file."""
    complaints = []
    for shell in ('"$@" > /dev/full', '"$@" >&-'):
        for words in (['plan', '--ranks', '2', '-n', '1', '-w', '0', '--units', '1'], ['--help']):
            child = subprocess.run(['sh', '-c', shell, 'sh', PROGRAM] + words, stderr=subprocess.PIPE, text=True,
                                   timeout=100, check=False)
            if child.returncode != 1 or 'standard output' not in child.stderr:
                complaints.append(f'{shell} {words}: {child.returncode}: {child.stderr}')
    return all_of(*complaints)


def bad_words():
    return all_of(*(refuses(words, sentence) for words, sentence in (
        ([], 'subcommand'),
        (['gahter'], 'there is no command "gahter"'),
        (['gather', '--colective'], '--colective'),
        (['gather', '-b'], '-b'),
        (['gather', '-b', '-3'], 'not a size'),
        (['gather', '-b', '8K', '-e', '4K'], '-e 4K is less than -b 8K'),
        (['gather', '-b', '0'], '-b 0 stays 0'),
        (['gather', '-i', '0'], '-i 0'),
        (['gather', '-b', '1', '-e', '1G', '-i', '1'], '10,000 sizes'),
        (['gather', '-f', '1'], '--factor'),
        (['gather', '-f', '2', '-i', '4K'], 'excludes'),
        (['gather', '-n', '0'], '--iterations'),
        (['gather', '-w', 'x'], '--warmups'),
        (['gather', '-c', '3'], '--check'),
        (['gather', '-d', 'f64'], '--dtype'),
        (['gather', '--layout', 'k:2'], '1 ranks can own'),
        (['gather', '--layout', 'zipf:x'], 'zipf'),
        (['gather', '--algorithm', 'fast'], "'fast'"),
        (['gather', '--algorithm', 'flat', '--compare', 'all'], 'excludes'),
        (['reduce', '--algorithm', 'fanout'], "'fanout'"),
        (['reduce', '-d', 'bf16', '--peers'], 'fp32'),
        (['gather', '--plant-fault', '-c', '0'], '--plant-fault'),
        (['idle'], 'at least 2 ranks'),
        (['step', '--shapes', '4x'], 'ROWSxCOLUMNS'),
        (['step', '--shapes', '4x4*0'], 'ROWSxCOLUMNS'),
        (['step', '--threads', '1,2'], '--local only'),
        (['step', '--backends', 'tiles'], '--local'),
        (['step', '--local', '--backends', 'fast'], '"fast"'),
        (['step', '--local', '--backends', 'openblas-quick'], 'openblas-quick'),
        (['step', '--local', '--shapes', '4x4x4'], 'ROWSxCOLUMNS'),
        (['step', '--local', '--threads', '0'], '--threads'),
        (['plan', '--shapes', '4x4*1000000', '--units', '2'], '1,000,000'),
        (['checkpoint', '-d', 'f16'], '--dtype'),
        (['plan', '--ranks', '0'], '--ranks'))),
        refuses(['checkpoint', '/no/such/folder', '--units', '1', '--shapes', '8'], '/no/such/folder', 1),
        refuses(['gather', '--json', '/no/such/folder/x'], 'No such file', 1))


CASES = {
    'every_collective_in_every_world_is_right': every_world,
    'every_algorithm_takes_its_turn': every_algorithm,
    'figures_follow_from_each_other': figures_follow_from_each_other,
    'a_layout_comes_from_a_file_or_its_line_is_named': files,
    'a_planted_fault_is_found_and_gives_status_1': planted_faults,
    'the_other_commands_measure': other_commands,
    'local_kernels_take_turns_and_agree': local_steps,
    'tune_measures_links_and_saves_speeds': tunes,
    'bad_words_are_refused_with_a_sentence_and_status_2': bad_words,
    'output_that_cannot_be_written_gives_status_1': lost_output,
}

print(f'1..{len(CASES)}')
for number, (name, body) in enumerate(CASES.items(), 1):
    complaint = body()
    print(f'{"not ok" if complaint else "ok"} {number} - {name}', flush=True)
    if complaint:
        print('# ' + complaint.replace('\n', '\n# '))
