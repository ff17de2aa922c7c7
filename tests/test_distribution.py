"""What ``pip install .`` brings, and under which version."""

import os
import shutil
import subprocess
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from places import ROOT
from scripts import run_python
from waiting import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.room("collectors", "workers", "landscape")]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    # A build leaves its metadata where it builds; here they would change the version that other tests find.
    folder, tree = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("tree")
    git(tree, "clone", "--quiet", ROOT, ".")
    for package in ("collectors", "workers", "landscape"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tree / package, dirs_exist_ok=True, ignore=ignored)
    run_python("-m", "build", "--outdir", folder, tree, patience=PATIENCE * 8)
    return folder


def test_the_wheel_holds_three_packages_and_one_command(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        commands = archive.read(entry_points).decode()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"collectors", "workers", "landscape"}
    for package in ("collectors", "workers", "landscape"):
        assert f"{package}/py.typed" in names
        sources = {str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.*") if path.suffix != ".pyc"}
        assert sources <= set(names), sources - set(names)
    assert "landscape = landscape.cli:main" in commands


def test_the_source_distribution_holds_what_installs(built):
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        tops = {Path(name).parts[1] for name in archive.getnames() if len(Path(name).parts) > 1}
    assert {"collectors", "workers", "landscape", "pyproject.toml", "README.md", "LICENSE"} <= tops
    assert not tops & {"tests", "docs", "notebooks", "constraints", ".ci"}


def test_the_wheel_works_where_nothing_else_of_ours_is(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    run_python("-m", "venv", "--without-pip", tmp_path / "venv")
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    program = tmp_path / "venv/bin"
    # pip and all others are those of the environment that runs this; its links to the repository do not come along.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def output(*command):
        ended = subprocess.run(
            [str(item) for item in command], cwd=tmp_path, env=environment, capture_output=True, text=True,
            timeout=PATIENCE * 2, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    output(program / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    for package in ("collectors", "workers", "landscape"):
        place = output(program / "python", "-c", f"import {package}; print({package}.__file__)")
        assert Path(place).is_relative_to(packages)
    assert output(program / "landscape", "--version").split() == ["summary-landscape", wheel.name.split("-")[1]]
    digits = ROOT / "docs/examples/digits.h5"
    assert "points" in output(program / "landscape", "info", digits)
    output(program / "landscape", "plot", digits, "-o", "digits.html", "--no-open")
    output(program / "landscape", "plot", digits, "-o", "digits.png")
    assert {path.name for path in tmp_path.iterdir()} >= {"digits.html", "digits.png"}


def git(folder, *arguments):
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True)


def archive_of(repository, folder):
    folder.mkdir()
    git(repository, "archive", "--output", str(folder.with_suffix(".tar")), "HEAD")
    with tarfile.open(folder.with_suffix(".tar")) as archive:
        archive.extractall(folder, filter="data")


def version_of(folder):
    return run_python("-W", "ignore", "-m", "setuptools_scm", cwd=folder).strip()


def test_versions_come_from_tags_and_say_where_there_is_none(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", ".gitattributes", ".git_archival.txt"):
        shutil.copy(ROOT / name, tree)
    assert version_of(tree) == "0.0+untagged"
    git(tree, "init", "--quiet")
    git(tree, "add", "--all")
    for text in ("first", "second"):
        git(tree, "commit", "--quiet", "--allow-empty", "--message", text)
    archive_of(tree, tmp_path / "untagged")
    assert version_of(tmp_path / "untagged") == "0.0+untagged"
    assert version_of(tree).startswith("0.1.dev2+untagged.g")
    git(tmp_path, "clone", "--quiet", "--depth", "1", tree.as_uri(), "shallow")
    assert version_of(tmp_path / "shallow").startswith("0.1.dev1+untagged.g")
    git(tree, "tag", "v1.2.3")
    archive_of(tree, tmp_path / "tagged")
    assert version_of(tree) == version_of(tmp_path / "tagged") == "1.2.3"
    git(tree, "commit", "--quiet", "--allow-empty", "--message", "third")
    assert version_of(tree).startswith("1.2.4.dev1+g")
