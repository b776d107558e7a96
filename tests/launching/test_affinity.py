"""Shares of a machine: codes, the affinities that they mean, and what this process may use."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter

import pytest

from rlpyt.launching import (
    Core,
    Machine,
    Slots,
    affinity_from_code,
    encode_affinity,
    get_n_run_slots,
    make_affinity,
    prepend_run_slot,
    quick_affinity_code,
    remove_run_slot,
)
from rlpyt.launching import machine as machine_module
from rlpyt.launching.affinity import job_affinity_code
from rlpyt.launching.machine import numbers_in
from rlpyt.utils import processes
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.processes import cores_limited_to


def slots_of(code):
    return [affinity_from_code(prepend_run_slot(i, code)) for i in range(get_n_run_slots(code))]


# ---- codes ----


def test_a_code_has_what_is_not_the_default_and_comes_back():
    code = encode_affinity(
        n_cpu_core=16, n_gpu=4, contexts_per_gpu=2, cpu_reserved=1, hyperthread_offset=24, n_socket=2, run_slot=3
    )
    assert code == "3slt_16cpu_4gpu_2cxg_24hto_2skt_1res"
    assert Slots.from_code(code).code == code
    assert remove_run_slot(code) == (3, "16cpu_4gpu_2cxg_24hto_2skt_1res")
    assert remove_run_slot("1cpu") == (-1, "1cpu")
    assert encode_affinity(n_socket=None, async_sample=False, set_affinity=False) == "1cpu_0saf"


def test_the_example_of_rlpyt_0_1_is_understood():
    slots = Slots.from_code("0slt_16cpu_8gpu_24hto_2skt")
    assert (slots.n_slots, slots.cores_per_run, slots.gpus()) == (8, 2, [0])
    assert slots.cores() == [Core((0, 24), 0), Core((1, 25), 0)]
    # The machine has 24 cores: the second socket begins at core 12.
    assert Slots.from_code("4slt_16cpu_8gpu_24hto_2skt").cores() == [Core((12, 36), 1), Core((13, 37), 1)]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("cpu", "got 'cpu'; expected a number and three letters"),
        ("", "got ''"),
        ("2cpus", "got '2cpus'"),
        ("2cpx", "no name 'cpx'"),
        ("2cpu_3cpu", "cpu comes twice"),
        ("0cpu", "n_cpu_core is 0"),
        ("2cpu_0cpr", "cpu_per_run is 0"),
        ("2cpu_4cpr", "a run takes 4 cores; expected at most those of a socket: 2"),
        ("4cpu_1gpu_2gpr", "a run takes 2 GPUs"),
        ("4cpu_4cpr_2skt", "a run takes 4 cores; expected at most those of a socket: 2"),
        ("2slt_2cpu", "the slot 2 was asked for; expected 0 to 1"),
        ("4cpu_4gpu_2res", "there are 1 cores for a run; expected at least 3.* Name 12 cores .n_cpu_core."),
        ("4cpu_2cpr_3cpw", "there are 2 cores for a run; expected at least 3"),
        ("4cpu_2hto", "hyperthread_offset is 2; expected 0, or at least the 4 cores"),
        ("1cpu_1ass", r"there are 1 cores for a run; .* at least 2.* by cpu_per_run=2 \(2cpr in the code\)"),
        ("8cpu_2gpu_2gpr_2cxg", "expected contexts_per_gpu 1"),
        ("2aut_3gpu_2gpr", "2 runs take 2 GPUs each; expected at most 3 in all"),
    ],
)
def test_a_wrong_code_is_refused(code, text):
    with pytest.raises(ValueError, match=text):
        Slots.from_code(code)


def test_an_affinity_needs_a_slot():
    with pytest.raises(ValueError, match="names no run slot; expected one, such as '0slt_2cpu'"):
        affinity_from_code("2cpu")


# ---- affinities ----


def test_runs_without_gpus_get_cores_of_their_own_with_their_hyper_threads():
    first, second = slots_of("5cpu_2cpr_8hto")
    assert first["workers_cpus"] == [[0, 8], [1, 9]]
    assert second["master_cpus"] == second["all_cpus"] == [2, 3, 10, 11]
    assert second["workers_cpus"] == [[2, 10], [3, 11]]
    assert (second["master_torch_threads"], second["cuda_idx"]) == (2, None)


@pytest.mark.parametrize("sockets", [1, 2])
@pytest.mark.parametrize("gpus", [0, 2, 4, 6])
def test_runs_share_no_core_and_fill_all_gpus_of_a_socket_before_they_share_one(gpus, sockets):
    n_cores = 72
    for cxg, gpr, cpw, res in itertools.product((1, 2, 3), (1, 2), (1, 2), (0, 1)):
        if 0 < gpus // sockets < gpr or cxg > 1 < gpr:
            continue
        runs = slots_of(f"{n_cores}cpu_{gpus}gpu_{cxg}cxg_{gpr}gpr_{cpw}cpw_{res}res_{sockets}skt_4cpr")
        parts = [part for run in runs for part in (run if isinstance(run, list) else [run])]
        used = []
        for part in parts:
            cores = part["all_cpus"]
            [socket] = {cpu // (n_cores // sockets) for cpu in cores}
            n_res = res if gpus else 0
            assert part["master_cpus"] == (cores[:n_res] or cores)
            assert part["workers_cpus"] == [cores[i : i + cpw] for i in range(n_res, len(cores) - cpw + 1, cpw)]
            assert part["master_torch_threads"] == len(part["master_cpus"])
            assert part["worker_torch_threads"] == cpw
            used += cores
            assert part["cuda_idx"] // (gpus // sockets) == socket if gpus else part["cuda_idx"] is None
        assert len({*used}) == len(used) == len(parts) * len(parts[0]["all_cpus"])
        devices = [part["cuda_idx"] for part in parts]
        n_used = gpus // sockets // gpr * gpr * sockets
        assert not gpus or {*Counter(devices).values()} == {cxg}
        assert not gpus or len({*devices}) == len({*devices[:n_used]}) == n_used, "none is shared before all are used"


def test_an_asynchronous_run_has_parts_also_without_gpus():
    [run] = slots_of("4cpu_4cpr_1ass")
    assert [part["cpus"] for part in run["optimizer"]] == [[0]]
    assert (run["sampler"]["workers_cpus"], run["sampler"]["cuda_idx"]) == ([[1], [2], [3]], None)
    assert run["all_cpus"] == [0, 1, 2, 3]


def test_an_asynchronous_run_acts_on_gpus_of_its_own_or_on_those_that_learn_for_which_alone_cores_are_reserved():
    own = slots_of("8cpu_4gpu_1ass_1sgr")
    assert [(run["optimizer"][0]["cuda_idx"], run["sampler"]["cuda_idx"]) for run in own] == [(0, 1), (2, 3)]
    shared = slots_of("8cpu_4gpu_2gpr_1ass_1oss")
    for name in ("optimizer", "sampler"):
        assert [[part["cuda_idx"] for part in run[name]] for run in shared] == [[0, 1], [2, 3]]
    assert [part["workers_cpus"] for part in shared[1]["sampler"]] == [[[6]], [[7]]]
    [run] = slots_of("8cpu_2gpu_2gpr_1ass_2res")
    assert [part["cpus"] for part in run["optimizer"]] == [[0, 1], [2, 3]]
    assert run["sampler"]["master_cpus"] == [4, 5, 6, 7]
    assert run["sampler"]["workers_cpus"] == [[4], [5], [6], [7]]
    [run] = slots_of("8cpu_2gpu_1ass_1sgr_2res")
    assert run["sampler"]["master_cpus"] == [2, 3, 4, 5, 6, 7]
    assert len(run["sampler"]["workers_cpus"]) == 6, "the sampler reserves none of its own"


def test_alternating_workers_are_doubled_over_hyper_threads():
    [run] = slots_of("2cpu_2cpr_1alt_2hto")
    assert run["workers_cpus"] == [[0], [1], [2], [3]]
    [run] = slots_of("2cpu_2cpr_1alt")
    assert run["workers_cpus"] == [[0], [1], [0], [1]]
    assert run["alternating"] is True


def test_the_affinity_is_what_a_runner_takes_and_its_entries_are_attributes():
    affinity = make_affinity(run_slot=1, n_cpu_core=4, cpu_per_run=2, set_affinity=False)
    assert affinity.workers_cpus == [[2], [3]]
    assert Affinity.from_mapping(affinity).set_affinity is False


# ---- this machine ----


def test_a_list_of_ranges_is_read_as_linux_writes_it():
    assert numbers_in("0-3,8,10-11\n") == [0, 1, 2, 3, 8, 10, 11]
    assert numbers_in("\n") == []


def test_the_automatic_form_uses_what_this_process_may_use():
    allowed = sorted(os.sched_getaffinity(0))
    found = Machine.of_this_process()
    assert {cpu for core in found.cores for cpu in core.cpus} <= set(allowed)
    affinity = affinity_from_code(prepend_run_slot(0, quick_affinity_code(1, use_gpu=False)))
    assert affinity["master_cpus"] == sorted(affinity["master_cpus"], key=allowed.index)
    assert affinity["cuda_idx"] is None
    assert len(affinity["workers_cpus"]) == len(found.cores)


@pytest.fixture
def machine_of_two_nodes(tmp_path, monkeypatch):
    """Eight CPUs: CPU n and n + 4 are one core, even cores on node 1; this process may use all but CPU 4."""
    for cpu in range(8):
        folder = tmp_path / f"cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    for node, cpus in ((0, "1,3,5,7"), (1, "0,2,4,6")):
        folder = tmp_path / f"node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus)
    monkeypatch.setattr(machine_module, "_CPUS", tmp_path / "cpu")
    monkeypatch.setattr(machine_module, "_NODES", tmp_path / "node")
    for module in (machine_module, processes):
        monkeypatch.setattr(module, "available_cpus", lambda: [0, 1, 2, 3, 5, 6, 7])
    for limit in ("cpu_quota", "job_cpus"):
        monkeypatch.setattr(processes, limit, lambda: math.inf)


def test_cores_are_read_with_their_hyper_threads_and_nodes(machine_of_two_nodes):
    found = Machine.of_this_process()
    assert found.cores == (Core((1, 5), 0), Core((3, 7), 0), Core((0,), 1), Core((2, 6), 1))


def test_a_run_has_what_the_launcher_has_left_to_its_process(machine_of_two_nodes):
    assert len(affinity_from_code("1slt_2aut")["workers_cpus"]) == 4, "taskset has left it its own cores alone"
    with cores_limited_to(3):
        share = affinity_from_code("1slt_2aut_0saf")
    assert (share["workers_cpus"], share["master_torch_threads"], share["set_affinity"]) == ([[1, 5], [3, 7]], 2, False)


@pytest.mark.parametrize("limit", ["job", "quota"])
def test_nothing_is_pinned_to_the_first_cores_of_a_node_that_others_share(limit, monkeypatch):
    """Other jobs would pin their runs to the same cores."""
    for module in (machine_module, processes):
        monkeypatch.setattr(module, "available_cpus", lambda: [*range(128)])
    monkeypatch.setattr(machine_module, "_siblings", lambda cpu: [cpu])
    monkeypatch.setattr(processes, "cpu_quota", lambda: 4.0 if limit == "quota" else math.inf)
    monkeypatch.setattr(processes, "job_cpus", lambda: 4.0 if limit == "job" else math.inf)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    code = quick_affinity_code(use_gpu=False)
    assert (code, get_n_run_slots(code)) == ("4aut_0saf", 4)
    for code in ("0slt_1aut_0saf", job_affinity_code()):
        affinity = affinity_from_code(code)
        assert (len(affinity["workers_cpus"]), affinity["master_torch_threads"]) == (4, 4)
        assert not affinity["set_affinity"]


def test_a_quota_of_time_takes_cores_away(machine_of_two_nodes, monkeypatch):
    monkeypatch.setattr(processes, "cpu_quota", lambda: 3.0)
    assert Machine.of_this_process().cores == (Core((1, 5), 0), Core((3, 7), 0))


@pytest.mark.parametrize(
    ("visible", "code", "devices"),
    [
        (None, "0slt_1aut", None),
        ("NoDevFiles", "0slt_1aut", None),
        ("3", "0slt_1aut_1gpu", 0),
        ("GPU-ab,5", "0slt_1aut_2gpu_2gpr", [0, 1]),
    ],
)
def test_a_job_has_the_devices_that_its_variable_names(visible, code, devices, machine_of_two_nodes, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert job_affinity_code() == code
    affinity = affinity_from_code(code)
    if isinstance(devices, list):
        assert [part["cuda_idx"] for part in affinity] == devices
        assert [part["workers_cpus"] for part in affinity] == [[[1, 5], [3, 7]], [[0], [2, 6]]]
        assert all(part["set_affinity"] for part in affinity)
    else:
        assert affinity["cuda_idx"] == devices
        assert len(affinity["workers_cpus"]) == 4


def test_visible_devices_keep_their_names(monkeypatch):
    monkeypatch.setattr(machine_module.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-ab")
    assert Machine.of_this_process().devices == ("5", "GPU-ab")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,-1,7")  # CUDA stops at a number that is none
    assert Machine.of_this_process().devices == ("5", "6")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert Machine.of_this_process().devices == ("0", "1")
    assert quick_affinity_code(contexts_per_gpu=3) == "6aut_2gpu_3cxg"
    assert quick_affinity_code(2) == "2aut_2gpu"
    assert affinity_from_code("0slt_2aut_2gpu")["cuda_idx"] == 0, "the launcher shows a run its own device alone"
