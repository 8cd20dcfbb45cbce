# SPDX-License-Identifier: Apache-2.0
"""Every rule finds a planted fault, and says nothing on a tree without one. Also tests count_cases.py. Speaks TAP."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))

import count_cases
import rules

LICENCE = '// ' + rules.SPDX + '\n'
GOOD = {
    'include/matrixshard/a.h': LICENCE + '#include <stdint.h>\n#include "matrixshard/b.h"\n',
    'include/matrixshard/b.h': LICENCE,
    'src/base/environment.cpp': LICENCE + 'const char *text = std::getenv(name);\n',
    'src/base/meson.build': '# ' + rules.SPDX + "\ncore_sources += files('environment.cpp', 'text.cpp')\n",
    'src/base/text.cpp': LICENCE + 'std::snprintf(text, n, "x"); log.printf("y"); // printf("z")\n'
                         'mxs_comm_abort(comm, "exit(1)"); environment_text("MXS_A");\n',
    'src/cuda/kernels/a.cuh': LICENCE + 'MXS_KERNEL(mxs_a, mxs::A, mxs::NothingShared) {}\n',
    'src/cuda/module.cpp': LICENCE + 'names = {\n    "mxs_a",\n};\n',
    'src/cuda/meson.build': '# ' + rules.SPDX + "\nfiles('module.cpp')\n",
    'src/plan/plan.hpp': LICENCE + '#include "layout/layout.hpp"\n#include "plan/cost.hpp"\n#include <vector>\n',
    'src/cli/main.cpp': LICENCE + '#include "cli/words.hpp"\n#include "matrixshard/a.h"\nprintf("yes");\nexit(1);\n',
    'src/cli/words.hpp': LICENCE,
    'src/cli/meson.build': '# ' + rules.SPDX + "\nexecutable('mxs', 'main.cpp')\n",
    'src/transport/transports.cpp': LICENCE + '#if MXS_HAVE_UCX\n#endif\n',
    'src/transport/meson.build': '# ' + rules.SPDX + "\ncore_sources += files('transports.cpp')\n",
    'bindings/python/matrixshard/__init__.py': '# ' + rules.SPDX + '\n"""print() and sys.exit() are words here."""\n'
                                               "import os\nos.environ.get('MXS_A')\n\ndef f():\n    import numpy\n",
    'bindings/python/matrixshard/plot/__main__.py': '# ' + rules.SPDX + "\nprint('a')\n",
    'bindings/python/matrixshard/torch/__init__.py': '# ' + rules.SPDX + '\nimport torch\n',
    'tests/python/test_a.py': '# ' + rules.SPDX + '\nimport torch\nprint()\n',
    'tests/python/meson.build': '# ' + rules.SPDX + "\npython_tests = {\n  'a': [],\n}\n",
    'docs/examples/owner_step.py': '# ' + rules.SPDX + '\npass\n',
    'docs/examples/shard_module.py': '# ' + rules.SPDX + '\npass\n',
    'docs/examples/hello.c': LICENCE + 'int main(void) {\n\n  return 0;\n}\n',
    'README.md': '<!-- ' + rules.SPDX + ' -->\n## `See`, here\n```c\nint main(void) {\n\n  return 0;\n}\n```\n'
                 '```python\npass\n```\n`src/cli/` `src/transport/NAME/` `src/gone.c or so`\n',
    'docs/performance/evaluation.json': '{}\n',
    'docs/README.md': '<!-- ' + rules.SPDX + ' -->\n[a](environment.md) [b](examples/hello.c)\n'
                      '[c](examples/owner_step.py) [d](examples/shard_module.py)\n',
    'docs/environment.md': '<!-- ' + rules.SPDX + ' -->\n# Here\n| `MXS_A` | a |\n[a](../README.md#see-here) '
                           '[b](examples/) [c](https://example.org) [d](#here)\n```\n# none\n[x](gone.md)\n```\n'
                           '    [y](gone.md) `src/gone.c`\n',
}
# rule, path, text added at its end
PLANTED = [
    (rules.includes_follow_the_arrows, 'src/plan/plan.hpp', '#include "transport/transport.hpp"\n'),
    (rules.includes_follow_the_arrows, 'src/base/text.cpp', '#include "layout/layout.hpp"\n'),
    (rules.includes_follow_the_arrows, 'src/attic/old.hpp', LICENCE),
    (rules.outsiders_use_public_headers_only, 'src/cli/main.cpp', '#include "base/status.hpp"\n'),
    (rules.outsiders_use_public_headers_only, 'perf/bench.cpp', '#include "plan/plan.hpp"\n'),
    (rules.public_headers_are_pure, 'include/matrixshard/a.h', '#include <vector>\n'),
    (rules.public_headers_are_pure, 'include/matrixshard/a.h', '#include "matrixshard/absent.h"\n'),
    (rules.planner_and_schedules_are_pure, 'src/plan/plan.hpp', '#include "base/clock.hpp"\n'),
    (rules.every_file_has_one_licence_line, 'src/cli/words.hpp', LICENCE),
    (rules.every_file_has_one_licence_line, 'tests/new.cpp', 'int x;\n'),
    (rules.every_file_has_one_licence_line, 'docs/performance/picture.svg', '<svg/>\n'),
    (rules.no_marker_words, 'src/base/text.cpp', '// TO' + 'DO later\n'),
    (rules.no_places_of_one_machine, 'docs/environment.md', 'see /ho' + 'me/me/notes\n'),
    (rules.only_the_lists_know_what_was_built, 'src/base/text.cpp', '#if MXS_HAVE_UCX\n'),
    (rules.every_kernel_is_loaded_at_once, 'src/cuda/kernels/a.cuh', 'MXS_KERNEL(mxs_b, mxs::A, mxs::B) {}\n'),
    (rules.the_library_never_prints, 'src/base/text.cpp', 'std::printf("x");\n'),
    (rules.the_library_never_prints, 'src/base/text.cpp', 'fprintf(stderr, "x");\n'),
    (rules.the_library_never_prints, 'src/base/text.cpp', 'std::cerr << 1;\n'),
    (rules.the_library_never_ends_the_process, 'src/base/text.cpp', 'std::abort();\n'),
    (rules.the_library_never_ends_the_process, 'src/base/text.cpp', '_exit(1);\n'),
    (rules.the_package_never_prints_or_ends, 'bindings/python/matrixshard/__init__.py', "print('x')\n"),
    (rules.the_package_never_prints_or_ends, 'bindings/python/matrixshard/torch/__init__.py', 'sys.stderr.write(x)\n'),
    (rules.the_package_imports_extras_when_used, 'bindings/python/matrixshard/plot/__main__.py',
     'import matplotlib.pyplot\n'),
    (rules.the_package_imports_extras_when_used, 'bindings/python/matrixshard/__init__.py', 'from numpy import x\n'),
    (rules.one_file_reads_the_environment, 'src/base/text.cpp', 'getenv("HOME");\n'),
    (rules.every_variable_is_in_the_document, 'src/base/text.cpp', 'environment_number("MXS_B", 0, 1, &b);\n'),
    (rules.every_variable_is_in_the_document, 'src/base/text.cpp', 'const char *names[] = {"SLURM_PROCID"};\n'),
    (rules.every_variable_is_in_the_document, 'docs/environment.md', '| `MXS_GONE` | c |\n'),
    (rules.every_variable_is_in_the_document, 'bindings/python/matrixshard/plot/__main__.py',
     "x = os.environ['MXS_B']\n"),
    (rules.every_python_test_is_listed, 'tests/python/test_b.py', '# ' + rules.SPDX + '\n'),
    (rules.every_source_is_listed, 'src/base/forgotten.cpp', LICENCE),
    (rules.readme_shows_the_examples, 'docs/examples/hello.c', '/* more */\n'),
    (rules.readme_shows_the_examples, 'docs/examples/owner_step.py', 'more()\n'),
    (rules.links_lead_somewhere, 'README.md', '[a](docs/gone.md)\n'),
    (rules.links_lead_somewhere, 'docs/environment.md', '[a](docs/environment.md#b)\n'),
    (rules.links_lead_somewhere, 'docs/environment.md', '[a](../README.md#see)\n'),
    (rules.links_lead_somewhere, 'docs/environment.md', '[a](#none)\n'),
    (rules.every_page_is_in_the_index, 'docs/new.md', '# New\n'),
    (rules.every_page_is_in_the_index, 'docs/examples/new.c', LICENCE),
    (rules.files_that_pages_name_exist, 'README.md', 'see `src/cli/gone.cpp`\n'),
    (rules.names_that_pages_use_exist, 'README.md', '`mxs_comm_abort`, `mxs_shampoo_` and so on, mxs_gone\n'),
    (rules.no_table_mixes_measured_and_predicted, 'README.md', '\n| predicted | measured |\n|---|---|\n| 1 | 2 |\n'),
    (rules.no_table_mixes_measured_and_predicted, 'README.md',
     '\nIts step, predicted:\n\n    mxs plan\n\n| ours | published |\n|---|---|\n| 1 | 2 |\n'),
    (rules.lines_fit_the_page, 'src/base/text.cpp', '/' * 121 + '\n'),
    (rules.lines_fit_the_page, 'src/base/text.cpp', 'x \n'),
]


def tree_passes():
    complaints = [complaint for rule in rules.RULES for complaint in rule(GOOD)]
    return [f'on a good tree: {complaint}' for complaint in complaints]


def planted_faults_are_found():
    wrong = []
    for rule, path, text in PLANTED:
        tree = dict(GOOD)
        tree[path] = tree.get(path, '') + text
        if not any(path in complaint for complaint in rule(tree)):
            wrong.append(f'{rule.__name__} does not see {text!r} in {path}')
    return wrong


def every_rule_has_a_planted_fault():
    planted = {rule for rule, _, _ in PLANTED}
    return [f'{rule.__name__} has none' for rule in rules.RULES if rule not in planted]


def cases_are_counted():
    programs = [
        {'name': 'tap', 'result': 'OK', 'stdout': '1..2\nok 1 - a\nok 2 - b\n'},
        {'name': 'bad', 'result': 'FAIL', 'stdout': '1..2\nok 1 - a\nnot ok 2 - b\n'},
        {'name': 'absent', 'result': 'SKIP', 'stdout': '1..0 # SKIP no device\n'},
        {'name': 'plain', 'result': 'OK', 'stdout': 'ok this is no TAP\n'},
        {'name': 'crash', 'result': 'ERROR', 'stdout': '1..2\nok 1 - a\n'},
        {'name': 'slow', 'result': 'TIMEOUT'},
        {'name': 'not run', 'result': 'OK', 'stdout': '1..3\nok 1 - a\n# not run: no limit\nok 2 - b\nok 3 - c\n'},
        {'name': 'one skipped', 'result': 'OK', 'stdout': '1..2\nok 1 - a\nok 2 - b # SKIP no root\n'},
    ]
    passed, failed, skipped = count_cases.count(programs)
    wanted = (8, ['bad: b', 'crash: ERROR', 'slow: TIMEOUT'],
              ['absent: no device', 'not run: b # SKIP no limit', 'one skipped: b # SKIP no root'])
    return [] if (passed, failed, skipped) == wanted else [f'counted {passed}, {failed}, {skipped}; wanted {wanted}']


CASES = [tree_passes, planted_faults_are_found, every_rule_has_a_planted_fault, cases_are_counted]

print(f'1..{len(CASES)}')
for number, case in enumerate(CASES, 1):
    complaints = case()
    print(f'{"not ok" if complaints else "ok"} {number} - {case.__name__}')
    for complaint in complaints:
        print(f'# {complaint}')
