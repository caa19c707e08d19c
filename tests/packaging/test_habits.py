"""What a project keeps beside its code is read by machines: each file holds together, and each hook finds a fault."""

import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

yaml = pytest.importorskip("yaml", reason="no PyYAML here (make setup-extras)")
FLOOR = 91
"""Per cent of the lines and branches that rules and laws have reached since this was counted."""
HOOKS = {"format": "x = {  'a':1 }\n", "lint": "import os\n"}
"""A hook to a file that it must refuse."""


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def hooks() -> dict[str, list[str]]:
    return {hook["id"]: hook["entry"].split() for hook in read(".pre-commit-config.yaml")["repos"][0]["hooks"]}


@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_a_hook_refuses_a_planted_fault_and_takes_what_is_well(hook: str, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text('"""Well."""\n')
    bad.write_text(HOOKS[hook])
    assert subprocess.run([*hooks()[hook], str(good)], cwd=ROOT, capture_output=True, check=False).returncode == 0
    assert subprocess.run([*hooks()[hook], str(bad)], cwd=ROOT, capture_output=True, check=False).returncode == 1


def test_every_hook_is_a_program_of_this_tree() -> None:
    assert hooks().keys() == {*HOOKS, "house"}
    for entry in hooks().values():
        assert subprocess.run([entry[0], "--version"], cwd=ROOT, capture_output=True, check=False).returncode == 0


def steps(workflow: str) -> list[dict[str, Any]]:
    return [step for job in read(f".github/workflows/{workflow}.yml")["jobs"].values() for step in job["steps"]]


def test_a_tag_becomes_all_that_is_released() -> None:
    found = steps("release")
    commands = " ".join(step.get("run", "") for step in found)
    for part in ("make release", "make test-upgrade", "make bench-gate", "gh release create"):
        assert part in commands
    used = {step["uses"].split("@")[0] for step in found if "uses" in step}
    assert {"actions/attest-build-provenance", "actions/attest-sbom", "docker/build-push-action"} <= used
    (image,) = [step["with"] for step in found if step.get("uses", "").startswith("docker/build-push")]
    assert (ROOT / image["file"]).is_file()
    assert read(".github/workflows/release.yml")["permissions"] == {"contents": "read"}, "a job asks for what it needs"


def test_who_is_asked_owns_something() -> None:
    lines = [line.split() for line in (ROOT / ".github/CODEOWNERS").read_text().splitlines() if line[:1] not in "#"]
    assert lines[0][0] == "*"
    for pattern, *owners in lines:
        assert all("@" in owner for owner in owners), "an account, a team or an address"
        assert pattern == "*" or (ROOT / pattern.strip("/")).exists(), pattern


def test_the_tree_names_no_home_but_where_contributors_are_told() -> None:
    """A name of somebody else's registry or team would be pulled from, or asked."""
    found = subprocess.run(
        ["git", "grep", "-lE", r"registry\.invalid|ghcr\.io/[a-z]|@swarmd/"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode > 1:
        pytest.skip("no git here")
    told = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where it is kept")[2].partition("\n## ")[0]
    deployed = [path for path in found.stdout.split() if path.startswith(("deploy/", ".github/"))]
    placed = {path for path in deployed if f"`{path}`" in told}
    assert placed == {"deploy/kubernetes/kustomization.yaml", "deploy/helm/swarmd/values.yaml"}
    for path in set(deployed) - placed:
        assert "ghcr.io/" not in (ROOT / path).read_text().replace("ghcr.io/${{", ""), path


@pytest.mark.slow
def test_make_coverage_fails_where_tests_reach_less_than_the_floor(tmp_path: Path) -> None:
    """Its own command, with two files of tests in the place of all."""
    pytest.importorskip("pytest_cov", reason="no coverage here (make .venv/.coverage)")
    floor = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]["report"]["fail_under"]
    assert FLOOR <= floor < 100, "it is raised, never lowered"
    recipe = subprocess.run(["make", "-n", "coverage"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (command,) = [line for line in recipe.splitlines() if "--cov " in line]
    for words, instead in (
        ("-n auto --dist loadfile", "-p no:cacheprovider"),
        ("json:out/coverage.json", f"json:{tmp_path / 'coverage.json'}"),
        ("tests/unit tests/property", "tests/unit/test_geojson.py"),
    ):
        assert words in command
        command = command.replace(words, instead)
    environment = os.environ | {"COVERAGE_FILE": str(tmp_path / ".coverage")}
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    assert f"required test coverage of {floor:.1f}% not reached" in (done.stdout + done.stderr).lower()


def test_the_hosted_ci_runs_what_is_there() -> None:
    jobs = read(".github/workflows/ci.yml")["jobs"]
    commands = [step["run"] for step in (*steps("ci"), *steps("release"), *steps("links")) if "run" in step]
    assert any(".ci/run" in command for command in commands)
    targets = {word for command in commands if command.startswith("make ") for word in command.split()[1:2]}
    written = (ROOT / "Makefile").read_text()
    assert targets
    assert all(f"\n{target}:" in written for target in targets)
    oldest = min(jobs["laws"]["strategy"]["matrix"]["python"], key=lambda version: int(version.split(".")[1]))
    assert f'requires-python = ">={oldest}"' in (ROOT / "pyproject.toml").read_text()


def test_what_is_renewed_is_there() -> None:
    for one in read(".github/dependabot.yml")["updates"]:
        folder = ROOT / one["directory"].strip("/")
        names = {"pip": "pyproject.toml", "npm": "package-lock.json", "github-actions": ".github/workflows/ci.yml"}
        assert (folder / names[one["package-ecosystem"]]).is_file()


@pytest.mark.parametrize("form", ["bug", "idea"])
def test_a_form_asks_something(form: str) -> None:
    told = read(f".github/ISSUE_TEMPLATE/{form}.yml")
    assert told["name"]
    assert told["description"]
    assert {part["type"] for part in told["body"]} <= {"textarea", "checkboxes", "input", "dropdown", "markdown"}
    assert any(part.get("validations", {}).get("required") for part in told["body"])
