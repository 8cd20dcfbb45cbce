# SPDX-License-Identifier: Apache-2.0
"""What stands between the markers of docs/performance.md and of README.md: for each part its sentences, pictures and
tables."""
import html
import textwrap

import figures
import tables
from evaluation import WHAT, all_worlds, by_cluster, by_world
from findings import CONTENDERS, gains_by_nodes, gains_by_tokens, losses_in_short, spread_of_rounds, worlds_of
from tables import folded, long_table


COLUMNS = 120


def picture(name, alternative, pictures):
    return f'![{alternative}](performance/{name})\n' if pictures[name] else ''


def joined(*pieces):
    """Pieces that are not empty, a blank line between them."""
    return '\n\n'.join(wrapped(piece.strip('\n')) for piece in pieces if piece)


def wrapped(piece):
    """Sentences in lines of a page's width; tables, pictures and lists as they are."""
    if '\n' in piece or piece.startswith(('|', '!', '<', '-')):
        return piece
    return '\n'.join(textwrap.wrap(piece, COLUMNS, break_long_words=False, break_on_hyphens=False))


def short(evaluation, _):
    measured = evaluation['measured']
    if not measured:
        return NOTHING
    return joined(tables.short_table(measured), losses_in_short(measured))


def machine(evaluation, _):
    missing = evaluation.get('missing', [])
    return joined(tables.facts_table(evaluation), spread_of_rounds(evaluation['measured']),
                  'What did not run is missing below:' if missing else '',
                  '\n'.join(f'- {tables.cell(sentence)}' for sentence in missing))


def nodes(evaluation, pictures):
    measured = evaluation['measured']
    worlds = by_world(measured, 'nodes')
    always = ('nodes', 'ranks_per_node')
    if not worlds:
        return NOTHING
    return joined(*(gains_by_nodes(measured, placement, 'optimizer_ms') for placement in CONTENDERS),
                  picture('speedup.svg', 'Optimizer step beside owner over nodes, measured', pictures),
                  picture('optimizer.svg', 'Optimizer step of each placement over nodes, measured', pictures),
                  'Optimizer step, measured:', tables.times_table(worlds, 'optimizer_ms', always),
                  *(gains_by_nodes(measured, placement, 'step_ms') for placement in CONTENDERS),
                  'Whole step, measured:', tables.times_table(worlds, 'step_ms', always))


def wire(evaluation, pictures):
    worlds = by_world(evaluation['measured'], 'nodes')
    if not worlds:
        return NOTHING
    head, rows, texts = tables.bytes_table(tables.largest(worlds))
    all_head, all_rows, all_texts = tables.bytes_table(worlds)
    rest = folded('All worlds', tables.table(all_head, all_rows, all_texts))
    return joined(picture('bytes.svg', 'Bytes on the wire in a step of each placement, measured', pictures),
                  tables.table(head, rows, texts), rest)


def sequences(evaluation, pictures):
    worlds = by_world(evaluation['measured'], 'sequences')
    if not worlds:
        return NOTHING
    where = figures.listed(dict.fromkeys(
        f'{figures.plural(world.nodes, "node", "nodes")} of {figures.plural(world.ranks_per_node, "rank", "ranks")}'
        for world in worlds))
    return joined(f'On {where}. {gains_by_tokens(evaluation["measured"])}',
                  picture('tokens.svg', 'Whole step beside owner over tokens of a step, measured', pictures),
                  tables.tokens_table(worlds))


def processors(evaluation, _):
    worlds = by_world(evaluation['measured'], 'nodes')
    return tables.processors_table(worlds, evaluation['machine']['cores']) if worlds else NOTHING


def where_owner_loses(points, found, word, faster, title, columns):
    """found: head and rows of the table, which is folded up."""
    head, rows = found
    if not points:
        return NOTHING
    if not rows:
        return f'At no point that was {word} is another placement faster, in the optimizer step or the whole one.'
    return joined(f'Another placement is {faster.format(figures.plural(len(rows), "time", "times"))}:',
                  long_table(title, head, rows, columns))


def losses(evaluation, _):
    points = evaluation['measured']
    return where_owner_loses(points, tables.measured_losses(points), 'measured', 'faster {} in what was measured',
                             'Measured points at which owner loses', 2)


def predicted_here(evaluation, _):
    if not evaluation['predicted_here']:
        return NOTHING
    worlds, measured = all_worlds(evaluation['predicted_here']), evaluation['measured']
    always = ('nodes', 'ranks_per_node')
    return joined('Optimizer step, predicted:', tables.times_table(worlds, 'optimizer_ms', always),
                  'Whole step, predicted:', tables.times_table(worlds, 'step_ms', always),
                  'Peak of the worst rank, predicted:', tables.peaks_table(measured),
                  'How far that is off, 1 where it is right. Optimizer step:',
                  tables.quotients_table(evaluation, 'optimizer_ms'),
                  'Whole step:', tables.quotients_table(evaluation, 'step_ms'),
                  'Peak of the worst rank:', tables.peak_quotients_table(measured))


def predicted(evaluation, pictures):
    points = evaluation['predicted']
    if not points:
        return NOTHING
    gains = []
    for placement in CONTENDERS:
        for what, word in WHAT.items():
            gains += [f'Predicted {word}, {placement} as a multiple of owner:',
                      tables.gains_table(points, placement, what)]
    worlds = figures.listed(map(tables.code, worlds_of(points)))
    how = evaluation.get('calibration', {}).get('how')
    return joined(f'Clusters, in the words of `mxs plan --world`: {worlds}.',
                  how and tables.cell(how), how and 'The factors, which are quotients:',
                  tables.factors_table(evaluation),
                  tables.uncalibrated_table(points),
                  picture('predicted-optimizer.svg', 'Optimizer step over GPUs, predicted', pictures),
                  picture('predicted-step.svg', 'Whole step over GPUs, predicted', pictures), *gains, models(points))


def models(points):
    """Each model folded up: its times and memory."""
    pieces = []
    for model in dict.fromkeys(point['model'] for point in points):
        groups = by_cluster([point for point in points if point['model'] == model])
        name = html.escape(' '.join(model.split()))  # in HTML a backslash would stay
        pieces.append(folded(f'{name}: predicted times, memory and advice',
                             joined('Times, predicted:', tables.clusters_table(groups),
                                    'Memory of the worst rank, predicted, at rest and at its peak:',
                                    tables.memory_table(groups), tables.advice_table(groups)) + '\n'))
    return joined(*pieces)


def predicted_losses(evaluation, _):
    points = evaluation['predicted']
    return where_owner_loses(points, tables.predicted_losses(points), 'predicted', 'predicted to be faster {}',
                             'Predicted points at which owner loses', 3)


def readme(evaluation):
    measured = evaluation['measured']
    more = ('[docs/performance.md](docs/performance.md) has all placements, bytes, memory, longer sequences, '
            'predictions for clusters, and the command that measures it again.')
    if not by_world(measured, 'nodes'):
        return more
    rate = figures.rate(evaluation['settings']['rate_bits'])
    return joined(f'One small GPT on virtual nodes of one machine, with links of {rate}. `slices` keep rows of each '
                  'matrix on every rank and gather it everywhere in the step, as FSDP2 does; `alltoall` brings it to '
                  "one rank and its update back. Their times as multiples of owner's, above 1 owner is faster:",
                  tables.short_table(measured), losses_in_short(measured), more)


NOTHING = 'The run that is shown here has no such points.'
PARTS = {'short': short, 'machine': machine, 'nodes': nodes, 'bytes': wire, 'sequences': sequences, 'losses': losses,
         'processors': processors, 'predicted-here': predicted_here, 'predicted': predicted,
         'predicted-losses': predicted_losses}


def texts(evaluation, pictures):
    """Name of a part -> its Markdown."""
    return {name: part(evaluation, pictures) for name, part in PARTS.items()}
