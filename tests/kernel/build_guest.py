#!/usr/bin/env python3
"""Builds what the test guest boots from: the kernel module, and an initramfs with Python and the package in it.

Knows where Debian keeps a kernel with its headers, and what a Python needs to run from a bare root. Knows nothing of
QEMU (run_guest.py does) or of the tests. Works below build/kernel and changes nothing else on the machine.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "kernel"
DEFAULT_PYTHON = Path("/usr/bin/python3")
OLDEST_PYTHON = (3, 11)
BUSYBOX = Path("/bin/busybox")
APP = "app"

#: What must be there, and the Debian package that brings it. The kernel itself is not among them: installing it would
#: run the machine's boot hooks, so its package is only downloaded and unpacked.
NEEDS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "kernel headers": "linux-headers-cloud-amd64",
    "gcc": "gcc",
    "make": "make",
}

#: Of the standard library: what no guest runs, and extensions that would bring large libraries along.
STDLIB_LEFT_OUT = re.compile(
    r"(test|idlelib|tkinter|turtledemo|lib2to3|ensurepip|distutils|pydoc_data|curses|sqlite3|venv|config-[^/]*"
    r"|dist-packages|site-packages|lib-dynload/(_ssl|_hashlib|_sqlite3|_tkinter|_curses|_curses_panel|readline|_dbm"
    r"|_gdbm|_test|_xxtest|xx)[^/]*)(/|$)"
)
#: Names of the counters' other folder in sysfs; all others are a status.
OTHER_INFO = {"flop_count", "inference_count", "model_load_count", "nc_time_in_use"}


class CannotBuild(Exception):
    """Something that this machine lacks; the message says what to install."""


class Guest(NamedTuple):
    """What there is to boot."""

    kernel: Path
    initramfs: Path


def install_hint(packages: list[str]) -> str:
    return f"as root: apt-get update && apt-get install -y --no-install-recommends {' '.join(packages)}"


def build(folder: Path) -> Guest:
    """Everything anew, in a folder that is the caller's alone; a few seconds."""
    release, headers = find_headers()
    kernel = find_kernel(release)
    tree = guest_tree(build_module(headers, folder / "module"))
    initramfs = folder / "initramfs.gz"
    with gzip.open(initramfs, "wb", compresslevel=1) as out:
        for part in tree.archive():
            out.write(part)
    return Guest(kernel, initramfs)


# --- The kernel -----------------------------------------------------------------------------------------------------


def check_needs() -> None:
    """Raises CannotBuild naming every missing package at once."""
    if os.uname().machine != "x86_64":
        raise CannotBuild(f"the guest is an x86-64 machine, this is {os.uname().machine}")
    there = {name: shutil.which(name) is not None for name in NEEDS}
    there["kernel headers"] = bool(header_folders())
    there["busybox"] = BUSYBOX.exists() and not shared_libraries(BUSYBOX)  # the static one
    missing = [name for name in NEEDS if not there[name]]
    if missing:
        named = ", ".join(f"{name} (Debian package {NEEDS[name]})" for name in missing)
        raise CannotBuild(f"missing: {named}; {install_hint([NEEDS[name] for name in missing])}")


def header_folders() -> list[Path]:
    """Newest last, by the numbers in the name."""
    folders = Path("/usr/src").glob("linux-headers-*-cloud-amd64")
    return sorted(folders, key=lambda folder: [int(number) for number in re.findall(r"\d+", folder.name)])


def find_headers() -> tuple[str, Path]:
    check_needs()
    headers = header_folders()[-1]
    return headers.name.removeprefix("linux-headers-"), headers


def find_kernel(release: str) -> Path:
    """The kernel that the headers belong to: as installed, as fetched before, or downloaded and unpacked now."""
    name = f"vmlinuz-{release}"
    for path in (Path("/boot") / name, BUILD / name):
        if path.exists():
            return path
    package = f"linux-image-{release}"
    version = run("dpkg-query", "--show", "--showformat=${Version}", f"linux-headers-{release}")
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="download-") as folder:
        try:
            run("apt-get", "-qq", "download", f"{package}={version}", cwd=Path(folder))
        except subprocess.CalledProcessError as error:
            raise CannotBuild(
                f"no {name}, and {package} {version} can't be downloaded ({error.stderr.strip()}); "
                f"{install_hint([NEEDS['kernel headers']])} brings headers that match what the archive has"
            ) from None
        (archive,) = Path(folder).glob("*.deb")
        run("dpkg-deb", "--extract", str(archive), folder)
        (Path(folder) / "boot" / name).rename(BUILD / name)
    return BUILD / name


def build_module(headers: Path, folder: Path) -> Path:
    """nds_test.ko, built in a folder of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE, folder, ignore=lambda _, names: [name for name in names if not is_module_source(name)])
    shutil.copy2(ROOT / "csrc" / "nds_layout.h", folder)
    (folder / "nds_counters.h").write_text(counters_header())
    try:
        run("make", "-s", "-C", str(headers), f"M={folder}", "modules")
    except subprocess.CalledProcessError as error:
        raise CannotBuild(f"the module does not build:\n{error.stdout}{error.stderr}") from None
    return folder / "nds_test.ko"


def is_module_source(name: str) -> bool:
    return name in ("Kbuild", "shim") or name.endswith((".c", ".h"))


def counters_header() -> str:
    """The counters' names in sysfs, from the package's table."""
    sys.path.insert(0, str(ROOT / "src"))
    from neuron_ds.layout import NC

    lines = ["/* GENERATED by build_guest.py from the package's table. */", "#define NDS_SYSFS_COUNTERS(ENTRY) \\"]
    for counter in NC:
        if counter.sysfs:
            folder = "other_info" if counter.sysfs in OTHER_INFO else "status"
            factor = 2 if counter.sysfs == "flop_count" else 1  # a multiply-accumulate is two operations
            lines.append(f'    ENTRY("{folder}", "{counter.sysfs}", {counter.symbol}, {factor}) \\')
    return "\n".join(lines).removesuffix(" \\") + "\n"


# --- The root of the guest --------------------------------------------------------------------------------------------


class Tree:
    """Files by their path in the guest, written as a cpio archive in the kernel's "newc" format."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, int, bytes | Path]] = {}

    def add(self, path: str, content: bytes | Path, mode: int = 0o644) -> None:
        """A file; of a Path the content, mode and time (which Python's caches depend on), links followed."""
        path = path.lstrip("/")
        for parent in list(Path(path).parents)[-2::-1]:
            self._entries.setdefault(str(parent), (stat.S_IFDIR | 0o755, 0, b""))
        if isinstance(content, Path):
            status = content.stat()
            self._entries[path] = (status.st_mode, int(status.st_mtime), content)
        else:
            self._entries[path] = (stat.S_IFREG | mode, 0, content)

    def add_link(self, path: str, target: str) -> None:
        self.add(path, target.encode())
        self._entries[path.lstrip("/")] = (stat.S_IFLNK | 0o777, 0, target.encode())

    def add_folder(self, path: str, source: Path, left_out: re.Pattern[str] | None = None) -> None:
        """All regular files below a folder, but for those whose relative path matches."""
        for folder, names, files in os.walk(source):
            inside = Path(folder).relative_to(source)
            names[:] = [name for name in names if not (left_out and left_out.match(str(inside / name)))]
            for name in files:
                relative = str(inside / name)
                if (Path(folder) / name).is_file() and not (left_out and left_out.match(relative)):
                    self.add(f"{path}/{relative}", Path(folder) / name)

    def files(self) -> list[Path]:
        return [content for _, _, content in self._entries.values() if isinstance(content, Path)]

    def archive(self) -> Iterator[bytes]:
        yield cpio_entry("dev", stat.S_IFDIR | 0o755)
        yield cpio_entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
        for empty in ("proc", "sys"):
            yield cpio_entry(empty, stat.S_IFDIR | 0o755)
        for path in sorted(self._entries):  # a folder sorts before what is in it
            mode, mtime, content = self._entries[path]
            data = content.read_bytes() if isinstance(content, Path) else content
            yield cpio_entry(path, mode, data, mtime)
        yield cpio_entry("TRAILER!!!", 0)


def cpio_entry(path: str, mode: int, data: bytes = b"", mtime: int = 0, device: tuple[int, int] = (0, 0)) -> bytes:
    """inode (0: the kernel then takes nothing for a hard link), mode, uid, gid, links, mtime, size, device, ..."""
    name = path.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, mtime, len(data), 0, 0, *device, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def guest_tree(module: Path) -> Tree:
    tree = Tree()
    tree.add("init", (HERE / "init.sh").read_bytes(), 0o755)
    tree.add("nds_test.ko", module)
    tree.add("bin/nds-reload", (HERE / "reload.sh").read_bytes(), 0o755)
    tree.add("bin/busybox", BUSYBOX)
    tree.add("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
    tree.add("etc/group", b"root:x:0:\nnogroup:x:65534:\n")
    add_python(tree)
    add_package(tree)
    for library in sorted({library for file in tree.files() if is_elf(file) for library in shared_libraries(file)}):
        tree.add(library, Path(library))
    return tree


def add_python(tree: Tree) -> None:
    """The interpreter and its standard library, under the paths they have here."""
    ask = (
        "import json, os, sys; executable = os.path.realpath(sys._base_executable); "
        "print(json.dumps([sys.version_info[:2], executable, os.path.dirname(os.__file__)]))"
    )
    for python in (DEFAULT_PYTHON, Path(sys.executable)):
        if python.exists():
            version, executable, stdlib = json.loads(run(str(python), "-c", ask))
            if tuple(version) >= OLDEST_PYTHON:
                break
    else:
        raise CannotBuild("no Python of 3.11 or newer to put into the guest (Debian package python3)")
    tree.add(executable, Path(executable))
    tree.add_link("bin/python3", executable)
    tree.add_folder(stdlib, Path(stdlib), STDLIB_LEFT_OUT)
    # The C library loads this one when a thread ends: no file names it.
    libc = next(path for path in shared_libraries(Path(executable)) if "/libc.so" in path)
    for library in Path(libc).parent.glob("libgcc_s.so.1"):
        tree.add(str(library), library)


def add_package(tree: Tree) -> None:
    """The package with its core as an installation of it looks, its command and what that needs; the tests."""
    package = ROOT / "src" / "neuron_ds"
    if not (package / "_core.abi3.so").exists():
        raise CannotBuild("the package's C core isn't built: python3 setup.py build_ext --inplace, or any make target")
    tree.add_folder(f"{APP}/neuron_ds", package)
    tree.add_folder(f"{APP}/tests", ROOT / "tests")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, target in project["scripts"].items():
        module, function = target.split(":")
        script = f"#!/bin/python3\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        tree.add(f"bin/{name}", script.encode(), 0o755)
    for need in project["dependencies"]:
        found = importlib.util.find_spec(re.split(r"[<>=]", need)[0])
        if found and found.origin:  # left out where the Python that runs this doesn't have it
            tree.add_folder(f"{APP}/{found.name}", Path(found.origin).parent)
    version = re.search(r'^__version__ = "(.+)"', (package / "__init__.py").read_text(), re.MULTILINE)
    assert version, "the package has no version"
    info = f"{APP}/{project['name'].replace('-', '_')}-{version[1]}.dist-info"
    tree.add(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version[1]}\n".encode())
    points = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = [line for group in points for line in (f"[{group}]", *(f"{n} = {v}" for n, v in points[group].items()))]
    tree.add(f"{info}/entry_points.txt", "\n".join(lines).encode())


# --- Small helpers ----------------------------------------------------------------------------------------------------


def run(*command: str, cwd: Path | None = None) -> str:
    """Its output; CalledProcessError with both streams when it fails."""
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF" and path.suffix != ".ko"


def shared_libraries(path: Path) -> list[str]:
    """Paths of what a program or library loads; none for a static one."""
    ldd = subprocess.run(["ldd", path], capture_output=True, text=True)
    return [match[1] for match in re.finditer(r"(/\S+) \(0x", ldd.stdout)]


def main() -> int:
    folder = BUILD / "guest"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        guest = build(folder)
    except CannotBuild as error:
        print(f"build_guest: {error}", file=sys.stderr)
        return 77
    print(guest.kernel, guest.initramfs, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
