"""The functions of `rlpyt.logging.logger`, by which scripts of rlpyt 0.1 log."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rlpyt.logging import current_logger, logger, logger_context


def test_the_functions_are_those_of_the_current_logger(tmp_path, capsys):
    with logger_context(tmp_path, 0, snapshot_mode="none"):
        assert logger.get_snapshot_dir() == str(tmp_path / "run_0")
        with logger.prefix("itr #1 "), logger.tabular_prefix("Diagnostics/"):
            logger.push_prefix("rank 0 ")
            logger.log("Evaluating agent...", color="green")
            logger.log("bare", with_prefix=False)
            logger.pop_prefix()
            logger.push_tabular_prefix("Time/")
            logger.record_tabular("Eval", 2)
            logger.pop_tabular_prefix()
            logger.record_tabular_misc_stat("Force", [1.0, 3.0], placement="front")
        logger.set_iteration(40)
        logger.dump_tabular(with_prefix=False)
        assert current_logger().state_dict()["step"] == 40
        logger.set_snapshot_mode("gap")
        logger.set_snapshot_gap(5)
        assert (logger.get_snapshot_mode(), logger.get_snapshot_gap()) == ("gap", 5)
        for itr in range(6):
            logger.save_itr_params(itr, {"itr": itr})
    assert sorted(path.name for path in Path(tmp_path / "run_0").glob("*.pkl")) == ["itr_0.pkl", "itr_4.pkl"]
    with open(tmp_path / "run_0" / "progress.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["Diagnostics/Time/Eval"] == "2"
    assert row["Diagnostics/AverageForce"] == "2.0"
    out = capsys.readouterr().out
    assert "\nitr #1 rank 0 Evaluating agent...\nbare\n" in out
    assert "step 40" in out


def test_what_is_wrong_is_named():
    assert logger.get_snapshot_dir() is None
    with pytest.raises(ValueError, match="got snapshot_mode 'first'"):
        logger.set_snapshot_mode("first")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got snapshot_gap 0"):
        logger.set_snapshot_gap(0)
    with pytest.raises(AttributeError, match=r"has no 'add_tabular_output'; it has log, .*sinks"):
        logger.add_tabular_output  # noqa: B018
