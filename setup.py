"""Builds the one C extension; everything else about the package stands in pyproject.toml.

The extension is pure C11 (csrc/*.c) and a binding (csrc/python/*.c) to Python's limited API of 3.11, so that
one wheel serves every version from 3.11 on. With NEURON_DS_NO_WERROR=1 a warning doesn't end the build.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))
import toolchain  # noqa: E402  it lives in tools/, which is no package

LIMITED_API = "0x030B0000"
WERROR = [] if os.environ.get("NEURON_DS_NO_WERROR") == "1" else ["-Werror"]


def refuse(fault: str | None) -> None:
    """End with one line when there is a fault, before setuptools says it in many."""
    if fault:
        raise SystemExit(f"neuron-datastore can't be built: {fault}")


def files(*patterns: str) -> list[str]:
    """Sorted paths relative to the root, as setuptools wants them."""
    return sorted(str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern))


CORE = Extension(
    "neuron_ds._core",
    sources=files("csrc/*.c", "csrc/python/*.c"),
    depends=[*files("csrc/*.h", "csrc/python/*.h"), "setup.py"],
    include_dirs=["csrc", "csrc/python"],
    define_macros=[("_GNU_SOURCE", None), ("Py_LIMITED_API", LIMITED_API)],
    extra_compile_args=[
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        *WERROR,
        "-fvisibility=hidden",
        "-fno-plt",
        "-pthread",
    ],
    extra_link_args=["-pthread"],
    py_limited_api=True,
)

if __name__ == "__main__":
    refuse(toolchain.platform_fault())
    if not {"sdist", "egg_info"} & set(sys.argv):  # these two compile nothing
        refuse(toolchain.compiler_fault())
        # The compiler that Python itself was built with may not be on this machine: name the one that is.
        os.environ["CC"] = shlex.join(toolchain.find_compiler() or [])
    setup(
        ext_modules=[CORE],
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
