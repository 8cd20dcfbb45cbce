# SPDX-License-Identifier: Apache-2.0
"""What is easily done wrong with a sharded module: right gradients where it can be had, else a typed exception with a
sentence, on all ranks, and units that are usable afterwards. Nothing here may give wrong numbers, hang or crash."""
import copy
import io
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import torch
import torch_models
import world
from torch import nn

import matrixshard
import matrixshard.torch as mt

WIDTH = 16
HAS_VERSIONS = hasattr(torch._C._autograd, '_unsafe_set_version_counter')


class Layer(nn.Module):
    """give: what forward makes of its result."""

    def __init__(self, give=None):
        super().__init__()
        self.linear, self.give = nn.Linear(WIDTH, WIDTH), give

    def forward(self, x):
        y = x + torch.tanh(self.linear(x))
        return self.give(y) if self.give else y


class Net(nn.Module):
    """Layers and a head. go: forward of the layers, instead of one after the other."""

    def __init__(self, make=Layer, go=None, layers=4):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(make() for _ in range(layers))
        self.head, self.go = nn.Linear(WIDTH, WIDTH), go

    def forward(self, x):
        if self.go:
            x = self.go(self.layers, x)
        else:
            for layer in self.layers:
                x = layer(x)
        return self.head(x).square().sum()


def inputs(rank):
    return torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(rank))


def sums_of(model):
    """This rank's owned sums: {(tensor, offset): values}."""
    made = mt.sharded(model)
    return {(one.name, made.plan.placement(number).element_offset):
            torch.utils.dlpack.from_dlpack(one.unit.unit.shard_gradient(number).__dlpack__()).reshape(-1).tolist()
            for one in made.parameters for number in one.placements}


def outcome(call):
    """('fine', '') or what was raised."""
    try:
        call()
    except BaseException as error:  # pylint: disable=broad-except
        return type(error).__name__, str(error)
    return 'fine', ''


def trains(model, rank):
    """A step's gradients, after the sums before are thrown away."""
    for unit in mt.sharded(model).units:
        unit.wait_reduce()
    before = sums_of(model)
    model(inputs(rank)).backward()
    after = sums_of(model)
    return {key: [new - old for new, old in zip(after[key], before[key])] for key in after}


class Case(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def check(self, of_ranks, build=Net, tolerance=1e-5):
        """Sums of all ranks beside the gradients of the plain module, which takes all inputs."""
        plain = build()
        for rank in range(len(of_ranks)):
            plain(inputs(rank)).backward()
        found = {}
        for one in of_ranks:
            for (name, offset), values in one.items():
                found.setdefault(name, []).append((offset, values))
        for name, parameter in plain.named_parameters():
            if parameter.grad is None:
                continue
            mine = torch.tensor([value for _, values in sorted(found[name]) for value in values])
            torch.testing.assert_close(mine, parameter.grad.reshape(-1), rtol=tolerance, atol=tolerance, msg=name)

    def compare(self, build, **options):
        def body(rank):
            model = mt.shard(build(), **options)
            model(inputs(rank)).backward()
            return sums_of(model)

        self.check(world.run_ranks(2, body), build)

    def refused(self, body, kind, text, ranks=2, **options):
        """On all ranks alike."""
        for name, sentence in world.run_ranks(ranks, lambda rank: outcome(lambda: body(rank)), **options):
            self.assertEqual(name, kind, sentence)
            self.assertRegex(sentence, text)


class Outputs(Case):
    """What forward gives back tells when backward begins."""

    def test_tensors_are_found_in_attributes_of_plain_objects(self):
        class Result:
            def __init__(self, value):
                self.value = [value]

        def go(layers, x):
            for layer in layers:
                x = layer(x).value[0]
            return x

        self.compare(lambda: Net(lambda: Layer(Result), go))

    def test_generators_are_refused(self):
        def give(y):
            yield y

        def go(layers, x):
            for layer in layers:
                x = sum(layer(x))
            return x

        self.refused(lambda rank: mt.shard(Net(lambda: Layer(give), go))(inputs(rank)), 'InvalidArgumentError',
                     r'unit 0 \(layers\.0\): forward gave a generator')

    def test_results_that_are_left_elsewhere_are_refused_in_backward(self):
        kept = []

        def go(layers, x):
            for layer in layers:
                layer(x)
                x = kept.pop()
            return x

        def body(rank):
            mt.shard(Net(lambda: Layer(kept.append), go))(inputs(rank)).backward()

        results = world.run_ranks(2, lambda rank: outcome(lambda: body(rank)))
        for name, sentence in results:
            if name == 'InvalidArgumentError':
                self.assertIn('return what the loss needs as tensors', sentence)
            else:  # autograd's own, which sees the weights' version
                self.assertEqual((name, HAS_VERSIONS), ('RuntimeError', True), sentence)

    def test_modules_that_write_into_their_inputs_and_outputs(self):
        class InPlace(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(WIDTH, WIDTH)

            def forward(self, x):
                return x.add_(self.linear(x.clone()))

        def go(layers, x):
            x = x * 1
            for layer in layers:
                x = layer(x).mul_(1.1)
            return x

        self.compare(lambda: Net(InPlace, go))


class Graphs(Case):
    def test_backward_through_backward_is_refused_and_the_model_stays_usable(self):
        def body(rank):
            model = mt.shard(Net())
            x = inputs(rank).requires_grad_()
            told = outcome(lambda: torch.autograd.grad(model(x), x, create_graph=True))
            return told, trains(model, rank)

        results = world.run_ranks(2, body)
        for (name, sentence), _ in results:
            self.assertEqual(name, 'NotBuiltError', sentence)
            self.assertIn('create_graph=True', sentence)
        self.check([sums for _, sums in results])

    def test_gradients_inside_of_one_forward_may_be_differentiated(self):
        class Inner(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(WIDTH, WIDTH)

            def forward(self, x):
                z = x.detach().requires_grad_()
                gradient, = torch.autograd.grad(torch.tanh(self.linear(z)).sum(), z, create_graph=True)
                return x + gradient

        self.compare(lambda: Net(Inner))

    def test_a_graph_from_before_a_step_is_refused(self):
        def body(rank):
            model = mt.shard(Net())
            optimizer = mt.Optimizer(model, lr=1e-2)
            model(inputs(rank)).backward()
            loss = model(inputs(rank))
            optimizer.step()
            loss.backward()

        self.refused(body, 'RuntimeError', 'modified by an inplace operation')

    def test_a_loss_of_shards_is_refused(self):
        def body(rank):
            model = mt.shard(Net())
            (model(inputs(rank)) + sum(one.square().sum() for one in model.parameters())).backward()

        self.refused(body, 'InvalidArgumentError', 'used outside of the forward', ranks=1)

    def test_evaluation_and_zero_grad_between_forward_and_backward(self):
        def body(rank):
            model = mt.shard(Net())
            optimizer = mt.Optimizer(model, lr=1e-2)
            loss = model(inputs(rank))
            with torch.no_grad():
                model(inputs(7))
            optimizer.zero_grad()
            loss.backward()
            return sums_of(model)

        self.check(world.run_ranks(2, body))

    def test_a_step_inside_of_forward_is_refused(self):
        def body(rank):
            model = mt.shard(Net())
            optimizer = mt.Optimizer(model, lr=1e-2)
            model.layers[1].linear.register_forward_pre_hook(lambda *_: optimizer.step())
            model(inputs(rank))

        self.refused(body, 'HeldError', 'release it before')


class Modules(Case):
    def test_hooks_of_torch_that_compute_a_unit_s_weight_are_refused(self):
        def normed():
            return nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH))

        self.refused(lambda rank: mt.shard(Net(normed)), 'InvalidArgumentError', 'has SpectralNorm of torch.nn.utils')

    def test_parametrized_modules_as_units(self):
        class Symmetric(nn.Module):
            def forward(self, x):
                return x.triu() + x.triu(1).T

        def build():
            linear = nn.Linear(WIDTH, WIDTH)
            nn.utils.parametrize.register_parametrization(linear, 'weight', Symmetric())
            return linear

        self.compare(lambda: Net(build))

    def test_requires_grad_after_shard_is_refused_until_it_is_put_back(self):
        def body(rank):
            model = mt.shard(Net())
            model.layers[0].requires_grad_(False)
            told = outcome(lambda: model(inputs(rank)))
            model.layers[0].requires_grad_(True)
            return told, trains(model, rank)

        results = world.run_ranks(2, body)
        for (name, sentence), _ in results:
            self.assertEqual(name, 'InvalidArgumentError', sentence)
            self.assertRegex(sentence, r'layers\.0\.linear\.weight: requires_grad was set to False after shard')
        self.check([sums for _, sums in results])

    def test_parameters_that_are_replaced_are_refused_until_they_are_put_back(self):
        def body(rank):
            model = mt.shard(Net())
            told = []
            if hasattr(torch, 'func'):  # PyTorch 1.13 has another one, which works
                zeros = {name: torch.zeros(one.shape) for name, one in Net().named_parameters()}
                told.append(outcome(lambda: torch.func.functional_call(model, zeros, (inputs(rank),))))
            before = model.head.bias
            model.head.bias = nn.Parameter(torch.ones(WIDTH))
            told.append(outcome(lambda: model(inputs(rank))))
            model.head.bias = before
            return told, trains(model, rank)

        results = world.run_ranks(2, body)
        for told, _ in results:
            for name, sentence in told:
                self.assertEqual(name, 'InvalidArgumentError', sentence)
                self.assertIn('was replaced after shard()', sentence)
        self.check([sums for _, sums in results])

    def test_parameters_on_a_gpu_are_refused_in_one_sentence(self):
        class OnGpu(nn.Parameter):
            device = torch.device('cuda', 1)

        model = Net()
        model.layers[1].linear.weight = OnGpu(torch.zeros(WIDTH, WIDTH))
        with self.assertRaisesRegex(matrixshard.NotBuiltError, r'^layers\.1\.linear\.weight is on cuda:1: matrixshard'
                                    r'\.torch shards models in CPU memory only.* on the cpu or the meta device$'):
            mt.shard(model, units=Layer)  # before ranks meet

    def test_sharded_modules_are_neither_copied_nor_pickled(self):
        def body(rank):
            model = mt.shard(Net())
            told = [outcome(lambda one=one, how=how: how(one))
                    for one in (model, model.layers, model.layers[1])
                    for how in (copy.deepcopy, lambda one: torch.save(one, io.BytesIO()))]
            plain = mt.unshard(model)
            copy.deepcopy(plain)
            return told

        for name, sentence in world.run_ranks(1, body)[0]:
            self.assertEqual(name, 'TypeError', sentence)
            self.assertIn('can be neither pickled nor copied', sentence)

    def test_slots_that_no_step_could_do_with(self):
        self.refused(lambda rank: mt.shard(Net(), gradient_slots=1), 'InvalidArgumentError',
                     '2 units have gradients open at a time')
        self.refused(lambda rank: mt.shard(Net(), release='pin'), 'InvalidArgumentError', 'pass slots=4')
        self.refused(lambda rank: mt.shard(Net(), release='later'), 'InvalidArgumentError', '"free", "pin" or "auto"')
        self.compare(Net, slots=1, gradient_slots=2)

    def test_models_that_differ_between_ranks(self):
        def body(rank):
            model = Net()
            if rank == 1:
                model.layers[2].linear = nn.Linear(WIDTH, WIDTH + 1)
            mt.shard(model)

        self.refused(body, 'MismatchError', r'layers\.2\.linear\.weight')


class Ends(Case):
    def test_a_rank_that_is_killed_is_an_exception_on_the_others(self):
        for where in ('forward', 'backward', 'step'):
            def body(rank, where=where):
                model = mt.shard(Net())
                optimizer = mt.Optimizer(model, lr=1e-2)

                def die(*_):
                    if rank == 1:
                        os.kill(os.getpid(), signal.SIGKILL)

                if where == 'forward':
                    model.layers[2].linear.register_forward_pre_hook(die)
                loss = model(inputs(rank))
                if where == 'backward':
                    loss.register_hook(die)
                begin = time.monotonic()

                def rest():
                    loss.backward()
                    if where == 'step':
                        die()
                    optimizer.step()
                    model(inputs(rank))

                return outcome(rest), time.monotonic() - begin

            def guarded(rank, body=body):
                try:
                    return body(rank)
                except matrixshard.MatrixShardError as error:
                    return (type(error).__name__, str(error)), 0

            with self.subTest(where=where):
                results = world.run_ranks(3, guarded, may_die=[1])
                self.assertIsNone(results[1])
                for (name, sentence), _ in (results[0], results[2]):
                    self.assertEqual(name, 'PeerFailedError', sentence)
                    self.assertIn('rank 1', sentence)

    def test_a_program_that_ends_with_a_graph_alive_says_nothing(self):
        program = ('import test_torch_misuse as t\nmodel = t.mt.shard(t.Net())\noptimizer = t.mt.Optimizer(model)\n'
                   'loss = model(t.inputs(0))\nloss.backward()\nloss = model(t.inputs(0))\n')
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        done = subprocess.run([sys.executable, '-B', '-c', program], capture_output=True, text=True, timeout=120,
                              check=False, env={**os.environ, **world.rank_environment(0, 1, world.free_port()),
                                                'PYTHONPATH': path})
        self.assertEqual((done.returncode, done.stderr), (0, ''))


if __name__ == '__main__':
    unittest.main()
