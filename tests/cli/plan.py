# SPDX-License-Identifier: Apache-2.0
"""mxs plan: its words, its numbers, what it says of bad input. Argument: the program."""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../support'))
from tap_cases import case, run_cases  # noqa: E402

MXS, MODELS = sys.argv[1:]
FOLDER = tempfile.TemporaryDirectory()


def plan(*words, **options):
    return subprocess.run([MXS, 'plan', *words], capture_output=True, text=True, check=False, timeout=240,
                          stdin=subprocess.DEVNULL, **options)


def path_of(name):
    return os.path.join(FOLDER.name, name)


def write_list(name, tensors):
    with open(path_of(name), 'w', encoding='utf-8') as file:
        json.dump({'tensors': tensors}, file)
    return path_of(name)


def planned(*words):
    """The object of --json."""
    result = plan(*words, '--json')
    assert result.returncode == 0 and result.stdout.count('\n') == 1, result
    return json.loads(result.stdout)


def small_model():
    """Four layers of three matrices and a norm, an embedding; bf16."""
    tensors = [{'name': 'embed.weight', 'shape': [1024, 256], 'rule': 'adamw', 'unit': 0}]
    for layer in range(4):
        for part, shape in (('q', [256, 256]), ('up', [1024, 256]), ('down', [256, 1024]), ('norm', [256])):
            tensors.append({'name': f'layers.{layer}.{part}.weight', 'shape': shape, 'unit': layer + 1})
    return [dict(tensor, dtype='bf16') for tensor in tensors]


def demo_model():
    """The one that ./dev demo trains: perf/train/model.cpp at its defaults."""
    tensors = [('embedding.token', [256, 256], 0, 'adamw', None), ('embedding.position', [128, 256], 0, 'adamw', None)]
    for block in range(4):
        prefix, unit = f'block.{block}.', block + 1
        tensors += [(prefix + 'norm1', [256], unit, 'adamw', None),
                    (prefix + 'qkv', [768, 256], unit, 'muon', [256] * 3),
                    (prefix + 'projection', [256, 256], unit, 'muon', None),
                    (prefix + 'norm2', [256], unit, 'adamw', None), (prefix + 'up', [1024, 256], unit, 'muon', None),
                    (prefix + 'down', [256, 1024], unit, 'muon', None)]
    tensors += [('head.norm', [256], 5, 'adamw', None), ('head.weight', [256, 256], 5, 'adamw', None)]
    described = []
    for name, shape, unit, rule, blocks in tensors:
        described.append({'name': name, 'shape': shape, 'unit': unit, 'rule': rule, 'dtype': 'bf16'})
        if blocks:
            described[-1]['block_rows'] = blocks
        if rule == 'adamw' and len(shape) == 2:
            described[-1]['role'] = 'flat'
    return described


def bytes_text(count):
    if count < 1024:
        return f'{count} B'
    number, unit = count / 1024, 0
    while number >= 1023.5:
        number, unit = number / 1024, unit + 1
    return '%.4g %s' % (number, ['KiB', 'MiB', 'GiB', 'TiB'][unit])


@case
def bad_use_gives_2_and_says_what():
    world = ('--world', 'ranks:2')
    for words, wanted in [
            ((), 'PATH'), (('m.json',), '--world'), (('m.json', '--world'), '--world'),
            (('m.json', 'n.json'), 'm.json'),
            (('m.json', '--world', 'gpus:4'), 'gpus'), (('m.json', '--world', '/no/such.json'), '/no/such.json'),
            (('m.json', *world, '--wat', '1'), '--wat'), (('m.json', *world, '--replicas', '0'), '--replicas'),
            (('m.json', *world, '--replicas', '3'), '3'), (('m.json', *world, '--rule', 'soap'), '--matrix-rule takes'),
            (('m.json', *world, '--rule', 'x'), 'PATTERN=RULE'),
            (('m.json', *world, '--rule', '=muon'), 'PATTERN=RULE'), (('m.json', *world, '--rule', '*=sgd'), 'sgd'),
            (('m.json', *world, '--rule', '*=muon:-1'), 'group'), (('m.json', *world, '--matrix-rule', 'x'), 'muon'),
            (('m.json', *world, '--dtype', 'fp8'), 'bf16'), (('m.json', *world, '--budget', '40Gb'), '40GiB'),
            (('m.json', *world, '--budget', '-1'), '"-1"'), (('m.json', *world, '--budget', '1e30'), '1e30'),
            (('m.json', *world, '--flops', 'fast'), '150T'), (('m.json', *world, '--memory', 'nan'), 'nan'),
            (('m.json', *world, '--weights', 'step:0'), 'step:0'), (('m.json', *world, '--weights', 'x:1'), 'x:1'),
            (('m.json', *world, '--weights', 'step'), 'egress:N'), (('m.json', *world, '--slots', '0'), '--slots'),
            (('m.json', *world, '--compare', 'zero4'), 'zero4'), (('m.json', *world, '--save', ''), '--save'),
            (('m.json', *world, '--compare', 'all', '--tokens', '0'), '--tokens'),
            (('m.json', *world, '--compare', 'all', '--active', '37X'), '37B'),
            (('m.json', *world, '--compare', 'all', '--train-flops', '0'), '--train-flops'),
            (('m.json', *world, '--tokens', '8'), '--compare'),
            (('m.json', *world, '--co-owners', 'many'), 'many'), (('m.json', *world, '--json=1'), '--json')]:
        result = plan(*words)
        assert result.returncode == 2 and wanted in result.stderr and result.stdout == '', (words, result)


@case
def a_missing_file_gives_1_and_a_sentence():
    result = plan('/no/such/model', '--world', 'ranks:2')
    assert result.returncode == 1 and result.stderr.startswith('mxs plan: ') and result.stdout == '', result


@case
def a_pattern_that_matches_nothing_is_named():
    result = plan(write_list('m.json', small_model()), '--world', 'ranks:2', '--rule', '*.experts.*=muon')
    assert result.returncode == 1 and '*.experts.*' in result.stderr and result.stdout == '', result


@case
def rules_reach_their_tensors():
    model = write_list('m.json', small_model())
    told = planned(model, '--world', 'ranks:2', '--tensors', '--rule', '*.up.*=adamw:3', '--rule', '*.q.*=frozen',
                   '--matrix-rule', 'soap')
    rules = {tensor['name']: tensor['rule'] for tensor in told['tensors']}
    assert rules['layers.2.up.weight'] == 'adamw' and rules['layers.0.q.weight'] == 'frozen', rules
    assert rules['layers.3.down.weight'] == 'soap' and rules['embed.weight'] == 'adamw', rules
    assert any('4 tensors' in warning and 'adamw' in warning for warning in told['warnings']), told['warnings']
    assert not any('soap' in warning for warning in told['warnings']), told['warnings']
    lines = plan(model, '--world', 'ranks:2', '--tensors').stdout.splitlines()
    for tensor in told['tensors']:
        assert sum(line.startswith(tensor['name'] + ' ') for line in lines) == 1, tensor


@case
def the_numbers_add_up():
    worlds = ('ranks:1', 1, 1), ('ranks:3', 3, 1), ('nodes:2 ranks:4', 8, 2), ('nodes:4 ranks:1', 4, 4)
    for world, ranks, nodes in worlds:
        told = planned(write_list('m.json', small_model()), '--world', world, '--tensors', '--gradient-dtype', 'bf16')
        assert told['topology'] == {'words': world, 'ranks': ranks, 'nodes': nodes, 'replicas': 1}, told['topology']
        whole = 2 * told['model']['parameters']
        assert told['model']['parameters'] == 1024 * 256 + 4 * (256 * 256 + 2 * 1024 * 256 + 256), told['model']
        assert sum(rank['weights'] for rank in told['ranks']) == whole, told['ranks']
        for rank in told['ranks']:
            rest = sum(rank[name] for name in ('weights', 'masters', 'gradients', 'state', 'slack'))
            assert rest == rank['rest'], rank
            assert rest + rank['slots'] + rank['gradient_slots'] + rank['workspace'] == rank['peak'], rank
            assert rank['owned_bytes'] == rest - rank['slack'], rank
        for unit in told['units']:
            owned = [size for _, size in unit['owned']]
            assert sum(owned) == unit['weight_bytes'] and len(owned) == unit['owner_count'], unit
            assert max(owned) == unit['rank_bytes_max'] >= unit['rank_bytes_bound'], unit
            assert unit['network_bytes'] == (nodes - 1) * unit['weight_bytes'], unit
        # Forward, backward, gradients; between nodes of several ranks fp32 sums instead of bf16 gradients.
        sums = 2 if ranks > nodes else 1
        assert told['wire']['network_bytes'] == (nodes - 1) * whole * (2 + sums), told['wire']
        assert told['wire']['local_bytes'] == (ranks - nodes) * whole * 3, told['wire']
        assert told['wire']['matrix_step_bytes'] == 0 and told['compare'] == [], told['wire']
        assert told['objectives']['bytes']['worst'] == max(rank['owned_bytes'] for rank in told['ranks']), told
        for objective in told['objectives'].values():
            assert objective['worst'] >= objective['bound'], told['objectives']


@case
def the_table_shows_the_same_numbers():
    words = (write_list('m.json', small_model()), '--world', 'nodes:2 ranks:2', '--compare', 'all')
    told, table = planned(*words), plan(*words).stdout
    worst = max(told['ranks'], key=lambda rank: rank['peak'])
    row = next(line for line in table.splitlines() if line.startswith('worst: rank'))
    for name in ('weights', 'masters', 'gradients', 'state', 'slots', 'gradient_slots', 'workspace', 'rest', 'peak'):
        assert bytes_text(worst[name]) in row, (name, worst, row)
    for objective in ('bytes', 'egress', 'nic'):
        assert bytes_text(told['objectives'][objective]['worst']) in table, (objective, table)
    assert bytes_text(told['wire']['network_bytes']) in table and told['fingerprint'] in table, table
    for placement in told['compare']:
        row = next(line for line in table.splitlines() if line.startswith(placement['placement'] + ' '))
        for size in (placement['rest_bytes'], placement['peak_bytes'], placement['step_bytes'] // 4):
            assert bytes_text(size) in row, (placement, row)
    assert told['verdict'] in ' '.join(table.split()), table


@case
def other_placements_are_as_the_demo_counts_them():
    """4 ranks; README.md has the demo's table: MiB at rest, MiB of peak, and bytes of matrices in the optimizer's step.

    Those are the worst rank's there and all ranks' here: alltoall's mean is 2,359,296, zero1's 4,721,664.
    """
    words = (write_list('demo.json', demo_model()), '--world', 'ranks:4', '--compare', 'all')
    told = {row['placement']: row for row in planned(*words)['compare']}
    assert list(told) == ['owner', 'slices', 'alltoall', 'zero1', 'ddp'], told
    assert [told[name]['step_bytes'] // 4 for name in ('owner', 'slices', 'alltoall', 'ddp')] == \
        [0, 4_718_592, 2_359_296, 0], told
    # The demo counts the blocks' units alone; here are the embeddings, the head and its norm, too.
    assert told['zero1']['step_bytes'] // 4 == 4_721_664 + 3 * 2 * (640 * 256 + 256) // 4, told
    for name, mib in (('owner', 11.62), ('slices', 11.23), ('alltoall', 11.23)):
        assert abs(told[name]['rest_bytes'] / 2**20 - mib) < 0.02, (name, told[name])
    assert abs(told['owner']['peak_bytes'] / 2**20 - 20.64) < 0.01, told['owner']
    # Gradients are whole in gradient_dtype; the demo has sums in fp32.
    wide = {row['placement']: row for row in planned(*words, '--gradient-dtype', 'f32')['compare']}
    assert abs(wide['ddp']['rest_bytes'] / 2**20 - 44.87) < 0.05, wide['ddp']
    # Every rank does the products of all matrices, one instead of a quarter of them.
    assert 3.9 < told['slices']['step_ns'] / told['owner']['step_ns'] < 4.1, told
    assert told['ddp']['step_ns'] >= told['slices']['step_ns'] > told['alltoall']['step_ns'], told


@case
def a_stack_in_slices_stays_whole():
    stack = [{'name': 'experts', 'shape': [8, 256, 256], 'dtype': 'bf16', 'unit': 0}]
    told = {row['placement']: row for row in planned(write_list('stack.json', stack), '--world', 'ranks:4', '--compare',
                                                     'slices,alltoall')['compare']}
    assert told['slices']['step_bytes'] == 0 and told['alltoall']['step_bytes'] == 0, told
    assert told['slices']['step_ns'] == told['owner']['step_ns'], told


@case
def a_budget_that_nobody_can_meet_tells_the_smallest_that_works():
    model = write_list('m.json', small_model())
    result = plan(model, '--world', 'ranks:2', '--budget', '1MiB')
    assert result.returncode == 1 and result.stdout == '' and '--budget: ' in result.stderr, result
    smallest = max(int(number.replace(',', '')) for number in re.findall(r'[0-9][0-9,]{5,}', result.stderr))
    told = planned(model, '--world', 'ranks:2', '--budget', str(smallest))
    assert told['budget_bytes'] == smallest, told
    assert max(rank['owned_bytes'] for rank in told['ranks']) <= smallest, (smallest, told['ranks'])
    result = plan(model, '--world', 'ranks:2', '--budget', str(smallest - 1))
    assert result.returncode == 1, (smallest, result.stdout)


@case
def a_peak_above_the_budget_is_what_is_wrong():
    verdict = planned(write_list('m.json', small_model()), '--world', 'ranks:2', '--budget', '24MiB')['verdict']
    assert 'peak' in verdict and 'budget' in verdict, verdict


@case
def idle_ranks_are_what_is_wrong():
    verdict = planned(write_list('m.json', small_model()), '--world', 'ranks:16')['verdict']
    assert '4 of 16 ranks own no matrix' in verdict and '--co-owners' in verdict, verdict
    # What has been done is not advised: blocks are not shared.
    fused = [{'name': 'qkv', 'shape': [1536, 512], 'block_rows': [512] * 3}]
    told = planned(write_list('fused.json', fused), '--world', 'ranks:4', '--co-owners', '4')['verdict']
    assert '1 of 4 ranks owns no matrix' in told and '--co-owners' not in told and '--replicas' in told, told


@case
def a_shard_group_is_a_part_of_the_world():
    model = write_list('m.json', small_model())
    told = planned(model, '--world', 'nodes:4 ranks:2', '--replicas', '2')
    assert told['topology'] == {'words': 'nodes:4 ranks:2', 'ranks': 4, 'nodes': 2, 'replicas': 2}, told['topology']
    assert any('replicas' in note for note in told['notes']), told['notes']
    alone = planned(model, '--world', 'nodes:2 ranks:2')
    assert [rank['rest'] for rank in told['ranks']] == [rank['rest'] for rank in alone['ranks']]
    assert told['ranks'][0]['gradient_slots'] > alone['ranks'][0]['gradient_slots'], told['ranks'][0]


@case
def a_plan_is_saved_as_json():
    model, saved = write_list('m.json', small_model()), path_of('plan.json')
    told = planned(model, '--world', 'ranks:4', '--save', saved)
    with open(saved, encoding='utf-8') as file:
        assert told['fingerprint'] in file.read()
    with open(saved, encoding='utf-8') as file:
        json.load(file)
    for words, wanted in [(('--previous', '/no/such/plan'), '/no/such/plan'), (('--previous', model), model),
                          (('--save', '/no/such/folder/plan'), '/no/such/folder/plan'), (('--html', '/no/p'), '/no/p')]:
        result = plan(model, '--world', 'ranks:4', *words)
        assert result.returncode == 1 and wanted in result.stderr and result.stdout == '', (words, result)


@case
def rates_that_are_shown_are_those_that_were_planned_with():
    """The program knows the planner's defaults by heart: the saved plan has them from the planner itself."""
    model, saved = write_list('m.json', small_model()), path_of('rates.json')
    for words, flops, memory in [((), None, None), (('--flops', '3T', '--memory', '2G'), 3 * 10**12, 2 * 10**9)]:
        rates = planned(model, '--world', 'ranks:2', '--save', saved, *words)['rates']
        with open(saved, encoding='utf-8') as file:
            options = json.load(file)['options']
        assert all(options[name] == rate for name, rate in rates.items()), (rates, options)
        assert flops is None or list(rates.values()) == [flops, memory], rates


@case
def a_saved_plan_is_no_model_and_says_where_it_belongs():
    model, saved = write_list('m.json', small_model()), path_of('kept.json')
    planned(model, '--world', 'ranks:4', '--save', saved)
    result = plan(saved, '--world', 'ranks:4')
    assert result.returncode == 1 and 'it is a plan' in result.stderr and '--previous' in result.stderr, result


@case
def guessed_speeds_of_the_network_are_told():
    model = write_list('m.json', small_model())
    told = [note for note in planned(model, '--world', 'nodes:2 ranks:2')['notes'] if 'nic:' in note]
    assert told == ['--world has no nic:, so gathers are timed by a guess: 1 NIC a node, 1.25 GB/s each'], told
    words = ('--world', 'nodes:2 ranks:2 nic:25', '--compare', 'all')
    told = [note for note in planned(model, *words)['notes'] if 'local:' in note]
    assert told == ['--world has no local:, so times inside nodes go by a guess: 5 GB/s between two ranks'], told
    for world in ('nodes:2 ranks:2 local:50', 'nodes:4 ranks:1'):
        notes = planned(model, '--world', world, '--compare', 'all')['notes']
        assert not any('local:' in note for note in notes), (world, notes)
    for world in ('nodes:2 ranks:2 nic:25', 'ranks:4'):
        assert not any('nic:' in note for note in planned(model, '--world', world)['notes']), world


@case
def a_world_that_is_neither_words_nor_a_file_is_refused_as_such():
    for world in ('4', 'no such file.json'):
        result = plan(write_list('m.json', small_model()), '--world', world)
        assert result.returncode == 2 and f'"{world}" is no file, nor words such as' in result.stderr, result
        assert result.stderr.endswith('mxs plan --help says more\n'), result


@case
def the_page_has_the_same_object():
    page = path_of('page.html')
    result = plan(write_list('m.json', small_model()), '--world', 'ranks:4', '--html', page, '--json')
    with open(page, encoding='utf-8') as file:
        text = file.read()
    inside = text.split('<script type="application/json" id="plan">', 1)[1].split('</script>', 1)[0]
    assert result.returncode == 0 and json.loads(inside) == json.loads(result.stdout), result


@case
def odd_names_stay_in_their_places():
    names = ['a\nb', 'quote " and \\', 'tab\t', '\u00e9\u6f22', '</script>', 'x' * 300]
    tensors = [{'name': name, 'shape': [64, 64]} for name in names]
    model = write_list('odd.json', tensors)
    told = planned(model, '--world', 'ranks:2', '--tensors')
    assert [tensor['name'] for tensor in told['tensors']] == names, told['tensors']
    lines = plan(model, '--world', 'ranks:2', '--tensors').stdout.splitlines()
    assert not any(set(line) & {'\t', '\r', '\x1b'} for line in lines) and any('a?b' in line for line in lines), lines


@case
def a_terminal_obeys_no_name():
    """Control letters (U+009B is ESC and [), ends of lines, what turns letters around: in tables and in refusals."""
    forbidden = [chr(code) for code in [*range(32), *range(127, 160), *range(0x2028, 0x202f)] if code != 10]
    names = ['w\x1b[2J', '\u009b2J', 'a\u0085b\u2028c', '\u202etfel', '\u6f22' * 100 + '.3.w', 'x' + '\u6f22' * 100]
    for name in names:
        model = write_list('names.json', [{'name': name, 'shape': [2048, 2048], 'unit': name}])
        shown = plan(model, '--world', 'ranks:4', '--tensors')
        assert shown.returncode == 0 and not any(letter in shown.stdout for letter in forbidden), (name, shown.stdout)
        for words in (('--budget', '1KiB'), ('--rule', name + 'y=muon')):
            refused = plan(model, '--world', 'ranks:4', *words)
            assert refused.returncode == 1 and refused.stderr.count('\n') == 1, refused
            assert not any(letter in refused.stderr for letter in forbidden), (name, refused.stderr)


@case
def models_of_the_world_fit_a_screen():
    for name in sorted(os.listdir(MODELS)):
        if not name.endswith('.json'):
            continue
        result = plan(os.path.join(MODELS, name), '--world', 'nodes:8 ranks:8 nic:25 local:200 latency:10', '--compare',
                      'all')
        lines = result.stdout.splitlines()
        assert result.returncode == 0 and result.stderr == '', (name, result.stderr)
        assert max(map(len, lines)) <= 120 and len(lines) <= 60, (name, len(lines), max(lines, key=len))


# ---- times and advice ----

def equal_matrices(units, names, side, dtype='bf16'):
    return [{'name': f'layers.{unit}.{name}', 'shape': [side, side], 'unit': unit, 'dtype': dtype}
            for unit in range(units) for name in names]


def compared(*words):
    told = planned(*words, '--compare', 'all')
    return {row['placement']: row for row in told['compare']}, told


def near(value, wanted, share):
    return abs(value - wanted) <= share * wanted


@case
def times_of_a_tiny_model_are_as_by_hand():
    """Two ranks at 0.1 GB/s, two units of two matrices of 0.5 MiB: each rank owns one of each."""
    model = write_list('tiny.json', equal_matrices(2, ('a', 'b'), 512))
    words = ('--world', 'nodes:2 ranks:1 nic:0.1 latency:0.01 overhead:0.01', '--flops', '1T', '--memory', '1T')
    matrix = 512 * 512 * 2 / 1e8 * 1e9  # nanoseconds on the wire
    for tokens in (1, 1000, 5000, 10 ** 6):
        rows, told = compared(model, *words, '--tokens', str(tokens), '--train-flops', '2T')
        assert told['training'] == {'tokens': tokens, 'active_parameters': 2 ** 20,
                                    'flops_per_second': 2 * 10 ** 12}, told
        forward = 2 * 2 ** 19 * tokens / 2e12 * 1e9
        backward = 2 * forward
        for name, gather, reduce in (('owner', matrix, matrix), ('slices', matrix, matrix),
                                     ('alltoall', matrix, matrix), ('zero1', 0, matrix), ('ddp', 0, 2 * matrix)):
            row = rows[name]
            assert near(row['gather_ns'], 4 * gather, 0.02) and near(row['reduce_ns'], 2 * reduce, 0.02), (name, row)
            whole = (gather + 2 * max(forward, gather) + max(backward, gather) + max(backward, reduce) + reduce)
            assert near(row['forward_backward_ns'], whole, 0.02), (name, tokens, row, whole)
            assert abs(row['forward_backward_ns'] + row['optimizer_ns'] - row['whole_step_ns']) <= 1, row
        # Of four matrices each rank lacks one half (slices) or gives half of two away and gets them back (alltoall).
        for name, wire in (('owner', 0), ('slices', 2 * matrix), ('alltoall', 2 * matrix), ('zero1', 2 * matrix),
                           ('ddp', 0)):
            row, compute = rows[name], rows[name]['step_ns']
            assert near(row['optimizer_wire_ns'], wire, 0.02), (name, row)
            wire = row['optimizer_wire_ns']
            together = max(compute + wire / 2, wire + compute / 2) if name == 'alltoall' else compute + wire
            assert abs(row['optimizer_ns'] - together) <= 1, (name, row)


def simulated_us(world, kind, owned, add):
    path = path_of('layout')
    with open(path, 'w', encoding='ascii') as file:
        file.writelines(f'{rank} {size}\n' for rank, size in owned)
    result = subprocess.run([MXS, 'simulate', '--topology', world, '--layout', path, '--kind', kind, '--add', str(add),
                             '--dtype', 'bf16', '--json'], capture_output=True, text=True, check=True, timeout=60)
    return next(row['time_us'] for row in map(json.loads, result.stdout.splitlines()) if row['chosen'])


@case
def times_are_those_of_the_simulator():
    world = 'nodes:2 ranks:4 nic:1 local:20 latency:10'
    rows, told = compared(write_list('m.json', small_model()), '--world', world, '--memory', '30G')
    for key, kind, times in (('gather_ns', 'gather', 2), ('reduce_ns', 'reduce', 1)):
        wanted = times * sum(simulated_us(world, kind, unit['owned'], 10) for unit in told['units'])
        # Units that are alike but for who owns them are simulated once.
        assert near(rows['owner'][key], 1000 * wanted, 0.1), (key, rows['owner'], wanted)


@case
def large_worlds_are_timed_level_by_level():
    """Beside the simulation of all 64 ranks."""
    matrices = [{'name': f'layers.0.{name}', 'shape': [2048, 2304], 'unit': 0, 'dtype': 'bf16'} for name in 'abcdefg']
    world = 'nodes:8 ranks:8 nic:50 local:450 latency:10 overhead:1 local-latency:2'
    rows, told = compared(write_list('seven.json', matrices), '--world', world)
    owned = told['units'][0]['owned']
    assert len(owned) == 7, owned
    for key, kind, times in (('gather_ns', 'gather', 2), ('reduce_ns', 'reduce', 1)):
        wanted = 1000 * times * simulated_us(world, kind, owned, 500)
        assert near(rows['owner'][key], wanted, 0.25), (key, rows['owner'][key], wanted)


@case
def a_thousand_ranks_are_compared():
    for world in ('nodes:128 ranks:8 nic:50 local:450', 'nodes:1024 ranks:1 nic:50'):
        rows, _ = compared(os.path.join(MODELS, 'llama-3-70b.json'), '--world', world, '--tokens', '4096')
        assert all(row['whole_step_ns'] > 0 for row in rows.values()), rows


@case
def more_tokens_gain_less_and_slower_networks_more():
    model = write_list('even.json', equal_matrices(8, 'qkvo', 512))

    def gain(nic, tokens):
        rows, _ = compared(model, '--world', f'nodes:4 ranks:1 nic:{nic} latency:10', '--flops', '1T', '--tokens',
                           str(tokens))
        return (rows['slices']['whole_step_ns'] / rows['owner']['whole_step_ns'],
                rows['slices']['optimizer_ns'] / rows['owner']['optimizer_ns'])
    by_tokens = [gain(1, tokens)[0] for tokens in (64, 1024, 8192, 65536)]
    assert by_tokens == sorted(by_tokens, reverse=True) and by_tokens[-1] < 1.1 < 1.5 < by_tokens[0], by_tokens
    by_network = [gain(nic, 64)[1] for nic in (10, 1, 0.1)]
    assert by_network == sorted(by_network) and by_network[0] < by_network[-1] / 1.5, by_network


@case
def tokens_pass_active_parameters_only():
    model = write_list('even.json', equal_matrices(8, 'qkvo', 512))
    words = ('--world', 'ranks:2 local:100', '--tokens', '100000', '--train-flops', '1T')
    whole, part = compared(model, *words)[0]['ddp'], compared(model, *words, '--active', '4194304')[0]['ddp']
    assert near(part['forward_backward_ns'], whole['forward_backward_ns'] / 2, 0.01), (part, whole)


@case
def advice_says_which_and_where_it_loses():
    even = write_list('even.json', equal_matrices(8, 'qkvo', 512))
    one = write_list('one.json', equal_matrices(1, 'a', 2048))
    slow = ('--world', 'nodes:4 ranks:1 nic:1 latency:10', '--tokens', '256')
    llama = os.path.join(MODELS, 'llama-3-8b.json')
    for words, begin, *wanted in [
            ((even, *slow), 'Take owner: a step at 256 tokens takes ', 'zero1, which gathers nothing', 'if a rank has'),
            ((even, *slow, '--budget', '4GB'), 'Take zero1: '),
            ((even, *slow, '--flops', '1T'), 'owner and alltoall tie: ', 'products of other matrices hide the rest',
             'the optimizer is 45% of',
             "owner saves less than 5% of alltoall's step from about 1,900 tokens a rank on"),
            ((even, *slow[:2], '--flops', '1T', '--tokens', '100000'),
             'owner and alltoall tie: a step at 100,000 tokens'),
            ((even, '--world', 'ranks:4 local:50'), 'Take owner: the optimizer',
             "on one node alltoall's exchange takes"),
            ((one, *slow), 'Take slices: ', '3 of 4 ranks own no matrix', '4.00 times the mean, with alltoall as well',
             '--co-owners may help', 'at any number of tokens'),
            ((llama, '--world', 'nodes:4 ranks:8 nic:10 local:450', '--tokens', '512'), 'Take alltoall: ',
             "owner's uneven gathers and reduces cost"),
            ((even, '--world', 'ranks:1'), 'One rank has everything')]:
        _, told = compared(*words)
        advice = told['advice']
        assert advice.startswith(begin) and advice.count('. ') <= 1, (words, advice)
        assert all(text.lower() in advice.lower() for text in wanted), (words, advice, wanted)
        if '--budget' not in words:
            table = ' '.join(plan(*words, '--compare', 'all').stdout.split())
            assert 'advice: ' + advice in table, (words, table)
    assert 'advice' not in planned(even, *slow[:2])


@case
def advice_has_the_figures_of_the_table():
    rows, told = compared(write_list('even.json', equal_matrices(8, 'qkvo', 512)), '--world', 'nodes:4 ranks:1 nic:1',
                          '--tokens', '256')
    for name in ('owner', 'slices', 'alltoall'):
        assert f'{rows[name]["whole_step_ns"] / 1e6:.4g} ms with {name}' in told['advice'], (rows[name], told['advice'])


@case
def advice_takes_what_the_table_has_as_the_least():
    """Over models and worlds where each of them is once."""
    even, one = equal_matrices(8, 'qkvo', 512), equal_matrices(1, 'a', 2048)
    tall = [{'name': f'layers.{n}.a', 'shape': [64, 8192], 'unit': n, 'dtype': 'bf16'} for n in range(6)]
    taken = set()
    for name, model in (('even', even), ('one', one), ('tall', tall), ('small', small_model())):
        for world in ('ranks:4 local:50', 'nodes:4 ranks:1 nic:1 latency:10', 'nodes:2 ranks:8 nic:10 local:100'):
            for tokens in ('', '1', '300', '100000'):
                rows, told = compared(write_list(f'{name}.json', model), '--world', world, '--flops', '10T',
                                      *(['--tokens', tokens] if tokens else []))
                advice = told['advice']
                times = {key: rows[key]['whole_step_ns' if tokens else 'optimizer_ns']
                         for key in ('owner', 'slices', 'alltoall')}
                first = re.match(r'Take (\w+): |(owner) and alltoall tie', advice)
                assert first and 'nan' not in advice, (name, world, tokens, advice)
                chosen = first[1] or first[2]
                taken.add(first[1] or 'tie')
                least = min(times.values())
                assert times[chosen] == least or chosen == 'owner' and times[chosen] <= 1.05 * least, (times, advice)
    assert {'owner', 'slices', 'tie'} <= taken, taken


@case
def advice_without_a_torn_matrix_is_about_the_rest():
    stack = {'name': 'layers.0.experts.w', 'shape': [8, 512, 512], 'dtype': 'bf16'}
    for tensors in (*([{'name': 'a', 'shape': [512, 512], 'rule': rule}] for rule in ('adamw', 'frozen', 'external')),
                    [{'name': 'a', 'shape': [0]}], [stack]):
        for tokens in ((), ('--tokens', '4096')):
            _, told = compared(write_list('none.json', tensors), '--world', 'nodes:2 ranks:2 nic:1 local:9', *tokens)
            advice = told['advice']
            assert advice.startswith('No matrix that is stepped would be cut') and 'nan' not in advice, advice
            assert 'exchange' not in advice and ('A step at' in advice) == bool(tokens), advice
    stack_path = write_list('stack.json', [stack])
    note = '--active tells how many parameters'
    for words, wanted in ((('--tokens', '9'), True), ((), False), (('--tokens', '9', '--active', '1M'), False)):
        _, told = compared(stack_path, '--world', 'ranks:2 local:9', *words)
        assert any(note in each for each in told['notes']) == wanted, told['notes']


@case
def advice_beside_full_weights_alone_has_their_time():
    model, world = write_list('even.json', equal_matrices(8, 'qkvo', 512)), ('--world', 'ranks:4 local:50')
    advice = planned(model, *world, '--compare', 'zero1')['advice']
    assert advice.startswith('Take owner: ') and ' with zero1' in advice, advice


@case
def figures_that_no_model_has_are_told():
    model, world = write_list('even.json', equal_matrices(8, 'qkvo', 512)), ('--world', 'ranks:4 local:50')
    for words, status, sentence in (
            (('--tokens', '1e30'), 2, '--tokens "1e30" is no count from 1 to 2147483647'),
            (('--tokens', '99999999999'), 2, 'to 2147483647'), (('--tokens', '-1'), 2, 'from 1 to'),
            (('--tokens', 'nan'), 2, 'from 1 to'), (('--active', 'nan'), 2, 'is no number of parameters'),
            (('--active', '9M'), 1, "a token can't pass 9,000,000 parameters of a model of 8,388,608")):
        result = plan(model, *world, '--compare', 'all', *words)
        assert result.returncode == status and sentence in result.stderr, (words, result)
    result = plan(model, *world, '--compare', 'all', '--tokens', '2147483647', '--train-flops', '1')
    assert result.returncode == 0 and 'takes more than 285 years with owner' in ' '.join(result.stdout.split()), result


@case
def the_steps_of_a_32b_model_in_the_docs_are_what_it_predicts():
    with open(os.path.join(MODELS, '../../../docs/planning.md'), encoding='utf-8') as file:
        section = file.read().split('**Its optimizer step**', 1)[1]
    command = section.split('mxs plan tests/data/models/qwen3-32b.json ', 1)[1].split('\n', 1)[0]
    table = [[cell.strip() for cell in line.split('|')[1:-1]] for line in section.splitlines() if line.startswith('|')]
    for gpus, *shown in table[2:4]:
        words = shlex.split(command.replace('nodes:8', f'nodes:{int(gpus) // 8}'))
        rows = {row['placement']: row for row in planned(os.path.join(MODELS, 'qwen3-32b.json'), *words)['compare']}
        times = [rows[name]['optimizer_ns'] / 1e6 for name in ('owner', 'alltoall', 'slices')]
        told = [float(number.replace(',', '')) for number in shown]
        for value, wanted in zip((*times, times[2] / times[0]), told):
            assert near(value, wanted, 0.01), (gpus, times, shown)


@case
def nothing_and_next_to_nothing_can_be_planned():
    for tensors in ([{'name': 'scalar', 'shape': []}], [{'name': 'empty', 'shape': [0, 8]}],
                    [{'name': 'w', 'shape': [8, 8], 'rule': 'frozen'}]):
        model = write_list('little.json', tensors)
        for world in ('ranks:1', 'nodes:2 ranks:2'):
            table = plan(model, '--world', world, '--compare', 'all', '--tensors')
            assert table.returncode == 0, (tensors, table)
            told = planned(model, '--world', world, '--compare', 'all')
            assert len(told['compare']) == 5 and told['verdict'], told


@case
def output_that_cannot_be_written_is_a_failure():
    with open('/dev/full', 'w', encoding='ascii') as full:
        result = subprocess.run([MXS, 'plan', write_list('m.json', small_model()), '--world', 'ranks:2'], stdout=full,
                                stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert result.returncode == 1 and 'standard output' in result.stderr, result


run_cases()
