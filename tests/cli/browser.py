# SPDX-License-Identifier: Apache-2.0
"""One headless Chromium for all pages of a test, each in a tab of its own, and what it shows as a tree of elements.

It is spoken to by its DevTools protocol, over two pipes: one start instead of one a page, and what its console
complains of comes as events.
"""
import fcntl
import html.parser
import json
import os
import select
import shutil
import subprocess
import time

PROGRAM = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')
SECONDS_MAX = 100  # for one answer: other tests run beside it


class Document(html.parser.HTMLParser):
    """Just enough of a tree: elements as (tag, attributes, children, text pieces)."""
    VOID = {'meta', 'link', 'input', 'br', 'img', 'hr'}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.root = {'tag': '', 'attributes': {}, 'children': []}
        self.open = [self.root]
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        element = {'tag': tag, 'attributes': dict(attrs), 'children': []}
        self.open[-1]['children'].append(element)
        if tag not in self.VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        while len(self.open) > 1 and tag not in self.VOID:
            if self.open.pop()['tag'] == tag:
                return

    def handle_data(self, data):
        self.open[-1]['children'].append(data)

    def all(self, tag=None, under=None, **attributes):
        found = []
        for child in (under or self.root)['children']:
            if isinstance(child, dict):
                own = child['attributes']
                if tag in (None, child['tag']) and all(own.get(name.rstrip('_')) == value
                                                       for name, value in attributes.items()):
                    found.append(child)
                found += self.all(tag, child, **attributes)
        return found

    def by_id(self, name):
        return self.all(id=name)[0]

    def text(self, element):
        return ''.join(child if isinstance(child, str) else self.text(child) for child in element['children'])


class Browser:
    """Messages are JSON with a zero byte behind: commands with an id, which answers repeat, and events without one."""
    COMPLAINTS = ('Runtime.consoleAPICalled', 'Runtime.exceptionThrown', 'Log.entryAdded')

    def __init__(self, profile_folder):
        theirs_in, self.commands = os.pipe()
        self.answers, theirs_out = os.pipe()
        # It reads from 3 and writes to 4, which must not be closed by the copying itself.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
        self.process = subprocess.Popen(
            [PROGRAM, '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
             '--disable-background-networking', '--disable-component-update', '--disable-sync',
             '--disable-extensions', f'--user-data-dir={profile_folder}', '--remote-debugging-pipe'],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(3, 4),
            preexec_fn=lambda: (os.dup2(ends[0], 3), os.dup2(ends[1], 4)))
        for end in (theirs_in, theirs_out, *ends):
            os.close(end)
        self.sent, self.events, self.rest = 0, [], b''

    def message(self):
        deadline = time.monotonic() + SECONDS_MAX
        while b'\0' not in self.rest:
            wait = deadline - time.monotonic()
            assert wait > 0 and select.select([self.answers], [], [], wait)[0], 'Chromium says nothing'
            piece = os.read(self.answers, 1 << 20)
            assert piece, f'Chromium has ended with {self.process.poll()}'
            self.rest += piece
        first, self.rest = self.rest.split(b'\0', 1)
        return json.loads(first)

    def ask(self, method, session=None, **parameters):
        self.sent += 1
        command = {'id': self.sent, 'method': method, 'params': parameters}
        text = json.dumps(command | ({'sessionId': session} if session else {})).encode() + b'\0'
        while text:
            text = text[os.write(self.commands, text):]
        while True:
            told = self.message()
            if told.get('id') == self.sent:
                assert 'error' not in told, (method, told['error'])
                return told['result']
            self.events.append(told)

    def show(self, path, scheme, width):
        """Returns (the document as HTML, complaints of the console)."""
        target = self.ask('Target.createTarget', url='about:blank')['targetId']
        session = self.ask('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log'):
            self.ask(domain + '.enable', session)
        self.ask('Emulation.setDeviceMetricsOverride', session, width=width, height=1000, deviceScaleFactor=1,
                 mobile=False)
        self.ask('Emulation.setEmulatedMedia', session,
                 features=[{'name': 'prefers-color-scheme', 'value': scheme}])
        self.events = []
        assert 'errorText' not in self.ask('Page.navigate', session, url='file://' + path)
        while not any(event['method'] == 'Page.loadEventFired' for event in self.events):
            self.events.append(self.message())
        shown = self.ask('Runtime.evaluate', session, expression='document.documentElement.outerHTML')
        complaints = [event['params'] for event in self.events if event['method'] in self.COMPLAINTS]
        self.ask('Target.closeTarget', targetId=target)
        return shown['result']['value'], complaints

    def close(self):
        try:
            self.ask('Browser.close')
            self.process.wait(10)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
