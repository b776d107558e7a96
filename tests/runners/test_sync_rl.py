"""Replicas that a runner starts: one log and one agent of all, and streams, cores and evaluations of their own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from rlpyt.runners import MinibatchRl, SyncRl
from rlpyt.utils import processes
from rlpyt.utils.affinity import dealt_cpus
from rlpyt.utils.board import Peer
from rlpyt.utils.processes import available_cores, available_cpus
from rlpyt.utils.worker_main import CORES
from tests.runners.runner_kit import (
    make_algo,
    make_sampler,
    rows_of,
    run,
)

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture(autouse=True)
def _no_connection_is_left() -> Iterator[None]:
    connections, hook = open_connections(), sys.excepthook
    yield
    assert sys.excepthook is hook
    assert open_connections() <= connections  # those of earlier tests may close meanwhile


def open_connections() -> set[tuple[Any, Any]]:
    return {(connection.laddr, connection.raddr) for connection in psutil.Process().net_connections("inet")}


class Noting(SyncRl):
    """Runner whose every replica writes what it is like into a file, and draws from the global generators."""

    def startup(self) -> int:
        n_itr = super().startup()
        note = {
            "pid": os.getpid(),
            "cpus": available_cpus(),
            "cores": available_cores(),
            "threads": torch.get_num_threads(),
            "workers": [child.cpu_affinity() for child in psutil.Process().children()] if self.replicas.rank else [],
            "drawn": torch.rand(1).item(),
            "seed": self.seed,
            "directory": str(self.logger.directory),
            "envs": self.sampler.obtain_samples(0)[0].env.observation[0, :, 0].tolist(),
            "affinity": self._group.cores.master_cpus,
            "addresses": [c.laddr.ip for c in psutil.Process().net_connections("inet")],
        }
        assert self.note is not None
        Path(f"{self.note}_{self.replicas.rank}").write_text(json.dumps(note))
        return n_itr

    note: str | None = None


def notes_of(tmp_path: Path, n: int = 2, **kwargs: Any) -> list[dict[str, Any]]:
    class Noted(Noting):
        note = str(tmp_path / "note")

    run(tmp_path, Runner=Noted, **{"n_steps": 80, **kwargs})
    return [json.loads((tmp_path / f"note_{rank}").read_text()) for rank in range(n)]


def test_both_reductions_and_a_second_run_give_the_same(tmp_path):
    kinds: list[dict[str, Any]] = [{}, {}, {"reduction": "ddp"}]
    rows = []
    for i, settings in enumerate(kinds):
        run(tmp_path / str(i), "ppo", Runner=SyncRl, n_replicas=2, n_steps=120, log_interval_steps=120, **settings)
        rows.append({k: v for k, v in rows_of(tmp_path / str(i))[-1].items() if "Time" not in k and "Per" not in k})
    assert rows[0] == rows[1]
    for key, value in rows[0].items():
        assert float(rows[2][key]) == pytest.approx(float(value), rel=1e-5, abs=1e-6, nan_ok=True), key


def test_each_replica_has_its_own_streams_environments_and_cores(tmp_path):
    first, second = notes_of(tmp_path, sampler=make_sampler("cpu2"), n_replicas=2, settings=None, seed=None)
    assert first["pid"] == os.getpid() != second["pid"]
    assert first["seed"] == second["seed"]
    assert first["drawn"] != second["drawn"]
    # The seed is drawn here, and the environment shows it modulo 1024: single numbers may meet by chance.
    assert sorted(first["envs"]) != sorted(second["envs"])
    assert second["directory"] == "None" != first["directory"]
    shares = dealt_cpus(available_cpus(), 2)
    assert [first["cpus"], second["cpus"]] == shares
    assert all(cpus == shares[1] for cpus in second["workers"])
    for note in (first, second):
        assert note["addresses"]
        assert {address.removeprefix("::ffff:") for address in note["addresses"]} == {"127.0.0.1"}
        assert note["threads"] <= max(1, len(note["cpus"]))


def test_replicas_that_are_not_pinned_share_the_number_of_cores(tmp_path):
    notes = notes_of(tmp_path, n_replicas=2, affinity={"set_affinity": False})
    assert [note["cpus"] for note in notes] == [available_cpus()] * 2
    assert [note["cores"] for note in notes] == [len(share) for share in dealt_cpus(range(available_cores()), 2)]
    assert CORES not in os.environ


@pytest.mark.parametrize(
    ("affinity", "tasks", "n_cores"),
    [
        ({}, ["9.0.0", "9.0.0"], 2),  # torchrun has started both in one task
        ({}, ["9.0.0", "9.0.1"], 4),  # srun has started two tasks, with four cores each
        ({"workers_cpus": [7, 8], "set_affinity": False}, ["9.0.0", "9.0.0"], 2),
    ],
)
def test_replicas_are_not_pinned_to_cores_of_a_node_that_others_share(affinity, tasks, n_cores, monkeypatch):
    monkeypatch.setattr(processes, "available_cpus", lambda: [*range(128)])
    monkeypatch.setattr(processes, "job_cpus", lambda: 4.0)
    runner: Any = SyncRl(*make_algo("ppo"), make_sampler(), n_steps=100, n_replicas=2, affinity=affinity)
    before = os.sched_getaffinity(0)
    peers = [Peer("node0", i, "cpu", [*range(128)], task) for i, task in enumerate(tasks)]
    with runner._group.on_own_cores(SimpleNamespace(peers=peers, rank=1)):
        assert available_cores() == n_cores
        assert os.sched_getaffinity(0) == before
        assert not runner._group.cores.master_cpus
    assert available_cores() == 4


def test_a_list_of_affinities_is_one_replica_each(tmp_path):
    core = available_cpus()[-1]
    # As make_affinity of rlpyt 0.1 returned them.
    affinity: Any = [
        {"all_cpus": (core,), "master_cpus": (core,), "workers_cpus": (core,), "set_affinity": True, "cuda_idx": None}
        for _ in range(2)
    ]
    notes = notes_of(tmp_path, affinity=affinity)
    assert [note["cpus"] for note in notes] == [[core]] * 2
    assert [note["affinity"] for note in notes] == [[core]] * 2


def test_one_replica_is_a_run_of_one_process(tmp_path):
    runner = run(tmp_path, "ppo", Runner=SyncRl, n_replicas=1)
    alone = run(tmp_path / "alone", "ppo", Runner=MinibatchRl)
    for ours, theirs in zip(runner.agent.parameters(), alone.agent.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_cores_are_dealt():
    assert dealt_cpus([0, 1, 2, 3, 4], 2) == [[0, 1], [2, 3, 4]]  # the first, which measures, has the fewest
    assert dealt_cpus([4, 7], 3) == [[4], [4], [7]]
    assert dealt_cpus([4], 1) == [[4]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_replicas": 0}, "n_replicas is 0; expected a whole number from 1"),
        ({"reduction": "mean"}, "SyncRl: reduction is 'mean'; expected one of"),
        ({"replica_timeout": 0}, "replica_timeout is 0; expected a number of seconds above 0"),
        ({"n_replicas": 2, "affinity": [{}]}, "n_replicas is 2, and affinity has 1 dictionaries"),
        ({"affinity": []}, "affinity has 0 dictionaries"),
        ({"n_replicas": 2, "affinity": {"master_cpus": [0]}}, "one dictionary with cores, and the run has 2 replicas"),
        ({"n_replicas": 3, "batch_sizes": "global"}, "batch_B is 4, given for 3 replicas together"),
        ({"affinity": [{"cores": 1}]}, "affinity: got cores; expected some of"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SyncRl(*make_algo("ppo"), make_sampler(), n_steps=100, **settings)


@pytest.mark.parametrize("n_cores", [1, 2])
def test_more_replicas_than_cores_are_told(n_cores, capsys):
    runner: Any = SyncRl(*make_algo("ppo"), make_sampler(), n_steps=100, n_replicas=2)
    runner._group.on_own_cores(
        SimpleNamespace(peers=[Peer("node0", i, "cpu", [0, 1][:n_cores]) for i in range(2)], rank=0)
    )
    told = "WARNING: 2 replicas share the cores of node0, in number 1" in capsys.readouterr().out
    assert told == (n_cores == 1)


def test_without_a_number_there_is_a_replica_for_each_core():
    assert SyncRl(*make_algo("ppo"), make_sampler(), n_steps=100)._group.n_started() == available_cores()
