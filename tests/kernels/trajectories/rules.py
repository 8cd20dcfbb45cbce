# SPDX-License-Identifier: Apache-2.0
"""The rules, each as its publication has it, on one matrix or a batch.

A rule is made for a case, an arithmetic and perhaps a mistake; step(weights, gradient, lr, decay) returns new weights.
The mistakes are names that appear once each, where they are made.
"""
import functools

import numpy as np

# (a, b, c) of X <- aX + (bA + cA^2)X, A = X X^T.
JORDAN = [(3.4445, -4.7750, 2.0315)] * 5
YOU = [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046),
       (2.8366, -3.0525, 1.2012)]
POLAR_CUSHION = [(8.156554524902461, -22.48329292557795, 15.878769915207462),
                 (4.042929935166739, -2.808917465908714, 0.5000178451051316),
                 (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
                 (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
                 (2.3465413258596377, -1.7097828382687081, 0.42323551169305323)]


def to_bf16(values):
    """fp32 rounded to nearest even bf16, as fp32."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    return bits.view(np.float32).reshape(values.shape)


class Arithmetic:
    def __init__(self, name, real, factors):
        self.name, self.real, self.factors = name, real, factors  # factors: what a factor of a product is rounded to


FP64 = Arithmetic('exact', np.float64, lambda x: x)
FP32 = Arithmetic('fp32', np.float32, lambda x: x)
BF16 = Arithmetic('bf16', np.float32, to_bf16)


def f32(number):
    """The fp32 number that an option of the library holds."""
    return float(np.float32(number))


def newton_schulz(source, table, norm_of, arithmetic):
    """norm_of(norm): what the source is divided by."""
    real, rounded = arithmetic.real, arithmetic.factors
    norm = norm_of(np.sqrt(np.sum(np.square(source.astype(np.float64)))))
    if norm == 0:
        return np.zeros_like(source)
    x = rounded((source.astype(np.float64) / norm).astype(real))
    if x.shape[0] > x.shape[1]:
        x = x.T
    for a, b, c in table:
        gram = rounded(x @ x.T)
        x = rounded(real(a) * x + rounded(real(b) * gram + real(c) * (gram @ gram)) @ x)
    return x.T if source.shape[0] > source.shape[1] else x


SCALES = {
    'none': lambda rows, columns: 1.0,
    'shape': lambda rows, columns: np.sqrt(max(1.0, rows / columns)),
    'max': lambda rows, columns: np.sqrt(max(rows, columns)),
    'ratio': lambda rows, columns: np.sqrt(rows / columns),
    'rms': lambda rows, columns: 0.2 * np.sqrt(max(rows, columns)),
}

# What `mxs_preset` is to mean: momentum, nesterov, table, safety, epsilon kind, epsilon, scale.
MUONS = {
    'default': ('ema', True, YOU, 1.0, 'max', 0.0, 'rms'),
    'torch-muon': ('ema', True, JORDAN, 1.0, 'max', 1e-7, 'shape'),
    'torch-muon-rms': ('ema', True, JORDAN, 1.0, 'max', 1e-7, 'rms'),
    'keller-jordan': ('ema', True, JORDAN, 1.0, 'add', 1e-7, 'shape'),
    'moonlight': ('sgd', True, JORDAN, 1.0, 'add', 1e-7, 'rms'),
    'nvidia': ('ema', False, YOU, 1.0, 'max', 1e-15, 'max'),
    'dion': ('sgd', False, POLAR_CUSHION, 1.02, 'add', 1e-8, 'ratio'),
    'normuon': ('ema', True, JORDAN, 1.0, 'add', 1e-7, 'shape'),
}


def decayed(weights, update, kind, lr, decay):
    """Weights after decay; L2 has gone into the gradient before."""
    one = type(lr)(1)
    if kind == 'decoupled':
        return weights * (one - lr * decay)
    if kind == 'independent':
        return weights * (one - decay)
    if kind == 'palm':
        return weights * (one - lr * lr * decay)
    if kind == 'cautious':
        return np.where(update * weights >= 0, weights * (one - lr * decay), weights)
    return weights


class Muon:
    def __init__(self, case, arithmetic, mistake):
        self.case, self.arithmetic, self.mistake = case, arithmetic, mistake
        kind, nesterov, self.table, self.safety, self.epsilon_kind, self.epsilon, scale = MUONS[case.preset]
        self.kind = case.option('momentum_kind', kind)
        self.nesterov = case.option('nesterov', nesterov)
        self.scale = SCALES[case.option('scale', scale)]
        self.decay_kind = case.option('decay', 'decoupled')
        self.normuon = case.option('normuon', case.preset == 'normuon')
        self.mu = arithmetic.real(f32(0.95))
        self.momentum = np.zeros((case.count * case.rows, case.columns), arithmetic.real)
        self.row_squares = np.zeros((case.count * case.rows, 1), arithmetic.real)
        if mistake == 'nesterov turned':
            self.nesterov = not self.nesterov
        if mistake == 'momentum of the other kind':
            self.kind = 'ema' if self.kind == 'sgd' else 'sgd'
        if mistake == 'epsilon of the other kind':
            self.epsilon_kind = 'add' if self.epsilon_kind == 'max' else 'max'
        if mistake == 'no safety':
            self.safety = 1.0
        if mistake == 'no normuon':
            self.normuon = False
        if mistake == 'decay decoupled':
            self.decay_kind = 'decoupled'

    def states(self):
        return {'momentum': self.momentum} | ({'second_momentum': self.row_squares} if self.normuon else {})

    def check(self):
        pass

    def norm_of(self, norm):
        if self.epsilon_kind == 'max':
            return max(norm * self.safety, self.epsilon)
        return norm * self.safety + self.epsilon

    def averaged(self, gradient):
        mu, one = self.mu, self.arithmetic.real(1)
        if self.kind == 'ema':
            self.momentum = mu * self.momentum + (one - mu) * gradient
            return mu * self.momentum + (one - mu) * gradient if self.nesterov else self.momentum
        self.momentum = mu * self.momentum + gradient
        return mu * self.momentum + gradient if self.nesterov else self.momentum

    def orthogonal(self, rows, source):
        real = self.arithmetic.real
        update = newton_schulz(source, self.table, self.norm_of, self.arithmetic)
        if self.normuon:
            beta2 = real(f32(0.95))
            old = np.linalg.norm(update)
            self.row_squares[rows] = beta2 * self.row_squares[rows] + (real(1) - beta2) * np.mean(
                update * update, axis=1, keepdims=True)
            update = update / (np.sqrt(self.row_squares[rows]) + real(1e-10))
            if self.mistake != 'not rescaled to the old norm':
                update = update * (old / (np.linalg.norm(update) + real(1e-10)))
        out, into = source.shape[::-1] if self.case.transposed and self.mistake != 'not transposed' else source.shape
        if self.mistake == 'scale of the whole matrix':
            out, into = self.case.rows, self.case.columns
        return real(self.scale(out, into)) * update

    def step(self, weights, gradient, lr, decay):
        if self.decay_kind == 'l2':
            gradient = gradient + decay * weights
        update = self.averaged(gradient).copy()
        for rows in self.case.parts() if self.mistake != 'parts together' else [slice(0, None)]:
            update[rows] = self.orthogonal(rows, update[rows])
        if self.mistake == 'decay after the update':
            after = weights - lr * update
            return decayed(after, update, self.decay_kind, lr, decay)
        if self.mistake == 'decay with the scaled lr':
            lr_scaled = lr * self.arithmetic.real(self.scale(*weights.shape))
            return decayed(weights, update, self.decay_kind, lr_scaled, decay) - lr * update
        return decayed(weights, update, self.decay_kind, lr, decay) - lr * update


class AdamW:
    def __init__(self, case, arithmetic, mistake):
        self.real, self.mistake, self.t = arithmetic.real, mistake, 0
        self.decay_kind = case.option('decay', 'decoupled')
        self.before = case.option('epsilon_before', False) != (mistake == 'epsilon at the other place')
        self.beta1, self.beta2 = f32(0.9), f32(0.999)
        self.epsilon = f32(case.option('epsilon', 1e-8))
        self.m = self.v = np.zeros((case.count * case.rows, case.columns), self.real)
        if mistake == 'decay decoupled':
            self.decay_kind = 'decoupled'

    def states(self):
        return {'exp_avg': self.m, 'exp_avg_sq': self.v}

    def check(self):
        pass

    def step(self, weights, gradient, lr, decay):
        real, beta1, beta2 = self.real, self.beta1, self.beta2
        self.t += 1
        if self.decay_kind == 'l2':
            gradient = gradient + decay * weights
        self.m = real(beta1) * self.m + real(1 - beta1) * gradient
        self.v = real(beta2) * self.v + real(1 - beta2) * gradient * gradient
        root1, root2 = real(1 - beta1 ** self.t), real(np.sqrt(1 - beta2 ** self.t))
        if self.mistake == 'no bias correction':
            root1 = root2 = real(1)
        if self.before:
            update = self.m / (np.sqrt(self.v) + real(self.epsilon)) * (root2 / root1)
        else:
            update = self.m / root1 / (np.sqrt(self.v) / root2 + real(self.epsilon))
        if self.mistake == 'decay after the update':
            return decayed(weights - lr * update, update, self.decay_kind, lr, decay)
        return decayed(weights, update, self.decay_kind, lr, decay) - lr * update


class Shampoo:
    """Each block of at most block_max rows and columns has factors, roots and graft of its own."""

    def __init__(self, case, arithmetic, mistake):
        self.real, self.mistake, self.t = arithmetic.real, mistake, 0
        self.rows, self.columns = case.rows, case.columns
        self.interval = case.option('interval', 1)
        self.start = case.option('start', self.interval)
        self.grafting = case.option('grafting', 'none')
        self.beta1, self.beta2 = f32(case.option('beta1', 0.9)), f32(case.option('beta2', 1.0))
        self.epsilon = f32(case.option('epsilon', 1e-12))
        self.exponent = case.option('exponent', 0.25)
        self.decay_kind = case.option('decay', 'decoupled')
        self.momentum, self.nesterov = f32(case.option('momentum', 0.0)), case.option('nesterov', False)
        longest = case.option('block_max', 1024) if mistake != 'no blocks' else 1024
        self.blocks = [Block(i, j, longest, self) for i in range(0, case.rows, longest)
                       for j in range(0, case.columns, longest)]
        self.buffer = np.zeros((case.rows, case.columns), self.real)

    def states(self):
        if len(self.blocks) > 1:
            return {}
        block = self.blocks[0]
        return {'factor_left': block.left, 'factor_right': block.right} | (
            {'graft_sq': block.graft} if self.grafting == 'adam' else {})

    def check(self):
        for block in self.blocks:
            if block.condition > 1e6:
                raise SystemExit(f'a factor has condition {block.condition:.1e}: fp32 roots would not follow')

    def step(self, weights, gradient, lr, decay):
        self.t += 1
        if self.decay_kind == 'l2':
            gradient = gradient + decay * weights
        direction = np.empty_like(weights)
        for block in self.blocks:
            direction[block.place] = block.direction(gradient[block.place])
        if self.decay_kind == 'decoupled' and self.mistake != 'decay beside momentum':
            direction = direction + decay * weights
        if self.momentum:
            self.buffer = self.real(self.momentum) * self.buffer + direction
            direction = direction + self.real(self.momentum) * self.buffer if self.nesterov else self.buffer
        if self.mistake == 'decay beside momentum':
            direction = direction + decay * weights
        return weights - lr * direction


class Block:
    def __init__(self, row, column, longest, rule):
        self.rule = rule
        self.place = (slice(row, min(row + longest, rule.rows)), slice(column, min(column + longest, rule.columns)))
        rows, columns = (part.stop - part.start for part in self.place)
        self.left, self.right = np.zeros((rows, rows), rule.real), np.zeros((columns, columns), rule.real)
        self.filtered = self.graft = np.zeros((rows, columns), rule.real)
        self.condition = 1.0

    def direction(self, gradient):
        rule, real, t = self.rule, self.rule.real, self.rule.t
        new = real(1 - rule.beta2) if rule.beta2 < 1 else real(1)
        self.left = real(rule.beta2) * self.left + new * (gradient @ gradient.T)
        self.right = real(rule.beta2) * self.right + new * (gradient.T @ gradient)
        beta2 = f32(0.999)
        self.graft = real(beta2) * self.graft + real(1 - beta2) * gradient * gradient
        first = t == rule.start if rule.mistake != 'starts a step later' else t == rule.start + 1
        if first or (t > rule.start and t % rule.interval == 0):
            self.roots = [self.root(self.left), self.root(self.right)]
        self.filtered = real(rule.beta1) * self.filtered + real(1 - rule.beta1) * gradient
        correction = 1 - rule.beta1 ** t if rule.mistake != 'no bias correction of the gradient' else 1
        filtered = self.filtered / real(correction)
        grafted = self.grafted(filtered)
        if t < rule.start or not hasattr(self, 'roots'):
            return grafted
        conditioned = self.roots[0] @ filtered @ self.roots[1]
        if rule.grafting == 'none' or rule.mistake == 'no grafting':
            return conditioned
        return conditioned * (np.linalg.norm(grafted) / (np.linalg.norm(conditioned) + real(1e-16)))

    def grafted(self, filtered):
        real = self.rule.real
        if self.rule.grafting != 'adam':
            return filtered
        correction = real(1 - f32(0.999) ** self.rule.t)
        return filtered / (np.sqrt(self.graft / correction) + real(1e-10))

    def root(self, factor):
        rule, real = self.rule, self.rule.real
        corrected = rule.beta2 < 1 and rule.mistake != 'no bias correction of the factors'
        factor = factor / real(1 - rule.beta2 ** rule.t if corrected else 1)
        values, vectors = np.linalg.eigh(factor + real(rule.epsilon) * np.eye(len(factor), dtype=real))
        if values[0] < rule.epsilon:
            values = values - values[0] + real(rule.epsilon)
        self.condition = max(self.condition, float(values[-1] / values[0]))
        exponent = rule.exponent if rule.mistake != 'exponent of one dimension' else 0.5
        return (vectors * values ** real(-exponent)) @ vectors.T


def sides_with_factors(case, rows, columns):
    """One-sided: the shorter."""
    longest, one = case.option('side_max', 10000), case.option('one_sided', False)
    return [rows <= longest and not (one and rows > columns), columns <= longest and not (one and columns >= rows)]


class Soap:
    def __init__(self, case, arithmetic, mistake):
        self.real, self.mistake, self.t, self.first = arithmetic.real, mistake, 0, True
        self.interval = case.option('interval', 10)
        self.beta1, self.beta2 = f32(0.95), f32(0.95)
        self.factor_beta = f32(case.option('factor_beta', 0.95))
        self.epsilon = f32(case.option('epsilon', 1e-8))
        self.decay_kind = case.option('decay', 'after')
        rows, columns = case.rows, case.columns
        self.sides = sides_with_factors(case, rows, columns)
        self.factors = [np.zeros((rows, rows), self.real), np.zeros((columns, columns), self.real)]
        self.bases = [np.eye(rows, dtype=self.real), np.eye(columns, dtype=self.real)]
        self.m = self.v = np.zeros((rows, columns), self.real)  # m in the original basis, v in the eigenbasis
        self.gap, self.swaps = 1.0, 0
        self.wants_swaps = case.gradient == 'crossing' and arithmetic is FP64 and not mistake

    def states(self):
        names = {'exp_avg_sq': self.v}
        for has, name, factor in zip(self.sides, ('factor_left', 'factor_right'), self.factors):
            if has:
                names[name] = factor
        return names

    def check(self):
        if self.gap < 1e-4:
            raise SystemExit(f'two eigenvalues are within {self.gap:.1e} when they are sorted: fp32 may sort otherwise')
        if self.wants_swaps and self.swaps < 3:
            raise SystemExit(f'only {self.swaps} eigenvalues change places')

    def add_to_factors(self, gradient):
        beta = self.real(self.factor_beta)
        for side, product in enumerate((gradient @ gradient.T, gradient.T @ gradient)):
            self.factors[side] = beta * self.factors[side] + (self.real(1) - beta) * product

    def project(self, matrix):
        return self.bases[0].T @ matrix @ self.bases[1]

    def project_back(self, matrix):
        return self.bases[0] @ matrix @ self.bases[1].T

    def begin(self, gradient):
        self.add_to_factors(gradient)
        for side in (0, 1):
            if self.sides[side]:
                self.bases[side] = np.linalg.eigh(self.factors[side])[1][:, ::-1]

    def refresh(self):
        for side in (0, 1):
            if not self.sides[side]:
                continue
            basis, factor = self.bases[side], self.factors[side]
            estimates = np.sum(basis * (factor @ basis), axis=0)
            order = np.argsort(-estimates, kind='stable')
            ordered = estimates[order]
            if len(order) > 1:
                self.gap = min(self.gap, float(np.min((ordered[:-1] - ordered[1:]) / ordered[0])))
            self.swaps += int(np.sum(order != np.arange(len(order))))
            if self.mistake != 'second moment not permuted':
                self.v = self.v[order, :] if side == 0 else self.v[:, order]
            if self.mistake == 'not sorted':
                order = np.arange(len(order))
            self.bases[side] = np.linalg.qr(factor @ basis[:, order])[0]

    def step(self, weights, gradient, lr, decay):
        real = self.real
        if self.decay_kind == 'l2':
            gradient = gradient + decay * weights
        if self.first:
            self.first = False
            self.begin(gradient)
            if self.mistake == 'first call counted':
                self.t = 1
            if self.mistake != 'first step not skipped':
                return weights
        self.t += 1
        if self.mistake == 'basis refreshed before use' and self.t % self.interval == 0:
            self.refresh()
        projected = self.project(gradient)
        self.m = real(self.beta1) * self.m + real(1 - self.beta1) * gradient
        self.v = real(self.beta2) * self.v + real(1 - self.beta2) * projected * projected
        root = real(np.sqrt(1 - self.beta2 ** self.t))
        epsilon = real(self.epsilon) * (root if self.mistake == 'epsilon after bias correction' else real(1))
        size = lr * root / real(1 - self.beta1 ** self.t)
        update = self.project_back(self.project(self.m) / (np.sqrt(self.v) + epsilon))
        if self.mistake == 'decay before the update':
            weights = weights * (real(1) - lr * decay) - size * update
        elif self.decay_kind == 'after':
            weights = weights - size * update
            weights = weights - lr * decay * weights
        else:
            weights = weights - size * update
        self.add_to_factors(gradient)
        if self.mistake != 'basis refreshed before use' and self.t % self.interval == 0:
            self.refresh()
        return weights


class ByParts:
    """Shampoo or SOAP of each block, head or matrix of a batch by itself: as many rules, which know nothing of each
    other."""

    def __init__(self, rule, case, arithmetic, mistake):
        together = mistake == 'parts together'
        self.parts = [slice(0, case.count * case.rows)] if together else list(case.parts())
        self.rules = [rule(case.part(part.stop - part.start), arithmetic, mistake) for part in self.parts]

    def states(self):
        return self.rules[0].states() if len(self.rules) == 1 else {}

    def check(self):
        for rule in self.rules:
            rule.check()

    def step(self, weights, gradient, lr, decay):
        after = np.empty_like(weights)
        for part, rule in zip(self.parts, self.rules):
            after[part] = rule.step(weights[part], gradient[part], lr, decay)
        return after


RULES = {'muon': Muon, 'adamw': AdamW, 'shampoo': functools.partial(ByParts, Shampoo),
         'soap': functools.partial(ByParts, Soap)}
