"""What installs a fleet and runs at its base, judged by what reads it: Kubernetes' schemas, Ansible, swarmd."""

import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import Running, wait_for
from tests.support.exclusive import own_port
from tests.support.paths import ROOT

yaml = pytest.importorskip("yaml", reason="no PyYAML here (make setup-extras)")
POD = ROOT / "deploy" / "kubernetes"
PLAYBOOK = ROOT / "deploy" / "ansible"
TOOLS = ROOT / ".venv-package" / "bin"
needs_tools = pytest.mark.skipif(
    not (TOOLS / "ansible-playbook").exists() or not (TOOLS / "kubernetes-validate").exists(),
    reason="`make .venv-package/.done` installs Ansible and Kubernetes' schemas",
)
COMPONENTS = ("observer", "gateway")


def documents(name: str) -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all((POD / f"{name}.yaml").read_text())}


def container(name: str) -> dict[str, Any]:
    (found,) = documents(name)["Deployment"]["spec"]["template"]["spec"]["containers"]
    return found


def run(*command: str | Path, cwd: Path = ROOT, **more: str) -> "subprocess.CompletedProcess[str]":
    words = [str(part) for part in command]
    return subprocess.run(words, cwd=cwd, env=os.environ | more, capture_output=True, text=True, check=False)


@needs_tools
def test_kubernetes_own_schemas_take_the_manifests_and_refuse_a_slip(tmp_path: Path) -> None:
    files = [POD / "namespace.yaml", *(POD / f"{name}.yaml" for name in COMPONENTS)]
    done = run(TOOLS / "kubernetes-validate", "--strict", *files)
    assert (done.returncode, done.stdout.count(" passed ")) == (0, 5), done.stdout + done.stderr
    slip = tmp_path / "slip.yaml"
    slip.write_text(files[1].read_text().replace("failureThreshold: 60", "failureTreshold: 60"))
    assert run(TOOLS / "kubernetes-validate", "--strict", slip).returncode != 0


def test_what_is_listed_is_there_and_nothing_else() -> None:
    listed = yaml.safe_load((POD / "kustomization.yaml").read_text())
    assert {*listed["resources"], "kustomization.yaml"} == {path.name for path in POD.glob("*.yaml")}
    made = {one["name"]: one["files"][0].split("=")[1] for one in listed["configMapGenerator"]}
    assert made == {name: f"{name}.toml" for name in COMPONENTS}


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_pods_ports_are_its_configurations(name: str) -> None:
    done = run(sys.executable, "-m", "swarmd", "check-config", "--syntax-only", "-c", POD / f"{name}.toml")
    assert done.returncode == 0, done.stderr
    told = tomllib.loads((POD / f"{name}.toml").read_text())
    gossip, page = (int(told[section]["listen"].rsplit(":", 1)[1]) for section in ("transport", "http"))
    one = container(name)
    assert {port["containerPort"] for port in one["ports"]} == {port["hostPort"] for port in one["ports"]} == {gossip}
    assert {one[probe]["httpGet"]["port"] for probe in ("startupProbe", "readinessProbe")} == {page}
    spec = documents(name)["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate"), "an identity is one process"
    volumes = {volume["name"]: volume for volume in spec["template"]["spec"]["volumes"]}
    assert volumes["config"]["configMap"]["name"] == name
    assert {mount["name"] for mount in one["volumeMounts"]} <= volumes.keys()


def test_no_two_pods_of_a_host_want_one_port() -> None:
    ports = [port["hostPort"] for name in COMPONENTS for port in container(name)["ports"] if port["protocol"] == "UDP"]
    assert len(set(ports)) == len(ports)


def test_the_probes_tell_a_daemon_that_serves_from_one_that_does_not(tmp_path: Path) -> None:
    """The pod's own configuration and probes, with places of this test in the place of the host's."""
    one, page = container("observer"), own_port()
    control = tmp_path / "control.sock"
    text = (POD / "observer.toml").read_text()
    text = text.replace('identity = "/run/identity"', f'dev_fleet = "{tmp_path / "fleet"}"')
    text = text.replace('join = ["10.0.0.11:7946"]', "join = []").replace("[::]:7946", "127.0.0.1:0")
    config = tmp_path / "swarmd.toml"
    config.write_text(text.replace("7980", str(page)))
    there = {variable["name"]: variable["value"] for variable in one["env"]}
    assert there == {"SWARMD_NODE__CONTROL": "/tmp/control.sock"}
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SWARMD_")}
    environment |= {"SWARMD_NODE__CONTROL": str(control), "STATE_DIRECTORY": str(tmp_path / "state")}
    words = [str(config) if word == "/etc/swarmd/swarmd.toml" else word for word in one["args"]]
    daemon = Running("observer", control, tmp_path / "out", tmp_path / "err")
    alive = one["livenessProbe"]["exec"]["command"]
    assert alive[0] == "swarmd"
    probe = [
        sys.executable,
        "-m",
        "swarmd",
        *(str(control) if word == "/tmp/control.sock" else word for word in alive[1:]),
    ]

    def ready() -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{page}{one['readinessProbe']['httpGet']['path']}", timeout=60
            ):
                return True
        except (urllib.error.HTTPError, OSError):
            return False

    assert not ready()
    assert run(*probe).returncode != 0
    daemon.spawn([sys.executable, "-m", "swarmd", *words], environment)
    try:
        wait_for(lambda: ready() or not daemon.alive, "the observer to be ready", seen=daemon.log)
        assert daemon.alive, daemon.log()
        assert run(*probe).returncode == 0
    finally:
        daemon.close()
    assert not ready()
    assert run(*probe).returncode != 0


@needs_tools
def test_ansible_reads_the_playbook_and_swarmd_what_it_writes(tmp_path: Path) -> None:
    own = {"ANSIBLE_HOME": str(tmp_path / "ansible"), "ANSIBLE_LOCALHOST_WARNING": "False", "LC_ALL": "C.UTF-8"}
    inventory = PLAYBOOK / "inventory.example.yml"
    done = run(TOOLS / "ansible-playbook", "--syntax-check", "-i", inventory, PLAYBOOK / "swarmd.yml", **own)
    assert done.returncode == 0, done.stdout + done.stderr
    asked = run(TOOLS / "ansible-inventory", "-i", inventory, "--host", "drone-2", **own)
    variables = json.loads(asked.stdout) | {"swarmd_name": "drone-2"}
    template = PLAYBOOK / "roles/swarmd/templates/fleet.toml.j2"
    out = tmp_path / "50-fleet.toml"
    given = json.dumps({"ansible_python_interpreter": sys.executable} | variables)
    done = run(
        TOOLS / "ansible", "localhost", "-c", "local", "-m", "ansible.builtin.template",
        "-a", f"src={template} dest={out}", "-e", given,
        **own,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = tomllib.loads(out.read_text())
    assert told["node"]["name"] == "drone-2"
    assert told["swarm"]["join"] == variables["swarmd_join"]
    assert told["eye"] == {"enabled": True, "source": "/dev/video0"}
    done = run(sys.executable, "-m", "swarmd", "check-config", "--syntax-only", "-c", out)
    assert done.returncode == 0, done.stderr


def test_every_variable_that_the_role_reads_has_a_default() -> None:
    role = PLAYBOOK / "roles" / "swarmd"
    known = set(yaml.safe_load((role / "defaults/main.yml").read_text()))
    registered = set(re.findall(r"register: (swarmd_\w+)", (role / "tasks/main.yml").read_text()))
    read = set(re.findall(r"\b(swarmd_\w+)", "".join(path.read_text() for path in role.rglob("*/main.yml"))))
    assert read <= known | registered
