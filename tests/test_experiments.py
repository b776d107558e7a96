"""Studies in experiments/: their numbers, the script that trains them, the agents that are kept, launches of many."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from experiments import launch, train
from experiments.configuration import Config, changed
from experiments.smoke import in_process, smoke
from experiments.studies import RENAMED, STUDIES, make
from rlpyt.algos import A2C
from rlpyt.algos.replay_settings import ReplaySettings, rows_of_update
from rlpyt.compat.names import SETTINGS
from rlpyt.launching import LaunchedRun, affinity_from_code, save_variant
from rlpyt.logging import logger_context, read_progress
from rlpyt.runners import MinibatchRlBase, load_agent, part_from_record, runner_from_params
from rlpyt.samplers import CpuSampler, GpuSampler, evaluate
from rlpyt.settings import Settings, all_settings
from rlpyt.types import Kwargs
from rlpyt.utils.compute import ComputeSettings
from tests.markdown import ROOT, quoted, tables
from tests.pairs import others_nightly
from tests.rlpyt_0_1_configs import OLD, Numbers

EXPERIMENTS = ROOT / "experiments"
ALL = [(study, config) for study, configs in STUDIES.items() for config in configs]
CASES = [(study, config) for study, configs in OLD.items() for config in configs]

# ---- numbers ----

NO_MORE = {"bootstrap_timelimit", "reparameterize", "updates_per_sync", "input_priority_shift", "replay_buffer"}
NO_MORE |= {"collector", "v_model_kwargs", "policy_output_regularization"}
"""Settings of rlpyt 0.1 that no configuration has; docs/reference/experiments.md says why."""

MENDED: dict[tuple[str, str], Numbers] = {
    ("mujoco_ppo", "ppo_1M_cpu"): {"algo.minibatches": 32, "algo.epochs": 10},
    ("atari_dqn", "async_big"): {"sampler.eval_n_envs": 10},
}
"""Numbers that are others than those of rlpyt 0.1, each in the tables of docs/reference/experiments.md."""


def value_of(runner: MinibatchRlBase, name: str) -> object:
    """Return the setting that a dotted name of rlpyt 0.1 means."""
    part, setting = name.split(".")
    given = {room: all_settings(getattr(runner, room)) for room in ("algo", "agent", "sampler")}
    places: dict[str, Kwargs] = {
        **given,
        "runner": all_settings(runner),
        "env": given["sampler"]["env_kwargs"],
        "eval_env": given["sampler"]["eval_env_kwargs"],
        "model": given["agent"]["model_kwargs"],
        "optim": given["algo"]["optim_kwargs"],
    }
    return (places[part] or {}).get(setting)


def expected(study: str, config: str) -> Iterator[tuple[str, object]]:
    for name, value in {**OLD[study][config], **MENDED.get((study, config), {})}.items():
        if name.rpartition(".")[2] not in NO_MORE and "." in name:
            yield name, "Hopper-v5" if value == "Hopper-v3" else value


@pytest.mark.parametrize(("study", "config"), CASES)
def test_a_configuration_has_the_numbers_of_rlpyt_0_1(study, config):
    runner = make(study, config)
    numbers = dict(expected(study, config))
    assert {name: value_of(runner, name) or 0 for name in numbers} == {name: x or 0 for name, x in numbers.items()}
    assert len(numbers) >= 10


def test_environments_rest_at_ends_of_episodes_where_they_did_and_no_replay_forbids_it():
    for study, config in ALL:
        sampler = all_settings(make(study, config).sampler)
        rests = study.startswith(("atari_ff", "atari_lstm"))
        assert sampler["mid_batch_reset"] is not rests


def test_an_iteration_has_as_many_updates_as_in_rlpyt_0_1():
    for study, config in CASES:
        runner = make(study, config)
        algo, sampler = runner.algo, all_settings(runner.sampler)
        if isinstance(algo, ReplaySettings):
            rows = sampler["batch_T"] * sampler["batch_B"] / rows_of_update(algo, algo.hyper(0))
            ratio = OLD[study][config].get("algo.replay_ratio", 8)  # of DQN's default
            assert isinstance(ratio, int | float)
            assert isinstance(algo.replay_ratio, int | float)
            assert round(algo.replay_ratio * rows) == max(1, round(ratio * rows)), (study, config)


def settings_of(part: Settings) -> Iterator[tuple[str, object]]:
    for value in all_settings(part).values():
        if isinstance(value, Settings):
            yield from settings_of(value)
        elif isinstance(value, dict | list):
            yield "mutable", value
    yield "part", part


def test_two_configurations_share_no_part_and_no_dictionary():
    pinned = changed(STUDIES["mujoco_ddpg"]["async_serial"], affinity=dict(optimizer=[{}], sampler={}))
    configs: list[Config] = [pinned, *(config for configs in STUDIES.values() for config in configs.values())]
    runners = [config() for config in (*configs, *configs)]
    identities = [[id(value) for _, value in settings_of(runner)] for runner in runners]
    assert len({i for ids in identities for i in ids}) == sum(len(set(ids)) for ids in identities)


def test_a_change_names_its_setting():
    dqn = STUDIES["atari_dqn"]["dqn"]
    with pytest.raises(TypeError, match="Did you mean learning_rate"):
        changed(dqn, algo={"learning_rat": 1.0})()
    with pytest.raises(TypeError, match="Did you mean n_steps"):
        changed(dqn, n_step=1.0)()
    with pytest.raises(ValueError, match="no configuration of atari_dqn 'duble'; expected one such as double"):
        make("atari_dqn", "duble")
    with pytest.raises(ValueError, match="no study 'atari_dqm'; expected one such as atari_dqn"):
        make("atari_dqm", "double")


def test_another_class_gets_what_was_given_and_keeps_its_own_defaults():
    serial = STUDIES["mujoco_ppo"]["ppo_1M_serial"]
    runner = changed(serial, algo={"Cls": A2C, "discount": 0.9})()
    assert (type(runner.algo), runner.algo.discount, runner.algo.learning_rate) == (A2C, 0.9, 3e-4)  # type: ignore[attr-defined]
    assert runner.algo.value_loss_coeff == 0.5  # type: ignore[attr-defined]  # PPO's default is 1


def test_the_page_names_every_configuration_and_every_mistake():
    page = ROOT / "docs" / "reference" / "experiments.md"
    by_head = {table[0][0] + table[0][1]: table[1:] for table in tables(page)}
    assert {row[0]: quoted(row[1]) for row in by_head["studyconfigurations"]} == {
        f"`{study}`": list(configs) for study, configs in STUDIES.items()
    }
    renamed = [(study, old, entry) for study, entries in RENAMED.items() for old, entry in entries.items()]
    for row, (study, old, entry) in zip(by_head["studyin rlpyt 0.1"], renamed, strict=True):
        sizes = f", `--n_envs {entry.n_envs} --eval_n_envs {entry.eval_n_envs}`" if entry.n_envs else ""
        assert row == [f"`{study}`", f"`{old}`", f"`{entry.now}`{sizes}", entry.why]
    mended = "\n".join(" ".join(row) for row in by_head["configurationwhat was wrong in rlpyt 0.1"])
    assert all(f"`{config}`" in mended for _, config in MENDED)
    agents = {quoted(row[0])[0]: float(row[2]) for row in by_head["agentalgorithm"]}
    assert agents == SCORES


# ---- the constructor calls of rlpyt 0.1 ----


def calls(study: str, config: str) -> Iterator[tuple[Callable[..., object], Kwargs]]:
    """Yield the four constructor calls of a configuration, as the training scripts of rlpyt 0.1 made them."""
    rooms: dict[str, Any] = {
        name: {} for name in ("algo", "agent", "env", "eval_env", "model", "optim", "runner", "sampler")
    }
    for name, value in OLD[study][config].items():
        room, _, setting = name.rpartition(".")
        if room and setting not in ("replay_buffer", "collector"):  # the scripts made parts of them
            rooms[room][setting] = value
    now = make(study, config)
    parts: dict[str, Any] = dict(algo=now.algo, agent=now.agent, sampler=now.sampler)
    environments = dict(env_kwargs=rooms["env"], eval_env_kwargs=rooms["eval_env"] or rooms["env"])
    yield type(parts["algo"]), dict(optim_kwargs=rooms["optim"], **rooms["algo"])
    yield type(parts["agent"]), {**({"model_kwargs": rooms["model"]} if rooms["model"] else {}), **rooms["agent"]}
    yield type(parts["sampler"]), dict(EnvCls=parts["sampler"].EnvCls, **environments, **rooms["sampler"])
    yield type(now), dict(**parts, affinity={}, **rooms["runner"])


def test_constructor_calls_of_rlpyt_0_1_pass_or_are_told_what_to_write():
    refused = Counter[str]()
    for study, config in CASES:
        for make_part, kwargs in calls(study, config):
            kwargs = dict(kwargs)
            while gone := NO_MORE & kwargs.keys():
                with pytest.raises(TypeError) as caught:
                    make_part(**kwargs)
                [name] = [name for name in gone if SETTINGS[name] in str(caught.value)]
                refused[name] += 1
                del kwargs[name]
            make_part(**kwargs)
    assert set(refused) == NO_MORE - {"replay_buffer", "collector"}


# ---- runs ----


OF_THE_SUITE = ("atari_r2d1", "atari_ff_a2c", "mujoco_ppo", "mujoco_sac")


@pytest.mark.parametrize(
    ("study", "config"), others_nightly(ALL, [(study, next(iter(STUDIES[study]))) for study in OF_THE_SUITE])
)
def test_every_configuration_starts(study, config, tmp_path):
    """Those of a study differ in numbers: the suite starts the first one of some, one for each algorithm or more."""
    runner = in_process(smoke(make(study, config)))
    with logger_context(tmp_path, 0):
        runner.train()
    progress = read_progress(tmp_path / "run_0")
    assert progress["Diagnostics/CumUpdates"][-1] > 0
    assert progress["Diagnostics/CumSteps"][-1] >= 60


def test_the_script_trains_in_another_environment(tmp_path, capsys):
    options = ["--env", "Swimmer-v5", "--seed", "3", "--log_dir", str(tmp_path), "--run_ID", "0", "--smoke"]
    train.main(["mujoco_sac", "sac_1M_serial", *options])
    params = json.loads((tmp_path / "run_0" / "params.json").read_text())
    assert (params["study"], params["config"], params["smoke"]) == ("mujoco_sac", "sac_1M_serial", True)
    runner = runner_from_params(tmp_path / "run_0")
    sampler = all_settings(runner.sampler)
    assert sampler["env_kwargs"] == sampler["eval_env_kwargs"] == dict(id="Swimmer-v5")
    assert (runner.seed, sampler["eval_n_envs"]) == (3, 1)


def options_of(*arguments: str) -> MinibatchRlBase:
    return train.runner_of(train.parser().parse_args(arguments))


def test_options_of_the_script_are_settings():
    runner = options_of("atari_r2d1", "async_gpu", "--env", "qbert", "--n_envs", "312", "--eval_n_envs", "40")
    given = all_settings(runner.sampler)
    assert given["env_kwargs"]["game"] == given["eval_env_kwargs"]["game"] == "qbert"
    assert [given[x] for x in ("batch_B", "eval_n_envs", "eval_max_steps", "eval_max_trajectories")] == [
        312,
        40,
        40 * 28_000,
        200,
    ]
    runner = options_of("mujoco_ppo", "ppo_1M_cpu", "--n_steps", "5e5", "--affinity", '{"workers_cpus": [0]}')
    assert (runner.n_steps, runner.affinity, runner.given_seed) == (5e5, {"workers_cpus": [0]}, None)


def test_a_smoke_run_keeps_the_classes_of_the_parts():
    runner = options_of("atari_r2d1", "async_gpu", "--smoke")
    assert (type(runner).__name__, type(runner.sampler)) == ("AsyncRlEval", GpuSampler)
    assert type(options_of("mujoco_ppo", "ppo_1M_cpu", "--smoke").sampler) is CpuSampler


def test_a_smoke_run_has_small_sizes_in_the_place_of_schedules():
    runner: Any = make("classic_control", "cartpole_dqn")
    runner.algo = runner.algo.replace(batch_size=lambda step: 64 + step, target_update_interval="lin_50_5")
    algo: Any = smoke(runner).algo
    assert (algo.batch_size, algo.target_update_interval) == (8, 2)


def test_the_script_lists_and_refuses(capsys):
    train.main(["atari_ff_a2c", "--list"])
    assert capsys.readouterr().out.splitlines() == [
        "0",
        "lr_4e-4",
        "2_replicas",
        "low_lr: now lr_4e-4, because 4e-4 is higher than the 3e-4 of the base",
        "2gpu: now 2_replicas, because replicas run on any hardware",
    ]
    with pytest.raises(SystemExit):
        train.main(["atari_dqn", "duble"])
    assert "expected one such as double" in capsys.readouterr().err
    for study, config in (("atari_dqn", "no_eval"), ("mujoco_ppo", "ppo_1M_cpu")):
        with pytest.raises(SystemExit):
            train.main([study, config, "--eval_n_envs", "4", "--smoke"])
        assert "this configuration has no evaluation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("configs", "games"),
    [
        (["cartpole_ppo"], ["CartPole-v0"]),
        pytest.param(["cartpole_ppo", "cartpole_dqn"], ["CartPole-v0", "CartPole-v1"], marks=pytest.mark.nightly),
    ],
)
def test_the_launcher_runs_a_study_and_a_variant_changes_it(configs, games, tmp_path, capsys):
    arguments = ["classic_control", *configs, "--games", *games, "--data_dir", str(tmp_path), "--smoke"]
    assert launch.main([*arguments, "--affinity", "1cpu"]) == 0
    for config, game in product(configs, games):
        log_dir = tmp_path / "classic_control" / config / game
        params = json.loads((log_dir / "run_0" / "params.json").read_text())
        assert (params["config"], params["runner"]["settings"]["seed"]) == (config, 0)
        assert params["runner"]["settings"]["sampler"]["settings"]["env_kwargs"]["id"] == game
    with pytest.raises(SystemExit):
        launch.main(["classic_control", "cartpole_pp", "--games", "CartPole-v0"])
    assert "expected one such as cartpole_ppo" in capsys.readouterr().err

    save_variant({"algo": {"learning_rate": 1e-5}}, tmp_path)
    train.main(["0slt_1cpu", str(tmp_path), "1", "classic_control", "cartpole_ppo", "--smoke"])
    runner = runner_from_params(tmp_path / "run_1")
    assert (all_settings(runner.algo)["learning_rate"], runner.seed) == (1e-5, 1)
    assert "master_cpus" in (runner.affinity or {})


@pytest.mark.parametrize("code", ["0slt_2cpu_2cpr", "0slt_2cpu_1gpu", "0slt_4cpu_2gpu_2gpr"])
def test_replicas_are_launched_in_one_slot(code, monkeypatch):
    monkeypatch.setattr(ComputeSettings, "__post_init__", lambda settings: None)  # that refuses a missing GPU
    runner = make("atari_ff_a2c", "2_replicas")
    affinity = train.affinity_of(runner, LaunchedRun(affinity_from_code(code), "data", 0, {}))
    given = runner.replace(affinity=affinity).affinity
    assert (len(given) if isinstance(given, list) else 1) == (2 if "gpr" in code else 1)


# ---- agents that are kept ----

SCORES = {"cartpole_ppo": 450.0, "cartpole_dqn": 450.0, "pendulum_sac": -250.0}
TRAINED = EXPERIMENTS / "trained"


@pytest.mark.parametrize("name", sorted(path.name for path in TRAINED.iterdir()))
def test_a_kept_agent_reaches_its_score(name):
    agent = load_agent(TRAINED / name)
    record = json.loads((TRAINED / name / "params.json").read_text())["runner"]
    sampler = part_from_record(record["settings"]["sampler"])
    result = evaluate(agent, sampler.EnvCls, sampler.env_kwargs, n_trajectories=5, n_envs=5, seed=5, deterministic=True)
    returns = [info.Return for info in result.traj_infos]
    assert sum(returns) / len(returns) > SCORES[name]


def test_kept_files_are_small_and_name_no_machine():
    assert {path.name for path in TRAINED.iterdir()} == set(SCORES) == set(STUDIES["classic_control"])
    for path in TRAINED.glob("*/*"):
        content = path.read_bytes()
        assert len(content) < 200_000
        assert not re.search(rb"/(work|home|root|tmp|usr)/", content)


def test_a_kept_agent_is_of_its_configuration():
    for name, config in STUDIES["classic_control"].items():
        runner = runner_from_params(TRAINED / name)
        for part in ("algo", "agent", "sampler"):
            assert all_settings(getattr(runner, part)) == all_settings(getattr(config(), part))
