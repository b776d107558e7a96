"""The sampler without workers: agent and environments in the master's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlpyt.core import Agent, EvalResult
from rlpyt.samplers.base import BaseSampler
from rlpyt.samplers.collector import Collector
from rlpyt.samplers.env_set import EnvSet, check_one, columns_of, in_order, start_collector, start_envs, start_evaluator
from rlpyt.types import Run, Samples, TrajInfo


class SerialSampler(BaseSampler):
    """Steps all environments in this process; the easiest to debug, and the fastest for one cheap environment.

    Where EnvCls makes a vector environment (it takes `num_envs`), one native call steps all environments of a part.

    Args:
        n_parts: batches into which the environments are dealt; while one steps, the other gets its actions. Worth 2
            with native environments, which step in threads of their own.
        *args: see `BaseSampler`.
        **kwargs: see `BaseSampler`.
    """

    def __init__(self, *args: Any, n_parts: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        n_parts = self._whole("n_parts", n_parts)
        if n_parts > self.batch_spec.B:
            raise ValueError(
                f"{type(self).__name__}: n_parts is {n_parts}; expected 1 to batch_B, {self.batch_spec.B}: every part "
                "needs an environment."
            )
        self.n_parts = n_parts
        if n_parts > 1:
            self.acting_threads = self.acting_threads or 1  # the other cores are for the environments' own threads
        self._env_sets: list[EnvSet] = []

    def initialize(self, agent: Agent, run: Run | None = None) -> Samples:
        """Build and check environments, initialise the agent, allocate the batch; return one row as an example."""
        run = run or Run(batch_spec=self.batch_spec)
        plan = self.make_plan(run)
        first, *others = plan.deal(self.n_parts)
        first = first._replace(eval_env_ranks=plan.eval_env_ranks, eval_quotas=plan.eval_quotas)
        check = check_one(first)
        for part in (first, *(p._replace(eval_env_ranks=[], eval_quotas=[]) for p in others)):
            self._env_sets.append(EnvSet(part))
            self._env_sets[-1].built.check_spaces(check.examples.spaces)
        example = self.make_example(agent, check.examples, plan)
        rows, eval_rows = self._allocate(example, run.bootstrap_value, share_memory=False)
        parts = []
        for env_set, columns in zip(self._env_sets, columns_of(rows, [s.plan for s in self._env_sets]), strict=True):
            parts.append(env_set.training_envs(columns, check))
            start_envs(env_set.plan, parts[-1])
        self._collector: Collector = start_collector(plan, agent, parts)
        if eval_rows is not None:
            self._evaluator = start_evaluator(plan, agent, self._env_sets[0].evaluation_envs(eval_rows))
        return example

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        """Collect one batch; see `rlpyt.core.Sampler.obtain_samples`."""
        self._check_running(self._env_sets)
        with self._threads():
            completed = self._collector.collect_batch(itr)
        self._collector.wake()
        self._collector.stopwatch.lap("environments")
        return self._samples, in_order([completed])

    def evaluate_agent(self, itr: int, deterministic: bool = False) -> EvalResult:
        """Run whole episodes in the evaluation environments; see `rlpyt.core.Sampler.evaluate_agent`."""
        self._check_running(self._env_sets)
        self._check_evaluates()
        return self._run_evaluation(self._evaluator, itr, deterministic)

    def shutdown(self) -> None:
        """Close the environments."""
        env_sets, self._env_sets = self._env_sets, []
        for env_set in env_sets:
            env_set.close()

    def state_dict(self) -> dict[str, Any]:
        """Return where environments, streams and recurrent states stand."""
        self._check_running(self._env_sets)
        return {"collectors": [self._collector.state_dict()]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._check_running(self._env_sets)
        self._collector.load_state_dict(state_dict["collectors"][0])

    def _times(self) -> dict[str, float]:
        return self._collector.stopwatch.take()
