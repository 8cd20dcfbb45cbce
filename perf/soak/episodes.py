# SPDX-License-Identifier: Apache-2.0
"""Episodes of the soak: which world, for how long, with which fault; and what must have come of it."""
import random
import re

KILL_SECONDS = 5.0    # within which every survivor knows of a death
LATE_SECONDS = 1.5    # what a deadline may be late by on a busy machine
ANSWER_SECONDS = 2.0  # for which ranks that come together wait beyond it for rank 0 to say who is missing
FAILED = ('PEER_FAILED', 'TIMED_OUT', 'TRANSPORT_FAILED')
NAMED_OR_LOCAL = r'ranks? \d|No such device'  # a node without a cable may find so itself, when it makes a comm
RATES = ('20mbit', '100mbit', '1gbit')


class Episode:
    """One world. Everything about it follows from the seed and the number."""

    def __init__(self):
        self.number = 0
        self.seed = 0
        self.transport = 'shm'
        self.ranks = 4
        self.seconds = 4.0
        self.timeout = 30.0
        self.fault = 'none'
        self.victim = -1
        self.worker = []      # words of mxs-soak
        self.cluster = None   # words of perf/cluster
        self.title = ''
        self.cell = None      # of the matrix: (phase, role)

    def words(self, program, folder):
        transport = ['--transport', self.transport] if self.transport in ('shm', 'ucx') and not self.cluster else []
        threads = ['--threads', str(self.ranks)] if self.transport == 'loopback' else []
        return [program, '--seed', str(self.seed), '--seconds', str(self.seconds), '--timeout', str(self.timeout),
                '--folder', folder, *transport, *threads, *self.worker]

    @property
    def process_count(self):
        return 0 if self.transport == 'loopback' else self.ranks

    @property
    def most_seconds(self):
        return self.seconds + 3 * self.timeout


def share_out(chance, ranks, nodes):
    """How many ranks each node has; every node has some."""
    counts = [1] * nodes
    for _ in range(ranks - nodes):
        counts[chance.randrange(nodes)] += 1
    return ','.join(str(count) for count in counts)


def draw(seed, number, ranks, transports, faults):
    chance = random.Random(f'{seed}:{number}')
    episode = Episode()
    episode.number = number
    episode.seed = chance.getrandbits(48)
    episode.transport = chance.choice(transports)
    episode.ranks = chance.choice(ranks)
    if episode.transport == 'cluster':
        episode.ranks = max(2, episode.ranks)
    episode.seconds = chance.choice([3, 4, 6, 8])
    known = {'loopback': ['none', 'abort'],
             'cluster': ['none', 'kill', 'pause', 'stop', 'abort', 'blip', 'cut']}.get(
                 episode.transport, ['none', 'kill', 'pause', 'stop', 'abort'])
    if episode.ranks == 1:
        known = ['none', 'abort']
    possible = [fault for fault in known if fault in faults] or ['none']
    episode.fault = chance.choice(possible + ['none'])
    episode.victim = chance.randrange(episode.ranks)
    case, delay = chance.randrange(60), chance.choice([0, 50, 500, 5000, 50000])
    kind = {'kill': 'kill', 'pause': 'pause', 'stop': 'pause', 'abort': 'abort'}.get(episode.fault)
    if episode.fault in ('stop', 'cut'):
        episode.timeout = chance.choice([3.0, 4.0, 5.0])
    lasts = {'pause': chance.randrange(100, 3000), 'stop': int(episode.timeout * 1000) + 1500}.get(episode.fault, 0)
    size = chance.choice([1 << 16, 1 << 20, 1 << 20, 8 << 20])
    if episode.transport == 'cluster':
        nodes = chance.randint(2, min(4, episode.ranks))
        rate = chance.choice(RATES)
        size = {'20mbit': 1 << 15, '100mbit': 1 << 17, '1gbit': 1 << 20}[rate]
        episode.cluster = ['-m', share_out(chance, episode.ranks, nodes), '--rate', rate, '--least', '0', '--prefix',
                           '--grace', '60', '--timeout', '200', '--after', '"event": "begun"']
        if chance.random() < 0.3:
            episode.cluster += ['--slow', f'{chance.randrange(nodes)}:10mbit']
            size = 1 << 15
        node, at = chance.randrange(nodes), chance.random() * 2
        if episode.fault in ('blip', 'cut'):
            episode.cluster += ['--unplug', f'{node}@{at:.2f}']
        if episode.fault == 'blip':
            episode.cluster += ['--plug', f'{node}@{at + 3:.2f}']
            episode.seconds += 8
        if episode.fault == 'cut':
            episode.seconds += 4
    episode.worker = ['--bytes', str(size)]
    if kind:
        episode.worker += ['--fault', f'{kind}:{episode.victim}:{case}:{delay}:{lasts}']
        episode.seconds += lasts / 1000
    if episode.fault == 'cut':
        episode.worker += ['--failure-expected']
    where = f' of nodes {episode.cluster[1]} at {episode.cluster[3]}' if episode.cluster else ''
    episode.title = f'{episode.ranks} ranks, {episode.transport}{where}, {episode.seconds:g} s, {episode.fault}'
    return episode


# ---- the matrix ----

PHASES = ('bootstrap', 'gather', 'reduce', 'step', 'checkpoint')
ROLES = ('owner', 'relay', 'leaf', 'rank0')


def matrix_run(seed, number, transports, faults, phases):
    """Runs go through all cells in an order drawn from the seed, then again in another."""
    every = [(transport, fault, phase, role) for transport in transports for fault in ('kill', 'stop')
             for phase in phases for role in ROLES if fault in faults]
    turn, place = divmod(number, len(every))
    random.Random(f'{seed}:order:{turn}').shuffle(every)
    chance = random.Random(f'{seed}:run:{number}')
    episode = Episode()
    episode.number = number
    episode.seed = chance.getrandbits(48)
    episode.transport, episode.fault, phase, role = every[place]
    episode.cell = (phase, role)
    episode.ranks = chance.choice([4, 5])
    episode.timeout = chance.choice([3.0, 4.0]) if episode.fault == 'stop' else 4.0 if phase == 'bootstrap' else 30.0
    episode.seconds = 10
    if episode.transport == 'cluster':
        nodes = chance.randint(2, episode.ranks)
        episode.cluster = ['-m', share_out(chance, episode.ranks, nodes), '--rate', '1gbit', '--least', '0',
                           '--grace', '60', '--timeout', '120']
    delay = chance.choice([0, 20, 200, 2000, 20000, 40000])
    kind, lasts = ('kill', 0) if episode.fault == 'kill' else ('pause', int(episode.timeout * 1000) + 3500)
    episode.worker = ['--matrix', '--fault', f'{kind}:{role}:{phase}:{delay}:{lasts}']
    where = f' of nodes {episode.cluster[1]}' if episode.cluster else ''
    episode.title = f'{episode.fault} of {role} in {phase}, {episode.ranks} ranks, {episode.transport}{where}'
    return episode


# ---- judgement ----

def judge(episode, world):
    """Sentences about what is wrong, and the worst time in seconds until a survivor knew (None: nobody had to)."""
    wrong = list(world.complaints)
    for event in world.of('wrong') + world.of('leak'):
        wrong.append(f'rank {event["rank"]}: {event["event"]}: {event.get("doing", "")}: {event["sentence"]}')
    if any(status != 0 for status in world.statuses):
        wrong.append(f'exit statuses {world.statuses}')
    heard, worst = world.of('heard'), None
    happened = world.of('fault') or episode.fault == 'cut'
    if episode.fault in ('none', 'pause', 'blip') or not happened:
        wrong += [f'rank {each["rank"]} failed without a cause: {each["status"]}: {each["sentence"]}' for each in heard]
    elif episode.fault in ('kill', 'stop'):
        complaints, worst = judge_death(episode, world, heard)
        wrong += complaints + judge_shrink(episode, world, heard)
    elif episode.fault == 'cut':
        wrong += judge_cut(episode, heard)
    elif not heard:  # of a group's abort nobody need, if all was done
        if world.of('fault')[0]['in'] == 'world':
            wrong.append('nobody heard of the abort')
    else:
        worst = max(each['at'] for each in heard) / 1e9 - world.of('fault')[0]['at'] / 1e9
        wrong += [f'rank {each["rank"]} of an aborted comm: {each["status"]}: {each["sentence"]}' for each in heard
                  if each['status'] not in ('ABORTED', 'PEER_FAILED')]
        wrong += judge_shrink(episode, world, heard)
    return wrong, worst


def judge_death(episode, world, heard):
    fault = world.of('fault')[0]
    wrong, worst = [], 0.0
    in_world = any(each['in'] in ('world', 'creation') for each in heard)
    in_group = any(each['in'] in ('group', 'save') for each in heard)
    # Alone in its group, or when the group had done its work: the world waits longer than it was stopped.
    if episode.fault == 'stop' and not heard and any(each['in'] == 'group' for each in world.of('ordered')):
        return wrong, worst
    limit = KILL_SECONDS if episode.fault == 'kill' else episode.timeout + LATE_SECONDS
    if episode.fault == 'stop' and episode.cell and episode.cell[0] == 'bootstrap':
        limit += ANSWER_SECONDS
    # In the soak a rank may have work of its own group to do before it waits for the stopped one.
    if episode.fault == 'stop' and not episode.cell:
        limit += KILL_SECONDS
    for rank in range(episode.ranks):
        if rank == fault['rank']:
            continue
        mine = [each for each in heard if each['rank'] == rank]
        if not mine and episode.fault == 'stop' and not in_world:
            continue  # its group was another, and the stopped one woke before the world had to wait for it
        if not mine:
            wrong.append(f'rank {rank} never heard that rank {fault["rank"]} was gone')
            continue
        seconds = (max(each['at'] for each in mine) - fault['at']) / 1e9
        worst = max(worst, seconds)
        if seconds > limit:
            wrong.append(f'rank {rank} heard of it after {seconds:.1f} s, not {limit:.1f}')
        for each in mine:
            if each['status'] not in FAILED:
                wrong.append(f'rank {rank} got {each["status"]}: {each["sentence"]}')
            elif each['in'] == 'world' and in_group and episode.fault == 'stop':
                continue  # the world waits for those who wait in their group for the stopped one
            elif not each['named']:
                wrong.append(f'rank {rank} was told of another rank than {fault["rank"]}, while {each["doing"]}: '
                             f'{each["status"]}: {each["sentence"]}')
    if episode.fault == 'stop' and not [each for each in heard if each['rank'] == fault['rank']]:
        wrong.append(f'rank {fault["rank"]} itself, once woken, never heard that it was late')
    return wrong, worst


def judge_shrink(episode, world, heard):
    """Those who live go on together, in one world."""
    fault = world.of('fault')[0]
    shrunk, alone = world.of('shrunk'), world.of('alone')
    members = {tuple(each['members']) for each in shrunk}
    wrong = []
    if len(members) > 1:
        wrong.append(f'ranks have shrunk to different worlds: {sorted(members)}')
    for each in shrunk:
        if each['rank'] not in each['members']:
            wrong.append(f'rank {each["rank"]} is in a world without it: {each["members"]}')
    living = {rank for rank in range(episode.ranks) if rank != fault['rank'] or episode.fault == 'abort'}
    met = {each['rank'] for each in heard if each['in'] == 'world'}
    if not living <= met or any(each['in'] == 'creation' for each in heard):
        return wrong  # a group's abort, or one that came while a world was created: not all have one to shrink
    # A stopped rank may be woken in time to come along. Alone: without it there are too few.
    enough = len(living) * 2 > episode.ranks or (len(living) * 2 == episode.ranks and 0 in living)
    if episode.fault != 'stop' or enough:
        wrong += [f'rank {each["rank"]} could not go on: {each["status"]}: {each["sentence"]}' for each in alone
                  if each['rank'] in living]
        wrong += [f'rank {rank} did not go on' for rank in sorted(living - {each['rank'] for each in shrunk + alone})]
        wrong += [f'rank {rank} was left out of {sorted(found)}'
                  for found in members for rank in sorted(living - set(found))]
    if episode.fault == 'kill':
        wrong += [f'dead rank {fault["rank"]} is in the world {found}' for found in members if fault['rank'] in found]
    return wrong


def judge_cut(episode, heard):
    wrong = []
    for rank in range(episode.ranks):
        mine = [each for each in heard if each['rank'] == rank]
        if not mine:
            wrong.append(f'rank {rank} never heard that a cable was pulled')
        wrong += [f'rank {rank} got {each["status"]}: {each["sentence"]}' for each in mine
                  if each['status'] not in FAILED or not re.search(NAMED_OR_LOCAL, each['sentence'])]
    return wrong
