# SPDX-License-Identifier: Apache-2.0
"""Where was it measured, and with which versions? Nothing is guessed: what can't be found out is None."""
import ctypes
import json
import os
import platform
import re
import shlex
import subprocess
import sys

UCX_VERSION = ('import ctypes; ucx = ctypes.CDLL("libucp.so.0"); ucx.ucp_get_version_string.restype = ctypes.c_char_p; '
               'print(ucx.ucp_get_version_string().decode())')
HERE = os.path.dirname(os.path.abspath(__file__))


def output_of(command):
    """Standard output, or None."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def first(pattern, text):
    found = re.search(pattern, text or '', re.MULTILINE)
    return found[1].strip() if found else None


def read(path):
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            return file.read()
    except OSError:
        return None


def info(build):
    return json.loads(output_of([os.path.join(build, 'src', 'cli', 'mxs'), 'info', '--json']) or '{}')


def machine(build):
    cpu = info(build).get('cpu', {})
    memory_kib = first(r'^MemTotal:\s*(\d+) kB', read('/proc/meminfo'))
    # Not systemd-detect-virt, which inside a container tells of the container alone.
    hypervisor = first(r'^Hypervisor vendor:(.*)', output_of(['env', 'LC_ALL=C', 'lscpu']))
    return {'processor': cpu.get('model'), 'cores': len(os.sched_getaffinity(0)),
            'memory_bytes': int(memory_kib) * 1024 if memory_kib else None, 'kernel': platform.release(),
            'virtual': hypervisor.lower() if hypervisor else None,
            'instructions': cpu.get('features', '').split()}


def ucx_version():
    """Asked in a child: UCX takes SIGHUP and others from the process that loads it."""
    return first(r'^(\d+\.\d+\.\d+)', output_of([sys.executable, '-c', UCX_VERSION]))


def onednn_version():
    class Version(ctypes.Structure):
        _fields_ = [(name, ctypes.c_int) for name in ('major', 'minor', 'patch')]
    for name in ('libdnnl.so.3', 'libdnnl.so.2'):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.dnnl_version.restype = ctypes.POINTER(Version)
        version = library.dnnl_version().contents
        return f'{version.major}.{version.minor}.{version.patch}'
    return None


def compiler_version(build):
    """Of the compiler that the build's own commands call."""
    commands = json.loads(read(os.path.join(build, 'compile_commands.json')) or '[]')
    for command in commands:
        words = [word for word in shlex.split(command['command'])[:2] if not word.startswith('-')]
        if re.search(r'\+\+', words[-1]):
            return first(r'^(.+)', output_of([words[-1], '--version']))
    return None


def commit():
    found = output_of(['git', '-C', HERE, 'rev-parse', '--short=12', 'HEAD'])
    changed = output_of(['git', '-C', HERE, 'status', '--porcelain', '--untracked-files=no'])
    return found and found + ('-changed' if changed else '')


def versions(build):
    return {'matrixshard': info(build).get('version'), 'commit': commit(), 'ucx': ucx_version(),
            'onednn': onednn_version(), 'compiler': compiler_version(build), 'python': platform.python_version()}
