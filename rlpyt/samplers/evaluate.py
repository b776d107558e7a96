"""Evaluation of an agent without a sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rlpyt.core import Agent, EvalResult, example_inputs
from rlpyt.samplers.buffer import allocate_rows, example_of
from rlpyt.samplers.evaluator import Evaluator, start_evaluator
from rlpyt.samplers.fleet import Fleet
from rlpyt.samplers.fleet_spec import NO_LIMIT, FleetRole, FleetSpec, quotas
from rlpyt.types import Kwargs, TrajInfo
from rlpyt.utils.arguments import named_arguments
from rlpyt.utils.checks import whole_number
from rlpyt.utils.compute import have_images, torch_threads
from rlpyt.utils.processes import available_threads


@named_arguments
def evaluate(
    agent: Agent,
    EnvCls: Callable[..., Any],
    env_kwargs: Kwargs | None = None,
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
        agent: initialised for the environment's spaces; an agent in a run goes on there as without the evaluation.
        EnvCls: as a sampler's.
        env_kwargs: its arguments.
        n_trajectories: episodes, dealt evenly to the environments.
        n_envs: environments, all in this process.
        TrajInfoCls: the statistics of an episode.
        discount: of the trajectories' `DiscountedReturn`.
        seed: of environments and actions.
        deterministic: whether the agent takes the most probable action instead of a sampled one.
        max_steps: at most, all environments together; an episode that it cuts off is counted in `unfinished`. None is
            no limit.

    Returns:
        `traj_infos`, of whole episodes; `steps` taken; and `unfinished` episodes, which `max_steps` cut off.

    Raises:
        ValueError: if there is nothing to run.
    """
    n_trajectories = whole_number("evaluate", "n_trajectories", n_trajectories, 1)
    n_envs = min(whole_number("evaluate", "n_envs", n_envs, 1), n_trajectories)
    max_T = NO_LIMIT if max_steps is None else whole_number("evaluate", "max_steps", max_steps, n_envs) // n_envs
    spec = FleetSpec(
        role=FleetRole.EVAL,
        EnvCls=EnvCls,
        env_kwargs=env_kwargs,
        env_ranks=list(range(n_envs)),
        global_B=n_envs,
        seed=seed,
        LoopCls=Evaluator,
        TrajInfoCls=TrajInfoCls,
        traj_info_kwargs={"discount": discount},
        quotas=quotas(n_envs, n_trajectories),
        max_T=max_T,
    )
    fleet = Fleet(spec, was_checked=False)
    try:
        rows = allocate_rows(example_of(agent, fleet.built.spaces, None), 1, n_envs)
        evaluator = start_evaluator(spec, agent, fleet.part(rows))
        evaluator.start(spec.seeds(itr=1))
        # Torch begins with a thread for each core of the machine, also where this process was given fewer.
        most = min(torch.get_num_threads(), available_threads())
        with torch_threads(most if have_images(example_inputs(agent.env_spaces)[0]) else 1):
            return evaluator.evaluate(itr=1, deterministic=deterministic)
    finally:
        fleet.close()
