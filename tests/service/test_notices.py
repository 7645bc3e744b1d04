"""Telling others: real servers on loopback get signed webhooks, Alertmanager's form and e-mail; failures come again."""

from __future__ import annotations

import hashlib
import hmac
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from ustad.config import ConfigError
from ustad.page.store import now
from ustad.service import notices
from ustad.service.channels import Outlets, read_channels
from ustad.service.notices import DAY, MOST_TRIES, Notifier, _is_due

Stay = Callable[..., dict[str, Any]]
SECRET = b"what both sides know"
LINK = "https://ustad.example.org"


class Receiver:
    """An HTTP server that answers with these statuses in turn, then with 200."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                if status == 200:
                    receiver.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Mailbox(socketserver.ThreadingTCPServer):
    """An SMTP server that keeps what it is given."""

    daemon_threads = True

    def __init__(self) -> None:
        self.mails: list[str] = []
        super().__init__(("127.0.0.1", 0), _Smtp)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Smtp(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            word = line.split()[0].upper() if line.split() else b""
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                text = b""
                while not text.endswith(b"\r\n.\r\n"):
                    text += self.rfile.readline()
                self.server.mails.append(text.decode())  # type: ignore[attr-defined]  # a Mailbox
            if word == b"QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            self.wfile.write(b"250 ok\r\n")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    mailbox = Mailbox()
    yield mailbox
    mailbox.shutdown()
    mailbox.server_close()


def outlets(place: Path, *channels: dict[str, Any]) -> Outlets:
    (place / "secret").write_bytes(SECRET + b"\n")
    (place / "notify.yaml").write_text(yaml.safe_dump({"link": LINK + "/", "channels": list(channels)}))
    return read_channels(place / "notify.yaml")


def notifier_of(client: TestClient, place: Path, *channels: dict[str, Any]) -> Notifier:
    return Notifier(client.app.state.service.store, outlets(place, *channels))


def hook(receiver: Receiver) -> dict[str, Any]:
    return {"kind": "webhook", "url": receiver.url + "/hook", "secret_file": "secret"}


def send(client: TestClient, *stays: dict[str, Any]) -> list[dict[str, Any]]:
    return list(client.post("/v1/events", json={"events": list(stays)}).json()["events"])


def test_a_webhook_is_signed_sent_once_and_holds_ids_and_a_link(
    client: TestClient, receiver: Receiver, tmp_path: Path, stay: Stay
) -> None:
    send(client, stay("before", hours=4))
    notifier = notifier_of(client, tmp_path, hook(receiver))
    assert notifier.step() == 0, "what was there before is not news"
    alert, _ = send(client, stay("a/17", hours=4), stay("b", hours=1))
    assert (notifier.step(), notifier.step()) == (1, 0)
    ((path, headers, body),) = receiver.got
    content = json.loads(body)
    assert path == "/hook"
    assert content == {
        "id": headers["x-ustad-notice"], "type": "alert", "event_id": alert["id"], "agent_id": "a/17",
        "incident_id": alert["incident_id"], "url": f"{LINK}/agent/a%2F17?event={alert['id']}",
    }  # fmt: skip
    signed = hmac.new(SECRET, headers["x-ustad-time"].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["x-ustad-signature"] == f"sha256={signed}"


def test_what_fails_is_tried_again_later_each_time_with_the_same_id(
    client: TestClient, receiver: Receiver, tmp_path: Path, stay: Stay
) -> None:
    notifier = notifier_of(client, tmp_path, hook(receiver))
    receiver.statuses = [500, 302, 429]
    send(client, stay(hours=4))
    moment, waits = now(), []
    for _ in range(4):
        notifier.step(moment)
        with client.app.state.service.store.reading() as connection:
            waiting = connection.execute(notices.select(notices.r.notices)).all()
        if waiting:
            assert notifier.step(waiting[0].due_at - 1) == 0, "not before its time"
            waits.append(waiting[0].due_at - moment)
            moment = waiting[0].due_at
    assert len(receiver.got) == 1
    assert waits == [5_000_000, 10_000_000, 20_000_000]
    assert client.get("/v1/notices").json() == {"waiting": 0, "dead": 0, "notices": []}


def test_what_never_arrives_is_kept_as_dead_until_it_is_asked_for_again(
    client: TestClient, receiver: Receiver, tmp_path: Path, stay: Stay
) -> None:
    notifier = notifier_of(client, tmp_path, hook(receiver))
    receiver.statuses = [503] * MOST_TRIES
    send(client, stay(hours=4))
    for day in range(MOST_TRIES + 3):
        notifier.step(now() + day * DAY)
    assert receiver.statuses == [], "and not more often"
    dead = client.get("/v1/notices").json()
    assert (dead["dead"], dead["notices"][0]["problem"]) == (1, "HTTPError")
    assert client.post("/v1/notices/retry").json()["waiting"] == 1
    assert notifier.step(now() + DAY) == 1
    assert len(receiver.got) == 1


def test_alertmanager_gets_its_own_form(client: TestClient, receiver: Receiver, tmp_path: Path, stay: Stay) -> None:
    notifier = notifier_of(client, tmp_path, {"kind": "alertmanager", "url": receiver.url + "/"})
    (event,) = send(client, stay("a", hours=4))
    notifier.step()
    ((path, _, body),) = receiver.got
    (alert,) = json.loads(body)
    assert path == "/api/v2/alerts"
    assert alert["labels"]["alertname"] == "ustad"
    assert alert["labels"]["event_id"] == event["id"]
    assert alert["generatorURL"] == f"{LINK}/agent/a?event={event['id']}"
    assert all(isinstance(value, str) for value in (*alert["labels"].values(), *alert["annotations"].values()))


def test_mail_tells_each_alert_or_a_day_at_once(
    client: TestClient, mailbox: Mailbox, tmp_path: Path, stay: Stay
) -> None:
    mail = {"kind": "mail", "host": "127.0.0.1", "port": mailbox.server_address[1], "tls": "none",
            "sender": "ustad@example.org", "to": ["desk@example.org"]}  # fmt: skip
    moment = now()
    minute = (moment % DAY // 60_000_000 + 720) % 1440  # far from now, whenever this runs
    daily = {**mail, "name": "daily", "digest": f"{minute // 60:02d}:{minute % 60:02d}"}
    notifier = notifier_of(client, tmp_path, mail, daily)
    a, b = send(client, stay("a", hours=4), stay("b", hours=5))
    assert notifier.step(now()) == 2
    assert f"{LINK}/agent/a?event={a['id']}" in "".join(mailbox.mails).replace("=\r\n", "").replace("=3D", "=")
    mailbox.mails.clear()
    due = moment // DAY * DAY + minute * 60_000_000
    due += DAY if due < moment else 0
    assert notifier.step(due - 1) == 0
    assert notifier.step(due + 1_000_000) == 1
    assert notifier.step(due + 2_000_000) == 0, "once a day"
    (digest,) = mailbox.mails
    text = digest.replace("=\r\n", "").replace("=3D", "=")
    assert "2 new alerts in the last day, 2 open in all." in text
    assert text.index(f"?event={b['id']}") < text.index(f"?event={a['id']}"), "the most unusual first"
    assert "60.17" not in text


def test_who_is_forgotten_is_told_to_nobody(client: TestClient, receiver: Receiver, tmp_path: Path, stay: Stay) -> None:
    notifier = notifier_of(client, tmp_path, hook(receiver))
    receiver.statuses = [500]
    send(client, stay("a", hours=4))
    notifier.step()
    client.delete("/v1/agents/a")
    assert notifier.step(now() + DAY) == 0
    assert receiver.got == []
    assert client.get("/v1/notices").json()["waiting"] == 0


def test_a_digest_is_due_once_between_two_looks() -> None:
    seven, day = 7 * 60, 20_000 * DAY
    assert not _is_due(seven, day, day + 7 * 3_600_000_000 - 1)
    assert _is_due(seven, day, day + 7 * 3_600_000_000)
    assert not _is_due(seven, day + 7 * 3_600_000_000, day + 8 * 3_600_000_000)
    assert _is_due(seven, day - 5 * DAY, day), "also after days without the service"


def test_a_running_service_tells_of_an_alert_by_itself(
    serve_here: Any, receiver: Receiver, tmp_path: Path, stay: Stay
) -> None:
    import httpx
    from service_example import PATIENCE, until

    outlets(tmp_path, hook(receiver))
    server = serve_here(notify=tmp_path / "notify.yaml")
    httpx.post(server.url + "/v1/events", json={"events": [stay(hours=4)]}, timeout=PATIENCE)
    assert until(lambda: receiver.got, 0.1)


@pytest.mark.parametrize(
    ("text", "said"),
    [("{channels: []}", "needs `link`"), ("[", "cannot be read"),
     ("{link: 'http://x', channels: [{kind: pigeon}]}", "kind must be one of"),
     ("{link: 'http://x', channels: [{kind: webhook, url: 'ftp://x'}]}", "url must begin with"),
     ("{link: 'http://x', channels: [{kind: webhook, url: 'http://x'}]}", "needs secret_file"),
     ("{link: 'http://x', channels: [{kind: webhook, url: 'http://x', secret: abc}]}", "'secret' is not known"),
     ("{link: 'http://x', channels: [{kind: mail, host: x, sender: y}]}", "needs to"),
     ("{link: 'http://x', channels: [{kind: alertmanager, url: 'http://x', digest: noon}]}", "digest must be a time")],
)  # fmt: skip
def test_a_mistake_in_the_file_is_said_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "notify.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        read_channels(tmp_path / "notify.yaml")
    assert "\n" not in str(error.value)
