# SPDX-License-Identifier: Apache-2.0
"""State dicts of sharded models: to one rank and back, for any world; and models that begin on the meta device."""
import io
import unittest

import torch
import torch_models
import world
from torch import nn

import matrixshard
import matrixshard.torch as mt


def plain_state(**options):
    return torch_models.small_gpt(**options).state_dict()


class Stack(nn.Module):
    """Experts in one tensor, a large table and odd shapes: pieces of all kinds."""

    def __init__(self):
        super().__init__()
        self.experts = nn.Parameter(torch.empty(6, 16, 32))
        self.table = nn.Embedding(701, 37)
        self.scale = nn.Parameter(torch.empty(()))
        self.empty = nn.Parameter(torch.empty(0, 4))
        self.register_buffer('counts', torch.arange(5))
        self.reset_parameters()

    def reset_parameters(self):
        with torch.no_grad():
            for parameter in (self.experts, self.scale):
                parameter.copy_(torch.randn(parameter.shape))

    def forward(self, x):
        return (self.experts.sum(0) * self.scale).sum() + self.table(x).sum()


def stack():
    torch.manual_seed(3)
    return Stack()


class StateDicts(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def assert_equal(self, found, expected):
        self.assertEqual(list(found), list(expected))
        for name, value in expected.items():
            self.assertEqual(found[name].shape, value.shape, name)
            self.assertTrue(torch.equal(found[name], value.to(found[name].dtype)), name)

    def test_a_full_state_dict_is_the_plain_models_on_one_rank_and_empty_on_others(self):
        for build in (torch_models.small_gpt, lambda: torch_models.small_gpt(tied=False), stack):
            for ranks in (1, 2, 3, 4):
                with self.subTest(ranks=ranks):
                    def body(rank, build=build, ranks=ranks):
                        model = mt.shard(build(), plan={'flat_bytes': 4096})
                        return mt.full_state_dict(model, rank=ranks - 1)

                    results = world.run_ranks(ranks, body)
                    self.assertEqual(results[:-1], [{}] * (ranks - 1))
                    self.assert_equal(results[-1], build().state_dict())

    def test_shards_of_all_ranks_together_have_each_matrix_once(self):
        def body(rank):
            model = mt.shard(torch_models.small_gpt())
            return {name: value.clone() for name, value in mt.state_dict(model).items()}

        results = world.run_ranks(3, body)
        plain = plain_state()
        for name, value in plain.items():
            if value.dim() == 2 and name.startswith('blocks.'):
                self.assertEqual(sum(name in one for one in results), 1, name)
                self.assertTrue(torch.equal(next(one[name] for one in results if name in one), value))

    def test_loading_a_full_state_dict_on_other_worlds(self):
        new = torch_models.small_gpt(seed=7)

        def body(rank):
            model = mt.shard(torch_models.small_gpt(), dtype=torch.bfloat16)
            mt.load_full_state_dict(model, new.state_dict() if rank == 1 else None, rank=1)
            tokens, targets = torch_models.batch(0)
            with torch.no_grad():
                loss = model(tokens, targets).item()
            return loss, mt.full_state_dict(model), mt.full_state_dict(model, dtype=torch.bfloat16)

        for ranks in (2, 4):
            results = world.run_ranks(ranks, body)
            self.assertEqual(len({loss for loss, _, _ in results}), 1)
            self.assert_equal(results[0][1], new.state_dict())
            self.assertEqual({value.dtype for value in results[0][2].values()}, {torch.bfloat16})

    def test_torchs_own_state_dict_keeps_shards(self):
        def body(rank):
            model = mt.shard(torch_models.small_gpt())
            file = io.BytesIO()
            torch.save(model.state_dict(), file)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()
            mt.commit(model)
            zero = mt.full_state_dict(model)
            file.seek(0)
            model.load_state_dict(torch.load(file))
            tokens, targets = torch_models.batch(0)
            with torch.no_grad():
                loss = model(tokens, targets).item()
            return zero, mt.full_state_dict(model), loss

        zero, again, loss = world.run_ranks(2, body)[0]
        self.assertTrue(all(not value.any() for value in zero.values()))
        self.assert_equal(again, plain_state())
        self.assertEqual(loss, torch_models.small_gpt()(*torch_models.batch(0)).item())

    def test_state_dicts_that_do_not_fit_are_refused_on_all_ranks(self):
        def body(rank, change):
            model = mt.shard(torch_models.small_gpt())
            state = plain_state()
            change(state)
            try:
                mt.load_full_state_dict(model, state if rank == 0 else None)
            except matrixshard.InvalidArgumentError as error:
                return str(error), mt.full_state_dict(model)
            return 'nothing', None

        def without(state):
            del state['blocks.1.up.weight']

        def of_another_shape(state):
            state['norm_f.weight'] = torch.zeros(3)

        def with_one_more(state):
            state['extra'] = torch.zeros(3)

        for change, text in ((without, r'blocks\.1\.up\.weight is missing'),
                             (of_another_shape, r'norm_f\.weight is \(3'), (with_one_more, 'no extra')):
            results = world.run_ranks(2, body, change)
            self.assertRegex(results[0][0], text)
            self.assertRegex(results[1][0], 'rank 0 refused')
            self.assert_equal(results[0][1], plain_state())

    def test_casts_and_moves_of_a_sharded_module_are_refused(self):
        def body(rank):
            model = mt.shard(torch_models.small_gpt())
            model.to('cpu')
            model.float()
            sentences = []
            for change in (model.half, model.double, lambda: model.to('meta'), model.blocks[0].half):
                try:
                    change()
                    sentences.append('nothing')
                except matrixshard.InvalidArgumentError as error:
                    sentences.append(str(error))
            return sentences, mt.full_state_dict(model)

        sentences, state = world.run_ranks(1, body)[0]
        for sentence in sentences:
            self.assertRegex(sentence, 'cannot be cast or moved')
        self.assert_equal(state, plain_state())

    def test_unshard_gives_the_plain_module_back(self):
        def body(rank):
            model = mt.unshard(mt.shard(torch_models.small_gpt()))
            model(*torch_models.batch(0)).backward()
            model.double()
            again = mt.shard(torch_models.small_gpt())
            return model.float().state_dict(), model.lm_head.weight is model.wte.weight, mt.full_state_dict(again)

        for state, tied, again in world.run_ranks(2, body):
            self.assertTrue(tied)
            self.assert_equal(state, plain_state())


def meta_gpt(**options):
    with MetaDevice():
        return torch_models.GPT(**options)


class MetaDevice:
    """torch.device as a context manager is newer than PyTorch 1.13."""

    def __enter__(self):
        self.parameter_init = nn.Module.register_parameter

        def register(module, name, parameter):
            if parameter is not None and parameter.device.type != 'meta':
                parameter = nn.Parameter(parameter.detach().to('meta'), requires_grad=parameter.requires_grad)
            self.parameter_init(module, name, parameter)

        nn.Module.register_parameter = register

    def __exit__(self, *_):
        nn.Module.register_parameter = self.parameter_init


class MetaModels(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def test_first_weights_are_the_same_in_every_world_and_differ_by_name_and_seed(self):
        def body(rank, seed):
            model = mt.shard(meta_gpt(), seed=seed)
            return mt.full_state_dict(model)

        one = world.run_ranks(1, body, 5)[0]
        for ranks in (2, 4):
            other = world.run_ranks(ranks, body, 5)[0]
            self.assertEqual(list(one), list(other))
            for name, value in one.items():
                self.assertTrue(torch.equal(value, other[name]), name)
        self.assertFalse(torch.equal(one['blocks.0.up.weight'], one['blocks.1.up.weight']))
        self.assertFalse(torch.equal(one['blocks.0.up.weight'], world.run_ranks(1, body, 6)[0]['blocks.0.up.weight']))
        self.assertTrue(torch.equal(one['norm_f.weight'], torch.ones(32)))
        self.assertAlmostEqual(one['wte.weight'].std().item(), 1.0, delta=0.1)
        self.assertLess(one['blocks.0.up.weight'].abs().max().item(), 32 ** -0.5 + 1e-6)

    def test_the_callers_own_initialisation_and_random_numbers(self):
        def body(rank):
            names = []

            def init(name, tensor):
                names.append(name)
                tensor.normal_(0, 0.02) if tensor.dim() > 1 else tensor.fill_(2)

            torch.manual_seed(11)
            model = mt.shard(meta_gpt(), init=init)
            after = torch.rand(1).item()
            owned = {one.name for one in mt.sharded(model).parameters if one.placements}
            return mt.full_state_dict(model), set(names) == owned, after

        results = world.run_ranks(2, body)
        state = results[0][0]
        self.assertTrue(all(drew_its_own for _, drew_its_own, _ in results))
        self.assertAlmostEqual(state['blocks.2.qkv.weight'].std().item(), 0.02, delta=0.003)
        self.assertTrue(torch.equal(state['blocks.2.qkv.bias'], torch.full((96,), 2.0)))
        torch.manual_seed(11)
        self.assertEqual({after for _, _, after in results}, {torch.rand(1).item()})

    def test_a_module_without_reset_parameters_is_refused_by_name(self):
        class Odd(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.empty(4, 4, device='meta'))

        def body(rank):
            try:
                mt.shard(nn.Sequential(nn.Linear(4, 4), Odd()))
            except matrixshard.InvalidArgumentError as error:
                return str(error)
            return 'nothing'

        for sentence in world.run_ranks(2, body):
            self.assertRegex(sentence, r'1 \(Odd\) has parameters .* no reset_parameters\(\): pass init=')


if __name__ == '__main__':
    unittest.main()
