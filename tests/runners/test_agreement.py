"""What the replicas of a run decide together, stop for together, and log as one."""

from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete

from rlpyt.core import EvalResult, Metrics, rows_per_update
from rlpyt.logging import SilentLogger, current_logger, load_snapshot, logger, logger_context
from rlpyt.runners import (
    MinibatchRl,
    MinibatchRlBase,
    MinibatchRlEval,
    ReplicasDiverged,
    ReplicaStopped,
    TrainingDiverged,
    base,
    compute_choice,
)
from rlpyt.runners.agreement import Agreement, bit_hash, learned_tensors
from rlpyt.runners.run_log import merged_metrics, merged_numbers
from rlpyt.types import TrajInfo
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.compute import ComputeSettings
from rlpyt.utils.replicas import Replicas
from tests.replica_kit import ThreadReplicas, in_threads
from tests.runners.runner_kit import (
    TIMING,
    header_of,
    make_algo,
    make_sampler,
    nightly,
    rows_of,
    run,
    status_of,
    without_times,
)
from tests.toy_envs import CountingEnv

ITRS = 6


def train(
    directory: Path,
    algo: str = "ppo",
    Runner: type[MinibatchRlBase] = MinibatchRl,
    world_size: int = 2,
    sampler: Mapping[str, Any] | None = None,
    prepare: Callable[[Any], None] = lambda runner: None,
    hyper: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> list[Any]:
    """Train replicas in threads, which log into `directory/run_0`; return the runners, or what they raised."""

    def work(replicas: ThreadReplicas) -> MinibatchRlBase:
        algorithm, agent = make_algo(algo, **(hyper or {}))
        steps = {"n_steps": 20 * ITRS * world_size, "log_interval_steps": 40 * world_size}
        options: dict[str, Any] = dict(steps, seed=3, settings=ComputeSettings())
        runner = Runner(algo=algorithm, agent=agent, sampler=make_sampler(**(sampler or {})), **{**options, **kwargs})
        runner._group.agreement = Agreement(replicas)
        prepare(runner)
        with logger_context(directory, run_ID=0) if replicas.rank == 0 else nullcontext():
            runner.train()
        return runner

    return in_threads(work, world_size)


def weights_of(runner: MinibatchRlBase) -> dict[str, torch.Tensor]:
    return {name: x.clone() for name, x in learned_tensors(runner.agent, runner.algo).items()}


# ---- agreement ----


class Alone(Replicas):
    """Replica that answers as if another one agreed with all, and notes what it is asked."""

    def __init__(self, world_size: int = 2) -> None:
        super().__init__(0, world_size)
        self.asked: list[str] = []

    def largest(self, numbers: torch.Tensor) -> torch.Tensor:
        self.asked.append("flags")
        return numbers

    def gather(self, item: Any) -> list[Any]:
        self.asked.append("gather")
        return [item, None]


def test_an_iteration_asks_once_and_alone_nothing_is_asked():
    for world_size, asked in ((2, ["flags"]), (1, [])):
        agreement = Agreement(replicas := Alone(world_size))
        with agreement.stopping_together(), agreement.together(0):
            pass
        assert replicas.asked == asked


def test_an_exception_is_told_but_not_from_an_update_nor_from_a_call_that_failed():
    agreement = Agreement(replicas := Alone())
    with pytest.raises(ZeroDivisionError), agreement.stopping_together():
        raise ZeroDivisionError
    assert replicas.asked == ["flags", "gather"]

    agreement = Agreement(replicas := Alone())
    with pytest.raises(ZeroDivisionError), agreement.stopping_together(), agreement.together(0):
        raise ZeroDivisionError
    assert replicas.asked == ["flags"], "the others are in the update, too, and would take it for one of its calls"

    agreement = Agreement(replicas := Alone())
    replicas.gather = lambda item: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError), agreement.stopping_together():
        agreement.gather(1)
    assert replicas.asked == ["flags"], "the group is broken"

    agreement = Agreement(replicas := Alone())
    with pytest.raises(KeyboardInterrupt), agreement.stopping_together():
        raise KeyboardInterrupt
    assert not replicas.asked, "Ctrl-C waits for nobody"


def test_the_first_signal_waits_for_the_others_and_the_second_does_not():
    agreement = Agreement(Alone())
    assert agreement.defer(signal.SIGTERM)
    assert not agreement.defer(signal.SIGTERM)
    assert not Agreement(Replicas()).defer(signal.SIGTERM), "alone there is nobody to wait for"


def test_the_hash_sees_every_bit_and_every_place():
    x = torch.randn(3, 4)
    seen = {bit_hash(x)}
    for i in range(12):
        for bit in (0, 31):
            y = x.clone()
            y.view(-1).view(torch.int32)[i] ^= 1 << bit if bit < 31 else -(2**31)
            seen.add(bit_hash(y))
    seen |= {bit_hash(x.flip(0)), bit_hash(x.t()), bit_hash(-x)}
    assert len(seen) == 1 + 24 + 3
    assert bit_hash(x.t().contiguous().t()) == bit_hash(x), "the order in memory is no difference"
    for scalar in (torch.tensor(1.0), torch.tensor(True), torch.ones((), dtype=torch.bfloat16), torch.ones(0)):
        assert bit_hash(scalar) == bit_hash(scalar.clone())
    large = torch.zeros(100_000, dtype=torch.float64)
    changed = large.clone()
    changed[-1] = 1e-300  # the last place, and no bit of float32
    assert bit_hash(changed) != bit_hash(large)


def test_every_tensor_that_learning_changes_is_compared_once():
    network, apart = torch.nn.BatchNorm1d(2), torch.nn.Parameter(torch.ones(3))  # a scalar buffer, and no network
    moments: list[Any] = [torch.ones(1), {"exp_avg": torch.ones(2)}]
    agent: Any = SimpleNamespace(networks=SimpleNamespace(modules=lambda: [network, torch.nn.Sequential(network)]))
    algo: Any = SimpleNamespace(
        descents={"model": SimpleNamespace(parameters=[*network.parameters(), apart])},
        optim_state_dict=lambda: {"state": {0: moments}, "param_groups": [{"lr": 0.1, "params": (0, 1)}]},
    )
    expected = [*network.state_dict().values(), apart, moments[0], moments[1]["exp_avg"]]
    tensors = learned_tensors(agent, algo)
    assert sorted(x.data_ptr() for x in tensors.values()) == sorted(x.data_ptr() for x in expected)


def test_metrics_of_updates_are_averaged_and_those_of_rows_joined():
    one = {"loss": torch.tensor([1.0, 2.0]), "error": torch.tensor([1.0, 2.0]), "rare": torch.tensor([5.0])}
    two = {"loss": torch.tensor([3.0, 5.0]), "error": torch.tensor([9.0, 8.0]), "own": torch.tensor([7.0])}
    merged = merged_metrics([one, two], [{"error"}, set()])
    assert {name: x.tolist() for name, x in merged.items()} == {
        "loss": [2.0, 3.5],
        "error": [1.0, 2.0, 9.0, 8.0],
        "rare": [5.0],
        "own": [7.0],
    }
    one["loss"] = torch.tensor([1.0])
    assert merged_metrics([one, two], [set(), set()])["loss"].tolist() == [1.0, 3.0, 5.0]


def test_counts_are_added_up_and_other_numbers_averaged():
    numbers = [{"WorkerRestarts": 1, "WaitingTime": 1.0}, {"WorkerRestarts": 2, "WaitingTime": 2.0, "Own": 3.0}]
    assert merged_numbers(numbers) == {"WorkerRestarts": 3, "WaitingTime": 1.5, "Own": 3.0}
    assert list(merged_numbers(numbers)) == ["WorkerRestarts", "WaitingTime", "Own"]
    assert merged_numbers([{"Env/falls": math.nan}, {"Env/falls": 2.0}]) == {"Env/falls": 2.0}
    assert math.isnan(merged_numbers([{"Env/falls": math.nan}])["Env/falls"])


# ---- decided together ----


def test_all_begin_with_what_replica_0_has(tmp_path, monkeypatch):
    seeds, drawn, first_weights = [], {}, {}

    class Watched(MinibatchRl):
        def startup(self) -> int:
            self.seed = 10 + self.replicas.rank  # as each process of a launcher draws one
            n_itr = super().startup()
            first_weights[self.replicas.rank] = weights_of(self)
            return n_itr

        def get_n_itr(self) -> int:
            return ITRS - self.replicas.rank

    monkeypatch.setattr(base, "set_seed", lambda seed, rank: seeds.append((rank, seed)))
    runners = train(tmp_path, "dqn", Watched, prepare=lambda r: drawn.update({r.replicas.rank: r.algo}))
    assert sorted(seeds) == [(0, 10), (1, 10)]
    assert [runner.n_itr for runner in runners] == [ITRS, ITRS]
    assert first_weights[0].keys() == first_weights[1].keys()
    for weights in first_weights.values():
        # Both networks are drawn in two threads at once, and the target is a copy.
        assert {name for name in weights if name.startswith("optimiser")} == set()
        assert len(weights) >= 8
    assert all(torch.equal(first_weights[0][name], first_weights[1][name]) for name in first_weights[0])


def test_a_replica_computes_on_its_own_device_with_the_settings_that_replica_0_has_chosen(monkeypatch):
    asked = []

    def choose(agent: Any, cores: Any, *args: Any, **kwargs: Any) -> ComputeSettings:
        asked.append(cores)
        return ComputeSettings(device="meta", channels_last=True, torch_threads=3)

    monkeypatch.setattr(compute_choice, "settings_by_rule", choose)

    def compute(replicas: ThreadReplicas) -> ComputeSettings:
        algorithm, agent = make_algo("ppo")
        runner = MinibatchRl(algorithm, agent, make_sampler(), n_steps=100)
        runner._group.agreement = Agreement(replicas)
        runner.training.agreement = runner._group.agreement
        return compute_choice.compute_of_run(None, runner.training, runner._group.cores, None)

    assert in_threads(compute) == [ComputeSettings(channels_last=True, torch_threads=3)] * 2
    assert len(asked) == 1


def test_replicas_with_given_settings_compute_on_their_own_gpus(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    given = ComputeSettings(precision="bfloat16")

    def device(cuda_idx: int | None, world_size: int) -> str:
        training = SimpleNamespace(agreement=SimpleNamespace(replicas=SimpleNamespace(world_size=world_size)))
        cores = Affinity(cuda_idx=cuda_idx)
        return compute_choice.compute_of_run(given, cast("Any", training), cores, None).device

    assert [device(1, 2), device(None, 2), device(1, 1)] == ["cuda:1", "cpu", "cpu"]


def test_scripts_with_other_settings_are_refused(tmp_path):
    def change(runner: Any) -> None:
        if runner.replicas.rank == 1:
            runner.algo.learning_rate, runner.given_seed = 0.5, 4

    errors = train(tmp_path, prepare=change)
    assert [type(error) for error in errors] == [ValueError, ValueError]
    assert "Replicas 0 and 1 were given different settings" in str(errors[0])
    assert "algo.learning_rate is 0.001 and 0.5, seed is 3 and 4;" in str(errors[0])


def test_what_may_be_of_one_machine_is_not_compared(tmp_path):
    def change(runner: Any) -> None:
        if runner.replicas.rank == 1:
            runner.affinity, runner.sampler.env_kwargs = {"set_affinity": False}, {"lengths": [4]}

    assert all(isinstance(runner, MinibatchRl) for runner in train(tmp_path, prepare=change))


def test_replicas_with_other_networks_are_refused(tmp_path):
    class Wide(CountingEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = Discrete(5)

    def change(runner: Any) -> None:
        runner.sampler.EnvCls = Wide if runner.replicas.rank else CountingEnv

    errors = train(tmp_path, prepare=change)
    assert [type(error) for error in errors] == [ValueError, ValueError]
    assert "Replicas 0 and 1 have different networks: PgModel 0." in str(errors[0])


def test_replica_0_writes_for_all(tmp_path, capsys):
    loggers = {}

    class Talking(MinibatchRl):
        def log_diagnostics(self, itr: int) -> None:
            loggers[self.replicas.rank] = current_logger()
            logger.log(f"row at {itr} of replica {self.replicas.rank}")
            logger.record_tabular("Own", self.replicas.rank)
            current_logger().warn(f"odd at {itr}")
            super().log_diagnostics(itr)

    train(tmp_path, Runner=Talking)
    assert isinstance(loggers[1], SilentLogger)
    assert not isinstance(loggers[0], SilentLogger)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["run_0"]
    debug = (tmp_path / "run_0" / "debug.log").read_text()
    assert "row at 1 of replica 0" in debug
    assert "of replica 1" not in debug + capsys.readouterr().out
    assert debug.count("WARNING: odd at 1\n") == debug.count("WARNING: Replica 1: odd at 1\n") == 1
    assert [row["Own"] for row in rows_of(tmp_path)] == ["0"] * (ITRS // 2)
    assert not isinstance(current_logger(), SilentLogger)


# ---- batch sizes ----


class Sharing(MinibatchRl):
    """Runner whose batch sizes are those of all replicas."""

    def startup(self) -> int:
        self._group._shares_algo = self._group._shares_sampler = True
        return super().startup()


def test_batch_sizes_of_all_are_divided_and_both_are_written_down(tmp_path):
    runners = train(tmp_path, "dqn", Sharing, 2, {"B": 8}, n_steps=200, hyper={"batch_size": 16})
    for runner in runners:
        assert (runner.sampler.batch_spec.B, runner.algo.batch_size) == (8, 16)
        assert runner.training.algo.batch_size == 8
        assert runner.n_itr == 5
    params = json.loads((tmp_path / "run_0" / "params.json").read_text())
    assert params["runner"]["settings"]["sampler"]["settings"]["batch_B"] == 8
    assert params["runner"]["settings"]["algo"]["settings"]["batch_size"] == 16
    assert params["algo"]["batch_size"] == 8
    plan = params["plan"]
    assert (plan["replicas"], plan["batch of all"], plan["batch of each replica"]) == (2, "T 5 x B 8", "T 5 x B 4")
    assert (plan["rows an update of all"], plan["rows an update of each replica"]) == (16, 8)
    assert plan["replay rows of each replica"] == 500
    debug = (tmp_path / "run_0" / "debug.log").read_text()
    shown = [line.partition("| ")[2].split(maxsplit=1) for line in debug[debug.index("plan:") :].splitlines()[1:6]]
    assert [name for name, *_ in shown] == ["replicas", "batch", "rows", "seed", "iterations"]


def test_batch_sizes_are_divided_evenly():
    algo, _ = make_algo("dqn", batch_T=4, batch_B=6)
    share = algo.share(3)
    assert (share.batch_T, share.batch_B, share.batch_size) == (4, 2, 8)
    assert algo.batch_B == 6
    ppo, _ = make_algo("ppo")
    assert ppo.share(3) is ppo, "it takes all rows of a batch"
    with pytest.raises(ValueError, match="DQN: batch_size is 7, given for 2 replicas together"):
        make_algo("dqn", batch_size=7)[0].share(2)
    with pytest.raises(ValueError, match=r"batch_B is 5, given for 2 replicas .*; expected a multiple of 2"):
        make_sampler(B=5).share(2)


# ---- stops ----


def stop_at(rank: int, itr: int, how: Callable[[Any], None]) -> type[MinibatchRl]:
    """Return a runner of which one replica does something after the updates of an iteration."""

    class Stopping(MinibatchRl):
        def store_diagnostics(self, at: int, traj_infos: Sequence[TrajInfo], metrics: Metrics) -> None:
            super().store_diagnostics(at, traj_infos, metrics)
            self.n_updated = at + 1
            if (self.replicas.rank, at) == (rank, itr):
                how(self)

    return Stopping


def breaks(runner: MinibatchRlBase) -> None:
    raise LookupError("a callback of the user's")


@pytest.mark.parametrize(
    ("itr", "rank"),
    [(2, 0), (ITRS - 1, 1), nightly(3, 1), nightly(2, 1), nightly(3, 0), nightly(ITRS - 1, 0)],
)
def test_an_exception_in_one_replica_ends_all_in_one_iteration(rank, itr, tmp_path):
    runners: dict[int, Any] = {}
    errors = train(tmp_path, Runner=stop_at(rank, itr, breaks), prepare=lambda r: runners.update({r.replicas.rank: r}))
    assert [runner.algo.update_counter for runner in runners.values()] == [4 * (itr + 1)] * 2
    assert isinstance(errors[rank], LookupError)
    other = errors[1 - rank]
    assert isinstance(other, ReplicaStopped)
    assert re.match(rf"Replica {rank} of 2, at step \d+: LookupError: a callback of the user's\n", str(other))
    assert f"The traceback of replica {rank}:\nTraceback" in str(other)
    assert "in breaks" in str(other)
    assert status_of(tmp_path)["status"] == "failed"
    assert f"Replica {rank}" in status_of(tmp_path)["exception"]["message"] or rank == 0
    # A row is written after every second iteration: that of the stop is not.
    assert len(rows_of(tmp_path)) == itr // 2 + (itr % 2 and 0)
    assert load_snapshot(tmp_path / "run_0" / "params.pkl")["itr"] == (itr // 2) * 2 - 1


def test_an_exception_after_the_last_row_of_one_replica_is_one_of_all(tmp_path):
    class Late(MinibatchRl):
        def log_diagnostics(self, itr: int) -> None:
            super().log_diagnostics(itr)
            if (self.replicas.rank, itr) == (1, ITRS - 1):
                raise LookupError("too late")

    errors = train(tmp_path, Runner=Late)
    assert [type(error) for error in errors] == [ReplicaStopped, LookupError]


@pytest.mark.parametrize("rank", [nightly(0), 1])
def test_a_divergence_of_one_replica_is_one_of_all(rank, tmp_path):
    def diverge(runner: Any) -> None:
        runner._log._metrics.newest = {"loss": torch.tensor(float("nan"))}

    errors = train(tmp_path, Runner=stop_at(rank, 3, diverge))
    assert [type(error) for error in errors] == [TrainingDiverged, TrainingDiverged]
    assert "loss not finite" in str(errors[rank])
    assert str(errors[1 - rank]).startswith(
        f"Replica {rank} of 2, at step 120: TrainingDiverged: Iteration 3 (step 160"
    )
    assert load_snapshot(tmp_path / "run_0" / "params.pkl")["itr"] == 1, "that of the row before"


@pytest.mark.parametrize("rank", [nightly(0), 1])
def test_sigterm_of_one_replica_ends_all_in_one_iteration(rank, tmp_path):
    runners: dict[int, Any] = {}
    errors = train(
        tmp_path,
        Runner=stop_at(rank, 2, lambda runner: runner._group.agreement.defer(signal.SIGTERM)),
        prepare=lambda r: runners.update({r.replicas.rank: r}),
    )
    assert [type(error) for error in errors] == [SystemExit, SystemExit]
    assert [error.code for error in errors] == [128 + signal.SIGTERM] * 2
    assert [runner.algo.update_counter for runner in runners.values()] == [12, 12]
    assert status_of(tmp_path)["status"] == "interrupted"
    debug = (tmp_path / "run_0" / "debug.log").read_text()
    assert f"Replica {rank} of 2, at step 120: was sent SIGTERM. All replicas stop." in debug


@pytest.mark.parametrize("rank", [nightly(0), 1])
def test_replicas_that_drift_apart_are_named(rank, tmp_path):
    class Drifting(MinibatchRl):
        def store_diagnostics(self, itr: int, traj_infos: Sequence[TrajInfo], metrics: Metrics) -> None:
            super().store_diagnostics(itr, traj_infos, metrics)
            if itr == 2 and self.replicas.rank == rank:  # a step of the user's own, outside of `descend`
                for parameter in self.agent.parameters():
                    parameter.grad = torch.full_like(parameter, 1e-3)
                self.algo.optimizer.step()  # type: ignore[attr-defined]

    errors = train(tmp_path, Runner=Drifting, world_size=3)
    assert [type(error) for error in errors] == [ReplicasDiverged] * 3
    named = (
        "replica 1 has other weights than replica 0, 2." if rank else ("replica 1, 2 has other weights than replica 0.")
    )
    assert f"Step 180: {named}" in str(errors[0])
    assert "model" in str(errors[0]).lower()
    assert len(rows_of(tmp_path)) == 1
    assert load_snapshot(tmp_path / "run_0" / "params.pkl")["itr"] == 1, "that of the row before"


def test_a_drift_of_the_optimiser_alone_and_of_one_bit_of_the_target_are_seen(tmp_path):
    def touch_moment(runner: Any) -> None:
        next(iter(runner.algo.optimizer.state.values()))["exp_avg"].view(-1)[0] += 1e-3

    @torch.no_grad()
    def touch_target(runner: Any) -> None:
        bits = next(runner.agent.target_model.parameters()).view(-1).view(torch.int32)
        bits[0] ^= 1

    for i, touch in enumerate((touch_moment, touch_target)):
        errors = train(tmp_path / str(i), "dqn", stop_at(1, ITRS - 1, touch))
        assert [type(error) for error in errors] == [ReplicasDiverged] * 2, touch


# ---- one log ----


class Recorded(MinibatchRl):
    """Runner that keeps what each replica has to log, in memory of the test."""

    def initialize_logging(self) -> None:
        super().initialize_logging()
        self.kept: list[tuple[int, list[TrajInfo], dict[str, torch.Tensor]]] = []

    def store_diagnostics(self, itr: int, traj_infos: Sequence[TrajInfo], metrics: Metrics) -> None:
        super().store_diagnostics(itr, traj_infos, metrics)
        self.kept.append((itr, list(traj_infos), {name: x.clone() for name, x in metrics.items()}))


class Work(TrajInfo):
    """Statistics of the user's own."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.Work = 0.0
        self._secret = [1, 2]

    def step(self, observation: Any, action: Any, reward: float, *args: Any) -> None:
        super().step(observation, action, reward, *args)
        self.Work += float(np.abs(action).sum())


def statistics(name: str, numbers: np.ndarray) -> dict[str, float]:
    functions: dict[str, Any] = dict(Average=np.mean, Std=np.std, Median=np.median, Min=np.min, Max=np.max)
    return {name + key: float(f(numbers)) if len(numbers) else float("nan") for key, f in functions.items()}


@pytest.mark.parametrize(("algo", "world_size"), [("ppo", 1), ("ppo", 2), nightly("dqn", 3)])
def test_rows_are_those_of_all_replicas_merged_by_hand(algo, world_size, tmp_path):
    window = 7
    runners = train(
        tmp_path, algo, Recorded, world_size, {"TrajInfoCls": Work}, log_traj_window=window, log_interval_steps=40
    )
    run(tmp_path / "one", algo, make_sampler(TrajInfoCls=Work), log_traj_window=window)
    assert header_of(tmp_path) == header_of(tmp_path / "one"), "the columns and their order are those of one process"
    rows = rows_of(tmp_path)
    every = max(1, 40 // (20 * world_size))
    assert [int(row["Diagnostics/Iteration"]) for row in rows] == list(range(every, ITRS + 1, every))
    n_before = 0
    for row in rows:
        done = int(row["Diagnostics/Iteration"])
        trajs = [x for itr in range(done) for runner in runners for x in runner.kept[itr][1]]
        assert all(x.ended_at is not None and x.ended_at[0] < done for x in trajs)
        last = sorted(trajs, key=lambda x: x.ended_at)[-window:]
        expected: dict[str, float] = {
            "Diagnostics/NewCompletedTrajs": len(trajs) - n_before,
            "Diagnostics/StepsInTrajWindow": sum(x.Length for x in last),
            "Diagnostics/CumSteps": 20 * world_size * done,
            "Diagnostics/CumCompletedTrajs": len(trajs),
        }
        n_before = len(trajs)
        for name in ("Length", "Return", "NonzeroRewards", "DiscountedReturn", "Work", "GameScore"):
            expected |= statistics(name, np.array([x[name] for x in last]))
        itrs = range(done - every, done)
        for name in runners[0].algo.opt_info_fields:
            of_itr = []
            for itr in itrs:
                values = [
                    runner.kept[itr][2][name].double().numpy() for runner in runners if name in runner.kept[itr][2]
                ]
                if values and values[0].ndim == 1:
                    of_itr.append(np.mean(values, 0))  # one number an update
                else:
                    of_itr += [x.flatten() for x in values]
            expected |= statistics(name, np.concatenate(of_itr) if of_itr else np.array([]))
        for name, value in expected.items():
            assert float(row[name]) == pytest.approx(value, rel=1e-6, nan_ok=True), name
        ratio = float(row["Diagnostics/CumReplayRatio"])
        rows_learned = rows_per_update(runners[0].algo) * world_size * float(row["Diagnostics/CumUpdates"])
        assert ratio == pytest.approx(rows_learned / (20 * world_size * done))
    missing = {k for k in rows[0] if k not in expected and not any(t in k for t in TIMING)}
    assert missing == {
        "Diagnostics/Iteration",
        "Diagnostics/CumUpdates",
        "Diagnostics/ReplayRatio",
        "Diagnostics/CumReplayRatio",
        *("Diagnostics/LearningRate", *(["Diagnostics/Epsilon"] if algo == "dqn" else [])),
    }


# ---- evaluation ----


class Still(MinibatchRlEval):
    """Runner whose agent does not learn, and begins with the same weights for any number of replicas."""

    def startup(self) -> int:
        self.algo.learning_rate = 0.0  # type: ignore[attr-defined]
        self.agent.initial_model_state_dict = WEIGHTS  # type: ignore[attr-defined]
        return super().startup()


def make_weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    algorithm, agent = make_algo("ppo")
    runner = MinibatchRl(algorithm, agent, make_sampler(), n_steps=100, seed=3, settings=ComputeSettings())
    try:
        runner.startup()
        state = agent.model.state_dict()
        return {name: torch.randn(x.shape, generator=generator) for name, x in state.items()}
    finally:
        runner.shutdown()


WEIGHTS: dict[str, torch.Tensor] = {}


@pytest.mark.parametrize(
    "limits", [nightly({"eval_max_trajectories": 8}), {"eval_max_steps": 30, "eval_max_trajectories": 20}]
)
def test_an_evaluation_by_replicas_equals_that_of_one_process(limits, tmp_path):
    WEIGHTS.update(make_weights())
    evaluation = {"eval_n_envs": 3, "TrajInfoCls": Work, **limits}
    train(tmp_path / "1", Runner=Still, world_size=1, sampler=evaluation)
    expected = [evaluated(row) for row in without_times(tmp_path / "1")]
    assert len(expected) == 1 + ITRS // 2
    assert len({row["WorkAverage"] for row in expected}) > 1, "every evaluation has streams of its own"
    for world_size in (2, 4):  # of four replicas one has no environment
        train(tmp_path / str(world_size), Runner=Still, world_size=world_size, sampler=evaluation)
        found = [evaluated(row) for row in without_times(tmp_path / str(world_size))]
        for row, one in zip(found, expected, strict=True):
            assert row == pytest.approx(one, nan_ok=True), world_size
    debug = (tmp_path / "4" / "run_0" / "debug.log").read_text()
    assert debug.count("were cut off by eval_max_steps") == ("eval_max_steps" in limits)


def evaluated(row: Mapping[str, str]) -> dict[str, float]:
    """Return the columns of a row that an evaluation gives."""
    names = (*(f"Diagnostics/{x}" for x in ("StepsInEval", "TrajsInEval", "TrajsUnfinishedInEval")), "Work", "Return")
    return {name: float(value) for name, value in row.items() if name.startswith((*names, "Length"))}


def test_a_method_of_ones_own_evaluates_the_share_of_a_replica(tmp_path):
    class Own(MinibatchRlEval):
        def evaluate_agent(self, itr: int) -> EvalResult:
            return EvalResult([TrajInfo()], 10 + self.replicas.rank, 1)

    train(tmp_path, Runner=Own, sampler={"eval_n_envs": 2, "eval_max_trajectories": 2})
    found = {(row["Diagnostics/StepsInEval"], row["Diagnostics/TrajsInEval"]) for row in rows_of(tmp_path)}
    assert found == {("21", "2")}
