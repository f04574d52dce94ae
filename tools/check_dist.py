"""Tries what `make dist` built: the archive holds the sources, the wheel runs away from the tree.

Knows names of files and commands only. Prints a line for each thing it tried, ends with 1 at the first fault.
"""

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

STATIC = Path("src/neuron_ds/web/static")
SHIPPED = (
    "neuron_ds/py.typed",
    "neuron_ds/_core.pyi",
    "neuron_ds/_core.abi3.so",
    *(str(path.relative_to("src")) for path in sorted(STATIC.rglob("*")) if path.is_file()),
)


def require(condition: bool, what: str) -> None:
    """Say what was tried; end when it failed."""
    print(f"{'ok  ' if condition else 'FAIL'} {what}")
    if not condition:
        sys.exit(1)


def only(folder: Path, pattern: str) -> Path:
    """The one file of that pattern."""
    found = sorted(folder.glob(pattern))
    require(len(found) == 1, f"one {pattern} in {folder}: {', '.join(path.name for path in found) or 'none'}")
    return found[0]


def main(folder: Path) -> None:
    """Check the archive, then the wheel, then an installation of the wheel."""
    with tarfile.open(only(folder, "*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {str(path) for path in Path("csrc").rglob("*.[ch]")}
    require(bool(sources) and sources <= names, f"the archive holds all {len(sources)} C files")
    require({"LICENSE", "setup.py", "tools/toolchain.py"} <= names, "the archive holds licence and build scripts")

    wheel = only(folder, "*.whl")
    require("-cp311-abi3-linux_" in wheel.name, "the wheel serves every Python from 3.11 on")
    with zipfile.ZipFile(wheel) as packed:
        shipped = set(packed.namelist())
    for name in SHIPPED:
        require(name in shipped, f"the wheel holds {name}")

    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        programs = Path(place, "bin")
        pip = [
            programs / "python",
            "-m",
            "pip",
            "--disable-pip-version-check",
            "-qq",
            "install",
            wheel.resolve(),
        ]
        subprocess.run(pip, check=True)
        for command in (
            [programs / "python", "-c", "import neuron_ds; print(neuron_ds.__version__)"],
            [programs / "neuron-ds", "--help"],
        ):
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
            said = (done.stdout + done.stderr).strip()
            line = " ".join(str(part) for part in [command[0].name, *command[1:]])
            require(
                done.returncode == 0 and bool(said),
                f"installed, `{line}` works" if said else f"`{line}` spoke",
            )
            if done.returncode:
                print(said)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
