"""The sampler without workers: agent and environments in the master's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlpyt.core import Agent, EvalResult
from rlpyt.samplers.base import BaseSampler, in_order, make_envs, start_collector, start_evaluator
from rlpyt.samplers.buffer import allocate_rows, samples_of
from rlpyt.types import Samples, TrajInfo


class SerialSampler(BaseSampler):
    """Steps all environments in this process; the easiest to debug, and the fastest for one cheap environment."""

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
        self._env_set = make_envs(plan)
        example = self.make_example(agent, self._env_set.examples, plan)
        rows = allocate_rows(example, *self.batch_spec, bootstrap_value)
        self._samples = samples_of(rows)
        self._collector = start_collector(plan, self._env_set, agent, rows)
        self._evaluator = start_evaluator(plan, self._env_set, agent)
        return example

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Collect one batch; see `rlpyt.core.Sampler.obtain_samples`."""
        return self._samples, in_order([self._collector.collect_batch(itr)])

    def evaluate_agent(self, itr: int) -> EvalResult:
        """Run whole episodes in the evaluation environments."""
        if self._evaluator is None:
            raise RuntimeError(
                f"{type(self).__name__}: evaluation was asked for, but eval_n_envs is 0; set it above 0."
            )
        return self._evaluator.evaluate(itr)

    def shutdown(self) -> None:
        """Close the environments."""
        env_set = self.__dict__.pop("_env_set", None)
        if env_set is not None:
            for env in env_set.envs + env_set.eval_envs:
                env.close()

    def state_dict(self) -> dict[str, Any]:
        """Return where environments, streams and recurrent states stand."""
        return {"collectors": [self._collector.state_dict()]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._collector.load_state_dict(state_dict["collectors"][0])
