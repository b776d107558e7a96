"""Rainbow on an Atari game (Hessel et al. 2018): every part of it is a setting.

    python examples/rainbow_atari.py --game pong --n_steps 2e6
    python examples/rainbow_atari.py --game pong --without noisy categorical
    python examples/rainbow_atari.py --game pong --iqn --n_tau 8

Distributional (CategoricalDQN), double (double_dqn), prioritised (prioritized_replay), multi-step (n_step_return),
dueling and noisy (the model). `--without` leaves parts out, as the paper does; without noise, epsilon falls over
`--eps_steps`. `--iqn` takes implicit quantiles (Dabney et al. 2018) in the place of atoms. The replay keeps every frame
once: 7 KB a row, 1e6 rows are 7 GB. `--network small` is that of data-efficient Rainbow (van Hasselt et al. 2019,
arXiv:1906.05243), a sixteenth of the parameters. `--online` reports the training episodes and evaluates nothing. With a
run_ID the run saves a checkpoint every half hour; the same command, started again, goes on from the newest one.
"""

from __future__ import annotations

import argparse

from rlpyt.agents import AtariCatDqnAgent, AtariDqnAgent, DqnAgent, IqnAgent
from rlpyt.algos import DQN, IQN, CategoricalDQN
from rlpyt.envs import AtariEnv
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl, MinibatchRlEval
from rlpyt.samplers import AlternatingSampler, CpuSampler, GpuSampler, SerialSampler
from rlpyt.utils.compute import PRECISIONS, ComputeSettings

SAMPLERS = {"serial": SerialSampler, "cpu": CpuSampler, "gpu": GpuSampler, "alternating": AlternatingSampler}
PARTS = ("categorical", "double", "prioritized", "multi_step", "dueling", "noisy")
NETWORKS = {
    "nature": dict(channels=[32, 64, 64], kernel_sizes=[8, 4, 3], strides=[4, 2, 1], paddings=[0, 0, 0], fc_sizes=512),
    "small": dict(channels=[32, 64], kernel_sizes=[5, 5], strides=[5, 5], paddings=[0, 0], fc_sizes=256),
}


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="pong")
    parser.add_argument("--n_steps", type=float, default=10e6)
    parser.add_argument("--replay_size", type=float, default=1e6, help="rows; 7 KB each")
    parser.add_argument("--replay_folder", default=None, help="keep the replay in a file in this folder")
    parser.add_argument("--min_steps_learn", type=float, default=20_000)
    parser.add_argument("--learning_rate", type=float, default=6.25e-5)
    parser.add_argument("--adam_eps", type=float, default=1.5e-4)
    parser.add_argument("--target_update_interval", type=int, default=2_000, help="updates")
    parser.add_argument("--replay_ratio", type=float, default=8)
    parser.add_argument("--network", choices=list(NETWORKS), default="nature")
    parser.add_argument("--without", choices=PARTS, nargs="*", default=[], help="parts of Rainbow to leave out")
    parser.add_argument("--iqn", action="store_true", help="implicit quantiles in the place of atoms")
    parser.add_argument("--n_tau", type=int, default=64, help="fractions of IQN in updates; 8 cost an eighth")
    parser.add_argument("--eps_steps", type=float, default=250_000)
    parser.add_argument("--online", action="store_true", help="report training episodes instead of evaluating")
    parser.add_argument("--log_interval_steps", type=float, default=None, help="a twentieth of n_steps")
    parser.add_argument("--sample_mode", choices=list(SAMPLERS), default="serial")
    parser.add_argument("--precision", choices=PRECISIONS, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/rainbow_atari")
    parser.add_argument("--run_ID", default=None, help="name of the run, which goes on when it is started again")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    sampler = SAMPLERS[args.sample_mode](
        EnvCls=AtariEnv,
        env_kwargs=dict(game=args.game),
        eval_env_overrides=dict(episodic_lives=False, clip_reward=False),
        batch_T=4,
        batch_B=4 if args.smoke else 8,
        max_decorrelation_steps=20 if args.smoke else 1_000,
        eval_n_envs=1 if args.smoke else 2,
        eval_max_trajectories=1 if args.smoke else 10,
        eval_max_steps=40 if args.smoke else 125_000,
    )
    has = {part: part not in args.without for part in PARTS}
    AlgoCls: type[DQN] = CategoricalDQN if has["categorical"] else DQN
    AgentCls: type[DqnAgent] = AtariCatDqnAgent if has["categorical"] else AtariDqnAgent
    network = dict(dueling=has["dueling"], noisy=has["noisy"], **NETWORKS["small" if args.smoke else args.network])
    if args.iqn:
        AlgoCls, AgentCls = IQN, IqnAgent
        network["n_tau"] = args.n_tau
    algo = AlgoCls(
        batch_size=32,
        replay_ratio=args.replay_ratio,
        replay_size=1_000 if args.smoke else int(args.replay_size),
        replay_folder=args.replay_folder,
        min_steps_learn=400 if args.smoke else args.min_steps_learn,
        learning_rate=args.learning_rate,
        optim_kwargs=dict(eps=args.adam_eps),
        target_update_interval=args.target_update_interval,
        n_step_return=3 if has["multi_step"] else 1,
        double_dqn=has["double"],
        prioritized_replay=has["prioritized"],
        pri_alpha=0.5,
        pri_beta_steps=args.n_steps,
        eps_steps=int(args.eps_steps),
    )
    agent = AgentCls(
        eps_init=0.0 if has["noisy"] else 1.0,
        eps_final=0.0 if has["noisy"] else 0.01,
        eps_eval=0.001,
        model_kwargs=network,
    )
    n_steps = 500 if args.smoke else args.n_steps
    settings = ComputeSettings(precision=args.precision, channels_last=True) if args.precision else None
    RunnerCls = MinibatchRl if args.online else MinibatchRlEval
    runner = RunnerCls(
        algo,
        agent,
        sampler,
        n_steps=n_steps,
        log_interval_steps=500 if args.smoke else args.log_interval_steps or n_steps // 20,
        seed=args.seed,
        settings=settings,
        checkpoint_interval_minutes=30 if args.run_ID else None,
    )
    name = f"rainbow_{args.game}"
    with logger_context(args.log_dir, args.run_ID, name, vars(args), resume="auto" if args.run_ID else False):
        runner.train()


if __name__ == "__main__":
    main()
