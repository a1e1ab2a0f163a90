"""Builds the wheel and the source distribution with the standard library alone (PEP 517). The
version is PUNCTUAL_VERSION, which "make clients" sets to that of the binary."""

import base64
import hashlib
import io
import os
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
VERSION = os.environ.get("PUNCTUAL_VERSION", "0.0.0.dev0")
METADATA = f"""Metadata-Version: 2.1
Name: punctual
Version: {VERSION}
Summary: Client and worker for Punctual, which delivers a message at the time asked for
License: Apache-2.0
Requires-Python: >=3.9
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: punctual\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _sources():
    folder = os.path.join(HERE, "punctual")
    for name in sorted(os.listdir(folder)):
        if name.endswith((".py", ".typed")):
            with open(os.path.join(folder, name), "rb") as f:
                yield "punctual/" + name, f.read()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    info = f"punctual-{VERSION}.dist-info"
    files = dict(_sources())
    files[info + "/METADATA"], files[info + "/WHEEL"] = METADATA.encode(), WHEEL.encode()
    record = "".join(f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n" for name, data in files.items())
    files[info + "/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    name = f"punctual-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as z:
        for path, data in files.items():
            z.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)  # the same bytes each time
    return name


def build_sdist(sdist_directory, config_settings=None):
    name = f"punctual-{VERSION}"
    files = dict(_sources())
    files["PKG-INFO"] = METADATA.encode()
    for own in ("pyproject.toml", "_build.py"):
        with open(os.path.join(HERE, own), "rb") as f:
            files[own] = f.read()
    with tarfile.open(os.path.join(sdist_directory, name + ".tar.gz"), "w:gz") as t:
        for path, data in files.items():
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(data)
            t.addfile(entry, io.BytesIO(data))
    return name + ".tar.gz"
