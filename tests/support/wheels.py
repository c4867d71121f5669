"""Small wheels, and a package index for them on loopback."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from cellblock.host.services.operations import packages
from cellblock.host.services.operations.grants import OperationError
from support.web import Web, answer

if TYPE_CHECKING:
    from pathlib import Path

    from cellblock.host.services.operations.packages import Package


def wheel(
    name: str,
    version: str,
    *,
    needs: tuple[str, ...] = (),
    size: int = 0,
    source: str = "",
    **files: str,
) -> bytes:
    """Return a wheel of a package with its version and ``source``, and modules ``files``."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    contents = {
        f"{module}/__init__.py": f"version = {version!r}\n{source}" + "#" * size,
        f"{info}/METADATA": head + "".join(f"Requires-Dist: {need}\n" for need in needs),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **{f"{file}.py": text for file, text in files.items()},
    }
    record = "".join(f"{path},{_hash(text)},{len(text)}\n" for path, text in contents.items())
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return made.getvalue()


def _hash(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256={digest.decode().rstrip('=')}"


class Index(Web):
    """A simple index (PEP 503). ``files`` has the contents by file name, and may be changed."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        super().__init__(self._page)
        self.url = f"{self.origin}/simple"

    def add(self, name: str, version: str, **more: object) -> None:
        """Add a wheel to the index."""
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        self.files[file] = wheel(name, version, **more)

    def _page(self, path: str, _head: str) -> bytes:
        what = path.strip("/").split("/")
        if what[0] == "files" and what[1] in self.files:
            return answer(self.files[what[1]])
        if what[0] != "simple" or len(what) != 2:
            return answer(status="404 Not Found")
        named = [file for file in self.files if file.startswith(f"{what[1].replace('-', '_')}-")]
        links = "".join(f'<a href="/files/{file}">{file}</a>' for file in named)
        return answer(
            links.encode(), "200 OK" if named else "404 Not Found", content_type="text/html"
        )

    def unpack(self, requirement: str, *, into: Path, **_limits: object) -> Package:
        """Unpack a wheel of this index as an installer would, without its second of imports."""
        self.asked.append(f"GET {requirement} ")
        wanted = Requirement(requirement)
        found = {
            parse_wheel_filename(file)[1]: content
            for file, content in self.files.items()
            if file.endswith(".whl") and parse_wheel_filename(file)[0] == wanted.name
        }
        fits = [version for version in found if version in wanted.specifier]
        if not fits:
            raise OperationError("InstallError", "there is none")
        with zipfile.ZipFile(io.BytesIO(found[max(fits)])) as archive:
            archive.extractall(into)
        return packages._package(into)

    def asked_for(self) -> list[str]:
        """Return the paths requested since the last call."""
        paths, self.asked = [head.split(" ")[1] for head in self.asked], []
        return paths
