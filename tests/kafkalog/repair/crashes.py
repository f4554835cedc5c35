"""What a crash may leave of a run that changes a log directory, from the steps it observed."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from kafkalog.storage import Step, StepKind

NAMES = (StepKind.RENAME, StepKind.REMOVE, StepKind.CREATE, StepKind.LINK)


@dataclass
class Crashes:
    """Keeps, at each step, the log directory as it is, and some of what a crash may make of it.

    Names that were changed since the directory was last synced are changed in some of these states
    and not in others, in any combination; what was created or cut and not yet synced is empty, or
    as it was.

    Attributes:
        states: copies of the log directory, all different.
    """

    log_dir: Path
    place: Path
    rng: random.Random
    states: list[Path] = field(default_factory=list)
    _seen: set[tuple[tuple[str, bytes], ...]] = field(default_factory=set)
    _synced: dict[str, bytes] = field(default_factory=dict)
    _pending: list[Step] = field(default_factory=list)
    _bytes: dict[str, bytes] = field(default_factory=dict)  # as they were synced, by first name

    def __post_init__(self) -> None:
        self._synced = self._files()

    def __call__(self, step: Step) -> None:
        path = Path(step.path)
        if step.kind == StepKind.SYNC_DIRECTORY:
            self._last(path)
        elif step.kind == StepKind.SYNC:
            self._bytes[self._name(path)] = path.read_bytes()
            if self._name(path) in self._synced:
                self._synced[self._name(path)] = path.read_bytes()
        elif step.kind in NAMES:
            self._pending.append(step)
        self._keep(self._files())
        for _ in range(3):
            self._keep(self._some())

    def _last(self, directory: Path) -> None:
        """The names in a directory are there for good."""
        others = {
            name: data
            for name, data in self._synced.items()
            if (self.log_dir / name).parent != directory
        }
        there = {
            name: data
            for name, data in self._files().items()
            if (self.log_dir / name).parent == directory
        }
        self._synced = others | there
        self._pending = [step for step in self._pending if Path(step.path).parent != directory]

    def _name(self, path: Path | str) -> str:
        return str(Path(path).relative_to(self.log_dir))

    def _files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.log_dir)): path.read_bytes()
            for path in self.log_dir.rglob("*")
            if path.is_file()
        }

    def _some(self) -> dict[str, bytes]:
        """The last synced names, with some of the changes since."""
        files = dict(self._synced)
        for step in self._pending:
            if self.rng.random() < 0.5:
                continue
            name = self._name(step.path)
            if step.kind == StepKind.CREATE:
                files[name] = self._bytes.get(name, b"")
            elif step.kind == StepKind.REMOVE:
                files.pop(name, None)
            elif step.new_path is not None:
                # The file's first name may not have lasted, its bytes were synced.
                data = files.pop(name, self._bytes.get(name))
                if data is not None:
                    files[self._name(step.new_path)] = data
        return files

    def _keep(self, files: dict[str, bytes]) -> None:
        key = tuple(sorted((name, data) for name, data in files.items() if "kafkalog-" not in name))
        if key in self._seen:
            return
        self._seen.add(key)
        state = self.place / str(len(self.states))
        for name, data in files.items():
            path = state / self.log_dir.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.states.append(state / self.log_dir.name)


def remove(states: list[Path]) -> None:
    """They are many."""
    for state in states:
        shutil.rmtree(state.parent)
