# SPDX-License-Identifier: Apache-2.0
"""Steps in a clean root, each with its time: what is printed while they run, and the table at the end."""
import subprocess
import sys
import time

TAIL_LINES = 40


class Failure(SystemExit):
    """Ends the program with a sentence, after the end of what was printed and the table so far."""


class Steps:
    """What the steps print goes to a file for all of them; its end is shown when a step fails."""

    def __init__(self, root, path):
        self.root = root
        self.log = open(path, 'wb')
        self.path = path
        self.rows = []          # (title, seconds)
        print(f'what the steps print goes to {path}')

    def time(self, title, body):
        """body(log) returns an exit status, or nothing."""
        print(f'{title} ...', flush=True)
        self.log.write(f'\n==== {title}\n'.encode())
        self.log.flush()
        begin, offset = time.monotonic(), self.log.tell()
        try:
            status = body(self.log)
        except (OSError, subprocess.SubprocessError) as problem:
            status = str(problem)
        self.rows.append((title, time.monotonic() - begin))
        if status:
            sys.stdout.write(''.join(self.printed(offset)[-TAIL_LINES:]))
            print(self.table())
            raise Failure(f'{title}: {status if isinstance(status, str) else f"exit status {status}"}; '
                          f'{self.path} has all that was printed')
        return self.printed(offset)

    def run(self, title, command, **options):
        """A command in the root. Returns the lines that it printed."""
        return self.time(title, lambda log: self.root.run(command, log, **options))

    def printed(self, offset):
        with open(self.path, 'rb') as file:
            file.seek(offset)
            return file.read().decode(errors='replace').splitlines(keepends=True)

    def table(self):
        width = max(len(title) for title, _ in self.rows)
        lines = [f'{title:{width}}  {seconds:8.1f} s' for title, seconds in self.rows]
        lines.append(f'{"together":{width}}  {sum(seconds for _, seconds in self.rows):8.1f} s')
        return '\n'.join(lines)

