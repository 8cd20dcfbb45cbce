# SPDX-License-Identifier: Apache-2.0
"""Checkpoints from the standard library alone: saved by 1 to 4 ranks, read by an independent reader of safetensors,
loaded by others; saves beside training; callbacks that raise, cancelled and killed saves, files that are damaged."""
import array
import gc
import math
import os
import pathlib
import shutil
import signal
import struct
import tempfile
import threading
import unittest
from unittest import mock

import matrixshard as mxs
import safetensors_files as files
import world
from comm_case import CommCase, status
from matrixshard import checkpoint as core

SHAPES = {'layers.0.tall': (40, 24), 'layers.0.bias': (17,), 'layers.1.wide': (24, 40), 'layers.1.half': (12, 20),
          'head.table': (30, 8), 'head.scale': ()}
RULES = {'head.table': 'adamw', 'layers.1.wide': 'shampoo'}
NAMES = list(SHAPES)
VALUES = [dict(lr=0.02, weight_decay=0.1, momentum=0.9), dict(lr=0.003, weight_decay=0.01, beta1=0.9, beta2=0.95)]
WORDS = {'layers.1.half': 'BF16'}


def begin(name):
    return array.array('f', (math.sin(0.7 * index + len(name)) * 0.3 for index in range(files.count_of(SHAPES[name]))))


def rounded(values):
    """fp32 as bf16, to nearest even."""
    bits = struct.unpack(f'<{len(values)}I', values.tobytes())
    return struct.pack(f'<{len(values)}H', *((one + 0x7fff + (one >> 16 & 1)) >> 16 for one in bits))


def weights_of(name):
    values = begin(name)
    return rounded(values) if name in WORDS else values.tobytes()


def described():
    return [mxs.Tensor(name, shape, unit=('layers.0', 'layers.1', 'head').index(name.rpartition('.')[0]),
                       rule=RULES.get(name, 'auto'), group=0 if len(shape) == 2 and name not in RULES else 1,
                       dtype='bf16' if name in WORDS else 'f32', master_dtype='f32', gradient_dtype='f32')
            for name, shape in SHAPES.items()]


def make(comm, fill=True):
    """(units, optimizer), with begun weights, or zeros."""
    plan = mxs.Plan(described(), comm.topology(), flat_bytes=64)
    units = [mxs.Unit(comm, plan, index, rank_order=True) for index in range(3)]
    for index, placement in enumerate(plan.placements if fill else []):
        shard = units[placement.unit].shard(index)
        if shard.bytes:
            part = begin(NAMES[placement.tensor])[placement.element_offset:][:placement.element_count]
            shard.memory()[:] = part.tobytes()
            units[placement.unit].commit(shard)
    return units, mxs.Optimizer(units, backend='reference', thread_count=1)


def step(units, optimizer, number):
    for unit in units:
        for index, name in enumerate(NAMES):
            if described()[index].unit == unit.index:
                values = (math.cos(0.3 * at + number + len(name)) for at in range(files.count_of(SHAPES[name])))
                unit.gradient(index).memory()[:] = array.array('f', values).tobytes()
        unit.reduce()
    return optimizer.step(VALUES, gradient_scale=0.25)


def folders(path):
    return sorted(os.listdir(path))


class CheckpointCase(CommCase):
    def setUp(self):
        self.path = tempfile.mkdtemp(prefix='mxs-checkpoint-')
        self.addCleanup(shutil.rmtree, self.path, ignore_errors=True)

    def save(self, ranks, steps=2, **options):
        """The folder that so many ranks have saved after that many steps."""
        def body(comm):
            units, optimizer = make(comm)
            for number in range(steps):
                step(units, optimizer, number)
            mxs.save(self.path, units, optimizer, **options)
        self.run_world(ranks, body)
        return pathlib.Path(self.path, options.get('name') or f'step-{steps:08d}')


class Saved(CheckpointCase):
    def test_an_independent_reader_finds_the_models_names_shapes_and_values(self):
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                folder = self.save(ranks, steps=0, name=f'of-{ranks}')
                found = files.read_model(folder)
                self.assertEqual(set(found), set(NAMES))
                for name, (dtype, shape, data) in found.items():
                    self.assertEqual((dtype, shape), (WORDS.get(name, 'F32'), SHAPES[name]))
                    self.assertEqual(data, weights_of(name), name)
                state = files.read_state(folder)
                self.assertEqual(state['layers.1.half.master'], ('F32', (12, 20), begin('layers.1.half').tobytes()))
                self.assertEqual(state['layers.0.tall.momentum'][:2], ('F32', (40, 24)))
                self.assertFalse(any(one.startswith('.') for one in folders(self.path)))

    def test_what_one_world_saves_another_loads_to_the_bit(self):
        first = self.save(3)
        model, state = files.read_model(first), files.read_state(first)
        self.assertTrue(any(state['layers.0.tall.momentum'][2]))

        def body(comm, name):
            units, optimizer = make(comm, fill=False)
            with mxs.Checkpoint(self.path) as checkpoint:
                told = []
                checkpoint.load(units, optimizer, tell=lambda what, name: told.append((what, name)), timeout=60)
            self.assertEqual(told, [])
            self.assertEqual(optimizer.step_number, 2)
            mxs.save(os.path.join(self.path, 'again'), units, optimizer, name=name)
            return step(units, optimizer, 2).norm

        norms = set()
        for ranks in (1, 2, 3, 4):
            norms.update(self.run_world(ranks, body, f'of-{ranks}'))
            again = os.path.join(self.path, 'again', f'of-{ranks}')
            self.assertEqual(files.read_model(again), model)
            self.assertEqual(files.read_state(again), state)

    def test_an_open_checkpoint_tells_what_it_has(self):
        folder = self.save(2, user=b'place 7', extras={'rope': array.array('d', [1, 2, 3]), 'flag': ('BOOL', (), b'\1'),
                                                       'ids': array.array('q', range(4))})
        with mxs.Checkpoint(self.path) as checkpoint:
            info = checkpoint.info
            self.assertEqual((info.has_manifest, info.rank_count, info.masters, info.has_state, info.step_number),
                             (True, 2, False, True, 2))
            self.assertEqual((info.path, info.version), (str(folder), mxs.__version__))
            self.assertEqual(len(checkpoint), info.array_count)
            arrays = {one.name: one for one in checkpoint}
            self.assertEqual(list(arrays), [one.name for one in checkpoint.arrays[:]])
            one = arrays['layers.1.half']
            self.assertEqual((one.kind, one.dtype, one.shape, one.bytes, one.dtype_word, one.tensor, one.part),
                             (mxs.ArrayKind.WEIGHTS, mxs.Dtype.BF16, (12, 20), 480, 'BF16', one.name, ''))
            self.assertEqual(arrays['layers.1.half.master'].kind, mxs.ArrayKind.MASTER)
            self.assertEqual(arrays['layers.1.half.master'].tensor, 'layers.1.half')
            momentum = arrays['layers.0.tall.momentum']
            self.assertEqual((momentum.kind, momentum.tensor, momentum.part),
                             (mxs.ArrayKind.STATE, 'layers.0.tall', 'momentum'))
            self.assertEqual((arrays['ids'].kind, arrays['ids'].dtype, arrays['ids'].dtype_word, arrays['ids'].shape),
                             (mxs.ArrayKind.EXTRA, None, 'I64', (4,)))
            self.assertEqual(checkpoint.read('ids'), array.array('q', range(4)).tobytes())
            self.assertEqual(checkpoint.read('flag'), b'\1')
            self.assertEqual(struct.unpack('<3d', checkpoint.read('rope')), (1, 2, 3))
            self.assertEqual(checkpoint.find(one.name), [other.name for other in checkpoint].index(one.name))
            self.assertEqual(checkpoint.array_at(one.name), one)
            with open(folder / one.file, 'rb') as file:
                file.seek(one.file_offset)
                self.assertEqual(file.read(one.bytes), checkpoint.read(one.name))
            self.assertEqual([checkpoint.user(rank) for rank in range(2)], [b'place 7'] * 2)
            self.assertAlmostEqual(checkpoint.group(0).lr, 0.02)
            self.assertEqual(checkpoint.rule('adamw'), mxs.Preset.DEFAULT)
            self.assertEqual(status(checkpoint.rule, 'soap'), ('NOT_FOUND', None))
            self.assertAlmostEqual(checkpoint.group(1).beta2, 0.95, places=6)
            with checkpoint.plan() as plan:
                self.assertEqual((plan.rank_count, plan.tensor(1).name), (2, NAMES[1]))
            self.assertIn('step 2, saved by 2 ranks>', repr(checkpoint))
            self.assertEqual(status(checkpoint.read, NAMES[1], 0, 1 << 60), ('INVALID_ARGUMENT', None))
            self.assertEqual(status(checkpoint.user, 2), ('NOT_FOUND', None))
            self.assertEqual(status(checkpoint.group, 9), ('NOT_FOUND', None))
            self.assertEqual(status(checkpoint.find, 'nothing'), ('NOT_FOUND', None))
            with self.assertRaises(mxs.NotFoundError):
                checkpoint.array_at(len(checkpoint))
            checkpoint.verify()
        self.assertEqual(repr(checkpoint), '<Checkpoint: closed>')
        with self.assertRaisesRegex(mxs.InvalidArgumentError, 'this Checkpoint is closed'):
            checkpoint.info

    def test_ranges_are_read_into_memory_of_the_callers(self):
        folder = self.save(2)
        whole = files.read_model(folder)['layers.0.tall'][2]
        with mxs.Checkpoint(folder) as checkpoint:
            self.assertEqual(checkpoint.read('layers.0.tall', 100, 33), whole[100:133])
            self.assertEqual(checkpoint.read('layers.0.tall', offset=len(whole) - 4), whole[-4:])
            self.assertEqual(checkpoint.read('layers.0.tall', len(whole)), b'')
            out = array.array('f', bytes(len(whole)))
            self.assertIs(checkpoint.read(checkpoint.find('layers.0.tall'), out=out), out)
            self.assertEqual(out.tobytes(), whole)
            with self.assertRaisesRegex(ValueError, 'out has 8 bytes; 12 are wanted'):
                checkpoint.read(0, 0, 12, out=bytearray(8))
            with self.assertRaisesRegex(ValueError, 'out is read-only'):
                checkpoint.read(0, 0, 4, out=bytes(4))
            self.assertEqual(status(checkpoint.read, 'layers.0.tall', 0, len(whole) + 1)[0], 'INVALID_ARGUMENT')
            with self.assertRaises(ValueError):
                checkpoint.read(0, -1)

            found = []
            threads = [threading.Thread(target=lambda: found.append(checkpoint.read('layers.0.tall')))
                       for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(found, [whole] * 8)

    def test_options_of_a_save(self):
        config = pathlib.Path(self.path, 'from')
        config.mkdir()
        (config / 'config.json').write_text('{"model_type": "none"}')
        (config / 'old.safetensors').write_bytes(b'old')

        def body(comm):
            units, optimizer = make(comm)
            for number in range(3):
                step(units, optimizer, number)
                mxs.save(self.path, units, optimizer, keep=2, files_from=config)
            mxs.save(os.path.join(self.path, 'masters'), units, optimizer, masters=True)
            mxs.save(os.path.join(self.path, 'weights'), units, optimizer, weights_only=True, timeout=60)
            mxs.save(os.path.join(self.path, 'alone'), units)

        self.run_world(2, body)
        self.assertEqual([one for one in folders(self.path) if one.startswith('step')],
                         ['step-00000002', 'step-00000003'])
        latest = pathlib.Path(self.path, 'step-00000003')
        self.assertEqual((latest / 'config.json').read_text(), '{"model_type": "none"}')
        self.assertFalse((latest / 'old.safetensors').exists())
        masters = files.read_model(pathlib.Path(self.path, 'masters', 'step-00000003'))
        self.assertEqual({dtype for dtype, _, _ in masters.values()}, {'F32'})
        with mxs.Checkpoint(os.path.join(self.path, 'masters')) as checkpoint:
            self.assertTrue(checkpoint.info.masters)
        for name, kinds in (('weights', {1}), ('alone', {1, 2})):
            with mxs.Checkpoint(os.path.join(self.path, name)) as checkpoint:
                self.assertFalse(checkpoint.info.has_state)
                self.assertEqual({int(one.kind) for one in checkpoint}, kinds)

    def test_arguments_that_are_wrong_are_refused_by_name(self):
        def body(comm):
            units, optimizer = make(comm)
            for error, text, arguments, options in (
                    (TypeError, r'units\[0\] is a int, not a Unit', ([1],), {}),
                    (TypeError, 'units is .*, not a sequence', (units[0],), {}),
                    (ValueError, 'there are no units', ([],), {}),
                    (TypeError, 'optimizer is a str, not an Optimizer', (units, 'adamw'), {}),
                    (TypeError, 'user is a str: bytes are wanted', (units,), {'user': 'text'}),
                    (TypeError, 'extras is a list', (units,), {'extras': [1]}),
                    (TypeError, r"extras\['a'\] is a str", (units,), {'extras': {'a': 'text'}}),
                    (TypeError, r"extras\['a'\] has 2 values", (units,), {'extras': {'a': ('F32', b'')}}),
                    (ValueError, r"extras\['a'\] has 4 bytes; 8 are wanted", (units,),
                     {'extras': {'a': ('F32', (2,), bytes(4))}}),
                    (ValueError, r"extras\['a'\] has 9 dimensions", (units,),
                     {'extras': {'a': ('U8', (1,) * 9, bytes(1))}}),
                    (ValueError, 'keep is 4294967296', (units,), {'keep': 1 << 32}),
                    (ValueError, 'keep', (units,), {'keep': -1}),
                    (ValueError, 'zero byte', (units,), {'name': 'a\0b'}),
                    (ValueError, 'name', (units,), {'name': '../escaped'}),
                    (ValueError, 'name', (units,), {'name': '.hidden'}),
                    (ValueError, 'timeout is -1', (units,), {'timeout': -1}),
                    (mxs.MatrixShardError, "'a'|extra", (units,), {'extras': {'a': ('F3', (2,), bytes(8))}})):
                with self.assertRaisesRegex(error, text):
                    mxs.save(self.path, *arguments, **options)
            with self.assertRaisesRegex(TypeError, 'unexpected keyword'):
                mxs.start_save(self.path, units, progress=lambda done, all: None)
            units[0].gather()
            self.assertEqual(status(mxs.save, self.path, units, optimizer)[0], 'HELD')
            units[0].release()
            with self.assertRaisesRegex(TypeError, 'is not made so'):
                mxs.Save()
        self.run_world(1, body)
        self.assertEqual(folders(self.path), [])

    def test_a_checkpoint_is_resharded_for_another_world(self):
        folder = self.save(3, user=b'u')
        with mxs.Checkpoint(folder) as checkpoint:
            seen = []
            target = os.path.join(self.path, 'two')
            checkpoint.reshard(target, 'ranks:2', plan=dict(flat_bytes=128),
                               progress=lambda done, all: seen.append((done, all)))
            self.assertEqual(files.read_model(os.path.join(target, folder.name)), files.read_model(folder))
            self.assertEqual(files.read_state(os.path.join(target, folder.name)), files.read_state(folder))
            with mxs.Checkpoint(target) as other, other.plan() as plan, mxs.Topology('ranks:1') as one:
                self.assertEqual((other.info.rank_count, plan.rank_count), (2, 2))
                other.verify()
                checkpoint.reshard(os.path.join(self.path, 'one'), one, plan=dict(previous=plan), weights_only=True,
                                   name='model')
            self.assertEqual(folders(os.path.join(self.path, 'one')), ['model'])
            self.assertEqual(files.read_model(os.path.join(self.path, 'one', 'model')), files.read_model(folder))
            with self.assertRaisesRegex(TypeError, 'topology is 3'):
                checkpoint.reshard(target, 3)
            with self.assertRaisesRegex(TypeError, "unknown argument 'nothing'"):
                checkpoint.reshard(target, 'ranks:2', plan=dict(nothing=1))
            with self.assertRaisesRegex(ZeroDivisionError, 'division'):
                checkpoint.reshard(os.path.join(self.path, 'none'), 'ranks:2', progress=lambda done, all: 1 // 0)
            self.assertFalse(os.path.exists(os.path.join(self.path, 'none', folder.name)))


class Loaded(CheckpointCase):
    def other_model(self, **changes):
        """A model of others, in one file."""
        tensors = {name: ('F32', SHAPES[name], begin(name).tobytes()) for name in NAMES}
        tensors.update(changes)
        path = os.path.join(self.path, 'model.safetensors')
        files.write_file(path, {name: value for name, value in tensors.items() if value is not None})
        return path

    def load(self, ranks=2, path=None, **options):
        """What is told, and the status, by rank; weights afterwards, saved as 'loaded'."""
        def body(comm):
            units, _ = make(comm, fill=False)
            told = []
            with mxs.Checkpoint(path or self.path) as checkpoint:
                failed = status(checkpoint.load, units, tell=lambda what, name: told.append((str(what), name)),
                                **options)
            mxs.save(self.path, units, name='loaded', weights_only=True)
            return sorted(told), failed and failed[0]
        results = self.run_world(ranks, body)
        self.assertEqual(results, results[:1] * ranks)
        return results[0], files.read_model(os.path.join(self.path, 'loaded'))

    def test_a_safetensors_model_of_others_is_opened_and_loaded(self):
        path = self.other_model()
        with mxs.Checkpoint(path) as checkpoint:
            info = checkpoint.info
            self.assertEqual((info.has_manifest, info.rank_count, info.version, info.file_count, info.has_state),
                             (False, 0, '', 1, False))
            self.assertEqual(checkpoint.read('head.table'), begin('head.table').tobytes())
            self.assertEqual(status(checkpoint.plan)[0], 'NOT_FOUND')
            checkpoint.verify()
        for ranks in (1, 2, 3):
            (told, failed), model = self.load(ranks, path, other_dtypes=True)
            self.assertEqual(failed, None)
            self.assertIn(told, ([], [('converted', 'layers.1.half')]))
            self.assertEqual({name: data for name, (_, _, data) in model.items()},
                             {name: weights_of(name) for name in NAMES})

    def test_what_does_not_fit_is_told_and_refused_on_all_ranks_and_nothing_changes(self):
        zeros = {name: bytes(len(weights_of(name))) for name in NAMES}
        for changes, told, failure, flag in (
                ({'head.table': None}, ('missing', 'head.table'), 'NOT_FOUND', 'allow_missing'),
                ({'more': ('F32', (2,), bytes(8))}, ('extra', 'more'), 'NOT_FOUND', 'allow_extra'),
                ({'head.scale': ('F64', (), bytes(8))}, ('converted', 'head.scale'), 'MISMATCH', 'other_dtypes')):
            path = self.other_model(**{'layers.1.half': ('BF16', SHAPES['layers.1.half'], weights_of('layers.1.half')),
                                       **changes})
            with self.subTest(changes=changes):
                (found, failed), model = self.load(2, path)
                self.assertEqual(failed, failure)
                if failure == 'NOT_FOUND':
                    self.assertIn(told, found)
                self.assertEqual({name: data for name, (_, _, data) in model.items()}, zeros)
                (found, failed), model = self.load(2, path, **{flag: True})
                self.assertEqual((failed, told in found), (None, True))
                self.assertEqual(model['layers.0.tall'][2], weights_of('layers.0.tall'))
        path = self.other_model(**{'head.table': ('F32', (8, 30), bytes(960))})
        self.assertEqual(self.load(2, path, allow_missing=True)[0][1], 'MISMATCH')

    def test_weights_alone_leave_the_optimizer_as_it_is(self):
        self.save(2)

        def body(comm):
            units, optimizer = make(comm)
            with mxs.Checkpoint(self.path) as checkpoint:
                checkpoint.load(units, optimizer, weights_only=True, unverified=True)
                self.assertEqual(optimizer.step_number, 0)
                checkpoint.load(units[1:2], allow_extra=True)
                checkpoint.load(units, optimizer)
                self.assertEqual(optimizer.step_number, 2)
        self.run_world(2, body)

    def test_what_callbacks_raise_comes_out_of_the_load_and_cancels_it_everywhere(self):
        self.save(2)

        class Mine(Exception):
            pass

        def body(comm, which):
            units, optimizer = make(comm, fill=False)

            def fail(*_):
                raise Mine(which)
            with mxs.Checkpoint(self.path) as checkpoint:
                try:
                    checkpoint.load(units, optimizer, progress=fail if comm.rank == 1 else None)
                except (Mine, mxs.CancelledError) as error:
                    return type(error).__name__
            return 'nothing'
        self.assertEqual(self.run_world(2, body, 'progress'), ['CancelledError', 'Mine'])

    def test_loading_nothing_of_ours_says_so(self):
        self.assertEqual(status(mxs.Checkpoint, self.path)[0], 'NOT_FOUND')
        self.assertEqual(status(mxs.Checkpoint, os.path.join(self.path, 'none'))[0], 'NOT_FOUND')
        path = pathlib.Path(self.path, 'model.safetensors')
        path.write_bytes(struct.pack('<Q', 1 << 60))
        with self.assertRaisesRegex(mxs.DamagedError, 'model.safetensors'):
            mxs.Checkpoint(path)
        with self.assertRaisesRegex(mxs.InvalidArgumentError, 'path is NULL'):
            mxs.Checkpoint(None)
        with self.assertRaises(TypeError):
            mxs.Checkpoint(7)


class Verified(CheckpointCase):
    def flip(self, folder, name):
        """Another bit in the middle of an array."""
        with mxs.Checkpoint(folder) as checkpoint:
            one = checkpoint.array_at(name)
        with open(folder / one.file, 'r+b') as file:
            file.seek(one.file_offset + one.bytes // 2)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 4]))
        return one.file

    def test_a_flipped_bit_is_found_and_names_file_and_tensor(self):
        folder = self.save(2)
        places = [(self.flip(folder, name), name) for name in ('head.table', 'layers.0.tall.momentum')]
        with mxs.Checkpoint(folder) as checkpoint:
            sentences, seen = [], []
            with self.assertRaises(mxs.DamagedError) as caught:
                checkpoint.verify(sentences.append, lambda done, all: seen.append((done, all)))
            self.assertEqual(len(sentences), 2)
            self.assertIn(str(caught.exception), sentences)
            for file, name in places:
                self.assertEqual(sum(file in one and name in one for one in sentences), 1, sentences)
            with self.assertRaisesRegex(mxs.DamagedError, 'head.table'):
                checkpoint.read('head.table')
            self.assertEqual(len(checkpoint.read('layers.0.tall')), 3840)
            if seen:
                self.assertEqual(seen, sorted(seen))

            def fail(sentence):
                raise KeyError(sentence)
            with self.assertRaises(KeyError):
                checkpoint.verify(fail)
            with self.assertRaises(mxs.DamagedError):
                checkpoint.verify()
            if seen:
                self.assertEqual(status(checkpoint.verify, sentences.append, lambda done, all: True)[0], 'CANCELLED')

        def body(comm):
            units, optimizer = make(comm, fill=False)
            with mxs.Checkpoint(self.path) as checkpoint:
                return status(checkpoint.load, units, optimizer)[0]
        self.assertEqual(self.run_world(2, body), ['DAMAGED', 'DAMAGED'])

    def test_after_a_load_that_failed_on_its_way_nothing_goes_on_until_one_has_succeeded(self):
        good, bad = self.save(2, name='good'), self.save(2, name='bad')
        self.flip(bad, 'head.table')

        def body(comm):
            units, optimizer = make(comm)
            with mxs.Checkpoint(good) as checkpoint:
                checkpoint.load(units, optimizer)
                wanted = step(units, optimizer, 2).norm
            with mxs.Checkpoint(bad) as checkpoint:
                found = [status(checkpoint.load, units, optimizer)[0]]
            for call in (lambda: step(units, optimizer, 2), lambda: mxs.save(self.path, units, optimizer, name='none'),
                         lambda: mxs.start_save(self.path, units, optimizer, name='none')):
                with self.assertRaisesRegex(mxs.MatrixShardError, 'a load failed when it had begun to replace'):
                    call()
            with mxs.Checkpoint(good) as checkpoint:
                checkpoint.load(units, optimizer)
            found.append(step(units, optimizer, 2).norm == wanted)
            mxs.save(self.path, units, optimizer, name='after')
            return found
        self.assertEqual(self.run_world(3, body), [['DAMAGED', True]] * 3)
        self.assertEqual(folders(self.path), ['after', 'bad', 'good'])

    def test_a_truncated_file_is_refused_when_it_is_opened(self):
        folder = self.save(2)
        name = sorted(one for one in folders(folder) if one.endswith('.safetensors'))[0]
        os.truncate(folder / name, os.path.getsize(folder / name) - 1)
        with self.assertRaisesRegex(mxs.DamagedError, name):
            mxs.Checkpoint(folder)
        os.remove(folder / name)
        with self.assertRaisesRegex(mxs.DamagedError, name):
            mxs.Checkpoint(folder)


class Failed(CheckpointCase):
    def test_what_progress_raises_comes_out_of_the_save_and_nothing_is_left_of_it(self):
        class Mine(Exception):
            pass

        def body(comm):
            units, optimizer = make(comm)
            mxs.save(self.path, units, optimizer)
            step(units, optimizer, 0)

            def progress(done, all):
                self.assertLessEqual(done, all)
                if comm.rank == comm.rank_count - 1:
                    raise Mine
            try:
                mxs.save(self.path, units, optimizer, progress=progress)
                result = 'nothing'
            except (Mine, mxs.CancelledError) as error:
                result = type(error).__name__
            with mxs.Checkpoint(self.path) as checkpoint:
                self.assertEqual(checkpoint.info.step_number, 0)
                checkpoint.load(units, optimizer)
            return result
        for ranks in (1, 2, 3):
            self.assertEqual(self.run_world(ranks, body), ['CancelledError'] * (ranks - 1) + ['Mine'])
            self.assertEqual(folders(self.path), ['step-00000000'])

    def test_progress_that_returns_true_cancels(self):
        def body(comm):
            units, optimizer = make(comm)
            return status(mxs.save, self.path, units, optimizer, progress=lambda done, all: comm.rank == 0)[0]
        self.assertEqual(self.run_world(2, body), ['CANCELLED', 'CANCELLED'])
        self.assertEqual(folders(self.path), [])

    def test_ranks_that_say_different_things_are_told(self):
        def body(comm):
            units, optimizer = make(comm)
            found = [status(mxs.save, self.path, units, optimizer, masters=comm.rank == 0)[0],
                     status(mxs.save, self.path + str(comm.rank), units, optimizer)[0]]
            mxs.save(self.path, units, optimizer)
            return found
        self.assertEqual(self.run_world(2, body), [['MISMATCH', 'MISMATCH']] * 2)
        self.assertEqual(folders(self.path), ['step-00000000'])

    def test_a_folder_that_cannot_be_made_is_an_error_on_all_ranks(self):
        pathlib.Path(self.path, 'file').write_text('no folder')

        def body(comm):
            units, optimizer = make(comm)
            return status(mxs.save, os.path.join(self.path, 'file', 'in'), units, optimizer)
        self.assertEqual(self.run_world(2, body), [('SYSTEM', 0), ('SYSTEM', 1)])

    def test_a_rank_that_is_killed_in_a_save_leaves_the_checkpoint_before(self):
        self.save(2, steps=1)

        def body(comm):
            units, optimizer = make(comm)
            for number in range(2):
                step(units, optimizer, number)

            def progress(done, all):
                if comm.rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
            return status(mxs.save, self.path, units, optimizer, progress=progress)[0]
        self.assertEqual(self.run_world(2, body, may_die=[1]), ['PEER_FAILED', None])
        with mxs.Checkpoint(self.path) as checkpoint:
            self.assertEqual(checkpoint.info.step_number, 1)
            checkpoint.verify()
        self.save(2, steps=3)  # removes what the killed one has left
        self.assertEqual(folders(self.path), ['step-00000001', 'step-00000003'])

    @unittest.skipIf(not hasattr(signal, 'pthread_kill'), 'no pthread_kill')
    def test_ctrl_c_cancels_a_save(self):
        def body(comm):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            units, optimizer = make(comm)
            try:
                mxs.save(self.path, units, optimizer,
                         progress=lambda done, all: os.kill(os.getpid(), signal.SIGINT))
            except KeyboardInterrupt:
                return 'interrupted'
            return 'nothing'
        self.assertEqual(self.run_world(1, body), ['interrupted'])
        self.assertEqual(folders(self.path), [])

    def test_what_a_signals_handler_raises_at_any_line_comes_out_and_cancels(self):
        seen = []

        def fail(number, frame):
            raise SystemExit(f'signal {number}')
        for number, handler, error in ((signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
                                       (signal.SIGUSR1, fail, SystemExit),
                                       (signal.SIGUSR1, lambda *arguments: seen.append(arguments), None)):
            before = signal.signal(number, handler)
            self.addCleanup(signal.signal, number, before)
            watch, cancels = core._Watch(None), []

            def call(number=number, watch=watch, cancels=cancels):
                cancels.append(watch.progress(None, 0, 1))
                os.kill(os.getpid(), number)  # handled at the next line, or the first one of a function that C calls
                cancels.append(watch.progress(None, 1, 1))
            if error:
                self.assertRaises(error, watch.run, call)
            else:
                watch.run(call)
            self.assertEqual(cancels, [0, 1 if error else 0])
            self.assertIs(signal.getsignal(number), handler)
        self.assertEqual([number for number, _ in seen], [signal.SIGUSR1])

    def test_a_wait_sees_ctrl_c_and_the_end_of_its_block_cancels(self):
        def body(comm):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            units, optimizer = make(comm)
            wait, limits = core.lib.mxs_save_wait, []

            def interrupted(save, limit_ns):
                limits.append(limit_ns)
                if len(limits) == 1:
                    signal.raise_signal(signal.SIGINT)
                return wait(save, limit_ns)
            with mock.patch.object(core.lib, 'mxs_save_wait', interrupted):
                saving = mxs.start_save(self.path, units, optimizer)
                cancelled = []
                with mock.patch.object(saving, 'cancel', lambda: cancelled.append(mxs.Save.cancel(saving))):
                    with self.assertRaises(KeyboardInterrupt), saving:
                        pass
            self.assertTrue(all(0 <= limit <= 10 ** 9 for limit in limits), limits)
            self.assertGreater(limits[0], 0)  # not without end: nothing would be seen
            return cancelled, saving.finished, status(saving.wait, timeout=5) in (None, ('CANCELLED', 0))
        self.assertEqual(self.run_world(1, body), [([None], True, True)])

    def test_what_python_refuses_on_one_rank_is_refused_on_all(self):
        good = self.save(2)

        def body(comm):
            units, optimizer = make(comm)
            is_bad, found = comm.rank == 1, []
            with mxs.Checkpoint(good) as checkpoint, mxs.Checkpoint(good) as closed:
                closed.close()
                for call in (lambda: mxs.save(self.path, units, optimizer, user='text' if is_bad else b''),
                             lambda: mxs.save(self.path, units, optimizer, extras={'a': object()} if is_bad else None),
                             lambda: mxs.save(5 if is_bad else self.path, (unit for unit in units), optimizer),
                             lambda: mxs.start_save(self.path, units, 'no' if is_bad else optimizer),
                             lambda: mxs.start_save(self.path, units, optimizer, keep='no' if is_bad else 0),
                             lambda: checkpoint.load(units, optimizer, timeout='no' if is_bad else None),
                             lambda: (closed if is_bad else checkpoint).load(units, optimizer)):
                    with self.assertRaises((TypeError, ValueError)) as raised:
                        call()
                    found.append(getattr(raised.exception, 'status_name', type(raised.exception).__name__))
                    mxs.save(os.path.join(self.path, 'after'), units, optimizer)
            return found
        others, bad = self.run_world(2, body)
        self.assertEqual(others, ['INVALID_ARGUMENT'] * 7)
        self.assertEqual(bad, ['TypeError'] * 5 + ['ValueError', 'INVALID_ARGUMENT'])

    def test_sentences_advise_in_pythons_words(self):
        self.save(1)

        def body(comm):
            plan = mxs.Plan(described()[:-1], comm.topology())
            units = [mxs.Unit(comm, plan, index) for index in range(3)]
            with mxs.Checkpoint(self.path) as checkpoint:
                with self.assertRaisesRegex(mxs.NotFoundError, 'head.scale.*; pass allow_extra=True to leave'):
                    checkpoint.load(units)
        self.run_world(1, body)


class Beside(CheckpointCase):
    def test_a_save_beside_training_has_the_values_of_its_start(self):
        def body(comm):
            units, optimizer = make(comm)
            step(units, optimizer, 0)
            mxs.save(os.path.join(self.path, 'at-once'), units, optimizer)
            saving = mxs.start_save(self.path, units, optimizer, keep=3, user=b'%d' % comm.rank,
                                    extras={'n': array.array('i', [7])}, timeout=60)
            for number in range(1, 4):
                step(units, optimizer, number)
            second = mxs.start_save(self.path, units, optimizer)
            saving.wait(timeout=60)
            saving.wait()
            info = saving.info
            self.assertEqual((info.finished, saving.finished), (True, True))
            self.assertEqual(info.path, os.path.join(self.path, 'step-00000001'))
            self.assertEqual(info.done_bytes, info.total_bytes)
            self.assertIn('finished', repr(saving))
            saving.close()
            self.assertEqual(repr(saving), '<Save: closed>')
            second.wait()
            second.close()
            second.close()
            with self.assertRaisesRegex(mxs.InvalidArgumentError, 'this Save is closed'):
                second.wait()
        for ranks in (1, 3):
            self.run_world(ranks, body)
            for read in (files.read_model, files.read_state):
                here = read(os.path.join(self.path, 'step-00000001'))
                self.assertEqual(here.pop('n', None) is None, read is files.read_state)
                self.assertEqual(here, read(os.path.join(self.path, 'at-once', 'step-00000001')))
            with mxs.Checkpoint(self.path) as checkpoint:
                self.assertEqual(checkpoint.info.step_number, 4)

    def test_a_with_block_waits_for_it(self):
        def body(comm):
            units, optimizer = make(comm)
            with mxs.start_save(self.path, units, optimizer) as saving:
                step(units, optimizer, 0)
            self.assertTrue(saving.closed)
            with mxs.Checkpoint(self.path) as checkpoint:
                checkpoint.verify()
            with self.assertRaises(ZeroDivisionError):
                with mxs.start_save(self.path, units, optimizer) as saving:
                    1 // 0
            self.assertTrue(saving.closed)
            comm.barrier()
            with mxs.Checkpoint(self.path) as checkpoint:
                self.assertEqual(checkpoint.info.step_number, 1)
        self.run_world(2, body)

    def test_a_cancelled_one_leaves_nothing(self):
        def body(comm):
            units, optimizer = make(comm)
            saving = mxs.start_save(self.path, units, optimizer)
            if comm.rank == 0:
                saving.cancel()
            result = status(saving.wait)
            saving.close()
            return result and result[0]
        results = self.run_world(2, body)
        self.assertIn(results, (['CANCELLED'] * 2, [None] * 2))  # it may be done before
        self.assertEqual(folders(self.path), [] if results[0] else ['step-00000000'])

    def test_one_that_nobody_holds_any_more_is_waited_for_at_the_exit(self):
        def body(rank):
            comm = mxs.Comm(thread_count=1, timeout=30)
            units, optimizer = make(comm)
            mxs.start_save(self.path, units, optimizer)
            gc.collect()
            step(units, optimizer, 0)
        world.run_ranks(2, body)
        with mxs.Checkpoint(self.path) as checkpoint:
            self.assertEqual(checkpoint.info.step_number, 0)
            checkpoint.verify()

    def test_units_may_be_closed_while_it_writes(self):
        def body(comm):
            units, optimizer = make(comm)
            saving = mxs.start_save(self.path, units, optimizer)
            optimizer.close()
            for unit in units:
                unit.close()
            saving.wait()
            saving.close()
        self.run_world(2, body)
        with mxs.Checkpoint(self.path) as checkpoint:
            checkpoint.verify()


if __name__ == '__main__':
    unittest.main()
