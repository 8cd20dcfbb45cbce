# SPDX-License-Identifier: Apache-2.0
"""The format of safetensors in a few lines, by json and struct alone: an independent reader, which knows nothing of
matrixshard, and a writer of models of others."""
import json
import pathlib
import struct

BYTES = {'F64': 8, 'F32': 4, 'F16': 2, 'BF16': 2, 'I64': 8, 'I32': 4, 'I16': 2, 'I8': 1, 'U64': 8, 'U32': 4, 'U16': 2,
         'U8': 1, 'BOOL': 1, 'C64': 8, 'F8_E4M3': 1, 'F8_E5M2': 1, 'F8_E8M0': 1}


def count_of(shape):
    count = 1
    for length in shape:
        count *= length
    return count


def read_file(path):
    """{name: (dtype, shape, bytes)}, in the order of their bytes, which fill the file without gaps."""
    data = pathlib.Path(path).read_bytes()
    length, = struct.unpack_from('<Q', data)
    header = json.loads(data[8:8 + length])
    assert header.pop('__metadata__', {}) in ({}, {'format': 'pt'}), path
    found, end = {}, 0
    for name, one in sorted(header.items(), key=lambda item: item[1]['data_offsets']):
        begin, end_before, end = one['data_offsets'][0], end, one['data_offsets'][1]
        assert begin == end_before, f'{path}: {name} begins at {begin}, not at {end_before}'
        assert end - begin == BYTES[one['dtype']] * count_of(one['shape']), f'{path}: {name}'
        found[name] = one['dtype'], tuple(one['shape']), data[8 + length + begin:8 + length + end]
    assert len(data) == 8 + length + end, f'{path} has {len(data)} bytes, not {8 + length + end}'
    return found


def read_model(folder):
    """Of the index of a folder: each tensor is in the file that it names, and nowhere else."""
    folder = pathlib.Path(folder)
    index = json.loads((folder / 'model.safetensors.index.json').read_text())
    found = {}
    for file in sorted(set(index['weight_map'].values())):
        for name, value in read_file(folder / file).items():
            assert index['weight_map'][name] == file and name not in found, name
            found[name] = value
    assert set(found) == set(index['weight_map'])
    assert index['metadata']['total_size'] == sum(len(value[2]) for value in found.values())
    return found


def read_state(folder):
    """Masters and optimizer state of a checkpoint, from all files beside the model."""
    found = {}
    for path in sorted((pathlib.Path(folder) / 'optimizer').glob('*.safetensors')):
        for name, value in read_file(path).items():
            assert name not in found, f'{name} is there twice'
            found[name] = value
    return found


def write_file(path, tensors, metadata=None):
    """tensors: {name: (dtype, shape, bytes)}."""
    header, at = {'__metadata__': metadata or {'format': 'pt'}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': list(shape), 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack('<Q', len(text)) + text + b''.join(one[2] for one in tensors.values()))
