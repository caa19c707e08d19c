"""The page about operations lists every kind of event and every alert, as the tables in the code do."""

from swarmd.events.kinds import alerts_table, kinds_table
from tests.support.paths import ROOT


def test_the_page_has_the_tables_of_the_code() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    for table in (kinds_table(), alerts_table()):
        assert table in page, "docs/operations.md: put this in\n" + table
