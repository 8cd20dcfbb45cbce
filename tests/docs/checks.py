# SPDX-License-Identifier: Apache-2.0
"""Carries a way out: what it returns are cases, each a sentence with complaints or with a reason why it was skipped."""
import dataclasses
import pathlib
import re
import time

import claimed
import frames
import outputs
import special

CANNOT = 77  # how programs of perf/ end that can't run here, with a sentence


@dataclasses.dataclass
class Case:
    name: str
    complaints: list = dataclasses.field(default_factory=list)
    skipped: str = ''
    notes: list = dataclasses.field(default_factory=list)


class Checks:
    """Of one page. rules: the tables of claims.py."""

    def __init__(self, root, sandbox, dry, rules):
        self.root, self.sandbox, self.dry, self.rules = pathlib.Path(root), sandbox, dry, rules
        self.printed = None  # by the last command
        self.namespaces = {}

    def cases(self, part):
        """One or more."""
        return getattr(self, type(part.way).__name__.lower())(part, part.way)

    def name(self, part, text=None):
        return f'{part.heading}: {text or part.first}'[:100]

    # Commands.

    def shell(self, part, _):
        return [self.command(part, command) for command in claimed.commands_of(part.lines)]

    def command(self, part, command):
        case = Case(self.name(part, command))
        case.complaints = self.dry.faults(command)
        for rule in self.rules.NOT_HERE:
            if re.search(rule.pattern, command):
                case.skipped = rule.reason
                return case
        run = self.rewritten(command)
        if run != command:
            case.notes.append(f'run as: {run}')
        if re.search(self.rules.WRITES, run):
            case.complaints.append('it would change the tree: it wants a line in REWRITES or NOT_HERE')
            return case
        begun = time.monotonic()
        status, out, err = self.run(run, case)
        self.printed = out
        if time.monotonic() - begun >= 1:
            case.notes.append(f'took {time.monotonic() - begun:.1f} s')
        if status not in (0, None):
            case.complaints.append(f'line {part.number} and below: `{run}` ends with {status}:\n{tail(out, err)}')
        return case

    def rewritten(self, command):
        for rule in self.rules.REWRITES:
            command = re.sub(rule.pattern, rule.replacement, command)
        return command

    def run(self, command, case):
        """(status, out, err); None: it can't run here, and the case says why."""
        modules = {rule.module for rule in self.rules.NEEDS if re.search(rule.pattern, command)}
        if self.sandbox.python_with(modules) is None:
            case.skipped = f'no Python here has {" and ".join(sorted(modules))}: ./dev deps python'
            return None, '', ''
        wanted = ((r'\b(?:pkg-config|cmake)\b', self.sandbox.install), (r'^pip\b', self.sandbox.make_pip))
        for pattern, prepare in wanted:
            status, said = prepare() if re.search(pattern, command) else (0, '')
            if status:
                return status, said, ''
        status, out, err = self.sandbox.run(command, sorted(modules))
        if status == CANNOT:
            case.skipped = ' '.join(err.split())[:200]
            return None, out, err
        return status, out, err

    def session(self, part, _):
        found, shown = [], []
        for line in part.lines + ['$ ']:
            if not line.startswith('$ '):
                shown.append(line)
                continue
            if found and not found[-1].skipped and any(map(str.strip, shown)):
                complaint = outputs.difference(shown, self.printed.splitlines())
                found[-1].complaints += [complaint] if complaint else []
            if line.strip() != '$':
                found.append(self.command(part, claimed.without_comment(line[2:])))
            shown = []
        return found

    def output(self, part, way):
        case = Case(self.name(part))
        if way.of:
            status, self.printed, err = self.run(way.of, case)
            case.notes.append(f'of: {way.of}')
            if status is None:
                return [case]
            if status:
                case.complaints.append(f'`{way.of}` ends with {status}:\n{tail(self.printed, err)}')
                return [case]
        if not self.printed:
            case.complaints.append('no command above it has printed anything: name one in its claim, Output(of=...)')
            return [case]
        complaint = outputs.difference(part.lines, self.printed.splitlines(), way.part, way.exact)
        if complaint:
            case.complaints.append(f'line {part.number} and below: {complaint}')
        return [case]

    # Files, data, programs.

    def file(self, part, way):
        case = Case(self.name(part))
        text = (self.root / way.path).read_text(encoding='utf-8')
        shown = re.sub(r'\A(?:/\*|//|#) SPDX[^\n]*\n', '', text)
        if part.text.strip() != shown.strip():
            case.complaints.append(f'line {part.number} and below is not {way.path} without its licence line')
        if pathlib.PurePath(way.path).name not in (self.root / way.runs).read_text(encoding='utf-8'):
            case.complaints.append(f'{way.runs} does not run {way.path}')
        return [case]

    def data(self, part, way):
        case = Case(self.name(part))
        path = self.sandbox.folder / way.name
        path.write_text(part.text, encoding='utf-8')
        case.notes.append(f'as {way.name}, for: {way.command}')
        status, out, err = self.run(way.command, case)
        if status:
            case.complaints.append(f'line {part.number} and below, as {way.name}: `{way.command}` ends with {status}:\n'
                                   f'{tail(out, err)}')
        return [case]

    def python(self, part, way):
        """What the page's blocks before have executed comes first, so that each finds the names that they made."""
        case = Case(self.name(part))
        modules = sorted(way.needs)
        if self.sandbox.python_with(modules) is None:
            case.skipped = f'no Python here has {" and ".join(modules)}: ./dev deps python'
            return [case]
        program = self.sandbox.folder / f'block_{part.number}.py'
        program.write_text(frames.python(way.frame, part.text), encoding='utf-8')
        status, out, err = self.sandbox.run(frames.launcher(way.frame) + f'python {program.name}', modules)
        if status:
            case.complaints.append(f'line {part.number} and below ends with {status}:\n{tail(out, err)}')
        return [case]

    def c(self, part, way):
        case = Case(self.name(part))
        source = self.sandbox.folder / f'block_{part.number}.c'
        source.write_text(frames.c(way.frame, part.lines, way.aside, part.number, part.page), encoding='utf-8')
        warnings = '-std=c11 -Wall -Wextra -Werror -Wno-unused -Wno-unused-parameter'
        status, out, err = self.sandbox.run(f'cc {warnings} -Iinclude -fsyntax-only {source.name}')
        if status:
            case.complaints.append(f'line {part.number} and below does not compile in its frame:\n{tail(out, err)}')
        return [case]

    def by(self, part, way):
        case = Case(self.name(part))
        getattr(special, way.function)(self, part, case)
        return [case]

    # Claimed and not run here.

    def tested(self, part, way):
        case = Case(self.name(part))
        text = (self.root / way.path).read_text(encoding='utf-8') if (self.root / way.path).is_file() else ''
        case.notes.append(f'executed by {way.path}')
        if part.page not in text or 'claimed.blocks(' not in text:
            case.complaints.append(f'{way.path} does not ask claimed.blocks() for blocks of {part.page}')
        return [case]

    def picture(self, part, _):
        return [Case(self.name(part))]


def tail(out, err):
    return '\n'.join((out + err).strip().splitlines()[-25:])


