"""A disk that crashes: the states of a directory tree that each step may leave.

`Recorder` records the steps that `kafkalog.io.storage` reports and the bytes that were written;
`crashes` yields the trees that a crash may leave. The model is that of POSIX, which promises less
than any journal:

- bytes that were not synced are gone, or some of the first are there;
- of the changes to names since their directory was last synced, any may be missing: each alone, all
  of them, all but the first ones, and random ones from a seed.
"""

from __future__ import annotations

import os
import shutil
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from formats.file_names import is_staging
from kafkalog.io.storage import Step, StepKind

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Choice = Callable[["Inode"], list[dict[str, "Inode | None"]]]

RANDOM_SUBSETS = 3


@dataclass
class Inode:
    """A file, or a directory where `names` is not None.

    `data` is what was written, `durable` what was synced, None if nothing was. `changes` are the
    changes of names since the last sync: each sets its names together or not at all.
    """

    data: bytes = b""
    durable: bytes | None = b""
    mtime_ns: int = 0
    names: dict[str, Inode] | None = None
    durable_names: dict[str, Inode] = field(default_factory=dict)
    changes: list[dict[str, Inode | None]] = field(default_factory=list)

    def change(self, change: dict[str, Inode | None]) -> None:
        assert self.names is not None
        apply(self.names, change)
        self.changes.append(change)


Tree = dict[str, "tuple[bytes, int] | Tree"]
"""Names to bytes and time of modification, or to a tree."""


def apply(names: dict[str, Inode], change: dict[str, Inode | None]) -> None:
    for name, inode in change.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


class Recorder:
    """Keeps the states of a tree, before the first step and after each; pass it as `observe`."""

    def __init__(self, root: Path) -> None:
        self.root = os.path.realpath(root)
        self.steps: list[Step] = []
        self._top = inode_of(self.root)
        self.states = [deepcopy(self._top)]

    def __call__(self, step: Step) -> None:
        if not self._is_ours(step.new_path or step.path):
            return  # the backup, beside the tree
        self._note(step)
        self.steps.append(step)
        self.states.append(deepcopy(self._top))

    def _note(self, step: Step) -> None:
        match step.kind:
            case StepKind.CREATE:
                parent, name = self._parent(step.path)
                inode = inode_of(step.path)
                inode.durable = None
                parent.change({name: inode})
            case StepKind.TRUNCATE:
                inode = self._inode(step.path)
                inode.data = inode.data[: os.path.getsize(step.path)]
            case StepKind.SYNC:
                inode = self._inode(step.path)
                inode.durable = inode.data
            case StepKind.MAKE_DIRECTORY:
                parent, name = self._parent(step.path)
                parent.change({name: Inode(names={})})
            case StepKind.REMOVE | StepKind.REMOVE_DIRECTORY:
                parent, name = self._parent(step.path)
                parent.change({name: None})
            case StepKind.SYNC_DIRECTORY:
                inode = self._inode(step.path)
                assert inode.names is not None
                inode.durable_names, inode.changes = dict(inode.names), []
            case StepKind.SYNC_FILE_SYSTEM:
                for inode in everything(self._top):
                    inode.durable = inode.data
                    inode.durable_names, inode.changes = dict(inode.names or {}), []
            case _:
                self._note_second_name(step)

    def _note_second_name(self, step: Step) -> None:
        assert step.new_path is not None
        parent, new_name = self._parent(step.new_path)
        if step.kind == StepKind.LINK:
            inode = self._linked(step.path)
            parent.change({new_name: inode})
            return
        old_parent, name = self._parent(step.path)
        assert old_parent.names is not None
        assert parent.names is not None
        if step.kind == StepKind.RENAME and old_parent is parent:
            parent.change({new_name: parent.names[name], name: None})
        elif step.kind == StepKind.RENAME:
            parent.change({new_name: old_parent.names[name]})
            old_parent.change({name: None})
        else:
            assert step.kind == StepKind.EXCHANGE
            assert old_parent is parent
            parent.change({new_name: parent.names[name], name: parent.names[new_name]})

    def _linked(self, path: str) -> Inode:
        """Return the file that gets a second name; a staged one is durable without a step."""
        if self._is_ours(path) and not any(map(is_staging, path.split(os.sep))):
            return self._inode(path)
        return inode_of(path)

    def _is_ours(self, path: str) -> bool:
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        return path == self.root or path.startswith(self.root + os.sep)

    def _inode(self, path: str) -> Inode:
        inode = self._top
        relative = os.path.relpath(os.path.realpath(path), self.root)
        for name in [] if relative == "." else relative.split(os.sep):
            assert inode.names is not None
            inode = inode.names[name]
        return inode

    def _parent(self, path: str) -> tuple[Inode, str]:
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        return self._inode(os.path.dirname(path)), os.path.basename(path)


def inode_of(path: str) -> Inode:
    """Return what is on the disk as an inode, all of it durable."""
    mtime_ns = os.stat(path).st_mtime_ns
    if not os.path.isdir(path):
        with open(path, "rb") as file:
            data = file.read()
        return Inode(data, data, mtime_ns)
    names = {name: inode_of(os.path.join(path, name)) for name in sorted(os.listdir(path))}
    return Inode(mtime_ns=mtime_ns, names=names, durable_names=dict(names))


def crashes(recorder: Recorder, rng: random.Random) -> Iterator[tuple[str, Tree]]:
    """Yield each tree that a crash may leave, once, with words that say when and how."""
    seen: set[object] = set()
    for number, state in enumerate(recorder.states):
        after = recorder.steps[number - 1] if number else "the beginning"
        for how, choose_changes in subsets(state, rng):
            for share in (0.0, 0.5, 1.0):
                tree = left(state, choose_changes, share)
                one = frozen(tree)
                if one not in seen:
                    seen.add(one)
                    yield f"step {number}, after {after}: {how}, {share:.0%} of the bytes", tree


def subsets(state: Inode, rng: random.Random) -> Iterator[tuple[str, Choice]]:
    """Yield ways to choose among the changes of names that were not synced."""
    pending = [change for inode in directories(state) for change in inode.changes]

    def choosing(chosen: set[int]) -> Choice:
        return lambda inode: [change for change in inode.changes if id(change) in chosen]

    every = {id(change) for change in pending}
    yield "all names", choosing(every)
    if not pending:
        return
    yield "no names", choosing(set())
    for number, change in enumerate(pending):
        yield f"all names but change {number}", choosing(every - {id(change)})
        yield f"only change {number}", choosing({id(change)})
        yield f"changes up to {number}", choosing({id(change) for change in pending[:number]})
    for _ in range(RANDOM_SUBSETS):
        chosen = {id(change) for change in pending if rng.random() < 0.5}
        yield "random changes", choosing(chosen)


def directories(inode: Inode) -> Iterator[Inode]:
    return (found for found in everything(inode) if found.names is not None)


def everything(inode: Inode) -> Iterator[Inode]:
    """Yield an inode and those below it, each once."""
    found: dict[int, Inode] = {}
    left = [inode]
    while left:
        one = left.pop()
        if id(one) not in found:
            found[id(one)] = one
            left += reachable(one) if one.names is not None else ()
    yield from found.values()


def reachable(inode: Inode) -> Iterator[Inode]:
    assert inode.names is not None
    yield from inode.names.values()
    yield from inode.durable_names.values()
    for change in inode.changes:
        yield from (found for found in change.values() if found is not None)


def left(inode: Inode, choose: Choice, share: float) -> Tree:
    names = dict(inode.durable_names)
    for change in choose(inode):
        apply(names, change)
    tree: Tree = {}
    for name, found in sorted(names.items()):
        if found.names is not None:
            tree[name] = left(found, choose, share)
        elif found.durable == found.data:
            tree[name] = (found.data, found.mtime_ns)
        elif found.durable is None:
            tree[name] = (found.data[: int(len(found.data) * share)], found.mtime_ns)
        else:  # it was cut; the new length lasts, or not yet
            tree[name] = (found.data if share else found.durable, found.mtime_ns)
    return tree


def frozen(tree: Tree) -> tuple[object, ...]:
    """Return a hashable form of a tree."""
    return tuple(
        (name, frozen(content) if isinstance(content, dict) else content)
        for name, content in tree.items()
    )


def without_staging(tree: Tree) -> tuple[object, ...]:
    """Return the tree without the directory that a broker takes for a deleted partition."""
    return frozen({name: content for name, content in tree.items() if not is_staging(name)})


def put(tree: Tree, target: Path) -> Path:
    """Write the tree as files, in place of what is there."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name, content in tree.items():
        if isinstance(content, dict):
            put(content, target / name)
        else:
            (target / name).write_bytes(content[0])
            os.utime(target / name, ns=(content[1], content[1]))
    return target
