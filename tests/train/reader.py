# SPDX-License-Identifier: Apache-2.0
"""A reader of checkpoints that shares no line with the library: struct and json, and what safetensors' format says.

    8 bytes      N, little-endian
    N bytes      JSON: {"NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, "__metadata__": {...}}
    the rest     the arrays, at their offsets, in row order
"""
import json
import os
import struct

WIDTHS = {'F64': 8, 'I64': 8, 'F32': 4, 'I32': 4, 'BF16': 2, 'F16': 2, 'U8': 1, 'BOOL': 1}


class Array:
    def __init__(self, path, file, name, entry, data_offset):
        self.name, self.file, self.dtype, self.shape = name, file, entry['dtype'], entry['shape']
        begin, end = entry['data_offsets']
        self.path, self.offset, self.bytes = path, data_offset + begin, end - begin
        count = 1
        for size in self.shape:
            count *= size
        assert self.bytes == count * WIDTHS[self.dtype], f'{file}, {name}: {self.bytes} bytes of {entry}'

    def read(self):
        with open(self.path, 'rb') as file:
            file.seek(self.offset)
            data = file.read(self.bytes)
        assert len(data) == self.bytes, f'{self.file} ends after {len(data)} of {self.bytes} bytes of {self.name}'
        return data


def read_file(folder, name):
    """Its arrays by name. Offsets must cover the data without a gap or an overlap, as the format wants."""
    path = os.path.join(folder, name)
    with open(path, 'rb') as file:
        length, = struct.unpack('<Q', file.read(8))
        header = json.loads(file.read(length).decode('utf-8'))
    metadata = header.pop('__metadata__', None)
    assert metadata == {'format': 'pt'}, f'{name}: {metadata}'
    arrays = {key: Array(path, name, key, entry, 8 + length) for key, entry in header.items()}
    end = 8 + length
    for array in sorted(arrays.values(), key=lambda array: (array.offset, array.bytes)):
        assert array.offset == end, f'{name}, {array.name}: at {array.offset}, not {end}'
        end += array.bytes
    assert end == os.path.getsize(path), f'{name} has {os.path.getsize(path)} bytes, its arrays end at {end}'
    return arrays


def read_model(folder):
    """What transformers sees: the tensors of model.safetensors.index.json, by name."""
    with open(os.path.join(folder, 'model.safetensors.index.json'), encoding='utf-8') as file:
        index = json.load(file)
    files = {name: read_file(folder, name) for name in sorted(set(index['weight_map'].values()))}
    arrays = {name: files[file][name] for name, file in index['weight_map'].items()}
    assert len(arrays) == sum(map(len, files.values())), 'files have arrays that the index does not'
    total = sum(array.bytes for array in arrays.values())
    assert index['metadata']['total_size'] == total, f'{index["metadata"]}, {total} bytes'
    present = sorted(name for name in os.listdir(folder) if name.endswith('.safetensors'))
    assert present == sorted(files), f'{present} beside the index of {sorted(files)}'
    return arrays


def read_optimizer(folder):
    """Masters and state of all ranks, by name."""
    arrays = {}
    for name in sorted(os.listdir(os.path.join(folder, 'optimizer'))):
        for key, array in read_file(folder, os.path.join('optimizer', name)).items():
            assert key not in arrays, f'{key} is in {array.file} and in {arrays[key].file}'
            arrays[key] = array
    return arrays


def narrowed(data):
    """fp32 rounded to bf16, to nearest even."""
    words = struct.unpack(f'<{len(data) // 4}I', data)
    return struct.pack(f'<{len(words)}H', *((word + 0x7fff + (word >> 16 & 1)) >> 16 for word in words))
