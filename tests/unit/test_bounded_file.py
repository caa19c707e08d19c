"""Files from outside are read up to a bound, and every reader says the same of one that it cannot take."""

from collections.abc import Callable
from pathlib import Path

import pytest

from swarmd_models import bundle, evaluate_coco, picture_file
from swarmd_models.bounded_file import read_bounded
from swarmd_models.errors import ArtefactError, ModelError, SourceError
from swarmd_models.geo import calibration
from swarmd_models.geo.calibration import read_calibration
from swarmd_models.picture_file import picture_bytes

ENDLESS = Path("/dev/zero")


@pytest.mark.parametrize(("most_bytes", "size"), [(4096, "4 KiB"), (1023 << 10, "1023 KiB"), (1 << 20, "1 MiB")])
def test_a_file_may_have_its_bound_and_no_byte_more(tmp_path: Path, most_bytes: int, size: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * most_bytes)
    assert read_bounded(path, most_bytes, "thing", ArtefactError) == b"x" * most_bytes
    path.write_bytes(b"x" * (most_bytes + 1))
    for remedy, words in (("", ""), ("cut it", "; cut it")):
        with pytest.raises(ArtefactError) as refused:
            read_bounded(path, most_bytes, "thing", ArtefactError, remedy)
        assert str(refused.value) == f"thing {path} is larger than {size}{words}"


@pytest.mark.parametrize(
    ("read", "what", "error"),
    [
        (bundle._parse, "bundle", ArtefactError),
        (read_calibration, "calibration", SourceError),
        (picture_bytes, "picture", SourceError),
    ],
)
def test_every_reader_names_what_it_was_given(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Path], object],
    what: str,
    error: type[ModelError],
) -> None:
    monkeypatch.setattr(bundle, "MAX_TOML_BYTES", 4096)
    monkeypatch.setattr(calibration, "MAX_FILE_BYTES", 4096)
    monkeypatch.setattr(picture_file, "MAX_IMAGE_BYTES", 4096)
    gone, endless = tmp_path / "gone.toml", tmp_path / "endless.toml"
    endless.symlink_to(ENDLESS)
    with pytest.raises(error) as missing:
        read(gone)
    assert str(missing.value) == f"cannot read {what} {gone}: No such file or directory"
    with pytest.raises(error) as large:
        read(endless)
    assert str(large.value) == f"{what} {endless} is larger than 4 KiB"


def test_labels_to_judge_by_have_a_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate_coco, "MAX_FILE_BYTES", 4096)
    assert evaluate_coco.main(["--labels", str(ENDLESS), "--pictures", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: labels {ENDLESS} is larger than 4 KiB; judge it in parts\n"
    assert evaluate_coco.main(["--labels", str(tmp_path / "gone"), "--pictures", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: cannot read labels {tmp_path / 'gone'}: No such file or directory\n"
