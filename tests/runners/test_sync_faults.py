"""Whatever happens to one replica, the run ends soon, names it, and leaves no process, connection or memory behind."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from rlpyt.logging import load_snapshot
from rlpyt.runners import SyncRl
from rlpyt.runners.agreement import ReplicaStopped
from rlpyt.runners.replica_group import ReplicaGroup
from rlpyt.runners.training import InTurn
from rlpyt.utils.process_group import ReplicaError
from rlpyt.utils.seeds import Role, stream_seed
from tests.runners import fault_kit
from tests.runners.fault_kit import SEED, faulty
from tests.runners.runner_kit import nightly, run
from tests.toy_envs import FaultyEnv

WHERE = r"Replica 1 of 2 \(pid \d+ on .*\), at iteration \d+ \(step \d+\), "


pytestmark = pytest.mark.usefixtures("nothing_is_left", "workers_end_soon")


class Stopping(FaultyEnv):
    """Environment that stops its process, as SIGSTOP from outside does."""

    def go_wrong(self, observation: Any, reward: float) -> tuple[Any, float]:
        os.kill(os.getpid(), signal.SIGSTOP)
        return observation, reward


class Lost(SyncRl):
    """Runner whose replica 1 is killed inside of an update, while the other waits for its gradients."""

    def go_wrong(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def startup(self) -> int:
        n_itr = super().startup()
        if self.replicas.rank == 1:
            algo: Any = self.algo
            inner, calls = algo.loss, [0]

            def loss(*args: Any) -> Any:
                calls[0] += 1
                if calls[0] == 11:
                    self.go_wrong()
                return inner(*args)

            algo.loss = loss
        return n_itr


class Raising(Lost):
    """The same with an exception."""

    def go_wrong(self) -> None:
        raise ZeroDivisionError("the loss broke")


def fail(directory: Path, error: type[Exception], EnvCls: Any = FaultyEnv, fault: str = "none", **kwargs: Any) -> str:
    """Train until the fault in replica 1 ends the run; return the message."""
    bad_seed = stream_seed(SEED, Role.ENV, kwargs.pop("rank", 6))
    sampler = faulty(directory, kwargs.pop("kind", "serial"), fault, 15, EnvCls=EnvCls, bad_seed=bad_seed)
    options: dict[str, Any] = dict(Runner=SyncRl, n_replicas=2, n_steps=1e5, replica_timeout=30)
    message = fault_kit.fail(directory, error, sampler, **{**options, **kwargs})
    load_snapshot(directory / "run_0" / "params.pkl")
    return message


@pytest.mark.parametrize("kind", ["serial", nightly("cpu2")])
def test_an_exception_in_a_replica_is_raised_here_with_its_traceback(kind, tmp_path):
    message = fail(tmp_path, ReplicaStopped, fault="raise", kind=kind)
    assert re.match(r"Replica 1 of 2, at step \d+: .*ZeroDivisionError: the toy broke in step", message, re.DOTALL)
    assert "in go_wrong" in message


def test_a_replica_that_is_stopped_is_named_after_the_timeout(tmp_path):
    assert re.match(
        WHERE + "is stopped, as by SIGSTOP. replica_timeout is 2 s",
        fail(tmp_path, ReplicaError, Stopping, replica_timeout=2),
    )


@pytest.mark.parametrize("reduction", ["flat", "ddp"])
def test_a_replica_that_is_killed_while_another_waits_for_its_gradients_is_named(reduction, tmp_path):
    message = fail(tmp_path, ReplicaError, Runner=Lost, reduction=reduction)
    assert re.match(WHERE + "was killed", message), message


def test_an_exception_in_an_update_of_a_replica_is_raised_here_with_its_traceback(tmp_path):
    message = fail(tmp_path, ReplicaError, Runner=Raising)
    assert re.match(WHERE + "raised ZeroDivisionError: the loss broke", message), message
    assert "in go_wrong" in message


def test_a_replica_that_ends_before_the_others_have_met_it_is_named(tmp_path):
    class Unreachable(ReplicaGroup):
        def join(self, *args: Any) -> None:
            raise OSError("no network")

    class Unstarted(SyncRl):
        def _make_parts(self) -> Any:
            return Unreachable("Unstarted", None, self), InTurn()

    with pytest.raises(ReplicaError, match=r"(?s)Replica 1 ended at its start.*OSError: no network"):
        run(tmp_path, "ppo", Runner=Unstarted, n_replicas=2)
