"""The watched page: this machine only, one page, read-only, renewed when there is more."""

from __future__ import annotations

import hashlib
import html
import http.client
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from report.made_runs import FOUR, make_run

from almakit.cli.main import main
from almakit.report.page import Limits
from almakit.report.watch import Pages, Server


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, Server]]:
    run = make_run(tmp_path / "run", 64, FOUR[:2], unfinished=2, ended=False)
    with Server(Pages([run], Limits(images=4), 0.5), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield run, server
        server.shutdown()
        thread.join()


def ask(server: Server, path: str, method: str = "GET", host: str | None = None) -> tuple[int, str, dict[str, str]]:
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode("utf-8"), dict(answer.getheaders())
    connection.close()
    return found


def contents(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_listens_to_this_machine_only(served: tuple[Path, Server]) -> None:
    _, server = served
    assert server.server_address[0] == "127.0.0.1"
    assert server.url.startswith("http://127.0.0.1:")


def test_serves_the_page_and_nothing_else(served: tuple[Path, Server]) -> None:
    run, server = served
    before = contents(run)
    status, page, headers = ask(server, "/")
    assert status == 200 and "mnist/smallcnn" in page and "Not finished" in page
    assert "connect-src 'self'" in html.unescape(page)
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Frame-Options"] == "DENY"
    for path in ("/records.sqlite", "/../run/run.toml", "/run.toml", "//etc/passwd", "/state/", "/?x=1", "/%2e%2e/"):
        assert ask(server, path)[0] == 404, path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(server, "/", method)[0] == 501, method
    assert contents(run) == before


def test_answers_only_to_its_own_name(served: tuple[Path, Server]) -> None:
    _, server = served
    port = server.server_address[1]
    assert ask(server, "/", host=f"localhost:{port}")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1"):
        assert ask(server, "/", host=host)[0] == 403
        assert ask(server, "/state", host=host)[0] == 403


def test_a_new_result_makes_a_new_page(served: tuple[Path, Server]) -> None:
    run, server = served
    first = json.loads(ask(server, "/state")[1])
    page = ask(server, "/")[1]
    assert f'"version":"{first["version"]}"' in page and first["age"] >= 0
    assert json.loads(ask(server, "/state")[1])["version"] == first["version"]
    make_run(run, 64, FOUR[:2])
    assert json.loads(ask(server, "/state")[1])["version"] != first["version"]
    renewed = ask(server, "/")[1]
    assert "Not finished" not in renewed
    assert re.search(r'"complete":true', renewed)


def test_a_run_that_has_not_begun_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with Server(Pages([tmp_path / "run"], Limits(images=2), 1.0), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        status, text, _ = ask(server, "/")
        assert status == 503 and "http-equiv=refresh" in text and "its run has not begun" in text
        make_run(tmp_path / "run", 5, FOUR[:1])
        assert ask(server, "/")[0] == 200
        server.shutdown()
        thread.join()


def test_mistakes_are_sentences(
    tmp_path: Path, served: tuple[Path, Server], capsys: pytest.CaptureFixture[str]
) -> None:
    run, server = served
    assert main(["watch", str(tmp_path / "nix")]) == 1
    assert "there is no run folder" in capsys.readouterr().err
    assert main(["watch", str(run), "--port", str(server.server_address[1])]) == 1
    assert "choose another one with --port" in capsys.readouterr().err
    assert main(["watch", str(run), "--seconds", "0"]) == 2
