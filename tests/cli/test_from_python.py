from __future__ import annotations

import gymnasium
import pytest

import rlpyt
from rlpyt.algos import PPO
from rlpyt.cli import from_python
from rlpyt.cli.train import Start, start_of
from rlpyt.runners import StopOnReturn
from rlpyt.runners.record import record_of


@pytest.fixture
def started(monkeypatch):
    """Return a function that returns what `rlpyt.train` would run."""
    found: list[Start] = []
    monkeypatch.setattr(from_python, "run", found.append)

    def start(*args, **kwargs) -> Start:
        assert rlpyt.train(*args, **kwargs) is found[-1].runner
        return found[-1]

    return start


PARTS = dict(algo=dict(learning_rate=3e-4, epochs=2), sampler=dict(batch_B=4), agent=dict(recurrent="gru"))
OPTIONS = "--algo.learning-rate 3e-4 --algo.epochs 2 --sampler.batch-B 4 --agent.recurrent gru"


@pytest.mark.parametrize(
    ("kwargs", "options"),
    [
        (dict(seed=0, n_steps=5e4, **PARTS), f"--seed 0 --n-steps 5e4 {OPTIONS}"),
        (dict(seed=1, replicas=2, evaluate=True, max_time=3), "--seed 1 --replicas 2 --evaluate --max-time 3"),
        (dict(seed=2, lag=1, sampler_type="cpu", smoke=True), "--seed 2 --lag 1 --sampler-type cpu --smoke"),
        (
            dict(seed=2, env_kwargs={"sutton_barto_reward": True}, log_dir="x", run_id=4),
            "--seed 2 --env-kwargs sutton_barto_reward=True --log-dir x --run-id 4",
        ),
    ],
)
def test_a_call_is_the_run_of_the_command_line(kwargs, options, started):
    start, same = started("ppo", "CartPole-v1", **kwargs), start_of(["ppo", "CartPole-v1", *options.split()])
    assert record_of(start.runner) == record_of(same.runner)
    assert repr(start.runner.n_steps) == repr(same.runner.n_steps)  # 50000 in both, and not 50000.0 in one record
    assert start[1:3] == same[1:3]
    assert start.choices.run_id == same.choices.run_id


def own_cart_pole(steps=20):
    return gymnasium.make("CartPole-v1", max_episode_steps=steps)


def test_parts_hooks_and_environments_may_be_objects_of_the_users(started):
    algo, hook = PPO(epochs=1), StopOnReturn(10)
    start = started("ppo", own_cart_pole, env_kwargs=dict(steps=7), algo=algo, hooks=[hook])
    runner = start.runner
    assert start.log_dir == "data/ppo_own_cart_pole"
    assert (runner.algo.epochs, list(runner.hooks)) == (1, [hook])
    assert (runner.sampler.EnvCls, runner.sampler.env_kwargs) == (own_cart_pole, dict(steps=7))
    assert started("ppo", lambda: own_cart_pole()).log_dir == "data/ppo_lambda"


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        (("ppo", "CartPole-v1"), dict(learning_rate=1), TypeError, r"Write algo=dict\(learning_rate=\.\.\.\)"),
        (("ppo", "CartPole-v1"), dict(smok=1), TypeError, r"rlpyt.train has no argument 'smok'. Did you mean smoke\?"),
        (
            ("ppo", "CartPole-v1"),
            dict(algo=dict(epoch=1)),
            ValueError,
            "^MinibatchRl.algo .*'epoch'. Did you mean epochs",
        ),
        (("ppo", "CartPole-v1"), dict(n_steps="abc"), ValueError, "n_steps: got 'abc'; expected INT"),
        (("ppo", "CartPole-v1"), dict(resume="yes"), ValueError, "resume: got 'yes'; expected one of no, auto"),
        ((PPO, "CartPole-v1"), {}, TypeError, r"Write rlpyt.train\(\"ppo\", \"CartPole-v1\"\)"),
        (("ppo", own_cart_pole()), {}, TypeError, "a class or function that makes one"),
    ],
)
def test_what_cannot_be_meant_is_refused(args, kwargs, error, message, started):
    with pytest.raises(error, match=message):
        started(*args, **kwargs)


def test_the_runner_that_comes_back_has_the_trained_agent_and_the_directory(tmp_path):
    runner = rlpyt.train("ppo", "CartPole-v1", seed=0, log_dir=tmp_path, run_id="first", smoke=True)
    assert runner.logger.directory == tmp_path / "run_first"
    (played,) = runner.agent.play(own_cart_pole())
    (loaded,) = rlpyt.load_agent(tmp_path / "run_first").play(own_cart_pole())
    assert played.Return == loaded.Return > 0
