from hpcfl.log.schema import ENTRIES
from tests.helpers.mpi import ROOT


def test_the_page_about_the_log_has_every_dataset_and_its_meaning():
    text = (ROOT / "docs" / "log.md").read_text()
    for entry in ENTRIES:
        assert f"`{entry.path}`" in text
        assert entry.about in text, entry.path
