"""Time of an iteration with `prefetch`, where a thread draws the next batch while an update computes, and without.

    taskset -c 0,1 python benchmarks/prefetch.py [--threads 1 2] [--cases ...] [--rounds 9]
    python benchmarks/prefetch.py --device cuda:0 --setting replay_on_device --threads 1

The second command compares another setting, which gathers observations on a GPU.

Both learners of a case have the same rows. They learn in turn, A B B A, so that a machine whose speed changes disturbs
both. An iteration has 8 updates. `gain` is the median of the rounds' ratios, above 1 where the setting gains. `drawing`
is the part of an update that its batch takes without the setting: what there is to gain.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rlpyt.agents import AtariDqnAgent, DqnAgent, SacAgent
from rlpyt.algos import DQN, SAC
from rlpyt.samplers import SerialSampler
from rlpyt.spaces import FrameStack
from rlpyt.types import Run
from rlpyt.utils.compute import ComputeSettings

UPDATES, T, B = 8, 64, 8
N_FILL = 20
"""Batches of 512 rows that the replay holds: frames for 70 MB, more than caches hold."""
IMAGES = FrameStack(0, 255, (4, 84, 84), np.uint8, n_frames=4)
VECTORS = spaces.Box(-np.inf, np.inf, (17,), np.float32)
CHOICES, FORCES = spaces.Discrete(6), spaces.Box(-1, 1, (6,), np.float32)


class Noise:
    """Environment of noise with episodes of 200 steps."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; frames before it are black."""
        self.rng, self.t = np.random.default_rng(seed), 0
        self.observation = np.zeros(self.observation_space.shape, self.observation_space.dtype)
        return self._next(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Show the next frame, or another vector."""
        self.t += 1
        return self._next(), 1.0, False, self.t == 200, {}

    def _next(self) -> np.ndarray:
        if self.observation_space == VECTORS:
            return self.rng.standard_normal(17, np.float32)
        frame = self.rng.integers(0, 256, (1, 84, 84), np.uint8)
        self.observation = np.concatenate([self.observation[1:], frame])
        return self.observation


def dqn(batch_size: int, **settings: Any) -> Any:
    """Return what learns from frames."""
    agent = AtariDqnAgent(model_kwargs=dict(channels=[32, 64, 64], kernel_sizes=[8, 4, 3], strides=[4, 2, 1],
                                            paddings=[0, 0, 0], fc_sizes=512))  # fmt: skip
    return DQN(**replay(batch_size), **settings), agent, dict(observation_space=IMAGES, action_space=CHOICES)


def small_dqn(batch_size: int, **settings: Any) -> Any:
    """Return what learns from vectors, with the smallest of updates."""
    agent = DqnAgent(model_kwargs=dict(hidden_sizes=64))
    return DQN(**replay(batch_size), **settings), agent, dict(observation_space=VECTORS, action_space=CHOICES)


def sac(batch_size: int, **settings: Any) -> Any:
    """Return what learns from vectors in continuous control."""
    return SAC(**replay(batch_size), **settings), SacAgent(), dict(observation_space=VECTORS, action_space=FORCES)


def replay(batch_size: int) -> dict[str, Any]:
    """Return the settings that give `UPDATES` an iteration."""
    ratio = UPDATES * batch_size / (T * B)
    return dict(batch_size=batch_size, replay_ratio=ratio, replay_size=N_FILL * T * B, min_steps_learn=1)


PRIORITIES = dict(prioritized_replay=True)
CASES: dict[str, tuple[Callable[..., Any], int, dict[str, Any]]] = {
    "dqn frames 32": (dqn, 32, {}),
    "dqn frames 256": (dqn, 256, {}),
    "dqn frames 32 prioritised": (dqn, 32, PRIORITIES),
    "dqn frames 256 prioritised": (dqn, 256, PRIORITIES),
    "dqn vectors 32": (small_dqn, 32, {}),
    "sac vectors 256": (sac, 256, {}),
}
"""By name: what learns, its batch size and further settings."""


def learner(case: str, changes: dict[str, bool], compute: dict[str, Any]) -> DQN | SAC:
    """Return an algorithm with a full replay."""
    make, batch_size, settings = CASES[case]
    late = dict(late_priorities=True) if settings and "prefetch" in changes else {}
    torch.manual_seed(0)
    algo, agent, env_kwargs = make(batch_size, **settings, **changes, **late)
    sampler = SerialSampler(Noise, env_kwargs, T, B, max_decorrelation_steps=0)
    run = Run(batch_spec=sampler.batch_spec, n_itr=10_000, seed=0)
    example = sampler.initialize(agent, run)
    agent.to_device(ComputeSettings(**compute, channels_last=env_kwargs["observation_space"] is IMAGES))
    algo.initialize(agent, Run(batch_spec=sampler.batch_spec, n_itr=10_000, seed=0, example=example))
    for itr in range(N_FILL):
        algo.append(itr, sampler.obtain_samples(itr)[0])
    sampler.shutdown()
    agent.train_mode(N_FILL)
    return algo


def seconds(call: Callable[[], object], least: float) -> float:
    """Return the seconds of a call, repeated for as long as asked."""
    start, n = time.perf_counter(), 0
    while time.perf_counter() - start < least:
        call()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        n += 1
    return (time.perf_counter() - start) / n


def measure(case: str, rounds: int, least: float, setting: str, compute: dict[str, Any]) -> str:
    """Return a line of figures."""
    plain, changed = learner(case, {}, compute), learner(case, {setting: True}, compute)
    calls: list[Callable[[], object]] = [lambda: plain.learn(N_FILL), lambda: changed.learn(N_FILL)]
    for call in calls:
        seconds(call, least)
    times: list[list[float]] = [[], []]
    for round_ in range(rounds):
        for i in (0, 1) if round_ % 2 else (1, 0):
            times[i].append(seconds(calls[i], least))
    drawing = seconds(plain.feed.sample_batch, 0.2)
    a, b = map(median, times)
    gain = median(x / y for x, y in zip(*times, strict=True))
    return f"{case:<28} {1e3 * a / UPDATES:>9.2f} {1e3 * b / UPDATES:>9.2f} {gain:>6.3f} {drawing * UPDATES / a:>8.3f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2], help="of torch, in the learner")
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each learner in each round, at least")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--setting", default="prefetch", choices=["prefetch", "replay_on_device"])
    args = parser.parse_args()
    compute = dict(precision=args.precision, device=args.device)
    print(f"{'ms of an update':<28} {'without':>9} {'with':>9} {'gain':>6} {'drawing':>8}")
    for threads in args.threads:
        torch.set_num_threads(threads)
        print(f"learner with {threads} threads of torch")
        for case in args.cases:
            print(measure(case, args.rounds, args.seconds, args.setting, compute), flush=True)


if __name__ == "__main__":
    main()
