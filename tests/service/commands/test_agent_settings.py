"""`ckptprof agent --config`: what the file says is what the agent does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from livecommand import Ckptprof, wait_until
from tests.patience import PATIENCE_SECONDS

from ckptprof.cli.main import main
from ckptprof.service.commands import watch
from ckptprof.service.recorder.storing import open_writer
from ckptprof.store.writer import Retention


@pytest.mark.slow
@pytest.mark.programs("curl")
def test_a_service_is_scraped_from_afar(ckptprof: Ckptprof) -> None:
    """Over TLS, by who has the password, on the address of the file, with the names of jobs that it asks for."""
    work = ckptprof.work
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "web.key", "-out", "web.crt"]
    named = ["-days", "2", "-subj", "/CN=node", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *named], cwd=work, check=True, capture_output=True)
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    tls = "tls_server_config: {cert_file: web.crt, key_file: web.key}\n"
    (work / "web.yml").write_text(f"{tls}basic_auth_users: {{prometheus: {hashed}}}\n")
    settings = 'listen = "127.0.0.1:0"\nweb_config = "web.yml"\nlevel = "poll"\njob_names = true\n'
    (work / "config.toml").write_text(settings)

    with (work / "agent.log").open("wb") as log:
        process = ckptprof.start(
            "agent", "--db", str(ckptprof.database), "--config", "config.toml", stdout=log, stderr=log
        )
    url = wait_until(lambda: re.search(r"metrics on (https://\S+)", (work / "agent.log").read_text()))[1]
    ask = [
        "curl",
        "--silent",
        "--max-time",
        str(PATIENCE_SECONDS),
        "--cacert",
        "web.crt",
        "--write-out",
        "%{http_code}",
    ]
    answers = [
        subprocess.run([*ask, *user, url], cwd=work, capture_output=True, text=True, check=False).stdout
        for user in (("--user", "prometheus:secret"), ())
    ]

    assert '\nckptprof_series_dropped_total{kind="job"} 0.0\n' in answers[0]
    assert answers[0].endswith("200")
    assert answers[1] == "401 Unauthorized\n401"
    process.terminate()
    assert process.wait(timeout=PATIENCE_SECONDS) == 0


def test_the_file_becomes_the_agents_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them."""
    monkeypatch.delenv("CKPTPROF_LEVEL", raising=False)
    caught: list[Any] = []
    monkeypatch.setattr(watch, "Agent", lambda options: caught.append(options) or _Ended())
    file = tmp_path / "config.toml"
    file.write_text(
        'level = "poll"\nrate = 4\nno_metrics = true\nlisten = "0.0.0.0:9"\nweb_config = "/w.yml"\n'
        'timeline_days = 3\nmax_bytes = 16777216\njob_names = true\nmetrics = "minimal"\n'
    )

    assert main(["agent", "--db", "x.db", "--config", str(file)]) == 0
    assert caught == [
        watch.AgentOptions(
            db="x.db", host="0.0.0.0", port=9, serve=False, base_hz=4.0, burst_hz=10.0, level="poll",  # noqa: S104
            web_config=Path("/w.yml"), timeline_days=3, max_bytes=1 << 24, job_names=True, minimal=True,
        )
    ]  # fmt: skip


class _Ended:
    def run(self) -> bool:
        return True


def test_the_store_keeps_as_much_as_it_is_told(tmp_path: Path) -> None:
    """What the agent hands on is the retention of its store."""
    agent = watch.Agent(watch.AgentOptions(db=tmp_path / "x.db", timeline_days=3, max_bytes=1 << 24))
    thread, _ = open_writer(tmp_path / "x.db", kept=agent._kept())
    try:
        assert thread._database.writer()._retention == Retention(timeline_days=3, max_bytes=1 << 24)
    finally:
        thread.close(5.0)
    assert watch.AgentOptions(db="x").timeline_days == Retention().timeline_days
    assert watch.AgentOptions(db="x").max_bytes == Retention().max_bytes
