"""Reading the runs of a grid, and grouping them by what differs."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest

from rlpyt.logging import logger_context
from rlpyt.results import aligned_curves, find_runs, group_runs, read_study
from tests.logging.test_logger import log_row
from tests.results.grid_kit import write_run


def labels(runs):
    return [(group.method, group.task, len(group.runs)) for group in group_runs(runs)]


def change(run, changes):
    """Give places of params.json, such as `plan.seed`, other values."""
    params = json.loads((run / "params.json").read_text())
    for place, value in changes.items():
        *path, name = place.split(".")
        part = params
        for key in path:
            part = part.setdefault(key, {})
        part[name] = value
    (run / "params.json").write_text(json.dumps(params))
    return run


def test_runs_are_found_and_nothing_else(tmp_path):
    for place in ("b/run_10", "b/run_2", "a/x/run_name"):
        write_run(tmp_path / place)
    (tmp_path / "b/run_2/earlier_1").mkdir()
    (tmp_path / "b/run_2/earlier_1/progress.csv").write_text("a\n1\n")
    write_run(tmp_path / "b/run_2/checkpoints/run_7")
    (tmp_path / "run_scripts/inner").mkdir(parents=True)
    (tmp_path / "b/run_3").mkdir()
    runs = find_runs(tmp_path)
    assert [run.name for run in runs] == ["a/x/run_name", "b/run_2", "b/run_3", "b/run_10"]
    assert [run.status for run in runs] == ["finished", "finished", "no record", "finished"]
    assert runs[2].note == "no status.json; no params.json; no rows yet"
    assert [run.name for run in find_runs(tmp_path / "b/run_10")] == ["run_10"]


def test_links_are_followed_and_each_run_counts_once(tmp_path):
    write_run(tmp_path / "elsewhere/run_0")
    (tmp_path / "grid").mkdir()
    for name, target in (("a", "elsewhere"), ("b", "elsewhere"), ("loop", "grid")):
        (tmp_path / "grid" / name).symlink_to(tmp_path / target)
    assert [run.name for run in find_runs(tmp_path / "grid")] == ["a/run_0"]


def test_a_run_is_running_as_long_as_its_own_process_holds_it(tmp_path):
    run = write_run(tmp_path / "run_0", status="running", pid=os.getpid())
    status = json.loads((run / "status.json").read_text()) | {"host": os.uname().nodename}
    (run / "status.json").write_text(json.dumps(status))
    (run / "run.lock").write_text("")
    [found] = find_runs(tmp_path)
    assert (found.status, found.note) == ("killed", "its process is gone")
    with open(run / "run.lock"):
        assert find_runs(tmp_path)[0].status == "running"


@pytest.mark.parametrize(
    ("file", "content", "note"),
    [
        ("params.json", "{", "params.json cannot be read"),
        ("params.json", "[1]", "params.json is not a dictionary"),
        ("status.json", "", "status.json cannot be read"),
        ("progress.csv", "", "no rows yet"),
        ("progress.csv", "a,b\n", "no rows yet"),
        ("progress.csv", "\xff\xfe\n1\n", "cannot be read"),
        ("../variant_config.json", "nonsense", "variant_config.json cannot be read"),
    ],
)
def test_records_that_cannot_be_read_are_named(tmp_path, file, content, note):
    run = write_run(tmp_path / "run_0")
    (run / file).write_bytes(content.encode("latin-1"))
    assert note in find_runs(tmp_path)[0].note


def test_no_run_and_no_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"there is none in .*; expected directories such as run_0"):
        find_runs(tmp_path)
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        find_runs(tmp_path / "nothing")
    write_run(tmp_path / "run_0")
    with pytest.raises(ValueError, match=r"got columns .* and 'Return', expected two of \['Diagnostics/CumSteps'"):
        read_study(tmp_path, y="Return")


def test_groups_are_what_differs_but_seeds(tmp_path):
    for seed in (0, 1):
        for rate in (1e-3, 3e-4):
            write_run(tmp_path / f"{rate}" / f"run_{seed}", settings={"learning_rate": rate, "epochs": 4}, seed=seed)
    assert labels(find_runs(tmp_path)) == [
        ("learning_rate=0.0003", "CartPole-v1", 2),
        ("learning_rate=0.001", "CartPole-v1", 2),
    ]
    # 4 and 4.0 are one value; a setting that changes together with another is not repeated only if it is the same.
    write_run(tmp_path / "c/run_0", settings={"learning_rate": 3e-4, "epochs": 4.0}, seed=2)
    assert [n for _, _, n in labels(find_runs(tmp_path))] == [3, 2]


RUN = "runner.settings"
ALGO = "runner.settings.algo"
SAMPLER = "runner.settings.sampler.settings"
HOOKS = {f"{RUN}.hooks": [{"class": "rlpyt.runners:StopOnReturn", "settings": {"threshold": 475}}]}
OF_RUN = ("layout", "seed", "resume", "affinity", "run_ID", "log_dir", "max_time")
HALF = dict(precision="bfloat16")
CHOSEN = dict(device="cpu", precision="float32", channels_last=False, torch_threads=1, tf32=None, compile=False)


def computed(given=None, **chosen):
    """Return the record of a run with compute settings that were given, or left to the runner, and what it chose."""
    if isinstance(given, dict):
        given = {"class": "rlpyt.utils.compute:ComputeSettings", "settings": {**CHOSEN, **given}}
    return {f"{RUN}.settings": given, "compute": CHOSEN | chosen}


GROUPS = {
    "what cannot change the numbers": (
        [
            {f"{RUN}.log_interval_steps": 500, f"{RUN}.checkpoint_interval_steps": 500, f"{RUN}.checkpoint_keep": 2},
            {f"{RUN}.checkpoint_interval_steps": {"float": "inf"}, f"{RUN}.checkpoint_interval_minutes": None},
            {f"{RUN}.log_interval_steps": 900, f"{RUN}.max_time": 60, f"{RUN}.checkpoint_interval_minutes": 10},
        ],
        {"PPO": [0, 1, 2]},
    ),
    "rows at which a hook may stop a run": (
        [{f"{RUN}.log_interval_steps": n, **HOOKS} for n in (500, 1000)],
        {"log_interval_steps=500": [0], "log_interval_steps=1000": [1]},
    ),
    **{
        f"a setting of a part that is named as one of the run: {name}": (
            [{f"{RUN}.model_kwargs": {name: value}} for value in (1, 1, 2, 2)],
            {f"{name}=1": [0, 1], f"{name}=2": [2, 3]},
        )
        for name in OF_RUN
    },
    "the seed of the run in its environment": ([{f"{RUN}.env_kwargs": {"seed": i}} for i in (0, 1)], {"PPO": [0, 1]}),
    "the run_ID in its environment": ([{f"{RUN}.x": {"run_ID": f"run_{i}"}} for i in (0, 1)], {"PPO": [0, 1]}),
    "two classes of one name": (
        [{ALGO: {"class": f"{module}:PPO"}} for module in ("rlpyt.algos", "__main__")],
        {"rlpyt.algos:PPO": [0], "__main__:PPO": [1]},
    ),
    "numbers of replicas, which an affinity may give": (
        [{"plan.replicas": 2}, {}, {"plan.replicas": 4}],
        {"replicas=2": [0], "PPO": [1], "replicas=4": [2]},
    ),
    "the order of entries": (
        [
            {f"{RUN}.hooks": [{"a": 1, "b": 2}], f"{RUN}.env": {"c": 1, "d": [2]}},
            {f"{RUN}.hooks": [{"b": 2, "a": 1}], f"{RUN}.env": {"d": {"tuple": [2]}, "c": 1}},
        ],
        {"PPO": [0, 1]},
    ),
    "numbers that are close": (
        [{f"{ALGO}.settings.learning_rate": rate} for rate in (0.00123451, 0.00123452)],
        {"learning_rate=0.00123451": [0], "learning_rate=0.00123452": [1]},
    ),
    "what follows from a class": (
        [
            *({f"{ALGO}.settings.epochs": 4}, {f"{ALGO}.settings.epochs": 8}),
            {ALGO: {"class": "rlpyt.algos:SAC", "settings": {"tau": 0.005, "learning_rate": 3e-4}}},
        ],
        {"PPO, epochs=4": [0], "PPO, epochs=8": [1], "SAC": [2]},
    ),
    # As `rlpyt train RUN --seed 1` makes the second.
    "compute settings that were chosen and then given": ([computed(), computed({})], {"PPO": [0, 1]}),
    "compute settings of the machine": (
        [computed(channels_last=True), computed(), computed(dict(torch_threads=2), torch_threads=2)],
        {"PPO": [0, 1, 2]},
    ),
    "a precision": (
        [computed("fastest", precision="bfloat16"), computed(), computed(HALF, **HALF)],
        {"precision=bfloat16": [0, 2], "precision=float32": [1]},
    ),
    "a layout that was given": (
        [computed({}), computed(dict(channels_last=True), channels_last=True)],
        {"channels_last=False": [0], "channels_last=True": [1]},
    ),
    "a device": ([computed({}, device=f"cuda:{i}") for i in (0, 1)], {"PPO": [0, 1]}),
    "compiled code": (
        [computed(), computed(dict(compile=True), compile=True)],
        {"compile=False": [0], "compile=True": [1]},
    ),
}


@pytest.mark.parametrize(("changes", "expected"), GROUPS.values(), ids=GROUPS)
def test_groups_are_what_changes_the_numbers(tmp_path, changes, expected):
    for i, of_run in enumerate(changes):
        change(write_run(tmp_path / f"run_{i}", seed=i), of_run)
    found = {group.method: [int(run.name[4:]) for run in group.runs] for group in group_runs(find_runs(tmp_path))}
    assert found == expected


def test_a_run_that_ended_before_its_first_row_makes_no_legend_and_no_long_note(tmp_path):
    write_run(tmp_path / "run_0", seed=0)
    message = "PgModel has no argument 'hidden_size'. " * 10
    for i in (1, 2):
        write_run(
            tmp_path / f"run_{i}",
            (),
            settings={"minibatches": i},
            status="failed",
            exception={"type": "TypeError", "message": message},
        )
    study = read_study(tmp_path)
    assert study.methods == ["PPO"]
    assert study.remarks == ("not drawn, as there is no row: run_1 (failed), run_2 (failed)",)


@pytest.mark.parametrize(
    ("params", "seed"),
    [
        ({"plan": {"seed": 7}, "runner": {"class": "rlpyt.runners:MinibatchRl", "settings": {"seed": None}}}, 7),
        ({"runner": {"class": "rlpyt.runners:MinibatchRl", "settings": {"seed": 5}}}, 5),
        ({"seed": 3}, 3),
        ({}, None),
    ],
)
def test_the_seed_is_the_drawn_one_or_the_given_one(tmp_path, params, seed):
    (write_run(tmp_path / "run_0") / "params.json").write_text(json.dumps(params))
    assert find_runs(tmp_path)[0].seed == seed


@pytest.mark.parametrize(
    ("name", "values", "tasks"),
    [
        ("EnvCls", [{"name": "gymnasium:make"}, {"name": "mine:make"}], ["X-v1 (gymnasium:make)", "X-v1 (mine:make)"]),
        ("eval_env_kwargs", [{"id": "A"}, {"id": "B"}], ["X-v1 (A)", "X-v1 (B)"]),
        ("env_kwargs", [{"id": "x" * 60 + end} for end in "ab"], ["x" * 60 + "a", "x" * 60 + "b"]),
        ("env_kwargs", [{"id": f"{m}:X"} for m in "ab"], ["X (a:X)", "X (b:X)"]),
    ],
)
def test_tasks_of_one_name_are_told_apart(tmp_path, name, values, tasks):
    """The scores of one would take the place of those of the other."""
    for i, value in enumerate(values):
        run = write_run(tmp_path / f"{i}/run_0", [(100, i)], env="X-v1", column="GameScoreAverage")
        change(run, {f"{SAMPLER}.{name}": value})
    study = read_study(tmp_path, y="GameScoreAverage")
    assert study.tasks == tasks
    assert study.scores == {}


def test_tasks_are_not_part_of_a_method(tmp_path):
    for env in ("Pong", "Breakout"):
        for rate in (1, 2):
            write_run(tmp_path / env / str(rate) / "run_0", settings={"learning_rate": rate}, env=f"ALE/{env}-v5")
    assert labels(find_runs(tmp_path)) == [
        ("learning_rate=1", "ALE/Breakout-v5", 1),
        ("learning_rate=2", "ALE/Breakout-v5", 1),
        ("learning_rate=1", "ALE/Pong-v5", 1),
        ("learning_rate=2", "ALE/Pong-v5", 1),
    ]


def test_variants_count_where_the_runner_is_not_recorded(tmp_path):
    """So did runs of rlpyt 0.1."""
    for i, changes in enumerate([{"algo": {"discount": 0.9}}, {"algo": {"discount": 0.99}}]):
        (tmp_path / f"{i}").mkdir()
        (tmp_path / f"{i}/variant_config.json").write_text(json.dumps(changes))
        (tmp_path / f"{i}/run_0").mkdir()
        (tmp_path / f"{i}/run_0/params.json").write_text(json.dumps({"run_ID": i, "name": f"x{i}", "seed": i}))
    assert [method for method, _, _ in labels(find_runs(tmp_path))] == ["discount=0.9", "discount=0.99"]


def test_long_values_do_not_join_two_methods(tmp_path):
    for i in range(2):
        write_run(tmp_path / f"{i}/run_0", settings={"sizes": [0] * 40 + [i]})
    first, second = [method for method, _, _ in labels(find_runs(tmp_path))]
    assert first.startswith("sizes=[0, 0,")
    assert second == first + " (2)"


def test_what_is_left_out_is_named(tmp_path):
    write_run(tmp_path / "run_0", seed=3)
    write_run(tmp_path / "run_1", seed=3)
    write_run(tmp_path / "run_2", seed=4, status="failed", exception={"type": "ValueError", "message": "loss is nan"})
    write_run(tmp_path / "run_3", seed=5, rows=())
    (write_run(tmp_path / "run_4") / "params.json").unlink()
    study = read_study(tmp_path)
    assert [run.name for group in study.groups for run in group.runs] == ["run_0", "run_1", "run_2"]
    assert study.scores["PPO"].tolist() == [[3.0], [3.0]]
    where = "PPO on CartPole-v1"
    assert study.remarks == (
        f"run_2 ({where}): failed, ValueError: loss is nan",
        f"run_0, run_1 ({where}): the same seed 3, so these runs are not independent",
        "run_3: not drawn, no rows yet",
        "run_4: not drawn, as its settings are not recorded",
    )


def test_curves_are_interpolated_and_never_extended(tmp_path):
    nan = math.nan
    write_run(tmp_path / "run_0", [(0, nan), (100, 1.0), (200, nan), (300, 5.0)])
    write_run(tmp_path / "run_1", [(50, 0.0), (150, 2.0)])
    write_run(tmp_path / "run_2", [(50, 0.5), (100, 7.0), (150, 9.0), (50, 1.0), (100, 8.0)])  # went on from before
    curves = aligned_curves(find_runs(tmp_path), "ReturnAverage")
    assert curves.steps.tolist() == [50, 100, 150, 300]
    np.testing.assert_array_equal(curves.values, [[nan, 1, 2, 5], [0, 1, 2, nan], [1, 8, nan, nan]])
    assert curves.complete.tolist() == [False, True, False, False]
    few = aligned_curves(find_runs(tmp_path), "ReturnAverage", n_points=3)
    assert few.steps.tolist() == [50, 175, 300]
    np.testing.assert_array_equal(few.values[0], [nan, 2.5, 5])
    assert aligned_curves([], "ReturnAverage").values.shape == (0, 0)


def test_the_score_of_a_run_is_the_mean_of_its_last_tenth(tmp_path):
    rows = [(100 * i, float(i)) for i in range(1, 21)]
    write_run(tmp_path / "run_0", rows)
    [run] = find_runs(tmp_path)
    # A row tells of the steps before it: the one at nine tenths is of the tenth before.
    assert run.final("ReturnAverage") == (19 + 20) / 2
    assert run.final("ReturnAverage", fraction=0.04) == 20
    write_run(tmp_path / "run_1", [(0, 7.0)])
    assert find_runs(tmp_path)[1].final("ReturnAverage") == 7


def test_a_run_without_a_late_value_has_no_score(tmp_path):
    write_run(tmp_path / "run_0", [(100, 5.0), (1000, math.nan)])
    assert math.isnan(find_runs(tmp_path)[0].final("ReturnAverage"))
    study = read_study(tmp_path)
    assert study.scores == {}
    assert study.remarks == (
        "run_0: finished, and not scored, as its last tenth has no ReturnAverage",
        "PPO: no scores, as its finished runs with a score are 0 on CartPole-v1",
    )
    write_run(tmp_path / "run_1", [(100, 5.0), (1000, 6.0)], seed=1)
    study = read_study(tmp_path)
    assert study.scores["PPO"].tolist() == [[6.0]]
    assert study.remarks == ("run_0: finished, and not scored, as its last tenth has no ReturnAverage",)


def test_what_no_record_tells_of_a_group_is_named(tmp_path):
    for seed in (0, 1):
        unrecorded = {"runner.settings.sampler.settings.EnvCls": {"unrecorded": "a function of a script"}}
        change(write_run(tmp_path / f"run_{seed}", seed=seed), unrecorded)
        said = ("PPO on CartPole-v1: no record tells whether its runs differ in sampler.EnvCls",) * seed
        assert read_study(tmp_path).remarks == said


def test_runs_that_a_hook_has_stopped_are_named(tmp_path):
    write_run(tmp_path / "run_0", stopped="a return of 70")
    assert read_study(tmp_path).remarks == ("run_0 (PPO on CartPole-v1): finished, stopped early: a return of 70",)


def test_runs_of_other_code_in_a_group_are_named(tmp_path):
    for seed, commit in enumerate("aab"):
        change(write_run(tmp_path / f"run_{seed}", seed=seed), {"git_commit": commit})
    assert read_study(tmp_path).remarks == ("PPO on CartPole-v1: its runs are from 2 versions of the code",)


@pytest.mark.parametrize(
    ("status", "seed", "run_ids", "is_replaced"),
    [
        ("killed", 3, (None, None), True),
        ("killed", 4, (0, 0), True),
        ("running", 4, (0, 0), False),
        ("killed", 4, (None, None), False),
        ("killed", 4, (0, 1), False),
    ],
)
def test_a_run_that_was_started_again_counts_once(tmp_path, status, seed, run_ids, is_replaced):
    """A script without resume leaves the rows of the run that was killed in run_0, and those of the next in run_0_1."""
    write_run(tmp_path / "run_0", [(100, 1.0)], seed=3, status=status)
    write_run(tmp_path / "run_0_1", [(100, 1.0), (200, 2.0)], seed=seed)
    for name, run_id in zip(("run_0", "run_0_1"), run_ids, strict=True):
        change(tmp_path / name, {"logger.run_ID": run_id})
    study = read_study(tmp_path)
    assert [run.name for run in study.groups[0].runs] == ["run_0", "run_0_1"][is_replaced:]
    said = "run_0 (PPO on CartPole-v1): not drawn, as a finished run has its seed or its run_ID"
    assert (said in study.remarks) == is_replaced


def test_rows_from_behind_the_place_where_a_run_went_on_do_not_count(tmp_path):
    rows = [(100, 1.0), (200, 2.0), (300, 3.0), (math.nan, 4.0), (150, 10.0), (250, 20.0)]
    write_run(tmp_path / "run_0", rows)
    [run] = find_runs(tmp_path)
    assert [column.tolist() for column in run.curve("ReturnAverage")] == [[100, 150, 250], [1, 10, 20]]
    assert (run.last_step, run.final("ReturnAverage")) == (250, 20)


def test_scores_over_tasks_are_human_normalised_and_complete(tmp_path):
    for env, raw in (("Pong", 14.6), ("Breakout", 1.7)):
        for seed in (0, 1):
            for algo in ("DQN", "IQN"):
                where = tmp_path / algo / env / f"run_{seed}"
                write_run(where, [(100, raw)], algo=algo, env=f"ALE/{env}-v5", seed=seed, column="GameScoreAverage")
    study = read_study(tmp_path)
    assert (study.y, study.scale, study.tasks) == (
        "GameScoreAverage",
        "human-normalised score",
        ["ALE/Breakout-v5", "ALE/Pong-v5"],
    )
    assert {name: matrix.tolist() for name, matrix in study.scores.items()} == {
        "DQN": [[0.0, 1.0], [0.0, 1.0]],
        "IQN": [[0.0, 1.0], [0.0, 1.0]],
    }
    write_run(tmp_path / "IQN/Pong/run_2", [(100, 1.0)], algo="IQN", env="ALE/Pong-v5", column="GameScoreAverage")
    study = read_study(tmp_path)
    assert list(study.scores) == ["DQN"]
    assert (
        "IQN: no scores, as its finished runs with a score are 2 on ALE/Breakout-v5, 3 on ALE/Pong-v5" in study.remarks
    )


def test_only_raw_scores_of_games_are_human_normalised(tmp_path):
    """Returns of clipped rewards are none."""
    write_run(tmp_path / "a/run_0", [(100, 5.0)], env="ALE/Pong-v5")
    study = read_study(tmp_path)
    assert (study.y, study.scale, study.scores["PPO"].tolist()) == ("ReturnAverage", "ReturnAverage", [[5.0]])
    write_run(tmp_path / "b/run_0", [(100, 5.0)], env="ALE/Breakout-v5", column="GameScoreAverage")
    assert read_study(tmp_path).y == "ReturnAverage"


def test_tasks_of_different_scales_have_no_common_score(tmp_path):
    for env in ("CartPole-v1", "Acrobot-v1"):
        write_run(tmp_path / env / "run_0", env=env)
    study = read_study(tmp_path)
    assert study.scores == {}
    assert study.remarks == ("no scores over tasks: ReturnAverage of Acrobot-v1, CartPole-v1 is not on one scale",)


def test_a_run_of_this_process(tmp_path):
    with logger_context(tmp_path, 0, log_params={"mine": 1}) as logger:
        log_row(logger, 10, {"Diagnostics/CumSteps": 10})
        [run] = find_runs(tmp_path)
        assert (run.status, run.last_step, run.settings) == ("running", 10, {"mine": 1})
    assert find_runs(tmp_path)[0].status == "finished"
