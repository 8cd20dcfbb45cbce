# SPDX-License-Identifier: Apache-2.0
"""shard(): forward and backward of a sharded module give the plain module's outputs and gradients, and leave units as
they should be, whatever happens in between."""
import contextlib
import copy
import os
import pickle
import unittest

import torch
import torch_models
import world
from torch import nn
from torch.utils.checkpoint import checkpoint

import matrixshard
import matrixshard.torch as mt


def gradients_of(model):
    """Sums at this rank's owners: {name: [(offset, values)]}."""
    made = mt.sharded(model)
    found = {}
    for parameter in made.parameters:
        for number in parameter.placements:
            view = parameter.unit.unit.shard_gradient(number)
            if view.bytes:
                placement = made.plan.placement(number)
                found.setdefault(parameter.name, []).append(
                    (placement.element_offset, torch.utils.dlpack.from_dlpack(view.__dlpack__()).reshape(-1).tolist()))
    return found


def whole_gradients(of_ranks):
    """The same of all ranks, put together: {name: tensor}."""
    pieces = {}
    for one in of_ranks:
        for name, parts in one.items():
            pieces.setdefault(name, []).extend(parts)
    return {name: torch.tensor([value for _, values in sorted(parts) for value in values])
            for name, parts in pieces.items()}


def plain_gradients(model, ranks, steps=1):
    for step in range(steps):
        for rank in range(ranks):
            model(*torch_models.batch(step, rank)).backward()
    return {name: one.grad.reshape(-1) for name, one in model.named_parameters() if one.grad is not None}


def states(model):
    """Of all units: weights and gradients must be back where they began."""
    return [(unit.info.weights_state, unit.info.gradients_state, unit.info.holders)
            for unit in mt.sharded(model).units]


def at_rest(model):
    for unit in mt.sharded(model).units:
        unit.wait_reduce()
    return all(int(weights) == 0 and int(gradients) == 0 and holders == 0
               for weights, gradients, holders in states(model))


class Sharded(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def test_memory_counts_pools_once_also_in_its_peak(self):
        def body(rank):
            model = mt.shard(torch_models.small_gpt())
            found = mt.sharded(model).memory()
            return found, [unit.memory()._asdict() for unit in mt.sharded(model).units]

        for found, units in world.run_ranks(2, body):
            self.assertGreater(found['slots'], 0)
            self.assertEqual(found['slots'], max(one['slots'] for one in units))
            self.assertEqual(found['rest'], sum(one['rest'] for one in units))
            self.assertEqual(found['peak'], sum(one['rest'] + one['own_slots'] for one in units) + found['slots'] +
                             found['gradient_slots'])

    def compare(self, ranks, steps=1, build=torch_models.small_gpt, backward=None, tolerance=1e-6, turns=True,
                **options):
        """Gradients of a sharded model on some ranks beside the plain one's, which takes all micro-batches."""
        def body(rank):
            torch.set_num_threads(1)
            model = mt.shard(build(), **options)
            for step in range(steps):
                (backward or (lambda model, *batch: model(*batch).backward()))(model, *torch_models.batch(step, rank))
            found = gradients_of(model)
            return found, at_rest(model), mt.sharded(model).comm.stats().slot_remaps

        results = world.run_ranks(ranks, body)
        expected = plain_gradients(build(), ranks, steps)
        found = whole_gradients([one for one, _, _ in results])
        self.assertEqual(sorted(found), sorted(expected))
        for name, gradient in expected.items():
            error = (found[name] - gradient).abs().max() / gradient.abs().max().clamp(min=1e-9)
            self.assertLess(error, tolerance, name)
        self.assertTrue(all(rested for _, rested, _ in results))
        if turns:  # units take their slots in turn, and none is mapped anew
            self.assertEqual([remaps for _, _, remaps in results], [0] * ranks)

    def test_gradients_are_those_of_the_plain_model_in_every_world(self):
        for ranks in (1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                self.compare(ranks, steps=2)

    def test_untied_heads_and_other_choices_of_units(self):
        self.compare(2, build=lambda: torch_models.small_gpt(tied=False), units=torch_models.Block)
        self.compare(2, units=[])
        self.compare(2, units=lambda name, _: name.startswith('blocks.') and name.count('.') == 1 or
                     name.endswith('.up'))

    def test_weights_that_stay_or_are_gathered_by_reference(self):
        self.compare(2, release='pin', slots=5)
        self.compare(2, release='auto', slots=4)

    def test_activation_checkpointing_around_and_inside_of_units(self):
        kinds = [{'use_reentrant': True}]
        if tuple(int(part) for part in torch.__version__.split('.')[:2]) >= (2, 0):
            kinds.append({'use_reentrant': False})
        for kind in kinds:
            def around(block, x, kind=kind):
                return checkpoint(block, x, **kind)

            def inside(block, x, kind=kind):
                return checkpoint(lambda y: block(y) * 1, x, **kind)

            for wrap in (around, inside):
                with self.subTest(kind=kind, wrap=wrap.__name__):
                    self.compare(2, steps=2, build=lambda: torch_models.small_gpt(wrap=wrap))

            def within(kind=kind):
                model = torch_models.small_gpt()
                for block in model.blocks:
                    block.attention = (lambda x, inner=block.attention: checkpoint(inner, x, **kind))
                return model

            with self.subTest(kind=kind, wrap='within'):
                self.compare(2, steps=2, build=within)

    def test_two_units_in_one_checkpoint(self):
        for reentrant in (True, False):
            def in_pairs(blocks, x, reentrant=reentrant):
                for a, b in ((0, 1), (2, 3)):
                    x = checkpoint(lambda y, a=a, b=b: blocks[b](blocks[a](y)), x, use_reentrant=reentrant)
                return x

            with self.subTest(reentrant=reentrant):
                self.compare(2, steps=2, build=lambda: torch_models.small_gpt(run=in_pairs))

    def test_frozen_parameters_beside_trained_ones(self):
        class Adapted(nn.Module):
            """A frozen matrix whose part of backward runs after that of the trained ones beside it."""

            def __init__(self, width=32):
                super().__init__()
                self.base, self.down = nn.Linear(width, width), nn.Linear(width, 2, bias=False)
                self.up = nn.Linear(2, width, bias=False)
                self.base.requires_grad_(False)

            def forward(self, x):
                base = self.base(x)
                return x + torch.tanh(base + self.up(self.down(x)))

        def build():
            model = torch_models.small_gpt()
            torch.manual_seed(5)
            model.blocks = nn.ModuleList(Adapted() for _ in range(4))
            return model

        self.compare(2, steps=2, build=build)
        self.compare(3, steps=1, build=build, slots=2)

    def test_a_module_that_is_called_twice(self):
        def twice(blocks, x):
            for index in (0, 1, 0, 2, 1, 3):
                x = blocks[index](x)
            return x

        self.compare(2, steps=2, build=lambda: torch_models.small_gpt(run=twice), gradient_slots=5, tolerance=2e-6,
                     turns=False)

    def test_several_forwards_before_their_backwards(self):
        def backward(model, tokens, targets):
            first, second = model(tokens[:1], targets[:1]), model(tokens[1:], targets[1:])
            (first / 2).backward()
            (second / 2).backward()

        self.compare(2, steps=2, backward=backward, tolerance=3e-6)

    def test_a_graph_that_is_kept_and_run_again(self):
        def backward(model, *batch):
            loss = model(*batch) / 2
            loss.backward(retain_graph=True)
            loss.backward()

        self.compare(2, steps=2, backward=backward, tolerance=3e-6)

    def test_no_sync_adds_up_before_anything_is_sent(self):
        def body(rank):
            torch.set_num_threads(1)
            model = mt.shard(torch_models.small_gpt())
            made = mt.sharded(model)
            with mt.no_sync(model):
                model(*torch_models.batch(0, rank)).backward()
            sent = made.comm.stats().reduce.backward.calls
            model(*torch_models.batch(1, rank)).backward()
            return gradients_of(model), sent, at_rest(model)

        results = world.run_ranks(2, body)
        self.assertEqual([sent for _, sent, _ in results], [0, 0])
        self.assertTrue(all(rested for _, _, rested in results))
        expected = plain_gradients(torch_models.small_gpt(), 2, 2)
        for name, gradient in whole_gradients([one for one, _, _ in results]).items():
            torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6)

    def test_parameters_are_shards_outside_and_whole_inside(self):
        def body(rank):
            torch.set_num_threads(1)
            plain = torch_models.small_gpt()
            model = mt.shard(torch_models.small_gpt())
            made = mt.sharded(model)
            inside = []
            model.blocks[0].out.register_forward_pre_hook(lambda module, _: inside.append(module.weight.shape))
            tokens, targets = torch_models.batch(0, 0)
            with torch.no_grad():
                same = torch.equal(model(tokens), plain(tokens))
            shapes = {name: tuple(one.shape) for name, one in model.named_parameters()}
            owned = {one.name for one in made.parameters if one.placements}
            right = all(shape == (0,) for name, shape in shapes.items() if name not in owned)
            values = all(torch.equal(one.reshape(-1), plain.get_parameter(name).reshape(-1))
                         for name, one in model.named_parameters()
                         if shapes[name] == tuple(plain.get_parameter(name).shape))
            repr(model)
            return same, right, values, tuple(inside[0]), len(owned)

        results = world.run_ranks(2, body)
        for same, right, values, inside, owned in results:
            self.assertTrue(same and right and values)
            self.assertEqual(inside, (32, 32))
            self.assertGreater(owned, 10)

    def test_evaluation_under_no_grad_and_inference_mode_before_training(self):
        def body(rank):
            torch.set_num_threads(1)
            model = mt.shard(torch_models.small_gpt())
            tokens, targets = torch_models.batch(0, rank)
            with torch.inference_mode():
                first = model(tokens, targets).item()
            model.eval()
            with torch.no_grad():
                second = model(tokens, targets).item()
            model.train()
            model(tokens, targets)  # recorded, and never run backward
            loss = model(tokens, targets)
            loss.backward()
            return first == second == loss.item(), at_rest(model), sorted(gradients_of(model))

        for same, rested, _ in world.run_ranks(2, body):
            self.assertTrue(same and rested)

    def test_an_exception_inside_forward_leaves_units_usable(self):
        def body(rank):
            torch.set_num_threads(1)
            model = mt.shard(torch_models.small_gpt())
            batch = torch_models.batch(0, rank)
            model(*batch)
            fail = [True]

            def hook(*_):
                if fail[0]:
                    raise RuntimeError('planted')

            model.blocks[2].up.register_forward_hook(hook)
            try:
                model(*batch)
                return 'no exception'
            except RuntimeError as error:
                text = str(error)
            rested = at_rest(model)
            shards = all(tuple(one.shape) == tuple(one._matrixshard.shard.shape) for one in model.parameters())
            fail[0] = False
            model(*batch).backward()
            return text, rested, shards, at_rest(model), gradients_of(model)

        results = world.run_ranks(2, body)
        for text, rested, shards, again, _ in results:
            self.assertEqual((text, rested, shards, again), ('planted', True, True, True))
        self.check_sums([one[-1] for one in results])

    def test_an_exception_inside_backward_leaves_units_usable(self):
        def body(rank, where):
            torch.set_num_threads(1)
            model = mt.shard(torch_models.small_gpt())
            batch = torch_models.batch(0, rank)
            fail = [True]

            class Planted(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return x.clone()

                @staticmethod
                def backward(ctx, gradient):
                    if fail[0]:
                        raise RuntimeError('planted')
                    return gradient

            module = model.blocks[where].up
            module.register_forward_hook(lambda _module, _inputs, output: Planted.apply(output))
            try:
                model(*batch).backward()
                return 'no exception'
            except RuntimeError as error:
                text = str(error)
            fail[0] = False
            made = mt.sharded(model)
            made.runtime.notice_failed_backward()
            for unit in made.units:
                unit.wait_reduce()
            rested = at_rest(model)
            for unit in made.units:  # what was reduced before the exception is in the sums
                pass
            before = gradients_of(model)
            model(*batch).backward()
            after = gradients_of(model)
            return text, rested, at_rest(model), before, after

        for where in (0, 2, 3):
            results = world.run_ranks(2, body, where)
            for text, rested, again, _, _ in results:
                self.assertEqual((text, rested, again), ('planted', True, True))
            before, after = (whole_gradients([one[place] for one in results]) for place in (3, 4))
            self.check_tensors({name: after[name] - before[name] for name in after})

    def check_sums(self, of_ranks):
        self.check_tensors(whole_gradients(of_ranks))

    def check_tensors(self, found):
        expected = plain_gradients(torch_models.small_gpt(), 2)
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=name)

    def test_bf16_weights_with_masters(self):
        def body(rank):
            torch.set_num_threads(1)
            model = mt.shard(torch_models.small_gpt(), dtype=torch.bfloat16)
            kinds = []
            model.blocks[0].out.register_forward_pre_hook(lambda module, _: kinds.append(module.weight.dtype))
            loss = model(*torch_models.batch(0, rank))
            loss.backward()
            return loss.item(), str(kinds[0]), {str(one.dtype) for one in model.parameters()}, gradients_of(model)

        results = world.run_ranks(2, body)
        plain = torch_models.small_gpt()
        for rank, (loss, kind, shards, _) in enumerate(results):
            self.assertAlmostEqual(loss, plain(*torch_models.batch(0, rank)).item(), delta=0.05)
            self.assertEqual((kind, shards), ('torch.bfloat16', {'torch.float32'}))
        found = whole_gradients([one[-1] for one in results])
        expected = plain_gradients(plain, 2)
        for name, gradient in expected.items():
            self.assertLess((found[name] - gradient).norm() / gradient.norm(), 0.1, name)


class Refused(unittest.TestCase):
    """Bad input: each a typed exception with a sentence, on all ranks."""

    def alone(self, body):
        return world.run_ranks(1, lambda rank: body())[0]

    def refused(self, body, kind, text):
        def guarded():
            torch.set_num_threads(1)
            try:
                body()
            except matrixshard.MatrixShardError as error:
                return type(error).__name__, str(error)
            except Exception as error:  # pylint: disable=broad-except
                return type(error).__name__, str(error)
            return 'nothing', ''

        name, sentence = self.alone(guarded)
        self.assertEqual(name, kind, sentence)
        self.assertRegex(sentence, text)

    def test_sharding_twice(self):
        def twice():
            model = mt.shard(torch_models.small_gpt())
            mt.shard(model)

        def a_part():
            model = mt.shard(torch_models.small_gpt())
            mt.shard(model.blocks[0])

        def around():
            model = mt.shard(torch_models.small_gpt())
            mt.shard(nn.Sequential(model))

        for body in (twice, a_part, around):
            self.refused(body, 'InvalidArgumentError', 'sharded already')

    def test_ties_across_units(self):
        def body():
            model = torch_models.small_gpt()
            model.blocks[0].up.weight = model.blocks[1].up.weight
            mt.shard(model)

        self.refused(body, 'InvalidArgumentError', r'blocks\.1\.up\.weight is tied to blocks\.0.* in one unit')
        self.refused(lambda: mt.shard(torch_models.small_gpt(), units=lambda name, _: name == 'wte'),
                     'InvalidArgumentError', 'put both modules in one unit')

    def test_dtypes_and_devices(self):
        self.refused(lambda: mt.shard(torch_models.small_gpt().double()), 'InvalidArgumentError',
                     'float64, which no rule steps')
        self.refused(lambda: mt.shard(torch_models.small_gpt(), dtype=torch.int32), 'InvalidArgumentError', 'int32')
        self.refused(lambda: mt.shard(torch_models.small_gpt(), master_dtype=torch.float64), 'InvalidArgumentError',
                     'master_dtype is torch.float64')

    def test_units_that_are_not_there(self):
        self.refused(lambda: mt.shard(torch_models.small_gpt(), units=nn.Conv2d), 'InvalidArgumentError', 'Conv2d')
        self.refused(lambda: mt.shard(torch_models.small_gpt(), units=[nn.Linear(2, 2)]), 'InvalidArgumentError',
                     'no module of the model')
        self.refused(lambda: mt.shard(torch_models.small_gpt(), units='Block'), 'InvalidArgumentError',
                     "units is the text 'Block': pass a class")
        self.refused(lambda: mt.shard(nn.ReLU()), 'InvalidArgumentError', 'no parameters')
        self.refused(lambda: mt.sharded(nn.ReLU()), 'InvalidArgumentError', 'not sharded')

    def test_tensors_and_rules_that_are_not_there(self):
        self.refused(lambda: mt.shard(torch_models.small_gpt(), tensors={'*.nothing': {'rule': 'adamw'}}),
                     'InvalidArgumentError', 'no parameter matches')
        self.refused(lambda: mt.shard(torch_models.small_gpt(), rule='mion'), 'ValueError', 'mion')

    def test_what_it_is_can_be_printed(self):
        def body(_):
            return repr(mt.sharded(mt.shard(torch_models.small_gpt())))

        for rank, text in enumerate(world.run_ranks(2, body)):
            self.assertRegex(text, fr'^<ShardedModel: \w+, \d+ parameters in \d+ units, rank {rank} of 2>$')

    def test_copies_and_pickles(self):
        self.refused(lambda: copy.deepcopy(mt.shard(torch_models.small_gpt())), 'TypeError', 'copied')
        self.refused(lambda: pickle.dumps(mt.sharded(mt.shard(torch_models.small_gpt()))), 'TypeError',
                     'belongs to this process')

    def test_a_forked_child_is_refused(self):
        def body():
            torch.set_num_threads(1)
            model = mt.shard(torch_models.small_gpt())
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                with contextlib.suppress(Exception):
                    try:
                        model(*torch_models.batch(0))
                        os.write(writer, b'nothing')
                    except matrixshard.ForkedError as error:
                        os.write(writer, str(error).encode())
                os._exit(0)
            os.waitpid(child, 0)
            raise matrixshard.ForkedError(os.read(reader, 1000).decode())

        self.refused(body, 'ForkedError', 'parent')


if __name__ == '__main__':
    unittest.main()
