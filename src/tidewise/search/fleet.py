"""Many jobs at once: thousands of small Gaussian processes fitted and asked together, on one core or on a GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidewise.core.errors import BadInputError
from tidewise.search.batched import CALM, JITTER, Batch, Covariance, Flags, Floats, fit_all

if TYPE_CHECKING:
    from torch import Tensor

Rows = npt.NDArray[np.int64]

_HELD_AT_ONCE = {"cpu": 1 << 17, "cuda": 1 << 29}
"""Covariances: what a core's cache keeps; what fills all units of a GPU and a tenth of its memory."""


def import_torch() -> ModuleType:
    """PyTorch, or one sentence that says how to get it."""
    try:
        return import_module("torch")
    except ImportError as error:
        raise BadInputError(
            "the models of a whole fleet need PyTorch, which is not installed: pip install 'tidewise[gpu]'"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What each model learns from, as one block; rows that `observed` does not name are filling."""

    x: Floats
    """(models, points, dimensions), in about 0..1."""
    y: Floats
    """(models, points)."""
    observed: Flags
    """(models, points)."""

    def __post_init__(self) -> None:
        if self.x.ndim != 3 or self.y.shape != self.x.shape[:2] or self.observed.shape != self.y.shape:
            raise BadInputError(
                "the measurements of a fleet are x of (models, points, dimensions) with y and observed of (models, "
                f"points), not of shapes {self.x.shape}, {self.y.shape} and {self.observed.shape}"
            )
        if not (self.y.size and self.x.shape[2] and self.observed.any(axis=1).all()):
            raise BadInputError("every model of a fleet needs at least one point: leave out those without")
        if not (np.isfinite(self.x[self.observed]).all() and np.isfinite(self.y[self.observed]).all()):
            raise BadInputError("a fleet learns from finite numbers: leave out points with NaN or infinity")

    @classmethod
    def padded(cls, models: Sequence[tuple[Floats, Floats]]) -> Measurements:
        """One pair of x (points, dimensions) and y (points) per model, of any number of points each."""
        dims = {x.shape[1] if x.ndim == 2 else -1 for x, _ in models}
        if len(dims) != 1 or dims == {-1}:
            raise BadInputError("the models of a fleet need x of (points, dimensions) with the same dimensions for all")
        if any(len(x) != len(y) for x, y in models):
            raise BadInputError("every model of a fleet needs as many rows of x as numbers of y")
        longest = max(len(y) for _, y in models)
        block_x = np.zeros((len(models), longest, dims.pop()))
        block_y = np.zeros((len(models), longest))
        observed = np.zeros((len(models), longest), dtype=np.bool_)
        for row, (x, y) in enumerate(models):
            block_x[row, : len(y)] = x
            block_y[row, : len(y)] = y
            observed[row, : len(y)] = True
        return cls(x=block_x, y=block_y, observed=observed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cheapest:
    """For each job the cheapest row that keeps its limits as surely as asked; the surest where none does."""

    row: Rows
    probability: Floats
    """Of keeping all limits there."""
    kept: Flags
    """Whether that is as sure as was asked."""


class Fleet:
    """Fitted models, each as `GaussianProcess.fit` would have it, held on the device that fitted them."""

    def __init__(
        self, *, centre: Tensor, factors: Tensor, offset: Tensor, solver: Tensor, moments: Tensor, theta: Tensor
    ) -> None:
        """Not for callers: `fit`."""
        self._centre = centre
        self._factors = factors
        self._offset = offset
        self._solver = solver
        self._moments = moments
        self._theta = theta

    def __len__(self) -> int:
        return len(self._theta)

    @classmethod
    def fit(
        cls,
        measurements: Measurements,
        *,
        usual_sd: float = 1.0,
        starts: int = 2,
        seed: int = 0,
        steps: int = 40,
        device: str = "cpu",
        precision: str = "float64",
    ) -> Fleet:
        """The most probable hyperparameters of every model, the best of `starts` searches of at most `steps` steps.

        `precision`: float32 halves the time and the memory of a GPU, and says the same where measurements scatter by a
        few per cent or more; of those that hardly scatter it tells the spread wrongly.
        """
        torch = import_torch()
        kind = device.partition(":")[0]
        if kind not in _HELD_AT_ONCE or (kind == "cuda" and not torch.cuda.is_available()):
            raise BadInputError(f"there is no device {device!r} here: write cpu, or cuda where PyTorch finds a GPU")
        if precision not in CALM:
            raise BadInputError(f"a fleet is worked out in float32 or float64, not in {precision!r}")
        if starts < 1 or steps < 1:
            raise BadInputError(f"a fit needs at least one start and one step, not {starts} and {steps}")
        with torch.no_grad():
            data = Batch.of(
                torch, measurements.x, measurements.y, measurements.observed, usual_sd=usual_sd, device=device
            )
            models, points, _ = data.x.shape
            at_once = max(1, _HELD_AT_ONCE[kind] // (points * points * starts))
            found = [
                fit_all(torch, data.part(slice(begin, begin + at_once)).to(getattr(torch, precision)),
                     starts=starts, seed=seed, steps=steps, precision=precision)
                for begin in range(0, models, at_once)
            ]  # fmt: skip
            theta = torch.cat(found).to(torch.float64)
            return cls._conditioned(torch, data, theta, precision=precision)

    @classmethod
    def _conditioned(cls, torch: ModuleType, data: Batch, theta: Tensor, *, precision: str) -> Fleet:
        lengths, amplitude = torch.exp(theta[:, :-2]), torch.exp(theta[:, -2])
        covariance = Covariance.of(torch, data, theta, jitter=JITTER["float64"])
        root, _ = torch.linalg.cholesky_ex(covariance.total)
        identity = torch.eye(root.shape[-1], dtype=root.dtype, device=root.device).expand_as(root)
        inverse = torch.linalg.solve_triangular(root, identity, upper=False)
        weights = inverse.mT @ (inverse @ data.y[..., None])
        # One product with the correlations then gives the mean (last row) and what the variance loses (the others).
        solver = torch.cat([inverse, weights.mT], dim=1) * data.observed[:, None, :]
        solver *= amplitude[:, None, None] ** 2
        inverse_square = (5.0 / lengths**2)[:, None, :].expand_as(data.x)
        kind = getattr(torch, precision)
        return cls(
            centre=data.centre,
            factors=torch.cat([inverse_square, -2.0 * inverse_square * data.x], dim=2).to(kind),
            offset=(inverse_square * data.x**2).sum(dim=2, keepdim=True).to(kind),
            solver=solver.to(kind),
            moments=torch.stack([data.mean, data.sd, amplitude], dim=1).to(kind),
            theta=theta,
        )

    @property
    def hyperparameters(self) -> Floats:
        """Per model the logs of the lengths, of the amplitude and of the noise."""
        return _numpy(self._theta)

    def predict(self, table: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of every model (first axis) at every row of the table (second axis)."""
        torch = import_torch()
        mean, sd = np.empty((len(self), len(table))), np.empty((len(self), len(table)))
        with torch.no_grad():
            lifted = self._lifted(torch, table)
            for models, rows in self._blocks(len(table), models_together=1):
                block_mean, block_variance = self._moments_of(torch, models, lifted[:, rows])
                mean[models, rows] = _numpy(block_mean)
                sd[models, rows] = _numpy(block_variance.sqrt_())
        return mean, sd

    def cheapest(
        self, table: Floats, *, cost: Floats, weights: Floats, limits: Floats, probability: float = 0.9
    ) -> Cheapest:
        """The row to run, for each job; nothing but the answer leaves the device.

        The models lie in the order (jobs, outputs, members): each output of a job is told by an ensemble whose mean is
        the weighted mean and whose variance is the sum of the members' variances times the squared weights (RGPE).
        `weights` has that shape, `limits` that of (jobs, outputs), `cost` one number per row of the table.
        """
        torch = import_torch()
        if not 0.0 < probability < 1.0:
            raise BadInputError(f"limits are kept with a probability between 0 and 1, not {probability}")
        jobs, outputs, members = weights.shape if weights.ndim == 3 else (0, 0, 0)
        if weights.size != len(self) or jobs == 0 or limits.shape != (jobs, outputs) or cost.shape != (len(table),):
            raise BadInputError(
                f"a fleet of {len(self)} models and {len(table)} rows needs weights of (jobs, outputs, members) with "
                f"that many models, limits of (jobs, outputs) and one cost per row, not shapes {weights.shape}, "
                f"{limits.shape} and {cost.shape}"
            )
        with torch.no_grad():
            lifted = self._lifted(torch, table)
            share, limit, price = (
                torch.as_tensor(value, dtype=lifted.dtype, device=lifted.device) for value in (weights, limits, cost)
            )
            answer = _Running.begin(torch, jobs, like=lifted)
            for models, rows in self._blocks(len(table), models_together=outputs * members):
                some = slice(models.start // (outputs * members), models.stop // (outputs * members))
                mean, variance = self._moments_of(torch, models, lifted[:, rows])
                shape = (-1, outputs, members, mean.shape[1])
                mean = (mean.view(shape) * share[some, :, :, None]).sum(dim=2)
                variance = (variance.view(shape) * share[some, :, :, None] ** 2).sum(dim=2)
                off = (limit[some, :, None] - mean) / variance.sqrt_()
                sure = torch.special.log_ndtr(off).sum(dim=1)
                answer.see(torch, some, rows, sure=sure, price=price[rows], asked=math.log(probability))
            return answer.result(torch)

    def _lifted(self, torch: ModuleType, table: Floats) -> Tensor:
        """The table, each column and its square in a row of its own: distances to all points become one product."""
        dims = self._theta.shape[1] - 2
        if table.ndim != 2 or table.shape[1] != dims or not np.isfinite(table).all():
            raise BadInputError(
                f"a fleet that learnt from {dims} dimensions is asked about finite rows of {dims} numbers"
            )
        columns = (torch.as_tensor(table, dtype=torch.float64, device=self._theta.device) - self._centre).mT
        return torch.cat([columns**2, columns]).to(self._factors.dtype)

    def _blocks(self, rows: int, *, models_together: int) -> list[tuple[slice, slice]]:
        """Parts of models x rows that the device holds at once; models that belong together stay so."""
        points = self._factors.shape[1]
        held = _HELD_AT_ONCE[self._theta.device.type]
        width = min(rows, max(64, held // (points * len(self))), max(64, held // (points * models_together)))
        groups = max(1, held // (points * width * models_together)) * models_together
        return [
            (slice(first, min(first + groups, len(self))), slice(begin, min(begin + width, rows)))
            for first in range(0, len(self), groups)
            for begin in range(0, rows, width)
        ]

    def _moments_of(self, torch: ModuleType, models: slice, lifted: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of some models at some rows."""
        factors, solver, (mean, sd, amplitude) = self._factors[models], self._solver[models], self._moments[models].mT
        reach = torch.addmm(self._offset[models].flatten(0, 1), factors.flatten(0, 1), lifted).clamp_min_(0.0)
        root = reach.sqrt()
        reach.mul_(1.0 / 3.0).add_(root).add_(1.0).mul_(root.neg_().exp_())
        told = torch.bmm(solver, reach.view(*factors.shape[:2], -1))
        lost = told[:, :-1].square_().sum(dim=1)
        variance = (amplitude[:, None] ** 2 - lost).clamp_min_(1e-12)
        return mean[:, None] + sd[:, None] * told[:, -1], variance * sd[:, None] ** 2


@dataclass(slots=True, kw_only=True)
class _Running:
    """The best row so far of each job, kept on the device while the table passes by."""

    row: Tensor
    sure: Tensor
    price: Tensor
    nearest: Tensor
    nearest_sure: Tensor

    @classmethod
    def begin(cls, torch: ModuleType, jobs: int, *, like: Tensor) -> _Running:
        worst = torch.full((jobs,), -math.inf, dtype=like.dtype, device=like.device)
        nothing = torch.zeros(jobs, dtype=torch.int64, device=like.device)
        return cls(row=nothing, sure=worst, price=-worst, nearest=nothing.clone(), nearest_sure=worst.clone())

    def see(self, torch: ModuleType, some: slice, rows: slice, *, sure: Tensor, price: Tensor, asked: float) -> None:
        """Compare some jobs' answers so far with what these rows offer."""
        cheapest, place = torch.where(sure >= asked, price, math.inf).min(dim=1)
        better = cheapest < self.price[some]
        self.price[some] = torch.where(better, cheapest, self.price[some])
        self.row[some] = torch.where(better, place + rows.start, self.row[some])
        self.sure[some] = torch.where(better, sure.gather(1, place[:, None])[:, 0], self.sure[some])
        surest, place = sure.max(dim=1)
        nearer = surest > self.nearest_sure[some]
        self.nearest_sure[some] = torch.where(nearer, surest, self.nearest_sure[some])
        self.nearest[some] = torch.where(nearer, place + rows.start, self.nearest[some])

    def result(self, torch: ModuleType) -> Cheapest:
        """What was found, on this side again."""
        kept = torch.isfinite(self.price)
        row = torch.where(kept, self.row, self.nearest)
        sure = torch.where(kept, self.sure, self.nearest_sure)
        return Cheapest(row=row.cpu().numpy(), probability=_numpy(sure.exp()), kept=kept.cpu().numpy())


def _numpy(values: Tensor) -> Floats:
    return np.asarray(values.cpu().numpy(), dtype=np.float64)
