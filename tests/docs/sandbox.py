# SPDX-License-Identifier: Apache-2.0
"""A folder that looks like the tree to whoever runs commands of a page there, and keeps what they write.

Its entries are links into the tree, but for bindings, which is a copy (pip writes there), and b, which is this build.
mxs, mxs-perf and mxs-train are this build's, python, pip and torchrun one Python's; HOME, temporary files and what pip
installs (in an environment of its own) lie in the folder.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

LINKED_NOT = {'.git', 'b', 'bindings'}
SECONDS_MAX = 100


class Sandbox:
    def __init__(self, root, build, pythons):
        """pythons: of interpreters.py, [(program, [module, ...]), ...], the build's own first."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='mxs-docs-'))
        self.root, self.build, self.pythons = pathlib.Path(root), pathlib.Path(build), pythons
        for entry in self.root.iterdir():
            if entry.name not in LINKED_NOT and not (entry / 'meson-private').is_dir():
                (self.folder / entry.name).symlink_to(entry)
        shutil.copytree(self.root / 'bindings', self.folder / 'bindings',
                        ignore=shutil.ignore_patterns('__pycache__', 'lib'))
        (self.folder / 'b').symlink_to(self.build)
        for name in ('home', 'tmp', 'bin'):
            (self.folder / name).mkdir()

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def make_pip(self):
        """(status, what it said): an environment for the command pip to install into. Once."""
        if (self.folder / 'for_pip').exists():
            return 0, ''
        status, out, err = self.run('python3 -m venv for_pip', ('ensurepip',))
        return status, out + err

    def install(self):
        """(status, what it said): this build into stage, for commands that want an installed library. Once."""
        if (self.folder / 'stage').exists():
            return 0, ''
        status, out, err = self.run('meson install -C b --no-rebuild --quiet --destdir $PWD/stage')
        return status, out + err

    def installed(self):
        """Variables by which pkg-config, cmake and the loader find it there."""
        description = next(self.folder.glob('stage/**/matrixshard.pc'), None)
        if not description:
            return {}
        library = description.parent.parent
        return {'PKG_CONFIG_PATH': str(description.parent), 'PKG_CONFIG_SYSROOT_DIR': str(self.folder / 'stage'),
                'LIBRARY_PATH': str(library), 'LD_LIBRARY_PATH': str(library),
                'CMAKE_PREFIX_PATH': str(next(self.folder.glob('stage/**/include')).parent)}

    def python_with(self, modules):
        """The newest that has them all, or None."""
        fitting = [program for program, has in self.pythons if set(modules) <= set(has)]
        return fitting[-1] if fitting and modules else (fitting[0] if fitting else None)

    def write_program(self, name, words):
        path = self.folder / 'bin' / name
        path.write_text('#!/bin/sh\nexec ' + words + ' "$@"\n')
        path.chmod(0o755)

    def environment(self, python):
        self.write_program('python', f'{python} -B')
        self.write_program('python3', f'{python} -B')
        self.write_program('pip', f'{self.folder}/for_pip/bin/pip')
        self.write_program('torchrun', f'{python} -m torch.distributed.run')
        own = {name: value for name, value in os.environ.items()
               if not name.startswith(('MXS_', 'PYTHON', 'PIP_', 'MESON_'))
               and name not in ('RANK', 'WORLD_SIZE', 'VIRTUAL_ENV')}
        build, folder = self.build, self.folder
        paths = [folder / 'bin', build / 'src/cli', build / 'perf', build / 'perf/train']
        return {**own, 'PATH': ':'.join(map(str, paths)) + ':' + own.get('PATH', '/usr/bin:/bin'),
                'PYTHONPATH': f'{self.root}/bindings/python', 'PYTHONDONTWRITEBYTECODE': '1',
                'MXS_LIBRARY': f'{build}/src/libmatrixshard.so.0.1', 'MXS_SPEEDS': 'none', 'MXS_TIMEOUT': '60',
                'LD_LIBRARY_PATH': f'{build}/src', **self.installed(),
                'HOME': str(folder / 'home'), 'TMPDIR': str(folder / 'tmp'), 'OMP_NUM_THREADS': '1',
                # pip asks no network.
                'PIP_NO_INDEX': '1', 'PIP_NO_DEPS': '1', 'PIP_DISABLE_PIP_VERSION_CHECK': '1'}

    def run(self, command, modules=(), seconds=SECONDS_MAX):
        """(status, standard output, standard error) of a line of bash; its children end with it."""
        python = self.python_with(modules)
        shell = subprocess.Popen(['bash', '-c', command], cwd=self.folder, env=self.environment(python), text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 errors='replace', start_new_session=True)
        try:
            out, err = shell.communicate(timeout=seconds)
            return shell.returncode, out, err
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGTERM)
            try:
                out, err = shell.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                out, err = shell.communicate()
            return 124, out, err + f'\nended after {seconds} s'
