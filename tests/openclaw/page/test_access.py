"""Read access to the page, and the requests that may change something."""

from __future__ import annotations

import time

import httpx

from openclaw.http.browser import COOKIE, LOGIN_SECONDS, is_login, new_login
from tests.fakes.fixtures import Talk
from tests.fakes.other_user import answer_to_another_user, needs_root
from tests.fakes.running_gateway import RunningGateway, StartGateway

VIEWS = ("/", "/page/sessions", "/admin/now", "/admin/sessions", "/page/events")


def test_foreign_host_names_and_cross_site_scripts_get_no_page(
    gateway: RunningGateway,
) -> None:
    foreign: tuple[dict[str, str], ...] = (
        {"Host": "evil.example:30000"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Origin": "https://evil.example"},
        {"X-Forwarded-For": "8.8.8.8"},
    )
    with httpx.Client(base_url=gateway.url) as client:
        for path in VIEWS:
            for headers in foreign:
                assert client.get(path, headers=headers).status_code == 403, (path, headers)


def test_the_page_supports_head_requests(gateway: RunningGateway) -> None:
    with httpx.Client(base_url=gateway.url) as client:
        answer = client.head("/")
        assert answer.status_code == 200 and answer.content == b""
        assert client.head("/", headers={"Host": "evil.example:30000"}).status_code == 403


def test_with_an_admin_key_nothing_is_visible_without_it(start_gateway: StartGateway) -> None:
    gateway = start_gateway(admin_key="admin")
    without: tuple[dict[str, str], ...] = (
        {},
        {"Authorization": "Bearer secret-key"},
        {"Cookie": f"{COOKIE}=9999999999.00"},
    )
    with httpx.Client(base_url=gateway.url) as client:
        for path in VIEWS:
            for headers in without:
                answer = client.get(path, headers=headers)
                assert answer.status_code == 401 or answer.headers["location"].startswith("/page/login?to=")
            if path != "/page/events":
                assert client.get(path, headers={"Authorization": "Bearer admin"}).status_code == 200


def test_the_key_is_entered_once_and_redirects_to_the_page(start_gateway: StartGateway) -> None:
    gateway = start_gateway(admin_key="admin")
    with httpx.Client(base_url=gateway.url, headers={"Origin": gateway.url}) as browser:
        asked = browser.get("/page/sessions?before=5")
        login = browser.get(asked.headers["location"])
        assert 'name="to" value="/page/sessions?before=5"' in login.text
        wrong = browser.post("/page/login", data={"key": "admim", "to": "/"})
        assert wrong.status_code == 401 and COOKIE not in browser.cookies
        done = browser.post("/page/login", data={"key": "admin", "to": "/page/sessions?before=5"})
        assert done.headers["location"] == "/page/sessions?before=5"
        cookie = done.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie and "admin" not in cookie
        assert (
            browser.get("/page/sessions").status_code == 200 and browser.get("/admin/now").status_code == 200
        )
        browser.post("/page/logout")
        assert browser.get("/page/sessions").status_code == 303


def test_a_login_redirects_only_locally_and_rejects_other_sites(start_gateway: StartGateway) -> None:
    gateway = start_gateway(admin_key="admin")
    with httpx.Client(base_url=gateway.url) as client:
        for to in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:x"):
            done = client.post("/page/login", data={"key": "admin", "to": to})
            assert done.headers["location"] == "/"
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            assert client.post("/page/login", data={"key": "admin"}, headers=headers).status_code == 403


def test_a_login_cookie_expires_and_cannot_be_forged() -> None:
    value = new_login("key", 7)
    assert is_login(value, "key", 7) and not is_login(value, "other", 7) and not is_login("", "key", 7)
    assert not is_login(value, "key", 8) and not is_login(value, "key", None)
    assert not is_login(new_login("key", 7, time.time() - LOGIN_SECONDS - 1), "key", 7)
    until, signature = value.split(".")
    assert not is_login(f"{int(until) + 1}.{signature}", "key", 7) and not is_login("é.é", "key", 7)


@needs_root
def test_a_stolen_login_cookie_does_not_serve_another_user(start_gateway: StartGateway) -> None:
    gateway = start_gateway(admin_key="admin")
    with httpx.Client(base_url=gateway.url, headers={"Origin": gateway.url}) as browser:
        browser.post("/page/login", data={"key": "admin"})
        cookie = f"{COOKIE}={browser.cookies[COOKIE]}"
        assert browser.get("/admin/now").status_code == 200
        url = httpx.URL(gateway.url)
        for path in ("/admin/now", "/admin/export"):
            answer = answer_to_another_user(url.host, url.port or 0, "GET", path, f"Cookie: {cookie}\r\n")
            assert answer.startswith(b"HTTP/1.1 401"), answer[:200]


def test_changes_are_sent_while_the_page_is_open(gateway: RunningGateway, talk: Talk) -> None:
    with httpx.stream("GET", f"{gateway.url}/page/events", timeout=10) as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        lines = events.iter_lines()
        while next(lines) != "event: changed":
            pass
        talk("hi")
        while next(lines) != "event: changed":
            pass
