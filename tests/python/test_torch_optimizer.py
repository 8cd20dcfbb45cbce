# SPDX-License-Identifier: Apache-2.0
"""matrixshard.torch.Optimizer: torch's formulas, groups, schedulers, clipping, missing gradients, state, its end."""
import contextlib
import io
import math
import unittest
import warnings

import torch
from torch import nn

import matrixshard as mxs
import matrixshard.torch as mt
import world
from matrixshard.torch._memory import tensor_of

torch.set_num_threads(1)
# What torch imports at an optimizer's first use it imports here, once, and not in each rank.
torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1).load_state_dict(
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1).state_dict())


class Net(nn.Module):
    """Two units with a wide, a tall and a square matrix, and a root with matrices that AdamW steps."""

    def __init__(self):
        super().__init__()
        self.inlet = nn.Embedding(11, 8)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 8, bias=False), nn.Linear(8, 8)) for _ in range(2))
        self.head = nn.Linear(8, 11)
        self.extra = nn.Parameter(torch.ones(5))
        self.uses_extra = True

    def forward(self, words):
        x = self.inlet(words)
        for layer in self.layers:
            x = x + layer(x)
        x = self.head(x)
        return x * self.extra.sum() if self.uses_extra else x


def net(seed=0, cls=Net):
    torch.manual_seed(seed)
    return cls()


def batch(step, rank):
    return torch.randint(0, 11, (6, 5), generator=torch.Generator().manual_seed(100 * step + rank))


def loss_of(model, step, rank):
    words = batch(step, rank)
    return nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())


def backward(model, step, rank):
    loss = loss_of(model, step, rank)
    loss.backward()
    return loss.item()


def shards(model):
    """Copies of what this rank owns, by name."""
    return {one.name: one.shard.detach().clone() for one in mt.sharded(model).parameters if one.placements}


def bits(model):
    """The same to the last bit."""
    return {name: one.contiguous().view(torch.int32).flatten().tolist() for name, one in shards(model).items()}


def load(file):
    """As torch.load does today; 1.13 had no floats in what it calls weights."""
    try:
        torch.load(saved(0.5), weights_only=True)
    except Exception:
        return torch.load(file)
    return torch.load(file, weights_only=True)


def saved(what):
    file = io.BytesIO()
    torch.save(what, file)
    file.seek(0)
    return file


def pieces(model):
    """(name, offset, elements) of what this rank owns, as the units have it."""
    return [(one.name, placement.element_offset, memory.flatten().clone())
            for one, placement, memory in mt.sharded(model).pieces()]


def close(model, optimizer=None):
    if optimizer is not None:
        optimizer.close()
    mt.sharded(model).close()


def train_plain(model, step_function, steps, ranks):
    """One process: losses of all ranks' batches, averaged. step_function(model, step) after each backward."""
    losses = []
    for step in range(steps):
        parts = [loss_of(model, step, rank) for rank in range(ranks)]
        (sum(parts) / ranks).backward()
        losses.append([part.item() for part in parts])
        step_function(model, step)
        for one in model.parameters():
            one.grad = None
    return losses


def compare(all_pieces, model, tolerance, check):
    """What the ranks own is, together, the plain model."""
    parameters = {name: one.detach() for name, one in model.named_parameters()}
    seen = {name: 0 for name in parameters}
    for name, offset, elements in all_pieces:
        expected = parameters[name].flatten()[offset:offset + len(elements)]
        check.assertLessEqual((elements - expected).abs().max().item(), tolerance, name)
        seen[name] += len(elements)
    check.assertEqual(seen, {name: one.numel() for name, one in parameters.items()})


class PlainMuon(torch.optim.Optimizer):
    """The formulas of torch.optim.Muon, with products in fp32."""

    def __init__(self, params, lr, weight_decay, momentum=0.95):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for one in group['params']:
                average = self.state[one].setdefault('momentum', torch.zeros_like(one))
                average.lerp_(one.grad, 1 - group['momentum'])
                x = orthogonal(one.grad.lerp(average, group['momentum']))
                one.mul_(1 - group['lr'] * group['weight_decay'])
                one.add_(x, alpha=-group['lr'] * math.sqrt(max(1, one.shape[0] / one.shape[1])))


def orthogonal(x, *_):
    """Jordan's five steps in fp32."""
    turned = x.shape[0] > x.shape[1]
    x = x.T if turned else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return x.T if turned else x


def split(model):
    """Parameters of a plain Net as the plan routes them: matrices of layers, and the rest."""
    matrices = [one for name, one in model.named_parameters() if one.dim() == 2 and name.startswith('layers')]
    return matrices, [one for one in model.parameters() if all(one is not other for other in matrices)]


def sharded_run(rank, steps, shard_options, optimizer_options, clip=None, scheduler=None):
    model = mt.shard(net(), **shard_options)
    optimizer = mt.Optimizer(model, **optimizer_options)
    plan = scheduler(optimizer) if scheduler else None
    losses, norms = [], []
    for step in range(steps):
        losses.append(backward(model, step, rank))
        if clip is not None:
            norms.append(optimizer.clip_grad_norm_(clip).item())
        optimizer.step()
        optimizer.zero_grad()
        if plan is not None:
            plan(step)
    result = pieces(model), losses, norms
    close(model, optimizer)
    return result


class Formulas(unittest.TestCase):
    def check_run(self, ranks, results, plain, losses, tolerance):
        compare([piece for found, _, _ in results for piece in found], plain, tolerance, self)
        for step in range(len(losses)):
            for rank in range(ranks):
                self.assertAlmostEqual(results[rank][1][step], losses[step][rank], delta=1e-5)

    def test_adamw_is_torch_optim_adamw_in_worlds_of_1_2_and_3(self):
        values = dict(lr=3e-3, betas=(0.8, 0.98), eps=1e-6, weight_decay=0.1)
        for ranks in (1, 2, 3):
            plain = net()
            theirs = torch.optim.AdamW(plain.parameters(), **values)
            losses = train_plain(plain, lambda *_: theirs.step(), 8, ranks)
            results = world.run_ranks(ranks, sharded_run, 8, dict(rule='adamw'), values)
            self.check_run(ranks, results, plain, losses, 2e-6)

    def test_clipping_is_torchs_with_the_same_norms(self):
        for ranks in (1, 2):
            plain, norms = net(), []
            theirs = torch.optim.AdamW(plain.parameters(), lr=3e-3)

            def step(model, _):
                norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
                theirs.step()

            losses = train_plain(plain, step, 5, ranks)
            results = world.run_ranks(ranks, sharded_run, 5, dict(rule='adamw'), dict(lr=3e-3), 0.5)
            self.check_run(ranks, results, plain, losses, 2e-6)
            self.assertGreater(norms[0], 0.5)
            for mine, other in zip(results[0][2], norms):
                self.assertAlmostEqual(mine, other, delta=1e-5)

    def test_muon_is_torch_optim_muon_in_fp32_by_both_backends(self):
        patched = None
        muon = PlainMuon
        if hasattr(torch.optim, 'Muon'):
            import torch.optim._muon as patched
            muon = torch.optim.Muon
            original, patched._zeropower_via_newtonschulz = patched._zeropower_via_newtonschulz, orthogonal
        try:
            for ranks, backend in ((1, 'reference'), (2, 'openblas'), (3, 'reference'), (3, 'openblas')):
                plain = net()
                matrices, rest = split(plain)
                theirs = [muon(matrices, lr=0.02, weight_decay=0.1),
                          torch.optim.AdamW(rest, lr=3e-3, weight_decay=0.05)]
                losses = train_plain(plain, lambda *_: [one.step() for one in theirs], 6, ranks)
                options = dict(preset='torch-muon', lr=0.02, others=dict(lr=3e-3, weight_decay=0.05), backend=backend)
                try:
                    results = world.run_ranks(ranks, sharded_run, 6, {}, options)
                except world.RankFailed as error:
                    if 'NotBuiltError' in str(error) and backend == 'openblas':
                        continue
                    raise
                self.check_run(ranks, results, plain, losses, 2e-5)
        finally:
            if patched:
                patched._zeropower_via_newtonschulz = original

    def test_torch_optim_muon_itself_which_multiplies_in_bf16_is_near(self):
        if not hasattr(torch.optim, 'Muon'):
            self.skipTest('this torch has no Muon')
        plain = net()
        matrices, rest = split(plain)
        theirs = [torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(rest, lr=3e-3)]
        train_plain(plain, lambda *_: [one.step() for one in theirs], 3, 2)
        results = world.run_ranks(2, sharded_run, 3, {}, dict(preset='torch-muon', lr=0.02, others=dict(lr=3e-3)))
        compare([piece for found, _, _ in results for piece in found], plain, 3 * 0.02 * 0.1, self)


def scheduled(name):
    """Both optimizers get the same; `plan(step)` goes one on."""
    schedulers = torch.optim.lr_scheduler
    if name == 'LambdaLR':
        return lambda one: forward(schedulers.LambdaLR(one, lambda step: 1 / (1 + step)))
    if name == 'CosineAnnealingLR':
        return lambda one: forward(schedulers.CosineAnnealingLR(one, 6))
    if name == 'OneCycleLR':
        return lambda one: forward(schedulers.OneCycleLR(one, 5e-3, total_steps=10, base_momentum=0.7,
                                                         max_momentum=0.9))
    if name == 'CosineAnnealingWarmRestarts':
        return lambda one: forward(schedulers.CosineAnnealingWarmRestarts(one, 2))
    if name == 'SequentialLR':
        return lambda one: forward(schedulers.SequentialLR(
            one, [schedulers.ConstantLR(one, 0.1, 2), schedulers.ExponentialLR(one, 0.9)], [2]))

    def plateau(one):
        made = schedulers.ReduceLROnPlateau(one, patience=0)
        return lambda step: made.step(1.0 + step)
    return plateau


def forward(scheduler):
    return lambda _: scheduler.step()


class Schedulers(unittest.TestCase):
    def test_schedulers_of_torch_do_to_it_what_they_do_to_adamw(self):
        names = ('LambdaLR', 'CosineAnnealingLR', 'OneCycleLR', 'CosineAnnealingWarmRestarts', 'SequentialLR',
                 'ReduceLROnPlateau')

        def body(rank):
            return [sharded_run(rank, 6, dict(rule='adamw'), dict(lr=3e-3), None, scheduled(name))[0] for name in names]

        results = world.run_ranks(2, body)
        for number, name in enumerate(names):
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter('ignore')
                plain = net()
                theirs = torch.optim.AdamW(plain.parameters(), lr=3e-3)
                plan = scheduled(name)(theirs)

                def step(_, number):
                    theirs.step()
                    plan(number)

                train_plain(plain, step, 6, 2)
                compare([piece for found in results for piece in found[number]], plain, 2e-6, self)

    def test_one_cycle_cycles_the_momentum_of_muon_and_beta1_of_adamw(self):
        def body(_):
            model = mt.shard(net())
            optimizer = mt.Optimizer(model, lr=0.02)
            plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10, base_momentum=0.7,
                                                       max_momentum=0.9)
            seen = []
            for step in range(4):
                backward(model, step, 0)
                optimizer.step()
                names = ['layers.0.0.weight', 'head.weight']
                indices = [one.index for one in mt.sharded(model).parameters if one.name in names]
                values = [optimizer.owners.values[index] for index in indices]
                seen.append([round(group['momentum'], 5) for group in optimizer.param_groups] +
                            [round(values[0].momentum, 5), round(values[1].beta1, 5), round(values[1].beta2, 5)])
                plan.step()
            close(model, optimizer)
            return seen

        for first, second, muon, beta1, beta2 in world.run_ranks(1, body)[0]:
            self.assertEqual([first, second, muon], [beta1] * 3)
            self.assertEqual(beta2, 0.999)

    def test_lr_may_be_a_tensor(self):
        plain = world.run_ranks(2, sharded_run, 3, {}, dict(lr=0.01))
        tensor = world.run_ranks(2, sharded_run, 3, {}, dict(lr=torch.tensor(0.01)))
        for mine, other in zip(plain, tensor):
            self.assertEqual(mine[1], other[1])
            for (_, _, first), (_, _, second) in zip(mine[0], other[0]):
                self.assertTrue(torch.equal(first, second))


def sentence(kind, function, *arguments, **named):
    """Of the exception that it raises, which is of that kind."""
    try:
        function(*arguments, **named)
    except kind as error:
        return str(error)
    raise AssertionError(f'{kind.__name__} was not raised')


class Groups(unittest.TestCase):
    def test_groups_of_ones_own_step_each_tensor_by_its_values(self):
        def body(rank):
            model = mt.shard(net())
            parameters = dict(model.named_parameters())
            layers = [one for name, one in parameters.items() if name.startswith('layers')]
            rest = [one for name, one in parameters.items() if not name.startswith('layers')]
            groups = [dict(params=layers, lr=0.0, weight_decay=0.0), dict(params=rest)]
            optimizer = mt.Optimizer(groups, others=dict(lr=1e-2))
            before = shards(model)
            backward(model, 0, rank)
            optimizer.step()
            after = shards(model)
            values = [(group['lr'], group['momentum'], group['betas'], len(group['params']))
                      for group in optimizer.param_groups]
            close(model, optimizer)
            return {name: bool((after[name] != before[name]).any()) for name in after}, values

        for changed, values in world.run_ranks(2, body):
            for name, is_changed in changed.items():
                self.assertEqual(is_changed, not name.startswith('layers'), name)
            self.assertEqual(values, [(0.0, 0.95, (0.9, 0.999), 10), (0.01, None, (0.9, 0.999), 4)])

    def test_a_modules_groups_begin_with_the_presets_values(self):
        def body(_):
            model = mt.shard(net())
            result = []
            for options in (dict(), dict(preset='keller-jordan'), dict(preset='moonlight', lr=5e-4)):
                optimizer = mt.Optimizer(model, **options)
                result.append([(group['name'], group['lr'], group['weight_decay'], group['momentum'], group['betas'],
                                group['eps'], len(group['params'])) for group in optimizer.param_groups])
                optimizer.close()
            optimizer = mt.Optimizer(model.parameters())
            result.append([(group['name'], len(group['params'])) for group in optimizer.param_groups])
            close(model, optimizer)
            return result

        plain, keller, moonlight, listed = world.run_ranks(1, body)[0]
        self.assertEqual(plain, [('matrices', 1e-3, 0.01, 0.95, (0.9, 0.999), 1e-8, 6),
                                 ('others', 1e-3, 0.01, None, (0.9, 0.999), 1e-8, 8)])
        self.assertEqual(keller[0][1:4], (0.02, 0.0, 0.95))
        self.assertEqual(keller[1][1:4], (1e-3, 0.01, None))
        beside = mxs.preset_values('keller-jordan')
        for found, expected in zip((*keller[1][4], keller[1][5]), (beside.beta1, beside.beta2, beside.epsilon)):
            self.assertAlmostEqual(found / expected, 1.0, places=6)
        self.assertEqual(moonlight[0][1:4], (5e-4, 0.1, 0.95))
        self.assertEqual(listed, [('matrices', 6), ('others', 8)])

    def test_what_cannot_be_stepped_is_refused_by_name(self):
        def body(_):
            model = mt.shard(net())
            other = mt.shard(net(1))
            foreign = nn.Parameter(torch.zeros(3, 2))
            parameters = list(model.parameters())
            Wrong = mxs.errors.InvalidArgumentError
            said = {
                'foreign': sentence(Wrong, mt.Optimizer, parameters + [foreign]),
                'two models': sentence(Wrong, mt.Optimizer, parameters + list(other.parameters())),
                'left out': sentence(Wrong, mt.Optimizer, [dict(params=parameters[1:])]),
                'twice': sentence(Wrong, mt.Optimizer, [dict(params=parameters), dict(params=parameters[:1])]),
                'none': sentence(Wrong, mt.Optimizer, []),
                'plain': sentence(Wrong, mt.Optimizer, net()),
                'no params': sentence(Wrong, mt.Optimizer, [dict(lr=1.0)]),
                'preset': sentence(ValueError, mt.Optimizer, model, preset='adamax'),
                'rule': sentence(Wrong, mt.Optimizer, model, preset='soap'),
                'missing': sentence(ValueError, mt.Optimizer, model, missing='maybe'),
                'others': sentence(Wrong, mt.Optimizer, model, others=dict(learning_rate=1)),
                'lr': sentence(Exception, mt.Optimizer, model, lr='fast'),
                'betas': sentence(Exception, mt.Optimizer, model, betas=(0.9,)),
                'option': sentence(TypeError, mt.Optimizer, model, muon=dict(nestorov=True)),
            }
            optimizer = mt.Optimizer(model)
            said['second'] = sentence(mxs.errors.HeldError, mt.Optimizer, model)
            said['more'] = sentence(Wrong, optimizer.add_param_group, dict(params=[foreign]))
            said['copy'] = sentence(TypeError, __import__('copy').deepcopy, optimizer)
            backward(model, 0, 0)
            optimizer.param_groups[1]['lr'] = -1.0
            said['negative'] = sentence(Wrong, optimizer.step)
            optimizer.param_groups[1]['lr'] = 1e-3
            optimizer.gradient_scale = 0
            said['scale'] = sentence(Wrong, optimizer.step)
            optimizer.gradient_scale = None
            said['max_norm'] = sentence(Wrong, optimizer.clip_grad_norm_, 0.0)
            said['norm_type'] = sentence(mxs.errors.NotBuiltError, optimizer.clip_grad_norm_, 1.0, norm_type=1.0)
            said['scaler'] = sentence(mxs.errors.NotBuiltError, getattr, optimizer, '_step_supports_amp_scaling')
            optimizer.step()
            said['good'] = optimizer.step_number
            said['held'] = sentence(mxs.errors.HeldError, mt.sharded(model).close)
            optimizer.close()
            said['closed'] = sentence(Wrong, optimizer.step)
            mt.Optimizer(model).close()
            close(model)
            close(other)
            return said

        said = world.run_ranks(1, body)[0]
        self.assertIn('of shape (3, 2), is not sharded', said['foreign'])
        self.assertIn('another model', said['two models'])
        self.assertIn('extra is stepped, but in no param group', said['left out'])
        self.assertIn('extra is in param_groups[0] and again in param_groups[1]', said['twice'])
        self.assertIn('there are none', said['none'])
        self.assertIn('is not sharded', said['plain'])
        self.assertIn('param_groups[0] has no "params"', said['no params'])
        self.assertIn('adamax', said['preset'])
        self.assertIn("shard(model, rule='soap')", said['rule'])
        self.assertIn("'maybe' is no missing: there are zero, error", said['missing'])
        self.assertIn('learning_rate', said['others'])
        self.assertIn('param_groups[0]', said['lr'])
        self.assertIn('betas are two', said['betas'])
        self.assertIn('nestorov', said['option'])
        self.assertIn('close() it', said['second'])
        self.assertIn('groups cannot be added', said['more'])
        self.assertIn('state_dict()', said['copy'])
        self.assertIn('param_groups[1].lr is -1', said['negative'])
        self.assertIn('gradient_scale is 0', said['scale'])
        self.assertIn('max_norm is 0', said['max_norm'])
        self.assertIn('2-norm', said['norm_type'])
        self.assertIn('gradient_scale=1 / (ranks', said['scaler'])
        self.assertEqual(said['good'], 1)
        self.assertIn('close() that first', said['held'])
        self.assertIn('closed', said['closed'])

    def test_a_grad_scaler_is_refused_with_a_sentence(self):
        if not hasattr(getattr(torch, 'amp', None), 'GradScaler'):
            self.skipTest('this torch has no GradScaler for the CPU')

        def body(_):
            model = mt.shard(net())
            optimizer = mt.Optimizer(model)
            scaler = torch.amp.GradScaler('cpu')
            scaler.scale(loss_of(model, 0, 0)).backward()
            said = sentence(mxs.errors.NotBuiltError, scaler.step, optimizer)
            optimizer.zero_grad()
            close(model, optimizer)
            return said

        self.assertIn('GradScaler', world.run_ranks(1, body)[0])


class Gradients(unittest.TestCase):
    def test_a_missing_gradient_is_an_error_on_all_ranks_and_the_sums_are_kept(self):
        def body(rank):
            model = mt.shard(net())
            optimizer = mt.Optimizer(model, lr=0.01)
            before = shards(model)
            model.uses_extra = rank != 1
            backward(model, 0, rank)
            said = [sentence(mxs.errors.NotOpenError, optimizer.step),
                    sentence(mxs.errors.NotOpenError, mt.clip_grad_norm_, model, 1.0)]
            unchanged = all(torch.equal(before[name], one) for name, one in shards(model).items())
            optimizer.missing = 'zero'
            optimizer.step()
            norm = optimizer.last.norm
            model.uses_extra = True
            optimizer.missing = 'error'
            backward(model, 1, rank)
            optimizer.step()
            number = optimizer.step_number
            close(model, optimizer)
            return said, unchanged, norm, number

        for said, unchanged, norm, number in world.run_ranks(2, body):
            for one in said:
                self.assertIn('extra', one)
                self.assertIn('rank 1', one)
            self.assertTrue(unchanged)
            self.assertGreater(norm, 0.1)
            self.assertEqual(number, 2)

    def test_missing_zero_counts_nothing_where_a_rank_has_no_gradient(self):
        plain = net()
        theirs = torch.optim.AdamW(plain.parameters(), lr=1e-2)
        for rank in range(2):
            plain.uses_extra = rank != 1
            (loss_of(plain, 0, rank) / 2).backward()
        theirs.step()

        def body(rank):
            model = mt.shard(net(), rule='adamw')
            optimizer = mt.Optimizer(model, lr=1e-2, missing='zero')
            model.uses_extra = rank != 1
            backward(model, 0, rank)
            optimizer.step()
            result = pieces(model)
            close(model, optimizer)
            return result

        compare([piece for found in world.run_ranks(2, body) for piece in found], plain, 2e-6, self)

    def test_a_step_with_infinite_gradients_is_skipped_everywhere(self):
        def body(rank):
            model = mt.shard(net())
            optimizer = mt.Optimizer(model, lr=0.01)
            before = shards(model)
            (loss_of(model, 0, rank) * (math.inf if rank == 1 else 1.0)).backward()
            try:
                optimizer.clip_grad_norm_(1.0, error_if_nonfinite=True)
                said = ''
            except RuntimeError as error:
                said = str(error)
            optimizer.step()
            last = optimizer.last
            unchanged = all(torch.equal(before[name], one) for name, one in shards(model).items())
            backward(model, 1, rank)
            optimizer.step()
            result = said, last.skipped, last.found_inf_rank, last.step_number, unchanged, optimizer.last.skipped
            close(model, optimizer)
            return result

        for said, skipped, rank, number, unchanged, after in world.run_ranks(2, body):
            self.assertIn('not finite', said)
            self.assertEqual((skipped, number, unchanged, after), (True, 0, True, False))
            self.assertIn(rank, (0, 1))

    def test_zero_grad_throws_gradients_away_and_clear_after_a_step_changes_nothing(self):
        def body(rank):
            model = mt.shard(net())
            optimizer = mt.Optimizer(model, lr=0.01)
            backward(model, 7, rank)
            with mt.no_sync(model):
                backward(model, 8, rank)
            kept = sentence(mxs.errors.HeldError, optimizer.step)
            optimizer.zero_grad()
            backward(model, 0, rank)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            result = bits(model), optimizer.last.norm
            close(model, optimizer)
            return kept, result

        def fresh(rank):
            model = mt.shard(net())
            optimizer = mt.Optimizer(model, lr=0.01)
            backward(model, 0, rank)
            optimizer.step()
            result = bits(model), optimizer.last.norm
            close(model, optimizer)
            return result

        thrown = world.run_ranks(2, body)
        for kept, _ in thrown:
            self.assertIn('no_sync', kept)
        self.assertEqual([result for _, result in thrown], world.run_ranks(2, fresh))

    def test_gradient_scale_sums_where_it_is_one(self):
        def body(rank):
            model = mt.shard(net())
            optimizer = mt.Optimizer(model, clip_norm=0.0)
            backward(model, 0, rank)
            mean = optimizer.clip_grad_norm_(math.inf).item()
            optimizer.gradient_scale = 1.0
            total = optimizer.clip_grad_norm_(math.inf).item()
            clips = optimizer.last.clip_factor
            close(model, optimizer)
            return mean, total, clips

        for mean, total, clips in world.run_ranks(2, body):
            self.assertAlmostEqual(total / mean, 2.0, places=5)
            self.assertEqual(clips, 1.0)

    def test_a_closure_is_called_once_and_its_loss_returned(self):
        def body(rank):
            model = mt.shard(net())
            optimizer = mt.Optimizer(model)
            calls = []

            def closure():
                loss = loss_of(model, len(calls), rank)
                loss.backward()
                calls.append(loss.item())
                return loss

            with torch.no_grad():
                returned = optimizer.step(closure).item()
            result = returned, calls, optimizer.step_number
            close(model, optimizer)
            return result

        for returned, calls, number in world.run_ranks(2, body):
            self.assertEqual(([returned], 1), (calls, number))

    def test_after_a_backward_that_raised_zero_grad_makes_all_good(self):
        def body(rank):
            model = mt.shard(net())
            optimizer = mt.Optimizer(model, lr=0.01)

            def fail(_):
                raise RuntimeError('in backward')

            output = model(batch(9, rank))
            output.register_hook(fail)
            said = sentence(RuntimeError, output.sum().backward)
            missing = sentence(mxs.errors.NotOpenError, optimizer.step)
            optimizer.zero_grad()
            backward(model, 0, rank)
            optimizer.step()
            result = said, missing, optimizer.step_number
            close(model, optimizer)
            return result

        for said, missing, number in world.run_ranks(2, body):
            self.assertIn('in backward', said)
            self.assertIn('gradient', missing)
            self.assertEqual(number, 1)

    def test_hooks_around_the_step_are_called(self):
        if not hasattr(torch.optim.Optimizer, 'register_step_pre_hook'):
            self.skipTest('this torch has no step hooks')

        def body(rank):
            model = mt.shard(net())
            optimizer = mt.Optimizer(model)
            seen = []
            optimizer.register_step_pre_hook(lambda one, *_: seen.append(one.step_number))
            optimizer.register_step_post_hook(lambda one, *_: seen.append(one.step_number))
            backward(model, 0, rank)
            optimizer.step()
            close(model, optimizer)
            return seen

        self.assertEqual(world.run_ranks(1, body), [[0, 1]])


class State(unittest.TestCase):
    def test_resuming_from_saved_state_has_equal_bits(self):
        def body(rank, rule, preset):
            model = mt.shard(net(), rule=rule)
            optimizer = mt.Optimizer(model, preset=preset, lr=5e-3)
            plan = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9 ** step)
            for step in range(2):
                backward(model, step, rank)
                optimizer.step()
                plan.step()
            file = saved({'optimizer': optimizer.state_dict(), 'shards': shards(model)})
            for step in range(2, 5):
                backward(model, step, rank)
                optimizer.step()
                plan.step()
            expected = bits(model), optimizer.step_number
            close(model, optimizer)

            loaded = load(file)
            model = mt.shard(net(3), rule=rule)
            optimizer = mt.Optimizer(model, preset=preset, lr=1.0)
            with torch.no_grad():
                for name, one in model.named_parameters():
                    if name in loaded['shards']:
                        one.copy_(loaded['shards'][name])
            mt.commit(model)
            optimizer.load_state_dict(loaded['optimizer'])
            plan = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9 ** step, last_epoch=1)
            for step in range(2, 5):
                backward(model, step, rank)
                optimizer.step()
                plan.step()
            found = bits(model), optimizer.step_number
            close(model, optimizer)
            return expected, found

        for ranks, rule, preset in ((1, 'muon', 'moonlight'), (2, 'muon', None), (3, 'adamw', None),
                                    (2, 'soap', 'soap'), (2, 'shampoo', None)):
            for expected, found in world.run_ranks(ranks, body, rule, preset):
                self.assertEqual(expected, found, rule)

    def test_state_has_torchs_format_and_shows_what_the_owners_have(self):
        def body(rank):
            model = mt.shard(net())
            optimizer = mt.Optimizer(model)
            name, one = next((name, one) for name, one in model.named_parameters()
                             if name.startswith('layers') and one.dim() == 2 and one.numel())
            view = optimizer.state[one]['momentum']
            before = view.abs().sum().item(), view.shape == one.shape
            backward(model, 0, rank)
            optimizer.step()
            state = optimizer.state_dict()
            parameters = [one for group in optimizer.param_groups for one in group['params']]
            place = next(place for place, each in enumerate(parameters) if each is one)
            keys = {key for names in state['state'].values() for key in names}
            shapes = all(tensor.numel() == parameters[number].numel()
                         for number, names in state['state'].items() for tensor in names.values())
            same = torch.equal(state['state'][place]['momentum'], view)
            numbers = [group['params'] for group in state['param_groups']]
            result = (before, view.abs().sum().item(), same, sorted(keys), shapes, numbers,
                      state['matrixshard']['step_number'])
            del view, state
            close(model, optimizer)
            return result

        for before, after, same, keys, shapes, numbers, step_number in world.run_ranks(2, body):
            self.assertEqual(before, (0.0, True))
            self.assertGreater(after, 0.0)
            self.assertTrue(same and shapes)
            self.assertEqual(keys, ['exp_avg', 'exp_avg_sq', 'momentum'])
            self.assertEqual(numbers, [list(range(6)), list(range(6, 14))])
            self.assertEqual(step_number, 1)

    def test_foreign_state_is_refused_and_nothing_changes(self):
        def body(rank):
            model = mt.shard(net())
            optimizer = mt.Optimizer(model)
            backward(model, 0, rank)
            optimizer.step()
            good = optimizer.state_dict()
            before = {place: {key: one.clone() for key, one in names.items()} for place, names in good['state'].items()}
            Wrong = mxs.errors.InvalidArgumentError

            def changed(**fields):
                return {**good, 'matrixshard': {**good['matrixshard'], **fields}}

            number = next(iter(good['state']))
            key = next(iter(good['state'][number]))
            state = {place: dict(names) for place, names in good['state'].items()}
            state[number][key] = torch.zeros(2, 2)
            less = {place: dict(names) for place, names in good['state'].items()}
            del less[number][key]
            said = [sentence(Wrong, optimizer.load_state_dict, changed(fingerprint='0' * 16)),
                    sentence(Wrong, optimizer.load_state_dict, changed(rank=7)),
                    sentence(Wrong, optimizer.load_state_dict, changed(preset='dion')),
                    sentence(Wrong, optimizer.load_state_dict, {**good, 'state': state}),
                    sentence(Wrong, optimizer.load_state_dict, {**good, 'state': less}),
                    sentence(Wrong, optimizer.load_state_dict, {**good, 'param_groups': good['param_groups'][:1]}),
                    sentence(Wrong, optimizer.load_state_dict, torch.optim.Adam(net().parameters()).state_dict())]
            unchanged = optimizer.step_number == 1 and all(
                torch.equal(one, before[place][key])
                for place, names in optimizer.state_dict()['state'].items() for key, one in names.items())
            optimizer.load_state_dict(good)
            del good, state, less
            close(model, optimizer)
            return said, unchanged, key

        for said, unchanged, key in world.run_ranks(2, body):
            self.assertIn('same model, options and number of ranks', said[0])
            self.assertIn('each rank loads its own', said[1])
            self.assertIn("preset", said[2])
            self.assertRegex(said[3], r'[a-z0-9.]+: ' + key + r' of the state is torch.float32 \(2, 2\)')
            self.assertIn('the state has', said[4])
            self.assertIn('param groups', said[5])
            self.assertIn('no state_dict() of a matrixshard', said[6])
            self.assertTrue(unchanged)

    def test_an_optimizer_that_goes_gives_the_model_free(self):
        def body(_):
            model = mt.shard(net())
            optimizer = mt.Optimizer(model)
            bytes_taken = optimizer.memory().state
            del optimizer
            __import__('gc').collect()
            optimizer = mt.Optimizer(model, lr=0.5)
            kept = next(iter(optimizer.state.values()))
            optimizer.close()
            closed = optimizer.closed
            kept.clear()
            optimizer = mt.Optimizer(model)
            close(model, optimizer)
            return bytes_taken, closed

        bytes_taken, closed = world.run_ranks(1, body)[0]
        self.assertGreater(bytes_taken, 0)
        self.assertTrue(closed)


class Experts(nn.Module):
    """A stack of matrices, whose members have owners of their own."""

    def __init__(self):
        super().__init__()
        self.stack = nn.Parameter(torch.randn(5, 16, 16) / 4)

    def forward(self, x):
        return torch.einsum('bi,eij->bj', x, self.stack)


class Pieces(unittest.TestCase):
    def test_shards_of_several_pieces_show_what_the_step_has_done(self):
        def body(rank):
            model = mt.shard(net(cls=Experts))
            optimizer = mt.Optimizer(model, lr=0.1)
            for _ in range(2):
                model(torch.ones(2, 16) * (rank + 1)).pow(2).mean().backward()
                optimizer.step()
            one = mt.sharded(model).parameters[0]
            shown = one.shard.detach().flatten().clone()
            owned = [elements for _, _, elements in pieces(model)]
            keys = sorted(optimizer.state[one.shard])
            result = torch.equal(shown, torch.cat(owned) if owned else torch.empty(0)), len(owned), keys
            with torch.no_grad():
                one.shard.fill_(2.0)
            mt.commit(model)
            written = all(bool((elements == 2.0).all()) for _, _, elements in pieces(model))
            close(model, optimizer)
            return result + (written,)

        for ranks in (1, 2, 3):
            for same, count, keys, written in world.run_ranks(ranks, body):
                self.assertTrue(same and written)
                self.assertEqual(len(keys), count)


class Dtypes(unittest.TestCase):
    def test_bf16_weights_are_the_fp32_masters_rounded_also_after_an_external_step(self):
        def body(rank, is_external):
            model = mt.shard(net(), dtype=torch.bfloat16, rule=(lambda *_: 'external') if is_external else 'muon')
            if is_external:
                optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
            else:
                optimizer = mt.Optimizer(model, lr=0.05, others=dict(lr=0.05))
            backward(model, 0, rank)
            with mt.external(model) if is_external else contextlib.nullcontext():
                optimizer.step()
            made = mt.sharded(model)
            state = mt.full_state_dict(model)
            seen = {}
            for unit in made.units:
                with unit.whole():
                    seen.update((one.name, tensor_of(unit.tensor(one.index)).clone()) for one in made.parameters
                                if one.unit.unit is unit)
            same = all(torch.equal(seen[name], whole.to(torch.bfloat16)) for name, whole in state.items())
            started = net().state_dict()
            moved = all(bool((whole - started[name]).abs().max() > 0.01) for name, whole in state.items())
            close(model, None if is_external else optimizer)
            return same, moved, len(state)

        for is_external in (False, True):
            results = world.run_ranks(2, body, is_external)
            self.assertEqual(results[0][2], 14)
            self.assertTrue(all(same and moved for same, moved, _ in results))

    def test_bf16_without_masters_is_rounded_as_asked(self):
        def body(rank, rounding):
            model = mt.shard(net(), dtype=torch.bfloat16, master_dtype=torch.bfloat16, rule='adamw')
            optimizer = mt.Optimizer(model, lr=1e-3, weight_decay=0.0, rounding=rounding, seed=7)
            for step in range(2):
                backward(model, step, rank)
                optimizer.step()
            result = [(name, one.tolist()) for name, one in shards(model).items()]
            close(model, optimizer)
            return result

        nearest, stochastic = world.run_ranks(2, body, None), world.run_ranks(2, body, 'stochastic')
        self.assertNotEqual(nearest, stochastic)
        self.assertEqual(stochastic, world.run_ranks(2, body, 'stochastic'))


class External(unittest.TestCase):
    def test_torchs_adamw_steps_external_parameters_as_in_one_process(self):
        def body(rank):
            model = mt.shard(net(), rule=lambda *_: 'external')
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
            norms = []
            for step in range(5):
                backward(model, step, rank)
                with mt.external(model, clip_norm=0.5) as verdict:
                    optimizer.step()
                norms.append(verdict.norm)
            left = any(one.grad is not None for one in model.parameters())
            result = pieces(model), norms, left, verdict.step_number
            close(model)
            return result

        for ranks in (1, 2, 3):
            plain, norms = net(), []
            theirs = torch.optim.AdamW(plain.parameters(), lr=3e-3)

            def step(model, _):
                norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
                theirs.step()

            train_plain(plain, step, 5, ranks)
            results = world.run_ranks(ranks, body)
            compare([piece for found, *_ in results for piece in found], plain, 2e-6, self)
            for mine, other in zip(results[0][1], norms):
                self.assertAlmostEqual(mine, other, delta=1e-5)
            self.assertEqual(results[0][2:], (False, 5))

    def test_an_optimizer_and_an_external_one_share_a_model(self):
        def body(rank):
            model = mt.shard(net(), rule=lambda name, _: 'external' if name.startswith('head') else 'adamw')
            optimizer = mt.Optimizer(model, lr=3e-3, clip_norm=0.5)
            head = [one for name, one in model.named_parameters() if name.startswith('head')]
            outside = torch.optim.AdamW(head, lr=3e-3)
            for step in range(4):
                backward(model, step, rank)
                with mt.external(model):
                    outside.step()
                optimizer.step()
            refused = [sentence(mxs.errors.InvalidArgumentError, mt.Optimizer, [dict(params=list(model.parameters()))]),
                       sentence(mxs.errors.InvalidArgumentError, mt.external(model, clip_norm=1.0).__enter__)]
            result = pieces(model), refused
            close(model, optimizer)
            return result

        plain = net()
        theirs = torch.optim.AdamW(plain.parameters(), lr=3e-3)

        def step(model, _):
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            theirs.step()

        train_plain(plain, step, 4, 2)
        results = world.run_ranks(2, body)
        compare([piece for found, _ in results for piece in found], plain, 2e-6, self)
        for _, refused in results:
            self.assertIn('head.weight, which its caller steps', refused[0])
            self.assertIn('its own', refused[1])

    def test_a_skipped_or_failed_external_step_changes_nothing_and_the_next_is_good(self):
        def body(rank):
            model = mt.shard(net(), rule=lambda *_: 'external')
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            before = shards(model)
            (loss_of(model, 0, rank) * math.inf).backward()
            with mt.external(model) as verdict:
                optimizer.step()
            unchanged = all(torch.equal(before[name], one) for name, one in shards(model).items())
            backward(model, 1, rank)
            try:
                with mt.external(model):
                    raise KeyError('inside')
            except KeyError:
                pass
            backward(model, 2, rank)
            with mt.external(model) as after:
                optimizer.step()
            alone = mt.sharded(model).parameters[0].shard.grad is None
            result = verdict.skipped, unchanged, after.skipped, alone
            close(model)
            return result

        self.assertEqual(world.run_ranks(2, body), [(True, True, False, True)] * 2)

    def test_external_wants_external_parameters(self):
        def body(_):
            model = mt.shard(net())
            said = sentence(mxs.errors.InvalidArgumentError, mt.external(model).__enter__)
            close(model)
            model = mt.shard(net(), rule=lambda name, _: 'external' if name == 'extra' else 'adamw')
            backward(model, 0, 0)
            more = sentence(mxs.errors.InvalidArgumentError, mt.external(model).__enter__)
            close(model)
            return said, more

        said, more = world.run_ranks(1, body)[0]
        self.assertIn('no external parameters', said)
        self.assertIn('make its matrixshard.torch.Optimizer first', more)
