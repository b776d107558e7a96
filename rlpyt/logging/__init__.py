"""Logging of runs: run directories, rows of numbers, text, snapshots, progress and plots."""

from rlpyt.logging import logger
from rlpyt.logging.context import current_logger, log_to, logger_context, silent_context
from rlpyt.logging.files import replace_file, write_json
from rlpyt.logging.mlflow_sink import MlflowSink
from rlpyt.logging.params import to_json
from rlpyt.logging.plots import plot_progress, read_progress
from rlpyt.logging.progress import ProgBarCounter
from rlpyt.logging.run_directory import RunDirectoryError
from rlpyt.logging.run_logger import HeldRow, Logger, SilentLogger, Verbosity, to_numbers
from rlpyt.logging.sinks import CsvSink, RunSink, Sink
from rlpyt.logging.snapshots import SnapshotError, SnapshotMode, load_snapshot, save_snapshot
from rlpyt.logging.tensorboard_sink import TensorBoardSink
from rlpyt.logging.tracker_sink import TrackerSink
from rlpyt.logging.trackio_sink import TrackioSink
from rlpyt.logging.wandb_sink import WandbSink

__all__ = [
    "logger_context",
    "current_logger",
    "silent_context",
    "log_to",
    "logger",
    "Logger",
    "SilentLogger",
    "HeldRow",
    "Verbosity",
    "Sink",
    "RunSink",
    "CsvSink",
    "TensorBoardSink",
    "TrackerSink",
    "WandbSink",
    "MlflowSink",
    "TrackioSink",
    "save_snapshot",
    "load_snapshot",
    "SnapshotMode",
    "SnapshotError",
    "RunDirectoryError",
    "ProgBarCounter",
    "plot_progress",
    "read_progress",
    "replace_file",
    "write_json",
    "to_json",
    "to_numbers",
]
