# SPDX-License-Identifier: Apache-2.0
"""How each block of a page is checked: data. A page's own test says what is missing here, and what is too much.

A block of commands needs no line: its commands are run, in order, in a sandbox (sandbox.py). Any other has a claim: the
heading above it, how its first line begins, and a way (ways.py). A command that is too long for a suite, or writes
where it must not, is run in another form (REWRITES, in their order), which the test shows; one that can't be run at all
is in NOT_HERE with a reason, which it prints. Both have all their options looked up.
"""
import dataclasses

from ways import By, C, Claim, Data, File, Output, Picture, Python, Tested

ASIDE = r'(?<=;)\s{2,}.*$'  # what stands to the right of a line of C
TORCH_EXAMPLES = 'tests/python/test_torch_examples.py'

CLAIMS = {
    'README.md': [
        Claim('Two commands', 'loss    loss', Output(part=True)),
        Claim('In C', '/* Two matrices', File('docs/examples/hello.c', 'docs/examples/meson.build')),
        Claim('In Python', '"""Two matrices', File('docs/examples/owner_step.py', 'tests/python/test_examples.py')),
        Claim('In PyTorch', '"""A module', File('docs/examples/shard_module.py', TORCH_EXAMPLES)),
    ],
    'ARCHITECTURE.md': [
        Claim('How a byte travels', 'tensors -> PLAN', Picture()),
    ],
    'docs/algorithms.md': [
        Claim('Circulant', 'p = 9, skips', Picture()),
        Claim('Circulant', 'T = (n - 1 + q)', Picture()),
        Claim('Two levels', 'owner --> relay', Picture()),
        Claim('Two levels', 'T = max(', Picture()),
    ],
    'docs/checkpoints.md': [
        Claim('Checkpoints', 'checkpoints/', By('files_of_a_checkpoint')),
        Claim('Checkpoints', 'rank 0 owns', Picture()),
        Claim('Saving', 'mxs_checkpoint_options options', C(frame='saving')),
        Claim('Saving', 'all ranks   units idle?', Picture()),
        Claim('Beside training', 'mxs_save *save', C(frame='beside training')),
        Claim('Loading', 'mxs_checkpoint *checkpoint', C(frame='loading')),
        Claim('Tools', '$ mxs checkpoint show checkpoints/', Tested('tests/cli/checkpoint.py')),
        Claim('Tools', '$ mxs checkpoint show checkpoints', Tested('tests/cli/checkpoint.py')),
        Claim('Tools', '$ mxs checkpoint verify', Tested('tests/cli/checkpoint.py')),
        Claim('Tools', '$ mxs checkpoint diff', Tested('tests/cli/checkpoint.py')),
        Claim('Tools', '$ mxs checkpoint reshard', Tested('tests/cli/checkpoint.py')),
        Claim('Format', '{"matrixshard_checkpoint"', By('keys_of_a_manifest')),
        Claim('Format', 'import json', Tested('tests/python/test_checkpoint_format.py')),
    ],
    'docs/coming-from-dion.md': [
        Claim('An example', '"""What', File('docs/examples/from_dion.py', TORCH_EXAMPLES)),
    ],
    'docs/coming-from-fsdp2.md': [
        Claim('An example', '"""What', File('docs/examples/from_fsdp2.py', TORCH_EXAMPLES)),
    ],
    'docs/coming-from-nccl.md': [
        Claim('An example', '/* An uneven', File('docs/examples/from_nccl.c', 'docs/examples/meson.build')),
    ],
    'docs/concepts.md': [
        Claim('A topology is found, told or made up', 'topology     8 nodes',
              Output(of='mxs info --topology "nodes:8 ranks:8 nic:25 local:200"', part=True)),
        Claim('A unit is two machines', 'weights    SHARDED', Picture()),
        Claim('Replicas of a shard group', 'mxs_comm_split(&shards', C(frame='splitting', aside=ASIDE)),
    ],
    'docs/cuda.md': [
        Claim('Which devices', 'cuda         driver', By('a_line_for_each_gpu')),
    ],
    'docs/failures.md': [
        Claim('Going on: shrink, plan, fill', 'mxs_status status = train', C(frame='going on')),
        Claim('Going on: shrink, plan, fill', 'try:', Python(frame='ranks', needs=('numpy',))),
        Claim('Backups', 'after step n', Picture()),
        Claim('Backups', 'next_optimizer =', Python(frame='shrunk', needs=('numpy',))),
    ],
    'docs/installing.md': [
        Claim('Building a program', 'cmake_minimum_required', By('a_project_of_cmake')),
    ],
    'docs/memory.md': [
        Claim('One range per unit', 'range of unit u', Picture()),
    ],
    'docs/optimizers.md': [
        Claim('Optimizers', 'mxs_muon_create', C(frame='stepping')),
        Claim('Muon', 'm = mu m', Picture()),
        Claim('AdamW', 'w = w (1 - lr wd)', Picture()),
        Claim('Shampoo', 'L = beta2 L', Picture()),
        Claim('SOAP', 'first step: L =', Picture()),
    ],
    'docs/planning.md': [
        Claim('Models from files', '{"tensors"', Data('list.json', 'mxs plan list.json --world ranks:4')),
        Claim('Models from files', 'name,shape', Data('list.csv', 'mxs plan list.csv --world ranks:4')),
        Claim('Blocks', 'block_rows =', Picture()),
        Claim('Blocks', 'bf16, 64 columns', Picture()),
        Claim('Shapes of parallelism', 'mxs_topology_create', C(frame='planning for a group', aside=ASIDE)),
        Claim('mxs plan', 'qwen3, 64 layers', Output(exact=True)),
    ],
    'docs/python.md': [
        Claim('Plans before a launch', 'import matrixshard as mxs', Tested('tests/python/test_docs.py')),
        Claim('Plans before a launch', 'tensors = ', Tested('tests/python/test_docs.py')),
        Claim('The local step alone', 'import numpy', Tested('tests/python/test_docs.py')),
        Claim('Ranks, units, steps', 'with mxs.Comm(', Tested('tests/python/test_docs.py')),
        Claim('CUDA memory', 'with mxs.Comm()', Tested('tests/python/test_cuda.py')),
        Claim('Checkpoints', 'with mxs.Comm()', Tested('tests/python/test_docs.py')),
        Claim('Models of PyTorch', 'import matrixshard.torch', Tested('tests/python/test_docs_torch.py')),
        Claim('The optimizer for PyTorch', 'model = ', Tested('tests/python/test_docs_torch.py')),
        Claim("Optimizers of one's own", 'model = ', Tested('tests/python/test_docs_torch.py')),
        Claim('Checkpoints of PyTorch models', 'model = ', Tested('tests/python/test_docs_torch.py')),
        Claim('Checkpoints of PyTorch models', '{"format"', Tested('tests/python/test_docs_torch.py')),
        Claim('Plots', 'from matrixshard import plot', Python(frame='plots', needs=('matplotlib',))),
    ],
    'docs/tracing.md': [
        Claim('Tracing', 'folder/JOB', By('files_of_a_trace')),
        Claim('A job that hangs', '$ MXS_TRACE=/tmp/job', By('a_job_that_hangs')),
    ],
}


@dataclasses.dataclass(frozen=True)
class Rewrite:
    pattern: str
    replacement: str


@dataclasses.dataclass(frozen=True)
class Need:
    pattern: str
    module: str


@dataclasses.dataclass(frozen=True)
class NotRun:
    pattern: str
    reason: str


# Of commands, by what is in them.
REWRITES = [
    # Worlds and times for a suite on two cores.
    Rewrite(r'^\./dev demo (.*)--resume DIR --steps \d+', r'./dev demo \1--resume DIR --steps 4'),
    Rewrite(r'^\./dev demo (.*)--steps \d\d+', r'./dev demo \1--steps 2'),
    Rewrite(r'^\./dev demo (--(?:optimizer|preset) \w+|--rank-order)$', r'./dev demo \1 --placement owner'),
    Rewrite(r'^\./dev demo\b', 'b/perf/train/demo --steps 2 --ranks 2 --micro-batches 2'),
    Rewrite(r'^(perf/soak/soak .*)--seconds \d+', r'\1--seconds 1 --transport shm --ranks 2,3'),
    Rewrite(r'^(perf/soak/soak .*)--kills \d+', r'\1--kills 1 --transport shm --phases gather'),
    Rewrite(r'^(perf/soak/soak .*)--only 12', r'\1--only 12 --transport shm --ranks 2,3'),
    Rewrite(r'--die 2@20\b', '--die 2@2 --steps 4'),
    Rewrite(r'(mxs-perf gather) -b 1M -e 256M', r'\1 -b 64K -e 256K -n 2 -w 1'),
    Rewrite(r'(mxs-perf reduce) -b 64M -e 64M', r'\1 -b 64K -e 64K -n 2 -w 1'),
    Rewrite(r'(mxs-perf reduce) --compare', r'\1 -b 64K -e 64K -n 2 -w 1 --compare'),
    Rewrite(r'(mxs-perf latency) --pin --spin', r'\1 --pin --spin -n 20'),
    Rewrite(r'(mxs-perf step --local)$', r'\1 --shapes 64x64 --passes 64K -n 1 -w 0 --threads 1'),
    Rewrite(r'(mxs-perf step --local .*)--shapes \d+x\d+(?:\*\d+)?', r'\1--shapes 64x128*2'),
    Rewrite(r'(mxs-perf step --local .*)-n \d+', r'\1-n 1'),
    Rewrite(r'(mxs-perf step --local .*reference)$', r'\1 --passes 0 -n 1 -w 0'),
    Rewrite(r'-n 4 (-- mxs-perf checkpoint) /mnt/disk --units 16 -n 7', r'-n 2 \1 tmp --units 1 -n 1 -w 0'),
    Rewrite(r'(mxs-perf plan) --ranks 4096 -n 5 -w 1 --units \d+', r'\1 --ranks 64 -n 1 -w 0 --units 2'),
    Rewrite(r'(mxs-perf tune)$', r'\1 --dry-run'),
    Rewrite(r'(mxs simulate .*)--bytes 512M', r'\1--bytes 16M'),
    Rewrite(r'perf/cluster -N 8 --rate 200mbit --counters -- b/perf/mxs-perf \.\.\.',
            'perf/cluster -N 2 --rate 200mbit --counters -- b/perf/mxs-perf gather -b 256K -e 256K -n 2 -w 1'),
    Rewrite(r'^perf/cluster -N 4 -m 2\b', 'perf/cluster -N 2 -m 1'),
    Rewrite(r'^perf/cluster -m 3,5\b', 'perf/cluster -m 1,2'),
    Rewrite(r'^(perf/cluster .*)-- PROGRAM$', r'\1-- b/perf/mxs-perf gather -b 64K -e 64K -n 2 -w 1'),
    Rewrite(r'^python perf/torch/compare\.py .*', 'python perf/torch/compare.py --ranks 2 --layers 1 --width 32 '
            '--steps 1 --rounds 1 --warmup 1 --dtype fp32 --contenders matrixshard'),
    # Not into this build, not as root, and not with a second build.
    Rewrite(r'\bmeson setup b\b', 'meson setup fresh -Dtests=disabled -Dperf=disabled'),
    Rewrite(r'\bninja -C b\b', 'ninja -C b -n'),
    Rewrite(r'^meson test -C b(?: --no-rebuild)?(?: --list)?(?: --print-errorlogs)?',
            'meson test -C b --no-rebuild --list'),
    Rewrite(r'\bmeson install -C b\b(?: && ldconfig)?', 'meson install -C b --no-rebuild --quiet --destdir $PWD/stage'),
    Rewrite(r'\bpip install \./bindings/python$',
            'pip install ./bindings/python --config-settings library=$PWD/b/src/libmatrixshard.so'),
    Rewrite(r'--write tests/data/plans/fingerprints.txt', '--write fingerprints.txt'),
    Rewrite(r"^sed -i ('.*') (\S+)$", r'! sed \1 \2 | cmp -s - \2'),
    Rewrite(r'^git checkout (\S+)$', r'test -f \1'),
    # Files that the reader has.
    Rewrite(r'^cc (\w+\.c)\b', r'cc docs/examples/\1'),
    Rewrite(r'-- python3 (\w+\.py)\b', r'-- python3 docs/examples/\1'),
    Rewrite(r'^(python -m matrixshard\.plot ranks2\.json ranks4\.json .*)$',
            r'for n in 2 4; do mxs run -n $n -- mxs-perf reduce -b 64K -e 64K -n 2 --json ranks$n.json; done && '
            r'\1 -o ranks.svg'),
    Rewrite(r'^mxs plan model\.safetensors', 'mxs plan tests/data/models/gpt2-xl.json'),
    Rewrite(r'^mxs inspect /tmp/job', 'mxs inspect traced'),
]

# What a command needs of the Python that it runs by.
NEEDS = [
    Need(r'matrixshard\.plot', 'matplotlib'),
    Need(r'owner_step\.py|go_on\.py', 'numpy'),
    Need(r'torchrun|perf/torch', 'torch'),
    Need(r'^pip\b|-m venv\b|^venv/bin/', 'ensurepip'),
]

NOT_HERE = [
    NotRun(r'^\./dev test\b', 'it runs this test'),
    NotRun(r'^\./dev (?:deps|perf|sanitize|fuzz|docs|build|package|newcomer|valgrind)\b', 'it installs or builds'),
    NotRun(r'^\./dev evaluate\b|^perf/evaluate/evaluate\b', 'it takes minutes: the test "evaluate" has shorter runs'),
    NotRun(r'^python3 perf/evaluate/page\.py', 'it writes pages: the test "evaluation page" has made-up ones'),
    NotRun(r'^python perf/torch/compare\.py .*--rounds 3', 'it is the command above with more rounds'),
    NotRun(r'--memory cuda$', 'it wants a GPU: the test "train cuda" has a stand-in'),
    NotRun(r' --gdb$', 'a debugger wants a terminal'),
    NotRun(r'\b(?:apt-get|apt|dpkg)\b', 'it changes the system: ./dev newcomer does it in one of its own'),
]

# The sandbox leads into the tree: what begins so must be rewritten.
WRITES = r'^(?:sed -i|rm|mv|cp|git|sudo|apt-get|apt|dpkg)\b'
