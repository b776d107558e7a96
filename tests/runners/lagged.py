"""Sampler of one process that acts by old weights: the reference of the samplers that work in the background."""

from __future__ import annotations

import copy
from typing import Any

import torch

from rlpyt.core import EvalResult
from rlpyt.samplers import SerialSampler
from rlpyt.types import Run, Samples, TrajInfo


class LaggedSampler(SerialSampler):
    """Keeps the weights and numbers after every iteration, and collects batch i + lag with those after i."""

    lag = 1

    def initialize(self, agent: Any, run: Run | None = None) -> Samples:
        self.learner, self.actor_agent = agent, copy.deepcopy(agent)
        self.versions: list[Any] = []
        state = torch.get_rng_state()
        example = super().initialize(self.actor_agent, run)
        torch.set_rng_state(state)  # the learner's weights are the first that are drawn
        agent.initialize(self.actor_agent.env_spaces)
        return example

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        self.versions.append(self._now())
        self._act_by(self.versions[max(0, itr - self.lag)])
        return super().obtain_samples(itr)

    def evaluate_agent(self, itr: int, deterministic: bool = False) -> EvalResult:
        self._act_by(self._now())
        return super().evaluate_agent(itr, deterministic)

    def _now(self) -> Any:
        return copy.deepcopy(self.learner.networks.acting_modules().state_dict())

    def _act_by(self, version: Any) -> None:
        self.actor_agent.networks.acting_modules().load_state_dict(version)


def with_lag(lag: int) -> type[LaggedSampler]:
    return type("LaggedSampler", (LaggedSampler,), {"lag": lag})
