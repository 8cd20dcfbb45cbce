# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of sharded models of PyTorch: a GPT saved by 2 ranks trains on in 1, 2 and 3 with the bits that it would
have had; buffers, groups, random state; models of others; what is refused. An independent reader, and the safetensors
package where it is, find the model's own names and values."""
import collections
import json
import os
import pathlib
import random
import shutil
import struct
import tempfile
import unittest

import safetensors_files as files
import torch
import torch_models
import world
from torch import nn

import matrixshard
import matrixshard.torch as mt
from matrixshard.torch import _checkpoint

MICRO_BATCHES = 6


class WithBuffers(torch_models.GPT):
    """A GPT with buffers of several kinds: counted, of no dimension, in bf16, and one that is not to be saved."""

    def __init__(self, **options):
        super().__init__(**options)
        self.register_buffer('seen', torch.zeros((), dtype=torch.int64))
        self.register_buffer('mean', torch.zeros(5, dtype=torch.bfloat16))
        self.register_buffer('mask', torch.ones(3, 3).tril().bool())
        self.register_buffer('cache', torch.zeros(2), persistent=False)

    def forward(self, tokens, targets=None):
        with torch.no_grad():
            self.seen.add_(tokens.shape[0])
            self.mean.add_(1)
        return super().forward(tokens, targets)


def build(seed=0, **options):
    torch.manual_seed(seed)
    return WithBuffers(layers=2, **options)


def make(rank_order=True, dtype=None, **options):
    model = mt.shard(build(**options), rank_order=rank_order, dtype=dtype, plan={'flat_bytes': 4096})
    optimizer = mt.Optimizer(model, lr=0.01, weight_decay=0.1, preset='torch-muon', backend='reference',
                             others={'lr': 3e-3, 'betas': (0.9, 0.95)}, gradient_scale=1 / MICRO_BATCHES)
    return model, optimizer


def train(model, optimizer, first, last, schedule=None):
    """{(step, micro-batch): loss} of this rank. Micro-batch j is rank j mod p's."""
    comm = mt.sharded(model).comm
    losses = {}
    for step in range(first, last):
        for micro in range(comm.rank, MICRO_BATCHES, comm.rank_count):
            loss = model(*torch_models.batch(step, micro))
            loss.backward()
            losses[step, micro] = loss.item()
        optimizer.clip_grad_norm_(0.5)
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return losses


def half_life(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


def merged(results):
    return {key: loss for one in results for key, loss in one.items()}


class TorchCheckpoint(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        self.path = tempfile.mkdtemp(prefix='mxs-checkpoint-')
        self.addCleanup(shutil.rmtree, self.path, ignore_errors=True)

    def run_ranks(self, ranks, body, *arguments):
        def alone(rank):
            torch.set_num_threads(1)
            return body(rank, *arguments)
        return world.run_ranks(ranks, alone, timeout=120)

    def refused(self, error, text, call, *arguments, **options):
        with self.assertRaisesRegex(error, text):
            call(*arguments, **options)


class Trained(TorchCheckpoint):
    def test_training_goes_on_in_other_worlds_with_the_bits_that_it_would_have_had(self):
        def whole(rank, dtype):
            model, optimizer = make(dtype=dtype)
            return train(model, optimizer, 0, 6, half_life(optimizer))

        def first(rank, dtype):
            model, optimizer = make(dtype=dtype)
            schedule = half_life(optimizer)
            losses = train(model, optimizer, 0, 3, schedule)
            mt.save_checkpoint(model, self.path, optimizer, user={'schedule': schedule.state_dict(), 'at': rank})
            return losses

        def second(rank, dtype):
            model, optimizer = make(dtype=dtype, seed=99)
            schedule = half_life(optimizer)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()
            mt.commit(model)
            loaded = mt.load_checkpoint(model, self.path)
            self.assertEqual((loaded.missing_keys, loaded.unexpected_keys, loaded.step_number, loaded.has_state),
                             ([], [], 3, True))
            self.assertEqual(optimizer.step_number, 3)
            self.assertEqual(loaded.user['at'], rank if rank < 2 else 0)
            self.assertEqual(loaded.has_random, mt.sharded(model).comm.rank_count == 2)
            schedule.load_state_dict(loaded.user['schedule'])
            self.assertEqual(optimizer.param_groups[1]['betas'], (0.9, 0.95))
            return train(model, optimizer, 3, 6, schedule)

        for dtype in (None, torch.bfloat16):
            expected = merged(self.run_ranks(1, whole, dtype))
            begun = merged(self.run_ranks(2, first, dtype))
            for ranks in (1, 2, 3):
                with self.subTest(ranks=ranks, dtype=dtype):
                    self.assertEqual({**begun, **merged(self.run_ranks(ranks, second, dtype))}, expected)

    def test_a_save_beside_training_is_of_its_start(self):
        def body(rank):
            model, optimizer = make()
            losses = train(model, optimizer, 0, 2)
            saving = mt.start_save(model, self.path, keep=2, user=[rank], random=('torch', 'python'))
            losses.update(train(model, optimizer, 2, 4))
            saving.wait()
            saving.close()
            loaded = mt.load_checkpoint(model, os.path.join(self.path, 'step-00000002'))
            self.assertEqual((loaded.user, int(model.seen)), ([rank], 2 * 2 * MICRO_BATCHES // 2))
            again = train(model, optimizer, 2, 4)
            self.assertEqual({key: losses[key] for key in again}, again)
        self.run_ranks(2, body)

    def test_random_state_is_restored_in_a_world_of_the_same_size_or_where_asked_for(self):
        try:
            import numpy
        except ImportError:
            numpy = None

        def draw():
            return torch.rand(3).tolist(), random.random(), numpy.random.random() if numpy else 0

        def save(rank):
            model, optimizer = make()
            torch.manual_seed(100 + rank)
            random.seed(200 + rank)
            if numpy:
                numpy.random.seed(300 + rank)
            draw()
            mt.save_checkpoint(model, self.path, optimizer, random=('torch', 'python') + (('numpy',) if numpy else ()))
            return draw()

        def load(rank, ask):
            model, optimizer = make()
            torch.manual_seed(1)
            random.seed(1)
            try:
                loaded = mt.load_checkpoint(model, self.path, optimizer, random=ask)
            except matrixshard.MatrixShardError as error:
                return str(error)
            return draw() if loaded.has_random else None

        saved = self.run_ranks(2, save)
        self.assertEqual(self.run_ranks(2, load, None), saved)
        self.assertEqual(self.run_ranks(2, load, False), [None, None])
        self.assertEqual(self.run_ranks(1, load, None), [None])
        self.assertEqual(self.run_ranks(1, load, True), saved[:1])
        for sentence, text in zip(self.run_ranks(3, load, True), ['another rank'] * 2 + ['no rank 2 has saved']):
            self.assertRegex(sentence, text)


    def test_schedules_go_on_from_what_json_has_of_them(self):
        schedules = torch.optim.lr_scheduler

        def body(rank):
            model, optimizer = make()
            for begin in (lambda: schedules.MultiStepLR(optimizer, [2, 4, 5], 0.5),
                          lambda: schedules.CosineAnnealingLR(optimizer, 5),
                          lambda: schedules.SequentialLR(optimizer, [schedules.ConstantLR(optimizer, 0.1, 2),
                                                                     schedules.MultiStepLR(optimizer, [1, 3], 0.5)],
                                                         [2])):
                optimizer.param_groups[0]['lr'] = optimizer.param_groups[0]['initial_lr'] = 0.1
                schedule = begin()
                train(model, optimizer, 0, 1, schedule)
                mt.save_checkpoint(model, self.path, user=schedule.state_dict(), name='it')

                def rates(schedule=schedule):
                    found = []
                    for _ in range(6):
                        schedule.step()
                        found.append(optimizer.param_groups[0]['lr'])
                    return found
                expected = rates()
                schedule = begin()
                loaded = mt.load_checkpoint(model, os.path.join(self.path, 'it'))
                schedule.load_state_dict(loaded.user)
                self.assertEqual(rates(schedule), expected)
                self.assertGreater(len(set(expected)), 1)
            values = {1: {True: None}, 'a': [{2.5: 'b'}], 'matrixshard.items': [[1, 2]], None: {}}
            counted = collections.Counter({'a': 2, 'matrixshard.counter': 1})
            numbers = {'loss': torch.tensor(0.5), 'count': torch.tensor([3])}
            mt.save_checkpoint(model, self.path, user=[values, numbers, counted], name='it')
            loaded = mt.load_checkpoint(model, os.path.join(self.path, 'it'))
            self.assertEqual(loaded.user, [values, {'loss': 0.5, 'count': 3}, counted])
            self.assertIsInstance(loaded.user[2], collections.Counter)
        self.run_ranks(1, body)


class Files(TorchCheckpoint):
    def test_an_independent_reader_finds_the_models_own_names_shapes_and_values(self):
        for dtype, word in ((None, 'F32'), (torch.bfloat16, 'BF16')):
            for ranks in (1, 2, 3):
                with self.subTest(dtype=dtype, ranks=ranks):
                    def body(rank, dtype=dtype, ranks=ranks):
                        model = mt.shard(build(), dtype=dtype)
                        mt.save_checkpoint(model, self.path, name=f'of-{ranks}')
                    self.run_ranks(ranks, body)
                    folder = pathlib.Path(self.path, f'of-{ranks}')
                    expected = dict(build().state_dict())
                    self.assertTrue(torch.equal(expected.pop('lm_head.weight'), expected['wte.weight']))
                    found = files.read_model(folder)
                    self.assertEqual(set(found), set(expected))
                    for name, (own, shape, data) in found.items():
                        value = expected[name]
                        if name in dict(build().named_parameters()):
                            self.assertEqual(own, word)
                            value = value.to(dtype or torch.float32)
                        self.assertEqual(shape, tuple(value.shape))
                        self.assertEqual(data, value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
                                         if value.dim() else struct.pack('<q', int(value)), name)
                    self.read_by_safetensors(folder, expected, dtype)

    def read_by_safetensors(self, folder, expected, dtype):
        try:
            from safetensors.torch import load_file
        except ImportError:
            return
        found = {}
        for path in sorted(folder.glob('model-*.safetensors')):
            found.update(load_file(str(path)))
        self.assertEqual(set(found), set(expected))
        parameters = dict(build().named_parameters())
        for name, value in found.items():
            wanted = expected[name].to(dtype) if dtype and name in parameters else expected[name]
            self.assertTrue(torch.equal(value, wanted), name)

    def test_what_a_rank_gives_is_json(self):
        def body(rank):
            model, optimizer = make()
            mt.save_checkpoint(model, self.path, user={'epoch': 3, 'names': ['a', None, 1.5]})
            self.refused(TypeError, r"user\['at'\]\[1\] is a set", mt.save_checkpoint, model, self.path,
                         user={'at': [0, {1}]})
            self.refused(TypeError, r'user has the key \(1, 2\), a tuple', mt.save_checkpoint, model, self.path,
                         user={(1, 2): 3})
            self.refused(ValueError, "random has 'cuda'", mt.save_checkpoint, model, self.path, random='cuda')
            optimizer.param_groups[0]['odd'] = object()
            self.refused(TypeError, r"param_groups\[0\]\['odd'\] is a object", mt.save_checkpoint, model, self.path)
        self.run_ranks(1, body)
        with matrixshard.Checkpoint(self.path) as checkpoint:
            said = json.loads(checkpoint.user(0))
        self.assertEqual((said['format'], said['version'], said['rank'], said['rank_count']),
                         ('matrixshard.torch', 1, 0, 1))
        self.assertEqual(said['user'], {'epoch': 3, 'names': ['a', None, 1.5]})
        self.assertEqual([group['name'] for group in said['groups']], ['matrices', 'others'])
        self.assertEqual(set(said['random']), {'torch'})

    def test_buffers_of_every_dtype_come_back(self):
        names = ('float64', 'float32', 'float16', 'bfloat16', 'int64', 'int32', 'int16', 'int8', 'uint8', 'bool',
                 'complex64', 'uint16', 'uint32', 'uint64', 'float8_e4m3fn', 'float8_e5m2', 'float8_e8m0fnu')
        dtypes = [getattr(torch, name) for name in names if hasattr(torch, name)]

        def module(seed):
            made = nn.Linear(8, 8)
            for index, dtype in enumerate(dtypes):
                size = torch.empty(0, dtype=dtype).element_size()
                generator = torch.Generator().manual_seed(seed + index)
                most = 2 if dtype == torch.bool else 100
                data = torch.randint(0, most, (6 * size,), generator=generator).to(torch.uint8)
                made.register_buffer(f'b{index}', torch.frombuffer(bytearray(data.numpy().tobytes()), dtype=dtype)
                                     .view(2, 3))
            made.register_buffer('empty', torch.empty(0, 2))
            made.register_buffer('strided', torch.arange(12.0).view(3, 4).t() + seed)
            return made

        def bits(made):
            return {name: bytes(_checkpoint._memory(buffer.contiguous())) for name, buffer in made.named_buffers()}

        def body(rank):
            model = mt.shard(module(rank))
            mt.save_checkpoint(model, self.path)
            other = mt.shard(module(50))
            mt.load_checkpoint(other, self.path)
            self.assertEqual(bits(other), bits(module(0)))
        for ranks in (1, 2):
            self.run_ranks(ranks, body)

    def test_a_dtype_that_safetensors_lacks_is_refused_by_name(self):
        def body(rank):
            module = nn.Linear(4, 4)
            module.register_buffer('wave', torch.zeros(2, dtype=torch.complex128))
            model = mt.shard(module)
            self.refused(matrixshard.InvalidArgumentError, 'the buffer wave is torch.complex128', mt.save_checkpoint,
                         model, self.path)
        self.run_ranks(1, body)


class Loading(TorchCheckpoint):
    def write_model(self, dtype='F32', seed=5, **changes):
        """The GPT as a model of others, with the names that they give: the head beside the embedding."""
        tensors = {}
        for name, value in build(seed).state_dict().items():
            if value.dtype == torch.float32:
                value = value.to({'F32': torch.float32, 'BF16': torch.bfloat16}[dtype])
                tensors[name] = dtype, tuple(value.shape), bytes(_checkpoint._memory(value.contiguous()))
            else:
                tensors[name] = (_checkpoint.WORDS[value.dtype], tuple(value.shape),
                                 bytes(_checkpoint._memory(value.contiguous())))
        tensors.update(changes)
        path = os.path.join(self.path, 'model.safetensors')
        files.write_file(path, {name: one for name, one in tensors.items() if one is not None})
        return path

    def test_a_model_of_others_is_loaded_and_trains(self):
        expected = build(5).state_dict()
        for dtype, options in (('F32', {}), ('BF16', {'other_dtypes': True})):
            for changes in ({}, {'lm_head.weight': None}, {'wte.weight': None}):
                path = self.write_model(dtype, **changes)

                def body(rank, path=path, options=options):
                    model, optimizer = make()
                    loaded = mt.load_checkpoint(model, path, **options)
                    self.assertEqual(loaded, ([], [], 0, None, False, False, self.path))
                    state = {name: value.clone() for name, value in mt.full_state_dict(model).items()}
                    train(model, optimizer, 0, 1)
                    return state
                state = self.run_ranks(2, body)[0]
                self.assertEqual(set(state), set(expected))
                for name, value in state.items():
                    wanted = expected[name] if dtype == 'F32' or value.dtype != torch.float32 else \
                        expected[name].bfloat16().float()
                    self.assertTrue(torch.equal(value, wanted), name)

    def test_what_is_missing_or_too_much_is_an_error_with_names_or_returned(self):
        path = self.write_model(**{'blocks.1.up.weight': None, 'seen': None, 'more': ('F32', (1,), bytes(4))})

        def body(rank):
            model, _ = make()
            before = mt.full_state_dict(model)
            self.refused(matrixshard.NotFoundError,
                         'it lacks blocks.1.up.weight, seen; the model lacks its more: strict=False',
                         mt.load_checkpoint, model, path)
            after = mt.full_state_dict(model)
            self.assertTrue(all(torch.equal(after[name], value) for name, value in before.items()))
            loaded = mt.load_checkpoint(model, path, strict=False)
            self.assertEqual(loaded[:2], (['blocks.1.up.weight', 'seen'], ['more']))
            after = mt.full_state_dict(model)
            return rank or (torch.equal(after['blocks.1.up.weight'], before['blocks.1.up.weight']),
                            torch.equal(after['blocks.0.up.weight'], build(5).state_dict()['blocks.0.up.weight']))
        self.assertEqual(self.run_ranks(2, body), [(True, True), 1])

    def test_other_shapes_and_dtypes_are_refused_on_all_ranks(self):
        for changes, text in (({'norm_f.weight': ('F32', (8,), bytes(32))}, 'norm_f.weight'),
                              ({'mask': ('BOOL', (9,), bytes(9))}, r'mask is \(9,\), but the model has \(3, 3\)'),
                              ({'seen': ('I32', (), bytes(4))}, 'seen is of I32, but the model has it in torch.int64'),
                              ({'mean': ('F32', (5,), bytes(20))}, 'mean is of F32.*other_dtypes=True converts it'),
                              ({'wte.weight': None, 'lm_head.weight': ('F16', (61, 32), bytes(61 * 64))},
                               'lm_head.weight" is F16.*pass other_dtypes=True')):
            path = self.write_model(**changes)

            def body(rank, path=path, text=text):
                model, _ = make()
                self.refused(matrixshard.MismatchError, text, mt.load_checkpoint, model, path)
            self.run_ranks(2, body)

    def test_a_rank_that_cannot_open_it_is_told_to_all(self):
        path = self.write_model()

        def body(rank):
            model, _ = make()
            self.refused(matrixshard.MatrixShardError, 'none|another rank could not open', mt.load_checkpoint, model,
                         path if rank else os.path.join(self.path, 'none'))
            with matrixshard.Checkpoint(path) as checkpoint:
                mt.load_checkpoint(model, checkpoint)
                self.assertFalse(checkpoint.closed)
        self.run_ranks(2, body)

    def test_a_save_and_a_refused_load_leave_gradients_and_graphs_as_they_are(self):
        def other(rank):
            model = mt.shard(build())
            optimizer = mt.Optimizer(model, preset='moonlight')
            mt.save_checkpoint(model, self.path, optimizer, name='moonlight')
        self.run_ranks(2, other)

        def body(rank, disturbed):
            model, optimizer = make()
            with mt.no_sync(model):
                model(*torch_models.batch(0, rank)).backward()
            loss = model(*torch_models.batch(1, rank))
            if disturbed:
                mt.save_checkpoint(model, self.path, name='it')
                for name, error in (('moonlight', matrixshard.MismatchError), ('none', matrixshard.NotFoundError)):
                    self.refused(error, '.', mt.load_checkpoint, model, os.path.join(self.path, name))
            loss.backward()
            optimizer.step()
            return {name: value.tolist() for name, value in mt.full_state_dict(model).items()}
        self.assertEqual(self.run_ranks(2, body, True), self.run_ranks(2, body, False))

    def test_what_one_rank_refuses_is_refused_on_all(self):
        def body(rank):
            model, optimizer = make()
            foreign = torch.optim.SGD(model.parameters(), lr=0.1)
            mt.save_checkpoint(model, self.path, name='good')
            found = []
            for call in (lambda: mt.save_checkpoint(model, self.path, user={1} if rank else 1),
                         lambda: mt.save_checkpoint(model, self.path, random='cuda' if rank else 'torch'),
                         lambda: mt.save_checkpoint(model, self.path, keep='no' if rank else 1),
                         lambda: mt.start_save(model, self.path, foreign if rank else optimizer),
                         lambda: mt.load_checkpoint(model, os.path.join(self.path, 'good'),
                                                    foreign if rank else optimizer)):
                with self.assertRaises((TypeError, ValueError)) as raised:
                    call()
                found.append(type(raised.exception).__name__)
                mt.save_checkpoint(model, self.path, name='after')
            return found
        self.assertEqual(self.run_ranks(2, body), [['InvalidArgumentError'] * 5,
                                                   ['TypeError', 'ValueError'] + ['TypeError'] * 3])

    def test_a_model_that_unties_takes_what_was_shared(self):
        def body(rank):
            model, optimizer = make()
            train(model, optimizer, 0, 1)
            mt.save_checkpoint(model, self.path)
            shared = mt.full_state_dict(model)
            other = mt.shard(build(seed=7, tied=False), plan={'flat_bytes': 4096})
            stepper = mt.Optimizer(other, preset='torch-muon', backend='reference', others={'betas': (0.9, 0.95)})
            self.refused(matrixshard.MismatchError, 'param groups', mt.load_checkpoint, other, self.path)
            for options in ({'weights_only': True}, {'other_optimizer': True}):
                loaded = mt.load_checkpoint(other, self.path, **options)
                self.assertEqual(loaded[:2], ([], []))
            self.assertEqual(stepper.step_number, 1)
            found = mt.full_state_dict(other)
            self.assertTrue(all(torch.equal(found[name], value) for name, value in shared.items()))
            return set(found)
        for ranks in (1, 2):
            self.assertEqual(self.run_ranks(ranks, body)[0], set(build().state_dict()))

    def test_a_buffer_that_modules_share_is_there_once_and_under_each_name(self):
        def module(value):
            shared = torch.full((3,), value)
            made = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
            for one, persistent in zip(made, (False, True, True)):
                one.register_buffer('table', shared, persistent=persistent)
            return made

        def load(rank, path):
            model = mt.shard(module(0.0))
            self.assertEqual(mt.load_checkpoint(model, path)[:2], ([], []))
            self.assertEqual(model[0].table.tolist(), [2.0] * 3)

        def save(rank):
            model = mt.shard(module(2.0))
            mt.save_checkpoint(model, self.path, name='it')
            if not rank:
                self.assertEqual(list(mt.full_state_dict(model)), list(module(0.0).state_dict()))
            else:
                mt.full_state_dict(model)
            with matrixshard.Checkpoint(os.path.join(self.path, 'it')) as checkpoint:
                return [one.name for one in checkpoint if 'table' in one.name]
        self.assertEqual(self.run_ranks(2, save), [['1.table']] * 2)
        self.run_ranks(2, load, os.path.join(self.path, 'it'))
        for left_out in ('', '1.table', '2.table'):
            path = os.path.join(self.path, 'others.safetensors')
            files.write_file(path, {name: ('F32', tuple(value.shape), bytes(_checkpoint._memory(value.contiguous())))
                                    for name, value in module(2.0).state_dict().items() if name != left_out})
            self.run_ranks(1, load, path)

    def test_the_optimizer_is_loaded_unless_it_is_not_to_be(self):
        def body(rank):
            model, optimizer = make()
            train(model, optimizer, 0, 1)
            mt.save_checkpoint(model, os.path.join(self.path, 'whole'))
            mt.save_checkpoint(model, os.path.join(self.path, 'weights'), weights_only=True)
            mt.save_checkpoint(model, os.path.join(self.path, 'masters'), masters=True)
            optimizer.param_groups[0]['lr'] = 0.5
            train(model, optimizer, 1, 2)
            loaded = mt.load_checkpoint(model, os.path.join(self.path, 'whole'), weights_only=True)
            self.assertEqual((loaded.has_state, optimizer.step_number, optimizer.param_groups[0]['lr']),
                             (False, 2, 0.5))
            loaded = mt.load_checkpoint(model, os.path.join(self.path, 'weights'))
            self.assertEqual((loaded.has_state, optimizer.step_number), (False, 2))
            self.refused(matrixshard.MatrixShardError, '.', mt.load_checkpoint, model,
                         os.path.join(self.path, 'weights'), optimizer)
            loaded = mt.load_checkpoint(model, os.path.join(self.path, 'masters'), optimizer)
            self.assertEqual((loaded.has_state, optimizer.step_number, optimizer.param_groups[0]['lr']),
                             (True, 1, 0.01))
            optimizer.close()
            self.refused(matrixshard.InvalidArgumentError, 'it is closed', mt.load_checkpoint, model, self.path,
                         optimizer)
            self.refused(TypeError, 'AdamW, not a matrixshard.torch.Optimizer: state of optimizers that step inside',
                         mt.save_checkpoint, model, self.path, torch.optim.AdamW(model.parameters()))
            groups = [{'params': [one]} for one in model.parameters()]
            other = mt.Optimizer(groups, preset='torch-muon', backend='reference')
            self.refused(matrixshard.MismatchError, 'saved with param groups of', mt.load_checkpoint, model,
                         os.path.join(self.path, 'whole'), other)
            loaded = mt.load_checkpoint(model, os.path.join(self.path, 'whole'), other, other_optimizer=True)
            self.assertEqual((loaded.has_state, other.step_number), (True, 1))
        self.run_ranks(2, body)

    def test_external_parameters_are_saved_without_their_optimizers_state(self):
        def body(rank):
            model = mt.shard(build(), rule=lambda name, parameter: 'external')
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            model(*torch_models.batch(0, rank)).backward()
            with mt.external(model):
                optimizer.step()
            mt.save_checkpoint(model, self.path, name='external')
            saved = mt.full_state_dict(model)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()
            mt.commit(model)
            loaded = mt.load_checkpoint(model, os.path.join(self.path, 'external'))
            self.assertFalse(loaded.has_state)
            after = mt.full_state_dict(model)
            self.assertTrue(all(torch.equal(after[name], value) for name, value in saved.items()))
        self.run_ranks(2, body)


if __name__ == '__main__':
    unittest.main()
