# SPDX-License-Identifier: Apache-2.0
"""mxs plan: its words, its numbers, what it says of bad input. Argument: the program."""
import subprocess
import sys

MXS = sys.argv[1]
CASES = []


def case(function):
    CASES.append(function)
    return function


def plan(*words, **options):
    return subprocess.run([MXS, 'plan', *words], capture_output=True, text=True, check=False, timeout=60,
                          stdin=subprocess.DEVNULL, **options)


@case
def bad_use_gives_2_and_says_what():
    world = ('--world', 'ranks:2')
    for words, wanted in [
            ((), 'PATH'), (('m.json',), '--world'), (('m.json', '--world'), '--world'),
            (('m.json', 'n.json'), 'm.json'),
            (('m.json', '--world', 'gpus:4'), 'gpus'), (('m.json', '--world', '/no/such.json'), '/no/such.json'),
            (('m.json', *world, '--wat', '1'), '--wat'), (('m.json', *world, '--replicas', '0'), '--replicas'),
            (('m.json', *world, '--replicas', '3'), '3'), (('m.json', *world, '--rule', 'x'), 'PATTERN=RULE'),
            (('m.json', *world, '--rule', '=muon'), 'PATTERN=RULE'), (('m.json', *world, '--rule', '*=sgd'), 'sgd'),
            (('m.json', *world, '--rule', '*=muon:-1'), 'group'), (('m.json', *world, '--matrix-rule', 'x'), 'muon'),
            (('m.json', *world, '--dtype', 'fp8'), 'bf16'), (('m.json', *world, '--budget', '40Gb'), '40GiB'),
            (('m.json', *world, '--budget', '-1'), '"-1"'), (('m.json', *world, '--budget', '1e30'), '1e30'),
            (('m.json', *world, '--flops', 'fast'), '150T'), (('m.json', *world, '--memory', 'nan'), 'nan'),
            (('m.json', *world, '--weights', 'step:0'), 'step:0'), (('m.json', *world, '--weights', 'x:1'), 'x:1'),
            (('m.json', *world, '--weights', 'step'), 'egress:N'), (('m.json', *world, '--slots', '0'), '--slots'),
            (('m.json', *world, '--compare', 'zero4'), 'zero4'), (('m.json', *world, '--save', ''), '--save'),
            (('m.json', *world, '--co-owners', 'many'), 'many'), (('m.json', *world, '--json=1'), '--json')]:
        result = plan(*words)
        assert result.returncode == 2 and wanted in result.stderr and result.stdout == '', (words, result)


@case
def a_missing_file_gives_1_and_a_sentence():
    result = plan('/no/such/model', '--world', 'ranks:2')
    assert result.returncode == 1 and result.stderr.startswith('mxs plan: ') and result.stdout == '', result


def main():
    print(f'1..{len(CASES)}')
    for number, function in enumerate(CASES, 1):
        try:
            function()
            print(f'ok {number} - {function.__name__}', flush=True)
        except Exception as error:  # a case that breaks is a case that fails
            print(f'not ok {number} - {function.__name__}', flush=True)
            print('\n'.join('# ' + line for line in f'{type(error).__name__}: {error}'.splitlines()), flush=True)


main()
