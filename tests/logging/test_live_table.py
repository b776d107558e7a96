"""Table of a run that is drawn in place, on a small model of a terminal; and what is printed elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import threading
from typing import Any

import pytest

from rlpyt.logging import Logger, logger_context, read_progress
from rlpyt.runners.plan import plan_text
from rlpyt.utils.terminal import Region, bar, can_redraw, clock, region_below_prints, sparkline
from tests.logging.test_logger import log_row
from tests.runners.runner_kit import run, without_times


class Screen(io.StringIO):
    """Model of a terminal that knows the codes of a region, and those of colours; any other code is an error."""

    encoding = "utf-8"

    def __init__(self, columns: int = 80) -> None:
        super().__init__()
        self.columns, self.lines, self.y, self.x = columns, [""], 0, 0

    def isatty(self):
        return True

    def write(self, text, /):
        text = re.sub(r"\x1b\[[\d;]*m", "", text)
        for code, sign in re.findall(r"\x1b\[(\d*[FJ])|([^\x1b])", text, re.DOTALL):
            if code.endswith("F"):
                self.y, self.x = max(0, self.y - int(code[:-1])), 0
            elif code == "J":
                self.lines[self.y :] = [self.lines[self.y][: self.x]]
            elif sign == "\r":
                self.x = 0
            elif sign == "\n":
                self.y, self.x = self.y + 1, 0
                self.lines += [""] * (self.y + 1 - len(self.lines))
            else:
                if self.x == self.columns:
                    self.write("\n")
                line = self.lines[self.y].ljust(self.x)
                self.lines[self.y] = line[: self.x] + sign + line[self.x + 1 :]
                self.x += 1
        assert len(re.findall(r"\x1b", text)) == len(re.findall(r"\x1b\[\d*[FJ]", text))
        return len(text)

    def narrow(self, columns: int) -> None:
        """Wrap what is shown, as terminals do when they are made smaller."""
        parts = [[line[i : i + columns] for i in range(0, max(1, len(line)), columns)] for line in self.lines]
        self.lines = [part for line in parts for part in line]
        self.columns, self.y = columns, len(self.lines) - 1

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip("\n")


@pytest.fixture
def size(monkeypatch):
    def set_size(columns: int, lines: int = 24) -> None:
        monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, lines)))

    set_size(80)
    monkeypatch.setenv("TERM", "xterm")
    return set_size


def terminal(monkeypatch, columns: int = 80) -> Screen:
    """Not a fixture: pytest puts its own streams back between fixtures and test."""
    screen = Screen(columns)
    monkeypatch.setattr(sys, "stdout", screen)
    return screen


def test_a_region_is_drawn_in_place_below_what_is_printed(size, monkeypatch):
    screen = terminal(monkeypatch)
    with region_below_prints() as region:
        region.draw(["a", "b"])
        region.draw(["c"])
        print("text")
        region.draw(["d", "e"])
        print("half", end="")
        region.draw(["not between halves"])
        print(" and half")
        region.draw(["f"])
        print("cut", end="")
        region.end_line()
        region.draw(["g"])
        with Logger().live_table(10, 0):
            assert screen.text.endswith("cut\ng"), "a second table is not drawn"
    print("after")
    assert screen.text == "text\nhalf and half\ncut\ng\nafter"
    assert sys.stdout is screen


def test_a_terminal_that_is_made_narrow_keeps_nothing_of_the_table(size, monkeypatch):
    screen = terminal(monkeypatch)
    region = Region(screen)
    region.draw(["x" * 200, "y" * 30])
    assert [len(line) for line in screen.lines] == [79, 30, 0], "cut to the width"
    screen.narrow(20)
    size(20, 3)
    region.draw(["z" * 200, "w", "no room"])
    assert screen.text == "z" * 19 + "\nw"


def test_a_signal_that_shows_text_leaves_both_whole(size, monkeypatch):
    screen = terminal(monkeypatch)
    region = Region(screen)
    region.draw(["a"])
    screen.write("SIGTERM\n")  # by a handler, around the stream
    region.forget()
    screen.write("^C")
    region.draw(["b"])
    region.draw(["c"])
    assert screen.text == "a\nSIGTERM\nc"


def test_a_forked_process_prints_around_the_region(size, monkeypatch):
    screen = terminal(monkeypatch)
    with region_below_prints() as region:
        region.draw(["table"])
        with region._lock, monkeypatch.context() as patch:
            patch.setattr("os.getpid", lambda: -1)
            thread = threading.Thread(target=print, args=("of a worker",))  # the lock is another's
            thread.start()
            thread.join(10)
    assert screen.text == "table\nof a worker"


def test_only_a_terminal_of_utf_8_that_is_not_dumb_is_redrawn(size, monkeypatch):
    screen = terminal(monkeypatch)
    assert can_redraw(screen)
    screen.encoding = "ascii"
    assert not can_redraw(screen)
    screen.encoding = "utf-8"
    monkeypatch.setenv("TERM", "dumb")
    assert not can_redraw(screen)
    assert not can_redraw(None)


def test_curves_bars_and_clocks():
    nan = float("nan")
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 2, 6, 8], 2) == "▁█"
    assert sparkline([1, nan, 3], 3) == "▁ █"
    assert sparkline([5, 5], 8) == "▄▄"
    assert (sparkline([nan], 8), sparkline([], 8)) == (" ", "")
    assert sparkline([1e308, 1.5e308, -1e308], 3) == "▇█▁"  # of a loss that diverges: the range is no float any more
    assert sparkline([1.5e308, 1.5e308, -1.5e308, -1.5e308], 2) == "█▁"
    assert (bar(0.5, 4), bar(2.0, 2), bar(0.0, 2)) == ("██░░", "██", "░░")
    assert [clock(x) for x in (7.9, 725, 3723, 50 * 3600)] == ["0:07", "12:05", "1:02:03", "2d 02:00"]


def test_a_run_in_a_terminal_shows_one_table_and_the_same_files(size, monkeypatch, tmp_path, capsys):
    run(tmp_path / "plain", n_steps=200)
    screen = terminal(monkeypatch)
    run(tmp_path / "live", n_steps=200)
    shown = screen.text
    assert len(re.findall("^Return ", shown, re.MULTILINE)) == 1, "one table for all rows"
    assert "100%  200 of 200 steps" in shown
    assert "StepsPerSecond" in shown
    assert shown.startswith("run directory")
    assert without_times(tmp_path / "live") == without_times(tmp_path / "plain")
    for name in ("plain", "live"):
        log = (tmp_path / name / "run_0" / "debug.log").read_text()
        assert log.count("| step ") == len(read_progress(tmp_path / name / "run_0")["Diagnostics/CumSteps"])
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert printed.count("step ") == 5


def test_a_plan_is_a_table_with_its_cautions_below_it():
    cautions = dict.fromkeys(("pri_eta", "x"), "not used")
    text = plan_text({"steps": 1000, "compile": False, "observation": "a " * 40, **cautions}, cautions)
    assert text.split("\n") == [
        "plan:",
        "  steps        1,000",
        f"  observation  {'a ' * 31}a",
        f"{' ' * 15}{'a ' * 7}a",
        "cautions:",
        "  pri_eta, x: not used",
    ]


def test_a_long_name_leaves_room_for_the_numbers(size, monkeypatch):
    screen = terminal(monkeypatch)
    logger = Logger()
    with logger.live_table(100, 0):
        logger.record_tabular_misc_stat("Return", [12.5])
        logger.record_tabular_misc_stat("distance to the goal at the end of the episode " * 3, [7.0])
        logger.dump_tabular(50)
        assert re.search(r"^Return +12\.5 ", screen.text, re.MULTILINE)
        assert re.search(r"^distance to the goal at t\w* +7 ", screen.text, re.MULTILINE)


def test_the_time_left_is_that_of_the_last_rows(size, monkeypatch):
    screen, now = terminal(monkeypatch), 1000.0
    monkeypatch.setattr("rlpyt.logging.live_table.time.monotonic", lambda: now)
    logger = Logger()
    with logger.live_table(10_000, 0):
        for steps, seconds in ((100, 100), *((100 + 100 * i, 1) for i in range(1, 8))):
            now += seconds
            logger.live.show_steps(steps)
            log_row(logger, steps, x=steps)
        assert "1:32 left  100 steps/s" in screen.text, "the first row was slow"


def test_a_block_that_fails_leaves_its_table_and_the_streams(size, monkeypatch):
    screen, logger = terminal(monkeypatch), Logger()
    with contextlib.suppress(ZeroDivisionError), logger.live_table(200, 0):
        logger.live.show_steps(100)
        raise ZeroDivisionError
    assert sys.stdout is screen
    assert "100 of 200 steps" in screen.text


@pytest.mark.parametrize(
    ("verbosity", "columns", "line"),
    [
        ("lines", (), "step 1,000: Return 1.5, 10 steps/s"),
        ("lines", ("Epsilon", "ReturnMax", "no"), "step 1,000: Epsilon 0.25, ReturnMax 2, 10 steps/s"),
        ("quiet", (), None),
    ],
)
def test_quiet_runs_print_a_line_for_each_row_or_nothing_but_warnings(verbosity, columns, line, tmp_path, capsys):
    options: dict[str, Any] = dict(verbosity=verbosity, line_columns=columns)
    with contextlib.suppress(KeyboardInterrupt), logger_context(tmp_path, 0, **options) as logger:
        logger.log("text")
        logger.record_tabular_misc_stat("Return", [1.0, 2.0])
        log_row(logger, 1000, {"Diagnostics/StepsPerSecond": 10.0, "Diagnostics/Epsilon": 0.25})
        logger.warn("look")
        raise KeyboardInterrupt
    why = f"Interrupted by Ctrl-C. What was saved stays in {tmp_path}/run_0."
    assert capsys.readouterr().out.splitlines() == ([line, "WARNING: look", why] if line else ["WARNING: look"])
    debug = (tmp_path / "run_0" / "debug.log").read_text()
    assert (debug.count("| text"), debug.count("| step "), debug.count(why)) == (1, 1, 1)
