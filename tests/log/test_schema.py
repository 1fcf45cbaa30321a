from hpcfl.log.page import metrics_tables
from hpcfl.log.schema import METRICS
from tests.helpers.mpi import ROOT


def test_the_page_about_the_log_follows_from_the_schema(hpcfl):
    assert metrics_tables() in (ROOT / "docs" / "log.md").read_text()
    assert hpcfl("catalog", "--metrics").output == f"{metrics_tables()}\n"


def test_paths_are_unique_and_every_metric_says_what_it_is():
    assert len({metric.path for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.about
        assert metric.dims
