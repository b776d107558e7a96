"""MuJoCo Warp on the CPU: PPO holds the poles of its example up.

`make nightly-warp` installs the versions of `.ci/mujoco_warp.lock` and runs this; Warp's kernels, which take minutes to
compile, are kept in `.nightly/warp_cache`.
"""

from __future__ import annotations

import runpy
from statistics import fmean
from typing import Any

import pytest
import torch

from rlpyt.agents import GaussianPgAgent
from rlpyt.algos import PPO
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import DeviceSampler, TrajInfo
from tests.markdown import ROOT

pytest.importorskip("mujoco_warp")
CartPole: Any = runpy.run_path(str(ROOT / "examples" / "mujoco_warp_cartpole.py"))["CartPole"]


def test_the_cart_pole_of_the_example_is_solved() -> None:
    lengths = []

    class Noted(TrajInfo):
        def terminate(self, observation: Any) -> TrajInfo:
            lengths.append(self.Length)
            return self

    algo = PPO(learning_rate=3e-3, gae_lambda=0.95, minibatches=8, epochs=5, ratio_clip=0.2)
    sampler = DeviceSampler(CartPole, {}, batch_T=32, batch_B=256, TrajInfoCls=Noted)
    MinibatchRl(algo, GaussianPgAgent(), sampler, n_steps=200_000, log_interval_steps=1e9, seed=1).train()
    # A random policy holds the pole for some 20 steps, and 200 is the limit.
    assert fmean(lengths[-100:]) > 190


def test_a_reset_touches_the_environments_of_its_mask_alone() -> None:
    env = CartPole(4)
    env.reset(seed=0)
    for _ in range(5):
        before, *_ = env.step(torch.ones(4, 1))
    mask = torch.tensor([False, True, False, True])
    after, _ = env.reset(options={"reset_mask": mask})
    assert torch.equal(after[~mask], before[~mask])
    assert (after[mask].abs() <= 0.05).all()
    assert env.t.tolist() == [5, 0, 5, 0]
