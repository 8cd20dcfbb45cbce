# SPDX-License-Identifier: Apache-2.0
"""A Debian system that has nothing but debootstrap's minbase, for as long as a `with` lasts.

    this system                                     namespaces of mounts, processes, IPC and host name
    TMPDIR/matrixshard-root-XXXX/lock, root/  --pivot_root-->  /
    apt's mirrors, proxies, resolv.conf       --copied----->  /etc
    /sys, null, zero, random, ...             --bound------>  /sys, /dev            /proc, /dev/shm, /run are its own
    run(...)                                  --nsenter---->  a shell in it

All mounts are made inside of the namespaces. Process 1 in there reads a pipe and ends when this program does, however
that happens; all its processes end with it, and the mounts vanish with the last of them. So no mount is ever left, and
removing the folder can't reach what was bound into it. A folder that a killed run has left is removed by the next one.
"""
import fcntl
import glob
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

FOLDER = 'matrixshard-root-'
# What apt was told about reaching its mirrors. Programs that find proxies are this system's, and are not there.
APT_SETTINGS = re.compile(r'^Acquire::(?:https?::(?!Proxy-Auto-Detect)|Retries|ForceIPv|Check-Valid-Until|Check-Date)')
PROXY_VARIABLES = ('http_proxy', 'https_proxy', 'no_proxy')
PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
NAMESPACES = ['--mount', '--pid', '--ipc', '--uts']

# Process 1, before and after it has left this system's files. Its number, as this system sees it, is read while /proc
# is still this system's. $1: the folder; $2: one to be bound to /var/cache/apt/archives, or nothing.
SETTLE = r'''
set -e
read -r number _ </proc/self/stat
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do
  : >"dev/$name"
  mount --bind "/dev/$name" "dev/$name"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for stream in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${stream%:*}" "dev/${stream#*:}"; done
[ -z "$2" ] || mount --bind "$2" var/cache/apt/archives
hostname clean-root
mkdir .before
pivot_root . .before
cd /
umount -l /.before
rmdir /.before
exec /bin/bash -c 'echo "ready $1"; read -r _' ready "$number"
'''


class Refusal(SystemExit):
    """Ends the program with a sentence."""

    def __init__(self, sentence):
        super().__init__(f'no clean root: {sentence}')


def begin():
    """First of all. Signals that would end this process on the spot raise instead, so that folders are removed."""
    if os.geteuid() != 0:
        raise Refusal('it takes root: debootstrap, mounts, namespaces')

    def end(number, _):
        sys.exit(128 + number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


class CleanRoot:
    """`with CleanRoot() as root: root.debootstrap(log); root.start(); root.run('...', log)`, after begin().

    keep: the folder stays, and the end says where. cache: a folder of downloaded Debian packages.
    """

    def __init__(self, cache=None, keep=False):
        self.cache = os.path.abspath(cache) if cache else None
        self.keep = keep
        self.folder = self.lock = self.holder = None
        self.number = ''        # of its process 1, seen from here
        self.proxies = {name: os.environ[name] for name in PROXY_VARIABLES if name in os.environ}

    @property
    def path(self):
        return os.path.join(self.folder, 'root')

    def __enter__(self):
        remove_left_folders()
        self.folder = tempfile.mkdtemp(prefix=FOLDER)
        self.lock = open(os.path.join(self.folder, 'lock'), 'w', encoding='ascii')
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        os.mkdir(self.path)
        os.chmod(self.path, 0o755)
        if self.cache:
            os.makedirs(self.cache, exist_ok=True)
        return self

    def __exit__(self, *_):
        if self.holder:
            self.holder.stdin.close()
            self.holder.wait()
        if self.keep:
            os.remove(self.lock.name)
            print(f'the root is kept; chroot {self.path} enters it, rm -rf {self.folder} removes it')
        else:
            remove(self.folder)
        self.lock.close()

    def debootstrap(self, log):
        """Fills the folder. log: a file for what is printed meanwhile."""
        release, sources = apt_sources()
        command = ['unshare', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc', 'debootstrap',
                   '--variant=minbase']
        if any(site.startswith('https:') for site, _, _ in sources):
            command.append('--include=ca-certificates')
        if self.cache:
            command.append(f'--cache-dir={self.cache}')
        mirror = next(site for site, suite, _ in sources if suite == release)
        environment = {'PATH': PATH, **apt_proxies(), **self.proxies}
        subprocess.run(command + [release, self.path, mirror], env=environment, stdin=subprocess.DEVNULL, stdout=log,
                       stderr=log, check=True)
        self.write_settings(sources)

    def write_settings(self, sources):
        lines = [f'deb {site} {suite} {" ".join(components)}' for site, suite, components in sources]
        self.write('etc/apt/sources.list', lines)
        self.write('etc/apt/apt.conf.d/90of-the-host', apt_settings())
        self.write('etc/hosts', ['127.0.0.1 localhost', '127.0.0.1 clean-root'])
        self.write('etc/hostname', ['clean-root'])
        shutil.copy('/etc/resolv.conf', os.path.join(self.path, 'etc', 'resolv.conf'))

    def write(self, path, lines):
        with open(os.path.join(self.path, path), 'w', encoding='utf-8') as file:
            file.writelines(f'{line}\n' for line in lines)

    def start(self):
        """Process 1. Before it nothing runs in there."""
        command = ['unshare', *NAMESPACES, '--fork', '--kill-child', '--propagation', 'private', 'bash', '-c', SETTLE,
                   'settle', self.path, self.cache or '']
        self.holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       env={'PATH': PATH})
        answer = self.holder.stdout.readline().split()
        if answer[:1] != ['ready']:
            raise Refusal('namespaces, mounts or pivot_root are not allowed here, see above')
        self.number = answer[1]

    def run(self, command, log, seconds=None, **environment):
        """A line for bash, as root, with a login's bare variables: no language, no terminal. Returns its status."""
        words = ['nsenter', '--target', self.number, *NAMESPACES, 'env', '--chdir=/root', '-i', f'PATH={PATH}',
                 'HOME=/root', *(f'{name}={value}' for name, value in {**self.proxies, **environment}.items()),
                 'bash', '-c', command]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process:
            try:
                return process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                return 124
            finally:
                process.kill()  # what it has started in there goes on until process 1 ends


def apt_sources():
    """(codename, [(site, suite, components)]) of Debian's own packages, by this system's apt."""
    with open('/etc/os-release', encoding='utf-8') as file:
        found = dict(line.rstrip().split('=', 1) for line in file if '=' in line)
    release = found.get('VERSION_CODENAME', '').strip('"')
    listed = subprocess.run(['apt-get', 'indextargets', '--format', '$(ORIGIN)|$(SITE)|$(RELEASE)|$(COMPONENT)',
                             'Created-By: Packages'], capture_output=True, text=True, check=True).stdout
    sources = {}
    for origin, site, suite, component in (line.split('|') for line in listed.splitlines()):
        if origin == 'Debian' and re.fullmatch(rf'{release}(?:-updates|-security)?', suite):
            sources.setdefault((site, suite), set()).add(component)
    if not any(suite == release for _, suite in sources):
        raise Refusal(f"this system's apt knows no mirror of Debian {release or '(no VERSION_CODENAME is set)'}; "
                      'after apt-get update it should')
    return release, [(site, suite, sorted(components)) for (site, suite), components in sorted(sources.items())]


def apt_settings():
    dumped = subprocess.run(['apt-config', 'dump', '--no-empty'], capture_output=True, text=True, check=True).stdout
    return [line for line in dumped.split('\n') if APT_SETTINGS.match(line)]


def apt_proxies():
    """debootstrap uses wget, which knows variables only."""
    proxies = {}
    for name in ('http', 'https'):
        line = subprocess.run(['apt-config', 'shell', 'proxy', f'Acquire::{name}::Proxy'], capture_output=True,
                              text=True, check=True).stdout
        proxies.update({f'{name}_proxy': value for word in shlex.split(line)
                        if (value := word.partition('=')[2]) not in ('', 'DIRECT')})
    return proxies


def remove(folder):
    subprocess.run(['rm', '-rf', '--one-file-system', folder], check=True)


def remove_left_folders():
    """Those of runs that were killed: nobody holds the lock."""
    for path in glob.glob(os.path.join(tempfile.gettempdir(), FOLDER + '*', 'lock')):
        with open(path, 'w', encoding='ascii') as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            remove(os.path.dirname(path))


def add_options(parser):
    parser.add_argument('--keep', action='store_true', help='the root stays; the last line says where')
    parser.add_argument('--cache', metavar='FOLDER',
                        help='Debian packages that are downloaded are kept there, and taken from there')
