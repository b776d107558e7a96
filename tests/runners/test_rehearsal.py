"""The updates that are timed to choose settings: whose they are, of how many rows, and that the run stays as it was."""

from __future__ import annotations

import contextvars
import gc
import json
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import (
    CategoricalPgAgent,
    DqnAgent,
    PgAgent,
    PopulationAgent,
    R2d1Agent,
    RecurrentCategoricalPgAgent,
    SacAgent,
)
from rlpyt.algos import CMAES, DQN, PPO, R2D1, SAC, VTrace
from rlpyt.core import Algorithm
from rlpyt.logging import current_logger, logger_context
from rlpyt.runners import AsyncRl, MinibatchRl, base, compute_choice, rehearsal, runner_from_params
from rlpyt.runners.compute_choice import Choice, choose_settings
from rlpyt.samplers import SerialSampler
from rlpyt.types import BatchSpec, Run
from rlpyt.utils.affinity import Affinity
from rlpyt.utils.compute import ComputeSettings
from tests.gpu.gpu_kit import BOX, CASES, CONTINUOUS, CONV, DISCRETE, IMAGES, MU, SMALL, tensors_in
from tests.runners.runner_kit import make_sampler, nightly, run, without_times
from tests.runners.thread_replicas import in_threads

HALF = ComputeSettings(precision="bfloat16")
Parts = tuple[Any, Any, tuple[Any, dict[str, Any]]]


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    threads = torch.get_num_threads()
    monkeypatch.setattr(rehearsal, "_SECONDS", 0.0)
    monkeypatch.setattr(compute_choice, "available_threads", lambda: 1)  # a team waits for a busy core
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def bfloat16_wins(monkeypatch):
    """All are timed, and bfloat16 is taken whatever the clock says."""

    def taken(steps: Sequence[Callable[[], int]], device: str) -> list[float]:
        rehearsal.seconds_of(steps, device)
        return [1.0] * (len(steps) - 1) + [0.1]

    monkeypatch.setattr(compute_choice, "seconds_of", taken)


def sampler_of(env: tuple[Any, dict[str, Any]], T: int = 8, B: int = 4) -> SerialSampler:
    return SerialSampler(*env, batch_T=T, batch_B=B, max_decorrelation_steps=0)


def choice_of(parts: Parts, T: int = 8, B: int = 4) -> Choice:
    """Return what is chosen for parts before a run of 1,000 iterations, bfloat16 included."""
    algo, agent, env = parts
    sampler = sampler_of(env, T, B)
    flags = dict(bootstrap_value=algo.bootstrap_value, bootstrap_inputs=algo.bootstrap_inputs)
    run = Run(batch_spec=sampler.batch_spec, n_itr=1000, **flags)
    example = sampler.initialize(agent, run)
    try:
        run = Run(batch_spec=sampler.batch_spec, n_itr=1000, example=example, **flags)
        return choose_settings(agent, Affinity(), of=(algo, run), bfloat16=True)
    finally:
        sampler.shutdown()


# ---- what is timed ----


@pytest.mark.parametrize("name", CASES)
def test_every_algorithm_of_the_library_rehearses_its_updates(name):
    choice = choice_of(CASES[name]())
    assert choice.plan["timed"].startswith("an update of "), choice.plan
    assert "bfloat16 " in choice.plan["timed"]


@pytest.mark.parametrize(
    ("parts", "spec", "rows"),
    [
        ((PPO(minibatches=4), CategoricalPgAgent(model_kwargs=SMALL), DISCRETE), (64, 8), 128),
        ((PPO(minibatches=4), CategoricalPgAgent(model_kwargs=CONV), IMAGES), (128, 8), 128),
        ((PPO(minibatches=4), RecurrentCategoricalPgAgent(model_kwargs=SMALL), DISCRETE), (16, 8), 32),
        ((VTrace(), PgAgent(model_kwargs=SMALL), DISCRETE), (16, 8), 128),
        ((VTrace(), PgAgent(model_kwargs=SMALL), DISCRETE), (2048, 4), 1024),
        ((DQN(batch_size=48), DqnAgent(model_kwargs=CONV), IMAGES), (4, 2), 48),
        ((DQN(batch_size=512), DqnAgent(model_kwargs=CONV), IMAGES), (4, 2), 128),
        ((SAC(), SacAgent(**MU), CONTINUOUS), (1, 1), 256),
        ((SAC(batch_size=4096), SacAgent(**MU), CONTINUOUS), (1, 1), 1024),
        ((R2D1(), R2d1Agent(model_kwargs=SMALL), DISCRETE), (40, 4), 960),
        ((R2D1(), R2d1Agent(model_kwargs=CONV), IMAGES), (40, 4), 120),
    ],
)
def test_an_update_has_the_rows_of_the_run_up_to_a_bound(parts, spec, rows):
    assert choice_of(parts, *spec).plan["timed"].startswith(f"an update of {rows:,} rows: ")


def test_the_update_is_that_of_the_users_own_class():
    calls: list[tuple[str, str]] = []

    class Own(PPO):
        def loss(self, batch: Any, init_rnn_state: Any, hyper: Any) -> Any:
            calls.append(("loss", self.agent.compute.precision))
            return super().loss(batch, init_rnn_state, hyper)

    class OwnLoop(Own):
        def optimize_agent(self, itr: int, samples: Any) -> Any:
            calls.append(("loop", self.agent.compute.precision))
            return super().optimize_agent(itr, samples)

    agent = CategoricalPgAgent(model_kwargs=SMALL)
    assert "an update" in choice_of((Own(), agent, DISCRETE)).plan["timed"]
    assert set(calls) == {("loss", "float32"), ("loss", "bfloat16")}
    calls.clear()
    choice_of((OwnLoop(), CategoricalPgAgent(model_kwargs=SMALL), DISCRETE))
    assert {name for name, _ in calls} == {"loop", "loss"}
    assert len([x for x in calls if x[0] == "loop"]) == len([x for x in calls if x[0] == "loss"])


class Alternating:
    """Augmentation with a state of its own."""

    def __init__(self) -> None:
        self.n_calls = 0

    def __call__(self, observation: Any, n_leading: int, generator: torch.Generator) -> Any:
        self.n_calls += 1
        return observation


def test_an_object_among_the_settings_keeps_what_it_has():
    augment = Alternating()
    algo = DQN(batch_size=8, augment=augment)
    assert choice_of((algo, DqnAgent(model_kwargs=SMALL), DISCRETE)).plan["timed"].startswith("an update of 8 rows")
    assert algo.augment is augment
    assert augment.n_calls == 0


def test_the_replay_of_a_rehearsal_is_small_and_in_memory(tmp_path):
    algo = DQN(batch_size=64, replay_size=1_000_000, replay_folder=str(tmp_path))
    rehearsed, spec = algo.rehearsal(DqnAgent(), BatchSpec(4, 2), max_rows=32)
    assert rehearsed.replay_folder is None
    assert rehearsed.replay_size == 2 * spec.size < 1000


def test_the_functions_take_turns_and_their_best_round_counts(monkeypatch):
    clock, order = [0.0], list[str]()
    seconds = {"a": iter([9.0, 4.0, 2.0, 3.0]), "b": iter([9.0, 1.0, 5.0, 6.0])}

    def step(name: str) -> int:
        order.append(name)
        clock[0] += 2 * next(seconds[name])
        return 2

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    assert rehearsal.seconds_of([lambda: step("a"), lambda: step("b")], "cpu") == [2.0, 1.0]
    assert "".join(order) == "ab" * 4


def test_a_round_of_fast_updates_has_an_even_number_of_them(monkeypatch):
    """The policy of TD3 takes a step in every second update."""
    clock, taken = [0.0], [0]

    def step() -> int:
        clock[0] += 3e-3 if taken[0] % 2 else 1e-3
        taken[0] += 1
        return 1

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    assert rehearsal.seconds_of([step], "cpu") == [pytest.approx(2e-3)]


def test_a_round_of_calls_with_many_updates_is_no_longer_than_another(monkeypatch):
    clock, n_calls = [0.0], [0]

    def step() -> int:
        n_calls[0] += 1
        clock[0] += 1.0
        return 500

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    assert rehearsal.seconds_of([step], "cpu") == [pytest.approx(2e-3)]
    assert n_calls[0] == 4, "one to warm up, and three rounds"


# ---- what cannot be timed ----


def test_without_a_rehearsal_the_network_alone_is_timed():
    class NoRehearsal(PPO):
        def rehearsal(self, agent: Any, batch_spec: BatchSpec, max_rows: int) -> Any:
            return Algorithm.rehearsal(self, agent, batch_spec, max_rows)

    choice = choice_of((NoRehearsal(), CategoricalPgAgent(model_kwargs=SMALL), DISCRETE))
    assert choice.plan["timed"].startswith("a pass of the network over 128 rows: float32 ")
    cma_es = CMAES(), PopulationAgent(population_size=4, model_kwargs=SMALL), DISCRETE
    assert choice_of(cma_es).plan["timed"].startswith("a pass of the network over 128 rows: ")


def test_an_update_that_made_up_rows_break_is_told_and_the_network_timed():
    class Picky(PPO):
        def loss(self, *args: Any) -> Any:
            raise KeyError("rows without\na goal")

    class NeverUpdates(PPO):
        def learn(self, itr: int) -> Any:
            return {}

    agent = CategoricalPgAgent(model_kwargs=SMALL)
    says = choice_of((Picky(), agent, DISCRETE)).plan["timed"]
    assert says.startswith(
        "a pass of the network over 128 rows, as an update of made-up rows failed (KeyError: 'rows without"
    )
    assert "\n" not in says
    says = choice_of((NeverUpdates(), CategoricalPgAgent(model_kwargs=SMALL), DISCRETE)).plan["timed"]
    assert "(RuntimeError: no update was taken): float32 " in says


def test_an_agent_that_cannot_be_copied_keeps_float32():
    class Locked(CategoricalPgAgent):
        def initialize(self, env_spaces: Any) -> None:
            super().initialize(env_spaces)
            self.own = threading.Lock()

    choice = choice_of((PPO(), Locked(model_kwargs=CONV), IMAGES))
    assert choice.settings.precision == "float32"
    assert not choice.settings.channels_last
    assert choice.plan["timed"].startswith("nothing, as a pass of the network over null rows failed (TypeError: ")


@pytest.mark.parametrize("rehearses", [True, False])
def test_the_algorithm_of_a_start_that_failed_is_not_copied_with_the_agent(rehearses):
    """The agent follows its exploration, and it has the replay."""
    copied: list[Any] = []

    class Watched(DQN):
        def initialize(self, agent: Any, run: Run) -> None:
            super().initialize(agent, run)
            raise ValueError("this start fails")

        def __deepcopy__(self, memo: Any) -> Any:
            copied.append(self)
            return self

    class NoRehearsal(DQN):
        def rehearsal(self, *args: Any) -> Any:
            return None

    agent = DqnAgent(model_kwargs=SMALL)
    watched = Watched(min_steps_learn=0, replay_size=1000)
    with pytest.raises(ValueError, match="this start fails"):
        MinibatchRl(watched, agent, sampler_of(DISCRETE), 320, settings=HALF).train()
    choice = choice_of(((DQN if rehearses else NoRehearsal)(), agent, DISCRETE))
    assert choice.plan["timed"].startswith("an update" if rehearses else "a pass")
    assert not copied


# ---- the run stays as it was ----


class Restless(nn.Module):
    """Model that draws from torch's global stream, has dropout, and counts its calls."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.n_calls = nn.Buffer(torch.zeros((), dtype=torch.int64))
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(288, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        self.n_calls.add_(1)
        rows = observation.reshape(-1, 2, 12, 12).float() / 255
        noise = torch.rand(()) if torch.is_grad_enabled() else torch.zeros(())
        out = torch.add(self.body(rows).float().reshape(*prev_reward.shape, 4), noise, alpha=0.01)
        return out[..., :3], out[..., 3]


def restless() -> Parts:
    return PPO(epochs=2, minibatches=2), CategoricalPgAgent(ModelCls=Restless), IMAGES


class Hooked(Restless):
    """`Restless` whose hook changes its buffer through a name of its own, which a copy of the model has too."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__(observation_space, action_space)
        self.body.register_forward_hook(lambda *_: (self.n_calls.add_(100), None)[1])


def hooked() -> Parts:
    return PPO(epochs=2, minibatches=2), CategoricalPgAgent(ModelCls=Hooked), IMAGES


def result_of(directory: Path, parts: Parts, **kwargs: Any) -> tuple[Any, list[dict[str, str]], Any]:
    """Return the runner of a short run, its rows without times, and its weights, optimiser states and streams."""
    algo, agent, env = parts
    options: dict[str, Any] = dict(n_steps=320, log_interval_steps=64)
    runner = run(directory, (algo, agent), kwargs.pop("sampler", None) or sampler_of(env), **{**options, **kwargs})
    state: list[Any] = [runner.agent.state_dict(), runner.algo.optim_state_dict(), torch.get_rng_state()]
    return runner, without_times(directory), tensors_in(state)


@pytest.mark.parametrize(
    "name",
    [
        "restless",
        "hooked",
        "A2C LSTM",
        nightly("VTrace"),
        nightly("PPO"),
        nightly("PPO images"),
        "DQN images",
        nightly("Rainbow"),
        "R2D1",
        "TD3",
        nightly("SAC images"),
    ],
)
def test_a_run_that_chooses_equals_one_that_is_given_the_same(name, tmp_path, bfloat16_wins):
    make = {**CASES, "restless": restless, "hooked": hooked}[name]
    runner, rows, tensors = result_of(tmp_path / "chosen", make(), settings="fastest")
    assert runner.compute.precision == "bfloat16"
    assert runner.choice.plan["timed"].startswith("an update of ")
    _, same_rows, same_tensors = result_of(tmp_path / "given", make(), settings=runner.compute)
    assert rows == same_rows
    assert len(rows) == 5
    assert len(tensors) == len(same_tensors) > 5
    assert all(torch.equal(x, y) for x, y in zip(tensors, same_tensors, strict=True))


@pytest.mark.parametrize("kind", ["cpu2", "async", "free"])
def test_the_same_with_workers_and_ahead(kind, tmp_path, bfloat16_wins):
    options: dict[str, Any] = dict(Runner=AsyncRl) if kind != "cpu2" else {}
    if kind == "free":
        options["lag"] = "free"
    results: list[Any] = []
    for settings in ("fastest", HALF):
        parts = CASES["DQN priorities"]() if kind == "free" else CASES["SAC"]()
        algo, agent, (EnvCls, env_kwargs) = parts
        sampler = make_sampler("cpu2" if kind == "cpu2" else "serial", EnvCls, 8, 4, env_kwargs=env_kwargs)
        runner, *result = result_of(
            tmp_path / str(len(results)), (algo, agent, DISCRETE), sampler=sampler, settings=settings, **options
        )
        assert runner.compute == HALF
        results.append(result)
    assert "an update of 16 rows" in json.loads((tmp_path / "0" / "run_0" / "params.json").read_text())["plan"]["timed"]
    if kind != "free":  # whose numbers are others every time
        assert results[0][0] == results[1][0]
        assert all(torch.equal(x, y) for x, y in zip(results[0][1], results[1][1], strict=True))


def test_replicas_ask_each_other_nothing_while_one_measures(bfloat16_wins):
    def work(replicas: Any) -> list[str]:
        algo, agent, env = CASES["PPO"]()
        runner = MinibatchRl(algo, agent, sampler_of(env), n_steps=640, settings="fastest", seed=1)
        runner._group.replicas = replicas
        seen: list[list[str]] = []
        start, to_device = runner.agent.initialize, runner.agent.to_device

        def started(*args: Any) -> None:
            start(*args)
            replicas.calls.clear()

        def moved(settings: ComputeSettings) -> None:
            seen.append(list(replicas.calls))
            to_device(settings)

        vars(runner.agent).update(initialize=started, to_device=moved)
        runner.train()
        assert runner.compute == HALF
        return seen[-1]

    assert in_threads(work) == [["largest [2]", "broadcast"]] * 2, "the flags of a broadcast, and the choice"


@pytest.mark.parametrize(("n_threads", "keeps"), [(1, True), (2, False)])
def test_replicas_with_other_cores_agree_whether_they_go_on_as_before(n_threads, keeps, bfloat16_wins, monkeypatch):
    """Replicas may have 2 cores and 1: then one of them would keep the settings, and the other wait for a choice."""
    n_cores = contextvars.ContextVar[int]("n_cores")
    monkeypatch.setattr(compute_choice, "available_cores", n_cores.get)

    choose: Any = compute_choice.compute_of_run
    before = ComputeSettings(torch_threads=n_threads).as_dict()
    monkeypatch.setattr(base, "compute_of_run", lambda *args: choose(*args[:-1], before))

    def work(replicas: Any) -> Choice:
        n_cores.set(2 - replicas.rank)
        algo, agent, env = CASES["PPO"]()
        runner = MinibatchRl(algo, agent, sampler_of(env), n_steps=640, settings="fastest", seed=1)
        runner._group.replicas = replicas
        runner.train()
        return runner.choice

    choices = in_threads(work)
    assert choices[0] == choices[1]
    assert choices[0].settings == (ComputeSettings() if keeps else HALF)


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_the_copies_is_left(fails):
    made: list[weakref.ref[Any]] = []

    class Watched(DQN):
        def initialize(self, agent: Any, run: Run) -> None:
            super().initialize(agent, run)
            made.extend(weakref.ref(x) for x in (self, agent, self.optimizer, self.replay))

        def learn(self, itr: int) -> Any:
            if fails:
                raise KeyError("goal")
            return super().learn(itr)

    gc.disable()  # which may come late
    try:
        choice = choice_of((Watched(), DqnAgent(model_kwargs=SMALL), DISCRETE))
        left = [type(ref()) for ref in made if ref() is not None]
    finally:
        gc.enable()
    assert ("failed" in choice.plan["timed"]) == fails
    assert made
    assert not left


def test_the_rehearsal_writes_nothing_into_the_log_of_the_run(tmp_path, capsys):
    class Talks(PPO):
        def loss(self, *args: Any) -> Any:
            current_logger().log("a loss is computed")
            return super().loss(*args)

    parts = Talks(epochs=1, minibatches=1), CategoricalPgAgent(model_kwargs=CONV), IMAGES
    result_of(tmp_path, parts, settings=None, n_steps=64)
    text = (tmp_path / "run_0" / "debug.log").read_text()
    assert text.count("a loss is computed") == 2, "one for each iteration of the run"
    assert text.index("plan:") < text.index("a loss is computed")


# ---- settings="fastest" ----


@pytest.mark.parametrize("images", [False, True], ids=["vectors", "images"])
def test_float32_is_kept_unless_the_fastest_is_asked_for(images, tmp_path, bfloat16_wins):
    model_kwargs, env = (CONV, IMAGES) if images else (SMALL, DISCRETE)
    for settings in (None, "fastest"):
        parts = PPO(minibatches=2), CategoricalPgAgent(model_kwargs=model_kwargs), env
        runner, *_ = result_of(tmp_path / str(settings), parts, settings=settings, n_steps=64)
        assert runner.compute.precision == ("bfloat16" if settings else "float32")
        plan = json.loads((tmp_path / str(settings) / "run_0" / "params.json").read_text())["plan"]
        assert ("timed" in plan) == (images or settings == "fastest")
        assert ("bfloat16 " in plan.get("timed", "")) == (settings == "fastest")


def test_a_run_is_made_again_and_resumed_in_what_was_the_fastest(tmp_path, bfloat16_wins, monkeypatch):
    algo, agent, env = CASES["TD3"]()
    runner = MinibatchRl(algo, agent, sampler_of(env), 320, 0, settings="fastest", checkpoint_interval_steps=160)
    with logger_context(tmp_path, run_ID=0):
        runner.train()

    def refuse(*args: Any) -> Choice:
        raise AssertionError("a run that goes on keeps what was chosen")

    monkeypatch.setattr(compute_choice, "choose_settings", refuse)
    known = [env[0], spaces.Box, type(BOX)]
    again = MinibatchRl.resume(tmp_path / "run_0", n_steps=640, sampler=sampler_of(env), known=known)
    assert (again.settings, again.compute, again.choice.plan) == ("fastest", HALF, {})
    made = runner_from_params(tmp_path / "run_0", sampler=sampler_of(env), known=known)
    assert made.settings == HALF


@pytest.mark.parametrize("settings", ["slowest", "bfloat16", dict(precision="bfloat16"), HALF.as_dict, True])
def test_settings_of_another_kind_are_refused(settings):
    with pytest.raises(
        TypeError, match=r'settings is .*; expected rlpyt.utils.ComputeSettings\(\.\.\.\), None.*"fastest"'
    ):
        MinibatchRl(PPO(), CategoricalPgAgent(), sampler_of(DISCRETE), 100, settings=settings)
