"""The reference of the search: BoTorch with Demeter's ensembles (RGPE) and noisy expected hypervolume improvement.

BoTorch is in the extra `gpu`. The fairest form found: the cost is told exactly instead of being learnt; every output is
learnt in logs, and base models speak in those (scaled to the target's mean and spread they did worse in the one run
that was tried); the acquisition is evaluated at every candidate, which finds its maximum for certain.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.multi_objective.objective import GenericMCMultiOutputObjective
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.transforms import Standardize
from botorch.models.utils.gpytorch_modules import get_matern_kernel_with_gamma_prior
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import LikelihoodList
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.models import GP
from linear_operator import to_linear_operator

Floats = npt.NDArray[np.float64]

_RANKING_SAMPLES = 256
_ACQUISITION_SAMPLES = 128
_AT_ONCE = 500
"""Rows per evaluation of the acquisition, so that its samples stay small."""


def _tensor(values: Floats) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def fitted(x: torch.Tensor, y: torch.Tensor) -> SingleTaskGP:
    """One output of one load: Matern-5/2 with a length per dimension, values standardised, most probable parameters."""
    model = SingleTaskGP(
        x,
        y[:, None],
        covar_module=get_matern_kernel_with_gamma_prior(ard_num_dims=x.shape[1]),
        outcome_transform=Standardize(m=1),
    )
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
    try:
        fit_gpytorch_mll(likelihood)
    except ModelFittingError:
        likelihood.eval()  # none of BoTorch's tries converged: the prior's hyperparameters are what is left
    return model


class Ensembles(GP, GPyTorchModel):  # type: ignore[misc]  # BoTorch's classes have no types here
    """Latency and recovery, each the weighted sum of independent processes, sampled together.

    All columns of the inputs but the last (the cost) are theirs.
    """

    num_outputs = 2

    def __init__(self, *outputs: list[tuple[SingleTaskGP, float]]) -> None:
        super().__init__()
        models = [model for output in outputs for model, _ in output]
        self.members = torch.nn.ModuleList(models)
        self.outputs = outputs
        self.likelihood = LikelihoodList(*[model.likelihood for model in models])
        self.to(models[-1].train_targets)

    def forward(self, x: torch.Tensor) -> MultitaskMultivariateNormal:
        """Mean: the weighted sum; covariance: summed with squared weights."""
        told = []
        for output in self.outputs:
            parts = [(weight, model.posterior(x[..., :-1]).distribution) for model, weight in output]
            mean = sum(weight * part.mean for weight, part in parts)
            covariance = sum(weight**2 * part.lazy_covariance_matrix.to_dense() for weight, part in parts)
            told.append(MultivariateNormal(mean, to_linear_operator(covariance)))
        return MultitaskMultivariateNormal.from_independent_mvns(told)


def _misranked(samples: torch.Tensor, others: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Pairs that each sample (rows), held against the others, puts in another order than the measurements are."""
    said = samples[:, :, None] < others[:, None, :]
    return (said != (y[:, None] < y[None, :])).sum(dim=(1, 2)).double()


def _misranked_alone(model: SingleTaskGP, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The same for the target's own model: each point as told without it, against the measurements of the others."""
    mean, variance = leave_one_out(model, x, y)
    samples = mean + variance.sqrt() * torch.randn(_RANKING_SAMPLES, len(y), dtype=y.dtype)
    return _misranked(samples, y[None, :], y)


def leave_one_out(model: SingleTaskGP, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of each measurement had it not been made, in closed form, with the model's hyperparameters."""
    transform = model.outcome_transform
    scale, shift = transform.stdvs.squeeze(), transform.means.squeeze()
    with torch.no_grad():
        model.eval()
        covariance = model.covar_module(x).to_dense() + model.likelihood.noise * torch.eye(len(x), dtype=x.dtype)
        constant = model.mean_module(x)
        inverse = torch.linalg.inv(covariance)
        precision = inverse.diagonal()
        target = (y - shift) / scale
        mean = target - (inverse @ (target - constant)) / precision
    return mean * scale + shift, scale**2 / precision


def weighted(bases: list[SingleTaskGP], x: torch.Tensor, y: torch.Tensor) -> list[tuple[SingleTaskGP, float]]:
    """The target's model and those bases that rank its measurements no worse than itself (RGPE)."""
    target = fitted(x, y)
    with torch.no_grad():
        losses = []
        for model in bases:
            samples = model.posterior(x).rsample(torch.Size([_RANKING_SAMPLES]))[..., 0]
            losses.append(_misranked(samples, samples, y))
        losses.append(_misranked_alone(target, x, y))
        table = torch.stack(losses)
        # A base whose usual loss is above nearly all of the target's would only dilute the weights.
        bound = torch.quantile(table[-1], 0.95)
        table[:-1][table[:-1].median(dim=1).values > bound] = torch.inf
        best = table == table.min(dim=0).values
        # Where several rank equally well, the target if it is among them, or else one of them by chance.
        chance = torch.rand(best.shape, dtype=torch.float64)
        chance[-1] += 1.0
        chosen = torch.where(best, chance, -1.0).argmax(dim=0)
        weights = torch.bincount(chosen, minlength=len(best)) / best.shape[1]
    return [(model, float(weight)) for model, weight in zip([*bases, target], weights, strict=True) if weight > 0.0]


class BotorchProfiler:
    """Suggests one row after the other; base models are fitted once, when it is made."""

    def __init__(
        self,
        *,
        features: Floats,
        log_cost: Floats,
        log_limits: tuple[float, float],
        past: list[tuple[npt.NDArray[np.int64], Floats, Floats]],
        seed: int,
    ) -> None:
        """`past`: for each load the rows profiled, their log latencies and log recoveries."""
        torch.manual_seed(seed)
        self._rng = np.random.default_rng(seed)
        self._table = _tensor(np.column_stack([features, log_cost]))
        self._log_limits = log_limits
        self._reference = torch.tensor([-float(log_cost.max()), -log_limits[0]], dtype=torch.float64)
        self._bases = [
            [fitted(self._table[rows, :-1], _tensor(load[output])) for rows, *load in past] for output in range(2)
        ]

    def suggest(self, rows: npt.NDArray[np.int64], log_latency: Floats, log_recovery: Floats) -> int:
        """The row to profile next, after these rows were."""
        x = self._table[rows]
        outputs = [
            weighted(bases, x[:, :-1], _tensor(values))
            for bases, values in zip(self._bases, (log_latency, log_recovery), strict=True)
        ]
        acquisition = improvement(
            Ensembles(*outputs),
            x,
            reference=self._reference,
            log_limits=self._log_limits,
            samples=_ACQUISITION_SAMPLES,
            seed=int(self._rng.integers(1 << 30)),
        )
        left = np.setdiff1d(np.arange(len(self._table)), rows)
        with torch.no_grad():
            values = torch.cat([acquisition(part[:, None, :]) for part in self._table[left].split(_AT_ONCE)])
        return int(left[int(values.argmax())])


def improvement(
    model: Ensembles,
    observed: torch.Tensor,
    *,
    reference: torch.Tensor,
    log_limits: tuple[float, float],
    samples: int,
    seed: int,
) -> qLogNoisyExpectedHypervolumeImprovement:
    """The acquisition: log cost, the last column of the inputs, and log latency are to be low, both limits kept."""
    latency, recovery = log_limits

    def objective(said: torch.Tensor, X: torch.Tensor) -> torch.Tensor:  # noqa: N803 -- BoTorch's name
        cost = X[..., -1].expand(said.shape[:-1])
        return -torch.stack([cost, said[..., 0]], dim=-1)

    return qLogNoisyExpectedHypervolumeImprovement(
        model=model,
        ref_point=reference,
        X_baseline=observed,
        sampler=SobolQMCNormalSampler(sample_shape=torch.Size([samples]), seed=seed),
        objective=GenericMCMultiOutputObjective(objective),
        constraints=[lambda said: said[..., 0] - latency, lambda said: said[..., 1] - recovery],
        prune_baseline=True,
    )
