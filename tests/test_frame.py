"""The project as a whole: what is packaged, what may stand where, and what building refuses.

Knows the tree and the tools around it, and no behaviour of the package.
"""

import ast
import importlib.metadata
import importlib.resources
import importlib.util
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

import neuron_ds
from neuron_ds import errors, layout

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "neuron_ds"
MODULES = sorted(PACKAGE.rglob("*.py"))
C_CORE = sorted((ROOT / "csrc").glob("*.[ch]"))
C_BINDING = sorted((ROOT / "csrc" / "python").glob("*.[ch]"))
GENERATED = {ROOT / "csrc" / "nds_layout.h"}
LONGEST_MODULE = 600


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def toolchain():
    """tools/toolchain.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("toolchain", ROOT / "tools" / "toolchain.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- What is packaged


def test_the_version_is_one():
    assert importlib.metadata.version("neuron-datastore") == neuron_ds.__version__
    assert f"## {neuron_ds.__version__} " in (ROOT / "CHANGELOG.md").read_text()


def test_types_are_shipped():
    shipped = {entry.name for entry in importlib.resources.files("neuron_ds").iterdir()}
    assert {"py.typed", "_core.pyi"} <= shipped


def test_one_core_serves_every_python():
    from neuron_ds import _core

    assert _core.__file__.endswith(".abi3.so")


def test_every_public_name_is_there():
    assert neuron_ds.__all__
    assert [name for name in neuron_ds.__all__ if not hasattr(neuron_ds, name)] == []


@pytest.mark.parametrize("group", ["console_scripts", "neuron_ds.drivers"])
def test_entry_points_lead_somewhere(group):
    ours = [point for point in importlib.metadata.entry_points(group=group) if point.value.startswith("neuron_ds.")]
    assert ours
    assert all(callable(point.load()) for point in ours)


def test_only_the_command_depends_on_something():
    assert [re.split(r"[<>=]", need)[0] for need in project()["dependencies"]] == ["click"]


def test_importing_loads_the_standard_library_only():
    code = (
        "import sys, neuron_ds; "
        "print(*sorted({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    bare = "import sys; print(*{m.partition('.')[0] for m in sys.modules})"
    loaded, before = (
        set(subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True).stdout.split())
        for run in (code, bare)
    )
    assert loaded - before == {"neuron_ds"}


# --- What may stand where


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_what_it_knows_and_stays_small(path):
    source = path.read_text()
    assert ast.get_docstring(ast.parse(source)), "a module opens with what it knows and must not know"
    assert source.count("\n") <= LONGEST_MODULE


@pytest.mark.parametrize("path", [path for path in C_CORE + C_BINDING if path not in GENERATED], ids=name_of)
def test_a_c_file_stays_small(path):
    assert path.read_text().lstrip().startswith("/*"), "a C file opens with what it knows"
    assert path.read_text().count("\n") <= LONGEST_MODULE


def test_the_core_knows_no_python():
    assert [name_of(path) for path in C_CORE if re.search(r"\bPython\.h|\bPy[A-Z_]", path.read_text())] == []


@pytest.mark.parametrize("path", [path for path in MODULES if path != PACKAGE / "__init__.py"], ids=name_of)
def test_rooms_ask_the_package_for_nothing_of_other_rooms(path):
    """The linter can't see through the package's own lazy names, so this holds them to submodules."""
    package = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts[:-1])
    children = {entry.stem for entry in PACKAGE.iterdir()} | {"_core", "__version__"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            origin = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            if origin.rstrip(".") == "neuron_ds":
                assert {alias.name for alias in node.names} <= children
        elif isinstance(node, ast.Import):
            assert "neuron_ds" not in {alias.name for alias in node.names}


def test_layout_numbers_stand_in_the_table_only():
    starts = {region.offset for region in layout.REGIONS} | {layout.REQUIRED_SIZE, layout.SLAB_SIZE}
    numbers = {
        spelled
        for start in starts
        if start >= 1024
        for spelled in (str(start), f"{start:,}", f"{start:_}", f"{start:#x}")
    }
    pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, sorted(numbers)))})(?!\w)", re.IGNORECASE)
    elsewhere = [
        path for path in MODULES + C_CORE + C_BINDING if path != PACKAGE / "layout.py" and path not in GENERATED
    ]
    found = {name_of(path): pattern.findall(path.read_text()) for path in elsewhere}
    assert {name: hits for name, hits in found.items() if hits} == {}


def test_no_file_refers_to_a_machine():
    """Only the tree itself, not what was built in it; nothing outside it may be needed or named."""
    place = re.compile(
        r"(?<![\w.])/" + r"(?:work|root|home/\w+)" + r"/|\.\./shared\b|\bfiles\." + "pythonhosted|/pypi" + "/simple"
    )
    ignored = {".git", ".venv", "build", "dist", "site", "golden", "__pycache__"}
    hits = []
    for path in sorted(ROOT.rglob("*")):
        parts = set(path.relative_to(ROOT).parts)
        if parts & ignored or any(part.endswith(("_cache", ".egg-info")) or part == ".hypothesis" for part in parts):
            continue
        if path.is_file() and path.suffix not in {".so", ".pyc", ".bin", ".o"}:
            hits += [f"{name_of(path)}: {hit}" for hit in place.findall(path.read_text(errors="replace"))]
    assert hits == []


def test_every_error_is_explained():
    page = (ROOT / "docs" / "errors.md").read_text()
    kinds = [
        kind.__name__
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.NeuronDSError) and kind.__module__ == errors.__name__
    ]
    assert len(kinds) > 10
    assert [kind for kind in kinds if f"`{kind}`" not in page] == []


def test_every_target_of_the_makefile_is_listed():
    text = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split()
    listed = re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE)
    assert sorted(listed) == sorted(targets)


# --- What building refuses


def test_this_machine_can_build(toolchain):
    assert toolchain.platform_fault() is None


@pytest.mark.parametrize(
    ("module", "name", "value", "word"),
    [
        ("sys", "platform", "darwin", "Linux"),
        ("sys", "byteorder", "big", "little-endian"),
        ("sys", "version_info", (3, 10, 1), "too old"),
    ],
)
def test_other_platforms_are_refused(toolchain, monkeypatch, module, name, value, word):
    monkeypatch.setattr(getattr(toolchain, module), name, value)
    assert word in toolchain.platform_fault()


def test_free_threaded_python_is_refused(toolchain, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)
    assert "free-threaded" in toolchain.platform_fault()


def test_a_missing_compiler_is_named_with_its_package(toolchain, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    fault = toolchain.compiler_fault()
    assert "no-such-compiler" in fault
    assert "install gcc or clang" in fault


def test_missing_headers_are_named_with_their_package(toolchain, monkeypatch, tmp_path):
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))
    fault = toolchain.compiler_fault()
    assert str(tmp_path) in fault
    assert "python3-dev " in fault
    assert "python3-devel " in fault
