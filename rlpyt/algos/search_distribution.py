"""Search distribution of CMA-ES by the package `cmaes`, with a state of plain data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from rlpyt.types import StateDict
from rlpyt.utils.packages import optional_package
from rlpyt.utils.seeds import checked_position

FULL_COVARIANCE_LIMIT = 2000
"""Parameters up to which a full covariance matrix is adapted: memory grows with their square, time with their cube."""


def covariance_bytes(n_parameters: int, population_size: int) -> int:
    """Return the memory that an update of a full covariance matrix takes: matrices of float64, two an individual."""
    return 8 * n_parameters**2 * (2 * population_size + 8)


class SearchDistribution:
    """Normal distribution N(mean, sigma^2 C) that individuals are drawn from, and that moves to the fitter of them.

    Source: Hansen 2016, arXiv:1604.00772; with `separable`, where C is diagonal, Ros and Hansen 2008.

    Args:
        mean: [D] float64, at the start.
        sigma: step size at the start.
        population_size: N, individuals of a generation.
        seed: of the individuals.
        separable: as the setting of `CMAES`.
        weight_func: as the setting of `CMAES`.
    """

    def __init__(
        self,
        mean: np.ndarray,
        sigma: float,
        population_size: int,
        seed: int,
        separable: bool,
        weight_func: Callable[[int], float] | None = None,
    ) -> None:
        cmaes = optional_package("cmaes", "CMAES", "cmaes")
        if not separable and len(mean) > FULL_COVARIANCE_LIMIT:
            gigabytes = covariance_bytes(len(mean), population_size) / 1e9
            raise ValueError(
                f"CMAES: the model has {len(mean):,} parameters, and an update of their covariance matrix would take "
                f"{gigabytes:,.1f} GB; expected at most {FULL_COVARIANCE_LIMIT:,}. Set separable=True, which adapts "
                "its diagonal, or take a smaller model."
            )
        Cma = cmaes.SepCMA if separable else cmaes.CMA
        self._cma = Cma(mean=mean, sigma=sigma, seed=seed, population_size=population_size)
        vars(self._cma)["_funhist_values"][:] = 0.0  # else memory as it was found, which two states would differ in
        self._covariance_rates = vars(self._cma)["_c1"], vars(self._cma)["_cmu"]
        if weight_func is not None:
            weights = _weights(weight_func, population_size)
            _set(self._cma, _weights=weights, _mu=population_size, _mu_eff=float(1 / (weights**2).sum()))

    @property
    def mean(self) -> np.ndarray:
        """Mean [D]."""
        return self._cma.mean

    @property
    def sigma(self) -> float:
        """Step size."""
        return float(vars(self._cma)["_sigma"])

    @property
    def generation(self) -> int:
        """Generations that were told."""
        return self._cma.generation

    def ask(self) -> np.ndarray:
        """Return the individuals [N, D] of a generation."""
        return np.stack([self._cma.ask() for _ in range(self._cma.population_size)])

    def tell(
        self, individuals: np.ndarray, fitness: np.ndarray, mean_rate: float = 1.0, covariance_rate: float = 1.0
    ) -> None:
        """Move to the fitter individuals.

        Args:
            individuals: [N, D], as `ask` returned them.
            fitness: [N], higher is better; the package minimises.
            mean_rate: c_m; see the setting of `CMAES`.
            covariance_rate: factor of c_1 and c_mu.
        """
        c1, cmu = self._covariance_rates
        _set(self._cma, _cm=mean_rate, _c1=c1 * covariance_rate, _cmu=cmu * covariance_rate)
        self._cma.tell([(x, -float(f)) for x, f in zip(individuals, fitness, strict=True)])

    def state_dict(self) -> StateDict:
        """Return all numbers of the distribution, and its random stream."""
        attributes = {name: _plain(value) for name, value in vars(self._cma).items() if name != "_rng"}
        name, keys, pos, has_gauss, cached = vars(self._cma)["_rng"].get_state()
        return {"attributes": attributes, "stream": (str(name), keys.copy(), int(pos), int(has_gauss), float(cached))}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the result of `state_dict`; refuse that of another class or version of the package."""
        own, saved = vars(self._cma), state_dict["attributes"]
        if own.keys() - {"_rng"} != saved.keys():
            raise ValueError(
                f"CMAES: the state has {sorted(saved)} of a search distribution; expected "
                f"{sorted(own.keys() - {'_rng'})}. Load it with the same setting of separable, and with the version "
                "of the package cmaes that saved it."
            )
        for name in ("_n_dim", "_popsize"):
            if saved[name] != own[name]:
                raise ValueError(
                    f"CMAES: the state of a search distribution has {name} {saved[name]}; expected {own[name]}. Load "
                    "it with the model and the settings of the run that saved it."
                )
        own.update({name: _plain(value) for name, value in saved.items()})
        name, keys, pos, *gauss = state_dict["stream"]
        own["_rng"].set_state((name, np.asarray(keys), checked_position(pos), *gauss))


def _set(cma: object, **numbers: object) -> None:
    for name, x in numbers.items():
        setattr(cma, name, x)


def _weights(weight_func: Callable[[int], float], n: int) -> np.ndarray:
    """Return the weights [n] of individuals from the fittest on, whose sum is 1."""
    weights = np.array([float(weight_func(rank)) for rank in range(n, 0, -1)])
    if not (np.isfinite(weights).all() and weights[0] > 0 and weights[-1] >= 0 and (np.diff(weights) <= 0).all()):
        raise ValueError(
            f"CMAES: weight_func gave {weights[::-1].tolist()} for the ranks 1 to {n}, of which {n} is the fittest; "
            "expected numbers from 0 that do not fall with the rank, and one above 0. Give such as "
            "lambda rank: rank**2."
        )
    total: np.ndarray = weights / weights.sum()
    return total


def _plain(value: object) -> object:
    """Return a copy of an array, as which a file gives a tensor; of a number of numpy the same one of Python."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return np.asarray(value).copy()
    return value.item() if isinstance(value, np.generic) else value
