"""The unit of the shipper: no rights, no writing, nobody to talk to until a drop-in names the server."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckptprof.assets import asset
from ckptprof.fleet.files import FleetFiles

UNIT = asset("systemd/ckptprof-ship.service")
TIMER = asset("systemd/ckptprof-ship.timer")
EXAMPLE = asset("systemd/ckptprof-ship.service.d/10-to.conf.example")


def values(path: Path, name: str) -> list[str]:
    """Return all values of a directive, in order."""
    return re.findall(rf"(?m)^{name}=(.*)$", path.read_text(encoding="utf-8"))


def test_it_has_no_right_and_reaches_nobody() -> None:
    """No capability, one folder to write to on this host, no address but those that a drop-in allows."""
    assert values(UNIT, "CapabilityBoundingSet") == [""]
    assert values(UNIT, "AmbientCapabilities") == values(UNIT, "ReadWritePaths") == []
    assert values(UNIT, "StateDirectory") == ["ckptprof-ship"]
    assert (values(UNIT, "User"), values(UNIT, "NoNewPrivileges")) == (["ckptprof"], ["yes"])
    assert values(UNIT, "ProtectSystem") == ["strict"]
    assert (values(UNIT, "IPAddressDeny"), values(UNIT, "IPAddressAllow")) == (["any"], [])
    assert (values(UNIT, "Type"), values(TIMER, "OnCalendar")) == (["oneshot"], ["*:0/15"])


def test_the_example_has_no_secret_and_a_url_that_is_taken() -> None:
    """Credentials come from systemd."""
    urls, paths = values(EXAMPLE, "Environment")

    assert FleetFiles(urls.partition("=")[2]).url == "s3://bucket/ckptprof?region=us-east-1"
    assert paths == "AWS_SHARED_CREDENTIALS_FILE=%d/aws"
    assert values(EXAMPLE, "LoadCredential") == ["aws:/etc/ckptprof/aws-credentials"]
    assert len(values(EXAMPLE, "IPAddressAllow")) == 2


@pytest.mark.nspawn
@pytest.mark.parametrize("with_example", [False, True], ids=["alone", "with its drop-in"])
def test_systemd_understands_it_and_finds_it_little_exposed(tmp_path: Path, *, with_example: bool) -> None:
    """`systemd-analyze verify` says nothing, and `security` gives at most 1.5 of 10."""
    unit = tmp_path / UNIT.name
    text = re.sub(r"(?m)^ExecStart=.*$", f"ExecStart={sys.executable} -I", UNIT.read_text(encoding="utf-8"))
    unit.write_text(re.sub(r"(?m)^(After|Wants)=.*$", "", text), encoding="utf-8")
    shutil.copy(TIMER, tmp_path)
    if with_example:
        folder = tmp_path / EXAMPLE.parent.name
        folder.mkdir()
        shutil.copy(EXAMPLE, folder / EXAMPLE.name.removesuffix(".example"))

    def analyze(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["systemd-analyze", *words, str(unit)], capture_output=True, text=True, check=False)

    said = analyze("verify", "--man=no")
    assert (said.returncode, said.stdout + said.stderr) == (0, "")
    exposed = analyze("security", "--offline=true", "--threshold=15", "--no-pager")
    assert exposed.returncode == 0, exposed.stdout.splitlines()[-1]
