# SPDX-License-Identifier: Apache-2.0
"""perf/evaluate/predicted.py on evaluations that nobody has measured. MXS_BUILD: the build folder."""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ['MXS_BUILD']
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / 'perf' / 'evaluate')]

import evaluation as reader  # noqa: E402
import predicted  # noqa: E402
from evaluations import PLACEMENTS, evaluation, point  # noqa: E402

# Equal ones change no choice.
FACTORS = {name: 1.5 for level in ('', 'two-level-') for name in
           map(level.__add__, ('chain', 'flat', 'spread', 'circulant')) if name != 'two-level-spread'}
TUNED = {str(nodes): {'matrixshard_speeds': 1, 'local': {'latency_ns': 500, 'overhead_ns': 300,
                                                         'bytes_per_second': 4000000000},
                      'network': {'latency_ns': 90000, 'overhead_ns': 15000, 'bytes_per_second': 23000000},
                      'add_bytes_per_second': 3000000000, 'factors': FACTORS}
         for nodes in (2, 4, 8)}


def filled(data, **options):
    """(evaluation, what was told) of predict with one small model."""
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        found = predicted.predict(BUILD, data, **{'models': ('gpt2-xl',), 'gpus': (8, 64), **options})
    return found, told.getvalue()


def tuned_evaluation():
    data = evaluation(predicted=[])
    data['settings']['tuned'] = TUNED
    data['predicted_here'] = []
    return data


class Predictions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.data, cls.told = filled(tuned_evaluation())

    def test_what_is_filled_is_an_evaluation(self):
        reader.check(json.loads(json.dumps(self.data)))
        self.assertIn('predicted 4 of 4', self.told)

    def test_every_measured_point_is_predicted_once(self):
        key = lambda each: tuple(each[name] for name in (*predicted.PLACE, 'placement'))
        self.assertEqual(list(map(key, self.data['predicted_here'])), list(map(key, self.data['measured'])))

    def test_rates_of_a_core_come_from_the_run_of_one_rank(self):
        alone = point(nodes=1)
        core = self.data['calibration']['core']
        flops = 6 * self.data['model']['parameters'] * 128
        self.assertAlmostEqual(core['train_flops_per_second'],
                               flops / 1e-3 / (alone['cpu_ms'] - alone['optimizer_cpu_ms']), delta=1e3)
        here = next(each for each in self.data['predicted_here'] if each['nodes'] == each['ranks_per_node'] == 1
                    and each['placement'] == 'owner')
        self.assertAlmostEqual(here['optimizer_ms'], alone['optimizer_cpu_ms'], delta=1e-3)
        self.assertAlmostEqual(here['step_ms'] / alone['cpu_ms'], 1, places=2)

    def test_ranks_share_cores(self):
        """Two cores: each of 16 ranks has an eighth of one, and steps everything."""
        ddp = {each['nodes'] * each['ranks_per_node']: each for each in self.data['predicted_here']
               if each['sweep'] == 'nodes' and each['placement'] == 'ddp'}
        self.assertAlmostEqual(ddp[2]['optimizer_ms'] / ddp[1]['optimizer_ms'], 1, places=2)
        self.assertAlmostEqual(ddp[16]['optimizer_ms'] / ddp[2]['optimizer_ms'], 8, places=1)

    def test_calibration_tells_means_and_worst(self):
        calibration = self.data['calibration']
        several = calibration['measured_over_predicted']['slices']['several_nodes']['optimizer']
        quotients = [measured['optimizer_ms']['median'] / here['optimizer_ms']
                     for measured, here in zip(self.data['measured'], self.data['predicted_here'])
                     if measured['placement'] == 'slices' and measured['nodes'] > 1]
        self.assertEqual(several['points'], len(quotients))
        self.assertIn(round(several['worst'], 9), [round(each, 9) for each in quotients])
        self.assertTrue(min(quotients) <= several['geometric_mean'] <= max(quotients), several)
        self.assertAlmostEqual(calibration['factors']['two-level-chain'], 1.5)
        self.assertAlmostEqual(calibration['factors']['direct'], calibration['exchange']['geometric_mean'])

    def test_factors_count_in_predictions_and_what_is_without_stands_beside(self):
        rows = {(each['gpus'], each['tokens'], each['placement']): each for each in self.data['predicted']}
        self.assertEqual(len(rows), 2 * 2 * len(PLACEMENTS))
        for row in rows.values():
            self.assertAlmostEqual(row['step_ms'], row['optimizer_ms'] + row['forward_backward_ms'], places=3)
        slices = rows[64, 4096, 'slices']
        self.assertAlmostEqual(slices['optimizer_ms'] - slices['optimizer_wire_ms'] / 3,
                               slices['uncalibrated']['optimizer_ms'], delta=0.1 * slices['optimizer_wire_ms'])
        self.assertGreater(slices['optimizer_wire_ms'], 5)
        self.assertEqual(rows[64, 4096, 'owner']['optimizer_ms'],
                         rows[64, 4096, 'owner']['uncalibrated']['optimizer_ms'])
        self.assertIn('owner', rows[8, 4096, 'owner']['advice'])

    def test_measured_figures_are_left_alone(self):
        self.assertEqual(self.data['measured'], evaluation()['measured'])

    def test_the_file_is_the_cluster_that_the_words_tell(self):
        """Without factors; in words sums take a third of the memory's rate, too."""
        with tempfile.TemporaryDirectory() as folder:
            planner = predicted.Planner(BUILD, folder)
            words = [*predicted.rate_words(4e14, 2.5e12, 4e14), '--tokens', '4096']
            model = predicted.MODELS / 'gpt2-xl.json'
            world = predicted.topology(8, 8, 8, predicted.cluster_speeds({}))
            by_file, advice = planner.compare(model, world, words)
            by_words = planner.compare_words(model, predicted.cluster_words(8), words)
            self.assertEqual((by_file, advice), by_words)

    def test_without_the_point_of_one_rank_clusters_are_predicted_uncalibrated(self):
        measured = [point(nodes=2, placement=placement) for placement in PLACEMENTS]
        data, told = filled(evaluation(measured=measured, predicted=[]), gpus=(8,))
        self.assertEqual(data['predicted_here'], [])
        self.assertIn('not calibrated', data['calibration']['how'])
        self.assertIn('one rank on one node', told + ''.join(data['missing']))
        for row in data['predicted']:
            self.assertEqual(row['step_ms'], row['uncalibrated']['step_ms'])

    def test_links_without_speeds_are_not_guessed(self):
        data = tuned_evaluation()
        data['settings']['tuned'] = {nodes: speeds for nodes, speeds in TUNED.items() if nodes != '8'}
        data, told = filled(data, gpus=(8,))
        self.assertEqual(data['predicted_here'], [])
        self.assertIn('between 8 nodes', told)
        self.assertIn('between 8 nodes', ''.join(data['missing']))

    def test_one_node_takes_local_speeds_from_the_most_nodes(self):
        data = tuned_evaluation()
        data['settings']['tuned'] = {'2': TUNED['2'], '16': {**TUNED['2'], 'add_bytes_per_second': 7}}
        self.assertEqual(predicted.speeds_here(data, 1)['add_bytes_per_second'], 7)

    def test_an_exchange_that_takes_longer_than_any_is_held_and_that_is_told(self):
        data = tuned_evaluation()
        for each in data['measured']:
            if each['placement'] == 'alltoall':
                each['optimizer_ms'] = {name: 1000 * value for name, value in each['optimizer_ms'].items()}
        calibration = filled(data, gpus=(8,))[0]['calibration']
        self.assertGreater(calibration['exchange']['geometric_mean'], 10)
        self.assertEqual(calibration['factors']['direct'], 10)
        self.assertIn('between 0.1 and 10', calibration['how'])

    def test_a_model_that_cannot_be_planned_is_told(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(predicted.Unplannable, 'no/such/model'):
            predicted.Planner(BUILD, folder).compare('no/such/model.json', predicted.topology(1, 2, 1, {}), [])


if __name__ == '__main__':
    unittest.main()
