"""Search by Optuna: trials, pruning, failures, several searchers, and searchers that are stopped or killed."""

from __future__ import annotations

import io
import json
import os
import signal

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from rlpyt.algos import PPO
from rlpyt.launching import load_search, search_experiments
from rlpyt.results import find_runs
from tests.launching.kit import QUICK as DONE
from tests.launching.kit import script, starts, when

CORES = sorted(os.sched_getaffinity(0))
SPACE = {("x",): IntDistribution(0, 100), ("part", "z"): CategoricalDistribution(["a", "b"])}

EACH = "number = int(log_dir.rpartition('_')[2])\n"
QUICK = "go(20, lambda i: variant['x'] + seed)\n" + DONE


def search(tmp_path, rest=QUICK, n_trials=3, space=None, code="1aut", **kwargs):
    table = io.StringIO()
    path = script(tmp_path, EACH + rest)
    space = SPACE if space is None else space
    result = search_experiments(path, code, "study", space, n_trials, data_dir=tmp_path, file=table, **kwargs)
    return result, table.getvalue()


def trials(tmp_path):
    return load_search(tmp_path / "study").trials


def n_starts(tmp_path):
    return {path.parent.name: len(starts(path)) for path in tmp_path.glob("study/*/run_0")}


# ---- trials ----


def test_a_trial_is_a_variant_of_its_own_and_the_best_one_is_told(tmp_path):
    result, table = search(tmp_path, n_trials=4, seeds_per_trial=2)
    assert (result.exit_code, result.n_trials) == (0, 4)
    all_trials = trials(tmp_path)
    for trial in all_trials:
        variant = json.loads((tmp_path / f"study/trial_{trial.number}/variant_config.json").read_text())
        assert variant == {"x": trial.params["x"], "part": {"z": trial.params["part.z"]}}
        assert trial.value == variant["x"] + 0.5, "the mean over seeds"
    best = max(all_trials, key=lambda trial: trial.value)
    assert (result.best_number, result.best_value) == (best.number, best.value)
    assert result.best_variant["x"] == best.params["x"]
    assert f"Best: trial_{best.number}" in table
    assert len(find_runs(tmp_path / "study")) == 8


def test_a_draw_depends_on_the_seed_and_the_number_alone(tmp_path):
    drawn = []
    for name, parts in (("a", [3]), ("b", [1, 2, 3]), ("c", [3])):
        (tmp_path / name).mkdir()
        for n_trials in parts:
            search(tmp_path / name, n_trials=n_trials, seed=1 if name == "c" else 0)
        drawn.append([trial.params for trial in trials(tmp_path / name)])
    assert drawn[0] == drawn[1], "a search that was started again goes on, and does not draw the first trial again"
    assert drawn[0] != drawn[2]
    assert len({str(params) for params in drawn[0]}) == 3


def test_a_trial_that_a_user_has_enqueued_runs_though_the_others_were_all(tmp_path):
    search(tmp_path, n_trials=2)
    load_search(tmp_path / "study").enqueue_trial({"x": 77, "part.z": "b"})
    result, table = search(tmp_path, n_trials=2)
    assert (result.exit_code, n_starts(tmp_path)) == (0, {"trial_0": 1, "trial_1": 1}), "n_trials is the limit"
    result, table = search(tmp_path, n_trials=3)
    assert "2 of 3 trials have begun" in table
    assert [trial.state for trial in trials(tmp_path)] == [TrialState.COMPLETE] * 3
    assert json.loads((tmp_path / "study/trial_2/variant_config.json").read_text()) == {"x": 77, "part": {"z": "b"}}


def test_a_function_draws_variants_and_prunes_settings_that_do_not_go_together(tmp_path):
    def space(trial):
        x = trial.suggest_int("x", 0, 9)
        if trial.number == 1:
            raise optuna.TrialPruned
        return {"x": x, "sizes": {"small": [8]}[trial.suggest_categorical("n", ["small"])]}

    result, table = search(tmp_path, n_trials=3, space=space)
    assert (result.exit_code, result.best_variant["sizes"]) == (0, [8])
    assert [trial.state.name for trial in trials(tmp_path)] == ["COMPLETE", "PRUNED", "COMPLETE"]
    assert "trial_1 is pruned by the function of the space." in table
    assert n_starts(tmp_path) == {"trial_0": 1, "trial_2": 1}
    with pytest.raises(TypeError, match="the function of the space returned None; expected a variant"):
        search(tmp_path, n_trials=4, space=lambda trial: None)


def test_the_value_is_the_mean_of_the_last_rows_and_no_maximum(tmp_path):
    rest = "go(20, lambda i: {4: 1000, 17: 3, 18: 'nan', 19: 5}.get(i, 1))\n" + DONE
    search(tmp_path, rest, n_trials=1, fraction=0.15)
    trial = trials(tmp_path)[0]
    assert trial.value == 4.0 == find_runs(tmp_path)[0].final("ReturnAverage", fraction=0.15)
    assert sorted(trial.intermediate_values) == [*range(10, 190, 10), 200], "each row once, none without a value"
    assert trial.intermediate_values[50] == 1000


class EndsAt(optuna.pruners.BasePruner):
    def prune(self, study, trial):
        return trial.number == 0 and trial.last_step >= 40


def test_a_pruned_trial_saves_its_work_and_has_not_failed(tmp_path):
    rest = "go(6, lambda i: i)\nif number == 0: wait()\n" + DONE
    result, table = search(tmp_path, rest, n_trials=2, pruner=EndsAt())
    assert result.exit_code == 0
    first, second = trials(tmp_path)
    assert (first.state, second.state) == (TrialState.PRUNED, TrialState.COMPLETE)
    assert sorted(first.intermediate_values) == [10, 20, 30, 40], "rows between two polls came in order"
    assert "trial_0 is pruned at step 40" in table
    assert "1 pruned, 1 finished" in table
    assert json.loads((tmp_path / "study/trial_0/run_0/status.json").read_text()) == {"status": "interrupted"}
    assert n_starts(tmp_path)["trial_0"] == 1


def test_the_median_pruner_compares_trials_whose_rows_come_at_other_steps(tmp_path):
    rest = "go(20, lambda i: 9 - number, every=10 - number)\nif number == 2: wait()\n" + DONE
    search(tmp_path, rest, pruner=optuna.pruners.MedianPruner(n_startup_trials=2))
    states = [trial.state.name for trial in trials(tmp_path)]
    assert states == ["COMPLETE", "COMPLETE", "PRUNED"]
    assert all({*trial.intermediate_values} <= {*range(10, 210, 10)} for trial in trials(tmp_path))


def test_a_trial_that_fails_is_said_and_the_search_goes_on(tmp_path):
    rest = "number == 0 and seed == 0 and 1 / 0\nnumber == 0 and wait()\n" + QUICK
    result, table = search(tmp_path, rest, n_trials=2, seeds_per_trial=2, code=f"{min(2, len(CORES))}aut")
    assert result.exit_code == 1
    assert [trial.state for trial in trials(tmp_path)] == [TrialState.FAIL, TrialState.COMPLETE]
    assert table.count("trial_0/0 failed with exit code 1") == 2
    assert "trial_0 has failed." in table
    assert result.best_number == 1
    result, table = search(tmp_path, "go(3, lambda i: 'nan')\n" + DONE, n_trials=3, seeds_per_trial=2)
    assert trials(tmp_path)[2].state == TrialState.FAIL
    assert "ReturnAverage has no value in the last rows" in table


def test_searchers_share_the_trials_and_go_on_with_one_that_was_stopped(tmp_path):
    """Trial 0 waits until its searcher is stopped; its second start goes on with its rows."""
    rest = "go(5, lambda i: i)\nnumber == 0 and n_starts == 1 and wait()\n"
    rest += "go(20, lambda i: i)\ntime.sleep(0.3)\n" + DONE

    def is_waiting():
        return n_starts(tmp_path) and trials(tmp_path)[0].last_step == 50

    stop = when(is_waiting, lambda: os.kill(os.getpid(), signal.SIGINT))
    assert search(tmp_path, rest, n_trials=6, code="1aut_0saf")[0].exit_code == 130
    stop.join()
    assert trials(tmp_path)[0].state == TrialState.RUNNING
    found = []
    other = when(lambda: True, lambda: found.append(search(tmp_path, rest, n_trials=6, code="1aut_0saf")))
    found.append(search(tmp_path, rest, n_trials=6, code="1aut_0saf"))
    other.join()
    assert [result.exit_code for result, _ in found] == [0, 0], found
    assert n_starts(tmp_path) == {"trial_0": 2, **{f"trial_{i}": 1 for i in range(1, 6)}}
    all_trials = trials(tmp_path)
    assert any(trial.state != TrialState.PRUNED for trial in all_trials)
    assert all(trial.state.is_finished() for trial in all_trials)
    assert len({str(trial.params) for trial in all_trials}) == 6, "no two drew the same"
    assert sorted(all_trials[0].intermediate_values) == [*range(10, 210, 10)]
    assert all(any(f"trial_{i} " in text for _, text in found) for i in range(6))


# ---- bad input ----


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        (dict(n_trials=0), ValueError, "n_trials is 0"),
        (dict(seeds_per_trial=0), ValueError, "seeds_per_trial is 0"),
        (dict(direction="up"), ValueError, "direction is 'up'"),
        (dict(space={}), ValueError, "the space is empty"),
        (dict(space={"x": IntDistribution(0, 1)}), TypeError, r"Write \('x',\)"),
        (dict(space={("x",): [1, 2]}), TypeError, "expected a distribution of Optuna"),
        (
            dict(space={("x",): IntDistribution(0, 1), ("x", "y"): IntDistribution(0, 1)}),
            ValueError,
            r"settings x and x\.y .* inside of it",
        ),
        (dict(config=PPO(), space={("lerning_rate",): FloatDistribution(0, 1)}), TypeError, "learning_rate"),
        (dict(code="4096aut"), ValueError, "at most one for each"),
    ],
)
def test_a_wrong_search_starts_nothing(tmp_path, changes, error, text):
    with pytest.raises(error, match=text):
        search(tmp_path, **changes)
    assert not (tmp_path / "study").exists()


@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_choices_that_the_journal_cannot_keep_are_refused(tmp_path):
    with pytest.raises(TypeError, match="Let space be a function"):
        search(tmp_path, space={("x",): CategoricalDistribution([(1,), (2,)])})  # type: ignore[list-item]


def test_a_column_that_the_log_has_not_is_named_and_can_be_corrected(tmp_path):
    with pytest.raises(ValueError, match=r"no column 'Return'; .*\['Diagnostics/CumSteps', 'ReturnAverage'\]"):
        search(tmp_path, n_trials=1, y="Return")
    result, _ = search(tmp_path, n_trials=1)
    assert (result.exit_code, result.n_trials) == (0, 1)


LATE = """
with open(folder / "progress.csv", "w") as file:
    file.write("note\\nby hand\\n")
    file.flush()
    time.sleep(0.5)
(folder / "progress.csv").write_text("note,Diagnostics/CumSteps,Late\\nby hand,,\\n,10,\\n,20,3.0\\n,30,4.0\\n")
finish('finished', 0)
"""


def test_a_column_that_comes_in_a_late_row_is_no_error(tmp_path):
    result, _ = search(tmp_path, LATE, n_trials=1, y="Late", fraction=0.5)
    assert (result.exit_code, result.best_value) == (0, 3.5)
    [trial] = trials(tmp_path)
    assert sorted(trial.intermediate_values.values()) == [3.0, 4.0]


def test_a_journal_of_another_search_is_refused(tmp_path):
    search(tmp_path, n_trials=1)
    text = r"direction maximize \(now minimize\); space x .*'high': 100.* \(now .*'high': 7"
    with pytest.raises(ValueError, match=text):
        search(tmp_path, space={**SPACE, ("x",): IntDistribution(0, 7)}, direction="minimize")
    with pytest.raises(ValueError, match=r"fraction 0.1 \(now 0.5\)"):
        search(tmp_path, fraction=0.5)
    with pytest.raises(ValueError, match=r"common_args \[\] \(now \['--long'\]\)"):
        search(tmp_path, common_args=["--long"])
    (tmp_path / "study/search.journal").unlink()
    with pytest.raises(ValueError, match="has trials, but there is no journal"):
        search(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no journal"):
        load_search(tmp_path / "study")
