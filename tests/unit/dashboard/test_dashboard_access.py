"""Who may look at a dashboard, and what every answer says to the browser."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from distrl.bench.system.stored_run import write_stored_run
from distrl.dashboard.app import make_app
from distrl.dashboard.security import Access, cookie_of, host_of
from distrl.dashboard.server import SHORTEST_TOKEN, TOKEN_VARIABLE, access_for, listen
from distrl.errors import UsageError
from support.asgi import ask

TOKEN = "a-token-of-a-few-letters"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_stored_run(folder, 12)
    (folder.parent / "secret.txt").write_text("nobody's business")
    return folder


@pytest.fixture(scope="module")
def app(root: Path) -> ASGIApp:
    return make_app(root, Access())


@pytest.fixture(scope="module")
def guarded(root: Path) -> ASGIApp:
    return make_app(root, access=Access(host="0.0.0.0", token=TOKEN))


def test_every_answer_has_a_strict_policy_also_a_refusal(app: ASGIApp) -> None:
    for target in ("/", "/api/runs", "/static/app.js", "/static/nothing.js", "/api/nothing", "/api/runs/nothing"):
        answer = ask(app, target)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy, target
        assert not any(word in policy for word in ("unsafe", "http", "*")), target
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
    assert ask(app, "/", host="evil.example").headers["content-security-policy"]


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8642", "192.168.0.7", ""]
)
def test_another_name_in_the_host_header_is_refused(app: ASGIApp, host: str) -> None:
    answer = ask(app, "/api/runs", host=host)
    assert answer.status == 421
    assert b"runs" not in answer.body


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1", "[::1]:8642", "LOCALHOST:1"])
def test_this_machine_is_known_by_its_names_and_through_a_forwarded_port(app: ASGIApp, host: str) -> None:
    assert ask(app, "/api/runs", host=host).status == 200


def test_a_host_header_is_read_without_its_port() -> None:
    assert [host_of(text) for text in ("a:1", "[::1]:2", "A", "[fe80::1%eth0]:3")] == ["a", "::1", "a", "fe80::1%eth0"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_only_shows(app: ASGIApp, method: str) -> None:
    assert ask(app, "/api/runs", method=method).status == 405


def test_a_page_of_another_site_is_refused_and_a_link_to_this_one_is_not(app: ASGIApp) -> None:
    assert ask(app, "/api/runs", sec_fetch_site="cross-site", sec_fetch_mode="no-cors").status == 403
    assert ask(app, "/", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status == 200
    assert ask(app, "/api/runs", sec_fetch_site="same-origin", sec_fetch_mode="cors").status == 200


# --- beyond this machine ----------------------------------------------------------------------------------------------


def test_without_the_token_nothing_is_told(guarded: ASGIApp) -> None:
    for target in (
        "/",
        "/api/runs",
        "/metrics",
        "/static/app.js",
        "/?token=wrong",
        f"/?token={TOKEN}x",
        "/?token=%C3%BC",
    ):
        answer = ask(guarded, target, host="10.0.0.5:8642")
        assert answer.status == 401, target
    assert ask(guarded, "/api/runs", host="10.0.0.5", cookie=f"{cookie_of(TOKEN)}=wrong").status == 401
    assert ask(guarded, "/api/runs", host="10.0.0.5", cookie="\x01;;=").status == 401


def test_the_token_of_an_address_becomes_a_cookie_that_no_script_can_read(guarded: ASGIApp) -> None:
    answer = ask(guarded, f"/runs/x/episodes?text=a&token={TOKEN}", host="10.0.0.5:8642")
    assert answer.status == 303
    assert answer.headers["location"] == "/runs/x/episodes?text=a"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert ask(guarded, "/api/runs", host="10.0.0.5:8642", cookie=f"{cookie_of(TOKEN)}={TOKEN}").status == 200
    assert ask(guarded, "/metrics", host="10.0.0.5:8642", authorization=f"Bearer {TOKEN}").status == 200


def test_cookies_of_other_servers_on_the_same_machine_lock_nobody_out(guarded: ASGIApp) -> None:
    answer = ask(guarded, f"/?token={TOKEN}", host="10.0.0.5:8642")
    own = answer.headers["set-cookie"].partition(";")[0]
    other = ask(make_app(Path(), Access(host="0.0.0.0", token="b" * 24)), f"/?token={'b' * 24}", host="10.0.0.5:8643")
    theirs = other.headers["set-cookie"].partition(";")[0]
    assert own.partition("=")[0] != theirs.partition("=")[0]
    for cookies in (f"{theirs}; {own}", f'odd[name]=1; {{"a": 1}}; {own}', f"a b=c; {own}"):
        assert ask(guarded, "/api/runs", host="10.0.0.5:8642", cookie=cookies).status == 200, cookies
    assert ask(guarded, "/api/runs", host="10.0.0.5:8642", cookie=theirs).status == 401


def test_a_host_header_of_a_stranger_is_looked_up_nowhere(guarded: ASGIApp, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(socket, "getfqdn", asked.append)
    assert ask(guarded, "/api/runs", host="evil.example").status == 421
    assert asked == []


def test_an_address_with_a_token_leads_to_no_other_site(guarded: ASGIApp) -> None:
    answer = ask(guarded, f"//evil.example/x?token={TOKEN}", host="10.0.0.5")
    assert answer.headers["location"] == "/evil.example/x"


def test_another_address_gets_a_token_and_a_short_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert access_for("127.0.0.1").token == ""
    assert access_for("::1").token == ""
    assert len(access_for("0.0.0.0").token) >= SHORTEST_TOKEN
    assert access_for("0.0.0.0").token != access_for("0.0.0.0").token
    monkeypatch.setenv(TOKEN_VARIABLE, "short")
    with pytest.raises(UsageError, match="characters"):
        access_for("192.168.1.2")
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert access_for("192.168.1.2").token == TOKEN


def test_a_taken_port_is_left_for_the_next_one_and_that_is_said() -> None:
    first, said = listen("127.0.0.1", 0)
    with first:
        port = first.getsockname()[1]
        assert said == ""
        second, said = listen("127.0.0.1", port)
        with second:
            assert second.getsockname()[1] > port
            assert said == f"port {port} is taken: using {second.getsockname()[1]}"


def test_an_address_of_another_machine_is_refused_with_the_fix() -> None:
    with pytest.raises(UsageError, match="cannot listen"):
        listen("203.0.113.9", 0)


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "/static/../app.py", "/static/../../errors.py", "/static//etc/passwd", "/api/runs/../secret.txt", "/api/runs/%2e%2e", "/api/runs/..",
        "/api/runs/../../secret.txt/episodes", "/static/pages/../../security.py", "/static/..%2fapp.py", "/static/C:\\x", "/static/\x00",
    ],
)  # fmt: skip
def test_no_path_of_a_request_leaves_what_is_shown(app: ASGIApp, target: str) -> None:
    answer = ask(app, target)
    assert answer.status in (400, 404) or answer.headers["content-type"].startswith("text/html"), target
    assert b"nobody's business" not in answer.body
    assert b"import " not in answer.body
    assert b"root:" not in answer.body


def test_a_frame_or_an_episode_with_a_path_for_a_name_is_refused(app: ASGIApp) -> None:
    run = ask(app, "/api/runs").json["runs"][0]["name"]
    for rest in (
        "frames/..%2f..",
        "frames/sha256:../../x",
        "episodes/..",
        "episodes/../../secret",
        "frames/sha256:" + "0" * 64,
    ):
        answer = ask(app, f"/api/runs/{run}/{rest}")
        assert answer.status in (400, 404), rest
        assert "error" in answer.json


@pytest.mark.parametrize(
    "query",
    [
        "steps_from=x",
        "version_to=1e9999",
        "nonsense=1",
        "outcome=maybe",
        "source=all",
        "limit=-5x",
        "before=%00",
        "limit=99999999999999999999x",
    ],
)
def test_a_nonsense_filter_is_answered_with_what_is_wrong(app: ASGIApp, query: str) -> None:
    run = ask(app, "/api/runs").json["runs"][0]["name"]
    answer = ask(app, f"/api/runs/{run}/episodes?{query}")
    assert answer.status == 400
    assert len(answer.json["error"]) > 10


def test_a_page_asks_no_other_machine_for_anything() -> None:
    static = Path(__file__).parents[3] / "src" / "distrl" / "dashboard" / "static"
    for file in static.rglob("*"):
        if file.is_file():
            text = file.read_text().replace("http://www.w3.org/2000/svg", "")
            forbidden = ("http://", "https://", "innerHTML", "insertAdjacentHTML", "document.write", "eval(")
            assert not any(word in text for word in forbidden), file
            assert "style=" not in text or file.suffix == ".js", file
