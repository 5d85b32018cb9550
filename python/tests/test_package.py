"""What the wheel brings: stubs, its own libraries, an example that runs."""

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import mixtape

FOLDER = Path(mixtape.__file__).parent
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "first_steps.py"


def test_stubs_name_everything_public():
    assert (FOLDER / "py.typed").exists()
    tree = ast.parse((FOLDER / "_mixtape.pyi").read_text())
    stubs = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    public = {name for name in vars(mixtape) if not name.startswith("_")}
    assert public and public <= stubs.keys()
    calibrate = stubs["calibrate"].args
    assert {a.arg for a in calibrate.kwonlyargs} >= {"bits", "effort", "progress"}
    assert all(a.annotation for a in calibrate.args + calibrate.kwonlyargs)


def test_docstrings():
    for name, member in vars(mixtape).items():
        if not name.startswith("_"):
            assert member.__doc__, name


def test_libraries_are_its_own():
    """Only glibc and libstdc++ come from outside."""
    module = next(FOLDER.glob("_mixtape.*.so"))
    lines = subprocess.run(["ldd", module], check=True, capture_output=True, text=True).stdout.splitlines()
    found = {line.split()[0]: line.split()[2] for line in lines if "=>" in line}
    outside = {name for name, path in found.items() if not Path(path).resolve().is_relative_to(FOLDER.resolve())}
    assert "libmixtape.so.0.1" in found.keys() - outside
    assert outside <= {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6"}


def test_version():
    assert mixtape.__version__.count(".") == 2


def test_example(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE)])
    names = runpy.run_path(str(EXAMPLE))
    assert "KL" in capsys.readouterr().out
    assert names["report"].result.kl.mean < names["report"].initial.kl.mean
    assert (tmp_path / "tiny-moe-3bit" / "model.safetensors").exists()
