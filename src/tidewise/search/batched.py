"""Fitting thousands of small Gaussian processes at once: all of them take each step of the search together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidewise.qos.gp import AMPLITUDE_BOUNDS, LENGTH_BOUNDS, NOISE_BOUNDS, prior_mean, prior_spread

if TYPE_CHECKING:
    from torch import Tensor

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

CALM = {"float32": 2e-2, "float64": 1e-3}
"""The slope of the log posterior at which a fit is done; below it single precision finds only its own rounding."""
JITTER = {"float32": 1e-6, "float64": 1e-10}
_LONGEST_STEP = 1.5
"""In log units: no fit jumps further than a factor of 4.5 at once."""
_LOOK_AROUND = 6
"""Steps after which the fits that are done leave the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Measurements on the device: x about its centre, y with zero mean and about unit spread, zeros as filling."""

    x: Tensor
    y: Tensor
    observed: Tensor
    mean: Tensor
    sd: Tensor
    centre: Tensor

    @classmethod
    def of(cls, torch: ModuleType, x: Floats, y: Floats, observed: Flags, *, usual_sd: float, device: str) -> Batch:
        places, values, seen = (
            torch.as_tensor(np.where(flags, given, 0.0), dtype=torch.float64, device=device)
            for flags, given in ((observed[..., None], x), (observed, y), (observed, 1.0))
        )
        count = seen.sum(dim=1)
        mean = values.sum(dim=1) / count
        values = (values - mean[:, None]) * seen
        sd = torch.sqrt((usual_sd**2 + (values**2).sum(dim=1)) / (count + 1.0))
        centre = places.sum(dim=(0, 1)) / count.sum()
        return cls(
            x=(places - centre) * seen[..., None],
            y=values / sd[:, None],
            observed=seen,
            mean=mean,
            sd=sd,
            centre=centre,
        )

    def part(self, models: slice | Tensor) -> Batch:
        """Some models."""
        return Batch(
            x=self.x[models], y=self.y[models], observed=self.observed[models],
            mean=self.mean[models], sd=self.sd[models], centre=self.centre,
        )  # fmt: skip

    def to(self, kind: object) -> Batch:
        """The same in another precision."""
        return Batch(
            x=self.x.to(kind), y=self.y.to(kind), observed=self.observed.to(kind),
            mean=self.mean.to(kind), sd=self.sd.to(kind), centre=self.centre,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Covariance:
    """Covariance of each model's points, with what its derivatives need."""

    signal: Tensor
    slope: Tensor
    total: Tensor

    @classmethod
    def of(cls, torch: ModuleType, data: Batch, theta: Tensor, *, jitter: float) -> Covariance:
        variance, noise = torch.exp(2.0 * theta[:, -2]), torch.exp(2.0 * theta[:, -1])
        x = data.x * (math.sqrt(5.0) * torch.exp(-theta[:, None, :-2]))
        square = (x * x).sum(dim=2)
        reach = torch.baddbmm(square[:, None, :], x, x.mT, alpha=-2.0).add_(square[..., None]).clamp_min_(0.0)
        reach.diagonal(dim1=1, dim2=2).zero_()
        root = reach.sqrt()
        decay = torch.exp(-root).mul_((variance[:, None] * data.observed)[..., None]).mul_(data.observed[:, None, :])
        slope = root.add_(1.0).mul_(decay)
        signal = reach.mul_(decay).div_(3.0).add_(slope)
        total = signal.clone()
        floor = noise + jitter * variance
        total.diagonal(dim1=1, dim2=2).add_(floor[:, None] * data.observed + (1.0 - data.observed))
        return cls(signal=signal, slope=slope, total=total)


def _posterior(torch: ModuleType, data: Batch, theta: Tensor, prior: Tensor, *, jitter: float) -> tuple[Tensor, Tensor]:
    """Minus the log posterior of each row of hyperparameters, and its gradient; infinite where it cannot be had."""
    covariance = Covariance.of(torch, data, theta, jitter=jitter)
    root, wrong = torch.linalg.cholesky_ex(covariance.total)
    identity = torch.eye(root.shape[-1], dtype=root.dtype, device=root.device).expand_as(root)
    inverse = torch.linalg.solve_triangular(root, identity, upper=False)
    inverse = torch.bmm(inverse.mT, inverse)
    weights = torch.bmm(inverse, data.y[..., None])
    off = (theta - prior[0]) / prior[1]
    value = 0.5 * (data.y * weights[..., 0]).sum(dim=1) + 0.5 * (off * off).sum(dim=1)
    value += torch.log(root.diagonal(dim1=1, dim2=2)).sum(dim=1)
    pull = torch.baddbmm(inverse, weights, weights.mT, alpha=-1.0)
    gradient = off / prior[1]
    gradient[:, -2] += (pull * covariance.signal).sum(dim=(1, 2))
    gradient[:, -1] += torch.exp(2.0 * theta[:, -1]) * (pull.diagonal(dim1=1, dim2=2) * data.observed).sum(dim=1)
    pull *= covariance.slope
    # The sum of pull times squared differences, without making the differences.
    square = pull.sum(dim=2)[..., None] * data.x - torch.bmm(pull, data.x)
    gradient[:, :-2] += 5.0 / 3.0 * (data.x * square).sum(dim=1) * torch.exp(-2.0 * theta[:, :-2])
    good = (wrong == 0) & torch.isfinite(value) & torch.isfinite(gradient).all(dim=1)
    return torch.where(good, value, math.inf), torch.where(good[:, None], gradient, 0.0)


def fit_all(torch: ModuleType, data: Batch, *, starts: int, seed: int, steps: int, precision: str) -> Tensor:
    """The best hyperparameters of each model: quasi-Newton with a matrix per search, one evaluation of all per step."""
    models, _, dims = data.x.shape
    prior, low, high, begin = (
        torch.as_tensor(value, dtype=data.x.dtype, device=data.x.device) for value in _search_space(dims, starts, seed)
    )
    theta = begin.repeat(models, 1)
    model = torch.arange(models, device=theta.device).repeat_interleave(starts)
    best, lowest = theta.clone(), torch.full((len(theta),), math.inf, dtype=theta.dtype, device=theta.device)
    left = torch.arange(len(theta), device=theta.device)
    data = data.part(model)
    search = _Searches.begin(torch, theta, *_posterior(torch, data, theta, prior, jitter=JITTER[precision]))
    for step in range(1, steps + 1):
        trial = search.trial(torch, low, high)
        search.judge(torch, trial, *_posterior(torch, data, trial, prior, jitter=JITTER[precision]))
        if step % _LOOK_AROUND and step != steps:
            continue
        going = search.going(torch, low, high, calm=CALM[precision])
        best[left], lowest[left] = search.theta, search.value
        chosen = going.nonzero()[:, 0]
        if len(chosen) == 0:
            break
        if len(chosen) < 0.9 * len(left):
            left, data, search = left[chosen], data.part(chosen), search.part(chosen)
    winner = lowest.view(models, starts).argmin(dim=1)
    return best.view(models, starts, -1)[torch.arange(models, device=theta.device), winner]


def _search_space(dims: int, starts: int, seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Prior, bounds and places to begin at, all as for a single process."""
    mean, spread = prior_mean(dims), prior_spread(dims)
    low, high = np.array([LENGTH_BOUNDS] * dims + [AMPLITUDE_BOUNDS, NOISE_BOUNDS]).T
    rng = np.random.default_rng(seed)
    places = [mean, *(mean + 0.5 * spread * rng.standard_normal(dims + 2) for _ in range(starts - 1))]
    return np.stack([mean, spread]), low, high, np.clip(np.stack(places), low, high)


@dataclass(slots=True, kw_only=True)
class _Searches:
    """The state of many minimisations at once (BFGS): place, value, gradient, inverse curvature, length of the step."""

    theta: Tensor
    value: Tensor
    gradient: Tensor
    inverse: Tensor
    stride: Tensor
    fresh: Tensor

    @classmethod
    def begin(cls, torch: ModuleType, theta: Tensor, value: Tensor, gradient: Tensor) -> _Searches:
        size = theta.shape[1]
        return cls(
            theta=theta,
            value=value,
            gradient=gradient,
            inverse=torch.eye(size, dtype=theta.dtype, device=theta.device).repeat(len(theta), 1, 1),
            stride=torch.ones_like(value),
            fresh=torch.ones_like(value, dtype=torch.bool),
        )

    def part(self, chosen: Tensor) -> _Searches:
        """Some of the searches."""
        return _Searches(
            theta=self.theta[chosen], value=self.value[chosen], gradient=self.gradient[chosen],
            inverse=self.inverse[chosen], stride=self.stride[chosen], fresh=self.fresh[chosen],
        )  # fmt: skip

    def trial(self, torch: ModuleType, low: Tensor, high: Tensor) -> Tensor:
        """Where to look next."""
        gradient = self._free_gradient(torch, low, high)
        way = -torch.bmm(self.inverse, gradient[..., None])[..., 0]
        uphill = (way * gradient).sum(dim=1) >= 0.0
        way = torch.where(uphill[:, None], -gradient, way)
        longest = way.abs().amax(dim=1)
        # The first step knows nothing of the scale: it is kept to half a unit.
        allowed = torch.where(self.fresh, 0.5, _LONGEST_STEP) / longest.clamp_min(1e-12)
        way = way * (allowed.clamp_max(1.0) * self.stride)[:, None]
        return torch.clamp(self.theta + way, low, high)

    def judge(self, torch: ModuleType, trial: Tensor, value: Tensor, gradient: Tensor) -> None:
        """Go where it is better, and learn the curvature; else halve the step or more."""
        moved, bend = trial - self.theta, gradient - self.gradient
        expected = (moved * self.gradient).sum(dim=1)
        slack = 4.0 * torch.finfo(value.dtype).eps * self.value.abs()
        better = value <= self.value + 1e-4 * expected + slack
        product = (moved * bend).sum(dim=1)
        scale = (bend * bend).sum(dim=1)
        known = better & (product > 1e-10 * scale.clamp_min(1e-30))
        first = (known & self.fresh)[:, None, None]
        self.inverse = torch.where(
            first, self.inverse * (product / scale.clamp_min(1e-30))[:, None, None], self.inverse
        )
        inverse_bend = torch.bmm(self.inverse, bend[..., None])
        share = torch.where(known, 1.0 / torch.where(known, product, 1.0), 0.0)[:, None, None]
        cross = share * inverse_bend * moved[:, None, :]
        stretch = share * (1.0 + share * (bend[:, None, :] @ inverse_bend))
        self.inverse = self.inverse - cross - cross.mT + stretch * moved[..., None] * moved[:, None, :]
        # The parabola through both values says how far to go back.
        rise = (value - self.value - expected).clamp_min(1e-30)
        back = (-0.5 * expected / rise).nan_to_num(0.1).clamp(0.1, 0.5)
        self.stride = torch.where(better, 1.0, self.stride * back)
        self.fresh &= ~known
        self.theta = torch.where(better[:, None], trial, self.theta)
        self.gradient = torch.where(better[:, None], gradient, self.gradient)
        self.value = torch.where(better, value, self.value)

    def going(self, torch: ModuleType, low: Tensor, high: Tensor, *, calm: float) -> Tensor:
        """Which searches have a slope left to follow and still find steps to take."""
        slope = self._free_gradient(torch, low, high).abs().amax(dim=1)
        return (slope > calm) & (self.stride > 1e-4)

    def _free_gradient(self, torch: ModuleType, low: Tensor, high: Tensor) -> Tensor:
        """The gradient, without what would only lead out of the bounds."""
        outward = ((self.theta <= low) & (self.gradient > 0.0)) | ((self.theta >= high) & (self.gradient < 0.0))
        return torch.where(outward, 0.0, self.gradient)
