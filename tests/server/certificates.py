"""Certificates for tests, made with the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

OPENSSL = shutil.which("openssl")


class Pair(NamedTuple):
    """A certificate and its key."""

    certificate: Path
    key: Path


def make_authority(folder: Path, name: str) -> Pair:
    """One that signs others."""
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-sha256"),
        *("-subj", f"/CN={name}", "-keyout", pair.key, "-out", pair.certificate),
        *("-addext", "basicConstraints=critical,CA:TRUE"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
    )
    return pair


def make_certificate(folder: Path, name: str, authority: Pair) -> Pair:
    """One for localhost, or for a client."""
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text(
        "subjectAltName=DNS:localhost,IP:127.0.0.1\n"
        "extendedKeyUsage=serverAuth,clientAuth\n"
        "authorityKeyIdentifier=keyid\n"
    )
    _openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
        *("-keyout", pair.key, "-out", request),
    )
    _openssl(
        *("x509", "-req", "-in", request, "-CA", authority.certificate, "-CAkey", authority.key),
        *("-CAcreateserial", "-days", "2", "-sha256", "-extfile", extensions),
        *("-out", pair.certificate),
    )
    return pair


def _openssl(*arguments: str | Path) -> None:
    subprocess.run([str(OPENSSL), *arguments], check=True, capture_output=True)
