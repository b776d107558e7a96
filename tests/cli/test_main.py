from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
import torch

from rlpyt.cli import main
from rlpyt.cli.main import COMMANDS, command_of, message_of
from rlpyt.cli.train import check_start, start_of
from rlpyt.utils.process_group import ReplicaError


def test_help_lists_all_commands_and_imports_no_torch():
    code = "import sys; from rlpyt.cli import main; main(['--help']); print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.endswith("False\n")
    assert all(f"  {name} " in result.stdout and summary[:20] in result.stdout for name, summary in COMMANDS.items())


def code_of(arguments):
    try:
        return main(arguments)
    except SystemExit as ended:
        return ended.code or 0


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_has_help(name, capsys):
    assert code_of([name, "--help"]) == 0
    assert COMMANDS[name][:20] in capsys.readouterr().out
    assert (command_of(name).__doc__ or "").partition("\n")[0] == COMMANDS[name]


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


BROKEN = """
import gymnasium

class Broken(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.n = 0

    def step(self, action):
        self.n += 1
        assert self.n < 30, "it broke"
        return super().step(action)
"""


@pytest.mark.parametrize("options", [[], ["--sampler-type", "cpu", "--sampler.n-workers", "1"]])
def test_an_error_in_an_environment_is_one_message_wherever_it_steps(options, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_broken.py").write_text(BROKEN)
    assert main(["train", "ppo", "my_broken:Broken", "--smoke", *options]) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "its step 30: step with action" in err
    assert f"AssertionError: it broke ({tmp_path}/my_broken.py:11 in step)\n" in err
    assert err.endswith("--traceback shows how it came to this.\n")


def test_the_error_of_a_replica_is_told_without_its_traceback():
    traceback = (
        'Traceback (most recent call last):\n  File "/x/mine.py", line 7, in reset\n    a\nE: b\n\nThe above ...'
    )
    error = ReplicaError(f"Replica 1 of 2: E: b\nAll replicas stop.\n\nThe traceback of replica 1:\n{traceback}", 1)
    assert message_of(error) == (
        "Replica 1 of 2: E: b\nAll replicas stop. (/x/mine.py:7 in reset)\n--traceback shows how it came to this."
    )


def test_the_check_before_a_run_changes_no_number_of_it():
    start = start_of(["dqn", "CartPole-v1", "--seed", "1"])
    torch.manual_seed(5)
    check_start(start.runner, start.spaces)
    after = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(3))
    assert not start.runner.agent.networks.modules()


@pytest.mark.parametrize("kind", [RuntimeError, TypeError])
def test_an_error_of_code_of_the_users_keeps_its_traceback(kind, monkeypatch):
    def raising(arguments):
        raise kind("of torch")

    monkeypatch.setattr(sys.modules["rlpyt.cli.main"], "command_of", lambda name: raising)
    with pytest.raises(kind, match="of torch"):
        main(["train", "ppo"])


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("rlpyt train rain", "rainbow"),
        ("rlpyt train dqn CartPole-v1 --sampler-type alt", "alternating"),
        ("rlpyt launch dqn CartPole-v1 --runs", "--runs-at-once"),
    ],
)
def test_bash_completes_algorithms_and_options(words, offered, completion, tmp_path):
    word = len(words.split()) - 1
    script = f"source {completion}\nCOMP_WORDS=({words})\nCOMP_CWORD={word}\n_tyro_rlpyt\necho ${{COMPREPLY[@]}}\n"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.split() == [offered]


@pytest.fixture(scope="module")
def completion(tmp_path_factory):
    file = tmp_path_factory.mktemp("completion") / "rlpyt.sh"
    with file.open("w") as script, contextlib.redirect_stdout(script):
        assert code_of(["--tyro-print-completion", "bash"]) == 0
    return file
