# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel: what pip calls for `pip install ./bindings/python` (PEP 517, PEP 660). Standard library only.

    matrixshard-0.1.0-py3-none-linux_x86_64.whl
        matrixshard/*.py, torch/*.py, py.typed
        matrixshard/lib/libmatrixshard.so.0.1     built by meson from the tree two folders up
        matrixshard-0.1.0.dist-info/METADATA, WHEEL, RECORD, licenses/LICENSE

It holds for one kind of machine, not for many Linuxes: the library inside uses this system's hwloc, oneDNN and xxHash.

    pip install ./bindings/python                                        compiles the library
    pip install ./bindings/python --config-settings library=PATH         takes one that is compiled already
    pip install ./bindings/python --config-settings library=installed    none inside: the system's is used
    pip install --editable ./bindings/python                             the package stays here, the library beside it
"""
import ast
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(HERE, 'matrixshard')
TOOLS = {'meson': 'meson >= 1.0', 'ninja': 'ninja'}
# What a wheel has no use for. Left at auto are the parts of the library itself: those that this machine has are built.
MESON_OPTIONS = ['--buildtype=release', '-Dtests=disabled', '-Dperf=disabled', '-Ddocs=disabled', '-Dpython=disabled']
TAIL_LINES = 40


class BuildError(SystemExit):
    """Its sentence is all that pip shows: no traceback."""

    def __init__(self, sentence):
        super().__init__(f'matrixshard: {sentence}')


# ---- What frontends call

def get_requires_for_build_wheel(config_settings=None):
    """Meson and Ninja of a package index, as far as PATH has none."""
    if _library_setting(config_settings):
        return []
    return [requirement for tool, requirement in TOOLS.items() if not shutil.which(tool)]


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    pure = _library_setting(config_settings) == 'installed'
    folder = os.path.join(metadata_directory, _dist_info())
    for name, data in _dist_info_files(pure).items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as file:
            file.write(data)
    return _dist_info()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {}
    for folder, folders, names in os.walk(PACKAGE):
        folders[:] = sorted(name for name in folders if name != '__pycache__' and (folder, name) != (PACKAGE, 'lib'))
        for name in sorted(names):
            if name.endswith('.py') or name == 'py.typed':
                files[os.path.relpath(os.path.join(folder, name), HERE)] = _read(os.path.join(folder, name))
    with tempfile.TemporaryDirectory() as build_folder:
        library = _library(config_settings, build_folder)
        if library:
            files[f'matrixshard/lib/{_soname()}'] = _read(library)
        return _write_wheel(wheel_directory, files, pure=not library)


def build_sdist(sdist_directory, config_settings=None):
    raise BuildError('no source distribution is made: the C++ sources lie outside of bindings/python. Build a wheel '
                     '(pip wheel ./bindings/python, python -m build --wheel bindings/python), or hand on the whole '
                     'repository')


get_requires_for_build_editable = get_requires_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """One .pth file; the library goes into this folder, as a link if it was compiled already."""
    beside = os.path.join(PACKAGE, 'lib', _soname())
    with tempfile.TemporaryDirectory() as build_folder:
        library = _library(config_settings, build_folder)
        if library and os.path.realpath(library) == os.path.realpath(beside):
            return _write_wheel(wheel_directory, {'_matrixshard_editable.pth': f'{HERE}\n'.encode()}, pure=False)
        if os.path.lexists(beside):
            os.remove(beside)
        if library:
            os.makedirs(os.path.dirname(beside), exist_ok=True)
            if library.startswith(build_folder + os.sep):
                shutil.copy(library, beside)
            else:
                os.symlink(library, beside)
    return _write_wheel(wheel_directory, {'_matrixshard_editable.pth': f'{HERE}\n'.encode()}, pure=not library)


# ---- The library

def _library_setting(config_settings):
    """None: compile it. Else 'installed', or the path of a library."""
    settings = dict(config_settings or {})
    value = settings.pop('library', None)
    # Frontends add settings of their own when they call an older backend's commands.
    settings = {name: value for name, value in settings.items() if not name.startswith('--')}
    if settings:
        raise BuildError(f'there is no config setting {", ".join(sorted(settings))}; there is library=PATH, and '
                         'library=installed')
    if value is None or value == 'installed':
        return value
    if not isinstance(value, str) or not value:
        raise BuildError(f'config setting library is {value!r}; it is one path, or "installed"')
    path = os.path.abspath(os.path.expanduser(value))
    if not os.path.isfile(path):
        raise BuildError(f'config setting library={value}: there is no such file; meson compiles it as '
                         f'b/src/{_soname()} ("meson setup b; ninja -C b")')
    return path


def _library(config_settings, build_folder):
    """Path of the library that goes into the wheel, or None."""
    setting = _library_setting(config_settings)
    if setting == 'installed':
        return None
    library = setting or _compile(build_folder)
    # The package's own way of loading it, so that a library that lacks a function is noticed here.
    found = subprocess.run([sys.executable, '-B', '-c', 'import matrixshard; print(matrixshard.__version__)'],
                           env={**os.environ, 'PYTHONPATH': HERE, 'MXS_LIBRARY': library}, capture_output=True,
                           text=True, check=False)
    if found.returncode != 0:
        why = (found.stderr.strip().splitlines() or [f'exit status {found.returncode}'])[-1]
        raise BuildError(f'{library} cannot be loaded by this package: {why}')
    if found.stdout.strip() != _version():
        raise BuildError(f'{library} is version {found.stdout.strip()}, but this package is {_version()}')
    return library


def _compile(build_folder):
    root = _root()
    for tool in TOOLS:
        if not shutil.which(tool):
            raise BuildError(f'{tool} is not in PATH. Install it (Debian: meson, ninja-build; ./dev deps brings all '
                             'that a build needs), or name a library that is compiled already: --config-settings '
                             'library=PATH')
    _run(['meson', 'setup', build_folder, root, *MESON_OPTIONS], 'meson setup')
    target = f'src/libmatrixshard.so.{_version()}'
    _run(['ninja', '-C', build_folder, target], 'compiling the library')
    return os.path.join(build_folder, target)


def _run(command, what):
    """Its output is shown as it comes, which pip does with -v; the end of it is part of the sentence if it fails."""
    tail = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors='replace') as process:
        for line in process.stdout:
            print(line, end='', flush=True)
            tail = tail[-TAIL_LINES + 1:] + [line]
    if process.returncode != 0:
        raise BuildError(f'{what} failed with status {process.returncode} ({" ".join(command)}):\n{"".join(tail)}\n'
                         f'matrixshard: {what} failed, see above. ./dev deps installs what a build needs')


# ---- What the wheel says about itself

def _root():
    root = os.path.dirname(os.path.dirname(HERE))
    if not os.path.isfile(os.path.join(root, 'src', 'matrixshard.map')):
        raise BuildError(f'{root} is not the tree of matrixshard, whose bindings/python this folder is. pip before '
                         '21.3 copies the folder elsewhere: use a newer one')
    return root


def _version_numbers():
    text = _read(os.path.join(_root(), 'include', 'matrixshard', 'version.h')).decode()
    return [re.search(rf'^#define MXS_VERSION_{part} (\d+)$', text, re.MULTILINE)[1]
            for part in ('MAJOR', 'MINOR', 'PATCH')]


def _version():
    return '.'.join(_version_numbers())


def _soname():
    return 'libmatrixshard.so.' + '.'.join(_version_numbers()[:2])


def _dist_info():
    return f'matrixshard-{_version()}.dist-info'


def _tag(pure):
    platform = 'any' if pure else re.sub(r'[-.]', '_', sysconfig.get_platform())
    return f'py3-none-{platform}'


def _project():
    """The tables of pyproject.toml as dicts. Python 3.9 has no reader of TOML, whose texts and lists are Python's."""
    tables, table, key, value = {}, None, None, ''
    for line in _read(os.path.join(HERE, 'pyproject.toml')).decode().splitlines():
        if key is None:
            if not line.strip() or line.startswith('#'):
                continue
            if found := re.fullmatch(r'\[([\w.-]+)\]', line):
                table = tables.setdefault(found[1], {})
                continue
            key, value = line.split(' = ', 1)
        else:
            value += line
        if value.startswith('[') and not value.endswith(']'):
            continue
        table[key] = ast.literal_eval(value)
        key = None
    return tables


def _metadata(licence):
    """METADATA, as lines. licence: the lines that name a file beside it."""
    tables = _project()
    project = tables['project']
    lines = ['Metadata-Version: 2.4', f'Name: {project["name"]}', f'Version: {_version()}',
             f'Summary: {project["description"]}', f'Keywords: {",".join(project["keywords"])}',
             f'License-Expression: {project["license"]}', *licence,
             f'Requires-Python: {project["requires-python"]}']
    lines += [f'Classifier: {classifier}' for classifier in project['classifiers']]
    lines += [f'Requires-Dist: {requirement}' for requirement in project['dependencies']]
    for extra, requirements in tables['project.optional-dependencies'].items():
        lines.append(f'Provides-Extra: {extra}')
        lines += [f'Requires-Dist: {requirement}; extra == "{extra}"' for requirement in requirements]
    return lines


def _dist_info_files(pure):
    lines = _metadata(['License-File: LICENSE'])
    wheel = ['Wheel-Version: 1.0', 'Generator: matrixshard build_wheel.py',
             f'Root-Is-Purelib: {"true" if pure else "false"}', f'Tag: {_tag(pure)}']
    return {'METADATA': '\n'.join(lines + ['']).encode(), 'WHEEL': '\n'.join(wheel + ['']).encode(),
            'licenses/LICENSE': _read(os.path.join(_root(), 'LICENSE'))}


def _write_wheel(wheel_directory, files, pure):
    """The same files give the same bytes: entries are sorted and bear one date."""
    files = dict(sorted(files.items()))
    files.update({f'{_dist_info()}/{name}': data for name, data in _dist_info_files(pure).items()})
    record = ''
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()
        record += f'{name},sha256={digest},{len(data)}\n'
    files[f'{_dist_info()}/RECORD'] = f'{record}{_dist_info()}/RECORD,,\n'.encode()
    wheel = f'matrixshard-{_version()}-{_tag(pure)}.whl'
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if '.so' in name else 0o644) << 16
            archive.writestr(entry, data)
    return wheel


def _read(path):
    with open(path, 'rb') as file:
        return file.read()


if __name__ == '__main__':  # meson.build asks, for the package that meson install puts beside the library
    print('\n'.join(_metadata([])))
