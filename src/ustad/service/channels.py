"""Ways out of the service: signed webhooks, Alertmanager, e-mail. Each carries ids and a link, nothing else.

In: a YAML file of channels and the address of the page. Out: objects that send one notice or raise; when and how often
is decided in `notices`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import smtplib
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from ustad.config import ConfigError

TIMEOUT_S = 10.0
KINDS = ("webhook", "alertmanager", "mail")
LABELS = ("event_id", "agent_id", "incident_id", "group_id")  # of an alert in Alertmanager


@dataclass(frozen=True)
class Notice:
    """One alert, one group of people, or the digest of a day: lines of text, and what a program would read."""

    id: str  # the same for every attempt
    title: str
    lines: tuple[str, ...]
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Webhook:
    """JSON by POST, signed: HMAC-SHA256 of the time, a full stop and the body, with the shared secret."""

    name: str
    url: str
    secret: bytes
    digest: int | None = None

    def send(self, notice: Notice, moment: int) -> None:
        body = json.dumps({"id": notice.id, **notice.content}, ensure_ascii=False).encode()
        signature = hmac.new(self.secret, f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
        more = {"X-Ustad-Time": str(moment), "X-Ustad-Signature": f"sha256={signature}", "X-Ustad-Notice": notice.id}
        post(self.url, body, more)


@dataclass(frozen=True)
class Alertmanager:
    """An alert in the form of Prometheus' Alertmanager (`/api/v2/alerts`)."""

    name: str
    url: str
    digest: int | None = None

    def send(self, notice: Notice, moment: int) -> None:
        names = {n: str(v) for n, v in notice.content.items() if n in LABELS and v}
        alert = {
            "labels": {"alertname": "ustad", "notice": notice.id, **names}, "annotations": {"summary": notice.title},
            "generatorURL": notice.content["url"],
        }  # fmt: skip
        post(self.url.rstrip("/") + "/api/v2/alerts", json.dumps([alert]).encode(), {})


@dataclass(frozen=True)
class Mail:
    """Plain text by SMTP."""

    name: str
    host: str
    port: int
    sender: str
    to: tuple[str, ...]
    tls: str = "starttls"  # or tls, or none
    user: str = ""
    password: str = ""
    digest: int | None = None

    def send(self, notice: Notice, moment: int) -> None:
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self.sender, ", ".join(self.to), notice.title
        message["Message-ID"] = f"<{notice.id}@ustad>"
        message.set_content("\n".join(notice.lines) + "\n")
        connect = smtplib.SMTP_SSL if self.tls == "tls" else smtplib.SMTP
        with connect(self.host, self.port, timeout=TIMEOUT_S) as server:
            if self.tls == "starttls":
                server.starttls()
            if self.user:
                server.login(self.user, self.password)
            server.send_message(message)


#: `digest` of each: minutes since midnight in UTC at which a day is told at once; None: every alert by itself.
Channel = Webhook | Alertmanager | Mail


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """What is signed for one address is not carried to another."""

    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """POST JSON; anything but a success raises."""
    whole = {"Content-Type": "application/json", "User-Agent": "ustad", **headers}
    with _opener.open(urllib.request.Request(url, body, whole, method="POST"), timeout=TIMEOUT_S):
        pass


# ------------------------------------------------------------------------------------------------ settings
@dataclass(frozen=True)
class Outlets:
    """The channels of a file, and where the page is for those who follow a link."""

    link: str
    channels: tuple[Channel, ...]

    def page(self, agent: str, event: str) -> str:
        return f"{self.link}/agent/{quote(agent, safe='')}?event={event}"


def read_channels(path: Path) -> Outlets:
    """Channels of a YAML file; a mistake is said with its place."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"--notify: {path} cannot be read ({str(error).splitlines()[0]})") from error
    is_whole = isinstance(content, dict) and isinstance(content.get("channels"), list)
    if not is_whole or not _is_web(content.get("link")):
        raise ConfigError(f"--notify: {path} needs `link` (the address of this page) and a list of `channels`")
    entries = enumerate(content["channels"], 1)
    channels = tuple(_channel(one, f"{path.name}, channel {number}", path.parent) for number, one in entries)
    names = [channel.name for channel in channels]
    if len(set(names)) < len(names):
        raise ConfigError(f"--notify: {path} has two channels of one name")
    return Outlets(str(content["link"]).rstrip("/"), channels)


def _channel(one: Any, where: str, beside: Path) -> Channel:
    if not isinstance(one, dict) or one.get("kind") not in KINDS:
        raise ConfigError(f"--notify: {where}: kind must be one of {', '.join(KINDS)}")
    kind = one["kind"]
    fields = {"webhook": ("url", "secret_file"), "alertmanager": ("url",),
              "mail": ("host", "port", "sender", "to", "tls", "user", "password_file")}[kind]  # fmt: skip
    unknown = sorted(set(one) - {"kind", "name", "digest", *fields})
    if unknown:
        raise ConfigError(f"--notify: {where}: '{unknown[0]}' is not known; a {kind} has {', '.join(fields)}")
    name, digest = str(one.get("name", kind)), _minute(one.get("digest"), where)
    if kind == "mail":
        return _mail(one, where, beside, name, digest=digest)
    if not _is_web(one.get("url")):
        raise ConfigError(f"--notify: {where}: url must begin with https:// or http://")
    if kind == "alertmanager":
        return Alertmanager(name, one["url"], digest)
    return Webhook(name, one["url"], _secret(one.get("secret_file"), where, beside), digest)


def _mail(one: dict[str, Any], where: str, beside: Path, name: str, *, digest: int | None) -> Mail:
    who = one.get("to") or []
    to: list[Any] = who if isinstance(who, list) else [who]
    for field, value in (("host", one.get("host")), ("sender", one.get("sender")), ("to", to)):
        if not value:
            raise ConfigError(f"--notify: {where}: needs {field}")
    tls = str(one.get("tls", "starttls")).lower().replace("false", "none")
    if tls not in ("starttls", "tls", "none"):
        raise ConfigError(f"--notify: {where}: tls must be starttls, tls or none, got '{tls}'")
    password = _secret(one["password_file"], where, beside).decode() if "password_file" in one else ""
    return Mail(
        name, str(one["host"]), int(one.get("port", 587)), str(one["sender"]), tuple(map(str, to)), tls,
        str(one.get("user", "")), password, digest,
    )  # fmt: skip


def _secret(file: Any, where: str, beside: Path) -> bytes:
    """The content of a file, found beside the settings; secrets do not stand in the settings themselves."""
    if not file:
        raise ConfigError(f"--notify: {where}: needs secret_file, a file with the secret that both sides know")
    try:
        secret = (beside / str(file)).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"--notify: {where}: the secret cannot be read ({error.strerror})") from error
    if not secret:
        raise ConfigError(f"--notify: {where}: the file of the secret is empty")
    return secret


def _minute(text: Any, where: str) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", str(text))
    if match is None:
        raise ConfigError(f"--notify: {where}: digest must be a time in UTC such as \"07:00\", got '{text}'")
    return 60 * int(match[1]) + int(match[2])


def _is_web(url: Any) -> bool:
    return isinstance(url, str) and url.startswith(("https://", "http://"))
