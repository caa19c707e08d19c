"""Two exports at once, of two regions into one place or of one region: no word is lost, and each is answered once."""

import os
import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from swarmd.cli.main import main
from swarmd.errors import ConfigError
from swarmd.federation.rows import ObjectQuery
from swarmd.federation.settings import EXPORT_LOCK_FILE, LOCK_FILE, alone_with, exporting, make_region
from swarmd.federation.store import FILE_NAME, Store
from tests.support.federation_world import make_world

pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra parquet)")

WAIT_S = 0.5
Hold = Callable[[Path], AbstractContextManager[None]]


def regions(folder: Path) -> list[Path]:
    """The files of two regions, each of which has heard one word of its own, and one that both have."""
    files = []
    for name, own in (("a", 1), ("b", 2)):
        (folder / name).mkdir()
        world = make_world(folder / name, random.Random(1), 1, 1)
        [gateway] = world.swarms[0].gateways
        for said in (own, 3):
            gateway.say(said, 500)
        world.settle()
        world.close()
        files.append(folder / name / FILE_NAME)
    return files


@pytest.mark.parametrize("kind", ["an object store", "a folder"])
def test_two_regions_write_into_one_place_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Both have looked before either writes: who came last was all that was left, and both regions had forgotten."""
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    from swarmd.federation import history, stored

    place = stored.Stored(SubTreeFileSystem(str(tmp_path), LocalFileSystem()), "past", "x://past")
    writes: dict[str, Callable[..., None]] = {
        "an object store": partial(stored.write_stored, place),
        "a folder": partial(history.write_words, tmp_path / "past"),  # Of which a share has no locks.
    }
    both = threading.Barrier(2)
    for module in (history, stored):

        def meet(table: Any, real: Any = module.packed) -> Any:
            with suppress(threading.BrokenBarrierError):
                both.wait(WAIT_S)
            return real(table)

        monkeypatch.setattr(module, "packed", meet)
    counts: list[int] = []

    def run(file: Path) -> None:
        store = Store(file)
        counts.append(history.export(store, tmp_path / "past", writes[kind]))
        store.close()

    threads = [threading.Thread(target=run, args=(file,)) for file in regions(tmp_path)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert counts == [2, 2]
    assert len(list((tmp_path / "past").rglob("*.parquet"))) == 2
    for rows in (history.ask(tmp_path / "past", ObjectQuery()), stored.ask_stored(place, ObjectQuery())):
        assert len({row["object"] for row in rows}) == len(rows) == 3


def test_of_two_exports_of_one_region_one_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a store the shorter one would write over the file of the longer one, whose words the region has forgotten."""
    region = tmp_path / "region"
    make_region(region)
    with exporting(region):
        assert main(["region", "export", str(region), str(tmp_path / "past")]) == 1
        assert f"another export of the region in {region} runs; wait until it is done" in capsys.readouterr().err
    assert main(["region", "export", str(region), str(tmp_path / "past")]) == 0


@pytest.mark.parametrize(("name", "hold"), [(EXPORT_LOCK_FILE, exporting), (LOCK_FILE, alone_with)])
def test_a_regions_lock_is_a_file_of_its_account(name: str, hold: Hold, tmp_path: Path) -> None:
    """Root's own would keep out the account that runs the region."""
    region = tmp_path / "region"
    make_region(region)
    if os.geteuid() == 0:
        os.chown(region, 4711, 4712)
    with hold(region):
        assert (region / name).stat().st_uid == region.stat().st_uid
    (region / name).unlink()
    (region / name).symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError, match="cannot be opened"), hold(region):
        pass
    assert not (tmp_path / "other").exists()


def test_a_draft_of_either_name_goes(tmp_path: Path) -> None:
    from swarmd.federation.history import export, file_name

    [file, _] = regions(tmp_path)
    day = tmp_path / "past" / "objects" / "swarm=a" / "day=2026-11-01"
    day.mkdir(parents=True)
    kept = [day / "mine.parquet.new", day / "000000000001-mine.parquet.new"]
    for path in [*kept, *(day / (file_name(1, log) + ".new") for log in ("", "0011223344556677"))]:
        path.touch()
    store = Store(file)
    export(store, tmp_path / "past")
    store.close()
    assert sorted(day.iterdir()) == sorted(kept)
