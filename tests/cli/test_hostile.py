"""Records, archives, links and folders that come from elsewhere: no code runs, and what is wrong is one line."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from rlpyt.agents import DqnAgent
from rlpyt.algos import DQN
from rlpyt.cli import main
from rlpyt.logging import logger_context
from rlpyt.logging.checkpoint_files import CheckpointFiles
from rlpyt.logging.segments import sha256_of
from rlpyt.logging.snapshots import SnapshotError, load_snapshot, save_snapshot
from rlpyt.runners import MinibatchRl, RecordError, load_agent, runner_from_params
from rlpyt.samplers import SerialSampler

COMMANDS: dict[str, list[str]] = {
    "show": ["show", "run_0"],
    "eval": ["eval", "run_0", "--episodes", "1", "--n-envs", "1"],
    "eval of a file": ["eval", "run_0", "--episodes", "1", "--n-envs", "1", "--snapshot", "params.pkl"],
    "play": ["play", "run_0", "--episodes", "1", "--video", "v.mp4"],
    "plot": ["plot", "run_0", "--out", "pictures"],
    "resume": ["resume", "run_0", "--n-steps", "80"],
    "train": ["train", "run_0", "--smoke"],
    "launch": ["launch", "run_0", "--runs-at-once", "1"],
}
RECORD = ("eval", "play", "resume", "train", "launch")
"""Commands that make parts of a record."""
AGENT = ("eval", "play")
"""Commands that read weights."""
ALL = tuple(COMMANDS)
MARK = "code_has_run"
PAYLOAD = f"open({MARK!r}, 'w').close()\nraise ImportError('hostile')\n"
LIBRARIES = ("pygame", "ale_py", "Box2D", "mujoco", "envpool", "gym", "shimmy", "jax", "swig", "ray", "cv2", "imageio")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: Any) -> Path:
    """Run of CartPole with a snapshot, a checkpoint and a row of its log."""
    folder: Path = tmp_path_factory.mktemp("honest")
    algo = DQN(batch_size=4, min_steps_learn=8, replay_size=64, replay_ratio=1)
    sampler = SerialSampler(gymnasium.make, dict(id="CartPole-v1"), batch_T=4, batch_B=2)
    with logger_context(folder, 0, verbosity="quiet"):
        agent = DqnAgent(model_kwargs=dict(hidden_sizes=(4,)))
        MinibatchRl(
            algo, agent, sampler, n_steps=40, log_interval_steps=40, checkpoint_interval_steps=40, seed=0
        ).train()
    return folder / "run_0"


@pytest.fixture
def run(honest: Path, tmp_path: Path, monkeypatch: Any) -> Path:
    """Copy of the run in the working directory, which has modules that must not be imported."""
    shutil.copytree(honest, tmp_path / "run_0")
    for name in (*LIBRARIES, "payload", "pay load"):
        (tmp_path / f"{name}.py").write_text(PAYLOAD)
        (tmp_path / "run_0" / f"{name}.py").write_text(PAYLOAD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", os.getcwd())])
    return tmp_path / "run_0"


def changed(change: Callable[[dict[str, Any]], object], run: Path) -> None:
    """Change the content of params.json."""
    params = json.loads((run / "params.json").read_text())
    change(params)
    (run / "params.json").write_text(json.dumps(params))


def setting(place: str, value: object, run: Path) -> None:
    """Change one setting of the record."""
    *parts, name = place.split(".")

    def change(params: dict[str, Any]) -> None:
        settings = params["runner"]["settings"]
        for part in parts:
            settings = settings[part]["settings"]
        settings[name] = value

    changed(change, run)


def entry(name: str, value: object, run: Path) -> None:
    """Change an entry of params.json, or one of an entry."""
    outer, dot, inner = name.partition(".")
    changed(lambda p: p[outer].update({inner: value}) if dot else p.update({name: value}), run)


def manifest(name: str, value: object, run: Path) -> None:
    """Forge an entry of the manifest of the checkpoint, with its checksum; None removes it."""
    files = CheckpointFiles(run / "checkpoints")
    (step,) = files.all_steps()
    files.write_manifest(step, {key: x for key, x in {**files.info(step), name: value}.items() if x is not None})


def state(places: tuple[str, ...], value: object, run: Path) -> None:
    """Forge one value in the state of the checkpoint, with all checksums."""
    files = CheckpointFiles(run / "checkpoints")
    (step,) = files.all_steps()
    content, part = files.place(step) / "rank_0.pt", files.place(step) / "rank_0.json"
    saved = inner = load_snapshot(content)
    for place in places[:-1]:
        inner = inner[place]
    inner[places[-1]] = value
    torch.save(saved, content)
    part.write_text(json.dumps({**json.loads(part.read_text()), "sha256": sha256_of(content)}))
    files.write_manifest(step, {**files.info(step), "ranks": [sha256_of(part)]})


def link(name: str, run: Path) -> None:
    """Put a link in the place of a file, as an archive may carry it."""
    (path,) = run.glob(name)
    path.rename(run.parent / "elsewhere")
    path.symlink_to(run.parent / "elsewhere")


def pipe(run: Path) -> None:
    """Put a pipe, which waits for a writer, in the place of the record."""
    (run / "params.json").unlink()
    os.mkfifo(run / "params.json")


def bomb(run: Path) -> None:
    """Write a snapshot that unpacks to a thousand times its size."""
    with zipfile.ZipFile(run / "params.pkl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("params/data/0", bytes(10_000_000))


def text(content: str, run: Path) -> None:
    """Write another params.json."""
    (run / "params.json").write_text(content)


def weights(content: dict[str, object], run: Path) -> None:
    """Write other weights."""
    save_snapshot(run / "params.pkl", content)


MAKE = {"name": "gymnasium:make"}
IDS = ("payload:X-v0", "run_0.pay load:X-v0", "payload:X:Y")
PARTIAL = {"partial": {"function": MAKE, "args": ["payload:X-v0"], "keywords": {}}}
RESUME, STARTS = ("resume",), ("resume", "train", "launch")
CASES: list[tuple[str, Callable[[Path], None], tuple[str, ...]]] = [
    *((f"id {x}", partial(setting, "sampler.env_kwargs", {"id": x}), RECORD) for x in IDS),
    ("evaluation's id", partial(setting, "sampler.eval_env_kwargs", {"id": IDS[1]}), RECORD),
    ("partial", partial(setting, "sampler.EnvCls", PARTIAL), RECORD),
    ("class of the run", partial(setting, "sampler.TrajInfoCls", {"name": "run_0.payload:X"}), RECORD),
    ("function that makes", partial(setting, "sampler.EnvCls", {"name": "rlpyt.envs:make_env"}), RECORD),
    ("hook", partial(setting, "hooks", [{"class": "payload:Hook", "settings": {}}]), STARTS),
    ("model", partial(setting, "agent.ModelCls", {"name": "payload:Model"}), RECORD),
    ("algorithm", partial(setting, "algo", {"class": "os:system", "settings": {}}), STARTS),
    ("runner", partial(entry, "runner.class", "payload:Runner"), STARTS),
    ("escape", partial(setting, "sampler.EnvCls", {"name": "\x1b]52;c;eA==\x07\u202e\n:Y"}), RECORD),
    ("nested", partial(text, "[" * 200 + "]" * 200), RECORD),
    ("long number", partial(text, '{"runner": {"settings": {"seed": ' + "9" * 9_999 + "}}}"), RECORD),
    ("no settings", partial(entry, "runner.settings", None), RECORD),
    ("no sampler", partial(setting, "sampler", None), RECORD),
    ("batch of text", partial(setting, "sampler.batch_T", "x"), RECORD),
    ("logger", partial(entry, "logger", None), RECORD),
    ("logger's mode", partial(entry, "logger.snapshot_mode", 3), RESUME),
    ("logger's words", partial(entry, "logger.verbosity", "\x1b"), ("launch",)),
    ("tracker", partial(entry, "track", ["payload(x=1)"]), ("resume", "launch")),
    ("trackers", partial(entry, "track", "wandb"), ("resume", "launch")),
    ("tracker's server", partial(entry, "track", ["mlflow(tracking_uri=http://else)"]), ("resume", "launch")),
    ("name", partial(entry, "name", 3), RECORD),
    ("compute", partial(entry, "compute", {"device": ["x"]}), ("train", "launch")),
    ("spaces", partial(entry, "spaces", ["x"]), RECORD),
    ("space of another kind", partial(entry, "spaces.observation", 3), AGENT),
    ("huge space", partial(changed, lambda p: p["spaces"]["observation"]["settings"].update(shape=[10**9] * 2)), AGENT),
    ("model of text", partial(setting, "agent.model_kwargs", {"hidden_sizes": "x"}), AGENT),
    ("bomb", bomb, AGENT),
    ("no archive", lambda run: (run / "params.pkl").write_bytes(b"x" * 99) and None, AGENT),
    ("other weights", partial(weights, {"agent_state_dict": {"x": [1]}, "cum_steps": 99}), AGENT),
    ("steps of text", partial(weights, {"agent_state_dict": {}, "cum_steps": "x"}), AGENT),
    ("linked record", partial(link, "params.json"), RECORD),
    ("linked weights", partial(link, "params.pkl"), (*AGENT, "eval of a file")),
    *(
        (f"linked {name}", partial(link, name), RESUME)
        for name in ("run.lock", "debug.log", "checkpoints", "checkpoints/0*/manifest.json", "checkpoints/segments")
    ),
    ("pipe", pipe, RECORD),
    *(
        (f"manifest's {key}", partial(manifest, key, x), RESUME)
        for key, x in (("ranks", 3), ("format", "1"), ("settings", ["x"]), ("compute", {"a": "x"}), ("seed", None))
    ),
    ("other weights of the state", partial(state, ("state", "agent"), torch.zeros(3)), RESUME),
    ("stream of other numbers", partial(state, ("state", "streams", "random"), (3, [*[-1] * 624, 624], None)), RESUME),
]


@pytest.mark.parametrize(("poison", "commands"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_comes_from_elsewhere_runs_no_code_and_is_refused_in_one_line(poison, commands, run, capsys):
    poison(run)
    for command in commands:
        assert main(COMMANDS[command]) == 2, command
        said = capsys.readouterr().err
        assert said.startswith("rlpyt: "), command
        assert said.count("\n") == 1, said
        assert said[:-1].isprintable(), said
    assert main(COMMANDS["show"]) in (0, 2)
    said = capsys.readouterr()
    assert (said.out + said.err).replace("\n", "").isprintable()
    assert not Path(MARK).exists()
    if "train" in commands:
        with pytest.raises((RecordError, FileNotFoundError)):
            runner_from_params(run)
    with contextlib.suppress(ValueError, SnapshotError, OSError):  # it does not read all
        load_agent(run)
    assert not Path(MARK).exists()


@pytest.mark.parametrize("command", [name for name in ALL if name != "launch"])
def test_no_file_of_the_working_directory_takes_the_place_of_a_library(command, run, capsys):
    assert main(COMMANDS[command]) == 0
    assert not Path(MARK).exists()


def test_the_help_of_a_record_shows_its_texts_and_obeys_none(run, capsys):
    setting("agent.model_kwargs", {"hidden_sizes": "\x1b]52;c;eA==\x07\u202e"}, run)
    with pytest.raises(SystemExit):
        main(["train", "run_0", "--help"])
    said = capsys.readouterr().out
    assert "]52;c;eA==" in said
    assert not any(text in said for text in ("\x1b]", "\x07", "\u202e"))
