# SPDX-License-Identifier: Apache-2.0
"""Runs unittest cases as TAP: tap.py FILE... [-k WORD]

    1..2
    ok 1 - a rank that owns nothing sends nothing
    ok 2 - views are numpy arrays # SKIP this Python has no numpy

A case is named by the first line of its docstring, else by its method with blanks for underscores. A file that can't
run here raises unittest.SkipTest while it is imported. TAP alone goes to standard output: what cases, their children
and libraries print there goes to standard error. -k runs the cases whose names hold WORD. The exit status is 1 if
one failed.
"""
import faulthandler
import importlib.util
import os
import signal
import sys
import traceback
import unittest


class Tap:
    """Writes the lines. The plan comes first, so that a program that dies has too few of them."""

    def __init__(self, stream):
        self.stream = stream
        self.count = 0
        self.failed_count = 0

    def line(self, text):
        self.stream.write(text + '\n')
        self.stream.flush()

    def case(self, name, is_good, skip_reason=None, details=''):
        self.count += 1
        self.failed_count += not is_good
        skip = '' if skip_reason is None else f' # SKIP {one_line(skip_reason)}'
        self.line(f'{"ok" if is_good else "not ok"} {self.count} - {name}{skip}')
        for line in details.rstrip().splitlines():
            self.line(f'# {line}')


def one_line(text):
    return ' '.join(str(text).split()) or 'no reason given'


def name_of(case):
    """One sentence without the sign that begins a TAP directive."""
    text = case.shortDescription()
    if not text:
        text = getattr(case, '_testMethodName', str(case))
        text = (text[len('test_'):] if text.startswith('test_') else text).replace('_', ' ')
    return one_line(text).replace('#', 'number ')


class Result(unittest.TestResult):
    """One line a case, however many subtests of it fail. A fault in setUpClass or setUpModule is that of each case."""

    def __init__(self, tap):
        super().__init__()
        self.tap = tap
        self.reported = set()
        self.faults = {}   # id of a class or module -> (skip_reason, text): what kept its cases from running
        self.details = ''
        self.skip_reason = None
        self.is_good = True

    def startTest(self, test):
        super().startTest(test)
        self.details, self.skip_reason, self.is_good = '', None, True

    def stopTest(self, test):
        super().stopTest(test)
        self.tap.case(name_of(test), self.is_good, self.skip_reason if self.is_good else None, self.details)
        self.reported.add(test.id())

    def fault(self, test, error, label=''):
        text = label + ''.join(traceback.format_exception(*error))
        if not isinstance(test, unittest.TestCase):  # "setUpClass (module.Class)", "setUpModule (module)"
            self.faults[str(test).split('(')[-1].rstrip(')')] = (None, text)
        self.is_good = False
        self.details += text

    def addError(self, test, error):
        super().addError(test, error)
        self.fault(test, error)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.fault(test, error)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.fault(test, error, f'in {subtest._subDescription()}:\n')

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if not isinstance(test, unittest.TestCase):
            self.faults[str(test).split('(')[-1].rstrip(')')] = (reason, '')
        self.skip_reason = reason

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.is_good = False
        self.details += 'passed, but is said to fail\n'

    def report_what_did_not_run(self, cases):
        for case in cases:
            if case.id() in self.reported:
                continue
            owner = case.id().rsplit('.', 1)[0]
            skip_reason, text = self.faults.get(owner) or self.faults.get(owner.split('.')[0]) or (None, 'did not run')
            self.tap.case(name_of(case), skip_reason is not None, skip_reason, text)


def cases_of(suite):
    for member in suite:
        if isinstance(member, unittest.TestSuite):
            yield from cases_of(member)
        else:
            yield member


def load(path):
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pickle and dataclasses look classes up by it
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(module)
    return module


def run(paths, word, stream):
    """Returns the number of cases that failed."""
    tap = Tap(stream)
    suite = unittest.TestSuite()
    left_out, broken = [], []  # (file, reason), (file, traceback)
    for path in paths:
        try:
            suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(load(path)))
        except unittest.SkipTest as reason:
            left_out.append((os.path.basename(path), one_line(reason)))
        except BaseException:
            broken.append((os.path.basename(path), traceback.format_exc()))
    cases = [case for case in cases_of(suite) if word in name_of(case)]
    if not cases and not broken:
        tap.line('1..0 # SKIP ' + ('; '.join(reason for _, reason in left_out) or f'no case has {word!r} in its name'))
        return 0
    tap.line(f'1..{len(cases) + len(left_out) + len(broken)}')
    for name, reason in left_out:
        tap.case(f'all of {name}', True, reason)
    for name, text in broken:
        tap.case(f'{name} can be imported', False, None, text)
    result = Result(tap)
    unittest.TestSuite(cases).run(result)
    result.report_what_did_not_run(cases)
    return tap.failed_count


def main(arguments):
    word = ''
    if '-k' in arguments:
        place = arguments.index('-k')
        word = (arguments[place + 1:place + 2] or [''])[0]
        arguments = arguments[:place] + arguments[place + 2:]
    if not arguments:
        print(__doc__.strip().split('\n')[0], file=sys.stderr)
        return 2
    stream = os.fdopen(os.dup(1), 'w', encoding='utf-8')
    os.dup2(2, 1)
    faulthandler.enable()
    faulthandler.register(signal.SIGTERM, chain=True)  # meson's timeout: says where it hung
    return 1 if run(arguments, word, stream) else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
