# SPDX-License-Identifier: Apache-2.0
"""mxs checkpoint: show, verify, diff, reshard. Arguments: the program, make_checkpoint."""
import json
import math
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

# In place of this folder, whose inspect.py is not Python's.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:1] = [os.path.join(HERE, '../docs'), os.path.join(HERE, '../support')]

import claimed
from tap_cases import Skipped, case, run_cases

MXS, MAKE = map(os.path.abspath, sys.argv[1:])
FOLDER = tempfile.TemporaryDirectory()
BYTES = {'F64': 8, 'F32': 4, 'BF16': 2, 'F16': 2, 'I64': 8, 'BOOL': 1, 'F8_E4M3': 1}
# Control letters (U+009B is ESC and [), ends of lines, what turns letters around.
FORBIDDEN = [chr(code) for code in [*range(32), *range(127, 160), *range(0x2028, 0x202f)] if code != 10]


def run(*words, **options):
    options.setdefault('timeout', 60)
    return subprocess.run([MXS, 'checkpoint', *words], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, **options)


def told(*words, status=0):
    """The object of --json."""
    result = run(*words, '--json')
    assert result.returncode == status and result.stdout.count('\n') == 1, result
    return json.loads(result.stdout)


def fresh(name):
    path = os.path.join(FOLDER.name, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def write_model(path, arrays, header=None):
    """arrays: name -> (dtype, shape, bytes)."""
    offset, entries = 0, {}
    for name, (dtype, shape, data) in arrays.items():
        entries[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(entries if header is None else header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text + b''.join(data for _, _, data in arrays.values()))
    return path


def floats(*values):
    return struct.pack(f'<{len(values)}f', *values)


def bf16(*values):
    return b''.join(struct.pack('<f', value)[2:] for value in values)


def f16(*values):
    return struct.pack(f'<{len(values)}e', *values)


def small_arrays():
    return {'embed.weight': ('BF16', [4, 3], bf16(*range(12))), 'layer.weight': ('F32', [2, 2], floats(1, 2, 3, 4)),
            'layer.half': ('F16', [3], f16(0.5, -2, 65504)), 'counter': ('I64', [], struct.pack('<q', 7)),
            'empty': ('F32', [0, 5], b'')}


def small_model(name, **changed):
    return write_model(os.path.join(fresh(name), 'model.safetensors'), {**small_arrays(), **changed})


def save(path, step, ranks, *words):
    result = subprocess.run([MXS, 'run', '-n', str(ranks), '--', MAKE, path, str(step), f'ranks:{ranks}', *words],
                            capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)
    assert result.returncode == 0, result
    return os.path.join(path, f'step-{0 if "no-optimizer" in words else step:08}')  # it is the optimizer that counts


def files_of(path):
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(folder, name), 'rb') as file:
                found[os.path.relpath(os.path.join(folder, name), path)] = file.read()
    return found


def one_sentence(result, status, *wanted):
    """Refused in one line on stderr that names what it is about; nothing on stdout."""
    assert result.returncode == status and result.stdout == '' and result.stderr.count('\n') == 1, result
    assert all(word in result.stderr for word in wanted), (wanted, result.stderr)
    assert not any(letter in result.stderr for letter in FORBIDDEN), result.stderr


@case
def bad_use_gives_2_and_says_what():
    world = ('--world', 'ranks:2')
    for words, wanted in [
            ((), 'missing: show, verify, reshard or diff'),
            (('list',), '"list" is not show, verify, reshard or diff'),
            (('show',), 'PATH'), (('show', 'a', 'b'), '"b"'), (('show', 'a', '--wat'), '--wat'),
            (('show', ''), 'empty'), (('verify',), 'PATH'), (('verify', 'a', '--json=1'), '--json=1'),
            (('diff',), 'A is missing'), (('diff', 'a'), 'B is missing'), (('diff', 'a', 'b', 'c'), '"c"'),
            (('reshard',), 'SOURCE'), (('reshard', 'a', *world), 'TARGET'), (('reshard', 'a', 'b'), '--world'),
            (('reshard', 'a', 'b', 'c', *world), '"c"'), (('reshard', 'a', 'b', '--world', 'gpus:4'), 'gpus'),
            (('reshard', 'a', 'b', '--world', '/no/such'), '/no/such'),
            (('reshard', 'a', 'b', *world, '--keep', '0'), '--keep'),
            (('reshard', 'a', 'b', *world, '--budget', 'x'), '"x"'),
            (('reshard', 'a', 'b', *world, '--flops', 'x'), '"x"'), (('reshard', 'a', 'b', *world, '--wat'), '--wat')]:
        result = run(*words)
        assert result.returncode == 2 and wanted in result.stderr and result.stdout == '', (words, result)
        assert result.stderr.endswith('--help says more\n'), result


@case
def help_is_there_for_all_and_for_each():
    everything = run('--help')
    assert everything.returncode == 0 and everything.stderr == '', everything
    for name in ('show', 'verify', 'reshard', 'diff'):
        result = run(name, '--help')
        assert result.returncode == 0 and result.stdout.startswith(f'mxs checkpoint {name} '), result
        assert result.stdout in everything.stdout + '\n', (result.stdout, everything.stdout)
        assert max(map(len, result.stdout.splitlines())) <= 120, result.stdout


@case
def a_model_of_others_is_shown():
    model = small_model('others')
    for path in (model, os.path.dirname(model)):
        shown = told('show', path)
        assert not shown['manifest'] and shown['ranks'] == 0 and shown['version'] == '', shown
        assert shown['bytes'] == 24 + 16 + 6 + 8 and shown['groups'] == [] and shown['rules'] == [], shown
        assert [file['name'] for file in shown['files']] == ['model.safetensors'], shown
        arrays = {array['name']: array for array in shown['arrays']}
        assert arrays['embed.weight']['dtype'] == 'BF16' and arrays['embed.weight']['shape'] == [4, 3], arrays
        assert set(arrays) == set(small_arrays()), arrays
        text = run('show', path)
        assert text.returncode == 0 and 'without a manifest' in text.stdout, text
        for name, (dtype, shape, _) in small_arrays().items():
            line = next(line for line in text.stdout.splitlines() if line.startswith(name + ' '))
            assert dtype in line and '(' + ', '.join(map(str, shape)) + ')' in line, (name, line)


@case
def an_index_leads_to_its_files():
    folder = fresh('index')
    arrays = small_arrays()
    names = sorted(arrays)
    for number, part in enumerate((names[:2], names[2:]), 1):
        write_model(os.path.join(folder, f'model-0000{number}-of-00002.safetensors'), {n: arrays[n] for n in part})
    index = os.path.join(folder, 'model.safetensors.index.json')
    with open(index, 'w', encoding='utf-8') as file:
        json.dump({'weight_map': {name: f'model-0000{1 if name in names[:2] else 2}-of-00002.safetensors'
                                  for name in names}}, file)
    shown = told('show', folder)
    assert [file['arrays'] for file in shown['files']] == [2, 3], shown
    whole = small_model('whole')
    assert run('diff', folder, whole).returncode == 0 and run('diff', index, whole).returncode == 0
    assert run('verify', folder).stdout.endswith('5 arrays, 54 bytes, 0 faults (no manifest: headers only)\n')
    os.remove(os.path.join(folder, 'model-00002-of-00002.safetensors'))
    for words in (('show', folder), ('diff', folder, whole), ('diff', whole, folder)):
        one_sentence(run(*words), 2 if words[0] == 'diff' else 1, 'model-00002-of-00002.safetensors')


@case
def the_largest_tensors_are_shown_and_all_if_asked_for():
    arrays = {f't{number}': ('F32', [number], floats(*range(number))) for number in range(40)}
    path = write_model(os.path.join(fresh('many'), 'model.safetensors'), arrays)
    few, all_of_them = run('show', path).stdout, run('show', path, '--tensors').stdout
    assert 'and 24 more, which --tensors shows' in few, few
    assert 't39 ' in few and 't23 ' not in few and few.index('t39 ') < few.index('t38 '), few
    assert all(f'\nt{number} ' in all_of_them for number in range(40)), all_of_them


@case
def what_is_no_checkpoint_is_refused_in_a_sentence():
    folder = fresh('nothing')
    pipe, text = os.path.join(folder, 'pipe'), os.path.join(folder, 'text')
    os.mkfifo(pipe)
    with open(text, 'w', encoding='ascii') as file:
        file.write('hello')
    empty = fresh('empty')
    good = small_model('good')
    for path in ('/no/such', pipe, '/dev/zero', text, empty):
        for words, status in ((('show', path), 1), (('diff', path, good), 2), (('diff', good, path), 2),
                              (('reshard', path, fresh('target'), '--world', 'ranks:2'), None)):
            result = run(*words, timeout=20)
            one_sentence(result, result.returncode if status is None else status, path)
            assert result.returncode in (1, 2), result
        assert run('verify', path, timeout=20).returncode == 1, path
    result = run('reshard', good, os.path.join(folder, 'target'), '--world', 'ranks:2')
    one_sentence(result, 1, 'manifest')
    assert not os.path.exists(os.path.join(folder, 'target')), os.listdir(folder)


@case
def pipes_among_a_models_files_are_not_waited_for():
    folder = fresh('pipes')
    os.mkfifo(os.path.join(folder, 'model.safetensors'))
    for words in (('show', folder), ('verify', folder)):
        result = run(*words, timeout=20)
        assert result.returncode == 1, result


@case
def damaged_models_are_refused_with_file_and_tensor():
    folder = fresh('damaged')
    path = os.path.join(folder, 'model.safetensors')
    arrays = {'a': ('F32', [4], floats(1, 2, 3, 4)), 'b': ('F32', [4], floats(1, 2, 3, 4))}
    entry = {'dtype': 'F32', 'shape': [4]}

    def header(a, b):
        return {'a': {**entry, 'data_offsets': a}, 'b': {**entry, 'data_offsets': b}}

    def length():
        with open(write_model(path, arrays), 'r+b') as file:
            file.write(struct.pack('<Q', 2**60))

    def truncated():
        os.truncate(write_model(path, arrays), os.path.getsize(path) - 4)

    damages = [
        (length, ()), (truncated, ()),
        (lambda: write_model(path, arrays, header([0, 16], [8, 24])), ()),
        (lambda: write_model(path, arrays, header([0, 16], [16, 2**62])), ('b',)),
        (lambda: write_model(path, arrays, {**header([0, 16], [16, 32]),
                                            'b': {'dtype': 'F32', 'shape': [5], 'data_offsets': [16, 32]}}), ('b',)),
        (lambda: write_model(path, arrays, {**header([0, 16], [16, 32]),
                                            'b': {'dtype': 'F99', 'shape': [4], 'data_offsets': [16, 32]}}), ('b',))]
    good = small_model('good')
    for damage, names in damages:
        damage()
        one_sentence(run('show', path), 1, path, *(f'"{name}"' for name in names))
        one_sentence(run('diff', good, path), 2, path)
        verified = run('verify', path)
        assert verified.returncode == 1 and path in verified.stdout + verified.stderr, verified


@case
def equal_models_are_equal_however_their_files_are_cut():
    a, b = small_model('a'), small_model('b')
    result = run('diff', a, b)
    assert result.returncode == 0 and result.stdout.endswith('\n5 arrays equal\n'), result
    assert told('diff', a, b) == {'a': a, 'b': b, 'equal': 5, 'different': 0, 'other_form': 0, 'only_a': 0, 'only_b': 0,
                                  'arrays': []}


@case
def differences_are_counted_and_measured():
    a = small_model('a')
    b = small_model('b', **{'layer.weight': ('F32', [2, 2], floats(1, 2.5, 3, -4)),
                            'layer.half': ('F16', [3], f16(0.5, -2, math.inf)),
                            'counter': ('I64', [], struct.pack('<q', 9)),
                            'embed.weight': ('BF16', [3, 4], bf16(*range(12))), 'new': ('F32', [1], floats(1))})
    rows = {row['name']: row for row in told('diff', a, b, status=1)['arrays']}
    weight = rows['layer.weight']
    assert weight['different'] == 2 and weight['numbers'] == 4 and weight['nan'] == 0, weight
    assert weight['absolute_max'] == 8 and weight['relative_max'] == 2, weight
    assert rows['layer.half']['different'] == 1 and rows['layer.half']['absolute_max'] is None, rows
    assert rows['counter']['absolute_max'] == 2, rows
    assert rows['embed.weight']['differs'] == 'shape' and rows['embed.weight']['b'] == '(3, 4)', rows
    assert rows['new']['differs'] == 'only in B' and set(rows) == set(small_arrays()) - {'empty'} | {'new'}, rows
    text = run('diff', a, b)
    assert text.returncode == 1 and text.stdout.endswith(
        '\n1 array equal, 3 with other numbers, 1 of other shape or dtype, 1 only in B\n'), text
    assert told('diff', b, a, status=1)['only_a'] == 1


@case
def not_a_number_is_counted_and_has_no_distance():
    a = small_model('a', **{'layer.weight': ('F32', [2, 2], floats(math.nan, math.nan, 1, 0))})
    b = small_model('b', **{'layer.weight': ('F32', [2, 2], floats(math.nan, 2, math.nan, -0.0))})
    row, = told('diff', a, b, status=1)['arrays']
    assert row['different'] == 3 and row['nan'] == 2 and row['absolute_max'] == 0 == row['relative_max'], row


@case
def other_dtypes_are_compared_by_their_values():
    a = small_model('a', w=('F32', [3], floats(1, 2, 1.0009765625)))
    for dtype, data in (('BF16', bf16(1, 2, 1)), ('F16', f16(1, 2, 1)), ('F64', struct.pack('<3d', 1, 2, 1))):
        b = small_model('b', w=(dtype, [3], data))
        row, = told('diff', a, b, status=1)['arrays']
        assert row['differs'] == 'dtype' and row['a'] == 'F32' and row['b'] == dtype, row
        assert row['different'] == 1 and abs(row['absolute_max'] - 2**-10) < 1e-12, row


@case
def halves_are_read_exactly():
    values = [0.0, 2.0**-24, 3 * 2.0**-24, 2.0**-14, 1 / 3, 65504, -1.5]
    a = small_model('a', w=('F16', [len(values)], f16(*values)))
    b = small_model('b', w=('F64', [len(values)], struct.pack(f'<{len(values)}d',
                                                            *struct.unpack(f'<{len(values)}e', f16(*values)))))
    row, = told('diff', a, b, status=1)['arrays']
    assert row['differs'] == 'dtype' and row['different'] == 0, row


@case
def numbers_of_unknown_dtypes_are_compared_as_bytes():
    a = small_model('a', w=('F8_E4M3', [4], bytes([1, 2, 3, 4])))
    b = small_model('b', w=('F8_E4M3', [4], bytes([1, 2, 9, 4])))
    row, = told('diff', a, b, status=1)['arrays']
    assert row['different'] == 1 and 'absolute_max' not in row, row


@case
def odd_names_are_printable():
    for name in ['w\x1b[2J', '\u009b2J', 'a\u0085b\u2028c', '\u202etfel', '\u6f22' * 100, 'x' * 70000, 'a\nb', 'tab\t']:
        path = write_model(os.path.join(fresh('odd'), 'model.safetensors'), {name: ('F32', [1], floats(1))})
        other = small_model('other')
        for words in (('show', path), ('show', path, '--tensors'), ('diff', path, other), ('verify', path)):
            result = run(*words)
            assert result.returncode == (1 if words[0] == 'diff' else 0) and result.stderr == '', (name[:20], result)
            assert not any(letter in result.stdout for letter in FORBIDDEN), (name[:20], result.stdout[:2000])
            assert max(map(len, result.stdout.splitlines())) <= 160, (name[:20], result.stdout[:2000])
        assert [array['name'] for array in told('show', path)['arrays']] == [name]


@case
def output_that_cannot_be_written_is_a_failure():
    with open('/dev/full', 'w', encoding='ascii') as full:
        result = subprocess.run([MXS, 'checkpoint', 'show', small_model('full')], stdout=full, stderr=subprocess.PIPE,
                                text=True, timeout=60, check=False)
    assert result.returncode == 1 and 'standard output' in result.stderr, result


def flip(path, offset):
    with open(path, 'r+b') as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def copy_of(path, name):
    target = os.path.join(fresh(name), os.path.basename(path))
    shutil.copytree(path, target)
    return target


def manifest_of(path):
    with open(os.path.join(path, 'matrixshard.json'), encoding='utf-8') as file:
        return json.load(file)


WORLDS = {}


def saved_by(ranks, *words):
    """One checkpoint of each world is enough: nobody changes it."""
    if (ranks, words) not in WORLDS:
        folder = fresh('world-' + '-'.join([str(ranks), *words]))
        WORLDS[ranks, words] = save(folder, 500, ranks, *words)
    return WORLDS[ranks, words]


@case
def a_checkpoint_is_shown():
    path = saved_by(4)
    shown = told('show', path)
    assert shown['manifest'] and shown['state'] and not shown['masters_as_model'], shown
    assert (shown['step'], shown['ranks'], shown['path']) == (500, 4, path), shown
    assert sum(array['bytes'] for array in shown['arrays']) == shown['bytes'], shown
    for part in ('files', 'kinds'):
        assert sum(entry['arrays'] for entry in shown[part]) == len(shown['arrays']), shown[part]
        assert sum(entry['bytes'] for entry in shown[part]) == shown['bytes'], shown[part]
    rules = {rule['rule']: rule for rule in shown['rules']}
    assert set(rules) == {'muon', 'adamw', 'shampoo', 'soap', 'frozen'} and rules['adamw']['groups'] == [0, 2], rules
    assert [rules[name]['preset'] for name in ('muon', 'adamw', 'frozen')] == ['normuon', 'default', ''], rules
    assert rules['muon']['weight_bytes'] == 2 * 320 * 64 and rules['muon']['master_bytes'] == 4 * 320 * 64, rules
    assert rules['muon']['state_bytes'] == 4 * (320 * 64 + 320) and rules['frozen']['state_bytes'] == 0, rules
    assert [group['group'] for group in shown['groups']] == [0, 2] and shown['groups'][1]['lr'] == 0.25, shown['groups']
    assert shown['user_bytes'] == [6] * 4, shown
    kinds = {(kind['kind'], kind['part']): kind for kind in shown['kinds']}
    assert kinds['weights', '']['arrays'] == 10 and kinds['extra', '']['arrays'] == 3, kinds
    assert kinds['state', 'momentum']['bytes'] == 4 * 320 * 64, kinds
    text = run('show', path, '--tensors').stdout
    assert text.startswith('step-00000500: step 500, saved by 4 ranks with matrixshard '), text
    for name in ('embed.weight', 'layers.0.qkv', 'layers.1.experts', 'layers.1.table', 'rope.mask'):
        assert any(line.startswith(name + ' ') for line in text.splitlines()), (name, text)
    assert 'head.weight' not in text and max(map(len, text.splitlines())) <= 120, text
    embed = next(line for line in text.splitlines() if line.startswith('embed.weight '))
    assert '(257, 64)' in embed and ' 0-3 ' in embed and embed.endswith(' 128.5 KiB'), embed


@case
def a_folder_lists_its_checkpoints_and_what_was_left():
    folder = fresh('folder')
    for step, ranks in ((90, 1), (1000, 2)):
        save(folder, step, ranks)
    os.makedirs(os.path.join(folder, '.step-00002000.partial-1a2b', 'optimizer'))
    with open(os.path.join(folder, '.step-00002000.partial-1a2b', 'half'), 'wb') as file:
        file.write(b'x' * 100)
    listed = told('show', folder)
    assert [(each['name'], each['step'], each['ranks'], each['newest']) for each in listed['checkpoints']] == [
        ('step-00000090', 90, 1, False), ('step-00001000', 1000, 2, True)], listed
    assert listed['leftovers'] == [{'name': '.step-00002000.partial-1a2b', 'disk_bytes': 100}], listed
    text = run('show', folder).stdout
    assert '2 checkpoints' in text and 'newest' in text and '.step-00002000.partial-1a2b (100 B)' in text, text
    # The newest is what other commands take.
    assert run('verify', folder).stdout == run('verify', os.path.join(folder, 'step-00001000')).stdout
    os.truncate(os.path.join(folder, 'step-00000090', 'matrixshard.json'), 100)
    listed = told('show', folder, status=1)
    assert 'matrixshard.json' in listed['checkpoints'][0]['fault'] and listed['checkpoints'][1]['fault'] == '', listed
    result = run('show', folder)
    assert result.returncode == 1 and "can't be read" in result.stdout, result


@case
def every_fault_is_a_line():
    good = saved_by(4)
    result = run('verify', good)
    assert result.returncode == 0 and result.stderr == '', result
    shown = told('show', good)
    whole = f'{len(shown["arrays"])} arrays, {shown["bytes"]:,} bytes'
    assert result.stdout == f'{good}: {whole}, 0 faults (hashes of all bytes)\n', result
    path = copy_of(good, 'flipped')
    arrays = {array['name']: array for array in shown['arrays']}
    names = ['layers.0.up', 'layers.0.qkv.momentum', 'layers.1.experts.exp_avg', 'rope.mask']
    for number, name in enumerate(names, 1):
        flip(os.path.join(path, arrays[name]['file']), arrays[name]['offset'] + arrays[name]['bytes'] // 2)
        result = run('verify', path)
        lines = result.stdout.splitlines()
        assert result.returncode == 1 and lines[-1].startswith(f'{path}: {whole}, {number} fault'), result
        assert len(lines) == number + 1, result
        for flipped in names[:number]:
            named = [line for line in lines if f'of {flipped},' in line and arrays[flipped]['file'] in line]
            assert len(named) == 1, (flipped, lines)
    assert len(told('verify', path, status=1)['faults']) == len(names)


@case
def damaged_checkpoints_are_refused_with_their_file():
    good = saved_by(2)
    file = 'model-00001-of-'
    file = next(name for name in os.listdir(good) if name.startswith(file))
    target = fresh('damage-target')

    def newer(path):
        manifest = manifest_of(path)
        manifest['matrixshard_checkpoint'] += 1
        with open(os.path.join(path, 'matrixshard.json'), 'w', encoding='utf-8') as text:
            json.dump(manifest, text)

    damages = [
        (lambda path: flip(os.path.join(path, file), 20), file),
        (lambda path: flip(os.path.join(path, file), 6), file),
        (lambda path: os.truncate(os.path.join(path, file), 5000), file),
        (lambda path: os.remove(os.path.join(path, file)), file),
        (lambda path: os.truncate(os.path.join(path, 'matrixshard.json'), 1000), 'matrixshard.json'),
        (newer, 'version')]
    for damage, wanted in damages:
        path = copy_of(good, 'damaged')
        damage(path)
        one_sentence(run('show', path), 1, wanted)
        one_sentence(run('diff', path, good), 2, wanted)
        one_sentence(run('reshard', path, target, '--world', 'ranks:3'), 1, wanted)
        result = run('verify', path)
        assert result.returncode == 1 and wanted in result.stdout + result.stderr, result
        assert os.listdir(target) == [], os.listdir(target)


@case
def reshard_writes_what_the_other_world_would_have_saved():
    for words in ((), ('masters',), ('no-optimizer', 'no-extras')):
        for source, world in ((4, 1), (4, 2), (4, 3), (4, 7), (1, 4), (3, 2), (2, 2)):
            target = fresh('resharded')
            result = run('reshard', saved_by(source, *words), target, '--world', f'ranks:{world}')
            assert result.returncode == 0 and result.stderr == '', result
            made = os.path.join(target, os.path.basename(saved_by(source, *words)))
            assert os.listdir(target) == [os.path.basename(made)], os.listdir(target)
            mine, theirs = files_of(made), files_of(saved_by(world, *words))
            assert sorted(mine) == sorted(theirs), (words, source, world, sorted(mine), sorted(theirs))
            for name in sorted(mine):
                same = mine[name] == theirs[name] or name == 'matrixshard.json'
                assert same, (words, source, world, name, mine[name][:3000], theirs[name][:3000])
            a, b = manifest_of(made), manifest_of(saved_by(world, *words))
            assert a['user'][:source] == b['user'][:source], (a['user'], b['user'])
            assert set(a['user'][source:]) <= {''}, a['user']
            a['user'] = b['user'] = a['hash'] = b['hash'] = None  # the hash is of the users' bytes, too
            assert a == b, (words, source, world, [key for key in a if a[key] != b[key]])
            assert run('verify', made).returncode == 0
            assert run('diff', saved_by(source, *words), made).returncode == 0


@case
def reshard_tells_what_was_before_and_is_after():
    source, target = saved_by(4), fresh('table')
    table = run('reshard', source, target, '--world', 'ranks:2').stdout.splitlines()
    assert [line.split(' ', 1)[0] for line in table[1:3]] == ['before', 'after'], table
    assert table[3].endswith(' bytes copied'), table
    again = told('reshard', source, target, '--world', 'ranks:3')
    assert again['before']['path'] == source and again['after']['path'] == os.path.join(target, 'step-00000500'), again
    assert again['before']['ranks'] == 4 and again['after']['ranks'] == 3, again
    assert again['copied_bytes'] == again['before']['bytes'] == again['after']['bytes'], again


@case
def the_model_alone_is_resharded():
    source, target = saved_by(4), fresh('alone')
    assert run('reshard', source, target, '--world', 'ranks:1', '--weights-only', '--name=model').returncode == 0
    made, wanted = os.path.join(target, 'model'), saved_by(1, 'weights-only')
    assert files_of(made).keys() == files_of(wanted).keys(), files_of(made).keys()
    assert {name: data for name, data in files_of(made).items() if name != 'matrixshard.json'} == {
        name: data for name, data in files_of(wanted).items() if name != 'matrixshard.json'}
    a, b = manifest_of(made), manifest_of(wanted)
    assert a == b, [key for key in a if a[key] != b[key]]
    shown = told('show', made)
    assert {kind['kind'] for kind in shown['kinds']} == {'weights', 'extra'} and not shown['state'], shown
    assert run('diff', source, made, '--weights-only').returncode == 0
    assert told('diff', source, made, status=1)['only_a'] > 0


@case
def the_model_alone_does_not_take_the_place_of_its_source():
    path = copy_of(saved_by(2), 'step-00000500')
    before, folder = files_of(path), os.path.dirname(path)
    for words in ((path, folder), (path, folder, '--name', 'step-00000500')):
        one_sentence(run('reshard', *words, '--world', 'ranks:1', '--weights-only'), 2, path, 'another folder')
    assert files_of(path) == before
    assert run('reshard', path, folder, '--world', 'ranks:1', '--weights-only', '--name=model').returncode == 0


@case
def a_way_there_and_back_changes_nothing():
    source, folder = saved_by(4), fresh('there')
    for world in (7, 1, 4):
        assert run('reshard', source if world == 7 else folder, folder, '--world', f'ranks:{world}').returncode == 0
    made = os.path.join(folder, 'step-00000500')
    mine, theirs = files_of(made), files_of(source)
    assert mine.keys() == theirs.keys() and os.listdir(folder) == ['step-00000500'], os.listdir(folder)
    changed = [name for name in mine if mine[name] != theirs[name] and name != 'matrixshard.json']
    assert changed == [], changed


@case
def companions_come_along():
    source = copy_of(saved_by(2), 'companions')
    other = fresh('other-companions')
    for folder, text in ((source, 'of the source'), (other, 'of the other')):
        with open(os.path.join(folder, 'config.json'), 'w', encoding='ascii') as file:
            file.write(json.dumps({'text': text}))
    for words, wanted in (((), 'of the source'), (('--files-from', other), 'of the other')):
        target = fresh('with-companions')
        assert run('reshard', source, target, '--world', 'ranks:1', *words).returncode == 0
        with open(os.path.join(target, 'step-00000500', 'config.json'), encoding='ascii') as file:
            assert json.load(file) == {'text': wanted}, words


@case
def the_newest_are_kept_if_asked_for():
    folder = fresh('keep')
    for step in (100, 200, 300):
        save(folder, step, 1)
    assert run('reshard', saved_by(2), folder, '--world', 'ranks:1', '--keep', '2').returncode == 0
    assert sorted(os.listdir(folder)) == ['step-00000300', 'step-00000500'], os.listdir(folder)


@case
def a_failed_reshard_leaves_nothing_behind():
    target = fresh('refused')
    result = run('reshard', saved_by(2), target, '--world', 'ranks:2', '--budget', '1KiB')
    one_sentence(result, 1, '--budget: ')
    for name in ('../outside', '.hidden', 'a/b'):
        result = run('reshard', saved_by(2), target, '--world', 'ranks:2', '--name', name)
        one_sentence(result, 2, name)
    path = copy_of(saved_by(2), 'flipped')
    arrays = {array['name']: array for array in told('show', path)['arrays']}
    flipped = arrays['layers.0.up.momentum']
    flip(os.path.join(path, flipped['file']), flipped['offset'] + 5)
    one_sentence(run('reshard', path, target, '--world', 'ranks:2'), 1, flipped['file'], 'layers.0.up.momentum')
    assert os.listdir(target) == [], os.listdir(target)
    file = os.path.join(target, 'file')
    with open(file, 'w', encoding='ascii'):
        pass
    one_sentence(run('reshard', saved_by(2), file, '--world', 'ranks:2'), 1, file)
    assert os.listdir(target) == ['file'], os.listdir(target)


@case
def a_full_disk_leaves_nothing_behind():
    target = fresh('full')
    script = ('mount -t tmpfs -o size=128k tmpfs "$1" || exit 77; target=$1; touch "$target/kept"; shift; "$@"; '
              'status=$?; ls -A "$target"; exit $status')
    result = subprocess.run(['unshare', '-m', 'sh', '-c', script, 'sh', target, MXS, 'checkpoint', 'reshard',
                             saved_by(2), target, '--world', 'ranks:3'], capture_output=True, text=True, check=False,
                            timeout=60, stdin=subprocess.DEVNULL)
    if result.returncode == 77 or 'unshare' in result.stderr:
        raise Skipped('no mount namespaces here')
    assert result.returncode == 1 and result.stdout == 'kept\n' and target in result.stderr, result
    assert 'space' in result.stderr, result


def folder_of_the_docs():
    """What docs/checkpoints.md#tools says is there."""
    folder = fresh('docs')
    shutil.copytree(os.path.dirname(saved_by(4)), os.path.join(folder, 'checkpoints'))
    save(os.path.join(folder, 'checkpoints'), 1000, 4)
    os.makedirs(os.path.join(folder, 'checkpoints', '.step-00001500.partial-5c0de'))
    shutil.copytree(saved_by(4), os.path.join(folder, 'damaged'))
    arrays = {array['name']: array for array in told('show', saved_by(4))['arrays']}
    for name in ('layers.0.up', 'layers.1.experts.exp_avg'):
        flip(os.path.join(folder, 'damaged', arrays[name]['file']), arrays[name]['offset'])
    for name, changed in (('before', {}), ('after', {'layer.weight': ('F32', [2, 2], floats(1, 2.5, 3, math.nan)),
                                                     'layer.half': ('BF16', [3], bf16(0.5, -2, 65504))})):
        write_model(os.path.join(folder, name + '.safetensors'), {**small_arrays(), **changed})
    return folder


@case
def the_examples_in_the_docs_are_what_it_prints():
    examples = [(block.first.removeprefix('$ mxs checkpoint '), ''.join(line + '\n' for line in block.lines[1:]))
                for block in claimed.blocks('docs/checkpoints.md', 'tests/cli/checkpoint.py')]
    assert {shlex.split(words)[0] for words, _ in examples} == {'show', 'verify', 'diff', 'reshard'}, examples
    folder = folder_of_the_docs()
    for words, wanted in examples:
        result = run(*shlex.split(words), cwd=folder)
        assert result.stderr == '' and result.stdout == wanted, (words, result.stdout, wanted)


run_cases()
