"""`ckptprof agent --config`: what the file says is what the agent does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from livecommand import Ckptprof, wait_until
from tests.export import certificates
from tests.patience import PATIENCE_SECONDS

from ckptprof.cli.main import main
from ckptprof.service.commands import agent_service
from ckptprof.service.recorder.storing import open_writer
from ckptprof.store.writer import Retention


@pytest.mark.slow
@pytest.mark.programs("curl")
def test_a_service_is_scraped_from_afar(ckptprof: Ckptprof) -> None:
    """By a client with a certificate, on the address of the file; the text file has the same metrics."""
    work = ckptprof.work
    certificates.all_of(work)
    (work / "textfile").mkdir()
    settings = 'listen = "127.0.0.1:0"\ntls_cert = "server.crt"\ntls_key = "server.key"\nclient_ca = "ca.crt"\n'
    settings += 'textfile = "textfile"\nlevel = "poll"\njob_names = true\n'
    (work / "config.toml").write_text(settings)

    with (work / "agent.log").open("wb") as log:
        process = ckptprof.start(
            "agent", "--db", str(ckptprof.database), "--config", "config.toml", stdout=log, stderr=log
        )
    url = wait_until(lambda: re.search(r"metrics on (https://\S+)", (work / "agent.log").read_text()))[1]
    ask = ["curl", "--silent", "--max-time", str(PATIENCE_SECONDS), "--cacert", "ca.crt", "--write-out", "%{http_code}"]
    answers = [
        subprocess.run([*ask, *client, url], cwd=work, capture_output=True, text=True, check=False).stdout
        for client in (("--cert", "client.crt", "--key", "client.key"), ())
    ]

    line = '\nckptprof_series_dropped_total{kind="job"} 0.0\n'
    assert line in answers[0]
    assert answers[0].endswith("200")
    assert answers[1] == "000"
    assert line in (work / "textfile/ckptprof.prom").read_text()
    process.terminate()
    assert process.wait(timeout=PATIENCE_SECONDS) == 0
    assert list((work / "textfile").iterdir()) == []


def test_the_file_becomes_the_agents_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them."""
    monkeypatch.delenv("CKPTPROF_LEVEL", raising=False)
    caught: list[Any] = []
    monkeypatch.setattr(agent_service, "Agent", lambda options: caught.append(options) or _Ended())
    file = tmp_path / "config.toml"
    file.write_text(
        'level = "poll"\nrate = 4\ncpu_budget = 2\nno_metrics = true\nlisten = "0.0.0.0:9"\n'
        'tls_cert = "/c"\ntls_key = "/k"\nclient_ca = "/a"\ntextfile = "/t"\n'
        'timeline_days = 3\nmax_bytes = 16777216\njob_names = true\nmetrics = "minimal"\n'
    )

    assert main(["agent", "--db", "x.db", "--config", str(file)]) == 0
    assert caught == [
        agent_service.AgentOptions(
            db="x.db", host="0.0.0.0", port=9, serve=False, base_hz=4.0, burst_hz=10.0, level="poll", cpu_budget=0.02,  # noqa: S104
            tls_cert=Path("/c"), tls_key=Path("/k"), client_ca=Path("/a"), textfile=Path("/t"),
            timeline_days=3, max_bytes=1 << 24, job_names=True, minimal=True,
        )
    ]  # fmt: skip


class _Ended:
    def run(self) -> bool:
        return True


def test_the_store_keeps_as_much_as_it_is_told(tmp_path: Path) -> None:
    """What the agent hands on is the retention of its store."""
    agent = agent_service.Agent(agent_service.AgentOptions(db=tmp_path / "x.db", timeline_days=3, max_bytes=1 << 24))
    thread, _ = open_writer(tmp_path / "x.db", retention=agent._retention())
    try:
        assert thread._database.writer()._retention == Retention(timeline_days=3, max_bytes=1 << 24)
    finally:
        thread.close(5.0)
    assert agent_service.AgentOptions(db="x").timeline_days == Retention().timeline_days
    assert agent_service.AgentOptions(db="x").max_bytes == Retention().max_bytes
