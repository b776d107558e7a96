"""Runs that are killed and started again, beside runs that are left alone: the numbers are the same, to the bit.

    python benchmarks/resume_matrix.py
    python benchmarks/resume_matrix.py --cases "sac" "pong, gpu"

A case is started three times. One start is left alone. Another one, in another directory, gets SIGKILL at a random
time after its first checkpoint. The third start goes on with it, until the run has as many iterations as the first.
Compared are `progress.csv`, but for columns of time, and the last checkpoint: weights and targets, optimisers, every
row of the replay and its priorities, environments, random streams, counters.

A start is a fork of this process, and so are the workers of samplers: neither has to import torch. `--commands` starts
commands, and workers by the forkserver.

Prints a table of the cases, with what differs first. Needs rlpyt[atari,mujoco] and dm-control.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import torch._dynamo  # noqa: F401  # torch imports it with its first optimiser
from resume_kit import Started, files_left, first_difference, steps_logged, steps_saved

from rlpyt.agents import (
    CatDqnAgent,
    CategoricalPgAgent,
    DdpgAgent,
    DqnAgent,
    GaussianPgAgent,
    IqnAgent,
    R2d1Agent,
    RecurrentCategoricalPgAgent,
    RecurrentSacAgent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import A2C, DDPG, DQN, IQN, PPO, R2D1, SAC, TD3, CategoricalDQN, VTrace
from rlpyt.envs import AtariEnv, dm_control_make
from rlpyt.logging import logger_context
from rlpyt.runners import AsyncRl, AsyncRlEval, MinibatchRl, MinibatchRlEval, SyncRl, SyncRlEval
from rlpyt.samplers import AlternatingSampler, CpuSampler, GpuSampler, SerialSampler
from rlpyt.utils.compute import ComputeSettings

T, B = 4, 4
REPLAY: dict[str, Any] = dict(min_steps_learn=200, replay_size=480)
PRIORITIES: dict[str, Any] = dict(prioritized_replay=True, pri_beta_steps=2_000)
DISCRETE: dict[str, Any] = dict(batch_size=16, replay_ratio=2, target_update_interval=7, eps_steps=1_500)
SEQUENCES: dict[str, Any] = dict(batch_T=8, batch_B=4, warmup_T=4, store_rnn_state_interval=4, target_update_interval=7)
CONV: dict[str, Any] = dict(channels=(4, 8), kernel_sizes=(8, 4), strides=(4, 2), paddings=(0, 0), fc_sizes=16)

ENVS: dict[str, tuple[Any, dict[str, Any]]] = {
    "cartpole": (gymnasium.make, dict(id="CartPole-v1")),
    "pong": (AtariEnv, dict(game="pong", image_size=42, horizon=45, repeat_action_probability=0.25)),
    "cheetah": (gymnasium.make, dict(id="HalfCheetah-v5", max_episode_steps=45)),
    "ant": (gymnasium.make, dict(id="Ant-v5", max_episode_steps=45)),
    "suite": (dm_control_make, dict(domain="cartpole", task="swingup", flatten=True, task_kwargs=dict(time_limit=0.5))),
}
SAMPLERS: dict[str, Any] = {
    "serial": SerialSampler,
    "cpu": partial(CpuSampler, n_workers=2),
    "gpu": partial(GpuSampler, n_workers=2),
    "alternating": partial(AlternatingSampler, n_workers=2),
}
RUNNERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "": (MinibatchRl, {}),
    "eval": (MinibatchRlEval, {}),
    "eval beside": (MinibatchRlEval, dict(eval_beside=True)),
    "2 replicas": (SyncRl, dict(n_replicas=2)),
    "2 replicas, eval": (SyncRlEval, dict(n_replicas=2)),
    "lag 1": (AsyncRl, dict(lag=1)),
    "lag 2": (AsyncRl, dict(lag=2)),
    "lag 1, eval": (AsyncRlEval, dict(lag=1)),
    "lag 1, 2 replicas": (AsyncRl, dict(lag=1, n_replicas=2)),
}


def body_of(env: str, **more: Any) -> dict[str, Any]:
    """Return the arguments of a small network."""
    return {**(CONV if env == "pong" else dict(hidden_sizes=16)), **more}


def policy_agent(env: str, **more: Any) -> Any:
    """Return a policy-gradient agent for the actions of an environment."""
    has_names = env in ("cartpole", "pong")
    return (CategoricalPgAgent if has_names else GaussianPgAgent)(model_kwargs=body_of(env, **more))


def ppo(env: str) -> tuple[Any, Any]:
    """Return PPO with normalised rewards, and on vectors with normalised observations."""
    statistics: dict[str, Any] = {} if env == "pong" else dict(normalize_observation=True)
    return PPO(minibatches=2, epochs=2, normalize_reward=True), policy_agent(env, **statistics)


def lstm_ppo(env: str) -> tuple[Any, Any]:
    agent = RecurrentCategoricalPgAgent(model_kwargs=body_of(env, rnn_size=16))
    return PPO(minibatches=2, epochs=2), agent


def a2c(env: str) -> tuple[Any, Any]:
    return A2C(), policy_agent(env)


def vtrace(env: str) -> tuple[Any, Any]:
    return VTrace(normalize_reward=True), policy_agent(env)


def dqn(env: str) -> tuple[Any, Any]:
    """Return DQN with priorities; its replay keeps every frame once."""
    return DQN(**REPLAY, **PRIORITIES, **DISCRETE), DqnAgent(model_kwargs=body_of(env))


def rainbow(env: str) -> tuple[Any, Any]:
    algo = CategoricalDQN(**REPLAY, **PRIORITIES, **DISCRETE, n_step_return=3, double_dqn=True)
    return algo, CatDqnAgent(n_atoms=11, model_kwargs=body_of(env, dueling=True, noisy=True))


def iqn(env: str) -> tuple[Any, Any]:
    return IQN(**REPLAY, **DISCRETE), IqnAgent(model_kwargs=body_of(env, n_tau=4, n_acting_tau=4, n_cosines=8))


def r2d1(env: str) -> tuple[Any, Any]:
    algo = R2D1(**REPLAY, **SEQUENCES, replay_ratio=3, eps_steps=1_500)
    return algo, R2d1Agent(model_kwargs=body_of(env, rnn_size=16))


def ddpg(env: str) -> tuple[Any, Any]:
    agent = DdpgAgent(
        action_noise_correlation=0.8, model_kwargs=dict(hidden_sizes=16), q_model_kwargs=dict(hidden_sizes=16)
    )
    return DDPG(**REPLAY, batch_size=16, replay_ratio=2), agent


def sac(env: str) -> tuple[Any, Any]:
    agent = SacAgent(model_kwargs=dict(hidden_sizes=16), q_model_kwargs=dict(hidden_sizes=16))
    return SAC(**REPLAY, batch_size=16, replay_ratio=2), agent


def lstm_sac(env: str) -> tuple[Any, Any]:
    agent = RecurrentSacAgent(
        model_kwargs=dict(hidden_sizes=16), q_model_kwargs=dict(hidden_sizes=16), feature_kwargs=dict(rnn_size=16)
    )
    sequences: dict[str, Any] = dict(batch_T=8, batch_B=4, warmup_T=4, store_rnn_state_interval=4)
    return SAC(**REPLAY, **sequences, replay_ratio=3), agent


def td3(env: str) -> tuple[Any, Any]:
    """Return TD3 with dropout in the action values, and frames of priorities."""
    q_model = dict(hidden_sizes=16, dropout=0.2, layer_norm=True)
    agent = Td3Agent(model_kwargs=dict(hidden_sizes=16), q_model_kwargs=q_model)
    return TD3(**REPLAY, batch_size=16, replay_ratio=2), agent


ALGOS = dict(
    zip(
        ("ppo", "ppo lstm", "a2c", "vtrace", "dqn", "rainbow", "iqn", "r2d1", "ddpg", "sac", "sac lstm", "td3 dropout"),
        (ppo, lstm_ppo, a2c, vtrace, dqn, rainbow, iqn, r2d1, ddpg, sac, lstm_sac, td3),
        strict=True,
    )
)


class Case(NamedTuple):
    """Parts of a run, by name."""

    algo: str
    env: str
    sampler: str
    runner: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, self))


IN_TURN = {
    "ppo": ("cartpole", "cheetah", "pong", "suite"),
    "a2c": ("pong", "cartpole", "ant", "cheetah"),
    "vtrace": ("suite", "pong", "cartpole", "cheetah"),
    "dqn": ("pong", "pong", "pong", "pong"),
    "rainbow": ("cartpole", "pong", "cartpole", "pong"),
    "iqn": ("cartpole", "cartpole", "pong", "cartpole"),
    "r2d1": ("cartpole", "pong", "cartpole", "pong"),
    "ddpg": ("cheetah", "ant", "suite", "ant"),
    "sac": ("ant", "suite", "cheetah", "cheetah"),
    "td3 dropout": ("cheetah", "ant", "ant", "suite"),
}
"""Environment of every algorithm with each of SAMPLERS."""
CASES = [
    *(Case(algo, env, kind) for algo, envs in IN_TURN.items() for env, kind in zip(envs, SAMPLERS, strict=True)),
    Case("ppo lstm", "cartpole", "serial"),
    Case("ppo lstm", "pong", "alternating"),
    Case("sac lstm", "cheetah", "cpu"),
    Case("dqn", "cartpole", "serial", "eval"),
    Case("ppo", "ant", "cpu", "eval"),
    Case("sac", "cheetah", "gpu", "eval"),
    Case("dqn", "pong", "cpu", "eval beside"),
    Case("ppo", "cartpole", "serial", "eval beside"),
    Case("ppo", "cartpole", "serial", "2 replicas"),
    Case("dqn", "pong", "cpu", "2 replicas"),
    Case("r2d1", "cartpole", "gpu", "2 replicas"),
    Case("td3 dropout", "cheetah", "serial", "2 replicas, eval"),
    Case("ppo", "cartpole", "serial", "lag 1"),
    Case("vtrace", "cartpole", "cpu", "lag 2"),
    Case("a2c", "cartpole", "gpu", "lag 1"),
    Case("dqn", "pong", "cpu", "lag 1"),
    Case("rainbow", "cartpole", "serial", "lag 2"),
    Case("r2d1", "cartpole", "alternating", "lag 1"),
    Case("sac", "ant", "serial", "lag 1, eval"),
    Case("td3 dropout", "suite", "cpu", "lag 2"),
    Case("dqn", "cartpole", "serial", "lag 1, 2 replicas"),
]


def parts_of(case: Case, start_method: str | None = None) -> dict[str, Any]:
    """Return what the runner of a case is given.

    Args:
        case: by name.
        start_method: of the workers of its sampler; None is the default.
    """
    EnvCls, env_kwargs = ENVS[case.env]
    how: dict[str, Any] = {} if start_method is None or case.sampler == "serial" else dict(start_method=start_method)
    evaluation = dict(eval_n_envs=2, eval_max_trajectories=4) if "eval" in case.runner else {}
    sampler = SAMPLERS[case.sampler](
        EnvCls, env_kwargs, batch_T=T, batch_B=B, max_decorrelation_steps=20, **evaluation, **how
    )
    algo, agent = ALGOS[case.algo](case.env)
    return dict(algo=algo, agent=agent, sampler=sampler, seed=3, settings=ComputeSettings(torch_threads=1))


def train(case: Case, log_dir: str, n_itr: int, start_method: str | None = None) -> None:
    """Run a case, or go on with it."""
    Runner, kwargs = RUNNERS[case.runner]
    n_rows = T * B * kwargs.get("n_replicas", 1)
    runner = Runner(
        **parts_of(case, start_method),
        n_steps=n_itr * n_rows,
        log_interval_steps=n_itr // 20 * n_rows,
        checkpoint_interval_steps=n_itr // 30 * n_rows,
        **kwargs,
    )
    with logger_context(log_dir, run_ID=0, resume="auto", snapshot_mode="none"):
        runner.train()


class Result(NamedTuple):
    """Outcome of a case."""

    difference: str | None
    """What differs first; None if nothing does."""
    left: list[str]
    """What outlived the kill."""
    killed_at: int
    """Steps of the last row of the log that the killed run had written."""
    saved: int
    """Steps of its newest checkpoint."""
    steps: int
    """Of the whole run."""


def compare(case: Case, folder: Path, n_itr: int, rng: random.Random, forks: bool) -> Result:
    """Run a case alone, and again with a kill.

    Raises:
        RuntimeError: if a start of it fails, or does not end.
    """
    alone, killed = folder / "alone", folder / "killed"

    def start(log_dir: Path) -> Started:
        command = [__file__, "--run", *case, "--log_dir", str(log_dir), "--n_itr", str(n_itr)]
        run = partial(train, case, str(log_dir), n_itr, "fork") if forks else None
        return Started(command, folder / f"{log_dir.name}.txt", folder / "tmp", run)

    def finish(log_dir: Path) -> None:
        code = start(log_dir).wait(300.0)
        if code:
            raise RuntimeError(f"exit code {code}: {last_line(folder / f'{log_dir.name}.txt')}")

    finish(alone)
    left = files_left(folder / "tmp")
    seconds = max(float(row) for row in times_of(alone / "run_0"))
    for attempt in range(4):
        run = start(killed)
        run.wait_until(lambda: steps_saved(killed / "run_0") > 0)
        time.sleep(seconds * rng.uniform(0.0, 0.8) / (attempt + 1))
        if run.process.poll() is None:
            left += run.kill()
            break
        shutil.rmtree(killed)
    else:
        raise RuntimeError("it was always too late for a kill")
    place = (steps_logged(killed / "run_0"), steps_saved(killed / "run_0"))
    finish(killed)
    left += files_left(folder / "tmp")
    return Result(first_difference(killed / "run_0", alone / "run_0"), left, *place, steps_logged(alone / "run_0"))


def times_of(run_dir: Path) -> Iterator[str]:
    """Yield the seconds since the start of every row of the log."""
    lines = (run_dir / "progress.csv").read_text().splitlines()
    column = lines[0].split(",").index("Diagnostics/CumTime (s)")
    yield from (line.split(",")[column] for line in lines[1:])


def last_line(log: Path) -> str:
    """Return the last line of an output."""
    return log.read_text(errors="replace").strip().splitlines()[-1][:300]


def chosen(wanted: Sequence[str]) -> list[Case]:
    """Return the cases whose names have one of some texts."""
    return [case for case in CASES if not wanted or any(text in str(case) for text in wanted)]


def main() -> None:
    """Read the options; run a case, or compare all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=[], help="texts; a case is taken if its name has one of them")
    parser.add_argument("--n_itr", type=int, default=120)
    parser.add_argument("--seed", type=int, default=None, help="of the times of the kills; drawn by default")
    parser.add_argument("--commands", action="store_true", help="start commands instead of forks, which takes longer")
    parser.add_argument("--keep", default=None, help="folder that the runs stay in")
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--log_dir", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        train(Case(*args.run), args.log_dir, args.n_itr)
        return
    rng = random.Random(args.seed)
    print("| case | the run that was killed and resumed | killed after a row, a checkpoint of steps | seconds |")
    print("|---|---|---|---|", flush=True)
    n_equal, cases = 0, chosen(args.cases)
    for case in cases:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(args.keep or temporary) / str(case).replace(", ", "-").replace(" ", "_")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            try:
                result = compare(case, folder, args.n_itr, rng, not args.commands)
                text = "; ".join([result.difference or "identical", *result.left])
                place = f"{result.killed_at:,}, {result.saved:,} of {result.steps:,}"
            except RuntimeError as error:
                text, place = f"FAILED: {error}", ""
            n_equal += text == "identical"
        print(f"| {case} | {text} | {place} | {time.monotonic() - start:.0f} |", flush=True)
    print(f"\n{n_equal} of {len(cases)} are identical.")


if __name__ == "__main__":
    main()
