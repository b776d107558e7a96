"""Honest evaluation: a fixed quota of whole episodes for every environment, so that short episodes are not favoured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from rlpyt.core import Actor, Agent, EvalResult
from rlpyt.logging import current_logger
from rlpyt.samplers.collector import ActingPart
from rlpyt.samplers.fleet_spec import NO_LIMIT, FleetSpec
from rlpyt.samplers.parts import Part
from rlpyt.samplers.stopwatch import Stopwatch
from rlpyt.types import TrajInfo

_PATIENCE = 1_000_000
"""Steps without the end of an episode, all environments together, after which an evaluation without a limit says so."""


class Evaluator:
    """Loop that runs an agent in evaluation environments of its own; one that has run its quota rests.

    Args:
        agent: acts.
        envs: the environments as one part, with rows of T = 1.
        actor: of these environments, for evaluation.
        env_quotas: episodes of every environment; None runs on until `max_T`.
        max_T: steps that each environment takes at most.
    """

    def __init__(self, agent: Agent, envs: Part, actor: Actor, env_quotas: Sequence[int | None], max_T: int) -> None:
        self.agent = agent
        self.envs = envs
        self._part = ActingPart(envs, actor, Stopwatch())
        self._quotas = np.array([NO_LIMIT if quota is None else quota for quota in env_quotas])
        self._max_T = max_T
        self._limited = self._quotas < NO_LIMIT
        self._seeds: Sequence[int] | None = None
        self._is_patient = max_T == NO_LIMIT  # until it has warned

    def start(self, seeds: Sequence[int]) -> None:
        """Set the seeds that the next evaluation resets its environments with."""
        self._seeds = list(seeds)

    @torch.no_grad()
    def evaluate(
        self, itr: int, on_progress: Callable[[int], None] = lambda done: None, deterministic: bool = False
    ) -> EvalResult:
        """Run every environment's quota of episodes; `start` comes before it.

        Args:
            itr: the iteration, which picks the stream of the actions.
            on_progress: told after every step how many episodes are done, or steps where only they are limited.
            deterministic: whether the agent takes the most probable action instead of a sampled one.
        """
        part, rows = self._part, self.envs.rows
        resting = rows.resting
        row_of = {rank: b for b, rank in enumerate(self.envs.ranks)}
        left, steps = self._quotas.copy(), np.zeros(len(self._quotas), np.int64)
        completed: list[TrajInfo] = []
        steps_at_last_end = 0
        part.actor.begin(itr, deterministic)
        resting[:] = False
        self.envs.reset(self._seeds)
        self._seeds = None
        resting[:] = left == 0
        with self.agent.compute.autocast(self.agent.device):
            while not resting.all():
                rows.begin()
                part.act(0)
                self.envs.send(0)
                for _, rank, traj_info in part.recv(0):
                    completed.append(traj_info)
                    left[row_of[rank]] -= 1
                    steps_at_last_end = int(steps.sum())
                steps += rows.valid[0]
                if self._is_patient and int(steps.sum()) - steps_at_last_end >= _PATIENCE:
                    self._warn_of_no_end(len(completed))
                resting[:] = (left == 0) | (steps >= self._max_T)
                on_progress(len(completed) if self._limited.all() else int(steps.sum()))
        return EvalResult(completed, int(steps.sum()), int(left[self._limited].sum() + (~self._limited).sum()))

    def _warn_of_no_end(self, n_completed: int) -> None:
        self._is_patient = False
        current_logger().warn(
            f"Evaluation: no episode has ended for {_PATIENCE:,} steps, and {n_completed} of {self._quotas.sum()} have "
            "in all; it goes on until all have. Where an environment does not end its episodes, give the sampler "
            "eval_max_steps (rlpyt.samplers.evaluate: max_steps), or the environment a time limit "
            "(gymnasium.wrappers.TimeLimit)."
        )


def start_evaluator(spec: FleetSpec, agent: Agent, part: Part) -> Evaluator:
    """Return the evaluator of a fleet."""
    actor = agent.actor(part.ranks, spec.global_B, spec.seed, evaluation=True)
    return spec.LoopCls(agent, part, actor, spec.quotas, spec.max_T)


SerialEvalCollector = CpuEvalCollector = GpuEvalCollector = Evaluator
"""Its names in rlpyt 0.1."""
