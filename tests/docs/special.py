# SPDX-License-Identifier: Apache-2.0
"""Blocks that want more than a command: functions that claims name by By(...). Each adds complaints to its case."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

SAVED = '''
import pathlib
import matrixshard as mxs

pathlib.Path('words').mkdir(exist_ok=True)
for name in ('config.json', 'tokenizer.json'):
    pathlib.Path('words', name).write_text('{}')
tensors = [mxs.Tensor('q', (128, 64), block_rows=[32] * 4), mxs.Tensor('flat', (3000, 16), rule='adamw')]
tensors += [mxs.Tensor(f'w{index}', (64, 64)) for index in range(4)]
with mxs.Comm() as comm:
    unit = mxs.Unit(comm, mxs.Plan(tensors, comm.topology(), flat_bytes=4096), 0)
    optimizer = mxs.Optimizer([unit])
    for index in range(len(tensors)):
        gradient = unit.gradient(index)
        gradient.memory()[:] = bytes(gradient.bytes)
    unit.reduce()
    optimizer.step(dict(lr=0.02))
    optimizer.step_number = 500
    mxs.save('checkpoints', [unit], optimizer, files_from='words')
'''


def saved(checks, case):
    """The folder of a checkpoint with everything that its page tells of."""
    folder = checks.sandbox.folder / 'checkpoints/step-00000500'
    if not folder.is_dir():
        (checks.sandbox.folder / 'saved.py').write_text(SAVED)
        status, out, err = checks.sandbox.run('mxs run -n 4 -- python saved.py')
        if status:
            case.complaints.append(f'no checkpoint can be saved: {out}{err}')
            return None
    return folder


def without_numbers(name):
    return re.sub(r'\d+', '#', name)


def files_of_a_checkpoint(checks, part, case):
    """Each file of the drawing is there, and each that is there is drawn."""
    folder = saved(checks, case)
    if not folder:
        return
    drawn = {without_numbers(word) for line in part.lines
             for word in re.findall(r'(?:[\w-]+/)?[\w-]+(?:\.[\w-]+)*\.(?:safetensors|json)', line)}
    there = {without_numbers(str(path.relative_to(folder))) for path in folder.rglob('*') if path.is_file()}
    if drawn != there:
        case.complaints.append(f'drawn, and not there: {sorted(drawn - there)}; there, and not drawn: '
                               f'{sorted(there - drawn)}')


def keys_of(value, path=''):
    if isinstance(value, dict):
        found = set()
        for key, inner in value.items():
            found |= {f'{path}.{key}'} | keys_of(inner, f'{path}.{key}')
        return found
    if isinstance(value, list):
        return set().union(*[keys_of(inner, path + '[]') for inner in value])
    return set()


def keys_of_json(text):
    """Of JSON in which "..." stands for more of the same, and for members that aren't shown."""
    return keys_of(json.loads(re.sub(r',?\s*\.\.\.', '', text)))


def keys_of_a_manifest(checks, part, case):
    folder = saved(checks, case)
    if not folder:
        return
    told = keys_of(json.loads((folder / 'matrixshard.json').read_text()))
    shown = keys_of_json(part.text)
    if shown - told:
        case.complaints.append(f'a manifest has no {sorted(shown - told)}')
    missing = {key for key in told if not key.startswith(('.plan.', '.arrays'))} - shown
    if missing:
        case.complaints.append(f'a manifest also has {sorted(missing)}')


def a_line_for_each_gpu(checks, part, case):
    """By the driver's and NCCL's stand-ins."""
    build = checks.sandbox.build
    nccl = sorted(build.glob('tests/standins/nccl/*/libnccl.so.2'), key=lambda path: float(path.parent.name))
    if not (build / 'tests/standins/cuda/libcuda.so.1').exists() or not nccl:
        case.skipped = 'this build has no CUDA part, and so no stand-ins of a driver'
        return
    status, out, err = checks.sandbox.run(
        f'LD_LIBRARY_PATH=b/tests/standins/cuda:{nccl[-1].parent} MXS_STANDIN_DEVICES=2 MXS_CUBLAS=none '
        f'MXS_NCCL_LIBRARY={nccl[-1]} MXS_CUDA_LIBRARY=$(ls b/src/cuda/libmatrixshard_cuda.so.*.* | head -n 1) '
        'MXS_STANDIN_KERNELS=$(ls b/tests/standins/kernels/*.so | head -n 1) mxs info')
    shown = ' '.join(part.text.split())
    for name, pattern in (('driver', r'cuda driver yes: '), ('nccl', r'nccl yes: NCCL '),
                          ('gpu 0', r'gpu 0 yes: .+, compute capability \d+\.\d, \S+ of \S+ GiB free, [0-9a-f:.]+')):
        printed = ' '.join(out.split())
        if not re.search(pattern, printed):
            case.complaints.append(f'mxs info ({status}) prints no line of {name} as {pattern}: {out}{err}')
        if not re.search(pattern, shown):
            case.complaints.append(f'the page has no line of {name} as {pattern}')


def files_of_a_trace(checks, part, case):
    status, out, err = checks.sandbox.run('MXS_TRACE=traced mxs run -n 2 -- mxs-perf gather -b 4K -e 4K -n 2')
    folder = checks.sandbox.folder / 'traced'
    if status:
        case.complaints.append(f'a traced job ends with {status}: {out}{err}')
        return
    shown = re.findall(r'^folder/(\S+)', part.text, re.M)
    kinds = {}
    for name in shown:
        pattern = re.escape(name)
        for part_of_name, any_of_it in (('JOB', r'\w+'), (r'comm\-C', r'comm-\w+'), (r'rank\-R', r'rank-\d+')):
            pattern = pattern.replace(part_of_name, any_of_it)
        kinds[name] = [path for path in os.listdir(folder) if re.fullmatch(pattern, path)]
        if len(kinds[name]) < 2:
            case.complaints.append(f'no files like {name} of two ranks: {sorted(os.listdir(folder))}')
    known = {path for paths in kinds.values() for path in paths}
    if set(os.listdir(folder)) - known:
        case.complaints.append(f'the page does not have {sorted(set(os.listdir(folder)) - known)}')


WHERE = r'(?:\w+ of unit \d+ \(operation \d+\)|agreement \d+)'
# What both the page and the tool must say of a job whose rank 2 was stopped, in this order.
HANGS = [
    r'Stuck: rank 2 lags; ranks? [013, and]+ waits? since [\d.]+ s in ' + WHERE,
    r'Rank 2 (?:has not come to|is needed in) ' + WHERE + r'(?:, is needed in ' + WHERE +
    r')*\. Its process is stopped \(by a signal or a debugger\)',
    r'Comm [0-9a-f]+ of job [0-9a-f]+, 4 ranks',
    r'rank 0: process \d+ on \S+ runs; started \d+ operations, \d+ complete; is in ' + WHERE +
    r', waiting for rank \d, since [\d.]+ m?s',
    r'In the rings, over all ranks',
    r'\d+ x gather by fanout: [\d.]+ \w+ on average, [\d.]+ [KMG]B out, [\d.]+ [KMG]B in',
    r'\d+ x reduce by cooperative: [\d.]+ \w+ on average, [\d.]+ [KMG]B out, [\d.]+ [KMG]B in',
    r'waited: rank 0 [\d.]+ m?s, rank 1 [\d.]+ m?s, rank 2 [\d.]+ m?s, rank 3 [\d.]+ m?s',
    r'Longest waits',
    r'[\d.]+ m?s: rank \d in ' + WHERE + r', for rank \d',
]


def a_job_that_hangs(checks, part, case):
    box = checks.sandbox
    job = subprocess.Popen(['bash', '-c', 'MXS_TRACE=job exec mxs run -n 4 -- mxs-train --steps 400'], cwd=box.folder,
                           env=box.environment(box.python_with(())), stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        ranks = until(lambda: trained(job.pid, box), 60)
        if not ranks:
            case.complaints.append('mxs run -n 4 -- mxs-train --steps 400 has not begun within 60 s')
            return
        os.kill(ranks[2], signal.SIGSTOP)
        time.sleep(1.3)  # a rank is stuck from a second on
        until(lambda: box.run('mxs inspect job')[0] == 1, 30)
        status, out, err = box.run('mxs inspect job')
        os.kill(ranks[2], signal.SIGCONT)
        wanted = re.findall(r'^\$ echo \$\?\n(\d)', part.text, re.M)
        if [str(status)] != wanted:
            case.complaints.append(f'mxs inspect ends with {status}, on the page with {wanted}: {err}')
        for what, text in (('the page', ' '.join(part.text.split())), ('mxs inspect', ' '.join(out.split()))):
            at = 0
            for pattern in HANGS:
                found = re.compile(pattern).search(text, at)
                if not found:
                    case.complaints.append(f'{what} does not say, after what comes before: {pattern}\n'
                                           f'{text[at:at + 900]}')
                    break
                at = found.end()
    finally:
        os.killpg(job.pid, signal.SIGCONT)
        os.killpg(job.pid, signal.SIGTERM)
        try:
            job.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def trained(launcher, box):
    """{rank: process} once all four have trained for a step."""
    if len(list(box.folder.glob('job/*.ring'))) < 4 or 'reduce by cooperative' not in box.run('mxs inspect job')[1]:
        return None
    found = {}
    for entry in os.listdir('/proc'):
        if entry.isdigit():
            try:
                with open(f'/proc/{entry}/stat', encoding='utf-8') as stat:
                    parent = int(stat.read().rsplit(')', 1)[1].split()[1])
                with open(f'/proc/{entry}/environ', 'rb') as environ:
                    rank = re.search(rb'(?:^|\0)RANK=(\d+)', environ.read())
            except OSError:
                continue
            if parent == launcher and rank:
                found[int(rank[1])] = int(entry)
    return found if len(found) == 4 else None


def until(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    return None


def a_project_of_cmake(checks, part, case):
    """With hello.c beside it, built as the page says."""
    if not shutil.which('cmake'):
        case.skipped = 'there is no cmake here'
        return
    project = checks.sandbox.folder / 'project'
    project.mkdir()
    (project / 'CMakeLists.txt').write_text(part.text)
    shutil.copy(checks.root / 'docs/examples/hello.c', project)
    status, said = checks.sandbox.install()
    if status == 0:
        status, out, err = checks.sandbox.run('cd project && cmake -S . -B build && cmake --build build && '
                                              'mxs run -n 2 -- build/hello')
        said = out + err
    if status:
        case.complaints.append(f'line {part.number} and below: {said[-3000:]}')
