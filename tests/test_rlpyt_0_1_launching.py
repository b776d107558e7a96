"""The sixth example of rlpyt 0.1: a script that launches variants, and one that trains as one of them.

Only import lines are new. The second script did not compile in rlpyt 0.1, and all its variants wrote to one folder.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from rlpyt.launching import VariantLevel, encode_affinity, make_variants, run_experiments
from rlpyt.logging import read_progress

TRAIN = """
    import sys
    from rlpyt.agents import AtariFfAgent
    from rlpyt.algos import A2C
    from rlpyt.envs import AtariEnv
    from rlpyt.launching import affinity_from_code, load_variant, update_config
    from rlpyt.logging import logger_context
    from rlpyt.runners import MinibatchRl
    from rlpyt.samplers import CpuSampler

    CONFIGS = dict(small=dict(
        agent=dict(model_kwargs=dict(fc_sizes=8, channels=[4], kernel_sizes=[8], strides=[8], paddings=[0])),
        algo=dict(learning_rate=1.0, clip_grad_norm=1.0),
        env=dict(game="pong"),
        sampler=dict(batch_T=5, batch_B=2, max_decorrelation_steps=4),
        runner=dict(n_steps=20, log_interval_steps=10),
    ))

    def build_and_train(slot_affinity_code, log_dir, run_ID, config_key):
        affinity = affinity_from_code(slot_affinity_code)
        config = update_config(CONFIGS[config_key], load_variant(log_dir))
        sampler = CpuSampler(EnvCls=AtariEnv, env_kwargs=config["env"], **config["sampler"])
        algo = A2C(**config["algo"])
        agent = AtariFfAgent(**config["agent"])
        runner = MinibatchRl(algo=algo, agent=agent, sampler=sampler, affinity=affinity, **config["runner"])
        name = config["env"]["game"]
        with logger_context(log_dir, run_ID, name, config):
            runner.train()

    if __name__ == "__main__":
        build_and_train(*sys.argv[1:])
"""


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Launch the variants, as the first script does; return their folder."""
    pytest.importorskip("ale_py")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    script = tmp_path / "example_6a.py"
    script.write_text(textwrap.dedent(TRAIN))
    affinity_code = encode_affinity(n_cpu_core=1, n_gpu=0, set_affinity=False)
    learning_rates, batch_Bs = [7e-4, 1e-3], [2, 3]
    values = list(zip(learning_rates, batch_Bs, strict=True))
    dir_names = ["{}lr_{}B".format(*v) for v in values]
    keys = [("algo", "learning_rate"), ("sampler", "batch_B")]
    variants, log_dirs = make_variants(VariantLevel(keys, values, dir_names))
    exit_code = run_experiments(
        script=script,
        affinity_code=affinity_code,
        experiment_title="example_6",
        runs_per_setting=1,
        variants=variants,
        log_dirs=log_dirs,
        common_args=("small",),
        data_dir=tmp_path / "data",
    )
    assert exit_code == 0
    return tmp_path / "data" / "example_6"


@pytest.mark.nightly
def test_the_launcher_of_rlpyt_0_1_trains_every_variant_in_a_folder_of_its_own(grid: Path):
    assert sorted(path.name for path in grid.iterdir() if path.is_dir()) == ["0.0007lr_2B", "0.001lr_3B"]
    for learning_rate, batch_B in ((7e-4, 2), (1e-3, 3)):
        run = grid / f"{learning_rate}lr_{batch_B}B" / "run_0"
        settings: dict[str, Any] = json.loads((run / "params.json").read_text())["runner"]["settings"]
        assert settings["algo"]["settings"]["learning_rate"] == learning_rate
        assert settings["sampler"]["settings"]["batch_B"] == batch_B
        progress = read_progress(run)
        assert progress["Diagnostics/CumSteps"][-1] >= 20
        assert "ReturnAverage" in progress
