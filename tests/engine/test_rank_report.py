"""The message of a rank after a round."""

import numpy as np

from hpcfl.checkpoint.saved_client import SavedClient
from hpcfl.engine.rank_report import CpuSeconds, RankReport, decode_report


def test_reports_round_trip():
    saved = [SavedClient(3, 0, 64, "ab" * 16), SavedClient(9, 64, 128, "0f" * 16)]
    metrics = np.arange(50, dtype=np.uint8)
    for report in (
        RankReport(CpuSeconds(1.5, 2.5), saved, metrics),
        RankReport(CpuSeconds(1.5, 2.5), saved, metrics, metrics[7:20]),
        RankReport(CpuSeconds(0, 0), [], metrics[:0]),
    ):
        got = decode_report(report.encode())
        assert (got.cpu, got.saved) == (report.cpu, report.saved)
        np.testing.assert_array_equal(got.metrics, report.metrics)
        np.testing.assert_array_equal(got.features, report.features)
