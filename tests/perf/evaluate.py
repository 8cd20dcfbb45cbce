#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""perf/evaluate, briefly: evaluate.py EVALUATE BUILD. Speaks TAP. A tiny evaluation, one that fails in part, one that
is interrupted, and words that are refused."""
import contextlib
import glob
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

EVALUATE, BUILD = sys.argv[1:3]
sys.path.insert(0, os.path.join(os.path.dirname(EVALUATE), '..', 'soak'))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
import running  # pylint: disable=wrong-import-position
from tap_cases import need, run_cases  # noqa: E402

TINY = ['--layers', '2', '--width', '64', '--only', 'nodes', '--ranks', '1', '--rounds', '1', '--steps', '2', '--rate',
        '1gbit']
TOP = {'matrixshard_evaluation', 'date', 'command', 'quick', 'seconds', 'machine', 'versions', 'model', 'settings',
       'measured', 'predicted_here', 'predicted', 'calibration', 'missing'}
POINT = {'sweep', 'nodes', 'ranks_per_node', 'context', 'sequences', 'micro_batches', 'placement', 'rounds', 'step_ms',
         'optimizer_ms', 'cpu_ms', 'optimizer_cpu_ms', 'bytes', 'matrix_step_bytes', 'card_bytes', 'rest_bytes',
         'peak_bytes', 'peak_bytes_predicted', 'loss_first', 'loss_last', 'loss_difference', 'all_step_ms',
         'all_optimizer_ms'}


def heed_signals():
    """A job in the background of a shell is started with SIGINT ignored, one of nohup with SIGHUP."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def start(words, build=BUILD, **options):
    return subprocess.Popen([sys.executable, '-B', EVALUATE, build, *words], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_signals,
                            **options)


def run(words, build=BUILD):
    """Status, and all that was said."""
    with start(words, build) as child:
        said, complaints = child.communicate(timeout=100)
    return child.returncode, said + complaints


def evaluated(words, status=0, build=BUILD, tiny=TINY):
    """What it wrote as figures, what it said, and the page into which it put them."""
    with tempfile.TemporaryDirectory() as folder:
        path, page = os.path.join(folder, 'evaluation.json'), os.path.join(folder, 'performance.md')
        shutil.copy(os.path.join(os.path.dirname(EVALUATE), '..', '..', 'docs', 'performance.md'), page)
        found, said = run([*tiny, '--json', path, '--docs', folder, *words], build)
        need(found == status, words, found, said[-4000:])
        with open(path, 'rb') as file, open(os.path.join(folder, 'performance', 'evaluation.json'), 'rb') as copy:
            evaluation = file.read()
            need(copy.read() == evaluation, 'the two files of figures differ')
        with open(page, encoding='utf-8') as file:
            return json.loads(evaluation), said, file.read()


def check_figures(point):
    need(set(point) >= POINT, POINT - set(point))
    need(point['step_ms']['min'] <= point['step_ms']['median'] <= point['step_ms']['max'], point)
    need(0 < point['optimizer_ms']['median'] < point['step_ms']['median'], point)
    need(0 < point['optimizer_cpu_ms'] < point['cpu_ms'], point)
    need(len(point['all_step_ms']) == 1 and len(point['all_step_ms'][0]) == 3, point)
    need(0 < point['rest_bytes'] <= point['peak_bytes'], point)
    need(abs(point['peak_bytes'] / point['peak_bytes_predicted'] - 1) < 0.01, point)
    need(5.3 < point['loss_first'] < 5.8 and point['loss_last'] < point['loss_first'], point)
    need(point['loss_difference'] < 0.02, point)


def check_bytes(points):
    """Of two nodes with a rank each: what one sends, the other's card brings in, with headers."""
    for name, point in points.items():
        sent = sum(point['bytes'].values())
        need(0.95 * sent < 2 * point['card_bytes'] < 1.6 * sent, name, point)
        need((point['bytes']['forward'] == 0) == (name == 'ddp') and point['bytes']['backward'] > 0, name, point)
    need(points['owner']['matrix_step_bytes'] == 0 < points['slices']['matrix_step_bytes'], points)
    need(points['owner']['bytes']['step'] < 0.02 * points['slices']['bytes']['step'], points)


def check_predictions(evaluation):
    """Added to what was measured before."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'measured.json')
        with open(path, 'w', encoding='utf-8') as file:
            json.dump(evaluation, file)
        both, _, page = evaluated(['--only', 'predicted', '--from', path, '--models', 'gpt2-xl', '--gpus', '8,64'],
                                  tiny=[])
    need(both['measured'] == evaluation['measured'] and len(both['predicted_here']) == 6, both['predicted_here'])
    need({(point['gpus'], point['tokens'], point['placement']) for point in both['predicted']} ==
         {(gpus, tokens, name) for gpus in (8, 64) for tokens in (4096, 32768)
          for name in ('owner', 'slices', 'alltoall', 'zero1', 'ddp')}, both['predicted'])
    need('gpt2-xl' in page, page)


def a_tiny_evaluation_has_what_was_measured():
    evaluation, said, page = evaluated(['--nodes', '1,2', '--placements', 'owner,slices,ddp'])
    need(set(evaluation) == TOP and evaluation['missing'] == [], set(evaluation) ^ TOP)
    need(evaluation['model']['newton_schulz_steps'] == 5 and evaluation['model']['matrices'] == 12, evaluation['model'])
    need(evaluation['machine']['cores'] > 0 and evaluation['machine']['processor'], evaluation['machine'])
    need(all(evaluation['versions'][name] for name in ('matrixshard', 'ucx', 'onednn', 'compiler', 'python')),
         evaluation['versions'])
    need(0.5e8 < evaluation['settings']['tuned']['2']['network']['bytes_per_second'] < 2e8, evaluation['settings'])
    points = {(point['nodes'], point['placement']): point for point in evaluation['measured']}
    need(set(points) == {(nodes, name) for nodes in (1, 2) for name in ('owner', 'slices', 'ddp')}, list(points))
    for point in points.values():
        check_figures(point)
        need(point['micro_batches'] == point['nodes'] and (point['card_bytes'] is None) == (point['nodes'] == 1), point)
    check_bytes({name: point for (nodes, name), point in points.items() if nodes == 2})
    need(said.count('of about') == 7 and 'optimizer' in said, said)
    need(evaluation['command'] in page, page)
    check_predictions(evaluation)


def a_run_that_fails_is_told_and_the_others_go_on():
    with tempfile.TemporaryDirectory() as build:
        for folder in ('src/cli', 'perf/train'):
            os.makedirs(os.path.join(build, folder))
        for program in ('src/cli/mxs', 'perf/mxs-perf'):
            os.symlink(os.path.join(BUILD, program), os.path.join(build, program))
        train = os.path.join(build, 'perf/train/mxs-train')
        with open(train, 'w', encoding='utf-8') as file:
            file.write('#!/bin/sh\ncase "$*" in *zero1*) echo no such day >&2; exit 3;; esac\n'
                       f'exec {BUILD}/perf/train/mxs-train "$@"\n')
        os.chmod(train, 0o755)
        evaluation, said, page = evaluated(['--nodes', '1', '--placements', 'zero1,owner'], status=1, build=build)
    need([point['placement'] for point in evaluation['measured']] == ['owner'], evaluation['measured'])
    need(evaluation['measured'][0]['loss_difference'] is None, evaluation['measured'])
    need(len(evaluation['missing']) == 1 and 'zero1' in evaluation['missing'][0], evaluation['missing'])
    need('| no such day' in said and '--placement zero1' in said and 'missing: 1 node x 1' in said, said)
    need(f'- {evaluation["missing"][0]}' in page, page)


def processes_of(child):
    """Those of worlds that it has started."""
    found = []
    for path in glob.glob('/proc/[0-9]*/environ'):
        try:
            with open(path, 'rb') as file:
                if f'{running.MARK}={child.pid}.'.encode() in file.read():
                    found.append(int(path.split('/')[2]))
        except OSError:
            pass
    return found


def interrupted(words, send):
    with start([*TINY, *words], start_new_session=True) as child:
        while len(processes_of(child)) < 3 and child.poll() is None:  # the launcher and two ranks
            time.sleep(0.05)
        send(child.pid)
        try:
            said = ''.join(child.communicate(timeout=20))
        finally:
            child.kill()  # of an endless run that has not heard
    need(child.returncode == 130 and 'interrupted' in said and 'Traceback' not in said, child.returncode, said)
    need(not processes_of(child), processes_of(child), 'are left')


def killed(words):
    """There is nobody then to end the job: it must do so by itself."""
    with (tempfile.TemporaryDirectory() as folder,  # for what a killed program can't remove
          start([*TINY, *words], env=dict(os.environ, TMPDIR=folder)) as child):
        while len(processes_of(child)) < 3 and child.poll() is None:
            time.sleep(0.05)
        need(child.poll() is None, 'nothing was there to be killed:', words)
        child.kill()
        child.communicate(timeout=60)
    deadline = time.monotonic() + 20
    while processes_of(child) and time.monotonic() < deadline:
        time.sleep(0.1)
    need(not processes_of(child), processes_of(child), 'are left')


def an_interrupt_leaves_nothing_behind():
    endless = ['--ranks', '2', '--steps', '100000', '--placements', 'owner']
    interrupted(['--nodes', '1', *endless], lambda pid: os.killpg(pid, signal.SIGINT))  # as a terminal does
    interrupted(['--nodes', '1', *endless], lambda pid: os.kill(pid, signal.SIGINT))
    interrupted(['--nodes', '1', *endless], lambda pid: os.kill(pid, signal.SIGHUP))  # its terminal goes away
    interrupted(['--nodes', '2', '--placements', 'owner'], lambda pid: os.kill(pid, signal.SIGTERM))
    killed(['--nodes', '2', '--placements', 'owner'])


def a_full_disk_is_told_after_what_was_measured():
    status, said = run([*TINY, '--nodes', '1,1', '--ranks', '1,1', '--placements', 'owner', '--json', '/dev/full'])
    need(status == 1 and 'No space left' in said and 'Traceback' not in said, status, said)
    need(said.count(' tokens         owner') == 1, 'worlds named twice are one', said)


def signals_caught():
    with open('/proc/self/status', encoding='ascii') as file:
        return re.search(r'^SigCgt:\s*(\w+)', file.read(), re.MULTILINE)[1]


def versions_are_asked_without_a_signal_being_taken():
    sys.path.insert(0, os.path.dirname(EVALUATE))
    import machine  # pylint: disable=import-outside-toplevel
    before = signals_caught()
    versions = machine.versions(BUILD)
    need(versions['ucx'] and versions['onednn'], versions)
    need(signals_caught() == before, before, signals_caught())


def refusal_of(build, words):
    """In this process: a start of Python for each would take most of this test's time."""
    loader = importlib.machinery.SourceFileLoader('evaluate', EVALUATE)
    program = importlib.util.module_from_spec(importlib.util.spec_from_loader('evaluate', loader))
    loader.exec_module(program)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            program.read_options([build, *words])
    except SystemExit as end:
        need(end.code == 2, words, end.code)
        return said.getvalue()
    raise AssertionError(f'{build} {words} are taken')


def bad_words_are_refused_in_sentences():
    for words, sentence in ((['--placements', 'single'], '"single" is none of owner, slices'),
                            (['--only', 'guesses'], '"guesses" is none of nodes'),
                            (['--only', 'predicted'], '--from FILE go together'), (['--gpus', '12'], 'none of 8, 16'),
                            (['--rate', 'fast'], 'is no rate'), (['--rounds', '0'], 'is no whole number'),
                            (['--nodes', '64', '--ranks', '2'], '128 ranks'), (['--width', '100'], 'multiple of 64'),
                            (['--json', '/no/such/folder/file'], "can't be written"),
                            (['--json', ''], "can't be written"), (['--json', '/tmp'], "can't be written"),
                            (['--only', 'predicted', '--from', ''], '--from FILE go together'),
                            (['--width', '1'], '--width goes from 2'), (['--contexts', '65537'], '--contexts to 65536'),
                            (['--docs', '/no/such/folder'], 'has no performance.md'),
                            (['--frobnicate'], '--frobnicate')):
        said = refusal_of(BUILD, words)
        need(sentence in said, words, said)
    status, said = run(['--only', 'predicted', '--from', '/no/such/file'])
    need(status == 1 and '/no/such/file cannot be read' in said and 'Traceback' not in said, status, said)
    for build, sentence in (('/no/such/build', 'is no build folder'), (os.path.dirname(EVALUATE), 'is not there')):
        said = refusal_of(build, [])
        need(sentence in said, build, said)


CASES = [a_tiny_evaluation_has_what_was_measured, a_run_that_fails_is_told_and_the_others_go_on,
         an_interrupt_leaves_nothing_behind, a_full_disk_is_told_after_what_was_measured,
         versions_are_asked_without_a_signal_being_taken, bad_words_are_refused_in_sentences]


def main():
    reason = running.no_cluster()
    if reason:
        print(f'1..0 # SKIP {reason}')
        return
    run_cases(CASES, pattern=''.join(sys.argv[3:4]))


main()
