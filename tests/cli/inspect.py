# SPDX-License-Identifier: Apache-2.0
"""mxs inspect from outside: inspect.py MXS PROGRAM. The program (traced_job.cpp) is a rank of a job that goes wrong as
it is told. Speaks TAP. A case is a function; its name is a sentence."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../support'))
from tap_cases import case, run_cases  # noqa: E402

MXS, PROGRAM = sys.argv[1:3]


def inspect(*words):
    return subprocess.run([MXS, 'inspect', *words], capture_output=True, text=True, check=False, timeout=60,
                          stdin=subprocess.DEVNULL)


def start(folder, *words, ranks=4, variable='MXS_RING', **more):
    environment = dict(os.environ, **{variable: folder, 'MXS_TIMEOUT': '60', **more})
    return subprocess.Popen([MXS, 'run', '-n', str(ranks), '--', PROGRAM, *words], env=environment, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f'not within {seconds} s')


def verdict_of(folder):
    """None until the rings of all ranks are there."""
    result = inspect(folder, '--json')
    if result.returncode == 2:
        return None
    found = json.loads(result.stdout)
    return found if len(found['ranks']) == found['rank_count'] else None


def stuck(folder, where):
    """When the report says all of it: on a busy machine ranks come to a wait, or are merely late, one by one."""
    found = verdict_of(folder)
    report = found['report'] if found else ''
    whole = (report.startswith('Stuck: rank 2 lags; ranks 0, 1 and 3 wait since ')
             and where in report.splitlines()[0] and 'Its process is stopped' in report)
    return found if whole else None


def stop(process):
    """The job, by the ends of its ranks: a stopped one takes SIGKILL alone, which mxs run gives it."""
    process.terminate()
    try:
        process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


@case
def a_stopped_rank_is_named_with_the_collective_that_it_is_missed_in():
    for where in ('gather', 'barrier', 'sum'):
        with tempfile.TemporaryDirectory() as folder:
            process = start(folder, 'stop', where)
            found = None
            try:
                found = until(lambda: stuck(folder, where))
                assert found['verdict'] == 'Stuck'
                assert inspect(folder).returncode == 1
            finally:
                for rank in found['ranks'] if found else []:
                    if rank['rank'] == 2:
                        os.kill(rank['process'], signal.SIGCONT)
                stop(process)


@case
def a_killed_rank_and_the_first_failure_are_named():
    with tempfile.TemporaryDirectory() as folder:
        process = start(folder, 'kill', 'gather')
        process.communicate(timeout=60)
        found = verdict_of(folder)
        assert found['verdict'] in ('Died', 'Failed'), found['report']
        dead = [rank['rank'] for rank in found['ranks'] if rank['alive'] is False and not rank['finished']]
        assert 2 in dead, found
        assert 'rank 2' in found['report'].split('\n\n')[0].lower(), found['report']
        assert inspect(folder).returncode == 1


@case
def a_good_job_has_totals_and_a_timeline():
    with tempfile.TemporaryDirectory() as folder:
        process = start(folder, 'run', 'gather', variable='MXS_TRACE')
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        names = sorted(os.listdir(folder))
        assert len(names) == 8 and sum(name.endswith('.json') for name in names) == 4, names
        result = inspect(folder)
        assert result.returncode == 0, result.stdout
        assert result.stdout.startswith('Nothing is stuck: all 4 ranks have destroyed the comm.'), result.stdout
        assert ' x gather by fanout: ' in result.stdout, result.stdout
        own = [json.load(open(os.path.join(folder, name), encoding='utf-8')) for name in names
               if name.endswith('.json')]
        assert all(one['traceEvents'] for one in own)
        path = os.path.join(folder, 'all.json')
        assert inspect(folder, '--timeline', path).returncode == 0
        with open(path, encoding='utf-8') as file:
            events = json.load(file)['traceEvents']
        assert {event['pid'] for event in events} == {0, 1, 2, 3}
        gathers = [event for event in events if event['ph'] == 'X' and event['cat'] == 'operations']
        assert gathers and all(event['args']['bytes_in'] for event in gathers), gathers[:2]
        shown = inspect(folder, '--events', '5').stdout
        assert shown.splitlines()[-6].split()[:2] == ['ms', 'rank'], shown
        listed = json.loads(inspect(folder, '--events=3', '--json').stdout)['events']
        assert len(listed) == 3 and listed[-1]['name'] == 'destroy', listed
        # Two files instead of the folder: the others are missed.
        rings = [os.path.join(folder, name) for name in names if name.endswith('.ring')]
        assert 'Ranks 2 and 3 have no ring here' in inspect(*rings[:2]).stdout


@case
def a_timeline_goes_to_a_pipe():
    with tempfile.TemporaryDirectory() as folder:
        start(folder, 'run', 'barrier', ranks=2).communicate(timeout=60)
        text = inspect(folder, '--timeline', '/dev/stdout').stdout
        json.loads(text[:text.index('\n]}\n') + 4])


@case
def a_folder_that_cannot_be_made_ends_the_job_with_a_sentence():
    process = start('/proc/no/such/place', 'run', 'barrier', ranks=2)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert '/proc/no/such/place' in errors, errors


@case
def bad_use_and_what_is_no_ring_end_with_2():
    with tempfile.TemporaryDirectory() as folder:
        for words in ((), ('--json',), (folder,), (folder, '--events', '0'), (folder, '--events'), (folder, '--what'),
                      (folder, '--timeline=')):
            result = inspect(*words)
            assert result.returncode == 2 and result.stderr and not result.stdout, (words, result)
        path = os.path.join(folder, 'x.ring')
        with open(path, 'wb') as file:
            file.write(b'\x1b[31m' * 2000)
        result = inspect(folder)
        assert result.returncode == 2 and 'x.ring' in result.stderr and '\x1b' not in result.stderr, result


run_cases()
