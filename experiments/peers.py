"""Learning curves of sb3-contrib beside those of `experiments.figures`, with the settings of `rlpyt train`.

    python -m experiments.peers recurrent_ppo popgym:popgym-CountRecallEasy-v0 --n-steps 1e6 --figure count_recall
    python -m experiments.peers crossq HalfCheetah-v5 --n-steps 1e5 --figure halfcheetah_100k

It needs `pip install sb3-contrib popgym "gymnasium[mujoco]"`, and nothing of rlpyt. The log is that of a run, in the
folder from which `python -m experiments.figures FIGURE --report` takes finished runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

DATA = Path(__file__).resolve().parent.parent / "data/figures"
N_ROWS, N_EPISODES = 50, 10


def recurrent_ppo(env: Any, seed: int) -> Any:
    """Return PPO with one LSTM for policy and value, of as many units as that of `ppo_lstm`."""
    from sb3_contrib import RecurrentPPO

    return RecurrentPPO(
        "MlpLstmPolicy",
        env,
        learning_rate=lambda left: 1e-3 * left,
        n_steps=64,
        batch_size=128,
        n_epochs=10,
        gamma=0.98,
        gae_lambda=0.98,
        ent_coef=0.01,
        policy_kwargs=dict(lstm_hidden_size=256, shared_lstm=True, enable_critic_lstm=False),
        seed=seed,
        device="cpu",
    )


def crossq(env: Any, seed: int) -> Any:
    """Return CrossQ with action values of 256 units a layer, as that of `crossq`."""
    from sb3_contrib import CrossQ

    sizes = dict(pi=[256, 256], qf=[256, 256])
    return CrossQ("MlpPolicy", env, learning_starts=5_000, policy_kwargs=dict(net_arch=sizes), seed=seed, device="cpu")


PEERS = {"recurrent_ppo": (recurrent_ppo, 8, False), "crossq": (crossq, 1, True)}
"""Name -> what makes the learner, environments to collect from, and whether evaluations take the most probable action:
in runs of rlpyt those of SAC do, and those of PPO draw."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and write the log of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=list(PEERS))
    parser.add_argument("env")
    parser.add_argument("--n-steps", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", required=True, help="of experiments.figures, whose folder gets the log")
    args = parser.parse_args(arguments)
    from gymnasium.wrappers import FlattenObservation
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)
    make, n_envs, deterministic = PEERS[args.peer]

    def environments(seed: int, n_envs: int) -> Any:
        # Observations that are several numbers to choose from are not taken by the LSTM as they are.
        return make_vec_env(args.env, seed=seed, n_envs=n_envs, wrapper_class=FlattenObservation)

    beside = environments(args.seed + 1_000, 1)
    rows = ["Diagnostics/CumSteps,ReturnAverage"]

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps // n_envs % (int(args.n_steps) // (n_envs * N_ROWS)) == 0:
                return_, _ = evaluate_policy(self.model, beside, N_EPISODES, deterministic=deterministic)
                rows.append(f"{self.num_timesteps},{return_}")
                print(rows[-1], flush=True)
            return True

    make(environments(args.seed, n_envs), args.seed).learn(int(args.n_steps), callback=Watch())
    folder = DATA / args.figure / f"sb3_{args.peer}" / f"run_{args.seed}"
    folder.mkdir(parents=True)
    (folder / "progress.csv").write_text("\n".join(rows) + "\n")
    (folder / "params.json").write_text(json.dumps({"seed": args.seed}))
    (folder / "status.json").write_text(json.dumps({"status": "finished"}))


if __name__ == "__main__":
    main()
