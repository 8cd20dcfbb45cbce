# SPDX-License-Identifier: Apache-2.0
"""Kernels on tensors of torch, in place: Muon and AdamW against torch's formulas, parameters, bf16, what is refused."""
import unittest

import torch

import matrixshard as mxs


class Torch(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)

    def test_adamw_is_torchs(self):
        ours = torch.nn.Parameter(torch.randn(12, 20))
        theirs = torch.nn.Parameter(ours.detach().clone())
        optimizer = torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.1)
        stepper = mxs.AdamW(12, 20)
        stepper.init()
        for _ in range(10):
            theirs.grad = torch.randn(12, 20)
            optimizer.step()
            stepper.step(dict(lr=0.01, weight_decay=0.1), theirs.grad, ours)
        torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=2e-6)
        exp_avg = torch.frombuffer(stepper.parts()['exp_avg'], dtype=torch.float32).reshape(12, 20)
        torch.testing.assert_close(exp_avg, optimizer.state[theirs]['exp_avg'], rtol=1e-5, atol=1e-6)

    def test_muon_is_torchs(self):
        """muon is torch.optim.Muon where torch has it, else its formula"""
        ours = torch.randn(48, 64)
        theirs = torch.nn.Parameter(ours.clone())
        stepper = mxs.Muon(48, 64, preset='torch-muon', backend='reference')
        stepper.init()
        momentum = torch.zeros(48, 64, dtype=torch.float64)
        exact = ours.double()
        optimizer = torch.optim.Muon([theirs], lr=0.25) if hasattr(torch.optim, 'Muon') else None
        values = mxs.preset_values('torch-muon')._replace(lr=0.25)
        start = exact.clone()
        for _ in range(5):
            gradient = torch.randn(48, 64)
            stepper.step(values, gradient, ours)
            momentum.lerp_(gradient.double(), 1 - 0.95)
            x = gradient.double().lerp(momentum, 0.95)
            x = x / max(x.norm(), 1e-7)
            for _ in range(5):
                gram = x @ x.T
                x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
            exact = exact * (1 - 0.25 * 0.1) - 0.25 * x
            if optimizer:
                theirs.grad = gradient
                optimizer.step()
        self.assertLess((ours - exact).norm() / (exact - start).norm(), 1e-5)
        if optimizer:  # its products are bf16
            self.assertLess((theirs.detach() - ours).norm() / (exact - start).norm(), 0.05)

    def test_bf16_tensors_have_masters(self):
        weights, master = torch.zeros(8, 16, dtype=torch.bfloat16), torch.randn(8, 16)
        stepper = mxs.Muon(8, 16, dtype=torch.bfloat16, gradient_dtype=torch.bfloat16)
        stepper.init()
        stepper.step(dict(lr=0.1), torch.randn(8, 16).bfloat16(), weights, master)
        self.assertTrue(torch.equal(weights, master.bfloat16()))
        remainder = torch.zeros(8, 16, dtype=torch.int16)  # torch 1.13 has no uint16
        stepper = mxs.Muon(8, 16, dtype='bf16', weights='remainder')
        stepper.init()
        stepper.step(dict(lr=0.1), torch.randn(8, 16), weights, remainder)
        self.assertGreater(remainder.count_nonzero(), 64)

    def test_results_are_tensors(self):
        source = torch.randn(3, 8, 16, requires_grad=True)
        got = mxs.Orthogonalizer(8, 16)(source)
        self.assertIsInstance(got, torch.Tensor)
        self.assertFalse(got.requires_grad)
        self.assertEqual(got.shape, (3, 8, 16))
        update, _ = begun(mxs.Muon(8, 16)).update(dict(lr=1), torch.randn(8, 16))
        self.assertIsInstance(update, torch.Tensor)
        self.assertEqual(update.shape, (8, 16))

    def test_slices_and_columns_keep_their_strides(self):
        fused = torch.randn(8, 48)
        orthogonalizer = mxs.Orthogonalizer(8, 16)
        wanted = orthogonalizer(fused[:, 16:32].contiguous())
        torch.testing.assert_close(orthogonalizer(fused[:, 16:32]), wanted, rtol=0, atol=0)

    def test_what_is_no_fp32_on_the_cpu_is_refused(self):
        orthogonalizer = mxs.Orthogonalizer(4, 4)
        for source, kind, text in (
                (torch.zeros(4, 4).double(), TypeError, 'source is of f64'),
                (torch.zeros(4, 4).bfloat16(), TypeError, 'source is of bf16'),
                (torch.zeros(4, 4).long(), TypeError, 'source is of DLPack code 0 of 64 bits'),
                (torch.zeros(4, 8).T[:4], ValueError, 'not contiguous in its rows'),
                (torch.zeros(4, 4, device='meta'), TypeError, 'source is a Tensor on meta'),
                (torch.zeros(4, 4).to_sparse(), TypeError, 'source')):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                orthogonalizer(source)

    def test_memory_lives_as_long_as_the_call(self):
        stepper = begun(mxs.AdamW(64, 64))
        for _ in range(50):
            stepper.step(dict(lr=0.1), torch.randn(64, 64), torch.randn(64, 64))
        self.assertEqual(stepper.step({}, torch.randn(64, 64), torch.randn(64, 64)).step_number, 51)


def begun(stepper):
    stepper.init()
    return stepper


if __name__ == '__main__':
    unittest.main()
