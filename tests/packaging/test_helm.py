"""The chart, linted and rendered by Helm's own code, and what it renders judged as the manifests are."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

yaml = pytest.importorskip("yaml", reason="no PyYAML here (make setup-extras)")
CHART = ROOT / "deploy" / "helm" / "swarmd"
TOOLS = ROOT / ".venv-package" / "bin"
PROGRAM = """
import json, sys, helm_python as helm
chart, values = json.load(sys.stdin)
told = {"lint": helm.lint(chart, values, strict=True)}
try:
    with helm.Chart.load(chart) as loaded:
        loaded.validate_schema(loaded.merge_values(values))
        told["files"] = loaded.render(values, name="base", namespace="swarmd")
except helm.HelmError as error:
    told["refused"] = str(error)
print(json.dumps(told))
"""


def helm(values: dict[str, Any], chart: Path = CHART) -> dict[str, Any]:
    """What Helm says of the chart and these values."""
    python = TOOLS / "python"
    if subprocess.run([python, "-c", "import helm_python"], capture_output=True, check=False).returncode:
        pytest.skip("no Helm here (make .venv-package/.done; x86-64 only)")
    done = subprocess.run(
        [python, "-c", PROGRAM], input=json.dumps([str(chart), values]), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def objects(files: dict[str, str]) -> dict[tuple[str, str], Any]:
    """What is installed, by kind and name."""
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    found = [one for text in texts for one in yaml.safe_load_all(text) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


@pytest.fixture(scope="module")
def rendered() -> dict[str, str]:
    """The chart with its own values."""
    told = helm({})
    assert told["lint"]["errors"] == []
    assert [one for one in told["lint"]["messages"] if one["severity"] > 1] == []
    files: dict[str, str] = told["files"]
    return files


def test_kubernetes_own_schemas_take_what_is_rendered(rendered: dict[str, str], tmp_path: Path) -> None:
    everything = tmp_path / "all.yaml"
    everything.write_text("\n---\n".join(text for name, text in rendered.items() if name.endswith(".yaml")))
    command = [TOOLS / "kubernetes-validate", "--strict", everything]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count(" passed ")) == (0, 6), done.stdout + done.stderr


@pytest.mark.parametrize("name", ["observer", "gateway"])
def test_a_pod_is_that_of_the_manifests_with_names_of_the_release(name: str, rendered: dict[str, str]) -> None:
    found = objects(rendered)
    ours = found["Deployment", f"base-{name}"]["spec"]
    theirs = {one["kind"]: one for one in yaml.safe_load_all((ROOT / f"deploy/kubernetes/{name}.yaml").read_text())}[
        "Deployment"
    ]["spec"]
    for key in ("replicas", "strategy"):
        assert ours[key] == theirs[key]
    pod, wanted = ours["template"]["spec"], theirs["template"]["spec"]
    for volume in wanted["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["name"] = f"base-{name}"
        if "persistentVolumeClaim" in volume:
            volume["persistentVolumeClaim"]["claimName"] = f"base-{name}"
    for one in (*pod["initContainers"], *pod["containers"]):
        assert one.pop("imagePullPolicy") == "IfNotPresent"
    assert pod == wanted
    labels = ours["template"]["metadata"]["labels"]
    assert ours["selector"]["matchLabels"].items() <= labels.items()
    written = tomllib.loads(found["ConfigMap", f"base-{name}"]["data"]["swarmd.toml"])
    assert written == tomllib.loads((ROOT / f"deploy/kubernetes/{name}.toml").read_text())


def test_swarmd_takes_the_configuration_of_a_member_of_ones_own(tmp_path: Path) -> None:
    member = {
        "name": 'gate "two"', "identitySecret": "two-identity", "gossipPort": 7966, "pagePort": 7982,
        "secret": "broker",
        "config": '[mqtt]\nenabled = true\nhost = "broker.example"\npassword_file = "/run/secrets/swarmd/password"\n',
    }  # fmt: skip
    told = helm({"members": {"two": member, "observer": None}, "image": {"tag": "v9", "repository": "r.example/s"}})
    found = objects(told["files"])
    assert {name for kind, name in found if kind == "Deployment"} == {"base-two", "base-gateway"}
    (container,) = found["Deployment", "base-two"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "r.example/s:v9"
    assert {"name": "own", "mountPath": "/run/secrets/swarmd", "readOnly": True} in container["volumeMounts"]
    text = found["ConfigMap", "base-two"]["data"]["swarmd.toml"]
    assert tomllib.loads(text)["node"]["name"] == 'gate "two"'
    config = tmp_path / "swarmd.toml"
    config.write_text(text.replace('gate \\"two\\"', "gate-two"))
    command = [sys.executable, "-m", "swarmd", "check-config", "--syntax-only", "-c", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"members": {"gateway": {"gossipPort": 7946}}}, "port 7946 is gateway's already"),
        ({"members": {"observer": {"pagePort": 7981}}}, "port 7981 is gateway's already"),
        ({"members": {"observer": {"gossipProt": 7946}}}, "gossipProt"),
        ({"members": {"observer": {"gossipPort": "7946"}}}, "gossipPort"),
        ({"image": {"repository": ""}}, "repository"),
        ({"members": {"Base One": {"name": "x", "identitySecret": "y", "gossipPort": 1, "pagePort": 2}}}, "Base One"),
    ],
)
def test_a_slip_is_refused_and_named(values: dict[str, Any], sentence: str) -> None:
    told = helm(values)
    assert sentence in told.get("refused", "")


def test_another_configuration_is_another_pod(rendered: dict[str, str]) -> None:
    changed = objects(helm({"join": ["10.0.0.12:7946"]})["files"])
    for key, one in objects(rendered).items():
        if key[0] == "Deployment":
            sums = {at["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for at in (one, changed[key])}
            assert len(sums) == 2
