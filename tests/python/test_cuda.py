# SPDX-License-Identifier: Apache-2.0
"""CUDA memory: units, steps, collectives, views and streams; what is said without a GPU.

In the suite gpu it runs on the stand-ins, or with MXS_TEST_GPU=1 on GPUs, as tests/gpu/gpu.hpp has it. In the suite
python, where no CUDA part is found, what needs a GPU is skipped.
"""
import array
import contextlib
import io
import os
import signal
import subprocess
import sys
import types
import unittest

import matrixshard as mxs
import world
from comm_case import CommCase, status
from cuda_driver import ByDlpack, Driver, Torch
from matrixshard import _arrays, _calls, errors
from pages import ROOT, claimed

# On the real driver: once more without the stand-ins in the loader's path, which it reads when a program begins.
if os.environ.get('MXS_TEST_GPU') and not os.environ.get('MXS_TEST_GPU_BEGUN') and hasattr(sys, 'orig_argv'):
    folders = os.environ['MXS_TEST_GPU']
    os.environ.update(MXS_TEST_GPU_BEGUN='1', LD_LIBRARY_PATH='' if folders == '1' else folders)
    for name in ('MXS_STANDIN_KERNELS', 'MXS_CUBLAS'):
        os.environ.pop(name, None)
    os.execv(sys.executable, sys.orig_argv)

WORLDS = (1, 2, 4)
SHAPES = {'tall': (40, 24), 'wide': (24, 40), 'bias': (17,), 'halves': (30, 8)}
GROUPS = [dict(lr=0.02, weight_decay=0.1, momentum=0.9), dict(lr=0.003, weight_decay=0.01)]
ON_STANDINS = 'MXS_STANDIN_KERNELS' in os.environ


def why_no_gpu():
    """None if there is one. Asked in a child: this process is to fork others."""
    def body(_rank):
        try:
            mxs.cuda_info()
        except (errors.NoDeviceError, errors.NotBuiltError) as error:
            return str(error)
        return None
    return world.run_ranks(1, body)[0]


NO_GPU = why_no_gpu()
needs_gpu = unittest.skipIf(NO_GPU, NO_GPU)
needs_standin = unittest.skipIf(NO_GPU or not ON_STANDINS, NO_GPU or 'wants the stand-in of the driver')


def count_of(shape):
    count = 1
    for length in shape:
        count *= length
    return count


def drawn(count, seed, is_half=False):
    """Numbers that bf16 holds exactly; its words if is_half."""
    values = array.array('f', (((seed * 7919 + index * 104729) % 255 - 127) / 64 for index in range(count)))
    if not is_half:
        return values
    words = memoryview(values).cast('B').cast('I')
    return array.array('H', (word >> 16 for word in words))


def floats_of(view):
    return memoryview(bytes(view.to_host())).cast('f').tolist()


class Side:
    """Units of one plan with their optimizer, in host or CUDA memory, from equal numbers."""

    def __init__(self, comm, memory, stream=None, **options):
        described = [mxs.Tensor(name, shape, unit=index % 2, rule='muon' if name in ('tall', 'wide') else 'adamw',
                                group=0 if name in ('tall', 'wide') else 1,
                                dtype='bf16' if name == 'halves' else 'f32')
                     for index, (name, shape) in enumerate(SHAPES.items())]
        self.rank, self.stream = comm.rank, stream
        self.plan = mxs.Plan(described, comm.topology())
        self.units = [mxs.Unit(comm, self.plan, index, memory=memory, rank_order=True, **options) for index in range(2)]
        for index, placement in enumerate(self.plan.placements):
            view = self.units[placement.unit].shard(index)
            view.from_host(drawn(placement.element_offset + placement.element_count, placement.tensor)
                           [placement.element_offset:] if view.bytes else b'')
            self.units[placement.unit].commit(view)
        self.optimizer = mxs.Optimizer(self.units, backend='reference')

    def backward(self, step):
        for unit in self.units:
            with unit.whole(stream=self.stream):
                for index in range(unit.index, len(SHAPES), 2):
                    name, shape = list(SHAPES.items())[index]
                    values = drawn(count_of(shape), 31 * step + 5 * self.rank + index, name == 'halves')
                    unit.gradient_set(index, values, 'bf16' if name == 'halves' else None)
            unit.reduce(stream=self.stream)

    def bits(self):
        """Of all that this rank owns: weights, masters, state."""
        found = {}
        for index, placement in enumerate(self.plan.placements):
            found[index] = bytes(self.units[placement.unit].shard(index).to_host())
        for part in self.optimizer.state:
            found[part.placement, part.name] = bytes(part.view.to_host())
        return found

    def whole_bits(self):
        found = []
        for unit in self.units:
            with unit.whole():
                found += [bytes(unit.tensor(index).to_host()) for index in range(unit.index, len(SHAPES), 2)]
        return found

    def close(self):
        self.optimizer.close()
        for unit in self.units:
            unit.close()


class WithoutGpu(CommCase):
    def test_without_the_cuda_part_each_call_says_which_file_is_missing(self):
        def body(comm):
            plan = mxs.Plan([mxs.Tensor('w', (4, 4))], comm.topology())
            layout = mxs.Layout.even(64, 4, comm.rank_count)
            for call in (mxs.cuda_info, lambda: mxs.cuda_device(0), lambda: mxs.Unit(comm, plan, 0, memory='cuda'),
                         lambda: comm.allocate(64, memory='cuda'),
                         lambda: mxs.Collective(comm, 'gather', layout, memory='cuda')):
                with self.assertRaisesRegex(errors.NotBuiltError, '/nonexistent') as caught:
                    call()
                self.assertNotIn('\n', str(caught.exception))
            self.assertEqual((comm.device, comm.cuda), (None, ''))
            with mxs.Unit(comm, plan, 0) as unit:  # the comm is as good as before
                unit.gather()
                unit.wait()
                unit.release()
        for count in (1, 2):
            self.run_world(count, body, environment={'MXS_CUDA_LIBRARY': '/nonexistent'})

    @needs_standin
    def test_without_a_gpu_no_device_is_said(self):
        def body(comm):
            for call in (mxs.cuda_info, lambda: comm.allocate(64, memory='cuda')):
                with self.assertRaises(errors.NoDeviceError) as caught:
                    call()
                self.assertEqual(caught.exception.status_name, 'NO_DEVICE')
        self.run_world(1, body, environment={'MXS_STANDIN_DEVICES': '0'})

    def test_streams_are_numbers_or_objects_that_have_one(self):
        for given, wanted in ((None, None), (0, None), (1, 1), (0x7f0012345678, 0x7f0012345678),
                              (types.SimpleNamespace(cuda_stream=5), 5), (types.SimpleNamespace(cuda_stream=0), None),
                              (types.SimpleNamespace(ptr=6), 6),
                              (types.SimpleNamespace(__cuda_stream__=lambda: (0, 7)), 7),
                              (types.SimpleNamespace(__cuda_stream__=(0, 8), cuda_stream=9), 8)):
            self.assertEqual(_calls.stream_of(given), wanted)
        for given in (True, 'default', 1.5, object(), types.SimpleNamespace(cuda_stream='s')):
            with self.assertRaisesRegex(TypeError, 'stream is .*, not a CUDA stream: a handle as a number'):
                _calls.stream_of(given)
        with self.assertRaisesRegex(ValueError, 'stream is -1'):
            _calls.stream_of(-1)

    def test_host_memory_has_no_streams(self):
        def body(comm):
            plan = mxs.Plan([mxs.Tensor('w', (8, 8))], comm.topology())
            unit = mxs.Unit(comm, plan, 0)
            self.assertEqual(unit.memory_kind, mxs.MemoryKind.HOST)
            optimizer = mxs.Optimizer([unit])
            layout = mxs.Layout.even(64, 4, 1)
            with mxs.Collective(comm, 'gather', layout) as gather:
                for call in (unit.gather, unit.wait, unit.release, unit.reduce, unit.skip, unit.wait_reduce,
                             lambda stream: optimizer.step(GROUPS[0], stream=stream),
                             lambda stream: gather.start(None, bytearray(64), stream=stream)):
                    self.assertEqual(status(call, stream=0x1000), ('INVALID_ARGUMENT', 0))
            self.assertEqual(status(optimizer.set_values, GROUPS[0]), ('INVALID_ARGUMENT', 0))
            with self.assertRaisesRegex(TypeError, 'buffer is a .* in CUDA memory; host memory is wanted'):
                mxs.Unit(comm, plan, 0, buffer=types.SimpleNamespace(__cuda_array_interface__={}))
            unit.gradient_set(0, array.array('f', [1.0] * 64))
            unit.reduce()
            self.assertIsNone(optimizer.step(GROUPS[0], verdict=False))
            self.assertEqual(optimizer.verdict().step_number, 1)
            view = unit.shard(0)
            self.assertEqual((view.device, view.__dlpack_device__()), (None, (1, 0)))
            view.from_host(drawn(64, 3))
            self.assertEqual(floats_of(view), list(drawn(64, 3)))
            self.assertEqual(view.to_host().shape, (8, 8))
            for data, wanted in ((bytes(12), 'data has 12 bytes'), (array.array('d', [0] * 64), 'data is of f64')):
                with self.assertRaisesRegex((TypeError, ValueError), wanted):
                    view.from_host(data)
            with unit.whole():
                with self.assertRaisesRegex(ValueError, 'readonly'):
                    unit.tensor(0).from_host(bytes(256))
        self.run_world(1, body)

    def test_devices_are_counted_from_0(self):
        with self.assertRaisesRegex(ValueError, 'device is -1'):
            mxs.Comm(device=-1)
        with self.assertRaisesRegex(TypeError, "device is 'cuda:0'"):
            mxs.Comm(device='cuda:0')
        with self.assertRaisesRegex(TypeError, 'nccl_comm is .*not a whole number'):
            mxs.Comm(nccl_comm=object())


class Devices(CommCase):
    @needs_gpu
    def test_a_rank_has_the_device_that_it_asks_for_and_views_tell_it(self):
        def body(rank):
            count = mxs.cuda_info().device_count
            with mxs.Comm(thread_count=1, timeout=30, device=(rank + 1) % count) as comm:
                self.assertEqual((comm.device, comm.info.cuda), (None, ''))
                view = comm.allocate(1 << 16, memory='cuda')
                self.assertEqual((comm.device, view.device), ((rank + 1) % count,) * 2)
                self.assertNotEqual(comm.cuda, '')
                self.assertEqual(view.__dlpack_device__(), (2, comm.device))
                tensor, _ = _arrays._tensor_of(view.__dlpack__(stream=-1))
                self.assertEqual((tensor.device, tensor.device_id, tensor.data), (2, comm.device, view.address))
                self.assertEqual(mxs.cuda_device(comm.device).index, comm.device)
                self.assertEqual(bytes(view.to_host()), bytes(1 << 16))
            self.assertEqual(comm.info.device, (rank + 1) % count)
        for count in (1, 2):
            world.run_ranks(count, body)

    @needs_gpu
    def test_a_device_that_is_not_there_is_named(self):
        def body(rank):
            with mxs.Comm(thread_count=1, timeout=30, device=1000) as comm:
                with self.assertRaisesRegex(errors.NoDeviceError, '1000'):
                    comm.allocate(64, memory='cuda')
        world.run_ranks(1, body)

    @needs_standin
    def test_what_cuda_refuses_is_a_device_failure_with_its_words(self):
        def body(comm):
            view = comm.allocate(64, memory='cuda')
            with self.assertRaisesRegex(errors.DeviceFailedError, 'cu[A-Z]'):
                mxs.copy_memory(view.address, view.address, 8, stream=0x12340)
        self.run_world(1, body)


class Views(CommCase):
    @needs_gpu
    def test_cuda_memory_is_for_libraries_of_gpus_alone(self):
        def body(comm):
            view = comm.allocate(64, memory='cuda')
            self.assertIn(f'CUDA device {comm.device}', repr(view))
            for call in (view.memory, lambda: view.__array_interface__, lambda: mxs.Norm().add(view)):
                with self.assertRaisesRegex(TypeError, 'CUDA memory.*host memory'):
                    call()
            with self.assertRaises(TypeError):
                memoryview(view)
            with self.assertRaisesRegex(BufferError, 'is on device'):
                view.__dlpack__(dl_device=(1, 0))
            with self.assertRaisesRegex(ValueError, 'stream is 0'):
                view.__dlpack__(stream=0)
            interface = view.__cuda_array_interface__
            self.assertEqual(interface, {'version': 3, 'typestr': '|u1', 'shape': (64,), 'strides': (1,),
                                         'data': (view.address, False), 'stream': None})
        self.run_world(1, body)

    @needs_gpu
    def test_views_name_the_stream_that_orders_them(self):
        def body(comm):
            side = Side(comm, 'cuda')
            driver = Driver(comm.device)
            stream, other = driver.stream(), driver.stream()
            unit = side.units[0]
            with unit.whole(stream=stream):
                view = unit.tensor(0)
                self.assertEqual(view.__cuda_array_interface__['stream'], stream.cuda_stream)
                self.assertTrue(view.__cuda_array_interface__['data'][1])
                for number in (stream.cuda_stream, -1):
                    self.assertIsNotNone(view.__dlpack__(stream=number, max_version=(1, 0)))
                for number in (None, 1, other.cuda_stream):
                    with self.assertRaisesRegex(BufferError, 'is ordered on stream 0x.*let that stream wait'):
                        view.__dlpack__(stream=number)
                unit.wait(stream=other)
                self.assertIsNotNone(unit.tensor(0).__dlpack__(stream=other.cuda_stream))
                gradient = unit.gradient(0, add=True)
                self.assertEqual(gradient.__cuda_array_interface__['stream'], other.cuda_stream)
                other.synchronize()
                self.assertEqual(set(floats_of(gradient)), {0.0})
            unit.discard()
            with unit.whole():  # it has blocked: nobody has to wait
                self.assertIsNone(unit.tensor(0).__cuda_array_interface__['stream'])
                self.assertEqual(unit.gradient(0).__cuda_array_interface__['stream'], 1)
            unit.discard()
            halves = side.units[1]
            with halves.whole():
                with self.assertRaisesRegex(TypeError, 'no bf16: use DLPack'):
                    halves.tensor(3).__cuda_array_interface__
                tensor, is_readonly = _arrays._tensor_of(halves.tensor(3).__dlpack__(stream=1, max_version=(1, 0)))
                self.assertEqual((tensor.code, tensor.bits, tensor.device_id, is_readonly), (4, 16, comm.device, True))
                words = halves.tensor(3).to_host()
                self.assertEqual((words.format, words.shape), ('H', SHAPES['halves']))
            side.close()
        self.run_world(2, body)


class Units(CommCase):
    @needs_gpu
    def test_steps_have_the_bits_of_host_memory(self):
        def body(comm):
            host, device = Side(comm, None), Side(comm, 'cuda')
            stream = Driver(comm.device).stream()
            device.stream = stream
            self.assertEqual({unit.memory_kind for unit in device.units}, {mxs.MemoryKind.CUDA})
            self.assertIn(device.units[0].info.pages, ('mapped', 'copied'))
            for step in range(4):
                options = dict(gradient_scale=1 / comm.rank_count, clip_norm=0.5 if step % 2 else 0.0)
                for side in (host, device):
                    side.backward(step)
                wanted = host.optimizer.step(GROUPS, **options)
                if step == 3:
                    self.assertIsNone(device.optimizer.step(GROUPS, stream=stream, verdict=False, **options))
                    parts = list(device.optimizer.state)
                    if parts:
                        self.assertEqual(parts[0].view._stream, stream.cuda_stream)
                    found = device.optimizer.verdict()
                else:
                    if step == 1:
                        device.optimizer.agree(GROUPS, stream=stream, **options)
                    found = device.optimizer.step(GROUPS, stream=stream, **options)
                self.assertEqual(found, wanted)
                stream.synchronize()
                self.assertEqual(device.bits(), host.bits())
                self.assertEqual(device.whole_bits(), host.whole_bits())
            with self.assertRaisesRegex(TypeError, 'CUDA memory.*DLPack'):
                device.units[0].gather()
                device.units[0].wait()
                device.units[0].tensor(0).memory()
            device.units[0].release()
            for side in (host, device):
                side.close()
        for count in WORLDS:
            self.run_world(count, body)

    @needs_standin
    def test_streams_that_are_slow_change_no_bits(self):
        def body(comm):
            host, device = Side(comm, None), Side(comm, 'cuda')
            driver = Driver(comm.device)
            device.stream = driver.stream()
            driver.slow_down(300)
            for step in range(2):
                for side in (host, device):
                    side.backward(step)
                wanted = host.optimizer.step(GROUPS)
                device.optimizer.step(GROUPS, stream=device.stream, verdict=False)
            self.assertEqual(device.optimizer.verdict(), wanted)
            driver.slow_down(None)
            self.assertEqual(device.bits(), host.bits())
            for side in (host, device):
                side.close()
        self.run_world(2, body)

    @needs_gpu
    def test_gradients_come_from_the_device_and_sums_are_there(self):
        def body(comm):
            plan = mxs.Plan([mxs.Tensor('w', (16, 8)), mxs.Tensor('b', (8,))], comm.topology())
            unit = mxs.Unit(comm, plan, 0, memory='cuda')
            driver = Driver(comm.device)
            stream = driver.stream()
            with unit.whole(stream=stream):
                given, short = driver.floats(drawn(128, comm.rank)), driver.floats([1, 2, 3])
                driver.slow_down(1000)
                stream.be_late()
                unit.gradient_set(0, given)
                unit.gradient(1, add=True)
            with self.assertRaisesRegex((TypeError, errors.InvalidArgumentError), 'bytes|has'):
                unit.gradient_set(0, short)
            request = unit.reduce(stream=stream)
            driver.slow_down(None)
            unit.wait_reduce(stream=stream)
            unit.wait_reduce()
            comm.wait(request)
            wanted = [sum(values) for values in zip(*(drawn(128, rank) for rank in range(comm.rank_count)))]
            for index, placement in enumerate(plan.placements):
                view = unit.shard_gradient(index)
                self.assertEqual(view.memory_kind, mxs.MemoryKind.CUDA)
                if view.bytes:
                    wanted_here = wanted if placement.tensor == 0 else [0.0] * 8
                    self.assertEqual(floats_of(view), wanted_here[placement.element_offset:]
                                     [:placement.element_count])
            unit.skip(stream=stream)
            unit.wait_reduce()
            with mxs.Unit(comm, plan, 0) as host:
                with self.assertRaisesRegex(TypeError, "array is a DeviceArray in CUDA memory.*memory='cuda'"):
                    host.gradient_set(0, given)
            unit.close()
        for count in WORLDS:
            self.run_world(count, body)

    @needs_gpu
    def test_a_buffer_is_memory_of_the_device(self):
        def body(comm):
            plan = mxs.Plan([mxs.Tensor('w', (16, 8))], comm.topology())
            with plan.layout(0, 'weights') as layout:
                bytes_wanted = layout.bytes
            with self.assertRaisesRegex(TypeError, 'buffer is a memoryview in host memory: CUDA memory is wanted'):
                mxs.Unit(comm, plan, 0, memory='cuda', buffer=mxs.aligned_memory(bytes_wanted, 4096))
            buffer = comm.allocate(bytes_wanted, memory='cuda')
            with mxs.Unit(comm, plan, 0, memory='cuda', buffer=buffer) as unit:
                self.assertEqual(unit.info.address, buffer.address)
        self.run_world(2, body)

    @needs_standin
    def test_memory_that_runs_out_is_an_exception_that_names_the_device(self):
        def body(comm):
            view = comm.allocate(64, memory='cuda')
            Driver(comm.device).set_switch('MXS_STANDIN_FAIL_ALLOCATION_AFTER', 0)
            plan = mxs.Plan([mxs.Tensor('w', (16, 8))], comm.topology())
            with self.assertRaisesRegex(errors.OutOfMemoryError, 'device|GPU'):
                mxs.Unit(comm, plan, 0, memory='cuda')
            del view
        self.run_world(2, body)


class Failures(CommCase):
    @needs_gpu
    def test_a_rank_that_dies_ends_a_step_that_only_a_stream_waits_for(self):
        def body(rank):
            with mxs.Comm(thread_count=1, timeout=30) as comm:
                side = Side(comm, 'cuda')
                stream = Driver(comm.device).stream()
                side.stream = stream
                side.backward(1)
                comm.barrier()
                if rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                side.optimizer.step(GROUPS, stream=stream, verdict=False)
                stream.synchronize()  # nobody calls the library meanwhile
                with self.assertRaisesRegex(errors.PeerFailedError, 'rank 1'):
                    comm.barrier()
                side.close()
            os.environ.update(RANK='0', LOCAL_RANK='0', WORLD_SIZE='1', LOCAL_WORLD_SIZE='1')
            with mxs.Comm(thread_count=1, timeout=30) as comm:  # and the device is as good as before
                side = Side(comm, 'cuda')
                side.backward(1)
                self.assertEqual(side.optimizer.step(GROUPS).step_number, 1)
                side.close()
            return 'alive'
        self.assertEqual(world.run_ranks(3, body, may_die=(1,)), ['alive', None, 'alive'])

    @needs_standin
    def test_an_error_of_nccl_in_a_step_is_told_in_its_words_on_all_ranks(self):
        def body(comm, waits):
            side = Side(comm, 'cuda')
            with self.assertRaisesRegex(errors.PeerFailedError, 'asynchronous error of NCCL.*asked to fail'):
                for _ in range(8):
                    side.optimizer.step(GROUPS, verdict=waits)
                    side.optimizer.verdict()
            side.close()
        for waits in (True, False):
            self.run_world(2, body, waits, environment={'MXS_STANDIN_NCCL_ASYNC_ERROR_AFTER': '2',
                                                        'MXS_STANDIN_NCCL_ASYNC_ERROR_RANK': '1'})

    @needs_standin
    def test_a_step_on_a_device_that_fails_is_a_failure_on_all_ranks(self):
        def body(comm):
            side = Side(comm, 'cuda')
            if comm.rank == 1:
                Driver(comm.device).set_switch('MXS_STANDIN_FAIL_JOB_AFTER', 2)
            # Whoever meets the failure first tells of it: we by the driver's name, NCCL by the number.
            with self.assertRaisesRegex((errors.DeviceFailedError, errors.PeerFailedError), 'ECC|CUDA error 214'):
                side.optimizer.step(GROUPS)
            side.close()
        for route in ('nccl', 'messages'):
            self.run_world(2, body, environment={'MXS_ROUTE': route})

    @needs_gpu
    def test_a_stream_of_another_device_is_refused_and_nothing_is_lost(self):
        def body(comm):
            if mxs.cuda_info().device_count < 2:
                raise unittest.SkipTest('wants two devices')
            side = Side(comm, 'cuda')
            stream = Driver((comm.device + 1) % mxs.cuda_info().device_count).stream()
            unit = side.units[0]
            wrong = f'is not a stream of device {comm.device} '
            for call in (unit.gather, lambda stream: side.optimizer.step(GROUPS, stream=stream)):
                with self.assertRaisesRegex(errors.InvalidArgumentError, wrong):
                    call(stream=stream)
            unit.gather()
            unit.wait()
            with self.assertRaisesRegex(errors.InvalidArgumentError, wrong):
                unit.release(stream=stream)
            unit.release()
            side.backward(1)
            self.assertEqual(side.optimizer.step(GROUPS).step_number, 1)
            side.close()
        self.run_world(2, body)


class Collectives(CommCase):
    @needs_gpu
    def test_gather_reduce_and_reshard_take_arrays_of_every_kind(self):
        def body(comm):
            count, rank = 4 * 96, comm.rank
            layout = mxs.Layout.even(4 * count, 4, comm.rank_count)
            other = mxs.Layout([(comm.rank_count - 1, 0, 4 * count)], comm.rank_count)
            whole = list(drawn(count, 1))
            own = [whole[one.offset // 4:(one.offset + one.bytes) // 4] for one in layout.segments
                   if one.owner == rank][0]
            target = comm.allocate(4 * count, memory='cuda')
            driver = Driver(comm.device)
            stream = driver.stream()
            # gather: from __cuda_array_interface__ to a view
            known, source = driver.floats(own), driver.floats([-1.0] * len(own), stream)
            driver.slow_down(1000)
            stream.be_late()
            mxs.copy_memory(source.address, known.address, 4 * len(own), stream=stream)
            self.assertIs(mxs.gather(comm, layout, source, target, memory='cuda'), target)
            driver.slow_down(None)
            self.assertEqual(floats_of(target), whole)
            # reduce: from DLPack to __cuda_array_interface__, in rank order as host memory has it
            given = [array.array('f', (value * 1.1 for value in drawn(count, one))) for one in range(comm.rank_count)]
            target.from_host(given[rank])
            tensor = ByDlpack(target)
            sums = driver.floats([9.0] * len(own))
            host_sums = array.array('f', [9.0] * len(own))
            mxs.reduce(comm, layout, given[rank], host_sums, rank_order=True)
            with mxs.Collective(comm, 'reduce', layout, memory='cuda', rank_order=True) as reduce:
                for _ in range(3):
                    request = reduce.start(tensor, sums, stream=stream)
                    reduce.wait(stream=stream)
                reduce.wait()
                comm.wait(request)
                self.assertEqual(set(tensor.streams), {stream.cuda_stream})
                self.assertIn('reduce', repr(reduce))
            self.assertEqual(sums.values(), list(host_sums))
            # reshard: everything to the last rank
            mxs.reshard(comm, layout, other, driver.floats(own), target if rank == comm.rank_count - 1 else None,
                        memory='cuda', stream=stream)
            if rank == comm.rank_count - 1:
                self.assertEqual(floats_of(target), whole)
        for count in WORLDS:
            self.run_world(count, body)

    @needs_gpu
    def test_host_and_cuda_memory_do_not_mix(self):
        def body(comm):
            layout = mxs.Layout.even(256, 4, comm.rank_count)
            own = layout.owned_bytes(comm.rank)
            device, host = comm.allocate(256, memory='cuda'), bytearray(256)
            for kind, memory in (('gather', None), ('gather', 'cuda'), ('reduce', None), ('reduce', 'cuda')):
                with mxs.Collective(comm, kind, layout, memory=memory) as collective:
                    right, wrong = (device, host) if memory else (host, device)
                    text = 'in host memory: CUDA memory is wanted' if memory else \
                        "in CUDA memory, but this collective is of host memory: make it with memory='cuda'"
                    with self.assertRaisesRegex(TypeError, f'^source is a \\w+ {text}'):
                        collective.start(wrong, right)
                    with self.assertRaisesRegex(TypeError, f'^target is a \\w+ {text}'):
                        collective.start(right, wrong)
            with mxs.Collective(comm, 'gather', layout, memory='cuda') as gather:
                with self.assertRaisesRegex(TypeError, 'target is a list: CUDA memory is wanted'):
                    gather.start(None, [1, 2])
                with self.assertRaisesRegex(ValueError, 'target has 64 bytes; 256 are wanted'):
                    gather.start(None, Driver(comm.device).floats([0.0] * 16))
                driver = Driver(comm.device)
                first, second = (driver.floats([0.0] * 64, driver.stream()) for _ in range(2))
                with self.assertRaisesRegex(ValueError, 'source on 0x.*, target on 0x.*different streams'):
                    gather.start(first, second)
                gather.start(first, second, stream=driver.stream())  # the caller says it
                gather.wait()
            self.assertEqual(own, 256 // comm.rank_count)
        for count in (1, 2):
            self.run_world(count, body)


class Examples(unittest.TestCase):
    def run_example(self, *command, **variables):
        return subprocess.run([*command, sys.executable, str(ROOT / 'docs/examples/owner_step_cuda.py')],
                              capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **variables})

    @needs_gpu
    def test_owner_step_runs_on_two_ranks_and_alone(self):
        found = self.run_example(os.environ['MXS_PROGRAM'], 'run', '-n', '2', '--')
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertEqual(found.stdout.count('step 1, norm 22.6274, first weight -0.03'), 2, found.stdout)
        found = self.run_example(RANK='0', WORLD_SIZE='1')
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertRegex(found.stdout, r'^step 1, norm 11\.3137, first weight -0\.03')

    @needs_gpu
    def test_the_example_of_the_page_runs(self):
        def body(_rank):
            block, = claimed.blocks('docs/python.md', 'tests/python/test_cuda.py')
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block.text, 'docs/python.md: CUDA memory', 'exec'), {'mxs': mxs, 'torch': Torch()})
            return printed.getvalue()
        for printed in world.run_ranks(2, body):
            self.assertRegex(printed, r'^GPU \d+ by nccl .*\n45\.9\d+\n$')


if __name__ == '__main__':
    unittest.main()
