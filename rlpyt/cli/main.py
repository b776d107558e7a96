"""Program `rlpyt`: the table of its commands, and what all of them share.

A command is one function with hints and a docstring, which returns the exit code. tyro makes its options of these. Only
the module of the command that is asked for is imported, so that `rlpyt --help` and `rlpyt show` take no time.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Union

import tyro

from rlpyt.cli.arguments import joined
from rlpyt.cli.text import columns, did_you_mean
from rlpyt.run_records import printable
from rlpyt.version import __version__

Command = Callable[..., int]

COMMANDS = {
    "train": "Train an agent, or start a recorded run again.",
    "resume": "Go on with a run from its newest checkpoint, to its end.",
    "launch": "Run a grid of runs side by side, or go on with it.",
    "show": "Show what a run was and where it stands; of a grid, a line for each run.",
    "eval": "Evaluate a trained agent: returns and lengths of whole episodes, a fixed number in each environment.",
    "play": "Show episodes of a trained agent in a window, or write them to videos.",
    "plot": "Draw the runs of a folder; runs that differ in nothing but their seeds are one curve.",
    "check-env": "Check an environment of yours as a run does at its start; the exit code is 1 if it cannot be used.",
    "bench": "Measure how many steps a second each sampler collects, and in which settings the network learns faster.",
    "algos": "List the algorithms, and the actions that they take.",
    "envs": "List the environments that are installed, and what is missing.",
}
"""Command -> first line of its docstring, since importing it may take seconds. The module of its name in this package,
or of `MODULES`, has a function of that name, or `<name>_command`."""
MODULES = {"algos": "algorithms"}
ROOT = Path(__file__).parents[1]
"""Folder of the library."""
READ_ARGUMENTS = {"train": "TrainChoices", "launch": "Grid"}
"""Commands whose options depend on the first arguments, and the options that they always have: their functions take the
list of arguments."""
_OF_REPLICA = "\n\nThe traceback of replica"
_HINT = "\n--traceback shows how it came to this."
USER_ERRORS = (ValueError, OSError, ImportError)
"""Errors that are told by their message alone."""
COMPLETION = ("--tyro-print-completion", "--tyro-write-completion")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command with its arguments, or those of this process; return the exit code, 2 where they are at fault."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    shows_traceback = "--traceback" in given or os.environ.get("RLPYT_TRACEBACK", "0") != "0"
    given = [argument for argument in given if argument != "--traceback"]
    try:
        return _run(given)
    except BrokenPipeError:  # the reader of `rlpyt show | head` has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (*USER_ERRORS, RuntimeError, TypeError) as error:
        if not isinstance(error, USER_ERRORS) and not is_of_library(error):
            raise  # of torch, or of code of the user's
        if shows_traceback:
            traceback.print_exc()
        # It may quote a record that comes from elsewhere.
        print("\n".join(map(printable, f"rlpyt: {message_of(error)}".split("\n"))), file=sys.stderr)
        return 2


def is_of_library(error: Exception) -> bool:
    """Return whether an error is one of the library: by its class, or for a TypeError by the place that raised it."""
    if isinstance(error, RuntimeError):
        return type(error).__module__.startswith("rlpyt.")
    raised_at = traceback.extract_tb(error.__traceback__)[-1].filename
    return Path(raised_at).is_relative_to(ROOT)


def message_of(error: Exception) -> str:
    """Return the message of an error; for one of a user's environment or of a worker with the place in the code."""
    text = str(error)
    if isinstance(error, TypeError):  # it refuses a setting, as far as one can tell
        return f"{text}{_HINT}"
    if not isinstance(error, RuntimeError):
        return text
    text, _, told = text.partition("\n\nIts traceback:\n") if "Its traceback" in text else text.partition(_OF_REPLICA)
    # The first part is about the error that the others followed from.
    first = (told or "".join(traceback.format_exception(error))).partition("\n\n")[0]
    places = re.findall(r'^  File "(.+)", line (\d+), in (.+)$', first, re.MULTILINE)
    if places and not Path(places[-1][0]).is_relative_to(ROOT):
        file, line, function = places[-1]
        if f":{line}" not in text:  # an error of an environment has it
            text = f"{text} ({file}:{line} in {function})"
    return f"{text}{_HINT}"


def _run(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0 if given else 2
    if given[0] == "--version":
        print(f"rlpyt {__version__}")
        return 0
    if given[0] in COMPLETION:
        return int(tyro.extras.subcommand_cli_from_dict(all_commands(), prog="rlpyt", args=given) or 0)
    name, rest = given[0], given[1:]
    if name not in COMMANDS:
        expected = f"; expected one of {', '.join(COMMANDS)}."
        raise ValueError(f"there is no command {name!r}{did_you_mean(name, COMMANDS, expected)}")
    command = command_of(name)
    if name in READ_ARGUMENTS:
        return command(rest)
    return tyro.cli(command, prog=f"rlpyt {name}", args=joined(rest))


def command_of(name: str) -> Command:
    """Return the function of a command."""
    own = name.replace("-", "_")
    module = vars(importlib.import_module(f"rlpyt.cli.{MODULES.get(own, own)}"))
    found: Command = module.get(f"{own}_command") or module[own]
    return found


def all_commands() -> dict[str, Command]:
    """Return the functions of all commands, for the completion of a shell."""
    found = {name: command_of(name) for name in COMMANDS}
    modules = {name: vars(importlib.import_module(f"rlpyt.cli.{name}")) for name in READ_ARGUMENTS}
    return found | {name: _by_algorithm(found[name], modules[name][READ_ARGUMENTS[name]]) for name in READ_ARGUMENTS}


def _by_algorithm(command: Command, Options: type) -> Command:
    """Return a function of the shape of a command whose first word is an algorithm, after which options come."""

    def shape(run: object) -> int:
        raise AssertionError("a shell completes by the shape of a command, and runs the command itself")

    names = vars(importlib.import_module("rlpyt.cli.algorithms"))["ALGORITHMS"]
    words = [Annotated[Options, tyro.conf.subcommand(name, prefix_name=False)] for name in names]
    shape.__doc__ = command.__doc__
    shape.__annotations__ = {"run": Annotated[Union[tuple(words)], tyro.conf.OmitArgPrefixes], "return": int}  # noqa: UP007
    return shape


def help_text() -> str:
    """Return the list of commands."""
    listed = columns([(f"  {name}", summary) for name, summary in COMMANDS.items()])
    return "\n".join(
        [
            "rlpyt: deep reinforcement learning in PyTorch.",
            "",
            "usage: rlpyt COMMAND ...",
            "",
            listed,
            "",
            "rlpyt COMMAND --help tells more. Start with: rlpyt train ppo CartPole-v1",
        ]
    )
