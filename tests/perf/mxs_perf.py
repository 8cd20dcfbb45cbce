#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mxs-perf runs as three processes, checks its own values, and says what is wrong with bad options."""
import json
import os
import socket
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]


def run(words, ranks=3):
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        port = listener.getsockname()[1]
    common = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), MXS_TIMEOUT='30')
    children = [subprocess.Popen([PROGRAM] + words, env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank)),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for rank in range(ranks)]
    errors = [child.communicate(timeout=60)[1] for child in children]
    return [child.returncode for child in children], ''.join(errors)


def measures(extra, algorithms):
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, 'table.json')
        codes, errors = run(['-b', '3K', '-e', '2M', '-f', '680', '-n', '2', '-w', '1', '--json', table] + extra)
        if codes != [0, 0, 0]:
            return f'{codes}: {errors}'
        with open(table, encoding='utf-8') as file:
            rows = json.load(file)['rows']
    if [row['bytes'] for row in rows] != [3072, 2088960]:
        return f'other sizes: {rows}'
    bad = [row for row in rows if row['wrong'] or row['time_us'] <= 0 or row['algorithm'] not in algorithms]
    return f'{bad}' if bad else ''


def refuses(words, sentence, code=2):
    codes, errors = run(words, ranks=1)
    return '' if codes == [code] and sentence in errors else f'{codes}: {errors}'


CASES = {
    'gather_is_measured_and_right': lambda: measures([], ['fanout']),
    'gather_with_one_owner': lambda: measures(['--layout', 'onehot'], ['fanout']),
    'gather_in_messages': lambda: measures(['--heap', '--algorithm', 'chain'], ['chain']),
    'reduce_with_two_owners': lambda: measures(['--collective', 'reduce', '--layout', 'k:2'], ['cooperative']),
    'reduce_in_messages_in_rank_order': lambda: measures(['--collective', 'reduce', '--heap', '--rank-order'],
                                                         ['flat', 'spread']),
    'an_unknown_option_is_refused': lambda: refuses(['--colective', 'gather'], 'no such option'),
    'a_file_that_cannot_be_written_is_refused': lambda: refuses(['--json', '/no/such/folder/x'], 'No such file', 1),
    'an_absurd_size_is_refused': lambda: refuses(['-b', '-3'], 'make no sense'),
}

print(f'1..{len(CASES)}')
for number, (name, body) in enumerate(CASES.items(), 1):
    complaint = body()
    print(f'{"not ok" if complaint else "ok"} {number} - {name}')
    if complaint:
        print('# ' + complaint.replace('\n', '\n# '))
