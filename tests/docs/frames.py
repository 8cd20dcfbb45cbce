# SPDX-License-Identifier: Apache-2.0
"""What fragments of pages need around them to be compiled or executed: declarations, a model, ranks.

A frame of C is (before the function, at its beginning); of Python (how it is started, before the block, after it).
"""
import re

UNITS = 'mxs_unit *units[1] = {NULL}; uint64_t unit_count = 1; mxs_optimizer *optimizer = NULL; mxs_status status;'
TENSORS = 'mxs_tensor tensors[1] = {MXS_TENSOR_INIT}; uint64_t tensor_count = 1; '
C = {
    '': ('', ''),
    'saving': ('static uint64_t place_in_data;', UNITS),
    'beside training': ('', UNITS + ' mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;'),
    'loading': ('void tell(void *context, int32_t what, const char *name);', UNITS),
    'going on': ('mxs_status train(mxs_comm *comm, mxs_unit **units, mxs_optimizer *optimizer);', TENSORS +
                 'mxs_comm *comm = NULL; mxs_unit *units[1] = {NULL}; mxs_optimizer *optimizer = NULL; '
                 'int32_t was[8], rank_count = 1; mxs_topology *topology = NULL; mxs_plan *plan = NULL, '
                 '*next_plan = NULL; mxs_plan_options plan_options = MXS_PLAN_OPTIONS_INIT;'),
    'splitting': ('', 'mxs_comm *shards = NULL, *replicas = NULL, *world = NULL; int32_t rank = 0; '
                      'mxs_unit_options unit_options = MXS_UNIT_OPTIONS_INIT;'),
    'planning for a group': ('', 'mxs_topology *world = NULL, *group = NULL; int32_t ranks[16] = {0}, rank = 0; '
                                 'mxs_plan *plan = NULL; mxs_comm *world_comm = NULL, *shards = NULL, *replicas; '
                             + TENSORS),
    'stepping': ('#include <stdlib.h>', 'mxs_stepper *stepper = NULL; mxs_matrices matrices = MXS_MATRICES_INIT; '
                                        'mxs_muon_options options = MXS_MUON_OPTIONS_INIT; void *state, *workspace; '
                                        'mxs_group_values values = MXS_GROUP_VALUES_INIT; mxs_step_call call = '
                                        'MXS_STEP_CALL_INIT; mxs_step_result result = MXS_STEP_RESULT_INIT;'),
}

GPT = '''
import os, sys
os.environ.update(RANK='0', WORLD_SIZE='1')
sys.path.insert(0, 'tests/python')
import torch, torch_models
GPT = torch_models.small_gpt
'''
RANKS = '''
import os, signal
import matrixshard as mxs

model = [mxs.Tensor(f'layer{layer}.weight', (96, 64), unit=layer) for layer in range(3)]
comm = mxs.Comm()
plan = mxs.Plan(model, comm.topology())
units = [mxs.Unit(comm, plan, layer) for layer in range(3)]
optimizer = mxs.Optimizer(units, backup=True)

def train(comm, units, optimizer):
    """Three steps; rank 2 dies in the third."""
    for step in range(3):
        for layer, unit in enumerate(units):
            with unit.whole():
                if comm.rank == 2 and step == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
            unit.gradient(layer).numpy().fill(1)
            unit.reduce()
        optimizer.step(dict(lr=0.02))
'''
SHRUNK = RANKS + '''
try:
    train(comm, units, optimizer)
except mxs.MatrixShardError:
    living = comm.shrink(timeout=30)
    plan_now = mxs.Plan(model, living.topology(), previous=plan, previous_ranks=living.origins)
    units_now = [mxs.Unit(living, plan_now, layer) for layer in range(3)]
'''
PLOTS = '''
import subprocess
import matrixshard
topology = matrixshard.Topology('nodes:2 ranks:2')
plan = matrixshard.Plan([matrixshard.Tensor('w', (64, 32)), matrixshard.Tensor('v', (64, 32))], topology)
for command in ('mxs plan tests/data/models/gpt2-xl.json --world "nodes:2 ranks:2" --json >plan.json',
                'mxs run -n 2 -- mxs-perf reduce -b 64K -e 64K -n 2 --json reduce.json >table'):
    subprocess.run(command, shell=True, check=True)
'''
PYTHON = {
    '': ('', '', ''),
    'gpt': ('', GPT, ''),
    'ranks': ('mxs run --keep-going -n 3 -- ', RANKS,
              'assert living.rank_count == 2 and len(lost) > 0, (living.rank_count, lost)\n'),
    'shrunk': ('mxs run --keep-going -n 3 -- ', SHRUNK, 'assert recovery.step_number == 2, recovery\n'),
    'plots': ('', PLOTS, 'assert figure.axes\n'),
}


def c(frame, lines, aside, number, page):
    """A whole source; the compiler's complaints name the page's lines."""
    before, within = C[frame]
    code = []
    for line in lines:
        line = re.sub(aside, '', line) if aside else line
        code.append(re.sub(r'^(\s*)\.\.\.(?=\s|$)', r'\1;', line))
    shown = f'#line {number} "{page}"\n' + '\n'.join(code) + '\n'
    if any(re.match(r'int main\(', line) for line in code):
        return shown
    return (f'#include <matrixshard/matrixshard.h>\n{before}\nmxs_status fragment(void);\n'
            f'mxs_status fragment(void) {{\n{within}\n{shown}return MXS_OK;\n}}\n')


def python(frame, text):
    _, before, after = PYTHON[frame]
    return before + text + after


def launcher(frame):
    return PYTHON[frame][0]
