"""Which module may import which: the floors of `docs/reference/architecture.md`, read from the source with ast."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
import textwrap

import pytest

import rlpyt
from tests.shape import MODULES, ROOT, imports, name_of, room_of

REPOSITORY = ROOT.parent

FLOORS = {
    "version": 0,
    "run_records": 0,
    "slurm": 0,
    "old_rlpyt": 0,
    "namedarraytuple": 1,
    "utils": 1,
    "functional": 1,
    "settings": 2,
    "types": 2,
    "spaces": 2,
    "core": 3,
    "envs": 4,
    "replays": 4,
    "distributions": 4,
    "models": 4,
    "logging": 4,
    "compat": 4,
    "runners": 5,
    "samplers": 5,
    "agents": 5,
    "algos": 5,
    "launching": 6,
    "results": 6,
    "testing": 6,
    "cli": 7,
    "__main__": 8,
}
# Which rooms of floor 4 a room of floor 5 may enter; on one floor nobody enters another room.
ARROWS = {
    "runners": {"logging"},
    "samplers": {"envs", "logging"},
    "agents": {"models", "distributions", "envs"},
    "algos": {"replays"},
}
# On the ground floor, too, there is an order: namedarraytuple stands on nothing, the maths on the arrays' names alone.
GROUND = {"utils": {"namedarraytuple"}, "functional": {"namedarraytuple"}}
# Rooms that nobody enters: they are for users alone.
FOR_USERS = {"testing"}
OUTSIDE = ("examples", "experiments", "benchmarks", "tests")


def violations(module: str, source: str) -> list[str]:
    """Return what the imports of a module break, in words."""
    room, found = room_of(module), []
    for target, at_top, line in imports(ast.parse(source)):
        where = f"{module}:{line} imports {target}"
        if target.split(".")[0] in OUTSIDE:
            found.append(f"{where}, which composes the library")
        if target.split(".")[0] != "rlpyt":
            continue
        if not at_top:
            found.append(f"{where} inside a function")
        if module == "rlpyt":
            continue
        other = room_of(target)
        if other == "":
            found.append(f"{where}: name the module that it is in")
        elif other not in FLOORS:
            found.append(f"{where}, a room that is not in the table")
        elif other != room and not allowed(room, other):
            found.append(f"{where}: {room} (floor {FLOORS[room]}) may not enter {other} (floor {FLOORS[other]})")
    return found


def allowed(room: str, other: str) -> bool:
    floor, below = FLOORS[room], FLOORS[other]
    if other in FOR_USERS:
        return False
    if floor == below <= 1:
        return other in GROUND.get(room, ())
    if floor == 5 and below == 4:
        return other in ARROWS[room]
    return below < floor


def test_imports_go_down_and_along_the_arrows():
    found = [v for path in MODULES for v in violations(name_of(path), path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source", "broken"),
    [
        ("rlpyt.samplers.x", "from rlpyt.agents import BaseAgent", True),
        ("rlpyt.samplers.x", "from rlpyt.envs import make_env", False),
        ("rlpyt.samplers.x", "def f():\n    from rlpyt.envs import make_env", True),
        ("rlpyt.samplers.x", "if TYPE_CHECKING:\n    from rlpyt.algos import PPO", True),
        ("rlpyt.envs.x", "from rlpyt.logging import Logger", True),
        ("rlpyt.envs.x", "def f():\n    import ale_py", False),
        ("rlpyt.testing.x", "from rlpyt.agents import PgAgent\nfrom rlpyt.envs import make_env", False),
        ("rlpyt.samplers.x", "from rlpyt.testing import check_env", True),
        ("rlpyt.core", "from rlpyt.envs import EnvAdapter", True),
        ("rlpyt.utils.x", "from rlpyt.types import Samples", True),
        ("rlpyt.algos.x", "from examples.ppo import main", True),
        ("rlpyt.algos.x", "from rlpyt.secret import x", True),
        ("rlpyt.algos.x", "from rlpyt.algos.base import x\nfrom rlpyt.core import y\nimport torch", False),
    ],
)
def test_the_rules_themselves(module, source, broken):
    assert bool(violations(module, source)) == broken


def test_every_room_is_in_the_table():
    rooms = {room_of(name_of(path)) for path in MODULES} - {""}
    assert rooms <= set(FLOORS), rooms - set(FLOORS)


def test_packages_are_one_folder_deep():
    deep = [str(path) for path in MODULES if len(path.relative_to(ROOT).parts) > 2]
    assert not deep, deep


@pytest.mark.parametrize("path", sorted(ROOT.glob("*/__init__.py")), ids=name_of)
def test_packages_define_nothing_and_export_what_they_import(path):
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    imported: set[str] = set()
    exported: list[str] = []
    for node in tree.body[1:]:
        if isinstance(node, ast.ImportFrom | ast.Import):
            imported |= {alias.asname or alias.name for alias in node.names}
        else:
            assert isinstance(node, ast.Assign), f"line {node.lineno} defines something"
            assert ast.unparse(node.targets[0]) == "__all__", f"line {node.lineno} defines something"
            exported = ast.literal_eval(node.value)
    assert set(exported) == imported
    assert len(exported) == len(set(exported)), "a name stands twice in __all__"
    module = importlib.import_module(name_of(path))
    assert all(hasattr(module, name) for name in exported)


@pytest.mark.parametrize("module", [m.name for m in pkgutil.walk_packages(rlpyt.__path__, "rlpyt.")])
def test_every_module_can_be_imported_and_says_what_it_is(module):
    assert importlib.import_module(module).__doc__


def run_python(source: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(source)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=115, cwd=REPOSITORY, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_importing_rlpyt_is_cheap_and_brings_nothing_heavy():
    out = run_python(
        """
        import sys, time
        start = time.perf_counter()
        import rlpyt
        seconds = time.perf_counter() - start
        heavy = {"torch", "numpy", "gymnasium", "scipy", "matplotlib", "psutil"} & set(sys.modules)
        print(sorted(heavy), seconds < 1.0, rlpyt.namedarraytuple("T", "a b")(1, 2).b)
        """
    )
    assert out.split("\n")[0] == "[] True 2"


def test_other_systems_are_refused_at_the_import():
    out = run_python(
        """
        import sys
        sys.platform = "darwin"
        try:
            import rlpyt
        except ImportError as error:
            print(error)
        """
    )
    assert out.startswith("Importing rlpyt: this system is 'darwin'; expected 'linux'.")
    assert '"Operating System :: POSIX :: Linux"' in (REPOSITORY / "setup.py").read_text()


@pytest.mark.parametrize(
    ("given", "kept"),
    [({}, "30000 None"), ({"GOMP_SPINCOUNT": "7"}, "7 None"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None ACTIVE")],
)
def test_how_long_idle_threads_stay_awake_is_set_unless_the_user_says_so(
    given: dict[str, str], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    code = "import os, rlpyt; print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('OMP_WAIT_POLICY'))"
    assert run_python(code) == f"{kept}\n"


# ---- doors ----


def test_what_serves_rlpyt_0_1_is_loaded_when_it_is_asked_for(door):
    out = door(
        """
        import sys, warnings
        import rlpyt, rlpyt.samplers, rlpyt.algos, rlpyt.agents, rlpyt.runners
        rlpyt.algos.SAC(), rlpyt.agents.SacAgent()
        print(*[name for name in sys.modules if name.startswith("rlpyt.compat")])
        warnings.simplefilter("ignore")
        from rlpyt.runners.base import BaseRunner
        print(BaseRunner is rlpyt.runners.base.MinibatchRlBase, "rlpyt.compat.names" in sys.modules)
        """
    )
    assert out == "\nTrue True\n"


def test_an_old_import_line_is_the_first_line_of_a_script(door):
    """The parents of an old path are found although some are modules here, and no packages."""
    out = door(
        """
        import sys, warnings
        warnings.simplefilter("ignore")
        from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
        from rlpyt.samplers.collections import *
        import rlpyt.algos.dqn.dqn as dqn
        from rlpyt.utils.logging import logger
        from rlpyt.agents.dqn.atari import atari_dqn_agent
        print(AlternatingSampler.__module__, TrajInfo.__module__, dqn.DQN.__name__, logger.__name__)
        print(atari_dqn_agent.AtariDqnAgent.__name__)
        """
    )
    assert out.split() == ["rlpyt.samplers.gpu", "rlpyt.types", "DQN", "rlpyt.logging.logger", "AtariDqnAgent"]


TOPS = ("cli", "launching", "results", "testing", "runners", "agents", "algos", "samplers")
OPTIONAL = {"ale_py", "cv2", "gym", "tensorboard", "matplotlib", "wandb", "stable_baselines3", "mujoco", "onnx"}
OPTIONAL |= {"onnxscript", "safetensors", "ray", "jinja2", "scipy"}


@pytest.mark.parametrize("rooms", [TOPS, pytest.param((), marks=pytest.mark.nightly)], ids=["tops", "all"])
def test_each_package_can_be_the_first_and_brings_no_optional_package(rooms, door):
    """Those on top import all others; it takes a second for each. A circle shows only to who comes by the wrong one."""
    for room in rooms or {room_of(name_of(path)) for path in MODULES} - {""}:
        assert door(f"import sys, rlpyt.{room}\nprint(*{OPTIONAL} & set(sys.modules), end='')") == "", room


def test_examples_need_nothing_but_what_is_installed(door):
    """What pytest has imported already, and the repository on its path, would hide a missing import."""
    scripts = sorted(map(str, (REPOSITORY / "examples").glob("*.py")))
    assert door(f"import runpy\nfor script in {scripts}: runpy.run_path(script)") == ""
