# SPDX-License-Identifier: Apache-2.0
"""The rules of this tree that a program can check.

A rule is a function from a tree (a dict: path -> text) to complaints (a list of sentences). It reads no disk, so that
self_test.py can hand it trees with planted faults. check_tree.py runs all of them on the real tree.
"""
import posixpath
import re

# Which rooms of src/ a room may include, beside itself and the public headers.
ARROWS = {
    'base':       [],
    'trace':      ['base'],
    'device':     ['base'],
    'cuda':       ['device', 'kernels', 'base'],
    'layout':     ['base'],
    'topology':   ['base'],
    'machine':    ['topology', 'base'],
    'model':      ['machine', 'topology', 'base'],
    'plan':       ['layout', 'topology', 'base'],
    'schedule':   ['layout', 'topology', 'base'],
    'bootstrap':  ['base'],
    'memory':     ['bootstrap', 'base'],
    'transport':  ['memory', 'base'],
    'kernels':    ['base'],
    'collective': ['schedule', 'transport', 'device', 'memory', 'bootstrap', 'layout', 'machine', 'topology', 'kernels',
                   'trace', 'base'],
    'unit':       ['collective', 'device', 'memory', 'plan', 'kernels', 'layout', 'topology', 'trace', 'base'],
    'optimizer':  ['unit', 'device', 'plan', 'kernels', 'layout', 'trace', 'base'],
    'checkpoint': ['optimizer', 'unit', 'collective', 'device', 'model', 'machine', 'plan', 'kernels', 'layout',
                   'topology', 'base'],
    'api':        ['checkpoint', 'optimizer', 'unit', 'collective', 'kernels', 'transport', 'device', 'memory',
                   'bootstrap', 'schedule', 'plan', 'model', 'machine', 'topology', 'layout', 'trace', 'base'],
}
# These use matrixshard as any outside program does.
OUTSIDERS = ['src/cli/', 'perf/', 'docs/examples/']
# The planner and the schedules are pure: no clock, no threads, no files, no environment.
PURE_ROOMS = ['layout', 'topology', 'plan', 'schedule']
IMPURE = ['base/clock.hpp', 'base/environment.hpp', 'chrono', 'ctime', 'time.h', 'thread', 'mutex', 'atomic', 'fstream',
          'iostream', 'cstdio', 'unistd.h', 'random']
# The only two files that know what was found when the library was built.
LIST_FILES = ['src/transport/transports.cpp', 'src/kernels/backends.cpp']
PUBLIC_C_INCLUDES = ['stddef.h', 'stdint.h']

CODE = ('.c', '.h', '.cpp', '.hpp')
# Their formats have no comments.
NO_LICENCE_LINE = ['LICENSE', 'debian/changelog', 'debian/source/format', 'docs/performance/evaluation.json']
COLUMNS_MAX = 120
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
LINK = re.compile(r'\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)')  # file, heading
PREDICTED = re.compile(r'\b(?:predict(?:ed|ions?)|simulated|by formula)\b', re.IGNORECASE)
MEASURED = re.compile(r'\b(?:measured|published)\b', re.IGNORECASE)
NAME_OF_OURS = re.compile(r'\b(?:mxs|MXS)_\w+')
NAMED_FILE = re.compile(r'(?:src|include|tests|perf|docs|bindings)/[\w./*{}-]+')
# Written in pieces, so that this file does not break its own rules.
SPDX = 'SPDX-License-' + 'Identifier: Apache-2.0'
MARKERS = re.compile(r'\b(' + '|'.join(['TO' + 'DO', 'FIX' + 'ME', 'X' * 3, 'HA' + 'CK', 'TB' + 'D']) + r')\b')
PLACES = re.compile('|'.join([r'/wo' + r'rk/', r'/fa' + r'rm/', r'/ho' + r'me/\w', r'/ro' + r'ot/', r'pyp' + r'i\.org',
                              r'artifac' + r'tory', r'\bregis' + r'try\.\w+\.\w']))
PRINTS = re.compile(r'(?<![\w.>:])(?:std::|::)?(?:f?printf|v?f?printf|dprintf|puts|fputs|putchar|perror)\s*\('
                    r'|std::(?:cout|cerr|clog)\b')
ENDS = re.compile(r'std::(?:abort|exit|_Exit|quick_exit|terminate)\s*\(|(?<![\w.>:])(?:::)?(?:_exit|exit)\s*\('
                  r'|(?<![\w.>:])::abort\s*\(')
ENVIRONMENT = re.compile(r'(?<![\w.>])(?:std::|::)?(?:secure_)?getenv\s*\(')
# By the call that reads it, or by its look: a name may stand in a table.
VARIABLE = re.compile(r'environment_(?:text|number)\(\s*"([A-Z][A-Z0-9_]*)"|"((?:MXS|UCX|SLURM|OMPI|PMIX?|MASTER'
                      r'|TORCHELASTIC)_[A-Z0-9_]+|RANK|WORLD_SIZE|LOCAL_RANK)"')

# The Python package, whose `torch` folder alone may want PyTorch when it is imported, and its programs, which print.
PACKAGE = 'bindings/python/matrixshard/'
PACKAGE_PROGRAMS = [PACKAGE + 'plot/__main__.py']
PYTHON_VARIABLE = re.compile(r'(?:environ(?:\.get\(|\.pop\(|\[)|getenv\()\s*[\'"]([A-Z][A-Z0-9_]*)[\'"]')
PYTHON_PRINTS = re.compile(r'(?<![\w.])print\(|\bsys\.(?:stdout|stderr|exit)\b|\bos\.(?:_exit|abort)\b')
PYTHON_EXTRA = re.compile(r'^(?:import|from) (?:numpy|torch|matplotlib)\b.*', re.MULTILINE)


def code_of(tree, *prefixes):
    return [(path, text) for path, text in sorted(tree.items())
            if path.endswith(CODE) and path.startswith(prefixes)]


def package_of(tree):
    return [(path, text) for path, text in sorted(tree.items()) if path.startswith(PACKAGE) and path.endswith('.py')]


def without_python_texts(text):
    """Without comments and docstrings, line numbers stay. Short texts are left as they are."""
    return re.sub(r'"""(?:.|\n)*?"""|#[^\n]*', lambda found: re.sub(r'[^\n]', ' ', found[0]), text)


def without_comments(text):
    """Comments become blanks, line numbers stay. Strings are left as they are."""
    blank = lambda found: found[0] if found[0][0] in '"\'' else re.sub(r'[^\n]', ' ', found[0])
    return re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', blank, text, flags=re.DOTALL)


def without_texts(text):
    """Without comments and without what stands in quotes."""
    return re.sub(r'"(?:\\.|[^"\\\n])*"', '""', without_comments(text))


def find(pattern, path, text, sentence):
    return [f'{path}:{text.count(chr(10), 0, found.start()) + 1}: {sentence}: {found[0].strip()}'
            for found in pattern.finditer(text)]


def includes_follow_the_arrows(tree):
    complaints = []
    for path, text in code_of(tree, 'src/'):
        room = path.split('/')[1]
        if path.startswith(tuple(OUTSIDERS)):
            continue
        if room not in ARROWS:
            complaints.append(f'{path}: no line in ARROWS for the room {room}')
            continue
        for mark, name in INCLUDE.findall(text):
            target = name.split('/')[0]
            if mark == '"' and target not in [room, 'matrixshard', 'mxs_build.h'] + ARROWS[room]:
                complaints.append(f'{path}: includes {name}, but {room} may use only '
                                  f'{", ".join(ARROWS[room]) or "itself"} and the public headers')
    return complaints


def outsiders_use_public_headers_only(tree):
    complaints = []
    for path, text in code_of(tree, *OUTSIDERS):
        folder = path.rsplit('/', 1)[0]
        for mark, name in INCLUDE.findall(text):
            near = [f'{folder}/{name}', f'perf/{name}', f'src/{name}' if name.startswith('cli/') else '']
            if mark == '"' and not name.startswith('matrixshard/') and not any(place in tree for place in near):
                complaints.append(f'{path}: includes {name}; only matrixshard/ and its own files are allowed here')
    return complaints


def public_headers_are_pure(tree):
    complaints = []
    for path, text in code_of(tree, 'include/'):
        for mark, name in INCLUDE.findall(text):
            own = name.startswith('matrixshard/') and f'include/{name}' in tree
            standard = path.endswith('.hpp') and mark == '<' and '/' not in name
            if not own and not standard and name not in PUBLIC_C_INCLUDES:
                complaints.append(f'{path}: includes {name}')
    return complaints


def planner_and_schedules_are_pure(tree):
    return [f'{path}: includes {name}: this room has no clock, thread, file or environment'
            for room in PURE_ROOMS for path, text in code_of(tree, f'src/{room}/')
            for _, name in INCLUDE.findall(text) if name in IMPURE]


def every_file_has_one_licence_line(tree):
    complaints = []
    for path, text in sorted(tree.items()):
        if path in NO_LICENCE_LINE or path.startswith('tests/data/'):
            continue
        count = text.count(SPDX)
        if count != 1 or SPDX not in '\n'.join(text.split('\n', 3)[:3]):
            complaints.append(f'{path}: {count} licence lines; one of the first three lines should be it')
    return complaints


def no_marker_words(tree):
    return [complaint for path, text in sorted(tree.items()) if path != 'LICENSE'
            for complaint in find(MARKERS, path, text, 'finish it or leave it out')]


def no_places_of_one_machine(tree):
    return [complaint for path, text in sorted(tree.items())
            for complaint in find(PLACES, path, text, 'exists on some machines only')]


def only_the_lists_know_what_was_built(tree):
    return [complaint for path, text in code_of(tree, 'src/', 'include/', 'tests/', 'perf/') if path not in LIST_FILES
            for complaint in find(re.compile(r'\bMXS_HAVE_\w+|\bmxs_build\.h\b'), path, without_comments(text),
                                  f'belongs in {" or ".join(LIST_FILES)}')]


def the_library_never_prints(tree):
    return [complaint for path, text in code_of(tree, 'src/', 'include/') if not path.startswith('src/cli/')
            for complaint in find(PRINTS, path, without_texts(text), 'prints')]


def the_library_never_ends_the_process(tree):
    return [complaint for path, text in code_of(tree, 'src/', 'include/') if not path.startswith('src/cli/')
            for complaint in find(ENDS, path, without_texts(text), 'ends the process')]


def the_package_never_prints_or_ends(tree):
    return [complaint for path, text in package_of(tree) if path not in PACKAGE_PROGRAMS
            for complaint in find(PYTHON_PRINTS, path, without_python_texts(text), 'prints, or ends the process')]


def the_package_imports_extras_when_used(tree):
    return [complaint for path, text in package_of(tree) if not path.startswith(PACKAGE + 'torch/')
            for complaint in find(PYTHON_EXTRA, path, without_python_texts(text), 'import it where it is used')]


def every_python_test_is_listed(tree):
    listed = tree.get('tests/python/meson.build', '')
    return [f'{path}: not in tests/python/meson.build, so nobody runs it' for path in sorted(tree)
            if (found := re.fullmatch(r'tests/python/test_(\w+)\.py', path)) and f"'{found[1]}':" not in listed]


def one_file_reads_the_environment(tree):
    return [complaint for path, text in code_of(tree, 'src/') if path != 'src/base/environment.cpp'
            for complaint in find(ENVIRONMENT, path, without_texts(text), 'use base/environment.hpp')]


def every_variable_is_in_the_document(tree):
    document = tree.get('docs/environment.md', '')
    read = {name or look: path for path, text in code_of(tree, 'src/') if not path.startswith('src/cli/')
            for name, look in VARIABLE.findall(without_comments(text))}
    read.update({name: path for path, text in package_of(tree)
                 for name in PYTHON_VARIABLE.findall(without_python_texts(text))})
    written = set(re.findall(r'^\| `([A-Z][A-Z0-9_]*)`', document, re.MULTILINE))
    return ([f'{read[name]}: reads {name}, which docs/environment.md does not list'
             for name in sorted(set(read) - written)] +
            [f'docs/environment.md: lists {name}, which nothing in the library reads'
             for name in sorted(written - set(read))])


def every_source_is_listed(tree):
    complaints = []
    for path, text in code_of(tree, 'src/'):
        if not path.endswith(('.c', '.cpp')):
            continue
        room = '/'.join(path.split('/')[:2])
        name = path[len(room) + 1:]
        lists = [tree.get(f'{room}/meson.build', ''), tree.get(f'{path.rsplit("/", 1)[0]}/meson.build', '')]
        if not any(f"'{name}'" in text or f"'{name.rsplit('/', 1)[-1]}'" in text for text in lists):
            complaints.append(f'{path}: not in {room}/meson.build, so nobody compiles it')
    return complaints


# One that is loaded when it is launched may wait for a device that waits for this process.
def every_kernel_is_loaded_at_once(tree):
    loaded = set(re.findall(r'^    "(mxs_\w+)",$', tree.get('src/cuda/module.cpp', ''), re.MULTILINE))
    return [f'{path}: {kernel} is not in kernel_names of src/cuda/module.cpp'
            for path, text in sorted(tree.items()) if path.startswith('src/cuda/kernels/')
            for kernel in re.findall(r'^MXS_KERNEL\((\w+)', text, re.MULTILINE) if kernel not in loaded]


def readme_shows_the_examples(tree):
    complaints = []
    for path in ('docs/examples/hello.c', 'docs/examples/owner_step.py', 'docs/examples/shard_module.py'):
        example = tree.get(path, '').split('\n', 1)[-1].rstrip('\n')
        if f'```{"c" if path.endswith(".c") else "python"}\n{example}\n```\n' not in tree.get('README.md', ''):
            complaints.append(f'README.md: does not show {path} as it is')
    return complaints


def without_code_blocks(text):
    """A page without its blocks of code, line numbers stay."""
    blank = lambda found: re.sub(r'[^\n]', ' ', found[0])
    return re.sub(r'^(?:    |\t)[^\n]*', blank, re.sub(r'^```.*?^```', blank, text, flags=re.M | re.S), flags=re.M)


def pages_of(tree):
    return [(path, without_code_blocks(text)) for path, text in sorted(tree.items()) if path.endswith('.md')]


def anchors_of(text):
    """What a page's headings are called in links, as GitHub names them."""
    anchors = []
    for heading in re.findall(r'^#{1,6} +(.*)', text, re.M):
        name = re.sub(r'[^\w\- ]', '', re.sub(r'\[(.*?)\]\(.*?\)', r'\1', heading).strip().lower()).replace(' ', '-')
        anchors.append(f'{name}-{anchors.count(name)}' if name in anchors else name)
    return anchors


def links_lead_somewhere(tree):
    complaints = []
    for path, text in pages_of(tree):
        for link, anchor in LINK.findall(text):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link)) if link else path
            if target not in tree and not any(other.startswith(target + '/') for other in tree):
                complaints.append(f'{path}: the link {link} leads nowhere')
            elif anchor and target.endswith('.md') and anchor not in anchors_of(without_code_blocks(tree[target])):
                complaints.append(f'{path}: the link {link}#{anchor} leads to no heading of {target}')
    return complaints


def every_page_is_in_the_index(tree):
    links = LINK.findall(tree.get('docs/README.md', ''))
    linked = {'docs/README.md', *(posixpath.normpath(posixpath.join('docs', link)) for link, _ in links)}
    return [f'{path}: docs/README.md does not lead there' for path in sorted(tree)
            if re.fullmatch(r'docs/\w[\w-]*\.md|docs/examples/\w+\.(?:c|py)', path)
            and path not in linked]


def files_that_pages_name_exist(tree):
    complaints = []
    for path, text in pages_of(tree):
        for name in re.findall(r'(?<!`)`([^`\s]+)`(?!`)', text):
            if not NAMED_FILE.fullmatch(name) or re.search(r'NAME|[*{]', name):
                continue
            if name not in tree and not any(other.startswith(name.rstrip('/') + '/') for other in tree):
                complaints.append(f'{path}: names {name}, which is not there')
    return complaints


def names_that_pages_use_exist(tree):
    known = {name for path, text in tree.items() if not path.endswith('.md') for name in NAME_OF_OURS.findall(text)}
    return [f'{path}: {name} is nowhere but on pages' for path, text in sorted(tree.items()) if path.endswith('.md')
            for name in sorted(set(NAME_OF_OURS.findall(text)) - known) if not name.endswith('_')]


def tables_of(text):
    """(the sentence above it, the cells of its head) of each table; commands stand between the two now and then."""
    lead = ''
    for block in re.split(r'\n\s*\n', text):
        lines = block.strip('\n').splitlines()
        if len(lines) > 1 and lines[0].startswith('|') and re.fullmatch(r'[|: -]+', lines[1]):
            yield lead, [cell.strip() for cell in lines[0].strip('|').split('|')]
        lead = re.split(r'(?<=\.)\s', block.strip())[-1]


def no_table_mixes_measured_and_predicted(tree):
    """A quotient of the two, "predicted / measured", is neither."""
    complaints = []
    for path, text in pages_of(tree):
        for lead, head in tables_of(text):
            words = ' '.join([lead] + [cell for cell in head if '/' not in cell])
            if PREDICTED.search(words) and MEASURED.search(words):
                complaints.append(f'{path}: the table with the head "{" | ".join(head)}" has what was measured and '
                                  'what was predicted')
    return complaints


def lines_fit_the_page(tree):
    complaints = []
    for path, text in sorted(tree.items()):
        if not path.endswith(CODE + ('.py', '.toml', 'meson.build')) and path not in ['dev', '.ci/run']:
            continue
        for number, line in enumerate(text.split('\n'), 1):
            if len(line) > COLUMNS_MAX:
                complaints.append(f'{path}:{number}: {len(line)} columns, {COLUMNS_MAX} are allowed')
            if '\t' in line or line != line.rstrip():
                complaints.append(f'{path}:{number}: a tab or a blank at the end')
    return complaints


RULES = [
    includes_follow_the_arrows,
    outsiders_use_public_headers_only,
    public_headers_are_pure,
    planner_and_schedules_are_pure,
    every_file_has_one_licence_line,
    no_marker_words,
    no_places_of_one_machine,
    only_the_lists_know_what_was_built,
    the_library_never_prints,
    the_library_never_ends_the_process,
    the_package_never_prints_or_ends,
    the_package_imports_extras_when_used,
    one_file_reads_the_environment,
    every_variable_is_in_the_document,
    every_source_is_listed,
    every_python_test_is_listed,
    every_kernel_is_loaded_at_once,
    readme_shows_the_examples,
    links_lead_somewhere,
    every_page_is_in_the_index,
    files_that_pages_name_exist,
    names_that_pages_use_exist,
    no_table_mixes_measured_and_predicted,
    lines_fit_the_page,
]
