# SPDX-License-Identifier: Apache-2.0
"""Does what a command names exist? Programs, subcommands, options, files, tests and options of the build: by --help and
by what meson knows, without running the command. For `code words` in text, and for commands that no suite can run."""
import json
import re
import shlex

# A code word is looked at if it begins with one of these.
WORTH_A_LOOK = re.compile(r'(?:[A-Z_]+=\S+ )*(?:\./dev|-D\w|mxs |mxs-perf|mxs-train|perf/|b/|meson|torchrun |'
                          r'python3? -m |python3? \S+\.py|pip install|tests/)')
# No program of these names: threads of the library, and names of tests.
LATER = {'b/docs/html'}  # made by a command that the same sentence names
NO_COMMANDS = re.compile(r'mxs-(?:progress|write|read|save)$|python \w+ \(')
TAKE_A_VALUE = ('-C', '--suite', '--no-suite', '--logbase', '-t', '--timeout-multiplier')  # of meson test
OPTION = re.compile(r'--?[A-Za-z][\w-]*')


class Dry:
    """Asks each program once. run, python_with: of a Sandbox."""

    def __init__(self, run, exists, python_with):
        self.run, self.exists, self.python_with = run, exists, python_with
        self.helps, self.known = {}, {}

    def help_of(self, command, modules=()):
        """'' if it has none, which is a fault of whoever names options of it."""
        if command not in self.helps:
            status, out, err = self.run(command, modules, 60)
            self.helps[command] = out + err if status == 0 else ''
        return self.helps[command]

    def introspected(self, what):
        if what not in self.known:
            status, out, err = self.run(f'meson introspect --{what} b')
            if status:
                raise RuntimeError(f'meson introspect --{what}: {err}')
            self.known[what] = json.loads(out)
        return self.known[what]

    def options(self, words, *helps, modules=()):
        if modules and self.python_with(modules) is None:
            return []  # there is nobody to ask
        text = '\n'.join(self.help_of(help, modules) for help in helps)
        if not text.strip():
            return [f'`{helps[0]}` fails'] if any(OPTION.match(word) for word in words) else []
        faults = []
        for word in words:
            option = OPTION.match(word.strip('[]'))
            if option and not re.search(rf'(?<![\w-]){re.escape(option[0])}(?![\w-])', text):
                faults.append(f'`{helps[0]}` does not know {option[0]}')
        return faults

    def faults(self, line):
        """Sentences."""
        found = []
        for words in simple_commands(line):
            found += self.command(words)
        return found

    def command(self, words):
        while words and re.match(r'[A-Z_]+=', words[0]):
            words = words[1:]
        if not words:
            return []
        program, rest = words[0], words[1:]
        if program.startswith('-D'):
            return self.build_options(words)
        name = program.rsplit('/', 1)[-1]
        if program.startswith(('b/', 'perf/', 'tests/')) and not is_a_name(program) and not self.is_there(program):
            return [f'{program} is not there']
        if program == './dev':
            return self.dev(rest)
        if name == 'mxs':
            return self.mxs(program, rest)
        if name == 'mxs-perf':
            return self.mxs_perf(program, rest)
        if name in ('cluster', 'torchrun', 'mpirun'):
            return self.launcher(program, name, rest)
        if name in ('mxs-train', 'demo'):
            more = ['b/perf/train/mxs-train --help'] if name == 'demo' else []
            return self.options(rest, f'{program} --help', *more)
        if name == 'meson':
            return self.meson(rest)
        if name in ('python', 'python3'):
            return self.python(program, rest)
        if name == 'pip' and rest:
            help_of_it = f'python3 -m pip {rest[0]} --help'
            return self.options(rest, help_of_it) if self.help_of(help_of_it) else []  # Debian's Python may have none
        if program.startswith('perf/') and not program.endswith('/') and '.' not in name:
            return self.options(rest, f'{program} --help')
        return []

    def is_there(self, path):
        """Or is what this build makes, or would make of a source if it had what that needs."""
        if path in LATER or self.exists(path):
            return True
        if not path.startswith('b/'):
            return False
        made = {name for target in self.introspected('targets') for name in target['filename']}
        return any(name.endswith(path[1:]) for name in made) or self.exists(path[2:] + '.c')

    def mxs(self, program, rest):
        rest, after = cut(rest)
        faults = self.command(after)
        subcommands = rest[:1]
        if rest[:1] == ['checkpoint'] and len(rest) > 1:
            subcommands = ['checkpoint ' + word for word in rest[1].split('|')]
        for subcommand in subcommands:
            if subcommand.startswith('-') or is_a_name(subcommand):
                continue
            if not self.help_of(f'{program} {subcommand} --help'):
                faults.append(f'{program} has no command "{subcommand}"')
            else:
                faults += self.options(rest, f'{program} {subcommand} --help')
        return faults

    def mxs_perf(self, program, rest):
        if not rest or is_a_name(rest[0]) or rest[0].startswith('-'):
            return self.options(rest, f'{program} --help')
        if not self.help_of(f'{program} {rest[0]} --help'):
            return [f'{program} has no command "{rest[0]}"']
        return self.options(rest[1:], f'{program} {rest[0]} --help')

    def launcher(self, program, name, rest):
        if name == 'cluster':
            rest, after = cut(rest)
            return self.options(rest, f'{program} --help') + self.command(after)
        if name == 'torchrun':
            script = next((at for at, word in enumerate(rest) if word.endswith('.py')), len(rest))
            # It takes - and _ alike in its options, and shows one of them.
            same = [word.replace('-', '_') if word.startswith('--') else word for word in rest[:script]]
            text = self.help_of('torchrun --help', ('torch',)).replace('-', '_')
            return [] if not text else [f'torchrun has no {word.replace("_", "-")}' for word in same
                                        if word.startswith('--') and word.replace('-', '_') not in text]
        return []  # not of this tree, and not here

    def dev(self, rest):
        text = self.help_of('./dev help')
        if not rest:
            return []
        if not re.search(rf'^\./dev {re.escape(rest[0])}\b', text, re.M) and rest[0] != 'help':
            return [f'./dev has no command "{rest[0]}"']
        if rest[0] == 'demo':
            return self.options(rest[1:], 'b/perf/train/demo --help', 'b/perf/train/mxs-train --help')
        if rest[0] in ('perf', 'evaluate'):
            program = {'perf': 'perf/compare_openmpi', 'evaluate': 'perf/evaluate/evaluate'}[rest[0]]
            return self.options(rest[1:], f'{program} --help')
        if rest[0] in ('test', 'valgrind'):
            return self.tests(rest[1:])
        script = self.help_of('cat dev packaging/*')
        return [f'./dev does not know {word}' for word in rest[1:]
                if (word.startswith('--') or rest[0] == 'deps') and not is_a_name(word)
                and not re.search(rf'(?<![\w-]){re.escape(word)}(?![\w-])', script)]

    def meson(self, rest):
        if not rest:
            return []
        faults = [] if self.help_of(f'meson {rest[0]} --help') else [f'meson has no command "{rest[0]}"']
        plain = [word for word in rest[1:] if not word.startswith('-D')]
        faults += self.options(plain, f'meson {rest[0]} --help')
        faults += self.build_options(rest[1:])
        if rest[0] == 'test':
            faults += self.tests(plain)
        return faults

    def build_options(self, words):
        asked = [word[2:].split('=')[0] for word in words if word.startswith('-D')]
        built = {option['name'] for option in self.introspected('buildoptions')} if asked else ()
        return [f'the build has no option {name}' for name in asked if name not in built]

    def tests(self, words):
        tests, faults, takes_value = self.introspected('tests'), [], ''
        suites = {suite.split(':')[-1] for test in tests for suite in test['suite']}
        for word in words:
            if takes_value == '--suite' and word not in suites:
                faults.append(f'no test is in a suite "{word}"')
            elif not takes_value and not word.startswith('-') and not is_a_name(word):
                if not any(test['name'] == word for test in tests):
                    faults.append(f'there is no test "{word}"')
            takes_value = word if word in TAKE_A_VALUE else ''
        return faults

    def python(self, program, rest):
        if rest[:1] == ['-m'] and len(rest) > 1:
            modules = ('matplotlib',) if rest[1] == 'matrixshard.plot' else ()
            if not modules:
                return []
            return self.options(rest[2:], f'{program} -m {rest[1]} --help', modules=modules)
        if rest and rest[0].endswith('.py'):
            if '/' not in rest[0] or is_a_name(rest[0]):
                return []  # a program of the reader's own, or one that stands beside
            if not self.exists(rest[0]):
                return [f'{rest[0]} is not there']
            if rest[0].startswith('perf/'):
                return self.options(rest[1:], f'{program} {rest[0]} --help')
        return []


def cut(words):
    """(before, after) the first --."""
    at = words.index('--') if '--' in words else len(words)
    return words[:at], words[at + 1:]


def is_a_name(word):
    """What the reader is to put something in place of: FILE, .tests/python/test_NAME.py, ..."""
    return bool(re.search(r'\.\.\.|(?<![a-z])[A-Z]{2,}(?![a-z])|^[A-Z]$|[*<$]', word))


def simple_commands(line):
    """The words of each command of a line of shell. A | without blanks is one of several words: show|verify."""
    lexer = shlex.shlex(re.sub(r'(?<=\w)\|(?=\w)', '\0', line), posix=True, punctuation_chars=';&|()<>')
    lexer.whitespace_split = True
    lexer.commenters = ''
    words = []
    for word in lexer:
        if re.fullmatch(r'[;&|()<>]+', word):
            if words:
                yield words
            words = [] if '>' not in word and '<' not in word else ['>']
        elif words == ['>']:
            words = []  # the file of a redirection
        else:
            words.append(word.replace('\0', '|'))
    if words:
        yield words
