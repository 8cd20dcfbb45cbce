# SPDX-License-Identifier: Apache-2.0
"""Views: numpy, DLPack and memoryviews in place, memory that lives as long as anybody looks at it."""
import copy
import ctypes
import gc
import os
import pickle
import threading
import unittest

import matrixshard as mxs
import numpy
from matrixshard import views

try:
    import torch
except ImportError:
    torch = None

SHAPES = {'f32': (64, 48), 'bf16': (8, 16), 'f16': (5, 7), 'scalar': (), 'empty': (0, 4)}


def one_rank():
    os.environ.update(RANK='0', WORLD_SIZE='1', LOCAL_RANK='0', LOCAL_WORLD_SIZE='1')
    comm = mxs.Comm()
    tensors = [mxs.Tensor('f32', SHAPES['f32']),
               mxs.Tensor('bf16', SHAPES['bf16'], dtype='bf16', gradient_dtype='bf16'),
               mxs.Tensor('f16', SHAPES['f16'], dtype='f16', rule='adamw'), mxs.Tensor('scalar', ()),
               mxs.Tensor('empty', SHAPES['empty'])]
    with mxs.Plan(tensors, comm.topology()) as plan:
        unit = mxs.Unit(comm, plan, 0)
        placements = {plan.tensors[one.tensor].name: index for index, one in enumerate(plan.placements)}
    for name, place in placements.items():
        shard = unit.shard(place)
        numbers = shard.numpy()
        numbers[...] = numpy.arange(numbers.size).reshape(numbers.shape) % 97
        unit.commit(shard)
    return comm, unit, placements


def mapped(address):
    with open('/proc/self/maps') as maps:
        for line in maps:
            begin, end = (int(part, 16) for part in line.split()[0].split('-'))
            if begin <= address < end:
                return True
    return False


class Views(unittest.TestCase):
    def setUp(self):
        self.comm, self.unit, self.placements = one_rank()

    def tearDown(self):
        self.unit.close()
        self.comm.close()

    def test_it_tells_what_it_shows(self):
        with self.unit.whole():
            view = self.unit.tensor(1)
            self.assertEqual((view.dtype, view.shape, view.strides, view.bytes),
                             (mxs.Dtype.BF16, (8, 16), (16, 1), 256))
            self.assertEqual((view.unit, view.tensor, view.readonly), (0, 1, True))
            self.assertEqual(view.memory_kind, mxs.MemoryKind.HOST)
            self.assertEqual(view.generation, self.unit.info.generation)
            self.assertEqual(len(view), 8)
            self.assertIn('bf16 (8, 16)', repr(view))
            with self.assertRaisesRegex(TypeError, 'scalar has no length'):
                len(self.unit.tensor(3))

    def test_numpy_reads_weights_in_place_and_cannot_write_them(self):
        with self.unit.whole():
            for array in (self.unit.tensor(0).numpy(), numpy.asarray(self.unit.tensor(0)),
                          numpy.array(self.unit.tensor(0), copy=False)):
                self.assertEqual(array.shape, SHAPES['f32'])
                self.assertEqual(array.__array_interface__['data'][0], self.unit.tensor(0).address)
                self.assertEqual(array[1, 5], 53)
                self.assertFalse(array.flags.writeable)
                with self.assertRaises(ValueError):
                    array[0, 0] = 1
            self.assertEqual(self.unit.tensor(2).numpy().dtype, numpy.float16)
            self.assertEqual(self.unit.tensor(3).numpy().shape, ())
            self.assertEqual(numpy.asarray(self.unit.tensor(4)).shape, (0, 4))
            self.assertEqual(self.unit.tensor(4).memory().nbytes, 0)

    def test_numpy_writes_shards_and_gradients_in_place(self):
        shard = self.unit.shard(self.placements['f32'])
        shard.numpy()[2, 3] = 123
        self.unit.commit(shard)
        with self.unit.whole():
            self.assertEqual(self.unit.tensor(0).numpy()[2, 3], 123)
        self.unit.gradient(0).numpy()[:] = 2
        self.unit.reduce()
        self.assertEqual(self.unit.shard_gradient(self.placements['f32']).numpy().sum(), 2 * 64 * 48)

    def test_bf16_is_words_for_numpy(self):
        with self.unit.whole():
            view = self.unit.tensor(1)
            for ask in (view.numpy, lambda: numpy.asarray(view)):
                with self.assertRaisesRegex(TypeError, r'numpy has no bf16: use words\(\).*DLPack'):
                    ask()
            words = view.words()
            self.assertEqual((words.dtype, words.shape), (numpy.uint16, SHAPES['bf16']))
            self.assertFalse(words.flags.writeable)
            values = (words.astype(numpy.uint32) << 16).view(numpy.float32)
            self.assertEqual(values[1, 4], 20)
            with self.assertRaisesRegex(TypeError, 'elements of 16 bits; this view is of f32'):
                self.unit.tensor(0).words()

    def test_bytes_are_there_without_numpy(self):
        with self.unit.whole():
            memory = self.unit.tensor(0).memory()
            self.assertEqual((memory.nbytes, memory.readonly), (64 * 48 * 4, True))
            self.assertEqual(memory.cast('f')[53 + 48 - 48], 53)
        memory = self.unit.gradient(0).memory()
        memory[:] = bytes(len(memory))
        self.unit.discard()

    def test_cuda_and_pickle_are_refused(self):
        view = self.unit.shard(self.placements['f32'])
        self.assertFalse(hasattr(view, '__cuda_array_interface__'))
        for refuse in (pickle.dumps, copy.copy, copy.deepcopy):
            with self.assertRaisesRegex(TypeError, 'belongs to|shows memory of this process'):
                refuse(view)

    @unittest.skipUnless(hasattr(numpy, 'from_dlpack'), 'numpy before 1.23')
    def test_numpy_takes_views_by_dlpack(self):
        with self.unit.whole():
            array = numpy.from_dlpack(self.unit.tensor(0))
            self.assertEqual(array[1, 5], 53)
            self.assertFalse(array.flags.writeable)
            with self.assertRaises(Exception) as caught:
                numpy.from_dlpack(self.unit.tensor(1))
            self.assertNotIsInstance(caught.exception, SystemError)
            self.assertIn('nsupported', str(caught.exception))
            del array
            views._exports.sweep()
            self.assertEqual(views._exports._alive, [])

    def test_dlpack_capsules_are_as_the_consumer_asks(self):
        view = self.unit.shard(self.placements['f32'])
        name = ctypes.pythonapi.PyCapsule_GetName
        name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
        self.assertEqual(view.__dlpack_device__(), (1, 0))
        self.assertEqual(name(view.__dlpack__()), b'dltensor')
        self.assertEqual(name(view.__dlpack__(max_version=(0, 8))), b'dltensor')
        self.assertEqual(name(view.__dlpack__(max_version=(1, 1), copy=False, dl_device=(1, 0))), b'dltensor_versioned')
        for refused, error in (({'stream': 1}, TypeError), ({'dl_device': (2, 0)}, BufferError),
                               ({'copy': True}, BufferError)):
            with self.assertRaises(error):
                view.__dlpack__(**refused)

    def test_a_capsule_that_nobody_takes_is_no_leak(self):
        view = self.unit.shard(self.placements['f32'])
        capsules = [view.__dlpack__() for _ in range(3)]
        capsules += [view.__dlpack__(max_version=(1, 0)) for _ in range(3)]
        views._exports.sweep()
        self.assertEqual(len(views._exports._alive), 6)
        capsules.pop(1)
        views._exports.sweep()
        self.assertEqual(len(views._exports._alive), 5)
        capsules.clear()
        views._exports.sweep()
        self.assertEqual(views._exports._alive, [])

    def test_memory_outlives_close_as_long_as_anybody_looks(self):
        view = self.unit.shard(self.placements['f32'])
        array, memory, address = view.numpy(), view.memory(), view.address
        self.unit.close()
        self.comm.close()
        self.assertTrue(self.unit.closed and self.comm.closed)
        with self.assertRaisesRegex(mxs.errors.InvalidArgumentError, 'this Unit is closed'):
            self.unit.gather()
        del view
        array[0, 0] = 7
        del array
        gc.collect()
        self.assertEqual(memory.cast('f')[0], 7)
        self.assertTrue(mapped(address))
        del memory
        gc.collect()
        self.assertFalse(mapped(address))

    def test_another_thread_may_use_and_drop_views(self):
        view = self.unit.shard(self.placements['f32'])
        address = view.address
        found, box = [], [view.numpy()]
        del view

        def use():
            found.append(float(box[0][1, 5]))
            box.clear()
        self.unit.close()
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        self.assertEqual(found, [53.0])
        self.assertFalse(mapped(address))

    def test_allocated_memory_goes_with_its_last_array(self):
        view = self.comm.allocate(1 << 20)
        array, address = view.numpy(), view.address
        self.assertEqual((array.dtype, array.shape, int(array.sum())), (numpy.uint8, (1 << 20,), 0))
        self.comm.free(view)
        self.assertEqual((view.bytes, view.shape), (0, (0,)))
        del view
        array[-1] = 1
        self.assertTrue(mapped(address))
        del array
        self.assertFalse(mapped(address))
        with self.assertRaisesRegex(mxs.errors.InvalidArgumentError, 'not from allocate'):
            self.comm.free(self.unit.shard(0))


@unittest.skipUnless(torch, 'this Python has no torch')
class Torch(unittest.TestCase):
    def setUp(self):
        self.comm, self.unit, self.placements = one_rank()

    def tearDown(self):
        self.unit.close()
        self.comm.close()

    def test_torch_reads_every_dtype_in_place(self):
        with self.unit.whole():
            for take in (torch.from_dlpack, lambda view: torch.utils.dlpack.from_dlpack(view.__dlpack__())):
                for index, (name, shape) in enumerate(SHAPES.items()):
                    view = self.unit.tensor(index)
                    tensor = take(view)
                    self.assertEqual(tuple(tensor.shape), shape)
                    self.assertEqual(tensor.data_ptr(), view.address)
                    self.assertEqual(str(tensor.dtype), {'bf16': 'torch.bfloat16', 'f16': 'torch.float16'}.get(
                        name, 'torch.float32'))
                self.assertEqual(float(take(self.unit.tensor(1))[1, 4]), 20)

    def test_torch_writes_gradients_in_place(self):
        torch.from_dlpack(self.unit.gradient(1)).fill_(3)
        self.unit.reduce()
        self.assertEqual(float(torch.from_dlpack(self.unit.shard_gradient(self.placements['bf16'])).sum()), 3 * 8 * 16)

    def test_memory_stays_as_long_as_a_tensor(self):
        view = self.unit.shard(self.placements['f32'])
        tensor, address = torch.from_dlpack(view)[3:], view.address
        del view
        self.unit.close()
        self.comm.close()
        tensor[0, 0] = 5
        self.assertEqual(float(tensor.sum()), float(tensor.sum()))
        views._exports.sweep()
        self.assertTrue(mapped(address))
        thread = threading.Thread(target=lambda box: box.clear(), args=([tensor],))
        del tensor
        thread.start()
        thread.join()
        del thread
        views._exports.sweep()
        self.assertFalse(mapped(address))

    def test_a_tensor_that_dies_in_an_exception_does_not_hide_it(self):
        view = self.unit.shard(self.placements['f32'])
        for _ in range(20):
            with self.assertRaisesRegex(TypeError, 'add'):
                torch.add(torch.from_dlpack(view), 'x')
        gc.collect()
        views._exports.sweep()
        self.assertEqual(views._exports._alive, [])

    def test_gradients_are_taken_from_tensors_and_arrays(self):
        total = self.placements['bf16']
        self.unit.gradient_set(1, torch.full(SHAPES['bf16'], 2.0, dtype=torch.bfloat16))
        self.unit.reduce()
        self.assertEqual(self.unit.shard_gradient(total).numpy().sum(), 2 * 128)
        self.unit.gradient_set(1, numpy.full(SHAPES['bf16'], 0x4040, numpy.uint16), dtype='bf16')
        self.unit.reduce()
        self.assertEqual(self.unit.shard_gradient(total).numpy().sum(), 5 * 128)
        with self.assertRaisesRegex(TypeError, 'words of 16 bits; say what that is'):
            self.unit.gradient_set(1, numpy.zeros(SHAPES['bf16'], numpy.uint16))
        with self.assertRaisesRegex(ValueError, 'contiguous'):
            self.unit.gradient_set(0, torch.zeros(48, 64).t())
        with self.assertRaises(mxs.errors.InvalidArgumentError):
            self.unit.gradient_set(0, torch.zeros(3, 3))


if __name__ == '__main__':
    unittest.main()
