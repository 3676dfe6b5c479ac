"""What every answer's headers say, and which requests are answered at all."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Collection, Mapping

#: The type of answers, errors among them.
JSON = "application/json"


def source_hash(text: bytes) -> str:
    """Return the source expression that lets a page have a style or script with this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


def policy(scripts: str, styles: str, images: str, **more: str) -> str:
    """Return the policy of a page that may have what comes from these sources, and nothing else.

    `more` are further directives, with _ for -.
    """
    directives = {
        "default-src": "'none'",
        "script-src": scripts,
        "style-src": styles,
        "img-src": images,
        "base-uri": "'none'",
        "form-action": "'none'",
        **{key.replace("_", "-"): value for key, value in more.items()},
    }
    return "; ".join(f"{key} {value}" for key, value in directives.items())


def headers(styles: str) -> dict[str, str]:
    """Return the headers of every answer. `styles` are further sources of styles.

    The page loads scripts, styles, images and answers from where it came from, and nothing else;
    no other page may frame it or read what it answers.
    """
    return {
        "Content-Security-Policy": policy(
            "'self'",
            f"'self' {styles}".rstrip(),
            "'self' data:",
            connect_src="'self'",
            frame_ancestors="'none'",
        ),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Embedder-Policy": "require-corp",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    }


def is_loopback(host: str) -> bool:
    """Tell whether a host, a name or an address, is this machine alone."""
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_own_host(host: str, names: Collection[str] = ()) -> bool:
    """Tell whether a Host header names this machine alone, with any port.

    `names` are further names of it, given by whoever serves.
    Another name is that of a page whose owner has it resolve to this machine, to get at what is
    served here (DNS rebinding). Ports may differ, as through a tunnel.
    """
    name, colon, port = host.rpartition(":")
    if not colon or "]" in port:
        name, port = host, ""
    if port and not (port.isascii() and port.isdigit()):
        return False
    return is_loopback(name) or _plain(name) in map(_plain, names)


def _plain(name: str) -> str:
    """Return a name of a host as others spell it, too; a name that is empty stays no name."""
    return name.lower().removesuffix(".") or name


def is_foreign(request: Mapping[str, str], host: str) -> bool:
    """Tell whether the headers of a request say that another site's page sent it."""
    site = request.get("Sec-Fetch-Site", "none")
    origin = request.get("Origin")
    own = (f"http://{host}", f"https://{host}")
    return site not in ("none", "same-origin") or (origin is not None and origin not in own)
