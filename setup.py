"""Packaging of rlpyt; the tools' settings stand in pyproject.toml, the exact versions that are tested in .ci/."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
version = re.search(r'__version__ = "(.+)"', (HERE / "rlpyt" / "version.py").read_text()).group(1)

extras = {
    "atari": ["ale-py>=0.11", "opencv-python-headless>=4.8"],
    "mujoco": ["gymnasium[mujoco]>=1.1,<2", "mujoco>=4,<5"],
    # imageio is gymnasium's renderer's, which Shimmy imports; its own extra takes h5py along, which no task needs.
    "dm_control": ["shimmy>=2.0.1,<3", "dm-control>=1.0.50,<2", "imageio>=2.14", "mujoco>=3.17,<5"],
    "envpool": ["envpool>=1.2.5"],
    "gym": ["gym>=0.25,<0.27"],
    # What CartPole, Pendulum and their like are drawn with.
    "classic_control": ["gymnasium[classic-control]>=1.1,<2"],
    "tensorboard": ["tensorboard>=2.14"],
    "cmaes": ["cmaes>=0.11"],
    # jinja2 makes the page of a study, and scipy the intervals.
    "plot": ["matplotlib>=3.8", "jinja2>=3", "scipy>=1.11"],
    "ray": ["ray>=2.40,<3"],
    "cluster": ["submitit>=1.5"],
    "search": ["optuna>=4"],
    # imageio-ffmpeg brings the encoder along; classic control draws with pygame.
    "video": ["gymnasium[classic-control]>=1.1,<2", "imageio>=2.14", "imageio-ffmpeg>=0.5"],
    # Older releases know no bound of the last upload at the exit of a script.
    "wandb": ["wandb>=0.31"],
    "mlflow": ["mlflow-skinny>=2.14"],
    "trackio": ["trackio>=0.20"],
    # HDF5 is how Minari keeps datasets unless it is told otherwise.
    "minari": ["minari[hdf5]>=0.5.4"],
    # onnxruntime runs what was exported; the tests do so.
    "export": ["safetensors>=0.4", "onnx>=1.16", "onnxscript>=0.5", "onnxruntime>=1.20"],
}
# EnvPool takes 740 MB installed; old gym is for old environments only; trackio brings a web server along.
left_out = ("envpool", "gym", "trackio")
extras["all"] = sorted({requirement for name, group in extras.items() if name not in left_out for requirement in group})
extras["dev"] = extras["all"] + [
    "pytest>=8",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "ruff>=0.9",
    "mypy>=1.13",
    "pyyaml>=6",
]

# Sphinx 9.1 needs Python 3.12; .ci/docs.lock has the versions that `make docs` builds with.
extras["docs"] = ["sphinx>=9,<10", "myst-parser>=5,<6", "furo>=2025.12", "sphinx-copybutton>=0.5.2"]

setup(
    name="rlpyt",
    version=version,
    description="Modular deep reinforcement learning research in PyTorch, with parallel samplers",
    long_description=(HERE / "README.md").read_text() if (HERE / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    author="The rlpyt authors",
    license="MIT",
    packages=find_packages(include=["rlpyt", "rlpyt.*"]),
    package_data={"rlpyt": ["py.typed", "results/page.html"]},
    entry_points={"console_scripts": ["rlpyt = rlpyt.cli:main"]},
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Intended Audience :: Science/Research",
        "Typing :: Typed",
    ],
    python_requires=">=3.11",
    install_requires=[
        # Older releases run code from a file that was loaded as weights only.
        "torch>=2.10",
        # The tests run with the newest; tests/test_sources.py looks for names that 1.26 has not.
        "numpy>=1.26",
        "gymnasium>=1.1,<2",
        "cloudpickle>=3",
        "psutil>=5.9",
        "threadpoolctl>=3.1",
        "rich>=13",
        "tyro>=1.0",
        "docstring_parser>=0.16",
    ],
    extras_require=extras,
)
