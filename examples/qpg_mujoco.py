"""SAC, TD3 or DDPG on a MuJoCo environment, or on any other with a Box of actions.

    python examples/qpg_mujoco.py --algo sac --env HalfCheetah-v5
    python examples/qpg_mujoco.py --algo droq --env Hopper-v5 --n_steps 1e5
    python examples/qpg_mujoco.py --replicas 2 --eval_beside

redq and droq are SAC with 20 updates a step: with ten networks of action values, two of them the target, or with two
that have dropout and layer normalisation. With several replicas each has an environment and a replay of its own. An
update averages the gradients of a batch in each, after one step of each. With --eval_beside another process evaluates
while training goes on. Needs pip install rlpyt[mujoco].
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium

from rlpyt.agents import DdpgAgent, QpgAgent, SacAgent, Td3Agent
from rlpyt.algos import DDPG, SAC, TD3, QpgAlgo
from rlpyt.logging import logger_context
from rlpyt.runners import SyncRlEval
from rlpyt.samplers import CpuSampler, SerialSampler

ALGOS = ("sac", "td3", "ddpg", "redq", "droq")


def make(name: str, min_steps_learn: int) -> tuple[QpgAlgo, QpgAgent]:
    """Return algorithm and agent: those of REDQ and DroQ as in their papers, the others with usual settings.

    REDQ's authors also have a target entropy of their own for each task.
    """
    often: dict[str, Any] = dict(replay_ratio=20 * 256, policy_update_interval=20, min_steps_learn=min_steps_learn)
    if name == "redq":
        return SAC(**often, n_target_q=2, q_of_policy="mean"), SacAgent(n_q=10)
    if name == "droq":
        return SAC(**often, q_of_policy="mean"), SacAgent(q_model_kwargs=dict(dropout=0.01, layer_norm=True))
    if name == "td3":
        sizes = dict(hidden_sizes=(256, 256))
        return (
            TD3(batch_size=256, replay_ratio=256, min_steps_learn=min_steps_learn),
            Td3Agent(model_kwargs=sizes, q_model_kwargs=sizes),
        )
    if name == "ddpg":
        return DDPG(learning_rate=1e-3, target_update_tau=0.005, min_steps_learn=min_steps_learn), DdpgAgent()
    return SAC(q_learning_rate=1e-3, alpha_learning_rate=1e-3, min_steps_learn=min_steps_learn), SacAgent()


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", choices=ALGOS, default="sac")
    parser.add_argument("--env", default="HalfCheetah-v5", help="gymnasium id")
    parser.add_argument("--n_steps", type=float, default=1e6)
    parser.add_argument("--min_steps_learn", type=float, default=10_000, help="random steps before the first update")
    parser.add_argument("--sample_mode", choices=["serial", "cpu"], default="serial")
    parser.add_argument("--replicas", type=int, default=1, help="processes that train one agent together")
    parser.add_argument("--eval_beside", action="store_true", help="evaluate in a process of its own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/qpg_mujoco")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    n_steps = 520 if args.smoke else args.n_steps
    SamplerCls = {"serial": SerialSampler, "cpu": CpuSampler}[args.sample_mode]
    sampler = SamplerCls(
        EnvCls=gymnasium.make,
        env_kwargs=dict(id=args.env),
        batch_T=1,
        batch_B=1,
        eval_n_envs=1 if args.smoke else 5,
        eval_max_trajectories=1 if args.smoke else 10,
    )
    algo, agent = make(args.algo, 500 if args.smoke else int(args.min_steps_learn))
    runner = SyncRlEval(
        algo,
        agent,
        sampler,
        n_steps=n_steps,
        log_interval_steps=n_steps // (1 if args.smoke else 20),
        seed=args.seed,
        n_replicas=args.replicas,
        eval_beside=args.eval_beside,
    )
    with logger_context(args.log_dir, name=f"{args.algo}_{args.env}", log_params=vars(args)):
        runner.train()


if __name__ == "__main__":
    main()
