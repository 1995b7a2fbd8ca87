"""The closed forms against BoTorch, on the same posteriors; run where the extra `gpu` is installed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import spearmanr

from tidewise.qos.gp import Floats, GaussianProcess
from tidewise.search.closer_look import Search
from tidewise.search.improvement import Strips
from tidewise.search.surrogate import LATENCY, RECOVERY, View

torch = pytest.importorskip("torch")
pytest.importorskip("botorch")

from bench.botorch_reference import Ensembles, fitted, improvement, leave_one_out  # noqa: E402 -- after the skip
from botorch.acquisition.multi_objective.analytic import ExpectedHypervolumeImprovement  # noqa: E402 -- after the skip
from botorch.models import SingleTaskGP  # noqa: E402 -- after the skip
from botorch.utils.multi_objective.box_decompositions import NondominatedPartitioning  # noqa: E402 -- after the skip
from botorch.utils.testing import MockModel, MockPosterior  # noqa: E402 -- after the skip
from gpytorch.kernels import MaternKernel, ScaleKernel  # noqa: E402 -- after the skip
from gpytorch.means import ConstantMean  # noqa: E402 -- after the skip
from torch import Tensor  # noqa: E402 -- after the skip

pytestmark = pytest.mark.filterwarnings("ignore")  # what BoTorch has to say about its own inputs is not ours to mend

DIMS = 3


def tensor(values: Floats) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def measured(points: int, seed: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    x = rng.random((points, DIMS))
    return x, np.sin(3.0 * x[:, 0]) + x[:, 1] - 0.7 * x[:, 2] + 0.05 * rng.standard_normal(points)


def twin(process: GaussianProcess) -> SingleTaskGP:
    """The same process with the same hyperparameters, as gpytorch has it."""
    plain = process.to_plain()
    mean, sd = float(str(plain["mean"])), float(str(plain["sd"]))
    model = SingleTaskGP(
        tensor(process.x),
        tensor(process.y)[:, None],
        covar_module=ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=process.x.shape[1])),
        mean_module=ConstantMean(),
        outcome_transform=None,
    )
    model.covar_module.base_kernel.lengthscale = tensor(process.lengths)
    model.covar_module.outputscale = (sd * process.amplitude) ** 2
    model.likelihood.noise = (sd * process.noise) ** 2
    model.mean_module.constant.data.fill_(mean)
    return model.eval()


def test_a_process_predicts_what_gpytorch_predicts_with_the_same_hyperparameters() -> None:
    process = GaussianProcess.fit(*measured(20, seed=1))
    rows = np.random.default_rng(2).random((100, DIMS))
    with torch.no_grad():
        theirs = twin(process).posterior(tensor(rows))
    mean, covariance = process.joint(rows)
    np.testing.assert_allclose(mean, theirs.mean[:, 0].numpy(), atol=1e-5)
    np.testing.assert_allclose(covariance, theirs.distribution.covariance_matrix.numpy(), atol=1e-5)
    spread = process.predict(rows)[1]
    np.testing.assert_allclose(spread, theirs.variance[:, 0].sqrt().numpy(), rtol=1e-3, atol=1e-5)


def test_leaving_one_out_agrees_with_fitting_without_it() -> None:
    x, y = measured(12, seed=3)
    model = fitted(tensor(x), tensor(y))
    mean, variance = leave_one_out(model, tensor(x), tensor(y))
    some = 4
    kept = np.arange(len(y)) != some
    transform = model.outcome_transform
    scale, shift = float(transform.stdvs), float(transform.means)
    smaller = SingleTaskGP(
        tensor(x[kept]), (tensor(y[kept])[:, None] - shift) / scale, covar_module=model.covar_module,
        mean_module=model.mean_module, likelihood=model.likelihood, outcome_transform=None,
    ).eval()  # fmt: skip
    with torch.no_grad():
        told = smaller.posterior(tensor(x[[some]]), observation_noise=True)
    assert float(mean[some]) == pytest.approx(float(told.mean) * scale + shift, rel=1e-4)
    assert float(variance[some]) == pytest.approx(float(told.variance) * scale**2, rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_the_gain_over_a_known_front_is_botorchs_expected_hypervolume_improvement(seed: int) -> None:
    rng = np.random.default_rng(seed)
    front_cost, front_value = rng.uniform(0.0, 1.0, (2, 8))
    cost = np.sort(rng.uniform(0.0, 1.0, 40))
    mean, sd = rng.uniform(-0.2, 1.2, 40), rng.uniform(0.01, 0.5, 40)
    ours = Strips.of(front_cost, front_value, cost_limit=1.1, value_limit=1.05).gain(cost, mean, sd)

    reference = torch.tensor([-1.1, -1.05], dtype=torch.float64)
    boxes = NondominatedPartitioning(ref_point=reference, Y=-tensor(np.stack([front_cost, front_value], axis=1)))
    theirs = []
    for each in range(len(cost)):
        # The cost is certain: a spread of a millionth stands for none.
        said = MockPosterior(
            mean=-tensor(np.array([[cost[each], mean[each]]])), variance=tensor(np.array([[1e-12, sd[each] ** 2]]))
        )
        acquisition = ExpectedHypervolumeImprovement(
            model=MockModel(said), ref_point=reference.tolist(), partitioning=boxes
        )
        theirs.append(float(acquisition(torch.zeros(1, 1, 2, dtype=torch.float64))))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Two processes over the same candidates, a cost for each, and limits."""

    rows: Floats
    cost: Floats
    anchors: Floats
    anchor_cost: Floats
    latency: GaussianProcess
    recovery: GaussianProcess
    limits: dict[str, float]

    @classmethod
    def of(cls, seed: int) -> Problem:
        rng = np.random.default_rng(seed)
        x, y = measured(14, seed)
        rows = rng.random((300, DIMS))
        return cls(
            rows=rows,
            cost=rows @ np.array([0.8, 0.5, 0.2]) + 0.1,
            anchors=x,
            anchor_cost=x @ np.array([0.8, 0.5, 0.2]) + 0.1,
            latency=GaussianProcess.fit(x, y),
            recovery=GaussianProcess.fit(x, -x[:, 0] + 0.5 * x[:, 2] + 0.05 * rng.standard_normal(len(x))),
            limits={LATENCY: float(np.quantile(y, 0.8)), RECOVERY: -0.2},
        )

    def ours(self, samples: int, seed: int) -> tuple[Floats, float]:
        """The gain of every row, and the cost up to which the front counts."""
        views: dict[str, View] = {LATENCY: self.latency, RECOVERY: self.recovery}
        search = Search(
            views,
            self.limits,
            objective=LATENCY,
            places=self.rows,
            log_cost=self.cost,
            anchor_places=self.anchors,
            anchor_log_cost=self.anchor_cost,
            seed=seed,
        )
        half = np.random.default_rng(seed).standard_normal((samples // 2, 2, len(self.anchors)))
        gain = search._gain(np.arange(len(self.rows)), [], np.concatenate([half, -half]))
        return gain, search._cost_limit

    def botorch(self, cost_limit: float, samples: int) -> Floats:
        model = Ensembles(*([(twin(process), 1.0)] for process in (self.latency, self.recovery)))
        acquisition = improvement(
            model,
            tensor(np.column_stack([self.anchors, self.anchor_cost])),
            reference=torch.tensor([-cost_limit, -self.limits[LATENCY]], dtype=torch.float64),
            log_limits=(self.limits[LATENCY], self.limits[RECOVERY]),
            samples=samples,
            seed=0,
        )
        with torch.no_grad():
            values = acquisition(tensor(np.column_stack([self.rows, self.cost]))[:, None, :])
        return np.asarray(torch.exp(values).numpy(), dtype=np.float64)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_gain_conditioned_on_samples_is_botorchs_noisy_expected_hypervolume_improvement(seed: int) -> None:
    problem = Problem.of(seed)
    ours, cost_limit = problem.ours(2048, seed=1)
    again, _ = problem.ours(2048, seed=2)
    theirs = problem.botorch(cost_limit, 1024)
    off = np.abs(ours - theirs).max() / theirs.max()
    chance = np.abs(ours - again).max() / theirs.max()
    assert off < 0.03 + 2.0 * chance
    large = theirs > 0.05 * theirs.max()
    assert float(spearmanr(ours[large], theirs[large]).statistic) > 0.97


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_few_samples_of_a_suggestion_choose_a_row_that_botorch_finds_nearly_the_best(seed: int) -> None:
    problem = Problem.of(seed)
    ours, cost_limit = problem.ours(32, seed=1)
    theirs = problem.botorch(cost_limit, 1024)
    assert theirs[int(np.argmax(ours))] > 0.8 * theirs.max()
