"""Runs whose sampler and learner run freely: every batch is appended once and in order, and the ratio is kept."""

from __future__ import annotations

import pickle
import re
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from rlpyt.core import rows_per_update
from rlpyt.logging import load_snapshot
from rlpyt.runners import AsyncRl, AsyncRlEval, MinibatchRl
from rlpyt.samplers import BaseSampler, SerialSampler
from rlpyt.samplers.background import ProcessSettings
from rlpyt.types import Run, Samples, TrajInfo
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from rlpyt.utils.processes import WorkerError
from rlpyt.utils.rw_lock import LockError, RwLock
from rlpyt.utils.seeds import Role, stream_seed
from rlpyt.utils.shared_memory import dumps
from tests.algos.small_problems import RandomEnv
from tests.algos.test_algo_state import CASES
from tests.runners import fault_kit
from tests.runners.free_parts import FaultyDQN, FaultyIndex, WatchedDQN
from tests.runners.runner_kit import (
    make_algo,
    make_sampler,
    nightly,
    rows_of,
    run,
)
from tests.toy_envs import CountingEnv, FaultyEnv, SlowEnv

free = partial(AsyncRl, lag="free")
AHEAD = {"prefetch": True}
ROWS = 20
"""Rows of a batch, 5 x 4."""


pytestmark = pytest.mark.usefixtures("nothing_is_left")


# ---- what is learned from ----


def arrays_of(runner: Any) -> dict[str, np.ndarray]:
    """Return all rows of the replay, and the errors that give new rows their priorities."""
    replay = runner.algo.replay
    errors = {} if replay._td_abs_error is None else {"td_abs_error": replay._td_abs_error}
    return {**replay.storage._held_arrays(replay.storage.written), **errors}


@pytest.mark.parametrize(
    ("case", "kind"),
    [nightly("DQN input priorities", "serial"), nightly("R2D1", "cpu2"), ("DQN n-step soft", "alternating2")],
)
def test_every_batch_is_in_the_replay_once_and_in_order(case, kind, tmp_path):
    """With weights that stay, the replay is that of a synchronous run, to the last bit of actions and errors."""
    runners = []
    for name, Runner in (("free", free), ("sync", MinibatchRl)):
        algo, agent = CASES[case]()
        algo = algo.replace(learning_rate=0.0, eps_schedule=1.0, replay_size=3000)
        agent = agent.replace(eps_final=0.5)
        torch.manual_seed(0)
        sampler = make_sampler(kind, CountingEnv, start_method="fork")
        runners.append(run(tmp_path / name, (algo, agent), sampler, Runner, n_steps=800, log_interval_steps=400))
    ours, expected = map(arrays_of, runners)
    assert ours.keys() == expected.keys()
    # Where observations are normalised, actions depend on how many batches the normaliser has seen.
    normalizes = case == "DQN n-step soft"
    for name in ours.keys() - ({"action", "reward"} if normalizes else set()):
        np.testing.assert_array_equal(ours[name], expected[name], name)
    assert runners[0].algo.update_counter == runners[1].algo.update_counter > 0
    # The normalisers have seen every row once, too.
    states = [buffer_leaves(tuple(runner.agent.state_dict()["model"].values())) for runner in runners]
    for x, y in zip(*states, strict=True):
        torch.testing.assert_close(x, y)
    rows = rows_of(tmp_path / "free")
    assert float(rows[-1]["Diagnostics/RowsDropped"]) == 0
    synchronous = rows_of(tmp_path / "sync")
    assert rows[-1]["Diagnostics/CumCompletedTrajs"] == synchronous[-1]["Diagnostics/CumCompletedTrajs"]


@pytest.mark.parametrize(
    ("case", "ahead"),
    [("SAC", {}), ("Rainbow", AHEAD)]
    + [nightly("SAC LSTM", {}), nightly("SAC", AHEAD), nightly("Rainbow", {}), nightly("SAC LSTM", AHEAD)],
)
def test_every_kind_of_replay_is_shared(case, ahead, tmp_path):
    box = {"action_space": spaces.Box(-1, 2, (2,))}
    sampler = make_sampler("serial", RandomEnv, env_kwargs={} if case == "Rainbow" else box)
    folder = {"replay_folder": str(tmp_path)} if case == "SAC" else {}
    late = dict(late_priorities=True) if ahead and case == "Rainbow" else {}
    algo, agent = CASES[case]()
    parts = algo.replace(**folder, **ahead, **late), agent
    runner: Any = run(tmp_path, parts, sampler, free, n_steps=400)
    assert runner.algo.feed.draws.may_be_ahead == bool(ahead)
    assert runner.algo.update_counter > 0
    assert runner.algo.replay.check_valid() == (True, "")
    assert runner.algo.replay.storage.written == 400 // 4
    assert load_snapshot(tmp_path / "run_0" / "params.pkl")["cum_steps"] == 400


def test_the_age_of_a_batch_counts_to_the_version_that_learns_from_it_first(tmp_path):
    """An evaluation takes in the batch under way, which the version before has collected."""
    sampler = make_sampler("serial", eval_n_envs=2, eval_max_trajectories=4)
    algo = DQN(min_steps_learn=40, replay_size=1000, batch_size=20, replay_ratio=2)
    parts = algo, DqnAgent(model_kwargs=dict(hidden_sizes=[8]))
    run(tmp_path, parts, sampler, partial(AsyncRlEval, lag="free"), n_steps=6 * ROWS, log_interval_steps=ROWS)
    ages = [[row[f"Diagnostics/DataAge{k}"] for k in ("Min", "Mean", "Max")] for row in rows_of(tmp_path)]
    # The batches before the first update come when they come, at the version of the first evaluation or of the second.
    assert {age for row in ages[2:3] for age in row} <= {"0.0", "0.5", "1.0"}
    assert ages[3:] == [["1.0"] * 3] * 4


class Uneven(RandomEnv):
    """Takes longer for a step in the first replica, now and then."""

    slow = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.slow = self.slow or seed in [stream_seed(3, Role.ENV, rank) for rank in range(2)]
        self.n = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.n += 1
        time.sleep(0.02 if self.slow and self.n % 7 == 0 else 0.0)
        return super().step(action)


@pytest.mark.parametrize("case", ["DQN n-step soft", nightly("SAC")])
def test_several_learners_run_freely_and_stay_one(case, tmp_path):
    """Their batches come at different times; their normalisers, which lie among the weights, take in equally many."""
    box = {"action_space": spaces.Box(-1, 2, (2,))}
    sampler = make_sampler("serial", Uneven, env_kwargs={} if "DQN" in case else box)
    options: dict[str, Any] = dict(n_steps=800, log_interval_steps=200, n_replicas=2)
    runner: Any = run(tmp_path, CASES[case](), sampler, free, **options)
    rows = rows_of(tmp_path)  # each was compared with the weights of the other learner
    assert [int(row["Diagnostics/CumSteps"]) for row in rows] == [200, 400, 600, 800]
    assert runner.algo.replay.storage.written == 800 // 4
    ratio = float(rows[-1]["Diagnostics/CumReplayRatio"])
    assert ratio == runner.algo.update_counter * 2 * rows_per_update(runner.algo) / 800
    assert float(rows[-1]["Diagnostics/RowsDropped"]) == 0


# ---- the ratio ----


@pytest.mark.parametrize(
    ("ratio", "slow"),
    [nightly(0.25, "sampler"), (16.0, "learner"), nightly(16.0, "sampler"), nightly(0.25, "learner")],
)
def test_the_ratio_is_kept_whichever_side_is_slow(ratio, slow, tmp_path):
    n_itr, batch_size = 40, 5 if ratio < 1 else 80
    algo = WatchedDQN(
        batch_size=batch_size,
        replay_ratio=ratio,
        min_steps_learn=20 * ROWS,
        replay_size=4000,
        update_seconds=0.03 / (ratio * ROWS / batch_size) if slow == "learner" else 0.0,
    )
    sampler = make_sampler("serial", SlowEnv, env_kwargs={"seconds": 3e-3 if slow == "sampler" else 0.0})
    parts = algo, DqnAgent(model_kwargs={"hidden_sizes": 8})
    run(tmp_path, parts, sampler, free, ratio_band=0.2, n_steps=n_itr * ROWS, log_interval_steps=10 * ROWS)
    band = 4  # 0.2 of the 20 batches before the first update
    assert [itr for itr, _ in algo.leads] == list(range(19, n_itr))
    assert algo.leads[0][1] >= 20, "the first update waits for min_steps_learn"
    leads = [collected - (itr + 1) for itr, collected in algo.leads]
    assert max(abs(lead) for lead in leads) <= band
    # Whoever is fast goes ahead by the whole band, and waits there. The sampler's last batch may be under way.
    assert min(leads) == -band if slow == "sampler" else max(leads) in (band - 1, band)
    # Over the whole run the ratio is the one asked for, and the log tells the one achieved.
    learned_from = (n_itr - 19) * ROWS
    assert algo.update_counter * batch_size / learned_from == pytest.approx(ratio, rel=0.02)
    rows = rows_of(tmp_path)
    assert float(rows[-1]["Diagnostics/CumReplayRatio"]) == pytest.approx(ratio * learned_from / (n_itr * ROWS))
    # The newest weights collect: a batch is asked for up to a band ahead, and learned from up to a band behind.
    assert max(float(row["Diagnostics/DataAgeMax"]) for row in rows) <= 2 * band + 1
    # From the first update on.
    waits = [sum(float(row[f"Diagnostics/{side}WaitTime"]) for row in rows[2:]) for side in ("Optimizer", "Sampler")]
    assert (waits[0] > waits[1]) == (slow == "sampler")


def test_as_many_batches_are_asked_for_as_band_and_places_allow():
    sampler: Any = make_sampler().running_freely()
    asked: list[Any] = []
    sampler._process, sampler._copier = SimpleNamespace(send=lambda *request: None), SimpleNamespace(send=asked.append)
    sampler.run = Run(batch_spec=sampler.batch_spec, n_itr=20)

    def ask(itr: int, band: int, n_handed_over: int) -> int:
        sampler.itr, sampler.band, sampler._n_handed_over = itr, band, n_handed_over
        sampler._ask_ahead()
        return len(asked)

    assert ask(itr=0, band=4, n_handed_over=0) == 5, "that of the iteration, and the band"
    assert ask(itr=1, band=4, n_handed_over=0) == 6
    assert ask(itr=6, band=8, n_handed_over=1) == 10, "no place is written whose batch is not in the replay"
    assert ask(itr=15, band=8, n_handed_over=15) == 20, "the end of the run"
    assert [request.args[0] for request in asked] == list(range(20))


@pytest.mark.parametrize(("n_before", "ratio_band", "band"), [(1, 0.1, 1), (20, 0.2, 4), (10_000, 0.1, 8)])
def test_the_band_is_a_part_of_the_batches_before_the_first_update(n_before, ratio_band, band, monkeypatch):
    sampler: Any = make_sampler().running_freely()
    sampler.batches, sampler.run = [], Run(batch_spec=sampler.batch_spec)
    monkeypatch.setattr("rlpyt.samplers.free.CopierProcess", lambda *args: None)
    appender: Any = SimpleNamespace(load_state_dict=lambda state: None)
    sampler.append_by(appender, n_before - 1, ratio_band)
    assert sampler.band == band


# ---- refusals ----


class OwnRows(SerialSampler):
    """Sampler that returns rows of its own."""

    def obtain_samples(self, itr: int) -> tuple[Samples, list[TrajInfo]]:
        samples, traj_infos = super().obtain_samples(itr)
        return buffer_func(samples, torch.clone), traj_infos


def test_rows_that_a_sampler_makes_itself_are_refused(tmp_path):
    sampler = OwnRows(CountingEnv, env_kwargs={}, batch_T=5, batch_B=4)
    with pytest.raises(WorkerError, match=r"OwnRows.obtain_samples returned rows of its own.*Give the runner lag=1"):
        run(tmp_path, "dqn", sampler, free, n_steps=400)


def test_algorithms_that_need_their_batches_themselves_are_refused():
    class Own(DQN):
        def append(self, itr: int, samples: Any) -> None:
            super().append(itr, samples)

    for algo, agent in (make_algo("ppo"), (Own(), DqnAgent())):
        with pytest.raises(ValueError, match=r"lag is 'free', and another process cannot append .* Give lag=1"):
            AsyncRl(algo, agent, make_sampler(), n_steps=100, lag="free")
    with pytest.raises(ValueError, match=r"ratio_band is -0.1; expected a fraction from 0"):
        AsyncRl(*make_algo("dqn"), make_sampler(), n_steps=100, lag="free", ratio_band=-0.1)


def test_an_algorithm_that_cannot_be_copied_says_so(tmp_path):
    algo, agent = make_algo("dqn")
    vars(algo)["disk"] = threading.Lock()
    with pytest.raises(TypeError, match=r"DQN: it cannot be copied .*appends to the replay: .*lock.* give lag=1"):
        run(tmp_path, (algo, agent), make_sampler(), free)


def test_rows_whose_errors_are_not_known_yet_are_a_part_of_the_state():
    settings: dict[str, Any] = dict(
        prioritized_replay=True, input_priorities=True, n_step_return=3, replay_size=400, min_steps_learn=32
    )
    algos: list[Any] = []
    for _ in range(2):
        algo, agent, sampler, lock = DQN(**settings), DqnAgent(), make_sampler(), RwLock(("learner", "copier"))
        lock.join("copier")
        run_ = Run(batch_spec=sampler.batch_spec, n_itr=9, lock=lock)
        algo.initialize(agent, replace(run_, example=sampler.initialize(agent, run_)))
        algos.append(algo)
    batches = [buffer_func(sampler.obtain_samples(itr)[0], torch.clone) for itr in range(2)]
    unbroken, resumed = (algo.feed.appender() for algo in algos)
    assert resumed.state_dict() == {}
    unbroken.append_rows(0, batches[0])
    algos[1].replay.load_state_dict(algos[0].replay.state_dict())
    resumed.load_state_dict(unbroken.state_dict())
    for appender in (unbroken, resumed):
        appender.append_rows(1, batches[1])
    np.testing.assert_array_equal(*(algo.replay._td_abs_error for algo in algos))
    assert algos[0].replay._td_abs_error[2:5].all(), "rows that waited at the end of the first batch have errors"


def test_the_appender_of_a_replay_draws_nothing():
    runner_algo, agent = make_algo("dqn", pri_eta="lin_1_0")
    sampler = make_sampler()
    lock = RwLock(("learner", "copier"))
    lock.join("learner")
    spec = Run(batch_spec=sampler.batch_spec, n_itr=9, lock=lock)
    runner_algo.initialize(agent, replace(spec, example=sampler.initialize(agent, spec)))
    samples, _ = sampler.obtain_samples(0)
    appender = pickle.loads(dumps(runner_algo.feed.appender()))
    appender.join("copier")
    appender.append_rows(3, samples)
    runner_algo.append(3, samples)  # appends no second time
    assert runner_algo.replay.storage.written == 5
    assert appender._feed.replay.eta == pytest.approx(1 - 3 / 9), "that of the batch's step"
    with pytest.raises(AttributeError, match="rng"):
        appender._feed.replay.sample_batch(4)
    sampler.shutdown()


# ---- faults ----


def fail(directory: Path, parts: Any, error: Any, sampler: Any = None) -> str:
    return fault_kit.fail(directory, error, sampler or make_sampler(), parts, free, log_interval_steps=100)


@pytest.mark.parametrize(
    ("how", "held"),
    [("raise", True), ("kill", False), ("stop", True)]
    + [nightly("raise", False), nightly("kill", True), nightly("stop", False)],
)
def test_a_fault_of_the_copier_ends_the_run(how, held, tmp_path, monkeypatch):
    monkeypatch.setattr(AsyncRl, "lock_seconds", 2.0)
    monkeypatch.setattr(BaseSampler, "process", ProcessSettings(stall_seconds=4.0))
    settings: dict[str, Any] = dict(batch_size=8, min_steps_learn=30, replay_size=1000)
    algo = DQN(IndexCls=partial(FaultyIndex, how=how, at=7), **settings)
    if not held:
        algo = FaultyDQN(how=how, at=7, **settings)
    agent = DqnAgent(model_kwargs={"hidden_sizes": 8})
    message = fail(tmp_path, (algo, agent), LockError if held and how == "stop" else WorkerError)
    assert re.search(r"he copier \(pid \d+\), at the batch of iteration 7,", message), message
    expected = {"raise": "ZeroDivisionError: the toy broke", "kill": "SIGKILL", "stop": "no progress for 4 s"}
    expected["stop"] = r"waited for 2 s, and the copier .* still writes" if held else expected["stop"]
    assert re.search(expected[how], message), message


def test_a_fault_of_the_sampler_ends_the_run(tmp_path):
    sampler = make_sampler("serial", FaultyEnv, env_kwargs={"fault": "kill", "at": 60})
    message = fail(tmp_path, "dqn", WorkerError, sampler)
    where = r"The sampler's process \(pid \d+\), at the batch of iteration \d+ \(step \d+\), .* was killed by SIGKILL"
    assert re.match(where, message), message


def test_a_fault_of_the_learner_ends_the_run(tmp_path):
    algo = FaultyDQN(in_update=True, at=7, batch_size=8, min_steps_learn=30, replay_size=1000)
    assert fail(tmp_path, (algo, DqnAgent()), ZeroDivisionError) == "the toy broke"
