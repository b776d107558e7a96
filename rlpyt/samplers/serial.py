"""The sampler without workers: agent and environments in the master's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlpyt.core import Agent, EvalResult
from rlpyt.samplers.base import BaseSampler, EnvSet, in_order, make_envs, start_collector, start_evaluator
from rlpyt.samplers.buffer import allocate_rows, samples_of
from rlpyt.types import Samples, TrajInfo


class SerialSampler(BaseSampler):
    """Steps all environments in this process; the easiest to debug, and the fastest for one cheap environment."""

    _env_set: EnvSet | None = None

    def initialize(
        self,
        agent: Agent,
        affinity: Mapping[str, Any] | None = None,
        seed: int = 0,
        bootstrap_value: bool = False,
        traj_info_kwargs: Mapping[str, Any] | None = None,
        world_size: int = 1,
        rank: int = 0,
    ) -> Samples:
        """Build and check environments, initialise the agent, allocate the batch; return one row as an example."""
        plan = self.make_plan(seed, traj_info_kwargs, world_size, rank)
        self._env_set = env_set = make_envs(plan)
        example = self.make_example(agent, env_set.examples, plan)
        rows = allocate_rows(example, *self.batch_spec, bootstrap_value)
        self._samples = samples_of(rows)
        self._collector = start_collector(plan, env_set, agent, rows)
        self._evaluator = start_evaluator(plan, env_set, agent)
        return example

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Collect one batch; see `rlpyt.core.Sampler.obtain_samples`."""
        self._check_running(self._env_set)
        return self._samples, in_order([self._collector.collect_batch(itr)])

    def evaluate_agent(self, itr: int) -> EvalResult:
        """Run whole episodes in the evaluation environments."""
        self._check_running(self._env_set)
        if self._evaluator is None:
            raise RuntimeError(
                f"{type(self).__name__}: evaluation was asked for, but eval_n_envs is 0; set it above 0."
            )
        return self._evaluator.evaluate(itr)

    def shutdown(self) -> None:
        """Close the environments."""
        env_set, self._env_set = self._env_set, None
        if env_set is not None:
            env_set.close()

    def state_dict(self) -> dict[str, Any]:
        """Return where environments, streams and recurrent states stand."""
        self._check_running(self._env_set)
        return {"collectors": [self._collector.state_dict()]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._check_running(self._env_set)
        self._collector.load_state_dict(state_dict["collectors"][0])
