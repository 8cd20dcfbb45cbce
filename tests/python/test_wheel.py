# SPDX-License-Identifier: Apache-2.0
"""The wheel: what is in it, that it works elsewhere with nothing set, and what is said when it can't be built."""
import base64
import email
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINDING = ROOT / 'bindings' / 'python'
LIBRARY = os.environ.get('MXS_LIBRARY', '')
if not LIBRARY:
    raise unittest.SkipTest('MXS_LIBRARY names no library')
sys.path.insert(0, str(BINDING))

import build_wheel  # noqa: E402

ASK = '''
import sys
sys.path.insert(0, sys.argv[1])
import matrixshard
print(matrixshard.__version__, matrixshard.loaded_library(), matrixshard.__file__, sep='\\n')
'''


def ask(folder, **variables):
    """(status, lines, errors) of a Python elsewhere that imports the package from a folder, with nothing set."""
    run = subprocess.run([sys.executable, '-c', ASK, str(folder)], cwd='/', env=variables, capture_output=True,
                         text=True, check=False)
    return run.returncode, run.stdout.splitlines(), run.stderr


def backend_of(tree):
    """The backend of a copy of what it needs of the tree, for tests that write beside it."""
    for name in ['LICENSE', 'src/matrixshard.map', 'include/matrixshard/version.h']:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    shutil.copytree(BINDING, tree / 'bindings/python', ignore=shutil.ignore_patterns('__pycache__', 'lib'))
    spec = importlib.util.spec_from_file_location('build_wheel_of_copy', tree / 'bindings/python/build_wheel.py')
    backend = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(backend)
    return backend


class Wheel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def unpacked(self, name, target='site'):
        with zipfile.ZipFile(self.folder / name) as archive:
            archive.extractall(self.folder / target)
        return self.folder / target

    def programs(self, **scripts):
        """A folder for PATH with these shell scripts alone."""
        folder = self.folder / 'programs'
        folder.mkdir()
        for name, text in scripts.items():
            (folder / name).write_text('#!/bin/sh\n' + text)
            (folder / name).chmod(0o755)
        return mock.patch.dict(os.environ, {'PATH': str(folder)})

    def refused(self, sentence, build, *arguments):
        with self.assertRaises(SystemExit) as caught:
            build(str(self.folder), *arguments)
        self.assertRegex(str(caught.exception), '^matrixshard: ' + sentence)

    def test_a_wheel_with_the_library_inside_works_with_nothing_set(self):
        name = build_wheel.build_wheel(str(self.folder), {'library': LIBRARY})
        self.assertRegex(name, r'^matrixshard-[\d.]+-py3-none-linux_\w+\.whl$')
        site = self.unpacked(name)
        status, lines, errors = ask(site)
        self.assertEqual(status, 0, errors)
        self.assertEqual(lines, [build_wheel._version(), str(site / 'matrixshard/lib' / build_wheel._soname()),
                                 str(site / 'matrixshard/__init__.py')])

    def test_every_module_is_in_it_and_nothing_else(self):
        name = build_wheel.build_wheel(str(self.folder), {'library': LIBRARY})
        with zipfile.ZipFile(self.folder / name) as archive:
            names = {name for name in archive.namelist() if '.dist-info/' not in name}
        sources = {str(path.relative_to(BINDING)) for path in (BINDING / 'matrixshard').rglob('*.py')}
        self.assertEqual(names, sources | {'matrixshard/py.typed', f'matrixshard/lib/{build_wheel._soname()}'})

    def test_the_record_has_the_hash_and_size_of_each_file(self):
        name = build_wheel.build_wheel(str(self.folder), {'library': LIBRARY})
        record_name = f'{build_wheel._dist_info()}/RECORD'
        with zipfile.ZipFile(self.folder / name) as archive:
            data = {entry: archive.read(entry) for entry in archive.namelist()}
        record = [line.split(',') for line in data[record_name].decode().splitlines()]
        self.assertEqual([entry for entry, _, _ in record], list(data))
        for entry, digest, size in record:
            if entry == record_name:
                self.assertEqual((digest, size), ('', ''))
                continue
            expected = base64.urlsafe_b64encode(hashlib.sha256(data[entry]).digest()).decode().rstrip('=')
            self.assertEqual((digest, int(size)), ('sha256=' + expected, len(data[entry])), entry)

    def test_the_same_files_give_the_same_bytes(self):
        first = build_wheel.build_wheel(str(self.folder), {'library': LIBRARY})
        data = (self.folder / first).read_bytes()
        (self.folder / first).unlink()
        self.assertEqual((self.folder / build_wheel.build_wheel(str(self.folder), {'library': LIBRARY})).read_bytes(),
                         data)

    def test_its_metadata_is_that_of_the_project_file(self):
        name = build_wheel.prepare_metadata_for_build_wheel(str(self.folder), {'library': LIBRARY})
        metadata = email.message_from_bytes((self.folder / name / 'METADATA').read_bytes())
        self.assertEqual(metadata['Name'], 'matrixshard')
        self.assertEqual(metadata['Requires-Python'], '>=3.9')
        self.assertEqual(metadata['License-Expression'], 'Apache-2.0')
        self.assertEqual(metadata.get_all('Provides-Extra'), ['numpy', 'torch', 'plot'])
        self.assertIn('torch >= 1.13.1; extra == "torch"', metadata.get_all('Requires-Dist'))
        self.assertTrue(all('; extra == ' in requirement for requirement in metadata.get_all('Requires-Dist')))
        self.assertEqual((self.folder / name / 'licenses/LICENSE').read_bytes(), (ROOT / 'LICENSE').read_bytes())

    @unittest.skipIf(sys.version_info < (3, 11), 'this Python has no tomllib')
    def test_the_project_file_is_read_as_any_reader_of_toml_does(self):
        import tomllib
        tables = tomllib.loads((BINDING / 'pyproject.toml').read_text())
        extras = tables['project'].pop('optional-dependencies')
        self.assertEqual(build_wheel._project(), {'build-system': tables['build-system'], 'project': tables['project'],
                                                  'project.optional-dependencies': extras})

    def test_there_is_one_version(self):
        import matrixshard
        from matrixshard import _declarations as c
        built = re.search(r"^  version: '([\d.]+)'", (ROOT / 'meson.build').read_text(), re.MULTILINE)[1]
        self.assertEqual(build_wheel._version(), built)
        self.assertEqual(f'{c.MXS_VERSION_MAJOR}.{c.MXS_VERSION_MINOR}.{c.MXS_VERSION_PATCH}', built)
        self.assertEqual(matrixshard.__version__, built)
        soversion = '.'.join(built.split('.')[:2])
        self.assertIn(f"matrixshard_soversion = '{soversion}'", (ROOT / 'src/meson.build').read_text())

    @unittest.skipUnless(importlib.util.find_spec('pip'), 'this Python has no pip')
    def test_pip_installs_it(self):
        site = self.folder / 'site'
        environment = {'PATH': os.environ['PATH'], 'HOME': str(self.folder), 'PIP_DISABLE_PIP_VERSION_CHECK': '1'}
        run = subprocess.run([sys.executable, '-m', 'pip', 'install', '--no-index', '--no-deps', '--target', str(site),
                              '--config-settings', f'library={LIBRARY}', str(BINDING)], env=environment,
                             cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        status, lines, errors = ask(site)
        self.assertEqual(status, 0, errors)
        self.assertEqual(lines[:2], [build_wheel._version(), str(site / 'matrixshard/lib' / build_wheel._soname())])

    @unittest.skipUnless(importlib.util.find_spec('pip'), 'this Python has no pip')
    def test_pip_shows_the_sentence_and_no_traceback(self):
        environment = {'PATH': os.environ['PATH'], 'HOME': str(self.folder), 'PIP_DISABLE_PIP_VERSION_CHECK': '1'}
        run = subprocess.run([sys.executable, '-m', 'pip', 'install', '--no-index', '--no-deps', '--target', 'site',
                              '--config-settings', 'library=/none', str(BINDING)], env=environment, cwd=self.folder,
                             capture_output=True, text=True, check=False)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn('matrixshard: config setting library=/none: there is no such file', run.stdout + run.stderr)
        self.assertNotIn('Traceback', run.stdout + run.stderr)

    def test_a_wheel_without_the_library_finds_the_installed_one_by_its_name(self):
        name = build_wheel.build_wheel(str(self.folder), {'library': 'installed'})
        self.assertRegex(name, r'-py3-none-any\.whl$')
        site = self.unpacked(name)
        self.assertFalse((site / 'matrixshard/lib').exists())
        (self.folder / build_wheel._soname()).symlink_to(LIBRARY)
        status, lines, errors = ask(site, LD_LIBRARY_PATH=str(self.folder))
        self.assertEqual(status, 0, errors)
        self.assertEqual(lines[:2], [build_wheel._version(), build_wheel._soname()])

    def test_a_library_that_is_nowhere_is_a_sentence(self):
        site = self.unpacked(build_wheel.build_wheel(str(self.folder), {'library': 'installed'}))
        status, _, errors = ask(site, MXS_LIBRARY=str(self.folder / 'absent.so'))
        self.assertEqual(status, 1)
        self.assertRegex(errors, r'ImportError: libmatrixshard was not loaded: .*absent\.so.*MXS_LIBRARY')

    def test_it_is_compiled_by_meson_and_ninja(self):
        log = self.folder / 'log'
        with self.programs(
                meson=f'echo meson "$@" >>{log}; /bin/mkdir -p "$2/src"\n',
                ninja=f'echo ninja "$@" >>{log}; echo compiling; /bin/cp "{LIBRARY}" "$2/$3"\n'):
            name = build_wheel.build_wheel(str(self.folder))
        status, lines, errors = ask(self.unpacked(name))
        self.assertEqual(status, 0, errors)
        self.assertTrue(lines[1].endswith('/matrixshard/lib/' + build_wheel._soname()))
        meson, ninja = log.read_text().splitlines()
        self.assertRegex(meson, rf'^meson setup \S+ {re.escape(str(ROOT))} .*-Dtests=disabled .*-Dperf=disabled')
        self.assertRegex(ninja, rf'^ninja -C \S+ src/libmatrixshard\.so\.{build_wheel._version()}$')
        self.assertFalse(os.path.exists(ninja.split()[2]), 'the build folder is still there')

    def test_what_is_missing_is_named(self):
        with self.programs():
            self.assertEqual(build_wheel.get_requires_for_build_wheel(), ['meson >= 1.0', 'ninja'])
            self.assertEqual(build_wheel.get_requires_for_build_wheel({'library': LIBRARY}), [])
            self.assertEqual(build_wheel.get_requires_for_build_wheel({'library': 'installed'}), [])
            self.refused('meson is not in PATH. Install it .*library=PATH', build_wheel.build_wheel)
            (self.folder / 'programs/meson').symlink_to('/bin/true')
            self.assertEqual(build_wheel.get_requires_for_build_wheel(), ['ninja'])
            self.refused('ninja is not in PATH', build_wheel.build_wheel)

    def test_a_build_that_fails_shows_its_end(self):
        with self.programs(meson='echo "meson.build:3: ERROR: Unknown compiler"; exit 3\n', ninja='exit 0\n'):
            self.refused(r'meson setup failed with status 3 (?s:.)*\nmeson\.build:3: ERROR: Unknown compiler\n'
                         '(?s:.)*see above. ./dev deps', build_wheel.build_wheel)
        (self.folder / 'programs/meson').write_text('#!/bin/sh\n')
        (self.folder / 'programs/ninja').write_text('#!/bin/sh\necho "error: no such type" >&2; exit 1\n')
        with mock.patch.dict(os.environ, {'PATH': str(self.folder / 'programs')}):
            self.refused(r'compiling the library failed with status 1 (?s:.)*\nerror: no such type\n',
                         build_wheel.build_wheel)

    def test_wrong_settings_are_named(self):
        self.refused('there is no config setting libary; there is library=PATH', build_wheel.build_wheel,
                     {'libary': 'x'})
        self.refused('config setting library is .*; it is one path', build_wheel.build_wheel, {'library': ['a', 'b']})
        self.refused("config setting library is ''; it is one path", build_wheel.build_wheel, {'library': ''})
        self.refused('config setting library=/none: there is no such file', build_wheel.build_wheel,
                     {'library': '/none'})
        self.refused('.*test_wheel.py cannot be loaded by this package: ImportError: ', build_wheel.build_wheel,
                     {'library': __file__})
        self.assertEqual([path.name for path in self.folder.iterdir()], [])

    def test_a_library_of_another_version_is_refused(self):
        backend = backend_of(self.folder / 'tree')
        header = self.folder / 'tree/include/matrixshard/version.h'
        header.write_text(header.read_text().replace('MXS_VERSION_MINOR ', 'MXS_VERSION_MINOR 9'))
        self.refused(rf'.* is version {build_wheel._version()}, but this package is 0\.9', backend.build_wheel,
                     {'library': LIBRARY})

    def test_a_library_that_lacks_a_function_is_refused(self):
        backend = backend_of(self.folder / 'tree')
        declarations = self.folder / 'tree/bindings/python/matrixshard/_declarations.py'
        text = declarations.read_text().replace("'mxs_version'", "'mxs_future': (None,), 'mxs_version'")
        declarations.write_text(text)
        self.refused('.* cannot be loaded by this package: ImportError: .* has no mxs_future', backend.build_wheel,
                     {'library': LIBRARY})

    def test_a_folder_without_its_tree_is_refused(self):
        backend = backend_of(self.folder / 'tree')
        (self.folder / 'tree/src/matrixshard.map').unlink()
        self.refused('.*tree is not the tree of matrixshard', backend.build_wheel, {'library': LIBRARY})

    def test_a_source_distribution_is_refused(self):
        self.refused('no source distribution is made: .*python -m build --wheel', build_wheel.build_sdist)

    def test_an_editable_install_stays_in_its_folder_with_the_library_beside(self):
        tree = self.folder / 'tree'
        backend = backend_of(tree)
        for settings, is_beside in [({'library': LIBRARY}, True), ({'library': LIBRARY}, True),
                                    ({'library': 'installed'}, False)]:
            site = self.unpacked(backend.build_editable(str(self.folder), settings))
            names = {path.name for path in site.iterdir()}
            self.assertEqual(names, {'_matrixshard_editable.pth', build_wheel._dist_info()})
            self.assertEqual((site / '_matrixshard_editable.pth').read_text(), f'{tree}/bindings/python\n')
            beside = tree / 'bindings/python/matrixshard/lib' / build_wheel._soname()
            self.assertEqual(beside.is_symlink(), is_beside)
            if is_beside:
                status, lines, errors = ask((site / '_matrixshard_editable.pth').read_text().strip())
                self.assertEqual((status, lines[1:2]), (0, [str(beside)]), errors)
                self.assertEqual(beside.resolve(), pathlib.Path(LIBRARY).resolve())
        name = backend.build_wheel(str(self.folder), {'library': LIBRARY})
        with zipfile.ZipFile(self.folder / name) as archive:
            self.assertIn(f'matrixshard/lib/{build_wheel._soname()}', archive.namelist())


if __name__ == '__main__':
    unittest.main()
