"""Says what this machine lacks for building the C core, and what to install.

Knows interpreters, compilers and headers, and nothing of the package. setup.py imports it and the Makefile
runs it before there is a virtual environment: it needs the standard library only and loads in Python 3.6.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig

OLDEST_PYTHON = (3, 11)
PROBE = b"#include <Python.h>\n#include <stdatomic.h>\n#include <pthread.h>\n"


def platform_fault() -> "str | None":
    """Why this interpreter can never run the package, or None."""
    if sys.version_info < OLDEST_PYTHON:
        return "Python {}.{} is too old ({}): 3.11 or newer is needed".format(*sys.version_info[:2], sys.executable)
    if sys.platform != "linux":
        return f"only Linux is supported, and this is {sys.platform}"
    if sys.byteorder != "little":
        return "only little-endian machines are supported: the wire format is little-endian and read in place"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "free-threaded Python is not supported: use the build of the same version that has the GIL"
    return None


def find_compiler() -> "list[str] | None":
    """The compiler's command line: CC, else the one Python was built with, else any that is there."""
    if os.environ.get("CC"):
        candidates = [os.environ["CC"]]
    else:
        candidates = [sysconfig.get_config_var("CC") or "cc", "cc", "gcc", "clang"]
    for candidate in candidates:
        command = shlex.split(candidate)
        if command and shutil.which(command[0]):
            return command
    return None


def compiler_fault() -> "str | None":
    """Why the C core can't be compiled here, and what to install; or None."""
    compiler = find_compiler()
    if compiler is None:
        wanted = os.environ.get("CC")
        found = f"no C compiler found (CC={wanted})" if wanted else "no C compiler found"
        return found + ": install gcc or clang (Debian, Ubuntu: gcc libc6-dev; Fedora: gcc)"
    include = sysconfig.get_path("include")
    # Debian keeps one of Python's own headers (pyconfig.h) in a second folder.
    folders = ["-I" + folder for folder in (include, sysconfig.get_path("platinclude"))]
    probe = subprocess.run([*compiler, *folders, "-E", "-x", "c", "-"], input=PROBE, capture_output=True, check=False)
    if probe.returncode == 0:
        return None
    if not os.path.exists(os.path.join(include, "Python.h")):
        return (
            f"Python's headers are missing (no Python.h in {include}): install python3-dev (Debian, Ubuntu) "
            "or python3-devel (Fedora)"
        )
    complaint = probe.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"]
    return (
        f"{compiler[0]} can't read the C library's headers ({complaint[0]}): install libc6-dev (Debian, "
        "Ubuntu) or glibc-devel (Fedora)"
    )


def venv_fault() -> "str | None":
    """Why this interpreter can't make a virtual environment, or None."""
    try:
        import venv  # noqa: F401  the import is the test
        from ensurepip import bootstrap  # noqa: F401  Debian packs it apart, and venv fails half-way
    except ImportError:
        return f"{sys.executable} can't make a virtual environment: install python3-venv (Debian, Ubuntu)"
    return None


def main() -> int:
    """Print every fault on its own line; 0 when there is none."""
    platform = platform_fault()
    faults = [platform] if platform else [fault for fault in (compiler_fault(), venv_fault()) if fault]
    for fault in faults:
        print(f"neuron-datastore can't be built: {fault}", file=sys.stderr)
    if platform and sys.version_info < OLDEST_PYTHON:
        print("another interpreter is chosen with make PYTHON=python3.12 (or any newer one)", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
