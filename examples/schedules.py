"""Every hyper-parameter that may change during a run, as a function of the step: CartPole-v1, or Pendulum-v1.

    python examples/schedules.py --algo ppo
    python examples/schedules.py --algo sac --n_steps 20000

A schedule is any callable of the step, which counts the rows of all environments. `algo.hyper(step)` says what the
settings are at a step; the script prints a table of them. The numbers show the form, and were not tuned.
docs/howto/own_algorithm.md lists which settings take a schedule, and why the others do not.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium

from rlpyt.agents import CategoricalPgAgent, DqnAgent, PopulationAgent, PqnAgent, R2d1Agent, SacAgent, Td3Agent
from rlpyt.algos import CMAES, DQN, PPO, PQN, R2D1, SAC, TD3, RlAlgorithm, VTrace
from rlpyt.functional import Cosine, Exponential, Linear, Piecewise
from rlpyt.logging import logger_context
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler

EVERY: dict[str, Any] = dict(
    discount=Linear(0.95, 0.99),  # over the run; with steps=10_000 over the first 10,000
    learning_rate=Cosine(1e-3, 1e-4, warmup_steps=200),
    clip_grad_norm=lambda step: 1.0 if step < 5_000 else 0.5,  # a function of one's own
)
POLICY_GRADIENT: dict[str, Any] = dict(
    **EVERY,
    value_loss_coeff=Linear(1.0, 0.5),
    entropy_loss_coeff=Exponential(0.02, 0.001),
    gae_lambda=Linear(1.0, 0.95),
    reward_clip=Linear(5.0, 10.0),
    normalize_reward=True,
)
REPLAY: dict[str, Any] = dict(
    **EVERY,
    replay_ratio=Linear(4.0, 2.0),
    target_update_tau=Linear(0.02, 0.005),
    target_update_interval=Linear(1, 4),  # what is counted is rounded
    pri_alpha=Linear(0.6, 0.4),
    pri_beta=Linear(0.4, 1.0),
    pri_eta=Linear(0.5, 0.9),  # of sequences alone, as R2D1 takes them
    prioritized_replay=True,
    min_steps_learn=200,
    batch_size=Linear(32, 64),
    replay_size=50_000,
)
CONTINUOUS: dict[str, Any] = dict(
    **REPLAY,
    q_learning_rate=Cosine(1e-3, 3e-4),
    q_target_clip=Linear(500.0, 2_000.0),
    policy_update_interval=Piecewise([0, 5_000], [1, 2], interpolation="step"),
    reset_interval=Linear(5_000, 10_000),
)
ALGORITHMS: dict[str, Any] = dict(
    ppo=lambda: PPO(
        **POLICY_GRADIENT,
        epochs=Piecewise([0, 4_000], [4, 8], interpolation="step"),
        ratio_clip=Linear(0.3, 0.1),
        value_clip=Linear(2.0, 1.0),
        target_kl=Linear(0.05, 0.02),
    ),
    vtrace=lambda: VTrace(
        **POLICY_GRADIENT, rho_bar=Linear(1.5, 1.0), c_bar=Linear(1.5, 1.0), pg_rho_bar=Linear(1.5, 1.0)
    ),
    pqn=lambda: PQN(**EVERY, q_lambda=Linear(0.9, 0.65), epochs=Linear(4, 2), minibatches=4),
    dqn=lambda: DQN(
        **REPLAY,
        delta_clip=Linear(10.0, 1.0),
        munchausen=Linear(0.0, 0.9),
        munchausen_tau=Exponential(0.3, 0.03),
        eps_schedule=lambda step: min(1.0, step / 5_000),  # how far exploration has gone, from 0 to 1
    ),
    r2d1=lambda: R2D1(**REPLAY, batch_T=8, warmup_T=4, store_rnn_state_interval=4, batch_B=Linear(4, 8)),
    td3=lambda: TD3(**CONTINUOUS),
    sac=lambda: SAC(
        **CONTINUOUS,
        reward_scale=Linear(0.1, 0.2),
        alpha_learning_rate=Linear(1e-3, 1e-4),
        target_entropy=Linear(-0.5, -1.0),
    ),
    sac_fixed_alpha=lambda: SAC(**CONTINUOUS, reward_scale=Linear(0.1, 0.2), fixed_alpha=Exponential(0.2, 0.02)),
    cmaes=lambda: CMAES(mean_rate=Linear(1.0, 0.3), covariance_rate=Linear(1.0, 0.5)),
)
AGENTS: dict[str, Any] = dict(
    ppo=CategoricalPgAgent,
    vtrace=CategoricalPgAgent,
    pqn=PqnAgent,
    dqn=DqnAgent,
    r2d1=lambda: R2d1Agent(eps_train=lambda step: max(0.05, 0.999**step)),  # epsilon itself
    td3=lambda: Td3Agent(action_std=Linear(0.3, 0.05), target_noise_std=Linear(0.3, 0.1)),
    sac=SacAgent,
    sac_fixed_alpha=SacAgent,
    cmaes=lambda: PopulationAgent(population_size=4),
)


def print_table(algo: RlAlgorithm[Any] | CMAES, n_steps: int) -> None:
    """Print what the scheduled settings are at the start, in the middle and at the end."""
    steps = 0, n_steps // 2, n_steps
    columns = [vars(algo.hyper(step)) for step in steps]
    print(f"{'at step':24}" + "".join(f"{step:12,}" for step in steps))
    for name in (name for name, value in columns[0].items() if value is not None):
        print(f"{name:24}" + "".join(f"{column[name]:12.4g}" for column in columns))


def main() -> None:
    """Read the options, train, and print what the settings were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", choices=list(ALGORITHMS), default="ppo")
    parser.add_argument("--n_steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", default="data/schedules")
    parser.add_argument("--smoke", action="store_true", help="a few seconds only")
    args = parser.parse_args()
    env = "Pendulum-v1" if args.algo in ("td3", "sac", "sac_fixed_alpha") else "CartPole-v1"
    on_policy = args.algo in ("ppo", "vtrace", "pqn", "cmaes")
    sampler = SerialSampler(gymnasium.make, dict(id=env), batch_T=32 if on_policy else 8, batch_B=4)
    algo = ALGORITHMS[args.algo]()
    n_steps = 512 if args.smoke else args.n_steps
    runner = MinibatchRl(
        algo=algo,
        agent=AGENTS[args.algo](),
        sampler=sampler,
        n_steps=n_steps,
        seed=args.seed,
        log_interval_steps=n_steps / 4,
    )
    with logger_context(args.log_dir, name=args.algo, log_params=vars(args)):
        runner.train()
        runner.plot()
    print_table(algo, n_steps)


if __name__ == "__main__":
    main()
