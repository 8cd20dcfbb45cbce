# SPDX-License-Identifier: Apache-2.0
"""debian/ says what the build does: metadata.py ROOT BUILD

Builds no package. `./dev package` does, and its --smoke installs them. A fault that is planted by hand: a line less in
debian/libmatrixshard-dev.install, another version in debian/changelog.
"""
import fnmatch
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

# Where a prefix of meson install lies in packages; and what not each build installs.
TRIPLET = 'x86_64-linux-gnu'
PYTHON = 'usr/lib/python3/dist-packages/'
OPTIONAL = ['usr/bin/mxs-perf', 'usr/bin/mxs-train', PYTHON + 'matrixshard/__init__.py',
            PYTHON + 'matrixshard/torch/__init__.py', PYTHON + 'matrixshard-1.2.3.dist-info/METADATA']
IN_NO_PACKAGE = 'libmatrixshard_cuda.so'
# Packages of ./dev deps that tests and perf/cluster want, or that each Debian build has anyway; and tools of packages.
NOT_FOR_PACKAGES = {'libcmocka-dev', 'iproute2', 'util-linux', 'g++', 'binutils'}
PACKAGE_TOOLS = {'debhelper-compat', 'dh-python'}
# Dependencies of meson.build that want a version, by the package that has them.
PACKAGE_OF = {'libxxhash': 'libxxhash-dev', 'nlohmann_json': 'nlohmann-json3-dev', 'hwloc': 'libhwloc-dev',
              'ucx': 'libucx-dev', 'openblas': 'libopenblas-dev', 'libsodium': 'libsodium-dev'}


def read(root, *path):
    with open(os.path.join(root, *path), encoding='utf-8') as file:
        return file.read()


def lines_of(text):
    return [line for line in text.splitlines() if line.strip() and not line.startswith('#')]


def package_names(root):
    return re.findall(r'^Package: (\S+)$', read(root, 'debian', 'control'), re.MULTILINE)


def versions_agree(root):
    version = re.search(r"version: '([\d.]+)'", read(root, 'meson.build'))[1]
    others = {'debian/changelog': re.match(r'matrixshard \(([^)]*)\)', read(root, 'debian', 'changelog'))[1],
              'NEWS.md': re.search(r'^## (\S+)', read(root, 'NEWS.md'), re.MULTILINE)[1]}
    return [f'{path} begins with {other}, but meson.build has {version}' for path, other in others.items()
            if other != version]


def soname_is_in_the_name(root, library):
    dynamic = subprocess.run(['readelf', '-d', library], capture_output=True, text=True, check=True).stdout
    soname = re.search(r'\(SONAME\).*\[(.+)\]', dynamic)[1]
    package = soname.replace('.so.', '')  # libmatrixshard.so.0.1 -> libmatrixshard0.1, by Debian's policy 8.1
    complaints = [] if package in package_names(root) else [f'{soname} wants a package {package} in debian/control']
    symbols = f'debian/{package}.symbols'
    if not os.path.exists(os.path.join(root, symbols)):
        return complaints + [f'there is no {symbols}']
    text = read(root, symbols)
    if f'\n{soname} {package} ' not in text:
        complaints.append(f'{symbols} is not about {soname} in {package}')
    stanzas = re.findall(r'^(MATRIXSHARD_[\d.]+) \{', read(root, 'src', 'matrixshard.map'), re.MULTILINE)
    complaints += [f'{symbols} has no line for {stanza}' for stanza in stanzas if f'(symver){stanza} ' not in text]
    return complaints


def installed_paths(build):
    """What meson install puts into its prefix, as paths of packages."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([shutil.which('meson'), 'install', '-C', build, '--no-rebuild', '--quiet', '--destdir', folder],
                       check=True, capture_output=True)
        found = glob.glob(os.path.join(folder, '**', 'include', 'matrixshard'), recursive=True)
        prefix = os.path.dirname(os.path.dirname(found[0]))
        paths = [os.path.relpath(os.path.join(place, name), prefix) for place, _, names in os.walk(prefix)
                 for name in names]
    libraries = next(os.path.dirname(path) for path in paths if path.endswith('/libmatrixshard.so'))
    return [re.sub(rf'^usr/{re.escape(libraries)}/(?!python)', f'usr/lib/{TRIPLET}/', f'usr/{path}') for path in paths
            if '/site-packages/' not in path]


def matches(path, pattern):
    """As dh_install does: a folder stands for all below it, and * for no /."""
    path, pattern = path.split('/'), pattern.split('/')
    return len(path) >= len(pattern) and all(map(fnmatch.fnmatchcase, path, pattern))


def each_file_has_its_package(root, build):
    patterns = {(name, pattern) for name in package_names(root)
                for pattern in lines_of(read(root, 'debian', f'{name}.install'))}
    paths = sorted(set(installed_paths(build)) | set(OPTIONAL))
    complaints = []
    for path in paths:
        owners = [name for name, pattern in patterns if matches(path, pattern)]
        if len(owners) != (0 if IN_NO_PACKAGE in path else 1):
            complaints.append(f'{path} is in {owners or "no package"}')
    return complaints + [f'debian/{name}.install: nothing installs {pattern}' for name, pattern in sorted(patterns)
                         if not any(matches(path, pattern) for path in paths)]


def build_depends(root):
    """package -> the version that it wants, or ''."""
    field = re.search(r'^Build-Depends:(.*?)^\S', read(root, 'debian', 'control'), re.MULTILINE | re.DOTALL)[1]
    return {found[1]: found[2] or '' for part in field.split(',')
            if (found := re.match(r'\s*(\S+)(?:\s+\(>?=\s*(.+)\))?\s*$', part))}


def packages_are_built_with_what_dev_installs(root):
    by_dev = re.search(r"^packages_to_build='\n(.*?)^'", read(root, 'dev'), re.MULTILINE | re.DOTALL)[1]
    wanted = {line.split()[0] for line in by_dev.splitlines()} - NOT_FOR_PACKAGES
    there = set(build_depends(root)) - PACKAGE_TOOLS
    return ([f'{name}: ./dev deps installs it, Build-Depends lacks it' for name in sorted(wanted - there)] +
            [f'{name}: in Build-Depends, ./dev deps does not know it' for name in sorted(there - wanted)])


def versions_wanted_agree(root):
    text = read(root, 'meson.build')
    wanted = dict(re.findall(r"dependency\('(\w+)'.*?version: '>=([\d.]+)'", text))
    packages = build_depends(root)
    complaints = [f'{name} wants >= {version}, and {PACKAGE_OF.get(name, "no package")} is wanted as '
                  f'"{packages.get(PACKAGE_OF.get(name), "")}"' for name, version in sorted(wanted.items())
                  if packages.get(PACKAGE_OF.get(name)) != version]
    meson = re.search(r"meson_version: '>=([\d.]+)'", text)[1]
    return complaints + [f'meson wants >= {meson}, not {packages["meson"]}'] * (packages['meson'] != meson)


def dev_package_refuses(root):
    """Before anything is installed or built."""
    complaints = []
    for words in (['--keep'], ['--cache', 'folder'], ['--out'], ['--out', ''], ['--frobnicate']):
        try:
            done = subprocess.run([os.path.join(root, 'dev'), 'package', *words], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False, timeout=20)
            if done.returncode != 2 or './dev package' not in done.stderr:
                complaints.append(f'./dev package {words}: {done.returncode}, {done.stderr!r}')
        except subprocess.TimeoutExpired:
            complaints.append(f'./dev package {words} goes on')
    return complaints


def main(root, build):
    library = os.path.join(build, 'src', 'libmatrixshard.so')
    cases = [
        ('meson.build, changelog and NEWS.md have one version', versions_agree(root)),
        ('the soname is in the name of its package, and each stanza of the map in its symbols',
         soname_is_in_the_name(root, library)),
        ('each file that is installed is in one package', each_file_has_its_package(root, build)),
        ('packages are built with what ./dev deps installs', packages_are_built_with_what_dev_installs(root)),
        ('./dev package refuses words that say nothing', dev_package_refuses(root)),
        ('packages and meson.build want the same versions', versions_wanted_agree(root)),
    ]
    print(f'1..{len(cases)}')
    for number, (sentence, complaints) in enumerate(cases, 1):
        print(f'{"not ok" if complaints else "ok"} {number} - {sentence}')
        for complaint in complaints:
            print(f'# {complaint}')


if __name__ == '__main__':
    main(*sys.argv[1:])
