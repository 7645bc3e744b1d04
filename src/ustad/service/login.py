"""Asking a browser for a key: a small page, and the cookie that carries the key from then on.

The cookie is HttpOnly and SameSite=Strict: scripts cannot read it and other sites cannot use it.
"""

from __future__ import annotations

import base64
import hashlib
import html
from urllib.parse import parse_qs

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from ustad.service.errors import UnauthorizedError
from ustad.service.keys import COOKIE

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:0;min-height:100vh;display:grid;place-items:center;"
    "background:#f7f7f5;color:#1d2129}form{background:#fff;border:1px solid #e2e3e0;border-radius:10px;padding:28px;"
    "width:min(92vw,360px)}h1{font-size:18px;margin:0 0 4px}p{margin:0 0 16px;color:#5b6370}input,button{font:inherit;"
    "width:100%;box-sizing:border-box;padding:9px 10px;border-radius:6px;border:1px solid #c9ccd1}"
    "button{margin-top:12px;background:#5b2a86;border-color:#5b2a86;color:#fff;cursor:pointer}"
    "@media(prefers-color-scheme:dark){body{background:#14161a;color:#e7e8ea}form{background:#1c1f25;"
    "border-color:#2f343c}p{color:#a2a9b4}input{background:#14161a;color:inherit;border-color:#2f343c}}"
)


LOGIN_TEXT = "This service asks for a key with the role read."


def login_page(message: str = LOGIN_TEXT, address: str = "/") -> tuple[str, str]:
    """The page, which leads on to the address that was wanted, and the content policy that allows exactly its style."""
    style_hash = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{style_hash}'; form-action 'self'; base-uri 'none'"
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>ustad: key</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f'<form method="post" action="/login"><h1>ustad</h1><p>{message}</p><label>Key'
        '<input type="password" name="key" autocomplete="current-password" autofocus required></label>'
        f'<input type="hidden" name="wanted" value="{html.escape(address)}"><button>Open</button></form></html>'
    )
    return page, policy


async def log_in(request: Request) -> Response:
    """Set the cookie and go to the page, or ask again."""
    fields = parse_qs((await request.body()).decode("utf-8", "replace"))
    key = fields.get("key", [""])[0].strip()
    address = own_address(fields.get("wanted", ["/"])[0])
    try:
        request.app.state.service.keys.caller(key)
    except UnauthorizedError:
        page, policy = login_page("That key is not known, or has expired. Please try again.", address)
        return HTMLResponse(page, 401, {"Content-Security-Policy": policy})
    answer = RedirectResponse(address, status_code=303)
    secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))  # a proxy may have the TLS
    answer.set_cookie(COOKIE, key, httponly=True, samesite="strict", secure=secure, path="/")
    return answer


def own_address(text: str) -> str:
    """The address if it is one of this service's pages, else the overview: a link must not lead elsewhere."""
    is_own = text.startswith("/") and not text.startswith("//") and text.isascii() and text.isprintable()
    return text if is_own and "\\" not in text else "/"


async def log_out() -> Response:
    answer = RedirectResponse("/", status_code=303)
    answer.delete_cookie(COOKIE, path="/")
    return answer
