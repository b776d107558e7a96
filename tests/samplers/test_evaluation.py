"""Evaluation: a fixed quota of whole episodes, and nothing of training touched."""

from __future__ import annotations

import re
import sys
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
import pytest
import torch

from rlpyt.envs import EnvAdapter, EnvError, make_env
from rlpyt.logging import logger_context
from rlpyt.samplers import evaluate, evaluator
from rlpyt.samplers.states import AsBuilt
from rlpyt.utils.compute import torch_threads
from rlpyt.utils.seeds import Role, stream_seed
from tests.pairs import others_nightly
from tests.samplers.sampler_kit import (
    EACH,
    SAMPLERS,
    TWO_OF_EACH,
    assert_equal_batches,
    batches_of,
    collect,
    counting_agent,
    in_order,
    random_agent,
    running,
    with_either,
)
from tests.toy_envs import (
    LENGTHS,
    N_ACTIONS,
    AgingEnv,
    CountingEnv,
    DictCountingEnv,
    GreedyTrajInfo,
    LifeEnv,
    RecordingTrajInfo,
)
from tests.vector_toy_envs import CountingVectorEnv, DictCountingVectorEnv, LifeVectorEnv

SEED = 7


def eval_number(rank: int, itr: int = 0) -> int:
    return stream_seed(SEED, Role.EVAL_ENV, rank, itr) % 1024


def episodes_by_env(traj_infos: list[Any]) -> dict[int, list[int]]:
    """Return the episode numbers that were seen of every environment, in order, each checked to be whole."""
    seen: dict[int, list[int]] = {}
    for info in traj_infos:
        observations = [observation for observation, *_ in vars(info)["_seen"]]
        number, _, episode = (int(x) for x in observations[0])
        assert [o[1] for o in observations] == list(range(info.Length))
        assert info.Length == LENGTHS[(number + episode) % len(LENGTHS)]
        seen.setdefault(number, []).append(episode)
    return seen


NATIVE = ("serial", "halves", "cpu2", "gpu2")


@pytest.mark.parametrize(
    ("kind", "recurrent", "EnvCls"),
    [(*case, CountingEnv) for case in with_either(TWO_OF_EACH)] + [(kind, True, CountingVectorEnv) for kind in NATIVE],
)
def test_every_environment_runs_its_quota_of_whole_episodes_from_null_inputs(kind, recurrent, EnvCls):
    options: dict[str, Any] = dict(eval_n_envs=3, eval_max_trajectories=8, TrajInfoCls=RecordingTrajInfo)
    with running(kind, counting_agent(recurrent), EnvCls, B=4, seed=SEED, **options) as sampler:
        results = []
        for itr in range(3):
            results.append(sampler.evaluate_agent(itr))
            sampler.obtain_samples(itr)
    for itr, result in enumerate(results):
        # Every evaluation starts where the seed says, with environments of its own.
        expected = {eval_number(0, itr): 3, eval_number(1, itr): 3, eval_number(2, itr): 2}
        episodes = episodes_by_env(result.traj_infos)
        assert {number: len(e) for number, e in episodes.items()} == expected
        assert all(e == list(range(len(e))) for e in episodes.values()), "episodes were left out"
        assert result.unfinished == 0
        assert result.steps == sum(info.Length for info in result.traj_infos)
        assert type(result.steps) is int
        for info in result.traj_infos:
            seen = vars(info)["_seen"]
            # The value says which previous reward and state the agent was given at every step.
            for i, (observation, *_, value) in enumerate(seen):
                prev_reward = seen[i - 1][2] if i else 0.0
                assert value == 100 * observation[0] + i + 0.25 * prev_reward + 0.5 * i * recurrent


@pytest.mark.parametrize(
    ("kind", "EnvCls"),
    [*((kind, CountingEnv) for kind in TWO_OF_EACH), *((kind, DictCountingVectorEnv) for kind in NATIVE)],
)
def test_eval_max_steps_bounds_the_evaluation_and_counts_what_is_cut_off(kind, EnvCls):
    options: dict[str, Any] = dict(B=3, eval_n_envs=3, eval_max_steps=14)
    for n_trajectories in (300, None):
        with running(kind, counting_agent(), EnvCls, eval_max_trajectories=n_trajectories, **options) as sampler:
            result = sampler.evaluate_agent(0)
        assert result.steps == 12  # an equal share of whole steps for each
        assert n_trajectories is None or len(result.traj_infos) + result.unfinished == 300
        expected = 0
        for rank in range(3):
            lengths = [LENGTHS[(eval_number(rank) + episode) % len(LENGTHS)] for episode in range(4)]
            expected += sum(sum(lengths[: i + 1]) <= 4 for i in range(4))
        assert len(result.traj_infos) == expected


@pytest.mark.parametrize("kind", EACH)
def test_after_one_that_was_cut_off_an_evaluation_begins_with_new_episodes(kind):
    options: dict[str, Any] = dict(eval_n_envs=2, eval_max_trajectories=8, eval_max_steps=20)
    with running(
        kind, counting_agent(True), env_kwargs={"lengths": (7,)}, TrajInfoCls=RecordingTrajInfo, **options
    ) as sampler:
        results = [sampler.evaluate_agent(itr) for itr in range(3)]
    for result in results:
        assert (result.steps, result.unfinished) == (20, 6)
        for info in result.traj_infos:
            seen = vars(info)["_seen"]
            assert [t for *_, t, _ in seen] == list(range(1, 8))
            observation, action, *_, value = seen[0]
            assert value == 100 * observation[0], "the first inputs were not null"
            # Which the model counts from the previous action on: 0 where that is null.
            assert action == observation[2] % N_ACTIONS, "the first action looked back into another episode"


@pytest.mark.parametrize(
    ("kind", "EnvCls"),
    [("serial", LifeEnv), ("cpu1", LifeEnv), ("gpu1", LifeEnv), ("serial", LifeVectorEnv)],
)
def test_after_one_that_was_cut_off_at_a_lost_life_an_evaluation_begins_with_a_new_game(kind, EnvCls):
    for first_life in (2, 3, 4):  # one of which is that of the environment
        options: dict[str, Any] = dict(eval_n_envs=1, eval_max_trajectories=2, eval_max_steps=9 + first_life)
        with running(kind, counting_agent(), EnvCls, B=1, **options) as sampler:
            results = [sampler.evaluate_agent(itr) for itr in range(3)]
        assert [[info.Length for info in result.traj_infos] for result in results] == [[9]] * 3


def test_an_evaluation_without_end_says_so_once(monkeypatch, capsys):
    def says_so() -> bool:
        return re.search(message, capsys.readouterr().out) is not None

    monkeypatch.setattr(evaluator, "_PATIENCE", 40)
    message = r"no episode has ended for 40 steps, and 0 of 2 have .*eval_max_steps .*max_steps\), or the environment a"
    options: dict[str, Any] = dict(env_kwargs={"lengths": (100,)}, eval_n_envs=2, eval_max_trajectories=2)
    with running("serial", counting_agent(), B=1, **options) as sampler:
        sampler.evaluate_agent(0)
        assert says_so()
        sampler.evaluate_agent(1)
        assert not says_so()
    evaluate(initialised(), CountingEnv, {"lengths": (100,)}, n_trajectories=2, n_envs=2)
    assert says_so()
    with running("serial", counting_agent(), B=1, eval_max_steps=100, **options) as sampler:
        sampler.evaluate_agent(0)  # it ends anyway
        evaluate(initialised(), CountingEnv, {"lengths": (3,)}, n_trajectories=60, n_envs=1)
        assert not says_so()


@pytest.mark.parametrize(
    ("EnvCls", "n_available", "n"), [(CountingEnv, 4, 1), (DictCountingEnv, 4, 2), (DictCountingEnv, 1, 1)]
)
def test_an_evaluation_without_a_sampler_has_the_threads_that_fit(EnvCls, n_available, n, monkeypatch):
    monkeypatch.setattr(sys.modules["rlpyt.samplers.evaluator"], "available_threads", lambda: n_available)
    agent, seen = random_agent(), set()
    agent.initialize(make_env(EnvCls, {}).spaces)
    agent.model.register_forward_hook(lambda *_: seen.add(torch.get_num_threads()))
    with torch_threads(2):
        evaluate(agent, EnvCls, n_trajectories=1)
        assert torch.get_num_threads() == 2
    assert min(seen) == n, "one for vectors, and for images the caller's, at most those of a job"


def test_an_evaluation_without_a_sampler_may_be_limited():
    result = evaluate(initialised(), CountingEnv, {"lengths": (4,)}, n_trajectories=6, n_envs=2, max_steps=13)
    assert ([info.Length for info in result.traj_infos], result.steps, result.unfinished) == ([4, 4], 12, 4)
    with pytest.raises(ValueError, match="max_steps is 1; expected a whole number from 2"):
        evaluate(initialised(), CountingEnv, n_trajectories=6, n_envs=2, max_steps=1)


@pytest.mark.parametrize(("kind", "EnvCls"), with_either(TWO_OF_EACH[:5], LifeVectorEnv, LifeEnv))
def test_a_game_of_several_lives_is_one_trajectory(kind, EnvCls):
    with running(kind, counting_agent(), EnvCls, B=2, eval_n_envs=2, eval_max_trajectories=6) as sampler:
        result = sampler.evaluate_agent(0)
    assert [info.Length for info in result.traj_infos] == [3 + 2 + 4] * 6
    assert [vars(info)["GameScore"] for info in result.traj_infos] == [10 * info.Return for info in result.traj_infos]


AROUND_EVALUATIONS = [
    *((*case, CountingEnv, False) for case in with_either(TWO_OF_EACH)),
    *((kind, True, LifeVectorEnv, waits) for kind, waits in with_either(NATIVE)),
]


@pytest.mark.parametrize(
    ("kind", "recurrent", "EnvCls", "waits"), others_nightly(AROUND_EVALUATIONS, AROUND_EVALUATIONS[1::2])
)
def test_training_goes_on_as_if_there_had_been_no_evaluation(kind, recurrent, EnvCls, waits):
    options: dict[str, Any] = dict(T=4, B=3, max_decorrelation_steps=3, bootstrap_value=True, mid_batch_reset=not waits)
    options |= dict(eval_n_envs=2, eval_max_trajectories=5)
    without = batches_of(4, kind, random_agent(recurrent), EnvCls, **options)
    with running(kind, random_agent(recurrent), EnvCls, **options) as sampler:
        sampler.evaluate_agent(0)
        with_evaluation = []
        for itr in range(4):
            with_evaluation += collect(sampler, 1, first=itr)
            sampler.evaluate_agent(itr + 1)
            sampler.evaluate_agent(itr + 1)
    assert_equal_batches(with_evaluation, without)


def stochastic_agent() -> Any:
    """Return an agent whose evaluations depend on the stream of its actions, with weights that are always the same."""
    return random_agent(recurrent=True)


class Normalized(gymnasium.wrappers.NormalizeObservation[Any, Any, Any]):
    """Keeps running statistics of its observations, which a reset does not set back, and pays by them."""

    def __init__(self) -> None:
        super().__init__(CountingEnv())

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, float(reward) + float(self.obs_rms.mean[0]), *rest


@pytest.mark.parametrize(
    ("kind", "EnvCls"),
    [
        ("serial", CountingEnv),
        ("serial", CountingVectorEnv),
        ("serial", AgingEnv),
        ("gpu2", AgingEnv),
        ("alternating2", AgingEnv),
        ("serial", Normalized),
    ],
)
def test_an_evaluation_depends_on_weights_seed_and_iteration_alone(kind, EnvCls):
    """Not on evaluations and batches before it, nor on the state that a sampler was saved with."""
    options: dict[str, Any] = dict(B=3, eval_n_envs=3, eval_max_trajectories=7)
    with running(kind, stochastic_agent(), EnvCls, **options) as sampler:
        alone = in_order(sampler.evaluate_agent(7).traj_infos)
        again = in_order(sampler.evaluate_agent(7).traj_infos)
    with running(kind, stochastic_agent(), EnvCls, **options) as sampler:
        other = in_order(sampler.evaluate_agent(2).traj_infos)
        sampler.obtain_samples(2)
        sampler.evaluate_agent(3)
        after = in_order(sampler.evaluate_agent(7).traj_infos)
        state = sampler.state_dict()
    with running(kind, stochastic_agent(), EnvCls, **options) as sampler:
        sampler.load_state_dict(state)
        loaded = in_order(sampler.evaluate_agent(7).traj_infos)
    assert alone == again == after == loaded
    assert other != alone


class RecordVideo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Stands for that of gymnasium: names its files by the number of the episode, and holds the frames of the last."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.episode_id, self.recorded_frames, self.episode_trigger = 0, list[Any](), lambda episode: episode > 0

    def reset(self, **kwargs: Any) -> Any:
        self.episode_id += 1
        self.recorded_frames.append(np.zeros(2))
        return super().reset(**kwargs)


def test_a_recorder_goes_on_where_its_environment_is_set_back():
    """Its files of earlier evaluations would be overwritten, and that of the last episode never be written."""
    env = make_env(lambda: RecordVideo(AgingEnv()), {})
    as_built = AsBuilt(env)
    for n in (1, 2):
        env.reset(1)
        env.step(0)
        assert (env.env.env.age, env.env.episode_id, len(env.env.recorded_frames)) == (1, n, n)
        assert as_built.set_back() is None


@pytest.mark.parametrize("data", [np.zeros(2**24, np.uint8), [[1.0, "x"] for _ in range(5_000)]])
def test_an_environment_of_much_data_is_neither_copied_nor_set_back(data, monkeypatch, capsys):
    states = mock.Mock()
    monkeypatch.setattr(EnvAdapter, "saved_state", states)
    options: dict[str, Any] = dict(env_kwargs={"data": data}, eval_n_envs=2, eval_max_trajectories=2)
    with running("serial", stochastic_agent(), Data, saves_state=False, **options) as sampler:
        sampler.evaluate_agent(1)
    assert re.search(r"it holds \d+ MiB of data, [\d,]+ objects, which is too much", capsys.readouterr().out)
    assert not states.called


class Data(AgingEnv):
    """Plays through a data set."""

    def __init__(self, data: Any) -> None:
        super().__init__()
        self.data = {"all": data}


class Replacing(AgingEnv):
    """Has another function from its first step on, so that the state of the start cannot be loaded later."""

    rule: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.rule = max

    def step(self, action: Any) -> Any:
        self.rule = min
        return super().step(action)


def test_what_cannot_be_set_back_says_so_and_stays_as_it_is():
    env = make_env(Replacing, {})
    as_built = AsBuilt(env)
    assert as_built.set_back() is None
    env.reset(1)
    env.step(0)
    for _ in range(2):
        assert "Replacing (rank 0) cannot be set back to how it was built: " in str(as_built.set_back())
        assert "Replacing.rule: got builtins.max, expected" in str(as_built.set_back())
    assert env.env.age == 1
    assert "numbers is a builtins.range_iterator" in str(AsBuilt(make_env(AgingEnv, {"readable": False})).set_back())


@pytest.mark.parametrize(
    ("EnvCls", "env_kwargs", "reason"),
    [
        (
            AgingEnv,
            {"readable": False},
            "env.numbers is a builtins.range_iterator, which cannot be read. What it keeps",
        ),
        (CountingVectorEnv, {}, "it is a vector environment"),
        (AgingEnv, {}, None),
    ],
)
@pytest.mark.parametrize("kind", ["serial", "cpu1"])
def test_evaluations_that_are_not_set_back_are_told(kind, EnvCls, env_kwargs, reason, tmp_path):
    options: dict[str, Any] = dict(env_kwargs=env_kwargs, eval_n_envs=1, eval_max_trajectories=2, B=1)
    options["start_method"] = "forkserver"
    with logger_context(tmp_path, 0), running(kind, counting_agent(), EnvCls, **options) as sampler:
        sampler.evaluate_agent(1)
        sampler.evaluate_agent(2)
    log = (tmp_path / "run_0" / "debug.log").read_text()
    assert ("do not set them back to how they were built" in log) == (reason is not None)
    assert (reason or "") in " ".join(log.split())


@pytest.mark.parametrize(("EnvCls", "kinds"), [(CountingEnv, SAMPLERS), (DictCountingEnv, ("serial", "cpu2", "gpu2"))])
def test_any_number_of_workers_gives_the_same_evaluations(EnvCls, kinds):
    results = {}
    for kind in kinds:
        with running(kind, random_agent(True), EnvCls, B=3, eval_n_envs=3, eval_max_trajectories=7) as sampler:
            results[kind] = [in_order(sampler.evaluate_agent(itr).traj_infos) for itr in range(3)]
    assert results["serial"][0] != results["serial"][1]
    for kind in kinds[1:]:
        assert results[kind] == results["serial"], kind


@pytest.mark.parametrize("name", ["eval_env_kwargs", "eval_env_overrides"])
def test_evaluation_environments_have_their_own_arguments_and_seeds(name):
    training_numbers = {stream_seed(SEED, Role.ENV, rank) % 1024 for rank in range(3)}
    own: dict[str, Any] = {name: {"lengths": (17,)}}
    for kind in ("serial", "cpu2"):
        with running(
            kind,
            counting_agent(),
            seed=SEED,
            eval_n_envs=2,
            eval_max_trajectories=2,
            TrajInfoCls=RecordingTrajInfo,
            **own,
        ) as sampler:
            result = sampler.evaluate_agent(0)
            samples, _ = sampler.obtain_samples(0)
        assert [info.Length for info in result.traj_infos] == [17, 17]
        numbers = {int(vars(info)["_seen"][0][0][0]) for info in result.traj_infos}
        assert numbers == {eval_number(0), eval_number(1)}
        assert set(samples.env.observation[0, :, 0].int().tolist()) == training_numbers


def test_evaluation_without_environments_is_refused():
    for kind in ("serial", "cpu1"):
        with running(kind, counting_agent(), B=1) as sampler, pytest.raises(RuntimeError, match="eval_n_envs is 0"):
            sampler.evaluate_agent(0)


def test_evaluation_uses_the_weights_as_they_are_now():
    for kind in ("serial", "cpu2"):
        agent = counting_agent()
        with running(
            kind,
            agent,
            eval_n_envs=2,
            eval_max_trajectories=2,
            TrajInfoCls=RecordingTrajInfo,
            max_decorrelation_steps=0,
        ) as sampler:
            before = sampler.evaluate_agent(0).traj_infos
            with torch.no_grad():
                agent.model.scale.mul_(2)
            after = sampler.evaluate_agent(1).traj_infos
        for factor, infos in ((1, before), (2, after)):
            for info in infos:
                observation, *_, value = vars(info)["_seen"][0]
                assert value == factor * 100 * observation[0], kind


def all_greedy(traj_infos: list[Any]) -> bool:
    return all(info.Greedy == info.Length for info in traj_infos)


@pytest.mark.parametrize(("kind", "recurrent"), with_either(TWO_OF_EACH))
def test_a_deterministic_evaluation_takes_the_most_probable_actions(kind, recurrent):
    options: dict[str, Any] = dict(eval_n_envs=2, eval_max_trajectories=8, TrajInfoCls=GreedyTrajInfo)
    with running(kind, random_agent(recurrent), **options) as sampler:
        for itr in range(2):
            assert all_greedy(sampler.evaluate_agent(itr, deterministic=True).traj_infos)
            assert not all_greedy(sampler.obtain_samples(itr)[1]), "training samples"
            assert not all_greedy(sampler.evaluate_agent(itr).traj_infos)


# ---- without a sampler ----


def test_an_evaluation_without_a_sampler_may_be_deterministic():
    agent = random_agent()
    agent.initialize(make_env(CountingEnv, {}).spaces)
    for deterministic in (True, False, True):
        result = evaluate(
            agent, CountingEnv, n_trajectories=8, n_envs=2, TrajInfoCls=GreedyTrajInfo, deterministic=deterministic
        )
        assert all_greedy(result.traj_infos) == deterministic


def initialised(recurrent: bool = False) -> Any:
    agent = counting_agent(recurrent)
    agent.initialize(make_env(CountingEnv, {}).spaces)
    return agent


@pytest.mark.parametrize("recurrent", [False, True])
def test_an_agent_is_evaluated_as_by_a_sampler(recurrent):
    options: dict[str, Any] = dict(eval_n_envs=3, eval_max_trajectories=8, TrajInfoCls=RecordingTrajInfo)
    with running("serial", counting_agent(recurrent), seed=SEED, **options) as sampler:
        expected = sampler.evaluate_agent(1)
    result = evaluate(
        initialised(recurrent), CountingEnv, n_trajectories=8, n_envs=3, TrajInfoCls=RecordingTrajInfo, seed=SEED
    )
    assert in_order(result.traj_infos) == in_order(expected.traj_infos)
    assert (result.steps, result.unfinished) == (expected.steps, 0)


def test_fewer_episodes_than_environments_need_fewer_environments():
    result = evaluate(initialised(), CountingEnv, {"lengths": (4,)}, n_trajectories=2)
    assert [info.Length for info in result.traj_infos] == [4, 4]


@pytest.mark.parametrize("size", ["n_trajectories", "n_envs"])
def test_an_evaluation_of_nothing_is_refused(size):
    with pytest.raises(ValueError, match=f"{size} is 0"):
        evaluate(initialised(), CountingEnv, **{size: 0})  # type: ignore[arg-type]


def test_environments_of_an_evaluation_are_closed_whatever_happens():
    closed: list[int] = []

    class Closing(CountingEnv):
        made = 0

        def __init__(self, breaks: bool) -> None:
            super().__init__()
            Closing.made += 1
            if breaks and Closing.made == 2:
                raise OSError("no licence")

        def close(self) -> None:
            closed.append(self.number)

    with pytest.raises(EnvError, match="no licence"):
        evaluate(initialised(), Closing, {"breaks": True}, n_trajectories=3)
    assert len(closed) == 1
    evaluate(initialised(), Closing, {"breaks": False}, n_trajectories=3)
    assert len(closed) == 4


@pytest.mark.parametrize("recurrent", [False, True])
def test_an_agent_in_a_run_may_be_evaluated_beside_it(recurrent):
    """Batches and evaluations of the run are those of a run that was left alone."""
    results = []
    for beside in (False, True):
        agent = random_agent(recurrent)
        with running("serial", agent, B=2, seed=SEED, eval_n_envs=2, eval_max_trajectories=4) as sampler:
            seen = collect(sampler, 1)
            if beside:
                result = evaluate(agent, CountingEnv, n_trajectories=3, n_envs=3, discount=0.5, seed=3)
                assert any(info.DiscountedReturn != info.Return for info in result.traj_infos)
            seen += collect(sampler, 1)
            infos = [vars(info) for info in sampler.evaluate_agent(1).traj_infos]
            results.append((seen + collect(sampler, 1), infos))
    (a, infos_a), (b, infos_b) = results
    assert_equal_batches(a, b)
    assert infos_a == infos_b
