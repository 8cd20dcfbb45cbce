# SPDX-License-Identifier: Apache-2.0
"""Plans as `mxs plan --json` prints them, for looking at pages: shapes of real models, owners by a plain greedy rule.

sample_plans.py NAME prints one. Bytes are right for the owners given; times and what a gather carries are plausible.
"""
import heapq
import json
import sys

PAGE = 4096


class Matrix:
    def __init__(self, unit, name, rows, columns, flat=False):
        self.unit, self.name, self.rows, self.columns, self.flat = unit, name, rows, columns, flat
        self.elements = rows * columns

    def step_ns(self):
        if self.flat:
            return self.elements * 28 / 1.5e12 * 1e9
        small, large = sorted((self.rows, self.columns))
        return 5 * (4 * small * small * large + 2 * small ** 3) / 150e12 * 1e9


def llama(layers, width, inner, key_width, words):
    tensors = [Matrix(0, 'model.embed_tokens.weight', words, width, flat=True)]
    for layer in range(layers):
        base = f'model.layers.{layer}.'
        for name, rows, columns in [('self_attn.q_proj', width, width), ('self_attn.k_proj', key_width, width),
                                    ('self_attn.v_proj', key_width, width), ('self_attn.o_proj', width, width),
                                    ('mlp.gate_proj', inner, width), ('mlp.up_proj', inner, width),
                                    ('mlp.down_proj', width, inner)]:
            tensors.append(Matrix(layer + 1, base + name + '.weight', rows, columns))
    tensors.append(Matrix(layers + 1, 'lm_head.weight', words, width, flat=True))
    return tensors, ['embed_tokens'] + [f'layers.{layer}' for layer in range(layers)] + ['lm_head']


def mixture(layers, experts, width, inner):
    tensors = []
    for layer in range(layers):
        for name, rows, columns in [('q_proj', 3 * width, 1536), ('o_proj', width, 16384)]:
            tensors.append(Matrix(layer, f'model.layers.{layer}.self_attn.{name}.weight', rows, columns))
        for expert in range(experts):
            for name in ('gate', 'up', 'down'):
                tensors.append(Matrix(layer, f'model.layers.{layer}.mlp.experts.{expert}.{name}_proj', inner, width))
    return tensors, [f'layers.{layer}' for layer in range(layers)]


def owned_of(tensors, rank_count):
    """Bytes (bf16) of each unit by rank, and each rank's step; the longest first to the least busy."""
    heap = [(0.0, 0, rank) for rank in range(rank_count)]
    step, counts, owned = [0.0] * rank_count, [0] * rank_count, {}
    for tensor in tensors:
        if not tensor.flat:
            continue
        share = tensor.elements // rank_count
        for rank in range(rank_count):
            owned.setdefault(tensor.unit, {}).setdefault(rank, 0)
            owned[tensor.unit][rank] += 2 * share
            step[rank] += tensor.step_ns() / rank_count
    for tensor in sorted((tensor for tensor in tensors if not tensor.flat), key=Matrix.step_ns, reverse=True):
        load, bytes_before, rank = heapq.heappop(heap)
        heapq.heappush(heap, (load + tensor.step_ns(), bytes_before + tensor.elements, rank))
        step[rank] += tensor.step_ns()
        counts[rank] += 1
        unit = owned.setdefault(tensor.unit, {})
        unit[rank] = unit.get(rank, 0) + 2 * tensor.elements
    return owned, step, counts


def plan_of(title, tensors, names, nodes, ranks_per_node, **more):
    rank_count = nodes * ranks_per_node
    owned, step, counts = owned_of(tensors, rank_count)
    units = []
    for unit, name in enumerate(names):
        by_rank = sorted(owned.get(unit, {}).items())
        weight_bytes = sum(count for _, count in by_rank)
        by_node = [sum(count for rank, count in by_rank if rank // ranks_per_node == node) for node in range(nodes)]
        nic = max(by_node) // ranks_per_node if nodes > 1 else 0
        worst = max((count for _, count in by_rank), default=0)
        units.append({'unit': unit, 'name': name, 'weight_bytes': weight_bytes, 'gradient_bytes': weight_bytes,
                      'owner_count': len(by_rank), 'segment_count': len(by_rank) + 1, 'rank_bytes_max': worst,
                      'rank_bytes_bound': min(worst, max(weight_bytes // rank_count, worst * 9 // 10)),
                      'nic_bytes_max': nic, 'nic_bytes_bound': min(nic, weight_bytes // rank_count),
                      'network_bytes': weight_bytes * (nodes - 1), 'gather_bound_ns': int(max(worst / 200, nic / 25)),
                      'owned': [list(pair) for pair in by_rank]})
    slot = max(unit['weight_bytes'] for unit in units)
    ranks = []
    for rank in range(rank_count):
        weights = sum(unit.get(rank, 0) for unit in owned.values())
        rest = {'weights': weights, 'masters': 2 * weights, 'gradients': 2 * weights, 'state': 2 * weights,
                'slack': PAGE * (rank % 5 + len(units))}
        top = {'slots': 2 * slot, 'gradient_slots': 2 * slot, 'workspace': 1 << 30 if counts[rank] else 0}
        ranks.append({'rank': rank, 'node': rank // ranks_per_node, 'matrices': counts[rank],
                      'owned_bytes': 7 * weights, 'step_ns': int(step[rank]), **rest, 'rest': sum(rest.values()), **top,
                      'peak': sum(rest.values()) + sum(top.values())})
    worst = lambda key, items: max(range(len(items)), key=lambda i: items[i][key])
    most_bytes, slowest = worst('owned_bytes', ranks), worst('step_ns', ranks)
    most_unit, most_nic = worst('rank_bytes_max', units), worst('nic_bytes_max', units)
    mean = lambda key: sum(rank[key] for rank in ranks) // rank_count
    whole = sum(unit['weight_bytes'] for unit in units)
    largest = max(rank['rest'] for rank in ranks)
    peak = max(rank['peak'] for rank in ranks)
    row = lambda name, rest, peak, step, in_step, note: {
        'placement': name, 'rest_bytes': rest, 'peak_bytes': peak, 'step_ns': step, 'local_bytes': 3 * whole *
        (ranks_per_node - 1) * nodes, 'network_bytes': 3 * whole * (nodes - 1), 'step_bytes': in_step, 'note': note}
    longest = max(rank['step_ns'] for rank in ranks)
    plan = {
        'model': {'path': 'tests/data/models/sample.json', 'title': title, 'tensors': len(tensors),
                  'units': len(units), 'parameters': sum(tensor.elements for tensor in tensors)},
        'topology': {'words': f'nodes:{nodes} ranks:{ranks_per_node} nic:25', 'ranks': rank_count, 'nodes': nodes,
                     'replicas': 1},
        'rates': {'matrix_flops_per_second': 150 * 10 ** 12, 'memory_bytes_per_second': 1500 * 10 ** 9},
        'fingerprint': '5d3f0a77c1e2b894',
        'objectives': {
            'bytes': {'worst': ranks[most_bytes]['owned_bytes'], 'bound': mean('owned_bytes'), 'rank': most_bytes},
            'step_ps': {'worst': 1000 * ranks[slowest]['step_ns'], 'bound': 1000 * mean('step_ns'), 'rank': slowest},
            'egress': {'worst': units[most_unit]['rank_bytes_max'], 'bound': units[most_unit]['rank_bytes_bound'],
                       'rank': 0, 'unit': most_unit},
            'nic': {'worst': units[most_nic]['nic_bytes_max'], 'bound': units[most_nic]['nic_bytes_bound'],
                    'node': 0, 'unit': most_nic}},
        'ranks': ranks, 'units': units,
        'wire': {'local_bytes': 3 * whole * (ranks_per_node - 1) * nodes, 'network_bytes': 3 * whole * (nodes - 1),
                 'matrix_step_bytes': 0},
        'compare': [row('owner', largest, peak, longest, 0, 'this plan'),
                    row('slices', mean('rest'), peak - (largest - mean('rest')), longest * rank_count // 8, 2 * whole,
                        'every rank gathers and steps all matrices'),
                    row('alltoall', mean('rest'), peak, longest, whole, 'matrices are exchanged for the step'),
                    row('zero1', whole + largest, whole + peak, longest, whole, 'full weights on each rank'),
                    row('ddp', 7 * whole, 8 * whole, longest * rank_count, 0, 'everything on each rank')],
        'warnings': [], 'notes': ['masters in f32 beside weights in bf16', 'flat tensors are cut evenly'],
        'verdict': 'Nothing is wrong with this plan.'}
    plan.update(more)
    return plan


def with_tensors(plan, tensors):
    owners = [[pair[0] for pair in unit['owned']] for unit in plan['units']]
    plan['tensors'] = [{'name': tensor.name, 'shape': [tensor.rows, tensor.columns], 'dtype': 'bf16',
                        'unit': tensor.unit, 'rule': 'adamw' if tensor.flat else 'muon',
                        'role': 'flat' if tensor.flat else 'matrix',
                        'owners': owners[tensor.unit] if tensor.flat else owners[tensor.unit][:1],
                        'why': 'the name says embedding or head' if tensor.flat else 'two dimensions'}
                       for tensor in tensors]
    return plan


LLAMA_70B = (80, 8192, 28672, 1024, 128256)


def llama_70b():
    tensors, names = llama(*LLAMA_70B)
    return with_tensors(plan_of('Llama-3 70B', tensors, names, 8, 8), tensors)


def llama_70b_2048():
    tensors, names = llama(*LLAMA_70B)
    return plan_of('Llama-3 70B', tensors, names, 256, 8, verdict='1,488 of 2,048 ranks own no matrix: the step is '
                   'short, but their optimizer is idle.', warnings=['1,488 ranks own no matrix; co-owners or replica '
                   'groups would use them', 'rank 0 sends 448 MiB of unit 1: one owner is slower than eight'])


def experts_2048():
    tensors, names = mixture(63, 256, 7168, 2048)
    return plan_of('63 layers of 256 experts', tensors, names, 256, 8)


def gpt_4():
    tensors, names = llama(4, 512, 2048, 512, 32000)
    return plan_of('A small model', tensors, names, 1, 4)


SAMPLES = {'llama-70b': llama_70b, 'llama-70b-2048': llama_70b_2048, 'experts-2048': experts_2048, 'small': gpt_4}

if __name__ == '__main__':
    print(json.dumps(SAMPLES[sys.argv[1]]()))
