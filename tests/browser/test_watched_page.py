"""The watched page in Chromium: follows the run by itself, asks nobody but its own server, keeps what the reader
chose."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from report.made_runs import FOUR, make_run

from almakit.report.page import Limits
from almakit.report.watch import Pages, Server


@pytest.mark.slow
def test_the_page_renews_itself(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 64, FOUR[:2], unfinished=2, ended=False)
    with Server(Pages([run], Limits(images=4), 0.3), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        context = browser.new_context(viewport={"width": 1000, "height": 900})
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(server.url)
        assert "Not finished" in page.locator("main").inner_text()
        page.locator("#curves input.epsilon").fill("1.234")
        page.locator("#explore-sort").select_option("order")
        make_run(run, 64, FOUR[:2])
        page.locator("#watching", has_text="the run is complete").wait_for(timeout=20000)
        assert "Not finished" not in page.locator("main").inner_text()
        assert page.locator("#curves input.epsilon").input_value() == "1.234"
        assert page.locator("#explore-sort").input_value() == "order"
        assert said == [] and set(asked) == {server.url, f"{server.url}state"}
        server.shutdown()
        server.server_close()
        page.locator("#watching", has_text="almakit watch has ended").wait_for(timeout=20000)
        context.close()
        thread.join()
