from __future__ import annotations

import subprocess
import sys

import gymnasium
import pytest

from rlpyt.cli import main
from rlpyt.cli.main import COMMANDS, command_of, summary_of


def test_help_lists_all_commands_and_imports_no_torch():
    code = "import sys; from rlpyt.cli import main; main(['--help']); print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.endswith("False\n")
    assert all(f"  {name} " in result.stdout and summary_of(name)[:20] in result.stdout for name in COMMANDS)


def test_a_mistyped_command_gets_the_close_ones(capsys):
    assert main(["resum", "x"]) == 2
    assert capsys.readouterr().err.startswith("rlpyt: there is no command 'resum'; did you mean resume?")


def code_of(arguments):
    try:
        return main(arguments)
    except SystemExit as ended:
        return ended.code or 0


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_has_help(name, capsys):
    assert code_of([name, "--help"]) == 0
    assert summary_of(name)[:20] in capsys.readouterr().out
    assert callable(command_of(name))


def test_errors_of_users_are_one_message_and_the_traceback_is_shown_on_demand(tmp_path, capsys, monkeypatch):
    missing = ["resume", str(tmp_path / "run_0")]
    assert main(missing) == 2
    assert "Traceback" not in (err := capsys.readouterr().err)
    assert "expected the directory of a run" in err
    assert main([*missing, "--traceback"]) == 2
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("RLPYT_TRACEBACK", "1")
    assert main(missing) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_shell_can_complete_commands_and_options(capsys):
    assert code_of(["--tyro-print-completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in (*COMMANDS, "alternating", "--sampler-type", "--runs-at-once"))


class Breaks(gymnasium.Env):
    """Raises in its first step."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        raise ZeroDivisionError("no ground below")


@pytest.mark.parametrize("sampler", ["serial", "cpu"])
def test_errors_of_environments_are_one_message(sampler, tmp_path, capsys):
    given = ["train", "ppo", f"{__name__}:Breaks", "--log-dir", str(tmp_path), "--n-steps", "100"]
    assert main([*given, "--sampler-type", sampler]) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "Breaks (rank 0" in err
    assert "its step 1: " in err
    assert "ZeroDivisionError: no ground below (" in err
    assert "test_main.py:" in err
    assert err.endswith("--traceback shows where it was raised.\n")
    if sampler == "serial":
        assert main([*given, "--traceback"]) == 2
        assert 'raise ZeroDivisionError("no ground below")' in capsys.readouterr().err
