"""README.md and docs/: the code on the pages runs, links lead somewhere, and what the tables name exists."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import runpy
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import rlpyt
from experiments.studies import RENAMED, STUDIES
from rlpyt import algos
from rlpyt.agents import DqnAgent, PgAgent, SacAgent, Td3Agent
from rlpyt.algos import A2C, DQN, PPO, SAC, TD3
from rlpyt.compat.methods import OLD_ATTRIBUTES, OLD_METHODS
from rlpyt.compat.names import NAMES, SETTINGS
from rlpyt.envs import AtariEnv
from rlpyt.envs.info import RESERVED
from rlpyt.functional import TARGETS_OUTSIDE
from rlpyt.logging import logger_context, read_progress
from rlpyt.logging.sinks import STATISTICS
from rlpyt.runners import MinibatchRl, MinibatchRlEval
from rlpyt.samplers import SerialSampler
from rlpyt.settings import scheduled
from rlpyt.utils.affinity import Affinity
from tests import names_page, pictures, rooms_drawing
from tests.drawing import FOLDER, Drawing
from tests.markdown import PAGES, ROOT, quoted, split, tables
from tests.pairs import others_nightly
from tests.toy_envs import CountingEnv

GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
TUTORIAL = ROOT / "docs" / "start" / "tutorial.md"
ALGORITHMS = [
    AlgoCls
    for _, AlgoCls in inspect.getmembers(algos, inspect.isclass)
    if issubclass(AlgoCls, algos.RlAlgorithm)
    and not inspect.isabstract(AlgoCls)
    and AlgoCls not in (algos.RlAlgorithm, algos.PolicyGradientAlgo, algos.OffPolicyAlgo)
]
OF_OTHERS = ("from_rlmodels.md", "from_stable_baselines3.md", "from_cleanrl.md")
"""Pages for users of other libraries: the first column of a table has names of these."""
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
every_algorithm = pytest.mark.parametrize("AlgoCls", ALGORITHMS, ids=lambda AlgoCls: AlgoCls.__name__)


# ---- code ----


BLOCKS = [page for page in PAGES if "```python" in page.read_text() and page != TUTORIAL]
LONGEST = ["cookbook.md", "trained_agents.md", "results.md", "stored_data.md", "cma_es.md", "continuous_control.md"]
LONGEST += ["saved_agents.md", "replicas.md", "value_heads.md", "from_rlmodels.md"]
"""Nightly: pages whose blocks train for more than two seconds."""
LONG = {
    **dict.fromkeys(("README.md", "asynchronous.md", "own_environment.md", "replay.md", "samplers.md"), 512),
    **dict.fromkeys(("first_run.md", "compare_a_loss.md", "read_results.md"), 512),
    **{"from_rlmodels.md": 256, "results.md": 256, "continuous_control.md": 160, "value_heads.md": 160},
    "stored_data.md": 48,
}
"""Pages with longer runs than they need for what is asserted there, and the steps of a run in the suite."""


def shortened(code: str, n_steps: int) -> str:
    """Return the code of a page with shorter runs."""
    limits = dict(n_steps=n_steps, log_interval_steps=n_steps // 2, min_steps_learn=n_steps // 4)
    for name, limit in limits.items():
        for value in set(re.findall(rf"\b{name}=([\d_]+)\b", code)):
            code = re.sub(rf"\b{name}={value}\b", f"{name}={min(int(value), limit)}", code)
    return code


@pytest.mark.parametrize(
    "page", others_nightly(BLOCKS, [page for page in BLOCKS if page.name not in LONGEST]), ids=lambda page: page.name
)
def test_the_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path, run_script: Callable[..., None]) -> None:
    code = split(page)[1]
    script = tmp_path / "page.py"
    script.write_text(shortened(code, LONG[page.name]) if page.name in LONG else code)
    run_script(script)


def test_the_tutorial_word_by_word(
    tmp_path: Path, run_script: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write its files and give its commands, in its order; only the runs are shorter."""
    monkeypatch.syspath_prepend(str(tmp_path))
    files, used = set(), set()
    for kind, block in re.findall(r"```(python|sh)\n(.*?)```", TUTORIAL.read_text(), re.DOTALL):
        if kind == "python":
            [name] = re.findall(r"\A# (\w+)\.py\n", block)
            (tmp_path / f"{name}.py").write_text(block.replace("n_steps=100_000", "n_steps=512"))
            files.add(name)
            used |= set(re.findall(r"^from (\w+) import", block, re.MULTILINE))
        for command in re.findall("^python (.*)$", block, re.MULTILINE) if kind == "sh" else []:
            words = command.split()
            if words[:2] == ["-m", "pytest"]:
                run_tests(tmp_path / words[-1])
                used.add(words[-1].removesuffix(".py"))
            else:
                run_script(tmp_path / words[0], *words[1:])
                used.add(words[0].removesuffix(".py"))
    assert len(files) > 5
    assert files <= used
    for name in files:
        sys.modules.pop(name, None)


def run_tests(file: Path) -> None:
    """Do what pytest does with a file, in this process; another one takes 5 s of a core to import torch."""
    tests = {name: test for name, test in runpy.run_path(str(file)).items() if name.startswith("test_")}
    assert tests
    for test in tests.values():
        test()


# ---- links and names ----


@every_page
def test_links_lead_to_files(page: Path) -> None:
    targets = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", split(page)[0])]
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


def test_every_page_is_on_a_shelf() -> None:
    shelves = (ROOT / "docs" / "README.md").read_text()
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES if page.name != "README.md"]
    assert [page for page in pages if f"]({page}" not in shelves] == []


@every_page
def test_links_lead_to_headings(page: Path) -> None:
    targets = [target.split("#") for target in re.findall(r"\]\(([^)\s]*#[^)\s]+)\)", split(page)[0])]
    inside = [(page.parent / name if name else page, anchor) for name, anchor in targets if "://" not in name]
    assert [(path.name, anchor) for path, anchor in inside if anchor not in anchors(path)] == []


def anchors(page: Path) -> list[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", split(page)[0], re.MULTILINE)
    return [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads]


@every_page
def test_paths_and_dotted_names_exist(page: Path) -> None:
    tokens = quoted(split(page)[0])
    folders = ("rlpyt/", "examples/", "docs/", "tests/", "benchmarks/", "experiments/")
    assert [t for t in tokens if t.startswith(folders) and not (ROOT / t).exists()] == []
    assert [t for t in tokens if re.fullmatch(r"rlpyt(\.\w+)+", t) and not resolves(t)] == []


def resolves(dotted: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    module = dotted
    rest: list[str] = []
    while True:
        try:
            thing: Any = importlib.import_module(module)
            break
        except ImportError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
            if not module:
                return False
    for name in rest:
        if not hasattr(thing, name):
            return False
        thing = getattr(thing, name)
    return True


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_prose_is_wrapped(page: Path) -> None:
    """At 100 columns; the target of a link takes none, as it cannot be broken."""
    lines = [line for line in split(page)[0].splitlines() if not line.startswith(("|", "    "))]
    assert [line for line in lines if len(re.sub(r"\]\([^)]*\)", "]", line)) > 100] == []


@every_page
def test_tables_are_whole(page: Path) -> None:
    """A table without the line under its head, such as one cut by an empty line, is shown as text."""
    blocks = re.findall(r"(?:^\|.*\n)+", split(page)[0] + "\n", re.MULTILINE)
    assert [block for block in blocks if not re.match(r".*\n\|[ |-]+\|\n", block)] == []


@pytest.fixture(scope="module")
def public_names() -> set[str]:
    """Return what a user of rlpyt can write: names of modules and classes, and of arguments."""
    names = set(RESERVED)
    for info in pkgutil.walk_packages(rlpyt.__path__, "rlpyt."):
        names.add(info.name.rpartition(".")[2])
        for name, thing in vars(importlib.import_module(info.name)).items():
            if name.startswith("_") or not getattr(thing, "__module__", "").startswith("rlpyt"):
                continue
            members = [thing]
            if inspect.isclass(thing):
                names |= {*dir(thing), *inspect.get_annotations(thing)}
                members += [getattr(thing, m, None) for m in dir(thing) if not m.startswith("_")]
            names.add(name)
            names |= {p for member in members if callable(member) for p in parameters(member)}
    return names


def parameters(thing: Any) -> list[str]:
    try:
        return list(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        return []


@every_page
def test_names_in_tables_exist(page: Path, public_names: set[str], columns: dict[tuple[str, str], set[str]]) -> None:
    metrics = [
        *(AlgoCls.opt_info_fields for AlgoCls in ALGORITHMS),
        algos.CMAES.opt_info_fields,
        ("lossBefore", "lossAfter", TARGETS_OUTSIDE),
    ]
    before: list[Iterable[str]] = [*NAMES.values(), *OLD_METHODS.values(), *OLD_ATTRIBUTES.values(), SETTINGS]
    before += [STUDIES, *STUDIES.values(), *RENAMED.values()]
    known = public_names.union(*columns.values(), *metrics, [f.name for f in fields(Affinity)], *before)
    cells = [cell for table in tables(page) for row in table for cell in row[page.name in OF_OTHERS :]]
    names = [re.sub(r"\(.*\)$", "", token) for cell in cells for token in quoted(cell)]
    names = [name for name in names if re.fullmatch(r"[A-Za-z_][\w.]*", name) and not ("." in name and resolves(name))]
    assert [name for name in names if name.split(".")[-1] not in known] == []


# ---- numbers ----


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], set[str]]:
    """Return the columns of short runs, by runner and algorithm; those of statistics under their one name."""
    replay: dict[str, Any] = dict(min_steps_learn=20, batch_size=4, replay_ratio=1, replay_size=64)
    runs: list[tuple[Any, Any, Any, Any]] = [
        (MinibatchRl, PPO(epochs=1, minibatches=2), PgAgent(), SolvedCountingEnv),
        (MinibatchRlEval, A2C(), PgAgent(), SolvedCountingEnv),
        (MinibatchRl, DQN(**replay), DqnAgent(), SolvedCountingEnv),
        (MinibatchRl, TD3(**replay), Td3Agent(), SmoothCountingEnv),
        (MinibatchRlEval, SAC(**replay), SacAgent(), SmoothCountingEnv),
    ]
    found = {}
    for RunnerCls, algo, agent, EnvCls in runs:
        sampler = SerialSampler(EnvCls, {}, batch_T=10, batch_B=2, eval_n_envs=1, eval_max_trajectories=2)
        with logger_context(tmp_path_factory.mktemp("run"), 0) as logger:
            RunnerCls(algo, agent, sampler, n_steps=40, log_interval_steps=20, seed=0).train()
            names = list(read_progress(str(logger.directory)))
        many = {name.removesuffix("Average") for name in names if name.endswith("Average")}
        single = {name for name in names if not any(name == n + s for n in many for s in STATISTICS)}
        found[RunnerCls.__name__, type(algo).__name__] = many | single
    return found


class SolvedCountingEnv(CountingEnv):
    """The same with a success in its info."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        *results, info = super().step(action)
        return *results, {**info, "is_success": True}


class SmoothCountingEnv(SolvedCountingEnv):
    """The same counts under a continuous action."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space: Any = spaces.Box(-1, 1, (2,), np.float32)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return super().step(int(action[0] > 0))


def told(*words: str) -> set[str]:
    """Return the columns that the glossary tells of runs whose row has one of the words in its third cell."""
    rows = [row for table in tables(GLOSSARY) if table[0][0] in ("column", "name") for row in table[1:]]
    # Statistics of trajectories, in two cells, are everybody's.
    rows = [row if len(row) > 2 else [*row, "both"] for row in rows]
    names = [name for row in rows if any(word in row[2] for word in words) for name in quoted(row[0])]
    assert len(names) == len(set(names))
    return set(names)


def test_glossary_has_every_column_of_progress_csv(columns: dict[tuple[str, str], set[str]]) -> None:
    assert len(columns) == 5
    for (runner, algo), names in columns.items():
        assert told(f"`{runner}`", f"`{algo}`", "both") == names


def words_of(AlgoCls: type) -> list[str]:
    """Return the words by which the pages mean an algorithm."""
    return [f"`{AlgoCls.__name__}`", *(f"`{Base.__name__}` family" for Base in AlgoCls.__mro__)]


@every_algorithm
def test_glossary_says_which_algorithm_has_which_metric(AlgoCls: type[algos.RlAlgorithm]) -> None:
    metrics = {name for name in told(*words_of(AlgoCls)) if not name.startswith("Diagnostics/")}
    assert metrics == set(AlgoCls.opt_info_fields)


@every_algorithm
def test_page_says_which_hyper_parameters_may_be_schedules(AlgoCls: type[algos.RlAlgorithm]) -> None:
    [table] = [
        t for t in tables(ROOT / "docs" / "howto" / "own_algorithm.md") if t[0] == ["algorithm", "may be schedules"]
    ]
    words = [*words_of(AlgoCls), "all"]
    names = [name for row in table[1:] if any(word in row[0] for word in words) for name in quoted(row[1])]
    assert sorted(names) == sorted(scheduled(AlgoCls))


def test_page_has_the_public_names() -> None:
    assert names_page.PAGE.read_text() == names_page.rendered(), "write it again: python -m tests.names_page"


def test_picture_has_the_imports_of_the_rooms() -> None:
    drawn = rooms_drawing.rendered(rooms_drawing.arrows())
    assert rooms_drawing.PICTURE.read_text() == drawn, "draw it again: python -m tests.rooms_drawing"


@pytest.mark.parametrize("picture", pictures.PICTURES, ids=lambda picture: picture.__name__)
def test_pictures_are_those_of_the_code(picture: Callable[[], Drawing]) -> None:
    file = FOLDER / f"{picture.__name__}.svg"
    assert file.read_text() == picture().svg(), "draw it again: python -m tests.pictures"
    assert any(f"pictures/{file.name})" in page.read_text() for page in PAGES)


def test_page_has_the_keys_of_affinity() -> None:
    [table] = [t for t in tables(ROOT / "docs" / "howto" / "samplers.md") if t[0] == ["key", "what it does"]]
    assert [row[0].strip("`") for row in table[1:]] == [f.name for f in fields(Affinity)]


def test_claims_of_the_readme_are_lines_of_the_measured_page() -> None:
    begin, end = "<!-- measured: begin -->", "<!-- measured: end -->"
    claims, page = (
        (ROOT / name).read_text().partition(begin)[2].partition(end)[0].strip().splitlines()
        for name in ("README.md", "docs/notes/performance.md")
    )
    assert len(claims) > 2
    assert set(claims) <= set(page)


def test_atari_options_have_the_defaults_that_the_page_says() -> None:
    [table] = [t for t in tables(ROOT / "docs" / "howto" / "own_environment.md") if t[0][:2] == ["option", "default"]]
    told = {row[0].strip("`"): row[1].replace(",", "").strip('"') for row in table[1:]}
    real = {name: str(p.default) for name, p in inspect.signature(AtariEnv).parameters.items()}
    assert told == real
