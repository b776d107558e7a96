"""Evaluation of an agent without a sampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlpyt.core import EvalResult
from rlpyt.samplers.buffer import allocate_rows, example_of
from rlpyt.samplers.collector import Collector
from rlpyt.samplers.env_set import EnvSet, Plan, start_evaluator
from rlpyt.samplers.evaluator import NO_LIMIT, Evaluator, quotas
from rlpyt.types import TrajInfo
from rlpyt.utils.checks import whole_number


def evaluate(
    agent: Any,
    EnvCls: Callable[..., Any],
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    n_trajectories: int = 100,
    n_envs: int = 10,
    TrajInfoCls: Callable[..., TrajInfo] = TrajInfo,
    discount: float = 1.0,
    seed: int = 0,
    deterministic: bool = False,
    max_steps: int | None = None,
) -> EvalResult:
    """Run whole episodes of an agent that was trained or loaded, without a sampler.

        agent.initialize(make_env(EnvCls, env_kwargs).spaces)
        agent.load_state_dict(load_snapshot(path)["agent_state_dict"])
        evaluate(agent, EnvCls, env_kwargs)

    Args:
        agent: initialised for the environment's spaces; one that is in a run goes on there as if nothing had been.
        EnvCls: as a sampler's.
        env_kwargs: its arguments.
        n_trajectories: episodes, dealt evenly to the environments.
        n_envs: environments, all in this process.
        TrajInfoCls: the statistics of an episode.
        discount: of the trajectories' `DiscountedReturn`.
        seed: of environments and actions.
        deterministic: whether the agent takes the most probable action instead of a sampled one.
        max_steps: at most, all environments together; what it cuts off is counted in `unfinished`. None is no limit.

    Returns:
        `traj_infos`, of whole episodes; `steps` taken; and `unfinished` episodes, those that `max_steps` cut off.

    Raises:
        ValueError: if there is nothing to run.
    """
    n_trajectories = whole_number("evaluate", "n_trajectories", n_trajectories, 1)
    n_envs = min(whole_number("evaluate", "n_envs", n_envs, 1), n_trajectories)
    max_T = NO_LIMIT if max_steps is None else whole_number("evaluate", "max_steps", max_steps, n_envs) // n_envs
    plan = Plan(
        EnvCls=EnvCls,
        env_kwargs={},
        eval_env_kwargs=dict(env_kwargs or {}),
        CollectorCls=Collector,
        EvaluatorCls=Evaluator,
        TrajInfoCls=TrajInfoCls,
        traj_info_kwargs={"discount": discount},
        env_info_keys=(),
        max_decorrelation_steps=0,
        mid_batch_reset=True,
        seed=seed,
        global_B=0,
        env_ranks=[],
        eval_global_B=n_envs,
        eval_env_ranks=list(range(n_envs)),
        eval_quotas=quotas(n_envs, n_trajectories),
        eval_max_T=max_T,
    )
    env_set = EnvSet(plan)
    try:
        rows = allocate_rows(example_of(agent, env_set.built.spaces, None), 1, n_envs, bootstrap_value=False)
        return start_evaluator(plan, agent, env_set.evaluation_envs(rows)).evaluate(itr=1, deterministic=deterministic)
    finally:
        env_set.close()
