"""A throw-away certificate authority, made by openssl."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Authority:
    """A certificate authority that lives as long as the test."""

    directory: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.directory / f"{self.name}.crt"

    def make(self) -> "Authority":
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
            *("-subj", f"/CN={self.name}", "-keyout", str(self._key), "-out", str(self.certificate)),
        )
        return self

    def issue(self, who: str, extra: str = "", days: int = 2, address: str = "127.0.0.1") -> tuple[Path, Path]:
        """A certificate and its key for `who`, good as client and as server on `address` unless `extra` says less."""
        base = self.directory / f"{self.name}-{who}"
        key, request, certificate = (base.with_suffix(end) for end in (".key", ".csr", ".crt"))
        extensions = base.with_suffix(".ext")
        extensions.write_text(f"subjectAltName=IP:{address}\n{extra}")
        openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={who}"),
            *("-keyout", str(key), "-out", str(request)),
        )
        openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self._key)),
            *("-CAcreateserial", "-days", str(days), "-extfile", str(extensions), "-out", str(certificate)),
        )
        key.chmod(0o600)
        return certificate, key

    @property
    def _key(self) -> Path:
        return self.directory / f"{self.name}.key"


def openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
