"""When checkpoints of a run are due: by steps, by minutes, and by the score of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlpyt.algos import PPO
from rlpyt.runners import checkpointing
from rlpyt.runners.agreement import Agreement
from rlpyt.runners.checkpointing import RunCheckpoints, check_same
from rlpyt.runners.record import GIVEN_WEIGHTS, at_default
from rlpyt.settings import all_settings
from rlpyt.utils.replicas import Replicas

STEPS_PER_ITR = 20


@pytest.fixture
def clock(monkeypatch) -> Any:
    now = SimpleNamespace(minutes=1.0)
    monkeypatch.setattr(checkpointing, "time", SimpleNamespace(monotonic=lambda: 60.0 * now.minutes))
    return now


@contextmanager
def checkpoints_in(directory: Path, steps: float = inf, minutes: float | None = inf) -> Iterator[RunCheckpoints]:
    training: Any = SimpleNamespace(agreement=Agreement(Replicas()), steps_per_itr=STEPS_PER_ITR)
    part: Any = None  # which a test without a training does not need
    checkpoints = RunCheckpoints(training, part, part, part, directory, 2, steps, minutes)
    checkpoints._info = {"seed": 0, "settings": {}, "compute": {"torch_threads": 1}}
    try:
        yield checkpoints
    finally:
        checkpoints.close()


@pytest.mark.parametrize(
    ("steps", "due"), [(60, [3, 6, 9]), (79, [3, 6, 9]), (1, list(range(1, 10))), (1e9, []), (inf, [])]
)
def test_an_interval_of_steps_is_rounded_down_to_iterations(steps, due, tmp_path):
    with checkpoints_in(tmp_path, steps) as checkpoints:
        assert [n_done for n_done in range(1, 10) if checkpoints.is_due(n_done, None)] == due


@pytest.mark.parametrize(
    ("steps", "minutes", "waits"), [(inf, None, 10), (1e9, None, None), (1e9, 3, 3), (inf, 0.5, 0.5), (inf, inf, None)]
)
def test_an_interval_of_minutes_counts_from_the_checkpoint_before(steps, minutes, waits, tmp_path, clock):
    with checkpoints_in(tmp_path, steps, minutes) as checkpoints:
        for n_done in (1, 2):
            start = clock.minutes
            clock.minutes = start + 0.99 * (waits or 1e9)
            assert not checkpoints.is_due(n_done, None)
            clock.minutes = start + (waits or 1e9)
            assert checkpoints.is_due(n_done, None) == (waits is not None)
            checkpoints.save(n_done, {}, None)


def test_a_score_is_due_if_it_is_higher_than_all_before_also_those_of_earlier_starts(tmp_path):
    with checkpoints_in(tmp_path) as checkpoints:
        checkpoints.continue_from(None)
        assert not checkpoints.is_due(1, None)
        for n_done, score in ((1, -2.0), (2, 3.0)):
            assert checkpoints.is_due(n_done, score)
            checkpoints.save(n_done, {}, score)
        assert not checkpoints.is_due(3, 3.0)  # equal
        checkpoints.save(3, {}, 1.0)  # by an interval
        checkpoints.save(4, {}, None)
        assert not checkpoints.is_due(5, 2.0)
    with checkpoints_in(tmp_path) as checkpoints:
        newest = checkpoints.read_newest()
        assert newest.step == 4 * STEPS_PER_ITR
        checkpoints.continue_from(newest)
        assert not checkpoints.is_due(5, 2.0)
        assert not checkpoints.is_due(5, 3.0)
        assert checkpoints.is_due(5, 3.1)


def test_a_checkpoint_without_its_manifest_is_named_where_the_one_before_is_taken(tmp_path, capsys):
    with checkpoints_in(tmp_path) as checkpoints:
        checkpoints.continue_from(None)
        for n_done in (1, 2):
            checkpoints.save(n_done, {}, None)
    (newest,) = tmp_path.rglob(f"*{2 * STEPS_PER_ITR:012d}/manifest.json")
    newest.unlink()
    with checkpoints_in(tmp_path) as checkpoints:
        assert checkpoints.read_newest().step == STEPS_PER_ITR
    assert f"checkpoint of step {2 * STEPS_PER_ITR} has no manifest.json, and the one before" in capsys.readouterr().out


# ---- settings of a run that goes on ----


def test_a_setting_that_an_earlier_version_lacked_may_have_its_default_alone():
    now = {"algo.old": 1, "algo.new": 2}
    assert check_same({"algo.old": 1}, now, at_default={"algo.old", "algo.new"}) == []
    with pytest.raises(ValueError, match=r"algo\.new is 2, and was None"):
        check_same({"algo.old": 1}, now, at_default={"algo.old"})
    with pytest.raises(ValueError, match=r"algo\.new is 2, and was 3"):
        check_same({"algo.old": 1, "algo.new": 3}, now, at_default={"algo.new"})
    with pytest.raises(ValueError, match=r"algo\.new is None, and was 2"):
        check_same(now, {"algo.old": 1}, at_default={"algo.old"})


def test_a_run_from_given_weights_does_not_go_on_without_them():
    """Until the first update an agent that starts without weights explores at random."""
    given, without = ({"agent.initial_model_state_dict": x} for x in (GIVEN_WEIGHTS, None))
    assert check_same(given, given, at_default=()) == []
    assert check_same({}, given, at_default=()) == []  # of an earlier version, which left them out
    for saved, now in ((given, without), (without, given)):
        with pytest.raises(ValueError, match=r"agent\.initial_model_state_dict is"):
            check_same(saved, now, at_default=set(without))


def test_evaluations_may_have_more_episodes_and_no_other_environments():
    saved = {"sampler.eval_n_envs": 2, "sampler.eval_env_overrides.id": "a", "eval_deterministic": False}
    assert check_same(saved, {**saved, "sampler.eval_n_envs": 4}, at_default=())
    for changed in ({"sampler.eval_env_overrides.id": "b"}, {"eval_deterministic": True}):
        with pytest.raises(ValueError, match="with other settings"):
            check_same(saved, saved | changed, at_default=())


def test_the_settings_at_their_default_are_found_by_their_places():
    algo = PPO(learning_rate=0.5, epochs=4, clip_grad_norm=inf)
    places = at_default(algo)
    assert {"learning_rate", "clip_grad_norm"}.isdisjoint(places)
    assert {"epochs", "discount", "target_kl"} <= places <= set(all_settings(algo))
